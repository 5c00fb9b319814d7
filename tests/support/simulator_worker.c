/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/simulator_wait.h"

static void take_state(struct simulation *simulation, uint32_t index, const struct action *action)
{
	struct worker *worker = simulation->workers.items[index];
	uint64_t version = worker->repeats ? 0 : worker->begins;

	if (action->state >= WORKER_LEFT)
		worker_note(simulation, worker, FACT_ENDS, 0);
	if (action->state == WORKER_FAILED) {
		worker->error = action->error;
		simulation_line(simulation, "%s fails: %s", worker->name, action->error.text);
		return;
	}
	simulation_line(simulation, "%s is %s", worker->name, worker_state_name(action->state));
	if (action->state != WORKER_RUN)
		return;
	worker_checks_links(simulation, worker);
	worker->pause.number = 0;
	worker->stopped = false;
	worker->begins = 0;
	if (worker->waiting && worker->waiting->versions.hidden &&
	    simulation_dice(simulation, 4) == 0) {
		/* its host is back in its call later */
		worker->waiting->away_until = simulation->now + simulation_dice(simulation, 2000);
		wait_looks_at(simulation, index, worker->waiting->away_until);
	}
	if (worker->what.role == ROLE_INFERENCE && worker->plan->next > worker->version)
		worker->past = worker->plan->next - 1;
	worker_copies(simulation, index);
	if (worker->repeats && worker->plan->repeat)
		worker_sends_again(simulation, index, worker->plan->repeat);
	worker->repeats = false;
	if (version)
		worker_begins(simulation, index, version);
	if (worker->waiting)
		wait_acts(simulation, index);
}

void worker_connected(struct simulation *simulation, uint32_t index, uint32_t attempt)
{
	struct worker *worker = simulation->workers.items[index];

	if (worker->waiting && worker->plan->attempt == attempt)
		wait_opens(simulation, index);
	if (worker->sending && worker->plan->attempt == attempt)
		send_opens(worker);
	worker_does(simulation, index,
		    &(struct worker_event){.type = WORKER_EVENT_CONNECTED, .attempt = attempt});
}

static void take_plan(struct simulation *simulation, uint32_t index,
		      const struct message_plan *plan)
{
	struct worker *worker = simulation->workers.items[index];

	if (worker->waiting) { /* what it shows then came by the plan before */
		together_settles(simulation, index, plan);
		wait_closes(simulation, index);
		meet_notes(simulation);
	}
	worker->asked.number = 0;
	worker->news++;
	worker->plan = plan;
	worker->gone = worker->arrived = worker->gone_ranks = 0;
	worker->copies = worker->sends = 0;
	worker_planned(simulation, worker);
	simulation_later(simulation, simulation->now + simulation->options.open_ms, EVENT_OPENED)
		->to = index;
	if (worker->ends)
		memset(worker->ends, 0, sizeof(*worker->ends));
	if (worker->sending)
		send_closes(worker);
	if (!worker->waiting)
		return;
	worker->over = worker->pause.number = 0;
}

/* True: the host is to stop, where that says. */
static bool take_pause(struct simulation *simulation, uint32_t index,
		       const struct message_pause *pause)
{
	struct worker *worker = simulation->workers.items[index];

	worker->over = pause->version - !pause->stop;
	worker->asked = *pause;
	worker->news++;
	if (pause->stop || (worker->waiting && worker->pause.number))
		worker->pause = *pause;
	if (worker->waiting) {
		worker->stopped = false; /* it goes on up to there */
		wait_acts(simulation, index);
	} else if (!pause->stop) {
		worker_gives_up(simulation, index, pause->version - 1);
	}
	return pause->stop && !worker->waiting;
}

