/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.c -- a lane dies, the others take over what it had not finished.
 *
 *   lane 1  [ done | W3 W4 W5 I ]   READY ─► DYING (QP in ERR, flushed completions come) ─► DEAD
 *                    └──┬───┘
 *   replay  ◄─── W3 W4 W5, in front ─── posted on lanes that live, before anything newer
 *   signal  goes out once more after them, naming only the lanes that live
 *
 * Posting a write twice is harmless: it carries the same bytes to the same place, and a target
 * closes its end of the dead lane before it shows the signal. The parts of one post stay next
 * to each other and go to one lane, so the last of them still completes last.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define FLUSH_NS UINT64_C(2000000000) /* a lost device may never report what it flushed */
#define BATCH	 32u

int verbs_replay_reserve(struct verbs_endpoint *endpoint, struct error *error)
{
	const struct verbs_domain *domain = endpoint->domain;
	uint32_t capacity = domain->lane_count * domain->settings.depth;

	if (endpoint->replay)
		return 0;
	endpoint->replay = memory_zalloc(capacity, sizeof(*endpoint->replay));
	if (!endpoint->replay)
		return memory_error(error, "opening an endpoint's lanes",
				    capacity * sizeof(*endpoint->replay));
	endpoint->replay_capacity = capacity;
	endpoint->replay_head = endpoint->replay_count = 0;
	return 0;
}

bool verbs_lane_has_other(const struct verbs_lane *lane)
{
	const struct verbs_endpoint *endpoint = lane->endpoint;

	for (uint32_t i = 0; i < endpoint->lane_count; i++)
		if (&endpoint->lanes[i] != lane && verbs_lane_lives(&endpoint->lanes[i]))
			return true;
	return false;
}

void verbs_lane_die(struct verbs_lane *lane, const char *why)
{
	char text[VERBS_LANE_TEXT_BYTES], moved[TEXT_SHORT_BYTES];
	uint64_t bytes = 0;

	for (uint64_t at = lane->done; at < lane->tail; at++)
		bytes += verbs_entry_at(lane, at)->bytes;
	atomic_store(&lane->state, VERBS_LANE_DYING);
	lane->flushed = lane->done;
	lane->dying_ns = clock_ns();
	lane->endpoint->dying++;
	atomic_store(&lane->endpoint->shared->impaired, true);
	verbs_lane_stop(lane);
	log_warn("lane %u to %s is lost (%s): %s; %llu request%s with %s move to other lanes",
		 lane->index, lane->endpoint->shared->name, why, verbs_lane_text(lane, text),
		 (unsigned long long)(lane->tail - lane->done),
		 lane->tail - lane->done == 1 ? "" : "s", bytes_text(bytes, moved));
}

static void push_front(struct verbs_endpoint *endpoint, const struct verbs_entry *entry)
{
	endpoint->replay_head =
		(endpoint->replay_head ? endpoint->replay_head : endpoint->replay_capacity) - 1;
	endpoint->replay[endpoint->replay_head] = *entry;
	endpoint->replay_count++;
}

static const struct verbs_entry *replay_at(const struct verbs_endpoint *endpoint, uint32_t i)
{
	return &endpoint->replay[(endpoint->replay_head + i) % endpoint->replay_capacity];
}

/* In front, since what it had is older than what waits; backwards, to keep its order. */
static void hand_over(struct verbs_lane *lane)
{
	struct verbs_endpoint *endpoint = lane->endpoint;

	while (lane->tail > lane->done) {
		const struct verbs_entry *entry = verbs_entry_at(lane, --lane->tail);

		traffic_past(lane->nic->traffic, entry->bytes, false);
		if (entry->kind == VERBS_WRITE && !entry->withdrawn)
			push_front(endpoint, entry);
		else if (entry->kind == VERBS_SIGNAL && endpoint->signal_active &&
			 entry->offset == endpoint->signal_round)
			endpoint->replay_signal = true;
	}
	atomic_store(&lane->state, VERBS_LANE_DEAD);
	endpoint->dying--;
}

static void finish_dying(struct verbs_endpoint *endpoint)
{
	verbs_each_lane(lane, endpoint) {
		uint64_t seen = lane->flushed > lane->done ? lane->flushed : lane->done;

		if (lane->state != VERBS_LANE_DYING)
			continue;
		if (seen == lane->tail || clock_ns() - lane->dying_ns >= FLUSH_NS)
			hand_over(lane);
	}
}

/* Where the next group goes: the emptiest lane, on a port that is up if there is one. */
static struct verbs_lane *pick(struct verbs_endpoint *endpoint)
{
	struct verbs_lane *best = NULL;
	bool best_down = true;

	verbs_each_lane(lane, endpoint) {
		bool down = atomic_load(&lane->nic->down);

		if (!verbs_lane_lives(lane) || (best && down && !best_down))
			continue;
		if (!best || (best_down && !down) ||
		    verbs_lane_room(lane) > verbs_lane_room(best)) {
			best = lane;
			best_down = down;
		}
	}
	return best;
}

/* The parts of one post that stand in front. */
static uint32_t group_count(const struct verbs_endpoint *endpoint)
{
	uint32_t count = 1;

	while (count < endpoint->replay_count && !replay_at(endpoint, count - 1)->last &&
	       replay_at(endpoint, count)->id == replay_at(endpoint, 0)->id)
		count++;
	return count;
}

static int post_group(struct verbs_lane *lane, uint32_t count, struct error *error)
{
	struct verbs_endpoint *endpoint = lane->endpoint;
	struct verbs_request requests[BATCH];
	uint64_t now = clock_ns();

	while (count) {
		uint32_t n = count < BATCH ? count : BATCH, posted;
		int rc;

		for (uint32_t i = 0; i < n; i++) {
			requests[i].entry = *replay_at(endpoint, i);
			requests[i].entry.posted_ns = now;
			verbs_request_fill(lane, &requests[i]);
		}
		rc = verbs_lane_post(lane, requests, n, &posted, error);
		endpoint->replay_head =
			(endpoint->replay_head + posted) % endpoint->replay_capacity;
		endpoint->replay_count -= posted;
		count -= posted;
		if (rc)
			return rc;
	}
	return 0;
}

static int post_replay(struct verbs_endpoint *endpoint, struct error *error)
{
	while (endpoint->replay_count) {
		uint32_t count = group_count(endpoint);
		struct verbs_lane *lane = pick(endpoint);
		int rc;

		if (!lane || verbs_lane_room(lane) < count)
			return 0;
		rc = post_group(lane, count, error);
		if (!rc)
			continue;
		return verbs_lane_refused(lane) ? 0 : rc;
	}
	return 0;
}

/* The rest of a group whose lane was lost while it was posted must not overtake its front, so
 * nothing is posted while a lane is dying. */
int verbs_replay(struct verbs_endpoint *endpoint, struct error *error)
{
	int rc;

	if (endpoint->dying)
		finish_dying(endpoint);
	if (endpoint->dying || atomic_load(&endpoint->attention))
		return 0;
	rc = post_replay(endpoint, error);
	if (rc || endpoint->replay_count || !endpoint->replay_signal ||
	    atomic_load(&endpoint->attention))
		return rc;
	endpoint->replay_signal = false;
	rc = verbs_signal_send(endpoint, error);
	if (rc > 0)
		endpoint->replay_signal = true;
	return rc < 0 ? rc : 0;
}
