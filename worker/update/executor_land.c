/* SPDX-License-Identifier: Apache-2.0
 *
 * executor_land.c -- what lands in a peer's window: small parts are merged, entries tell of them.
 *
 *   window, of the peer     | entries | ..|a|b |c| .. D .. |e|f|..
 *                                          ▲             ▲         two writes; D was one of its own
 *   merged, here                        |a|b |c|e|f|..             a, b, c, e, f were copied as they were packed
 */
#include "worker/update/executor.h"

#include "base/clock.h"
#include "base/copy.h"
#include "worker/replica/ring.h"
#include "worker/update/update_payload.h"

/* Where that step's bytes go. */
int executor_place(struct sender *sender, const struct step *step, const struct doing *doing,
		   struct send_target *place, struct error *error)
{
	const struct update_accept *accept = &sender->schedule.links[step->peer].accept;
	const struct peer *peer = &sender->epoch->peers[step->peer];
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_target *target;
	uint32_t region = step->sums ? accept->sums_region : accept->window_region;

	if (!step->sums && !step->lands && !step->tells) {
		target = executor_target(sender, &plan->rows[step->row]);
		*place = *target;
		place->offset += doing->offset;
		send_plan_map(plan, target, place->offset, doing->bytes);
		return 0;
	}
	*place = (struct send_target){.remote = peer_remote(peer, region),
				      .offset = step->sums ? accept->sums_offset
							   : accept->window_offset};
	if (step->lands)
		place->offset += WINDOW_HEAD_BYTES + step->at;
	if (place->remote)
		return 0;
	return error_set(error, ERROR_MESSAGE, "%s wants %s in region %u, which it did not send",
			 peer->name, step->sums ? "checksums" : "pieces", region);
}

static unsigned char *merged(const struct sender *sender, uint32_t peer)
{
	const struct send_plan *plan = &sender->epoch->send;

	return (unsigned char *)transport_region_memory(plan->merge_region) + plan->merges[peer].at;
}

uint64_t executor_merge(struct sender *sender, const struct step *step, const struct doing *doing)
{
	unsigned char *to = merged(sender, step->peer) + step->merge_at;
	const struct runs *runs = doing->rows ? &doing->rows->pack.runs : NULL;
	uint64_t n, place;

	for (uint64_t done = 0; runs && done < doing->bytes; done += n) {
		const struct spread rows = {runs->row_bytes, runs->stride_bytes};

		n = spread_next(&rows, doing->offset + done, doing->bytes - done, &place);
		copy_bytes(to + done, doing->from + place, n);
	}
	if (!runs)
		copy_bytes(to, doing->from, doing->bytes);
	return sender->writes[step->peer];
}

/* Of entry n on, how many lie behind each other in what is merged and in the window; 0: n is not merged. */
static uint64_t merged_alike(const struct send_window *window, uint64_t n, uint64_t end,
			     uint64_t *bytes)
{
	uint64_t first = n % WINDOW_ENTRIES, count = 0;

	for (*bytes = 0; n < end; n++, count++) {
		const struct window_entry *entry = &window->entries[n % WINDOW_ENTRIES];
		const struct send_entry *state = &window->states[n % WINDOW_ENTRIES];
		uint64_t behind = ring_aligned(*bytes);

		if (!state->merge_id ||
		    state->merge_at != window->states[first].merge_at + behind ||
		    entry->at != window->entries[first].at + behind)
			break;
		*bytes = behind + window_entry_bytes(entry);
	}
	return count;
}

/* What of those entries is merged, in as few writes as it can be. */
static int write_merged(struct sender *sender, const struct step *step,
			const struct send_target *window_at, struct event *event,
			struct error *error)
{
	const struct send_window *window = &sender->schedule.windows[step->peer];
	uint64_t deadline_ns = clock_deadline_ns(executor_wait_ms(sender)), bytes;
	int rc = 0;

	for (uint64_t n = step->told, count; n < step->entries && !rc; n += count ? count : 1) {
		uint64_t first = n % WINDOW_ENTRIES;

		count = merged_alike(window, n, step->entries, &bytes);
		if (!count)
			continue;
		rc = transport_write(sender->epoch->peers[step->peer].endpoint,
				     merged(sender, step->peer) + window->states[first].merge_at,
				     sender->epoch->send.merge_region, window_at->remote,
				     window_at->offset + WINDOW_HEAD_BYTES +
					     window->entries[first].at,
				     bytes, deadline_ns, error);
		if (!rc)
			event->write = ++sender->writes[step->peer];
	}
	return rc;
}

