/* SPDX-License-Identifier: Apache-2.0
 *
 * live_compare.c -- what an engine rank has beside what its layout says. Every difference is one
 * line; where the engine's way is an option of the layout, the line ends with the option.
 */
#include "model/live.h"

#include "base/closest.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define CLOSEST_NAMES	4096u /* offered for one unknown name */
#define CLOSEST_UNKNOWN 8u    /* unknown names that get the closest ones told */

/* One difference: `here` NULL when the layout has no such parameter, `there` NULL when the engine
 * has none. */
struct difference {
	const char *name;
	const struct tensor_info *here;
	const struct live_param *there;
	const struct layout *layout;
	const struct live *live;
};

/* ---- what has no source by design ---- */

/* Scales of an fp8 KV cache and what is computed from the config: no tensor has them. */
static bool has_no_source(const char *name)
{
	static const char *const tails[] = {
		"attn_mqa.k_scale",	    "attn_mqa.v_scale",		 "attn_mha.k_scale",
		"attn_mha.v_scale",	    "self_attn.attn.k_scale",	 "self_attn.attn.v_scale",
		"self_attn.attn.q_scale",   "self_attn.attn.prob_scale", "rotary_emb.inv_freq",
		"rotary_emb.cos_sin_cache", "rotary_emb.cos_cached",	 "rotary_emb.sin_cached",
	};

	for (size_t i = 0; i < ARRAY_SIZE(tails); i++)
		if (text_ends(name, tails[i]))
			return true;
	return false;
}

/* ---- hints: one row an option ---- */

static bool has_param(const struct difference *d, size_t keep, const char *tail, bool in_engine)
{
	char name[LIVE_NAME_MAX];
	uint32_t there;

	if (keep + strlen(tail) >= sizeof(name))
		return false;
	memcpy(name, d->name, keep);
	strcpy(name + keep, tail);
	return strmap_get(in_engine ? &d->live->names : &d->layout->param_names, name, &there);
}

static bool gate(const struct difference *d, struct text *out)
{
	if (!d->here || !d->there || d->here->dtype == d->there->dtype ||
	    d->there->dtype == DTYPE_NONE ||
	    (!text_ends(d->name, "mlp.gate.weight") &&
	     !text_ends(d->name, "gate.e_score_correction_bias")))
		return false;
	text_format(out, "gate=%s in --infer", dtype_name(d->there->dtype));
	return true;
}

static bool indexer(const struct difference *d, struct text *out)
{
	static const char fused[] = "indexer.wk_weights_proj.weight";
	static const char *const apart[] = {"indexer.wk.weight", "indexer.wk.weight_scale_inv",
					    "indexer.weights_proj.weight"};
	bool engine_fused = !d->here && text_ends(d->name, fused);

	for (size_t i = 0; i < ARRAY_SIZE(apart) && !engine_fused && d->here && !d->there; i++)
		engine_fused = text_ends(d->name, apart[i]) &&
			       has_param(d, strlen(d->name) - strlen(apart[i]), fused, true);
	if (!engine_fused && (!d->here || d->there || !text_ends(d->name, fused)))
		return false;
	text_add(out, engine_fused ? "indexer=fused in --infer" : "no indexer=fused in --infer");
	return true;
}

/* The difference is called by `one`, and the same parameter by `other` is on the other side. */
static bool other_name(const struct difference *d, const char *one, const char *other,
		       bool in_engine)
{
	const char *at = strstr(d->name, one);
	char tail[LIVE_NAME_MAX];

	if (!at)
		return false;
	snprintf(tail, sizeof(tail), "%s%s", other, at + strlen(one));
	return has_param(d, (size_t)(at - d->name), tail, in_engine);
}

static bool names(const struct difference *d, struct text *out)
{
	static const struct {
		const char *without, *with; /* the option */
		const char *say[2];	    /* to the layout with it, without it */
	} rows[] = {
		{"fused_qkv_a_proj_with_mqa.", "fused_qkv_a_proj.", {"names=sglang", "names=vllm"}},
		{"experts.w",
		 "experts.routed_experts.w",
		 {"no routed_experts=1", "names=vllm,routed_experts=1"}},
	};

	if (d->here && d->there)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool with = other_name(d, rows[i].with, rows[i].without, d->here != NULL);

		if (!with && !other_name(d, rows[i].without, rows[i].with, d->here != NULL))
			continue;
		text_format(out, "%s in --infer", rows[i].say[with != (d->here != NULL)]);
		return true;
	}
	return false;
}

