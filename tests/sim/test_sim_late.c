/* SPDX-License-Identifier: Apache-2.0
 *
 * The planted late writer: 100,000 random schedules of two writers that are stopped, continued or killed
 * between any two of their steps, and of the process that takes its memory back from them, on a clock of
 * their own. What they do at each step are the real functions: the turn (transport/shm/turn.h) and the
 * list of what may still be written (transport/late.h).
 *
 *   writers   say ─► may? ─► byte, byte, byte ─► end ─► say ...         stopped or killed anywhere
 *   target    refuse ─► busy? until none is, or the deadline ─► hold ─► check until it may ─► use again
 *
 * From the moment the memory is used again not one byte of it may change. Four protocols that look as good
 * are planted, and must be caught: the one that this one replaced among them.
 */
#include "transport/late.h"
#include "transport/shm/turn.h"
#include "transport/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WRITERS = 2, BYTES = 4, SCHEDULES = 100000, STEPS = 120, DEADLINE = 12 };

enum protocol {
	RIGHT,
	CHECKS_ONLY, /* as it was: nobody says that he writes; the target waits and goes on */
	ASKS_FIRST,  /* may? before say */
	LOOKS_FIRST, /* busy? before refuse */
	GOES_ON,     /* the deadline passes, and what is busy is not held */
	PROTOCOLS
};

enum step { SAY, MAY, WRITE, END, GONE };

struct writer {
	struct shm_slot slot;
	enum step step;
	unsigned byte;	  /* next to write */
	uint64_t stopped; /* until then */
	bool killed;
	uint64_t turns;
};

enum phase { OPEN, LOOK, REFUSE, WAIT, ASK, USED };

struct target {
	enum phase phase;
	unsigned which; /* the writer that is looked at */
	uint64_t deadline;
};

struct world {
	enum protocol protocol;
	uint64_t random, now;
	struct writer writers[WRITERS];
	struct target target;
	unsigned char memory[BYTES];
};

static uint64_t chance(struct world *world, uint64_t below)
{
	uint64_t z = world->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % below;
}

/* ---- writers ---- */

static void say(struct world *world, struct writer *writer)
{
	if (world->protocol != CHECKS_ONLY)
		shm_turn_say(&writer->slot, (uintptr_t)world->memory, BYTES);
}

static void writer_step(struct world *world, struct writer *writer)
{
	bool asks_first = world->protocol == ASKS_FIRST;

	switch (writer->step) {
	case SAY:
		if (asks_first)
			writer->step = shm_turn_may(&writer->slot) ? MAY : GONE;
		else
			say(world, writer), writer->step = MAY;
		writer->byte = 0;
		break;
	case MAY:
		if (asks_first)
			say(world, writer), writer->step = WRITE;
		else
			writer->step = shm_turn_may(&writer->slot) ? WRITE : END;
		break;
	case WRITE:
		world->memory[writer->byte++] = (unsigned char)(1 + writer->turns % 100);
		if (writer->byte == BYTES)
			writer->step = END;
		break;
	case END:
		shm_turn_end(&writer->slot);
		writer->turns++;
		/* told to stop, its endpoint is broken; else it has more */
		writer->step = writer->byte ? SAY : GONE;
		break;
	case GONE:
		break;
	}
}

static void writer_turn(struct world *world, struct writer *writer)
{
	if (writer->killed || world->now < writer->stopped)
		return;
	if (chance(world, 40) == 0)
		writer->killed = true;
	else if (chance(world, 12) == 0)
		writer->stopped = world->now + chance(world, 3 * DEADLINE);
	else
		writer_step(world, writer);
}

/* ---- the process whose memory it is ---- */

static bool is_done(void *state)
{
	const struct writer *writer = *(struct writer **)state;

	return writer->killed || !shm_turn_busy(&writer->slot);
}

static void hold(struct world *world, struct writer *writer)
{
	struct late_write *late;

	if (writer->killed || !shm_turn_busy(&writer->slot) || world->protocol == GOES_ON)
		return;
	late = late_new(sizeof(struct writer *));
	assert_non_null(late);
	late->at = atomic_load(&writer->slot.writing_at);
	late->bytes = atomic_load(&writer->slot.writing);
	late->done = is_done;
	*(struct writer **)late->state = writer;
	snprintf(late->name, sizeof(late->name), "trainer %d", (int)(writer - world->writers));
	late_hold(late);
}

