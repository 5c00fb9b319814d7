/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/verbs.h"

#include "job/digest.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define REGION_BYTES (UINT64_C(3) << 20)

static const struct record_head region_head = {
	RECORD_REGION, 77, "verbs", {ROLE_INFERENCE, 7}, {ROLE_TRAINER, 0}, REGION_BYTES};
static const struct record_head endpoint_head = {
	RECORD_ENDPOINT, 77, "verbs", {ROLE_INFERENCE, 7}, {ROLE_TRAINER, 3}, 0};

/* ::ffff:10.77.subnet.host */
static void set_gid(unsigned char gid[16], unsigned subnet, unsigned host)
{
	const unsigned char raw[16] = {[10] = 0xff,	   0xff, 10, 77, (unsigned char)subnet,
				       (unsigned char)host};

	memcpy(gid, raw, 16);
}

static struct verbs_nic_record nic(const char *name, unsigned subnet, unsigned host)
{
	struct verbs_nic_record nic = {
		.port = 1,
		.link = VERBS_LINK_ETHERNET,
		.gid_index = 3,
		.gid_type = VERBS_GID_ROCE_V2,
		.gid_prefix_bits = 24,
		.mtu = 4096,
		.netdev_mtu = 9000,
		.slot_rkey = 0x1234,
		.max_read = 16,
	};

	memcpy(nic.device, name, strlen(name));
	set_gid(nic.gid, subnet, host);
	for (uint32_t q = 0; q < 2; q++)
		nic.lanes[q] = (struct verbs_lane_record){0x100 + host * 16 + q, 0xabc000 + q};
	return nic;
}

static struct verbs_endpoint_record good_endpoint(void)
{
	struct verbs_endpoint_record record = {
		.identity = {.pid_namespace = 4026531836, .pid = 100, .start = 5},
		.nonce = 0x123456789abcdef0,
		.attempt = 1,
		.slot_address = 0x7f0000001040,
		.probe_address = 0x7f0000000000,
		.timeout = 17,
		.retry = 6,
		.traffic_class = 106,
		.service_level = 3,
		.pkey = 0xffff,
		.qps = 2,
		.nic_count = 2,
	};

	record.nics[0] = nic("mlx5_0", 1, 5);
	record.nics[1] = nic("mlx5_1", 2, 5);
	return record;
}

static size_t put_endpoint(unsigned char *out, const struct verbs_endpoint_record *body)
{
	struct record_writer writer;
	size_t length = 0;

	record_begin(&writer, out, TRANSPORT_RECORD_BYTES, &endpoint_head);
	verbs_endpoint_record_put(&writer, body);
	assert_int_equal(record_finish(&writer, &length, NULL), 0);
	return length;
}

static int get_endpoint(const unsigned char *data, size_t length,
			struct verbs_endpoint_record *body, struct error *error)
{
	struct record_reader reader;
	struct record_head head;
	int rc = record_open(&reader, data, length, &head, error);

	return rc ? rc : verbs_endpoint_record_get(&reader, body, error);
}

static struct verbs_region_record good_region(void)
{
	return (struct verbs_region_record){
		.identity = {.pid_namespace = 4026531836, .pid = 100, .start = 5},
		.nonce = 9,
		.base = 0x7f1200000010,
		.piece_bytes = 1 << 20,
		.piece_count = 3,
		.nic_count = 2,
		.rkeys = {1, 2, 3, 4, 5, 6},
	};
}

static size_t put_region(unsigned char *out, const struct verbs_region_record *body)
{
	struct record_writer writer;
	size_t length = 0;

	record_begin(&writer, out, TRANSPORT_RECORD_BYTES, &region_head);
	verbs_region_record_put(&writer, body);
	assert_int_equal(record_finish(&writer, &length, NULL), 0);
	return length;
}

static int get_region(const unsigned char *data, size_t length, struct verbs_region_record *body,
		      struct error *error)
{
	struct record_reader reader;
	struct record_head head;
	int rc = record_open(&reader, data, length, &head, error);

	return rc ? rc : verbs_region_record_get(&reader, head.bytes, body, error);
}

