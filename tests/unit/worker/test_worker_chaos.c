/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers that are late, abort, skip versions and disagree about the next one; ranks that give
 * up after a few milliseconds and wait for something else. Whatever is published must be, to the
 * last byte, of one version, and no checksum may ever differ: nothing is wrong but the timing.
 */
#include "tests/unit/worker/worker_rig.h"

#include <stdatomic.h>

#define RUN_MS	   1500
#define VERSION_MS 15 /* each trainer's idea of the version to send moves on this often */
#define UPDATE_MS  30

struct actor {
	pthread_t thread;
	struct rig *rig;
	uint32_t number, random;
	uint64_t began_ms, good, bad[256];
	char wrong[1100];
};

static uint32_t next_random(struct actor *actor, uint32_t below)
{
	actor->random = actor->random * 1664525u + 1013904223u;
	return (actor->random >> 8) % below;
}

/* False once the time is over, or something was seen that must not be. */
static bool count(struct actor *actor, int rc, const weft_error *error)
{
	bool expected =
		!rc || rc == -WEFT_E_TIMEOUT || rc == -WEFT_E_ABORTED || rc == -WEFT_E_VERSION;

	actor->good += !rc;
	actor->bad[rc < -199 ? 0 : -rc]++;
	if (!expected)
		snprintf(actor->wrong, sizeof(actor->wrong), "%s", error->text);
	return expected;
}

static void *train(void *context)
{
	struct actor *actor = context;
	weft_worker *worker = actor->rig->trainers[actor->number];
	unsigned char bytes[RIG_TENSORS][480];
	const void *data[RIG_TENSORS] = {bytes[0], bytes[1], bytes[2]};
	weft_error error = WEFT_ERROR_INIT;
	bool fine = true;

	while (fine && clock_ms() - actor->began_ms < RUN_MS) {
		uint64_t version = (clock_ms() - actor->began_ms) / VERSION_MS + 1;
		int rc;

		version += next_random(actor, 20) == 0;
		rc = weft_update_begin(worker, version, &error);
		if (rc) {
			fine = count(actor, rc, &error);
			clock_sleep_ms(1 + next_random(actor, 3));
			continue;
		}
		for (uint32_t t = 0; t < RIG_TENSORS; t++)
			for (uint64_t i = 0; i < rig_bytes[t]; i++)
				bytes[t][i] = rig_byte(version, t, i);
		if (next_random(actor, 4) == 0)
			clock_sleep_ms(next_random(actor, 25)); /* late: targets give up */
		if (next_random(actor, 12) == 0) {
			rc = weft_update_write(worker, 1, HOST(bytes[1], 480), &error);
			if (!rc)
				rc = weft_update_abort(worker, "chaos", &error);
		} else {
			rc = host_write_all(worker, data, &error);
			if (!rc && next_random(actor, 8) == 0)
				clock_sleep_ms(next_random(actor, 25));
			if (!rc)
				rc = weft_update_end(worker, &error);
		}
		/* what is still under way reads these bytes no more */
		memset(bytes, 0xee, sizeof(bytes));
		fine = count(actor, rc, &error);
	}
	return NULL;
}

static bool is_whole(struct actor *actor, uint64_t version)
{
	const weft_worker *worker = actor->rig->ranks[actor->number];
	uint64_t rows = 12 / actor->rig->options.ranks, rank = actor->number;
	const unsigned char *q = weft_param_memory(worker, 0, version);
	const unsigned char *o = weft_param_memory(worker, 1, version);
	const unsigned char *n = weft_param_memory(worker, 2, version);
	bool whole = q && o && n;

	for (uint64_t i = 0; i < rows * 40 && whole; i++)
		whole = q[i] == rig_byte(version, 0, rank * rows * 40 + i);
	for (uint64_t i = 0; i < rows * 40 && whole; i++)
		whole = o[i] == rig_byte(version, 1,
					 i / (rows * 4) * 48 + rank * rows * 4 + i % (rows * 4));
	for (uint64_t i = 0; i < 28 && whole; i++)
		whole = n[i] == rig_byte(version, 2, i);
	return whole;
}

static void *infer(void *context)
{
	struct actor *actor = context;
	weft_worker *worker = actor->rig->ranks[actor->number];
	weft_error error = WEFT_ERROR_INIT;
	bool fine = true;

	while (fine && clock_ms() - actor->began_ms < RUN_MS) {
		uint64_t version = WEFT_VERSION_NEXT, published = 0, still;
		int rc;

		if (next_random(actor, 3) == 0)
			version = (clock_ms() - actor->began_ms) / VERSION_MS + 1 +
				  next_random(actor, 2);
		rc = weft_update_wait(worker, version, 1 + next_random(actor, 40), &published,
				      &error);
		fine = count(actor, rc, &error);
		if (!rc && !is_whole(actor, published)) {
			snprintf(actor->wrong, sizeof(actor->wrong),
				 "version %llu was published and is not whole",
				 (unsigned long long)published);
			fine = false;
		}
		/* with a shadow, what was published stays so whatever failed since */
		if (rc && !weft_read_begin(worker, &still) && !is_whole(actor, still)) {
			snprintf(actor->wrong, sizeof(actor->wrong),
				 "version %llu is readable and not whole",
				 (unsigned long long)still);
			fine = false;
		}
	}
	return NULL;
}

static void run(const struct rig_options *options, uint32_t seed)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct actor *actors = calloc(2 * RIG_MAX, sizeof(*actors));
	uint32_t count_of = 0;
	uint64_t published = 0;

	assert_non_null(rig);
	assert_non_null(actors);
	rig_open(rig, options);
	for (uint32_t i = 0; i < options->trainers + options->ranks; i++) {
		bool trainer = i < options->trainers;
		struct actor *actor = &actors[count_of++];

		*actor = (struct actor){.rig = rig,
					.number = trainer ? i : i - options->trainers,
					.random = seed * 97 + i,
					.began_ms = clock_ms()};
		pthread_create(&actor->thread, NULL, trainer ? train : infer, actor);
	}
	for (uint32_t i = 0; i < count_of; i++) {
		pthread_join(actors[i].thread, NULL);
		if (*actors[i].wrong)
			print_message("actor %u: %s\n", i, actors[i].wrong);
	}
	for (uint32_t i = 0; i < count_of; i++) {
		assert_string_equal(actors[i].wrong, "");
		published += i >= options->trainers ? actors[i].good : 0;
	}
	assert_true(published > 0);
	/* first: a rank with memory of its own waits until its trainers have let go of it */
	for (uint32_t i = 0; i < options->trainers; i++)
		weft_close(&rig->trainers[i]);
	rig_close(rig);
	free(actors);
	free(rig);
}

static void test_chaos__publishes_whole_versions_or_nothing(void **state)
{
	static const struct rig_options rows[] = {
		{.trainers = 3, .ranks = 2, .checksums = 1, .update_timeout_ms = UPDATE_MS},
		{.trainers = 3,
		 .ranks = 2,
		 .shadow = 1,
		 .checksums = 1,
		 .update_timeout_ms = UPDATE_MS},
		{.trainers = 2,
		 .ranks = 3,
		 .own_memory = 1,
		 .ring_bytes = 256,
		 .update_timeout_ms = UPDATE_MS},
		{.trainers = 2, .ranks = 1, .shadow = 1, .update_timeout_ms = UPDATE_MS},
	};

	(void)state;
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		run(&rows[i], i + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chaos__publishes_whole_versions_or_nothing),
	};

	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
