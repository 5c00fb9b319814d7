/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/update_payload.h"
#include "worker/epoch/windows.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define REFUSE(...) error_set(error, ERROR_MESSAGE, __VA_ARGS__)

int update_read_accept(const struct transport_signal *signal, const struct update_pair *pair,
		       struct update_accept *out, struct error *error)
{
	struct update_accept accept;

	if (signal->tag != UPDATE_ACCEPT || signal->length != sizeof(accept))
		return REFUSE("%s sent signal %" PRIu32 " with %" PRIu32 " bytes; a trainer "
			      "expects %d with %zu",
			      pair->name, signal->tag, signal->length, UPDATE_ACCEPT,
			      sizeof(accept));
	memcpy(&accept, signal->payload, sizeof(accept));
	if (!digest_equal(accept.plan, pair->plan))
		return REFUSE("%s accepts updates of another plan", pair->name);
	if (!accept.opening || accept.opening < pair->opening)
		return REFUSE("%s gave permission %" PRIu64 " after permission %" PRIu64,
			      pair->name, accept.opening, pair->opening);
	if (!accept.min_version || accept.min_version > accept.max_version)
		return REFUSE("%s accepts versions %" PRIu64 " to %" PRIu64 ", which are none",
			      pair->name, accept.min_version, accept.max_version);
	if (accept.kind >= ACCEPT_KINDS)
		return REFUSE("%s accepts in way %" PRIu32 ", which is none", pair->name,
			      accept.kind);
	if (accept.copy >= pair->copies)
		return REFUSE("%s opened copy %" PRIu32 " of %" PRIu32, pair->name, accept.copy,
			      pair->copies);
	if (accept.sums_offset % sizeof(uint64_t))
		return REFUSE("%s wants checksums at byte %" PRIu64 ", which is no multiple of 8",
			      pair->name, accept.sums_offset);
	if (accept.window_bytes &&
	    (accept.window_bytes < WINDOW_HEAD_BYTES + WINDOW_RING_BYTES_MIN ||
	     accept.window_offset % 8 != 0 ||
	     accept.window_bytes > UINT64_MAX - accept.window_offset))
		return REFUSE("%s opened a window of %" PRIu64 " bytes at %" PRIu64
			      "; it has at least %zu, at a multiple of 8",
			      pair->name, accept.window_bytes, accept.window_offset,
			      WINDOW_HEAD_BYTES + WINDOW_RING_BYTES_MIN);
	*out = accept;
	return 0;
}

_Static_assert(offsetof(struct update_end, opening) == offsetof(struct update_abort, opening) &&
		       offsetof(struct update_end, version) ==
			       offsetof(struct update_abort, version),
	       "both uses of a permission begin alike");

int update_read_taken(const struct transport_signal *signal, const struct update_pair *pair,
		      struct update_taken *out, struct error *error)
{
	struct update_accept accept;
	struct update_taken taken;
	int rc;

	if (signal->tag == UPDATE_ACCEPT) {
		rc = update_read_accept(signal, pair, &accept, error);
		if (rc)
			return rc;
		taken = (struct update_taken){accept.opening, accept.taken};
	} else if (signal->tag == UPDATE_TAKEN && signal->length == sizeof(taken)) {
		memcpy(&taken, signal->payload, sizeof(taken));
	} else {
		return REFUSE("%s sent signal %" PRIu32 " with %" PRIu32 " bytes; what it has "
			      "taken is said by %d with %zu",
			      pair->name, signal->tag, signal->length, UPDATE_TAKEN, sizeof(taken));
	}
	if (taken.opening != pair->opening)
		return REFUSE("%s has taken what landed by permission %" PRIu64
			      ", and it is %" PRIu64,
			      pair->name, taken.opening, pair->opening);
	*out = taken;
	return 0;
}

static int read_landed(const struct transport_signal *signal, const struct update_pair *pair,
		       struct update_landed *out, struct error *error)
{
	struct update_landed landed;

