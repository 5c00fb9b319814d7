/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance.h"

#include "common/clock.h"
#include "common/memory.h"
#include "tests/support/conformance_process.h"
#include <pthread.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GUARD 64
#define KIB   UINT64_C(1024)
#define MIB   (KIB * 1024)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BIG_BYTES (4 * MIB)
#else
#define BIG_BYTES (64 * MIB)
#endif

static const struct conformance *subject;

static uint64_t random_state = 1;
static uint64_t random_below(uint64_t below)
{
	uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % below;
}

static void open_pair(struct pair *pair, uint64_t bytes)
{
	struct error error = {0};

	if (pair_open(pair, subject, bytes, &error))
		fail_msg("%s: %s", subject->name, error.text);
}

#define ok(call)                                                                   \
	do {                                                                       \
		struct error error_ = {0};                                         \
		int rc_ = (call);                                                  \
                                                                                   \
		if (rc_)                                                           \
			fail_msg("%s: %s: %s", subject->name, #call, error_.text); \
	} while (0)

/* The signal at the end: only who has seen one may look at the bytes. */
static void write_and_signal(struct pair *pair, uint64_t offset, uint64_t bytes)
{
	ok(transport_write(pair->ab, pair->from, pair->source, pair->remote, offset, bytes, soon(),
			   &error_));
	ok(transport_flush(pair->ab, soon(), &error_));
	ok(transport_signal(pair->ab, 1, NULL, 0, soon(), &error_));
}

static bool all_bytes(const unsigned char *at, uint64_t bytes, unsigned char value)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != value)
			return false;
	return true;
}

static void check_one_size(struct pair *pair, uint64_t bytes)
{
	uint64_t room = pair->bytes - bytes - 2 * GUARD;
	uint64_t offset = GUARD + random_below(room < 9000 ? room + 1 : 9000);

	for (uint64_t i = 0; i < bytes; i++)
		pair->from[i] = (unsigned char)(i * 131 + (i >> 8) * 7 + bytes);
	memset(pair->to + offset - GUARD, 0xee, bytes + 2 * GUARD);
	write_and_signal(pair, offset, bytes);
	assert_memory_equal(pair->to + offset, pair->from, bytes);
	assert_true(all_bytes(pair->to + offset - GUARD, GUARD, 0xee));
	assert_true(all_bytes(pair->to + offset + bytes, GUARD, 0xee));
}

static void write__moves_exactly_its_bytes_at_any_size(void **state)
{
	const uint64_t sizes[] = {0,	1,     2,	63,  4095,    4096,
				  4097, 65535, MIB - 1, MIB, MIB + 1, BIG_BYTES};
	struct pair pair;

	(void)state;
	open_pair(&pair, BIG_BYTES + 16 * KIB);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		check_one_size(&pair, sizes[i]);
	for (int i = 0; i < 50; i++)
		check_one_size(&pair, random_below(20000));
	pair_close(&pair);
}

static void write__counts_what_is_done_in_order(void **state)
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
	pair_close(&pair);
}

static void write__refuses_what_lies_outside_and_stays_usable(void **state)
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
	if (transport_domain_caps(pair.a)->local_registration)
		assert_int_equal(transport_write(pair.ab, pair.from, NULL, pair.remote, 0, 1,
						 soon(), &error),
				 -ERROR_USAGE);
	assert_true(all_bytes(pair.to, 8192, 0));
	write_and_signal(&pair, 8191, 1);
	assert_int_equal(pair.to[8191], 1);
	pair_close(&pair);
}

/* ---- signals ---- */

