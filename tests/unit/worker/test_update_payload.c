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
#include "worker/epoch/windows.h"
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

#define WINDOW_LEAST (WINDOW_HEAD_BYTES + WINDOW_RING_BYTES_MIN)
#define ACCEPT(number, least, most, of, sums, in, at, bytes)                                    \
	{                                                                                       \
		.opening = (number), .min_version = (least), .max_version = (most), .plan = of, \
		.sums_offset = (sums), .copy = (in), .window_offset = (at),                     \
		.window_bytes = (bytes)                                                         \
	}

static const struct digest other_plan = {0, 0};

static void test_accept__is_read_or_refused_by_what_is_wrong(void **state)
{
	const struct update_accept good = {5,	 7,	  9, pair.plan, 16, UINT32_MAX, 1,
					   4096, 1 << 20, 3, 2,		0,  6};
	const struct update_accept other = {.opening = 99};
	const struct {
		struct update_accept accept;
		const char *words;
	} wrong[] = {
		{ACCEPT(4, 7, 9, pair.plan, 16, 1, 0, 0), "permission 4 after permission 5"},
		{ACCEPT(0, 7, 9, pair.plan, 16, 1, 0, 0), "permission 0"},
		{ACCEPT(5, 9, 7, pair.plan, 16, 1, 0, 0), "versions 9 to 7"},
		{ACCEPT(5, 0, 7, pair.plan, 16, 1, 0, 0), "versions 0 to 7"},
		{ACCEPT(5, 7, 9, other_plan, 16, 1, 0, 0), "another plan"},
		{ACCEPT(5, 7, 9, pair.plan, 20, 1, 0, 0), "byte 20"},
		{ACCEPT(5, 7, 9, pair.plan, 16, 2, 0, 0), "copy 2 of 2"},
		{ACCEPT(5, 7, 9, pair.plan, 16, 1, 0, WINDOW_LEAST - 1), "window of 81919 bytes"},
		{ACCEPT(5, 7, 9, pair.plan, 16, 1, 12, WINDOW_LEAST), "bytes at 12"},
		{ACCEPT(5, 7, 9, pair.plan, 16, 1, UINT64_MAX - 7, WINDOW_LEAST),
		 "a multiple of 8"},
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
	refused(update_read_accept(&signal, &pair, &out, &error), &error, "with 95 bytes");
	signal = signal_of(UPDATE_END, &good, sizeof(good));
	refused(update_read_accept(&signal, &pair, &out, &error), &error, "signal 2");
}

static void test_end__is_read_or_refused_by_what_is_wrong(void **state)
{
	const struct update_end good = {5, 8, pair.plan, 4096, 3, 3, 17, 0};
	const struct {
		struct update_end end;
		const char *words;
	} wrong[] = {
		{{4, 8, pair.plan, 4096, 3, 3, 0, 0}, "no permission"},
		{{6, 8, pair.plan, 4096, 3, 3, 0, 0}, "no permission"},
		{{5, 0, pair.plan, 4096, 3, 3, 0, 0}, "update 0"},
		{{5, 8, pair.plan, 4096, 3, 2, 0, 0}, "2 checksums for 3 pieces"},
	};
	struct transport_signal signal = signal_of(UPDATE_END, &good, sizeof(good));
	struct update_pair unasked = pair;
	struct update_landed landed;
	struct update_abort gone;
	struct update_end out;
	enum update_tag tag;
	struct error error = {0};

	(void)state;
	assert_int_equal(update_read_use(&signal, &pair, &tag, &out, &gone, &landed, &error), 0);
	assert_int_equal(tag, UPDATE_END);
	assert_memory_equal(&out, &good, sizeof(good));
	unasked.opening = 0;
	refused(update_read_use(&signal, &unasked, &tag, &out, &gone, &landed, &error), &error,
		"no permission");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		signal = signal_of(UPDATE_END, &wrong[i].end, sizeof(good));
		refused(update_read_use(&signal, &pair, &tag, &out, &gone, &landed, &error), &error,
			wrong[i].words);
		assert_memory_equal(&out, &good, sizeof(good));
	}
	signal = signal_of(UPDATE_END, &good, sizeof(good) - 8);
	refused(update_read_use(&signal, &pair, &tag, &out, &gone, &landed, &error), &error,
		"neither");
	signal = signal_of(UPDATE_ACCEPT, &good, sizeof(good));
	refused(update_read_use(&signal, &pair, &tag, &out, &gone, &landed, &error), &error,
		"neither");
}

