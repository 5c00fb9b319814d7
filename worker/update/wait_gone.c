/* SPDX-License-Identifier: Apache-2.0
 *
 * wait_gone.c -- trainers that an inference rank goes on without, in a job that continues: the controller says that one is
 * gone, or this rank sees its process end, or does not reach it, and tells the controller:
 *
 *   process ended ─► drop ─► controller ─► gone ─► every other rank: what that trainer had begun is given up (receive.h)
 *                                          pause ─► another plan
 */
#include "worker/update/wait.h"

#include "base/clock.h"
#include "base/log.h"

void waiter_hear_gone(struct waiter *waiter)
{
	struct epoch *epoch = waiter->epoch;
	struct control *control = waiter->health->control;
	struct control_gone gone;

	for (; control && control_gone(control, waiter->gone_heard, &gone); waiter->gone_heard++)
		for (size_t p = 0; p < epoch->all_count; p++)
			if (member_within(epoch->peers[p].plan->member, gone.first, gone.count))
				epoch->peers[p].gone = true; /* also where another is back */
}

bool waiter_lacks_peer(struct waiter *waiter)
{
	bool any = false;

	waiter_hear_gone(waiter);
	for (size_t p = 0; p < waiter->now->count; p++)
		any = any || waiter->now->from[p].gone;
	return any;
}

bool waiter_fails_by(struct waiter *waiter, struct peer *peer, const struct error *why)
{
	bool donor = peer == waiter->epoch->copied_from;

	if (peer->gone && donor)
		return false;
	if (donor) { /* its engine is none of this rank's business: without it trainers send the next version */
		peer->gone = true;
		log_warn("%s: %s does not send its version: %s", waiter->epoch->options.name,
			 peer->name, why->text);
		return false;
	}
	if (!waiter->epoch->plan->continues || !waiter->health->control ||
	    !peer_explains(why->code))
		return true;
	if (peer->gone)
		return false;
	peer->gone = true;
	control_drop(waiter->health->control, peer->plan->member, why,
		     versions_published(waiter->versions));
	return false;
}

bool waiter_misses(struct waiter *waiter, uint32_t p, bool *broken, struct error *error)
{
	struct peer *peer = &waiter->now->from[p];

	*broken = false;
	if (peer->gone)
		return true;
	if (!peer_check_alive(peer, error))
		return false;
	*broken = waiter_fails_by(waiter, peer, error);
	return true;
}

int waiter_check_past(const struct waiter *waiter, uint64_t version, struct error *error)
{
	if (!version || version > waiter->receiver.past ||
	    version <= versions_published(waiter->versions))
		return 0;
	return error_set(
		error, ERROR_ABORTED,
		"update %llu was given up: a trainer that was to send a part of it%s has left "
		"the job, and the others go on with update %llu",
		(unsigned long long)version,
		waiter->epoch->plan->together ? ", or an engine that was to show it," : "",
		(unsigned long long)(waiter->receiver.past + 1));
}

int waiter_fence(const struct peer *peer, const char *what, uint64_t deadline_ns,
		 struct error *error)
{
	struct error why;
	int rc;

	do
		rc = transport_endpoint_fence(peer->endpoint, deadline_ns, &why);
	while (rc == -(int)ERROR_INTERRUPTED && clock_ns() < deadline_ns);
	return rc ? error_set(
			    error, ERROR_UNSAFE,
			    "%s %s, and may still write into this rank's memory: %.600s; end that "
			    "process (kill -9)",
			    peer->name, what, why.text)
		  : 0;
}

/* What it may have written here since: of ranks of other engines nothing, for a word is shared by those of one (meet.c). */
static bool may_write(const struct waiter *waiter, const struct peer *peer)
{
	const struct epoch *epoch = waiter->epoch;

	if (peer->plan->copy != COPY_NONE)
		return peer == epoch->copied_from && waiter_may_be_copied(waiter);
	return peer->plan->member.role == ROLE_TRAINER || !epoch_is_of_other_engine(epoch, peer);
}

int waiter_fence_gone(struct waiter *waiter, uint32_t timeout_ms, struct error *error)
{
	struct epoch *epoch = waiter->epoch;
	uint64_t deadline = clock_deadline_ns(timeout_ms);
	int rc = 0;

	if (!epoch)
		return 0;
	waiter_hear_gone(waiter);
	for (size_t p = 0; p < epoch->all_count && !rc; p++) {
		const struct peer *peer = &epoch->peers[p];

		if (peer->gone && peer->endpoint && may_write(waiter, peer))
			rc = waiter_fence(peer, "has left the job", deadline, error);
	}
	return rc;
}
