/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call of a driver fails once, somewhere in a job with memory of GPUs on both sides, over mapped memory, over NICs and
 * through windows: whoever fails says why, nothing is published that is not whole, nothing is left open.
 */
#include "tests/cuda_mock/cuda_mock.h"
#include "tests/support/gpu_nic.h"
#include "tests/support/sanitized.h"
#include "tests/unit/worker/worker_rig.h"
#include "transport/verbs/calls.h"
#include "worker/api/weft_play.h"

#define UPDATES 2u
/* Races do not depend on which call fails: with ThreadSanitizer each way has every third, and another one first than the
 * way before, so that all of them together have each. */
#define STEP	   (SANITIZED_THREADS ? 3 : 1)
#define FIRST(way) ((way) % STEP)

/* A job as a host program runs it, which ends at the first error. */
struct run {
	struct rig rig;
	weft_memory tensors[RIG_TENSORS];
	const char *transport;
	bool failed;
	char text[1024];
};

static bool good(struct run *run, int rc, const weft_error *error)
{
	if (!rc)
		return true;
	if (!run->failed)
		snprintf(run->text, sizeof(run->text), "%s", error->text);
	run->failed = true;
	return false;
}

static weft_worker *open_worker(struct run *run, enum weft_role role, const char *where)
{
	weft_options options = WEFT_OPTIONS_INIT;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = NULL;

	options.controller = run->rig.address;
	options.job = "rig";
	options.role = role;
	options.transport = run->transport;
	options.memory = role == WEFT_TRAINER ? "cuda:0" : "cuda:1";
	options.stage = role == WEFT_TRAINER ? NULL : where;
	options.checksums = 1;
	options.join_timeout_ms = 10000;
	good(run, weft_open(&worker, &options, &error), &error);
	return worker;
}

static const struct verbs_calls *calls_of(struct member self)
{
	return verbs_mock_calls(self.role == ROLE_TRAINER ? 0 : 1);
}

static bool has_nics(const struct run *run)
{
	return strcmp(run->transport, "verbs") == 0;
}

static void open_nics(const struct run *run)
{
	if (!has_nics(run))
		return;
	verbs_mock_open(&(struct verbs_mock_options){
		.seed = 1, .dmabuf = true, .background = true, .gpu = &gpu_nic});
	verbs_calls_tested = calls_of;
}

static void close_nics(const struct run *run)
{
	if (!has_nics(run))
		return;
	assert_int_equal(verbs_mock_alive(), 0);
	assert_string_equal(verbs_mock_violation(), "");
	verbs_calls_tested = NULL;
	verbs_mock_close();
}

/* Who could be opened; who could not has told the other. */
static void join(struct run *run)
{
	struct rig *rig = &run->rig;
	weft_worker *workers[2] = {rig->trainers[0], rig->ranks[0]};

	if (workers[0])
		rig_declare_trainer(workers[0]);
	if (workers[1])
		rig_declare_rank(rig, 0);
	for (int i = 0; i < 2; i++) {
		rig->joins[i] = (struct rig_wait){.worker = workers[i], .error = WEFT_ERROR_INIT};
		if (workers[i])
			pthread_create(&rig->joins[i].thread, NULL, rig_join_thread,
				       &rig->joins[i]);
	}
	for (int i = 0; i < 2; i++)
		if (workers[i])
			pthread_join(rig->joins[i].thread, NULL);
	for (int i = 0; i < 2; i++)
		good(run, rig->joins[i].rc, &rig->joins[i].error);
}

static bool fill(struct run *run, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;
	bool all = true;

	rig_fill(&run->rig, version);
	for (uint32_t t = 0; t < RIG_TENSORS && all; t++)
		all = good(run,
			   weft_play_copy(0, run->tensors[t].pointer, run->rig.tensors[t],
					  rig_bytes[t], &error),
			   &error);
	return all;
}

static void send(struct run *run, uint64_t version)
{
	weft_worker *worker = run->rig.trainers[0];
	weft_error error = WEFT_ERROR_INIT;
	bool going = fill(run, version) &&
		     good(run, weft_update_begin(worker, version, &error), &error) &&
		     good(run,
			  weft_update_write_all(worker, run->tensors, RIG_TENSORS,
						sizeof(*run->tensors), &error),
			  &error) &&
		     good(run, weft_update_end(worker, &error), &error);

	if (!going)
		weft_close(&run->rig.trainers[0]); /* which tells the rank */
}

