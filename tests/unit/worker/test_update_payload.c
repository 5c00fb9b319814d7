/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals of an update, right and wrong in one thing each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "worker/update/update_payload.h"

#include <stdio.h>
#include <string.h>

static const struct update_pair pair = {"trainer 3 (host b)", {1, 2}, 5, 2};

static struct transport_signal signal_of(uint32_t tag, const void *payload, size_t length)
{
	struct transport_signal signal = {.tag = tag, .length = (uint32_t)length};

	memcpy(signal.payload, payload, length);
	return signal;
}

static void refused(int rc, const struct error *error, const char *words)
{
	if (rc != -ERROR_MESSAGE || !strstr(error->text, words) || !strstr(error->text, pair.name))
		fail_msg("needed '%s': %d, %s", words, rc, error->text);
}

static void test_accept__is_read_or_refused_by_what_is_wrong(void **state)
{
	const struct update_accept good = {5, 7, 9, pair.plan, 16, UINT32_MAX, 1};
	const struct update_accept other = {.opening = 99};
	const struct {
		struct update_accept accept;
		const char *words;
	} wrong[] = {
		{{4, 7, 9, pair.plan, 16, 0, 1}, "permission 4 after permission 5"},
		{{0, 7, 9, pair.plan, 16, 0, 1}, "permission 0"},
		{{5, 9, 7, pair.plan, 16, 0, 1}, "versions 9 to 7"},
		{{5, 0, 7, pair.plan, 16, 0, 1}, "versions 0 to 7"},
		{{5, 7, 9, {0, 0}, 16, 0, 1}, "another plan"},
		{{5, 7, 9, pair.plan, 20, 0, 1}, "byte 20"},
		{{5, 7, 9, pair.plan, 16, 0, 2}, "copy 2 of 2"},
	};
	struct transport_signal signal = signal_of(UPDATE_ACCEPT, &good, sizeof(good));
	struct update_accept out;
	struct error error = {0};

	(void)state;
	assert_int_equal(update_read_accept(&signal, &pair, &out, &error), 0);
	assert_memory_equal(&out, &good, sizeof(good));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		out = other;
		signal = signal_of(UPDATE_ACCEPT, &wrong[i].accept, sizeof(good));
		refused(update_read_accept(&signal, &pair, &out, &error), &error, wrong[i].words);
		assert_memory_equal(&out, &other, sizeof(out));
	}
	signal = signal_of(UPDATE_ACCEPT, &good, sizeof(good) - 1);
	refused(update_read_accept(&signal, &pair, &out, &error), &error, "with 55 bytes");
	signal = signal_of(UPDATE_END, &good, sizeof(good));
	refused(update_read_accept(&signal, &pair, &out, &error), &error, "signal 2");
}

static void test_end__is_read_or_refused_by_what_is_wrong(void **state)
{
	const struct update_end good = {5, 8, pair.plan, 4096, 3, 3};
	const struct {
		struct update_end end;
		const char *words;
	} wrong[] = {
		{{4, 8, pair.plan, 4096, 3, 3}, "no permission"},
		{{6, 8, pair.plan, 4096, 3, 3}, "no permission"},
		{{5, 0, pair.plan, 4096, 3, 3}, "update 0"},
		{{5, 8, pair.plan, 4096, 3, 2}, "2 checksums for 3 pieces"},
	};
	struct transport_signal signal = signal_of(UPDATE_END, &good, sizeof(good));
	struct update_pair unasked = pair;
	struct update_abort gone;
	struct update_end out;
	enum update_tag tag;
	struct error error = {0};

	(void)state;
	assert_int_equal(update_read_use(&signal, &pair, &tag, &out, &gone, &error), 0);
	assert_int_equal(tag, UPDATE_END);
	assert_memory_equal(&out, &good, sizeof(good));
	unasked.opening = 0;
	refused(update_read_use(&signal, &unasked, &tag, &out, &gone, &error), &error,
		"no permission");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		signal = signal_of(UPDATE_END, &wrong[i].end, sizeof(good));
		refused(update_read_use(&signal, &pair, &tag, &out, &gone, &error), &error,
			wrong[i].words);
		assert_memory_equal(&out, &good, sizeof(good));
	}
	signal = signal_of(UPDATE_END, &good, sizeof(good) - 8);
	refused(update_read_use(&signal, &pair, &tag, &out, &gone, &error), &error, "neither");
	signal = signal_of(UPDATE_ACCEPT, &good, sizeof(good));
	refused(update_read_use(&signal, &pair, &tag, &out, &gone, &error), &error, "neither");
}

static void test_abort__is_read_or_refused_by_what_is_wrong(void **state)
{
	struct update_abort good = {5, 8, "the loss is not a number"}, endless = good, out;
	struct transport_signal signal = signal_of(UPDATE_ABORT, &good, sizeof(good));
	struct update_end end;
	enum update_tag tag;
	struct error error = {0};

	(void)state;
	assert_int_equal(update_read_use(&signal, &pair, &tag, &end, &out, &error), 0);
	assert_int_equal(tag, UPDATE_ABORT);
	assert_string_equal(out.why, good.why);
	memset(endless.why, 'x', sizeof(endless.why));
	signal = signal_of(UPDATE_ABORT, &endless, sizeof(endless));
	refused(update_read_use(&signal, &pair, &tag, &end, &out, &error), &error, "has no end");
	assert_string_equal(out.why, good.why);
	good.opening = 1;
	signal = signal_of(UPDATE_ABORT, &good, sizeof(good));
	refused(update_read_use(&signal, &pair, &tag, &end, &out, &error), &error, "no permission");
	signal = signal_of(UPDATE_ABORT, &good, 8);
	refused(update_read_use(&signal, &pair, &tag, &end, &out, &error), &error, "neither");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accept__is_read_or_refused_by_what_is_wrong),
		cmocka_unit_test(test_end__is_read_or_refused_by_what_is_wrong),
		cmocka_unit_test(test_abort__is_read_or_refused_by_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
