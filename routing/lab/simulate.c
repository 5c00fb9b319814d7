/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate.c -- events in the order of their times: a flow ends, the next box of a trainer is
 * prepared, something fails. Between two events all rates stand still.
 *
 *   trainer's flows   0 ... through ... posted ... prepared ... count
 *                     all through  │ in queues, │ ready at a  │ waits for room
 *                     before here  │ one a peer │ known time  │ in the ring
 *
 * A slot is the queue from one trainer to one inference rank: its oldest flow flies.
 */
#include "routing/lab/simulate.h"

#include "base/array.h"
#include "routing/lab/fluid.h"
#include "routing/lab/simulate_flows.h"
#include "routing/lab/simulate_wire.h"
#include <math.h>

#define FINE_BINS    960 /* while it runs; resampled to SIMULATE_BINS at the end */
#define FINE_SECONDS 1e-7

struct bins {
	double bytes[FINE_BINS];
};

struct sender {
	size_t through, posted, prepared; /* indexes into flows */
	uint32_t flying;
	bool lost;
	double stage_free[STAGE_COUNT];
	double writes_free; /* has made the writes before */
	double ready, busy_since;
};

struct receiver {
	uint32_t flying;
	bool lost;
	double expected, verify_free, busy_since;
};

struct run {
	const struct table *table;
	const struct simulate_options *options;
	struct simulation *out;
	struct sim_flows flows;
	struct wire_map map;
	struct fluid fluid;
	struct event_queue queue;
	struct sender *senders;
	struct receiver *receivers;
	double *ready; /* by flow */
	bool *done;    /* by flow */
	struct slot {
		size_t first, last; /* flow + 1, oldest and newest in the queue; 0: empty */
		double bytes;	    /* in the queue */
		double since;	    /* the oldest flies */
		uint32_t trainer;
	} * slots;
	size_t *behind; /* by flow: the next in its queue + 1 */
	uint32_t slot_count;
	struct fluid_load *path;
	struct bins wire_bins, stage_bins[STAGE_COUNT];
	double bin_seconds;
	double depth_bytes;
	uint32_t trainers;
	bool out_of_memory;
	struct pool pool; /* of the arrays above */
};

const char *stage_name(enum stage stage)
{
	static const char *const names[STAGE_COUNT] = {"gather", "device_to_host", "pack",
						       "verify"};

	return names[stage];
}

void simulate_rates_default(struct simulate_options *options)
{
	double *rates = options->stage_bytes_per_second;

	rates[STAGE_GATHER] = 400e9;
	rates[STAGE_DEVICE_TO_HOST] = 50e9;
	rates[STAGE_PACK] = 11e9;
	rates[STAGE_VERIFY] = 0;
	options->writes_per_second = WRITES_PER_SECOND;
}

/* ---- samples ---- */

static void halve(struct bins *bins)
{
	for (uint32_t b = 0; b < FINE_BINS; b++)
		bins->bytes[b] =
			b < FINE_BINS / 2 ? bins->bytes[2 * b] + bins->bytes[2 * b + 1] : 0;
}

static void cover(struct run *run, double seconds)
{
	while (seconds >= run->bin_seconds * FINE_BINS) {
		halve(&run->wire_bins);
		for (int s = 0; s < STAGE_COUNT; s++)
			halve(&run->stage_bins[s]);
		run->bin_seconds *= 2;
	}
}

static void sample(struct run *run, struct bins *bins, double from, double to, double bytes)
{
	uint32_t first, last;

	cover(run, to);
	first = (uint32_t)(from / run->bin_seconds);
	last = (uint32_t)(to / run->bin_seconds);
	if (first == last) {
		bins->bytes[first] += bytes;
		return;
	}
	for (uint32_t b = first; b <= last; b++) {
		double lo = b == first ? from : b * run->bin_seconds;
		double hi = b == last ? to : (b + 1) * run->bin_seconds;

		bins->bytes[b] += bytes * (hi - lo) / (to - from);
	}
}

static void resample(const struct run *run, const struct bins *fine, double out[SIMULATE_BINS])
{
	double width = run->out->makespan_seconds / SIMULATE_BINS;

	for (uint32_t b = 0; width > 0 && b < FINE_BINS; b++) {
		double from = b * run->bin_seconds, to = from + run->bin_seconds;

		for (uint32_t c = (uint32_t)(from / width); c < SIMULATE_BINS && c * width < to;
		     c++) {
			double lo = fmax(from, c * width), hi = fmin(to, (c + 1) * width);

			/* what ends the run lies in the last column, whatever rounding says */
			if (hi > lo)
				out[c] += fine->bytes[b] * (hi - lo) /
					  (fmin(to, run->out->makespan_seconds) - from);
		}
	}
}

