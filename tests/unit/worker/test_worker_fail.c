/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker that fails says why to everybody, at whatever stage it is and however its host ends: by
 * weft_fail, by what weft_open or weft_join refuse, by closing after a call that failed, or not at all.
 */
#include "tests/unit/worker/worker_rig.h"

#include <sys/wait.h>

static const struct rig_options one_each = {.trainers = 1, .ranks = 1};

struct waiting {
	weft_worker *worker;
	pthread_t thread;
	int rc;
	weft_error error;
};

static void *join_it(void *context)
{
	struct waiting *waiting = context;

	waiting->rc = weft_join(waiting->worker, 0, &waiting->error);
	return NULL;
}

/* One worker waits for the other. */
static struct rig *wait_as(enum weft_role role, struct waiting *waiting)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	weft_worker *worker;

	assert_non_null(rig);
	rig->options = one_each;
	rig_start_controller(rig);
	worker = rig_open_worker(rig, role, 0);
	if (role == WEFT_INFERENCE) {
		rig->ranks[0] = worker;
		rig_declare_rank(rig, 0);
	} else {
		rig_declare_trainer(worker);
	}
	*waiting = (struct waiting){.worker = worker, .error = WEFT_ERROR_INIT};
	assert_int_equal(pthread_create(&waiting->thread, NULL, join_it, waiting), 0);
	return rig;
}

static struct rig *open_and_wait(struct waiting *waiting)
{
	return wait_as(WEFT_INFERENCE, waiting);
}

/* What it reads instead of "waiting" for the 10 s of the rig's join timeout. */
static void check_heard(struct rig *rig, struct waiting *waiting, const char *who, int code,
			const char *text)
{
	pthread_join(waiting->thread, NULL);
	if (!strstr(waiting->error.text, text) || waiting->rc != -code)
		fail_msg("%d: %s", waiting->rc, waiting->error.text);
	assert_ptr_equal(strstr(waiting->error.text, who), waiting->error.text);
	weft_close(&waiting->worker);
	pthread_join(rig->controller, NULL);
	assert_int_equal(rig->controller_error.code, code);
	assert_non_null(strstr(rig->controller_error.text, text));
	free(rig);
}

static weft_options trainer_of(const struct rig *rig)
{
	return (weft_options){.size = sizeof(weft_options),
			      .controller = rig->address,
			      .job = "rig",
			      .role = WEFT_TRAINER};
}

static void test_fail__before_join_is_what_the_others_read(void **state)
{
	struct waiting waiting;
	struct rig *rig = open_and_wait(&waiting);
	weft_worker *worker = rig_open_worker(rig, WEFT_TRAINER, 0);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_ok(weft_fail(worker, WEFT_E_FILE, "no such checkpoint /x", &error), &error);
	/* it can only be closed */
	assert_int_equal(weft_join(worker, 0, &error), -WEFT_E_FILE);
	assert_string_equal(error.text, "no such checkpoint /x");
	rig_ok(weft_fail(worker, WEFT_E_IO, "again", &error), &error);
	weft_close(&worker);
	check_heard(rig, &waiting, "trainer 0 (host ", WEFT_E_FILE,
		    "failed before the job ran: no such checkpoint /x");
}

static void test_fail__with_a_code_and_text_of_its_own_is_escaped(void **state)
{
	struct waiting waiting;
	struct rig *rig = open_and_wait(&waiting);
	weft_worker *worker = rig_open_worker(rig, WEFT_TRAINER, 0);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_ok(weft_fail(worker, 4711, "Traceback\n\033[2J\xff%s%n", &error), &error);
	weft_close(&worker);
	pthread_join(waiting.thread, NULL);
	assert_int_equal(waiting.rc, -WEFT_E_HOST);
	assert_non_null(strstr(waiting.error.text, "Traceback"));
	assert_non_null(strstr(waiting.error.text, "%s%n"));
	assert_null(strpbrk(waiting.error.text, "\n\033\xff"));
	weft_close(&rig->ranks[0]);
	pthread_join(rig->controller, NULL);
	free(rig);
}

static void test_open__that_has_no_such_transport_is_told(void **state)
{
	struct waiting waiting;
	struct rig *rig = open_and_wait(&waiting);
	weft_options options = trainer_of(rig);
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker;

	(void)state;
	options.transport = "pigeon";
	assert_int_equal(weft_open(&worker, &options, &error), -WEFT_E_UNSUPPORTED);
	check_heard(rig, &waiting, "trainer 0 (host ", WEFT_E_UNSUPPORTED,
		    "no transport provider 'pigeon'");
}

/* The host ends without weft_close, as many do. */
static int refused_join(const char *address)
{
	const weft_options options = {.size = sizeof(options),
				      .controller = address,
				      .job = "rig",
				      .role = WEFT_INFERENCE};
	const weft_param huge = {sizeof(weft_param), "p", "F32", 2, {1u << 20, 1u << 20}, NULL};
	weft_worker *worker;

	if (weft_open(&worker, &options, NULL) || weft_declare_param(worker, &huge, NULL, NULL) ||
	    weft_declare_fill(worker, 0, 0, 4ull << 40, NULL))
		return 1;
	return weft_join(worker, 0, NULL) == -WEFT_E_MEMORY ? 0 : 2;
}

