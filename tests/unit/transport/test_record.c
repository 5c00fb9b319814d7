/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/record.h"

#include "job/digest.h"
#include "transport/shm/shm.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct record_head region_head = {RECORD_REGION,	    0x1122334455667788, "shm",
					       {ROLE_INFERENCE, 7}, {ROLE_TRAINER, 0},	8192};
static const struct record_head endpoint_head = {RECORD_ENDPOINT,     0x1122334455667788, "shm",
						 {ROLE_INFERENCE, 7}, {ROLE_TRAINER, 3},  0};

static size_t make_region(unsigned char *out, const struct shm_region_record *body)
{
	struct record_writer writer;
	size_t length = 0;

	record_begin(&writer, out, TRANSPORT_RECORD_BYTES, &region_head);
	shm_region_record_put(&writer, body);
	assert_int_equal(record_finish(&writer, &length, NULL), 0);
	return length;
}

static const struct shm_region_record good_region = {
	.identity = {.pid_namespace = 4026531836, .pid = 100, .start = 5},
	.kind = SHM_MAPPED,
	.fd = 7,
	.cookie = "0123456789abcde"};

static int read_region(const unsigned char *data, size_t length, struct shm_region_record *body,
		       struct error *error)
{
	struct record_reader reader;
	struct record_head head;
	int rc = record_open(&reader, data, length, &head, error);

	return rc ? rc : shm_region_record_get(&reader, head.bytes, body, error);
}

/* A forger knows the checksum too. */
static void sign(unsigned char *data, size_t length)
{
	uint64_t sum = checksum64(data, length - RECORD_TAIL_BYTES);

	for (int i = 0; i < 8; i++)
		data[length - 8 + (size_t)i] = (unsigned char)(sum >> (8 * i));
}

static void test_record__comes_back_as_it_went(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct record_reader reader;
	struct record_head head;
	struct shm_region_record body;
	struct error error;
	size_t length = make_region(data, &good_region);

	(void)state;
	assert_int_equal(record_open(&reader, data, length, &head, &error), 0);
	assert_int_equal(head.kind, RECORD_REGION);
	assert_int_equal(head.tag, region_head.tag);
	assert_string_equal(head.provider, "shm");
	assert_int_equal(head.owner.rank, 7);
	assert_int_equal(head.bytes, 8192);
	assert_int_equal(read_region(data, length, &body, &error), 0);
	assert_int_equal(body.fd, 7);
	assert_int_equal(body.identity.start, 5);
	assert_memory_equal(body.cookie, good_region.cookie, SHM_COOKIE_BYTES);
}

static void test_record__bytes_are_fixed(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	size_t length = make_region(data, &good_region);

	(void)state;
	assert_memory_equal(data, "WFTR\1\0\1\0", 8);
	assert_int_equal(length, RECORD_HEAD_BYTES + 40 + 4 + 4 + 16 + 8 + RECORD_TAIL_BYTES);
	assert_int_equal(data[8], length);
	assert_memory_equal(data + 16, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	assert_memory_equal(data + 40, "\1\0\0\0\7\0\0\0", 8);
	assert_memory_equal(data + 56, "\0\x20\0\0\0\0\0\0", 8);
}

struct edit {
	size_t at;
	unsigned char value;
	const char *named;
};

/* Each is signed again, so that only the field's own check can refuse it. */
static void test_record__each_wrong_field_is_named(void **state)
{
	static const struct edit edits[] = {
		{0, 'X', "magic"},	 {4, 9, "version 9"},	     {6, 3, "kind 3"},
		{8, 1, "says"},		 {12, 1, "reserved"},	     {24, 'S', "provider name"},
		{24, 0, "empty"},	 {30, 'x', "provider name"}, {40, 5, "role 5"},
		{48, 1, "names a peer"}, {64 + 31, 0xff, "pid"},     {64 + 40, 3, "kind"},
		{64 + 47, 0xff, "fd"},	 {64 + 64, 1, "address"},
	};
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct shm_region_record body;
	struct error error = {0};
	size_t length;

	(void)state;
	for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
		length = make_region(data, &good_region);
		data[edits[i].at] = edits[i].value;
		sign(data, length);
		assert_int_equal(read_region(data, length, &body, &error), -ERROR_MESSAGE);
		if (!strstr(error.text, edits[i].named))
			fail_msg("edit %zu: '%s' does not name %s", i, error.text, edits[i].named);
	}
}

