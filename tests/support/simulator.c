/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/simulator_wait.h"

#include "wire/message_text.h"

void simulation_line(struct simulation *simulation, const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_format(&simulation->transcript, "[%6llu] %s\n", (unsigned long long)simulation->now,
		    text);
}

uint32_t simulation_dice(struct simulation *simulation, uint32_t sides)
{
	/* xorshift64*: the same on every machine */
	simulation->random ^= simulation->random >> 12;
	simulation->random ^= simulation->random << 25;
	simulation->random ^= simulation->random >> 27;
	return sides ? (uint32_t)((simulation->random * 0x2545F4914F6CDD1Du) >> 33) % sides : 0;
}

/* ---- the network ---- */

struct happening *simulation_later(struct simulation *simulation, uint64_t at, enum event_type type)
{
	struct happening *event = array_push(&simulation->events);

	assert_non_null(event);
	event->at = at;
	event->order = simulation->order++;
	event->type = type;
	return event;
}

static void transmit(struct simulation *simulation, uint32_t worker, bool to_controller,
		     const unsigned char *bytes, size_t length)
{
	struct worker *end = simulation->workers.items[worker];
	struct happening *event;
	uint64_t at = simulation->now + simulation->options.latency_ms +
		      simulation_dice(simulation, simulation->options.jitter_ms + 1);

	if (simulation->now < end->partition_until ||
	    simulation_dice(simulation, 100) < simulation->options.drop_percent)
		return;
	if (!simulation->options.reorder && at < end->last_at[to_controller])
		at = end->last_at[to_controller];
	end->last_at[to_controller] = at;
	event = simulation_later(simulation, at, EVENT_DELIVER);
	event->to = to_controller ? CONTROLLER : worker;
	event->from = to_controller ? worker : CONTROLLER;
	event->bytes = memory_alloc(length);
	event->length = length;
	assert_non_null(event->bytes);
	memcpy(event->bytes, bytes, length);
}

static void other_wire(unsigned char *bytes, size_t length)
{
	static const unsigned char key[] = {0xa4, 'w', 'i', 'r', 'e', WIRE_VERSION};

	for (size_t i = 0; i + sizeof(key) <= length; i++)
		if (memcmp(bytes + i, key, sizeof(key)) == 0)
			bytes[i + sizeof(key) - 1]++;
}

void simulation_send(struct simulation *simulation, uint32_t worker, bool to_controller,
		     const struct message *message)
{
	struct worker *end = simulation->workers.items[worker];
	char text[MESSAGE_TEXT_BYTES];
	unsigned char *bytes;
	struct error error;
	size_t length;

	if (message_encode(message, &bytes, &length, &error))
		fail_msg("%s does not encode: %s", message_type_name(message->type), error.text);
	message_text(message, text, sizeof(text));
	if (message->type != MESSAGE_HEARTBEAT && to_controller)
		simulation_line(simulation, "%s > %s", end->name, text);
	else if (message->type != MESSAGE_HEARTBEAT)
		simulation_line(simulation, "controller > %s: %s", end->name, text);
	if (to_controller && end->what.other_wire)
		other_wire(bytes, length);
	transmit(simulation, worker, to_controller, bytes, length);
	if (simulation_dice(simulation, 100) < simulation->options.double_percent)
		transmit(simulation, worker, to_controller, bytes, length);
	if (message->type != MESSAGE_HEARTBEAT)
		end->said_bytes += length;
	memory_free(bytes);
}

/* ---- the controller's shell ---- */

static uint32_t worker_of(struct simulation *simulation, const char *peer)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		if (strcmp(simulation->workers.items[i]->peer, peer) == 0)
			return i;
	fail_msg("the controller answers %s, whom nobody knows", peer);
	return 0;
}

