/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a plan whose bytes lie in runs of their parameter: what no worker may be told, since it would write beside them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/message_parts.h"

#include <string.h>

static int check(const struct plan_row *given, struct error *error)
{
	struct plan_peer peer = {.pieces = 1};
	struct plan_row row = *given;
	const struct message_plan plan = {
		.peers = &peer, .peer_count = 1, .rows = &row, .row_count = 1};

	return message_plan_check(&plan, error);
}

static void test_rows__in_runs_that_are_no_range_are_refused(void **state)
{
	static const struct {
		struct plan_row row;
		const char *message; /* NULL: it is right */
	} cases[] = {
		{{.bytes = 12, .spread = {4, 8}}, NULL},
		{{.bytes = 12, .spread = {4, 4}}, NULL},
		{{.bytes = 4, .spread = {4, 4}}, NULL},
		{{.bytes = 12, .spread = {0, 8}}, "in runs of 0, 8 apart"},
		{{.bytes = 12, .spread = {5, 8}}, "in runs of 5"},
		{{.bytes = 12, .spread = {4, 3}}, "in runs of 4, 3 apart"},
		{{.bytes = 12, .spread = {4, 0}}, "in runs of 4, 0 apart"},
		{{.bytes = 12, .spread = {4, UINT64_MAX / 2 + 1}}, "which is no range"},
		{{.offset = UINT64_MAX - 20, .bytes = 12, .spread = {4, 8}}, "which is no range"},
		{{.bytes = 12, .spread = {4, 8}, .transform = {.to_rows = 4, .to_columns = 4}},
		 NULL},
		{{.bytes = 12, .spread = {4, 8}, .transform = {.from_rows = 4, .from_columns = 4}},
		 "what is transformed is one run"},
		{{.bytes = 12, .spread = {4, 8}, .transform = {.part = TRANSFORM_TRANSPOSED}},
		 "what is transformed is one run"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error error = {0};
		int rc = check(&cases[i].row, &error);

		if (rc != (cases[i].message ? -ERROR_MESSAGE : 0) ||
		    (rc && !strstr(error.text, cases[i].message)))
			fail_msg("case %zu: %d, '%s'", i, rc, error.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows__in_runs_that_are_no_range_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
