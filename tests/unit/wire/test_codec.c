/* SPDX-License-Identifier: Apache-2.0
 *
 * test_codec.c -- the parts under the messages: reader, writer, UTF-8, paths, and the table
 * codec on a record made for the purpose.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/memory.h"
#include "wire/codec.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>

#define OPEN(reader, error, bytes) \
	reader_open(&(reader), (const unsigned char *)(bytes), sizeof(bytes) - 1, &(error))

static void test_reader__takes_every_form_of_an_integer(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
		uint64_t value;
	} rows[] = {
		{"\x00", 1, 0},
		{"\x7f", 1, 127},
		{"\xcc\xff", 2, 255},
		{"\xcd\x01\x00", 3, 256},
		{"\xce\xff\xff\xff\xff", 5, UINT32_MAX},
		{"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, UINT64_MAX},
		{"\xcf\0\0\0\0\0\0\0\x05", 9, 5}, /* longer than needed is the sender's choice */
		{"\xd0\x7f", 2, 127},
		{"\xd1\x7f\xff", 3, 32767},
		{"\xd2\x7f\xff\xff\xff", 5, INT32_MAX},
		{"\xd3\x7f\xff\xff\xff\xff\xff\xff\xff", 9, INT64_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct reader reader;
		struct error error = {0};

		reader_open(&reader, (const unsigned char *)rows[i].bytes, rows[i].length, &error);
		assert_true(reader_uint(&reader, UINT64_MAX) == rows[i].value);
		reader_end(&reader);
		assert_true(reader_ok(&reader));
		for (size_t n = 0; n < rows[i].length; n++) {
			reader_open(&reader, (const unsigned char *)rows[i].bytes, n, &error);
			assert_true(reader_uint(&reader, UINT64_MAX) == 0);
			assert_int_equal(reader.failed, -ERROR_MESSAGE);
			assert_non_null(strstr(error.text, "cut off"));
		}
	}
}

static void test_reader__names_what_it_found_instead_of_a_number(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
		const char *words;
	} rows[] = {
		{"\xff", 1, "-1 where a number of 0 or more"},
		{"\xd0\x80", 2, "-128 where a number of 0 or more"},
		{"\xd1\x80\x00", 3, "-32768 where"},
		{"\xd2\x80\x00\x00\x00", 5, "-2147483648 where"},
		{"\xd3\x80\0\0\0\0\0\0\0", 9, "-9223372036854775808 where"},
		{"\xc0", 1, "nil where an integer"},
		{"\xc1", 1, "the never-used byte 0xc1 where an integer"},
		{"\xc2", 1, "a boolean where"},
		{"\xc4\x00", 2, "bytes where"},
		{"\xca\0\0\0\0", 5, "a float where"},
		{"\xc7\x00\x01", 3, "an extension where"},
		{"\xd4\x01\x00", 3, "an extension where"},
		{"\xa0", 1, "a string where"},
		{"\xd9\x00", 2, "a string where"},
		{"\x90", 1, "an array where"},
		{"\x80", 1, "a map where"},
		{"\xdf\0\0\0\0", 5, "a map where"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct reader reader;
		struct error error = {0};

		reader_open(&reader, (const unsigned char *)rows[i].bytes, rows[i].length, &error);
		reader_uint(&reader, UINT64_MAX);
		assert_int_equal(reader.failed, -ERROR_MESSAGE);
		if (!strstr(error.text, rows[i].words))
			fail_msg("wanted \"%s\", got \"%s\"", rows[i].words, error.text);
	}
}

static void test_reader__keeps_its_first_error_and_reads_nothing_more(void **state)
{
	struct reader reader;
	struct error error = {0};
	const unsigned char *bytes;
	const char *text;

	(void)state;
	OPEN(reader, error, "\xc0\x05\xa1y\xc4\x01z\xc3\x91");
	assert_true(reader_uint(&reader, 9) == 0);
	assert_true(reader_uint(&reader, 9) == 0);
	assert_int_equal(reader_text(&reader, &text, 9), 0);
	assert_string_equal(text, "");
	assert_int_equal(reader_bytes(&reader, &bytes, 9), 0);
	assert_null(bytes);
	assert_false(reader_bool(&reader));
	assert_int_equal(reader_array(&reader, 9, 1), 0);
	assert_int_equal(reader_map(&reader), 0);
	reader_end(&reader);
	assert_string_equal(error.text, "message at byte 0: nil where an integer is needed");
}

