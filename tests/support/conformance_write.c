/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance_parts.h"

#include "base/clock.h"
#include <stdio.h>
#include <string.h>

#define GUARD 64
#define KIB   UINT64_C(1024)
#define MIB   (KIB * 1024)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BIG_MIB 3
#else
#define BIG_MIB 63
#endif

static void check_one_size(struct pair *pair, uint64_t bytes)
{
	uint64_t room = pair->bytes - bytes - 2 * GUARD;
	uint64_t offset = GUARD + conformance_random(room < 9000 ? room + 1 : 9000);

	for (uint64_t i = 0; i < bytes; i++)
		pair->from[i] = (unsigned char)(i * 131 + (i >> 8) * 7 + bytes);
	memset(pair->to + offset - GUARD, 0xee, bytes + 2 * GUARD);
	write_and_signal(pair, offset, bytes);
	assert_memory_equal(pair->to + offset, pair->from, bytes);
	assert_true(all_bytes(pair->to + offset - GUARD, GUARD, 0xee));
	assert_true(all_bytes(pair->to + offset + bytes, GUARD, 0xee));
}

void write__moves_exactly_its_bytes_at_any_size(void **state)
{
	const uint64_t big = (1 + test_repeats(BIG_MIB)) * MIB;
	const uint64_t sizes[] = {0, 1, 2, 63, 4095, 4096, 4097, 65535, MIB - 1, MIB, MIB + 1, big};
	struct pair pair;

	(void)state;
	open_pair(&pair, big + 16 * KIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		check_one_size(&pair, sizes[i]);
	for (int i = 0; i < 50; i++)
		check_one_size(&pair, conformance_random(20000));
	pair_close(&pair);
}

/* All of it is complete: NICs that are counted have carried it, and have nothing on its way. */
static void check_traffic(struct transport_domain *domain, uint64_t bytes)
{
	struct transport_traffic traffic;
	uint64_t carried = 0;
	uint32_t count;

	transport_domain_nics(domain, &count);
	for (uint32_t i = 0; i < count; i++) {
		transport_domain_traffic(domain, i, &traffic);
		assert_int_equal(traffic.waiting_bytes, 0);
		assert_true(!traffic.bytes || traffic.busy_ns);
		carried += traffic.bytes;
	}
	assert_true(count == 0 || carried >= bytes);
}

void write__counts_what_is_done_in_order(void **state)
{
	const struct transport_stats *stats;
	struct pair pair;
	uint64_t done = 0, last = 0;

	(void)state;
	open_pair(&pair, 64 * KIB);
	for (int i = 0; i < 20; i++)
		ok(transport_write(pair.ab, pair.from, pair.source, pair.remote, (uint64_t)i * 1000,
				   i % 5 == 4 ? 0 : 1000, soon(), &error_));
	for (uint64_t end = soon(); done < 20 && clock_ns() < end; last = done) {
		ok(transport_progress(pair.ab, &done, &error_));
		assert_true(done >= last);
	}
	assert_int_equal(done, 20);
	stats = transport_endpoint_stats(pair.ab);
	assert_int_equal(stats->writes, 20);
	assert_int_equal(stats->bytes, 16000);
	assert_true(stats->chunks >= 16);
	check_traffic(pair.a, 16000);
	pair_close(&pair);
}

void write__refuses_what_lies_outside_and_stays_usable(void **state)
{
	const struct {
		uint64_t offset, bytes;
	} bad[] = {{0, 8193},
		   {8192, 1},
		   {8193, 0},
		   {1, 8192},
		   {UINT64_MAX, 1},
		   {1, UINT64_MAX},
		   {UINT64_MAX, UINT64_MAX},
		   {8000, UINT64_MAX - 7000}};
	struct error error;
	struct pair pair;

	(void)state;
	open_pair(&pair, 8192);
	memset(pair.to, 0, 8192);
	memset(pair.from, 1, 8192);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(transport_write(pair.ab, pair.from, pair.source, pair.remote,
						 bad[i].offset, bad[i].bytes, soon(), &error),
				 -ERROR_BOUNDS);
		assert_non_null(strstr(error.text, "inference 5 (here)"));
		assert_non_null(strstr(error.text, "8192"));
	}
	assert_int_equal(transport_write(pair.ab, pair.from + 1, pair.source, pair.remote, 0, 8192,
					 soon(), &error),
			 -ERROR_BOUNDS);
	assert_int_equal(
		transport_write(pair.ab, pair.from, pair.target, pair.remote, 0, 1, soon(), &error),
		-ERROR_USAGE);
	if (transport_endpoint_caps(pair.ab)->local_registration)
		assert_int_equal(transport_write(pair.ab, pair.from, NULL, pair.remote, 0, 1,
						 soon(), &error),
				 -ERROR_USAGE);
	assert_true(all_bytes(pair.to, 8192, 0));
	write_and_signal(&pair, 8191, 1);
	assert_int_equal(pair.to[8191], 1);
	pair_close(&pair);
}

