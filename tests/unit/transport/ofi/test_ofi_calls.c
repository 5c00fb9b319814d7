/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/calls.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

static void first(int number)
{
	(void)number;
}

static void second(int number)
{
	(void)number;
}

/* As a host may have set them: what is ignored, what is left, and two handlers. */
static void (*wanted(int number))(int)
{
	void (*const kinds[])(int) = {first, SIG_IGN, second, SIG_DFL};

	return kinds[number % 4];
}

/* Not those of the sanitizers, nor those that cannot be set. */
static bool is_tried(int number)
{
	return number != SIGKILL && number != SIGSTOP && number != SIGSEGV && number != SIGBUS &&
	       number != SIGFPE && number != SIGABRT && number < 32;
}

static void test_library__leaves_the_hosts_signals_as_they_are(void **state)
{
	struct sigaction action;
	struct error error = {0};
	sigset_t before, after;

	(void)state;
	for (int i = 1; i < 32; i++)
		if (is_tried(i))
			signal(i, wanted(i));
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_non_null(ofi_calls_open(&error));
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int i = 1; i < 32; i++) {
		assert_int_equal(sigismember(&before, i), sigismember(&after, i));
		if (!is_tried(i))
			continue;
		sigaction(i, NULL, &action);
		assert_ptr_equal(action.sa_handler, wanted(i));
		signal(i, SIG_DFL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_library__leaves_the_hosts_signals_as_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
