/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/versions.h"

#include "base/assert.h"

#include <sched.h>

uint64_t versions_shown(struct versions *versions)
{
	const _Atomic uint64_t *word;
	uint64_t version;

	if (!atomic_load(&versions->word))
		return atomic_load(&versions->published);
	atomic_fetch_add(&versions->looking, 1);
	word = atomic_load(&versions->word);
	version = atomic_load(word ? word : &versions->published);
	if (word && atomic_load(&versions->checked) && atomic_load(word + 1) != ~version)
		version = atomic_load(&versions->published);
	atomic_fetch_sub(&versions->looking, 1);
	return version;
}

uint64_t versions_published(const struct versions *versions)
{
	/* looking at it is the only thing that is written */
	struct versions *looked_at = (struct versions *)(uintptr_t)versions;

	/* what is shown can move on meanwhile, so far that its copy is written again */
	for (;;) {
		uint64_t shown = versions_shown(looked_at);
		uint64_t published = atomic_load(&versions->published);

		for (uint32_t c = 0; c < versions->copies && shown > published; c++)
			if (atomic_load(&versions->copy[c]) == shown)
				return shown;
		if (shown <= published || versions_shown(looked_at) == shown)
			return published;
	}
}

void versions_follow(struct versions *versions, const _Atomic uint64_t *word, bool checked)
{
	WEFT_ASSERT(
		!word ||
		!atomic_load(&versions->word)); /* so that no reader has one without the other */
	atomic_store(&versions->checked, checked);
	atomic_store(&versions->word, word);
	while (atomic_load(&versions->looking)) /* a few instructions each */
		sched_yield();
}

uint32_t versions_spare(struct versions *versions)
{
	uint64_t shown = versions_shown(versions);

	if (!shown) /* the word says none, for now */
		shown = atomic_load(&versions->published);
	for (uint32_t c = 0; c < versions->copies; c++)
		if (!shown || atomic_load(&versions->copy[c]) != shown)
			return c;
	return 0;
}

void versions_open(struct versions *versions, uint32_t copy)
{
	/* seq_cst: before the ACCEPT signal, and so before any peer's write */
	atomic_store(&versions->copy[copy], 0);
}

void versions_prepare(struct versions *versions, uint32_t copy, uint64_t version)
{
	atomic_store(&versions->copy[copy], version);
}

void versions_publish(struct versions *versions, uint32_t copy, uint64_t version)
{
	atomic_store(&versions->copy[copy], version);
	atomic_store(&versions->tainted, false);
	atomic_store(&versions->published, version);
}

void versions_commit(struct versions *versions)
{
	uint64_t version = versions->prepared;

	versions->prepared = 0;
	for (uint32_t c = 0; c < versions->copies; c++)
		if (atomic_load(&versions->copy[c]) == version)
			versions_publish(versions, c, version);
}

void versions_hide(struct versions *versions, bool hide)
{
	atomic_store(&versions->hidden, hide);
}

void versions_fail(struct versions *versions, uint32_t copy)
{
	atomic_store(&versions->copy[copy], 0); /* it may have been prepared */
	/* with a shadow the published copy was not touched */
	if (versions->copies == 1 && copy == 0)
		atomic_store(&versions->tainted, true);
}

int versions_copy(const struct versions *versions, uint64_t version)
{
	if (!version ||
	    version > versions_published(versions)) /* it may be prepared, and shown never */
		return -1;
	for (uint32_t c = 0; c < versions->copies; c++)
		if (atomic_load_explicit(&versions->copy[c], memory_order_acquire) == version)
			return (int)c;
	return -1;
}

bool versions_begin(struct versions *versions, uint64_t *version)
{
	/* what is shown can move on between the two loads, but only so often: each turn of this
	 * loop needs a whole update to have been published meanwhile */
	for (;;) {
		uint64_t seen = versions_shown(versions);

		if (atomic_load(&versions->hidden))
			return false;
		if (versions_copy(versions, seen) >= 0) {
			*version = seen;
			return true;
		}
		if (versions_shown(versions) == seen)
			return false;
	}
}

bool versions_end(struct versions *versions, uint64_t version)
{
	if (!version)
		return false;
	for (uint32_t c = 0; c < versions->copies; c++) {
		/* Adding nothing, with release: a plain load could be answered before the reads
		 * of the bracket are; a fence would do as well, but thread sanitizers do not
		 * understand fences. */
		if (atomic_fetch_add_explicit(&versions->copy[c], 0, memory_order_acq_rel) ==
		    version)
			return true;
	}
	return false;
}

int versions_whole(struct versions *versions, uint64_t version)
{
	int copy = versions_copy(versions, version);

	if (copy >= 0 || versions->copies > 1)
		return copy;
	return version && version == versions_published(versions) &&
			       !atomic_load(&versions->tainted)
		       ? 0
		       : -1;
}
