/* SPDX-License-Identifier: Apache-2.0
 *
 * declarations.c -- what workers hold and need: asked for once per digest, refused where two of
 * them contradict each other.
 */
#include "controller/state.h"

#include <string.h>

static void want(struct controller *controller, const struct slot *slot)
{
	struct message *message = send_to(controller, slot->peer, MESSAGE_WANT);
	const struct body *body = slot->worker->body;

	WEFT_ASSERT(!exchange_has(controller, slot)); /* else the answer is its plan */
	if (!body || body->asked != slot->worker)
		return;
	message->u.want.digests = memory_alloc(sizeof(struct digest));
	if (!message->u.want.digests) {
		no_memory(controller);
		return;
	}
	message->u.want.digests[0] = body->digest;
	message->u.want.digest_count = 1;
}

/* Label by label: what two workers of one job must say alike. */
static const char *contradiction(const struct message_declare *a, const struct message_declare *b,
				 const char **x, const char **y)
{
	const struct {
		const char *what, *x, *y;
	} rows[] = {
		{"model", a->model, b->model},
		{"train", a->train, b->train},
		{"infer", a->infer, b->infer},
		{"transport", a->transport, b->transport},
		{"checksums", a->checksums ? "on" : "off", b->checksums ? "on" : "off"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		*x = rows[i].x ? rows[i].x : "";
		*y = rows[i].y ? rows[i].y : "";
		if (strcmp(*x, *y) != 0)
			return rows[i].what;
	}
	return NULL;
}

static bool same_spec(const struct slot *slot, const char *flag, const char *theirs,
		      const char *ours, struct error *why)
{
	char who[WORKER_TEXT_BYTES];

	if (strcmp(theirs, ours) == 0)
		return true;
	error_set(why, ERROR_CONFLICT,
		  "%s was started with --%s %.200s, the controller with --%s %.200s: give both the "
		  "same spec",
		  slot_text(slot, who), flag, theirs, flag, ours);
	return false;
}

/* A label that is a parallel spec must be the controller's, which waits for so many ranks and
 * numbers their stages and engines; any other label is the host program's own affair. */
static bool agrees_with_specs(const struct controller *controller, const struct slot *slot,
			      const struct message_declare *declare, struct error *why)
{
	char theirs[PARALLEL_TEXT_BYTES], ours[PARALLEL_TEXT_BYTES];
	struct train_spec train;
	struct infer_spec infer;

	if (declare->train && train_spec_parse(&train, declare->train, NULL) == 0 &&
	    !same_spec(slot, "train", train_spec_text(&train, theirs),
		       train_spec_text(&controller->options.train, ours), why))
		return false;
	return !declare->infer || infer_spec_parse(&infer, declare->infer, NULL) != 0 ||
	       same_spec(slot, "infer", infer_spec_text(&infer, theirs),
			 infer_spec_text(&controller->options.infer, ours), why);
}

/* A trainer that comes back holds what it held: the others hold the rest. An engine may need other bytes than before, in another
 * layout: trainers prepare all that they hold, and a plan is made of those who are here. */
static bool holds_as_before(const struct controller *controller, const struct slot *slot,
			    const struct message_declare *declare, struct error *why)
{
	size_t index = (size_t)(slot - controller->members.slots);
	const struct worker *before =
		controller->epoch ? controller->epoch->parties[index].worker : NULL;
	char who[WORKER_TEXT_BYTES], whom[WORKER_TEXT_BYTES];

	if (slot->who.role == ROLE_INFERENCE || !before || !before->body ||
	    digest_equal(before->body->digest, declare->digest))
		return true;
	error_set(
		why, ERROR_CONFLICT,
		"%s declares another holding than %s, in whose place it comes: a trainer that comes "
		"back to a job that runs has the same, or the whole job starts anew",
		slot_text(slot, who), worker_text(before, whom));
	return false;
}

static bool agrees(const struct controller *controller, const struct slot *slot,
		   const struct message_declare *declare, struct error *why)
{
	char who[WORKER_TEXT_BYTES], whom[WORKER_TEXT_BYTES];

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *other = &controller->members.slots[i];
		const char *what, *mine, *theirs;

		if (other == slot || other->presence < PRESENCE_DECLARED)
			continue;
		what = contradiction(declare, &other->worker->declare, &mine, &theirs);
		if (!what)
			break; /* the declared ones agree among themselves */
		error_set(why, ERROR_CONFLICT,
			  "%s declares %s '%.120s', and %s declares '%.120s': all workers of a "
			  "job must say the same",
			  slot_text(slot, who), what, mine, slot_text(other, whom), theirs);
		return false;
	}
	return holds_as_before(controller, slot, declare, why) &&
	       agrees_with_specs(controller, slot, declare, why);
}

