/* SPDX-License-Identifier: Apache-2.0
 *
 * test_message_refused.c -- messages put together by hand, each wrong in one way, and what the
 * decoder says about them; and what the encoder does not send.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/memory.h"
#include "wire/message.h"
#include "wire/writer.h"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

struct frame {
	unsigned char *bytes;
	size_t length;
};

static struct frame encoded(const struct message *message)
{
	struct frame frame;
	struct error error = {0};

	if (message_encode(message, &frame.bytes, &frame.length, &error))
		fail_msg("%s", error.text);
	return frame;
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

static void key_text(struct writer *writer, const char *key, const char *value)
{
	writer_text(writer, key, LIMIT_KEY_BYTES);
	writer_text(writer, value, LIMIT_MESSAGE_BYTES);
}

static void key_uint(struct writer *writer, const char *key, uint64_t value)
{
	writer_text(writer, key, LIMIT_KEY_BYTES);
	writer_uint(writer, value, UINT64_MAX);
}

static void open_message(struct writer *writer, const char *type, size_t pairs)
{
	writer_open(writer, NULL);
	writer_map(writer, 5 + pairs);
	key_text(writer, "type", type);
	key_uint(writer, "wire", WIRE_VERSION);
	key_text(writer, "job", "demo");
	key_uint(writer, "epoch", 1);
	key_uint(writer, "from", 2);
}

/* Decodes what was written, which must fail with that code and those words. */
static void refuse(struct writer *writer, enum error_code code, const char *words)
{
	struct message out;
	struct error error;
	int rc = decode_exact(&out, writer->bytes, writer->length, &error);

	memory_free(writer->bytes);
	if (rc == 0)
		fail_msg("decoded, but wanted: %s", words);
	if (!strstr(error.text, words))
		fail_msg("wanted \"%s\", got \"%s\"", words, error.text);
	assert_int_equal(rc, -(int)code);
	assert_int_equal(out.type, 0);
	assert_null(out.u.hello.host);
}

static void accept(struct writer *writer)
{
	struct message out;
	struct error error;

	if (decode_exact(&out, writer->bytes, writer->length, &error))
		fail_msg("%s", error.text);
	memory_free(writer->bytes);
	message_fini(&out);
}

static void test_other_wire_version__is_named_whatever_else_the_message_holds(void **state)
{
	struct writer writer;
	struct message out;
	struct error error;
	char both[32];

	(void)state;
	writer_open(&writer, NULL);
	writer_map(&writer, 3);
	key_text(&writer, "type", "teleport");
	key_uint(&writer, "wire", WIRE_VERSION + 1);
	key_text(&writer, "nobody knows", "what this is");
	assert_int_equal(decode_exact(&out, writer.bytes, writer.length, &error),
			 -ERROR_WIRE_VERSION);
	snprintf(both, sizeof(both), "version %d", WIRE_VERSION + 1);
	assert_non_null(strstr(error.text, both));
	snprintf(both, sizeof(both), "version %d", WIRE_VERSION);
	assert_non_null(strstr(error.text, both));
	assert_non_null(strstr(error.text, "same release"));
	memory_free(writer.bytes);
}

static void test_opening__must_be_type_then_wire(void **state)
{
	struct writer writer;

	(void)state;
	writer_open(&writer, NULL);
	writer_map(&writer, 2);
	key_uint(&writer, "wire", WIRE_VERSION);
	key_text(&writer, "type", "go");
	refuse(&writer, ERROR_MESSAGE, "message at byte 1: key \"type\" must stand here");
	open_message(&writer, "teleport", 0);
	refuse(&writer, ERROR_MESSAGE, "message at byte 6: unknown message type");
	writer_open(&writer, NULL);
	writer_map(&writer, 1);
	key_text(&writer, "type", "go");
	refuse(&writer, ERROR_MESSAGE, "\"type\" and \"wire\" are needed");
	writer_open(&writer, NULL);
	writer_array(&writer, 0, 0);
	refuse(&writer, ERROR_MESSAGE, "message at byte 0: an array where a map is needed");
}