static void test_reader__hands_out_views_of_strings_and_bytes(void **state)
{
	struct reader reader;
	struct error error = {0};
	const unsigned char *bytes;
	const char *text;

	(void)state;
	OPEN(reader, error,
	     "\xa2hi\xd9\x02ho\xda\x00\x01x\xdb\x00\x00\x00\x01y\xc4\x02\x00\x01"
	     "\xc5\x00\x01Z\xc6\x00\x00\x00\x00\xc3\xc2");
	assert_int_equal(reader_text(&reader, &text, 2), 2);
	assert_memory_equal(text, "hi", 2);
	assert_int_equal(reader_text(&reader, &text, 2), 2);
	assert_memory_equal(text, "ho", 2);
	assert_int_equal(reader_text(&reader, &text, 2), 1);
	assert_int_equal(reader_text(&reader, &text, 2), 1);
	assert_memory_equal(text, "y", 1);
	assert_int_equal(reader_bytes(&reader, &bytes, 2), 2);
	assert_memory_equal(bytes, "\0\1", 2);
	assert_int_equal(reader_bytes(&reader, &bytes, 2), 1);
	assert_int_equal(reader_bytes(&reader, &bytes, 2), 0);
	assert_true(reader_bool(&reader));
	assert_false(reader_bool(&reader));
	reader_end(&reader);
	assert_true(reader_ok(&reader));
}

static void test_reader__checks_a_length_before_it_believes_it(void **state)
{
	struct reader reader;
	struct error error = {0};
	const char *text;

	(void)state;
	OPEN(reader, error, "\xdb\xff\xff\xff\xff");
	assert_int_equal(reader_text(&reader, &text, SIZE_MAX), 0);
	assert_non_null(strstr(error.text, "cut off: 4294967295 more bytes are needed and 0"));
	OPEN(reader, error,
	     "\xa4"
	     "abcd");
	assert_int_equal(reader_text(&reader, &text, 3), 0);
	assert_non_null(strstr(error.text, "4 bytes long, and at most 3 are allowed"));
	OPEN(reader, error, "\xdd\xff\xff\xff\xff\x01\x02\x03");
	assert_int_equal(reader_array(&reader, UINT64_MAX, 1), 0);
	assert_non_null(strstr(error.text, "4294967295 items of at least 1 bytes are claimed with"
					   " 3 bytes left"));
	OPEN(reader, error, "\x93\x01\x02\x03");
	assert_int_equal(reader_array(&reader, 2, 1), 0);
	assert_non_null(strstr(error.text, "3 items, and at most 2 are allowed"));
	OPEN(reader, error, "\x93\x01\x02\x03");
	assert_int_equal(reader_array(&reader, 3, 1), 3);
}

