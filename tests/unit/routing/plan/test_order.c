/* SPDX-License-Identifier: Apache-2.0
 *
 * Send orders: every route once with its trainer; `rounds` against its rule said again naively;
 * and what orders are worth, in a small fluid model.
 */
#include "tests/unit/routing/plan/order_job.h"

#include <math.h>

static const char *const names[] = {"table", "rotated", "rounds"};

static void test_order__has_every_route_once_with_its_trainer(void **state)
{
	struct dice dice = dice_seeded("orders");
	size_t policies, orders;
	const struct policy *policy = policy_list(&policies);
	const struct order *order = order_list(&orders);

	(void)state;
	for (int round = 0; round < 1500; round++) {
		static struct job job;

		job_random(&job, &dice);
		for (size_t p = 0; p < policies; p++)
			for (size_t o = 0; o < orders; o++) {
				struct plan_options options = {.order = &order[o]};
				struct error error = {0};
				struct send_order sends;
				struct table *table;

				if (table_plan(&table, job.problem, &policy[p], &options, &error))
					fail_msg("plan: %s", error.text);
				assert_string_equal(table->order, order[o].name);
				if (order_sends(table, &sends, &error))
					fail_msg("%s: %s", order[o].name, error.text);
				check_complete(table, &sends);
				send_order_fini(&sends);
				table_free(&table);
			}
		job_fini(&job);
	}
}

/* ---- the rule of `rounds`, said again ---- */

/* Boxes in the order of sending, and what the rule says about them. */
struct sent_box {
	uint32_t first, count; /* into the trainer's routes as sent */
	uint64_t targets;      /* a bit a rank: the set */
	double bytes;
};

struct sets {
	uint64_t targets[MADE_ROUTES];
	uint32_t trainers[MADE_ROUTES]; /* that have met it */
	uint32_t count;
};

static uint32_t set_of(struct sets *sets, uint64_t targets)
{
	for (uint32_t s = 0; s < sets->count; s++)
		if (sets->targets[s] == targets)
			return s;
	sets->targets[sets->count] = targets;
	sets->trainers[sets->count] = 0;
	return sets->count++;
}

static uint32_t find_sent(const struct made *made, const uint32_t *routes, size_t count,
			  struct sent_box *boxes)
{
	uint32_t found = 0;

	for (size_t i = 0; i < count; i++) {
		const struct route *route = &made->routes[routes[i]];

		if (!i || !made_same_box(made, routes[i - 1], routes[i]))
			boxes[found++] = (struct sent_box){.first = (uint32_t)i};
		boxes[found - 1].count++;
		boxes[found - 1].targets |= UINT64_C(1) << route->inference;
		boxes[found - 1].bytes += (double)route->bytes;
	}
	return found;
}

/* Number `wanted` of the set's ranks, ascending. */
static uint32_t rank_of(uint64_t targets, uint32_t wanted)
{
	for (uint32_t rank = 0;; rank++)
		if (targets >> rank & 1 && wanted-- == 0)
			return rank;
}

static void check_apart(const struct made *made, const uint32_t *routes,
			const struct sent_box *boxes, uint32_t count)
{
	for (uint32_t a = 0; a < count; a++)
		for (uint32_t b = a + 1; b < count; b++)
			if (made_same_box(made, routes[boxes[a].first], routes[boxes[b].first]))
				fail_msg("a box is sent in two places");
}

/* After any box, sets differ by no more than their largest boxes. */
static void check_together(const struct sent_box *boxes, uint32_t count)
{
	for (uint32_t a = 0; a < count; a++)
		for (uint32_t b = a + 1; b < count; b++) {
			double whole[2] = {0}, largest[2] = {0}, sent[2] = {0};
			uint64_t of[2] = {boxes[a].targets, boxes[b].targets};

			for (uint32_t pass = 0; pass < 2; pass++)
				for (uint32_t k = 0; k < count; k++)
					for (int s = 0; s < 2; s++) {
						if (boxes[k].targets != of[s])
							continue;
						if (!pass) {
							whole[s] += boxes[k].bytes;
							largest[s] =
								fmax(largest[s], boxes[k].bytes);
							continue;
						}
						sent[s] += boxes[k].bytes;
						assert_true(fabs(sent[0] / whole[0] -
								 sent[1] / whole[1]) <=
							    largest[0] / whole[0] +
								    largest[1] / whole[1] + 1e-9);
					}
		}
}

