/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "model/safetensors.h"
#include <stdio.h>
#include <string.h>

/* A file in memory: a header text and `data_bytes` of data, in an allocation of exactly its
 * size, so that a sanitizer sees any read past the end. */
struct image {
	unsigned char *data;
	uint64_t bytes;
};

static struct image image_of(const char *header, uint64_t data_bytes)
{
	uint64_t length = strlen(header);
	struct image image = {.bytes = 8 + length + data_bytes};

	image.data = memory_zalloc(image.bytes, 1);
	assert_non_null(image.data);
	memcpy(image.data, &length, 8);
	memcpy(image.data + 8, header, length);
	return image;
}

static void expect_refusal(const char *header, uint64_t data_bytes, const char *message)
{
	struct image image = image_of(header, data_bytes);
	struct safetensors file;
	struct error error = {0};

	assert_int_equal(
		safetensors_decode(image.data, image.bytes, "m.safetensors", &file, &error),
		-ERROR_FILE);
	if (strncmp(error.text, "m.safetensors: ", 15) != 0 || !strstr(error.text, message))
		fail_msg("'%s' does not say '%s'", error.text, message);
	assert_int_equal(file.count, 0);
	assert_null(file.entries);
	memory_free(image.data);
}

#define A    "\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}"
#define B    "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]}"
#define GOOD "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}," B "," A "}  "

static void test_decode__reads_entries_by_place_scalars_and_metadata(void **state)
{
	struct image image = image_of(GOOD, 16);
	struct safetensors file;

	(void)state;
	assert_int_equal(safetensors_decode(image.data, image.bytes, "m", &file, NULL), 0);
	assert_int_equal(file.count, 2);
	assert_string_equal(file.entries[0].name, "a");
	assert_int_equal(file.entries[0].dtype, DTYPE_BF16);
	assert_int_equal(file.entries[0].dims, 2);
	assert_int_equal(file.entries[0].shape[1], 3);
	assert_int_equal(file.entries[0].end, 12);
	assert_string_equal(file.entries[1].name, "b");
	assert_int_equal(file.entries[1].dims, 1);
	assert_int_equal(file.entries[1].shape[0], 1);
	assert_string_equal(safetensors_note(&file, "k"), "v");
	assert_null(safetensors_note(&file, "none"));
	assert_int_equal(file.data_offset, image.bytes - 16);
	safetensors_fini(&file);
	memory_free(image.data);
}

static void test_decode__empty_tensors_and_empty_files_are_fine(void **state)
{
	struct image image = image_of(
		"{\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[12,12]}," A "}", 12);
	struct safetensors file;

	(void)state;
	assert_int_equal(safetensors_decode(image.data, image.bytes, "m", &file, NULL), 0);
	assert_int_equal(file.count, 2);
	assert_int_equal(file.entries[1].begin, file.entries[1].end);
	safetensors_fini(&file);
	memory_free(image.data);
	image = image_of("{}", 0);
	assert_int_equal(safetensors_decode(image.data, image.bytes, "m", &file, NULL), 0);
	assert_int_equal(file.count, 0);
	safetensors_fini(&file);
	memory_free(image.data);
}

static void test_decode__every_known_dtype_is_read(void **state)
{
	(void)state;
	for (int d = 1; d < DTYPE_COUNT; d++) {
		char header[200];
		struct image image;
		struct safetensors file;
		uint64_t bytes = dtype_bytes((enum dtype)d) * 5;

		snprintf(header, sizeof(header),
			 "{\"a\":{\"dtype\":\"%s\",\"shape\":[5],\"data_offsets\":[0,%llu]}}",
			 dtype_name((enum dtype)d), (unsigned long long)bytes);
		image = image_of(header, bytes);
		assert_int_equal(safetensors_decode(image.data, image.bytes, "m", &file, NULL), 0);
		assert_int_equal(file.entries[0].dtype, d);
		safetensors_fini(&file);
		memory_free(image.data);
	}
}