static void test_records__come_back_as_they_went(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct verbs_endpoint_record endpoint = good_endpoint(), endpoint_back;
	struct verbs_region_record region = good_region(), region_back;

	(void)state;
	memset(&endpoint_back, 0xee, sizeof(endpoint_back));
	memset(&region_back, 0xee, sizeof(region_back));
	assert_int_equal(get_endpoint(data, put_endpoint(data, &endpoint), &endpoint_back, NULL),
			 0);
	assert_string_equal(endpoint_back.nics[1].device, "mlx5_1");
	assert_int_equal(endpoint_back.nics[1].lanes[1].psn, 0xabc001);
	assert_memory_equal(endpoint_back.nics[0].gid, endpoint.nics[0].gid, 16);
	assert_int_equal(endpoint_back.slot_address, endpoint.slot_address);
	assert_int_equal(endpoint_back.nics[2].port, 0); /* what is not there is zero */
	assert_int_equal(get_region(data, put_region(data, &region), &region_back, NULL), 0);
	assert_int_equal(region_back.rkeys[5], 6);
	assert_int_equal(region_back.rkeys[6], 0);
	assert_int_equal(region_back.base, region.base);
	assert_int_equal(region_back.identity.pid, 100);
}

static void test_records__of_the_largest_size_fit(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct verbs_endpoint_record endpoint = good_endpoint(), back;
	struct verbs_region_record region = good_region(), region_back;

	(void)state;
	endpoint.nic_count = VERBS_NICS_MAX;
	for (uint32_t i = 0; i < VERBS_NICS_MAX; i++)
		endpoint.nics[i] = nic("a_device_with_a_rather_long_nam", i, 9);
	assert_int_equal(get_endpoint(data, put_endpoint(data, &endpoint), &back, NULL), 0);
	endpoint.nic_count = 2;
	endpoint.qps = VERBS_QPS_MAX;
	for (uint32_t q = 0; q < VERBS_QPS_MAX; q++)
		endpoint.nics[0].lanes[q] = endpoint.nics[1].lanes[q] =
			(struct verbs_lane_record){0xffffff, 0xffffff};
	assert_int_equal(get_endpoint(data, put_endpoint(data, &endpoint), &back, NULL), 0);
	region.piece_bytes = 32768;
	region.piece_count = VERBS_PIECES_MAX;
	region.nic_count = 1;
	region.rkeys[VERBS_PIECES_MAX - 1] = 0xffffffff;
	assert_int_equal(get_region(data, put_region(data, &region), &region_back, NULL), 0);
	assert_int_equal(region_back.rkeys[VERBS_PIECES_MAX - 1], 0xffffffff);
}

/* One field changed, and a word that the message must have. */
#define ENDPOINT_LIES(X)                                                     \
	X(identity.pid = 0, "pid")                                           \
	X(identity.pid = 1ull << 32, "pid")                                  \
	X(nonce = 0, "nonce")                                                \
	X(attempt = 0, "attempt")                                            \
	X(slot_address = 0, "slot address")                                  \
	X(slot_address = 0x7f0000001041, "slot address")                     \
	X(slot_address = UINT64_MAX - 63, "slot address")                    \
	X(probe_address = 0, "probe address")                                \
	X(timeout = 0, "timeout")                                            \
	X(timeout = 32, "timeout exponent is 32; it must be 1 to 31")        \
	X(retry = 8, "retry")                                                \
	X(traffic_class = 256, "traffic class")                              \
	X(service_level = 16, "service level")                               \
	X(pkey = 0x10000, "pkey")                                            \
	X(nics[1].port = 0, "port")                                          \
	X(nics[1].port = 256, "port")                                        \
	X(nics[1].link = VERBS_LINK_UNKNOWN, "link layer")                   \
	X(nics[1].link = 3, "link layer is 3")                               \
	X(nics[1].lid = 0x10000, "lid")                                      \
	X(nics[1].gid_index = -2, "GID index is -2")                         \
	X(nics[1].gid_index = 256, "GID index")                              \
	X(nics[1].gid_type = 3, "GID type")                                  \
	X(nics[1].gid_prefix_bits = 129, "prefix")                           \
	X(nics[1].mtu = 128, "MTU")                                          \
	X(nics[1].mtu = 1500, "MTU is 1500")                                 \
	X(nics[1].mtu = 8192, "MTU")                                         \
	X(nics[1].netdev_mtu = 0x80000000, "netdev MTU")                     \
	X(nics[1].max_read = 0x10000, "reads")                               \
	X(nics[1].lanes[1].qpn = 0, "queue pair number")                     \
	X(nics[1].lanes[1].qpn = 0x1000000, "queue pair number is 16777216") \
	X(nics[1].lanes[0].psn = 0x1000000, "packet number")                 \
	X(nics[1].device[0] = 0, "device name")                              \
	X(nics[1].device[2] = '\n', "device name")                           \
	X(nics[1].device[2] = (char)0xc3, "device name")                     \
	X(nics[1].device[20] = 'x', "behind the device name 'mlx5_1'")

