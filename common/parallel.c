/* SPDX-License-Identifier: Apache-2.0 */
#include "common/parallel.h"

#include "common/dtype.h"
#include "common/make.h"
#include "common/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 1024

/* A word that a key may have as its value. */
struct choice {
	const char *name;
	uint32_t value;
};

/* One key of a spec: a number from `min` to `max` or, with choices, one of their words; kept as
 * uint32_t at `offset` of the struct. `absent` is the value of a key that is not given. */
struct key_row {
	const char *name;
	size_t offset;
	uint32_t min, max, absent;
	const struct choice *choices; /* ends with a NULL name */
};

#define TRAIN(key) offsetof(struct train_spec, key)
#define INFER(key) offsetof(struct infer_spec, key)

static const struct key_row train_keys[] = {
	{"world", TRAIN(world), 1, PARALLEL_RANKS_MAX, 1, NULL},
	{"pp", TRAIN(pp), 1, PARALLEL_STAGES_MAX, 1, NULL},
	{"fsdp", TRAIN(fsdp), 1, PARALLEL_RANKS_MAX, 1, NULL},
};

static const struct choice names_choices[] = {
	{"sglang", NAMES_SGLANG}, {"vllm", NAMES_VLLM}, {NULL, 0}};
static const struct choice experts_choices[] = {
	{"linear", EXPERTS_LINEAR}, {"round_robin", EXPERTS_ROUND_ROBIN}, {NULL, 0}};
static const struct choice dtype_choices[] = {
	{"F32", DTYPE_F32}, {"BF16", DTYPE_BF16}, {"F16", DTYPE_F16}, {NULL, 0}};
static const struct choice indexer_choices[] = {{"split", 0}, {"fused", 1}, {NULL, 0}};

static const struct key_row infer_keys[] = {
	{"engines", INFER(engines), 1, PARALLEL_RANKS_MAX, 1, NULL},
	{"tp", INFER(tp), 1, PARALLEL_RANKS_MAX, 1, NULL},
	{"ep", INFER(ep), 1, PARALLEL_RANKS_MAX, 1, NULL},
	{"dp", INFER(dp), 1, PARALLEL_RANKS_MAX, 1, NULL},
	{"dp_lm_head", INFER(dp_lm_head), 0, 1, 0, NULL},
	{"moe_dense_tp", INFER(moe_dense_tp), 0, 1, 0, NULL},
	{"a2a", INFER(a2a), 0, 1, 0, NULL},
	{"fuse_shared", INFER(fuse_shared), 0, 1, 0, NULL},
	{"embed_replicated", INFER(embed_replicated), 0, 1, 0, NULL},
	{"names", INFER(names), 0, 0, 0, names_choices},
	{"experts", INFER(experts), 0, 0, 0, experts_choices},
	{"gate", INFER(gate), 0, 0, 0, dtype_choices},
	{"indexer", INFER(indexer_fused), 0, 0, 0, indexer_choices},
	{"dtype", INFER(dtype), 0, 0, 0, dtype_choices},
};

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

/* A spec being taken apart: each key at most once. */
struct parse {
	const char *flag, *spec; /* "--train" and the whole string, for sentences */
	const char *example;
	const struct key_row *rows;
	size_t row_count;
	void *target;
	/* keys of another form; 1 when it took the key */
	int (*other)(struct parse *parse, const char *key, const char *value, struct error *error);
	const char *other_keys; /* their names: "source, layers" */
	uint32_t seen;
};

static uint32_t *field(void *target, const struct key_row *row)
{
	return (uint32_t *)(void *)((char *)target + row->offset);
}

static int unknown_key(const struct parse *parse, const char *key, struct error *error)
{
	char known[512] = "";
	size_t n = 0;

	for (size_t i = 0; i < parse->row_count; i++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "",
				      parse->rows[i].name);
	return error_set(error, ERROR_CONFIG, "%s %s: unknown key '%s'; keys are %s, %s",
			 parse->flag, parse->spec, key, known, parse->other_keys);
}

static int take_number(const struct parse *parse, const struct key_row *row, const char *value,
		       struct error *error)
{
	uint64_t number;

