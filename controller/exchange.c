/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c -- an epoch is planned, becomes the one that runs, and goes through its three legs. A
 * worker's peers go out when its own endpoints and those of all its peers are here, so a pair is
 * told about each other at the same moment.
 */
#include "controller/state.h"

/* The slot's part in the running epoch. */
static uint32_t party_of(const struct controller *controller, const struct slot *slot)
{
	uint32_t index = (uint32_t)(slot - controller->members.slots);

	WEFT_ASSERT(controller->epoch);
	WEFT_ASSERT_OP(index, <, controller->epoch->count);
	WEFT_ASSERT(controller->epoch->parties[index].worker == slot->worker);
	return index;
}

bool exchange_has(const struct controller *controller, const struct slot *slot)
{
	size_t index = (size_t)(slot - controller->members.slots);

	return controller->epoch && slot->worker &&
	       controller->epoch->parties[index].worker == slot->worker &&
	       !controller->epoch->parties[index].away;
}

bool exchange_serves(const struct controller *controller, const struct slot *slot)
{
	return slot_serves(slot) && exchange_has(controller, slot);
}

/* What differs is put into memory of the host; kernels do not do that. */
static bool deltas(const struct controller *controller, const struct slot *a, const struct slot *b)
{
	const struct slot *rank = a->who.role == ROLE_INFERENCE ? a : b;

	return controller->options.delta && a->who.role != b->who.role &&
	       !rank->worker->declare.device;
}

static int send_plan(struct controller *controller, struct slot *slot, struct error *why)
{
	struct message *message = send_to(controller, slot->peer, MESSAGE_PLAN);
	uint32_t party = party_of(controller, slot);
	uint64_t repeat = controller->pause.repeat;
	int rc;

	controller->epoch->parties[party].plan_ms = controller->now_ms;
	message->u.plan.continues = controller->continues;
	message->u.plan.gone = (uint32_t)controller->departures.count;
	message->u.plan.next = controller->pause.next;
	if (repeat && slot->who.role == ROLE_TRAINER)
		message->u.plan.repeat = repeat;
	else if (returns_is_sent(controller, slot))
		message->u.plan.next = repeat;
	message->u.plan.copy = controller->pause.copy;
	if (controller->pause.copy && returns_lacks_last(controller, slot))
		message->u.plan.next = controller->pause.copy;
	settle_fill(controller, slot, &message->u.plan);
	if (gone_away(controller, &message->u.plan))
		return -ERROR_MEMORY;
	message->u.plan.update_timeout_ms = controller->options.update_timeout_ms;
	rc = epoch_rows(controller->epoch, party, &message->u.plan, why);
	/* which say that what differs was put on top of what it differs from; and that two trainers had the same bytes */
	message->u.plan.checksums |= controller->options.delta || controller->options.hedge_ms;
	message->u.plan.hedge_ms = controller->options.hedge_ms;
	message->u.plan.misses_leave = controller->misses_leave;
	for (size_t i = 0; !rc && i < message->u.plan.peer_count; i++) {
		const struct slot *peer =
			&controller->members.slots[controller->epoch->parties[party].peers[i]];

		message->u.plan.peers[i].lacks = returns_is_sent(controller, peer);
		message->u.plan.peers[i].delta = deltas(controller, slot, peer);
	}
	if (!rc)
		epoch_leave_out_peers(&controller->epoch->parties[party], &message->u.plan);
	return rc;
}