static void test_decode__refuses_what_is_wrong_by_name_and_place(void **state)
{
#define ONE(fields) "{\"x\":{" fields "}}"
	static const struct {
		const char *header;
		uint64_t data_bytes;
		const char *message;
	} rows[] = {
		{" {}", 0, "does not start with {"},
		{"[]", 0, "does not start with {"},
		{"{\"a\":}", 0, "not JSON at byte"},
		{"{} x", 0, "not JSON at byte"},
		{"{" A "," A "}", 12, "duplicate"},
		{"{\"x\":7}", 0, "tensor x: its description is not an object"},
		{"{\"\":{}}", 0, "empty name"},
		{"{\"a\\nb\":{}}", 0, "control character 0x0a at byte 1"},
		{"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
		{"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: k is not a string"},
		{ONE("\"shape\":[1],\"data_offsets\":[0,2]"), 2, "tensor x: dtype is missing"},
		{ONE("\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,2]"), 2, "tensor x: dtype"},
		{ONE("\"dtype\":\"BF17\",\"shape\":[1],\"data_offsets\":[0,2]"), 2,
		 "tensor x: dtype BF17 is not known"},
		{ONE("\"dtype\":\"BF16\",\"data_offsets\":[0,2]"), 2, "tensor x: shape is missing"},
		{ONE("\"dtype\":\"BF16\",\"shape\":1,\"data_offsets\":[0,2]"), 2,
		 "tensor x: shape"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[-1],\"data_offsets\":[0,2]"), 2,
		 "tensor x: shape has something else than sizes"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1.0],\"data_offsets\":[0,2]"), 2,
		 "tensor x: shape has something else than sizes"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,2]"), 2,
		 "tensor x: shape has 9 dimensions"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,2]"),
		 2, "tensor x: shape is larger than 2^64"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1]"), 2,
		 "tensor x: data_offsets is not a pair"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0]"), 2,
		 "tensor x: data_offs"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2,4]"), 2,
		 "data_offsets"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,\"2\"]"), 2,
		 "data_offsets"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[-2,0]"), 2,
		 "data_offsets"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[2,0]"), 2,
		 "tensor x: data_offsets run backwards, from 2 to 0"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]"), 1,
		 "tensor x ends at data byte 2, but the file holds 1"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,2]"), 2,
		 "tensor x: data_offsets span 2 bytes, but its shape and dtype need 4"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2],\"more\":1"), 2,
		 "tensor x has an unknown field more"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[2,4]"), 4,
		 "data bytes 0 to 2 before tensor x belong to no tensor"},
		{ONE("\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]"), 5,
		 "data bytes 2 to 5 at the file's end belong to no tensor"},
		{"{" A ",\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[10,14]}}", 14,
		 "tensors a and x overlap at data byte 10"},
		{"{" A ",\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[14,18]}}", 18,
		 "data bytes 12 to 14 before tensor x"},
		{"{}", 1, "data bytes 0 to 1 at the file's end"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		expect_refusal(rows[i].header, rows[i].data_bytes, rows[i].message);
}

static void test_decode__refuses_header_lengths_that_cannot_be(void **state)
{
	static const uint64_t lengths[] = {
		0,	    SAFETENSORS_HEADER_MAX, SAFETENSORS_HEADER_MAX + 1,
		UINT64_MAX, UINT64_MAX - 7,	    (uint64_t)1 << 63};
	struct image image = image_of(GOOD, 16);
	struct safetensors file;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		struct error error = {0};

		memcpy(image.data, &lengths[i], 8);
		assert_int_equal(safetensors_decode(image.data, image.bytes, "m", &file, &error),
				 -ERROR_FILE);
		assert_true(error.text[0]);
	}
	memory_free(image.data);
	assert_int_equal(safetensors_decode(NULL, 0, "m", &file, NULL), -ERROR_FILE);
}

static void test_decode__long_names_are_refused_not_printed_whole(void **state)
{
	char header[3000], name[2000];

	(void)state;
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	snprintf(header, sizeof(header), "{\"%s\":{}}", name);
	expect_refusal(header, 0, "has 1999 bytes; at most 1024");
}

