/* SPDX-License-Identifier: Apache-2.0 */
#include "job/parallel.h"

#include "base/array.h"
#include "job/dtype.h"
#include "job/transform.h"
#include "job/spec_keys.h"
#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define INFER(field) offsetof(struct infer_spec, field)

static const struct spec_choice names_choices[] = {
	{"sglang", NAMES_SGLANG}, {"vllm", NAMES_VLLM}, {NULL, 0}};
static const struct spec_choice experts_choices[] = {{"linear", EXPERTS_LINEAR},
						     {"round_robin", EXPERTS_ROUND_ROBIN},
						     {"round_robin_a2a", EXPERTS_ROUND_ROBIN_A2A},
						     {NULL, 0}};
static const struct spec_choice dtype_choices[] = {
	{"F32", DTYPE_F32}, {"BF16", DTYPE_BF16}, {"F16", DTYPE_F16}, {NULL, 0}};
static const struct spec_choice weights_choices[] = {{"out_in", 0}, {"in_out", 1}, {NULL, 0}};
static const struct spec_choice halves_choices[] = {{"gate_up", 0}, {"up_gate", 1}, {NULL, 0}};
static const struct spec_choice indexer_choices[] = {{"split", 0}, {"fused", 1}, {NULL, 0}};

static const struct spec_key infer_keys[] = {
	{"engines", INFER(engines), 1, PARALLEL_RANKS_MAX, 1, NULL, true},
	{"tp", INFER(tp), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"ep", INFER(ep), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"dp", INFER(dp), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"dp_lm_head", INFER(dp_lm_head), 0, 1, 0, NULL, false},
	{"moe_dense_tp", INFER(moe_dense_tp), 0, 1, 0, NULL, false},
	{"a2a", INFER(a2a), 0, 1, 0, NULL, false},
	{"fuse_shared", INFER(fuse_shared), 0, 1, 0, NULL, false},
	{"embed_replicated", INFER(embed_replicated), 0, 1, 0, NULL, false},
	{"names", INFER(names), 0, 0, 0, names_choices, false},
	{"experts", INFER(experts), 0, 0, 0, experts_choices, false},
	{"routed_experts", INFER(routed_experts), 0, 1, 0, NULL, false},
	{"expert_weights", INFER(experts_in_out), 0, 0, 0, weights_choices, false},
	{"expert_halves", INFER(up_gate), 0, 0, 0, halves_choices, false},
	{"untied", INFER(untied), 0, 1, 0, NULL, false},
	{"gate", INFER(gate), 0, 0, 0, dtype_choices, false},
	{"indexer", INFER(indexer_fused), 0, 0, 0, indexer_choices, false},
	{"dtype", INFER(dtype), 0, 0, 0, dtype_choices, false},
};

/* "128x64", or "128" for both. */
static bool parse_block(const char *value, uint32_t *rows, uint32_t *columns)
{
	char copy[32];
	uint64_t sizes[2];
	char *cross;

	if (snprintf(copy, sizeof(copy), "%s", value) >= (int)sizeof(copy))
		return false;
	cross = strpbrk(copy, "xX");
	if (cross)
		*cross++ = '\0';
	if (!parse_u64(copy, &sizes[0]) || !parse_u64(cross ? cross : copy, &sizes[1]))
		return false;
	for (int d = 0; d < 2; d++)
		if (sizes[d] == 0 || sizes[d] > TRANSFORM_BLOCK_MAX)
			return false;
	*rows = (uint32_t)sizes[0];
	*columns = (uint32_t)sizes[1];
	return true;
}

