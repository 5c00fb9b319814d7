/* SPDX-License-Identifier: Apache-2.0
 *
 * versions.h -- which version lies in which copy, for readers that never block the writer.
 *
 *   copy[c]    the version whose bytes are all of copy c, 0 while they change or are unknown
 *   published  the last version published: the one store that readers wait for
 *   word       where ranks agree on what they show (job/commit.h): who decides stores the version there, 0 while there
 *              is none, for all at once; readers show what both the word and a copy say
 *
 *   in place   copy[0]: 7 ─ open ► 0 ────────────── publish ► 8        readers: 7, NONE, 8
 *   shadow     copy[0]: 7                                     7        readers: 7, 7, 8
 *              copy[1]: 6 ─ open ► 0 ────────────── publish ► 8        a reader of 6: TORN
 *
 *   word       7 ───────────────────── prepared ▪ 7 ── store ► 8        the copy holds 8 before the word says so
 *
 * Versions never repeat, so copy[c] == v before and after reading proves that nothing was
 * written in between: peers write only into a copy that was opened, and opening stores 0 first.
 */
#ifndef WORKER_UPDATE_VERSIONS_H
#define WORKER_UPDATE_VERSIONS_H

#include "worker/epoch/params.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed but for the number of copies: nothing is published. */
struct versions {
	uint32_t copies;
	_Atomic uint64_t copy[PARAMS_COPIES_MAX];
	_Atomic uint64_t published;
	_Atomic bool tainted;
	_Atomic bool hidden;           /* readers are shown none, whatever is here */
	bool by_host;                  /* weft_commit_at shows what is prepared; nobody's word is looked at */
	uint64_t prepared;             /* so: for it; 0: nothing. Of the writer alone */
	const _Atomic uint64_t *_Atomic word; /* NULL: published is it */
	_Atomic bool checked;          /* word[1] is ~word[0], or it is being written */
	_Atomic uint32_t looking;      /* readers that look at the word, which may be memory of a peer's */
};

/* What readers are shown if it is here: 0, none. */
uint64_t versions_shown(struct versions *versions);
/* The last one that was published here; what it holds and is shown counts, though it was not told so. */
uint64_t versions_published(const struct versions *versions);
/* From now on, and until `word` is NULL again, that word says what is shown: it holds what is shown now. When it returns no
 * reader looks at the one before. checked: a peer writes it, over a network that may write half of it first; its complement
 * lies behind it, and while the two do not fit, readers are shown what was published here. */
void versions_follow(struct versions *versions, const _Atomic uint64_t *word, bool checked);
/* All bytes of the version are in the copy: it is shown once the word says so. */
void versions_prepare(struct versions *versions, uint32_t copy, uint64_t version);

/* The copy that an update shall go to: the one that is not shown, or, while the word says none, not published. */
uint32_t versions_spare(struct versions *versions);
/* Writer. open: before any peer is told that it may write into the copy. */
void versions_open(struct versions *versions, uint32_t copy);
void versions_publish(struct versions *versions, uint32_t copy, uint64_t version);
/* by_host: what `prepared` says. */
void versions_commit(struct versions *versions);
/* Another plan says that this rank, like those that it shares a word with, shows what was published here, and not all of them
 * have heard that yet: until they have, readers are shown none. */
void versions_hide(struct versions *versions, bool hide);
/* The update into `copy` failed. */
void versions_fail(struct versions *versions, uint32_t copy);

/* Readers, any thread. begin: false when no version can be read now. */
bool versions_begin(struct versions *versions, uint64_t *version);
bool versions_end(struct versions *versions, uint64_t version); /* false: torn */
int versions_copy(const struct versions *versions, uint64_t version); /* -1: not here */
/* Writer, before an update has written anything, or given that up without: the copy whose bytes are all of the version that was
 * published last, also where it was opened since; -1: that is not this one, or something was written over it. */
int versions_whole(struct versions *versions, uint64_t version);

#endif
