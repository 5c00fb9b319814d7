/* SPDX-License-Identifier: Apache-2.0
 *
 * An epoch by itself: it stands on the workers it was made from and on nothing else, so there may be
 * two of them.
 */
#include "tests/unit/controller/controller_bench.h"

#include "controller/epoch.h"

struct pair {
	struct bench bench; /* for what the two declare */
	struct body bodies[2];
	struct worker *workers[2];
	struct train_spec train;
	struct infer_spec infer;
	struct epoch_rules rules;
	struct actions actions;
};

static void make_worker(struct pair *pair, int who)
{
	struct message_hello hello = {.role = who == T0 ? ROLE_TRAINER : ROLE_INFERENCE,
				      .incarnation = pair->bench.incarnation[who],
				      .host = memory_string("a"),
				      .host_id = memory_string("boot")};
	struct message_declare declare = {.model = memory_string("m"),
					  .train = memory_string("t"),
					  .infer = memory_string("i"),
					  .transport = memory_string("shm"),
					  .digest = who == T0 ? holding_digest(&pair->bench.holding)
							      : layout_digest(&pair->bench.layout)};
	struct body *body = &pair->bodies[who];

	body->role = hello.role;
	body->digest = declare.digest;
	body->known = true;
	body->holding = pair->bench.holding;
	body->layout = pair->bench.layout;
	pair->workers[who] = worker_new(&hello);
	assert_non_null(pair->workers[who]);
	worker_declares(pair->workers[who], &declare, body);
}

static int set_up_pair(void **state)
{
	struct pair *pair = memory_zalloc(1, sizeof(*pair));
	struct controller_options options = options_of(0);

	build(&pair->bench);
	make_worker(pair, T0);
	make_worker(pair, I0);
	pair->train = options.train;
	pair->infer = options.infer;
	pair->rules.train = &pair->train;
	pair->rules.infer = &pair->infer;
	pair->rules.followed = true;
	assert_int_equal(policy_named(&pair->rules.policy, "", "greedy", NULL), 0);
	assert_int_equal(order_named(&pair->rules.options.order, "", ORDER_DEFAULT, NULL), 0);
	*state = pair;
	return 0;
}

static int tear_down_pair(void **state)
{
	struct pair *pair = *state;

	for (int who = 0; who < 2; who++)
		worker_release(&pair->workers[who]);
	actions_clear(&pair->actions);
	holding_fini(&pair->bench.holding);
	layout_fini(&pair->bench.layout);
	memory_free(pair);
	return 0;
}

static struct epoch *planned_after(struct pair *pair, const struct epoch *before, uint64_t number,
				   uint32_t attempt)
{
	struct epoch *epoch;

	assert_int_equal(epoch_new(&epoch, number, attempt, 1, 1), 0);
	epoch_add(epoch, pair->workers[T0]);
	epoch_add(epoch, pair->workers[I0]);
	assert_int_equal(epoch_plan(epoch, before, &pair->rules, &pair->actions, NULL), 0);
	epoch_check(epoch, 0);
	return epoch;
}

static struct epoch *planned(struct pair *pair, uint64_t number, uint32_t attempt)
{
	return planned_after(pair, NULL, number, attempt);
}

static void open_in(struct epoch *epoch, struct pair *pair, int who)
{
	struct message message = endpoints_of(&pair->bench, who), copy;

	message.u.endpoints.attempt = epoch->attempt;
	assert_int_equal(message_copy(&copy, &message, NULL), 0);
	assert_int_equal(epoch_opened(epoch, (uint32_t)who, &copy.u.endpoints, NULL), 0);
	message_fini(&copy);
	epoch_check(epoch, 0);
}

static void test_epoch__goes_through_its_legs_beside_another_one(void **state)
{
	struct pair *pair = *state;
	struct epoch *running = planned(pair, 1, 1), *next = planned(pair, 2, 2);
	struct message message = {.type = MESSAGE_PEERS};

	assert_true(digest_equal(running->table->digest, next->table->digest));
	open_in(running, pair, T0);
	assert_false(epoch_peers_ready(running, T0));
	open_in(running, pair, I0);
	assert_true(epoch_peers_ready(running, T0) && epoch_peers_ready(running, I0));
	epoch_connected(running, T0);
	assert_false(epoch_all_connected(running));
	epoch_connected(running, I0);
	assert_true(epoch_all_connected(running));
	assert_int_equal(next->at[LEG_PLANNED], 2);

	open_in(next, pair, I0);
	open_in(next, pair, T0);
	epoch_free(&running);
	assert_int_equal(epoch_peers(next, I0, &message.u.peers), 0);
	assert_int_equal(message.u.peers.attempt, 2);
	assert_int_equal(message.u.peers.peer_count, 1);
	assert_memory_equal(message.u.peers.peers[0].record, "record", 6);
	message_fini(&message);
	epoch_free(&next);
}