static void test_endpoint_record__every_lie_is_refused_by_name(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct verbs_endpoint_record record, back;
	struct error error;

	(void)state;
#define X(lie, words)                                                                    \
	record = good_endpoint();                                                        \
	record.lie;                                                                      \
	error.text[0] = 0;                                                               \
	assert_int_equal(get_endpoint(data, put_endpoint(data, &record), &back, &error), \
			 -ERROR_MESSAGE);                                                \
	if (!strstr(error.text, words))                                                  \
		fail_msg("%s: '%s' is not in: %s", #lie, words, error.text);
	ENDPOINT_LIES(X)
#undef X
	record = good_endpoint();
	memset(record.nics[0].gid, 0, 16);
	assert_int_equal(get_endpoint(data, put_endpoint(data, &record), &back, &error),
			 -ERROR_MESSAGE);
	record.nics[0].link = VERBS_LINK_INFINIBAND; /* by its lid alone */
	record.nics[0].gid_type = VERBS_GID_IB;
	record.nics[0].gid_index = -1;
	assert_int_equal(get_endpoint(data, put_endpoint(data, &record), &back, &error), 0);
	memset(record.nics[0].device, 'a', sizeof(record.nics[0].device));
	assert_int_equal(get_endpoint(data, put_endpoint(data, &record), &back, &error),
			 -ERROR_MESSAGE);
}

#define REGION_LIES(X)                                  \
	X(identity.pid = 0, "pid")                      \
	X(nonce = 0, "nonce")                           \
	X(base = 0, "base")                             \
	X(base = UINT64_MAX - REGION_BYTES + 1, "base") \
	X(piece_bytes = 0, "piece size")                \
	X(piece_bytes = (1 << 20) + 1, "piece size")    \
	X(piece_bytes = 1 << 21, "3 pieces")            \
	X(piece_bytes = 1ull << 60, "piece size")       \
	X(piece_count = 2, "make 3")                    \
	X(piece_count = 4, "make 3")

static void test_region_record__every_lie_is_refused_by_name(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct verbs_region_record record, back;
	struct error error;

	(void)state;
#define X(lie, words)                                                                \
	record = good_region();                                                      \
	record.lie;                                                                  \
	error.text[0] = 0;                                                           \
	assert_int_equal(get_region(data, put_region(data, &record), &back, &error), \
			 -ERROR_MESSAGE);                                            \
	if (!strstr(error.text, words))                                              \
		fail_msg("%s: '%s' is not in: %s", #lie, words, error.text);
	REGION_LIES(X)
#undef X
}

/* A forger knows the checksum too. */
static size_t sign(unsigned char *data, size_t length)
{
	uint64_t sum;

	for (int i = 0; i < 4; i++)
		data[8 + i] = (unsigned char)(length >> (8 * i));
	sum = checksum64(data, length - RECORD_TAIL_BYTES);
	for (int i = 0; i < 8; i++)
		data[length - 8 + (size_t)i] = (unsigned char)(sum >> (8 * i));
	return length;
}

static void put_u32(unsigned char *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (unsigned char)(value >> (8 * i));
}

/* Where the counts stand in the bodies. */
enum {
	VERSION_AT = 64,
	QPS_AT = 64 + 4 + 40 + 8 + 4 + 16 + 20,
	NICS_AT = QPS_AT + 4,
	PIECES_AT = 64 + 4 + 40 + 24,
	REGION_NICS_AT = PIECES_AT + 4
};

static void test_counts__are_checked_before_they_are_used(void **state)
{
	static const struct {
		bool region;
		size_t at;
		uint32_t value;
		const char *words;
	} rows[] = {
		{false, QPS_AT, 0, "number of queue pairs is 0"},
		{false, QPS_AT, 9, "number of queue pairs is 9; it must be 1 to 8"},
		{false, QPS_AT, UINT32_MAX, "number of queue pairs"},
		{false, NICS_AT, 0, "number of NICs is 0"},
		{false, NICS_AT, 9, "number of NICs is 9"},
		{false, NICS_AT, UINT32_MAX, "number of NICs"},
		{false, VERSION_AT, 2, "version 2"},
		{true, PIECES_AT, 0, "number of keys"},
		{true, PIECES_AT, 49, "number of keys is 98; it must be 1 to 96"},
		{true, PIECES_AT, UINT32_MAX, "number of keys"},
		{true, REGION_NICS_AT, 0, "number of NICs"},
		{true, REGION_NICS_AT, 9, "number of NICs"},
		{true, REGION_NICS_AT, UINT32_MAX, "number of NICs"},
		{true, VERSION_AT, 0, "version 0"},
	};
	unsigned char data[TRANSPORT_RECORD_BYTES];
	struct verbs_endpoint_record endpoint = good_endpoint(), back;
	struct verbs_region_record region = good_region(), region_back;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t length =
			rows[i].region ? put_region(data, &region) : put_endpoint(data, &endpoint);
		struct error error = {0};

		put_u32(data + rows[i].at, rows[i].value);
		sign(data, length);
		assert_int_equal(rows[i].region ? get_region(data, length, &region_back, &error)
						: get_endpoint(data, length, &back, &error),
				 -ERROR_MESSAGE);
		if (!strstr(error.text, rows[i].words))
			fail_msg("'%s' is not in: %s", rows[i].words, error.text);
	}
	endpoint.qps = 8; /* each of the two is possible, not both */
	endpoint.nic_count = 2;
	for (uint32_t q = 0; q < 8; q++)
		endpoint.nics[0].lanes[q] = endpoint.nics[1].lanes[q] =
			(struct verbs_lane_record){7, 7};
	put_endpoint(data, &endpoint);
	put_u32(data + NICS_AT, 3);
	assert_int_equal(get_endpoint(data, sign(data, 1000), &back, NULL), -ERROR_MESSAGE);
}

static void test_bodies__cut_or_longer_are_refused(void **state)
{
	unsigned char data[TRANSPORT_RECORD_BYTES + 64], cut[TRANSPORT_RECORD_BYTES + 64];
	struct verbs_endpoint_record endpoint = good_endpoint(), back;
	struct verbs_region_record region = good_region(), region_back;
	size_t whole[2];

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		whole[kind] = kind ? put_region(data, &region) : put_endpoint(data, &endpoint);
		for (size_t length = RECORD_HEAD_BYTES + RECORD_TAIL_BYTES;
		     length < whole[kind] + 20; length++) {
			if (length == whole[kind])
				continue;
			memcpy(cut, data, sizeof(cut));
			sign(cut, length);
			assert_int_equal(kind ? get_region(cut, length, &region_back, NULL)
					      : get_endpoint(cut, length, &back, NULL),
					 -ERROR_MESSAGE);
		}
	}
}

