/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a config.json. What is accepted makes a model and, for a few engines, a rank
 * layout with its derived tensors or a refusal; and, written again, is read back the same.
 */
#include "model/config.h"

#include "base/array.h"
#include "model/derived.h"
#include "model/tensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool holds)
{
	if (!holds)
		abort();
}

static const char *const engines[] = {
	"tp=1",
	"tp=2,ep=2",
	"tp=4,dp=2,dp_lm_head=1,moe_dense_tp=1,ep=2",
	"tp=8,ep=8,dp=8",
	"tp=2,a2a=1,embed_replicated=1,gate=F32",
	"tp=2,fuse_shared=1,indexer=fused,dtype=F16",
	"tp=2,expert_halves=up_gate,fp8=128x128",
	"tp=2,ep=2,names=vllm,experts=round_robin,routed_experts=1,fp8=none",
	"tp=2,fp8=128x128",
	"tp=1,fp8=64x32,dtype=F32",
	"tp=2,mxfp4_pad=64x1",
	"tp=4,expert_weights=in_out",
};

/* Every byte of every parameter in one piece or fill is layout_finish's affair; here the sums. */
static void check_layout(const struct model *model, const struct infer_spec *infer,
			 const struct layout *layout)
{
	uint64_t params = 0, written = 0;
	struct derived_list derived;
	struct error error = {0};

	for (size_t p = 0; p < layout->param_count; p++)
		params += layout->params[p].bytes;
	for (size_t p = 0; p < layout->piece_count; p++) {
		const struct piece *piece = &layout->pieces[p];

		check(model_find(model, layout->tensors[piece->tensor].name) >= 0);
		check(!piece->transform.from_rows || piece->scales < layout->tensor_count);
		written += piece->bytes;
	}
	for (size_t f = 0; f < layout->fill_count; f++)
		written += layout->fills[f].bytes;
	check(params == written);
	check(derived_list(&derived, model, infer, layout, &error) == 0);
	for (size_t i = 0; i < derived.count; i++)
		check(derived.items[i].param < layout->param_count && derived.items[i].dims);
	derived_list_fini(&derived);
}

static void cut(const struct model *model, const uint8_t *data, size_t bytes)
{
	unsigned char choice = data[bytes / 2];

	for (size_t i = 0; i < 3; i++) {
		struct infer_spec infer;
		struct layout layout;
		struct error error = {0};

		check(infer_spec_parse(&infer, engines[(choice + i) % ARRAY_SIZE(engines)],
				       &error) == 0);
		if (model_layout(model, &infer, choice % infer.tp, &layout, &error))
			check((error.code == ERROR_CONFIG || error.code == ERROR_UNSUPPORTED) &&
			      error.text[0]);
		else
			check_layout(model, &infer, &layout);
		layout_fini(&layout);
	}
}

static void check_totals(const struct model *model)
{
	struct model_total totals[2];
	struct error error = {0};

	check(model_totals(&model->config, totals, &error) == 0);
	check(totals[0].tensors == model->tensor_count && totals[1].tensors == model->all_count);
	check(totals[0].bytes == model->bytes && totals[1].bytes == model->all_bytes);
	check(totals[0].parameters == model->parameters);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct model_config config = {0}, again = {0};
	struct error error = {0};
	struct text text = {0};
	struct model *model;

	if (config_parse((const char *)data, bytes, "input", &config, &error)) {
		check(error.code && error.text[0]);
		return 0;
	}
	config_write(&config, &text);
	check(config_parse(text_string(&text), text.bytes, "again", &again, &error) == 0);
	check(memcmp(&config, &again, sizeof(config)) == 0);
	text_fini(&text);
	/* the same rows again; the fuzzer wants many small models */
	if (config.layers + config.mtp_layers > 8 || config.experts > 16)
		return 0;
	check(model_from_config(&model, "input", &config, &error) == 0);
	check_totals(model);
	cut(model, data, bytes);
	model_close(&model);
	return 0;
}
