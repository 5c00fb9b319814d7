/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/simulator.h"

#include "common/array.h"
#include "wire/message_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define CONTROLLER UINT32_MAX

enum event_type { EVENT_DELIVER, EVENT_OPENED, EVENT_CONNECTED, EVENT_WRITE, EVENT_SIGNAL };

struct event {
	uint64_t at, order;
	enum event_type type;
	uint32_t to, from;    /* workers, or CONTROLLER */
	uint64_t life;        /* WRITE: incarnation that began it */
	unsigned char *bytes; /* DELIVER */
	size_t length;
	uint64_t version;     /* WRITE, SIGNAL */
	uint32_t peer;        /* WRITE: index into plan peers */
	struct digest digest; /* SIGNAL */
};

struct worker {
	struct simulation_worker what;
	char name[MEMBER_TEXT_BYTES + 8], peer[CONTROLLER_PEER_BYTES];
	bool alive;
	struct worker_core *core;
	struct layout layout;
	struct holding holding;
	struct error error;
	const struct message_plan *plan;
	uint64_t partition_until, version;
	uint64_t arriving;    /* version whose signals are counted */
	uint32_t arrived;
	uint64_t last_at[2];  /* latest delivery to, from: keeps order */
};

struct simulation {
	struct simulation_options options;
	uint64_t now, order, random, incarnations;
	struct controller *controller;
	bool controller_alive, over;
	struct error end;
	ARRAY(struct worker *) workers;
	ARRAY(struct event) events;
	struct text transcript;
};

