/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/simulator_parts.h"

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

static struct fact *note(struct simulation *simulation, const struct worker *worker,
			 enum fact_kind kind, uint64_t version)
{
	struct fact *fact = array_push(&simulation->history.facts);

	assert_non_null(fact);
	*fact = (struct fact){.kind = kind,
			      .at_ms = simulation->now,
			      .who = {worker->what.role, worker->what.rank},
			      .process = worker->what.incarnation,
			      .version = version};
	return fact;
}

static void note_plan(struct simulation *simulation, const struct worker *worker)
{
	struct fact *fact = note(simulation, worker, FACT_PLANNED, 0);

	fact->digest = worker->plan->digest;
	for (size_t p = 0; p < worker->plan->peer_count; p++)
		if (worker->plan->peers[p].member.role == ROLE_TRAINER)
			fact->trainers |= 1ull << worker->plan->peers[p].member.rank;
}

static void begin(struct simulation *simulation, uint32_t index, uint64_t version);
static void count(struct simulation *simulation, uint32_t index);
static void send_once_more(struct simulation *simulation, uint32_t index, uint64_t version);

/* Of what all others have begun a rank has nothing, and who was to send it is gone. */
static void give_up(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];

	if (worker->arrived || !worker->gone || version <= worker->version ||
	    version <= worker->past)
		return;
	for (size_t p = 0; p < worker->plan->peer_count; p++)
		if (!(worker->gone >> worker->plan->peers[p].member.rank & 1))
			return;
	worker->past = version;
	note(simulation, worker, FACT_PASSES, version);
	simulation_line(simulation, "%s has nothing of version %llu", worker->name,
			(unsigned long long)version);
}

/* What is asked of a host that has nothing under way: trainers stop where they begin an update, ranks where they have the last
 * one. */
static void pause_if_asked(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	bool trainer = worker->what.role == ROLE_TRAINER;
	uint64_t done = worker->past > worker->version ? worker->past : worker->version;
	uint64_t at = trainer ? worker->begins : done;
	struct worker_event event = {.type = WORKER_EVENT_PAUSED,
				     .number = worker->pause.number,
				     .done = true,
				     .next = trainer ? worker->begins : at + 1,
				     .version = worker->version,
				     .repeats = worker->repeats && worker->version};

	if (worker->pause.number && !trainer && worker->gone && done < worker->pause.version) {
		give_up(simulation, index, worker->pause.version);
		at = worker->past > at ? worker->past : at;
		event.next = at + 1;
	}
	if (!worker->pause.number ||
	    (trainer ? !at || at < worker->pause.version : at < worker->pause.version))
		return;
	worker->stopped = !trainer;
	worker->arrived = 0; /* parts of a version that those who live have not begun */
	worker_does(simulation, index, &event);
}

static void take_state(struct simulation *simulation, uint32_t index, const struct action *action)
{
	struct worker *worker = simulation->workers.items[index];
	uint64_t version = worker->repeats ? 0 : worker->begins;

	if (action->state >= WORKER_LEFT)
		note(simulation, worker, FACT_ENDS, 0);
	if (action->state == WORKER_FAILED) {
		worker->error = action->error;
		simulation_line(simulation, "%s fails: %s", worker->name, action->error.text);
		return;
	}
	simulation_line(simulation, "%s is %s", worker->name, worker_state_name(action->state));
	if (action->state != WORKER_RUN)
		return;
	worker->pause.number = 0;
	worker->stopped = false;
	worker->begins = 0;
	if (worker->what.role == ROLE_INFERENCE && worker->plan->next > worker->version)
		worker->past = worker->plan->next - 1;
	if (worker->repeats && worker->plan->repeat)
		send_once_more(simulation, index, worker->plan->repeat);
	worker->repeats = false;
	if (version)
		begin(simulation, index, version);
}

