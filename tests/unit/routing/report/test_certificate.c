/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/certificate.h"

#include "routing/report/summary.h"
#include "tests/unit/routing/routing_job.h"

typedef unsigned __int128 wide;

enum { TRAINERS = 6, LIMITS = 11, SETS = 6 };

/* A bound's input with its storage. */
struct puzzle {
	struct bound_input input;
	uint32_t members[SETS][TRAINERS], limit_of[TRAINERS];
	struct holder_set sets[SETS];
	uint64_t bytes[SETS];
	struct bound_limit limits[LIMITS];
};

static void make_puzzle(struct puzzle *puzzle, struct dice *dice)
{
	uint32_t trainers = 1 + (uint32_t)dice_below(dice, TRAINERS);
	uint32_t nics = 1 + (uint32_t)dice_below(dice, trainers);
	uint32_t uplinks = (uint32_t)dice_below(dice, 4);
	size_t sets = 1 + dice_below(dice, SETS);
	uint64_t fastest = dice_below(dice, 2) ? 5 : UINT64_C(1) << 56;
	uint64_t most = dice_below(dice, 2) ? 30 : UINT64_C(1) << 58;

	*puzzle = (struct puzzle){0};
	for (uint32_t l = 0; l < nics + uplinks; l++) {
		bool up = l >= nics;

		puzzle->limits[l] = (struct bound_limit){
			.rate = 1 + dice_below(dice, fastest),
			.free_bytes = up && dice_below(dice, 2) ? dice_below(dice, most) : 0,
			.parent = !up && uplinks && dice_below(dice, 3)
					  ? nics + (uint32_t)dice_below(dice, uplinks)
					  : BOUND_NO_LIMIT};
	}
	for (uint32_t t = 0; t < trainers; t++)
		puzzle->limit_of[t] = t < nics ? t : (uint32_t)dice_below(dice, nics);
	for (size_t s = 0; s < sets; s++) {
		uint32_t count = 0;

		for (uint32_t t = 0; t < trainers; t++)
			if (dice_below(dice, 3) == 0)
				puzzle->members[s][count++] = t;
		if (count == 0)
			puzzle->members[s][count++] = (uint32_t)dice_below(dice, trainers);
		puzzle->sets[s] = (struct holder_set){puzzle->members[s], count};
		puzzle->bytes[s] = dice_below(dice, most);
	}
	puzzle->input = (struct bound_input){.sets = puzzle->sets,
					     .bytes = puzzle->bytes,
					     .set_count = sets,
					     .trainer_count = trainers,
					     .limits = puzzle->limits,
					     .limit_of = puzzle->limit_of,
					     .limit_count = nics + uplinks};
}

/* Every choice of limits cuts off the trainers that pass one of them: what only those can send
 * must pass the chosen ones. The largest ratio is the bound (max flow, min cut). */
static void by_all_cuts(const struct puzzle *puzzle, uint64_t *bytes, uint64_t *rate)
{
	const struct bound_input *input = &puzzle->input;

	*bytes = 0;
	*rate = 1;
	for (uint32_t cut = 1; cut < 1u << input->limit_count; cut++) {
		uint32_t behind = 0;
		uint64_t through = 0, inside = 0, free_bytes = 0;

		for (uint32_t t = 0; t < input->trainer_count; t++)
			for (uint32_t l = input->limit_of[t]; l != BOUND_NO_LIMIT;
			     l = input->limits[l].parent)
				if (cut >> l & 1)
					behind |= 1u << t;
		for (uint32_t l = 0; l < input->limit_count; l++) {
			through += cut >> l & 1 ? input->limits[l].rate : 0;
			free_bytes += cut >> l & 1 ? input->limits[l].free_bytes : 0;
		}
		for (size_t s = 0; s < input->set_count; s++) {
			bool within = true;

			for (uint32_t k = 0; k < input->sets[s].count && within; k++)
				within = behind >> input->sets[s].trainers[k] & 1;
			inside += within ? input->bytes[s] : 0;
		}
		if (inside > free_bytes &&
		    (wide)(inside - free_bytes) * *rate > (wide)*bytes * through) {
			*bytes = inside - free_bytes;
			*rate = through;
		}
	}
}