/* Whatever happened, what readers can get is one whole version. */
static void check(struct run *run)
{
	unsigned char here[RIG_TENSORS][512];
	const uint64_t bytes[RIG_TENSORS] = {480, 480, 28};
	uint64_t version = 0;
	int rc;

	if (!run->rig.ranks[0] || weft_read_begin(run->rig.ranks[0], &version))
		return;
	for (uint32_t p = 0; p < RIG_TENSORS; p++) {
		const void *memory = weft_param_memory(run->rig.ranks[0], p, version);

		rc = weft_play_copy(1, here[p], memory, bytes[p], NULL);
		if (rc) /* the one that fails, or a lost device */
			rc = weft_play_copy(1, here[p], memory, bytes[p], NULL);
		for (uint64_t i = 0; i < bytes[p] && !rc; i++)
			assert_int_equal(here[p][i], rig_byte(version, p, i));
	}
	assert_int_equal(weft_read_end(run->rig.ranks[0], version), 0);
}

static void update(struct run *run, uint64_t version)
{
	rig_wait_begin(&run->rig, version, 0);
	send(run, version);
	pthread_join(run->rig.waits[0].thread, NULL);
	good(run, run->rig.waits[0].rc, &run->rig.waits[0].error);
	check(run);
}

/* What fails once is a call that lets go of something: it stays. */
static bool lets_go(const char *call)
{
	static const char *const names[] = {
		"release",	    "host_unregister", "ipc_close",	"unmap",  "unreserve",
		"physical_release", "stream_destroy",  "event_destroy", "unload", "leave"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(call, names[i]) == 0)
			return true;
	return false;
}

/* False: the job makes fewer such calls. */
static bool run_with(enum cuda_call call, uint64_t nth, const char *where, const char *transport)
{
	struct run run = {.transport = transport};
	uint64_t before;
	int left;

	cuda_mock_open(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	open_nics(&run);
	run.rig.options = (struct rig_options){.trainers = 1, .ranks = 1};
	rig_start_controller(&run.rig);
	for (uint32_t t = 0; t < RIG_TENSORS; t++) {
		run.tensors[t] = (weft_memory)WEFT_MEMORY_INIT;
		assert_int_equal(weft_play_allocate(0, rig_bytes[t], &run.tensors[t], NULL), 0);
	}
	before = cuda_mock_count(call);
	cuda_mock_fail(cuda_call_name(call), nth, 0);
	run.rig.trainers[0] = open_worker(&run, WEFT_TRAINER, where);
	run.rig.ranks[0] = open_worker(&run, WEFT_INFERENCE, where);
	join(&run);
	for (uint64_t version = 1; version <= UPDATES && !run.failed; version++)
		update(&run, version);
	weft_close(&run.rig.trainers[0]);
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		weft_play_free(&run.tensors[t]);
	weft_close(&run.rig.ranks[0]);
	pthread_join(run.rig.controller, NULL);
	nth = cuda_mock_count(call) - before >= nth;
	left = cuda_mock_close();
	close_nics(&run);
	assert_true(!run.failed || run.text[0]);
	if (left && !lets_go(cuda_call_name(call)))
		fail_msg("%s failed, and %d were left open (%s)", cuda_call_name(call), left,
			 run.text);
	return nth;
}

static void test_call__that_fails_once_is_told_and_leaves_nothing_behind(void **state)
{
	(void)state;
	for (int call = FIRST(0); call < CUDA_CALL_COUNT; call += STEP)
		for (uint64_t nth = 1;
		     nth <= 4 && run_with((enum cuda_call)call, nth, "none", "cuda");)
			nth += 3;
}

static void test_call__that_fails_once_is_told_where_versions_are_staged(void **state)
{
	(void)state;
	for (int call = FIRST(1); call < CUDA_CALL_COUNT; call += STEP)
		run_with((enum cuda_call)call, 2, "host", "cuda");
}

static void test_call__that_fails_once_is_told_where_nics_reach_the_gpus(void **state)
{
	(void)state;
	for (int call = FIRST(2); call < CUDA_CALL_COUNT; call += STEP)
		run_with((enum cuda_call)call, 2, "none", "verbs");
}

static void test_call__that_fails_once_is_told_where_pieces_land_in_windows(void **state)
{
	(void)state;
	for (int call = FIRST(3); call < CUDA_CALL_COUNT; call += STEP)
		run_with((enum cuda_call)call, 3, "none", "shm");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_call__that_fails_once_is_told_and_leaves_nothing_behind),
		cmocka_unit_test(test_call__that_fails_once_is_told_where_versions_are_staged),
		cmocka_unit_test(test_call__that_fails_once_is_told_where_nics_reach_the_gpus),
		cmocka_unit_test(test_call__that_fails_once_is_told_where_pieces_land_in_windows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
