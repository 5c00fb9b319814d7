/* SPDX-License-Identifier: Apache-2.0
 *
 * wait_accept.c -- what an inference rank says to trainers: that they may write, and, where one is late (receive_late.c), that another
 * one is to send its pieces; and what has to be over before memory is opened for another version:
 *
 *   shows 8 ── waiter_clear: END 8 of who was late, END of who stood in ── checksums once more ── opens for 9
 *
 * Who is late has a permission to write version 8 until then. It writes what stands there already, if both trainers have the same
 * bytes, and the checksums that it leaves, or those that were here before, say whether they had.
 */
#include "worker/update/wait.h"

#include "base/clock.h"
#include "worker/update/update_payload.h"

#define PUSH_MS 200u /* longer than anybody takes who runs */

static void accept_late(const struct waiter *waiter, const struct receive_step *step,
			struct update_accept *accept)
{
	const struct receive_link *link = &waiter->now->links[step->peer];

	accept->min_version = accept->max_version = step->version;
	accept->kind = step->kind == RECEIVE_ASK     ? ACCEPT_STAND_IN
		       : step->kind == RECEIVE_SPARE ? ACCEPT_SPARES
						     : ACCEPT_RELEASES;
	accept->base = 0;
	if (step->kind == RECEIVE_ASK)
		accept->sums_offset =
			waiter->now->from[link->stands - 1].first_piece * sizeof(uint64_t);
}

/* A trainer may have yet to begin what was given up here, since a trainer is gone, or since this engine could not load what it had
 * of it: that is written in vain, and no fault of that trainer's. What the host has left out is. */
static uint64_t min_version(const struct waiter *waiter)
{
	const struct receiver *receiver = &waiter->receiver;
	uint64_t past = receiver->past > waiter->mates_past ? receiver->past : waiter->mates_past;
	uint64_t next = versions_published(waiter->versions) + 1;

	if (control_lacks_trainer(waiter->health->control))
		return 1;
	if (receiver->wanted > past + 1 || next > receiver->min_version)
		return receiver->min_version;
	return next;
}

static struct update_accept fill(struct waiter *waiter, const struct receive_step *step)
{
	const struct epoch *epoch = waiter->epoch;
	const struct peer *peer = &waiter->now->from[step->peer];
	struct update_accept accept = {
		.opening = waiter->now->links[step->peer].opening,
		.min_version = min_version(waiter),
		.max_version = waiter->receiver.max_version,
		.plan = epoch->plan->digest,
		.sums_offset = peer->first_piece * sizeof(uint64_t),
		.sums_region =
			epoch->receive.sums ? epoch->options.beside->sums.number : UINT32_MAX,
		.copy = waiter->copy,
		.window_offset = peer->window_at,
		.window_bytes = peer->window_bytes,
		.window_region = peer->landed ? epoch->options.beside->windows.number : UINT32_MAX,
		.taken = waiter->now->links[step->peer].taken,
		.base = waiter_base(waiter, step->peer),
	};

	if (step->kind != RECEIVE_ACCEPT)
		accept_late(waiter, step, &accept);
	/* it may begin an older version, whose bytes are none that another trainer has */
	else if (accept.min_version < waiter->receiver.min_version)
		waiter->now->links[step->peer].accepted = false;
	return accept;
}

/* Where trainers may be late, nobody who is stopped holds up the rank that others wait for: what cannot be said at once is said
 * later, and what comes after it takes its place. */
static int say(struct waiter *waiter, const struct receive_step *step, struct error *error)
{
	const struct receive_link *link = &waiter->now->links[step->peer];
	struct transport_endpoint *endpoint = waiter->now->from[step->peer].endpoint;
	const struct update_taken taken = {link->opening, link->taken};
	struct update_accept accept;
	int rc;

	if (step->kind == RECEIVE_TAKE) {
		rc = transport_signal_post(endpoint, UPDATE_TAKEN, &taken, sizeof(taken), error);
	} else {
		accept = fill(waiter, step);
		rc = transport_signal_post(endpoint, UPDATE_ACCEPT, &accept, sizeof(accept), error);
	}
	waiter->unsaid[step->peer] = rc > 0 ? *step : (struct receive_step){.kind = RECEIVE_WAIT};
	if (rc >= 0 || step->kind == RECEIVE_ACCEPT)
		return rc < 0 ? rc : 0;
	/* it has ended its own pieces, or need not: nobody is lost for that */
	if (step->kind == RECEIVE_ASK)
		receive_settle(&waiter->receiver, step->peer);
	return 0;
}

