/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of tcp and efa: what goes comes back, and whatever lies is refused by the name of its field.
 */
#include "transport/ofi/records.h"
#include "transport/transport.h"

#include "base/array.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct record_head region_head = {RECORD_REGION,	  77,  "tcp", {ROLE_INFERENCE, 7},
					       {ROLE_TRAINER, 0}, 4096};
static const struct record_head endpoint_head = {RECORD_ENDPOINT,   77, "efa", {ROLE_INFERENCE, 7},
						 {ROLE_TRAINER, 3}, 0};

static struct ofi_rail_record rail(const char *name, uint32_t addresses, uint32_t bytes)
{
	struct ofi_rail_record rail = {
		.probe_key = 0x1122334455667788, .probe_base = 7, .address_count = addresses};

	memcpy(rail.name, name, strlen(name));
	for (uint32_t i = 0; i < addresses; i++) {
		rail.addresses[i].length = bytes;
		memset(rail.addresses[i].bytes, (int)(i + 1), bytes);
	}
	return rail;
}

static struct ofi_endpoint_record good_endpoint(void)
{
	struct ofi_endpoint_record record = {
		.identity = {.pid_namespace = 4026531836, .pid = 100, .start = 5},
		.nonce = 0x123456789abcdef0,
		.cookie = {1, 2, 3},
		.data = 0x00030120,
		.rail_count = 2,
	};

	record.rails[0] = rail("eth0", 2, 20);
	record.rails[1] = rail("rdmap200s31-rdm", 1, 32);
	return record;
}

static struct ofi_region_record good_region(void)
{
	return (struct ofi_region_record){
		.identity = {.pid_namespace = 4026531836, .pid = 100, .start = 5},
		.nonce = 9,
		.rail_count = 2,
		.keys = {{1, 2}, {UINT64_MAX, 0x7f1200000010}},
	};
}

static size_t put_endpoint(unsigned char *out, const struct ofi_endpoint_record *body)
{
	struct record_writer writer;
	size_t length = 0;

	record_begin(&writer, out, TRANSPORT_RECORD_BYTES, &endpoint_head);
	ofi_endpoint_record_put(&writer, body);
	assert_int_equal(record_finish(&writer, &length, NULL), 0);
	return length;
}

static size_t put_region(unsigned char *out, const struct ofi_region_record *body)
{
	struct record_writer writer;
	size_t length = 0;

	record_begin(&writer, out, TRANSPORT_RECORD_BYTES, &region_head);
	ofi_region_record_put(&writer, body);
	assert_int_equal(record_finish(&writer, &length, NULL), 0);
	return length;
}

static int get_endpoint(const unsigned char *data, size_t length, struct ofi_endpoint_record *body,
			struct error *error)
{
	struct record_reader reader;
	struct record_head head;
	int rc = record_open(&reader, data, length, &head, error);

	return rc ? rc : ofi_endpoint_record_get(&reader, body, error);
}

static int get_region(const unsigned char *data, size_t length, struct ofi_region_record *body,
		      struct error *error)
{
	struct record_reader reader;
	struct record_head head;
	int rc = record_open(&reader, data, length, &head, error);

	return rc ? rc : ofi_region_record_get(&reader, body, error);
}

static void test_records__come_back_as_they_went(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct ofi_endpoint_record endpoint = good_endpoint(), endpoint_back;
	struct ofi_region_record region = good_region(), region_back;

	(void)state;
	memset(&endpoint_back, 0xee, sizeof(endpoint_back));
	memset(&region_back, 0xee, sizeof(region_back));
	assert_int_equal(get_endpoint(data, put_endpoint(data, &endpoint), &endpoint_back, NULL),
			 0);
	assert_int_equal(endpoint_back.identity.pid, 100);
	assert_int_equal(endpoint_back.data, endpoint.data);
	assert_memory_equal(endpoint_back.cookie, endpoint.cookie, OFI_COOKIE_BYTES);
	assert_string_equal(endpoint_back.rails[1].name, "rdmap200s31-rdm");
	assert_memory_equal(&endpoint_back.rails[0], &endpoint.rails[0], sizeof(endpoint.rails[0]));
	assert_int_equal(endpoint_back.rails[2].address_count, 0); /* what is not there is zero */
	assert_int_equal(get_region(data, put_region(data, &region), &region_back, NULL), 0);
	assert_int_equal(region_back.keys[1].key, UINT64_MAX);
	assert_int_equal(region_back.keys[1].base, 0x7f1200000010);
	assert_int_equal(region_back.keys[2].key, 0);
}

static void test_records__of_the_largest_size_fit(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct ofi_endpoint_record endpoint = good_endpoint(), back;
	struct ofi_region_record region = good_region(), region_back;

	(void)state;
	endpoint.rail_count = region.rail_count = OFI_RAILS_MAX;
	for (uint32_t i = 0; i < OFI_RAILS_MAX; i++)
		endpoint.rails[i] = rail("an_interface_of_31_characters..", OFI_ADDRESSES_MAX,
					 OFI_ADDRESS_BYTES);
	assert_int_equal(get_endpoint(data, put_endpoint(data, &endpoint), &back, NULL), 0);
	assert_int_equal(get_region(data, put_region(data, &region), &region_back, NULL), 0);
}

