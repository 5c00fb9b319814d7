/* SPDX-License-Identifier: Apache-2.0
 *
 * history.h -- what happened to versions in a job, one fact after the other, and a judge who knows the promises of
 * docs/versions.md and docs/living.md and nothing of how they are kept:
 *
 *   shown once     the versions that a process shows grow; readers that were shown none may be shown the last one again, if nothing
 *                  was written over it
 *   whole          it shows what every trainer of its plan has sent it since that plan, each once; or what another rank shows,
 *                  and has sent it
 *   begun          a trainer sends what it has begun, and what it begins grows, but for a version that it sends once more
 *   one plan       nothing counts that was sent by another plan, or begun before this one, and nothing comes for a version that is
 *                  shown; one that was given up is not shown by this plan, whatever comes
 *   one content    of a version that two living ranks show, the part of each trainer is of one process: another one that takes
 *                  its rank may have other bytes for the same number
 *   one version    where ranks of an engine show versions together, readers of no two of them that live are shown two, but for
 *                  the moment that it takes to tell a rank that looks at no word of another one
 *   one promise    where engines show versions together, nobody gives up what it has promised to show and another one that lives
 *                  shows
 */
#ifndef TESTS_SUPPORT_HISTORY_H
#define TESTS_SUPPORT_HISTORY_H

#include "base/array.h"
#include "wire/message.h"

enum fact_kind {
	FACT_PLANNED, /* `who` has the plan `digest`, of which it takes from these trainers (inference): trainers, a bit a rank */
	FACT_BEGINS,  /* a trainer, that version; again: it sends it once more */
	FACT_ARRIVES, /* at the inference rank `who`, all that the trainer `from` has for it of that version, sent by that plan */
	FACT_COPIES,  /* there, all that the inference rank `from` shows, which is that version */
	FACT_SHOWS,   /* an inference rank, that version, from now on */
	FACT_HIDES,   /* it shows none now */
	FACT_SETTLES, /* the next plan says that what it has all of by this one is shown */
	FACT_PASSES,  /* it has given that version up */
	FACT_BREAKS,  /* so, though it had promised to show it when all others do: the next plan says so */
	FACT_ENDS     /* the process has failed, left or been killed */
};

struct fact {
	enum fact_kind kind;
	uint64_t at_ms;
	struct member who, from;
	uint64_t process, from_process; /* incarnations */
	uint64_t version, trainers;
	struct digest digest;
	bool again;
};

struct history {
	ARRAY(struct fact) facts;
	uint32_t engine_ranks; /* so many show versions together; 0: each by itself, and nobody says what it hides */
	uint64_t moment_ms;
	bool in_place;         /* what arrives is written over what is shown */
};

/* Why this cannot be, with the fact that shows it; NULL: it keeps all promises. memory_free. */
char *history_judge(const struct history *history);

#endif