static void test_abort__is_read_or_refused_by_what_is_wrong(void **state)
{
	struct update_abort good = {5, 8, "the loss is not a number"}, endless = good, out;
	struct transport_signal signal = signal_of(UPDATE_ABORT, &good, sizeof(good));
	struct update_landed landed;
	struct update_end end;
	enum update_tag tag;
	struct error error = {0};

	(void)state;
	assert_int_equal(update_read_use(&signal, &pair, &tag, &end, &out, &landed, &error), 0);
	assert_int_equal(tag, UPDATE_ABORT);
	assert_string_equal(out.why, good.why);
	memset(endless.why, 'x', sizeof(endless.why));
	signal = signal_of(UPDATE_ABORT, &endless, sizeof(endless));
	refused(update_read_use(&signal, &pair, &tag, &end, &out, &landed, &error), &error,
		"has no end");
	assert_string_equal(out.why, good.why);
	good.opening = 1;
	signal = signal_of(UPDATE_ABORT, &good, sizeof(good));
	refused(update_read_use(&signal, &pair, &tag, &end, &out, &landed, &error), &error,
		"no permission");
	signal = signal_of(UPDATE_ABORT, &good, 8);
	refused(update_read_use(&signal, &pair, &tag, &end, &out, &landed, &error), &error,
		"neither");
}

static void test_landed__is_read_or_refused_by_what_is_wrong(void **state)
{
	const struct update_landed good = {5, 17}, other = {4, 17};
	struct transport_signal signal = signal_of(UPDATE_LANDED, &good, sizeof(good));
	struct update_pair unasked = pair;
	struct update_landed out;
	struct update_abort gone;
	struct update_end end;
	enum update_tag tag;
	struct error error = {0};

	(void)state;
	assert_int_equal(update_read_use(&signal, &pair, &tag, &end, &gone, &out, &error), 0);
	assert_int_equal(tag, UPDATE_LANDED);
	assert_memory_equal(&out, &good, sizeof(good));
	unasked.opening = 0;
	refused(update_read_use(&signal, &unasked, &tag, &end, &gone, &out, &error), &error,
		"no permission");
	signal = signal_of(UPDATE_LANDED, &other, sizeof(other));
	refused(update_read_use(&signal, &pair, &tag, &end, &gone, &out, &error), &error,
		"no permission");
	signal = signal_of(UPDATE_LANDED, &good, sizeof(good) - 8);
	refused(update_read_use(&signal, &pair, &tag, &end, &gone, &out, &error), &error,
		"in 8 bytes");
	assert_memory_equal(&out, &good, sizeof(good));
}

static void test_taken__is_read_or_refused_by_what_is_wrong(void **state)
{
	const struct update_taken good = {5, 17}, other = {6, 17};
	const struct update_accept again = ACCEPT(5, 7, 9, pair.plan, 16, 1, 0, WINDOW_LEAST),
				   wrong = {.opening = 99};
	struct transport_signal signal = signal_of(UPDATE_TAKEN, &good, sizeof(good));
	struct update_accept accept = again;
	struct update_taken out;
	struct error error = {0};

	(void)state;
	assert_int_equal(update_read_taken(&signal, &pair, &out, &error), 0);
	assert_memory_equal(&out, &good, sizeof(good));
	signal = signal_of(UPDATE_TAKEN, &other, sizeof(other));
	refused(update_read_taken(&signal, &pair, &out, &error), &error, "permission 6");
	signal = signal_of(UPDATE_TAKEN, &good, sizeof(good) - 8);
	refused(update_read_taken(&signal, &pair, &out, &error), &error, "with 8 bytes");
	signal = signal_of(UPDATE_END, &good, sizeof(good));
	refused(update_read_taken(&signal, &pair, &out, &error), &error, "signal 2");
	signal = signal_of(UPDATE_ACCEPT, &wrong, sizeof(wrong));
	refused(update_read_taken(&signal, &pair, &out, &error), &error, "another plan");
	assert_memory_equal(&out, &good, sizeof(good));
	/* one that came in the place of a TAKEN */
	accept.taken = 23;
	signal = signal_of(UPDATE_ACCEPT, &accept, sizeof(accept));
	assert_int_equal(update_read_taken(&signal, &pair, &out, &error), 0);
	assert_int_equal(out.entries, 23);
}