static void line(struct simulation *simulation, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void line(struct simulation *simulation, const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_format(&simulation->transcript, "[%6llu] %s\n", (unsigned long long)simulation->now,
		    text);
}

static uint32_t dice(struct simulation *simulation, uint32_t sides)
{
	/* xorshift64*: the same on every machine */
	simulation->random ^= simulation->random >> 12;
	simulation->random ^= simulation->random << 25;
	simulation->random ^= simulation->random >> 27;
	return sides ? (uint32_t)((simulation->random * 0x2545F4914F6CDD1Du) >> 33) % sides : 0;
}

/* ---- the network ---- */

static struct event *later(struct simulation *simulation, uint64_t at, enum event_type type)
{
	struct event *event = array_push(&simulation->events);

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
	struct event *event;
	uint64_t at = simulation->now + simulation->options.latency_ms +
		      dice(simulation, simulation->options.jitter_ms + 1);

	if (simulation->now < end->partition_until ||
	    dice(simulation, 100) < simulation->options.drop_percent)
		return;
	if (!simulation->options.reorder && at < end->last_at[to_controller])
		at = end->last_at[to_controller];
	end->last_at[to_controller] = at;
	event = later(simulation, at, EVENT_DELIVER);
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

static void send(struct simulation *simulation, uint32_t worker, bool to_controller,
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
		line(simulation, "%s > %s", end->name, text);
	else if (message->type != MESSAGE_HEARTBEAT)
		line(simulation, "controller > %s: %s", end->name, text);
	if (to_controller && end->what.other_wire)
		other_wire(bytes, length);
	transmit(simulation, worker, to_controller, bytes, length);
	if (dice(simulation, 100) < simulation->options.double_percent)
		transmit(simulation, worker, to_controller, bytes, length);
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

static void check(struct simulation *simulation);

static void controller_does(struct simulation *simulation, struct controller_event *event)
{
	struct controller_actions actions = {0};
	struct error error;

	event->now_ms = simulation->now;
	if (controller_step(simulation->controller, event, &actions, &error))
		fail_msg("controller: %s", error.text);
	for (size_t i = 0; i < actions.count; i++) {
		struct controller_action *action = &actions.items[i];

		switch (action->type) {
		case CONTROLLER_SEND:
			send(simulation, worker_of(simulation, action->peer), false,
			     &action->message);
			break;
		case CONTROLLER_LOG:
			line(simulation, "controller: %s", action->line);
			break;
		case CONTROLLER_TABLE:
			if (table_prove(action->table, &error))
				fail_msg("an unproved table left the core: %s", error.text);
			break;
		case CONTROLLER_EXIT:
			assert_false(simulation->over);
			simulation->over = true;
			simulation->end = action->error;
			line(simulation, "controller exits %d",
			     error_exit_code(action->error.code));
			break;
		}
	}
	controller_actions_clear(&actions);
	if (simulation->over) {
		simulation->controller_alive = false;
		controller_free(&simulation->controller);
	}
	check(simulation);
}

void simulation_controller_start(struct simulation *simulation)
{
	const struct simulation_options *options = &simulation->options;
	struct controller_options core = {
		.job = "demo",
		.policy = options->policy,
		.heartbeat_ms = 500,
		.lost_ms = 5000,
		.join_timeout_ms = options->join_timeout_ms,
		.exchange_timeout_ms = 10000,
		.update_timeout_ms = 30000,
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
	line(simulation, "controller starts");
}

void simulation_controller_kill(struct simulation *simulation)
{
	if (!simulation->controller_alive)
		return;
	simulation->controller_alive = false;
	controller_free(&simulation->controller);
	line(simulation, "controller is killed");
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

/* ---- a worker's shell ---- */

static void connect_all(struct simulation *simulation, struct worker *worker,
			const struct message_peers *peers)
{
	for (size_t i = 0; i < peers->peer_count; i++) {
		const struct peer_endpoints *peer = &peers->peers[i];
		char expected[96], name[MEMBER_TEXT_BYTES];

		snprintf(expected, sizeof(expected), "%s %llx > %s",
			 member_text(peer->member, name), (unsigned long long)peer->incarnation,
			 worker->name);
		assert_int_equal(peer->record_length, strlen(expected));
		assert_memory_equal(peer->record, expected, strlen(expected));
	}
	(void)simulation;
}

static void worker_does(struct simulation *simulation, uint32_t index,
			struct worker_event *event)
{
	struct worker *worker = simulation->workers.items[index];
	struct worker_actions actions = {0};
	struct error error;

	event->now_ms = simulation->now;
	if (worker_core_step(worker->core, event, &actions, &error))
		fail_msg("%s: %s", worker->name, error.text);
	for (size_t i = 0; i < actions.count; i++) {
		struct worker_action *action = &actions.items[i];

		switch (action->type) {
		case WORKER_ACTION_SEND:
			send(simulation, index, true, &action->message);
			break;
		case WORKER_ACTION_LOG:
			line(simulation, "%s: %s", worker->name, action->line);
			break;
		case WORKER_ACTION_OPEN:
			worker->plan = action->plan;
			later(simulation, simulation->now + simulation->options.open_ms,
			      EVENT_OPENED)->to = index;
			break;
		case WORKER_ACTION_CONNECT:
			connect_all(simulation, worker, action->peers);
			later(simulation, simulation->now + simulation->options.connect_ms,
			      EVENT_CONNECTED)->to = index;
			break;
		case WORKER_ACTION_STATE:
			if (action->state == WORKER_FAILED) {
				worker->error = action->error;
				line(simulation, "%s fails: %s", worker->name, action->error.text);
			} else {
				line(simulation, "%s is %s", worker->name,
				     worker_state_name(action->state));
			}
			break;
		}
	}
	worker_actions_clear(&actions);
	check(simulation);
}

static void opened(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	const struct message_plan *plan = worker->plan;
	struct message message = {.type = MESSAGE_ENDPOINTS};
	struct message_endpoints *endpoints = &message.u.endpoints;
	struct worker_event event = {.type = WORKER_EVENT_ENDPOINTS, .endpoints = endpoints};
	char name[MEMBER_TEXT_BYTES];

	endpoints->attempt = plan->attempt;
	endpoints->records = memory_zalloc(plan->peer_count, sizeof(*endpoints->records));
	for (size_t i = 0; i < plan->peer_count; i++) {
		struct endpoint_record *record = &endpoints->records[i];

		record->peer = plan->peers[i].member;
		record->bytes = (unsigned char *)memory_format(
			"%s %llx > %s", worker->name, (unsigned long long)worker->what.incarnation,
			member_text(record->peer, name));
		record->length = strlen((char *)record->bytes);
		endpoints->record_count++;
	}
	if (worker->what.role == ROLE_INFERENCE) {
		endpoints->regions = memory_zalloc(1, sizeof(*endpoints->regions));
		endpoints->region_count = 1;
		endpoints->regions[0].bytes = (unsigned char *)memory_string("region");
		endpoints->regions[0].length = 6;
		endpoints->copies = 1;
		endpoints->place_count = worker->layout.param_count;
		endpoints->places = memory_zalloc(endpoints->place_count,
						  sizeof(*endpoints->places));
	}
	worker_does(simulation, index, &event);
	message_fini(&message);
}

static void build_holding(struct simulation *simulation, struct worker *worker)
{
	const struct simulation_options *options = &simulation->options;
	struct train_spec train;
	struct infer_spec infer;
	uint32_t extra = worker->what.holds_unwanted ? 1 : 0;

	assert_int_equal(train_spec_parse(&train, options->train, NULL), 0);
	assert_int_equal(infer_spec_parse(&infer, options->infer, NULL), 0);
	holding_init(&worker->holding);
	for (uint32_t i = 0; i < options->tensors + extra; i++) {
		uint64_t shape[2] = {infer.tp * 4, worker->what.other_shape && i == 0 ? 8 : 4};
		bool wanted = i < options->tensors;
		uint32_t stage = i * train.pp / (options->tensors + extra);
		struct box box = box_whole(2, shape);
		char name[32];
		int64_t tensor;

		if (stage != train_stage(&train, worker->what.rank % train.world))
			continue;
		snprintf(name, sizeof(name), wanted ? "layer.%u.weight" : "mtp.%u.weight", i);
		tensor = holding_add_tensor(&worker->holding, name, DTYPE_F32, 2, shape, i, NULL);
		assert_true(tensor >= 0);
		assert_int_equal(holding_add(&worker->holding, (uint32_t)tensor, &box, NULL), 0);
	}
	assert_int_equal(holding_finish(&worker->holding, NULL), 0);
}

static void build_layout(struct simulation *simulation, struct worker *worker)
{
	const struct simulation_options *options = &simulation->options;
	uint32_t extra = worker->what.needs_unsourced ? 1 : 0;
	struct infer_spec infer;

	assert_int_equal(infer_spec_parse(&infer, options->infer, NULL), 0);
	layout_init(&worker->layout);
	for (uint32_t i = 0; i < options->tensors + extra; i++) {
		uint64_t whole[2] = {infer.tp * 4, 4}, local[2] = {4, 4};
		uint64_t row = (worker->what.rank % infer.tp) * 4u;
		struct piece piece = {.offset = 0, .bytes = 64};
		char name[32], param[32];

		snprintf(name, sizeof(name),
			 i < options->tensors ? "layer.%u.weight" : "lost.%u.weight", i);
		snprintf(param, sizeof(param), "engine.%u", i);
		piece.src = box_whole(2, whole);
		piece.src.lo[0] = row;
		piece.src.hi[0] = row + 4;
		piece.tensor = (uint32_t)layout_add_tensor(&worker->layout, name, DTYPE_F32, 2,
							   whole, NULL);
		piece.param = (uint32_t)layout_add_param(&worker->layout, param, DTYPE_F32, 2,
							 local, NULL);
		assert_int_equal(layout_add_piece(&worker->layout, &piece, NULL), 0);
	}
	assert_int_equal(layout_finish(&worker->layout, NULL), 0);
}

static void tick_worker(struct simulation *simulation, uint32_t index)
{
	struct worker_event event = {.type = WORKER_EVENT_TICK};

	worker_does(simulation, index, &event);
}

uint32_t simulation_start(struct simulation *simulation, const struct simulation_worker *what)
{
	struct worker **place = array_push(&simulation->workers);
	struct worker *worker = memory_zalloc(1, sizeof(*worker));
	uint32_t index = (uint32_t)simulation->workers.count - 1;
	bool trainer = what->role == ROLE_TRAINER;
	struct worker_core_options options = {.controller = "tcp://head:29600"};
	struct error error;

	assert_non_null(place);
	assert_non_null(worker);
	*place = worker;
	worker->what = *what;
	if (!worker->what.incarnation)
		worker->what.incarnation = 0x100 + index;
	worker->alive = true;
	member_text((struct member){what->role, what->rank}, worker->name);
	snprintf(worker->peer, sizeof(worker->peer), "%c%u-%llx", trainer ? 't' : 'i', what->rank,
		 (unsigned long long)worker->what.incarnation);
	if (trainer)
		build_holding(simulation, worker);
	else
		build_layout(simulation, worker);
	options.job = what->job ? what->job : "demo";
	options.hello = (struct message_hello){
		.role = what->role, .rank = what->rank, .incarnation = worker->what.incarnation,
		.host = (char *)(what->host ? what->host : "a"),
		.host_id = (char *)(what->boot ? what->boot : "boot-a"),
		.pid = 1000 + index};
	options.declare = (struct message_declare){
		.model = (char *)(what->model ? what->model : "tiny"),
		.train = (char *)simulation->options.train,
		.infer = (char *)simulation->options.infer,
		.digest = trainer ? holding_digest(&worker->holding)
				  : layout_digest(&worker->layout),
		.mapped = true, .registered = true,
		.transport = (char *)(what->transport ? what->transport : "shm")};
	options.layout = trainer ? NULL : &worker->layout;
	options.holding = trainer ? &worker->holding : NULL;
	options.join_timeout_ms = simulation->options.join_timeout_ms;
	if (worker_core_new(&worker->core, &options, simulation->now, &error))
		fail_msg("%s: %s", worker->name, error.text);
	tick_worker(simulation, index);
	return index;
}

void simulation_start_all(struct simulation *simulation)
{
	struct simulation_worker what = {0};
	struct train_spec train;
	struct infer_spec infer;

	assert_int_equal(train_spec_parse(&train, simulation->options.train, NULL), 0);
	assert_int_equal(infer_spec_parse(&infer, simulation->options.infer, NULL), 0);
	for (what.rank = 0; what.rank < train.world; what.rank++)
		simulation_start(simulation, &what);
	what.role = ROLE_INFERENCE;
	for (what.rank = 0; what.rank < infer_ranks(&infer); what.rank++)
		simulation_start(simulation, &what);
}

void simulation_kill(struct simulation *simulation, uint32_t worker)
{
	struct worker *victim = simulation->workers.items[worker];

	if (!victim->alive)
		return;
	victim->alive = false;
	line(simulation, "%s is killed", victim->name);
}

void simulation_leave(struct simulation *simulation, uint32_t worker, bool done)
{
	struct worker_event event = {.type = WORKER_EVENT_LEAVE, .done = done};

	if (simulation->workers.items[worker]->alive)
		worker_does(simulation, worker, &event);
}

void simulation_leave_all(struct simulation *simulation)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		simulation_leave(simulation, i, true);
}

void simulation_fail(struct simulation *simulation, uint32_t worker, const char *why)
{
	struct error error;
	struct worker_event event = {.type = WORKER_EVENT_FAILURE, .error = &error};

	error_set(&error, ERROR_TRANSPORT, "%s", why);
	worker_does(simulation, worker, &event);
}

void simulation_partition(struct simulation *simulation, uint32_t worker, uint64_t until_ms)
{
	simulation->workers.items[worker]->partition_until = until_ms;
	line(simulation, "%s is cut off", simulation->workers.items[worker]->name);
}

/* ---- the shadow of the data plane ---- */

static void ended(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker_event event = {.type = WORKER_EVENT_VERSION, .version = version};
	struct worker *worker = simulation->workers.items[index];

	worker->version = version;
	line(simulation, "%s %s version %llu", worker->name,
	     worker->what.role == ROLE_TRAINER ? "ends" : "publishes",
	     (unsigned long long)version);
	worker_does(simulation, index, &event);
}

static bool runs(const struct worker *worker)
{
	return worker->alive && worker_core_state(worker->core) == WORKER_RUN;
}

static void schedule_write(struct simulation *simulation, uint32_t index, uint32_t peer,
			   uint64_t version)
{
	struct event *event = later(simulation, simulation->now + simulation->options.write_ms,
				    EVENT_WRITE);

	event->to = index;
	event->peer = peer;
	event->version = version;
}

void simulation_update(struct simulation *simulation, uint64_t version)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		struct worker *worker = simulation->workers.items[i];

		if (worker->what.role != ROLE_TRAINER || !runs(worker))
			continue;
		line(simulation, "%s begins version %llu", worker->name,
		     (unsigned long long)version);
		if (worker->plan->peer_count)
			schedule_write(simulation, i, 0, version);
		else
			ended(simulation, i, version);
	}
}

static uint32_t find_running(struct simulation *simulation, struct member who)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		struct worker *worker = simulation->workers.items[i];

		if (worker->what.role == who.role && worker->what.rank == who.rank && runs(worker))
			return i;
	}
	return CONTROLLER;
}

