/* SPDX-License-Identifier: Apache-2.0
 *
 * Send orders: every route once with its trainer; `rounds` against its rule said again naively;
 * and what orders are worth, in a small fluid model.
 */
#include "tests/unit/order_job.h"

#include "routing/order_rounds.h"

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

struct naive {
	const struct made *made;
	uint32_t box_of[MADE_ROUTES]; /* within its trainer */
	bool sent[MADE_ROUTES];
	uint32_t opened[MADE_RANKS], last[MADE_RANKS], boxes[MADE_RANKS];
	int64_t sending[MADE_RANKS]; /* route, or -1 */
	uint64_t free_at[MADE_RANKS], drained_at[MADE_RANKS];
};

static uint64_t ticks(uint64_t bytes, uint64_t rate)
{
	return (uint64_t)(((unsigned __int128)bytes * 1000000000000u + rate - 1) / rate);
}

static void number_boxes(struct naive *naive)
{
	const struct table *table = &naive->made->table;

	for (uint32_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		uint32_t same = 0;

		while (!made_same_box(naive->made, r, same) ||
		       table->routes[same].trainer != route->trainer)
			same++;
		naive->box_of[r] = same < r ? naive->box_of[same] : naive->boxes[route->trainer]++;
	}
}

static bool packed(const struct table *table, uint32_t r)
{
	return table->pieces[table->routes[r].piece_first].how != HOW_DIRECT;
}

/* Packed bytes and number of one trainer's boxes first..last, and whether `first` still has targets
 * and is packed. */
static uint64_t span(const struct naive *naive, uint32_t trainer, uint32_t first, uint32_t last,
		     uint32_t *count, bool *open)
{
	const struct table *table = &naive->made->table;
	uint64_t total = 0;

	*count = 0;
	*open = false;
	for (uint32_t b = first; b <= last; b++) {
		uint64_t bytes = 0;

		for (uint32_t r = 0; r < table->route_count; r++) {
			if (table->routes[r].trainer != trainer || naive->box_of[r] != b ||
			    !packed(table, r))
				continue;
			bytes = table->routes[r].bytes;
			*open |= b == first && !naive->sent[r];
			/* a box that some get packed is open until all have it */
		}
		for (uint32_t r = 0; r < table->route_count && bytes; r++)
			*open |= table->routes[r].trainer == trainer && naive->box_of[r] == b &&
				 b == first && !naive->sent[r];
		*count += bytes > 0;
		total += bytes;
	}
	return total;
}

static bool may_open(const struct naive *naive, uint32_t trainer)
{
	uint32_t next = naive->opened[trainer], count;
	bool open;

	if (next == naive->boxes[trainer])
		return false;
	if (!span(naive, trainer, next, next, &count, &open))
		return true;
	for (uint32_t b = 0; b < next; b++) {
		uint64_t bytes = span(naive, trainer, b, next, &count, &open);

		if (open)
			return bytes <= ORDER_WINDOW_BYTES && count <= ORDER_WINDOW_BOXES;
	}
	return true;
}

static uint32_t senders_of(const struct naive *naive, uint32_t inference)
{
	const struct table *table = &naive->made->table;
	uint32_t count = 0;

	for (uint32_t t = 0; t < naive->made->problem.trainer_count; t++)
		count += naive->sending[t] >= 0 &&
			 table->routes[naive->sending[t]].inference == inference;
	return count;
}

static uint64_t left(const struct naive *naive, uint32_t inference)
{
	const struct table *table = &naive->made->table;
	uint64_t total = 0;

	for (uint32_t r = 0; r < table->route_count; r++)
		if (table->routes[r].inference == inference && !naive->sent[r])
			total += ticks(table->routes[r].bytes,
				       made_rate(naive->made, ROLE_INFERENCE, inference));
	return total;
}

static uint64_t to_send(const struct naive *naive, uint32_t trainer)
{
	const struct table *table = &naive->made->table;
	uint64_t total = 0;

	for (uint32_t r = 0; r < table->route_count; r++)
		if (table->routes[r].trainer == trainer && !naive->sent[r])
			total += ticks(table->routes[r].bytes,
				       made_rate(naive->made, ROLE_TRAINER, trainer));
	return total;
}

/* The rank that the trainer would send to now, or UINT32_MAX. */
static uint32_t best_target(const struct naive *naive, uint32_t trainer)
{
	const struct table *table = &naive->made->table;
	uint32_t ranks = naive->made->problem.inference_count, best = UINT32_MAX;

	for (uint32_t k = 0; k < ranks; k++) {
		uint32_t i = (naive->last[trainer] + 1 + k) % ranks;
		bool wants = false;

		for (uint32_t r = 0; r < table->route_count; r++)
			wants |= table->routes[r].trainer == trainer && !naive->sent[r] &&
				 table->routes[r].inference == i &&
				 naive->box_of[r] < naive->opened[trainer];
		if (!wants)
			continue;
		if (best == UINT32_MAX || senders_of(naive, i) < senders_of(naive, best) ||
		    (senders_of(naive, i) == senders_of(naive, best) &&
		     left(naive, i) > left(naive, best)))
			best = i;
	}
	return best;
}