/* The engine's slots of the experts beside a shared_experts parameter, less the layout's. */
static int64_t more_slots(const struct difference *d, const char *shared)
{
	char name[LIVE_NAME_MAX];
	uint32_t here, there;

	snprintf(name, sizeof(name), "%.*sexperts.w13_weight", (int)(shared - d->name), d->name);
	if (!strmap_get(&d->layout->param_names, name, &here) ||
	    !strmap_get(&d->live->names, name, &there) || !d->live->params.items[there].dims)
		return 0;
	return (int64_t)(d->live->params.items[there].shape[0] - d->layout->params[here].shape[0]);
}

static bool shared(const struct difference *d, struct text *out)
{
	const char *at = strstr(d->name, "shared_experts.");
	bool more = false, fewer = false;

	if (at && !d->there) {
		more = more_slots(d, at) > 0;
	} else if (at && !d->here) {
		fewer = more_slots(d, at) < 0;
	} else if (d->here && d->there && strstr(d->name, ".experts.w") && d->there->dims &&
		   d->there->dtype == d->here->dtype) {
		more = d->there->shape[0] == d->here->shape[0] + 1;
		fewer = d->there->shape[0] + 1 == d->here->shape[0];
	}
	if (!more && !fewer)
		return false;
	text_add(out, more ? "fuse_shared=1 in --infer" : "no fuse_shared=1 in --infer");
	return true;
}

/* Shared experts that are whole on each rank, or cut for several: one dimension is a multiple. */
static bool shared_whole(const struct difference *d, struct text *out)
{
	uint32_t differing = 0;
	bool whole = false;

	if (!d->here || !d->there || !strstr(d->name, "shared_experts.") ||
	    text_ends(d->name, "_scale_inv") || /* which may be of other blocks */
	    d->here->dtype != d->there->dtype || d->here->dims != d->there->dims)
		return false;
	for (uint32_t i = 0; i < d->here->dims; i++) {
		uint64_t here = d->here->shape[i], there = d->there->shape[i];

		if (here == there)
			continue;
		whole = there > here;
		if (++differing > 1 || !here || !there ||
		    (whole ? there % here : here % there) != 0)
			return false;
	}
	if (!differing)
		return false;
	text_add(out, whole ? "a2a=1 in --infer" : "no a2a=1 in --infer");
	return true;
}

/* Matrices of experts that lie otherwise, or are padded. */
static bool experts(const struct difference *d, struct text *out)
{
	if (!d->here || !d->there || !strstr(d->name, ".experts.") ||
	    d->here->dtype != d->there->dtype || d->here->dims != d->there->dims ||
	    d->here->dims < 2 || d->here->shape[0] != d->there->shape[0])
		return false;
	if (d->here->dims == 3 && d->here->shape[1] == d->there->shape[2] &&
	    d->here->shape[2] == d->there->shape[1]) {
		text_add(
			out,
			"expert_weights=in_out in --infer, or out_in if it says that; of a class with a tensor "
			"for each expert no layout has them so, and SGLang needs another "
			"--moe-runner-backend than triton_kernel");
		return true;
	}
	if (d->here->dtype != DTYPE_U8)
		return false;
	text_add(out, "mxfp4_pad= in --infer, what the engine rounds sizes up to");
	return true;
}