	if (!parse_u64(value, &number) || number < row->min || number > row->max)
		return error_set(error, ERROR_CONFIG,
				 "%s %s: %s is '%s'; it must be a number from %u to %u",
				 parse->flag, parse->spec, row->name, value, row->min, row->max);
	*field(parse->target, row) = (uint32_t)number;
	return 0;
}

static int take_choice(const struct parse *parse, const struct key_row *row, const char *value,
		       struct error *error)
{
	char known[128] = "";
	size_t n = 0;

	for (const struct choice *choice = row->choices; choice->name; choice++) {
		if (strcmp(choice->name, value) == 0) {
			*field(parse->target, row) = choice->value;
			return 0;
		}
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s",
				      n == 0	       ? ""
				      : choice[1].name ? ", "
						       : " or ",
				      choice->name);
	}
	return error_set(error, ERROR_CONFIG, "%s %s: %s is '%s'; use %s", parse->flag, parse->spec,
			 row->name, value, known);
}

static int take_key(struct parse *parse, const char *key, const char *value, struct error *error)
{
	int rc = parse->other(parse, key, value, error);

	if (rc)
		return rc < 0 ? rc : 0;
	for (size_t i = 0; i < parse->row_count; i++) {
		const struct key_row *row = &parse->rows[i];

		if (strcmp(row->name, key) != 0)
			continue;
		if (parse->seen & 1u << i)
			return error_set(error, ERROR_CONFIG, "%s %s: key '%s' is given twice",
					 parse->flag, parse->spec, key);
		parse->seen |= 1u << i;
		return (row->choices ? take_choice : take_number)(parse, row, value, error);
	}
	return unknown_key(parse, key, error);
}

static int parse_spec(struct parse *parse, struct error *error)
{
	char copy[PARALLEL_TEXT_BYTES];
	char *rest = copy, *item;

	if (strlen(parse->spec) >= sizeof(copy))
		return error_set(error, ERROR_CONFIG, "%s is longer than %d characters",
				 parse->flag, PARALLEL_TEXT_BYTES - 1);
	if (!*parse->spec)
		return error_set(error, ERROR_CONFIG, "%s is empty; give it like %s", parse->flag,
				 parse->example);
	strcpy(copy, parse->spec);
	for (size_t i = 0; i < parse->row_count; i++)
		*field(parse->target, &parse->rows[i]) = parse->rows[i].absent;
	while ((item = strsep(&rest, ",")) != NULL) {
		char *value = strchr(item, '=');
		int rc;

		if (!value)
			return error_set(error, ERROR_CONFIG, "%s %s: '%s' is not key=value",
					 parse->flag, parse->spec, item);
		*value++ = '\0';
		rc = take_key(parse, item, value, error);
		if (rc)
			return rc;
	}
	return 0;
}

static int take_layers(struct parse *parse, const char *value, struct error *error)
{
	struct train_spec *spec = parse->target;
	char copy[VALUE_BYTES];
	char *rest = copy, *item;

	if (spec->stage_layers_count)
		return error_set(error, ERROR_CONFIG, "--train %s: key 'layers' is given twice",
				 parse->spec);
	if (snprintf(copy, sizeof(copy), "%s", value) >= (int)sizeof(copy))
		return error_set(error, ERROR_CONFIG, "--train %s: layers is too long",
				 parse->spec);
	while ((item = strsep(&rest, "/")) != NULL) {
		uint64_t layers;

		if (!parse_u64(item, &layers) || layers > 100000 ||
		    spec->stage_layers_count == PARALLEL_STAGES_MAX)
			return error_set(
				error, ERROR_CONFIG,
				"--train %s: layers is '%s'; give layers a stage like 8/8/5",
				parse->spec, value);
		spec->stage_layers[spec->stage_layers_count++] = (uint32_t)layers;
	}
	return 1;
}

