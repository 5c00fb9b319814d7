/* SPDX-License-Identifier: Apache-2.0
 *
 * executor_gone.c -- peers that a trainer goes on without: their engine has left, as the controller says, or this trainer
 * does not reach them. Steps for them are done by doing nothing, so that an update in flight goes on for all others.
 *
 *   not reached ─► drop ─► controller ─► gone ─► every other trainer
 */
#include "worker/update/executor.h"

static void go_without(struct sender *sender, uint32_t peer)
{
	sender->epoch->peers[peer].gone = true;
	schedule_note(&sender->schedule, NULL, &(struct event){.kind = EVENT_GONE, .peer = peer});
	pthread_cond_broadcast(&sender->changed);
}

void executor_hear_gone(struct sender *sender)
{
	struct control *control = sender->health->control;
	struct control_gone gone;

	for (; control && control_gone(control, sender->gone_heard, &gone); sender->gone_heard++)
		for (uint32_t p = 0; p < sender->epoch->peer_count; p++) {
			struct member member = sender->epoch->peers[p].plan->member;

			if (member_within(member, gone.first, gone.count) &&
			    !sender->epoch->peers[p].gone)
				go_without(sender, p);
		}
}

bool executor_drop(struct sender *sender, uint32_t peer, const struct error *why)
{
	struct peer *to = &sender->epoch->peers[peer];
	struct error ended;

	if (!sender->epoch->plan->continues || !peer_explains(why->code) ||
	    sender->schedule.failed || health_check(sender->health, &ended))
		return false;
	if (to->gone)
		return true;
	go_without(sender, peer);
	control_drop(sender->health->control, to->plan->member, why, sender->schedule.version);
	return true;
}

void executor_let_go(struct sender *sender)
{
	for (uint32_t p = 0; p < sender->epoch->peer_count; p++) {
		struct peer *peer = &sender->epoch->peers[p];
		pthread_mutex_t *wire = executor_wire(sender, p);

		if (!peer->gone || !peer->endpoint)
			continue;
		if (peer->import_count) /* the host may have its addresses next; what is left is mapped by faults */
			mapper_stop(&sender->epoch->send.mapper);
		pthread_mutex_lock(wire);
		peer_let_go(sender->epoch, peer);
		pthread_mutex_unlock(wire);
	}
}
