/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank whose own memory a late write may still land in (transport/late.h): declaring, binding, joining and
 * going on with another plan refuse it, and weft_close says so.
 */
#include "tests/unit/worker/worker_rig.h"

#include "transport/identity.h"
#include "transport/late.h"
#include "worker/api/worker.h"

static const struct rig_options one_rank = {.trainers = 1, .ranks = 1, .own_memory = 1};
static bool done;

static bool is_done(void *state)
{
	(void)state;
	return done;
}

/* Four bytes in the middle of p.o, by a trainer of another job. */
static void hold(const struct rig *rig)
{
	struct late_write *late = late_new(0);
	struct identity self; /* it lives */

	assert_non_null(late);
	assert_int_equal(identity_read(&self, NULL), 0);
	done = false;
	late->at = (uintptr_t)rig->own[0][1] + 60;
	late->bytes = 4;
	late->pid = self.pid;
	late->start = self.start;
	late->done = is_done;
	snprintf(late->name, sizeof(late->name), "trainer 7 (host x)");
	late_hold(late);
}

static void let_go(void)
{
	done = true;
	assert_int_equal(transport_memory_check(&done, sizeof(done), NULL), 0);
}

static void check_refused(int rc, const char *text)
{
	char name[64];

	snprintf(name, sizeof(name), "trainer 7 (host x) (process %d", (int)getpid());
	assert_int_equal(rc, -WEFT_E_UNSAFE);
	assert_non_null(strstr(text, "p.o"));
	assert_non_null(strstr(text, name));
	assert_non_null(strstr(text, "4 bytes at"));
}

static weft_worker *open_rank(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->options = one_rank;
	snprintf(rig->address, sizeof(rig->address), "tcp://127.0.0.1:1"); /* nobody is asked */
	return rig_open_worker(rig, WEFT_INFERENCE, 0);
}

static void test_declare_and_bind__refuse_it(void **state)
{
	static struct rig rig;
	weft_worker *worker = open_rank(&rig);
	weft_memory memory = weft_host_memory(rig.own[0][1], 480);
	weft_param param = {sizeof(weft_param), "p.o", "F32", 2, {10, 12}, &memory};
	weft_error error = WEFT_ERROR_INIT;
	uint32_t id;

	(void)state;
	hold(&rig);
	check_refused(weft_declare_param(worker, &param, &id, &error), error.text);
	param.memory = NULL;
	rig_ok(weft_declare_param(worker, &param, &id, &error), &error);
	check_refused(weft_param_bind(worker, id, &memory, &error), error.text);
	let_go();
	rig_ok(weft_param_bind(worker, id, &memory, &error), &error);
	assert_int_equal(weft_close(&worker), 0);
}

/* It was good when it was declared. */
static void test_join_and_close__say_so_too(void **state)
{
	static struct rig rig;
	weft_worker *worker = open_rank(&rig);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig.ranks[0] = worker;
	rig_declare_rank(&rig, 0);
	hold(&rig);
	check_refused(weft_join(worker, 100, &error), error.text);
	assert_int_equal(weft_close(&worker), -WEFT_E_UNSAFE);
	assert_null(worker);
	let_go();
}

/* The job is gathered anew: the endpoints of the plan before are closed, and what they leave is asked for. */
static void test_plan__is_not_opened_over_it(void **state)
{
	static struct rig rig;
	struct message_endpoints endpoints;
	struct error error = {0};
	weft_worker *rank;

	(void)state;
	rig_open(&rig, &one_rank);
	rank = rig.ranks[0];
	hold(&rig);
	check_refused(join_open(rank, rank->epoch->plan, &endpoints, &error), error.text);
	assert_null(rank->epoch);
	weft_interrupt(rig.ranks[0]);
	weft_interrupt(rig.trainers[0]);
	assert_int_equal(weft_close(&rig.ranks[0]), -WEFT_E_UNSAFE);
	let_go();
	rig_close(&rig);
}

static void test_code__has_words_and_is_worth_another_try(void **state)
{
	(void)state;
	assert_string_equal(weft_strerror(WEFT_E_UNSAFE), "memory may still be written");
	assert_int_equal(weft_exit_code(WEFT_E_UNSAFE), 75);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_declare_and_bind__refuse_it),
		cmocka_unit_test(test_join_and_close__say_so_too),
		cmocka_unit_test(test_plan__is_not_opened_over_it),
		cmocka_unit_test(test_code__has_words_and_is_worth_another_try),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
