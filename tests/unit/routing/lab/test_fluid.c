/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/routing_job.h"

#include "routing/lab/fluid.h"
#include <math.h>

#define RESOURCES_MAX 12
#define SLOTS_MAX     24
#define PATH_MAX_     4

struct net {
	struct event_queue queue;
	struct fluid fluid;
	struct fluid_load path[SLOTS_MAX][PATH_MAX_];
	uint32_t length[SLOTS_MAX]; /* 0: no flow */
	double moved;
};

static void add_moved(void *context, uint32_t slot, double from, double to, double bytes)
{
	struct net *net = context;

	(void)slot;
	assert_true(to >= from && bytes >= 0);
	net->moved += bytes;
}

static void net_open(struct net *net, const double *rates, uint32_t resources)
{
	memset(net, 0, sizeof(*net));
	assert_int_equal(event_queue_init(&net->queue, SLOTS_MAX, NULL), 0);
	assert_int_equal(
		fluid_init(&net->fluid, resources, SLOTS_MAX, PATH_MAX_, &net->queue, NULL), 0);
	for (uint32_t r = 0; r < resources; r++)
		net->fluid.resources[r].bytes_per_second = rates[r];
	net->fluid.moved = add_moved;
	net->fluid.context = net;
}

static void net_close(struct net *net)
{
	fluid_fini(&net->fluid);
	event_queue_fini(&net->queue);
}

static void net_start(struct net *net, uint32_t slot, const struct fluid_load *path,
		      uint32_t length, double bytes, double now)
{
	memcpy(net->path[slot], path, length * sizeof(*path));
	net->length[slot] = length;
	fluid_start(&net->fluid, slot, path, length, bytes, now);
}

/* Progressive filling as the textbook has it: all rates rise together until a resource is full;
 * its flows stop there; on with the others. */
static void fill(const struct net *net, double *rate)
{
	bool fixed[SLOTS_MAX];

	for (uint32_t s = 0; s < SLOTS_MAX; s++) {
		fixed[s] = !net->length[s];
		rate[s] = 0;
	}
	for (;;) {
		double step = INFINITY;
		uint32_t full = UINT32_MAX;

		for (uint32_t r = 0; r < net->fluid.resource_count; r++) {
			double left = net->fluid.resources[r].bytes_per_second, share = 0;

			for (uint32_t s = 0; s < SLOTS_MAX; s++)
				for (uint32_t i = 0; i < net->length[s]; i++)
					if (net->path[s][i].resource == r) {
						left -= rate[s] * net->path[s][i].share;
						share += fixed[s] ? 0 : net->path[s][i].share;
					}
			if (share > 0 && left / share < step) {
				step = left / share;
				full = r;
			}
		}
		if (full == UINT32_MAX)
			return;
		for (uint32_t s = 0; s < SLOTS_MAX; s++)
			rate[s] += fixed[s] ? 0 : step;
		for (uint32_t s = 0; s < SLOTS_MAX; s++)
			for (uint32_t i = 0; i < net->length[s]; i++)
				fixed[s] = fixed[s] || net->path[s][i].resource == full;
	}
}

static void assert_filled(const struct net *net)
{
	double rate[SLOTS_MAX];

	fill(net, rate);
	for (uint32_t s = 0; s < SLOTS_MAX; s++)
		if (net->length[s] && fabs(net->fluid.slots[s].rate - rate[s]) > 1e-6 * rate[s])
			fail_msg("slot %u: %.12g, should be %.12g", s, net->fluid.slots[s].rate,
				 rate[s]);
}

static void test_fluid__shares_as_in_the_textbook(void **state)
{
	/* a and b share a resource of 10; b and c one of 4; c alone is cut to 1 */
	const double rates[] = {10, 4, 1};
	const struct fluid_load a[] = {{0, 1}}, b[] = {{0, 1}, {1, 1}}, c[] = {{1, 1}, {2, 1}};
	struct net net;
	uint32_t id;
	double seconds;

	(void)state;
	net_open(&net, rates, 3);
	net_start(&net, 0, a, 1, 70, 0);
	net_start(&net, 1, b, 2, 30, 0);
	net_start(&net, 2, c, 2, 1, 0);
	fluid_solve(&net.fluid, 0);
	assert_true(fabs(net.fluid.slots[0].rate - 7) < 1e-9);
	assert_true(fabs(net.fluid.slots[1].rate - 3) < 1e-9);
	assert_true(fabs(net.fluid.slots[2].rate - 1) < 1e-9);
	assert_true(event_queue_first(&net.queue, &id, &seconds));
	assert_int_equal(id, 2);
	assert_true(fabs(seconds - 1) < 1e-12);
	assert_true(fabs(fluid_stop(&net.fluid, 2, 1)) < 1e-9);
	fluid_solve(&net.fluid, 1); /* b takes the 4, a the other 6 */
	assert_true(fabs(net.fluid.slots[1].rate - 4) < 1e-9);
	assert_true(fabs(net.fluid.slots[0].rate - 6) < 1e-9);
	assert_true(fabs(net.moved - 1 - 7 - 3) < 1e-9);
	net_close(&net);
}

