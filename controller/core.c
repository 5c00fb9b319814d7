/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/state.h"

#include <stdio.h>
#include <string.h>

static int memory_is_out(struct error *error)
{
	return error_set(error, ERROR_MEMORY, "the controller is out of memory");
}

#define NOISE_LINES	100
#define NOISE_MS	10000
#define UNREADABLE_MOST 3 /* frames of a member in a row, while the job gathers */

static void noise_summary(struct controller *controller)
{
	uint64_t more = controller->noise;

	if (controller->now_ms < controller->noise_ms + NOISE_MS)
		return;
	controller->noise_ms = controller->now_ms;
	controller->noise = 0;
	if (more > NOISE_LINES)
		say(controller, true, "%llu more like it in %.1f s were not logged",
		    (unsigned long long)(more - NOISE_LINES), NOISE_MS / 1000.0);
}

void say_noise(struct controller *controller, const char *format, ...)
{
	char line[ERROR_TEXT_BYTES + 256];
	va_list args;

	noise_summary(controller);
	if (++controller->noise > NOISE_LINES)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	say(controller, true, "%s", line);
}

struct message *send_to(struct controller *controller, const char *peer, enum message_type type)
{
	struct action *action = action_push(controller->actions, CONTROLLER_SEND);

	WEFT_ASSERT(*peer);
	WEFT_ASSERT_OP(type, >=, MESSAGE_HEARTBEAT); /* the others are the workers' */
	snprintf(action->peer, sizeof(action->peer), "%s", peer);
	action->message.type = type;
	snprintf(action->message.job, sizeof(action->message.job), "%s", controller->job);
	action->message.epoch = controller->number;
	action->message.from = controller->options.incarnation;
	return &action->message;
}

void send_refuse(struct controller *controller, const char *peer, uint64_t epoch,
		 const struct error *why)
{
	struct message *message = send_to(controller, peer, MESSAGE_REFUSE);

	WEFT_ASSERT_OP(why->code, !=, ERROR_NONE);
	message->epoch = epoch;
	message->u.refuse.code = (int)why->code;
	message->u.refuse.text = action_string(controller->actions, why->text);
}

void say_refused(struct controller *controller, const char *peer, uint64_t epoch,
		 const struct error *why)
{
	say_noise(controller, "refused: %s", why->text);
	send_refuse(controller, peer, epoch, why);
}

#define TO(state) (1u << CONTROLLER_##state)
/* state -> the states that may follow */
static const unsigned follows[CONTROLLER_STATE_COUNT] = {
	[CONTROLLER_GATHER] = TO(GATHER) | TO(EXCHANGE) | TO(FAILED) | TO(DONE),
	[CONTROLLER_EXCHANGE] = TO(EXCHANGE) | TO(RUN) | TO(GATHER) | TO(FAILED),
	[CONTROLLER_RUN] = TO(EXCHANGE) | TO(GATHER) | TO(FAILED) | TO(DONE),
	[CONTROLLER_FAILED] = TO(DONE),
};

void controller_enter(struct controller *controller, enum controller_state state)
{
	WEFT_ASSERT(follows[controller->state] & 1u << state);
	controller->state = state;
}

void controller_exit(struct controller *controller, const struct error *why)
{
	struct action *action = action_push(controller->actions, CONTROLLER_EXIT);

	if (why)
		action->error = *why;
	controller->failed = why && why->code != ERROR_NONE;
	controller_enter(controller, CONTROLLER_DONE);
}

static int check_options(const struct controller_options *options, struct error *error)
{
	int rc = core_check_job(options->job, error);

	if (rc)
		return rc;
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
	if (options->engines_min > options->infer.engines)
		return error_set(error, ERROR_CONFIG,
				 "--engines-min %u is more than the %u engines of --infer",
				 options->engines_min, options->infer.engines);
	if (options->hedge_ms && options->delta)
		return error_set(
			error, ERROR_CONFIG,
			"--hedge does not go with --delta: who sends another one's pieces does not know "
			"what their ranks have of the version before; leave one of them out");
	if (options->hedge_ms && options->update_timeout_ms &&
	    options->hedge_ms >= options->update_timeout_ms / 2)
		return error_set(error, ERROR_CONFIG,
				 "--hedge %u ms is not less than half of --update-timeout %u ms, "
				 "for which who stands in waits to be asked",
				 options->hedge_ms, options->update_timeout_ms);
	if (options->hedge_ms && options->sessions_max)
		return error_set(
			error, ERROR_CONFIG,
			"--hedge does not go with --sessions-max: who stands in for another trainer "
			"writes to that one's ranks too; leave one of them out");
	return 0;
}

