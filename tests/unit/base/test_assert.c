/* SPDX-License-Identifier: Apache-2.0 */
#include "base/assert.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int evaluated;

static int count(int value)
{
	evaluated++;
	return value;
}

static void broken(void)
{
	WEFT_ASSERT(count(1) == 2);
}

static void broken_pair(void)
{
	WEFT_ASSERT_OP(count(3) - 5, >=, count(7));
}

/* Runs it in a process of its own; what it wrote to stderr goes to `said`. */
static int run_apart(void (*function)(void), char *said, size_t bytes)
{
	size_t length = 0;
	int pipes[2], status;
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL); /* cmocka catches it, for its own reports */
		dup2(pipes[1], STDERR_FILENO);
		function();
		_exit(0);
	}
	close(pipes[1]);
	while ((got = read(pipes[0], said + length, bytes - 1 - length)) > 0)
		length += (size_t)got;
	said[length] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void check_apart(void (*function)(void), const char *condition, const char *values)
{
	char said[1024], expected[256];
	int status = run_apart(function, said, sizeof(said));

	if (!WEFT_ASSERTS) {
		assert_int_equal(status, 0);
		assert_string_equal(said, "");
		return;
	}
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	snprintf(expected, sizeof(expected), ": a bug in weft: this must hold: %s%s\n", condition,
		 values);
	assert_non_null(strstr(said, expected));
	assert_non_null(strstr(said, "tests/unit/base/test_assert.c:"));
}

static void test_assert__a_broken_one_names_itself_and_aborts_where_asserts_are_on(void **unused)
{
	(void)unused;
	check_apart(broken, "count(1) == 2", "");
	check_apart(broken_pair, "count(3) - 5 >= count(7)", " (left is -2, right is 7)");
}

static void test_assert__is_evaluated_once_or_where_off_never(void **unused)
{
	(void)unused;
	evaluated = 0;
	WEFT_ASSERT(count(1) == 1);
	assert_int_equal(evaluated, WEFT_ASSERTS ? 1 : 0);
	WEFT_ASSERT_OP(count(2), <, count(3));
	assert_int_equal(evaluated, WEFT_ASSERTS ? 3 : 0);
}

static void test_assert__is_one_statement_and_takes_mixed_integers(void **unused)
{
	uint8_t small = 200;
	uint64_t large = 1000;
	bool other = false;

	(void)unused;
	if (small > 100)
		WEFT_ASSERT_OP(small, <, large);
	else
		other = true;
	if (other)
		WEFT_ASSERT(!"never here");
	assert_false(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_assert__a_broken_one_names_itself_and_aborts_where_asserts_are_on),
		cmocka_unit_test(test_assert__is_evaluated_once_or_where_off_never),
		cmocka_unit_test(test_assert__is_one_statement_and_takes_mixed_integers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