static void check_rule(const struct made *made, const struct send_order *sends)
{
	static struct sent_box boxes[MADE_ROUTES];
	static struct sets sets;

	sets.count = 0;
	for (uint32_t t = 0; t < made->problem.trainer_count; t++) {
		const uint32_t *routes = sends->routes + sends->first[t];
		uint32_t count =
			find_sent(made, routes, sends->first[t + 1] - sends->first[t], boxes);
		static uint32_t number[MADE_ROUTES], done[MADE_ROUTES];
		static bool met[MADE_ROUTES];

		check_apart(made, routes, boxes, count);
		check_together(boxes, count);
		memset(met, 0, sizeof(met));
		for (uint32_t k = 0; k < count; k++) {
			uint32_t set = set_of(&sets, boxes[k].targets);

			if (!met[set]) {
				number[set] = sets.trainers[set]++;
				done[set] = 0;
				met[set] = true;
			}
			for (uint32_t i = 0; i < boxes[k].count; i++)
				assert_int_equal(
					made->routes[routes[boxes[k].first + i]].inference,
					rank_of(boxes[k].targets,
						(number[set] + done[set] + i) % boxes[k].count));
			done[set]++;
		}
	}
}

static void test_rounds__follows_its_rule_on_random_tables(void **state)
{
	struct dice dice = dice_seeded("rounds");
	struct error error = {0};

	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct made *made = made_random(&dice);
		struct send_order sends;

		if (order_sends(&made->table, &sends, &error))
			fail_msg("%s", error.text);
		check_complete(&made->table, &sends);
		check_rule(made, &sends);
		send_order_fini(&sends);
		made_free(made);
	}
}

/* ---- what an order is worth ---- */

static double worth(struct made *made, const char *order)
{
	struct error error = {0};
	struct send_order sends;
	double share;

	made->table.order = order;
	if (order_sends(&made->table, &sends, &error))
		fail_msg("%s", error.text);
	share = made_bound(made) / made_fluid(made, &sends);
	send_order_fini(&sends);
	return share;
}

static void test_rounds__does_not_gang_up_where_other_orders_do(void **state)
{
	(void)state;
	for (int c = 0; c < MADE_CASES; c++) {
		struct made *made = made_case(c);
		double share[3];

		for (int o = 0; o < 3; o++)
			share[o] = worth(made, names[o]);
		/* one send at a time and shared receivers: what a worker with queues never meets */
		assert_true(share[2] > 0.5);
		if (c < 3)
			assert_true(share[2] > 0.95);
		if (c < 2)
			assert_true(share[0] < 0.2); /* what ganging up costs: eight to one */
		print_message(
			"%-28s table %3.0f %%  rotated %3.0f %%  rounds %3.0f %% of the bound\n",
			made->name, 100 * share[0], 100 * share[1], 100 * share[2]);
		made_free(made);
	}
}

/* And the same order again. */
static void test_rounds__is_complete_and_the_same_twice_for_many_ranks(void **state)
{
	struct made *made = made_new(7, 700);
	struct send_order sends, again;
	struct error error = {0};

	(void)state;
	for (uint32_t tensor = 0; tensor < 10; tensor++)
		for (uint32_t i = 0; i < 700; i++)
			made_route(made, tensor, (i * 3 + tensor) % 7, i, i % 3, 1000 + i % 11,
				   i % 2 ? PATH_REPLICA : PATH_DIRECT);
	assert_int_equal(order_sends(&made->table, &sends, &error), 0);
	assert_int_equal(order_sends(&made->table, &again, &error), 0);
	check_complete(&made->table, &sends);
	assert_memory_equal(sends.routes, again.routes, 7000 * sizeof(*sends.routes));
	send_order_fini(&sends);
	send_order_fini(&again);
	made_free(made);
}