static void test_keys__unknown_duplicate_and_missing_are_named(void **state)
{
	struct writer writer;

	(void)state;
	open_message(&writer, "go", 1);
	key_uint(&writer, "attempts", 1);
	refuse(&writer, ERROR_MESSAGE, "go message at byte 37: unknown key \"attempts\"");
	open_message(&writer, "go", 2);
	key_uint(&writer, "attempt", 1);
	key_uint(&writer, "attempt", 1);
	refuse(&writer, ERROR_MESSAGE, "key \"attempt\" stands here a second time");
	open_message(&writer, "go", 2);
	key_uint(&writer, "attempt", 1);
	key_uint(&writer, "wire", 1);
	refuse(&writer, ERROR_MESSAGE, "unknown key \"wire\"");
	open_message(&writer, "go", 2);
	key_uint(&writer, "attempt", 1);
	key_text(&writer, "job", "demo");
	refuse(&writer, ERROR_MESSAGE, "key \"job\" stands here a second time");
	open_message(&writer, "heartbeat", 1);
	key_uint(&writer, "sequence", 1);
	refuse(&writer, ERROR_MESSAGE, "key \"version\" is missing");
	open_message(&writer, "go", 1);
	key_uint(&writer, "a\x01\"b", 1);
	refuse(&writer, ERROR_MESSAGE, "unknown key \"a??b\"");
	open_message(&writer, "go", 1);
	writer_uint(&writer, 9, 9);
	writer_uint(&writer, 9, 9);
	refuse(&writer, ERROR_MESSAGE, "an integer where a string is needed");
}

static void test_keys__may_come_in_any_order(void **state)
{
	struct writer writer;

	(void)state;
	writer_open(&writer, NULL);
	writer_map(&writer, 6);
	key_text(&writer, "type", "go");
	key_uint(&writer, "wire", WIRE_VERSION);
	key_uint(&writer, "attempt", 3);
	key_uint(&writer, "from", 2);
	key_uint(&writer, "epoch", 1);
	key_text(&writer, "job", "demo");
	accept(&writer);
}

static void test_trainer_endpoints__leave_out_what_only_inference_ranks_have(void **state)
{
	struct writer writer;

	(void)state;
	open_message(&writer, "endpoints", 2);
	key_uint(&writer, "attempt", 1);
	writer_text(&writer, "records", 7);
	writer_array(&writer, 0, 0);
	accept(&writer);
}

static void test_values__of_another_kind_or_range_are_named(void **state)
{
	struct writer writer;

	(void)state;
	open_message(&writer, "go", 1);
	key_text(&writer, "attempt", "one");
	refuse(&writer, ERROR_MESSAGE,
	       "go message, attempt at byte 45: a string where an integer is needed");
	open_message(&writer, "go", 1);
	key_uint(&writer, "attempt", UINT64_C(1) << 32);
	refuse(&writer, ERROR_MESSAGE, "4294967296, and at most 4294967295 is allowed");
	open_message(&writer, "leave", 1);
	key_uint(&writer, "done", 1);
	refuse(&writer, ERROR_MESSAGE,
	       "leave message, done at byte 45: an integer where a boolean");
	open_message(&writer, "leave", 1);
	writer_text(&writer, "done", 4);
	for (int i = 0; i < 100; i++) /* a deep nest costs nothing: nobody walks into it */
		writer_array(&writer, 1, 1);
	writer_bool(&writer, true);
	refuse(&writer, ERROR_MESSAGE, "an array where a boolean is needed");
}

static void test_hello__needs_a_rank_and_an_incarnation(void **state)
{
	struct message message = {.type = MESSAGE_HELLO};
	struct frame frame;
	struct error error;
	struct writer writer;

	(void)state;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "cannot send hello: incarnation is 0"));
	message.u.hello.incarnation = 1;
	message.u.hello.rank = LIMIT_RANKS;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_LIMIT);
	assert_non_null(strstr(error.text, "hello message, rank: 65536, and at most 65535"));
	open_message(&writer, "hello", 1);
	key_uint(&writer, "rank", LIMIT_RANKS);
	refuse(&writer, ERROR_MESSAGE, "rank at byte 45: 65536, and at most 65535 is allowed");
	open_message(&writer, "hello", 1);
	key_uint(&writer, "role", 2);
	refuse(&writer, ERROR_MESSAGE, "role at byte 45: 2, and at most 1 is allowed");
}