/* Of two words: *other_chosen, which is not the default, or what was given is neither. */
static int choose(const char *option, const char *given, const char *usual, const char *other,
		  bool *other_chosen, struct error *error)
{
	*other_chosen = given && strcmp(given, other) == 0;
	if (!given || *other_chosen || strcmp(given, usual) == 0)
		return 0;
	return error_set(error, ERROR_CONFIG, "--%s '%.64s' is none of %s, %s", option, given,
			 usual, other);
}

/* What the job does without one of its workers, or a version. */
static int choose_losses(struct controller *controller, struct error *error)
{
	struct controller_options *options = &controller->options;
	int rc = choose("on-loss", options->on_loss, "end", "continue", &controller->continues,
			error);

	if (!rc)
		rc = choose("on-miss", options->on_miss, "stay", "leave", &controller->misses_leave,
			    error);
	if (!rc)
		rc = choose("catch-up-from", options->catch_up_from, "engines", "trainers",
			    &controller->catch_up_trainers, error);
	options->on_loss = controller->continues ? "continue" : "end";
	options->on_miss = options->catch_up_from = NULL; /* the caller's */
	if (rc || controller->continues)
		return rc;
	if (options->engines_min)
		return error_set(
			error, ERROR_CONFIG,
			"--engines-min needs --on-loss continue: without it no engine comes in "
			"later");
	if (controller->misses_leave)
		return error_set(error, ERROR_CONFIG,
				 "--on-miss leave needs --on-loss continue: without it an engine "
				 "that leaves ends the job");
	return 0;
}