/* One box to 70 ranks, in portions of 23, 23 and 24, with boxes to two of them between. */
static void test_rounds__sends_what_goes_to_many_ranks_in_portions(void **state)
{
	enum { MANY = 70, SMALL = 12 };
	struct made *made = made_new(1, MANY);
	struct send_order sends;
	struct error error = {0};
	uint32_t run = 0, longest = 0, many = 0;

	(void)state;
	for (uint32_t i = 0; i < MANY; i++)
		made_route(made, 0, 0, i, 0, 1000, PATH_REPLICA);
	for (uint32_t t = 0; t < SMALL; t++)
		for (uint32_t i = 0; i < 2; i++)
			made_route(made, 1 + t, 0, i, 0, 1000, PATH_REPLICA);
	made->table.order = "rounds";
	assert_int_equal(order_sends(&made->table, &sends, &error), 0);
	check_complete(&made->table, &sends);
	for (uint32_t k = 0; k < sends.first[1]; k++) {
		const struct route *route = &made->routes[sends.routes[k]];

		run = route->tensor ? 0 : run + 1;
		longest = run > longest ? run : longest;
		if (route->tensor == 0)
			assert_int_equal(route->inference,
					 many++); /* as ever: from the set's rank on */
	}
	assert_int_equal(many, MANY);
	assert_int_equal(longest, 24);
	send_order_fini(&sends);
	made_free(made);
}

static void test_order__survives_every_failing_allocation(void **state)
{
	struct dice dice = {5};
	struct made *made = made_random(&dice);
	size_t count;
	const struct order *order = order_list(&count);

	(void)state;
	for (size_t o = 0; o < count; o++) {
		made->table.order = order[o].name;
		for (uint64_t k = 1;; k++) {
			struct error error = {0};
			struct send_order sends;
			int rc;

			memory_fail_at(k);
			rc = order_sends(&made->table, &sends, &error);
			memory_fail_at(0);
			if (rc) {
				assert_int_equal(rc, -ERROR_MEMORY);
				assert_null(sends.routes);
				continue;
			}
			send_order_fini(&sends);
			assert_true(k > 2);
			break;
		}
	}
	made_free(made);
}

/* docs/routing.md, "Send order" */
static void test_order__gives_the_worked_example_of_the_page(void **state)
{
	static const struct {
		const char *order;
		uint32_t ranks[3][4];
		double done;
	} rows[] = {
		{"table", {{0, 1, 0, 1}, {2, 3, 2, 3}, {0, 1, 0, 1}}, 8},
		{"rotated", {{0, 1, 0, 1}, {2, 3, 2, 3}, {0, 1, 0, 1}}, 8},
		{"rounds", {{0, 1, 1, 0}, {2, 3, 3, 2}, {1, 0, 0, 1}}, 4},
	};
	struct made *made = made_new(3, 4);

	(void)state;
	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t box = 0; box < 2; box++)
			for (uint32_t i = 0; i < 2; i++)
				made_route(made, 2 * t + box, t, t == 1 ? 2 + i : i, 0,
					   TOPOLOGY_FLAT_BYTES_PER_SECOND, PATH_DIRECT);
	assert_float_equal(made_bound(made), 4, 1e-6);
	for (size_t o = 0; o < 3; o++) {
		struct error error = {0};
		struct send_order sends;

		made->table.order = rows[o].order;
		assert_int_equal(order_sends(&made->table, &sends, &error), 0);
		for (uint32_t k = 0; k < 12; k++)
			assert_int_equal(made->routes[sends.routes[k]].inference,
					 rows[o].ranks[k / 4][k % 4]);
		assert_float_equal(made_fluid(made, &sends), rows[o].done, 1e-6);
		send_order_fini(&sends);
	}
	made_free(made);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order__has_every_route_once_with_its_trainer),
		cmocka_unit_test(test_order__gives_the_worked_example_of_the_page),
		cmocka_unit_test(test_order__survives_every_failing_allocation),
		cmocka_unit_test(test_rounds__is_complete_and_the_same_twice_for_many_ranks),
		cmocka_unit_test(test_rounds__sends_what_goes_to_many_ranks_in_portions),
		cmocka_unit_test(test_rounds__follows_its_rule_on_random_tables),
		cmocka_unit_test(test_rounds__does_not_gang_up_where_other_orders_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