static void next_writer(struct target *target, enum phase again, enum phase then)
{
	target->phase = ++target->which < WRITERS ? again : then;
	if (target->which == WRITERS)
		target->which = 0;
}

static void use(struct world *world)
{
	memset(world->memory, 0xee, BYTES);
	world->target.phase = USED;
}

static void target_step(struct world *world)
{
	struct target *target = &world->target;
	struct writer *writer = &world->writers[target->which];
	bool busy;

	switch (target->phase) {
	case OPEN: /* at any moment the job is lost, and the host closes */
		if (chance(world, 8) == 0)
			target->phase = world->protocol == LOOKS_FIRST ? LOOK : REFUSE;
		break;
	case LOOK: /* only the protocol that looks first */
		if (!shm_turn_busy(&writer->slot))
			target->phase = REFUSE;
		break;
	case REFUSE:
		atomic_store(&writer->slot.stop,
			     1); /* shm_slot_refuse of a slot that is connected */
		target->deadline = world->now + DEADLINE;
		if (world->protocol == LOOKS_FIRST)
			next_writer(target, LOOK, ASK);
		else
			next_writer(target, REFUSE, WAIT);
		break;
	case WAIT:
		busy = world->protocol == CHECKS_ONLY
			       ? !writer->killed && writer->step != GONE
			       : shm_turn_busy(&writer->slot) && !writer->killed;
		if (busy && world->now < target->deadline)
			break;
		hold(world, writer);
		next_writer(target, WAIT, ASK);
		break;
	case ASK:
		if (!transport_memory_check(world->memory, BYTES, NULL))
			use(world);
		break;
	case USED:
		break;
	}
}

/* 0, or 1 when a byte changed that nobody may change. */
static unsigned run(struct world *world)
{
	for (; world->now < STEPS; world->now++) {
		uint64_t who = chance(world, WRITERS + 1);

		if (who == WRITERS)
			target_step(world);
		else
			writer_turn(world, &world->writers[who]);
	}
	/* all that were stopped go on, and nobody is stopped any more */
	for (int i = 0; i < 20; i++)
		for (int w = 0; w < WRITERS; w++)
			if (!world->writers[w].killed)
				writer_step(world, &world->writers[w]);
	/* who is through or dead holds nothing: the list never grows old */
	assert_int_equal(transport_memory_check(world->memory, BYTES, NULL), 0);
	for (int i = 0; i < BYTES && world->target.phase == USED; i++)
		if (world->memory[i] != 0xee)
			return 1;
	return 0;
}

struct tally {
	unsigned landed, used, waited;
};

static struct tally schedules(enum protocol protocol)
{
	struct tally tally = {0};

	for (uint64_t seed = 1; seed <= SCHEDULES; seed++) {
		static struct world world;

		world = (struct world){.protocol = protocol, .random = seed};
		tally.landed += run(&world);
		tally.used += world.target.phase == USED;
		tally.waited += world.target.phase == ASK;
	}
	return tally;
}

static void test_late_writer__never_lands_in_memory_that_is_used_again(void **state)
{
	struct tally tally = schedules(RIGHT);

	(void)state;
	assert_int_equal(tally.landed, 0);
	/* neither for want of trying, nor because the memory never came back */
	assert_true(tally.used > SCHEDULES / 2);
	assert_true(tally.waited > SCHEDULES / 100);
}

static void test_protocols__that_look_as_good_are_caught(void **state)
{
	(void)state;
	for (enum protocol protocol = CHECKS_ONLY; protocol < PROTOCOLS; protocol++)
		if (!schedules(protocol).landed)
			fail_msg("protocol %d let nothing land in %d schedules", (int)protocol,
				 SCHEDULES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late_writer__never_lands_in_memory_that_is_used_again),
		cmocka_unit_test(test_protocols__that_look_as_good_are_caught),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