static uint32_t choose_naively(struct naive *naive, uint32_t trainer)
{
	const struct table *table = &naive->made->table;
	uint32_t best = best_target(naive, trainer), route = UINT32_MAX;

	while ((best == UINT32_MAX || senders_of(naive, best) >= ORDER_CREDIT) &&
	       may_open(naive, trainer)) {
		naive->opened[trainer]++;
		best = best_target(naive, trainer);
	}
	/* the invariant: past the credit only when there is nothing else that it may do */
	if (senders_of(naive, best) >= ORDER_CREDIT) {
		for (uint32_t r = 0; r < table->route_count; r++)
			if (table->routes[r].trainer == trainer && !naive->sent[r] &&
			    naive->box_of[r] < naive->opened[trainer])
				assert_true(senders_of(naive, table->routes[r].inference) >=
					    ORDER_CREDIT);
		assert_false(may_open(naive, trainer));
	}
	for (uint32_t r = 0; r < table->route_count; r++)
		if (table->routes[r].trainer == trainer && !naive->sent[r] &&
		    table->routes[r].inference == best &&
		    (route == UINT32_MAX || naive->box_of[r] < naive->box_of[route]))
			route = r;
	return route;
}

static void start_naively(struct naive *naive, uint32_t trainer, uint64_t now, uint32_t expected)
{
	uint32_t r = choose_naively(naive, trainer);
	const struct route *route = &naive->made->table.routes[r];
	uint64_t *drained = &naive->drained_at[route->inference];
	uint64_t end = now + ticks(route->bytes, made_rate(naive->made, ROLE_TRAINER, trainer));

	if (r != expected)
		fail_msg("trainer %u sends route %u, the rule says %u", trainer, expected, r);
	*drained = (*drained > now ? *drained : now) +
		   ticks(route->bytes, made_rate(naive->made, ROLE_INFERENCE, route->inference));
	naive->free_at[trainer] = end > *drained ? end : *drained;
	naive->sending[trainer] = r;
	naive->sent[r] = true;
	naive->last[trainer] = route->inference;
}

static void check_rule(const struct made *made, const struct send_order *sends)
{
	static struct naive naive;
	uint32_t trainers = made->problem.trainer_count;
	size_t next[MADE_RANKS];

	memset(&naive, 0, sizeof(naive));
	naive.made = made;
	number_boxes(&naive);
	for (uint32_t t = 0; t < trainers; t++) {
		next[t] = sends->first[t];
		naive.sending[t] = -1;
		naive.last[t] =
			(t + made->problem.inference_count - 1) % made->problem.inference_count;
	}
	for (uint64_t now = 0;;) {
		bool ready[MADE_RANKS] = {false};
		uint64_t soonest = UINT64_MAX;

		for (uint32_t t = 0; t < trainers; t++) {
			if (naive.sending[t] >= 0 && naive.free_at[t] == now)
				naive.sending[t] = -1;
			ready[t] = naive.sending[t] < 0 && next[t] < sends->first[t + 1];
		}
		for (;;) {
			uint32_t first = UINT32_MAX;

			for (uint32_t t = 0; t < trainers; t++)
				if (ready[t] && (first == UINT32_MAX ||
						 to_send(&naive, t) > to_send(&naive, first)))
					first = t;
			if (first == UINT32_MAX)
				break;
			ready[first] = false;
			start_naively(&naive, first, now, sends->routes[next[first]++]);
		}
		for (uint32_t t = 0; t < trainers; t++)
			if (naive.sending[t] >= 0 && naive.free_at[t] < soonest)
				soonest = naive.free_at[t];
		if (soonest == UINT64_MAX)
			break;
		now = soonest;
	}
}

