/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/state.h"

#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {
	[CONTROLLER_GATHER] = "gathering", [CONTROLLER_EXCHANGE] = "exchanging endpoints",
	[CONTROLLER_RUN] = "running",	   [CONTROLLER_FAILED] = "failed",
	[CONTROLLER_DONE] = "done",
};
_Static_assert(ARRAY_SIZE(state_names) == CONTROLLER_STATE_COUNT, "a name for every state");

int no_memory(struct error *error)
{
	return error_set(error, ERROR_MEMORY, "the controller is out of memory");
}

struct controller_action *action_push(struct controller *controller,
				      enum controller_action_type type)
{
	struct controller_action *action = array_push(controller->actions);

	if (action)
		action->type = type;
	return action;
}

int action_log(struct controller *controller, bool warn, const char *format, ...)
{
	struct controller_action *action = action_push(controller, CONTROLLER_LOG);
	char line[ERROR_TEXT_BYTES + 256];
	va_list args;

	if (!action)
		return -ERROR_MEMORY;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	action->warn = warn;
	action->line = memory_string(line);
	return action->line ? 0 : -ERROR_MEMORY;
}

#define NOISE_LINES 100
#define NOISE_MS    10000

int action_noise_summary(struct controller *controller)
{
	uint64_t more = controller->noise;

	if (controller->now_ms < controller->noise_ms + NOISE_MS)
		return 0;
	controller->noise_ms = controller->now_ms;
	controller->noise = 0;
	if (more <= NOISE_LINES)
		return 0;
	return action_log(controller, true, "%llu more like it in %.1f s were not logged",
			  (unsigned long long)(more - NOISE_LINES), NOISE_MS / 1000.0);
}

int action_noise(struct controller *controller, const char *format, ...)
{
	char line[ERROR_TEXT_BYTES + 256];
	va_list args;

	if (action_noise_summary(controller))
		return -ERROR_MEMORY;
	if (++controller->noise > NOISE_LINES)
		return 0;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return action_log(controller, true, "%s", line);
}

struct message *action_send(struct controller *controller, const char *peer, enum message_type type)
{
	struct controller_action *action = action_push(controller, CONTROLLER_SEND);

	if (!action)
		return NULL;
	snprintf(action->peer, sizeof(action->peer), "%s", peer);
	action->message.type = type;
	snprintf(action->message.job, sizeof(action->message.job), "%s", controller->job);
	action->message.epoch = controller->epoch;
	action->message.from = controller->options.incarnation;
	return &action->message;
}

int action_refuse(struct controller *controller, const char *peer, uint64_t epoch,
		  const struct error *why, struct error *error)
{
	struct message *message = action_send(controller, peer, MESSAGE_REFUSE);

	if (!message)
		return no_memory(error);
	message->epoch = epoch;
	message->u.refuse.code = (int)why->code;
	message->u.refuse.text = memory_string(why->text);
	return message->u.refuse.text ? 0 : no_memory(error);
}

int action_exit(struct controller *controller, const struct error *why, struct error *error)
{
	struct controller_action *action = action_push(controller, CONTROLLER_EXIT);

	if (!action)
		return no_memory(error);
	if (why)
		action->error = *why;
	controller->state = CONTROLLER_DONE;
	return 0;
}

void controller_actions_clear(struct controller_actions *actions)
{
	for (size_t i = 0; i < actions->count; i++) {
		if (actions->items[i].type == CONTROLLER_SEND)
			message_fini(&actions->items[i].message);
		memory_free(actions->items[i].line);
	}
	memory_free(actions->items);
	*actions = (struct controller_actions){0};
}

static int check_options(const struct controller_options *options, struct error *error)
{
	if (!options->job || !*options->job || strlen(options->job) >= LIMIT_JOB_BYTES)
		return error_set(error, ERROR_CONFIG,
				 "the job id '%.40s' is empty or longer than %d bytes",
				 options->job ? options->job : "", LIMIT_JOB_BYTES - 1);
	if (options->heartbeat_ms == 0 || options->lost_ms / 2 < options->heartbeat_ms)
		return error_set(error, ERROR_CONFIG,
				 "--lost-after %u ms is less than two heartbeats of %u ms: one "
				 "late beat would cost a worker its place",
				 options->lost_ms, options->heartbeat_ms);
	if (options->train.world == 0 || infer_ranks(&options->infer) == 0)
		return error_set(error, ERROR_CONFIG,
				 "a job needs trainers and inference ranks: --train has %u, "
				 "--infer has %u",
				 options->train.world, infer_ranks(&options->infer));
	return 0;
}

