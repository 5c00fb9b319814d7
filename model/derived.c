/* SPDX-License-Identifier: Apache-2.0 */
#include "model/derived.h"

#include "base/array.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/family.h"
#include "model/model.h"
#include <string.h>

/* When a row applies: how the parameter that it is made of is stored. */
enum stored {
	STORED_ANY,
	STORED_WIDE,	   /* not in fp8 blocks */
	STORED_BLOCKS,	   /* in fp8 blocks of any size */
	STORED_BLOCKS_128, /* of 128 x 128 */
	STORED_BLOCKS_OTHER
};

enum form {
	FORM_SCALAR,
	FORM_SAME,	   /* as the parameter */
	FORM_KEYS,	   /* [heads, dn, kl], the transpose of a dense [heads, kl, dn] */
	FORM_VALUES,	   /* [heads, kl, dv], the transpose of a dense [heads, dv, kl] */
	FORM_KEY_SCALES,   /* [heads, kl/128, dn/128], dense */
	FORM_VALUE_SCALES, /* [heads, dv/128, kl/128], dense */
	FORM_KEY_VIEW,	   /* [heads, dn, kl] inside of kv_b_proj as it lies */
	FORM_VALUE_VIEW,   /* [heads, kl, dv] inside of kv_b_proj as it lies */
	FORM_KEY_PART,	   /* the same inside of a dense [kl, heads (dn + dv)] */
	FORM_VALUE_PART,
	FORM_PACKED, /* [.., rows, ceil(block columns / 4)], rows the fastest */
};

struct row {
	struct derived_kind kind;
	enum engine_names engine;
	const char *param; /* how the parameter's name ends; kind.name stands in its place */
	enum stored stored;
	enum form form;
	enum dtype dtype;		 /* DTYPE_NONE: the parameter's */
	const struct family *classes[2]; /* {NULL}: of all */
};

#define KV_B	  "self_attn.kv_b_proj.weight"
#define POST_LOAD "the engine's post_load_weights, in end_weight_update"
#define FINALISE  "the engine's quantisation finish, in end_weight_update"
#define BMM                                                                                  \
	"Hopper with DeepGEMM and SGL_USE_DEEPGEMM_BMM=1; w_kc and w_vc are then dense and " \
	"stay F8_E4M3"
#define BLACKWELL                                                                              \
	"Blackwell with DeepGEMM, or DEEPGEMM_SCALE_UE8M0: the parameter itself takes this "   \
	"dtype and layout and its weight is quantised again, so a write must come before it, " \
	"between begin_weight_update and end_weight_update"
#define HEAD_KEYS   "the first qk_nope_head_dim rows of each head of kv_b_proj"
#define HEAD_VALUES "the other v_head_dim rows of each head of kv_b_proj"

