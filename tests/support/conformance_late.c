/* SPDX-License-Identifier: Apache-2.0
 *
 * A writer that is given up in the middle of its writes and goes on when the memory has other owners: with
 * a provider that moves bytes later, they are under way then; with one that copies, the next one comes.
 * A writer that is stopped inside of a copy needs a process of its own (conformance_process.c).
 */
#include "tests/support/conformance_parts.h"

#include <string.h>

#define BYTES	   8192u
#define OURS	   9
#define THEIRS	   5
#define WRITES_MAX 4u

/* Writes to the same bytes may land at once, by two streams' threads. Either result is right, but it is a
 * race, so under TSan each has bytes of its own. */
#ifdef __SANITIZE_THREAD__
#define ROOM (BYTES / WRITES_MAX)
#else
#define ROOM BYTES
#endif

static void start_writes(struct pair *pair)
{
	uint64_t writes = 1 + conformance_random(WRITES_MAX), done;

	memset(pair->from, THEIRS, BYTES);
	for (uint64_t i = 0; i < writes; i++) {
		uint64_t at = conformance_random(ROOM - 1);

		ok(transport_write(pair->ab, pair->from, pair->source, pair->remote,
				   (ROOM < BYTES ? i * ROOM : 0) + at,
				   1 + conformance_random(ROOM - at), soon(), &error_));
	}
	for (uint64_t looks = conformance_random(4); looks > 0; looks--)
		ok(transport_progress(pair->ab, &done, &error_));
}

/* As a host that opens again: the same registered memory, weft's own from a fresh region; or as a worker
 * that goes on with another plan, whose regions stay. */
static void take_back(struct pair *pair)
{
	ok(transport_endpoint_stop(pair->ba, soon(), &error_));
	ok(transport_endpoint_stop(pair->ba, soon(), &error_)); /* again is fine */
	transport_endpoint_close(&pair->ba);
	ok(transport_memory_check(pair->to, BYTES, &error_));
	if (conformance_random(2)) {
		transport_region_close(&pair->target);
		if (pair->owned)
			ok(transport_region_register(pair->b, pair->owned, BYTES, &pair->target,
						     &error_));
		else
			ok(transport_region_allocate(pair->b, BYTES, &pair->target, &error_));
		pair->to = transport_region_memory(pair->target);
	}
	memset(pair->to, OURS, BYTES);
}

/* It does not know yet that it was given up, and learns of it. */
static int go_on(struct pair *pair)
{
	struct error error;
	int rc = transport_flush(pair->ab, soon(), &error);

	if (!rc)
		rc = transport_write(pair->ab, pair->from, pair->source, pair->remote, 0, BYTES,
				     soon(), &error);
	if (!rc)
		rc = transport_flush(pair->ab, soon(), &error);
	return rc ? rc : transport_signal(pair->ab, 1, NULL, 0, soon(), &error);
}

uint64_t conformance_late_writes(const struct conformance *subject, unsigned rounds)
{
	uint64_t landed = 0;

	conformance_subject = subject;
	for (unsigned i = 0; i < rounds; i++) {
		struct pair pair;
		int rc;

		open_pair(&pair, BYTES);
		start_writes(&pair);
		take_back(&pair);
		rc = go_on(&pair);
		landed += !all_bytes(pair.to, BYTES, OURS);
		if (!rc && !subject->wrong)
			fail_msg("%s: a writer that was given up learned nothing of it",
				 subject->name);
		pair_close(&pair);
	}
	return landed;
}

void late_write__never_lands_in_memory_that_is_used_again(void **state)
{
	unsigned rounds = (unsigned)(60 / test_slow());

	(void)state;
	if (conformance_subject->stop_waits)
		skip();
	assert_int_equal(conformance_late_writes(conformance_subject, rounds < 6 ? 6 : rounds), 0);
}
