/* SPDX-License-Identifier: Apache-2.0
 *
 * stand_in.c -- a trainer that has ended a version, and waits until its ranks have all of the pieces of the one that it stands in for
 * too: each of them asks it to send these, or says that they are there. Tensors stay what they are until weft_update_end has
 * returned, so they are sent as any update is, by a second sender over the same endpoints (epoch/stand_in.c).
 *
 *   own sender      begin 8 ── write ── end 8
 *   rank 0                                   └── ACCEPT, RELEASES: over
 *   rank 1                                   └── ACCEPT, STAND_IN ──► begin, write, end of the other trainer's ──► over
 */
#include "worker/update/send.h"

#include "base/clock.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "worker/update/update_payload.h"

#include <string.h>

#define SAY_NS UINT64_C(60000000000)

/* ---- life ---- */

/* One wire an endpoint, whoever uses it. */
static void share_wires(struct stand_in *stand_in)
{
	struct sender *sender = &stand_in->sender;

	for (uint32_t w = 0; w < sender->wires; w++)
		pthread_mutex_destroy(&sender->wire[w]);
	sender->wires = 0;
	sender->wire = stand_in->own->wire;
	for (size_t p = 0; p < sender->epoch->peer_count; p++)
		sender->wire_of[p] = stand_in->own->wire_of[stand_in->own_peer[p]];
}

int stand_in_sender_open(struct stand_in *stand_in, struct sender *own, struct error *error)
{
	struct sender *sender = &stand_in->sender;
	struct epoch *epoch = own->epoch->stand_in;
	size_t peers = epoch ? epoch->peer_count : 0;
	int rc;

	stand_in->own = own;
	if (!epoch)
		return 0;
	rc = sender_open(sender, epoch, 1, error);
	if (rc)
		return rc;
	stand_in->own_peer = pool_array(&sender->pool, peers, sizeof(*stand_in->own_peer));
	stand_in->over = pool_array(&sender->pool, peers, sizeof(*stand_in->over));
	stand_in->asked = pool_array(&sender->pool, peers, sizeof(*stand_in->asked));
	if (!pool_ok(&sender->pool))
		return memory_error(error, "standing in for a trainer",
				    peers * sizeof(*stand_in->own_peer));
	for (size_t p = 0; p < peers; p++)
		while (member_compare(&epoch->peers[p].plan->member,
				      &own->epoch->peers[stand_in->own_peer[p]].plan->member))
			stand_in->own_peer[p]++;
	share_wires(stand_in);
	return 0;
}

void stand_in_sender_close(struct stand_in *stand_in)
{
	struct sender *sender = &stand_in->sender;

	if (sender->epoch)
		stand_in_follow(stand_in->own->epoch);
	sender_close(sender);
	stand_in->own_peer = NULL;
	stand_in->over = stand_in->asked = NULL;
}

/* ---- what ranks say ---- */

static struct send_link *own_link(const struct stand_in *stand_in, uint32_t p)
{
	return &stand_in->own->schedule.links[stand_in->own_peer[p]];
}

/* That permission is used, by whichever sender, or handed back. */
static void use(struct stand_in *stand_in, uint32_t p, uint64_t opening)
{
	struct sender *own = stand_in->own;

	pthread_mutex_lock(&own->lock);
	own_link(stand_in, p)->used_opening = own_link(stand_in, p)->accept.opening = opening;
	pthread_mutex_unlock(&own->lock);
}

/* A word of the rank that is new. What is of another version the next begin reads too. */
static bool read_word(struct stand_in *stand_in, uint32_t p, uint64_t version,
		      struct update_accept *accept)
{
	struct sender *own = stand_in->own;
	uint32_t o = stand_in->own_peer[p];
	const struct peer *peer = &own->epoch->peers[o];
	const struct update_pair pair = {peer->name, own->epoch->plan->digest,
					 own_link(stand_in, p)->used_opening, peer->theirs->copies};
	struct transport_signal signal;
	struct error error;

	if (transport_signal_read(peer->endpoint, &signal) != 0 ||
	    signal.sequence == own->seen[o] || signal.tag != UPDATE_ACCEPT ||
	    update_read_accept(&signal, &pair, accept, &error))
		return false; /* what is wrong with it the next begin says */
	if (accept->opening <= pair.opening ||
	    (accept->kind != ACCEPT_WRITES && accept->max_version <= version))
		own->seen[o] = stand_in->sender.seen[p] = signal.sequence;
	return true;
}

/* What the host has not written, or what may be something else by now, cannot be sent. */
static bool has_all(const struct stand_in *stand_in)
{
	const struct send_plan *plan = &stand_in->sender.epoch->send;
	bool all = !stand_in->own->drained;

	for (uint32_t t = 0; t < plan->tensor_count && all; t++)
		all = !send_plan_wants(plan, t) || stand_in->own->data[t];
	return all;
}