static void signal__carries_word_payload_and_sequence(void **state)
{
	struct transport_signal signal;
	unsigned char payload[TRANSPORT_PAYLOAD_BYTES];
	struct error error;
	struct pair pair;
	uint64_t count;

	(void)state;
	open_pair(&pair, 4096);
	assert_int_equal(transport_signal_read(pair.ba, &signal), 1);
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (unsigned char)(i + 1);
	ok(transport_signal(pair.ab, 77, payload, sizeof(payload), soon(), &error_));
	count = transport_signal_wait(pair.b, 0, soon());
	assert_int_equal(count, 1);
	assert_int_equal(transport_signal_read(pair.ba, &signal), 0);
	assert_int_equal(signal.word, 77);
	assert_int_equal(signal.sequence, 1);
	assert_int_equal(signal.length, sizeof(payload));
	assert_memory_equal(signal.payload, payload, sizeof(payload));
	assert_int_equal(transport_signal(pair.ab, 1, payload, sizeof(payload) + 1, soon(), &error),
			 -ERROR_USAGE);
	for (uint32_t i = 0; i < 5; i++)
		ok(transport_signal(pair.ab, i, NULL, 0, soon(), &error_));
	assert_int_equal(transport_signal_wait(pair.b, 1, soon()), 6);
	assert_int_equal(transport_signal_read(pair.ba, &signal), 0);
	assert_int_equal(signal.sequence, 6); /* 2..5 were overwritten, and that is seen */
	assert_int_equal(signal.word, 4);
	pair_close(&pair);
}

struct hammer {
	struct pair pair;
	_Atomic uint64_t acked, violations, stop;
};

static unsigned char pattern(uint64_t round, uint64_t at)
{
	return (unsigned char)(round * 37 + at * 5 + (at >> 9));
}

/* Whatever signal is visible now: is all of its data? */
static uint64_t look(struct hammer *hammer)
{
	struct transport_signal signal;
	uint64_t wrong = 0;

	if (transport_signal_read(hammer->pair.ba, &signal) != 0)
		return 0;
	for (uint64_t i = 0; i < hammer->pair.bytes; i++)
		wrong += hammer->pair.to[i] != pattern(signal.word, i);
	if (wrong)
		atomic_fetch_add(&hammer->violations, 1);
	return signal.sequence;
}

static void look_at_placement(void *context)
{
	look(context);
}

static void *reader(void *context)
{
	struct hammer *hammer = context;

	/* only a new signal is looked at: after the ack its bytes may change */
	while (!atomic_load(&hammer->stop)) {
		struct transport_signal signal;

		if (transport_signal_read(hammer->pair.ba, &signal) == 0 &&
		    signal.sequence > atomic_load(&hammer->acked))
			atomic_store(&hammer->acked,
				     subject->wrong ? signal.sequence : look(hammer));
	}
	return NULL;
}

static int hammer_round(struct hammer *hammer, uint64_t round, struct error *error)
{
	struct pair *pair = &hammer->pair;
	uint64_t at = 0, end = soon();
	int rc = 0;

	for (uint64_t i = 0; i < pair->bytes; i++)
		pair->from[i] = pattern(round, i);
	while (at < pair->bytes && !rc) {
		uint64_t bytes = 1 + random_below(pair->bytes - at);

		rc = transport_write(pair->ab, pair->from + at, pair->source, pair->remote, at,
				     bytes, soon(), error);
		at += bytes;
	}
	if (!rc)
		rc = transport_signal(pair->ab, (uint32_t)round, NULL, 0, soon(), error);
	while (!rc && atomic_load(&hammer->acked) < round)
		if (clock_ns() > end)
			rc = error_set(error, ERROR_TIMEOUT, "round %llu was not seen",
				       (unsigned long long)round);
	return rc;
}

uint64_t conformance_violations(const struct conformance *given, unsigned rounds)
{
	struct hammer *hammer = memory_zalloc(1, sizeof(*hammer));
	struct error error = {0};
	uint64_t violations;
	pthread_t thread;
	int rc = 0;

	assert_non_null(hammer);
	subject = given;
	open_pair(&hammer->pair, 20000);
	if (subject->watch)
		*subject->watch = (struct conformance_watch){look_at_placement, hammer};
	pthread_create(&thread, NULL, reader, hammer);
	for (uint64_t round = 1; round <= rounds; round++) {
		rc = hammer_round(hammer, round, &error);
		if (rc)
			break;
	}
	atomic_store(&hammer->stop, 1);
	pthread_join(thread, NULL);
	if (subject->watch)
		*subject->watch = (struct conformance_watch){NULL, NULL};
	pair_close(&hammer->pair);
	violations = atomic_load(&hammer->violations);
	memory_free(hammer);
	if (rc)
		fail_msg("%s: %s", subject->name, error.text);
	return violations;
}