static void keep_slice(struct run *run, struct simulated_slice slice)
{
	struct simulation *out = run->out;
	struct simulated_slice *kept;

	if (!run->options->record || slice.to <= slice.from)
		return;
	kept = array_push_raw((void **)&out->slices, &out->slice_count, &out->slice_capacity,
			      sizeof(*kept));
	if (kept)
		*kept = slice;
	else
		run->out_of_memory = true;
}

/* fluid's: bytes of a slot moved at one rate */
static void moved(void *context, uint32_t slot, double from, double to, double bytes)
{
	struct run *run = context;
	const struct fluid_path *path = &run->fluid.paths[slot * run->fluid.path_max];

	for (uint32_t i = 0; i < run->fluid.slots[slot].length; i++)
		run->out->wire[path[i].load.resource].bytes += bytes * path[i].load.share;
	sample(run, &run->wire_bins, from, to, bytes);
}

/* ---- stages ---- */

/* One box through one stage of a worker; returns when it leaves. */
static double work(struct run *run, enum role role, uint32_t rank, enum stage stage,
		   double *stage_free, double from, double bytes, uint32_t peer)
{
	double rate =
		run->options->stage_bytes_per_second[stage] * run->map.stage_factor[role][rank];
	double to;

	if (rate <= 0 || bytes <= 0)
		return from;
	from = fmax(from, *stage_free);
	to = from + bytes / rate;
	*stage_free = to;
	run->out->ranks[role][rank].stage_seconds[stage] += to - from;
	sample(run, &run->stage_bins[stage], from, to, bytes);
	keep_slice(run, (struct simulated_slice){role, rank, true, stage, peer, from, to, bytes});
	return to;
}

static double make_writes(const struct run *run, uint32_t t, double from, double writes)
{
	struct sender *sender = &run->senders[t];
	double rate = run->options->writes_per_second * run->map.stage_factor[ROLE_TRAINER][t];

	if (rate <= 0)
		return from;
	sender->writes_free = fmax(from, sender->writes_free) + writes / rate;
	return sender->writes_free;
}

/* Prepares as far as there is room in the ring. */
static void prepare(struct run *run, uint32_t t, double now)
{
	struct sender *sender = &run->senders[t];
	size_t first = run->flows.first[t], end = run->flows.first[t + 1];

	for (; sender->prepared < end; sender->prepared++) {
		const struct sim_flow *flow = &run->flows.items[sender->prepared];
		double at = now;

		if (flow->room_after > sender->through - first)
			return;
		at = work(run, ROLE_TRAINER, t, STAGE_GATHER, &sender->stage_free[STAGE_GATHER], at,
			  flow->gather_bytes, flow->inference);
		at = work(run, ROLE_TRAINER, t, STAGE_DEVICE_TO_HOST,
			  &sender->stage_free[STAGE_DEVICE_TO_HOST], at, flow->copy_bytes,
			  flow->inference);
		at = work(run, ROLE_TRAINER, t, STAGE_PACK, &sender->stage_free[STAGE_PACK], at,
			  flow->copy_bytes, flow->inference);
		at = make_writes(run, t, at, flow->writes);
		sender->ready = fmax(sender->ready, at);
		run->ready[sender->prepared] = sender->ready;
	}
}

/* ---- flows ---- */

static uint32_t wake_id(const struct run *run, uint32_t t)
{
	return run->slot_count + t;
}

static void flow_through(struct run *run, uint32_t t, size_t flow)
{
	struct sender *sender = &run->senders[t];

	run->done[flow] = true;
	while (sender->through < sender->posted && run->done[sender->through])
		sender->through++;
}

/* The oldest flow of a queue takes off. */
static void fly(struct run *run, uint32_t slot, double now)
{
	const struct sim_flow *flow = &run->flows.items[run->slots[slot].first - 1];
	uint32_t t = run->slots[slot].trainer;
	struct sender *sender = &run->senders[t];
	struct receiver *receiver = &run->receivers[flow->inference];
	uint32_t length = wire_path(&run->map, t, flow->inference, run->path);

	if (!sender->flying++)
		sender->busy_since = now;
	if (!receiver->flying++)
		receiver->busy_since = now;
	run->slots[slot].since = now;
	fluid_start(&run->fluid, slot, run->path, length, flow->bytes, now);
}