/* "fp8=128x128" from the engine's own scales, where the sizes leave one answer. */
static void add_block(const struct difference *d, const char *weight, struct text *out)
{
	char name[LIVE_NAME_MAX];
	uint32_t w, s;
	const struct live_param *values, *scales;

	snprintf(name, sizeof(name), "%s_scale_inv", weight);
	if (strmap_get(&d->live->names, weight, &w) && strmap_get(&d->live->names, name, &s)) {
		values = &d->live->params.items[w];
		scales = &d->live->params.items[s];
		if (values->dims == 2 && scales->dims == 2 && scales->shape[0] &&
		    scales->shape[1] && values->shape[0] % scales->shape[0] == 0 &&
		    values->shape[1] % scales->shape[1] == 0) {
			text_format(out, "fp8=%llux%llu in --infer",
				    (unsigned long long)(values->shape[0] / scales->shape[0]),
				    (unsigned long long)(values->shape[1] / scales->shape[1]));
			return;
		}
	}
	text_add(out, "fp8=ROWSxCOLUMNS in --infer, the engine's block");
}

static bool fp8(const struct difference *d, struct text *out)
{
	static const char tail[] = "_scale_inv";
	char weight[LIVE_NAME_MAX];
	bool scale = text_ends(d->name, tail);

	snprintf(weight, sizeof(weight), "%.*s",
		 (int)(strlen(d->name) - (scale ? sizeof(tail) - 1 : 0)), d->name);
	if (d->here && d->there && d->here->dtype != d->there->dtype) {
		if (d->there->dtype == DTYPE_F8_E4M3) {
			add_block(d, weight, out);
			return true;
		}
		if (d->here->dtype == DTYPE_F8_E4M3 && d->there->dtype != DTYPE_NONE) {
			text_add(out, "fp8=none in --infer");
			return true;
		}
	}
	/* scales of another block, scales that only one of them has */
	if (scale && d->there && (!d->here || d->here->dtype == d->there->dtype)) {
		add_block(d, weight, out);
		return true;
	}
	if (scale && d->here && !d->there && has_param(d, strlen(weight), "", true)) {
		text_add(out, "fp8=none in --infer");
		return true;
	}
	return false;
}

static bool vocabulary(const struct difference *d, struct text *out)
{
	bool head = text_ends(d->name, "lm_head.weight");

	if (!d->here || !d->there || (!head && !text_ends(d->name, "embed_tokens.weight")) ||
	    d->there->dims != 2 || d->there->shape[1] != d->here->shape[1] ||
	    d->there->shape[0] == d->here->shape[0])
		return false;
	text_format(
		out,
		"%s in --infer when the engine cuts the vocabulary otherwise; if it only pads it "
		"otherwise (here to a multiple of 64), no option agrees",
		head ? "dp_lm_head=1 with dp" : "embed_replicated=1, or dp");
	return true;
}

/* Of a tied model: some engines look whether the checkpoint has another lm_head, some never tie. */
static bool head(const struct difference *d, struct text *out)
{
	if (!text_ends(d->name, "lm_head.weight") || (d->here && d->there))
		return false;
	text_add(
		out,
		d->there
			? "untied=1 in --infer if the checkpoint of the tied model has an lm_head.weight "
			  "that is not its embedding"
			: "no untied=1 in --infer, or names= of this engine: it ties lm_head to the "
			  "embedding");
	return true;
}

static bool plain_dtype(const struct difference *d, struct text *out)
{
	if (!d->here || !d->there || d->here->dtype == d->there->dtype ||
	    (d->there->dtype != DTYPE_BF16 && d->there->dtype != DTYPE_F16 &&
	     d->there->dtype != DTYPE_F32))
		return false;
	text_format(out, "dtype=%s in --infer if all are", dtype_name(d->there->dtype));
	return true;
}

static void add_hint(const struct difference *d, struct text *out)
{
	static bool (*const hints[])(const struct difference *, struct text *) = {
		gate,	 indexer, names,      shared, shared_whole,
		experts, fp8,	  vocabulary, head,   plain_dtype};
	struct text hint = {0};

	for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
		if (hints[i](d, &hint)) {
			text_format(out, "; say %s", text_string(&hint));
			break;
		}
	out->failed = out->failed || !text_ok(&hint);
	text_fini(&hint);
}

/* ---- lines ---- */