static int take_train(struct parse *parse, const char *key, const char *value, struct error *error)
{
	struct train_spec *spec = parse->target;

	if (strcmp(key, "layers") == 0)
		return take_layers(parse, value, error);
	if (strcmp(key, "source") != 0)
		return 0;
	if (parse->seen & 1u << 31)
		return error_set(error, ERROR_CONFIG, "--train %s: key 'source' is given twice",
				 parse->spec);
	parse->seen |= 1u << 31;
	if (strcmp(value, "gathered") == 0)
		spec->source = TRAIN_GATHERED;
	else if (strcmp(value, "sharded") == 0)
		spec->source = TRAIN_SHARDED;
	else
		return error_set(error, ERROR_CONFIG,
				 "--train %s: source is '%s'; use gathered or sharded", parse->spec,
				 value);
	return 1;
}

int train_spec_parse(struct train_spec *spec, const char *string, struct error *error)
{
	struct train_spec made = {.source = TRAIN_GATHERED};
	struct parse parse = {.flag = "--train",
			      .spec = string,
			      .example = "world=4,source=gathered",
			      .rows = train_keys,
			      .row_count = ROWS(train_keys),
			      .target = &made,
			      .other = take_train,
			      .other_keys = "source, layers"};
	int rc = parse_spec(&parse, error);

	if (rc == 0 && made.world % made.pp != 0)
		rc = error_set(error, ERROR_CONFIG, "--train %s: pp=%u does not divide world=%u",
			       string, made.pp, made.world);
	if (rc == 0 && made.fsdp > 1 && made.source != TRAIN_SHARDED)
		rc = error_set(error, ERROR_CONFIG,
			       "--train %s: fsdp=%u needs source=sharded (gathered trainers read "
			       "whole tensors)",
			       string, made.fsdp);
	if (rc == 0 && made.world / made.pp % made.fsdp != 0)
		rc = error_set(error, ERROR_CONFIG,
			       "--train %s: fsdp=%u does not divide the %u trainers of a stage",
			       string, made.fsdp, made.world / made.pp);
	if (rc == 0 && made.stage_layers_count && made.stage_layers_count != made.pp)
		rc = error_set(error, ERROR_CONFIG, "--train %s: layers has %u stages but pp=%u",
			       string, made.stage_layers_count, made.pp);
	if (rc == 0)
		*spec = made;
	return rc;
}

/* "128x64", or "128" for both. */
static bool parse_block(const char *value, uint32_t *rows, uint32_t *columns)
{
	char copy[32];
	uint64_t sizes[2];
	char *cross;

	if (snprintf(copy, sizeof(copy), "%s", value) >= (int)sizeof(copy))
		return false;
	cross = strchr(copy, 'x');
	if (cross)
		*cross++ = '\0';
	if (!parse_u64(copy, &sizes[0]) || !parse_u64(cross ? cross : copy, &sizes[1]))
		return false;
	for (int d = 0; d < 2; d++)
		if (sizes[d] == 0 || sizes[d] > MAKE_BLOCK_MAX)
			return false;
	*rows = (uint32_t)sizes[0];
	*columns = (uint32_t)sizes[1];
	return true;
}

static int take_infer(struct parse *parse, const char *key, const char *value, struct error *error)
{
	struct infer_spec *spec = parse->target;

	if (strcmp(key, "fp8") != 0)
		return 0;
	if (spec->fp8 != FP8_AS_STORED)
		return error_set(error, ERROR_CONFIG, "--infer %s: key 'fp8' is given twice",
				 parse->spec);
	spec->fp8 = strcmp(value, "none") == 0 ? FP8_NONE : FP8_BLOCKS;
	if (spec->fp8 == FP8_BLOCKS && !parse_block(value, &spec->fp8_rows, &spec->fp8_columns))
		return error_set(error, ERROR_CONFIG,
				 "--infer %s: fp8 is '%s'; use none, or the rows and columns of a "
				 "block, as 128x128 (1 to %u each)",
				 parse->spec, value, MAKE_BLOCK_MAX);
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
	for (size_t i = 0; i < ROWS(sglang_only); i++)
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
	if (rc == 0 && spec->experts == EXPERTS_ROUND_ROBIN && spec->names != NAMES_VLLM)
		rc = error_set(error, ERROR_CONFIG,
			       "experts=round_robin needs names=vllm: other engines own blocks of "
			       "neighbours; leave it out");
	return rc;
}