static void signal__is_never_seen_before_its_data(void **state)
{
	(void)state;
	assert_int_equal(conformance_violations(subject, 150), 0);
}

static void *torn_reader(void *context)
{
	struct hammer *hammer = context;
	struct transport_signal signal;

	while (!atomic_load(&hammer->stop)) {
		if (transport_signal_read(hammer->pair.ba, &signal) != 0)
			continue;
		for (uint32_t i = 0; i < signal.length; i++)
			if (signal.payload[i] != (unsigned char)signal.word ||
			    signal.word != (uint32_t)signal.sequence)
				atomic_fetch_add(&hammer->violations, 1);
	}
	return NULL;
}

static void signal__payload_is_never_torn(void **state)
{
	struct hammer *hammer = memory_zalloc(1, sizeof(*hammer));
	unsigned char payload[TRANSPORT_PAYLOAD_BYTES];
	pthread_t thread;

	(void)state;
	assert_non_null(hammer);
	open_pair(&hammer->pair, 4096);
	pthread_create(&thread, NULL, torn_reader, hammer);
	for (uint32_t i = 1; i <= 1000; i++) {
		memset(payload, (int)i, sizeof(payload));
		ok(transport_signal(hammer->pair.ab, i, payload, sizeof(payload), soon(), &error_));
	}
	atomic_store(&hammer->stop, 1);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&hammer->violations), 0);
	pair_close(&hammer->pair);
	memory_free(hammer);
}

static void *waiter(void *context)
{
	struct hammer *hammer = context;
	uint64_t count = transport_signal_wait(hammer->pair.b, 0, soon());

	atomic_store(&hammer->acked, count + 1);
	return NULL;
}

static void signal__wakes_a_waiting_thread(void **state)
{
	struct hammer *hammer = memory_zalloc(1, sizeof(*hammer));
	pthread_t thread;

	(void)state;
	assert_non_null(hammer);
	open_pair(&hammer->pair, 4096);
	pthread_create(&thread, NULL, waiter, hammer);
	clock_sleep_ms(5);
	ok(transport_signal(hammer->pair.ab, 1, NULL, 0, soon(), &error_));
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&hammer->acked), 2);
	pair_close(&hammer->pair);
	memory_free(hammer);
}

static void interrupt__ends_a_wait_now_or_the_next(void **state)
{
	struct hammer *hammer = memory_zalloc(1, sizeof(*hammer));
	pthread_t thread;
	uint64_t began;

	(void)state;
	assert_non_null(hammer);
	open_pair(&hammer->pair, 4096);
	pthread_create(&thread, NULL, waiter, hammer);
	clock_sleep_ms(5);
	transport_domain_interrupt(hammer->pair.b);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&hammer->acked), 1);
	transport_domain_interrupt(hammer->pair.b);
	assert_int_equal(transport_signal_wait(hammer->pair.b, 0, soon()), 0);
	began = clock_ns();
	assert_int_equal(transport_signal_wait(hammer->pair.b, 0, began + 20000000), 0);
	assert_true(clock_ns() - began >= 19000000); /* one interrupt, one wait */
	pair_close(&hammer->pair);
	memory_free(hammer);
}

/* ---- many ---- */

#define SIDES 3
#define SLICE 5000

struct mesh {
	struct transport_domain *a[SIDES], *b[SIDES];
	struct transport_region *source[SIDES], *target[SIDES];
	struct transport_endpoint *ab[SIDES][SIDES], *ba[SIDES][SIDES];
	struct transport_remote *remote[SIDES][SIDES];
};

static void mesh_side(enum role role, uint32_t rank, struct transport_domain **domain,
		      struct transport_region **region)
{
	struct transport_options options = {
		.self = {role, rank}, .secret = 42, .provider_options = subject->options};

	ok(transport_domain_open(domain, subject->provider, &options, &error_));
	ok(transport_region_allocate(*domain, SIDES * SLICE, region, &error_));
}