static void test_record__a_body_too_short_or_long_is_refused(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct shm_region_record body;
	struct record_writer writer;
	struct error error;
	size_t length;

	(void)state;
	for (int extra = 0; extra < 2; extra++) {
		record_begin(&writer, data, sizeof(data), &region_head);
		if (extra)
			shm_region_record_put(&writer, &good_region);
		record_put_u32(&writer, 0);
		assert_int_equal(record_finish(&writer, &length, &error), 0);
		assert_int_equal(read_region(data, length, &body, &error), -ERROR_MESSAGE);
		assert_non_null(strstr(error.text, extra ? "too many" : "ends early"));
	}
}

static void test_record__a_record_that_does_not_fit_is_an_error(void **state)
{
	unsigned char data[100];
	struct record_writer writer;
	struct error error;
	size_t length;

	(void)state;
	record_begin(&writer, data, sizeof(data), &endpoint_head);
	for (int i = 0; i < 10; i++)
		record_put_u64(&writer, 1);
	assert_int_equal(record_finish(&writer, &length, &error), -ERROR_LIMIT);
}

static void expect_identity(struct identity peer, const struct identity *self, int rc,
			    const char *named)
{
	struct error error = {0};

	assert_int_equal(shm_identity_check(&peer, self, &error), rc);
	assert_non_null(strstr(error.text, named));
}

static void test_identity__other_host_namespace_or_process_is_told(void **state)
{
	struct identity self, peer;
	struct error error;

	(void)state;
	assert_int_equal(identity_read(&self, &error), 0);
	assert_int_equal(self.pid, getpid());
	assert_int_equal(shm_identity_check(&self, &self, &error), 0);
	peer = self;
	peer.boot[3] ^= 1;
	expect_identity(peer, &self, -ERROR_UNSUPPORTED, "another");
	peer = self;
	peer.pid_namespace++;
	expect_identity(peer, &self, -ERROR_UNSUPPORTED, "namespace");
	peer = self;
	peer.start++; /* the pid was reused */
	expect_identity(peer, &self, -ERROR_PEER_LOST, "ended");
}

/* The kernel's own answer, as a message: a process that never was, memory that is not. */
static void test_process__refusals_are_messages(void **state)
{
	struct error error = {0};
	int rc;

	(void)state;
	assert_int_equal(shm_process_write(0x7ffffff0, 4096, "x", 1, &error), -ERROR_PEER_LOST);
	assert_non_null(strstr(error.text, "died"));
	rc = shm_process_write((uint64_t)getpid(), 1, "x", 1, &error);
	assert_true(rc == -ERROR_TRANSPORT || rc == -ERROR_UNSUPPORTED);
	assert_true(strstr(error.text, "not mapped") || strstr(error.text, "allocator"));
}

static void test_memfd__a_reused_fd_number_is_refused(void **state)
{
	struct shm_memfd memfd;
	struct error error = {0};
	uint32_t number;
	int fd;

	(void)state;
	assert_int_equal(shm_memfd_create(&memfd, "a test", 5000, &error), 0);
	number = (uint32_t)memfd.fd;
	assert_int_equal(shm_memfd_open_peer((uint64_t)getpid(), number, 5000, &fd, &error), 0);
	close(fd);
	assert_int_equal(shm_memfd_open_peer((uint64_t)getpid(), number, 1 << 20, &fd, &error),
			 -ERROR_MESSAGE);
	shm_memfd_close(&memfd);
	assert_int_equal(shm_memfd_open_peer((uint64_t)getpid(), number, 1, &fd, &error),
			 -ERROR_PEER_LOST);
	assert_int_equal(shm_memfd_open_peer((uint64_t)getpid(), 0, 1, &fd, &error),
			 -ERROR_PEER_LOST);
	assert_non_null(strstr(error.text, "is gone: in its place"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_record__comes_back_as_it_went),
		cmocka_unit_test(test_record__bytes_are_fixed),
		cmocka_unit_test(test_record__each_wrong_field_is_named),
		cmocka_unit_test(test_record__a_body_too_short_or_long_is_refused),
		cmocka_unit_test(test_record__a_record_that_does_not_fit_is_an_error),
		cmocka_unit_test(test_identity__other_host_namespace_or_process_is_told),
		cmocka_unit_test(test_process__refusals_are_messages),
		cmocka_unit_test(test_memfd__a_reused_fd_number_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