/* Another process in the place of the rank. */
static struct worker *comes_again(struct pair *pair, const char *host)
{
	struct worker *before = pair->workers[I0];

	pair->bench.incarnation[I0]++;
	make_worker(pair, I0);
	memory_free(pair->workers[I0]->hello.host);
	pair->workers[I0]->hello.host = memory_string(host);
	return before;
}

static void test_epoch__of_those_who_declare_the_same_has_the_plan_before(void **state)
{
	struct pair *pair = *state;
	struct epoch *first = planned(pair, 1, 1), *second, *third;
	struct worker *before = comes_again(pair, "a");
	const struct table *table = first->table;
	struct message message = {.type = MESSAGE_PLAN};

	for (int who = 0; who < 2; who++)
		open_in(first, pair, who);
	for (uint32_t who = 0; who < 2; who++) {
		assert_int_equal(epoch_rows(first, who, &message.u.plan, NULL), 0);
		message_fini(&message);
		message.type = MESSAGE_PLAN;
		epoch_connected(first, who);
	}
	second = planned_after(pair, first, 1, 2);
	assert_ptr_equal(second->table, table);
	epoch_free(&first);
	worker_release(&before);
	assert_int_equal(epoch_rows(second, T0, &message.u.plan, NULL), 0); /* it has them */
	assert_int_equal(message.u.plan.rows_of, 1);
	assert_int_equal(message.u.plan.row_count, 0);
	message_fini(&message);
	message.type = MESSAGE_PLAN;
	assert_int_equal(epoch_rows(second, I0, &message.u.plan, NULL), 0); /* it has come */
	assert_int_equal(message.u.plan.rows_of, 0);
	assert_int_equal(message.u.plan.row_count, 1);
	message_fini(&message);

	before = comes_again(pair, "b"); /* which a topology may name */
	third = planned_after(pair, second, 1, 3);
	assert_ptr_not_equal(third->table, second->table);
	assert_true(digest_equal(third->table->digest, second->table->digest));
	worker_release(&before);
	epoch_free(&second);
	epoch_free(&third);
}

static struct epoch *run(struct pair *pair, struct epoch *epoch)
{
	struct message message = {.type = MESSAGE_PLAN};

	for (uint32_t who = 0; who < 2; who++) {
		assert_int_equal(epoch_rows(epoch, who, &message.u.plan, NULL), 0);
		message_fini(&message);
		message.type = MESSAGE_PLAN;
	}
	for (int who = 0; who < 2; who++)
		open_in(epoch, pair, who);
	for (uint32_t who = 0; who < 2; who++)
		epoch_connected(epoch, who);
	epoch->ran = true;
	return epoch;
}

/* What a worker says that keeps what it has: a region that is new, if any. */
static void say_kept(struct epoch *epoch, uint32_t who, const char *region)
{
	struct message_endpoints said = {.attempt = epoch->attempt};

	if (region) {
		said.regions = memory_zalloc(1, sizeof(*said.regions));
		said.regions[0] = (struct region_record){7, (unsigned char *)memory_string(region),
							 strlen(region)};
		said.region_count = 1;
	}
	assert_int_equal(epoch_opened(epoch, who, &said, NULL), 0);
	endpoints_fini(&said);
}

