/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_flows.c -- one trainer after another, along its order:
 *
 *   route ──► box (tensor and source boxes: the same one for every equal route of the trainer)
 *         ──► parts of at most part_max, each prepared as a whole and sent as one flow
 *         ──► the ring: a part goes in behind the newest; the oldest leave until it fits, and
 *             may be prepared again later
 *
 * The ring's content depends on the order alone, because the worker lets the oldest go only when
 * it needs the room. When it may do so is time: when the flows from that part are through.
 */
#include "routing/lab/simulate_flows.h"

#include "base/array.h"
#include "base/pool.h"
#include "routing/plan/order.h"
#include <string.h>

#define FLOWS_AIM     UINT64_C(1000000)	  /* routes below total / this ride along */
#define PART_BYTES    (UINT64_C(8) << 20) /* at least; as a block of the worker's replica */
#define RIDE_DISTANCE 64		  /* flows back that a small route may join */

struct part { /* of a box, in the ring */
	uint64_t bytes;
	uint32_t last_use; /* flow of the trainer + 1 */
	bool inside;
};

struct box_slot {
	uint32_t stamp, route; /* a slot counts when its stamp is the trainer's */
	uint32_t part_first;
};

struct builder {
	const struct table *table;
	struct sim_flows *flows;
	uint64_t ring_bytes, part_max, small;
	struct box_slot *slots;
	size_t slot_count;
	ARRAY(struct part) parts;
	ARRAY(uint32_t) ring; /* parts in the order of preparing */
	size_t oldest;
	uint64_t used_bytes;
	uint32_t *last_flow; /* by inference rank: flow of this trainer + 1 */
	uint32_t *last_stamp;
	uint32_t *queue, queues; /* by inference rank: this trainer's queue */
	struct pool pool;	 /* of slots and what is by inference rank */
};

void sim_flows_fini(struct sim_flows *flows)
{
	memory_free(flows->items);
	memory_free(flows->first);
	memory_free(flows->queue_first);
	*flows = (struct sim_flows){0};
}

/* ---- boxes ---- */

static bool same_boxes(const struct table *table, const struct route *a, const struct route *b)
{
	if (a->tensor != b->tensor || a->piece_count != b->piece_count)
		return false;
	for (uint32_t p = 0; p < a->piece_count; p++) {
		const struct route_piece *x = &table->pieces[a->piece_first + p];
		const struct route_piece *y = &table->pieces[b->piece_first + p];

		if (x->transformed != y->transformed || !box_equal(&x->src, &y->src))
			return false;
	}
	return true;
}

static uint64_t boxes_hash(const struct table *table, const struct route *route)
{
	uint64_t hash = route->tensor;

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct box *box = &table->pieces[route->piece_first + p].src;
		uint64_t key[2 * BOX_DIMS_MAX + 1] = {hash};

		memcpy(key + 1, box->lo, box->dims * sizeof(key[0]));
		memcpy(key + 1 + box->dims, box->hi, box->dims * sizeof(key[0]));
		hash = checksum64(key, (2 * (size_t)box->dims + 1) * sizeof(key[0]));
	}
	return hash;
}

/* The route's box; *fresh when this trainer meets it for the first time. */
static struct box_slot *find_box(struct builder *builder, uint32_t stamp, uint32_t index,
				 bool *fresh)
{
	const struct route *routes = builder->table->routes;
	size_t at = boxes_hash(builder->table, &routes[index]) & (builder->slot_count - 1);

	for (; builder->slots[at].stamp == stamp; at = (at + 1) & (builder->slot_count - 1)) {
		if (same_boxes(builder->table, &routes[builder->slots[at].route], &routes[index])) {
			*fresh = false;
			return &builder->slots[at];
		}
	}
	*fresh = true;
	builder->slots[at] = (struct box_slot){stamp, index, (uint32_t)builder->parts.count};
	return &builder->slots[at];
}

/* Bytes that are copied before they are sent: all but `direct` ones. */
static uint64_t copied_bytes(const struct table *table, const struct route *route)
{
	uint64_t bytes = 0;

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];

		bytes += piece->path == PATH_DIRECT ? 0 : piece->bytes;
	}
	return bytes;
}

static double writes_in(const struct table *table, const struct route *route)
{
	double writes = 0;

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];

		writes += write_is_merged(piece) ? (double)piece->bytes / (double)MERGE_WRITE_BYTES
						 : 1;
	}
	return writes;
}

/* ---- the ring ---- */

static int prepare(struct builder *builder, uint32_t index, struct sim_flow *flow)
{
	struct part *part = &builder->parts.items[index];

	if (part->inside || !part->bytes)
		return 0;
	while (builder->used_bytes + part->bytes > builder->ring_bytes) {
		struct part *old = &builder->parts.items[builder->ring.items[builder->oldest++]];

		builder->used_bytes -= old->bytes;
		old->inside = false;
		if (old->last_use > flow->room_after)
			flow->room_after = old->last_use;
	}
	if (!array_add(&builder->ring, index))
		return -ERROR_MEMORY;
	part->inside = true;
	builder->used_bytes += part->bytes;
	flow->copy_bytes += (double)part->bytes;
	return 0;
}