static void refused_meet(const struct transport_signal *signal, bool decides)
{
	struct update_meet out = {.tag = 99};
	struct error error = {0};

	refused(update_read_meet(signal, pair.name, decides, &out, &error), &error,
		"nothing that ranks of one engine say");
	assert_int_equal(out.tag, 99);
}

static void test_meet__is_read_by_who_says_it_or_refused(void **state)
{
	const struct update_arrive arrive = {3, 7, 9, MEET_OPEN, 1, 1, 0};
	const struct update_release release = {3, 7, 7, MEET_PUBLISH, 0};
	const struct update_give_up give_up = {3, 7, "checksum"};
	const struct update_later later = {7};
	const struct update_arrive bad_arrive[] = {{0, 7, 9, MEET_OPEN, 0, 0, 0},
						   {3, 0, 9, MEET_OPEN, 0, 0, 0},
						   {3, 9, 7, MEET_OPEN, 0, 0, 0},
						   {3, 7, 9, 0, 0, 0, 0},
						   {3, 7, 9, MEET_PUBLISH + 1, 0, 0, 0}};
	const struct update_release bad_release[] = {{0, 7, 7, MEET_PUBLISH, 0},
						     {3, 7, 8, MEET_PUBLISH, 0},
						     {3, 0, 0, MEET_CLOSE, 0},
						     {3, 8, 7, MEET_OPEN, 0}};
	struct transport_signal signal = signal_of(UPDATE_ARRIVE, &arrive, sizeof(arrive));
	struct update_give_up endless = give_up;
	struct update_meet out;
	struct error error;

	(void)state;
	assert_int_equal(update_read_meet(&signal, pair.name, false, &out, &error), 0);
	assert_memory_equal(&out.arrive, &arrive, sizeof(arrive));
	refused_meet(&signal, true); /* who decides does not arrive */
	signal.length--;
	refused_meet(&signal, false);
	signal = signal_of(UPDATE_RELEASE, &release, sizeof(release));
	assert_int_equal(update_read_meet(&signal, pair.name, true, &out, &error), 0);
	assert_memory_equal(&out.release, &release, sizeof(release));
	refused_meet(&signal, false);
	signal = signal_of(UPDATE_GIVE_UP, &give_up, sizeof(give_up));
	for (int decides = 0; decides < 2; decides++) {
		assert_int_equal(update_read_meet(&signal, pair.name, decides, &out, &error), 0);
		assert_string_equal(out.give_up.why, "checksum");
	}
	signal = signal_of(UPDATE_LATER, &later, sizeof(later));
	assert_int_equal(update_read_meet(&signal, pair.name, false, &out, &error), 0);
	assert_int_equal(out.tag, UPDATE_LATER);
	assert_int_equal(out.later.turn, later.turn);
	refused_meet(&signal, true); /* who decides waits for nobody's word */
	signal.length++;
	refused_meet(&signal, false);
	signal = signal_of(UPDATE_LATER, &(struct update_later){0}, sizeof(later));
	refused_meet(&signal, false);
	memset(endless.why, 'x', sizeof(endless.why));
	signal = signal_of(UPDATE_GIVE_UP, &endless, sizeof(endless));
	refused_meet(&signal, true);
	for (size_t i = 0; i < ARRAY_SIZE(bad_arrive); i++) {
		signal = signal_of(UPDATE_ARRIVE, &bad_arrive[i], sizeof(bad_arrive[i]));
		refused_meet(&signal, false);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad_release); i++) {
		signal = signal_of(UPDATE_RELEASE, &bad_release[i], sizeof(bad_release[i]));
		refused_meet(&signal, true);
	}
	signal = signal_of(UPDATE_END, &give_up, sizeof(give_up));
	refused_meet(&signal, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accept__is_read_or_refused_by_what_is_wrong),
		cmocka_unit_test(test_end__is_read_or_refused_by_what_is_wrong),
		cmocka_unit_test(test_abort__is_read_or_refused_by_what_is_wrong),
		cmocka_unit_test(test_landed__is_read_or_refused_by_what_is_wrong),
		cmocka_unit_test(test_taken__is_read_or_refused_by_what_is_wrong),
		cmocka_unit_test(test_meet__is_read_by_who_says_it_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