static void hear(struct stand_in *stand_in, uint32_t p, uint64_t version)
{
	const struct peer *peer = &stand_in->own->epoch->peers[stand_in->own_peer[p]];
	uint64_t used = own_link(stand_in, p)->used_opening;
	struct update_accept accept;
	struct error error;

	if (peer->gone || peer_check_alive(peer, &error)) {
		stand_in->over[p] = true;
		return;
	}
	if (!read_word(stand_in, p, version, &accept))
		return;
	if (accept.kind == ACCEPT_STAND_IN && accept.opening > used &&
	    accept.max_version == version && stand_in->has_all) {
		stand_in->asked[p] = true;
		stand_in->sender.schedule.links[p].accept = accept;
		return;
	}
	if (accept.opening <= used && accept.kind != ACCEPT_RELEASES)
		return; /* of its own pieces, which it has ended */
	stand_in->over[p] = true;
	if (accept.opening <= used || accept.kind == ACCEPT_WRITES || accept.max_version > version)
		return;
	stand_in->own->unused[stand_in->own_peer[p]] = accept.opening;
	use(stand_in, p, accept.opening);
	sender_hand_back(stand_in->own);
}

/* ---- what is sent ---- */

/* Writes of both senders are counted by the endpoint: from now on they are this one's. */
static void count_for(struct sender *sender)
{
	for (uint32_t p = 0; p < sender->epoch->peer_count; p++) {
		struct peer *peer = &sender->epoch->peers[p];
		pthread_mutex_t *wire = executor_wire(sender, p);

		if (!peer->endpoint)
			continue;
		pthread_mutex_lock(wire);
		peer->writes_before =
			transport_endpoint_stats(peer->endpoint)->writes - sender->writes[p];
		pthread_mutex_unlock(wire);
	}
}

/* Who has left since they asked. */
static void note_gone(struct sender *sender)
{
	for (uint32_t p = 0; p < sender->epoch->peer_count; p++)
		if (sender->epoch->peers[p].gone)
			schedule_note(&sender->schedule, NULL,
				      &(struct event){.kind = EVENT_GONE, .peer = p});
}

static int begin(struct stand_in *stand_in, uint64_t version, struct error *error)
{
	struct sender *sender = &stand_in->sender, *own = stand_in->own;
	struct schedule *schedule = &sender->schedule;
	struct event event = {.kind = EVENT_ASK, .now_ns = clock_ns()};
	struct call call;
	struct task task;
	struct step step;

	schedule->last_version = version - 1;
	for (size_t p = 0; p < sender->epoch->peer_count; p++)
		schedule->links[p].rests = !stand_in->asked[p];
	call_init(&call, CALL_BEGIN, event.now_ns, error);
	call.version = version;
	task_init(&task, &call);
	step = schedule_next(schedule, &task, &event);
	if (step.kind != STEP_DONE)
		return -(int)error->code;
	send_device_begin(sender);
	for (uint32_t t = 0; t < sender->epoch->send.tensor_count; t++) {
		if (!send_plan_wants(&sender->epoch->send, t))
			continue;
		sender->data[t] = own->data[t];
		schedule_submit(schedule, t);
	}
	return 0;
}

static int send(struct stand_in *stand_in, struct error *error)
{
	struct sender *sender = &stand_in->sender;
	const struct send_plan *plan = &sender->epoch->send;
	size_t count = 0;
	int rc;

	for (uint32_t t = 0; t < plan->tensor_count && sender->ids; t++)
		if (send_plan_wants(plan, t))
			sender->ids[count++] = t;
	sender->schedule.writers++;
	rc = sender_send_rows(sender, sender->ids, count, NULL, plan->row_count, true, error);
	sender->schedule.writers--;
	sender->schedule.state = UPDATE_ENDING;
	copy_fence();
	if (!rc)
		rc = send_device_settle(sender, error);
	if (!rc)
		rc = send_device_sums(sender, error);
	return rc ? rc : sender_run_version(sender, CALL_END, error);
}

/* A trainer may be late with each version. */
static void say(struct stand_in *stand_in, uint64_t version, uint64_t began_ns)
{
	const struct epoch *epoch = stand_in->sender.epoch;
	char took[TEXT_SHORT_BYTES], size[TEXT_SHORT_BYTES];
	struct text names = {0};
	uint64_t bytes = 0, now = clock_ns();
	bool loud = !stand_in->said_ns || now - stand_in->said_ns >= SAY_NS;

	if (loud)
		stand_in->said_ns = now;
	for (size_t p = 0; p < epoch->peer_count; p++) {
		if (!stand_in->asked[p] || epoch->peers[p].gone)
			continue;
		bytes += epoch->peers[p].plan->bytes;
		text_format(&names, "%s%s", names.bytes ? ", " : "", epoch->peers[p].name);
	}
	log_line(
		loud ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
		"%s: trainer %u is late with update %llu: %s of its pieces were sent in its place, in %s, to %s",
		epoch->options.name, epoch->plan->stands_for - 1, (unsigned long long)version,
		bytes_text(bytes, size), seconds_text(now - began_ns, took), text_string(&names));
	text_fini(&names);
}