/* ---- routes ---- */

static struct sim_flow *add_flow(struct builder *builder, uint32_t trainer, uint32_t inference)
{
	struct sim_flows *flows = builder->flows;
	struct sim_flow *flow = array_push_raw((void **)&flows->items, &flows->count,
					       &flows->capacity, sizeof(*flow));

	if (!flow)
		return NULL;
	if (builder->last_stamp[inference] != trainer + 1) {
		builder->last_stamp[inference] = trainer + 1;
		builder->queue[inference] = builder->queues++;
	}
	flow->inference = inference;
	flow->queue = builder->queue[inference];
	return flow;
}

/* A small route joins a flow to the same rank that stands near; its bytes are prepared with that
 * flow, and are too few to count in the ring. */
static bool ride_along(struct builder *builder, const struct route *route, uint32_t trainer,
		       size_t first, bool fresh)
{
	struct sim_flows *flows = builder->flows;
	uint32_t last = builder->last_stamp[route->inference] == trainer + 1
				? builder->last_flow[route->inference]
				: 0;
	struct sim_flow *flow;

	if (route->bytes >= builder->small || !last || flows->count - first - last >= RIDE_DISTANCE)
		return false;
	flow = &flows->items[first + last - 1];
	if (flow->bytes > (double)builder->part_max)
		return false;
	flow->bytes += (double)route->bytes;
	flow->writes += writes_in(builder->table, route);
	if (fresh) {
		flow->gather_bytes += (double)route->bytes;
		flow->copy_bytes += (double)copied_bytes(builder->table, route);
	}
	return true;
}

static int add_route(struct builder *builder, uint32_t trainer, size_t first, uint32_t index)
{
	const struct route *route = &builder->table->routes[index];
	uint64_t parts = (route->bytes + builder->part_max - 1) / builder->part_max;
	uint64_t copied = copied_bytes(builder->table, route);
	bool fresh;
	struct box_slot *box = find_box(builder, trainer + 1, index, &fresh);
	uint32_t part_first = box->part_first;

	if (fresh) {
		for (uint64_t k = 0; k < parts; k++) {
			uint64_t bytes = copied * (k + 1) / parts - copied * k / parts;

			if (!array_add(&builder->parts, (struct part){.bytes = bytes}))
				return -ERROR_MEMORY;
		}
	}
	if (ride_along(builder, route, trainer, first, fresh))
		return 0;
	for (uint64_t k = 0; k < parts; k++) {
		struct sim_flow *flow = add_flow(builder, trainer, route->inference);
		uint64_t bytes = route->bytes * (k + 1) / parts - route->bytes * k / parts;

		if (!flow)
			return -ERROR_MEMORY;
		flow->bytes = (double)bytes;
		flow->writes = writes_in(builder->table, route) / (double)parts;
		if (fresh)
			flow->gather_bytes = (double)bytes;
		if (prepare(builder, part_first + (uint32_t)k, flow))
			return -ERROR_MEMORY;
		builder->parts.items[part_first + k].last_use =
			(uint32_t)(builder->flows->count - first);
	}
	builder->last_flow[route->inference] = (uint32_t)(builder->flows->count - first);
	return 0;
}

/* So far gather_bytes are those of first-met boxes: the trainer's gathers are spread over them. */
static void spread_gather(struct sim_flow *flows, size_t count, double gather_bytes)
{
	double fresh = 0;

	for (size_t i = 0; i < count; i++)
		fresh += flows[i].gather_bytes;
	for (size_t i = 0; i < count; i++)
		flows[i].gather_bytes *= fresh > 0 ? gather_bytes / fresh : 0;
}

static int add_trainer(struct builder *builder, const struct send_order *sends, uint32_t trainer,
		       double gather_bytes)
{
	struct sim_flows *flows = builder->flows;
	size_t first = flows->count;

	builder->parts.count = builder->ring.count = builder->oldest = 0;
	builder->used_bytes = 0;
	builder->queues = 0;
	flows->first[trainer] = first;
	for (size_t i = sends->first[trainer]; i < sends->first[trainer + 1]; i++)
		if (add_route(builder, trainer, first, sends->routes[i]))
			return -ERROR_MEMORY;
	spread_gather(flows->items + first, flows->count - first, gather_bytes);
	flows->queue_first[trainer + 1] = flows->queue_first[trainer] + builder->queues;
	return 0;
}