static void mesh_join(struct mesh *mesh, uint32_t i, uint32_t j)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	ok(transport_endpoint_open(mesh->a[i], (struct member){ROLE_INFERENCE, j}, NULL,
				   &mesh->ab[i][j], &error_));
	ok(transport_endpoint_open(mesh->b[j], (struct member){ROLE_TRAINER, i}, NULL,
				   &mesh->ba[i][j], &error_));
	/* import first, connect after: both orders are right */
	ok(transport_region_export(mesh->target[j], record, &length, &error_));
	ok(transport_remote_import(mesh->ab[i][j], record, length, &mesh->remote[i][j], &error_));
	assert_null(transport_remote_pointer(mesh->remote[i][j]));
	ok(transport_endpoint_record(mesh->ba[i][j], record, &length, &error_));
	ok(transport_endpoint_connect(mesh->ab[i][j], record, length, soon(), &error_));
}

static void mesh_close(struct mesh *mesh)
{
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++) {
			transport_endpoint_close(&mesh->ab[i][j]);
			transport_remote_close(&mesh->remote[i][j]);
			transport_endpoint_close(&mesh->ba[i][j]);
		}
	for (uint32_t i = 0; i < SIDES; i++) {
		transport_region_close(&mesh->source[i]);
		transport_region_close(&mesh->target[i]);
		transport_domain_close(&mesh->a[i]);
		transport_domain_close(&mesh->b[i]);
	}
}

static void endpoints__many_writers_and_targets_do_not_mix(void **state)
{
	struct mesh mesh = {0};
	struct transport_signal signal;

	(void)state;
	for (uint32_t i = 0; i < SIDES; i++) {
		mesh_side(ROLE_TRAINER, i, &mesh.a[i], &mesh.source[i]);
		mesh_side(ROLE_INFERENCE, i, &mesh.b[i], &mesh.target[i]);
		memset(transport_region_memory(mesh.source[i]), (int)i + 1, SIDES * SLICE);
	}
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++)
			mesh_join(&mesh, i, j);
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++)
			ok(transport_write(mesh.ab[i][j], transport_region_memory(mesh.source[i]),
					   mesh.source[i], mesh.remote[i][j], i * SLICE, SLICE,
					   soon(), &error_));
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++)
			ok(transport_signal(mesh.ab[i][j], 10 * i + j, NULL, 0, soon(), &error_));
	for (uint32_t j = 0; j < SIDES; j++) {
		const unsigned char *got = transport_region_memory(mesh.target[j]);

		assert_int_equal(transport_signal_wait(mesh.b[j], 0, soon()), SIDES);
		for (uint32_t i = 0; i < SIDES; i++) {
			assert_int_equal(transport_signal_read(mesh.ba[i][j], &signal), 0);
			assert_int_equal(signal.word, 10 * i + j);
			assert_true(all_bytes(got + i * SLICE, SLICE, (unsigned char)(i + 1)));
		}
	}
	mesh_close(&mesh);
}

static void endpoints__hundreds_fit_in_one_domain(void **state)
{
	enum { MANY = 450 };
	static struct transport_endpoint *many[MANY], *back[MANY];
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_signal signal;
	struct pair pair;
	size_t length;

	(void)state;
	open_pair(&pair, 4096);
	for (uint32_t i = 0; i < MANY; i++) {
		ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 3}, NULL, &back[i],
					   &error_));
		ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL,
					   &many[i], &error_));
		ok(transport_endpoint_record(back[i], record, &length, &error_));
		ok(transport_endpoint_connect(many[i], record, length, soon(), &error_));
	}
	for (uint32_t i = 0; i < MANY; i++)
		ok(transport_signal(many[i], i + 1, NULL, 0, soon(), &error_));
	for (uint32_t i = 0; i < MANY; i++) {
		assert_int_equal(transport_signal_read(back[i], &signal), 0);
		assert_int_equal(signal.word, i + 1);
		transport_endpoint_close(&many[i]);
		transport_endpoint_close(&back[i]);
	}
	pair_close(&pair);
}

/* ---- records ---- */

