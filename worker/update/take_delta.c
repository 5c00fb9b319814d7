/* SPDX-License-Identifier: Apache-2.0
 *
 * take_delta.c -- of a version what differs from the one before, which this rank's memory holds (weft-controller --delta).
 *
 *   ACCEPT opening 8, base 7 ─►          in place   memory holds 7: values are put where they differ
 *     ◄─ LANDED: runs (update/sent.h)    shadow     copy 0 holds 7: the same, in copy 1, on top of what lies in copy 0
 *   END 8 ─► the sums of all pieces, whole, say that it is version 8
 *
 * A trainer has used its permission up when anything comes of it, and the next one says nothing of a base until a version was
 * published: whatever becomes of a version, a trainer that wrote of it sends the next one whole.
 */
#include "worker/update/wait.h"

#include "base/log.h"
#include "base/memory.h"
#include "pack/delta.h"

#include <string.h>

#define BAD(...) error_set(error, ERROR_MESSAGE, __VA_ARGS__)

/* ---- what the memory holds ---- */

int waiter_base_open(struct waiter *waiter, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	struct base *base = &waiter->base;

	*base = (struct base){.deltas = false};
	for (size_t p = 0; p < epoch->peer_count; p++)
		base->deltas = base->deltas || epoch->peers[p].deltas;
	if (!base->deltas)
		return 0;
	base->openings = pool_array(&waiter->pool, epoch->peer_count, sizeof(*base->openings));
	base->given = pool_array(&waiter->pool, epoch->peer_count, sizeof(*base->given));
	return pool_ok(&waiter->pool) ? 0
				      : memory_error(error, "preparing --delta",
						     epoch->peer_count * 2 * sizeof(uint64_t));
}

void waiter_base_note(struct waiter *waiter, uint64_t version)
{
	struct base *base = &waiter->base;

	if (!base->deltas)
		return;
	base->applied = false;
	base->version = version;
	base->copy = waiter->copy;
	for (size_t p = 0; p < waiter->epoch->peer_count; p++)
		base->openings[p] = waiter->now->links[p].opening + 1;
}

void waiter_base_distrust(struct waiter *waiter)
{
	if (!waiter->base.applied)
		return;
	log_warn(
		"%s: what trainers send is not what is here, on top of version %llu: has somebody else than weft written into the "
		"parameters, such as a post-load hook? From now on they send all of each version to this rank, until the next plan",
		waiter->epoch->options.name, (unsigned long long)waiter->base.version);
	waiter->base.deltas = waiter->base.applied = false;
	waiter->base.version = 0;
}

uint64_t waiter_base(struct waiter *waiter, uint32_t p)
{
	struct base *base = &waiter->base;

	if (!base->version || !waiter->epoch->peers[p].deltas ||
	    base->openings[p] != waiter->now->links[p].opening)
		return 0;
	base->given[p] = base->openings[p];
	return base->version;
}

/* ---- putting it there ---- */

/* A parameter's bytes that lie in runs, from and to memory where they lie beside each other. */
static void copy_runs(unsigned char *piece, const struct spread *spread, uint64_t at,
		      unsigned char *packed, uint64_t bytes, bool out)
{
	uint64_t n, place;

	for (uint64_t done = 0; done < bytes; done += n) {
		n = spread_next(spread, at + done, bytes - done, &place);
		if (out)
			memcpy(piece + place, packed + done, n);
		else
			memcpy(packed + done, piece + place, n);
	}
}

static void apply_spread(unsigned char *from, unsigned char *to, const struct spread *spread,
			 const struct window_entry *entry, const unsigned char *coded)
{
	unsigned char packed[DELTA_CHUNK_BYTES];
	uint64_t at = entry->from, span, n;

	for (uint32_t used = 0, length; used < entry->coded; used += length) {
		bool same = delta_is_same(coded + used);

		span = delta_first(coded + used, &length);
		for (uint64_t done = 0; done < span && (!same || from != to); done += n, at += n) {
			n = span - done < sizeof(packed) ? span - done : sizeof(packed);
			copy_runs(from, spread, at, packed, n, false);
			if (!same)
				delta_apply(coded + used, length, entry->element_bytes, packed);
			copy_runs(to, spread, at, packed, n, true);
		}
		if (same && from == to)
			at += span;
	}
}

int waiter_put_delta(struct waiter *waiter, uint32_t p, const struct plan_row *row,
		     const struct window_entry *entry, const unsigned char *at, struct error *error)
{
	const struct params *params = waiter->epoch->options.params;
	struct base *base = &waiter->base;
	const char *name = waiter->now->peers[p].name;
	unsigned char coded[WINDOW_DELTA_BYTES];
	unsigned char *from, *to;
	uint64_t span;

	if (!base->given || base->given[p] != waiter->now->links[p].opening)
		return BAD(
			"%s landed what differs of piece %u, and was not told that there is anything which it "
			"differs from",
			name, entry->ordinal);
	if (entry->coded > sizeof(coded) ||
	    (entry->element_bytes != 1 && entry->element_bytes != 2 && entry->element_bytes != 4))
		return BAD(
			"%s landed what differs of piece %u in %u bytes, of values of %u; they are at most %zu, and 1, 2 "
			"or 4",
			name, entry->ordinal, entry->coded, entry->element_bytes, sizeof(coded));
	/* so that what is looked at is what is done */
	memcpy(coded, at, entry->coded);
	span = delta_span(coded, entry->coded, entry->element_bytes);
	if (!span || span != entry->bytes)
		return BAD(
			"%s landed what differs of bytes %llu..+%u of piece %u, and it is of %llu bytes, or of none",
			name, (unsigned long long)entry->from, entry->bytes, entry->ordinal,
			(unsigned long long)span);
	base->applied = true;
	from = params_landed(params, base->copy, row->param) + row->offset;
	to = params_landed(params, waiter->copy, row->param) + row->offset;
	if (row->spread.run_bytes) {
		apply_spread(from, to, &row->spread, entry, coded);
		return 0;
	}
	if (from != to)
		memcpy(to + entry->from, from + entry->from, entry->bytes);
	delta_apply(coded, entry->coded, entry->element_bytes, to + entry->from);
	return 0;
}