void worker_does(struct simulation *simulation, uint32_t index, struct worker_event *event)
{
	struct worker *worker = simulation->workers.items[index];
	struct actions actions = {0};
	struct event *later;
	struct error error;
	bool asked = false;

	event->now_ms = simulation->now;
	if (worker_core_step(worker->core, event, &actions, &error))
		fail_msg("%s: %s", worker->name, error.text);
	for (size_t i = 0; i < actions.count; i++) {
		struct action *action = &actions.items[i];

		switch ((enum worker_action_type)action->type) {
		case WORKER_ACTION_SEND:
			simulation_send(simulation, index, true, &action->message);
			break;
		case WORKER_ACTION_LOG:
			simulation_line(simulation, "%s: %s", worker->name, action->line);
			break;
		case WORKER_ACTION_OPEN:
			worker->plan = action->plan;
			worker->gone = worker->arrived = worker->gone_ranks = 0;
			note_plan(simulation, worker);
			simulation_later(simulation, simulation->now + simulation->options.open_ms,
					 EVENT_OPENED)
				->to = index;
			break;
		case WORKER_ACTION_CONNECT:
			connect_all(simulation, worker, action->peers);
			later = simulation_later(simulation,
						 simulation->now + simulation->options.connect_ms,
						 EVENT_CONNECTED);
			later->to = index;
			later->peer = action->peers->attempt;
			break;
		case WORKER_ACTION_PAUSE:
			if (!action->message.u.pause.stop) {
				give_up(simulation, index, action->message.u.pause.version - 1);
				break;
			}
			worker->pause = action->message.u.pause;
			asked = true;
			break;
		case WORKER_ACTION_GONE: /* said in a line of the log */
			if (action->message.u.gone.first.role == ROLE_TRAINER)
				worker->gone |= 1ull << action->message.u.gone.first.rank;
			for (uint32_t k = 0; k < action->message.u.gone.count; k++)
				if (action->message.u.gone.first.role == ROLE_INFERENCE)
					worker->gone_ranks |=
						1ull << (action->message.u.gone.first.rank + k);
			count(simulation, index);
			break;
		case WORKER_ACTION_STATE:
			take_state(simulation, index, action);
			break;
		}
	}
	actions_clear(&actions);
	simulation_check(simulation);
	if (!asked)
		return;
	if (worker->what.role == ROLE_TRAINER && !worker->begins)
		worker_does(simulation, index,
			    &(struct worker_event){.type = WORKER_EVENT_PAUSED,
						   .number = worker->pause.number,
						   .next = worker->begun + 1,
						   .version = worker->version});
	if (worker->begins && worker->begins < worker->pause.version) {
		uint64_t version = worker->repeats ? 0 : worker->begins;

		worker->begins = 0;
		worker->repeats = false;
		if (version)
			begin(simulation, index, version);
	} else {
		pause_if_asked(simulation, index);
	}
}