static void test_declare__names_its_nics_once_each(void **state)
{
	struct nic_report nics[LIMIT_NICS + 1] = {{(char *)"a", 1, 2, DISTANCE_SYS},
						  {(char *)"a", 2, 3, DISTANCE_PIX}};
	struct message message = {.type = MESSAGE_DECLARE,
				  .u.declare = {.nics = nics, .nic_count = 2}};
	struct frame frame;
	struct error error;

	(void)state;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "nics[0] and nics[1] are both 'a'"));
	nics[1].name = NULL;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "nics[1] has no name"));
	nics[1].name = (char *)"b";
	nics[1].bytes_per_second = NIC_RATE_MAX + 1;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_LIMIT);
	assert_non_null(strstr(error.text, "nics[1].bytes_per_second"));
	message.u.declare.nic_count = LIMIT_NICS + 1;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_LIMIT);
	assert_non_null(strstr(error.text, "nics"));
}

static void test_welcome__needs_a_controller(void **state)
{
	struct writer writer;

	(void)state;
	open_message(&writer, "welcome", 5);
	key_uint(&writer, "heartbeat_ms", 1);
	key_uint(&writer, "lost_ms", 1);
	key_uint(&writer, "controller", 0);
	writer_text(&writer, "runs", LIMIT_KEY_BYTES);
	writer_bool(&writer, false);
	key_uint(&writer, "orphan_ms", 0);
	refuse(&writer, ERROR_MESSAGE, "welcome message: controller is 0");
}

static void raw(struct writer *writer, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) /* one fixed number is one byte */
		if ((unsigned char)bytes[i] <= 0x7f)
			writer_uint(writer, (unsigned char)bytes[i], 0x7f);
		else {
			writer_uint(writer, 0, 0);
			writer->bytes[writer->length - 1] = (unsigned char)bytes[i];
		}
}

static void test_strings__with_nul_or_broken_utf8_or_too_long_are_refused(void **state)
{
	struct writer writer;
	char job[LIMIT_JOB_BYTES + 1];

	(void)state;
	writer_open(&writer, NULL);
	writer_map(&writer, 3);
	key_text(&writer, "type", "go");
	key_uint(&writer, "wire", WIRE_VERSION);
	writer_text(&writer, "job", 3);
	raw(&writer,
	    "\xa3"
	    "a\0b",
	    4);
	refuse(&writer, ERROR_MESSAGE, "job at byte 19: byte 0x00 at 1 of the string is a NUL");
	open_message(&writer, "refuse", 1);
	writer_text(&writer, "text", 4);
	raw(&writer, "\xa2\xc0\x80", 3); /* an overlong NUL */
	refuse(&writer, ERROR_MESSAGE, "byte 0xc0 at 0 of the string is not UTF-8");
	memset(job, 'j', sizeof(job));
	job[LIMIT_JOB_BYTES] = '\0';
	writer_open(&writer, NULL);
	writer_map(&writer, 3);
	key_text(&writer, "type", "go");
	key_uint(&writer, "wire", WIRE_VERSION);
	key_text(&writer, "job", job);
	refuse(&writer, ERROR_MESSAGE, "128 bytes long, and at most 127 are allowed");
}

static void test_counts__are_checked_against_limit_and_bytes_left(void **state)
{
	struct writer writer;

	(void)state;
	open_message(&writer, "want", 1);
	writer_text(&writer, "digests", 7);
	writer_array(&writer, LIMIT_DIGESTS + 1, UINT64_MAX);
	refuse(&writer, ERROR_MESSAGE, "digests at byte 47: 65537 items, and at most 65536");
	open_message(&writer, "want", 1);
	writer_text(&writer, "digests", 7);
	writer_array(&writer, 60000, UINT64_MAX);
	refuse(&writer, ERROR_MESSAGE, "60000 items of at least 18 bytes are claimed with 0 bytes");
	open_message(&writer, "plan", 1);
	writer_text(&writer, "rows", 4);
	writer_array(&writer, UINT32_MAX, UINT64_MAX);
	refuse(&writer, ERROR_MESSAGE, "4294967295 items, and at most 2000000 are allowed");
	writer_open(&writer, NULL);
	writer_map(&writer, UINT32_MAX);
	refuse(&writer, ERROR_MESSAGE, "4294967295 items of at least 2 bytes are claimed");
}

