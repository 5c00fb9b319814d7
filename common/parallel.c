/* SPDX-License-Identifier: Apache-2.0 */
#include "common/parallel.h"

#include "common/text.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 1024

/* One key of a spec: a number from 1 (or 0 for flags) to `max`, at `offset` of the struct. */
struct key_row {
	const char *name;
	size_t offset;
	uint32_t min, max, absent;
};

static const struct key_row train_keys[] = {
	{"world", offsetof(struct train_spec, world), 1, PARALLEL_RANKS_MAX, 1},
	{"pp", offsetof(struct train_spec, pp), 1, PARALLEL_STAGES_MAX, 1},
	{"fsdp", offsetof(struct train_spec, fsdp), 1, PARALLEL_RANKS_MAX, 1},
};

static const struct key_row infer_keys[] = {
	{"engines", offsetof(struct infer_spec, engines), 1, PARALLEL_RANKS_MAX, 1},
	{"tp", offsetof(struct infer_spec, tp), 1, PARALLEL_RANKS_MAX, 1},
	{"ep", offsetof(struct infer_spec, ep), 1, PARALLEL_RANKS_MAX, 1},
	{"dp", offsetof(struct infer_spec, dp), 1, PARALLEL_RANKS_MAX, 1},
	{"dp_lm_head", offsetof(struct infer_spec, dp_lm_head), 0, 1, 0},
	{"moe_dense_tp", offsetof(struct infer_spec, moe_dense_tp), 0, 1, 0},
};

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

/* A spec being taken apart: each key at most once. */
struct parse {
	const char *flag, *spec; /* "--train" and the whole string, for sentences */
	const struct key_row *rows;
	size_t row_count;
	void *target;
	uint32_t seen;
	/* keys that are not numbers; 1 when it took the key */
	int (*other)(struct parse *parse, const char *key, const char *value, struct error *error);
};

static uint32_t *field(void *target, const struct key_row *row)
{
	return (uint32_t *)(void *)((char *)target + row->offset);
}

static int unknown_key(const struct parse *parse, const char *key, struct error *error)
{
	char known[256] = "";
	size_t n = 0;

	for (size_t i = 0; i < parse->row_count; i++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "",
				      parse->rows[i].name);
	return error_set(error, ERROR_CONFIG, "%s %s: unknown key '%s'; keys are %s%s", parse->flag,
			 parse->spec, key, known, parse->other ? ", source, layers" : "");
}

static int take_key(struct parse *parse, const char *key, const char *value, struct error *error)
{
	int rc = parse->other ? parse->other(parse, key, value, error) : 0;

	if (rc)
		return rc < 0 ? rc : 0;
	for (size_t i = 0; i < parse->row_count; i++) {
		const struct key_row *row = &parse->rows[i];
		uint64_t number;

		if (strcmp(row->name, key) != 0)
			continue;
		if (parse->seen & 1u << i)
			return error_set(error, ERROR_CONFIG, "%s %s: key '%s' is given twice",
					 parse->flag, parse->spec, key);
		parse->seen |= 1u << i;
		if (!parse_u64(value, &number) || number < row->min || number > row->max)
			return error_set(error, ERROR_CONFIG,
					 "%s %s: %s is '%s'; it must be a number from %u to %u",
					 parse->flag, parse->spec, key, value, row->min, row->max);
		*field(parse->target, row) = (uint32_t)number;
		return 0;
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
				 parse->other ? "world=4,source=gathered" : "engines=2,tp=2");
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

static int divides(const char *flag, const char *spec, const char *small_name, uint32_t small,
		   const char *large_name, uint32_t large, struct error *error)
{
	if (large % small == 0)
		return 0;
	return error_set(error, ERROR_CONFIG, "%s %s: %s=%u does not divide %s=%u", flag, spec,
			 small_name, small, large_name, large);
}

int train_spec_parse(struct train_spec *spec, const char *string, struct error *error)
{
	struct train_spec made = {.source = TRAIN_GATHERED};
	struct parse parse = {"--train", string, train_keys, ROWS(train_keys),
			      &made,	 0,	 take_train};
	int rc = parse_spec(&parse, error);

	if (rc == 0)
		rc = divides("--train", string, "pp", made.pp, "world", made.world, error);
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

int infer_spec_parse(struct infer_spec *spec, const char *string, struct error *error)
{
	struct infer_spec made = {0};
	struct parse parse = {"--infer", string, infer_keys, ROWS(infer_keys), &made, 0, NULL};
	int rc = parse_spec(&parse, error);

	if (rc == 0)
		rc = divides("--infer", string, "ep", made.ep, "tp", made.tp, error);
	if (rc == 0)
		rc = divides("--infer", string, "dp", made.dp, "tp", made.tp, error);
	if (rc == 0 && (uint64_t)made.engines * made.tp > PARALLEL_RANKS_MAX)
		rc = error_set(error, ERROR_CONFIG,
			       "--infer %s: %llu ranks; at most %d are possible", string,
			       (unsigned long long)made.engines * made.tp, PARALLEL_RANKS_MAX);
	if (rc == 0)
		*spec = made;
	return rc;
}

/* The first key always stands, the others only when they are not what absence means. */
static size_t keys_text(const struct key_row *rows, size_t count, const void *spec, char *out)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		uint32_t value =
			*(const uint32_t *)(const void *)((const char *)spec + rows[i].offset);

		if (i == 0 || value != rows[i].absent)
			n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s%s=%u",
					      n ? "," : "", rows[i].name, value);
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
	keys_text(infer_keys, ROWS(infer_keys), spec, out);
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