static void test_epoch__keeps_endpoints_of_pairs_that_are_whole(void **state)
{
	struct pair *pair = *state;
	struct epoch *first = run(pair, planned(pair, 1, 1)), *second, *third;
	struct message message = {.type = MESSAGE_PLAN};
	const struct message_endpoints *whole;

	second = planned_after(pair, first, 1, 2);
	assert_int_equal(epoch_keep(second, first, (bool[]){true, true}), 0);
	epoch_free(&first);
	assert_int_equal(epoch_rows(second, T0, &message.u.plan, NULL), 0);
	assert_true(message.u.plan.rows_of == 1 && message.u.plan.peers[0].kept);
	epoch_leave_out_peers(&second->parties[T0], &message.u.plan);
	assert_int_equal(message.u.plan.peer_count, 0);
	message_fini(&message);
	say_kept(second, I0, "new");
	say_kept(second, T0, NULL);
	whole = &second->parties[I0].endpoints;
	assert_int_equal(whole->region_count, 1); /* a newcomer would hear of it, */
	assert_int_equal(whole->place_count, 1);
	assert_int_equal(whole->record_count, 1);
	message.type = MESSAGE_PEERS;
	assert_int_equal(epoch_peers(second, T0, &message.u.peers), 0);
	assert_int_equal(message.u.peers.peer_count, 1); /* and who keeps its endpoint does */
	assert_int_equal(message.u.peers.peers[0].region_count, 1);
	assert_int_equal(message.u.peers.peers[0].place_count, 0);
	assert_int_equal(message.u.peers.peers[0].record_length, 0);
	message_fini(&message);
	message.type = MESSAGE_PEERS;
	assert_int_equal(epoch_peers(second, I0, &message.u.peers), 0);
	assert_int_equal(message.u.peers.peer_count, 0);
	message_fini(&message);
	third = planned_after(pair, second, 1, 3); /* which has not run */
	assert_int_equal(epoch_keep(third, second, (bool[]){true, true}), 0);
	assert_int_equal(third->parties[T0].kept_count, 0);
	epoch_free(&third);
	for (uint32_t who = 0; who < 2; who++)
		epoch_connected(second, who);
	second->ran = true;
	third = planned_after(pair, second, 1, 3);
	assert_int_equal(epoch_keep(third, second, (bool[]){true, false}), 0);
	assert_int_equal(third->parties[T0].kept_count, 0); /* its peer opens anew */
	open_in(third, pair, T0);
	epoch_free(&second);
	epoch_free(&third);
}

static void test_epoch__refuses_what_does_not_fit_what_is_kept(void **state)
{
	struct pair *pair = *state;
	struct epoch *first = run(pair, planned(pair, 1, 1));
	struct epoch *second = planned_after(pair, first, 1, 2);
	struct error why;

	assert_int_equal(epoch_keep(second, first, (bool[]){true, true}), 0);
	for (int who = 0; who < 2; who++) {
		struct message message = endpoints_of(&pair->bench, who), copy;

		message.u.endpoints.attempt = 2;
		assert_int_equal(message_copy(&copy, &message, NULL), 0);
		assert_int_equal(epoch_opened(second, (uint32_t)who, &copy.u.endpoints, &why),
				 -ERROR_MESSAGE);
		assert_string_equal(
			why.text,
			who == T0
				? "trainer 0 (host a, pid 0) sent 2 endpoint records, and it has 1 peers"
				: "inference 0 says once more where its parameters lie, and keeps endpoints");
		message_fini(&copy);
	}
	epoch_free(&first);
	epoch_free(&second);
}

static void test_epoch__keeps_its_workers_when_the_membership_has_let_go(void **state)
{
	struct pair *pair = *state;
	struct epoch *epoch = planned(pair, 1, 1);
	struct message message = {.type = MESSAGE_PLAN};

	for (int who = 0; who < 2; who++)
		worker_release(&pair->workers[who]);
	assert_int_equal(pair->bodies[T0].uses, 1);
	assert_int_equal(epoch_rows(epoch, T0, &message.u.plan, NULL), 0);
	assert_int_equal(message.u.plan.row_count, 1);
	assert_string_equal(message.u.plan.peers[0].host, "a");
	message_fini(&message);
	epoch_free(&epoch);
	assert_int_equal(pair->bodies[T0].uses, 0);
	assert_int_equal(pair->bodies[I0].uses, 0);
}

static void test_epoch__refuses_endpoints_that_its_peers_could_not_use(void **state)
{
	struct pair *pair = *state;
	struct epoch *epoch = planned(pair, 1, 1);
	struct message_endpoints none = {.attempt = 1};
	struct error why;

	assert_int_equal(epoch_opened(epoch, I0, &none, &why), -ERROR_MESSAGE);
	assert_string_equal(why.text, "inference 0 (host a, pid 0) sent endpoints without a record "
				      "for trainer 0");
	assert_int_equal(epoch->parties[I0].leg, LEG_PLANNED);
	epoch_check(epoch, 0);
	epoch_free(&epoch);
}

