/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sim_commit.c -- random histories of ranks that agree on what they show: the core of worker/update/commit.h on each rank,
 * mailboxes that keep the last signal alone and are read late, hosts that leave at a deadline, come back for another version, or
 * fail. A checker that knows nothing of the core looks after every step:
 *
 *   two ranks of an engine never show two versions, but while a word is on its way to who has none mapped
 *   what is shown was promised by all of them, and is held by all of them still
 *   in place, nobody's memory is open while another rank shows a version
 *   what is shown only grows, and when trouble ends the next version is shown
 */
#include "job/commit.h"
#include "tests/support/messages.h"
#include "worker/update/commit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HISTORIES 5000
#else
#define HISTORIES 100000
#endif

enum { RANKS = 6, STEPS = 400, QUIET_STEPS = 20000 };

enum stage { OUT_OF_TURN, OPENING, LOADING, PROMISED };

struct mailbox {
	struct commit_event event;
	uint64_t sequence, seen;
};

struct rank {
	struct committer committer;
	struct commit_link links[RANKS];
	uint32_t mates[RANKS], mate_count;
	struct mailbox from[RANKS]; /* by rank */
	bool in_place;		    /* else with a shadow */
	bool mapped;		    /* it looks at the word of who decides for it */
	uint64_t word;		    /* its own */
	bool waits;		    /* in weft_update_wait */
	bool anew;		    /* for another version than before: the turn before is over */
	enum stage stage;
	struct commit_event next; /* for the core */
	bool busy;		  /* it has something to do without being told */
	uint64_t wanted, holds;	  /* complete and promised; 0: none */
	bool open;		  /* its memory may change */
	uint64_t shown_last;
};

struct history {
	struct rank ranks[RANKS];
	uint32_t count, engine_ranks;
	enum commit commit;
	bool quiet;
	uint64_t random, version, shown;
	char finding[200];
};

#define FIND(history, ...)     \
	((history)->finding[0] \
		 ? 0           \
		 : snprintf((history)->finding, sizeof((history)->finding), __VA_ARGS__))

static bool chance(struct history *history, uint64_t one_in)
{
	return random_below(&history->random, one_in) == 0;
}

static uint64_t shown_by(const struct history *history, uint32_t r)
{
	const struct rank *rank = &history->ranks[r];

	return rank->mapped ? history->ranks[rank->mates[0]].word : rank->word;
}

static bool on_its_way(const struct history *history)
{
	for (uint32_t r = 0; r < history->count; r++)
		if (history->ranks[r].committer.phase == COMMIT_LETTING_GO)
			return true;
	return false;
}

static void check(struct history *history)
{
	for (uint32_t r = 0; r < history->count; r++) {
		struct rank *rank = &history->ranks[r];
		uint64_t version = shown_by(history, r);
		uint32_t first = r - r % history->engine_ranks;
		uint64_t of_first = shown_by(history, first);

		if (version && of_first && version != of_first && !on_its_way(history))
			FIND(history, "rank %u shows %llu, rank %u shows %llu", r,
			     (unsigned long long)version, first, (unsigned long long)of_first);
		if (version && version != rank->shown_last) {
			if (version < rank->shown_last)
				FIND(history, "rank %u shows %llu after %llu", r,
				     (unsigned long long)version,
				     (unsigned long long)rank->shown_last);
			if (rank->holds != version)
				FIND(history, "rank %u shows %llu and holds %llu", r,
				     (unsigned long long)version, (unsigned long long)rank->holds);
			rank->shown_last = version;
		}
		if (rank->open && version && rank->in_place)
			FIND(history, "rank %u is open and shows %llu", r,
			     (unsigned long long)version);
	}
}

static uint32_t link_to(const struct rank *rank, uint32_t mate)
{
	for (uint32_t i = 0; i < rank->mate_count; i++)
		if (rank->mates[i] == mate)
			return i;
	abort();
}