/* Wrong names are refused now, not when all workers are here. */
static int choose_routing(struct controller *controller, struct error *error)
{
	struct controller_options *options = &controller->options;
	struct plan_options plan = {.sessions_max = options->sessions_max};
	int rc = policy_named(&controller->policy, "--policy",
			      options->policy ? options->policy : "greedy", error);

	if (!rc)
		rc = order_named(&controller->order, "--order",
				 options->order ? options->order : ORDER_DEFAULT, error);
	if (!rc)
		rc = plan_options_check(controller->policy, &plan, error);
	/* the rows' own names outlive the caller's strings */
	if (!rc) {
		options->policy = controller->policy->name;
		options->order = controller->order->name;
	}
	return rc;
}

int controller_new(struct controller **out, const struct controller_options *options,
		   uint64_t now_ms, struct error *error)
{
	struct controller *controller;
	int rc = check_options(options, error);

	if (rc)
		return rc;
	controller = memory_zalloc(1, sizeof(*controller));
	if (!controller)
		return no_memory(error);
	controller->options = *options;
	controller->slot_count = options->train.world + infer_ranks(&options->infer);
	controller->slots = memory_zalloc(controller->slot_count, sizeof(struct slot));
	controller->job = memory_string(options->job);
	if (!controller->slots || !controller->job) {
		controller_free(&controller);
		return no_memory(error);
	}
	controller->options.job = controller->job;
	rc = choose_routing(controller, error);
	if (rc) {
		controller_free(&controller);
		return rc;
	}
	for (uint32_t i = 0; i < controller->slot_count; i++) {
		struct slot *slot = &controller->slots[i];
		bool trainer = i < options->train.world;

		slot->who.role = trainer ? ROLE_TRAINER : ROLE_INFERENCE;
		slot->who.rank = trainer ? i : i - options->train.world;
	}
	controller->phases[PHASE_ABSENT] = controller->slot_count;
	controller->epoch = 1;
	controller->restarts_left = options->restarts;
	controller->started_ms = controller->since_ms = now_ms;
	controller->stepped_ms = controller->ticked_ms = now_ms;
	*out = controller;
	return 0;
}

void controller_free(struct controller **out)
{
	struct controller *controller = *out;

	if (!controller)
		return;
	book_free(&controller->book);
	for (uint32_t i = 0; controller->slots && i < controller->slot_count; i++) {
		slot_clear(controller, &controller->slots[i]);
		memory_free(controller->slots[i].refused);
	}
	memory_free(controller->slots);
	for (size_t i = 0; i < controller->bodies.count; i++)
		body_free(controller->bodies.items[i]);
	array_free(&controller->bodies);
	strmap_fini(&controller->by_incarnation);
	for (size_t i = 0; i < controller->names.count; i++)
		memory_free(controller->names.items[i]);
	array_free(&controller->names);
	array_free(&controller->formers);
	memory_free(controller->job);
	memory_free(controller);
	*out = NULL;
}

typedef int (*handler)(struct controller *, struct slot *, struct message *, struct error *);
static const handler handlers[MESSAGE_TYPE_COUNT] = {
	[MESSAGE_DECLARE] = declarations_take,	  [MESSAGE_LAYOUT] = declarations_body,
	[MESSAGE_HOLDING] = declarations_body,	  [MESSAGE_ENDPOINTS] = exchange_endpoints,
	[MESSAGE_CONNECTED] = exchange_connected, [MESSAGE_FAILURE] = members_failure,
	[MESSAGE_LEAVE] = members_leave,	  [MESSAGE_HEARTBEAT] = members_heartbeat,
};