static void write_one(struct simulation *simulation, const struct event *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	struct event *signal;
	uint32_t target;

	if (!runs(worker))
		return;
	target = find_running(simulation, worker->plan->peers[event->peer].member);
	if (target != CONTROLLER) {
		signal = later(simulation, simulation->now + 1, EVENT_SIGNAL);
		signal->to = target;
		signal->from = event->to;
		signal->version = event->version;
		signal->digest = worker->plan->digest;
	}
	if (event->peer + 1 < worker->plan->peer_count)
		schedule_write(simulation, event->to, event->peer + 1, event->version);
	else
		ended(simulation, event->to, event->version);
}

static void signalled(struct simulation *simulation, const struct event *event)
{
	struct worker *worker = simulation->workers.items[event->to];

	if (!runs(worker))
		return;
	assert_true(digest_equal(event->digest, worker->plan->digest));
	if (worker->arriving != event->version) {
		assert_int_equal(worker->arriving, worker->version);
		worker->arriving = event->version;
		worker->arrived = 0;
	}
	if (++worker->arrived == worker->plan->peer_count)
		ended(simulation, event->to, event->version);
}

/* ---- what must hold after every step ---- */

static void check(struct simulation *simulation)
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
		if (!runs(worker))
			continue;
		assert_non_null(worker->plan);
		if (first) {
			assert_true(digest_equal(first->plan->digest, worker->plan->digest));
		}
		first = worker;
		for (size_t k = 0; k < i; k++) {
			const struct worker *other = simulation->workers.items[k];

			if (runs(other) && other->what.role == worker->what.role)
				assert_int_not_equal(other->what.rank, worker->what.rank);
		}
	}
	if (simulation->over && simulation->end.code == ERROR_NONE)
		assert_null(first);
}