static void test_join__that_is_refused_here_is_told_before_it_returns(void **state)
{
	struct waiting waiting;
	int status, ready[2];
	struct rig *rig;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	pid = fork(); /* before there are threads */
	if (!pid) {
		char address[sizeof(rig->address)];

		_exit(read(ready[0], address, sizeof(address)) < 1 ? 3 : refused_join(address));
	}
	rig = wait_as(WEFT_TRAINER, &waiting);
	assert_int_equal(write(ready[1], rig->address, sizeof(rig->address)), sizeof(rig->address));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(ready[0]);
	close(ready[1]);
	check_heard(rig, &waiting, "inference 0 (host ", WEFT_E_MEMORY, "of shared memory");
}

static void test_close__after_a_call_that_failed_carries_its_message(void **state)
{
	const weft_tensor odd = {sizeof(weft_tensor), "u", "F3", 2, {4, 4}};
	struct waiting waiting;
	struct rig *rig = open_and_wait(&waiting);
	weft_worker *worker = rig_open_worker(rig, WEFT_TRAINER, 0);

	(void)state;
	assert_int_equal(weft_declare_tensor(worker, &odd, 0, 0, 4, NULL, NULL), -WEFT_E_USAGE);
	weft_close(&worker);
	check_heard(rig, &waiting, "trainer 0 (host ", WEFT_E_USAGE,
		    "failed before the job ran: tensor u");
}

/* A tool that only looks at a layout is nobody's loss. */
static void test_close__after_calls_that_went_well_is_silent(void **state)
{
	const weft_tensor odd = {sizeof(weft_tensor), "u", "F3", 2, {4, 4}};
	struct waiting waiting;
	struct rig *rig = open_and_wait(&waiting);
	weft_worker *worker = rig_open_worker(rig, WEFT_TRAINER, 0);

	(void)state;
	assert_int_equal(weft_declare_tensor(worker, &odd, 0, 0, 4, NULL, NULL), -WEFT_E_USAGE);
	rig_declare_trainer(worker);
	weft_close(&worker);
	rig->trainers[0] = rig_open_worker(rig, WEFT_TRAINER, 0);
	rig_declare_trainer(rig->trainers[0]);
	assert_int_equal(weft_join(rig->trainers[0], 0, NULL), 0);
	pthread_join(waiting.thread, NULL);
	rig_ok(waiting.rc, &waiting.error);
	rig_update(rig, 1);
	rig_close(rig);
	free(rig);
}

static void test_fail__between_two_updates_is_not_taken_for_done(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_non_null(rig);
	rig_open(rig, &one_each);
	rig_update(rig, 1);
	rig_wait_begin(rig, 2, 0);
	rig_ok(weft_fail(rig->trainers[0], 0, "RuntimeError: CUDA error", &error), &error);
	weft_close(&rig->trainers[0]);
	pthread_join(rig->waits[0].thread, NULL);
	assert_int_equal(rig->waits[0].rc, -WEFT_E_HOST);
	assert_non_null(strstr(rig->waits[0].error.text, "RuntimeError: CUDA error"));
	weft_close(&rig->ranks[0]);
	pthread_join(rig->controller, NULL);
	assert_int_equal(rig->controller_error.code, WEFT_E_HOST);
	free(rig);
}

static void test_close__inside_an_update_that_failed_carries_its_message(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	(void)state;
	assert_non_null(rig);
	rig_open(rig, &one_each);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(rig->trainers[0], 1, NULL), NULL);
	assert_int_equal(weft_update_end(rig->trainers[0], NULL), -WEFT_E_STATE);
	weft_close(&rig->trainers[0]);
	pthread_join(rig->waits[0].thread, NULL);
	assert_int_equal(rig->waits[0].rc, -WEFT_E_STATE);
	assert_non_null(strstr(rig->waits[0].error.text, "trainer 0 (host "));
	assert_null(strstr(rig->waits[0].error.text, "left before"));
	weft_close(&rig->ranks[0]);
	pthread_join(rig->controller, NULL);
	free(rig);
}

static void test_fail__to_a_controller_that_is_not_there_ends_and_says_so(void **state)
{
	const weft_options options = {
		.size = sizeof(options), .controller = "tcp://127.0.0.1:9", .role = WEFT_TRAINER};
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker;

	(void)state;
	rig_ok(weft_open(&worker, &options, &error), &error);
	assert_int_equal(weft_fail(worker, 0, NULL, &error), -WEFT_E_CONTROLLER_LOST);
	assert_non_null(strstr(error.text, "tcp://127.0.0.1:9"));
	assert_int_equal(weft_join(worker, 0, &error), -WEFT_E_HOST);
	weft_close(&worker);
	assert_int_equal(weft_fail(NULL, 0, "x", &error), -WEFT_E_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join__that_is_refused_here_is_told_before_it_returns),
		cmocka_unit_test(test_fail__before_join_is_what_the_others_read),
		cmocka_unit_test(test_fail__with_a_code_and_text_of_its_own_is_escaped),
		cmocka_unit_test(test_open__that_has_no_such_transport_is_told),
		cmocka_unit_test(test_close__after_a_call_that_failed_carries_its_message),
		cmocka_unit_test(test_close__after_calls_that_went_well_is_silent),
		cmocka_unit_test(test_fail__between_two_updates_is_not_taken_for_done),
		cmocka_unit_test(test_close__inside_an_update_that_failed_carries_its_message),
		cmocka_unit_test(test_fail__to_a_controller_that_is_not_there_ends_and_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
