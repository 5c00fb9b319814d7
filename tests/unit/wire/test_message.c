/* SPDX-License-Identifier: Apache-2.0
 *
 * test_message.c -- every message there and back, and everything that can be wrong with one.
 *
 * Golden bytes: tests/unit/golden/wire/<type>.hex hold one message of each type, so that a
 * change of the wire format is seen as one. When it is meant (and WIRE_VERSION is raised):
 *   WEFT_GOLDEN_WRITE=1 ./test_message     from the repository's root; also writes the fuzz
 *                                          corpus, tests/fuzz/corpus/message/
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "tests/support/golden.h"
#include "tests/support/messages.h"
#include "wire/message_text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS	    100
#define GOLDEN_SEED 2029

static struct frame encoded(const struct message *message)
{
	struct frame frame;
	struct error error = {0};

	if (message_encode(message, &frame.bytes, &frame.length, &error))
		fail_msg("%s", error.text);
	return frame;
}

/* A random message whose lists are not all empty, for tests that want substance. */
static void full_random(struct message *message, enum message_type type, uint64_t seed)
{
	for (struct frame frame = {0};; message_fini(message)) {
		messages_random(message, type, &seed);
		frame = encoded(message);
		memory_free(frame.bytes);
		if (frame.length >= 300 ||
		    (type != MESSAGE_LAYOUT && type != MESSAGE_HOLDING && type != MESSAGE_PLAN &&
		     type != MESSAGE_PEERS && type != MESSAGE_ENDPOINTS))
			return;
	}
}

static void test_every_type__comes_back_equal_and_encodes_to_the_same_bytes(void **state)
{
	const char *given = getenv("WEFT_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : clock_ns();

	(void)state;
	print_message("WEFT_SEED=%llu\n", (unsigned long long)seed);
	for (int i = 0; i < ROUNDS * MESSAGE_TYPE_COUNT; i++) {
		struct message sent, got;
		struct frame first, second;
		struct error error = {0};

		messages_random(&sent, (enum message_type)(i % MESSAGE_TYPE_COUNT), &seed);
		first = encoded(&sent);
		if (message_decode(&got, first.bytes, first.length, &error))
			fail_msg("%s", error.text);
		if (messages_differ(&sent, &got))
			fail_msg("%s: %s", message_type_name(sent.type),
				 messages_differ(&sent, &got));
		second = encoded(&got);
		assert_int_equal(first.length, second.length);
		assert_memory_equal(first.bytes, second.bytes, first.length);
		memory_free(first.bytes);
		memory_free(second.bytes);
		message_fini(&sent);
		message_fini(&got);
	}
}

static void test_copy__is_equal_and_owns_its_own_memory(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int i = 0; i < ROUNDS * MESSAGE_TYPE_COUNT; i++) {
		struct message from, to, again;
		struct frame frame;

		messages_random(&from, (enum message_type)(i % MESSAGE_TYPE_COUNT), &seed);
		frame = encoded(&from);
		assert_int_equal(message_copy(&to, &from, NULL), 0);
		message_fini(&from); /* the copy must not notice */
		assert_int_equal(message_decode(&again, frame.bytes, frame.length, NULL), 0);
		assert_null(messages_differ(&to, &again));
		message_fini(&to);
		message_fini(&again);
		memory_free(frame.bytes);
	}
}

static void test_every_allocation__can_fail_without_leak(void **state)
{
	(void)state;
	for (int type = 0; type < MESSAGE_TYPE_COUNT; type++) {
		struct message message, out;
		struct frame frame, again;
		struct error error = {0};
		uint64_t k;
		int rc = -1;

		full_random(&message, (enum message_type)type, 11);
		frame = encoded(&message);
		for (k = 1; rc; k++) {
			memory_fail_at(k);
			rc = message_decode(&out, frame.bytes, frame.length, &error);
			memory_fail_at(0);
			assert_true(rc == 0 || rc == -ERROR_MEMORY);
		}
		for (k = 1, rc = -1; rc; k++) {
			memory_fail_at(k);
			rc = message_encode(&out, &again.bytes, &again.length, &error);
			memory_fail_at(0);
			assert_true(rc == 0 || rc == -ERROR_MEMORY);
			assert_true(rc == 0 || !again.bytes);
		}
		assert_true(k > 2);
		memory_free(again.bytes);
		message_fini(&out);
		for (k = 1, rc = -1; rc; k++) {
			memory_fail_at(k);
			rc = message_copy(&out, &message, &error);
			memory_fail_at(0);
			assert_true(rc == 0 || rc == -ERROR_MEMORY);
		}
		assert_null(messages_differ(&out, &message));
		message_fini(&out);
		message_fini(&message);
		memory_free(frame.bytes);
	}
}

/* Bytes at the exact end of an allocation, so that a sanitizer sees one byte too many. */
static int decode_exact(struct message *out, const unsigned char *bytes, size_t length,
			struct error *error)
{
	unsigned char *copy = malloc(length ? length : 1);
	int rc;