/* One field changed, and words that the message must have. */
#define ENDPOINT_LIES(X)                                                   \
	X(identity.pid = 0, "pid")                                         \
	X(identity.pid = 1ull << 32, "pid")                                \
	X(nonce = 0, "domain nonce")                                       \
	X(rail_count = 0, "number of rails is 0; it must be 1 to 16")      \
	X(rails[0].address_count = 0, "number of addresses is 0")          \
	X(rails[1].addresses[0].length = 0, "length of an address is 0")   \
	X(rails[1].addresses[0].length = 49, "length of an address is 49") \
	X(rails[0].name[0] = 0, "interface name is empty")                 \
	X(rails[0].name[1] = ' ', "a character at 1 that no name has")     \
	X(rails[0].name[0] = '\n', "a character at 0")                     \
	X(rails[0].name[3] = (char)0xc3, "a character at 3")               \
	X(rails[0].name[9] = 'x', "bytes behind the interface name 'eth0'")

static void test_records__each_field_of_an_endpoint_is_held_to_its_range(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct ofi_endpoint_record lie, back;
	struct error error;

	(void)state;
#define X(change, words)                                                              \
	lie = good_endpoint();                                                        \
	lie.change;                                                                   \
	assert_int_equal(get_endpoint(data, put_endpoint(data, &lie), &back, &error), \
			 -ERROR_MESSAGE);                                             \
	if (!strstr(error.text, words))                                               \
		fail_msg("%s is told as \"%s\"", #change, error.text);
	ENDPOINT_LIES(X)
#undef X
}

static void test_records__each_field_of_a_region_is_held_to_its_range(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct ofi_region_record lie, back;
	struct error error;

	(void)state;
#define X(change, words)                                                                           \
	lie = good_region();                                                                       \
	lie.change;                                                                                \
	assert_int_equal(get_region(data, put_region(data, &lie), &back, &error), -ERROR_MESSAGE); \
	assert_non_null(strstr(error.text, words));
	X(identity.pid = 0, "pid")
	X(nonce = 0, "domain nonce")
	X(rail_count = 0, "number of rails is 0; it must be 1 to 16")
#undef X
}

static void test_records__a_name_without_an_end_is_refused(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct ofi_endpoint_record lie = good_endpoint(), back;
	struct error error;

	(void)state;
	memset(lie.rails[0].name, 'e', sizeof(lie.rails[0].name));
	assert_int_equal(get_endpoint(data, put_endpoint(data, &lie), &back, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "too long"));
}

/* With a head of its own and a checksum that is right. */
static size_t put_raw(unsigned char *out, const struct record_head *head, const uint32_t *words,
		      size_t count)
{
	struct record_writer writer;
	size_t length = 0;

	record_begin(&writer, out, TRANSPORT_RECORD_BYTES, head);
	for (size_t i = 0; i < count; i++)
		record_put_u32(&writer, words[i]);
	assert_int_equal(record_finish(&writer, &length, NULL), 0);
	return length;
}

static void test_records__of_another_version_are_told_by_their_versions(void **state)
{
	static const uint32_t words[] = {2, 3, 4, 5};
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct ofi_endpoint_record endpoint;
	struct ofi_region_record region;
	struct error error;

	(void)state;
	assert_int_equal(
		get_endpoint(data, put_raw(data, &endpoint_head, words, 4), &endpoint, &error),
		-ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "efa record is of version 2"));
	assert_non_null(strstr(error.text, "run the same weft on both sides"));
	assert_int_equal(get_region(data, put_raw(data, &region_head, words, 4), &region, &error),
			 -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "tcp record is of version 2"));
}

static void test_records__that_end_early_or_late_are_refused(void **state)
{
	uint32_t words[TRANSPORT_RECORD_BYTES / 8] = {1};
	unsigned char good[TRANSPORT_RECORD_BYTES], data[TRANSPORT_RECORD_BYTES];
	struct ofi_endpoint_record endpoint = good_endpoint(), back;
	size_t length = put_endpoint(good, &endpoint);
	size_t body = (length - RECORD_HEAD_BYTES - RECORD_TAIL_BYTES) / 4;
	struct error error;

	(void)state;
	memcpy(words, good + RECORD_HEAD_BYTES, body * 4);
	for (size_t count = 0; count <= body + 2; count++) {
		int rc = get_endpoint(data, put_raw(data, &endpoint_head, words, count), &back,
				      &error);

		assert_int_equal(rc, count == body ? 0 : -ERROR_MESSAGE);
	}
}

/* Whatever opens memory must not be in a message. */
static void test_records__show_no_cookie_and_no_key(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct ofi_endpoint_record lie = good_endpoint(), back;
	struct error error;

	(void)state;
	lie.rails[1].addresses[0].length = 49;
	assert_int_equal(get_endpoint(data, put_endpoint(data, &lie), &back, &error),
			 -ERROR_MESSAGE);
	assert_null(strstr(error.text, "1122334455667788"));
	assert_null(strstr(error.text, "1234605616436508552"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records__come_back_as_they_went),
		cmocka_unit_test(test_records__of_the_largest_size_fit),
		cmocka_unit_test(test_records__each_field_of_an_endpoint_is_held_to_its_range),
		cmocka_unit_test(test_records__each_field_of_a_region_is_held_to_its_range),
		cmocka_unit_test(test_records__a_name_without_an_end_is_refused),
		cmocka_unit_test(test_records__of_another_version_are_told_by_their_versions),
		cmocka_unit_test(test_records__that_end_early_or_late_are_refused),
		cmocka_unit_test(test_records__show_no_cookie_and_no_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
