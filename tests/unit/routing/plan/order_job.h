/* SPDX-License-Identifier: Apache-2.0
 *
 * order_job.h -- tables made by hand for the tests of send orders. An order looks at routes, their
 * source boxes and how they travel, so there need be no tensors behind them: sizes are free.
 */
#ifndef TESTS_UNIT_ROUTING_PLAN_ORDER_JOB_H
#define TESTS_UNIT_ROUTING_PLAN_ORDER_JOB_H

#include "tests/unit/routing/routing_job.h"

#include "routing/plan/order.h"

enum { MADE_RANKS = 64, MADE_ROUTES = 8192 };

struct made {
	char name[64];
	struct problem problem;
	struct table table;
	struct topology *topology;
	struct route routes[MADE_ROUTES];
	struct route_piece pieces[MADE_ROUTES];
};

static inline void check_complete(const struct table *table, const struct send_order *sends)
{
	unsigned char *seen = calloc(table->route_count + 1, 1);

	assert_non_null(seen);
	assert_int_equal(sends->first[0], 0);
	assert_int_equal(sends->first[table->problem->trainer_count], table->route_count);
	for (uint32_t t = 0; t < table->problem->trainer_count; t++)
		for (size_t i = sends->first[t]; i < sends->first[t + 1]; i++) {
			assert_true(sends->routes[i] < table->route_count);
			assert_int_equal(table->routes[sends->routes[i]].trainer, t);
			assert_false(seen[sends->routes[i]]++);
		}
	free(seen);
}

static inline struct made *made_new(uint32_t trainers, uint32_t ranks)
{
	struct made *made = calloc(1, sizeof(*made));
	struct error error = {0};

	assert_non_null(made);
	made->problem.trainer_count = trainers;
	made->problem.inference_count = ranks;
	assert_int_equal(topology_flat(&made->topology, trainers, ranks, &error), 0);
	made->table = (struct table){.problem = &made->problem, .policy = "greedy",
				     .order = "rounds", .topology = made->topology,
				     .routes = made->routes, .pieces = made->pieces};
	return made;
}

static inline void made_free(struct made *made)
{
	topology_free(&made->topology);
	free(made);
}

/* In table order. `box` is the source: equal boxes of a tensor are the same bytes. */
static inline void made_route(struct made *made, uint32_t tensor, uint32_t trainer,
			      uint32_t inference, uint64_t box, uint64_t bytes,
			      enum route_path path)
{
	size_t r = made->table.route_count++;

	assert_true(r < MADE_ROUTES);
	made->table.piece_count++;
	made->routes[r] = (struct route){.tensor = tensor, .trainer = trainer,
					 .inference = inference, .piece_count = 1,
					 .piece_first = r, .bytes = bytes};
	made->pieces[r] = (struct route_piece){.src = {.dims = 1, .lo = {box}, .hi = {box + 1}},
					       .bytes = bytes, .path = path};
}

static inline bool made_same_box(const struct made *made, uint32_t a, uint32_t b)
{
	return made->routes[a].tensor == made->routes[b].tensor &&
	       made->pieces[a].src.lo[0] == made->pieces[b].src.lo[0];
}

/* Flat clusters have a NIC a rank, trainers first. */
static inline uint64_t *made_nic(const struct made *made, enum role role, uint32_t rank)
{
	uint32_t nic = role == ROLE_TRAINER ? rank : made->problem.trainer_count + rank;

	return &made->topology->nics[nic].bytes_per_second;
}

static inline uint64_t made_rate(const struct made *made, enum role role, uint32_t rank)
{
	return *made_nic(made, role, rank);
}

/* Few sizes, so that boxes of several sets stand at equal fractions. */
static inline struct made *made_random(struct dice *dice)
{
	static const uint64_t sizes[] = {1, 1000, 1000, 1 << 20, 1 << 20, 48u << 20, 100u << 20,
					 300u << 20};
	uint32_t trainers = 1 + (uint32_t)dice_below(dice, 5);
	uint32_t ranks = 1 + (uint32_t)dice_below(dice, 6);
	struct made *made = made_new(trainers, ranks);
	uint32_t tensors = 1 + (uint32_t)dice_below(dice, 6), classes;
	uint64_t scatter = dice_below(dice, 3);

	for (uint32_t t = 0; t < trainers && scatter; t++)
		*made_nic(made, ROLE_TRAINER, t) = 1000000000 * (1 + dice_below(dice, 50));
	for (uint32_t i = 0; i < ranks && scatter; i++)
		*made_nic(made, ROLE_INFERENCE, i) = 1000000000 * (1 + dice_below(dice, 50));
	for (uint32_t tensor = 0; tensor < tensors; tensor++) {
		uint32_t owner = (uint32_t)dice_below(dice, trainers);
		uint64_t cuts = 1 + dice_below(dice, 3), size = sizes[dice_below(dice, 8)];
		enum route_path path = (enum route_path)dice_below(dice, PATH_COUNT);

		classes = 1 + (uint32_t)dice_below(dice, ranks);
		for (uint32_t i = 0; i < ranks; i++)
			for (uint64_t cut = 0; cut < cuts; cut++)
				if (dice_below(dice, 8))
					made_route(made, tensor,
						   dice_below(dice, 2)
							   ? owner
							   : (uint32_t)dice_below(dice, trainers),
						   i, i % classes * 8 + cut, size + cut,
						   dice_below(dice, 5) ? path : PATH_DIRECT);
	}
	return made;
}