	if (signal->length != sizeof(landed))
		return REFUSE("%s said in %" PRIu32 " bytes what has landed; it takes %zu",
			      pair->name, signal->length, sizeof(landed));
	memcpy(&landed, signal->payload, sizeof(landed));
	if (!pair->opening || landed.opening != pair->opening)
		return REFUSE("%s: it wrote what it had no permission for", pair->name);
	*out = landed;
	return 0;
}

int update_read_use(const struct transport_signal *signal, const struct update_pair *pair,
		    enum update_tag *tag, struct update_end *end, struct update_abort *gone,
		    struct update_landed *landed, struct error *error)
{
	bool ends = signal->tag == UPDATE_END && signal->length == sizeof(*end);
	struct update_abort abort;
	struct update_end use;

	*tag = (enum update_tag)signal->tag;
	if (*tag == UPDATE_LANDED)
		return read_landed(signal, pair, landed, error);
	if (!ends && (signal->tag != UPDATE_ABORT || signal->length != sizeof(*gone)))
		return REFUSE("%s: its signal is neither the end nor the abort of an update",
			      pair->name);
	memcpy(&use, signal->payload, sizeof(use));
	memcpy(&abort, signal->payload, sizeof(abort));
	if (!pair->opening || use.opening != pair->opening)
		return REFUSE("%s: it ended an update that it had no permission for", pair->name);
	if (!use.version)
		return REFUSE("%s: it ended update 0, which no update is", pair->name);
	if (ends && use.sums && use.sums != use.pieces)
		return REFUSE("%s sent %" PRIu32 " checksums for %" PRIu32 " pieces", pair->name,
			      use.sums, use.pieces);
	if (!ends && !memchr(abort.why, 0, sizeof(abort.why)))
		return REFUSE("%s: its reason to give update %" PRIu64 " up has no end", pair->name,
			      abort.version);
	if (ends)
		*end = use;
	else
		*gone = abort;
	return 0;
}

static bool round_valid(uint32_t round, uint64_t turn, uint64_t min_version, uint64_t max_version)
{
	return turn && round >= MEET_OPEN && round <= MEET_PUBLISH && min_version &&
	       min_version <= max_version;
}

int update_read_meet(const struct transport_signal *signal, const char *name, bool decides,
		     struct update_meet *out, struct error *error)
{
	struct update_meet meet = {.tag = (enum update_tag)signal->tag};
	bool valid = false;

	if (meet.tag == UPDATE_ARRIVE && !decides && signal->length == sizeof(meet.arrive)) {
		memcpy(&meet.arrive, signal->payload, sizeof(meet.arrive));
		valid = round_valid(meet.arrive.round, meet.arrive.turn, meet.arrive.min_version,
				    meet.arrive.max_version);
	} else if (meet.tag == UPDATE_RELEASE && decides &&
		   signal->length == sizeof(meet.release)) {
		memcpy(&meet.release, signal->payload, sizeof(meet.release));
		valid = round_valid(meet.release.round, meet.release.turn, meet.release.min_version,
				    meet.release.max_version) &&
			(meet.release.round == MEET_OPEN ||
			 meet.release.min_version == meet.release.max_version);
	} else if (meet.tag == UPDATE_LATER && !decides && signal->length == sizeof(meet.later)) {
		memcpy(&meet.later, signal->payload, sizeof(meet.later));
		valid = meet.later.turn != 0;
	} else if (meet.tag == UPDATE_GIVE_UP && signal->length == sizeof(meet.give_up)) {
		memcpy(&meet.give_up, signal->payload, sizeof(meet.give_up));
		valid = meet.give_up.turn && memchr(meet.give_up.why, 0, sizeof(meet.give_up.why));
	}
	if (!valid)
		return REFUSE("%s: its signal %" PRIu32 " with %" PRIu32
			      " bytes is nothing that ranks of one engine say "
			      "to each other",
			      name, signal->tag, signal->length);
	*out = meet;
	return 0;
}