/* The host's interrupt is no failure of the worker: what was written is there, and the permission is handed back. */
static bool takes_back(struct stand_in *stand_in, const struct error *error)
{
	struct sender *sender = &stand_in->sender;
	struct error why;
	int rc = 0;

	if (error->code != ERROR_INTERRUPTED || control_failed(sender->health->control))
		return false;
	for (uint32_t p = 0; p < sender->epoch->peer_count && !rc; p++) {
		uint32_t own = stand_in->own_peer[p];
		pthread_mutex_t *wire = executor_wire(sender, p);

		if (!stand_in->asked[p] || sender->epoch->peers[p].gone)
			continue;
		pthread_mutex_lock(wire);
		rc = transport_flush(sender->epoch->peers[p].endpoint,
				     clock_deadline_ns(executor_wait_ms(sender)), &why);
		pthread_mutex_unlock(wire);
		if (!rc) /* the schedule waits for nothing of it in the next version */
			schedule_note(&sender->schedule, NULL,
				      &(struct event){.kind = EVENT_COMPLETED,
						      .peer = p,
						      .write = sender->writes[p]});
		stand_in->own->unused[own] = sender->schedule.links[p].accept.opening;
	}
	sender->schedule.failed = false;
	sender->failed = false;
	if (!rc)
		sender_hand_back(stand_in->own);
	return !rc;
}

/* To all who have asked: all pieces, and then the end. */
static int serve(struct stand_in *stand_in, uint64_t version, struct error *error)
{
	struct sender *sender = &stand_in->sender;
	uint64_t began_ns = clock_ns();
	bool broken;
	int rc;

	stand_in_follow(stand_in->own->epoch);
	count_for(sender);
	pthread_mutex_lock(&sender->lock);
	note_gone(sender);
	executor_hear_gone(sender);
	rc = begin(stand_in, version, error);
	if (!rc)
		rc = send(stand_in, error);
	broken = sender->schedule.failed;
	sender->schedule.state = UPDATE_CLOSED;
	pthread_mutex_unlock(&sender->lock);
	count_for(stand_in->own);
	if (!rc)
		say(stand_in, version, began_ns);
	else if (takes_back(stand_in, error))
		rc = 0;
	for (uint32_t p = 0; p < sender->epoch->peer_count; p++) {
		if (!stand_in->asked[p])
			continue;
		use(stand_in, p, sender->schedule.links[p].accept.opening);
		stand_in->own->seen[stand_in->own_peer[p]] = sender->seen[p];
		stand_in->asked[p] = false;
		stand_in->over[p] = true;
	}
	return rc && broken ? health_fail(sender->health, error, version) : 0;
}

/* ---- the wait ---- */

static bool look(struct stand_in *stand_in, uint64_t version, bool *asked)
{
	const struct epoch *epoch = stand_in->sender.epoch;
	bool all = true;

	*asked = false;
	for (uint32_t p = 0; p < epoch->peer_count; p++) {
		if (!stand_in->over[p] && !stand_in->asked[p])
			hear(stand_in, p, version);
		*asked = *asked || stand_in->asked[p];
		all = all && stand_in->over[p];
	}
	return all;
}

/* What ranks have asked meanwhile it does not send: it hands that back, or the next begin does. */
static void decline(struct stand_in *stand_in)
{
	struct error why;
	bool any = false;

	for (uint32_t p = 0; p < stand_in->sender.epoch->peer_count; p++) {
		uint64_t opening = stand_in->sender.schedule.links[p].accept.opening;

		if (!stand_in->asked[p])
			continue;
		stand_in->asked[p] = false;
		stand_in->own->unused[stand_in->own_peer[p]] = opening;
		use(stand_in, p, opening);
		any = true;
	}
	if (any && !health_check(stand_in->own->health, &why))
		sender_hand_back(stand_in->own);
}

int stand_in_run(struct stand_in *stand_in, struct error *error)
{
	struct sender *own = stand_in->own;
	const struct epoch *epoch = stand_in->sender.epoch;
	uint64_t version = own->ended;
	uint64_t until = clock_deadline_ns(executor_wait_ms(own));
	struct error why;
	bool asked;
	int rc = 0;

	stand_in->has_all = has_all(stand_in);
	for (uint32_t p = 0; p < epoch->peer_count; p++)
		stand_in->over[p] =
			link_out(own_link(stand_in, p)) || own_link(stand_in, p)->released;
	while (!rc && !look(stand_in, version, &asked)) {
		/* what this trainer had to send is sent: an interrupt, or the job's end, is the next call's */
		if (clock_ns() >= until || health_check(own->health, &why))
			break;
		pthread_mutex_lock(&own->lock);
		executor_hear_gone(own);
		pthread_mutex_unlock(&own->lock);
		if (asked)
			rc = serve(stand_in, version, error);
		else
			stand_in->signals =
				transport_signal_wait(epoch->options.domain, stand_in->signals,
						      clock_deadline_ns(WAIT_SLICE_MS));
	}
	decline(stand_in);
	return rc;
}