int waiter_accept(struct waiter *waiter, const struct receive_step *step, struct error *error)
{
	struct update_accept accept;
	uint64_t until = step->until_ns;

	if (waiter->receiver.hedge_ns)
		return say(waiter, step, error);
	accept = fill(waiter, step);
	if (clock_ns() >= until) /* to a trainer that was heard when it was late already */
		until = clock_deadline_ns(waiter->epoch->wait_ms);
	return transport_signal(waiter->now->from[step->peer].endpoint, UPDATE_ACCEPT, &accept,
				sizeof(accept), until, error);
}

int waiter_tell_taken(struct waiter *waiter, uint32_t p, uint64_t entries, struct error *error)
{
	const struct update_taken taken = {waiter->now->links[p].opening, entries};
	const struct receive_step release = {
		.kind = RECEIVE_RELEASE, .peer = p, .version = waiter->now->links[p].end.version};
	int rc;

	if (!waiter->receiver.hedge_ns)
		return transport_signal(waiter->now->from[p].endpoint, UPDATE_TAKEN, &taken,
					sizeof(taken), clock_deadline_ns(waiter->epoch->wait_ms),
					error);
	if (waiter->unsaid[p].kind != RECEIVE_WAIT) /* which says so too */
		return 0;
	if (waiter->now->links[p].released) /* it may not have heard that */
		return say(waiter, &release, error);
	rc = transport_signal_post(waiter->now->from[p].endpoint, UPDATE_TAKEN, &taken,
				   sizeof(taken), error);
	if (rc > 0)
		waiter->unsaid[p] = (struct receive_step){.kind = RECEIVE_TAKE, .peer = p};
	return rc < 0 ? rc : 0;
}

void waiter_push(struct waiter *waiter)
{
	struct error error; /* which the next call for that peer answers too */
	uint64_t done;

	for (size_t p = 0; waiter->receiver.hedge_ns && p < waiter->now->count; p++) {
		struct receive_step step = waiter->unsaid[p];

		if (waiter->now->from[p].gone)
			continue;
		if (step.kind == RECEIVE_ASK && !waiter->now->links[p].stands)
			waiter->unsaid[p].kind = step.kind = RECEIVE_WAIT; /* it is over */
		if (step.kind == RECEIVE_WAIT)
			transport_progress(waiter->now->from[p].endpoint, &done, &error);
		else
			say(waiter, &step, &error);
	}
}

void waiter_push_out(struct waiter *waiter, bool late)
{
	uint64_t deadline = clock_deadline_ns(PUSH_MS);
	bool all = !waiter->receiver.hedge_ns;

	while (!all && clock_ns() < deadline) {
		waiter_push(waiter);
		all = true;
		for (size_t p = 0; p < waiter->now->count; p++)
			all = all && (waiter->now->from[p].gone ||
				      (!late && waiter->now->links[p].stood) ||
				      (waiter->unsaid[p].kind == RECEIVE_WAIT &&
				       transport_endpoint_whole(waiter->now->from[p].endpoint)));
		if (!all)
			clock_sleep_ms(1);
	}
}

void waiter_release_all(struct waiter *waiter)
{
	struct receive_step step = {.kind = RECEIVE_RELEASE};
	struct error error;

	while (receive_unreleased(&waiter->receiver, &step.peer)) {
		step.version = waiter->now->links[step.peer].end.version;
		if (step.version && !waiter->now->from[step.peer].gone)
			say(waiter, &step, &error);
	}
}

/* What it has said since, if that uses its permission up: 1; or an error. */
static int read_last(struct waiter *waiter, uint32_t p, struct error *error)
{
	const struct receive_link *link = &waiter->now->links[p];
	const struct update_pair pair = {.name = waiter->now->peers[p].name,
					 .opening = link->opening};
	struct update_landed landed;
	struct update_abort gone;
	struct update_end end;
	struct transport_signal signal;
	enum update_tag tag;
	int rc;

	if (transport_signal_read(waiter->now->from[p].endpoint, &signal) != 0 ||
	    signal.sequence == waiter->now->seen[p])
		return 0;
	waiter->now->seen[p] = signal.sequence;
	rc = update_read_use(&signal, &pair, &tag, &end, &gone, &landed, error);
	if (!rc && tag == UPDATE_END && !link->stands && end.version != link->end.version)
		rc = error_set(
			error, ERROR_VERSION,
			"%s ended update %llu, and others update %llu, in its place too: what is shown "
			"is a mixture; all trainers begin the same version",
			pair.name, (unsigned long long)end.version,
			(unsigned long long)link->end.version);
	return rc ? rc : tag != UPDATE_LANDED;
}