static void test_fluid__a_flow_over_two_nics_loads_each_with_its_part(void **state)
{
	const double rates[] = {8, 2, 100};
	const struct fluid_load both[] = {{0, 0.75}, {1, 0.25}, {2, 1}};
	struct net net;

	(void)state;
	net_open(&net, rates, 3);
	net_start(&net, 0, both, 3, 1, 0);
	fluid_solve(&net.fluid, 0);
	assert_true(fabs(net.fluid.slots[0].rate - 8) < 1e-9); /* a quarter of it fills the 2 */
	net_close(&net);
}

static void step(struct net *net, struct dice *dice, uint32_t resources, double now)
{
	uint32_t slot = (uint32_t)dice_below(dice, SLOTS_MAX), length;
	struct fluid_load path[PATH_MAX_];

	if (net->length[slot]) {
		fluid_stop(&net->fluid, slot, now);
		net->length[slot] = 0;
		return;
	}
	length = 1 + (uint32_t)dice_below(dice, PATH_MAX_);
	for (uint32_t i = 0; i < length; i++) {
		bool again = false;

		path[i] = (struct fluid_load){(uint32_t)dice_below(dice, resources),
					      dice_below(dice, 3) ? 1 : 0.25};
		for (uint32_t k = 0; k < i; k++)
			again = again || path[k].resource == path[i].resource;
		if (again) {
			length = i;
			break;
		}
	}
	net_start(net, slot, path, length, 1e9, now);
}

static void test_fluid__follows_progressive_filling_through_random_changes(void **state)
{
	struct dice dice = dice_seeded("fluid");

	(void)state;
	for (int round = 0; round < 400; round++) {
		uint32_t resources = PATH_MAX_ + (uint32_t)dice_below(&dice, RESOURCES_MAX - 3);
		double rates[RESOURCES_MAX + 1];
		struct net net;

		for (uint32_t r = 0; r < resources; r++)
			rates[r] = 1 + (double)dice_below(&dice, 9);
		net_open(&net, rates, resources);
		for (int i = 0; i < 60; i++) {
			for (uint64_t n = 1 + dice_below(&dice, 3); n; n--)
				step(&net, &dice, resources, i);
			fluid_solve(&net.fluid, i);
			assert_filled(&net);
		}
		net_close(&net);
	}
}

static void test_queue__gives_the_earliest_and_equal_times_by_number(void **state)
{
	struct dice dice = dice_seeded("queue");
	struct event_queue queue;
	double times[40];
	bool in[40] = {false};

	(void)state;
	assert_int_equal(event_queue_init(&queue, 40, NULL), 0);
	for (int i = 0; i < 20000; i++) {
		uint32_t id = (uint32_t)dice_below(&dice, 40), best = 40, first;
		double seconds;

		if (dice_below(&dice, 3)) {
			times[id] = (double)dice_below(&dice, 12);
			in[id] = true;
			event_queue_put(&queue, id, times[id]);
		} else {
			in[id] = false;
			event_queue_drop(&queue, id);
		}
		for (uint32_t k = 0; k < 40; k++)
			if (in[k] && (best == 40 || times[k] < times[best]))
				best = k;
		assert_int_equal(event_queue_first(&queue, &first, &seconds), best < 40);
		if (best < 40)
			assert_true(first == best && seconds == times[best]);
	}
	event_queue_fini(&queue);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fluid__shares_as_in_the_textbook),
		cmocka_unit_test(test_fluid__a_flow_over_two_nics_loads_each_with_its_part),
		cmocka_unit_test(test_fluid__follows_progressive_filling_through_random_changes),
		cmocka_unit_test(test_queue__gives_the_earliest_and_equal_times_by_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