static void test_frames__too_long_or_with_bytes_behind_are_refused(void **state)
{
	struct message out;
	struct error error = {0};
	struct writer writer;

	(void)state;
	assert_int_equal(
		message_decode(&out, (const unsigned char *)"", LIMIT_MESSAGE_BYTES + 1u, &error),
		-ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "67108865 bytes, and at most 67108864"));
	open_message(&writer, "go", 1);
	key_uint(&writer, "attempt", 1);
	writer_uint(&writer, 0, 0);
	refuse(&writer, ERROR_MESSAGE, "go message at byte 46: 1 bytes follow the end");
}

static void open_layout(struct writer *writer, size_t tensors)
{
	open_message(writer, "layout", 2);
	writer_text(writer, "digest", 6);
	writer_bytes(writer, "0123456789abcdef", 16, 16);
	writer_text(writer, "layout", 6);
	writer_array(writer, 4, 4);
	writer_array(writer, tensors, UINT64_MAX);
}

static void named(struct writer *writer, const char *name, const char *dtype, uint64_t rows)
{
	writer_array(writer, 3, 3);
	writer_text(writer, name, LIMIT_MESSAGE_BYTES);
	writer_text(writer, dtype, LIMIT_MESSAGE_BYTES);
	writer_array(writer, 1, 1);
	writer_uint(writer, rows, UINT64_MAX);
}

static void piece(struct writer *writer, uint64_t lo, uint64_t hi)
{
	writer_array(writer, 5, 5);
	writer_uint(writer, 0, 0);
	writer_uint(writer, 0, 0);
	writer_array(writer, 2, 2);
	writer_uint(writer, lo, UINT64_MAX);
	writer_uint(writer, hi, UINT64_MAX);
	writer_uint(writer, 2 * lo, UINT64_MAX);
	writer_uint(writer, 2 * (hi - lo), UINT64_MAX);
}

static void test_layouts__pass_every_check_of_a_declared_layout(void **state)
{
	struct writer writer;

	(void)state;
	open_layout(&writer, 2);
	named(&writer, "w", "BF16", 4);
	named(&writer, "w", "BF16", 4);
	refuse(&writer, ERROR_MESSAGE, "layout.tensors[1] at byte");
	open_layout(&writer, 2);
	named(&writer, "w", "BF16", 4);
	named(&writer, "w", "BF16", 5);
	refuse(&writer, ERROR_CONFLICT, "layout.tensors[1] at byte");
	open_layout(&writer, 1);
	named(&writer, "w", "BF17", 4);
	refuse(&writer, ERROR_MESSAGE, "layout.tensors[0].dtype at byte 78: this is no dtype");
	open_layout(&writer, 1);
	named(&writer, "w", "BF16", 4);
	writer_array(&writer, 1, 1);
	named(&writer, "p", "BF16", 4);
	writer_array(&writer, 1, 1);
	piece(&writer, 2, 5);
	refuse(&writer, ERROR_BOUNDS, "layout.pieces[0] at byte");
	open_layout(&writer, 1);
	named(&writer, "w", "BF16", 4);
	writer_array(&writer, 1, 1);
	named(&writer, "p", "BF16", 4);
	writer_array(&writer, 1, 1);
	piece(&writer, 3, 3);
	refuse(&writer, ERROR_MESSAGE,
	       "layout.pieces[0].src at byte 100: dimension 0 of the box"
	       " is 3..3, which is empty");
	open_layout(&writer, 1);
	named(&writer, "w", "BF16", 4);
	writer_array(&writer, 1, 1);
	named(&writer, "p", "BF16", 4);
	writer_array(&writer, 1, 1);
	piece(&writer, 0, 3);
	writer_array(&writer, 0, 0);
	refuse(&writer, ERROR_UNSOURCED, "byte 6 of parameter p");
	open_layout(&writer, 1);
	named(&writer, "w", "BF16", 4);
	writer_array(&writer, 1, 1);
	named(&writer, "p", "BF16", 4);
	writer_array(&writer, 1, 1);
	piece(&writer, 0, 4);
	writer_array(&writer, 0, 0);
	refuse(&writer, ERROR_MESSAGE,
	       "layout message: digest is 30313233343536373839616263646566");
}