/* A ring of two windows that forgets the oldest box when it is full packs every box once. */
static void check_packed_once(const struct made *made, const struct send_order *sends)
{
	const struct table *table = &made->table;

	for (uint32_t t = 0; t < made->problem.trainer_count; t++)
		for (size_t i = sends->first[t]; i < sends->first[t + 1]; i++) {
			uint64_t between = 0;
			uint32_t r = sends->routes[i];
			bool again = false;
			size_t j = i;

			/* back to where this box was packed: what was packed since, with itself */
			if (!packed(table, r))
				continue;
			for (size_t k = sends->first[t]; k < i; k++)
				if (packed(table, sends->routes[k]) &&
				    made_same_box(made, sends->routes[k], r)) {
					again = true;
					j = k;
					break;
				}
			for (size_t k = j; again && k < i; k++) {
				bool before = !packed(table, sends->routes[k]);

				for (size_t m = sends->first[t]; m < k; m++)
					before |= packed(table, sends->routes[m]) &&
						  made_same_box(made, sends->routes[m],
								sends->routes[k]);
				between += before ? 0 : table->routes[sends->routes[k]].bytes;
			}
			if (between > 2 * ORDER_WINDOW_BYTES)
				assert_int_equal(between, table->routes[r].bytes); /* alone */
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
		check_packed_once(made, &sends);
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
		assert_true(share[2] > 0.6 && share[2] > 0.99 * share[1]);
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

/* More targets than a choice looks at; and the same order again. */
static void test_rounds__is_complete_and_the_same_twice_for_many_ranks(void **state)
{
	struct made *made = made_new(7, 700);
	struct send_order sends, again;
	struct error error = {0};

	(void)state;
	for (uint32_t tensor = 0; tensor < 10; tensor++)
		for (uint32_t i = 0; i < 700; i++)
			made_route(made, tensor, (i * 3 + tensor) % 7, i, i % 3, 1000 + i % 11,
				   i % 2 ? HOW_REPLICA : HOW_DIRECT);
	assert_int_equal(order_sends(&made->table, &sends, &error), 0);
	assert_int_equal(order_sends(&made->table, &again, &error), 0);
	check_complete(&made->table, &sends);
	assert_memory_equal(sends.routes, again.routes, 7000 * sizeof(*sends.routes));
	send_order_fini(&sends);
	send_order_fini(&again);
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

static void test_rounds__keeps_a_slow_receiver_busy(void **state)
{
	struct made *made = made_new(4, 4);

	(void)state;
	for (uint32_t tensor = 0; tensor < 12; tensor++)
		for (uint32_t i = 0; i < 4; i++)
			made_route(made, tensor, tensor % 4, i, i, 1 << 20, HOW_DIRECT);
	*made_nic(made, ROLE_INFERENCE, 3) /= 4;
	assert_true(worth(made, "rounds") > 0.95);
	made_free(made);
}

static void test_rounds__gives_ranks_that_share_a_nic_a_part_of_it_each(void **state)
{
	struct send_order sends[3];
	struct error error = {0};

	(void)state;
	for (int c = 0; c < 3; c++) {
		struct dice dice = {11};
		struct made *made = made_new(5, 4);
		struct topology_link *links = made->topology->links + 5;

		for (uint32_t tensor = 0; tensor < 20; tensor++)
			for (uint32_t i = 0; i < 4; i++)
				made_route(made, tensor, tensor % 5, i, i,
					   1000 + dice_below(&dice, 100000), HOW_DIRECT);
		if (c == 1)
			links[3].nic = links[2].nic;
		if (c == 2)
			*made_nic(made, ROLE_INFERENCE, 2) = *made_nic(made, ROLE_INFERENCE, 3) /=
				2;
		assert_int_equal(order_sends(&made->table, &sends[c], &error), 0);
		made_free(made);
	}
	assert_memory_equal(sends[1].routes, sends[2].routes, 80 * sizeof(uint32_t));
	assert_memory_not_equal(sends[0].routes, sends[1].routes, 80 * sizeof(uint32_t));
	for (int c = 0; c < 3; c++)
		send_order_fini(&sends[c]);
}

/* docs/routing.md, "Send order" */
static void test_order__gives_the_worked_example_of_the_page(void **state)
{
	static const uint64_t units[3][3] = {{2, 1, 1}, {2, 1, 1}, {2, 1, 3}};
	static const struct {
		const char *order;
		uint32_t ranks[3][3];
		double done;
	} rows[] = {
		{"table", {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, 14},
		{"rotated", {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}}, 8},
		{"rounds", {{1, 2, 0}, {2, 1, 0}, {0, 1, 2}}, 6},
	};
	struct made *made = made_new(3, 3);

	(void)state;
	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t i = 0; i < 3; i++)
			made_route(made, t, t, i, i, units[t][i] * TOPOLOGY_FLAT_BYTES_PER_SECOND,
				   HOW_DIRECT);
	assert_float_equal(made_bound(made), 6, 1e-6);
	for (size_t o = 0; o < 3; o++) {
		struct error error = {0};
		struct send_order sends;

		made->table.order = rows[o].order;
		assert_int_equal(order_sends(&made->table, &sends, &error), 0);
		for (uint32_t k = 0; k < 9; k++)
			assert_int_equal(made->routes[sends.routes[k]].inference,
					 rows[o].ranks[k / 3][k % 3]);
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
		cmocka_unit_test(test_rounds__keeps_a_slow_receiver_busy),
		cmocka_unit_test(test_rounds__gives_ranks_that_share_a_nic_a_part_of_it_each),
		cmocka_unit_test(test_rounds__follows_its_rule_on_random_tables),
		cmocka_unit_test(test_rounds__does_not_gang_up_where_other_orders_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
