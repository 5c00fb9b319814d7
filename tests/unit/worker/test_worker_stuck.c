/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer whose tensor is given with a stream that waits, for long or for ever: deadlines, interrupts, and ends without it.
 */
#include "base/clock.h"
#include "tests/unit/worker/device_rig.h"

static const struct rig_options both = {.trainers = 1,
					.ranks = 2,
					.transport = "cuda",
					.memory = "cuda:0",
					.rank_memory = "cuda:1"};

/* What a stuck device may touch is never freed, which is what the last test is about. */
const char *__lsan_default_options(void);

__attribute__((visibility("default"))) const char *__lsan_default_options(void)
{
	return "detect_leaks=0";
}

/* A stream of the host program that waits until the word, which is the caller's to free, is 1. */
static _Atomic uint64_t *held_up(const struct cuda_calls *calls, cuda_stream *stream)
{
	_Atomic uint64_t *word = aligned_alloc(4096, 4096);

	*word = 0;
	assert_int_equal(calls->enter(0), 0);
	assert_int_equal(calls->host_register((void *)word, 4096), 0);
	assert_int_equal(calls->stream_create(stream), 0);
	assert_int_equal(calls->stream_wait_value(*stream, (uint64_t)(uintptr_t)word, 1), 0);
	calls->leave();
	return word;
}

/* A word of the host that a stream waits for, and that nobody writes yet; or, to the end of all workers, nobody ever. */
static void never_ends(const char *transport, bool ever)
{
	struct rig_options options = both;
	const struct cuda_calls *calls;
	weft_error error = WEFT_ERROR_INIT;
	struct tensors tensors;
	_Atomic uint64_t *word;
	cuda_stream stream;
	struct rig rig;
	int rc;

	options.update_timeout_ms = 300;
	options.transport = transport;
	open_all(&rig, &tensors, &options);
	calls = cuda_calls();
	word = held_up(calls, &stream);
	tensors_fill(&tensors, &rig, 1);
	tensors.memory[0].stream = stream;
	rig_wait_begin(&rig, 1, 3000);
	rig_ok(weft_update_begin(rig.trainers[0], 1, &error), &error);
	rc = weft_update_write_all(rig.trainers[0], tensors.memory, RIG_TENSORS,
				   sizeof(*tensors.memory), &error);
	if (!rc)
		rc = weft_update_end(rig.trainers[0], &error);
	assert_int_equal(rc, -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "a stream that was given with memory waits"));
	*word = ever;
	rig_wait_end(&rig, -WEFT_E_TIMEOUT);
	assert_int_equal(weft_published(rig.ranks[0]), 0);
	if (ever) {
		end_stream(0, stream);
		assert_int_equal(calls->enter(0), 0);
		assert_int_equal(calls->host_unregister((void *)word), 0);
		calls->leave();
		close_all(&rig, &tensors);
	} else { /* what is queued may touch stays, and nobody waits for it */
		weft_close(&rig.trainers[0]);
		rig_close(&rig);
		*word = 1; /* and so it may touch it */
		end_stream(0, stream);
		assert_true(cuda_mock_close() > 0);
	}
	free((void *)word);
}

static void test_stream__that_never_ends_is_a_deadline_and_no_hang(void **state)
{
	(void)state;
	never_ends("cuda", true);
}

static void *interrupt_soon(void *worker)
{
	clock_sleep_ms(200);
	weft_interrupt(worker);
	return NULL;
}

/* The host program interrupts a write whose tensor waits, gives up, lets the stream go, and goes on. */
static void
test_interrupt__of_a_write_that_is_held_up_leaves_what_a_later_version_needs(void **state)
{
	struct rig_options options = both;
	const struct cuda_calls *calls;
	weft_error error = WEFT_ERROR_INIT;
	struct tensors tensors;
	_Atomic uint64_t *word;
	cuda_stream stream;
	pthread_t other;
	struct rig rig;

	(void)state;
	options.transport = "shm";
	options.rank_memory = NULL;
	options.own_memory = 1; /* which kernels do not reach: through the ring */
	open_all(&rig, &tensors, &options);
	calls = cuda_calls();
	word = held_up(calls, &stream);
	tensors_fill(&tensors, &rig, 1);
	tensors.memory[0].stream = stream;
	rig_wait_begin(&rig, 1, 20000);
	rig_ok(weft_update_begin(rig.trainers[0], 1, &error), &error);
	pthread_create(&other, NULL, interrupt_soon, rig.trainers[0]);
	assert_int_equal(weft_update_write_all(rig.trainers[0], tensors.memory, RIG_TENSORS,
					       sizeof(*tensors.memory), &error),
			 -WEFT_E_INTERRUPTED);
	pthread_join(other, NULL);
	weft_interrupt_clear(rig.trainers[0]);
	*word = 1;
	rig_ok(weft_update_abort(rig.trainers[0], "held up", &error), &error);
	rig_wait_end(&rig, -WEFT_E_ABORTED);
	tensors.memory[0].stream = NULL;
	end_stream(0, stream);
	tensors_fill(&tensors, &rig, 2);
	rig_wait_begin(&rig, 2, 0);
	send(&rig, &tensors, 2);
	rig_wait_end(&rig, 0);
	rig_check(&rig, 0, 2);
	assert_int_equal(calls->enter(0), 0);
	assert_int_equal(calls->host_unregister((void *)word), 0);
	calls->leave();
	close_all(&rig, &tensors);
	free((void *)word);
}

static void test_stream__that_never_ends_holds_no_close_up(void **state)
{
	(void)state;
	never_ends("shm", false);
	never_ends("cuda", false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream__that_never_ends_is_a_deadline_and_no_hang),
		cmocka_unit_test(
			test_interrupt__of_a_write_that_is_held_up_leaves_what_a_later_version_needs),
		cmocka_unit_test(test_stream__that_never_ends_holds_no_close_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