/* Into the queue of its peer; false when that is full. */
static bool post(struct run *run, uint32_t t, double now)
{
	struct sender *sender = &run->senders[t];
	size_t index = sender->posted;
	const struct sim_flow *flow = &run->flows.items[index];
	uint32_t at = (uint32_t)run->flows.queue_first[t] + flow->queue;
	struct slot *slot = &run->slots[at];

	if (run->receivers[flow->inference].lost) {
		sender->posted++;
		flow_through(run, t, index);
		return true;
	}
	if (slot->first && slot->bytes + flow->bytes > run->depth_bytes)
		return false;
	sender->posted++;
	slot->bytes += flow->bytes;
	if (slot->first) {
		run->behind[slot->last - 1] = index + 1;
		slot->last = index + 1;
	} else {
		slot->first = slot->last = index + 1;
		fly(run, at, now);
	}
	return true;
}

/* Posts what is ready, in order, until a queue is full. */
static void advance(struct run *run, uint32_t t, double now)
{
	struct sender *sender = &run->senders[t];

	for (;;) {
		prepare(run, t, now);
		if (sender->lost || sender->posted == sender->prepared)
			return;
		if (run->ready[sender->posted] > now) {
			event_queue_put(&run->queue, wake_id(run, t), run->ready[sender->posted]);
			return;
		}
		if (!post(run, t, now))
			return;
	}
}

/* Takes the flow that flies out of its queue; returns it. The next one is not started. */
static size_t leave(struct run *run, uint32_t at, double now)
{
	struct slot *slot = &run->slots[at];
	size_t index = slot->first - 1;
	const struct sim_flow *flow = &run->flows.items[index];
	uint32_t t = slot->trainer, r = flow->inference;

	fluid_stop(&run->fluid, at, now);
	slot->bytes -= flow->bytes;
	slot->first = run->behind[index];
	if (!slot->first)
		slot->last = 0, slot->bytes = 0; /* and no dust of rounding */
	if (!--run->senders[t].flying)
		run->out->ranks[ROLE_TRAINER][t].busy_seconds += now - run->senders[t].busy_since;
	if (!--run->receivers[r].flying)
		run->out->ranks[ROLE_INFERENCE][r].busy_seconds +=
			now - run->receivers[r].busy_since;
	return index;
}

static void finish(struct run *run, uint32_t slot, double now)
{
	uint32_t t = run->slots[slot].trainer;
	double since = run->slots[slot].since;
	size_t index = leave(run, slot, now);
	const struct sim_flow *flow = &run->flows.items[index];
	struct receiver *receiver = &run->receivers[flow->inference];
	struct simulated_rank *to = &run->out->ranks[ROLE_INFERENCE][flow->inference];
	struct simulated_rank *from = &run->out->ranks[ROLE_TRAINER][t];

	if (run->slots[slot].first)
		fly(run, slot, now);
	keep_slice(run, (struct simulated_slice){ROLE_TRAINER, t, false, STAGE_COUNT,
						 flow->inference, since, now, flow->bytes});
	from->bytes += flow->bytes;
	from->finish_seconds = now;
	to->bytes += flow->bytes;
	to->finish_seconds =
		fmax(to->finish_seconds, work(run, ROLE_INFERENCE, flow->inference, STAGE_VERIFY,
					      &receiver->verify_free, now, flow->bytes, t));
	flow_through(run, t, index);
}

/* ---- failure ---- */

static void lose_trainer(struct run *run, uint32_t t, double now)
{
	run->senders[t].lost = true;
	event_queue_drop(&run->queue, wake_id(run, t));
	for (size_t slot = run->flows.queue_first[t]; slot < run->flows.queue_first[t + 1];
	     slot++) {
		if (run->slots[slot].first)
			leave(run, (uint32_t)slot, now);
		run->slots[slot].first = 0;
	}
	run->senders[t].prepared = run->senders[t].posted; /* and no more */
}

static void lose_inference(struct run *run, uint32_t r, double now)
{
	run->receivers[r].lost = true;
	for (uint32_t at = 0; at < run->slot_count; at++) {
		struct slot *slot = &run->slots[at];

		if (!slot->first || run->flows.items[slot->first - 1].inference != r)
			continue;
		flow_through(run, slot->trainer, leave(run, at, now));
		for (; slot->first; slot->first = run->behind[slot->first - 1])
			flow_through(run, slot->trainer, slot->first - 1);
	}
}