/* Any part of the rows laid end to end, to any place. */
static void check_rows(struct pair *pair, const struct transport_rows *rows, uint64_t from,
		       uint64_t offset, uint64_t bytes)
{
	const unsigned char *first = rows->first;

	memset(pair->to, 0xee, pair->bytes);
	ok(transport_write_rows(pair->ab, rows, from, pair->remote, offset, bytes, soon(),
				&error_));
	write_and_signal(pair, 0, 0);
	for (uint64_t i = 0; i < bytes; i++)
		if (pair->to[offset + i] !=
		    first[(from + i) / rows->row_bytes * rows->stride_bytes +
			  (from + i) % rows->row_bytes])
			fail_msg("byte %llu of rows of %llu", (unsigned long long)i,
				 (unsigned long long)rows->row_bytes);
	assert_true(all_bytes(pair->to, offset, 0xee));
	assert_true(all_bytes(pair->to + offset + bytes, pair->bytes - offset - bytes, 0xee));
}

static void check_bad_rows(struct pair *pair)
{
	const struct transport_rows bad[] = {{NULL, 8, 8}, {pair->from, 0, 8}, {pair->from, 9, 8}};
	const struct transport_rows good = {pair->from, 8, 16};
	struct error error;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(transport_write_rows(pair->ab, &bad[i], 0, pair->remote, 0, 8,
						      soon(), &error),
				 -ERROR_USAGE);
	assert_int_equal(transport_write_rows(pair->ab, &good, 0, pair->remote, pair->bytes - 7, 8,
					      soon(), &error),
			 -ERROR_BOUNDS);
}

void write_rows__gathers_them_where_they_lie_or_refuses(void **state)
{
	static const uint64_t row_bytes[] = {1, 7, 64, 2049, 4096, 10000};
	unsigned char memory[40000]; /* of no region */
	struct error error;
	struct pair pair;

	(void)state;
	open_pair(&pair, 64 * KIB);
	for (uint64_t i = 0; i < sizeof(memory); i++)
		memory[i] = (unsigned char)(i * 131 + (i >> 8) * 7);
	for (size_t r = 0; r < sizeof(row_bytes) / sizeof(row_bytes[0]); r++) {
		struct transport_rows rows = {memory, row_bytes[r], 2 * row_bytes[r]};
		uint64_t all = sizeof(memory) / rows.stride_bytes * rows.row_bytes;

		if (!transport_endpoint_caps(pair.ab)->gathers) {
			assert_int_equal(transport_write_rows(pair.ab, &rows, 0, pair.remote, 0, 1,
							      soon(), &error),
					 -ERROR_UNSUPPORTED);
			assert_non_null(strstr(error.text, "pack them first"));
			continue;
		}
		check_rows(&pair, &rows, 0, 0, 0);
		check_rows(&pair, &rows, 0, 4095, all);
		check_rows(&pair, &rows, all / 3, 1, all - all / 3);
	}
	if (transport_endpoint_caps(pair.ab)->gathers)
		check_bad_rows(&pair);
	write_and_signal(&pair, 0, 64);
	pair_close(&pair);
}

