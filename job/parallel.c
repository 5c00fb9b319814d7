/* SPDX-License-Identifier: Apache-2.0 */
#include "job/parallel.h"

#include "base/array.h"
#include "job/parallel_layout.h"
#include "job/spec_keys.h"
#include "base/text.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 1024
#define REFUSE(spec, format, ...) \
	error_set(error, ERROR_CONFIG, "--train %s: " format, spec, ##__VA_ARGS__)
#define TRAIN(field) offsetof(struct train_spec, field)

static const struct spec_choice source_choices[] = {{"gathered", TRAIN_GATHERED},
						    {"sharded", TRAIN_SHARDED},
						    {"megatron", TRAIN_MEGATRON},
						    {"dtensor", TRAIN_DTENSOR},
						    {"zero3", TRAIN_ZERO3},
						    {"fsdp1", TRAIN_FSDP1},
						    {NULL, 0}};
static const struct spec_choice order_choices[] = {
	{"tp-cp-ep-dp-pp", ORDER_DP_PP}, {"tp-cp-ep-pp-dp", ORDER_PP_DP}, {NULL, 0}};
static const struct spec_choice grouped_choices[] = {
	{"each", GROUPED_EACH}, {"one", GROUPED_ONE}, {"legacy", GROUPED_LEGACY}, {NULL, 0}};

static const struct spec_choice out_norm_choices[] = {{"plus_one", OUT_NORM_PLUS_ONE}, {NULL, 0}};

#define VOCAB_PAD 128 /* make_vocab_size_divisible_by */
static const struct spec_key train_keys[] = {
	{"world", TRAIN(world), 1, PARALLEL_RANKS_MAX, 1, NULL, true},
	{"pp", TRAIN(pp), 1, PARALLEL_STAGES_MAX, 1, NULL, false},
	{"fsdp", TRAIN(fsdp), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"source", TRAIN(source), 0, 0, TRAIN_GATHERED, source_choices, true},
	{"tp", TRAIN(tp), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"ep", TRAIN(ep), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"etp", TRAIN(etp), 1, PARALLEL_RANKS_MAX, 0, NULL, false},
	{"cp", TRAIN(cp), 1, PARALLEL_RANKS_MAX, 1, NULL, false},
	{"vpp", TRAIN(vpp), 1, PARALLEL_STAGES_MAX, 1, NULL, false},
	{"order", TRAIN(order), 0, 0, ORDER_DP_PP, order_choices, false},
	{"first", TRAIN(first), 1, 100000, 0, NULL, false},
	{"last", TRAIN(last), 1, 100000, 0, NULL, false},
	{"account_embedding", TRAIN(account_embedding), 0, 1, 0, NULL, false},
	{"account_loss", TRAIN(account_loss), 0, 1, 0, NULL, false},
	{"grouped", TRAIN(grouped), 0, 0, GROUPED_EACH, grouped_choices, false},
	{"vocab_pad", TRAIN(vocab_pad), 1, 1 << 20, VOCAB_PAD, NULL, false},
	{"mtp", TRAIN(mtp), 1, 100000, 0, NULL, false},
	{"mtp_stage", TRAIN(mtp_stage), 1, PARALLEL_STAGES_MAX, 0, NULL, false},
	{"glu_interleave", TRAIN(glu_interleave), 1, 1 << 20, 0, NULL, false},
	{"shared_glu_interleave", TRAIN(shared_glu_interleave), 1, 1 << 20, 0, NULL, false},
	{"out_norm", TRAIN(out_norm), 0, 0, OUT_NORM_ONLY, out_norm_choices, false},
	{"orig", TRAIN(orig), 0, 1, 0, NULL, false},
};

/* Which sources a key is of; those that are not here are of all. */
static const struct {
	const char *key;
	size_t offset;
	uint32_t sources;
} keys_of[] = {
#define OF(name, ...)                           \
	{                                       \
#name, TRAIN(name), __VA_ARGS__ \
	}
#define ONLY(source) (1u << (source))
	OF(tp, ONLY(TRAIN_MEGATRON)),
	OF(ep, ONLY(TRAIN_MEGATRON) | ONLY(TRAIN_DTENSOR)),
	OF(etp, ONLY(TRAIN_MEGATRON)),
	OF(cp, ONLY(TRAIN_MEGATRON)),
	OF(vpp, ONLY(TRAIN_MEGATRON)),
	OF(order, ONLY(TRAIN_MEGATRON)),
	OF(first, ONLY(TRAIN_MEGATRON)),
	OF(last, ONLY(TRAIN_MEGATRON)),
	OF(account_embedding, ONLY(TRAIN_MEGATRON)),
	OF(account_loss, ONLY(TRAIN_MEGATRON)),
	OF(grouped, ONLY(TRAIN_MEGATRON)),
	OF(vocab_pad, ONLY(TRAIN_MEGATRON)),
	OF(mtp, ONLY(TRAIN_MEGATRON)),
	OF(mtp_stage, ONLY(TRAIN_MEGATRON)),
	OF(glu_interleave, ONLY(TRAIN_MEGATRON)),
	OF(shared_glu_interleave, ONLY(TRAIN_MEGATRON)),
	OF(out_norm, ONLY(TRAIN_MEGATRON)),
	OF(orig, ONLY(TRAIN_FSDP1)),
};

/* "8/8/5" into numbers of at most `most`. */
static int take_list(const struct spec_parse *parse, const char *key, const char *value,
		     uint32_t *numbers, uint32_t *count, uint32_t room, const char *example,
		     struct error *error)
{
	char copy[VALUE_BYTES];
	char *rest = copy, *item;

	if (*count)
		return REFUSE(parse->spec, "key '%s' is given twice", key);
	if (snprintf(copy, sizeof(copy), "%s", value) >= (int)sizeof(copy))
		return REFUSE(parse->spec, "%s is too long", key);
	while ((item = strsep(&rest, "/")) != NULL) {
		uint64_t number;

		if (!parse_u64(item, &number) || number > 100000 || *count == room)
			return REFUSE(parse->spec, "%s is '%s'; give at most %u numbers, as %s=%s",
				      key, value, room, key, example);
		numbers[(*count)++] = (uint32_t)number;
	}
	return 1;
}

/* A spec, and what becomes part of it when all its keys are known. */
struct train_parse {
	struct train_spec spec;
	struct parallel_layout layout;
};

static int take_lists(struct spec_parse *parse, const char *key, const char *value,
		      struct error *error)
{
	struct train_spec *spec = parse->target;
	uint32_t mesh[3], count = 0;
	int rc;

	if (strcmp(key, "layout") == 0)
		return parallel_layout_read(&((struct train_parse *)parse->target)->layout,
					    parse->spec, value, error)
			       ?: 1;
	if (strcmp(key, "layers") == 0)
		return take_list(parse, key, value, spec->stage_layers, &spec->stage_layers_count,
				 PARALLEL_STAGES_MAX, "8/8/5", error);
	if (strcmp(key, "mesh") != 0)
		return 0;
	if (spec->replicate)
		return REFUSE(parse->spec, "key 'mesh' is given twice");
	rc = take_list(parse, key, value, mesh, &count, 3, "2/4/2", error);
	for (uint32_t i = 0; rc > 0 && i < count; i++)
		if (!mesh[i])
			return REFUSE(parse->spec, "mesh is '%s'; each of its sizes is at least 1",
				      value);
	if (rc < 0)
		return rc;
	/* F, F/T or R/F/T */
	spec->replicate = count == 3 ? mesh[0] : 1;
	spec->mesh_fsdp = count == 3 ? mesh[1] : mesh[0];
	spec->mesh_tp = count == 3 ? mesh[2] : count == 2 ? mesh[1] : 1;
	return 1;
}

static uint32_t value_at(const struct train_spec *spec, size_t offset)
{
	return *(const uint32_t *)(const void *)((const char *)spec + offset);
}

/* What is given must mean something with its source. */
static int check_keys(const struct train_spec *spec, const char *string, struct error *error)
{
	struct train_spec absent = {0};

	for (size_t i = 0; i < ARRAY_SIZE(train_keys); i++)
		*(uint32_t *)(void *)((char *)&absent + train_keys[i].offset) =
			train_keys[i].absent;
	for (size_t i = 0; i < ARRAY_SIZE(keys_of); i++) {
		char sources[64] = "";

		if (value_at(spec, keys_of[i].offset) == value_at(&absent, keys_of[i].offset) ||
		    keys_of[i].sources & ONLY(spec->source))
			continue;
		for (const struct spec_choice *choice = source_choices; choice->name; choice++)
			if (keys_of[i].sources & ONLY(choice->value))
				snprintf(sources + strlen(sources),
					 sizeof(sources) - strlen(sources), "%s%s",
					 *sources ? " or " : "", choice->name);
		return REFUSE(string, "%s is a key of source=%s", keys_of[i].key, sources);
	}
	if (spec->fsdp > 1 && spec->source != TRAIN_SHARDED)
		return REFUSE(
			string,
			"fsdp=%u is a key of source=sharded; source=dtensor says it in mesh=, zero3 and "
			"fsdp1 cut over all trainers, and the others have no such key",
			spec->fsdp);
	if (spec->replicate && spec->source != TRAIN_DTENSOR)
		return REFUSE(string, "mesh is a key of source=dtensor");
	if (spec->stage_layers_count && spec->source == TRAIN_FSDP1)
		return REFUSE(
			string,
			"layers is no key of source=fsdp1, which has no stages: its units are "
			"layers already; leave it out");
	if (spec->source == TRAIN_DTENSOR && !spec->replicate)
		return REFUSE(string, "source=dtensor needs its mesh: mesh=fsdp, mesh=fsdp/tp or "
				      "mesh=replicas/fsdp/tp, as in mesh=4/2");
	return 0;
}

static int check_megatron(const struct train_spec *spec, const char *string, struct error *error)
{
	uint64_t dense = (uint64_t)spec->tp * spec->cp * spec->pp;
	uint64_t experts = (uint64_t)(spec->etp ? spec->etp : spec->tp) * spec->ep * spec->pp;

	if (spec->world % dense)
		return REFUSE(string, "tp * cp * pp = %llu does not divide world=%u",
			      (unsigned long long)dense, spec->world);
	if (spec->world % experts)
		return REFUSE(
			string,
			"etp * ep * pp = %llu does not divide world=%u (etp is tp where it is not given)",
			(unsigned long long)experts, spec->world);
	if (spec->order == ORDER_PP_DP && spec->pp > 1 &&
	    spec->world / dense != spec->world / experts)
		return REFUSE(
			string,
			"order=tp-cp-ep-pp-dp with pp > 1 needs as many replicas of experts (%llu) as of all else "
			"(%llu)",
			(unsigned long long)(spec->world / experts),
			(unsigned long long)(spec->world / dense));
	if (spec->stage_layers_count &&
	    (spec->first || spec->last || spec->account_embedding || spec->account_loss))
		return REFUSE(
			string,
			"layers says all that first, last and account_* say; give one or the other");
	if ((spec->first || spec->last) && spec->pp == 1)
		return REFUSE(string, "first and last are stages of their own: pp is at least 2");
	if (spec->vpp > 1 && spec->pp == 1)
		return REFUSE(
			string,
			"vpp=%u are chunks of each stage and pp=1 is one stage, which Megatron refuses: pp is "
			"at least 2, or leave vpp out",
			spec->vpp);
	if ((spec->first || spec->last) && (spec->account_embedding || spec->account_loss))
		return REFUSE(string, "first and last exclude account_embedding and account_loss");
	return 0;
}

/* In the last stage they are where Megatron has them anyway; with one stage, in that. */
static int check_mtp(struct train_spec *spec, const char *string, struct error *error)
{
	if (spec->mtp_stage && !spec->mtp)
		return REFUSE(string,
			      "mtp_stage=%u says where MTP layers are; say how many with mtp=",
			      spec->mtp_stage);
	if (spec->mtp_stage >= spec->pp)
		return REFUSE(string,
			      "mtp_stage=%u is no stage of pp=%u; the first is 0, and has none",
			      spec->mtp_stage, spec->pp);
	if (spec->mtp_stage == spec->pp - 1)
		spec->mtp_stage = 0;
	return 0;
}

static int check_dtensor(const struct train_spec *spec, const char *string, struct error *error)
{
	uint64_t ranks = (uint64_t)spec->replicate * spec->mesh_fsdp * spec->mesh_tp * spec->pp;

	if (ranks != spec->world)
		return REFUSE(
			string,
			"mesh=%u/%u/%u (replicas/fsdp/tp) with pp=%u is %llu trainers; world=%u",
			spec->replicate, spec->mesh_fsdp, spec->mesh_tp, spec->pp,
			(unsigned long long)ranks, spec->world);
	if ((uint64_t)spec->mesh_fsdp * spec->mesh_tp % spec->ep)
		return REFUSE(string, "ep=%u does not divide the %llu trainers of fsdp and tp",
			      spec->ep, (unsigned long long)spec->mesh_fsdp * spec->mesh_tp);
	return 0;
}

int train_spec_parse(struct train_spec *spec, const char *string, struct error *error)
{
	struct train_parse parsed = {0};
	struct spec_parse parse = {.flag = "--train",
				   .spec = string,
				   .example = "world=4,source=gathered",
				   .rows = train_keys,
				   .row_count = ARRAY_SIZE(train_keys),
				   .target = &parsed,
				   .other = take_lists,
				   .other_keys = "layers, layout, mesh",
				   .listed = "layout"};
	int rc = spec_parse_keys(&parse, error);
	struct train_spec made;

	if (rc == 0 && parsed.layout.stages)
		rc = parallel_layout_apply(&parsed.layout, &parsed.spec, string, error);
	made = parsed.spec;
	if (rc == 0 && made.world % made.pp != 0)
		rc = REFUSE(string, "pp=%u does not divide world=%u", made.pp, made.world);
	if (rc == 0)
		rc = check_keys(&made, string, error);
	if (rc == 0 && made.world / made.pp % made.fsdp != 0)
		rc = REFUSE(string, "fsdp=%u does not divide the %u trainers of a stage", made.fsdp,
			    made.world / made.pp);
	if (rc == 0 && made.source == TRAIN_MEGATRON)
		rc = check_megatron(&made, string, error);
	if (rc == 0)
		rc = check_mtp(&made, string, error);
	if (rc == 0 && made.source == TRAIN_DTENSOR)
		rc = check_dtensor(&made, string, error);
	if (rc == 0 && made.stage_layers_count && made.stage_layers_count != made.pp * made.vpp)
		rc = REFUSE(string, "layers has %u stages but pp=%u%s", made.stage_layers_count,
			    made.pp, made.vpp > 1 ? " in chunks of vpp" : "");
	if (rc == 0)
		*spec = made;
	return rc;
}

char *train_spec_text(const struct train_spec *spec, char out[PARALLEL_TEXT_BYTES])
{
	size_t n = spec_keys_text(train_keys, ARRAY_SIZE(train_keys), spec, out);

	if (spec->replicate)
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, ",mesh=%u/%u/%u",
				      spec->replicate, spec->mesh_fsdp, spec->mesh_tp);
	for (uint32_t i = 0; i < spec->stage_layers_count && n < PARALLEL_TEXT_BYTES; i++)
		n += (size_t)snprintf(out + n, PARALLEL_TEXT_BYTES - n, "%s%u",
				      i ? "/" : ",layers=", spec->stage_layers[i]);
	return out;
}

uint32_t infer_ranks(const struct infer_spec *spec)
{
	return spec->engines * spec->tp;
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