static void add_shape(struct text *out, const char *dtype, uint32_t dims, const uint64_t *shape)
{
	text_format(out, "%s [", dtype);
	for (uint32_t i = 0; i < dims; i++)
		text_format(out, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
	text_add(out, "]");
}

static int add_difference(struct live_report *report, const struct difference *d, const char *more,
			  struct error *error)
{
	struct text line = {0};
	char *copy;
	int rc = 0;

	text_format(&line, "%s: ", d->name);
	if (d->here)
		add_shape(&line, dtype_name(d->here->dtype), d->here->dims, d->here->shape);
	else
		text_add(&line, "nothing");
	text_add(&line, " in the layout, ");
	if (d->there)
		add_shape(&line, d->there->dtype_text, d->there->dims, d->there->shape);
	else
		text_add(&line, "nothing");
	text_add(&line, " in the engine");
	add_hint(d, &line);
	text_add(&line, more);
	copy = pool_string(&report->pool, text_string(&line));
	if (!text_ok(&line) || !copy || !array_add(&report->differences, copy))
		rc = memory_error(error, "comparing an engine's parameters", line.bytes);
	text_fini(&line);
	return rc;
}

/* "; the closest are .." of what the engine lacks, for a name that the layout lacks. */
static int closest_missing(const struct live *live, const struct layout *layout, const char *name,
			   struct text *out, struct error *error)
{
	char text[3 * LIVE_NAME_MAX + 8];
	struct closest closest = {.wanted = name};
	uint32_t there;

	for (size_t i = 0, offered = 0; i < layout->param_count && offered < CLOSEST_NAMES; i++) {
		if (strmap_get(&live->names, layout->params[i].name, &there))
			continue;
		closest_offer(&closest, layout->params[i].name);
		offered++;
	}
	if (closest.count)
		text_format(out, "; of those that the engine lacks the closest are %s",
			    closest_text(&closest, text, sizeof(text)));
	return text_ok(out) ? 0
			    : memory_error(error, "comparing an engine's parameters", strlen(name));
}

static bool same_shape(const struct tensor_info *here, const struct live_param *there)
{
	return here->dims == there->dims &&
	       memcmp(here->shape, there->shape, here->dims * sizeof(*here->shape)) == 0;
}

static int compare_known(const struct live *live, const struct layout *layout,
			 struct live_report *report, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < layout->param_count && !rc; i++) {
		struct difference d = {.name = layout->params[i].name,
				       .here = &layout->params[i],
				       .layout = layout,
				       .live = live};
		uint32_t at;

		if (strmap_get(&live->names, d.name, &at))
			d.there = &live->params.items[at];
		if (d.there && d.there->dtype == d.here->dtype && same_shape(d.here, d.there))
			report->equal++;
		else
			rc = add_difference(report, &d, "", error);
	}
	return rc;
}

static int leave_alone(struct live_report *report, const char *name, struct error *error)
{
	char *copy = pool_string(&report->pool, name);

	if (copy && array_add(&report->left_alone, copy))
		return 0;
	return memory_error(error, "comparing an engine's parameters", strlen(name) + 1);
}

static int compare_unknown(const struct live *live, const struct layout *layout,
			   struct live_report *report, struct error *error)
{
	size_t told = 0;
	int rc = 0;

	for (size_t i = 0; i < live->params.count && !rc; i++) {
		struct difference d = {.name = live->params.items[i].name,
				       .there = &live->params.items[i],
				       .layout = layout,
				       .live = live};
		struct text more = {0};
		uint32_t at;

		if (strmap_get(&layout->param_names, d.name, &at))
			continue;
		if (has_no_source(d.name) || layout_leaves(layout, d.name)) {
			rc = leave_alone(report, d.name, error);
			continue;
		}
		if (told++ < CLOSEST_UNKNOWN)
			rc = closest_missing(live, layout, d.name, &more, error);
		if (!rc)
			rc = add_difference(report, &d, text_string(&more), error);
		text_fini(&more);
	}
	return rc;
}

int live_compare(const struct live *live, const struct layout *layout, struct live_report *report,
		 struct error *error)
{
	int rc = compare_known(live, layout, report, error);

	if (!rc)
		rc = compare_unknown(live, layout, report, error);
	if (rc)
		live_report_fini(report);
	return rc;
}

void live_report_fini(struct live_report *report)
{
	pool_free(&report->pool);
	array_free(&report->differences);
	array_free(&report->left_alone);
	*report = (struct live_report){0};
}