static int hear(struct waiter *waiter, uint32_t p, struct error *error)
{
	bool broken;
	int rc = read_last(waiter, p, error);

	waiter_hear_gone(waiter);
	if (rc || !waiter_misses(waiter, p, &broken, error))
		return rc;
	/* its last signal may have come after we looked */
	rc = read_last(waiter, p, error);
	return rc ? rc : broken ? -(int)error->code : 1;
}

static int late(const struct waiter *waiter, uint32_t p, struct error *error)
{
	const struct receive_link *link = &waiter->now->links[p];

	return error_set(
		error, ERROR_TIMEOUT,
		"%s has yet to end update %llu, %s, and memory is not opened for another one before: "
		"it did not for %.1f s; raise the update timeout (--update-timeout) if this is expected",
		waiter->now->peers[p].name, (unsigned long long)link->end.version,
		link->stands ? "of which it was asked to send another trainer's pieces"
			     : "which another trainer sent in its place",
		(double)(clock_ns() - waiter->clear_began_ns) / 1e9);
}

/* Of one that was late, or that stood in for one who was sooner: what it wrote meanwhile is what stands there. */
static int settle(struct waiter *waiter, uint32_t p, struct error *error)
{
	struct receive_link *link = &waiter->now->links[p];
	uint32_t of = link->stands ? link->stands - 1 : p;
	bool shown = versions_whole(waiter->versions, link->end.version) == (int)waiter->copy;
	int rc = 0;

	receive_settle(&waiter->receiver, p);
	if (shown && waiter->epoch->sums)
		rc = waiter_verify_again(waiter, of, link->end.version, error);
	if (!rc)
		return 0;
	versions_fail(waiter->versions, waiter->copy);
	return error_wrap(error,
			  "after it was shown, because trainers that are to hold the same do not");
}

/* What came after it may have taken its place. */
static void say_again(struct waiter *waiter)
{
	struct error error;

	for (uint32_t p = 0; p < waiter->receiver.peer_count; p++) {
		struct receive_link *link = &waiter->now->links[p];
		const struct receive_step step = {
			.kind = RECEIVE_RELEASE, .peer = p, .version = link->end.version};

		if (!link->outstanding || (!link->stood && !link->stands) ||
		    waiter->now->from[p].gone)
			continue;
		link->released = true;
		say(waiter, &step, &error);
	}
}

static int clear(struct waiter *waiter, uint64_t version, bool block, struct error *error)
{
	uint32_t p;
	int rc;

	while (receive_owes(&waiter->receiver, &p)) {
		rc = hear(waiter, p, error);
		if (rc < 0)
			return health_fail(waiter->health, error, waiter->receiver.wanted);
		if (rc) {
			rc = settle(waiter, p, error);
			if (rc)
				return rc;
			continue;
		}
		rc = health_check(waiter->health, error);
		if (rc || waiter_pauses(waiter, version))
			return rc ? rc : WAITER_PAUSES;
		if (clock_ns() >= waiter->clear_until_ns)
			return late(waiter, p, error);
		waiter_push(waiter);
		if (!block)
			return WEFT_AGAIN;
		waiter->signals =
			transport_signal_wait(waiter->epoch->options.domain, waiter->signals,
					      clock_deadline_ns(WAIT_SLICE_MS));
	}
	waiter_release_all(waiter); /* who was late has ended, and may wait for that too */
	return 0;
}

int waiter_clear(struct waiter *waiter, uint64_t version, uint32_t timeout_ms, bool block,
		 struct error *error)
{
	int rc;

	/* a try goes on with the clock of the first, and what that one has said */
	if (block || !waiter->clear_until_ns) {
		waiter->clear_began_ns = clock_ns();
		waiter->clear_until_ns =
			clock_deadline_ns(timeout_ms ? timeout_ms : waiter->epoch->wait_ms);
		say_again(waiter);
	}
	rc = clear(waiter, version, block, error);
	if (rc != WEFT_AGAIN)
		waiter->clear_until_ns = 0;
	return rc;
}