	assert_non_null(copy);
	memcpy(copy, bytes, length);
	*error = (struct error){0};
	rc = message_decode(out, length ? copy : copy + 1, length, error);
	free(copy);
	return rc;
}

static void test_truncation__at_every_length_is_a_named_error(void **state)
{
	(void)state;
	for (int type = 0; type < MESSAGE_TYPE_COUNT; type++) {
		struct message message, out;
		struct frame frame;
		struct error error;

		full_random(&message, (enum message_type)type, 13);
		frame = encoded(&message);
		for (size_t n = 0; n < frame.length; n++) {
			assert_int_equal(decode_exact(&out, frame.bytes, n, &error),
					 -ERROR_MESSAGE);
			assert_non_null(strstr(error.text, "at byte"));
		}
		message_fini(&message);
		memory_free(frame.bytes);
	}
}

static void test_bit_flip__anywhere_is_a_named_error_or_another_valid_message(void **state)
{
	(void)state;
	for (int type = 0; type < MESSAGE_TYPE_COUNT; type++) {
		struct message message, out;
		struct frame frame, again;
		struct error error;

		full_random(&message, (enum message_type)type, 17);
		frame = encoded(&message);
		for (size_t bit = 0; bit < 8 * frame.length; bit++) {
			frame.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
			if (decode_exact(&out, frame.bytes, frame.length, &error) == 0) {
				again = encoded(&out);
				memory_free(again.bytes);
				message_fini(&out);
			} else {
				assert_true(error_known((int)error.code));
				assert_true(strlen(error.text) > 10);
			}
			frame.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
		}
		message_fini(&message);
		memory_free(frame.bytes);
	}
}