void worker_opened(struct simulation *simulation, uint32_t index)
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
		endpoints->places =
			memory_zalloc(endpoints->place_count, sizeof(*endpoints->places));
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
	uint32_t less = worker->what.needs_less ? 1 : 0;
	struct infer_spec infer;

	assert_int_equal(infer_spec_parse(&infer, options->infer, NULL), 0);
	layout_init(&worker->layout);
	for (uint32_t i = less; i < options->tensors + extra; i++) {
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

void worker_tick(struct simulation *simulation, uint32_t index)
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
	options.hello =
		(struct message_hello){.role = what->role,
				       .rank = what->rank,
				       .incarnation = worker->what.incarnation,
				       .host = (char *)(what->host ? what->host : "a"),
				       .host_id = (char *)(what->boot ? what->boot : "boot-a"),
				       .pid = 1000 + index};
	options.declare = (struct message_declare){
		.model = (char *)(what->model ? what->model : "tiny"),
		.train = (char *)simulation->options.train,
		.infer = (char *)simulation->options.infer,
		.digest =
			trainer ? holding_digest(&worker->holding) : layout_digest(&worker->layout),
		.mapped = true,
		.registered = true,
		.transport = (char *)(what->transport ? what->transport : "shm")};
	options.layout = trainer ? NULL : &worker->layout;
	options.holding = trainer ? &worker->holding : NULL;
	options.join_timeout_ms = simulation->options.join_timeout_ms;
	if (what->failure)
		error_set(&options.failure, ERROR_FILE, "%s", what->failure);
	if (worker_core_new(&worker->core, &options, simulation->now, &error))
		fail_msg("%s: %s", worker->name, error.text);
	worker_tick(simulation, index);
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

uint32_t simulation_start_rank(struct simulation *simulation, uint32_t rank)
{
	return simulation_start(simulation,
				&(struct simulation_worker){.role = ROLE_INFERENCE, .rank = rank});
}

struct simulation *simulation_running(const struct simulation_options *options)
{
	struct simulation *simulation = simulation_new(options);

	simulation_controller_start(simulation);
	simulation_start_all(simulation);
	assert_true(simulation_run_to(simulation, WORKER_RUN, 20000));
	return simulation;
}

void simulation_kill(struct simulation *simulation, uint32_t worker)
{
	struct worker *victim = simulation->workers.items[worker];

	if (!victim->alive)
		return;
	victim->alive = false;
	note(simulation, victim, FACT_ENDS, 0);
	simulation_line(simulation, "%s is killed", victim->name);
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

void simulation_drop(struct simulation *simulation, uint32_t trainer, uint32_t rank,
		     const char *why)
{
	struct error error;
	struct worker_event event = {.type = WORKER_EVENT_DROP,
				     .error = &error,
				     .member = {ROLE_INFERENCE, rank},
				     .attempt = simulation->workers.items[trainer]->plan->attempt,
				     .version = simulation_version(simulation, trainer)};

	error_set(&error, ERROR_TRANSPORT, "%s", why);
	worker_does(simulation, trainer, &event);
}

void simulation_partition(struct simulation *simulation, uint32_t worker, uint64_t until_ms)
{
	simulation->workers.items[worker]->partition_until = until_ms;
	simulation_line(simulation, "%s is cut off", simulation->workers.items[worker]->name);
}

/* ---- the shadow of the data plane ---- */

static void ended(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker_event event = {.type = WORKER_EVENT_VERSION, .version = version};
	struct worker *worker = simulation->workers.items[index];

	worker->version = version;
	worker->repeating = 0;
	if (worker->what.role == ROLE_INFERENCE)
		note(simulation, worker, FACT_SHOWS, version);
	simulation_line(simulation, "%s %s version %llu", worker->name,
			worker->what.role == ROLE_TRAINER ? "ends" : "publishes",
			(unsigned long long)version);
	worker_does(simulation, index, &event);
	if (worker->what.role == ROLE_INFERENCE)
		pause_if_asked(simulation, index);
}

bool worker_runs(const struct worker *worker)
{
	return worker->alive && worker_core_state(worker->core) == WORKER_RUN;
}

static void schedule_write(struct simulation *simulation, uint32_t index, uint32_t peer,
			   uint64_t version)
{
	struct event *event = simulation_later(
		simulation, simulation->now + simulation->options.write_ms, EVENT_WRITE);

	event->to = index;
	event->peer = peer;
	event->version = version;
}

static void begin(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];

	if (worker->pause.number && version >= worker->pause.version) {
		simulation_line(simulation, "%s pauses before version %llu", worker->name,
				(unsigned long long)version);
		worker->begins = version;
		pause_if_asked(simulation, index);
		return;
	}
	simulation_line(simulation, "%s begins version %llu", worker->name,
			(unsigned long long)version);
	worker->begun = version;
	note(simulation, worker, FACT_BEGINS, version);
	if (worker->plan->peer_count)
		schedule_write(simulation, index, 0, version);
	else
		ended(simulation, index, version);
}

static void send_once_more(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];

	simulation_line(simulation, "%s sends version %llu once more", worker->name,
			(unsigned long long)version);
	assert_int_equal(version, worker->version);
	worker->repeating = version;
	note(simulation, worker, FACT_BEGINS, version)->again = true;
	if (worker->plan->peer_count)
		schedule_write(simulation, index, 0, version);
	else
		ended(simulation, index, version);
}

/* Its host has ended what it has begun. */
static bool has_nothing_under_way(const struct worker *worker)
{
	return worker_runs(worker) && !worker->begins && !worker->repeating &&
	       worker->begun == worker->version;
}

static uint64_t next_version(const struct worker *worker)
{
	if (!worker->begun && worker->plan->next)
		return worker->plan->next; /* it came in then */
	return worker->begun + 1;
}

void simulation_update_next(struct simulation *simulation)
{
	uint64_t version = UINT64_MAX;

	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		if (worker->what.role == ROLE_TRAINER && worker_runs(worker) &&
		    next_version(worker) < version)
			version = next_version(worker);
	}
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		if (worker->what.role == ROLE_TRAINER && has_nothing_under_way(worker) &&
		    next_version(worker) == version)
			begin(simulation, i, version);
	}
}

void simulation_repeat_one(struct simulation *simulation, uint32_t trainer)
{
	struct worker *worker = simulation->workers.items[trainer];
	uint64_t next;

	if (!has_nothing_under_way(worker) || !worker->pause.number)
		return;
	next = next_version(worker);
	if (next < worker->pause.version)
		return;
	simulation_line(simulation, "%s pauses after version %llu", worker->name,
			(unsigned long long)worker->version);
	worker->repeats = true;
	worker->begins = next;
	pause_if_asked(simulation, trainer);
}

void simulation_repeat(struct simulation *simulation)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		if (simulation->workers.items[i]->what.role == ROLE_TRAINER)
			simulation_repeat_one(simulation, i);
}

