/* SPDX-License-Identifier: Apache-2.0
 *
 * export_dot.c -- who sends to whom as a Graphviz graph, trainers left, inference ranks right:
 *
 *   ( trainer 0 ) ═══ 247 MB ═══► ( inference 0 )      wider for more bytes
 *
 * A picture of more than DOT_NODES_MAX ranks tells nothing: the ranks of a host are one node
 * then (its senders left, its receivers right), or without a topology those of a stage and of an
 * engine.
 */
#include "routing/report/export.h"

#include "base/compare.h"
#include "base/plain.h"
#include "base/pool.h"
#include "base/text.h"
#include <inttypes.h>

#define DOT_NODES_MAX 64

/* One side of the graph: the node of each rank, and how nodes are called. */
struct side {
	uint32_t *node_of, *sorted; /* by rank; the same, ascending */
	uint32_t ranks;
	const char *id, *label;	      /* "t", "trainer" */
	const struct topology *hosts; /* nodes are hosts of it; NULL: they are numbers */
};

struct graph {
	struct side from, to;
	struct export_cell *edges;
	size_t edge_count;
	struct pool pool; /* of all arrays here */
};

/* The node of rank r is groups[r * stride], or r when there are no groups. */
static int init_side(struct side *side, struct pool *pool, uint32_t ranks, const uint32_t *groups,
		     size_t stride, struct error *error)
{
	side->ranks = ranks;
	side->node_of = pool_array(pool, ranks, sizeof(uint32_t));
	side->sorted = pool_array(pool, ranks, sizeof(uint32_t));
	if (!pool_ok(pool))
		return memory_error(error, "drawing a graph", ranks * sizeof(uint32_t));
	for (uint32_t r = 0; r < ranks; r++)
		side->node_of[r] = side->sorted[r] = groups ? groups[r * stride] : r;
	sort_items(side->sorted, ranks, compare_u32s);
	return 0;
}

static int init(struct graph *graph, const struct dump *dump, struct error *error)
{
	bool grouped = dump->labels.trainer_count + dump->labels.inference_count > DOT_NODES_MAX;
	const struct topology *topology = grouped ? dump->labels.topology : NULL;
	const uint32_t *from = NULL, *to = NULL;
	size_t from_stride = 1, to_stride = 1;
	int rc;

	graph->from.id = topology ? "sender" : grouped ? "s" : "t";
	graph->from.label = grouped ? "stage" : "trainer";
	graph->to.id = topology ? "receiver" : grouped ? "e" : "i";
	graph->to.label = grouped ? "engine" : "inference";
	graph->from.hosts = graph->to.hosts = topology;
	if (topology) {
		from = &topology->ranks[ROLE_TRAINER]->host;
		to = &topology->ranks[ROLE_INFERENCE]->host;
		from_stride = to_stride = sizeof(struct topology_rank) / sizeof(uint32_t);
	} else if (grouped) {
		from = dump->labels.trainer_stage;
		to = &dump->inference->engine;
		to_stride = sizeof(*dump->inference) / sizeof(uint32_t);
	}
	rc = init_side(&graph->from, &graph->pool, dump->labels.trainer_count, from, from_stride,
		       error);
	return rc ? rc
		  : init_side(&graph->to, &graph->pool, dump->labels.inference_count, to, to_stride,
			      error);
}

static int add_edges(struct graph *graph, const struct dump *dump, struct error *error)
{
	graph->edges = pool_array(&graph->pool, dump->route_count, sizeof(*graph->edges));
	if (!graph->edges)
		return memory_error(error, "drawing a graph",
				    dump->route_count * sizeof(*graph->edges));
	for (size_t r = 0; r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];

		graph->edges[r] =
			(struct export_cell){graph->from.node_of[route->trainer],
					     graph->to.node_of[route->inference], route->bytes, 1};
	}
	graph->edge_count = export_merge(graph->edges, dump->route_count);
	return 0;
}

void export_quoted(FILE *stream, const char *value)
{
	char one[PLAIN_SHOWN_BYTES];

	while (*value) {
		plain_next(&value, one);
		for (const char *at = one; *at; at++) {
			if (*at == '"' || *at == '\\')
				fputc('\\', stream);
			fputc(*at, stream);
		}
	}
}

static void write_nodes(FILE *stream, const struct side *side, const char *rank)
{
	fprintf(stream, "\t{ rank=%s;", rank);
	for (uint32_t r = 0, members; r < side->ranks; r += members) {
		uint32_t node = side->sorted[r];

		for (members = 1; r + members < side->ranks; members++)
			if (side->sorted[r + members] != node)
				break;
		fprintf(stream, "\n\t\t%s%" PRIu32 " [label=\"", side->id, node);
		if (side->hosts)
			export_quoted(stream, side->hosts->hosts[node].name);
		else
			fprintf(stream, "%s %" PRIu32, side->label, node);
		if (members > 1)
			fprintf(stream, "\\n%" PRIu32 " ranks", members);
		fputs("\"];", stream);
	}
	fputs("\n\t}\n", stream);
}

/* Whole tenths, so that no locale and no rounding of doubles has a say. */
static void write_edges(FILE *stream, const struct graph *graph)
{
	uint64_t most = 1;

	for (size_t e = 0; e < graph->edge_count; e++)
		if (graph->edges[e].bytes > most)
			most = graph->edges[e].bytes;
	for (size_t e = 0; e < graph->edge_count; e++) {
		const struct export_cell *edge = &graph->edges[e];
		uint64_t tenths = 5 + (uint64_t)((__uint128_t)edge->bytes * 75 / most);

		fprintf(stream,
			"\t%s%" PRIu32 " -> %s%" PRIu32 " [penwidth=%" PRIu64 ".%" PRIu64
			", label=\"%s\", tooltip=\"%" PRIu64 " bytes, %" PRIu64 " routes\"];\n",
			graph->from.id, edge->from, graph->to.id, edge->to, tenths / 10,
			tenths % 10, BYTES_TEXT(edge->bytes), edge->bytes, edge->routes);
	}
}

int export_dot(FILE *stream, const struct dump *dump, struct error *error)
{
	struct graph graph = {0};
	int rc = init(&graph, dump, error);

	if (!rc)
		rc = add_edges(&graph, dump, error);
	if (!rc) {
		fputs("digraph routes {\n\tlabel=\"", stream);
		export_quoted(stream, dump->labels.model);
		fputs("\\n", stream);
		export_quoted(stream, dump->labels.train);
		fputs(" to ", stream);
		export_quoted(stream, dump->labels.infer);
		fputs("\\npolicy ", stream);
		export_quoted(stream, dump->labels.policy);
		fputs("\";\n\trankdir=LR;\n\tranksep=3;\n\tnode [shape=box, fontname=\"sans\"];\n"
		      "\tedge [arrowhead=none, color=\"#1f6feb80\", fontname=\"sans\", "
		      "fontsize=9];\n",
		      stream);
		write_nodes(stream, &graph.from, "source");
		write_nodes(stream, &graph.to, "sink");
		write_edges(stream, &graph);
		fputs("}\n", stream);
	}
	pool_free(&graph.pool);
	return rc;
}