static int write_entries(struct sender *sender, const struct step *step,
			 const struct send_target *head, struct event *event, struct error *error)
{
	const struct send_window *window = &sender->schedule.windows[step->peer];
	uint64_t deadline_ns = clock_deadline_ns(executor_wait_ms(sender));
	int rc = 0;

	/* those in the ring's last places, then those in its first */
	for (uint64_t n = step->told, count; n < step->entries && !rc; n += count) {
		uint64_t first = n % WINDOW_ENTRIES;

		count = step->entries - n;
		if (count > WINDOW_ENTRIES - first)
			count = WINDOW_ENTRIES - first;
		rc = transport_write(sender->epoch->peers[step->peer].endpoint,
				     &window->entries[first], sender->epoch->send.entries_region,
				     head->remote,
				     head->offset + first * sizeof(struct window_entry),
				     count * sizeof(struct window_entry), deadline_ns, error);
		if (!rc)
			event->write = ++sender->writes[step->peer];
	}
	return rc;
}

int executor_tell(struct sender *sender, const struct step *step, struct event *event,
		  struct error *error)
{
	const struct update_landed landed = {sender->schedule.links[step->peer].used_opening,
					     step->entries};
	struct send_target head;
	int rc;

	if (sender->failed || health_check(sender->health, error)) {
		event->kind = EVENT_ASK; /* and the loop looks at why */
		return 0;
	}
	rc = executor_place(sender, step, NULL, &head, error);
	if (!rc)
		rc = write_merged(sender, step, &head, event, error);
	if (!rc)
		rc = write_entries(sender, step, &head, event, error);
	event->kind = EVENT_TOLD;
	event->entries = step->entries;
	return rc ? rc
		  : transport_signal(sender->epoch->peers[step->peer].endpoint, UPDATE_LANDED,
				     &landed, sizeof(landed), step->until_ns, error);
}

bool executor_is_spared(struct sender *sender, uint32_t p, bool *released)
{
	const struct peer *peer = &sender->epoch->peers[p];
	uint64_t opening = sender->schedule.links[p].used_opening;
	const struct update_pair pair = {peer->name, sender->epoch->plan->digest, opening,
					 peer->theirs->copies};
	struct transport_signal signal;
	struct update_accept accept;
	struct error error;

	if (!sender->epoch->plan->hedge_ms || transport_signal_read(peer->endpoint, &signal) != 0 ||
	    signal.sequence == sender->seen[p] || signal.tag != UPDATE_ACCEPT ||
	    update_read_accept(&signal, &pair, &accept, &error) ||
	    (accept.kind != ACCEPT_SPARES && accept.kind != ACCEPT_RELEASES) ||
	    accept.opening != opening)
		return false;
	sender->seen[p] = signal.sequence;
	*released = accept.kind == ACCEPT_RELEASES;
	return true;
}

int executor_taken(struct sender *sender, const struct step *step, struct event *event,
		   struct error *error)
{
	const struct peer *peer = &sender->epoch->peers[step->peer];
	const struct update_pair pair = {peer->name, sender->epoch->plan->digest,
					 sender->schedule.links[step->peer].used_opening,
					 peer->theirs->copies};
	struct transport_signal signal;
	struct update_taken taken;
	int rc;

	event->kind = EVENT_ASK;
	rc = peer_progress(peer, &event->write, error);
	if (!rc && executor_is_spared(sender, step->peer, &event->released)) {
		event->kind = EVENT_SPARED;
		return 0;
	}
	if (rc || transport_signal_read(peer->endpoint, &signal) != 0 ||
	    signal.sequence == sender->seen[step->peer])
		return rc ? rc : peer_check_alive(peer, error);
	rc = update_read_taken(&signal, &pair, &taken, error);
	if (rc)
		return rc;
	sender->seen[step->peer] = signal.sequence;
	event->kind = EVENT_TAKEN;
	event->entries = taken.entries;
	return 0;
}