/* ---- a fluid model: each trainer sends one route at a time, a receiver's rate is shared ---- */

static inline double made_bound(const struct made *made)
{
	double most = 0, sum[ROLE_COUNT][MADE_RANKS] = {{0}};

	for (size_t r = 0; r < made->table.route_count; r++) {
		sum[ROLE_TRAINER][made->routes[r].trainer] += (double)made->routes[r].bytes;
		sum[ROLE_INFERENCE][made->routes[r].inference] += (double)made->routes[r].bytes;
	}
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t k = 0; k < made->topology->rank_count[role]; k++) {
			double time = sum[role][k] / (double)made_rate(made, (enum role)role, k);

			most = time > most ? time : most;
		}
	return most;
}

/* Seconds until all is there. */
static inline double made_fluid(const struct made *made, const struct send_order *sends)
{
	uint32_t trainers = made->problem.trainer_count;
	double now = 0, bytes[MADE_RANKS];
	size_t next[MADE_RANKS];

	for (uint32_t t = 0; t < trainers; t++) {
		next[t] = sends->first[t];
		if (next[t] < sends->first[t + 1])
			bytes[t] = (double)made->routes[sends->routes[next[t]]].bytes;
	}
	for (;;) {
		uint32_t senders[MADE_RANKS] = {0};
		double rate[MADE_RANKS], step = -1;

		for (uint32_t t = 0; t < trainers; t++)
			if (next[t] < sends->first[t + 1])
				senders[made->routes[sends->routes[next[t]]].inference]++;
		for (uint32_t t = 0; t < trainers; t++) {
			uint32_t to;

			if (next[t] == sends->first[t + 1])
				continue;
			to = made->routes[sends->routes[next[t]]].inference;
			rate[t] = (double)made_rate(made, ROLE_INFERENCE, to) / senders[to];
			if (rate[t] > (double)made_rate(made, ROLE_TRAINER, t))
				rate[t] = (double)made_rate(made, ROLE_TRAINER, t);
			if (step < 0 || bytes[t] / rate[t] < step)
				step = bytes[t] / rate[t];
		}
		if (step < 0)
			return now;
		now += step;
		for (uint32_t t = 0; t < trainers; t++) {
			if (next[t] == sends->first[t + 1])
				continue;
			bytes[t] -= rate[t] * step;
			if (bytes[t] < 1e-3 && ++next[t] < sends->first[t + 1])
				bytes[t] = (double)made->routes[sends->routes[next[t]]].bytes;
		}
	}
}

/* ---- what published trainers do, in small ---- */

enum { MADE_CASES = 6 };

static inline struct made *made_case(int number)
{
	static const char *const titles[MADE_CASES] = {
		"prefix shards",      "cut pieces, rank by rank", "engine by engine",
		"experts, few holders", "uneven sizes", "a slow receiver"};
	const uint64_t MB = 1000000;
	struct dice dice = {(uint64_t)number + 7};
	struct made *made = made_new(number == 3 ? 32 : 8, number == 3 || number == 2 ? 16 : 8);
	uint32_t trainers = made->problem.trainer_count, ranks = made->problem.inference_count;

	snprintf(made->name, sizeof(made->name), "%s", titles[number]);
	for (uint32_t tensor = 0; tensor < 48; tensor++) {
		uint64_t bytes = number >= 4 ? (1 + dice_below(&dice, 40)) * MB : 8 * MB;

		for (uint32_t i = 0; i < ranks; i++)
			switch (number) {
			case 0: /* a trainer has six tensors, and all ranks want all of them */
			case 4:
			case 5:
				made_route(made, tensor, tensor * trainers / 48, i,
					   number ? i : 0, bytes, PATH_REPLICA);
				break;
			case 1: /* each pair cut over all trainers */
				for (uint32_t t = 0; t < trainers; t++)
					made_route(made, tensor, t, i, t, MB, PATH_DIRECT);
				break;
			case 2: /* two engines of eight: all of the first one's ranks come first */
				made_route(made, tensor + i / 8 * 48, (tensor + i) % trainers, i, i % 8,
					   bytes, PATH_REPLICA);
				break;
			default: /* four trainers have an expert, eight experts a layer */
				made_route(made, tensor, tensor % 8 * 4 + (uint32_t)dice_below(&dice, 4),
					   i, 0, bytes, PATH_DIRECT);
			}
	}
	if (number == 5)
		*made_nic(made, ROLE_INFERENCE, 3) /= 3;
	return made;
}

#endif