static void announce(struct controller *controller)
{
	const struct epoch *epoch = controller->epoch;
	const struct table *table = epoch->table;
	char bytes[TEXT_SHORT_BYTES], digest[DIGEST_TEXT_BYTES];
	struct text names = {0};
	uint64_t total = 0;
	size_t unwanted = 0;

	for (size_t r = 0; r < table->route_count; r++)
		total += table->routes[r].bytes;
	say(controller, false,
	    "plan of epoch %llu by %s, order %s: %zu routes, %zu pieces, %s, digest %s",
	    (unsigned long long)epoch->number, table->policy, table->order, table->route_count,
	    table->piece_count, bytes_text(total, bytes), digest_text(table->digest, digest));
	if (table->moved.routes)
		say(controller, false,
		    "of its routes %llu, %s, are sent by other trainers than in the plan before",
		    (unsigned long long)table->moved.routes, bytes_text(table->moved.bytes, bytes));
	if (epoch_unwanted(epoch, &names, &unwanted))
		no_memory(controller);
	else if (unwanted)
		say(controller, true,
		    "%zu tensor%s held by trainers and wanted by no inference rank, and stay%s at "
		    "home: %s",
		    unwanted, unwanted == 1 ? " is" : "s are", unwanted == 1 ? "s" : "",
		    text_string(&names));
	text_fini(&names);
	if (controller->options.hedge_ms && epoch_lacks_stand_in(epoch))
		say(controller, true,
		    "for %u of %u trainers nobody can stand in (--hedge): no other trainer holds the same, reaches "
		    "the same ranks by the same transport, and has a ring, not a full replica",
		    epoch_lacks_stand_in(epoch), epoch->trainers);
	controller->plans++;
	action_push(controller->actions, CONTROLLER_TABLE)->table = table;
}

/* In its place the last one that was there; nobody, where none ever was. */
static int add_away(struct epoch *epoch, const struct controller *controller,
		    const struct slot *slot)
{
	const struct epoch *before = controller->epoch;
	struct worker *worker = before ? before->parties[slot - controller->members.slots].worker
				: absent_is(controller, slot) ? NULL
							      : slot->worker;

	worker = worker ? worker_hold(worker) : absent_worker(slot);
	if (!worker)
		return -ERROR_MEMORY;
	epoch_add_away(epoch, worker, !before && !absent_is(controller, slot));
	worker_release(&worker);
	return 0;
}

/* Of all who are here; beside the one that runs, if there is one. */
static int make_epoch(struct epoch **epoch, struct controller *controller, struct error *why)
{
	const struct membership *members = &controller->members;
	int rc = epoch_new(epoch, controller->number, controller->attempts + 1, members->trainers,
			   members->count - members->trainers);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < members->count; i++) {
		const struct slot *slot = &members->slots[i];

		if (!gone_is(controller, slot))
			epoch_add(*epoch, slot->worker);
		else if (add_away(*epoch, controller, slot)) {
			epoch_free(epoch);
			return -ERROR_MEMORY;
		}
	}
	rc = epoch_plan(*epoch, controller->epoch, &controller->rules, controller->actions, why);
	if (rc)
		epoch_free(epoch);
	return rc;
}

/* The same workers would say the same again. */
static void fail_for_good(struct controller *controller, int rc, const struct error *why)
{
	if (rc == -ERROR_MEMORY) {
		no_memory(controller);
		return;
	}
	controller->restarts_left = 0;
	ending_fail(controller, NULL, why);
}

/* By the plan that it has, unless it has to stand where it stopped. */
static void go(struct controller *controller, const struct slot *slot)
{
	const struct epoch *epoch = controller->epoch;
	bool runs = epoch->run_by && slot->worker->hello.attempt == epoch->run_by &&
		    !slot->worker->hello.paused;

	send_to(controller, slot->peer, MESSAGE_GO)->u.go.attempt =
		runs ? epoch->run_by : epoch->attempt;
}

static void go_all(struct controller *controller)
{
	const struct membership *members = &controller->members;

	returns_over(controller);
	controller->epoch->ran = true;
	controller_enter(controller, CONTROLLER_RUN);
	for (uint32_t i = 0; i < members->count; i++) {
		if (!exchange_has(controller, &members->slots[i]))
			continue;
		go(controller, &members->slots[i]);
		if (controller->epoch->adopted) /* who had left before nobody has been told */
			gone_tell(controller, &members->slots[i], 0);
	}
	returns_maybe_begin(controller);
	if (settle_lacks_engine(controller))
		returns_begin(controller);
}

/* They run by that plan, so there is nothing to exchange; or by one that nobody can make again, or by none: then the job pauses
 * for this one. */
