/* SPDX-License-Identifier: Apache-2.0
 *
 * route_sizes.c -- sizes that would do, where trainers' cuts end inside of what must stay together (a block and its scale, a row of
 * what lies transposed). What is too fine depends on every tensor of the model and on how a trainer fuses them, so it is tried: the
 * job once more with fewer parts, the finest that is not refused wins.
 */
#include "cli/route_options.h"

#include "base/array.h"
#include "base/compare.h"
#include "base/progress.h"
#include "cli/shown.h"
#include "routing/plan/unit.h"
#include <stdio.h>

#define TRIES_MAX 32

/* The sizes of a source that cut rows, or columns of them. */
static const struct cut {
	enum train_source source;
	size_t sizes[2];
	size_t count;
} cuts[] = {
	{TRAIN_SHARDED, {offsetof(struct train_spec, fsdp)}, 1},
	{TRAIN_MEGATRON, {offsetof(struct train_spec, tp), offsetof(struct train_spec, etp)}, 2},
	{TRAIN_DTENSOR,
	 {offsetof(struct train_spec, mesh_fsdp), offsetof(struct train_spec, mesh_tp)},
	 2},
};

struct candidate {
	uint32_t sizes[2];
};

static uint32_t *size_of(struct train_spec *train, size_t at)
{
	return (uint32_t *)(void *)((char *)train + at);
}

static uint64_t parts(const struct candidate *candidate)
{
	return (uint64_t)(candidate->sizes[0] ? candidate->sizes[0] : 1) *
	       (candidate->sizes[1] ? candidate->sizes[1] : 1);
}

/* The finest first; of equal ones the one that has more of the first kind. */
static int by_parts(const void *x, const void *y)
{
	const struct candidate *a = x, *b = y;

	return compare_u64(parts(b), parts(a)) ?: compare_u64(b->sizes[0], a->sizes[0]);
}

/* All pairs of divisors that cut no finer than the job does, and less in one of them. etp 0 is as tp, and stays that. */
static bool list(const struct cut *cut, struct train_spec *train, struct candidate **out,
		 size_t *count)
{
	ARRAY(struct candidate) found = {0};
	uint32_t first = *size_of(train, cut->sizes[0]);
	uint32_t second = cut->count > 1 ? *size_of(train, cut->sizes[1]) : 0;

	for (uint32_t a = first; a; a--)
		for (uint32_t b = second ? second : 1; first % a == 0 && b; b--) {
			struct candidate candidate = {{a, second ? b : 0}};

			if ((second && second % b) || (a == first && (!second || b == second)))
				continue;
			if (!array_add(&found, candidate)) {
				array_free(&found);
				return false;
			}
		}
	if (found.count)
		sort_items(found.items, found.count, by_parts);
	*out = found.items;
	*count = found.count;
	return true;
}

/* Would that job's trainers have what its engines want? *spec holds PARALLEL_TEXT_BYTES. */
static bool would_do(const struct route_options *options, const struct cut *cut,
		     const struct train_spec *train, const struct candidate *candidate, char *spec)
{
	struct train_spec made = *train;
	struct error ignored = {0};
	struct route_job job = {0};
	struct units units;
	bool good;

	for (size_t i = 0; i < cut->count; i++)
		*size_of(&made, cut->sizes[i]) = candidate->sizes[i];
	if (made.source == TRAIN_DTENSOR)
		made.replicate = made.world / made.pp / made.mesh_fsdp / made.mesh_tp;
	train_spec_text(&made, spec);
	progress_step("looking for sizes that would do: %s", shown(spec));
	good = !route_job_open(&job, options->model, options->as, spec, options->infer, false,
			       &ignored);
	if (good) {
		good = !units_build(&units, job.problem, &ignored);
		if (good)
			units_fini(&units);
	}
	route_job_close(&job);
	return good;
}

void route_sizes_add(const struct route_options *options, struct error *error)
{
	struct candidate *candidates = NULL;
	const struct cut *cut = cuts;
	char spec[PARALLEL_TEXT_BYTES], said[ERROR_TEXT_BYTES];
	struct error ignored = {0};
	struct train_spec train;
	size_t count = 0, tried = 0;

	if ((error->code != ERROR_UNSOURCED && error->code != ERROR_UNSUPPORTED) ||
	    !options->train || train_spec_parse(&train, options->train, &ignored))
		return;
	while (cut < cuts + ARRAY_SIZE(cuts) && cut->source != (enum train_source)train.source)
		cut++;
	if (cut == cuts + ARRAY_SIZE(cuts) || !list(cut, &train, &candidates, &count))
		return;
	while (tried < count && tried < TRIES_MAX &&
	       !would_do(options, cut, &train, &candidates[tried], spec))
		tried++;
	progress_steps_end();
	if (tried < count && tried < TRIES_MAX) {
		snprintf(said, sizeof(said), "%s", error->text);
		error_set(error, error->code, "%s; --train %s would do", said, spec);
	}
	memory_free(candidates);
}