/* clang-format off */
static const struct row rows[] = {
	/* SGLang: models/deepseek_common/deepseek_weight_loader.py */
#define KEYS_AND_VALUES(more, stored, dtype) \
	{{"self_attn.w_kc", DERIVED_REBUILT, HEAD_KEYS more, POST_LOAD, NULL}, \
	 NAMES_SGLANG, KV_B, stored, FORM_KEYS, dtype, {NULL}}, \
	{{"self_attn.w_vc", DERIVED_REBUILT, HEAD_VALUES more, POST_LOAD, NULL}, \
	 NAMES_SGLANG, KV_B, stored, FORM_VALUES, dtype, {NULL}}
	KEYS_AND_VALUES("", STORED_WIDE, DTYPE_NONE),
	KEYS_AND_VALUES(", dequantised", STORED_BLOCKS_128, DTYPE_BF16),
	KEYS_AND_VALUES(", quantised again with one scale (w_scale)", STORED_BLOCKS_OTHER, DTYPE_F8_E4M3),
	{{"self_attn.w_scale", DERIVED_REBUILT, "the one scale of w_kc and w_vc", POST_LOAD, NULL},
	 NAMES_SGLANG, KV_B, STORED_BLOCKS_OTHER, FORM_SCALAR, DTYPE_F32, {NULL}},
	{{"self_attn.w_scale_k", DERIVED_OPTIONAL, "the block scales of w_kc", POST_LOAD, BMM},
	 NAMES_SGLANG, KV_B, STORED_BLOCKS_128, FORM_KEY_SCALES, DTYPE_F32, {NULL}},
	{{"self_attn.w_scale_v", DERIVED_OPTIONAL, "the block scales of w_vc", POST_LOAD, BMM},
	 NAMES_SGLANG, KV_B, STORED_BLOCKS_128, FORM_VALUE_SCALES, DTYPE_F32, {NULL}},
	/* SGLang: layers/quantization/kv_cache.py; -1 when made, 1.0 from the first load on */
#define SCALAR(name, param) \
	{{name, DERIVED_CONSTANT, "a scalar of the KV cache: 1.0, no tensor behind it", NULL, NULL}, \
	 NAMES_SGLANG, param, STORED_BLOCKS, FORM_SCALAR, DTYPE_F32, {NULL}}
	SCALAR("self_attn.attn_mqa.k_scale", KV_B), SCALAR("self_attn.attn_mqa.v_scale", KV_B),
	SCALAR("self_attn.attn_mha.k_scale", KV_B), SCALAR("self_attn.attn_mha.v_scale", KV_B),
	SCALAR("self_attn.attn.k_scale", "self_attn.qkv_proj.weight"),
	SCALAR("self_attn.attn.v_scale", "self_attn.qkv_proj.weight"),
	/* SGLang: layers/quantization/fp8_utils.py, transform_scale_ue8m0; a matrix's, then experts' */
#define PACKED(suffix) \
	{{suffix, DERIVED_OPTIONAL, \
	  "its scales rounded up to powers of two, four exponents a word, one row a row of the weight", \
	  FINALISE, BLACKWELL}, \
	 NAMES_SGLANG, suffix, STORED_BLOCKS_128, FORM_PACKED, DTYPE_I32, {NULL}}
	PACKED(".weight_scale_inv"), PACKED(".w13_weight_scale_inv"), PACKED(".w2_weight_scale_inv"),
	/* SGLang: models/glm4_moe.py from #21660 until #35883 */
	{{"mlp.gate._weight_fp32", DERIVED_STALE, "the router gate in 32 bits, made at the first forward",
	  NULL, "builds with sgl #21660 and without #35883"},
	 NAMES_SGLANG, "mlp.gate.weight", STORED_ANY, FORM_SAME, DTYPE_F32,
	 {&family_glm4_moe, &family_glm4_moe_lite}},
	/* vLLM: MLA attention, process_weights_after_loading */
	{{"self_attn.mla_attn.W_UK_T", DERIVED_VIEW, HEAD_KEYS, NULL, NULL},
	 NAMES_VLLM, KV_B, STORED_WIDE, FORM_KEY_VIEW, DTYPE_NONE, {NULL}},
	{{"self_attn.mla_attn.W_UV", DERIVED_VIEW, HEAD_VALUES, NULL, NULL},
	 NAMES_VLLM, KV_B, STORED_WIDE, FORM_VALUE_VIEW, DTYPE_NONE, {NULL}},
	{{"self_attn.mla_attn.W_UK_T", DERIVED_REBUILT, HEAD_KEYS ", dequantised",
	  "the engine's process_weights_after_loading", NULL},
	 NAMES_VLLM, KV_B, STORED_BLOCKS, FORM_KEY_PART, DTYPE_BF16, {NULL}},
	{{"self_attn.mla_attn.W_UV", DERIVED_REBUILT, HEAD_VALUES ", dequantised",
	  "the engine's process_weights_after_loading", NULL},
	 NAMES_VLLM, KV_B, STORED_BLOCKS, FORM_VALUE_PART, DTYPE_BF16, {NULL}},
};
/* clang-format on */

struct maker {
	const struct model_config *config;
	const struct infer_spec *infer;
	const struct layout *layout;
	uint64_t block[2]; /* of the engine's linears; 0: not quantised */
	struct derived_list *list;
	struct error *error;
};

static uint32_t find_param(const struct layout *layout, const char *name)
{
	uint32_t index;

	return strmap_get(&layout->param_names, name, &index) ? index : DERIVED_NO_PARAM;
}