static void expect_refused(struct pair *pair, const unsigned char *record, size_t length,
			   bool endpoint)
{
	struct transport_endpoint *fresh = NULL;
	struct transport_remote *remote = NULL;
	struct error error = {0};
	int rc;

	if (endpoint) {
		ok(transport_endpoint_open(pair->a, (struct member){ROLE_INFERENCE, 5}, NULL,
					   &fresh, &error_));
		rc = transport_endpoint_connect(fresh, record, length, soon(), &error);
		transport_endpoint_close(&fresh);
	} else {
		rc = transport_remote_import(pair->ab, record, length, &remote, &error);
		assert_null(remote);
	}
	assert_int_equal(rc, -ERROR_MESSAGE);
	assert_true(strlen(error.text) > 10);
}

static void records__garbled_or_cut_are_refused(void **state)
{
	unsigned char record[2][TRANSPORT_RECORD_BYTES], bad[TRANSPORT_RECORD_BYTES];
	size_t length[2];
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096);
	ok(transport_region_export(pair.target, record[0], &length[0], &error_));
	ok(transport_endpoint_record(pair.ba, record[1], &length[1], &error_));
	for (int kind = 0; kind < 2; kind++) {
		for (size_t i = 0; i < length[kind]; i++) {
			expect_refused(&pair, record[kind], i, kind == 1);
			memcpy(bad, record[kind], length[kind]);
			bad[i] ^= (unsigned char)(1u << random_below(8));
			expect_refused(&pair, bad, length[kind], kind == 1);
		}
		expect_refused(&pair, record[kind], length[kind] + 1, kind == 1);
		expect_refused(&pair, record[kind], length[kind], kind == 0); /* other kind */
	}
	pair_close(&pair);
}

static void records__of_another_job_or_peer_are_refused(void **state)
{
	struct transport_options other = {
		.self = {ROLE_INFERENCE, 5}, .secret = 43, .provider_options = subject->options};
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *endpoint = NULL;
	struct transport_region *region = NULL;
	struct transport_domain *domain = NULL;
	struct pair pair;
	size_t length;

	(void)state;
	open_pair(&pair, 4096);
	for (int who = 0; who < 2; who++) {
		other.secret = who ? 42 : 43;
		other.self.rank = who ? 6 : 5;
		ok(transport_domain_open(&domain, subject->provider, &other, &error_));
		ok(transport_region_allocate(domain, 4096, &region, &error_));
		ok(transport_endpoint_open(domain, (struct member){ROLE_TRAINER, 3}, NULL,
					   &endpoint, &error_));
		ok(transport_region_export(region, record, &length, &error_));
		expect_refused(&pair, record, length, false);
		ok(transport_endpoint_record(endpoint, record, &length, &error_));
		expect_refused(&pair, record, length, true);
		transport_endpoint_close(&endpoint);
		transport_region_close(&region);
		transport_domain_close(&domain);
	}
	/* made for another peer */
	ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 4}, NULL, &endpoint,
				   &error_));
	ok(transport_endpoint_record(endpoint, record, &length, &error_));
	expect_refused(&pair, record, length, true);
	transport_endpoint_close(&endpoint);
	pair_close(&pair);
}

/* ---- life ---- */

static void endpoint__refuses_before_connect_and_twice(void **state)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *fresh = NULL, *back = NULL;
	struct error error;
	struct pair pair;
	size_t length;

	(void)state;
	open_pair(&pair, 4096);
	ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL, &fresh,
				   &error_));
	assert_int_equal(transport_signal(fresh, 1, NULL, 0, soon(), &error), -ERROR_STATE);
	assert_int_equal(transport_flush(fresh, soon(), &error), -ERROR_STATE);
	assert_non_null(strstr(error.text, "inference 5"));
	ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 3}, NULL, &back, &error_));
	ok(transport_endpoint_record(back, record, &length, &error_));
	ok(transport_endpoint_connect(fresh, record, length, soon(), &error_));
	assert_int_equal(transport_endpoint_connect(fresh, record, length, soon(), &error),
			 -ERROR_STATE);
	transport_endpoint_close(&fresh);
	/* a record of an endpoint that is gone */
	transport_endpoint_close(&back);
	ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL, &fresh,
				   &error_));
	assert_int_equal(transport_endpoint_connect(fresh, record, length, soon(), &error),
			 -ERROR_PEER_LOST);
	transport_endpoint_close(&fresh);
	pair_close(&pair);
}

