/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/history.h"

#include "base/text.h"

#include <string.h>

#define RANKS_MAX 64u

/* What is known of one process. */
struct life {
	struct member who;
	uint64_t process;
	struct digest plan;
	uint64_t trainers;			      /* that it takes from */
	size_t planned_at, begun_at, begun_before_at; /* facts */
	uint64_t shown, past, begun, begun_before;
	uint64_t shows, since_ms;    /* that readers are shown now, 0: none, and since when */
	uint64_t arrived[RANKS_MAX]; /* of each trainer's part, the version that has come last, */
	uint64_t senders[RANKS_MAX]; /* of these processes */
	uint64_t content
		[RANKS_MAX];	  /* and those of the version that is shown; 0: has no part in it */
	uint64_t copied;	  /* the version that another rank has sent it by this plan, */
	uint64_t copy[RANKS_MAX]; /* with this content */
	uint64_t settled;	  /* the version that the plan says it shows, of the plan before, */
	uint64_t kept[RANKS_MAX]; /* with this content */
	bool touched;		  /* something has come since that was shown */
	bool ended;
};

struct judge {
	const struct history *history;
	ARRAY(struct life) lives;
	uint64_t
		differ_ms; /* two ranks of an engine may show two versions since then; UINT64_MAX: no */
	size_t at;	   /* fact */
	char *verdict;
};

static struct life *life_of(struct judge *judge, struct member who, uint64_t process)
{
	for (size_t i = 0; i < judge->lives.count; i++)
		if (judge->lives.items[i].process == process &&
		    judge->lives.items[i].who.role == who.role &&
		    judge->lives.items[i].who.rank == who.rank)
			return &judge->lives.items[i];
	if (!array_add(&judge->lives, (struct life){.who = who, .process = process}))
		return NULL;
	return &judge->lives.items[judge->lives.count - 1];
}

static void condemn(struct judge *judge, const struct fact *fact, const char *why)
{
	char name[MEMBER_TEXT_BYTES], from[MEMBER_TEXT_BYTES];

	if (!judge->verdict)
		judge->verdict = memory_format(
			"[%6llu] %s (process %llx), version %llu, from %s (process %llx): %s",
			(unsigned long long)fact->at_ms, member_text(fact->who, name),
			(unsigned long long)fact->process, (unsigned long long)fact->version,
			member_text(fact->from, from), (unsigned long long)fact->from_process, why);
}

static void planned(struct judge *judge, struct life *life, const struct fact *fact)
{
	life->planned_at = judge->at;
	life->past = 0; /* it may be begun anew */
	life->plan = fact->digest;
	life->trainers = fact->trainers;
	memset(life->arrived, 0, sizeof(life->arrived));
	life->copied = 0;
}

static void begins(struct judge *judge, struct life *life, const struct fact *fact)
{
	if (fact->again ? fact->version != life->begun : fact->version <= life->begun)
		condemn(judge, fact, "what a trainer begins grows");
	life->begun_before = life->begun;
	life->begun_before_at = life->begun_at;
	life->begun = fact->version;
	life->begun_at = judge->at;
}

static void arrives(struct judge *judge, struct life *life, const struct fact *fact)
{
	const struct life *from = life_of(judge, fact->from, fact->from_process);
	uint64_t bit = 1ull << fact->from.rank;
	size_t begun_at = from && from->begun == fact->version ? from->begun_at
			  : from			       ? from->begun_before_at
							       : 0;

	/* what it sent last may be on its way when it begins the next one */
	if (!from || (from->begun != fact->version && from->begun_before != fact->version))
		condemn(judge, fact, "it was not begun there");
	life = life_of(judge, fact->who, fact->process); /* the array may have moved */
	if (!digest_equal(life->plan, fact->digest))
		condemn(judge, fact, "sent by another plan");
	if (begun_at < life->planned_at)
		condemn(judge, fact, "begun before that plan");
	if (fact->version <= life->shown)
		condemn(judge, fact, "comes for what is shown");
	if (fact->version <= life->past)
		return;
	if (!(life->trainers & bit))
		condemn(judge, fact, "the plan has nothing from there");
	if (life->arrived[fact->from.rank] == fact->version)
		condemn(judge, fact, "comes twice");
	life->touched = true;
	life->arrived[fact->from.rank] = fact->version;
	life->senders[fact->from.rank] = fact->from_process;
}

static void copies(struct judge *judge, struct life *life, const struct fact *fact)
{
	const struct life *from = life_of(judge, fact->from, fact->from_process);

	life = life_of(judge, fact->who, fact->process); /* the array may have moved */
	if (!from || from->shown != fact->version)
		condemn(judge, fact, "sent by a rank that does not show it");
	if (fact->version <= life->shown)
		condemn(judge, fact, "comes for what is shown");
	if (judge->verdict)
		return;
	life->copied = fact->version;
	life->touched = true;
	for (uint32_t t = 0; t < RANKS_MAX; t++)
		life->copy[t] = from->content[t];
}

/* The same version of two ranks that live is the same bytes. */
static bool is_content_of_all(const struct judge *judge, const struct life *life)
{
	for (size_t i = 0; i < judge->lives.count; i++) {
		const struct life *other = &judge->lives.items[i];

		if (other->ended || other->who.role != ROLE_INFERENCE ||
		    other->shown != life->shown)
			continue;
		for (uint32_t t = 0; t < RANKS_MAX; t++)
			if (other->content[t] && life->content[t] &&
			    other->content[t] != life->content[t])
				return false;
	}
	return true;
}