static void test_utf8__stops_at_the_first_byte_that_is_not_well_formed(void **state)
{
	static const struct {
		const char *text;
		size_t length, good;
	} rows[] = {
		{"", 0, 0},
		{"plain", 5, 5},
		{"\xc3\xa9\xe2\x86\x92\xf0\x9d\x84\x9e", 9, 9},
		{"\xf4\x8f\xbf\xbf", 4, 4}, /* U+10FFFF */
		{"\xf4\x90\x80\x80", 4, 0}, /* past it */
		{"a\0b", 3, 1},
		{"\x80", 1, 0},
		{"\xc0\xaf", 2, 0}, /* overlong */
		{"\xc1\xbf", 2, 0},
		{"\xe0\x9f\xbf", 3, 0},
		{"\xf0\x8f\xbf\xbf", 4, 0},
		{"\xed\x9f\xbf", 3, 3},
		{"\xed\xa0\x80", 3, 0}, /* a surrogate */
		{"\xee\x80\x80", 3, 3},
		{"x\xe2\x86", 3, 1}, /* cut off */
		{"x\xe2\x86z", 4, 1},
		{"\xff", 1, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(utf8_prefix(rows[i].text, rows[i].length), rows[i].good);
}

static void test_path__names_keys_and_places_and_never_overruns(void **state)
{
	struct path path = {0};
	char out[PATH_TEXT_BYTES], name[200];

	(void)state;
	assert_string_equal(path_text(&path, out), "message");
	path.message = "plan";
	path_push(&path, "rows");
	path_index(&path, 17);
	path_push(&path, "src");
	assert_string_equal(path_text(&path, out), "plan message, rows[17].src");
	path_pop(&path);
	assert_string_equal(path_text(&path, out), "plan message, rows[17]");
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	path_push(&path, name);
	path_push(&path, name);
	path_push(&path, name);
	assert_int_equal(strlen(path_text(&path, out)), PATH_TEXT_BYTES - 1);
}

static void test_writer__takes_the_shortest_form(void **state)
{
	static const unsigned char wanted[] =
		"\x7f\xcc\x80\xcd\x01\x00\xce\x00\x01\x00\x00\xcf\0\0\0\1\0\0\0\0\xa1x\xc4\x01y"
		"\x91\x80\xc3\xc2\xa0";
	struct writer writer;

	(void)state;
	writer_open(&writer, NULL);
	writer_uint(&writer, 127, UINT64_MAX);
	writer_uint(&writer, 128, UINT64_MAX);
	writer_uint(&writer, 256, UINT64_MAX);
	writer_uint(&writer, 65536, UINT64_MAX);
	writer_uint(&writer, UINT64_C(1) << 32, UINT64_MAX);
	writer_text(&writer, "x", 1);
	writer_bytes(&writer, "y", 1, 1);
	writer_array(&writer, 1, 1);
	writer_map(&writer, 0);
	writer_bool(&writer, true);
	writer_bool(&writer, false);
	writer_text(&writer, NULL, 0);
	assert_true(writer_ok(&writer));
	assert_int_equal(writer.length, sizeof(wanted) - 1);
	assert_memory_equal(writer.bytes, wanted, writer.length);
	memory_free(writer.bytes);
}

static void test_writer__refuses_a_message_past_the_limit(void **state)
{
	struct writer writer;
	struct error error = {0};
	unsigned char *megabyte = memory_zalloc(1, 1 << 20);

	(void)state;
	assert_non_null(megabyte);
	writer_open(&writer, &error);
	for (int i = 0; i < 256; i++)
		writer_bytes(&writer, megabyte, 1 << 20, 1 << 20);
	assert_int_equal(writer.failed, -ERROR_LIMIT);
	assert_non_null(strstr(error.text, "a message holds at most 67108864"));
	assert_true(writer.length <= LIMIT_MESSAGE_BYTES);
	memory_free(writer.bytes);
	memory_free(megabyte);
}

/* A record with one member of every kind that nothing else here covers twice. */
struct leaf {
	char *name;
	unsigned char *bytes;
	size_t length;
};
struct tree {
	bool flag;
	uint32_t small, absent;
	uint64_t large;
	char label[8];
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	struct leaf leaf;
	struct leaf *leaves;
	size_t leaf_count;
};

static const struct codec_field leaf_fields[] = {
	FIELD_TEXT(struct leaf, name, 6),
	FIELD_BYTES(struct leaf, bytes, length, 4),
};
static const struct codec_record leaf_record = {CODEC_RECORD_OF(struct leaf, leaf_fields)};
static const struct codec_field tree_fields[] = {
	FIELD_BOOL(struct tree, flag),
	FIELD_U32(struct tree, small, 10),
	FIELD_OPTIONAL_U32(struct tree, absent, 10),
	FIELD_U64(struct tree, large),
	FIELD_LABEL(struct tree, label),
	FIELD_DTYPE(struct tree, dtype),
	FIELD_SHAPE(struct tree, shape, dims),
	FIELD_RECORD(struct tree, leaf, struct leaf, leaf_record),
	FIELD_LIST(struct tree, leaves, leaf_count, struct leaf, leaf_record, 3),
};
static const struct codec_record tree_record = {CODEC_RECORD_OF(struct tree, tree_fields)};

static struct leaf leaf(void)
{
	struct leaf out = {memory_string("l"), memory_zalloc(2, 1), 2};

	assert_non_null(out.name);
	assert_non_null(out.bytes);
	return out;
}

static struct tree tree(void)
{
	struct tree out = {.flag = true,
			   .small = 10,
			   .large = UINT64_MAX,
			   .label = "7 bytes",
			   .dtype = DTYPE_F8_E4M3,
			   .dims = 2,
			   .shape = {3, 300},
			   .leaf = leaf(),
			   .leaves = memory_zalloc(3, sizeof(struct leaf)),
			   .leaf_count = 3};

	assert_non_null(out.leaves);
	for (size_t i = 0; i < out.leaf_count; i++)
		out.leaves[i] = leaf();
	return out;
}

static void same_tree(const struct tree *a, const struct tree *b)
{
	assert_true(a->flag == b->flag && a->small == b->small && a->absent == b->absent);
	assert_true(a->large == b->large && a->dtype == b->dtype && a->dims == b->dims);
	assert_string_equal(a->label, b->label);
	assert_memory_equal(a->shape, b->shape, sizeof(a->shape));
	assert_int_equal(a->leaf_count, b->leaf_count);
	assert_string_equal(a->leaf.name, b->leaf.name);
	for (size_t i = 0; i < a->leaf_count; i++) {
		assert_string_equal(a->leaves[i].name, b->leaves[i].name);
		assert_int_equal(a->leaves[i].length, b->leaves[i].length);
		assert_memory_equal(a->leaves[i].bytes, b->leaves[i].bytes, a->leaves[i].length);
	}
}

static void test_codec__records_come_back_as_array_and_as_map(void **state)
{
	struct tree from = tree(), to = {0}, mapped = {0}, copy = {0};
	const struct codec_part part = {&tree_record, &mapped};
	struct error error = {0};
	struct writer writer;
	struct reader reader;

	(void)state;
	writer_open(&writer, &error);
	codec_encode(&writer, &tree_record, &from);
	assert_int_equal(codec_pairs(&tree_record, &from), 8); /* `absent` is zero: not sent */
	writer_map(&writer, 8);
	codec_encode_pairs(&writer, &tree_record, &from);
	assert_true(writer_ok(&writer));
	reader_open(&reader, writer.bytes, writer.length, &error);
	codec_decode(&reader, &tree_record, &to);
	codec_decode_pairs(&reader, reader_map(&reader), &part, 1);
	reader_end(&reader);
	if (!reader_ok(&reader))
		fail_msg("%s", error.text);
	same_tree(&from, &to);
	same_tree(&from, &mapped);
	assert_int_equal(codec_copy(&tree_record, &copy, &from, &error), 0);
	same_tree(&from, &copy);
	codec_fini(&tree_record, &copy);
	codec_fini(&tree_record, &mapped);
	codec_fini(&tree_record, &to);
	codec_fini(&tree_record, &from);
	memory_free(writer.bytes);
}

static void test_codec__least_bytes_are_what_the_emptiest_record_takes(void **state)
{
	struct tree empty = {.dtype = DTYPE_U8};
	struct writer writer;

	(void)state;
	writer_open(&writer, NULL);
	codec_encode(&writer, &tree_record, &empty);
	assert_true(writer_ok(&writer));
	assert_true(codec_least_bytes(&tree_record) <= writer.length);
	assert_int_equal(codec_least_bytes(&leaf_record), 4);
	memory_free(writer.bytes);
}

/* What an encoder or decoder said about a tree after one change. */
static void encode_fails(struct tree *changed, enum error_code code, const char *words)
{
	struct error error = {0};
	struct writer writer;

	writer_open(&writer, &error);
	codec_encode(&writer, &tree_record, changed);
	assert_int_equal(writer.failed, -(int)code);
	if (!strstr(error.text, words))
		fail_msg("wanted \"%s\", got \"%s\"", words, error.text);
	memory_free(writer.bytes);
}

static void test_codec__encoder_names_field_value_and_limit(void **state)
{
	struct tree whole = tree(), changed = whole;
	char long_name[] = "123456";

	(void)state;
	changed.small = 11;
	encode_fails(&changed, ERROR_LIMIT, "message, small: 11, and at most 10 is allowed");
	changed = whole;
	changed.dtype = DTYPE_COUNT;
	encode_fails(&changed, ERROR_MESSAGE, "message, dtype: 16 is no dtype");
	changed = whole;
	changed.dims = 5;
	encode_fails(&changed, ERROR_LIMIT, "message, shape: 5 items, and at most 4 are allowed");
	changed = whole;
	changed.leaf_count = 4;
	encode_fails(&changed, ERROR_LIMIT, "message, leaves: 4 items, and at most 3 are allowed");
	changed = whole;
	changed.leaf.length = 5;
	encode_fails(&changed, ERROR_LIMIT, "message, leaf.bytes: 5 bytes long, and at most 4");
	changed = whole;
	changed.leaf.name = long_name;
	encode_fails(&changed, ERROR_LIMIT, "message, leaf.name: 6 bytes long, and at most 5");
	codec_fini(&tree_record, &whole);
}

static void decode_leaves(const char *bytes, size_t length, const char *words)
{
	static const struct codec_field fields[] = {
		FIELD_LIST(struct tree, leaves, leaf_count, struct leaf, leaf_record, 3)};
	static const struct codec_record record = {CODEC_RECORD_OF(struct tree, fields)};
	struct error error = {0};
	struct reader reader;
	struct tree to = {0};

	reader_open(&reader, (const unsigned char *)bytes, length, &error);
	codec_decode(&reader, &record, &to);
	assert_int_equal(reader.failed, -ERROR_MESSAGE);
	if (!strstr(error.text, words))
		fail_msg("wanted \"%s\", got \"%s\"", words, error.text);
	codec_fini(&record, &to);
}

#define DECODE_LEAVES(bytes, words) decode_leaves(bytes, sizeof(bytes) - 1, words)

static void test_codec__decoder_names_field_value_limit_and_byte(void **state)
{
	(void)state;
	DECODE_LEAVES("\x92", "message at byte 0: 2 items of at least 1 bytes are claimed");
	DECODE_LEAVES("\x92\x90\x90", "message at byte 0: 2 fields where 1 are needed");
	DECODE_LEAVES("\x91\x94\x92\xa0\xc4\x00\x92\xa0\xc4\x00\x92\xa0\xc4\x00\x92\xa0\xc4\x00",
		      "message, leaves at byte 1: 4 items, and at most 3 are allowed");
	DECODE_LEAVES("\x91\x91\x93\xa0\xc4\x00\x00",
		      "message, leaves[0] at byte 2: 3 fields where 2 are needed");
	DECODE_LEAVES("\x91\x92\x92\xa1n\xc4\x01\x00\x92\xa1n\xc4\x05\0\0\0\0\0",
		      "message, leaves[1].bytes at byte 11: 5 bytes long, and at most 4");
	DECODE_LEAVES("\x91\x92\x92\xa1n\xc4\x01\x00\x92\xa1\xff\xc4\x01\x00",
		      "message, leaves[1].name at byte 9: byte 0xff at 0 of the string is not");
	DECODE_LEAVES("\x91\x92\x92\xa1n\xc4\x01\x00\x82\xa1n\xc4\x01\x00",
		      "message, leaves[1] at byte 8: a map where an array is needed");
}

static void test_codec__every_allocation_can_fail_without_leak(void **state)
{
	struct tree from = tree(), to = {0};
	struct error error = {0};
	struct writer writer = {0};
	struct reader reader;
	uint64_t k = 0;

	(void)state;
	do {
		memory_free(writer.bytes);
		writer_open(&writer, &error);
		memory_fail_at(++k);
		codec_encode(&writer, &tree_record, &from);
		memory_fail_at(0);
		assert_true(writer_ok(&writer) || writer.failed == -ERROR_MEMORY);
	} while (!writer_ok(&writer));
	assert_int_equal(k, 2);
	for (k = 1;; k++) {
		to = (struct tree){0};
		reader_open(&reader, writer.bytes, writer.length, &error);
		memory_fail_at(k);
		codec_decode(&reader, &tree_record, &to);
		memory_fail_at(0);
		codec_fini(&tree_record, &to);
		if (reader_ok(&reader))
			break;
		assert_int_equal(reader.failed, -ERROR_MEMORY);
	}
	assert_int_equal(k, 1 + 2 + 1 + 3 * 2);
	for (k = 1;; k++) {
		to = (struct tree){0};
		memory_fail_at(k);
		int rc = codec_copy(&tree_record, &to, &from, &error);

		memory_fail_at(0);
		codec_fini(&tree_record, &to);
		if (rc == 0)
			break;
		assert_int_equal(rc, -ERROR_MEMORY);
	}
	assert_int_equal(k, 1 + 2 + 1 + 3 * 2);
	codec_fini(&tree_record, &from);
	memory_free(writer.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reader__takes_every_form_of_an_integer),
		cmocka_unit_test(test_reader__names_what_it_found_instead_of_a_number),
		cmocka_unit_test(test_reader__keeps_its_first_error_and_reads_nothing_more),
		cmocka_unit_test(test_reader__hands_out_views_of_strings_and_bytes),
		cmocka_unit_test(test_reader__checks_a_length_before_it_believes_it),
		cmocka_unit_test(test_utf8__stops_at_the_first_byte_that_is_not_well_formed),
		cmocka_unit_test(test_path__names_keys_and_places_and_never_overruns),
		cmocka_unit_test(test_writer__takes_the_shortest_form),
		cmocka_unit_test(test_writer__refuses_a_message_past_the_limit),
		cmocka_unit_test(test_codec__records_come_back_as_array_and_as_map),
		cmocka_unit_test(test_codec__least_bytes_are_what_the_emptiest_record_takes),
		cmocka_unit_test(test_codec__encoder_names_field_value_and_limit),
		cmocka_unit_test(test_codec__decoder_names_field_value_limit_and_byte),
		cmocka_unit_test(test_codec__every_allocation_can_fail_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
