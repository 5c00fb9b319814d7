/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/maxflow.h"

#include "base/assert.h"
#include <string.h>

static int no_memory(struct error *error)
{
	return memory_error(error, "computing a flow", sizeof(struct maxflow_edge));
}

int maxflow_init(struct maxflow *flow, uint32_t nodes, struct error *error)
{
	*flow = (struct maxflow){.nodes = nodes};
	flow->head = pool_array(&flow->pool, nodes, sizeof(*flow->head));
	flow->level = pool_array(&flow->pool, nodes, sizeof(*flow->level));
	flow->cursor = pool_array(&flow->pool, nodes, sizeof(*flow->cursor));
	flow->queue = pool_array(&flow->pool, nodes, sizeof(*flow->queue));
	flow->path = pool_array(&flow->pool, nodes, sizeof(*flow->path));
	if (!pool_ok(&flow->pool))
		return no_memory(error);
	memset(flow->head, 0xff, nodes * sizeof(*flow->head));
	return 0;
}

void maxflow_fini(struct maxflow *flow)
{
	pool_free(&flow->pool);
	array_free(&flow->edges);
}

int maxflow_edge(struct maxflow *flow, uint32_t from, uint32_t to, struct error *error)
{
	WEFT_ASSERT(from < flow->nodes && to < flow->nodes);
	for (int back = 0; back < 2; back++) {
		if (!array_add(&flow->edges,
			       (struct maxflow_edge){.to = back ? from : to,
						     .next = flow->head[back ? to : from]}))
			return no_memory(error);
		flow->head[back ? to : from] = (uint32_t)flow->edges.count - 1;
	}
	return 0;
}

static bool make_levels(struct maxflow *flow)
{
	uint32_t first = 0, last = 0;

	memset(flow->level, 0xff, flow->nodes * sizeof(*flow->level));
	flow->level[0] = 0;
	flow->queue[last++] = 0;
	while (first < last) {
		uint32_t node = flow->queue[first++];

		for (uint32_t e = flow->head[node]; e != MAXFLOW_NONE;
		     e = flow->edges.items[e].next) {
			const struct maxflow_edge *edge = &flow->edges.items[e];

			if (edge->room == 0 || flow->level[edge->to] != MAXFLOW_NONE)
				continue;
			flow->level[edge->to] = flow->level[node] + 1;
			flow->queue[last++] = edge->to;
		}
	}
	return flow->level[1] != MAXFLOW_NONE;
}

/* One path from source to sink along the levels, with an explicit stack: a path may be as long
 * as the network. Returns what was pushed, 0 when the level graph is exhausted. */
static wide push_path(struct maxflow *flow)
{
	struct maxflow_edge *edges = flow->edges.items;
	uint32_t node = 0, depth = 0;

	while (node != 1) {
		uint32_t e = flow->cursor[node];

		while (e != MAXFLOW_NONE &&
		       (edges[e].room == 0 || flow->level[edges[e].to] != flow->level[node] + 1))
			e = edges[e].next;
		flow->cursor[node] = e;
		if (e != MAXFLOW_NONE) {
			WEFT_ASSERT_OP(depth, <, flow->nodes); /* levels rise along a path */
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
	WEFT_ASSERT(least > 0 && depth > 0);
	for (uint32_t k = 0; k < depth; k++) {
		edges[flow->path[k]].room -= least;
		edges[flow->path[k] ^ 1].room += least;
	}
	return least;
}

wide maxflow_run(struct maxflow *flow)
{
	wide total = 0, pushed;

	while (make_levels(flow)) {
		memcpy(flow->cursor, flow->head, flow->nodes * sizeof(*flow->cursor));
		while ((pushed = push_path(flow)) != 0)
			total += pushed;
	}
	return total; /* and level[] != MAXFLOW_NONE marks the source's side of the least cut */
}