/* Every cut and every flipped bit: a named error or a file that tiles; never a crash. */
static void test_decode__damaged_files_end_in_a_named_error_or_a_file(void **state)
{
	struct image image = image_of(GOOD, 16);
	struct safetensors file;
	int refused = 0, tried = 0;

	(void)state;
	for (uint64_t n = 0; n < image.bytes; n++) {
		unsigned char *cut = memory_alloc(n);
		struct error error = {0};

		memcpy(cut, image.data, n);
		assert_int_equal(safetensors_decode(cut, n, "m", &file, &error), -ERROR_FILE);
		assert_memory_equal(error.text, "m: ", 3);
		memory_free(cut);
	}
	for (uint64_t n = 0; n < image.bytes - 16; n++) {
		for (int bit = 0; bit < 8; bit++, tried++) {
			struct error error = {0};
			int rc;

			image.data[n] = (unsigned char)(image.data[n] ^ 1 << bit);
			rc = safetensors_decode(image.data, image.bytes, "m", &file, &error);
			image.data[n] = (unsigned char)(image.data[n] ^ 1 << bit);
			refused += rc != 0;
			if (rc)
				assert_true(rc == -ERROR_FILE &&
					    strncmp(error.text, "m: ", 3) == 0);
			safetensors_fini(&file);
		}
	}
	assert_true(refused > tried / 2);
	memory_free(image.data);
}

static void test_encode__is_read_back_the_same_and_starts_data_on_a_cache_line(void **state)
{
	struct safetensors_entry entries[] = {
		{.name = (char[]){"m.\"q\""},
		 .dtype = DTYPE_BF16,
		 .dims = 2,
		 .shape = {2, 3},
		 .begin = 0,
		 .end = 12},
		{.name = (char[]){"b"},
		 .dtype = DTYPE_F8_E4M3,
		 .dims = 1,
		 .shape = {4},
		 .begin = 12,
		 .end = 16},
	};
	struct safetensors_note note = {(char[]){"weft.seed"}, (char[]){"7"}};
	struct text text = {0};
	struct safetensors file;

	(void)state;
	assert_int_equal(safetensors_encode(entries, 2, &note, 1, &text, NULL), 0);
	assert_int_equal(text.bytes % SAFETENSORS_ALIGN, 0);
	text_add_bytes(&text, "0123456789abcdef", 16);
	assert_int_equal(
		safetensors_decode((unsigned char *)text.data, text.bytes, "m", &file, NULL), 0);
	assert_int_equal(file.data_offset, text.bytes - 16);
	assert_int_equal(file.count, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_string_equal(file.entries[i].name, entries[i].name);
		assert_int_equal(file.entries[i].dtype, entries[i].dtype);
		assert_int_equal(file.entries[i].dims, entries[i].dims);
		assert_memory_equal(file.entries[i].shape, entries[i].shape,
				    sizeof(entries[i].shape));
		assert_int_equal(file.entries[i].begin, entries[i].begin);
		assert_int_equal(file.entries[i].end, entries[i].end);
	}
	assert_string_equal(safetensors_note(&file, "weft.seed"), "7");
	safetensors_fini(&file);
	text_fini(&text);
}

static int decode_index(const char *text, struct safetensors_index *index, struct error *error)
{
	size_t length = strlen(text);
	char *exact = memory_alloc(length);
	int rc;

	memcpy(exact, text, length);
	rc = safetensors_index_decode(exact, length, "i.json", index, error);
	memory_free(exact);
	return rc;
}