void pointer__stores_count_as_written(void **state)
{
	struct transport_signal signal;
	struct pair pair;
	unsigned char *there;

	(void)state;
	open_pair(&pair, 8192);
	there = transport_remote_pointer(pair.remote);
	if (!transport_endpoint_caps(pair.ab)->mapped_remote ||
	    !transport_region_mapped(pair.target)) {
		assert_null(there);
	} else {
		assert_non_null(there);
		memset(there, 9, 8192);
		ok(transport_flush(pair.ab, soon(), &error_));
		ok(transport_signal(pair.ab, 1, NULL, 0, soon(), &error_));
		wait_signals(pair.b, 1);
		assert_int_equal(transport_signal_read(pair.ba, &signal), 0);
		assert_true(all_bytes(pair.to, 8192, 9));
	}
	pair_close(&pair);
}

static void import_again(struct pair *pair, const struct transport_region *region)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	transport_remote_close(&pair->remote);
	ok(transport_region_export(region, record, &length, &error_));
	ok(transport_remote_import(pair->ab, record, length, &pair->remote, &error_));
}

/* Of memory that processes share. */
static unsigned shared_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	char line[512];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "/memfd:weft") != NULL;
	fclose(maps);
	return count;
}

/* As a job has it that pauses: what is mapped stays so from one import to the next, and for that time alone. */
void mapped__memory_that_is_kept_is_there_again(void **state)
{
	struct transport_region *other = NULL;
	unsigned before;
	struct pair pair;
	struct error error;
	bool keeps;
	void *there;

	(void)state;
	open_pair(&pair, 8192);
	keeps = transport_region_mapped(pair.target) &&
		strcmp(conformance_subject->provider, "shm") == 0;
	there = transport_remote_pointer(pair.remote);
	assert_false(transport_remote_kept(pair.remote));
	import_again(&pair, pair.target);
	assert_false(transport_remote_kept(pair.remote));
	if (transport_region_allocate(pair.b, 8192, &other, &error))
		other = NULL;
	before = shared_mappings();
	transport_domain_keep_mapped(pair.a, true);
	import_again(&pair, pair.target);
	assert_true(transport_remote_kept(pair.remote) >= keeps);
	if (keeps)
		assert_non_null(there);
	write_and_signal(&pair, 0, 8192);
	if (other) { /* as large, and another one */
		import_again(&pair, other);
		assert_false(transport_remote_kept(pair.remote));
	}
	import_again(&pair, pair.target);
	assert_true(transport_remote_kept(pair.remote) >= keeps);
	assert_true(shared_mappings() >= before + keeps); /* of the other one */
	write_and_signal(&pair, 0, 8192);
	transport_domain_keep_mapped(pair.a, false);
	assert_int_equal(shared_mappings(), before);
	import_again(&pair, pair.target);
	assert_false(transport_remote_kept(pair.remote));
	transport_domain_keep_mapped(pair.a, true);
	transport_remote_close(&pair.remote); /* and the domain closes what is left */
	transport_region_close(&other);
	pair_close(&pair);
}

/* A thread does it, which the domain's end waits for. */
void mapped__much_memory_that_is_kept_for_nothing_is_unmapped(void **state)
{
	struct pair pair;
	bool mapped;

	(void)state;
	open_pair(&pair, 4 << 20);
	mapped = transport_remote_pointer(pair.remote) &&
		 strcmp(conformance_subject->provider, "shm") == 0;
	for (int turn = 0; turn < 3; turn++) {
		unsigned before = shared_mappings();
		uint64_t end = soon();

		transport_domain_keep_mapped(pair.a, true);
		transport_remote_close(&pair.remote);
		if (mapped)
			assert_int_equal(shared_mappings(), before);
		transport_domain_keep_mapped(pair.a, false);
		while (shared_mappings() > before - mapped && clock_ns() < end)
			clock_sleep_ms(1);
		assert_true(shared_mappings() <= before - mapped);
		import_again(&pair, pair.target);
		assert_false(transport_remote_kept(pair.remote));
		write_and_signal(&pair, 0, 8192);
	}
	transport_domain_keep_mapped(pair.a, true);
	pair_close(&pair);
}
