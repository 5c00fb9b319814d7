/* SPDX-License-Identifier: Apache-2.0
 *
 * maxflow.h -- maximum flow in a small network (Dinic's), in whole numbers of 128 bits. Node 0 is
 * the source, node 1 the sink.
 */
#ifndef ROUTING_PLAN_MAXFLOW_H
#define ROUTING_PLAN_MAXFLOW_H

#include "base/array.h"
#include "base/error.h"
#include "base/pool.h"
#include <stdbool.h>
#include <stdint.h>

typedef unsigned __int128 wide;

#define MAXFLOW_NONE      UINT32_MAX
#define MAXFLOW_UNLIMITED (~(wide)0 >> 1)

struct maxflow_edge {
	uint32_t to, next; /* next edge of the same node; the reverse edge is index ^ 1 */
	wide room;         /* what can still pass; the reverse edge's is what does */
};

struct maxflow {
	struct pool pool; /* owns what is by node */
	ARRAY(struct maxflow_edge) edges;
	uint32_t *head, *level, *cursor, *queue, *path; /* by node */
	uint32_t nodes;
};

int maxflow_init(struct maxflow *flow, uint32_t nodes, struct error *error);
void maxflow_fini(struct maxflow *flow);
/* Edges are numbered 0, 2, 4, .. in the order they are added; rooms are set before each run. */
int maxflow_edge(struct maxflow *flow, uint32_t from, uint32_t to, struct error *error);
/* Sends all it can. After it, maxflow_reached tells the source's side of a least cut. */
wide maxflow_run(struct maxflow *flow);
static inline bool maxflow_reached(const struct maxflow *flow, uint32_t node)
{
	return flow->level[node] != MAXFLOW_NONE;
}

#endif