static void endpoint__once_broken_keeps_its_first_error(void **state)
{
	struct error first = {0}, later = {0};
	struct pair pair;
	uint64_t done;
	int rc = 0;

	(void)state;
	open_pair(&pair, 4096);
	(void)transport_endpoint_fence(pair.ba, clock_ns() + 1000000, &first);
	rc = transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 4096, soon(), &first);
	if (!rc)
		rc = transport_flush(pair.ab, soon(), &first);
	if (!rc)
		rc = transport_signal(pair.ab, 1, NULL, 0, soon(), &first);
	assert_true(rc < 0);
	assert_int_equal(rc, -(int)first.code);
	assert_int_equal(
		transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 1, soon(), &later),
		rc);
	assert_string_equal(first.text, later.text);
	assert_int_equal(transport_flush(pair.ab, soon(), &later), rc);
	assert_int_equal(transport_progress(pair.ab, &done, &later), rc);
	assert_int_equal(transport_signal(pair.ab, 1, NULL, 0, soon(), &later), rc);
	assert_string_equal(first.text, later.text);
	assert_null(transport_remote_pointer(pair.remote));
	pair_close(&pair);
}

/* After the fence returned 0, the peer's stores cannot land, whatever it tries. */
static void fence__stops_a_peer_that_let_go(void **state)
{
	struct error error;
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096);
	memset(pair.from, 5, 4096);
	write_and_signal(&pair, 0, 4096);
	transport_endpoint_close(&pair.ab);
	ok(transport_endpoint_fence(pair.ba, soon(), &error_));
	assert_int_equal(transport_signal(pair.ba, 1, NULL, 0, soon(), &error), -ERROR_STATE);
	ok(transport_endpoint_fence(pair.ba, soon(), &error_)); /* again is fine */
	pair_close(&pair);
}

static void fence__refuses_a_peer_that_comes_later(void **state)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *back = NULL, *late = NULL;
	struct error error;
	struct pair pair;
	size_t length;
	int rc;

	(void)state;
	open_pair(&pair, 4096);
	ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 3}, NULL, &back, &error_));
	ok(transport_endpoint_record(back, record, &length, &error_));
	ok(transport_endpoint_fence(back, soon(), &error_));
	transport_endpoint_close(&back);
	ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL, &late,
				   &error_));
	rc = transport_endpoint_connect(late, record, length, soon(), &error);
	assert_int_equal(rc, -ERROR_PEER_LOST);
	transport_endpoint_close(&late);
	pair_close(&pair);
}

static void pointer__stores_count_as_written(void **state)
{
	struct transport_signal signal;
	struct pair pair;
	unsigned char *there;

	(void)state;
	open_pair(&pair, 8192);
	there = transport_remote_pointer(pair.remote);
	if (!transport_domain_caps(pair.a)->mapped_remote ||
	    !transport_region_mapped(pair.target)) {
		assert_null(there);
	} else {
		assert_non_null(there);
		memset(there, 9, 8192);
		ok(transport_flush(pair.ab, soon(), &error_));
		ok(transport_signal(pair.ab, 1, NULL, 0, soon(), &error_));
		assert_int_equal(transport_signal_read(pair.ba, &signal), 0);
		assert_true(all_bytes(pair.to, 8192, 9));
	}
	pair_close(&pair);
}

static void close__any_order_is_right(void **state)
{
	struct pair pair;

	(void)state;
	for (unsigned order = 0; order < 120; order++) {
		unsigned left[5] = {0, 1, 2, 3, 4}, n = 5, code = order;

		open_pair(&pair, 4096);
		while (n) {
			unsigned at = code % n, which = left[at];

			code /= n;
			left[at] = left[--n];
			if (which == 0)
				transport_remote_close(&pair.remote);
			else if (which == 1)
				transport_endpoint_close(&pair.ab);
			else if (which == 2)
				transport_endpoint_close(&pair.ba);
			else if (which == 3)
				transport_region_close(&pair.target);
			else
				transport_region_close(&pair.source);
		}
		pair_close(&pair); /* tolerates what is gone */
	}
}