static int take_pad(struct spec_parse *parse, const char *value, struct error *error)
{
	struct infer_spec *spec = parse->target;

	if (spec->pad_share)
		return error_set(error, ERROR_CONFIG, "--infer %s: key 'mxfp4_pad' is given twice",
				 parse->spec);
	if (!strpbrk(value, "xX") || !parse_block(value, &spec->pad_share, &spec->pad_hidden) ||
	    (spec->pad_share > 1 && spec->pad_share % MXFP4_BLOCK) ||
	    (spec->pad_hidden > 1 && spec->pad_hidden % MXFP4_BLOCK))
		return error_set(error, ERROR_CONFIG,
				 "--infer %s: mxfp4_pad is '%s'; use what a rank's share of an "
				 "expert and the hidden size are rounded up to, as 64x1 or 128x256 "
				 "(1 or a multiple of %u each)",
				 parse->spec, value, MXFP4_BLOCK);
	return 1;
}

static int take_infer(struct spec_parse *parse, const char *key, const char *value,
		      struct error *error)
{
	struct infer_spec *spec = parse->target;

	if (strcmp(key, "mxfp4_pad") == 0)
		return take_pad(parse, value, error);
	if (strcmp(key, "fp8") != 0)
		return 0;
	if (spec->fp8 != FP8_AS_STORED)
		return error_set(error, ERROR_CONFIG, "--infer %s: key 'fp8' is given twice",
				 parse->spec);
	spec->fp8 = strcasecmp(value, "none") == 0 ? FP8_NONE : FP8_BLOCKS;
	if (spec->fp8 == FP8_BLOCKS && !parse_block(value, &spec->fp8_rows, &spec->fp8_columns))
		return error_set(error, ERROR_CONFIG,
				 "--infer %s: fp8 is '%s'; use none, or the rows and columns of a "
				 "block, as 128x128 (1 to %u each)",
				 parse->spec, value, TRANSFORM_BLOCK_MAX);
	return 1;
}

/* What vLLM has not. */
static const struct {
	const char *key;
	size_t offset;
	const char *why;
} sglang_only[] = {
	{"dp_lm_head", INFER(dp_lm_head), "its dp ranks cut lm_head among themselves anyway"},
	{"moe_dense_tp", INFER(moe_dense_tp), "its dp ranks cut dense layers among themselves"},
	{"fuse_shared", INFER(fuse_shared), "its shared experts are a module of their own"},
	{"embed_replicated", INFER(embed_replicated),
	 "its dp ranks cut the embedding among themselves"},
};

static int check_vllm(const struct infer_spec *spec, struct error *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(sglang_only); i++)
		if (*(const uint32_t *)(const void *)((const char *)spec + sglang_only[i].offset))
			return error_set(error, ERROR_CONFIG,
					 "%s=1 is not for names=vllm: %s; leave it out",
					 sglang_only[i].key, sglang_only[i].why);
	if (spec->ep != 1 && spec->ep != spec->tp)
		return error_set(error, ERROR_CONFIG,
				 "ep=%u with names=vllm: experts are shared out to all ranks of "
				 "an engine or to none; use ep=1 or ep=%u",
				 spec->ep, spec->tp);
	return 0;
}

/* Experts that vLLM hands out in turn; with dp an all-to-all kernel stands between its ranks, and few of them can. */
static int check_round_robin(const struct infer_spec *spec, struct error *error)
{
	bool by_kernel = spec->experts == EXPERTS_ROUND_ROBIN_A2A;

	if (spec->experts == EXPERTS_LINEAR)
		return 0;
	if (spec->names != NAMES_VLLM)
		return error_set(
			error, ERROR_CONFIG,
			"experts=round_robin needs names=vllm: other engines own blocks of "
			"neighbours; leave it out");
	if (!by_kernel && spec->ep > 1 && spec->dp > 1)
		return error_set(
			error, ERROR_CONFIG,
			"experts=round_robin with dp=%u: between dp's ranks vLLM has an "
			"all-to-all kernel, and with all but DeepEP low latency and NIXL it "
			"falls back to linear; say experts=round_robin_a2a where "
			"--all2all-backend is one of these, else experts=linear",
			spec->dp);
	if (by_kernel && (spec->ep == 1 || spec->dp == 1))
		return error_set(
			error, ERROR_CONFIG,
			"experts=round_robin_a2a is about an all-to-all kernel, which vLLM has "
			"with ep and dp above 1; say experts=round_robin");
	return 0;
}

