/* SPDX-License-Identifier: Apache-2.0
 *
 * Many threads at one domain, as docs/transport.md allows: readers, sleepers and interrupts, while
 * its owner opens, connects, probes, fences and closes other endpoints, and devices tell of errors
 * of queue pairs that are being destroyed. For the thread checker above all.
 *
 *   host 0  writer ──────► host 1  steady endpoint: read without a pause, never goes back
 *   host 2  comes and goes ──► 1   its queue pairs fail at any moment
 */
#include "tests/support/verbs_mock_pair.h"

#include "base/clock.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RUN_NS UINT64_C(3000000000)

static struct verbs_settings settings;
static struct pair pair;
static struct transport_domain *third;
static _Atomic bool stop;
static _Atomic uint64_t signals, reads, waits, wrong;
static char wrong_text[256]; /* of the first one; read after all threads ended */

static void note(const char *what, uint64_t value)
{
	if (atomic_fetch_add(&wrong, 1) == 0)
		snprintf(wrong_text, sizeof(wrong_text), "%.200s %llu", what,
			 (unsigned long long)value);
}

static void *write_signals(void *context)
{
	struct error error = {0};
	uint32_t word = 0;

	(void)context;
	while (!atomic_load(&stop)) {
		word++;
		if (transport_signal(pair.ab, word, &word, sizeof(word), verbs_pair_soon(), &error))
			note(error.text, word);
		atomic_store(&signals, word);
	}
	return NULL;
}

static void *read_signals(void *context)
{
	struct transport_signal signal;
	uint64_t last = 0;

	(void)context;
	while (!atomic_load(&stop)) {
		if (transport_signal_read(pair.ba, &signal)) {
			if (last)
				note("no signal was read after number", last);
			continue;
		}
		if (signal.sequence < last)
			note("an older signal was read after number", last);
		if (signal.tag != (uint32_t)signal.sequence ||
		    memcmp(signal.payload, &signal.tag, sizeof(signal.tag)) != 0)
			note("a torn signal was read, number", signal.sequence);
		last = signal.sequence;
		atomic_fetch_add(&reads, 1);
	}
	return NULL;
}

static void *wait_for_signals(void *context)
{
	struct transport_domain *domain = context;
	uint64_t seen = 0;

	while (!atomic_load(&stop)) {
		uint64_t now = transport_signal_wait(domain, seen, clock_ns() + 20000000);

		if (now < seen)
			note("the count of signals went back from", seen);
		seen = now;
		atomic_fetch_add(&waits, 1);
	}
	return NULL;
}

static void *disturb(void *context)
{
	static const enum ibv_event_type harmless[] = {IBV_EVENT_COMM_EST, IBV_EVENT_GID_CHANGE,
						       IBV_EVENT_PORT_ACTIVE,
						       IBV_EVENT_SRQ_LIMIT_REACHED};
	static const enum ibv_event_type fatal[] = {IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL};

	(void)context;
	for (uint32_t i = 0; !atomic_load(&stop); i++) {
		transport_domain_interrupt(i & 1 ? pair.b : third);
		verbs_mock_event(1, i & 1, harmless[i % ARRAY_SIZE(harmless)], 1);
		if (i % 4 == 0)
			verbs_mock_event(2, i / 4 & 1, fatal[i / 8 % ARRAY_SIZE(fatal)], 0);
		clock_sleep_ms(1);
	}
	return NULL;
}

static int meet(struct transport_endpoint *from, const struct transport_endpoint *to,
		struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_record(to, record, &length, error);

	return rc ? rc : transport_endpoint_connect(from, record, length, verbs_pair_soon(), error);
}

/* Errors of queue pairs and interrupts may end it at any step; what is not told is wrong. */
static int come_and_go(struct error *error)
{
	struct transport_endpoint *here = NULL, *there = NULL;
	struct transport_signal signal;
	int rc = transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 2}, "trainer 2",
					 &here, error);

	if (!rc)
		rc = transport_endpoint_open(third, (struct member){ROLE_INFERENCE, 1},
					     "inference 1", &there, error);
	if (!rc)
		rc = meet(here, there, error);
	if (!rc)
		rc = meet(there, here, error);
	if (!rc)
		rc = transport_endpoint_probe(there, verbs_pair_soon(), error);
	for (uint32_t word = 1; word <= 8 && !rc; word++) {
		rc = transport_signal(there, word, NULL, 0, verbs_pair_soon(), error);
		transport_signal_read(here, &signal);
	}
	if (here && transport_endpoint_fence(here, verbs_pair_soon(), error))
		note(error->text, 0);
	transport_endpoint_close(&here);
	transport_endpoint_close(&there);
	return rc;
}

static int open_third(struct error *error)
{
	struct verbs_options verbs = {.calls = verbs_mock_calls(2), .settings = &settings};
	struct transport_options options = {
		.self = {ROLE_TRAINER, 2}, .secret = 42, .provider_options = &verbs};

	return transport_domain_open(&third, "verbs", &options, error);
}

static void test_threads__read_and_sleep_while_the_owner_opens_and_closes(void **state)
{
	struct verbs_mock_options options = {.seed = 1, .nics = 2, .background = true};
	uint64_t rounds = 0, whole = 0, end_ns = clock_ns() + RUN_NS;
	struct error error = {0};
	pthread_t threads[7];

	(void)state;
	verbs_pair_settings(&settings);
	verbs_mock_open(&options);
	if (verbs_pair_open(&pair, &settings, 40000, &error) || open_third(&error))
		fail_msg("%s", error.text);
	pthread_create(&threads[0], NULL, write_signals, NULL);
	pthread_create(&threads[1], NULL, read_signals, NULL);
	pthread_create(&threads[2], NULL, read_signals, NULL);
	pthread_create(&threads[3], NULL, wait_for_signals, pair.b);
	pthread_create(&threads[4], NULL, wait_for_signals, pair.b);
	pthread_create(&threads[5], NULL, wait_for_signals, third);
	pthread_create(&threads[6], NULL, disturb, NULL);
	while (clock_ns() < end_ns) {
		int rc = come_and_go(&error);

		rounds++;
		whole += !rc;
		if (rc && rc != -ERROR_TRANSPORT && rc != -ERROR_PEER_LOST &&
		    rc != -ERROR_INTERRUPTED)
			note(error.text, rounds);
	}
	atomic_store(&stop, true);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	print_message("%llu connections (%llu whole), %llu signals, %llu reads, %llu waits\n",
		      (unsigned long long)rounds, (unsigned long long)whole,
		      (unsigned long long)signals, (unsigned long long)reads,
		      (unsigned long long)waits);
	if (wrong)
		fail_msg("%llu times wrong; the first: %s", (unsigned long long)wrong, wrong_text);
	assert_true(whole > 0 && signals > 0 && reads > 0 && waits > 0);
	transport_domain_close(&third);
	pair_close(&pair);
	assert_int_equal(verbs_mock_alive(), 0);
	/* a queue pair that failed while it was being connected cannot go on, and connect says so */
	if (verbs_mock_violations() &&
	    strncmp(verbs_mock_violation(), "modify_qp: from state 6", 23))
		fail_msg("%s", verbs_mock_violation());
	verbs_mock_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads__read_and_sleep_while_the_owner_opens_and_closes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