/* What flies goes on over the NICs that are left; a rank without any is lost. */
static void lose_nic(struct run *run, uint32_t nic, double now)
{
	run->map.nic_lost[nic] = true;
	for (uint32_t t = 0; t < run->trainers; t++)
		if (wire_rank_lost(&run->map, ROLE_TRAINER, t))
			lose_trainer(run, t, now);
	for (uint32_t r = 0; r < run->table->problem->inference_count; r++)
		if (wire_rank_lost(&run->map, ROLE_INFERENCE, r))
			lose_inference(run, r, now);
	for (uint32_t at = 0; at < run->slot_count; at++) {
		const struct slot *slot = &run->slots[at];

		if (!slot->first)
			continue;
		double left = fluid_stop(&run->fluid, at, now);
		uint32_t length = wire_path(&run->map, slot->trainer,
					    run->flows.items[slot->first - 1].inference, run->path);

		fluid_start(&run->fluid, at, run->path, length, left, now);
	}
}

static void fail(struct run *run, double now)
{
	const struct failure *failure = run->options->failure;

	if (failure->what == SLOW_TRAINER)
		lose_trainer(run, failure->index, now);
	else if (failure->what == SLOW_INFERENCE)
		lose_inference(run, failure->index, now);
	else
		lose_nic(run, failure->index, now);
	for (uint32_t t = 0; t < run->trainers; t++)
		if (!run->senders[t].lost)
			advance(run, t, now);
}

/* ---- the run ---- */

/* Everything of one moment, then new rates once. */
static void play(struct run *run)
{
	uint32_t slots = run->slot_count, id;
	double now = 0, seconds;

	for (uint32_t t = 0; t < run->trainers; t++)
		advance(run, t, now);
	fluid_solve(&run->fluid, now);
	while (event_queue_first(&run->queue, &id, &seconds)) {
		now = seconds;
		do {
			run->out->events++;
			event_queue_drop(&run->queue, id);
			if (id == slots + run->trainers) {
				fail(run, now);
			} else {
				if (id < slots)
					finish(run, id, now);
				advance(run, id < slots ? run->slots[id].trainer : id - slots, now);
			}
		} while (event_queue_first(&run->queue, &id, &seconds) && seconds <= now);
		fluid_solve(&run->fluid, now);
	}
	for (uint32_t r = 0; r < run->fluid.resource_count; r++)
		run->out->wire[r].full_seconds = run->fluid.resources[r].full_seconds;
}

static int open_run(struct run *run, const struct topology *topology, struct error *error)
{
	size_t slots = run->flows.queue_first[run->trainers];
	int rc = 0;

	if (slots > UINT32_MAX - run->trainers - 1)
		return error_set(error, ERROR_LIMIT,
				 "%zu pairs of a trainer and an inference rank are too many to "
				 "simulate (2^32)",
				 slots);
	run->slot_count = (uint32_t)slots;
	rc = wire_map_init(&run->map, topology, run->options, error);

	if (!rc)
		rc = event_queue_init(&run->queue, run->slot_count + run->trainers + 1, error);
	if (!rc)
		rc = fluid_init(&run->fluid, run->map.count, run->slot_count, run->map.path_max,
				&run->queue, error);
	if (rc)
		return rc;
	run->fluid.moved = moved;
	run->fluid.context = run;
	for (uint32_t r = 0; r < run->map.count; r++)
		run->fluid.resources[r].bytes_per_second = run->map.resources[r].bytes_per_second;
	run->out->wire = run->map.resources; /* taken */
	run->out->wire_count = run->map.count;
	run->map.resources = NULL;
	run->senders = pool_array(&run->pool, run->trainers, sizeof(*run->senders));
	run->receivers = pool_array(&run->pool, run->table->problem->inference_count,
				    sizeof(*run->receivers));
	run->ready = pool_array(&run->pool, run->flows.count, sizeof(*run->ready));
	run->done = pool_array(&run->pool, run->flows.count, sizeof(*run->done));
	run->behind = pool_array(&run->pool, run->flows.count, sizeof(*run->behind));
	run->slots = pool_array(&run->pool, slots, sizeof(*run->slots));
	run->path = pool_array(&run->pool, run->map.path_max, sizeof(*run->path));
	if (!pool_ok(&run->pool))
		return memory_error(error, "simulating", run->flows.count * sizeof(*run->ready));
	for (uint32_t t = 0; t < run->trainers; t++)
		run->senders[t].through = run->senders[t].posted = run->senders[t].prepared =
			run->flows.first[t];
	for (uint32_t t = 0; t < run->trainers; t++)
		for (size_t at = run->flows.queue_first[t]; at < run->flows.queue_first[t + 1];
		     at++)
			run->slots[at].trainer = t;
	for (size_t f = 0; f < run->flows.count; f++)
		run->receivers[run->flows.items[f].inference].expected += run->flows.items[f].bytes;
	if (run->options->failure)
		event_queue_put(&run->queue, run->slot_count + run->trainers,
				run->options->failure->seconds);
	return 0;
}