int infer_spec_parse(struct infer_spec *spec, const char *string, struct error *error)
{
	struct infer_spec made = {0};
	struct parse parse = {.flag = "--infer",
			      .spec = string,
			      .example = "engines=2,tp=2",
			      .rows = infer_keys,
			      .row_count = ROWS(infer_keys),
			      .target = &made,
			      .other = take_infer,
			      .other_keys = "fp8"};
	int rc = parse_spec(&parse, error);

	if (rc)
		return rc;
	rc = infer_spec_check(&made, error);
	if (rc)
		error_wrap(error, "--infer %s", string);
	else
		*spec = made;
	return rc;
}

static const char *choice_name(const struct choice *choices, uint32_t value)
{
	while (choices->name && choices->value != value)
		choices++;
	return choices->name ? choices->name : "?";
}

/* The first key always stands, the others only when they are not what absence means. */
static size_t keys_text(const struct key_row *rows, size_t count, const void *spec, char *out)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		uint32_t value =
			*(const uint32_t *)(const void *)((const char *)spec + rows[i].offset);

		if (i && value == rows[i].absent)
			continue;
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s%s=", n ? "," : "",
				      rows[i].name);
		if (rows[i].choices)
			n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s",
					      choice_name(rows[i].choices, value));
		else
			n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%u", value);
	}
	return n;
}

char *train_spec_text(const struct train_spec *spec, char out[PARALLEL_TEXT_BYTES])
{
	size_t n = keys_text(train_keys, ROWS(train_keys), spec, out);

	n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, ",source=%s",
			      spec->source == TRAIN_GATHERED ? "gathered" : "sharded");
	for (uint32_t i = 0; i < spec->stage_layers_count && n < PARALLEL_TEXT_BYTES; i++)
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s%u",
				      i ? "/" : ",layers=", spec->stage_layers[i]);
	return out;
}

char *infer_spec_text(const struct infer_spec *spec, char out[PARALLEL_TEXT_BYTES])
{
	size_t n = keys_text(infer_keys, ROWS(infer_keys), spec, out);

	if (spec->fp8 == FP8_NONE)
		snprintf(out + n, PARALLEL_TEXT_BYTES - n, ",fp8=none");
	else if (spec->fp8 == FP8_BLOCKS)
		snprintf(out + n, PARALLEL_TEXT_BYTES - n, ",fp8=%ux%u", spec->fp8_rows,
			 spec->fp8_columns);
	return out;
}

uint32_t infer_ranks(const struct infer_spec *spec)
{
	return spec->engines * spec->tp;
}

uint32_t train_stage(const struct train_spec *spec, uint32_t rank)
{
	return rank / (spec->world / spec->pp);
}

int train_layer_stage(const struct train_spec *spec, uint32_t layers, uint32_t layer,
		      uint32_t *stage, struct error *error)
{
	uint64_t before = 0, total = 0;

	for (uint32_t s = 0; s < spec->stage_layers_count; s++)
		total += spec->stage_layers[s];
	if (spec->stage_layers_count && total != layers)
		return error_set(error, ERROR_CONFIG,
				 "--train layers= adds up to %llu layers; the model has %u",
				 (unsigned long long)total, layers);
	for (uint32_t s = 0; s < spec->pp; s++) {
		before += spec->stage_layers_count
				  ? spec->stage_layers[s]
				  : layers / spec->pp + (s < layers % spec->pp ? 1 : 0);
		if (layer < before) {
			*stage = s;
			return 0;
		}
	}
	return error_set(error, ERROR_CONFIG, "layer %u is past the model's %u layers", layer,
			 layers);
}

void train_shard_rows(uint64_t rows, uint32_t fsdp, uint32_t shard, uint64_t *lo, uint64_t *hi)
{
	uint64_t chunk = (rows + fsdp - 1) / fsdp;

	*lo = chunk * shard < rows ? chunk * shard : rows;
	*hi = *lo + chunk < rows ? *lo + chunk : rows;
}
