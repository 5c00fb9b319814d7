/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/routing_job.h"

#include "routing/plan/bound.h"
#include "routing/report/summary.h"

/* max over all sets of trainers of ceil(bytes that only they can send / how many they are) */
static uint64_t by_all_subsets(const struct holder_set *sets, const uint64_t *bytes, size_t count,
			       uint32_t trainers)
{
	uint64_t best = 0;

	for (uint32_t subset = 1; subset < 1u << trainers; subset++) {
		uint64_t inside = 0, n = (uint64_t)__builtin_popcount(subset);

		for (size_t s = 0; s < count; s++) {
			uint32_t members = 0;

			for (uint32_t k = 0; k < sets[s].count; k++)
				members |= 1u << sets[s].trainers[k];
			if ((members & ~subset) == 0)
				inside += bytes[s];
		}
		if (inside / n + (inside % n != 0) > best)
			best = inside / n + (inside % n != 0);
	}
	return best;
}

static void test_bound__equals_all_subsets_on_random_sets(void **state)
{
	struct dice dice = dice_seeded("bound");

	(void)state;
	for (int round = 0; round < 6000; round++) {
		uint32_t members[8][8], trainers = 1 + (uint32_t)dice_below(&dice, 8);
		size_t count = 1 + dice_below(&dice, 8);
		struct holder_set sets[8];
		uint64_t bytes[8], bound;
		/* small numbers make ties, large ones would overflow 64 bits when multiplied */
		uint64_t most = dice_below(&dice, 2) ? 20 : UINT64_C(1) << 58;

		for (size_t s = 0; s < count; s++) {
			uint32_t n = 0;

			for (uint32_t t = 0; t < trainers; t++)
				if (dice_below(&dice, 3) == 0)
					members[s][n++] = t;
			if (n == 0)
				members[s][n++] = (uint32_t)dice_below(&dice, trainers);
			sets[s] = (struct holder_set){members[s], n};
			bytes[s] = dice_below(&dice, most);
		}
		assert_int_equal(bound_of(&bound, sets, bytes, count, trainers, NULL), 0);
		assert_int_equal(bound, by_all_subsets(sets, bytes, count, trainers));
	}
}

static void test_bound__is_the_mean_of_the_fullest_of_disjoint_sets(void **state)
{
	uint32_t first[] = {0, 1, 2}, second[] = {3, 4};
	struct holder_set sets[] = {{first, 3}, {second, 2}};
	uint64_t bytes[] = {100, 67}, bound;

	(void)state;
	assert_int_equal(bound_of(&bound, sets, bytes, 2, 5, NULL), 0);
	assert_int_equal(bound, 34); /* 100/3 = 33.3 and 67/2 = 33.5, up to a byte */
}

static void test_bound__of_nothing_is_nothing(void **state)
{
	uint64_t bound = 7;

	(void)state;
	assert_int_equal(bound_of(&bound, NULL, NULL, 0, 3, NULL), 0);
	assert_int_equal(bound, 0);
	assert_int_equal(bound_of(&bound, NULL, NULL, 0, 0, NULL), 0);
	assert_int_equal(bound, 0);
}

static void test_bound__lets_pairs_be_cut_at_will(void **state)
{
	static struct job job;
	struct summary summary;
	struct table *table;

	(void)state;
	/* trainer 2 alone holds all of w, so greedy gives it the pair; but the halves could be
	 * sent by trainers 0 and 1, and a third of each by all */
	job_init(&job, 3, 1);
	job_hold(&job, 0, "w", 0, 6, 1, 0, 3);
	job_hold(&job, 1, "w", 0, 6, 1, 3, 6);
	job_hold(&job, 2, "w", 0, 6, 1, 0, 6);
	job_want(&job, 0, "p", "w", 6, 1, 0, 6, 0, 1);
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(summary_of(&summary, table, NULL), 0);
	assert_int_equal(summary.makespan_bytes, 24);
	assert_int_equal(summary.lower_bound_bytes, 8);
	assert_true(summary.gap > 1.99 && summary.gap < 2.01);
	summary_fini(&summary);
	table_free(&table);
	job_fini(&job);
}

static bool same_columns(const struct box *a, const struct box *b)
{
	return memcmp(a->lo + 1, b->lo + 1, (a->dims - 1) * sizeof(a->lo[0])) == 0 &&
	       memcmp(a->hi + 1, b->hi + 1, (a->dims - 1) * sizeof(a->hi[0])) == 0;
}