/* ---- time ---- */

static void deliver(struct simulation *simulation, struct event *event)
{
	struct message message;
	struct error error;
	int rc;

	if (event->to == CONTROLLER ? !simulation->controller_alive
				    : !simulation->workers.items[event->to]->alive)
		return;
	rc = message_decode(&message, event->bytes, event->length, &error);
	if (event->to == CONTROLLER) {
		struct controller_event in = {
			.type = rc ? CONTROLLER_BROKEN : CONTROLLER_RECEIVED,
			.peer = simulation->workers.items[event->from]->peer,
			.message = &message, .error = &error};

		controller_does(simulation, &in);
	} else {
		struct worker_event in = {
			.type = rc ? WORKER_EVENT_BROKEN : WORKER_EVENT_RECEIVED,
			.message = &message, .error = &error};

		assert_int_equal(rc, 0);
		worker_does(simulation, event->to, &in);
	}
	message_fini(&message);
}

static void happen(struct simulation *simulation, struct event *event)
{
	struct worker_event connected = {.type = WORKER_EVENT_CONNECTED};
	bool alive = event->to == CONTROLLER || simulation->workers.items[event->to]->alive;

	switch (event->type) {
	case EVENT_DELIVER:
		deliver(simulation, event);
		break;
	case EVENT_OPENED:
		if (alive)
			opened(simulation, event->to);
		break;
	case EVENT_CONNECTED:
		if (alive)
			worker_does(simulation, event->to, &connected);
		break;
	case EVENT_WRITE:
		write_one(simulation, event);
		break;
	case EVENT_SIGNAL:
		signalled(simulation, event);
		break;
	}
	memory_free(event->bytes);
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

static bool take_due(struct simulation *simulation, struct event *out)
{
	size_t best = SIZE_MAX;

	for (size_t i = 0; i < simulation->events.count; i++) {
		const struct event *event = &simulation->events.items[i];
		const struct event *first = best == SIZE_MAX ? NULL
							     : &simulation->events.items[best];

		if (event->at <= simulation->now &&
		    (!first || event->at < first->at ||
		     (event->at == first->at && event->order < first->order)))
			best = i;
	}
	if (best == SIZE_MAX)
		return false;
	*out = simulation->events.items[best];
	simulation->events.items[best] =
		simulation->events.items[--simulation->events.count];
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
		tick_worker(simulation, i);
		assert_true(worker_core_deadline_ms(worker->core) > simulation->now);
	}
}