static int check_fused(const struct infer_spec *spec, struct error *error)
{
	if (spec->ep > 1)
		return error_set(error, ERROR_CONFIG,
				 "fuse_shared=1 with ep=%u: engines make shared experts slots of "
				 "the routed ones at ep=1 only; leave one of the two out",
				 spec->ep);
	if (spec->a2a)
		return error_set(error, ERROR_CONFIG,
				 "fuse_shared=1 with a2a=1: with an all-to-all backend shared "
				 "experts stay a module of their own; leave one of the two out");
	return 0;
}

static int check_divides(const char *name, uint32_t small, uint32_t tp, struct error *error)
{
	if (small && tp && tp % small == 0)
		return 0;
	return error_set(error, ERROR_CONFIG, "%s=%u does not divide tp=%u", name, small, tp);
}

int infer_spec_check(const struct infer_spec *spec, struct error *error)
{
	int rc = check_divides("ep", spec->ep, spec->tp, error);

	if (rc == 0)
		rc = check_divides("dp", spec->dp, spec->tp, error);
	if (rc == 0 && (uint64_t)spec->engines * spec->tp > PARALLEL_RANKS_MAX)
		rc = error_set(error, ERROR_CONFIG, "%llu ranks; at most %d are possible",
			       (unsigned long long)spec->engines * spec->tp, PARALLEL_RANKS_MAX);
	if (rc == 0 && spec->names == NAMES_VLLM)
		rc = check_vllm(spec, error);
	if (rc == 0 && spec->fuse_shared)
		rc = check_fused(spec, error);
	if (rc == 0)
		rc = check_round_robin(spec, error);
	if (rc == 0 && spec->untied && spec->names != NAMES_VLLM)
		rc = error_set(
			error, ERROR_CONFIG,
			"untied=1 needs names=vllm: other engines tie lm_head to the embedding "
			"as config.json says, whatever the checkpoint has; leave it out");
	if (rc == 0 && spec->experts_in_out && spec->names != NAMES_SGLANG)
		rc = error_set(error, ERROR_CONFIG,
			       "expert_weights=in_out is not for names=vllm: its loader keeps "
			       "matrices of experts [out, in]; leave it out");
	if (rc == 0 && spec->routed_experts && spec->names != NAMES_VLLM)
		rc = error_set(error, ERROR_CONFIG,
			       "routed_experts=1 needs names=vllm: other engines have no module "
			       "of that name around the experts; leave it out");
	return rc;
}

int infer_spec_parse(struct infer_spec *spec, const char *string, struct error *error)
{
	struct infer_spec made = {0};
	struct spec_parse parse = {.flag = "--infer",
				   .spec = string,
				   .example = "engines=2,tp=2",
				   .rows = infer_keys,
				   .row_count = ARRAY_SIZE(infer_keys),
				   .target = &made,
				   .other = take_infer,
				   .other_keys = "fp8, mxfp4_pad"};
	int rc = spec_parse_keys(&parse, error);

	if (rc)
		return rc;
	rc = infer_spec_check(&made, error);
	if (rc)
		error_wrap(error, "--infer %s", string);
	else
		*spec = made;
	return rc;
}

char *infer_spec_text(const struct infer_spec *spec, char out[PARALLEL_TEXT_BYTES])
{
	size_t n = spec_keys_text(infer_keys, ARRAY_SIZE(infer_keys), spec, out);

	if (spec->fp8 == FP8_NONE)
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, ",fp8=none");
	else if (spec->fp8 == FP8_BLOCKS)
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, ",fp8=%ux%u",
				      spec->fp8_rows, spec->fp8_columns);
	if (spec->pad_share)
		snprintf(out + n, PARALLEL_TEXT_BYTES - n, ",mxfp4_pad=%ux%u", spec->pad_share,
			 spec->pad_hidden);
	return out;
}