/* Row after row of every piece: is it the first that has this row and these columns? */
static uint64_t minimum_by_hand(const struct problem *problem)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < problem->inference_count; i++) {
		const struct problem_layout *own = &problem->layouts[problem->inference_layout[i]];

		for (size_t p = 0; p < own->piece_count; p++) {
			const struct piece *piece = &own->pieces[p];
			const struct box *box = &piece->src;

			for (uint64_t row = box->lo[0]; row < box->hi[0]; row++) {
				bool first = true;

				for (uint32_t k = 0; k <= i && first; k++) {
					const struct problem_layout *other =
						&problem->layouts[problem->inference_layout[k]];
					size_t end = k < i ? other->piece_count : p;

					for (size_t q = 0; q < end && first; q++) {
						const struct piece *seen = &other->pieces[q];

						first = seen->tensor != piece->tensor ||
							row < seen->src.lo[0] ||
							row >= seen->src.hi[0] ||
							!same_columns(&seen->src, box);
					}
				}
				bytes += first ? piece->bytes / (box->hi[0] - box->lo[0]) : 0;
			}
		}
	}
	return bytes;
}

/* Figures again, by loops over everything. */
static void check_summary(const struct job *job, const struct table *table)
{
	uint64_t trainer[JOB_RANKS_MAX] = {0}, rank[JOB_RANKS_MAX] = {0}, total = 0, most = 0;
	uint64_t prepared = 0;
	struct summary summary;

	assert_int_equal(summary_of(&summary, table, NULL), 0);
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];

		trainer[route->trainer] += route->bytes;
		rank[route->inference] += route->bytes;
		total += route->bytes;
		for (uint64_t p = route->piece_first; p < route->piece_first + route->piece_count;
		     p++) {
			bool own = true;

			for (size_t q = 0; q <= r; q++) {
				const struct route *other = &table->routes[q];

				for (uint64_t s = other->piece_first;
				     s < other->piece_first + other->piece_count && s < p; s++)
					own = own && (other->tensor != route->tensor ||
						      other->trainer != route->trainer ||
						      !box_equal(&table->pieces[s].src,
								 &table->pieces[p].src));
			}
			prepared += own ? table->pieces[p].bytes : 0;
		}
	}
	for (uint32_t t = 0; t < job->trainer_count; t++) {
		uint32_t sessions = 0;

		for (uint32_t i = 0; i < job->inference_count; i++) {
			bool found = false;

			for (size_t r = 0; r < table->route_count && !found; r++)
				found = table->routes[r].trainer == t &&
					table->routes[r].inference == i;
			sessions += found;
		}
		assert_int_equal(summary.sessions[t], sessions);
		assert_int_equal(summary.trainer_bytes[t], trainer[t]);
		most = trainer[t] > most ? trainer[t] : most;
	}
	assert_memory_equal(summary.inference_bytes, rank, job->inference_count * sizeof(rank[0]));
	assert_int_equal(summary.bytes_total, total);
	assert_int_equal(summary.makespan_bytes, most);
	assert_int_equal(summary.prepared_bytes, prepared);
	assert_int_equal(summary.prepared_minimum_bytes, minimum_by_hand(job->problem));
	assert_true(summary.prepared_minimum_bytes <= prepared);
	assert_int_equal(summary.path_bytes[0] + summary.path_bytes[1] + summary.path_bytes[2],
			 total);
	assert_true(summary.lower_bound_bytes <= summary.makespan_bytes);
	assert_true(summary.lower_bound_bytes * job->trainer_count >= total);
	summary_fini(&summary);
}

static void test_summary__equals_a_count_by_hand_on_random_jobs(void **state)
{
	struct dice dice = dice_seeded("summary");

	(void)state;
	for (int round = 0; round < 600; round++) {
		static struct job job;
		struct table *table;

		job_random(&job, &dice);
		table = job_plan(&job, round % 2 ? "greedy" : "round-robin");
		check_summary(&job, table);
		table_free(&table);
		job_fini(&job);
	}
}

static void test_bound__survives_every_failed_allocation(void **state)
{
	uint32_t first[] = {0, 1}, second[] = {1, 2};
	struct holder_set sets[] = {{first, 2}, {second, 2}};
	uint64_t bytes[] = {10, 90}, bound = 0;
	int rc = -1;

	(void)state;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = bound_of(&bound, sets, bytes, 2, 3, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		assert_true(k < 100);
	}
	assert_int_equal(bound, 45);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bound__equals_all_subsets_on_random_sets),
		cmocka_unit_test(test_bound__is_the_mean_of_the_fullest_of_disjoint_sets),
		cmocka_unit_test(test_bound__of_nothing_is_nothing),
		cmocka_unit_test(test_bound__lets_pairs_be_cut_at_will),
		cmocka_unit_test(test_bound__survives_every_failed_allocation),
		cmocka_unit_test(test_summary__equals_a_count_by_hand_on_random_jobs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