static void controller_does(struct simulation *simulation, struct controller_event *event)
{
	struct controller_event plan = {.type = CONTROLLER_PLAN};
	struct actions actions = {0};
	struct error error;
	bool due = false;

	event->now_ms = simulation->now;
	if (controller_step(simulation->controller, event, &actions, &error))
		fail_msg("controller: %s", error.text);
	for (size_t i = 0; i < actions.count; i++) {
		struct action *action = &actions.items[i];

		switch ((enum controller_action_type)action->type) {
		case CONTROLLER_SEND:
			simulation_send(simulation, worker_of(simulation, action->peer), false,
					&action->message);
			break;
		case CONTROLLER_PLAN_DUE:
			due = true;
			break;
		case CONTROLLER_LOG:
			simulation_line(simulation, "controller: %s", action->line);
			break;
		case CONTROLLER_TABLE:
			if (table_prove(action->table, &error))
				fail_msg("an unproved table left the core: %s", error.text);
			break;
		case CONTROLLER_EXIT:
			assert_false(simulation->over);
			simulation->over = true;
			simulation->end = action->error;
			simulation_line(simulation, "controller exits %d",
					error_exit_code(action->error.code));
			break;
		}
	}
	actions_clear(&actions);
	if (simulation->over) {
		simulation->controller_alive = false;
		controller_free(&simulation->controller);
	}
	simulation_check(simulation);
	if (due && simulation->controller)
		controller_does(simulation, &plan);
}

void simulation_controller_start(struct simulation *simulation)
{
	const struct simulation_options *options = &simulation->options;
	struct controller_options core = {
		.job = "demo",
		.policy = options->policy,
		.commit = options->commit,
		.on_loss = options->on_loss,
		.catch_up_from = options->catch_up_from,
		.orphan_ms = options->orphan_ms,
		.engines_min = options->engines_min,
		.heartbeat_ms = 500,
		.lost_ms = 5000,
		.join_timeout_ms = options->join_timeout_ms,
		.exchange_timeout_ms = 10000,
		.update_timeout_ms = UPDATE_TIMEOUT_MS,
		.restarts = options->restarts,
		.incarnation = 0xc000 + simulation->incarnations++,
	};
	struct error error;

	if (train_spec_parse(&core.train, options->train, &error) ||
	    infer_spec_parse(&core.infer, options->infer, &error) ||
	    controller_new(&simulation->controller, &core, simulation->now, &error))
		fail_msg("controller: %s", error.text);
	simulation->controller_alive = true;
	simulation->over = false;
	simulation_line(simulation, "controller starts");
}

void simulation_controller_kill(struct simulation *simulation)
{
	if (!simulation->controller_alive)
		return;
	simulation->controller_alive = false;
	controller_free(&simulation->controller);
	simulation_line(simulation, "controller is killed");
}

bool simulation_controller_over(const struct simulation *simulation, struct error *error)
{
	if (simulation->over && error)
		*error = simulation->end;
	return simulation->over;
}

struct controller *simulation_controller(struct simulation *simulation)
{
	return simulation->controller;
}

/* ---- what must hold after every step ---- */

void simulation_check(struct simulation *simulation)
{
	const struct worker *first = NULL;

	for (size_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		if (!worker->core)
			continue;
		if (worker_core_state(worker->core) == WORKER_FAILED) {
			assert_true(error_known(worker->error.code));
			assert_true(worker->error.text[0] != '\0');
		}
		if (!worker_runs(worker))
			continue;
		assert_non_null(worker->plan);
		first = worker;
		for (size_t k = 0; k < i; k++) {
			const struct worker *other = simulation->workers.items[k];

			/* one that was cut off does not know yet of the plan without it */
			if (!worker_runs(other) || other->plan->attempt != worker->plan->attempt ||
			    !digest_equal(other->plan->digest, worker->plan->digest))
				continue;
			assert_false(other->what.role == worker->what.role &&
				     other->what.rank == worker->what.rank);
		}
	}
	if (simulation->over && simulation->end.code == ERROR_NONE)
		assert_null(first);
}