static void take_over(struct controller *controller, enum takeover how)
{
	static const char *const says[] = {
		[TAKEOVER_SAME] = "all have the plan that they had",
		[TAKEOVER_FOLLOWS] =
			"who came and went has shaped its plan, so it pauses for one of those who are here",
		[TAKEOVER_WITHOUT] =
			"not all who are in its plan are here, so it pauses for one of those who are",
		[TAKEOVER_PAUSED] = "it had paused for a plan, and another one is made",
		[TAKEOVER_EXCHANGE] = "a plan was being exchanged, and another one is made"};
	uint32_t attempt = controller->epoch->attempt;

	epoch_adopt(controller->epoch, how == TAKEOVER_SAME,
		    how == TAKEOVER_EXCHANGE ? 0 : attempt - (how == TAKEOVER_PAUSED));
	if (how == TAKEOVER_SAME)
		announce(controller);
	say(controller, true, "takes over a job that runs, %.1f s after it was started: %s",
	    (double)(controller->now_ms - controller->started_ms) / 1000.0, says[how]);
	go_all(controller);
	if (how != TAKEOVER_SAME)
		returns_begin(controller);
}

/* Without it there is no plan. */
static void name_missing_trainer(const struct controller *controller, struct error *why)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		if (departure->first.role != ROLE_TRAINER || !departure->missing)
			continue;
		error_wrap(why, "%s, and without it", departure->why.text);
		why->code = ERROR_TIMEOUT;
		return;
	}
}

static int plan_over(struct epoch **epoch, struct controller *controller, const struct slot *first,
		     enum takeover *how, struct error *why)
{
	int rc = takeover_prepare(controller, first, how, why);

	if (rc)
		return rc;
	rc = make_epoch(epoch, controller, why);
	if (rc && rc != -ERROR_MEMORY)
		name_missing_trainer(controller, why);
	if (!rc && *how == TAKEOVER_SAME)
		*how = takeover_compare(controller, first, *epoch, why);
	if (!rc && *how == TAKEOVER_DIFFERS) {
		epoch_free(epoch);
		rc = -ERROR_CONFLICT;
	}
	return rc;
}

/* There is no plan with those who come in: without them there is, or the job waits for a trainer. Where none is missing, they are
 * to blame. */
static int plan_without(struct epoch **epoch, struct controller *controller, int rc,
			struct error *why)
{
	bool complete = !gone_trainer(controller);
	struct error without;
	int again;

	if (!returns_stay_out(controller))
		return rc;
	if (!gone_here(controller, ROLE_INFERENCE)) { /* a plan for nobody is none */
		if (complete)
			returns_turn_away(controller, why);
		return rc;
	}
	again = make_epoch(epoch, controller, &without);
	if (again && !complete)
		return rc;
	returns_turn_away(controller, why);
	if (again)
		*why = without;
	return again;
}

/* Who has stopped and needs nothing anew keeps what it has with others of whom that holds. */
static int keep(struct controller *controller, struct epoch *before)
{
	uint32_t count = controller->members.count;
	bool *whole = memory_zalloc(count, sizeof(*whole));
	int rc = -ERROR_MEMORY;

	for (uint32_t i = 0; whole && i < count; i++) {
		const struct paused *paused = &controller->pause.slots[i];

		whole[i] = paused->stopped && !paused->fresh && !paused->anew;
	}
	if (whole)
		rc = epoch_keep(controller->epoch, before, whole);
	memory_free(whole);
	return rc;
}