static void signal(struct history *history, uint32_t from, uint32_t link,
		   const struct commit_event *event)
{
	uint32_t to = history->ranks[from].mates[link];
	struct mailbox *mailbox = &history->ranks[to].from[from];

	mailbox->event = *event;
	mailbox->event.kind = COMMIT_HEARS;
	mailbox->event.link = link_to(&history->ranks[to], from);
	mailbox->sequence++;
}

static bool is_leaf(const struct rank *rank)
{
	return rank->committer.decided_for && rank->mate_count == 1;
}

static struct commit_event arrival(const struct rank *rank, enum update_round round)
{
	return (struct commit_event){.kind = COMMIT_ARRIVES,
				     .round = round,
				     .arrive = {.min_version = rank->wanted,
						.max_version = rank->wanted,
						.closes = rank->in_place,
						.writes = is_leaf(rank) && !rank->mapped}};
}

static void asks(struct rank *rank, struct commit_event event)
{
	rank->next = event;
	rank->busy = true;
}

static void met(struct rank *rank)
{
	if (rank->stage == OPENING) {
		rank->stage = LOADING;
		rank->open = true;
		if (rank->in_place)
			rank->holds = 0;
	} else {
		rank->stage = OUT_OF_TURN;
		rank->waits = false;
	}
}

/* One step of a rank that has something to do. */
static void step(struct history *history, uint32_t r)
{
	struct rank *rank = &history->ranks[r];
	struct committer *committer = &rank->committer;
	struct commit_step step = commit_next(committer, &rank->next);
	struct commit_event say = {0};

	rank->next = (struct commit_event){.kind = COMMIT_ASKS};
	switch (step.kind) {
	case COMMIT_WAIT:
		rank->busy = false;
		break;
	case COMMIT_TELL:
		say.tag = UPDATE_ARRIVE;
		say.arrive = committer->all;
		signal(history, r, step.link, &say);
		break;
	case COMMIT_STORE:
		rank->word = step.word;
		break;
	case COMMIT_RELEASE:
		say.tag = UPDATE_RELEASE;
		say.release = committer->release;
		if (step.writes)
			history->ranks[rank->mates[step.link]].word = step.word;
		signal(history, r, step.link, &say);
		break;
	case COMMIT_SAY:
		say.tag = UPDATE_GIVE_UP;
		say.give_up = committer->given_up;
		signal(history, r, step.link, &say);
		break;
	case COMMIT_MET:
		rank->busy = false;
		met(rank);
		break;
	case COMMIT_FAIL:
		rank->busy = false;
		if (rank->anew) { /* it had ended its own turn */
			rank->anew = false;
			rank->open = false;
			asks(rank, arrival(rank, MEET_OPEN));
			break;
		}
		rank->stage = OUT_OF_TURN;
		rank->open = rank->waits = false;
		break;
	}
}

static bool hear(struct history *history, uint32_t r)
{
	struct rank *rank = &history->ranks[r];

	for (uint32_t from = 0; from < history->count; from++) {
		struct mailbox *mailbox = &rank->from[from];

		if (mailbox->seen == mailbox->sequence)
			continue;
		mailbox->seen = mailbox->sequence;
		asks(rank, mailbox->event);
		return true;
	}
	return false;
}

/* The host calls weft_update_wait. */
static void begin(struct history *history, struct rank *rank)
{
	uint64_t wanted = history->version;

	if (!history->quiet && chance(history, 10))
		wanted++;
	if (wanted <= rank->shown_last)
		wanted = rank->shown_last + 1;
	if (history->quiet)
		wanted = history->version;
	rank->waits = true;
	if (wanted == rank->wanted && rank->stage != OUT_OF_TURN)
		return;
	rank->wanted = wanted;
	rank->anew = rank->stage == LOADING || rank->stage == PROMISED;
	rank->stage = OPENING;
	asks(rank, rank->anew
			   ? (struct commit_event){.kind = COMMIT_CANNOT, .why = "another version"}
			   : arrival(rank, MEET_OPEN));
}

