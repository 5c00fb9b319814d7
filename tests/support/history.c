/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/history.h"

#include "base/text.h"

#define RANKS_MAX 64u

/* What is known of one process. */
struct life {
	struct member who;
	uint64_t process;
	struct digest plan;
	uint64_t trainers; /* that it takes from */
	uint64_t shown, past, begun, begun_before;
	uint64_t arriving;	     /* the version whose parts have come, */
	uint64_t arrived;	     /* of these trainers, */
	uint64_t senders[RANKS_MAX]; /* of these processes */
	uint64_t content
		[RANKS_MAX];	  /* and those of the version that is shown; 0: has no part in it */
	uint64_t copied;	  /* the version that another rank has sent it by this plan, */
	uint64_t copy[RANKS_MAX]; /* with this content */
	bool ended;
};

struct judge {
	ARRAY(struct life) lives;
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
	(void)judge;
	life->plan = fact->digest;
	life->trainers = fact->trainers;
	life->arriving = life->arrived = life->copied = 0;
}

static void begins(struct judge *judge, struct life *life, const struct fact *fact)
{
	if (fact->again ? fact->version != life->begun : fact->version <= life->begun)
		condemn(judge, fact, "what a trainer begins grows");
	for (size_t i = 0; fact->again && i < judge->lives.count; i++)
		if (judge->lives.items[i].past == fact->version) /* given up, and sent whole now */
			judge->lives.items[i].past--;
	life->begun_before = life->begun;
	life->begun = fact->version;
}

static void arrives(struct judge *judge, struct life *life, const struct fact *fact)
{
	const struct life *from = life_of(judge, fact->from, fact->from_process);
	uint64_t bit = 1ull << fact->from.rank;

	/* what it sent last may be on its way when it begins the next one */
	if (!from || (from->begun != fact->version && from->begun_before != fact->version))
		condemn(judge, fact, "it was not begun there");
	life = life_of(judge, fact->who, fact->process); /* the array may have moved */
	if (!digest_equal(life->plan, fact->digest))
		condemn(judge, fact, "sent by another plan");
	if (fact->version <= life->shown)
		condemn(judge, fact, "comes for what is shown");
	if (fact->version <= life->past)
		return;
	if (!(life->trainers & bit))
		condemn(judge, fact, "the plan has nothing from there");
	if (life->arriving != fact->version)
		life->arrived = 0;
	if (life->arrived & bit)
		condemn(judge, fact, "comes twice");
	life->arriving = fact->version;
	life->arrived |= bit;
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
	if (life->past == fact->version) /* given up, and sent whole now */
		life->past--;
	life->copied = fact->version;
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

static void shows(struct judge *judge, struct life *life, const struct fact *fact)
{
	if (fact->version <= life->shown || fact->version <= life->past)
		condemn(judge, fact, "what a rank shows grows");
	if (life->copied != fact->version &&
	    (life->arriving != fact->version || life->arrived != life->trainers))
		condemn(judge, fact, "shown, and not every trainer's part has come");
	life->shown = fact->version;
	for (uint32_t t = 0; t < RANKS_MAX; t++)
		life->content[t] = life->copied == fact->version ? life->copy[t]
				   : life->arrived >> t & 1	 ? life->senders[t]
								 : 0;
	if (!is_content_of_all(judge, life))
		condemn(judge, fact, "another rank shows other bytes under this number");
}

static void passes(struct judge *judge, struct life *life, const struct fact *fact)
{
	if (fact->version <= life->shown)
		condemn(judge, fact, "given up, and shown already");
	life->past = fact->version;
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
		[FACT_ENDS] = ends,
	};
	struct judge judge = {0};

	for (size_t i = 0; i < history->facts.count && !judge.verdict; i++) {
		const struct fact *fact = &history->facts.items[i];
		struct life *life = life_of(&judge, fact->who, fact->process);

		if (!life || fact->who.rank >= RANKS_MAX || fact->from.rank >= RANKS_MAX)
			condemn(&judge, fact, "too large for this judge");
		else
			rows[fact->kind](&judge, life, fact);
	}
	array_free(&judge.lives);
	return judge.verdict;
}
