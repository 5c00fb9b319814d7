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

static void *join_and_take(void *context)
{
	struct rig_wait *wait = context;

	wait->rc = weft_join(wait->worker, 0, &wait->error);
	if (!wait->rc)
		wait->rc = weft_update_wait(wait->worker, wait->version, 0, &wait->published,
					    &wait->error);
	return NULL;
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

static void rank_waits(struct rig *rig, uint32_t rank, uint64_t version, void *(*waits)(void *))
{
	rig->waits[rank] = (struct rig_wait){
		.worker = rig->ranks[rank], .version = version, .error = WEFT_ERROR_INIT};
	pthread_create(&rig->waits[rank].thread, NULL, waits, &rig->waits[rank]);
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

/* All show version `last`. Engine 0 waits for the one after it, in that way; engine 1 goes, and other processes come for its ranks. */
struct scene {
	struct rig_options options;
	uint64_t last, wanted;	 /* by who comes; 0: the next one */
	void *(*donors)(void *); /* NULL: they block */
	weft_post_load *refuses; /* rank 3 */
	struct rig *rig;
	struct trainer trainers[2];
	_Atomic bool over;
};

/* What trainers hold is no version any more: they have nothing to send. The last of them admits, and does not repeat. */
static void trainers_let_it_in(struct scene *scene)
{
	struct rig *rig = scene->rig;

	memset(rig->tensors, 0xdd, sizeof(rig->tensors));
	for (uint32_t t = 0; t < rig->options.trainers; t++) {
		scene->trainers[t] = (struct trainer){.worker = rig->trainers[t],
						      .over = &scene->over,
						      .named = t ? UINT64_MAX : 0,
						      .error = WEFT_ERROR_INIT};
		pthread_create(&scene->trainers[t].thread, NULL, train, &scene->trainers[t]);
	}
}

static struct rig *begin(struct scene *scene)
{
	struct rig *rig = scene->rig = rig_new(&scene->options);

	for (uint64_t version = 1; version <= scene->last; version++)
		rig_update(rig, version);
	for (uint32_t rank = 0; rank < 2; rank++)
		rank_waits(rig, rank, scene->last + 1,
			   scene->donors ? scene->donors : rig_wait_thread);
	for (uint32_t rank = 2; rank < 4; rank++)
		weft_close(&rig->ranks[rank]);
	for (uint32_t rank = 2; rank < 4; rank++) {
		memset(rig->own[rank], 0xaa, sizeof(rig->own[rank]));
		rig->ranks[rank] = rig_open_worker(rig, WEFT_INFERENCE, rank);
		rig_declare_rank(rig, rank);
		if (rank == 3)
			weft_set_post_load(rig->ranks[rank], scene->refuses, NULL, NULL);
		rank_waits(rig, rank, scene->wanted, join_and_take);
	}
	trainers_let_it_in(scene);
	return rig;
}

static void trainers_end(struct scene *scene)
{
	scene->over = true;
	for (uint32_t t = 0; t < scene->options.trainers; t++) {
		pthread_join(scene->trainers[t].thread, NULL);
		rig_ok(scene->trainers[t].rc, &scene->trainers[t].error);
		assert_int_equal(scene->trainers[t].named, t ? UINT64_MAX : 0);
	}
}

/* With these codes; and trainers have let them in. */
static void newcomers_end(struct scene *scene, int rc2, int rc3)
{
	struct rig_wait *waits = scene->rig->waits;

	for (uint32_t rank = 2; rank < 4; rank++)
		pthread_join(waits[rank].thread, NULL);
	trainers_end(scene);
	if (waits[2].rc != rc2 || waits[3].rc != rc3)
		print_message("%s; %s\n", waits[2].error.text, waits[3].error.text);
	assert_int_equal(waits[2].rc, rc2);
	assert_int_equal(waits[3].rc, rc3);
}

/* Trainers send the next version, for which engine 0 waits already, and the newcomers, or they do now. */
static void all_go_on(struct scene *scene)
{
	uint64_t version = scene->last + 1;
	struct rig *rig = scene->rig;

	rig_fill(rig, version);
	for (uint32_t rank = 2; rank < 4 && scene->wanted != version; rank++)
		rank_waits(rig, rank, version, rig_wait_thread);
	for (uint32_t t = 0; t < rig->options.trainers; t++)
		rig_send(rig, t, version);
	rig_wait_end(rig, 0);
	for (uint32_t rank = 0; rank < 4; rank++)
		rig_check(rig, rank, version);
}

static void comes_in(struct scene scene)
{
	struct rig *rig = begin(&scene);

	newcomers_end(&scene, 0, 0);
	for (uint32_t rank = 2; rank < 4; rank++) {
		assert_int_equal(rig->waits[rank].published, scene.last);
		rig_check(rig, rank, scene.last);
	}
	all_go_on(&scene);
	rig_update(rig, scene.last + 2);
	rig_free(rig);
}

static void test_newcomer__is_sent_what_another_engine_shows(void **state)
{
	struct scene scene = {.options = plain, .last = 2};

	(void)state;
	comes_in(scene);
	scene.options.shadow = scene.options.checksums = 1;
	comes_in(scene);
	scene.options.commit = "rank";
	scene.options.transport = "mock";
	comes_in(scene);
	scene.options = plain;
	scene.options.own_memory = scene.options.checksums = 1;
	comes_in(scene);
	scene.options.delta = 1;
	scene.options.transport = "mock";
	comes_in(scene);
}

static void test_donor__may_be_in_an_event_loop(void **state)
{
	(void)state;
	comes_in((struct scene){.options = plain, .last = 1, .donors = poll_for});
}

static void test_newcomer__that_asks_for_a_later_version_is_not_sent_the_copy(void **state)
{
	struct scene scene = {.options = plain, .last = 1, .wanted = 2};
	struct rig *rig = begin(&scene);

	(void)state;
	while (weft_next_version(rig->ranks[0]) != 2 || weft_next_version(rig->ranks[2]) != 1)
		clock_sleep_ms(1);
	trainers_end(&scene);
	all_go_on(&scene);
	rig_free(rig);
}

/* Rank 3 does not like what it has loaded: neither rank shows it, and both go on to what trainers send. */
static int refuses_1(void *context, uint64_t version)
{
	(void)context;
	return version == 1;
}

static void test_copy__that_one_rank_of_the_newcomer_gives_up_is_given_up_by_both(void **state)
{
	struct scene scene = {.options = plain, .last = 1, .refuses = refuses_1};

	(void)state;
	scene.options.shadow = 1;
	begin(&scene);
	newcomers_end(&scene, -WEFT_E_ABORTED, -WEFT_E_POST_LOAD);
	assert_int_equal(weft_published(scene.rig->ranks[2]), 0);
	all_go_on(&scene);
	rig_free(scene.rig);
}

/* The k-th thing that a donor writes fails: true, it was one of those that it sends. It goes on, and so does the newcomer, which
 * shows nothing before the next version. */
static bool fails(uint32_t k)
{
	struct scene scene = {.options = plain, .last = 1};
	bool failed;
	char fault[96];
	struct rig *rig;

	snprintf(fault, sizeof(fault), "inner=shm,op=post_write,at=%u,kind=fail", k);
	scene.options.checksums = 1; /* which are the last */
	scene.options.fault = fault;
	scene.options.update_timeout_ms = 3500; /* a quarter of it is what a busy machine has */
	rig = begin(&scene);
	for (uint32_t rank = 2; rank < 4; rank++)
		pthread_join(rig->waits[rank].thread, NULL);
	trainers_end(&scene);
	failed = rig->waits[2].rc;
	assert_int_equal(rig->waits[3].rc, rig->waits[2].rc);
	assert_int_equal(rig->waits[2].rc, failed ? -WEFT_E_ABORTED : 0);
	for (uint32_t rank = 2; rank < 4; rank++)
		assert_int_equal(weft_published(rig->ranks[rank]), failed ? 0 : 1);
	all_go_on(&scene);
	rig_free(rig);
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
