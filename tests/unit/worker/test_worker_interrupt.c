/* SPDX-License-Identifier: Apache-2.0
 *
 * weft_interrupt taken back: what each call that it ended leaves behind, and how the job goes on.
 * Calls are ended in their middle where the trainer's transport takes its time to complete a write.
 */
#include "tests/unit/worker/worker_rig.h"

#include "transport/mock/mock.h"

static const struct mock_options slow = {.local_registration = true, .delay_max = 2500};
static const struct rig_options plain = {
	.trainers = 1, .ranks = 2, .own_memory = 1, .update_timeout_ms = 4000};

static struct rig *open_rig(const struct rig_options *options)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig_open(rig, options);
	return rig;
}

/* A trainer whose writes complete late; what it writes goes through a ring of one slot. */
static struct rig *open_slow(const char *replica)
{
	const struct rig_options options = {.trainers = 1,
					    .ranks = 2,
					    .transport = "mock",
					    .replica = replica,
					    .ring_bytes = replica ? 0 : 1,
					    .update_timeout_ms = 20000};
	struct rig *rig;

	mock_options_default(&slow);
	rig = open_rig(&options);
	mock_options_default(NULL);
	return rig;
}

static void *interrupt_soon(void *worker)
{
	clock_sleep_ms(30);
	weft_interrupt(worker);
	return NULL;
}

static void rig_wait_join(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->options.ranks; i++)
		pthread_join(rig->waits[i].thread, NULL);
}

static void close_rig(struct rig *rig)
{
	rig_close(rig);
	free(rig);
}

static void test_begin__that_was_interrupted_has_begun_nothing(void **state)
{
	struct rig *rig = open_rig(&plain);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	weft_interrupt(rig->trainers[0]);
	assert_int_equal(weft_update_begin(rig->trainers[0], 1, &error), -WEFT_E_INTERRUPTED);
	weft_interrupt_clear(rig->trainers[0]);
	rig_update(rig, 1);
	rig_update(rig, 2);
	close_rig(rig);
}

static void test_update__goes_on_when_the_interrupt_came_between_two_writes(void **state)
{
	struct rig *rig = open_rig(&plain);
	weft_worker *trainer = rig->trainers[0];
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(trainer, 1, &error), &error);
	for (uint32_t t = 0; t < RIG_TENSORS; t++) {
		const weft_memory memory = weft_host_memory(rig->tensors[t], rig_bytes[t]);

		weft_interrupt(trainer);
		assert_int_equal(weft_update_write(trainer, t, &memory, &error),
				 -WEFT_E_INTERRUPTED);
		weft_interrupt_clear(trainer);
		rig_ok(weft_update_write(trainer, t, &memory, &error), &error);
	}
	rig_ok(weft_update_end(trainer, &error), &error);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < plain.ranks; i++)
		rig_check(rig, i, 1);
	close_rig(rig);
}

static void test_wait__that_was_interrupted_still_counts_what_had_arrived(void **state)
{
	struct rig *rig = open_rig(&plain);

	(void)state;
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 0);
	clock_sleep_ms(50);
	weft_interrupt(rig->ranks[0]);
	pthread_join(rig->waits[0].thread, NULL);
	assert_int_equal(rig->waits[0].rc, -WEFT_E_INTERRUPTED);
	rig_send(rig, 0, 1); /* its permission stands: the trainer notices nothing */
	weft_interrupt_clear(rig->ranks[0]);
	pthread_create(&rig->waits[0].thread, NULL, rig_wait_thread, &rig->waits[0]);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < plain.ranks; i++)
		rig_check(rig, i, 1);
	rig_update(rig, 2);
	close_rig(rig);
}

static void test_write__that_was_interrupted_in_its_middle_leaves_an_update_to_abort(void **state)
{
	struct rig *rig = open_slow(NULL);
	weft_worker *trainer = rig->trainers[0];
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
	weft_error error = WEFT_ERROR_INIT;
	uint64_t version = 0;
	char words[64];
	int rc = 0;

	(void)state;
	/* on a busy machine the other thread may come when all is written */
	while (!rc && ++version <= 60) {
		pthread_t thread;

		rig_fill(rig, version);
		rig_wait_begin(rig, version, 0);
		rig_ok(weft_update_begin(trainer, version, &error), &error);
		pthread_create(&thread, NULL, interrupt_soon, trainer);
		rc = host_write_all(trainer, data, &error);
		pthread_join(thread, NULL);
		weft_interrupt_clear(trainer);
		if (rc)
			break;
		rig_ok(weft_update_end(trainer, &error), &error);
		rig_wait_end(rig, 0);
	}
	assert_int_equal(rc, -WEFT_E_INTERRUPTED);
	snprintf(words, sizeof(words), "update %u was interrupted", (unsigned)version);
	assert_non_null(strstr(error.text, words));
	assert_non_null(strstr(error.text, "weft_update_abort"));
	assert_int_equal(weft_update_write(trainer, 2, HOST(rig->tensors[2], rig_bytes[2]), &error),
			 -WEFT_E_INTERRUPTED);
	assert_int_equal(weft_update_end(trainer, &error), -WEFT_E_INTERRUPTED);
	assert_non_null(strstr(error.text, "weft_update_abort"));
	rig_ok(weft_update_abort(trainer, "interrupted", &error), &error);
	rig_wait_end(rig, -WEFT_E_ABORTED);
	rig_update(rig, version + 1);
	rig_update(rig, version + 2);
	close_rig(rig);
}