static int open_builder(struct builder *builder, const struct table *table,
			const struct send_order *sends, struct sim_flows *flows,
			uint64_t ring_bytes)
{
	const struct problem *problem = table->problem;
	uint64_t total = 0;
	size_t most = 0;

	for (size_t r = 0; r < table->route_count; r++)
		total += table->routes[r].bytes;
	for (uint32_t t = 0; t < problem->trainer_count; t++)
		if (sends->first[t + 1] - sends->first[t] > most)
			most = sends->first[t + 1] - sends->first[t];
	*builder = (struct builder){.table = table, .flows = flows, .ring_bytes = ring_bytes};
	builder->small = total / FLOWS_AIM;
	builder->part_max = 4 * builder->small > PART_BYTES ? 4 * builder->small : PART_BYTES;
	if (builder->part_max > ring_bytes / 4)
		builder->part_max = ring_bytes / 4;
	if (table->route_count < FLOWS_AIM / 10)
		builder->small = 0;
	flows->flow_bytes_min = builder->small;
	for (builder->slot_count = 16; builder->slot_count < 2 * most;)
		builder->slot_count *= 2;
	builder->slots = pool_array(&builder->pool, builder->slot_count, sizeof(*builder->slots));
	builder->last_flow = pool_array(&builder->pool, problem->inference_count, sizeof(uint32_t));
	builder->last_stamp =
		pool_array(&builder->pool, problem->inference_count, sizeof(uint32_t));
	builder->queue = pool_array(&builder->pool, problem->inference_count, sizeof(uint32_t));
	flows->first = memory_zalloc((size_t)problem->trainer_count + 1, sizeof(*flows->first));
	flows->queue_first =
		memory_zalloc((size_t)problem->trainer_count + 1, sizeof(*flows->queue_first));
	return pool_ok(&builder->pool) && flows->first && flows->queue_first ? 0 : -ERROR_MEMORY;
}

int sim_flows_build(struct sim_flows *flows, const struct table *table, uint64_t ring_bytes,
		    struct error *error)
{
	uint32_t trainers = table->problem->trainer_count;
	struct builder builder = {0};
	struct send_order sends;
	double *gathers = NULL;
	int rc = order_sends(table, &sends, error);

	*flows = (struct sim_flows){0};
	if (rc)
		return rc;
	rc = sim_gathers(&gathers, table->problem, error);
	if (!rc && open_builder(&builder, table, &sends, flows, ring_bytes))
		rc = memory_error(error, "simulating",
				  table->route_count * sizeof(struct sim_flow));
	for (uint32_t t = 0; !rc && t < trainers; t++)
		if (add_trainer(&builder, &sends, t, gathers[t]))
			rc = memory_error(error, "simulating",
					  flows->capacity * sizeof(struct sim_flow));
	if (!rc)
		flows->first[trainers] = flows->count;
	else
		sim_flows_fini(flows);
	pool_free(&builder.pool);
	array_free(&builder.parts);
	array_free(&builder.ring);
	memory_free(gathers);
	send_order_fini(&sends);
	return rc;
}

/* ---- gathers ---- */

bool sim_wanted(const struct problem *problem, size_t tensor)
{
	for (size_t l = 0; l < problem->layout_count; l++)
		if (problem->layouts[l].pieces_of[tensor] !=
		    problem->layouts[l].pieces_of[tensor + 1])
			return true;
	return false;
}

/* Sharded trainers send what they have; a holding that several gathered trainers share is what
 * they gathered together. */
static double gather_of(const struct problem *problem, const struct problem_holding *holding,
			uint32_t sharers, const bool *is_wanted)
{
	double bytes = 0;

	for (size_t t = 0; t < problem->tensor_count; t++) {
		for (uint32_t h = holding->held_of[t]; is_wanted[t] && h < holding->held_of[t + 1];
		     h++)
			bytes += (double)box_elements(&holding->held[h].box) *
				 dtype_bytes(problem->tensors[t].dtype);
	}
	return bytes * (sharers - 1) / sharers;
}

int sim_gathers(double **out, const struct problem *problem, struct error *error)
{
	struct pool pool = {0};
	uint32_t *sharers = pool_array(&pool, problem->holding_count, sizeof(*sharers));
	bool *is_wanted = pool_array(&pool, problem->tensor_count, sizeof(*is_wanted));
	double *of_holding = pool_array(&pool, problem->holding_count, sizeof(*of_holding));
	double *bytes = memory_zalloc(problem->trainer_count, sizeof(*bytes));
	struct train_spec spec;

	*out = bytes;
	if (!pool_ok(&pool) || !bytes) {
		*out = NULL;
		memory_free(bytes);
		pool_free(&pool);
		return memory_error(error, "simulating", problem->tensor_count);
	}
	if (train_spec_parse(&spec, problem->train, NULL) == 0 && spec.source == TRAIN_GATHERED) {
		for (uint32_t t = 0; t < problem->tensor_count; t++)
			is_wanted[t] = sim_wanted(problem, t);
		for (uint32_t t = 0; t < problem->trainer_count; t++)
			sharers[problem->trainer_holding[t]]++;
		for (size_t h = 0; h < problem->holding_count; h++)
			if (sharers[h])
				of_holding[h] = gather_of(problem, &problem->holdings[h],
							  sharers[h], is_wanted);
		for (uint32_t t = 0; t < problem->trainer_count; t++)
			bytes[t] = of_holding[problem->trainer_holding[t]];
	}
	pool_free(&pool);
	return 0;
}