void exchange_begin(struct controller *controller)
{
	struct membership *members = &controller->members;
	const struct slot *runs;
	enum takeover how = TAKEOVER_DIFFERS;
	struct epoch *epoch = NULL, *before;
	struct error why = {0};
	int rc;

	WEFT_ASSERT(controller->epoch || declarations_complete(controller));
	bodies_forget_unused(&members->bodies);
	if (!controller->epoch)
		absent_leave_out(controller);
	else if (returns_somebody_left(controller))
		return;
	runs = takeover_first(controller);
	if (!runs) /* else those that are back come in afterwards: their plan is without */
		returns_come_in(controller);
	if (returns_wait_for_engine(controller))
		return;
	rc = runs ? plan_over(&epoch, controller, runs, &how, &why)
		  : make_epoch(&epoch, controller, &why);
	if (rc && rc != -ERROR_MEMORY && !runs) {
		rc = plan_without(&epoch, controller, rc, &why);
		if (rc && rc != -ERROR_MEMORY &&
		    (returns_wait(controller, &why) || returns_wait_for_engine(controller)))
			return;
	}
	if (rc) {
		fail_for_good(controller, rc, &why);
		return;
	}
	controller->exchanges_again = controller->epoch != NULL;
	controller->pause.phase = PAUSE_NONE;
	controller->pause.missing_ms = 0;
	before = controller->epoch;
	controller->epoch = epoch;
	settle_choose(controller);
	copies_choose(controller);
	if (before && keep(controller, before))
		no_memory(controller);
	epoch_free(&before);
	controller->pause.repeat = returns_repeat(controller);
	controller->attempts++;
	controller_enter(controller, CONTROLLER_EXCHANGE);
	patience_begin(&controller->patience, controller->now_ms);
	if (runs) {
		take_over(controller, how);
		return;
	}
	announce(controller);
	for (uint32_t i = 0; !rc && i < members->count; i++)
		if (exchange_has(controller, &members->slots[i]))
			rc = send_plan(controller, &members->slots[i], &why);
	if (rc)
		fail_for_good(controller, rc, &why);
}

/* Plans are large. While one is made and sent, its worker goes on asking twice a second; all
 * that waits here by then is answered by the plan that has just gone out. */
#define PLAN_REPLAY_MS 250

void exchange_replay_plan(struct controller *controller, struct slot *slot)
{
	const struct party *party = &controller->epoch->parties[party_of(controller, slot)];
	struct error why;
	int rc;

	if (controller->epoch->adopted && controller->state == CONTROLLER_RUN)
		go(controller, slot);
	if (party->leg != LEG_PLANNED || controller->now_ms < party->plan_ms + PLAN_REPLAY_MS)
		return;
	rc = send_plan(controller, slot, &why);
	if (rc)
		fail_for_good(controller, rc, &why);
}

static void send_peers(struct controller *controller, uint32_t party)
{
	struct message *message;

	if (!epoch_peers_ready(controller->epoch, party))
		return;
	message = send_to(controller, controller->members.slots[party].peer, MESSAGE_PEERS);
	if (epoch_peers(controller->epoch, party, &message->u.peers))
		no_memory(controller);
}

void exchange_endpoints(struct controller *controller, struct slot *slot, struct message *message)
{
	struct epoch *epoch = controller->epoch;
	struct message_endpoints *endpoints = &message->u.endpoints;
	const struct party *party;
	struct error why;
	uint32_t index;

	if (exchange_has(controller, slot) && endpoints->attempt < epoch->attempt)
		exchange_replay_plan(controller, slot);
	if (!exchange_has(controller, slot) || endpoints->attempt != epoch->attempt)
		return;
	index = party_of(controller, slot);
	party = &epoch->parties[index];
	if (party->leg == LEG_PLANNED) {
		if (epoch_opened(epoch, index, endpoints, &why)) {
			ending_fail(controller, slot, &why);
			return;
		}
		for (size_t i = 0; i < party->peer_count; i++)
			send_peers(controller, party->peers[i]);
	}
	send_peers(controller, index);
}

void exchange_connected(struct controller *controller, struct slot *slot, struct message *message)
{
	const struct membership *members = &controller->members;
	struct epoch *epoch = controller->epoch;
	uint32_t party, here = 0;

	if (!exchange_has(controller, slot) || message->u.connected.attempt != epoch->attempt)
		return;
	if (controller->state == CONTROLLER_RUN)
		go(controller, slot);
	party = party_of(controller, slot);
	if (epoch->parties[party].leg != LEG_OPENED)
		return;
	epoch_connected(epoch, party);
	if (!epoch_all_connected(epoch) || controller->pause.phase == PAUSE_OVER)
		return;
	WEFT_ASSERT(controller->departures.count ||
		    members->in[PRESENCE_DECLARED] == members->count);
	for (uint32_t i = 0; i < members->count; i++)
		here += exchange_has(controller, &members->slots[i]);
	say(controller, false, "all %u workers have their peers' endpoints after %.1f s: go", here,
	    (double)(controller->now_ms - controller->patience.since_ms) / 1000.0);
	go_all(controller);
}