/* ---- time ---- */

static void deliver(struct simulation *simulation, struct happening *event)
{
	struct message message;
	struct error error;
	int rc;

	if (event->to == CONTROLLER ? !simulation->controller_alive
				    : !simulation->workers.items[event->to]->alive)
		return;
	rc = message_decode(&message, event->bytes, event->length, &error);
	if (event->to == CONTROLLER) {
		struct controller_event in = {.type = rc ? CONTROLLER_BROKEN : CONTROLLER_RECEIVED,
					      .peer = simulation->workers.items[event->from]->peer,
					      .message = &message,
					      .error = &error};

		controller_does(simulation, &in);
	} else {
		struct worker_event in = {.type = rc ? WORKER_EVENT_BROKEN : WORKER_EVENT_RECEIVED,
					  .message = &message,
					  .error = &error};

		assert_int_equal(rc, 0);
		worker_does(simulation, event->to, &in);
	}
	message_fini(&message);
}

static void happen(struct simulation *simulation, struct happening *event)
{
	bool alive = event->to == CONTROLLER || simulation->workers.items[event->to]->alive;

	switch (event->type) {
	case EVENT_DELIVER:
		deliver(simulation, event);
		break;
	case EVENT_OPENED:
		if (alive)
			worker_opened(simulation, event->to);
		break;
	case EVENT_CONNECTED:
		if (alive)
			worker_connected(simulation, event->to, event->peer);
		break;
	case EVENT_WRITE:
		worker_writes(simulation, event);
		break;
	case EVENT_SIGNAL:
		worker_signalled(simulation, event);
		break;
	case EVENT_COPY:
		worker_copied(simulation, event);
		break;
	case EVENT_SAID:
		pairs_hear(simulation, event);
		break;
	case EVENT_LOOKS:
		if (alive && simulation->workers.items[event->to]->sending)
			send_acts(simulation, event->to);
		else if (alive)
			wait_acts(simulation, event->to);
		break;
	}
	memory_free(event->bytes);
	if (simulation->together)
		meet_notes(simulation);
}

static uint64_t next_time(const struct simulation *simulation)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < simulation->events.count; i++)
		if (simulation->events.items[i].at < next)
			next = simulation->events.items[i].at;
	if (simulation->controller_alive && controller_deadline_ms(simulation->controller) < next)
		next = controller_deadline_ms(simulation->controller);
	for (size_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		if (worker->alive && worker_core_deadline_ms(worker->core) < next)
			next = worker_core_deadline_ms(worker->core);
	}
	return next;
}

static bool take_due(struct simulation *simulation, struct happening *out)
{
	size_t best = SIZE_MAX;

	for (size_t i = 0; i < simulation->events.count; i++) {
		const struct happening *event = &simulation->events.items[i];
		const struct happening *first =
			best == SIZE_MAX ? NULL : &simulation->events.items[best];

		if (event->at <= simulation->now &&
		    (!first || event->at < first->at ||
		     (event->at == first->at && event->order < first->order)))
			best = i;
	}
	if (best == SIZE_MAX)
		return false;
	*out = simulation->events.items[best];
	simulation->events.items[best] = simulation->events.items[--simulation->events.count];
	return true;
}

static void tick_due(struct simulation *simulation)
{
	struct controller_event tick = {.type = CONTROLLER_TICK};

	if (simulation->controller_alive &&
	    controller_deadline_ms(simulation->controller) <= simulation->now) {
		controller_does(simulation, &tick);
		/* a deadline that stays in the past would make the shell spin */
		assert_true(!simulation->controller_alive ||
			    controller_deadline_ms(simulation->controller) > simulation->now);
	}
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		struct worker *worker = simulation->workers.items[i];

		if (!worker->alive || worker_core_deadline_ms(worker->core) > simulation->now)
			continue;
		worker_tick(simulation, i);
		assert_true(worker_core_deadline_ms(worker->core) > simulation->now);
	}
}