static void test_index__names_files_in_order(void **state)
{
	struct safetensors_index index;

	(void)state;
	assert_int_equal(decode_index("{\"metadata\":{\"total_size\":1},\"weight_map\":{"
				      "\"x\":\"b.safetensors\",\"y\":\"a.safetensors\","
				      "\"z\":\"b.safetensors\"}}",
				      &index, NULL),
			 0);
	assert_int_equal(index.file_count, 2);
	assert_string_equal(index.files[0], "a.safetensors");
	assert_string_equal(index.files[1], "b.safetensors");
	assert_int_equal(index.count, 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(index.entries[i].file, index.entries[i].name[0] == 'y' ? 0 : 1);
	safetensors_index_fini(&index);
}

static void test_index__refuses_files_that_are_not_its_neighbours(void **state)
{
	static const char *const names[] = {
		"../a.safetensors",
		"x/a.safetensors",
		"/a.safetensors",
		"..",
		".",
		"",
		".safetensors",
		".a.safetensors",
		"a.bin",
		"a.safetensors/",
		"a\\\\b.safetensors",
		"a\\nb.safetensors",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char text[200];
		struct safetensors_index index;
		struct error error = {0};

		snprintf(text, sizeof(text), "{\"weight_map\":{\"t\":\"%s\"}}", names[i]);
		assert_int_equal(decode_index(text, &index, &error), -ERROR_FILE);
		assert_non_null(strstr(error.text, "i.json: weight_map: tensor t is in file '"));
	}
}

static void test_index__refuses_what_is_no_map(void **state)
{
	static const char *const texts[] = {
		"",
		"[]",
		"{}",
		"{\"weight_map\":[]}",
		"{\"weight_map\":{\"t\":1}}",
		"7",
		"{\"weight_map\":{\"t\":\"a.safetensors\",\"t\":\"b.safetensors\"}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct safetensors_index index;
		struct error error = {0};

		assert_int_equal(decode_index(texts[i], &index, &error), -ERROR_FILE);
		assert_memory_equal(error.text, "i.json: ", 8);
	}
}

static void test_index__damaged_ones_end_in_a_named_error_or_an_index(void **state)
{
	char text[] = "{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}}";
	struct safetensors_index index;

	(void)state;
	for (size_t n = 0; n + 1 < sizeof(text); n++) {
		char *cut = memory_alloc(n);
		struct error error = {0};

		memcpy(cut, text, n);
		assert_int_equal(safetensors_index_decode(cut, n, "i", &index, &error),
				 -ERROR_FILE);
		memory_free(cut);
		for (int bit = 0; bit < 8; bit++) {
			int rc;

			text[n] = (char)(text[n] ^ 1 << bit);
			rc = decode_index(text, &index, &error);
			text[n] = (char)(text[n] ^ 1 << bit);
			assert_true(rc == 0 || rc == -ERROR_FILE);
			safetensors_index_fini(&index);
		}
	}
}

static void test_decode__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct image image = image_of(GOOD, 16);
	const char *text = "{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}}";
	struct safetensors_index index;
	struct safetensors file;
	int rc = -1;

	(void)state;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = safetensors_decode(image.data, image.bytes, "m", &file, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	safetensors_fini(&file);
	rc = -1;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = safetensors_index_decode(text, strlen(text), "m", &index, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	safetensors_index_fini(&index);
	memory_free(image.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode__reads_entries_by_place_scalars_and_metadata),
		cmocka_unit_test(test_decode__empty_tensors_and_empty_files_are_fine),
		cmocka_unit_test(test_decode__every_known_dtype_is_read),
		cmocka_unit_test(test_decode__refuses_what_is_wrong_by_name_and_place),
		cmocka_unit_test(test_decode__refuses_header_lengths_that_cannot_be),
		cmocka_unit_test(test_decode__long_names_are_refused_not_printed_whole),
		cmocka_unit_test(test_decode__damaged_files_end_in_a_named_error_or_a_file),
		cmocka_unit_test(
			test_encode__is_read_back_the_same_and_starts_data_on_a_cache_line),
		cmocka_unit_test(test_index__names_files_in_order),
		cmocka_unit_test(test_index__refuses_files_that_are_not_its_neighbours),
		cmocka_unit_test(test_index__refuses_what_is_no_map),
		cmocka_unit_test(test_index__damaged_ones_end_in_a_named_error_or_an_index),
		cmocka_unit_test(test_decode__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
