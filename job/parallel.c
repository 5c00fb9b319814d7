/* SPDX-License-Identifier: Apache-2.0 */
#include "job/parallel.h"

#include "base/array.h"
#include "job/spec_keys.h"
#include "base/text.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 1024
#define REFUSE(spec, format, ...) \
	error_set(error, ERROR_CONFIG, "--train %s: " format, spec, ##__VA_ARGS__)
#define TRAIN(field) offsetof(struct train_spec, field)

static const struct spec_choice source_choices[] = {
	{"gathered", TRAIN_GATHERED}, {"sharded", TRAIN_SHARDED}, {NULL, 0}};

static const struct spec_key train_keys[] = {
	{"world", TRAIN(world), 1, PARALLEL_RANKS_MAX, 1, NULL, true},
	{"pp", TRAIN(pp), 1, PARALLEL_STAGES_MAX, 1, NULL, false},
	{"fsdp", TRAIN(fsdp), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"source", TRAIN(source), 0, 0, TRAIN_GATHERED, source_choices, true},
};

static int take_layers(struct spec_parse *parse, const char *key, const char *value,
		       struct error *error)
{
	struct train_spec *spec = parse->target;
	char copy[VALUE_BYTES];
	char *rest = copy, *item;

	if (strcmp(key, "layers") != 0)
		return 0;
	if (spec->stage_layers_count)
		return REFUSE(parse->spec, "key 'layers' is given twice");
	if (snprintf(copy, sizeof(copy), "%s", value) >= (int)sizeof(copy))
		return REFUSE(parse->spec, "layers is too long");
	while ((item = strsep(&rest, "/")) != NULL) {
		uint64_t layers;

		if (!parse_u64(item, &layers) || layers > 100000 ||
		    spec->stage_layers_count == PARALLEL_STAGES_MAX)
			return REFUSE(parse->spec, "layers is '%s'; give layers a stage like 8/8/5",
				      value);
		spec->stage_layers[spec->stage_layers_count++] = (uint32_t)layers;
	}
	return 1;
}

int train_spec_parse(struct train_spec *spec, const char *string, struct error *error)
{
	struct train_spec made = {0};
	struct spec_parse parse = {.flag = "--train",
				   .spec = string,
				   .example = "world=4,source=gathered",
				   .rows = train_keys,
				   .row_count = ARRAY_SIZE(train_keys),
				   .target = &made,
				   .other = take_layers,
				   .other_keys = "layers"};
	int rc = spec_parse_keys(&parse, error);

	if (rc == 0 && made.world % made.pp != 0)
		rc = REFUSE(string, "pp=%u does not divide world=%u", made.pp, made.world);
	if (rc == 0 && made.fsdp > 1 && made.source != TRAIN_SHARDED)
		rc = REFUSE(string,
			    "fsdp=%u needs source=sharded (gathered trainers read "
			    "whole tensors)",
			    made.fsdp);
	if (rc == 0 && made.world / made.pp % made.fsdp != 0)
		rc = REFUSE(string, "fsdp=%u does not divide the %u trainers of a stage", made.fsdp,
			    made.world / made.pp);
	if (rc == 0 && made.stage_layers_count && made.stage_layers_count != made.pp)
		rc = REFUSE(string, "layers has %u stages but pp=%u", made.stage_layers_count,
			    made.pp);
	if (rc == 0)
		*spec = made;
	return rc;
}

char *train_spec_text(const struct train_spec *spec, char out[PARALLEL_TEXT_BYTES])
{
	size_t n = spec_keys_text(train_keys, ARRAY_SIZE(train_keys), spec, out);

	for (uint32_t i = 0; i < spec->stage_layers_count && n < PARALLEL_TEXT_BYTES; i++)
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s%u",
				      i ? "/" : ",layers=", spec->stage_layers[i]);
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
