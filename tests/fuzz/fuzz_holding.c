/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as what a few trainers hold: boxes with strides, flat ranges, overlaps. What is accepted is routed to two ranks that want
 * other cuts of the same tensors, and the table is proved; what is refused has a message.
 *
 *   byte by byte   trainers | per trainer: boxes | per box: tensor, kind, bounds, place ..   | then the ranks' cuts
 */
#include "job/holding.h"
#include "routing/plan/table.h"
#include "routing/report/summary.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool holds)
{
	if (!holds)
		abort();
}

#define TRAINERS 3
#define RANKS	 2
#define TENSORS	 2

static const uint64_t shapes[TENSORS][3] = {{8, 6, 1}, {4, 3, 5}};
static const uint32_t dims[TENSORS] = {2, 3};
static const char *const names[TENSORS] = {"a", "b"};

struct input {
	const uint8_t *data;
	size_t bytes;
};

static uint64_t take(struct input *input, uint64_t bound)
{
	if (!input->bytes)
		return 0;
	input->bytes--;
	return *input->data++ % bound;
}

static uint64_t size_of(uint32_t tensor)
{
	uint64_t size = 1;

	for (uint32_t d = 0; d < dims[tensor]; d++)
		size *= shapes[tensor][d];
	return size;
}

static struct box take_box(struct input *input, uint32_t tensor)
{
	struct box box = box_whole(dims[tensor], shapes[tensor]);

	for (uint32_t d = 0; d < box.dims; d++) {
		uint64_t size = shapes[tensor][d], kind = take(input, 4);

		if (kind < 2) /* whole; else any, with ends that may be wrong */
			continue;
		box.lo[d] = take(input, size + (kind == 3));
		box.hi[d] = box.lo[d] + take(input, size + 2);
	}
	return box;
}

static int take_held(struct input *input, struct holding *holding, struct error *error)
{
	uint32_t tensor = (uint32_t)take(input, TENSORS);
	struct held held = {.tensor = tensor, .box = take_box(input, tensor)};

	switch (take(input, 4)) {
	case 0:
		return holding_add(holding, tensor, &held.box, error);
	case 1: {
		uint64_t from = take(input, size_of(tensor) + 1);

		return holding_add_flat(holding, tensor, from, from + take(input, 64), 0,
					take(input, 250), error);
	}
	default:
		held.place =
			held.box.dims <= BOX_DIMS_MAX ? placement_dense(&held.box) : held.place;
		held.place.offset = take(input, 250);
		for (uint32_t d = 0; d < held.box.dims; d++)
			if (take(input, 3) == 0)
				held.place.stride[d] = take(input, 40);
		return holding_add_placed(holding, &held, error);
	}
}

static void make_holding(struct input *input, struct holding *holding)
{
	static const uint64_t room[1] = {256};
	struct error error = {0};

	holding_init(holding);
	for (uint32_t t = 0; t < TENSORS; t++)
		check(holding_add_tensor(holding, names[t], DTYPE_BF16, dims[t], shapes[t], t,
					 &error) == t);
	check(holding_add_local(holding, "local", DTYPE_BF16, 1, room, &error) == 0);
	for (uint64_t n = take(input, 6); n; n--)
		if (take_held(input, holding, &error))
			check(error.text[0] != '\0');
}

/* One parameter a tensor, of what is left when its boxes are cut. */
static bool make_layout(struct input *input, struct layout *layout)
{
	struct error error = {0};

	layout_init(layout);
	for (uint32_t t = 0; t < TENSORS; t++) {
		struct piece piece = {.src = box_whole(dims[t], shapes[t])};
		uint32_t cut = (uint32_t)take(input, dims[t]);
		uint64_t size = shapes[t][cut];
		uint64_t param[3];

		piece.src.lo[cut] = take(input, size);
		piece.src.hi[cut] = piece.src.lo[cut] + 1 + take(input, size - piece.src.lo[cut]);
		for (uint32_t d = 0; d < dims[t]; d++)
			param[d] = piece.src.hi[d] - piece.src.lo[d];
		piece.bytes = box_elements(&piece.src) * 2;
		piece.tensor = (uint32_t)layout_add_tensor(layout, names[t], DTYPE_BF16, dims[t],
							   shapes[t], &error);
		piece.param = (uint32_t)layout_add_param(layout, names[t], DTYPE_BF16, dims[t],
							 param, &error);
		check(layout_add_piece(layout, &piece, &error) == 0);
	}
	return layout_finish(layout, &error) == 0;
}

static void plan(const struct problem *problem)
{
	static const char *const policies[] = {"greedy", "balanced", "round-robin"};

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		struct error error = {0};
		struct summary summary;
		struct table *table;
		int rc = table_plan(&table, problem, policy_find(policies[i]), NULL, &error);

		/* a proof that refuses is a planner that is wrong */
		check(rc == 0 || rc == -(int)ERROR_UNSUPPORTED || rc == -(int)ERROR_UNSOURCED);
		if (rc)
			continue;
		check(summary_of(&summary, table, &error) == 0);
		check(summary.lower_bound_bytes <= summary.makespan_bytes);
		summary_fini(&summary);
		table_free(&table);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input input = {data, bytes};
	struct holding holdings[TRAINERS];
	struct layout layouts[RANKS];
	const struct holding *trainers[TRAINERS];
	const struct layout *inference[RANKS];
	struct digest held[TRAINERS], wanted[RANKS];
	bool mapped[RANKS], fine = true;
	struct error error = {0};
	struct problem *problem;

	for (int t = 0; t < TRAINERS; t++) {
		make_holding(&input, &holdings[t]);
		fine = fine && holding_finish(&holdings[t], &error) == 0;
		trainers[t] = &holdings[t];
		held[t] = holding_digest(&holdings[t]);
	}
	for (int r = 0; r < RANKS; r++) {
		fine = make_layout(&input, &layouts[r]) && fine;
		inference[r] = &layouts[r];
		wanted[r] = layout_digest(&layouts[r]);
		mapped[r] = take(&input, 2);
	}
	const struct problem_input job = {.trainers = trainers,
					  .trainer_digests = held,
					  .trainer_count = TRAINERS,
					  .inference = inference,
					  .inference_digests = wanted,
					  .inference_mapped = mapped,
					  .inference_count = RANKS};

	if (fine && problem_build(&problem, &job, &error) == 0) {
		plan(problem);
		problem_free(&problem);
	}
	for (int t = 0; t < TRAINERS; t++)
		holding_fini(&holdings[t]);
	for (int r = 0; r < RANKS; r++)
		layout_fini(&layouts[r]);
	return 0;
}