static bool advance(struct simulation *simulation, uint64_t until_ms)
{
	uint64_t next = next_time(simulation);
	struct event event;

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

bool simulation_run_to(struct simulation *simulation, enum worker_state state,
		       uint64_t until_ms)
{
	while (!all_in(simulation, state))
		if (!advance(simulation, until_ms))
			return all_in(simulation, state);
	return true;
}

uint64_t simulation_now(const struct simulation *simulation)
{
	return simulation->now;
}

/* ---- looking at it ---- */

uint32_t simulation_workers(const struct simulation *simulation)
{
	return (uint32_t)simulation->workers.count;
}

bool simulation_alive(const struct simulation *simulation, uint32_t worker)
{
	return simulation->workers.items[worker]->alive;
}

enum worker_state simulation_state(const struct simulation *simulation, uint32_t worker)
{
	return worker_core_state(simulation->workers.items[worker]->core);
}

const struct error *simulation_error(const struct simulation *simulation, uint32_t worker)
{
	return &simulation->workers.items[worker]->error;
}

uint64_t simulation_version(const struct simulation *simulation, uint32_t worker)
{
	return simulation->workers.items[worker]->version;
}

const struct message_plan *simulation_plan(const struct simulation *simulation,
					   uint32_t worker)
{
	return simulation->workers.items[worker]->plan;
}

const char *simulation_transcript(const struct simulation *simulation)
{
	return text_string(&simulation->transcript);
}

void simulation_expect(const struct simulation *simulation, const char *lines)
{
	const char *at = text_string(&simulation->transcript);

	while (*lines) {
		size_t length = strcspn(lines, "\n");
		bool found = false, rest = length && lines[length - 1] == '*';

		while (*at && !found) {
			size_t here = strcspn(at, "\n");

			found = rest ? here >= length - 1 && memcmp(at, lines, length - 1) == 0
				     : here == length && memcmp(at, lines, length) == 0;
			at += here + (at[here] == '\n');
		}
		if (!found) {
			print_message("%s", text_string(&simulation->transcript));
			fail_msg("not in the transcript, or out of order:\n%.*s", (int)length,
				 lines);
		}
		lines += length + (lines[length] == '\n');
	}
}

void simulation_expect_not(const struct simulation *simulation, const char *part)
{
	if (!strstr(text_string(&simulation->transcript), part))
		return;
	print_message("%s", text_string(&simulation->transcript));
	fail_msg("in the transcript: %s", part);
}

struct simulation *simulation_new(const struct simulation_options *options)
{
	struct simulation *simulation = memory_zalloc(1, sizeof(*simulation));

	assert_non_null(simulation);
	simulation->options = *options;
	simulation->random = options->seed * 0x9E3779B97F4A7C15u + 1;
#define DEFAULT(member, value)                                                             \
	if (!simulation->options.member)                                                   \
	simulation->options.member = (value)
	DEFAULT(train, "world=2,source=gathered");
	DEFAULT(infer, "engines=1,tp=2");
	DEFAULT(policy, "greedy");
	DEFAULT(latency_ms, 1);
	DEFAULT(open_ms, 2);
	DEFAULT(connect_ms, 2);
	DEFAULT(write_ms, 10);
	DEFAULT(join_timeout_ms, 20000);
	DEFAULT(tensors, 3);
#undef DEFAULT
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
		memory_free(worker);
	}
	array_free(&simulation->workers);
	for (size_t i = 0; i < simulation->events.count; i++)
		memory_free(simulation->events.items[i].bytes);
	array_free(&simulation->events);
	text_fini(&simulation->transcript);
	memory_free(simulation);
	*out = NULL;
}
