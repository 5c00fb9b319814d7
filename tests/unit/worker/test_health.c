/* SPDX-License-Identifier: Apache-2.0
 *
 * One failure has many echoes: a survivor must end with the code of the loss, since launchers retry on that
 * one, whichever of them it met first.
 */
#include "worker/control/health.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_echo__of_a_loss_that_is_known_has_the_codes_of_the_loss(void **state)
{
	static const enum error_code echoes[] = {ERROR_ABORTED, ERROR_TRANSPORT, ERROR_TIMEOUT,
						 ERROR_INTERRUPTED, ERROR_PEER_LOST};

	(void)state;
	for (size_t i = 0; i < sizeof(echoes) / sizeof(echoes[0]); i++) {
		struct health health;
		struct error echo;

		health_init(&health, "trainer 0");
		error_set(&health.failure, ERROR_PEER_LOST, "inference 1 was lost");
		health.failed = true;
		error_set(&echo, echoes[i], "update aborted");
		assert_int_equal(health_fail(&health, &echo, 7), -ERROR_PEER_LOST);
		assert_string_equal(echo.text, "inference 1 was lost");
		assert_int_equal(error_exit_code(echo.code), 75);
		health_fini(&health);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_echo__of_a_loss_that_is_known_has_the_codes_of_the_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