static bool advance(struct simulation *simulation, uint64_t until_ms)
{
	uint64_t next = next_time(simulation);
	struct happening event;

	if (next > until_ms) {
		simulation->now = until_ms;
		return false;
	}
	if (next > simulation->now)
		simulation->now = next;
	while (take_due(simulation, &event))
		happen(simulation, &event);
	tick_due(simulation);
	return true;
}

void simulation_run(struct simulation *simulation, uint64_t until_ms)
{
	while (advance(simulation, until_ms))
		;
}

static bool all_in(const struct simulation *simulation, enum worker_state state)
{
	bool all = true;

	for (size_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		all &= !worker->alive || worker_core_state(worker->core) == state;
	}
	return all;
}

bool simulation_run_to(struct simulation *simulation, enum worker_state state, uint64_t until_ms)
{
	while (!all_in(simulation, state))
		if (!advance(simulation, until_ms))
			return all_in(simulation, state);
	return true;
}

void simulation_run_for(struct simulation *simulation, uint64_t ms)
{
	simulation_run(simulation, simulation->now + ms);
}

uint64_t simulation_now(const struct simulation *simulation)
{
	return simulation->now;
}

/* ---- life ---- */

/* What has to be told may be so late; and who was to tell it may die, which is seen later. */
static void promise_together(struct simulation *simulation)
{
	struct infer_spec infer;

	assert_int_equal(infer_spec_parse(&infer, simulation->options.infer, NULL), 0);
	simulation->history.engine_ranks = infer.tp;
	simulation->history.in_place = !simulation->options.shadow;
	if (simulation->options.words_written)
		simulation->history.moment_ms = 2 * (1 + simulation->options.said_ms) + SEEN_MS;
}

struct simulation *simulation_new(const struct simulation_options *options)
{
	struct simulation *simulation = memory_zalloc(1, sizeof(*simulation));

	assert_non_null(simulation);
	simulation->options = *options;
	simulation->random = options->seed * 0x9E3779B97F4A7C15u + 1;
#define DEFAULT(member, value)           \
	if (!simulation->options.member) \
	simulation->options.member = (value)
	DEFAULT(train, "world=2,source=gathered");
	DEFAULT(infer, "engines=1,tp=2");
	DEFAULT(policy, "greedy");
	DEFAULT(commit, "rank");
	DEFAULT(latency_ms, 1);
	DEFAULT(open_ms, 2);
	DEFAULT(connect_ms, 2);
	DEFAULT(write_ms, 10);
	DEFAULT(join_timeout_ms, 20000);
	DEFAULT(tensors, 3);
#undef DEFAULT
	simulation->together = strcmp(simulation->options.commit, "rank") != 0;
	if (simulation->together)
		promise_together(simulation);
	return simulation;
}

void simulation_free(struct simulation **out)
{
	struct simulation *simulation = *out;

	if (!simulation)
		return;
	controller_free(&simulation->controller);
	for (size_t i = 0; i < simulation->workers.count; i++) {
		struct worker *worker = simulation->workers.items[i];

		worker_core_free(&worker->core);
		layout_fini(&worker->layout);
		holding_fini(&worker->holding);
		array_free(&worker->links);
		memory_free(worker->ends);
		if (worker->sending)
			send_closes(worker);
		memory_free(worker->sending);
		memory_free(worker->waiting);
		memory_free(worker);
	}
	array_free(&simulation->workers);
	for (size_t i = 0; i < simulation->events.count; i++)
		memory_free(simulation->events.items[i].bytes);
	array_free(&simulation->events);
	for (size_t i = 0; i < simulation->words.count; i++)
		memory_free(simulation->words.items[i]);
	array_free(&simulation->words);
	text_fini(&simulation->transcript);
	array_free(&simulation->history.facts);
	memory_free(simulation);
	*out = NULL;
}