static void close_run(struct run *run)
{
	sim_flows_fini(&run->flows);
	wire_map_fini(&run->map);
	fluid_fini(&run->fluid);
	event_queue_fini(&run->queue);
	pool_free(&run->pool);
	memory_free(run);
}

static int open_result(struct simulation *out, const struct table *table,
		       const struct topology *topology, struct error *error)
{
	const uint32_t counts[ROLE_COUNT] = {table->problem->trainer_count,
					     table->problem->inference_count};

	*out = (struct simulation){.routes = table->route_count};
	for (int role = 0; role < ROLE_COUNT; role++) {
		out->ranks[role] = memory_zalloc(counts[role], sizeof(*out->ranks[role]));
		if (!out->ranks[role])
			return memory_error(error, "simulating",
					    counts[role] * sizeof(*out->ranks[role]));
		out->rank_count[role] = counts[role];
		for (uint32_t r = 0; r < counts[role]; r++)
			out->rate[role] += (double)topology_rank_rate(topology, (enum role)role, r);
	}
	for (size_t r = 0; r < table->route_count; r++)
		out->bytes += table->routes[r].bytes;
	return 0;
}

static void sum_up(struct run *run)
{
	struct simulation *out = run->out;

	for (uint32_t r = 0; r < out->rank_count[ROLE_INFERENCE]; r++) {
		struct simulated_rank *rank = &out->ranks[ROLE_INFERENCE][r];

		out->makespan_seconds = fmax(out->makespan_seconds, rank->finish_seconds);
		rank->missing_bytes = run->receivers[r].expected - rank->bytes;
		rank->lost = run->receivers[r].lost;
		if (rank->missing_bytes > 0.5 || run->receivers[r].lost)
			rank->finish_seconds = INFINITY;
	}
	for (uint32_t t = 0; t < run->trainers; t++)
		out->ranks[ROLE_TRAINER][t].lost = run->senders[t].lost;
	out->flows = run->flows.count;
	out->flow_bytes_min = run->flows.flow_bytes_min;
	out->levels = run->fluid.updates;
	out->bin_seconds = out->makespan_seconds / SIMULATE_BINS;
	resample(run, &run->wire_bins, out->wire_bins);
	for (int s = 0; s < STAGE_COUNT; s++)
		resample(run, &run->stage_bins[s], out->stage_bins[s]);
}

static int simulate_on(struct simulation *out, const struct table *table,
		       const struct topology *topology, const struct simulate_options *options,
		       struct error *error)
{
	struct run *run = memory_zalloc(1, sizeof(*run));
	uint64_t ring = options->ring_bytes ? options->ring_bytes : SIMULATE_RING_DEFAULT;
	int rc;

	if (!run)
		return memory_error(error, "simulating", sizeof(*run));
	run->table = table;
	run->options = options;
	run->out = out;
	run->bin_seconds = FINE_SECONDS;
	run->trainers = table->problem->trainer_count;
	run->depth_bytes =
		(double)(options->depth_bytes ? options->depth_bytes : SIMULATE_DEPTH_DEFAULT);
	rc = sim_flows_build(&run->flows, table, ring, error);
	if (!rc)
		rc = open_run(run, topology, error);
	if (!rc) {
		play(run);
		sum_up(run);
		if (run->out_of_memory)
			rc = memory_error(error, "keeping the schedule",
					  out->slice_capacity * sizeof(*out->slices));
	}
	close_run(run);
	return rc;
}

int simulate(struct simulation *out, const struct table *table,
	     const struct simulate_options *options, struct error *error)
{
	const struct topology *topology = table->topology;
	struct topology *flat = NULL;
	int rc = 0;

	*out = (struct simulation){0};
	if (!topology) {
		rc = topology_flat(&flat, table->problem->trainer_count,
				   table->problem->inference_count, error);
		topology = flat;
	}
	if (!rc)
		rc = open_result(out, table, topology, error);
	if (!rc)
		rc = simulate_on(out, table, topology, options, error);
	topology_free(&flat);
	if (rc)
		simulation_fini(out);
	return rc;
}

void simulation_fini(struct simulation *simulation)
{
	memory_free(simulation->wire);
	memory_free(simulation->slices);
	for (int role = 0; role < ROLE_COUNT; role++)
		memory_free(simulation->ranks[role]);
	*simulation = (struct simulation){0};
}