/* Wrong names are refused now, not when all workers are here. */
static int choose_routing(struct controller *controller, struct error *error)
{
	struct controller_options *options = &controller->options;
	struct epoch_rules *rules = &controller->rules;
	int rc = policy_named(&rules->policy, "--policy",
			      options->policy ? options->policy : "greedy", error);

	rules->train = &options->train;
	rules->infer = &options->infer;
	rules->options.topology = options->topology;
	rules->options.sessions_max = options->sessions_max;
	rules->topology_from_workers = options->topology_from_workers;
	rules->hedge = options->hedge_ms != 0;
	if (!rc)
		rc = order_named(&rules->options.order, "--order",
				 options->order ? options->order : ORDER_DEFAULT, error);
	if (!rc)
		rc = plan_options_check(rules->policy, &rules->options, error);
	if (!rc)
		rc = commit_parse(&rules->commit,
				  options->commit ? options->commit : COMMIT_DEFAULT, error);
	if (!rc)
		rc = choose_losses(controller, error);
	rules->followed = controller->continues;
	/* the rows' own names outlive the caller's strings */
	if (!rc) {
		options->policy = rules->policy->name;
		options->order = rules->options.order->name;
		options->commit = commit_name(rules->commit);
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
		return memory_is_out(error);
	controller->options = *options;
	controller->job = memory_string(options->job);
	controller->options.job = controller->job;
	if (!controller->job || membership_init(&controller->members, options->train.world,
						infer_ranks(&options->infer)))
		rc = memory_is_out(error);
	controller->pause.slots = memory_zalloc(controller->members.count, sizeof(struct paused));
	if (!controller->pause.slots || !status_init(controller))
		rc = memory_is_out(error);
	if (!rc)
		rc = choose_routing(controller, error);
	if (rc) {
		controller_free(&controller);
		return rc;
	}
	controller->number = 1;
	controller->restarts_left = options->restarts;
	patience_begin(&controller->patience, now_ms);
	controller->started_ms = controller->stepped_ms = controller->ticked_ms = now_ms;
	*out = controller;
	return 0;
}

void controller_free(struct controller **out)
{
	struct controller *controller = *out;

	if (!controller)
		return;
	epoch_free(&controller->epoch);
	array_free(&controller->departures);
	array_free(&controller->dismissed);
	memory_free(controller->pause.slots);
	status_fini(controller);
	membership_fini(&controller->members);
	array_free(&controller->formers);
	memory_free(controller->job);
	memory_free(controller);
	*out = NULL;
}

static message_handler *const handlers[MESSAGE_TYPE_COUNT] = {
	[MESSAGE_DECLARE] = declarations_take,	  [MESSAGE_LAYOUT] = declarations_body,
	[MESSAGE_HOLDING] = declarations_body,	  [MESSAGE_ENDPOINTS] = exchange_endpoints,
	[MESSAGE_CONNECTED] = exchange_connected, [MESSAGE_FAILURE] = losses_report,
	[MESSAGE_LEAVE] = members_leave,	  [MESSAGE_HEARTBEAT] = members_heartbeat,
	[MESSAGE_ACTIVITY] = status_activity,	  [MESSAGE_DROP] = losses_drop,
	[MESSAGE_PAUSED] = returns_paused,
};

static void other_job(struct controller *controller, const char *peer,
		      const struct message *message)
{
	char name[MEMBER_TEXT_BYTES];
	struct member member;
	struct error why;

	if (message->type != MESSAGE_HELLO)
		return;
	member = (struct member){message->u.hello.role, message->u.hello.rank};
	error_set(&why, ERROR_JOB,
		  "%s (host %s, pid %llu) belongs to job '%s', and this is the controller of "
		  "job '%s': check --job and the controller's address",
		  member_text(member, name), message->u.hello.host,
		  (unsigned long long)message->u.hello.pid, message->job, controller->job);
	say_refused(controller, peer, message->epoch, &why);
}

/* A stranger who is past hello: of an epoch that failed, or of another controller. Its last
 * words need no answer. */
static void stranger(struct controller *controller, const char *peer, const struct message *message)
{
	struct error why;

	if (message->type == MESSAGE_LEAVE) /* perhaps once more: the first answer was lost */
		send_to(controller, peer, MESSAGE_HEARTBEAT);
	if (message->type == MESSAGE_LEAVE || message->type == MESSAGE_FAILURE ||
	    gone_answer_former(controller, peer, message) ||
	    ending_answer_former(controller, peer, message))
		return;
	error_set(&why, ERROR_CONTROLLER_LOST,
		  "this controller (started %.1f s ago) does not know this worker: the one it "
		  "joined is gone, or gave it up",
		  (double)(controller->now_ms - controller->started_ms) / 1000.0);
	say_noise(controller, "%s from somebody who never joined: told so",
		  message_type_name(message->type));
	send_refuse(controller, peer, message->epoch, &why);
}

/* The role that a message says it is of is the one whose key came with it. */
static bool key_fits(const struct controller_event *event, enum role role)
{
	return !event->key_role || strcmp(event->key_role, role_name(role)) == 0;
}

static void wrong_key(struct controller *controller, const char *peer,
		      const struct message *message, const char *key_role)
{
	const struct message_hello *hello = &message->u.hello;
	char name[MEMBER_TEXT_BYTES];
	struct error why;

	error_set(&why, ERROR_CONFIG,
		  "%s (host %s, pid %llu) came with the key of role %s: give it --key (or "
		  "WEFT_KEY_FILE) with a file for %s, or the job's own",
		  member_text((struct member){hello->role, hello->rank}, name), hello->host,
		  (unsigned long long)hello->pid, key_role, role_name(hello->role));
	say_refused(controller, peer, message->epoch, &why);
}

static void received(struct controller *controller, const struct controller_event *event)
{
	struct message *message = event->message;
	const char *peer = event->peer;
	struct slot *slot;

	/* of whatever job, and with whatever key the gate let in */
	if (message->type == MESSAGE_ASK) {
		status_answer(controller, peer, message);
		return;
	}
	if (strcmp(message->job, controller->job) != 0) {
		other_job(controller, peer, message);
		return;
	}
	if (message->type == MESSAGE_HELLO) {
		if (key_fits(event, message->u.hello.role))
			members_hello(controller, peer, message);
		else
			wrong_key(controller, peer, message, event->key_role);
		return;
	}
	if ((unsigned)message->type >= MESSAGE_TYPE_COUNT || !handlers[message->type]) {
		say_noise(controller, "dropped: a %s, which only controllers send",
			  message_type_name(message->type));
		return;
	}
	slot = membership_find(&controller->members, message->from);
	if (!slot || !key_fits(event, slot->who.role)) {
		stranger(controller, peer, message);
		return;
	}
	if (message->epoch != controller->number)
		return; /* stale: of an earlier plan */
	membership_heard(slot, peer, controller->now_ms);
	if (slot->presence == PRESENCE_LEFT && message->type != MESSAGE_LEAVE)
		return;
	if (controller->state == CONTROLLER_FAILED)
		ending_answer(controller, slot, message);
	else if (slot->presence == PRESENCE_LOST)
		gone_answer(controller, slot, message);
	else
		handlers[message->type](controller, slot, message);
}

/* Whoever can break a member's frames must not end the member by it: they are dropped, and what was not
 * answered it says again. One that never says anything else is refused while the job gathers, since then
 * it is of another build, and is found silent while it runs. A stranger is told why, not by which id he is
 * known here. */
static void broken(struct controller *controller, const char *peer, const struct error *what)
{
	struct slot *slot = membership_at(&controller->members, peer);
	bool gathers = controller->state == CONTROLLER_GATHER;
	char who[WORKER_TEXT_BYTES];
	struct error why = *what;

	if (!slot) {
		say_noise(controller, "message of a stranger refused: %s", what->text);
		send_refuse(controller, peer, 0, what);
		return;
	}
	error_wrap(&why, "message of %s refused", slot_text(slot, who));
	say_noise(controller, "%s", why.text);
	if (++slot->unreadable < UNREADABLE_MOST || !gathers)
		return;
	send_refuse(controller, peer, controller->number, &why);
	declarations_drop(controller, slot);
}

/* A controller that was stopped itself has not listened; nor has one that planned. */
static void forgive_own_sleep(struct controller *controller)
{
	const struct controller_options *options = &controller->options;
	uint64_t gap = controller->now_ms - controller->stepped_ms;
	bool planned = controller->planning;

	WEFT_ASSERT_OP(controller->now_ms, >=, controller->stepped_ms);
	controller->planning = false;
	if (!planned && !core_stood_still(gap, options->heartbeat_ms, options->lost_ms))
		return;
	for (uint32_t i = 0; i < controller->members.count; i++) {
		struct slot *slot = &controller->members.slots[i];

		/* beats that came while it planned did not get here; nor did the one that a claim waits for */
		if (planned && slot_claim_open(slot, options->heartbeat_ms))
			slot->claim_ms = controller->now_ms;
		slot->heard_ms = planned ? controller->now_ms : slot->heard_ms + gap;
	}
	if (planned) {
		for (uint32_t i = 0; controller->epoch && i < controller->epoch->count; i++)
			controller->epoch->parties[i].plan_ms += gap;
		controller->patience.since_ms += gap; /* it begins when the plans are out */
		return;
	}
	say(controller, true,
	    "the controller itself stood still for %.1f s; nobody is blamed for it",
	    (double)gap / 1000.0);
}

static void plan(struct controller *controller)
{
	/* it was when the step was asked for, and will be again */
	if (controller->state > CONTROLLER_RUN ||
	    (controller->epoch ? controller->pause.phase != PAUSE_OVER
			       : !declarations_complete(controller))) {
		controller->goes_without = false;
		return;
	}
	controller->planning = true;
	exchange_begin(controller);
	status_plan(controller);
}

static void tick(struct controller *controller)
{
	controller->ticked_ms = controller->now_ms;
	noise_summary(controller);
	losses_silence(controller);
	if (controller->state == CONTROLLER_GATHER && controller->options.engines_min)
		declarations_maybe_plan(controller);
	takeover_maybe_done(controller, false);
	returns_deadlines(controller);
	ending_deadlines(controller);
}

static void take(struct controller *controller, const struct controller_event *event)
{
	switch (event->type) {
	case CONTROLLER_RECEIVED:
		received(controller, event);
		break;
	case CONTROLLER_BROKEN:
		broken(controller, event->peer, event->error);
		break;
	case CONTROLLER_PLAN:
		plan(controller);
		break;
	case CONTROLLER_TICK:
		tick(controller);
		break;
	case CONTROLLER_INTERRUPT:
		controller->restarts_left = 0;
		if (controller->state == CONTROLLER_FAILED)
			controller_exit(controller, &controller->failure);
		else
			ending_fail(controller, NULL, event->error);
		break;
	}
}

/* What holds between two steps, whatever came. */
static void check(const struct controller *controller, const struct controller_event *event)
{
	const struct membership *members = &controller->members;
	const struct epoch *epoch = controller->epoch;
	enum controller_state state = controller->state;

	if (!WEFT_ASSERTS)
		return;
	membership_check(members, controller->now_ms);
	WEFT_ASSERT_OP(controller->number + controller->restarts_left, <=,
		       1 + (uint64_t)controller->options.restarts);
	WEFT_ASSERT_OP(controller->patience.since_ms, <=, controller->now_ms);
	WEFT_ASSERT_OP(controller->ticked_ms, <=, controller->now_ms);
	WEFT_ASSERT_OP(controller->noise_ms, <=, controller->now_ms);
	/* an epoch is there from the plan on, and after a failure until the end */
	WEFT_ASSERT(state != CONTROLLER_GATHER || !epoch);
	WEFT_ASSERT((state != CONTROLLER_EXCHANGE && state != CONTROLLER_RUN) || epoch);
	WEFT_ASSERT(state <= CONTROLLER_RUN || state == CONTROLLER_DONE ||
		    controller->failure.code != ERROR_NONE);
	WEFT_ASSERT(state > CONTROLLER_RUN || members->in[PRESENCE_LOST] == 0 ||
		    controller->departures.count);
	WEFT_ASSERT(state >= CONTROLLER_RUN || controller->exchanges_again ||
		    members->in[PRESENCE_LEFT] == 0);
	/* a tick has handled all that was due */
	WEFT_ASSERT(event->type != CONTROLLER_TICK || state == CONTROLLER_DONE ||
		    controller_deadline_ms(controller) >= controller->now_ms);
	if (!epoch)
		return;
	epoch_check(epoch, controller->now_ms);
	WEFT_ASSERT_OP(epoch->number, ==, controller->number);
	WEFT_ASSERT_OP(epoch->attempt, ==, controller->attempts);
	WEFT_ASSERT_OP(epoch->count, ==, members->count);
	WEFT_ASSERT(state == CONTROLLER_EXCHANGE || !controller->exchanges_again);
	WEFT_ASSERT(state != CONTROLLER_EXCHANGE || !epoch_all_connected(epoch) ||
		    controller->pause.phase == PAUSE_OVER);
	WEFT_ASSERT(state != CONTROLLER_RUN || epoch_all_connected(epoch));
	for (uint32_t i = 0; i < epoch->count; i++)
		WEFT_ASSERT(gone_is(controller, &members->slots[i]) ||
			    epoch->parties[i].worker == members->slots[i].worker);
}

int controller_step(struct controller *controller, const struct controller_event *event,
		    struct actions *actions, struct error *error)
{
	if (event->peer && strlen(event->peer) >= PEER_BYTES)
		return 0; /* no worker of ours: it could not be answered */
	controller->actions = actions;
	controller->now_ms = event->now_ms;
	forgive_own_sleep(controller);
	controller->stepped_ms = event->now_ms;
	if (controller->state != CONTROLLER_DONE)
		take(controller, event);
	if (actions->failed)
		return memory_is_out(error);
	check(controller, event);
	return 0;
}

bool controller_is_member(const struct controller *controller, const char *peer)
{
	return membership_at(&controller->members, peer) != NULL;
}

uint64_t controller_deadline_ms(const struct controller *controller)
{
	uint64_t beat = controller->ticked_ms + controller->options.heartbeat_ms;
	uint64_t other = ending_next_ms(controller);

	return other < beat ? other : beat;
}