/* ---- rails ---- */

struct side {
	uint32_t count;
	unsigned subnets[VERBS_NICS_MAX]; /* 0: the prefix is not known */
};

static struct verbs_endpoint_record side_record(const struct side *side, unsigned host)
{
	struct verbs_endpoint_record record = {.nic_count = side->count};

	for (uint32_t i = 0; i < side->count; i++) {
		record.nics[i] = nic("mlx5_0", side->subnets[i], host + i);
		if (!side->subnets[i])
			record.nics[i].gid_prefix_bits = 0;
	}
	return record;
}

static void test_rails__follow_subnets_then_indices(void **state)
{
	static const struct {
		const char *what;
		struct side trainer, inference;
		uint32_t turn, count;
		uint32_t rails[4][2]; /* trainer, inference; by trainer */
	} rows[] = {
		{"one each", {1, {1}}, {1, {1}}, 5, 1, {{0, 0}}},
		{"one subnet for all: by index",
		 {3, {1, 1, 1}},
		 {3, {1, 1, 1}},
		 1,
		 3,
		 {{0, 0}, {1, 1}, {2, 2}}},
		{"a subnet per rail, in another order",
		 {3, {1, 2, 3}},
		 {3, {3, 1, 2}},
		 0,
		 3,
		 {{0, 1}, {1, 2}, {2, 0}}},
		{"the one shared subnet; the rest may not be routed",
		 {2, {1, 2}},
		 {2, {2, 3}},
		 0,
		 1,
		 {{1, 0}}},
		{"no shared subnet: routed, by index",
		 {2, {1, 2}},
		 {2, {3, 4}},
		 0,
		 2,
		 {{0, 0}, {1, 1}}},
		{"no prefix known: by index", {2, {0, 0}}, {2, {0, 0}}, 3, 2, {{0, 0}, {1, 1}}},
		{"fewer there, turn 0", {4, {1, 1, 1, 1}}, {1, {1}}, 0, 1, {{0, 0}}},
		{"fewer there, turn 1", {4, {1, 1, 1, 1}}, {1, {1}}, 1, 1, {{1, 0}}},
		{"fewer there, turn 6", {4, {1, 1, 1, 1}}, {1, {1}}, 6, 1, {{2, 0}}},
		{"fewer there, two of four, turn 1",
		 {4, {1, 1, 1, 1}},
		 {2, {1, 1}},
		 1,
		 2,
		 {{2, 0}, {3, 1}}},
		{"fewer here, turn 2", {2, {1, 1}}, {3, {1, 1, 1}}, 2, 2, {{0, 1}, {1, 2}}},
		{"a turn does not leave the subnet", {2, {1, 2}}, {1, {1}}, 1, 1, {{0, 0}}},
		{"two subnets of two, mixed",
		 {4, {1, 1, 2, 2}},
		 {4, {1, 2, 1, 2}},
		 0,
		 4,
		 {{0, 0}, {1, 2}, {2, 3}, {3, 1}}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct verbs_endpoint_record trainer = side_record(&rows[i].trainer, 10);
		struct verbs_endpoint_record inference = side_record(&rows[i].inference, 50);
		struct verbs_rail rails[VERBS_NICS_MAX];
		uint32_t count = verbs_rails_match(&trainer, &inference, rows[i].turn, rails);
		uint32_t found = 0;

		for (uint32_t r = 0; r < rows[i].count; r++)
			for (uint32_t k = 0; k < count; k++)
				found += rails[k].trainer_nic == rows[i].rails[r][0] &&
					 rails[k].inference_nic == rows[i].rails[r][1];
		if (count != rows[i].count || found != count)
			fail_msg("%s: %u rails, %u of them right", rows[i].what, count, found);
	}
}

static void test_rails__need_one_way_of_addressing(void **state)
{
	struct verbs_endpoint_record a = side_record(&(struct side){1, {1}}, 1);
	struct verbs_endpoint_record b = side_record(&(struct side){1, {1}}, 2);
	struct verbs_rail rails[VERBS_NICS_MAX];

	(void)state;
	b.nics[0].link = VERBS_LINK_INFINIBAND;
	assert_int_equal(verbs_rails_match(&a, &b, 0, rails), 0);
	b.nics[0].link = VERBS_LINK_ETHERNET;
	b.nics[0].gid_type = VERBS_GID_ROCE_V1;
	assert_int_equal(verbs_rails_match(&a, &b, 0, rails), 0);
	b.nics[0].gid_type = VERBS_GID_ROCE_V2;
	b.nics[0].gid[0] = 0xfd; /* IPv6 */
	assert_int_equal(verbs_rails_match(&a, &b, 0, rails), 0);
	a.nics[0].gid[0] = 0xfd;
	assert_int_equal(verbs_rails_match(&a, &b, 0, rails), 1);
	a.nics[0].link = b.nics[0].link = VERBS_LINK_INFINIBAND; /* other prefix: a router */
	a.nics[0].gid[0] = 0xfe;
	assert_int_equal(verbs_rails_match(&a, &b, 0, rails), 1);
}

/* Any sides and any turn: each NIC at most once, and as many rails as the side with fewer has. */
static void test_rails__use_each_nic_once_at_every_turn(void **state)
{
	struct side flat = {VERBS_NICS_MAX, {1, 1, 1, 1, 1, 1, 1, 1}};
	struct verbs_rail rails[VERBS_NICS_MAX];

	(void)state;
	for (uint32_t t = 1; t <= VERBS_NICS_MAX; t++)
		for (uint32_t i = 1; i <= VERBS_NICS_MAX; i++)
			for (uint32_t turn = 0; turn < 70; turn++) {
				struct verbs_endpoint_record a = side_record(&flat, 1);
				struct verbs_endpoint_record b = side_record(&flat, 100);
				uint32_t seen[2] = {0}, count;

				a.nic_count = t;
				b.nic_count = i;
				count = verbs_rails_match(&a, &b, turn ? UINT32_MAX - turn : 0,
							  rails);
				assert_int_equal(count, t < i ? t : i);
				for (uint32_t r = 0; r < count; r++) {
					assert_true(rails[r].trainer_nic < t);
					assert_true(rails[r].inference_nic < i);
					seen[0] |= 1u << rails[r].trainer_nic;
					seen[1] |= 1u << rails[r].inference_nic;
				}
				assert_int_equal(__builtin_popcount(seen[0]), count);
				assert_int_equal(__builtin_popcount(seen[1]), count);
			}
}

static void test_immediate__says_sequence_and_lanes(void **state)
{
	uint32_t immediate = verbs_immediate(0x123456789, 0x8001);

	(void)state;
	assert_int_equal(verbs_immediate_sequence(immediate), 0x6789);
	assert_int_equal(verbs_immediate_lanes(immediate), 0x8001);
}

static void test_relaxed_ordering__is_off_on_haswell_and_broadwell_only(void **state)
{
	static const struct {
		const char *cpuinfo;
		bool fits;
	} rows[] = {
		{"", true},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 63\nmodel name\t: E5\n",
		 false},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\nmodel name\t: E5\n",
		 false},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: X\nmodel\t\t: 86\n",
		 false},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: 63\n",
		 true},
		{"vendor_id\t: GenuineIntel\ncpu family\t: 15\nmodel\t\t: 63\n", true},
		{"vendor_id\t: AuthenticAMD\ncpu family\t: 6\nmodel\t\t: 63\n", true},
		{"processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(verbs_relaxed_fits(rows[i].cpuinfo), rows[i].fits);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records__come_back_as_they_went),
		cmocka_unit_test(test_records__of_the_largest_size_fit),
		cmocka_unit_test(test_endpoint_record__every_lie_is_refused_by_name),
		cmocka_unit_test(test_region_record__every_lie_is_refused_by_name),
		cmocka_unit_test(test_counts__are_checked_before_they_are_used),
		cmocka_unit_test(test_bodies__cut_or_longer_are_refused),
		cmocka_unit_test(test_rails__follow_subnets_then_indices),
		cmocka_unit_test(test_rails__need_one_way_of_addressing),
		cmocka_unit_test(test_rails__use_each_nic_once_at_every_turn),
		cmocka_unit_test(test_immediate__says_sequence_and_lanes),
		cmocka_unit_test(test_relaxed_ordering__is_off_on_haswell_and_broadwell_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