static void sessions__a_thousand_leave_nothing_behind(void **state)
{
	struct conformance_footprint before = {0, 0}, after;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		if (i == 20)
			before = conformance_footprint();
		ok(conformance_session(subject, UINT64_C(60000000000), &error_));
	}
	after = conformance_footprint();
	assert_int_equal(after.files, before.files);
	/* an allocator may map a little more; a leak would be a thousand */
	assert_true(after.mappings < before.mappings + 40);
}

static void session__survives_every_failed_allocation(void **state)
{
	struct conformance_footprint before = conformance_footprint();
	struct error error = {0};
	int rc = -1;

	(void)state;
	for (uint64_t k = 1; rc && k < 500; k++) {
		error.code = ERROR_NONE;
		memory_fail_at(k);
		rc = conformance_session(subject, UINT64_C(60000000000), &error);
		memory_fail_at(0);
		if (rc)
			assert_int_equal(rc, -ERROR_MEMORY);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(conformance_footprint().files, before.files);
}

static void misuse__is_answered(void **state)
{
	struct transport_options options = {.provider_options = subject->options};
	struct transport_domain *domain = NULL;
	struct transport_region *region = NULL;
	struct transport_endpoint *endpoint = NULL;
	struct transport_remote *remote = NULL;
	struct error error;

	(void)state;
	assert_int_equal(transport_domain_open(&domain, "carrier_pigeon", &options, &error),
			 -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "shm"));
	assert_null(domain);
	ok(transport_domain_open(&domain, subject->provider, &options, &error_));
	assert_int_equal(transport_region_allocate(domain, 0, &region, &error), -ERROR_USAGE);
	assert_int_equal(transport_region_register(domain, NULL, 5, &region, &error), -ERROR_USAGE);
	assert_int_equal(transport_region_allocate(domain, UINT64_C(1) << 60, &region, &error) < 0,
			 1);
	transport_remote_close(&remote);
	transport_endpoint_close(&endpoint);
	transport_region_close(&region);
	transport_domain_close(&domain);
	transport_domain_close(&domain);
}

int conformance_run(const struct conformance *given)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write__moves_exactly_its_bytes_at_any_size),
		cmocka_unit_test(write__counts_what_is_done_in_order),
		cmocka_unit_test(write__refuses_what_lies_outside_and_stays_usable),
		cmocka_unit_test(signal__carries_word_payload_and_sequence),
		cmocka_unit_test(signal__is_never_seen_before_its_data),
		cmocka_unit_test(signal__payload_is_never_torn),
		cmocka_unit_test(signal__wakes_a_waiting_thread),
		cmocka_unit_test(interrupt__ends_a_wait_now_or_the_next),
		cmocka_unit_test(endpoints__many_writers_and_targets_do_not_mix),
		cmocka_unit_test(endpoints__hundreds_fit_in_one_domain),
		cmocka_unit_test(records__garbled_or_cut_are_refused),
		cmocka_unit_test(records__of_another_job_or_peer_are_refused),
		cmocka_unit_test(endpoint__refuses_before_connect_and_twice),
		cmocka_unit_test(endpoint__once_broken_keeps_its_first_error),
		cmocka_unit_test(fence__stops_a_peer_that_let_go),
		cmocka_unit_test(fence__refuses_a_peer_that_comes_later),
		cmocka_unit_test(pointer__stores_count_as_written),
		cmocka_unit_test(close__any_order_is_right),
		cmocka_unit_test(session__survives_every_failed_allocation),
		cmocka_unit_test(sessions__a_thousand_leave_nothing_behind),
		cmocka_unit_test(misuse__is_answered),
	};
	int failed;

	subject = given;
	failed = cmocka_run_group_tests_name(given->name, tests, NULL, NULL);
	if (given->processes)
		failed += conformance_process_run(given);
	return failed;
}