static void test_layout_body__does_not_survive_any_bit_flip(void **state)
{
	struct message message, out;
	struct frame frame;
	struct error error;
	const char *start = "layout\x94";
	size_t at = 0;

	(void)state;
	full_random(&message, MESSAGE_LAYOUT, 19);
	frame = encoded(&message);
	while (memcmp(frame.bytes + at, start, 7) != 0)
		at++;
	for (size_t bit = 8 * (at + 7); bit < 8 * frame.length; bit++) {
		frame.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
		assert_true(decode_exact(&out, frame.bytes, frame.length, &error) < 0);
		frame.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	message_fini(&message);
	memory_free(frame.bytes);
}

static void test_zeroed_message__is_empty_and_null_strings_go_as_empty(void **state)
{
	struct message out, message = {0};
	struct frame frame;

	(void)state;
	message_fini(&message);
	message.type = MESSAGE_DECLARE;
	frame = encoded(&message);
	assert_int_equal(message_decode(&out, frame.bytes, frame.length, NULL), 0);
	assert_string_equal(out.u.declare.model, "");
	message_fini(&out);
	memory_free(frame.bytes);
}

static void test_big_layout__goes_there_and_back_in_well_under_a_second(void **state)
{
	struct message out, message = {.type = MESSAGE_LAYOUT};
	struct frame frame;
	uint64_t begin, middle, end;

	(void)state;
	messages_layout(&message.u.layout.layout, 500, 100);
	message.u.layout.digest = layout_digest(&message.u.layout.layout);
	begin = clock_ns();
	frame = encoded(&message);
	middle = clock_ns();
	assert_int_equal(message_decode(&out, frame.bytes, frame.length, NULL), 0);
	end = clock_ns();
	print_message("50,000 pieces: %zu bytes, encoded in %llu us, decoded in %llu us\n",
		      frame.length, (unsigned long long)(middle - begin) / 1000,
		      (unsigned long long)(end - middle) / 1000);
	assert_true(frame.length / 50000 < 32);
	assert_true(end - begin < UINT64_C(4000000000)); /* sanitizers on a busy machine */
	message_fini(&message);
	message_fini(&out);
	memory_free(frame.bytes);
}

/* The largest job that is planned for: one worker with 10^6 rows, each as long as rows get. */
static void test_plan__of_a_million_long_rows_passes(void **state)
{
	enum { ROWS = 1000000 };
	struct message message = {.type = MESSAGE_PLAN, .job = "demo", .epoch = 1, .from = 1}, got;
	struct message_plan *plan = &message.u.plan;
	struct frame frame;
	struct error error;

	(void)state;
	plan->policy = memory_string("greedy");
	plan->order = memory_string("rotated");
	plan->peers = memory_zalloc(1, sizeof(*plan->peers));
	plan->rows = memory_zalloc(ROWS, sizeof(*plan->rows));
	assert_true(plan->policy && plan->peers && plan->rows);
	plan->peer_count = 1;
	plan->peers[0].host = memory_string("a");
	plan->peers[0].pieces = ROWS;
	plan->row_count = ROWS;
	for (uint32_t i = 0; i < ROWS; i++)
		plan->rows[i] = (struct plan_row){
			.ordinal = i,
			.tensor = LIMIT_TENSORS - 1,
			.param = LIMIT_PARAMS - 1,
			.path = PATH_REPLICA,
			.src = {.dims = 2, .lo = {70000, 70000}, .hi = {1 << 20, 1 << 20}},
			.offset = UINT64_C(1) << 40,
			.bytes = UINT64_C(1) << 32};
	frame = encoded(&message);
	assert_true(frame.length > 45u << 20);
	if (message_decode(&got, frame.bytes, frame.length, &error))
		fail_msg("%s", error.text);
	assert_int_equal(got.u.plan.row_count, ROWS);
	assert_int_equal(got.u.plan.rows[ROWS - 1].ordinal, ROWS - 1);
	memory_free(frame.bytes);
	message_fini(&got);
	message_fini(&message);
}

static void test_text__is_one_line_with_the_facts(void **state)
{
	char line[MESSAGE_TEXT_BYTES], words[] = "line\nbreak", greedy[] = "greedy",
				       rounds[] = "rounds";
	unsigned char secret[] = "SECRET";
	struct endpoint_record record = {{ROLE_TRAINER, 1}, secret, 6};
	struct message message = {.type = MESSAGE_PLAN,
				  .u.plan = {.attempt = 1,
					     .policy = greedy,
					     .order = rounds,
					     .row_count = 290,
					     .peer_count = 4,
					     .digest = {UINT64_C(0x3f2a01bc00000000), 0}}};

	(void)state;
	assert_string_equal(message_text(&message, line, sizeof(line)),
			    "plan attempt 1: 290 rows, 4 peers, greedy, rounds 3f2a01bc");
	assert_string_equal(message_text(&message, line, 9), "plan att");
	message = (struct message){.type = MESSAGE_LOST,
				   .u.lost = {131, words, {ROLE_TRAINER, 3}, 0x9f}};
	assert_string_equal(message_text(&message, line, sizeof(line)),
			    "lost trainer 3 (9f) E131: line?break");
	message = (struct message){.type = MESSAGE_ENDPOINTS,
				   .u.endpoints = {.records = &record, .record_count = 1}};
	assert_string_equal(message_text(&message, line, sizeof(line)),
			    "endpoints attempt 0: 1 records, 0 regions, 0 places in 0 copies");
	for (int type = 0; type < MESSAGE_TYPE_COUNT; type++) { /* NULL strings are fine */
		message = (struct message){.type = (enum message_type)type};
		message_text(&message, line, sizeof(line));
		assert_memory_equal(line, message_type_name(message.type),
				    strlen(message_type_name(message.type)));
	}
	message.type = MESSAGE_TYPE_COUNT;
	assert_string_equal(message_text(&message, line, sizeof(line)), "unknown");
}

static void test_golden__bytes_of_every_type_are_what_they_were(void **state)
{
	(void)state;
	for (int type = 0; type < MESSAGE_TYPE_COUNT; type++) {
		const char *name = message_type_name((enum message_type)type);
		char *path = golden_path("tests/unit/golden/wire", name, ".hex");
		char *corpus = golden_path("tests/fuzz/corpus/message", name, "");
		struct message message, got;
		struct frame frame, golden;

		full_random(&message, (enum message_type)type, GOLDEN_SEED);
		frame = encoded(&message);
		if (getenv("WEFT_GOLDEN_WRITE"))
			golden_write(path, corpus, frame);
		golden = golden_read(path);
		assert_int_equal(message_decode(&got, golden.bytes, golden.length, NULL), 0);
		assert_null(messages_differ(&message, &got));
		assert_int_equal(frame.length, golden.length);
		assert_memory_equal(frame.bytes, golden.bytes, frame.length);
		memory_free(frame.bytes);
		memory_free(golden.bytes);
		memory_free(path);
		memory_free(corpus);
		message_fini(&message);
		message_fini(&got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_type__comes_back_equal_and_encodes_to_the_same_bytes),
		cmocka_unit_test(test_copy__is_equal_and_owns_its_own_memory),
		cmocka_unit_test(test_every_allocation__can_fail_without_leak),
		cmocka_unit_test(test_truncation__at_every_length_is_a_named_error),
		cmocka_unit_test(test_bit_flip__anywhere_is_a_named_error_or_another_valid_message),
		cmocka_unit_test(test_layout_body__does_not_survive_any_bit_flip),
		cmocka_unit_test(test_zeroed_message__is_empty_and_null_strings_go_as_empty),
		cmocka_unit_test(test_big_layout__goes_there_and_back_in_well_under_a_second),
		cmocka_unit_test(test_plan__of_a_million_long_rows_passes),
		cmocka_unit_test(test_text__is_one_line_with_the_facts),
		cmocka_unit_test(test_golden__bytes_of_every_type_are_what_they_were),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
