/* SPDX-License-Identifier: Apache-2.0
 *
 * bound.c -- when no trainer is in two sets, the bound is max(bytes / holders) over the sets.
 * Otherwise it is a fraction p/q = max over T of W(T) / |T|, where W(T) is the bytes that only
 * trainers of T can send. Dinkelbach's iteration: guess p/q, and ask a flow network whether
 * every set's bytes fit when each trainer takes p/q:
 *
 *   source --W*q--> set --inf--> trainers (alike ones as one node) --p*n--> sink
 *
 * If all flows, the guess is enough; else the trainers on the source's side of the least cut
 * are a T with a larger ratio, which is the next guess. Everything is multiplied by q, so all
 * is exact: bytes up to 2^62 times up to 2^32 trainers need 128 bits.
 */
#include "routing/bound.h"

#include "common/array.h"
#include <string.h>

typedef unsigned __int128 wide;

#define NONE UINT32_MAX

struct edge {
	uint32_t to, next; /* next edge of the same node; the reverse edge is index ^ 1 */
	wide room;
};

struct flow {
	ARRAY(struct edge) edges;
	uint32_t *head, *level, *cursor, *queue, *path; /* by node */
	uint32_t nodes;
};

/* Nodes: 0 source, 1 sink, then the sets, then the types of trainers. */
struct network {
	const struct holder_set *sets;
	const uint64_t *bytes;
	size_t set_count;
	uint32_t trainer_count;
	uint32_t *type; /* trainer -> type: trainers that are in the same sets */
	uint32_t *type_size;
	uint32_t type_count;
	struct flow flow;
};

static int no_memory(struct error *error)
{
	return memory_error(error, "computing the lower bound", sizeof(struct edge));
}

/* ---- trainers that are alike ---- */

/* Splits each type by each set: members leave for a new type unless all are members. */
static int make_types(struct network *n, struct error *error)
{
	uint32_t *inside = memory_zalloc(n->trainer_count, sizeof(*inside));
	uint32_t *leave_to = memory_alloc(n->trainer_count * sizeof(*leave_to));

	n->type = memory_zalloc(n->trainer_count, sizeof(*n->type));
	n->type_size = memory_zalloc(n->trainer_count, sizeof(*n->type_size));
	if (!inside || !leave_to || !n->type || !n->type_size) {
		memory_free(inside);
		memory_free(leave_to);
		return no_memory(error);
	}
	n->type_count = n->trainer_count ? 1 : 0;
	if (n->trainer_count)
		n->type_size[0] = n->trainer_count;
	for (size_t s = 0; s < n->set_count; s++) {
		const struct holder_set *set = &n->sets[s];

		for (uint32_t k = 0; k < set->count; k++) {
			leave_to[n->type[set->trainers[k]]] = NONE;
			inside[n->type[set->trainers[k]]]++;
		}
		for (uint32_t k = 0; k < set->count; k++) {
			uint32_t trainer = set->trainers[k], old = n->type[trainer];

			if (inside[old] == n->type_size[old] && leave_to[old] == NONE)
				continue; /* all of them are members */
			if (leave_to[old] == NONE)
				leave_to[old] = n->type_count++;
			n->type[trainer] = leave_to[old];
			n->type_size[old]--;
			n->type_size[leave_to[old]]++;
			inside[old]--;
		}
		for (uint32_t k = 0; k < set->count; k++)
			inside[n->type[set->trainers[k]]] = 0;
	}
	memory_free(inside);
	memory_free(leave_to);
	return 0;
}

/* ---- maximum flow (Dinic's) ---- */

static int add_edge(struct flow *flow, uint32_t from, uint32_t to, struct error *error)
{
	for (int back = 0; back < 2; back++) {
		struct edge *edge = array_push(&flow->edges);

		if (!edge)
			return no_memory(error);
		edge->to = back ? from : to;
		edge->next = flow->head[back ? to : from];
		flow->head[back ? to : from] = (uint32_t)flow->edges.count - 1;
	}
	return 0;
}

