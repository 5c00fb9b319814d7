/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tool.c -- what two tools tell each other, there and back; and what is refused. Golden bytes
 * in tests/unit/golden/tool/, raised with TOOL_VERSION as test_message.c says of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/memory.h"
#include "tests/support/golden.h"
#include "wire/tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of each type, every field with a value of its own. */
static struct tool_message sample(enum tool_type type)
{
	static char why[] = "the 4096 bytes that 10.1.2.5 wrote differ", weft[] = "0.1.0",
		    host[] = "node7";
	static unsigned char record[] = {0, 1, 0xff, 'r'};
	static struct tool_rail rails[] = {{"::ffff:10.1.2.5", 24}, {"", 0}};
	struct tool_message message = {.type = type};

	switch (type) {
	case TOOL_HELLO:
		strcpy(message.u.hello.program, "bench write");
		break;
	case TOOL_FAILURE:
		message.u.failure = (struct tool_failure){150, why};
		break;
	case TOOL_SETTINGS:
		message.u.settings =
			(struct tool_settings){"verbs", 1, 128, 4096, 1 << 20, 1 << 30, 77};
		break;
	case TOOL_RECORD:
	case TOOL_REGION:
		message.u.record = (struct tool_record){record, sizeof(record)};
		break;
	case TOOL_PASS:
		message.u.pass = (struct tool_pass){3, 4096, UINT64_MAX, true};
		break;
	case TOOL_ABOUT:
		message.u.about = (struct tool_about){weft, host, rails, 2};
		break;
	case TOOL_CHECK:
		message.u.check = (struct tool_check){1 << 20, 5};
		break;
	case TOOL_CHECKED:
		message.u.checked = (struct tool_checked){UINT64_C(0x0123456789abcdef)};
		break;
	case TOOL_PING:
		message.u.ping = (struct tool_ping){200, 6};
		break;
	default:
		break; /* the type says it all */
	}
	return message;
}

static struct frame encoded(const struct tool_message *message)
{
	struct frame frame;
	struct error error = {0};

	if (tool_encode(message, &frame.bytes, &frame.length, &error))
		fail_msg("%s", error.text);
	return frame;
}

static void check_about(const struct tool_about *is, const struct tool_about *was)
{
	assert_string_equal(is->weft, was->weft);
	assert_string_equal(is->host, was->host);
	assert_int_equal(is->rail_count, 2);
	assert_string_equal(is->rails[0].gid, "::ffff:10.1.2.5");
	assert_int_equal(is->rails[0].prefix_bits, 24);
	assert_string_equal(is->rails[1].gid, "");
}

/* Written out by hand: what a table forgets, it forgets both ways. */
static void check_same(const struct tool_message *is, const struct tool_message *was)
{
	assert_int_equal(is->type, was->type);
	switch (was->type) {
	case TOOL_FAILURE:
		assert_int_equal(is->u.failure.code, was->u.failure.code);
		assert_string_equal(is->u.failure.text, was->u.failure.text);
		break;
	case TOOL_RECORD:
	case TOOL_REGION:
		assert_int_equal(is->u.record.length, was->u.record.length);
		assert_memory_equal(is->u.record.bytes, was->u.record.bytes, was->u.record.length);
		break;
	case TOOL_ABOUT:
		check_about(&is->u.about, &was->u.about);
		break;
	default:
		assert_memory_equal(&is->u, &was->u, sizeof(is->u));
	}
}

static void test_every_type__comes_back_equal(void **state)
{
	(void)state;
	for (int type = 0; type < TOOL_TYPE_COUNT; type++) {
		struct tool_message sent = sample((enum tool_type)type), got;
		struct frame frame = encoded(&sent);
		struct error error = {0};

		if (tool_decode(&got, frame.bytes, frame.length, &error))
			fail_msg("%s: %s", tool_type_name(sent.type), error.text);
		check_same(&got, &sent);
		tool_fini(&got);
		memory_free(frame.bytes);
	}
	assert_string_equal(tool_type_name(TOOL_TYPE_COUNT), "unknown");
}

static void test_every_allocation__can_fail_without_leak(void **state)
{
	(void)state;
	for (int type = 0; type < TOOL_TYPE_COUNT; type++) {
		struct tool_message message = sample((enum tool_type)type), got;
		struct frame frame = encoded(&message), again;
		int rc = -1;

		for (uint64_t k = 1; rc; k++) {
			memory_fail_at(k);
			rc = tool_decode(&got, frame.bytes, frame.length, NULL);
			memory_fail_at(0);
			assert_true(rc == 0 || rc == -ERROR_MEMORY);
		}
		rc = -1;
		for (uint64_t k = 1; rc; k++) {
			memory_fail_at(k);
			rc = tool_encode(&got, &again.bytes, &again.length, NULL);
			memory_fail_at(0);
			assert_true(rc == 0 || (rc == -ERROR_MEMORY && !again.bytes));
		}
		assert_int_equal(again.length, frame.length);
		assert_memory_equal(again.bytes, frame.bytes, frame.length);
		memory_free(again.bytes);
		memory_free(frame.bytes);
		tool_fini(&got);
	}
}