static void check_shares(const struct puzzle *puzzle, const struct bound *bound)
{
	const struct bound_input *input = &puzzle->input;
	uint64_t passed[LIMITS] = {0};

	for (size_t s = 0; s < input->set_count; s++) {
		uint64_t bytes = 0;

		for (size_t i = bound->share_first[s]; i < bound->share_first[s + 1]; i++) {
			const struct bound_share *share = &bound->shares[i];
			bool member = false;

			for (uint32_t k = 0; k < input->sets[s].count; k++)
				member = member || input->sets[s].trainers[k] == share->trainer;
			assert_true(member);
			bytes += share->bytes;
			for (uint32_t l = input->limit_of[share->trainer]; l != BOUND_NO_LIMIT;
			     l = input->limits[l].parent)
				passed[l] += share->bytes;
		}
		assert_int_equal(bytes, input->bytes[s]);
	}
	/* rounded to bytes: at most one a share too many */
	for (uint32_t l = 0; l < input->limit_count; l++)
		assert_true((wide)passed[l] * bound->rate <=
			    (wide)bound->bytes * input->limits[l].rate +
				    (wide)bound->rate *
					    (input->limits[l].free_bytes + SETS * TRAINERS));
}

static void test_bound__equals_all_cuts_on_random_limits(void **state)
{
	struct dice dice = dice_seeded("limits");

	(void)state;
	for (int round = 0; round < 5000; round++) {
		struct puzzle puzzle;
		struct bound bound;
		uint64_t bytes, rate;

		make_puzzle(&puzzle, &dice);
		by_all_cuts(&puzzle, &bytes, &rate);
		assert_int_equal(bound_solve(&bound, &puzzle.input, NULL), 0);
		assert_true((wide)bound.bytes * rate == (wide)bytes * bound.rate);
		check_shares(&puzzle, &bound);
		bound_fini(&bound);
	}
}

static void test_bound__survives_every_failed_allocation_with_limits(void **state)
{
	struct dice dice = dice_seeded("limits' memory");
	struct puzzle puzzle;
	struct bound bound;
	int rc = -1;

	(void)state;
	do
		make_puzzle(&puzzle, &dice);
	while (puzzle.input.set_count < 4 || puzzle.input.limit_count < 5);
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = bound_solve(&bound, &puzzle.input, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		assert_true(k < 200);
	}
	bound_fini(&bound);
}

/* ---- certificates of tables ---- */

static struct certificate certified(const struct table *table)
{
	struct certificate certificate;
	struct error error = {0};

	if (certificate_of(&certificate, table, &error))
		fail_msg("certificate: %s", error.text);
	return certificate;
}

static void test_certificate__is_the_lower_bound_on_a_flat_cluster(void **state)
{
	struct dice dice = dice_seeded("flat certificate");

	(void)state;
	for (int round = 0; round < 600; round++) {
		static struct job job;
		struct summary summary;
		struct certificate certificate;
		struct table *table;

		job_random(&job, &dice);
		table = job_plan(&job, round % 2 ? "greedy" : "round-robin");
		assert_int_equal(summary_of(&summary, table, NULL), 0);
		certificate = certified(table);
		wide up = (wide)certificate.sender_bound_bytes * TOPOLOGY_FLAT_BYTES_PER_SECOND;
		wide rate = certificate.sender_bound_rate;

		assert_true(up / rate + (up % rate != 0) == summary.lower_bound_bytes);
		assert_true(certificate.exact);
		assert_true(certificate.receiver_bound_seconds ==
			    (double)summary.receiver_bound_bytes / 50e9);
		double most = (double)(summary.makespan_bytes > summary.receiver_bound_bytes
					       ? summary.makespan_bytes
					       : summary.receiver_bound_bytes);

		assert_true(certificate.makespan_seconds == most / 50e9);
		assert_true(certificate.bound_seconds <= certificate.makespan_seconds);
		summary_fini(&summary);
		table_free(&table);
		job_fini(&job);
	}
}

/* Two trainers and two inference ranks; all of `a` (400 bytes) goes to both. */
static struct table *plan_on(struct job *job, struct topology *topology)
{
	struct plan_options options = {.topology = topology};
	struct table *table;

	job_init(job, 2, 2);
	for (uint32_t r = 0; r < 2; r++) {
		job_hold(job, r, "a", 0, 100, 1, 0, 100);
		job_want(job, r, "p", "a", 100, 1, 0, 100, 0, 1);
	}
	job_build(job);
	topology_finish(topology);
	assert_int_equal(table_plan(&table, job->problem, policy_find("greedy"), &options, NULL),
			 0);
	return table;
}

static struct topology *cluster(void)
{
	struct topology *topology;

	assert_int_equal(topology_new(&topology, 2, 2, NULL), 0);
	return topology;
}