void worker_does(struct simulation *simulation, uint32_t index, struct worker_event *event)
{
	struct worker *worker = simulation->workers.items[index];
	struct actions actions = {0};
	struct happening *later;
	struct error error;
	bool asked = false;

	event->now_ms = simulation->now;
	event->anew = worker->anew ||
		      simulation->options.anew_percent >
			      (worker->what.incarnation * 37 + worker->pause.number * 11) % 100;
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
			take_plan(simulation, index, action->plan);
			break;
		case WORKER_ACTION_CONNECT:
			worker_connects(worker, action->peers);
			later = simulation_later(simulation,
						 simulation->now + simulation->options.connect_ms,
						 EVENT_CONNECTED);
			later->to = index;
			later->peer = action->peers->attempt;
			break;
		case WORKER_ACTION_PAUSE:
			asked |= take_pause(simulation, index, &action->message.u.pause);
			break;
		case WORKER_ACTION_GONE: /* said in a line of the log */
			if (action->message.u.gone.first.role == ROLE_TRAINER)
				worker->gone |= 1ull << action->message.u.gone.first.rank;
			for (uint32_t k = 0; k < action->message.u.gone.count; k++)
				if (action->message.u.gone.first.role == ROLE_INFERENCE)
					worker->gone_ranks |=
						1ull << (action->message.u.gone.first.rank + k);
			worker->news++;
			worker_hears_gone(simulation, index);
			if (worker->sending)
				send_acts(simulation, index);
			worker_counts(simulation, index);
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
			worker_begins(simulation, index, version);
	} else {
		worker_pauses(simulation, index);
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
	bool kept = false;

	endpoints->attempt = plan->attempt;
	endpoints->records = memory_zalloc(plan->peer_count, sizeof(*endpoints->records));
	for (size_t i = 0; i < plan->peer_count; i++) {
		struct endpoint_record *record = &endpoints->records[endpoints->record_count];

		kept = kept || plan->peers[i].kept;
		if (plan->peers[i].kept)
			continue;
		record->peer = plan->peers[i].member;
		record->bytes = (unsigned char *)memory_format(
			"%s %llx > %s", worker->name, (unsigned long long)worker->what.incarnation,
			member_text(record->peer, name));
		record->length = strlen((char *)record->bytes);
		endpoints->record_count++;
	}
	if (worker->what.role == ROLE_INFERENCE && !kept) {
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
	if (simulation->together) {
		worker->ends = memory_zalloc(1, sizeof(*worker->ends));
		assert_non_null(worker->ends);
		if (trainer)
			send_new(worker);
		else
			wait_new(simulation, worker);
	}
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
	worker_note(simulation, victim, FACT_ENDS, 0);
	simulation_line(simulation, "%s is killed", victim->name);
	if (!simulation->together)
		return;
	victim->ended_at = simulation->now;
	victim->ends_unseen = simulation_dice(simulation, 2) == 0;
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		if (simulation->workers.items[i]->ends)
			wait_looks_at(simulation, i, simulation->now + SEEN_MS);
}

void simulation_hold(struct simulation *simulation, uint32_t worker, uint32_t ms)
{
	struct worker *held = simulation->workers.items[worker];

	if (!held->waiting || !worker_runs(held))
		return;
	simulation_line(simulation, "the host of %s is held up", held->name);
	wait_is_left(simulation, worker, simulation->now + ms);
}

void simulation_does(struct simulation *simulation, uint32_t worker, uint64_t last)
{
	simulation->workers.items[worker]->waiting->last = last;
}

void simulation_abort(struct simulation *simulation, uint32_t worker)
{
	if (simulation->workers.items[worker]->sending)
		send_aborts(simulation->workers.items[worker]);
}

void simulation_fail_hook(struct simulation *simulation, uint32_t worker)
{
	if (simulation->workers.items[worker]->waiting)
		simulation->workers.items[worker]->waiting->fails = true;
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
	if (simulation->workers.items[trainer]->sending)
		send_drops(simulation, trainer, rank);
	worker_does(simulation, trainer, &event);
}

void simulation_partition(struct simulation *simulation, uint32_t worker, uint64_t until_ms)
{
	simulation->workers.items[worker]->partition_until = until_ms;
	simulation_line(simulation, "%s is cut off", simulation->workers.items[worker]->name);
}