/* What a replica keeps is sent by calls that wait for nobody: end, drain and abort do. An interrupt that
 * happens to cut their last flush or signal is the other case of weft.h: the worker has failed, and a new
 * job begins. */
static void test_end__drain_and_abort_are_called_again(void **state)
{
	struct rig *rig = open_slow("full");
	uint32_t repeated = 0, cut = 0;

	(void)state;
	for (uint64_t version = 1; version <= 6 || (!repeated && version <= 60); version++) {
		weft_worker *trainer = rig->trainers[0];
		const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
		bool drain = version % 3 == 0, gives_up = version % 3 == 2;
		weft_error error = WEFT_ERROR_INIT;
		pthread_t thread;
		int rc;

		rig_fill(rig, version);
		rig_wait_begin(rig, version, 0);
		rig_ok(weft_update_begin(trainer, version, &error), &error);
		rig_ok(host_write_all(trainer, data, &error), &error);
		pthread_create(&thread, NULL, interrupt_soon, trainer);
		rc = drain	? weft_update_drain(trainer, &error)
		     : gives_up ? weft_update_abort(trainer, "no more", &error)
				: weft_update_end(trainer, &error);
		pthread_join(thread, NULL);
		weft_interrupt_clear(trainer);
		if (rc) { /* else every write was complete by chance */
			assert_int_equal(rc, -WEFT_E_INTERRUPTED);
			rc = drain	? weft_update_drain(trainer, &error)
			     : gives_up ? weft_update_abort(trainer, "no more", &error)
					: weft_update_end(trainer, &error);
			if (rc == -WEFT_E_INTERRUPTED) {
				cut++;
				assert_int_equal(weft_poll(trainer, NULL), rc);
				weft_close(&rig->trainers[0]);
				rig_wait_join(rig);
				close_rig(rig);
				rig = open_slow("full");
				continue;
			}
			rig_ok(rc, &error);
			repeated++;
		}
		if (drain)
			rig_ok(weft_update_end(trainer, &error), &error);
		rig_wait_end(rig, gives_up ? -WEFT_E_ABORTED : 0);
		for (uint32_t i = 0; i < 2 && !gives_up; i++)
			rig_check(rig, i, version);
	}
	assert_true(repeated > 0);
	print_message("%u repeated, %u cut\n", repeated, cut);
	close_rig(rig);
}

static void test_join__that_was_interrupted_goes_on(void **state)
{
	static struct rig rig;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	memset(&rig, 0, sizeof(rig));
	rig.options = (struct rig_options){.trainers = 1, .ranks = 1};
	rig_start_controller(&rig);
	rig.trainers[0] = rig_open_worker(&rig, WEFT_TRAINER, 0);
	rig_declare_trainer(rig.trainers[0]);
	rig.ranks[0] = rig_open_worker(&rig, WEFT_INFERENCE, 0);
	rig_declare_rank(&rig, 0);
	rig.joins[0] = (struct rig_wait){.worker = rig.trainers[0], .error = WEFT_ERROR_INIT};
	pthread_create(&rig.joins[0].thread, NULL, rig_join_thread, &rig.joins[0]);
	clock_sleep_ms(100);
	weft_interrupt(rig.trainers[0]);
	pthread_join(rig.joins[0].thread, NULL);
	assert_int_equal(rig.joins[0].rc, -WEFT_E_INTERRUPTED);
	weft_interrupt_clear(rig.trainers[0]);
	pthread_create(&rig.joins[0].thread, NULL, rig_join_thread, &rig.joins[0]);
	rig_ok(weft_join(rig.ranks[0], 0, &error), &error);
	pthread_join(rig.joins[0].thread, NULL);
	rig_ok(rig.joins[0].rc, &rig.joins[0].error);
	rig_update(&rig, 1);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_begin__that_was_interrupted_has_begun_nothing),
		cmocka_unit_test(test_update__goes_on_when_the_interrupt_came_between_two_writes),
		cmocka_unit_test(test_wait__that_was_interrupted_still_counts_what_had_arrived),
		cmocka_unit_test(
			test_write__that_was_interrupted_in_its_middle_leaves_an_update_to_abort),
		cmocka_unit_test(test_end__drain_and_abort_are_called_again),
		cmocka_unit_test(test_join__that_was_interrupted_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