static bool stored_as(const struct maker *maker, const struct row *row,
		      const struct tensor_info *param)
{
	bool blocks = param->dtype == DTYPE_F8_E4M3 || text_ends(param->name, SCALE_SUFFIX);
	bool by_128 = maker->block[0] == 128 && maker->block[1] == 128;

	switch (row->stored) {
	case STORED_ANY:
		return true;
	case STORED_WIDE:
		return !blocks;
	case STORED_BLOCKS:
		return blocks;
	case STORED_BLOCKS_128:
		return blocks && by_128;
	case STORED_BLOCKS_OTHER:
		return blocks && !by_128;
	}
	return false;
}

static bool applies(const struct maker *maker, const struct row *row,
		    const struct tensor_info *param)
{
	const struct model_config *config = maker->config;

	if (row->engine != maker->infer->names || !text_ends(param->name, row->param) ||
	    !stored_as(maker, row, param))
		return false;
	if (row->classes[0] && row->classes[0] != config->family &&
	    row->classes[1] != config->family)
		return false;
	if (row->kind.state == DERIVED_STALE && param->dtype == row->dtype)
		return false; /* a gate of 32 bits needs no copy */
	if (row->form == FORM_KEY_SCALES || row->form == FORM_VALUE_SCALES)
		return config->qk_nope_head_dim % 128 == 0 && config->v_head_dim % 128 == 0 &&
		       config->kv_lora_rank % 128 == 0;
	return true;
}

/* Three dimensions, and how far apart their elements lie. */
static void three(struct derived *derived, const uint64_t shape[3], uint64_t s0, uint64_t s1,
		  uint64_t s2)
{
	derived->dims = 3;
	memcpy(derived->shape, shape, 3 * sizeof(*shape));
	derived->strides[0] = s0;
	derived->strides[1] = s1;
	derived->strides[2] = s2;
}

static void dense(struct derived *derived, uint32_t dims, const uint64_t *shape)
{
	uint64_t stride = 1;

	derived->dims = dims;
	for (uint32_t d = dims; d-- > 0; stride *= shape[d]) {
		derived->shape[d] = shape[d];
		derived->strides[d] = stride;
	}
}

/* What FORM_PACKED is: int32 words, four block columns each, column-major in each slot, the
 * columns rounded up to 16 bytes. Returns elements of storage. */
static uint64_t packed(struct derived *derived, const struct tensor_info *weight)
{
	uint32_t dims = weight->dims;
	uint64_t rows_of = weight->shape[dims - 2], aligned = (rows_of + 3) / 4 * 4;
	uint64_t blocks = (weight->shape[dims - 1] + 127) / 128, words = (blocks + 3) / 4;

	derived->dims = dims;
	derived->shape[0] = derived->strides[0] = 1;
	if (dims == 3) {
		derived->shape[0] = weight->shape[0];
		derived->strides[0] = aligned * words;
	}
	derived->shape[dims - 2] = rows_of;
	derived->strides[dims - 2] = 1;
	derived->shape[dims - 1] = words;
	derived->strides[dims - 1] = aligned;
	return (dims == 3 ? weight->shape[0] : 1) * aligned * words;
}

/* Shape and strides; returns elements of its own storage. */
static uint64_t shape_it(const struct maker *maker, const struct row *row, struct derived *derived)
{
	const struct model_config *config = maker->config;
	const struct tensor_info *param = &maker->layout->params[derived->param];
	uint64_t dn = config->qk_nope_head_dim, dv = config->v_head_dim, kl = config->kv_lora_rank;
	uint64_t heads = dn + dv ? param->shape[0] / (dn + dv) : 0, width = heads * (dn + dv);
	const uint64_t one[1] = {1}, keys[3] = {heads, dn, kl}, values[3] = {heads, kl, dv};
	const uint64_t key_scales[3] = {heads, kl / 128, dn / 128};
	const uint64_t value_scales[3] = {heads, dv / 128, kl / 128};

	switch (row->form) {
	case FORM_SCALAR:
		dense(derived, 1, one);
		return 1;
	case FORM_SAME:
		dense(derived, param->dims, param->shape);
		return param->bytes / dtype_bytes(param->dtype);
	case FORM_KEYS:
		three(derived, keys, dn * kl, 1, dn);
		return heads * dn * kl;
	case FORM_VALUES:
		three(derived, values, dv * kl, 1, kl);
		return heads * dv * kl;
	case FORM_KEY_SCALES:
		dense(derived, 3, key_scales);
		return heads * (kl / 128) * (dn / 128);
	case FORM_VALUE_SCALES:
		dense(derived, 3, value_scales);
		return heads * (dv / 128) * (kl / 128);
	case FORM_KEY_VIEW:
		three(derived, keys, (dn + dv) * kl, kl, 1);
		return 0;
	case FORM_VALUE_VIEW:
		three(derived, values, (dn + dv) * kl, 1, kl);
		return 0;
	case FORM_KEY_PART:
		three(derived, keys, dn + dv, 1, width);
		return heads * dn * kl;
	case FORM_VALUE_PART:
		three(derived, values, dn + dv, width, 1);
		return heads * dv * kl;
	case FORM_PACKED:
		return packed(derived, &maker->layout->params[derived->scales]);
	}
	return 0;
}