static void act(struct history *history, uint32_t r)
{
	struct rank *rank = &history->ranks[r];
	bool trouble = !history->quiet;

	if (rank->busy) {
		step(history, r);
		return;
	}
	if (!rank->waits) {
		/* what it promised may have been shown meanwhile: then the version is published, and done */
		if (rank->stage == PROMISED && is_leaf(rank) &&
		    shown_by(history, r) == rank->wanted) {
			rank->stage = OUT_OF_TURN;
			commit_shown(&rank->committer);
		}
		if (!(rank->stage == OUT_OF_TURN && rank->shown_last >= history->version))
			begin(history, rank);
		return;
	}
	if (hear(history, r))
		return;
	if (trouble && chance(history, 20)) {
		rank->waits = false; /* a deadline, or an interrupt */
		return;
	}
	if (rank->stage == LOADING && trouble && chance(history, 10)) {
		asks(rank, (struct commit_event){.kind = COMMIT_CANNOT,
						 .version = rank->wanted,
						 .why = "checksum"});
	} else if (rank->stage == LOADING && chance(history, 3)) {
		rank->stage = PROMISED;
		rank->holds = rank->wanted;
		rank->open = false;
		asks(rank, arrival(rank, MEET_PUBLISH));
	}
}

static void history_init(struct history *history, uint64_t seed)
{
	struct commit_ranks all;

	*history = (struct history){.random = seed * 2654435761u + 1, .version = 1};
	history->commit = chance(history, 3) ? COMMIT_JOB : COMMIT_ENGINE;
	history->engine_ranks =
		history->commit == COMMIT_JOB ? 2 : 2 + (uint32_t)random_below(&history->random, 3);
	history->count = history->commit == COMMIT_JOB ? 6 : history->engine_ranks;
	all = (struct commit_ranks){history->commit, history->count, history->engine_ranks, NULL};
	for (uint32_t r = 0; r < history->count; r++) {
		struct rank *rank = &history->ranks[r];

		rank->mate_count = commit_mates(&all, r, rank->mates);
		for (uint32_t i = 0; i < rank->mate_count; i++)
			rank->links[i].name = "a mate";
		committer_init(&rank->committer, rank->links, rank->mate_count,
			       rank->mate_count && rank->mates[0] < r);
		rank->in_place = chance(history, 2);
		rank->mapped = is_leaf(rank) && chance(history, 2);
	}
}

static bool all_show(const struct history *history)
{
	for (uint32_t r = 0; r < history->count; r++)
		if (shown_by(history, r) < history->version)
			return false;
	return true;
}

static void run(struct history *history)
{
	uint64_t newest = 0;

	for (uint32_t i = 0; i < STEPS && !history->finding[0]; i++) {
		act(history, (uint32_t)random_below(&history->random, history->count));
		check(history);
		if (all_show(history))
			history->version++;
	}
	/* another version than any that was asked for, and no trouble any more */
	for (uint32_t r = 0; r < history->count; r++)
		if (history->ranks[r].wanted > newest)
			newest = history->ranks[r].wanted;
	history->version = newest + 1;
	for (uint32_t r = 0; r < history->count; r++) /* all deadlines pass */
		history->ranks[r].waits = history->ranks[r].waits && history->ranks[r].busy;
	history->quiet = true;
	for (uint32_t i = 0; i < QUIET_STEPS && !all_show(history) && !history->finding[0]; i++) {
		act(history, (uint32_t)random_below(&history->random, history->count));
		check(history);
	}
	if (!all_show(history))
		FIND(history, "version %llu is never shown", (unsigned long long)history->version);
}

static void test_histories__show_one_version_on_all_ranks_of_an_engine(void **state)
{
	const char *only = getenv("WEFT_TEST_SEED");
	uint64_t shown = 0;

	(void)state;
	for (uint64_t seed = only ? strtoull(only, NULL, 10) : 0; seed < HISTORIES; seed++) {
		static struct history history;

		history_init(&history, seed);
		run(&history);
		if (history.finding[0])
			fail_msg("seed %llu: %s", (unsigned long long)seed, history.finding);
		shown += history.version - 1;
		if (only)
			break;
	}
	if (!only)
		assert_true(shown > HISTORIES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_histories__show_one_version_on_all_ranks_of_an_engine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