/* The transformed half of a piece, in the fields where a copy ends. */
static void transformed_piece(struct writer *writer, size_t fields, uint32_t part, uint32_t to_rows)
{
	const uint32_t transform[] = {part, 0, 0, to_rows, 1};

	open_layout(writer, 1);
	named(writer, "w", "BF16", 4);
	writer_array(writer, 1, 1);
	named(writer, "p", "F8_E4M3", 4);
	writer_array(writer, 1, 1);
	writer_array(writer, fields, 9);
	writer_uint(writer, 0, 0);
	writer_uint(writer, 0, 0);
	writer_array(writer, 2, 2);
	writer_uint(writer, 0, 0);
	writer_uint(writer, 4, 4);
	writer_uint(writer, 0, 0);
	writer_uint(writer, 4, 4);
	if (fields == 5)
		return;
	writer_array(writer, 5, 5);
	for (size_t i = 0; i < 5; i++)
		writer_uint(writer, transform[i], UINT64_MAX);
	if (fields > 6)
		writer_uint(writer, 0, 0);
}

static void test_layouts__pass_every_check_of_what_is_made(void **state)
{
	struct writer writer;

	(void)state;
	transformed_piece(&writer, 5, 0, 0);
	refuse(&writer, ERROR_UNSUPPORTED, "layout.pieces[0] at byte");
	transformed_piece(&writer, 6, 0, 1);
	refuse(&writer, ERROR_MESSAGE, "6 fields where 5 are needed");
	transformed_piece(&writer, 7, TRANSFORM_PART_COUNT, 1);
	refuse(&writer, ERROR_MESSAGE, "layout.pieces[0].transform.part at byte");
	transformed_piece(&writer, 7, 0, TRANSFORM_BLOCK_MAX + 1);
	refuse(&writer, ERROR_MESSAGE, "layout.pieces[0].transform.to_rows at byte");
	transformed_piece(&writer, 7, 0, 1); /* no matrix */
	refuse(&writer, ERROR_UNSUPPORTED, "blocks need a matrix");
}

static void test_plan__rows_must_fit_the_peers_beside_them(void **state)
{
	struct plan_peer peer = {.pieces = 2};
	struct plan_row row = {.ordinal = 1, .src = {1, {0}, {1}}, .bytes = 1};
	struct message message = {
		.type = MESSAGE_PLAN,
		.u.plan = {.peers = &peer, .peer_count = 1, .rows = &row, .row_count = 1}};
	struct frame frame = encoded(&message);
	struct error error;

	(void)state;
	memory_free(frame.bytes);
	row.peer = 1;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "rows[0].peer is 1, and there are 1 peers"));
	row.peer = 0;
	row.ordinal = 2;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "rows[0].ordinal is 2, and peers[0].pieces is 2"));
	row.ordinal = 0;
	row.offset = UINT64_MAX;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "which is no range"));
	row.offset = 0;
	row.to = DTYPE_F8_E4M3;
	row.transform = (struct transform){.to_rows = 128};
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(
		strstr(error.text, "rows[0].transform has part 0 and blocks of 0x0 to 128x0"));
	row.transform = (struct transform){.part = TRANSFORM_SCALES};
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "rows[0].transform has part 1"));
	row.transform = (struct transform){.to_rows = TRANSFORM_BLOCK_MAX + 1, .to_columns = 1};
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_LIMIT);
	row.transform = (struct transform){.to_rows = 1, .to_columns = 1};
	row.scales = 1;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "rows[0].scales is 1, and transform.from_rows is 0"));
	row.transform = (struct transform){0};
	row.to = DTYPE_NONE;
	row.scales = 0;
	row.path = PATH_COUNT;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_LIMIT);
	assert_non_null(strstr(error.text, "plan message, rows[0].path: 4"));
}