/* One offer each of two transports; reach NULL: it has not this one. */
static void offer(struct worker *worker, const char *shm, const char *verbs)
{
	const char *const reach[] = {shm, verbs}, *const name[] = {"shm", "verbs"};
	struct message_declare *declare = &worker->declare;

	for (size_t i = 0; i < declare->offer_count; i++) {
		memory_free(declare->offers[i].name);
		memory_free(declare->offers[i].reach);
	}
	memory_free(declare->offers);
	memory_free(declare->transport);
	declare->transport = memory_string("shm,verbs");
	declare->offers = memory_zalloc(2, sizeof(*declare->offers));
	declare->offer_count = 0;
	for (int i = 0; i < 2; i++)
		if (reach[i])
			declare->offers[declare->offer_count++] =
				(struct transport_offer){.name = memory_string(name[i]),
							 .reach = memory_string(reach[i]),
							 .mapped = i == 0,
							 .registered = i == 0};
}

static void test_epoch__each_pair_has_the_first_transport_that_reaches(void **state)
{
	const struct {
		const char *trainer[2], *rank[2], *transport;
		enum route_path path;
	} rows[] = {
		{{"boot 1", ""}, {"boot 1", ""}, "shm", PATH_DIRECT},
		{{"boot 1", ""}, {"boot 2", ""}, "verbs", PATH_REPLICA},
		{{"boot 1", ""}, {NULL, ""}, "verbs", PATH_REPLICA},
		{{"", NULL}, {"", ""}, "shm", PATH_DIRECT},
	};
	struct pair *pair = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message message = {.type = MESSAGE_PLAN};
		struct epoch *epoch;

		offer(pair->workers[T0], rows[i].trainer[0], rows[i].trainer[1]);
		offer(pair->workers[I0], rows[i].rank[0], rows[i].rank[1]);
		epoch = planned(pair, 1, 1);
		for (uint32_t who = 0; who < 2; who++) {
			assert_int_equal(epoch_rows(epoch, who, &message.u.plan, NULL), 0);
			assert_string_equal(message.u.plan.peers[0].transport, rows[i].transport);
			assert_int_equal(message.u.plan.rows[0].path, rows[i].path);
			message_fini(&message);
			message.type = MESSAGE_PLAN;
		}
		epoch_free(&epoch);
	}
}

static void test_epoch__a_pair_that_nothing_reaches_is_refused_with_what_both_have(void **state)
{
	struct pair *pair = *state;
	struct epoch *epoch;
	struct error error;

	offer(pair->workers[T0], "boot 1", "");
	offer(pair->workers[I0], "boot 2", NULL);
	assert_int_equal(epoch_new(&epoch, 1, 1, 1, 1), 0);
	epoch_add(epoch, pair->workers[T0]);
	epoch_add(epoch, pair->workers[I0]);
	assert_int_equal(epoch_plan(epoch, NULL, &pair->rules, &pair->actions, &error),
			 -ERROR_UNSUPPORTED);
	assert_string_equal(error.text,
			    "no transport of shm,verbs gets from trainer 0 (host a) to inference 0 "
			    "(host a): shm: one reaches 'boot 1', the other 'boot 2'; verbs: "
			    "inference 0 has none; give all workers --transport shm,verbs,tcp");
	epoch_free(&epoch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_epoch__of_those_who_declare_the_same_has_the_plan_before, set_up_pair,
			tear_down_pair),
		cmocka_unit_test_setup_teardown(
			test_epoch__goes_through_its_legs_beside_another_one, set_up_pair,
			tear_down_pair),
		cmocka_unit_test_setup_teardown(test_epoch__keeps_endpoints_of_pairs_that_are_whole,
						set_up_pair, tear_down_pair),
		cmocka_unit_test_setup_teardown(test_epoch__refuses_what_does_not_fit_what_is_kept,
						set_up_pair, tear_down_pair),
		cmocka_unit_test_setup_teardown(
			test_epoch__keeps_its_workers_when_the_membership_has_let_go, set_up_pair,
			tear_down_pair),
		cmocka_unit_test_setup_teardown(
			test_epoch__refuses_endpoints_that_its_peers_could_not_use, set_up_pair,
			tear_down_pair),
		cmocka_unit_test_setup_teardown(
			test_epoch__each_pair_has_the_first_transport_that_reaches, set_up_pair,
			tear_down_pair),
		cmocka_unit_test_setup_teardown(
			test_epoch__a_pair_that_nothing_reaches_is_refused_with_what_both_have,
			set_up_pair, tear_down_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