static int other_job(struct controller *controller, const char *peer, const struct message *message,
		     struct error *error)
{
	char name[MEMBER_TEXT_BYTES];
	struct member member;
	struct error why;

	if (message->type != MESSAGE_HELLO)
		return 0;
	member = (struct member){message->u.hello.role, message->u.hello.rank};
	error_set(&why, ERROR_JOB,
		  "%s (host %s, pid %llu) belongs to job '%s', and this is the controller of "
		  "job '%s': check --job and the controller's address",
		  member_text(member, name), message->u.hello.host,
		  (unsigned long long)message->u.hello.pid, message->job, controller->job);
	if (action_noise(controller, "refused: %s", why.text))
		return no_memory(error);
	return action_refuse(controller, peer, message->epoch, &why, error);
}

/* A stranger who is past hello: of an epoch that failed, or of another controller. Its last
 * words need no answer. */
static int stranger(struct controller *controller, const char *peer, const struct message *message,
		    struct error *error)
{
	struct error why;
	bool was = false;
	int rc;

	if (message->type == MESSAGE_LEAVE || message->type == MESSAGE_FAILURE)
		return 0;
	rc = ending_answer_former(controller, peer, message, &was, error);
	if (rc || was)
		return rc;
	error_set(&why, ERROR_CONTROLLER_LOST,
		  "this controller (started %.1f s ago) does not know this worker: the one it "
		  "joined is gone, or gave it up",
		  (double)(controller->now_ms - controller->started_ms) / 1000.0);
	if (action_noise(controller, "%s from %s, which never joined: told so",
			 message_type_name(message->type), peer))
		return no_memory(error);
	return action_refuse(controller, peer, message->epoch, &why, error);
}

static int received(struct controller *controller, const char *peer, struct message *message,
		    struct error *error)
{
	struct slot *slot;

	if (controller->state == CONTROLLER_DONE)
		return 0;
	if (strcmp(message->job, controller->job) != 0)
		return other_job(controller, peer, message, error);
	if (message->type == MESSAGE_HELLO)
		return members_hello(controller, peer, message, error);
	if ((unsigned)message->type >= MESSAGE_TYPE_COUNT || !handlers[message->type])
		return action_noise(controller,
				    "dropped: a %s from %s, which only "
				    "controllers send",
				    message_type_name(message->type), peer)
			       ? no_memory(error)
			       : 0;
	slot = members_find(controller, message->from);
	if (!slot)
		return stranger(controller, peer, message, error);
	if (message->epoch != controller->epoch)
		return 0; /* stale: of an earlier plan */
	slot->heard_ms = controller->now_ms;
	snprintf(slot->peer, sizeof(slot->peer), "%s", peer);
	if (slot->phase == PHASE_LEFT && message->type != MESSAGE_LEAVE)
		return 0;
	if (controller->state == CONTROLLER_FAILED)
		return ending_answer(controller, slot, message, error);
	return handlers[message->type](controller, slot, message, error);
}

static int broken(struct controller *controller, const char *peer, const struct error *what,
		  struct error *error)
{
	struct slot *slot = NULL;
	char who[SLOT_TEXT_BYTES];
	struct error why = *what;
	int rc;

	for (uint32_t i = 0; !slot && i < controller->slot_count; i++)
		if (controller->slots[i].phase != PHASE_ABSENT &&
		    controller->slots[i].phase != PHASE_LEFT &&
		    strcmp(controller->slots[i].peer, peer) == 0)
			slot = &controller->slots[i];
	if (!slot || controller->state == CONTROLLER_GATHER) {
		error_wrap(&why, "message of %s refused", slot ? slot_text(slot, who) : peer);
		if (action_noise(controller, "%s", why.text))
			return no_memory(error);
		rc = action_refuse(controller, peer, slot ? controller->epoch : 0, &why, error);
		if (slot) {
			if (!rc)
				rc = declarations_forget(controller, slot, error);
			slot_clear(controller, slot);
		}
		return rc;
	}
	if (controller->state != CONTROLLER_EXCHANGE && controller->state != CONTROLLER_RUN)
		return 0;
	error_wrap(&why, "%s sent what cannot be read", slot_text(slot, who));
	return ending_fail(controller, slot, &why, error);
}