void declarations_turn_away(struct controller *controller, struct slot *slot,
			    const struct error *why)
{
	memory_free(slot->refused);
	slot->refused = action_string(controller->actions, why->text);
	say_refused(controller, slot->peer, controller->number, why);
	declarations_drop(controller, slot);
}

bool declarations_complete(const struct controller *controller)
{
	const struct membership *members = &controller->members;

	/* a rank that is claimed may belong to a dead process: its heartbeat, or its silence,
	   comes here again */
	return controller->state == CONTROLLER_GATHER &&
	       ((members->in[PRESENCE_DECLARED] == members->count && !members->bodies.missing &&
		 !membership_claimed(members, controller->options.heartbeat_ms)) ||
		absent_may_begin(controller));
}

void declarations_maybe_plan(struct controller *controller)
{
	returns_maybe_begin(controller);
	takeover_refuse_stale(controller);
	if (declarations_complete(controller))
		action_push(controller->actions, CONTROLLER_PLAN_DUE);
}

static void again(struct controller *controller, struct slot *slot,
		  const struct message_declare *declare)
{
	char who[WORKER_TEXT_BYTES];
	struct error why;

	if (exchange_has(controller, slot)) {
		exchange_replay_plan(controller, slot);
	} else if (digest_equal(declare->digest, slot->worker->declare.digest)) {
		if (controller->epoch) /* it came before, and was left out of the plan */
			members_welcome(controller, slot);
		want(controller, slot);
	} else {
		error_set(&why, ERROR_CONFLICT, "%s declared twice, with different contents",
			  slot_text(slot, who));
		declarations_turn_away(controller, slot, &why);
	}
}

void declarations_take(struct controller *controller, struct slot *slot, struct message *message)
{
	struct message_declare *declare = &message->u.declare;
	char who[WORKER_TEXT_BYTES];
	struct error why;
	struct bodies *bodies = &controller->members.bodies;
	struct body *body;

	if (slot->presence != PRESENCE_JOINED) {
		again(controller, slot, declare);
		return;
	}
	if (!agrees(controller, slot, declare, &why)) {
		declarations_turn_away(controller, slot, &why);
		return;
	}
	WEFT_ASSERT(!exchange_has(controller, slot));
	body = bodies_find(bodies, slot->who.role, declare->digest);
	if (!body)
		body = bodies_add(bodies, slot->who.role, declare->digest);
	if (!body) {
		no_memory(controller);
		return;
	}
	if (!body->known && !body->asked)
		bodies_ask(bodies, body, slot->worker);
	membership_declare(&controller->members, slot, declare, body);
	absent_came(controller);
	say(controller, false, "%s declares%s", slot_text(slot, who),
	    body->known			  ? ", known already"
	    : body->asked == slot->worker ? ", asked for the contents"
					  : "");
	want(controller, slot);
	declarations_maybe_plan(controller);
}

void declarations_body(struct controller *controller, struct slot *slot, struct message *message)
{
	bool layout = message->type == MESSAGE_LAYOUT;
	struct body *body = slot->worker->body;
	char who[WORKER_TEXT_BYTES];
	struct error why;

	if (exchange_has(controller, slot)) {
		exchange_replay_plan(controller, slot);
		return;
	}
	if (slot->presence != PRESENCE_DECLARED)
		return;
	if (layout != (slot->who.role == ROLE_INFERENCE) ||
	    !digest_equal(body->digest,
			  layout ? message->u.layout.digest : message->u.holding.digest)) {
		error_set(&why, ERROR_CONFLICT, "%s sent a %s that is not the one it declared",
			  slot_text(slot, who), layout ? "layout" : "holding");
		declarations_turn_away(controller, slot, &why);
		return;
	}
	WEFT_ASSERT(body->known || body->asked);
	if (!body->known) {
		if (layout) {
			body->layout = message->u.layout.layout;
			layout_init(&message->u.layout.layout);
		} else {
			body->holding = message->u.holding.holding;
			holding_init(&message->u.holding.holding);
		}
		body->known = true;
		bodies_stop_asking(&controller->members.bodies, body);
	}
	want(controller, slot);
	declarations_maybe_plan(controller);
}

void declarations_drop(struct controller *controller, struct slot *slot)
{
	struct membership *members = &controller->members;
	struct body *body = slot->worker->body;
	const struct slot *other = NULL;

	WEFT_ASSERT(!exchange_has(controller, slot));
	if (body && body->asked == slot->worker) {
		for (uint32_t i = 0; !other && i < members->count; i++) {
			const struct slot *it = &members->slots[i];

			if (it != slot && it->worker && it->worker->body == body)
				other = it;
		}
		if (other) {
			bodies_ask(&members->bodies, body, other->worker);
			want(controller, other);
		} else {
			bodies_stop_asking(&members->bodies, body);
		}
	}
	membership_clear(members, slot);
	if (body)
		bodies_drop_unused(&members->bodies, body);
	returns_recount(controller);
}
