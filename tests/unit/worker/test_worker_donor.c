/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine comes in while trainers have nothing new, and the ranks of another one send it what they show: real workers in one
 * process, two engines of two ranks.
 */
#include "tests/unit/worker/worker_rig.h"

static const struct rig_options plain = {.trainers = 2,
					 .ranks = 4,
					 .engines = 2,
					 .transport = "shm",
					 .commit = "engine",
					 .on_loss = "continue"};

static struct rig *open_rig(const struct rig_options *options)
{
	struct rig *rig = memory_zalloc(1, sizeof(*rig));

	rig_open(rig, options);
	return rig;
}

static void close_rig(struct rig *rig)
{
	rig_close(rig);
	memory_free(rig);
}

static void *join_and_take(void *context)
{
	struct rig_wait *wait = context;

	wait->rc = weft_join(wait->worker, 0, &wait->error);
	if (!wait->rc)
		wait->rc = weft_update_wait(wait->worker, WEFT_VERSION_NEXT, wait->timeout_ms,
					    &wait->published, &wait->error);
	return NULL;
}

static void *join_and_refuse(void *context);

/* Engine 1 goes, and other processes come for its ranks, which take what there is. */
static void engine_1_comes_anew(struct rig *rig, void *(*takes)(void *))
{
	for (uint32_t rank = 2; rank < 4; rank++)
		weft_close(&rig->ranks[rank]);
	for (uint32_t rank = 2; rank < 4; rank++) {
		memset(rig->own[rank], 0xaa, sizeof(rig->own[rank]));
		rig->ranks[rank] = rig_open_worker(rig, WEFT_INFERENCE, rank);
		rig_declare_rank(rig, rank);
		rig->waits[rank] =
			(struct rig_wait){.worker = rig->ranks[rank],
					  .timeout_ms = rank == 3 && takes == join_and_refuse,
					  .error = WEFT_ERROR_INIT};
		pthread_create(&rig->waits[rank].thread, NULL, takes, &rig->waits[rank]);
	}
}

static void engine_0_waits_for(struct rig *rig, uint64_t version)
{
	for (uint32_t rank = 0; rank < 2; rank++) {
		rig->waits[rank] = (struct rig_wait){
			.worker = rig->ranks[rank], .version = version, .error = WEFT_ERROR_INIT};
		pthread_create(&rig->waits[rank].thread, NULL, rig_wait_thread, &rig->waits[rank]);
	}
}

struct trainer {
	pthread_t thread;
	weft_worker *worker;
	_Atomic bool *over;
	uint64_t named; /* by weft_update_repeat; UINT64_MAX: this one asks weft_update_admit */
	int rc;
	weft_error error;
};

static void *train(void *context)
{
	struct trainer *trainer = context;

	while (!*trainer->over && !trainer->rc &&
	       (!trainer->named || trainer->named == UINT64_MAX)) {
		trainer->rc = trainer->named ? weft_update_admit(trainer->worker, &trainer->error)
					     : weft_update_repeat(trainer->worker, &trainer->named,
								  &trainer->error);
		clock_sleep_ms(2);
	}
	return NULL;
}

/* What trainers hold is no version any more: they have nothing to send. The last of them admits, and does not repeat. */
static void trainers_let_it_in(struct rig *rig, struct trainer *trainers, _Atomic bool *over)
{
	memset(rig->tensors, 0xdd, sizeof(rig->tensors));
	for (uint32_t t = 0; t < rig->options.trainers; t++) {
		trainers[t] = (struct trainer){.worker = rig->trainers[t],
					       .over = over,
					       .named = t ? UINT64_MAX : 0,
					       .error = WEFT_ERROR_INIT};
		pthread_create(&trainers[t].thread, NULL, train, &trainers[t]);
	}
}

static void trainers_end(struct rig *rig, struct trainer *trainers, _Atomic bool *over)
{
	*over = true;
	for (uint32_t t = 0; t < rig->options.trainers; t++) {
		pthread_join(trainers[t].thread, NULL);
		rig_ok(trainers[t].rc, &trainers[t].error);
		assert_int_equal(trainers[t].named, t ? UINT64_MAX : 0);
	}
}

