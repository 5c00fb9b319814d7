/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/route_lines.h"

#include "base/compare.h"
#include "base/memory.h"

const char *const view_by_names[BY_COUNT] = {
	[BY_TRAINER] = "trainer", [BY_INFERENCE] = "inference",
	[BY_TENSOR] = "tensor",	  [BY_HOST] = "host",
	[BY_NIC] = "nic",	  [BY_TRANSPORT] = "transport",
};

static int no_memory(struct error *error)
{
	return memory_error(error, "gathering routes", sizeof(struct line));
}

static int by_bytes(const void *x, const void *y)
{
	const struct line *a = x, *b = y;

	return compare_u64(b->bytes, a->bytes) ?: compare_u64(a->key, b->key);
}

/* ---- route by route ---- */

/* Sorted, each once. */
static void compact(struct lines *lines)
{
	size_t kept = 0;

	sort_items(lines->ends.items, lines->ends.count, compare_u64s);
	for (size_t i = 0; i < lines->ends.count; i++)
		if (i == 0 || lines->ends.items[i] != lines->ends.items[i - 1])
			lines->ends.items[kept++] = lines->ends.items[i];
	lines->ends.count = lines->ends_sorted = kept;
}

/* Up to `count` of them, each with its number. */
static int add_lines(struct lines *lines, size_t count)
{
	while (lines->items.count < count)
		if (!array_add(&lines->items, (struct line){.key = (uint32_t)lines->items.count}))
			return -ERROR_MEMORY;
	return 0;
}

static int add_end(struct lines *lines, uint32_t key, uint32_t peer, struct error *error)
{
	/* a repeated pair costs nothing for long: twice as many as are distinct are kept */
	if (lines->ends.count > 65536 && lines->ends.count > 2 * lines->ends_sorted)
		compact(lines);
	return array_add(&lines->ends, (uint64_t)key << 32 | peer) ? 0 : no_memory(error);
}

static int start(void *context, const struct dump *head, struct error *error)
{
	struct lines *lines = context;

	lines->trainer_bytes = memory_zalloc(head->labels.trainer_count, sizeof(uint64_t));
	lines->inference_bytes = memory_zalloc(head->labels.inference_count, sizeof(uint64_t));
	return lines->trainer_bytes && lines->inference_bytes ? 0 : no_memory(error);
}

static int add_route(void *context, const struct dump *head, const struct route *route,
		     const struct route_piece *pieces, struct error *error)
{
	struct lines *lines = context;
	uint32_t key = lines->view == BY_TRAINER     ? route->trainer
		       : lines->view == BY_INFERENCE ? route->inference
						     : route->tensor;
	uint32_t peer = lines->view == BY_TRAINER ? route->inference : route->trainer;

	if (lines->view == BY_TRANSPORT && head->labels.pairs) {
		key = pairs_transport(head->labels.pairs, route->trainer, route->inference);
		peer = route->trainer << 16 |
		       route->inference; /* the pair; ranks are below 65536 */
	}

	lines->trainer_bytes[route->trainer] += route->bytes;
	lines->inference_bytes[route->inference] += route->bytes;
	if (lines->view == BY_HOST || lines->view == BY_NIC || lines->view == BY_NOTHING)
		return 0;
	if (add_lines(lines, (size_t)key + 1))
		return no_memory(error);
	lines->items.items[key].routes++;
	lines->items.items[key].bytes += route->bytes;
	return add_end(lines, key, peer, error);
}

/* ---- the lines ---- */

/* Ranks have a line each, also without routes; indexes of names only where a tensor is one. */
static int finish_ends(struct lines *lines, const struct dump *dump, struct error *error)
{
	uint32_t ranks = lines->view == BY_TRAINER     ? dump->labels.trainer_count
			 : lines->view == BY_INFERENCE ? dump->labels.inference_count
						       : 0;
	size_t kept = 0;

	if (add_lines(lines, ranks))
		return no_memory(error);
	compact(lines);
	for (size_t i = 0; i < lines->ends.count; i++)
		lines->items.items[lines->ends.items[i] >> 32].peers++;
	for (size_t i = 0; i < lines->items.count; i++)
		if (ranks || lines->items.items[i].routes)
			lines->items.items[kept++] = lines->items.items[i];
	lines->items.count = kept;
	return 0;
}

/* A rank's bytes go over its NICs in proportion to their speed; the last one takes the rest. */
static void spread(struct lines *lines, const struct topology *topology, enum role role,
		   uint32_t rank, uint64_t bytes)
{
	const struct topology_rank *place = &topology->ranks[role][rank];
	uint64_t rate = topology_rank_rate(topology, role, rank), left = bytes;

	for (uint32_t l = 0; l < place->used_count; l++) {
		uint32_t nic = topology->links[place->link_first + l].nic;
		struct line *line = &lines->items.items[nic];
		uint64_t share = left;

		if (l + 1 < place->used_count)
			share = (uint64_t)((__uint128_t)bytes *
					   topology->nics[nic].bytes_per_second / rate);
		left -= share;
		line->peers++;
		*(role == ROLE_TRAINER ? &line->sent : &line->received) += share;
	}
}

static int finish_places(struct lines *lines, const struct dump *dump, struct error *error)
{
	const struct topology *topology = dump->labels.topology;
	uint32_t count = lines->view == BY_HOST ? topology->host_count : topology->nic_count;

	if (add_lines(lines, count))
		return no_memory(error);
	for (enum role role = ROLE_TRAINER; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
			uint64_t bytes = role == ROLE_TRAINER ? lines->trainer_bytes[r]
							      : lines->inference_bytes[r];
			struct line *line;

			if (lines->view == BY_NIC) {
				spread(lines, topology, role, r, bytes);
				continue;
			}
			line = &lines->items.items[topology->ranks[role][r].host];
			line->peers++;
			*(role == ROLE_TRAINER ? &line->sent : &line->received) += bytes;
		}
	for (uint32_t k = 0; k < count; k++) {
		struct line *line = &lines->items.items[k];

		line->bytes = line->sent > line->received ? line->sent : line->received;
	}
	return 0;
}

int lines_open(struct lines *lines, struct dump **dump, const char *path, enum view_by view,
	       struct error *error)
{
	struct dump_visitor visitor = {start, add_route, lines};
	int rc;

	*lines = (struct lines){.view = view};
	rc = dump_visit(dump, path, &visitor, error);
	if (rc)
		return rc;
	if (view == BY_NOTHING)
		return 0;
	if (!(*dump)->has_routes)
		return error_set(error, ERROR_FILE,
				 "%s has no routes to list: it was written with --summary", path);
	if ((view == BY_HOST || view == BY_NIC) && !(*dump)->labels.topology)
		return error_set(error, ERROR_USAGE,
				 "--by %s: %s says nothing of hosts and NICs; plan it with "
				 "--topology FILE|SPEC",
				 view_by_names[view], path);
	if (view == BY_TRANSPORT && !(*dump)->labels.pairs)
		return error_set(
			error, ERROR_USAGE,
			"--by transport: the pairs of %s use one transport; a job of several "
			"is started, and planned, with --transport LIST",
			path);
	rc = view == BY_HOST || view == BY_NIC ? finish_places(lines, *dump, error)
					       : finish_ends(lines, *dump, error);
	if (!rc)
		sort_items(lines->items.items, lines->items.count, by_bytes);
	return rc;
}

void lines_fini(struct lines *lines)
{
	array_free(&lines->items);
	array_free(&lines->ends);
	memory_free(lines->trainer_bytes);
	memory_free(lines->inference_bytes);
}