static bool make_levels(struct flow *flow)
{
	uint32_t first = 0, last = 0;

	memset(flow->level, 0xff, flow->nodes * sizeof(*flow->level));
	flow->level[0] = 0;
	flow->queue[last++] = 0;
	while (first < last) {
		uint32_t node = flow->queue[first++];

		for (uint32_t e = flow->head[node]; e != NONE; e = flow->edges.items[e].next) {
			const struct edge *edge = &flow->edges.items[e];

			if (edge->room == 0 || flow->level[edge->to] != NONE)
				continue;
			flow->level[edge->to] = flow->level[node] + 1;
			flow->queue[last++] = edge->to;
		}
	}
	return flow->level[1] != NONE;
}

/* One path from source to sink along the levels, with an explicit stack: a path may be as long
 * as the network. Returns what was pushed, 0 when the level graph is exhausted. */
static wide push_path(struct flow *flow)
{
	struct edge *edges = flow->edges.items;
	uint32_t node = 0, depth = 0;

	while (node != 1) {
		uint32_t e = flow->cursor[node];

		while (e != NONE &&
		       (edges[e].room == 0 || flow->level[edges[e].to] != flow->level[node] + 1))
			e = edges[e].next;
		flow->cursor[node] = e;
		if (e != NONE) {
			flow->path[depth++] = e;
			node = edges[e].to;
			continue;
		}
		if (depth == 0)
			return 0;
		/* a dead end: step back over the edge that led here */
		uint32_t back = flow->path[--depth];

		node = edges[back ^ 1].to;
		flow->cursor[node] = edges[back].next;
	}
	wide least = ~(wide)0;

	for (uint32_t k = 0; k < depth; k++)
		if (edges[flow->path[k]].room < least)
			least = edges[flow->path[k]].room;
	for (uint32_t k = 0; k < depth; k++) {
		edges[flow->path[k]].room -= least;
		edges[flow->path[k] ^ 1].room += least;
	}
	return least;
}

static wide maximum_flow(struct flow *flow)
{
	wide total = 0, pushed;

	while (make_levels(flow)) {
		memcpy(flow->cursor, flow->head, flow->nodes * sizeof(*flow->cursor));
		while ((pushed = push_path(flow)) != 0)
			total += pushed;
	}
	return total; /* and level[] != NONE marks the source's side of the least cut */
}

/* ---- the iteration ---- */

static uint32_t set_node(size_t set)
{
	return 2 + (uint32_t)set;
}

static uint32_t type_node(const struct network *n, uint32_t type)
{
	return 2 + (uint32_t)n->set_count + type;
}

/* Edges in a fixed order: one a set from the source, one a type to the sink, then the rest. */
static int make_network(struct network *n, struct error *error)
{
	struct flow *flow = &n->flow;
	uint32_t *seen;
	int rc = 0;

	flow->nodes = 2 + (uint32_t)n->set_count + n->type_count;
	flow->head = memory_alloc(flow->nodes * sizeof(*flow->head));
	flow->level = memory_alloc(flow->nodes * sizeof(*flow->level));
	flow->cursor = memory_alloc(flow->nodes * sizeof(*flow->cursor));
	flow->queue = memory_alloc(flow->nodes * sizeof(*flow->queue));
	flow->path = memory_alloc(flow->nodes * sizeof(*flow->path));
	seen = memory_alloc((n->type_count + 1) * sizeof(*seen));
	if (!flow->head || !flow->level || !flow->cursor || !flow->queue || !flow->path || !seen)
		rc = no_memory(error);
	if (!rc) {
		memset(flow->head, 0xff, flow->nodes * sizeof(*flow->head));
		memset(seen, 0xff, (n->type_count + 1) * sizeof(*seen));
	}
	for (size_t s = 0; !rc && s < n->set_count; s++)
		rc = add_edge(flow, 0, set_node(s), error);
	for (uint32_t t = 0; !rc && t < n->type_count; t++)
		rc = add_edge(flow, type_node(n, t), 1, error);
	for (size_t s = 0; !rc && s < n->set_count; s++) {
		for (uint32_t k = 0; !rc && k < n->sets[s].count; k++) {
			uint32_t type = n->type[n->sets[s].trainers[k]];

			if (seen[type] == s)
				continue;
			seen[type] = (uint32_t)s;
			rc = add_edge(flow, set_node(s), type_node(n, type), error);
		}
	}
	memory_free(seen);
	return rc;
}