static void newcomers_end(struct rig *rig, int rc)
{
	for (uint32_t rank = 2; rank < 4; rank++) {
		pthread_join(rig->waits[rank].thread, NULL);
		if (rig->waits[rank].rc != rc)
			print_message("%s\n", rig->waits[rank].error.text);
		assert_int_equal(rig->waits[rank].rc, rc);
	}
}

/* Version `version` to all, of whom engine 0 waits already. */
static void all_go_on(struct rig *rig, uint64_t version)
{
	rig_fill(rig, version);
	for (uint32_t rank = 2; rank < 4; rank++) {
		rig->waits[rank] = (struct rig_wait){
			.worker = rig->ranks[rank], .version = version, .error = WEFT_ERROR_INIT};
		pthread_create(&rig->waits[rank].thread, NULL, rig_wait_thread, &rig->waits[rank]);
	}
	for (uint32_t t = 0; t < rig->options.trainers; t++)
		rig_send(rig, t, version);
	rig_wait_end(rig, 0);
	for (uint32_t rank = 0; rank < 4; rank++)
		rig_check(rig, rank, version);
}

static void comes_in(const struct rig_options *options)
{
	struct rig *rig = open_rig(options);
	_Atomic bool over = false;
	struct trainer trainers[2];

	rig_update(rig, 1);
	rig_update(rig, 2);
	engine_0_waits_for(rig, 3);
	engine_1_comes_anew(rig, join_and_take);
	trainers_let_it_in(rig, trainers, &over);
	newcomers_end(rig, 0);
	trainers_end(rig, trainers, &over);
	for (uint32_t rank = 2; rank < 4; rank++) {
		assert_int_equal(rig->waits[rank].published, 2);
		rig_check(rig, rank, 2);
	}
	all_go_on(rig, 3);
	rig_update(rig, 4);
	close_rig(rig);
}

static void test_newcomer__is_sent_what_another_engine_shows(void **state)
{
	struct rig_options options = plain;

	(void)state;
	comes_in(&options);
	options.shadow = options.checksums = 1;
	comes_in(&options);
	options.commit = "rank";
	options.transport = "mock";
	comes_in(&options);
	options = plain;
	options.own_memory = options.checksums = 1;
	comes_in(&options);
	options.delta = 1;
	options.transport = "mock";
	comes_in(&options);
}

/* A donor in an event loop, which is sent home between two parts. */
static void *poll_for(void *context)
{
	struct rig_wait *wait = context;

	do {
		wait->rc = weft_update_try_wait(wait->worker, wait->version, 0, &wait->published,
						&wait->error);
		clock_sleep_ms(1);
	} while (wait->rc == WEFT_AGAIN);
	return NULL;
}

static void test_donor__may_be_in_an_event_loop(void **state)
{
	struct rig *rig = open_rig(&plain);
	_Atomic bool over = false;
	struct trainer trainers[2];

	(void)state;
	rig_update(rig, 1);
	for (uint32_t rank = 0; rank < 2; rank++) {
		rig->waits[rank] = (struct rig_wait){
			.worker = rig->ranks[rank], .version = 2, .error = WEFT_ERROR_INIT};
		pthread_create(&rig->waits[rank].thread, NULL, poll_for, &rig->waits[rank]);
	}
	engine_1_comes_anew(rig, join_and_take);
	trainers_let_it_in(rig, trainers, &over);
	newcomers_end(rig, 0);
	trainers_end(rig, trainers, &over);
	for (uint32_t rank = 2; rank < 4; rank++)
		rig_check(rig, rank, 1);
	all_go_on(rig, 2);
	close_rig(rig);
}

/* It asks for the version after it. */
static void *join_and_take_2(void *context)
{
	struct rig_wait *wait = context;

	wait->rc = weft_join(wait->worker, 0, &wait->error);
	if (!wait->rc)
		wait->rc = weft_update_wait(wait->worker, 2, wait->timeout_ms, &wait->published,
					    &wait->error);
	if (wait->rc)
		fprintf(stderr, "DBG %d %s\n", wait->rc, wait->error.text);
	return NULL;
}

