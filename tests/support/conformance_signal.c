/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance_parts.h"
#include "tests/support/sanitized.h"

#include "base/clock.h"
#include "base/memory.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

void signal__carries_tag_payload_and_sequence(void **state)
{
	struct transport_signal signal;
	unsigned char payload[TRANSPORT_PAYLOAD_BYTES];
	struct error error;
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096);
	assert_int_equal(transport_signal_read(pair.ba, &signal), 1);
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (unsigned char)(i + 1);
	ok(transport_signal(pair.ab, 77, payload, sizeof(payload), soon(), &error_));
	wait_signals(pair.b, 1);
	assert_int_equal(transport_signal_read(pair.ba, &signal), 0);
	assert_int_equal(signal.tag, 77);
	assert_int_equal(signal.sequence, 1);
	assert_int_equal(signal.length, sizeof(payload));
	assert_memory_equal(signal.payload, payload, sizeof(payload));
	assert_int_equal(transport_signal(pair.ab, 1, payload, sizeof(payload) + 1, soon(), &error),
			 -ERROR_USAGE);
	for (uint32_t i = 0; i < 5; i++)
		ok(transport_signal(pair.ab, i, NULL, 0, soon(), &error_));
	wait_signals(pair.b, 6);
	assert_int_equal(transport_signal_read(pair.ba, &signal), 0);
	assert_int_equal(signal.sequence, 6); /* 2..5 were overwritten, and that is seen */
	assert_int_equal(signal.tag, 4);
	pair_close(&pair);
}

static void expect_word(struct transport_domain *domain, struct transport_endpoint *endpoint,
			uint64_t count, uint32_t tag)
{
	struct transport_signal signal;

	wait_signals(domain, count);
	assert_int_equal(transport_signal_read(endpoint, &signal), 0);
	assert_int_equal(signal.tag, tag);
	assert_int_equal(signal.sequence, count);
}

/* Some networks want the sender to look after what it has posted. */
static void push(const struct pair *pair, uint64_t count)
{
	uint64_t done, until = soon();
	struct transport_signal signal;

	while (clock_ns() < until &&
	       (transport_signal_read(pair->ba, &signal) != 0 || signal.sequence < count))
		ok(transport_progress(pair->ab, &done, &error_));
}

/* Nobody waits for it, and until it is there the endpoint is none that could be kept. */
void signal__that_is_only_posted_comes_and_the_next_waits_for_it(void **state)
{
	uint64_t until, done, sent = 0;
	struct error error;
	struct pair pair;
	int rc;

	(void)state;
	open_pair(&pair, 4096);
	for (uint32_t i = 1; i <= 20; i++) {
		until = soon();
		do {
			ok(transport_progress(pair.ab, &done, &error_));
			rc = transport_signal_post(pair.ab, i, NULL, 0, &error);
			assert_true(rc == 0 || rc == 1);
		} while (rc && clock_ns() < until);
		assert_int_equal(rc, 0);
		push(&pair, ++sent);
		expect_word(pair.b, pair.ba, sent, i);
		if (i % 3)
			continue;
		ok(transport_signal(pair.ab, 100 + i, NULL, 0, soon(), &error_));
		expect_word(pair.b, pair.ba, ++sent, 100 + i);
	}
	ok(transport_flush(pair.ab, soon(), &error_));
	assert_true(transport_endpoint_whole(pair.ab));
	pair_close(&pair);
}

/* Each side counts its own; neither waits for the other to be read. */
void signal__goes_both_ways_at_once(void **state)
{
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096);
	for (uint32_t i = 1; i <= 100; i++) {
		memset(pair.from, (int)i, 4096);
		ok(transport_write(pair.ab, pair.from, pair.source, pair.remote, 0, 4096, soon(),
				   &error_));
		ok(transport_signal(pair.ab, i, NULL, 0, soon(), &error_));
		ok(transport_signal(pair.ba, 1000 + i, NULL, 0, soon(), &error_));
		expect_word(pair.a, pair.ab, i, 1000 + i);
		expect_word(pair.b, pair.ba, i, i);
		assert_true(all_bytes(pair.to, 4096, (unsigned char)i));
	}
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
		wrong += hammer->pair.to[i] != pattern(signal.tag, i);
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
				     conformance_subject->wrong ? signal.sequence : look(hammer));
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
		uint64_t bytes = 1 + conformance_random(pair->bytes - at);

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
	conformance_subject = given;
	open_pair(&hammer->pair, 20000);
	if (conformance_subject->watch)
		*conformance_subject->watch = (struct conformance_watch){look_at_placement, hammer};
	pthread_create(&thread, NULL, reader, hammer);
	for (uint64_t round = 1; round <= rounds; round++) {
		rc = hammer_round(hammer, round, &error);
		if (rc)
			break;
	}
	atomic_store(&hammer->stop, 1);
	pthread_join(thread, NULL);
	if (conformance_subject->watch)
		*conformance_subject->watch = (struct conformance_watch){NULL, NULL};
	pair_close(&hammer->pair);
	violations = atomic_load(&hammer->violations);
	memory_free(hammer);
	if (rc)
		fail_msg("%s: %s", conformance_subject->name, error.text);
	return violations;
}

void signal__is_never_seen_before_its_data(void **state)
{
	(void)state;
	assert_int_equal(conformance_violations(conformance_subject, SANITIZED_THREADS ? 50 : 150),
			 0);
}

static void *torn_reader(void *context)
{
	struct hammer *hammer = context;
	struct transport_signal signal;

	while (!atomic_load(&hammer->stop)) {
		if (transport_signal_read(hammer->pair.ba, &signal) != 0)
			continue;
		for (uint32_t i = 0; i < signal.length; i++)
			if (signal.payload[i] != (unsigned char)signal.tag ||
			    signal.tag != (uint32_t)signal.sequence)
				atomic_fetch_add(&hammer->violations, 1);
	}
	return NULL;
}

void signal__payload_is_never_torn(void **state)
{
	struct hammer *hammer = memory_zalloc(1, sizeof(*hammer));
	unsigned char payload[TRANSPORT_PAYLOAD_BYTES];
	pthread_t thread;

	(void)state;
	assert_non_null(hammer);
	open_pair(&hammer->pair, 4096);
	pthread_create(&thread, NULL, torn_reader, hammer);
	for (uint32_t i = 1; i <= test_repeats(1000); i++) {
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

void signal__wakes_a_waiting_thread(void **state)
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

void interrupt__ends_a_wait_now_or_the_next(void **state)
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
