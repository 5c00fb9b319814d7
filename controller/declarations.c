/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/state.h"

#include <string.h>

void body_free(struct body *body)
{
	if (!body)
		return;
	layout_fini(&body->layout);
	holding_fini(&body->holding);
	memory_free(body);
}

static struct body *find(struct controller *controller, enum role role, struct digest digest)
{
	for (size_t i = 0; i < controller->bodies.count; i++) {
		struct body *body = controller->bodies.items[i];

		if (body->role == role && digest_equal(body->digest, digest))
			return body;
	}
	return NULL;
}

static struct body *add(struct controller *controller, enum role role, struct digest digest)
{
	struct body *body = memory_zalloc(1, sizeof(*body));
	struct body **place = body ? array_push(&controller->bodies) : NULL;

	if (!place) {
		memory_free(body);
		return NULL;
	}
	body->role = role;
	body->digest = digest;
	layout_init(&body->layout);
	holding_init(&body->holding);
	*place = body;
	return body;
}

static int want(struct controller *controller, const struct slot *slot, struct error *error)
{
	struct message *message = action_send(controller, slot->peer, MESSAGE_WANT);
	bool ask = slot->body && !slot->body->known && slot->body->asked == slot;

	if (!message)
		return no_memory(error);
	if (!ask)
		return 0;
	message->u.want.digests = memory_alloc(sizeof(struct digest));
	if (!message->u.want.digests)
		return no_memory(error);
	message->u.want.digests[0] = slot->body->digest;
	message->u.want.digest_count = 1;
	return 0;
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
	char who[SLOT_TEXT_BYTES];

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

static bool agrees(const struct controller *controller, const struct slot *slot,
		   const struct message_declare *declare, struct error *why)
{
	char who[SLOT_TEXT_BYTES], whom[SLOT_TEXT_BYTES];

	for (uint32_t i = 0; i < controller->slot_count; i++) {
		const struct slot *other = &controller->slots[i];
		const char *what, *mine, *theirs;

		if (other == slot || other->phase < PHASE_DECLARED)
			continue;
		what = contradiction(declare, &other->declare, &mine, &theirs);
		if (!what)
			break; /* the declared ones agree among themselves */
		error_set(why, ERROR_CONFLICT,
			  "%s declares %s '%.120s', and %s declares '%.120s': all workers of a "
			  "job must say the same",
			  slot_text(slot, who), what, mine, slot_text(other, whom), theirs);
		return false;
	}
	return agrees_with_specs(controller, slot, declare, why);
}

static int turn_away(struct controller *controller, struct slot *slot, const struct error *why,
		     struct error *error)
{
	int rc;

	memory_free(slot->refused);
	slot->refused = memory_string(why->text);
	if (!slot->refused || action_noise(controller, "refused: %s", why->text))
		return no_memory(error);
	rc = action_refuse(controller, slot->peer, controller->epoch, why, error);
	if (!rc)
		rc = declarations_forget(controller, slot, error);
	slot_clear(controller, slot);
	return rc;
}

bool declarations_complete(const struct controller *controller)
{
	if (controller->state != CONTROLLER_GATHER ||
	    controller->phases[PHASE_DECLARED] < controller->slot_count ||
	    controller->bodies_missing)
		return false;
	/* a rank that is claimed may belong to a dead process: its heartbeat, or its silence,
	   comes here again */
	for (uint32_t i = 0; i < controller->slot_count; i++)
		if (members_claim_open(controller, &controller->slots[i]))
			return false;
	return true;
}

int declarations_maybe_plan(struct controller *controller, struct error *error)
{
	if (!declarations_complete(controller) || action_push(controller, CONTROLLER_PLAN_DUE))
		return 0;
	return no_memory(error);
}

static int again(struct controller *controller, struct slot *slot,
		 const struct message_declare *declare, struct error *error)
{
	char who[SLOT_TEXT_BYTES];
	struct error why;

	if (slot->phase == PHASE_PLANNED)
		return exchange_plan_again(controller, slot, error);
	if (slot->phase > PHASE_PLANNED)
		return 0;
	if (digest_equal(declare->digest, slot->declare.digest))
		return want(controller, slot, error);
	error_set(&why, ERROR_CONFLICT, "%s declared twice, with different contents",
		  slot_text(slot, who));
	return turn_away(controller, slot, &why, error);
}

int declarations_take(struct controller *controller, struct slot *slot, struct message *message,
		      struct error *error)
{
	struct message_declare *declare = &message->u.declare;
	char who[SLOT_TEXT_BYTES];
	struct error why;
	struct body *body;

	if (slot->phase != PHASE_JOINED)
		return again(controller, slot, declare, error);
	if (!agrees(controller, slot, declare, &why))
		return turn_away(controller, slot, &why, error);
	body = find(controller, slot->who.role, declare->digest);
	if (!body)
		body = add(controller, slot->who.role, declare->digest);
	if (!body)
		return no_memory(error);
	if (!body->known && !body->asked) {
		body->asked = slot;
		controller->bodies_missing++;
	}
	slot->declare = *declare;
	*declare = (struct message_declare){0};
	memory_free(slot->refused);
	slot->refused = NULL;
	slot->body = body;
	slot_phase(controller, slot, PHASE_DECLARED);
	if (action_log(controller, false, "%s declares%s", slot_text(slot, who),
		       body->known	     ? ", known already"
		       : body->asked == slot ? ", asked for the contents"
					     : "") ||
	    want(controller, slot, error))
		return no_memory(error);
	return declarations_maybe_plan(controller, error);
}

int declarations_body(struct controller *controller, struct slot *slot, struct message *message,
		      struct error *error)
{
	bool layout = message->type == MESSAGE_LAYOUT;
	struct body *body = slot->body;
	char who[SLOT_TEXT_BYTES];
	struct error why;

	if (slot->phase == PHASE_PLANNED)
		return exchange_plan_again(controller, slot, error);
	if (slot->phase != PHASE_DECLARED)
		return 0;
	if (layout != (slot->who.role == ROLE_INFERENCE) ||
	    !digest_equal(body->digest,
			  layout ? message->u.layout.digest : message->u.holding.digest)) {
		error_set(&why, ERROR_CONFLICT, "%s sent a %s that is not the one it declared",
			  slot_text(slot, who), layout ? "layout" : "holding");
		return turn_away(controller, slot, &why, error);
	}
	if (!body->known) {
		if (layout) {
			body->layout = message->u.layout.layout;
			layout_init(&message->u.layout.layout);
		} else {
			body->holding = message->u.holding.holding;
			holding_init(&message->u.holding.holding);
		}
		body->known = true;
		if (body->asked)
			controller->bodies_missing--;
		body->asked = NULL;
	}
	if (want(controller, slot, error))
		return no_memory(error);
	return declarations_maybe_plan(controller, error);
}

static void remove_body(struct controller *controller, struct body *body)
{
	for (size_t k = 0; k < controller->bodies.count; k++) {
		if (controller->bodies.items[k] != body)
			continue;
		controller->bodies.items[k] = controller->bodies.items[--controller->bodies.count];
		break;
	}
	body_free(body);
}

int declarations_forget(struct controller *controller, struct slot *slot, struct error *error)
{
	struct body *body = slot->body;

	struct slot *other = NULL;

	if (!body)
		return 0;
	slot->body = NULL;
	for (uint32_t i = 0; !other && i < controller->slot_count; i++)
		if (controller->slots[i].body == body)
			other = &controller->slots[i];
	if (!body->known && body->asked == slot) {
		body->asked = other;
		if (other)
			return want(controller, other, error);
		controller->bodies_missing--;
	}
	if (!other)
		remove_body(controller, body);
	return 0;
}

void declarations_forget_unused(struct controller *controller)
{
	for (size_t k = controller->bodies.count; k-- > 0;) {
		struct body *body = controller->bodies.items[k];
		bool used = false;

		for (uint32_t i = 0; !used && i < controller->slot_count; i++)
			used = controller->slots[i].body == body;
		if (!used)
			remove_body(controller, body);
	}
}