/* Does everything fit when each trainer takes p/q? If not, p/q becomes the ratio of the cut. */
static bool fits(struct network *n, uint64_t *p, uint64_t *q)
{
	struct flow *flow = &n->flow;
	size_t types_at = 2 * n->set_count, rest_at = types_at + 2 * (size_t)n->type_count;
	wide total = 0;
	uint64_t bytes = 0, trainers = 0;

	for (size_t e = 0; e < flow->edges.count; e++)
		flow->edges.items[e].room = e >= rest_at && e % 2 == 0 ? ~(wide)0 >> 1 : 0;
	for (size_t s = 0; s < n->set_count; s++) {
		flow->edges.items[2 * s].room = (wide)n->bytes[s] * *q;
		total += (wide)n->bytes[s] * *q;
	}
	for (uint32_t t = 0; t < n->type_count; t++)
		flow->edges.items[types_at + 2 * t].room = (wide)*p * n->type_size[t];
	if (maximum_flow(flow) == total)
		return true;
	for (uint32_t t = 0; t < n->type_count; t++)
		if (flow->level[type_node(n, t)] != NONE)
			trainers += n->type_size[t];
	for (size_t s = 0; s < n->set_count; s++) {
		bool within = n->sets[s].count > 0;

		for (uint32_t k = 0; k < n->sets[s].count && within; k++)
			within = flow->level[type_node(n, n->type[n->sets[s].trainers[k]])] != NONE;
		bytes += within ? n->bytes[s] : 0;
	}
	*p = bytes;
	*q = trainers;
	return false;
}

static bool overlapping(const struct network *n, uint32_t *used)
{
	for (size_t s = 0; s < n->set_count; s++)
		for (uint32_t k = 0; k < n->sets[s].count; k++)
			if (n->bytes[s] && used[n->sets[s].trainers[k]]++)
				return true;
	return false;
}

static void network_fini(struct network *n)
{
	memory_free(n->type);
	memory_free(n->type_size);
	memory_free(n->flow.head);
	memory_free(n->flow.level);
	memory_free(n->flow.cursor);
	memory_free(n->flow.queue);
	memory_free(n->flow.path);
	array_free(&n->flow.edges);
}

int bound_of(uint64_t *bound, const struct holder_set *sets, const uint64_t *bytes, size_t count,
	     uint32_t trainer_count, struct error *error)
{
	struct network n = {
		.sets = sets, .bytes = bytes, .set_count = count, .trainer_count = trainer_count};
	uint32_t *used = memory_zalloc(trainer_count, sizeof(*used));
	uint64_t p = 0, q = 1;
	int rc = 0;

	if (!used)
		return no_memory(error);
	for (size_t s = 0; s < count; s++) /* the best single set is the first guess */
		if (sets[s].count && (wide)bytes[s] * q > (wide)p * sets[s].count) {
			p = bytes[s];
			q = sets[s].count;
		}
	if (overlapping(&n, used)) {
		rc = make_types(&n, error);
		if (!rc)
			rc = make_network(&n, error);
		while (!rc && !fits(&n, &p, &q))
			;
	}
	network_fini(&n);
	memory_free(used);
	*bound = rc ? 0 : p / q + (p % q != 0);
	return rc;
}