static void test_newcomer__that_asks_for_a_later_version_is_not_sent_the_copy(void **state)
{
	struct rig *rig = open_rig(&plain);
	_Atomic bool over = false;
	struct trainer trainers[2];

	(void)state;
	rig_update(rig, 1);
	engine_0_waits_for(rig, 2);
	engine_1_comes_anew(rig, join_and_take_2);
	trainers_let_it_in(rig, trainers, &over);
	while (weft_next_version(rig->ranks[0]) != 2 || weft_next_version(rig->ranks[2]) != 1)
		clock_sleep_ms(1);
	trainers_end(rig, trainers, &over);
	rig_fill(rig, 2);
	for (uint32_t t = 0; t < 2; t++)
		rig_send(rig, t, 2);
	rig_wait_end(rig, 0);
	for (uint32_t rank = 0; rank < 4; rank++)
		rig_check(rig, rank, 2);
	close_rig(rig);
}

/* Rank 3 does not like what it has loaded: neither rank shows it, and both go on to what trainers send. */
static int refuses_1(void *context, uint64_t version)
{
	(void)context;
	return version == 1;
}

static void *join_and_refuse(void *context)
{
	struct rig_wait *wait = context;

	if (wait->timeout_ms) /* rank 3 */
		weft_set_post_load(wait->worker, refuses_1, NULL, NULL);
	wait->timeout_ms = 0;
	return join_and_take(context);
}

static void test_copy__that_one_rank_of_the_newcomer_gives_up_is_given_up_by_both(void **state)
{
	struct rig_options options = plain;
	_Atomic bool over = false;
	struct trainer trainers[2];
	struct rig *rig;

	(void)state;
	options.shadow = 1;
	rig = open_rig(&options);
	rig_update(rig, 1);
	engine_0_waits_for(rig, 2);
	engine_1_comes_anew(rig, join_and_refuse);
	trainers_let_it_in(rig, trainers, &over);
	for (uint32_t rank = 2; rank < 4; rank++)
		pthread_join(rig->waits[rank].thread, NULL);
	assert_int_equal(rig->waits[2].rc, -WEFT_E_ABORTED);
	assert_int_equal(rig->waits[3].rc, -WEFT_E_POST_LOAD);
	trainers_end(rig, trainers, &over);
	assert_int_equal(weft_published(rig->ranks[2]), 0);
	all_go_on(rig, 2);
	close_rig(rig);
}

/* The k-th thing that a donor writes fails: true, it was one of those that it sends. It goes on, and so does the newcomer, which
 * shows nothing before the next version. */
static bool fails(uint32_t k)
{
	struct rig_options options = plain;
	struct trainer trainers[2];
	_Atomic bool over = false;
	bool failed;
	char fault[96];
	struct rig *rig;

	snprintf(fault, sizeof(fault), "inner=shm,op=post_write,at=%u,kind=fail", k);
	options.checksums = 1; /* which are the last */
	options.fault = fault;
	options.update_timeout_ms = 2000;
	rig = open_rig(&options);
	rig_update(rig, 1);
	engine_0_waits_for(rig, 2);
	engine_1_comes_anew(rig, join_and_take);
	trainers_let_it_in(rig, trainers, &over);
	for (uint32_t rank = 2; rank < 4; rank++)
		pthread_join(rig->waits[rank].thread, NULL);
	trainers_end(rig, trainers, &over);
	failed = rig->waits[2].rc;
	assert_int_equal(rig->waits[3].rc, rig->waits[2].rc);
	assert_int_equal(rig->waits[2].rc, failed ? -WEFT_E_ABORTED : 0);
	for (uint32_t rank = 2; rank < 4; rank++)
		assert_int_equal(weft_published(rig->ranks[rank]), failed ? 0 : 1);
	all_go_on(rig, 2);
	close_rig(rig);
	return failed;
}

static void test_donor__whose_write_fails_goes_on_and_so_does_the_newcomer(void **state)
{
	uint32_t k = 1;

	(void)state;
	while (fails(k))
		k++;
	assert_int_equal(k, RIG_TENSORS + 2); /* a write each, and one of checksums */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_newcomer__is_sent_what_another_engine_shows),
		cmocka_unit_test(test_donor__may_be_in_an_event_loop),
		cmocka_unit_test(test_newcomer__that_asks_for_a_later_version_is_not_sent_the_copy),
		cmocka_unit_test(
			test_copy__that_one_rank_of_the_newcomer_gives_up_is_given_up_by_both),
		cmocka_unit_test(test_donor__whose_write_fails_goes_on_and_so_does_the_newcomer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