static void place(struct topology *topology, enum role role, uint32_t rank, uint32_t host,
		  uint32_t nic, uint32_t more)
{
	topology_place(topology, role, rank, host);
	for (uint32_t n = nic; n <= nic + more; n++)
		assert_int_equal(topology_add_link(topology, role, rank, n, DISTANCE_PIX, NULL), 0);
}

static void test_certificate__names_a_shared_nic(void **state)
{
	static struct job job;
	struct topology *topology = cluster();

	(void)state;
	topology_add_host(topology, "a01", 0, NULL);
	topology_add_nic(topology, "mlx5_0", 0, 200, NULL);
	topology_add_host(topology, "b01", 0, NULL);
	topology_add_nic(topology, "x", 0, 1000, NULL);
	topology_add_nic(topology, "y", 0, 1000, NULL);
	place(topology, ROLE_TRAINER, 0, 0, 0, 0);
	place(topology, ROLE_TRAINER, 1, 0, 0, 0);
	place(topology, ROLE_INFERENCE, 0, 1, 1, 0);
	place(topology, ROLE_INFERENCE, 1, 1, 2, 0);
	struct table *table = plan_on(&job, topology);
	struct certificate c = certified(table);

	assert_true(c.bound_seconds == 4.0 && c.makespan_seconds == 4.0); /* 800 bytes, 200 B/s */
	assert_string_equal(c.bound_limit, "NIC mlx5_0 of host a01");
	assert_string_equal(c.makespan_limit, "NIC mlx5_0 of host a01");
	assert_true(c.receiver_bound_seconds == 0.4);
	assert_true(c.exact);
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

static void test_certificate__lets_traffic_inside_a_host_pass_no_uplink(void **state)
{
	static struct job job;
	struct topology *topology = cluster();

	(void)state;
	/* each host has a trainer and an inference rank; greedy sends each inside its host */
	for (uint32_t h = 0; h < 2; h++) {
		topology_add_host(topology, h ? "b" : "a", 10, NULL);
		topology_add_nic(topology, "n", 0, 100, NULL);
	}
	for (uint32_t h = 0; h < 2; h++) {
		place(topology, ROLE_TRAINER, h, h, h, 0);
	}
	for (uint32_t h = 0; h < 2; h++)
		place(topology, ROLE_INFERENCE, h, h, h, 0);
	struct table *table = plan_on(&job, topology);
	struct certificate c = certified(table);

	assert_true(c.makespan_seconds == 4.0 && c.bound_seconds == 4.0);
	assert_false(c.exact);
	/* the other way round: all of it through the uplinks of 10 bytes a second */
	table->routes[0].trainer = 1;
	table->routes[1].trainer = 0;
	c = certified(table);
	assert_true(c.makespan_seconds == 40.0 && c.bound_seconds == 4.0 && c.gap == 9.0);
	assert_string_equal(c.makespan_limit, "uplink of host a");
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

static void test_certificate__names_the_receiver_that_limits(void **state)
{
	static struct job job;
	struct topology *topology = cluster();

	(void)state;
	for (uint32_t h = 0; h < 4; h++) {
		topology_add_host(topology,
				  h == 0   ? "a"
				  : h == 1 ? "b"
				  : h == 2 ? "c"
					   : "d",
				  0, NULL);
		topology_add_nic(topology, "n", 0, h == 3 ? 50 : 100, NULL);
	}
	for (uint32_t r = 0; r < 2; r++)
		place(topology, ROLE_TRAINER, r, r, r, 0);
	for (uint32_t r = 0; r < 2; r++)
		place(topology, ROLE_INFERENCE, r, 2 + r, 2 + r, 0);
	struct table *table = plan_on(&job, topology);
	struct certificate c = certified(table);

	assert_true(c.sender_bound_seconds == 4.0 && c.bound_seconds == 8.0);
	assert_string_equal(c.bound_limit, "inference 1");
	assert_string_equal(c.makespan_limit, "inference 1");
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

static void test_certificate__counts_a_nic_that_ranks_share_in_part(void **state)
{
	static struct job job;
	struct topology *topology = cluster();

	(void)state;
	/* trainer 0 has NIC x, trainer 1 has x and y: half of its 400 bytes go over each */
	topology_add_host(topology, "a", 0, NULL);
	topology_add_nic(topology, "x", 0, 100, NULL);
	topology_add_nic(topology, "y", 0, 100, NULL);
	topology_add_host(topology, "b", 0, NULL);
	topology_add_nic(topology, "z", 0, 1000, NULL);
	place(topology, ROLE_TRAINER, 0, 0, 0, 0);
	place(topology, ROLE_TRAINER, 1, 0, 0, 1);
	place(topology, ROLE_INFERENCE, 0, 1, 2, 0);
	place(topology, ROLE_INFERENCE, 1, 1, 2, 0);
	struct table *table = plan_on(&job, topology);
	struct certificate c = certified(table);

	assert_true(c.makespan_seconds == 6.0); /* (400 + 200) / 100 */
	assert_string_equal(c.makespan_limit, "NIC x of host a");
	assert_true(c.bound_seconds == 4.0); /* 800 bytes over both: not reachable */
	assert_string_equal(c.bound_limit, "NICs x, y of host a");
	assert_false(c.exact);
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

/* Hosts of any shape, any NICs, some uplinks. */
static struct topology *random_topology(const struct job *job, struct dice *dice)
{
	uint32_t hosts = 1 + (uint32_t)dice_below(dice, 4), nics = 0, first[4];
	struct topology *topology;
	char name[16];

	assert_int_equal(topology_new(&topology, job->trainer_count, job->inference_count, NULL),
			 0);
	for (uint32_t h = 0; h < hosts; h++) {
		snprintf(name, sizeof(name), "h%" PRIu32, h);
		topology_add_host(topology, name,
				  dice_below(dice, 2) ? 1 + dice_below(dice, 400) : 0, NULL);
		first[h] = nics;
		for (uint64_t n = 1 + dice_below(dice, 3); n; n--) {
			snprintf(name, sizeof(name), "n%" PRIu64, n);
			topology_add_nic(topology, name, 0, 1 + dice_below(dice, 200), NULL);
			nics++;
		}
	}
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
			uint32_t host = (uint32_t)dice_below(dice, hosts);
			uint32_t end = host + 1 < hosts ? first[host + 1] : nics;
			uint32_t nic = first[host] + (uint32_t)dice_below(dice, end - first[host]);

			place(topology, (enum role)role, r, host, nic,
			      (uint32_t)dice_below(dice, end - nic));
		}
	topology_finish(topology);
	return topology;
}

static void test_certificate__is_never_above_any_table(void **state)
{
	struct dice dice = dice_seeded("certificate");
	int exact = 0;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		static const char *const policies[] = {"greedy", "round-robin"};
		static struct job job;
		struct plan_options options = {0};
		struct table *table;

		job_random(&job, &dice);
		struct topology *topology = random_topology(&job, &dice);

		options.topology = topology;
		assert_int_equal(table_plan(&table, job.problem, policy_find(policies[round % 2]),
					    &options, NULL),
				 0);
		struct certificate c = certified(table);

		assert_true(c.bound_seconds <= c.makespan_seconds * (1 + 1e-12));
		assert_true(c.gap >= 0 && c.bound_seconds > 0);
		assert_true(c.bound_limit[0] && c.makespan_limit[0]);
		exact += c.exact;
		table_free(&table);
		job_fini(&job);
		topology_free(&topology);
	}
	assert_true(exact > 100 && exact < 1900);
}

static void test_certificate__survives_every_failed_allocation(void **state)
{
	struct dice dice = dice_seeded("certificate's memory");
	static struct job job;
	struct plan_options options = {0};
	struct certificate certificate;
	struct table *table;
	struct error error = {0};
	int rc = -1;

	(void)state;
	job_random(&job, &dice);
	struct topology *topology = random_topology(&job, &dice);

	for (int flat = 0; flat < 2; flat++) {
		options.topology = flat ? NULL : topology;
		assert_int_equal(
			table_plan(&table, job.problem, policy_find("greedy"), &options, NULL), 0);
		rc = -1;
		for (uint64_t k = 1; rc; k++) {
			memory_fail_at(k);
			rc = certificate_of(&certificate, table, &error);
			memory_fail_at(0);
			if (rc && rc != -ERROR_MEMORY)
				fail_msg("%s", error.text);
			assert_true(k < 1000);
		}
		table_free(&table);
	}
	job_fini(&job);
	topology_free(&topology);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bound__equals_all_cuts_on_random_limits),
		cmocka_unit_test(test_bound__survives_every_failed_allocation_with_limits),
		cmocka_unit_test(test_certificate__is_the_lower_bound_on_a_flat_cluster),
		cmocka_unit_test(test_certificate__names_a_shared_nic),
		cmocka_unit_test(test_certificate__lets_traffic_inside_a_host_pass_no_uplink),
		cmocka_unit_test(test_certificate__names_the_receiver_that_limits),
		cmocka_unit_test(test_certificate__counts_a_nic_that_ranks_share_in_part),
		cmocka_unit_test(test_certificate__is_never_above_any_table),
		cmocka_unit_test(test_certificate__survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