static bool all_have_come(const struct life *life, uint64_t version)
{
	for (uint32_t t = 0; t < RANKS_MAX; t++)
		if (life->trainers >> t & 1 && life->arrived[t] != version)
			return false;
	return true;
}

static void turns_to(struct judge *judge, struct life *life, const struct fact *fact)
{
	life->shows = fact->kind == FACT_SHOWS ? fact->version : 0;
	life->since_ms = fact->at_ms;
	if (fact->at_ms < judge->differ_ms)
		judge->differ_ms = fact->at_ms;
}

/* Since when two ranks of one engine show two versions; UINT64_MAX: no two do. */
static uint64_t differ_since(const struct judge *judge)
{
	uint64_t since = UINT64_MAX;

	for (size_t i = 0; i < judge->lives.count; i++) {
		const struct life *a = &judge->lives.items[i];

		for (size_t k = 0; !a->ended && a->shows && k < i; k++) {
			const struct life *b = &judge->lives.items[k];
			uint64_t later = a->since_ms > b->since_ms ? a->since_ms : b->since_ms;

			if (!b->ended && b->shows && b->shows != a->shows &&
			    a->who.rank / judge->history->engine_ranks ==
				    b->who.rank / judge->history->engine_ranks &&
			    later < since)
				since = later;
		}
	}
	return since;
}

/* Before that fact. */
static void are_together(struct judge *judge, const struct fact *fact)
{
	const struct history *history = judge->history;

	if (!history->engine_ranks || judge->differ_ms == UINT64_MAX ||
	    fact->at_ms - judge->differ_ms <= history->moment_ms)
		return;
	judge->differ_ms = differ_since(judge);
	if (judge->differ_ms != UINT64_MAX && fact->at_ms - judge->differ_ms > history->moment_ms)
		condemn(judge, fact, "before this, two ranks of one engine show two versions");
}

static void hides(struct judge *judge, struct life *life, const struct fact *fact)
{
	turns_to(judge, life, fact);
}

static void shows(struct judge *judge, struct life *life, const struct fact *fact)
{
	const struct history *history = judge->history;

	if (fact->version == life->shown && !life->shows) {
		if (life->touched && history->in_place)
			condemn(judge, fact, "shown again, and written over since");
		turns_to(judge, life, fact);
		return;
	}
	if (fact->version <= life->shown || fact->version <= life->past)
		condemn(judge, fact, "what a rank shows grows");
	if (life->copied != fact->version && life->settled != fact->version &&
	    !all_have_come(life, fact->version))
		condemn(judge, fact, "shown, and not every trainer's part has come");
	life->shown = fact->version;
	life->touched = false;
	turns_to(judge, life, fact);
	for (uint32_t t = 0; t < RANKS_MAX; t++)
		life->content[t] = life->copied == fact->version    ? life->copy[t]
				   : life->settled == fact->version ? life->kept[t]
				   : life->trainers >> t & 1	    ? life->senders[t]
								    : 0;
	if (!is_content_of_all(judge, life))
		condemn(judge, fact, "another rank shows other bytes under this number");
}

static void settles(struct judge *judge, struct life *life, const struct fact *fact)
{
	if (!all_have_come(life, fact->version))
		condemn(judge, fact, "settled, and not every trainer's part has come");
	life->settled = fact->version;
	for (uint32_t t = 0; t < RANKS_MAX; t++)
		life->kept[t] = life->trainers >> t & 1 ? life->senders[t] : 0;
}

static void passes(struct judge *judge, struct life *life, const struct fact *fact)
{
	if (fact->version <= life->shown)
		condemn(judge, fact, "given up, and shown already");
	life->past = fact->version;
}

/* What is shown all had promised. */
static void breaks(struct judge *judge, struct life *life, const struct fact *fact)
{
	for (size_t i = 0; i < judge->lives.count; i++) {
		const struct life *other = &judge->lives.items[i];

		if (!other->ended && other->who.role == ROLE_INFERENCE &&
		    digest_equal(other->plan, life->plan) &&
		    (other->shown == fact->version || other->settled == fact->version))
			condemn(judge, fact, "promised and given up, and shown by another rank");
	}
	passes(judge, life, fact);
}

static void ends(struct judge *judge, struct life *life, const struct fact *fact)
{
	(void)judge;
	(void)fact;
	life->ended = true;
}

char *history_judge(const struct history *history)
{
	static void (*const rows[])(struct judge *, struct life *, const struct fact *) = {
		[FACT_PLANNED] = planned, [FACT_BEGINS] = begins, [FACT_ARRIVES] = arrives,
		[FACT_COPIES] = copies,	  [FACT_SHOWS] = shows,	  [FACT_PASSES] = passes,
		[FACT_ENDS] = ends,	  [FACT_HIDES] = hides,	  [FACT_SETTLES] = settles,
		[FACT_BREAKS] = breaks,
	};
	struct judge judge = {.history = history, .differ_ms = UINT64_MAX};

	for (; judge.at < history->facts.count && !judge.verdict; judge.at++) {
		const struct fact *fact = &history->facts.items[judge.at];
		struct life *life = life_of(&judge, fact->who, fact->process);

		are_together(&judge, fact);
		if (!life || fact->who.rank >= RANKS_MAX || fact->from.rank >= RANKS_MAX)
			condemn(&judge, fact, "too large for this judge");
		else
			rows[fact->kind](&judge, life, fact);
	}
	array_free(&judge.lives);
	return judge.verdict;
}