/* A controller that was stopped itself (a suspended machine, a debugger) has not listened:
 * the workers are not to blame for that time. */
static int forgive_own_sleep(struct controller *controller, struct error *error)
{
	uint64_t gap = controller->now_ms - controller->stepped_ms;
	bool planned = controller->planning;
	uint64_t usual = controller->options.heartbeat_ms + controller->options.lost_ms / 2;

	controller->planning = false;
	if (gap <= usual && !planned)
		return 0;
	for (uint32_t i = 0; i < controller->slot_count; i++) {
		struct slot *slot = &controller->slots[i];

		/* beats that came while it planned did not get here */
		slot->heard_ms = planned ? controller->now_ms : slot->heard_ms + gap;
		slot->plan_ms += planned ? gap : 0;
	}
	if (planned) {
		controller->since_ms += gap; /* the exchange begins when the plans are out */
		return 0;
	}
	return action_log(controller, true,
			  "the controller itself stood still for %.1f s; nobody is blamed for it",
			  (double)gap / 1000.0)
		       ? no_memory(error)
		       : 0;
}

static int plan(struct controller *controller, struct error *error)
{
	if (!declarations_complete(controller))
		return 0; /* it was when the step was asked for, and will be again */
	controller->planning = true;
	return exchange_begin(controller, error);
}

static int tick(struct controller *controller, struct error *error)
{
	int rc;

	controller->ticked_ms = controller->now_ms;
	if (action_noise_summary(controller))
		return no_memory(error);
	rc = members_silence(controller, error);
	return rc ? rc : ending_deadlines(controller, error);
}

int controller_step(struct controller *controller, const struct controller_event *event,
		    struct controller_actions *actions, struct error *error)
{
	int rc;

	controller->actions = actions;
	controller->now_ms = event->now_ms;
	if (event->peer && strlen(event->peer) >= CONTROLLER_PEER_BYTES)
		return 0; /* no worker of ours: it could not be answered */
	rc = forgive_own_sleep(controller, error);
	controller->stepped_ms = event->now_ms;
	if (rc || controller->state == CONTROLLER_DONE)
		return rc;
	switch (event->type) {
	case CONTROLLER_RECEIVED:
		return received(controller, event->peer, event->message, error);
	case CONTROLLER_BROKEN:
		return broken(controller, event->peer, event->error, error);
	case CONTROLLER_PLAN:
		return plan(controller, error);
	case CONTROLLER_TICK:
		return tick(controller, error);
	case CONTROLLER_INTERRUPT:
		controller->restarts_left = 0;
		if (controller->state == CONTROLLER_FAILED)
			return action_exit(controller, &controller->failure, error);
		return ending_fail(controller, NULL, event->error, error);
	}
	return 0;
}

uint64_t controller_deadline_ms(const struct controller *controller)
{
	uint64_t beat = controller->ticked_ms + controller->options.heartbeat_ms;
	uint64_t other = ending_next_ms(controller);

	return other < beat ? other : beat;
}

char *controller_line(const struct controller *controller, uint64_t now_ms)
{
	static const struct {
		enum phase phase;
		const char *words;
	} rows[] = {
		{PHASE_ABSENT, "absent"},     {PHASE_JOINED, "joined"},
		{PHASE_DECLARED, "declared"}, {PHASE_PLANNED, "planned"},
		{PHASE_OPENED, "opened"},     {PHASE_CONNECTED, "connected"},
		{PHASE_LEFT, "left"},	      {PHASE_LOST, "lost"},
	};
	struct text text = {0};

	text_format(&text, "job '%s', epoch %llu, %s, up %.1f s", controller->job,
		    (unsigned long long)controller->epoch, state_names[controller->state],
		    (double)(now_ms - controller->started_ms) / 1000.0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct text list = {0};

		if (members_in_phase(controller, rows[i].phase, &list))
			text_format(&text, "; %s: %s", rows[i].words, text_string(&list));
		text_fini(&list);
	}
	text_add(&text, "; ");
	members_versions(controller, &text);
	if (!text_ok(&text)) {
		text_fini(&text);
		return NULL;
	}
	return text.data;
}