static void test_places__are_whole_copies(void **state)
{
	struct param_place places[3] = {{0}};
	struct message message = {.type = MESSAGE_ENDPOINTS,
				  .u.endpoints = {.copies = 2, .places = places, .place_count = 3}};
	struct peer_endpoints peer = {.places = places, .place_count = 1};
	struct frame frame;
	struct error error;

	(void)state;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "places has 3 items for copies 2"));
	message = (struct message){.type = MESSAGE_PEERS, .u.peers = {1, &peer, 1}};
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "peers[0]: places has 1 items for copies 0"));
}

static void test_encoder__refuses_what_the_other_side_would(void **state)
{
	char name[LIMIT_NAME_BYTES + 1], broken[] = "n\xff";
	struct message message = {.type = MESSAGE_HELLO, .u.hello = {.incarnation = 1}};
	struct frame frame;
	struct error error;

	(void)state;
	memset(name, 'n', sizeof(name));
	name[LIMIT_NAME_BYTES] = '\0';
	message.u.hello.host = name;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_LIMIT);
	assert_non_null(strstr(error.text, "host: 512 bytes long, and at most 511 are allowed"));
	message.u.hello.host = broken;
	assert_int_equal(message_encode(&message, &frame.bytes, &frame.length, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "byte 0xff at 1 of the string is not UTF-8"));
	assert_null(frame.bytes);
	name[LIMIT_NAME_BYTES - 1] = '\0';
	message.u.hello.host = name;
	frame = encoded(&message);
	memory_free(frame.bytes);
}

static void test_error_texts__are_cut_and_cleaned_so_that_a_failure_is_heard(void **state)
{
	char words[3000];
	struct message out,
		message = {.type = MESSAGE_FAILURE, .u.failure = {.code = 111, .text = words}};
	struct frame frame;

	(void)state;
	memset(words, 'w', sizeof(words));
	words[3] = '\xff';
	memcpy(words + LIMIT_TEXT_BYTES - 3, "→", 3); /* does not fit whole */
	words[sizeof(words) - 1] = '\0';
	frame = encoded(&message);
	assert_int_equal(message_decode(&out, frame.bytes, frame.length, NULL), 0);
	assert_int_equal(strlen(out.u.failure.text), LIMIT_TEXT_BYTES - 3);
	assert_memory_equal(out.u.failure.text, "www?www", 7);
	message_fini(&out);
	memory_free(frame.bytes);
	strcpy(words, "\xe2\x86");
	frame = encoded(&message);
	assert_int_equal(message_decode(&out, frame.bytes, frame.length, NULL), 0);
	assert_string_equal(out.u.failure.text, "??");
	message_fini(&out);
	memory_free(frame.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_wire_version__is_named_whatever_else_the_message_holds),
		cmocka_unit_test(test_opening__must_be_type_then_wire),
		cmocka_unit_test(test_keys__unknown_duplicate_and_missing_are_named),
		cmocka_unit_test(test_keys__may_come_in_any_order),
		cmocka_unit_test(test_trainer_endpoints__leave_out_what_only_inference_ranks_have),
		cmocka_unit_test(test_values__of_another_kind_or_range_are_named),
		cmocka_unit_test(test_hello__needs_a_rank_and_an_incarnation),
		cmocka_unit_test(test_declare__names_its_nics_once_each),
		cmocka_unit_test(test_welcome__needs_a_controller),
		cmocka_unit_test(test_strings__with_nul_or_broken_utf8_or_too_long_are_refused),
		cmocka_unit_test(test_counts__are_checked_against_limit_and_bytes_left),
		cmocka_unit_test(test_frames__too_long_or_with_bytes_behind_are_refused),
		cmocka_unit_test(test_layouts__pass_every_check_of_a_declared_layout),
		cmocka_unit_test(test_layouts__pass_every_check_of_what_is_made),
		cmocka_unit_test(test_plan__rows_must_fit_the_peers_beside_them),
		cmocka_unit_test(test_places__are_whole_copies),
		cmocka_unit_test(test_encoder__refuses_what_the_other_side_would),
		cmocka_unit_test(test_error_texts__are_cut_and_cleaned_so_that_a_failure_is_heard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