static void test_truncation_and_bit_flips__are_named_errors_or_other_messages(void **state)
{
	(void)state;
	for (int type = 0; type < TOOL_TYPE_COUNT; type++) {
		struct tool_message message = sample((enum tool_type)type), got;
		struct frame frame = encoded(&message);
		struct error error = {0};

		for (size_t n = 0; n < frame.length; n++) {
			assert_int_not_equal(tool_decode(&got, frame.bytes, n, &error), 0);
			assert_true(strlen(error.text) > 10);
		}
		for (size_t bit = 0; bit < 8 * frame.length; bit++) {
			frame.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
			if (tool_decode(&got, frame.bytes, frame.length, &error) == 0)
				tool_fini(&got);
			else
				assert_true(error_known((int)error.code) && error.text[0]);
			frame.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
		}
		memory_free(frame.bytes);
	}
}

#define HEAD(pairs) pairs "\xa4type\xa4ping\xa4tool\x01"
#define ROW(bytes, words)                           \
	{                                           \
		(bytes), sizeof(bytes) - 1, (words) \
	}

static void test_wrong_fields__are_named(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
		const char *words;
	} rows[] = {
		ROW(HEAD("\x83") "\xa5"
				 "count\x05",
		    "key \"sequence\" is missing"),
		ROW(HEAD("\x85") "\xa5"
				 "count\x05\xa8sequence\x01\xa4more\x01",
		    "unknown key \"more\""),
		ROW(HEAD("\x85") "\xa5"
				 "count\x05\xa8sequence\x01\xa5"
				 "count\x05",
		    "key \"count\" stands here a second time"),
		ROW(HEAD("\x84") "\xa5"
				 "count\xa1x\xa8sequence\x01",
		    "ping message, count"),
		ROW(HEAD("\x84") "\xa5"
				 "count\x05\xa8sequence\x01\x07",
		    "byte"),
		ROW("\x82\xa4type\xa4pang\xa4tool\x01", "unknown message type"),
		ROW("\x82\xa4type\xa4ping\xa4wire\x01", "key \"tool\" must stand here"),
		ROW("\x81\xa4type\xa4ping", "\"type\" and \"tool\" are needed"),
		ROW("\x93\x01\x02\x03", "a map is needed"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tool_message message;
		struct error error = {0};

		assert_int_equal(tool_decode(&message, (const unsigned char *)rows[i].bytes,
					     rows[i].length, &error),
				 -ERROR_MESSAGE);
		if (!strstr(error.text, rows[i].words))
			fail_msg("row %zu: wanted \"%s\", got \"%s\"", i, rows[i].words,
				 error.text);
	}
}

static void test_other_version__is_told_with_both(void **state)
{
	static const unsigned char bytes[] = "\x84\xa4type\xa4pack\xa4tool\x09\xa1x\xc0\xa1y\xc0";
	struct tool_message message;
	struct error error = {0};

	(void)state;
	assert_int_equal(tool_decode(&message, bytes, sizeof(bytes) - 1, &error),
			 -ERROR_WIRE_VERSION);
	assert_string_equal(error.text, "the other side speaks tool version 9 and this program "
					"version 1: use the same weft on both hosts");
}

static void test_golden__bytes_of_every_type_are_what_they_were(void **state)
{
	(void)state;
	for (int type = 0; type < TOOL_TYPE_COUNT; type++) {
		const char *name = tool_type_name((enum tool_type)type);
		char *path = golden_path("tests/unit/golden/tool", name, ".hex");
		char *corpus = golden_path("tests/fuzz/corpus/tool", name, "");
		struct tool_message message = sample((enum tool_type)type);
		struct frame frame = encoded(&message), golden;

		if (getenv("WEFT_GOLDEN_WRITE"))
			golden_write(path, corpus, frame);
		golden = golden_read(path);
		assert_int_equal(frame.length, golden.length);
		assert_memory_equal(frame.bytes, golden.bytes, frame.length);
		memory_free(golden.bytes);
		memory_free(frame.bytes);
		memory_free(path);
		memory_free(corpus);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_type__comes_back_equal),
		cmocka_unit_test(test_every_allocation__can_fail_without_leak),
		cmocka_unit_test(test_truncation_and_bit_flips__are_named_errors_or_other_messages),
		cmocka_unit_test(test_wrong_fields__are_named),
		cmocka_unit_test(test_other_version__is_told_with_both),
		cmocka_unit_test(test_golden__bytes_of_every_type_are_what_they_were),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