void simulation_begin(struct simulation *simulation, uint32_t trainer, uint64_t version)
{
	if (worker_runs(simulation->workers.items[trainer]) &&
	    !simulation->workers.items[trainer]->begins)
		begin(simulation, trainer, version);
}

void simulation_update(struct simulation *simulation, uint64_t version)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		if (simulation->workers.items[i]->what.role == ROLE_TRAINER)
			simulation_begin(simulation, i, version);
}

static uint32_t find_running(struct simulation *simulation, struct member who)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		struct worker *worker = simulation->workers.items[i];

		if (worker->what.role == who.role && worker->what.rank == who.rank &&
		    worker_runs(worker))
			return i;
	}
	return CONTROLLER;
}

/* It has not heard yet that the job runs, and so does not accept. */
static bool is_on_its_way(struct simulation *simulation, struct member who)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];
		enum worker_state state = worker_core_state(worker->core);

		if (worker->what.role == who.role && worker->what.rank == who.rank &&
		    worker->alive && state >= WORKER_PLANNED && state <= WORKER_CONNECTED)
			return true;
	}
	return false;
}

/* It has not accepted that version yet. */
static bool has_another(struct simulation *simulation, uint32_t index, uint64_t version)
{
	const struct worker *worker = simulation->workers.items[index];

	return worker->stopped || (worker->arrived && worker->arriving != version);
}

static void next_write(struct simulation *simulation, const struct event *event)
{
	if (event->peer + 1 < simulation->workers.items[event->to]->plan->peer_count)
		schedule_write(simulation, event->to, event->peer + 1, event->version);
	else
		ended(simulation, event->to, event->version);
}

void worker_writes(struct simulation *simulation, const struct event *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	struct event *signal;
	uint32_t target;

	if (!worker_runs(worker))
		return;
	if ((worker->repeating && !worker->plan->peers[event->peer].lacks) ||
	    worker->gone_ranks >> worker->plan->peers[event->peer].member.rank & 1) {
		next_write(simulation, event);
		return;
	}
	target = find_running(simulation, worker->plan->peers[event->peer].member);
	if ((target == CONTROLLER &&
	     is_on_its_way(simulation, worker->plan->peers[event->peer].member)) ||
	    (target != CONTROLLER && has_another(simulation, target, event->version))) {
		schedule_write(simulation, event->to, event->peer, event->version);
		return;
	}
	if (target != CONTROLLER) {
		signal = simulation_later(simulation, simulation->now + 1, EVENT_SIGNAL);
		signal->to = target;
		signal->from = event->to;
		signal->version = event->version;
		signal->digest = worker->plan->digest;
		signal->peer = worker->plan->attempt;
	}
	next_write(simulation, event);
}

/* All that comes is here: it is the version, or is given up. */
static void count(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	uint64_t all = 0, version = worker->arriving;

	for (size_t p = 0; worker->plan && p < worker->plan->peer_count; p++)
		if (worker->plan->peers[p].member.role == ROLE_TRAINER)
			all |= 1ull << worker->plan->peers[p].member.rank;
	if (!worker->arrived || (all & ~(worker->arrived | worker->gone)))
		return;
	if (worker->arrived == all) {
		worker->arrived = 0;
		ended(simulation, index, version);
		return;
	}
	worker->arrived = 0;
	worker->past = version;
	note(simulation, worker, FACT_PASSES, version);
	simulation_line(simulation, "%s gives up version %llu", worker->name,
			(unsigned long long)version);
	pause_if_asked(simulation, index);
}

void worker_signalled(struct simulation *simulation, const struct event *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	const struct worker *from = simulation->workers.items[event->from];
	struct fact *fact;

	if (!worker_runs(worker))
		return;
	/* of one that was stopped, whose path is closed; or that was told to be gone, and is not: that was given up */
	if (worker->stopped || event->peer != worker->plan->attempt ||
	    (event->version <= worker->past && worker->gone >> from->what.rank & 1))
		return;
	if (worker->arriving != event->version) {
		assert_int_equal(worker->arrived, 0);
		assert_true(event->version > worker->version && event->version > worker->past);
		worker->arriving = event->version;
	}
	worker->arrived |= 1ull << from->what.rank;
	fact = note(simulation, worker, FACT_ARRIVES, event->version);
	fact->from = (struct member){ROLE_TRAINER, from->what.rank};
	fact->from_process = from->what.incarnation;
	fact->digest = event->digest;
	count(simulation, event->to);
}
