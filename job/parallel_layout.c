/* SPDX-License-Identifier: Apache-2.0 */
#include "job/parallel_layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS_MAX 100000 /* of a stage; as of layers= */
#define REFUSE(format, ...) \
	error_set(error, ERROR_CONFIG, "--train %s: layout: " format, spec, ##__VA_ARGS__)

/* A layout being written out, letter by letter. */
struct unrolling {
	struct parallel_layout *layout;
	const char *spec;
	bool embedding, loss;
	struct error *error;
};

static int layer(const struct unrolling *u, uint32_t *count)
{
	const char *spec = u->spec;
	struct error *error = u->error;

	return ++*count <= LAYERS_MAX ? 0 : REFUSE("a stage has more than %d layers", LAYERS_MAX);
}

static int mtp_layer(const struct unrolling *u)
{
	struct parallel_layout *layout = u->layout;
	const char *spec = u->spec;
	struct error *error = u->error;

	if (layout->mtp && layout->mtp_at != layout->stages - 1)
		return REFUSE("stages %u and %u have MTP layers ('m'); all are in one",
			      layout->mtp_at, layout->stages - 1);
	layout->mtp_at = layout->stages - 1;
	return layer(u, &layout->mtp);
}

/* Megatron reads a layout in this order too: what is computed later stands later. */
static int letter(struct unrolling *u, char what)
{
	struct parallel_layout *layout = u->layout;
	const char *spec = u->spec;
	struct error *error = u->error;

	if (u->loss)
		return REFUSE("'%c' stands behind the loss ('L'), which ends the last stage", what);
	if (!u->embedding && what != 'E')
		return REFUSE("it begins with '%c'; the embedding ('E') begins the first stage",
			      what);
	switch (what) {
	case 'E':
		if (u->embedding)
			return REFUSE("a second 'E'; there is one embedding");
		u->embedding = true;
		return 0;
	case 't':
		if (layout->mtp)
			return REFUSE("a layer ('t') stands behind an MTP layer ('m')");
		return layer(u, &layout->layers[layout->stages - 1]);
	case 'm':
		return mtp_layer(u);
	case 'L':
		u->loss = true;
		return 0;
	case '|':
		if (layout->stages == PARALLEL_STAGES_MAX)
			return REFUSE("more than %d stages", PARALLEL_STAGES_MAX);
		layout->stages++;
		return 0;
	default:
		return REFUSE("'%c'; it is made of E, t, m, L, |, (..)*n and t*n", what);
	}
}

/* "*3" at *at: how often; 1 where there is none, 0 where it is no number of a layout. Moves *at behind it. */
static uint32_t times(const char **at, const char *end)
{
	char *stop;
	unsigned long n;

	if (*at == end || **at != '*')
		return 1;
	if (++*at == end || **at < '0' || **at > '9')
		return 0;
	n = strtoul(*at, &stop, 10);
	*at = stop;
	return n > LAYERS_MAX ? 0 : (uint32_t)n;
}

/* Letters [at, end), none of them a bracket. */
static int unroll(struct unrolling *u, const char *at, const char *end)
{
	const char *spec = u->spec;
	struct error *error = u->error;
	int rc = 0;

	while (at < end && !rc) {
		char what = *at++;
		uint32_t n = times(&at, end);

		if (!n)
			return REFUSE("'%c*' is not followed by a number from 1 to %d", what,
				      LAYERS_MAX);
		while (n-- && !rc)
			rc = letter(u, what);
	}
	return rc;
}

static int unroll_all(struct unrolling *u, const char *at)
{
	const char *spec = u->spec;
	struct error *error = u->error;
	int rc = 0;

	while (*at && !rc) {
		const char *open = at + strcspn(at, "("), *close = strchr(open, ')');
		uint32_t n;

		rc = unroll(u, at, open);
		if (rc || !*open)
			break;
		if (!close || close == open + 1 || close[1] != '*')
			return REFUSE("'%.16s': a bracket is (..)*n, with something inside", open);
		at = close + 1;
		n = times(&at, at + strlen(at));
		if (!n)
			return REFUSE("')*' is not followed by a number from 1 to %d", LAYERS_MAX);
		while (n-- && !rc)
			rc = unroll(u, open + 1, close);
	}
	return rc;
}

int parallel_layout_read(struct parallel_layout *layout, const char *spec, const char *text,
			 struct error *error)
{
	struct unrolling u = {.layout = layout, .spec = spec, .error = error};
	char letters[PARALLEL_TEXT_BYTES];
	size_t count = 0;
	int rc;

	if (layout->stages)
		return error_set(error, ERROR_CONFIG, "--train %s: key 'layout' is given twice",
				 spec);
	for (; *text && count + 1 < sizeof(letters); text++)
		if (*text != ',')
			letters[count++] = *text;
	letters[count] = '\0';
	layout->stages = 1;
	rc = unroll_all(&u, letters);
	if (!rc && !u.loss)
		return REFUSE("no loss ('L'), which ends the last stage");
	return rc;
}

/* Megatron asks that MTP layers are in the last chunk of their rank, and not with the embedding. */
static int apply_mtp(const struct parallel_layout *layout, struct train_spec *train,
		     const char *spec, struct error *error)
{
	uint32_t stage = layout->mtp_at % train->pp;

	if (train->mtp && train->mtp != layout->mtp)
		return REFUSE("it has %u MTP layers ('m'); mtp=%u", layout->mtp, train->mtp);
	if (!layout->mtp)
		return 0;
	if (layout->mtp_at / train->pp != train->vpp - 1)
		return REFUSE("MTP layers ('m') are in chunk %u of their stage; they are in the "
			      "last, %u",
			      layout->mtp_at / train->pp, train->vpp - 1);
	if (train->pp > 1 && !stage)
		return REFUSE("MTP layers ('m') are in stage 0, beside the embedding; they are in "
			      "a later one");
	if (train->mtp_stage && train->mtp_stage != stage)
		return REFUSE("MTP layers ('m') are in stage %u; mtp_stage=%u", stage,
			      train->mtp_stage);
	train->mtp = layout->mtp;
	train->mtp_stage = stage;
	return 0;
}

int parallel_layout_apply(const struct parallel_layout *layout, struct train_spec *train,
			  const char *spec, struct error *error)
{
	if (train->source != TRAIN_MEGATRON)
		return error_set(error, ERROR_CONFIG,
				 "--train %s: layout is a key of source=megatron", spec);
	if (train->stage_layers_count)
		return REFUSE("it says all that layers= says; give one or the other");
	if (train->pp == 1 && layout->stages > 1)
		return REFUSE("it has %u stages between its bars, and pp=1 is one: give pp=, or "
			      "take the bars out",
			      layout->stages);
	if (layout->stages % train->pp)
		return REFUSE("it has %u stages, which pp=%u does not divide", layout->stages,
			      train->pp);
	if (train->vpp > 1 && train->vpp != layout->stages / train->pp)
		return REFUSE("its %u stages are %u chunks of pp=%u; vpp=%u", layout->stages,
			      layout->stages / train->pp, train->pp, train->vpp);
	train->vpp = layout->stages / train->pp;
	train->stage_layers_count = layout->stages;
	memcpy(train->stage_layers, layout->layers, sizeof(layout->layers));
	return apply_mtp(layout, train, spec, error);
}