/* The parameters it is made of. For packed scales: the scales themselves, and the weight whose
 * rows they are spread over. False when the layout lacks that. */
static bool find_sources(const struct maker *maker, const struct row *row, uint32_t param,
			 struct derived *derived)
{
	const struct tensor_info *info = &maker->layout->params[param];
	char name[RULE_NAME_BYTES];
	size_t bytes = strlen(info->name);

	derived->param = param;
	derived->scales = DERIVED_NO_PARAM;
	if (bytes + sizeof(SCALE_SUFFIX) > sizeof(name))
		return false;
	memcpy(name, info->name, bytes + 1);
	if (row->form == FORM_PACKED) {
		name[bytes - strlen(SCALE_SUFFIX)] = '\0';
		derived->scales = find_param(maker->layout, name);
		return derived->scales != DERIVED_NO_PARAM;
	}
	if (info->dtype == DTYPE_F8_E4M3 && row->kind.state != DERIVED_CONSTANT) {
		strcpy(name + bytes, SCALE_SUFFIX);
		derived->scales = find_param(maker->layout, name);
	}
	return true;
}

static int add(const struct maker *maker, const struct row *row, uint32_t param)
{
	const struct tensor_info *info = &maker->layout->params[param];
	struct derived derived = {.kind = &row->kind};

	if (!find_sources(maker, row, param, &derived))
		return 0;
	derived.dtype = row->dtype ? row->dtype : info->dtype;
	derived.bytes = shape_it(maker, row, &derived) * dtype_bytes(derived.dtype);
	derived.name = memory_format("%.*s%s", (int)(strlen(info->name) - strlen(row->param)),
				     info->name, row->kind.name);
	if (derived.name && array_add(maker->list, derived))
		return 0;
	memory_free(derived.name);
	return memory_error(maker->error, "listing derived tensors", sizeof(derived));
}

int derived_list(struct derived_list *list, const struct model *model,
		 const struct infer_spec *infer, const struct layout *layout, struct error *error)
{
	struct maker maker = {
		&model->config, infer,
		layout,		{model->config.block_rows, model->config.block_columns},
		list,		error};
	int rc = 0;

	*list = (struct derived_list){0};
	if (model->file)
		return error_set(error, ERROR_UNSUPPORTED,
				 "%s comes from a layout file, which does not say what the engine "
				 "makes of its parameters after a load; leave --derived out",
				 model->name);
	if (infer->fp8 == FP8_BLOCKS) {
		maker.block[0] = infer->fp8_rows;
		maker.block[1] = infer->fp8_columns;
	}
	for (uint32_t p = 0; p < layout->param_count && !rc; p++)
		for (size_t r = 0; r < ARRAY_SIZE(rows) && !rc; r++)
			if (applies(&maker, &rows[r], &layout->params[p]))
				rc = add(&maker, &rows[r], p);
	if (rc)
		derived_list_fini(list);
	return rc;
}

void derived_list_fini(struct derived_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		memory_free(list->items[i].name);
	memory_free(list->items);
	*list = (struct derived_list){0};
}

const char *derived_state_name(enum derived_state state)
{
	static const char *const names[DERIVED_STATE_COUNT] = {"rebuilt", "optional", "view",
							       "constant", "stale"};

	return names[state];
}
