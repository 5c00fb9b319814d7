/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route topology: the cluster that --topology means, for people as `nvidia-smi topo -m` has
 * it, as a file to edit, or as a picture.
 *
 *   host 0                  nic 0   nic 1
 *     rail                      0       1
 *     Gb/s                    400     400
 *     trainer 0              *PIX     SYS
 *     trainer 1               SYS    *PIX
 *   host 1 .. host 3: as host 0, with trainer 2 .. trainer 7
 */
#include "cli/route.h"
#include "cli/grid.h"
#include "cli/shown.h"
#include "base/error.h"
#include "base/pool.h"
#include "job/parallel.h"
#include "routing/plan/topology_file.h"
#include "routing/report/export.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define BYTES_PER_GIGABIT 125e6
#define LABEL_WIDTH	  18
#define COLUMN_LEAST	  8

struct options {
	const char *train, *infer, *topology;
	bool json, dot;
};

static const struct verb_option rows[] = {
	TEXT(train, "train", "SPEC", "trainers: world=16,pp=2"),
	TEXT(infer, "infer", "SPEC", "inference: engines=2,tp=4 (all keys: docs/models.md)"),
	TEXT(topology, "topology", "FILE|SPEC",
	     "flat (default), a spec like per_host=8,nics=8,gbps=400 (also uplink_gbps, rails), or a "
	     "file of schema weft.topology/1 (docs/topology.md)"),
	FORMAT(json, "json", "the same as a file, to be edited"),
	FORMAT(dot, "dot", "the same for Graphviz"),
	{0},
};

/* ---- ranks by host ---- */

/* The members on each host, trainers first: of[first[h]] .. of[first[h + 1]]. */
struct residents {
	struct member *of;
	uint32_t *first;
	struct pool pool;
};

static int residents_of(struct residents *residents, const struct topology *topology,
			struct error *error)
{
	size_t ranks = 0, hosts = topology->host_count;

	for (int role = 0; role < ROLE_COUNT; role++)
		ranks += topology->rank_count[role];
	residents->of = pool_array(&residents->pool, ranks, sizeof(*residents->of));
	residents->first = pool_array(&residents->pool, hosts + 2, sizeof(*residents->first));
	if (!pool_ok(&residents->pool))
		return memory_error(error, "printing a topology", ranks * sizeof(*residents->of));
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < topology->rank_count[role]; r++)
			residents->first[topology->ranks[role][r].host + 2]++;
	for (size_t h = 0; h < hosts; h++)
		residents->first[h + 2] += residents->first[h + 1];
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < topology->rank_count[role]; r++)
			residents->of[residents->first[topology->ranks[role][r].host + 1]++] =
				(struct member){(enum role)role, r};
	return 0; /* the counting has moved every start one place down */
}

static const struct topology_rank *place_of(const struct topology *topology, struct member member)
{
	return &topology->ranks[member.role][member.rank];
}

/* ---- for people ---- */

static bool same_nics(const struct topology *topology, uint32_t a, uint32_t b)
{
	const struct topology_host *x = &topology->hosts[a], *y = &topology->hosts[b];
	bool same = x->nic_count == y->nic_count &&
		    x->uplink_bytes_per_second == y->uplink_bytes_per_second;

	for (uint32_t n = 0; same && n < x->nic_count; n++) {
		const struct topology_nic *p = &topology->nics[x->nic_first + n];
		const struct topology_nic *q = &topology->nics[y->nic_first + n];

		same = p->rail == q->rail && p->bytes_per_second == q->bytes_per_second &&
		       strcmp(p->name, q->name) == 0;
	}
	return same;
}

static bool same_links(const struct topology *topology, struct member a, struct member b)
{
	const struct topology_rank *x = place_of(topology, a), *y = place_of(topology, b);
	bool same = a.role == b.role && x->link_count == y->link_count;

	for (uint32_t l = 0; same && l < x->link_count; l++) {
		const struct topology_link *p = &topology->links[x->link_first + l];
		const struct topology_link *q = &topology->links[y->link_first + l];

		same = p->distance == q->distance &&
		       p->nic - topology->hosts[x->host].nic_first ==
			       q->nic - topology->hosts[y->host].nic_first;
	}
	return same;
}

static bool same_host(const struct topology *topology, const struct residents *residents,
		      uint32_t a, uint32_t b)
{
	const uint32_t *first = residents->first;
	uint32_t count = first[a + 1] - first[a];
	bool same = same_nics(topology, a, b) && count == first[b + 1] - first[b];

	for (uint32_t i = 0; same && i < count; i++)
		same = same_links(topology, residents->of[first[a] + i],
				  residents->of[first[b] + i]);
	return same;
}

static int column_width(const struct topology_nic *nic)
{
	int width = (int)strlen(nic->name) + 2;

	return width < COLUMN_LEAST ? COLUMN_LEAST : width;
}

static const char *distance_to(const struct topology *topology, const struct topology_rank *rank,
			       uint32_t nic, char out[32])
{
	for (uint32_t l = 0; l < rank->link_count; l++) {
		const struct topology_link *link = &topology->links[rank->link_first + l];
		size_t n = 0;

		if (link->nic != nic)
			continue;
		if (l < rank->used_count)
			out[n++] = '*';
		for (const char *at = nic_distance_name(link->distance); *at; at++)
			out[n++] = (char)toupper((unsigned char)*at);
		out[n] = '\0';
		return out;
	}
	return "-";
}

/* A host's table while it is made: a label, a column a NIC, and behind them its uplink. */
struct host_view {
	struct grid grid;
	struct grid_column *columns;
	const char **cells;
	char (*texts)[32]; /* of the cells */
};

static void begin_host(struct host_view *view, const struct topology_host *host,
		       const struct topology_nic *nics, struct pool *pool)
{
	view->columns[0] =
		(struct grid_column){shown(host->name), -(LABEL_WIDTH + 2), .least = LABEL_WIDTH};
	for (uint32_t n = 0; n < host->nic_count; n++)
		view->columns[n + 1] = (struct grid_column){pool_string(pool, shown(nics[n].name)),
							    column_width(&nics[n]), .before = ""};
	view->columns[host->nic_count + 1] =
		(struct grid_column)COLUMN(NULL, 0, .before = "   ", .folds = true);
	grid_begin(&view->grid, view->columns, host->nic_count + 2);
}

static const char *gigabits(uint64_t bytes_per_second, char out[32])
{
	snprintf(out, 32, "%.5g", (double)bytes_per_second / BYTES_PER_GIGABIT);
	return out;
}

static void add_host(struct host_view *view, const struct topology *topology,
		     const struct residents *residents, uint32_t h)
{
	const struct topology_host *host = &topology->hosts[h];
	const struct topology_nic *nics = &topology->nics[host->nic_first];
	char name[MEMBER_TEXT_BYTES], uplink[32];

	view->cells[0] = "  rail";
	for (uint32_t n = 0; n < host->nic_count; n++) {
		snprintf(view->texts[n], sizeof(view->texts[n]), "%" PRIu32, nics[n].rail);
		view->cells[n + 1] = view->texts[n];
	}
	view->cells[host->nic_count + 1] = NULL;
	grid_row(&view->grid, view->cells);
	view->cells[0] = "  Gb/s";
	for (uint32_t n = 0; n < host->nic_count; n++)
		gigabits(nics[n].bytes_per_second, view->texts[n]);
	if (host->uplink_bytes_per_second)
		view->cells[host->nic_count + 1] =
			grid_cell("uplink %s", gigabits(host->uplink_bytes_per_second, uplink));
	grid_row(&view->grid, view->cells);
	view->cells[host->nic_count + 1] = NULL;
	for (uint32_t i = residents->first[h]; i < residents->first[h + 1]; i++) {
		view->cells[0] = grid_cell("  %s", member_text(residents->of[i], name));
		for (uint32_t n = 0; n < host->nic_count; n++)
			view->cells[n + 1] =
				distance_to(topology, place_of(topology, residents->of[i]),
					    host->nic_first + n, view->texts[n]);
		grid_row(&view->grid, view->cells);
	}
}

static int print_host(const struct topology *topology, const struct residents *residents,
		      uint32_t h, struct error *error)
{
	const struct topology_host *host = &topology->hosts[h];
	size_t count = (size_t)host->nic_count + 2;
	struct pool pool = {0};
	struct host_view view = {
		.columns = pool_array(&pool, count, sizeof(*view.columns)),
		.cells = pool_array(&pool, count, sizeof(*view.cells)),
		.texts = pool_array(&pool, count, sizeof(*view.texts)),
	};
	bool ok = pool_ok(&pool);

	if (ok) {
		begin_host(&view, host, &topology->nics[host->nic_first], &pool);
		add_host(&view, topology, residents, h);
		grid_end(&view.grid);
	}
	pool_free(&pool);
	return ok ? 0 : memory_error(error, "printing a topology", count * sizeof(*view.columns));
}

/* Hosts first .. last are like `model`, whose lines stand above. */
static void print_like(const struct topology *topology, const struct residents *residents,
		       uint32_t model, uint32_t first, uint32_t last)
{
	const uint32_t *at = residents->first;
	char from[MEMBER_TEXT_BYTES], to[MEMBER_TEXT_BYTES];

	printf("%s", shown(topology->hosts[first].name));
	if (last > first)
		printf(" .. %s", shown(topology->hosts[last].name));
	printf(": as %s", shown(topology->hosts[model].name));
	if (at[last + 1] > at[first])
		printf(", with %s .. %s", member_text(residents->of[at[first]], from),
		       member_text(residents->of[at[last + 1] - 1], to));
	putchar('\n');
}

static int print_people(const struct topology *topology, const struct residents *residents,
			struct error *error)
{
	uint32_t h = 0;

	printf("%" PRIu32 " trainers and %" PRIu32 " inference ranks on %" PRIu32
	       " hosts with %" PRIu32 " NICs%s\n\n",
	       topology->rank_count[ROLE_TRAINER], topology->rank_count[ROLE_INFERENCE],
	       topology->host_count, topology->nic_count, topology->flat ? " (flat)" : "");
	while (h < topology->host_count) {
		uint32_t model = h++, last;

		if (print_host(topology, residents, model, error))
			return -ERROR_MEMORY;
		for (last = h;
		     last < topology->host_count &&
		     (topology->flat ? residents->of[last].role == residents->of[model].role
				     : same_host(topology, residents, model, last));)
			last++;
		if (last > h)
			print_like(topology, residents, model, h, last - 1);
		h = last;
		putchar('\n');
	}
	printf("*  used by the rank: the nearest NICs, all of them\n"
	       "PIX  behind one PCIe switch with the NIC\n"
	       "PXB  over several PCIe switches\n"
	       "PHB  over the CPU's PCIe host bridge\n"
	       "NODE  over host bridges of one NUMA node\n"
	       "SYS  over the link between NUMA nodes\n"
	       "-  not said\n");
	return 0;
}

/* ---- for Graphviz ---- */

static void print_dot(const struct topology *topology, const struct residents *residents)
{
	char name[MEMBER_TEXT_BYTES];

	printf("graph topology {\n  rankdir=LR\n  node [shape=box]\n");
	for (uint32_t h = 0; h < topology->host_count; h++) {
		const struct topology_host *host = &topology->hosts[h];

		printf("  subgraph cluster_%" PRIu32 " {\n    label=\"", h);
		export_quoted(stdout, host->name);
		if (host->uplink_bytes_per_second)
			printf("\\nuplink %.5g Gb/s",
			       (double)host->uplink_bytes_per_second / BYTES_PER_GIGABIT);
		printf("\"\n");
		for (uint32_t n = host->nic_first; n < host->nic_first + host->nic_count; n++) {
			printf("    nic%" PRIu32 " [style=rounded, label=\"", n);
			export_quoted(stdout, topology->nics[n].name);
			printf("\\n%.5g Gb/s\"]\n",
			       (double)topology->nics[n].bytes_per_second / BYTES_PER_GIGABIT);
		}
		for (uint32_t i = residents->first[h]; i < residents->first[h + 1]; i++) {
			const struct topology_rank *rank = place_of(topology, residents->of[i]);

			member_text(residents->of[i], name);
			for (uint32_t l = 0; l < rank->used_count; l++) {
				const struct topology_link *link =
					&topology->links[rank->link_first + l];

				printf("    \"%s\" -- nic%" PRIu32 " [label=\"%s\"]\n", name,
				       link->nic, nic_distance_name(link->distance));
			}
		}
		printf("  }\n");
	}
	for (uint32_t n = 0; n < topology->nic_count; n++)
		printf("  nic%" PRIu32 " -- \"rail %" PRIu32 "\" [style=dashed]\n", n,
		       topology->nics[n].rail);
	printf("}\n");
}

/* ---- the verb ---- */

static int print(const struct topology *topology, const struct options *options,
		 struct error *error)
{
	struct residents residents = {0};
	struct json json;
	int rc = residents_of(&residents, topology, error);

	if (!rc && options->json) {
		json_to_file(&json, stdout);
		topology_put(&json, topology);
		json_put_newline(&json);
	} else if (!rc && options->dot) {
		print_dot(topology, &residents);
	} else if (!rc) {
		rc = print_people(topology, &residents, error);
	}
	pool_free(&residents.pool);
	return rc;
}

static int check_options(const struct options *options, struct train_spec *train,
			 struct infer_spec *infer, struct error *error)
{
	int rc;

	if (!options->train || !options->infer)
		return error_set(error, ERROR_USAGE, "%s is missing",
				 options->train ? "--infer SPEC (such as engines=2,tp=2)"
						: "--train SPEC (such as world=4)");
	if (options->json && options->dot)
		return error_set(error, ERROR_USAGE, "--json and --dot are two outputs: say one");
	rc = train_spec_parse(train, options->train, error);
	return rc ? rc : infer_spec_parse(infer, options->infer, error);
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct topology *topology = NULL;
	struct train_spec train;
	struct infer_spec infer;
	int rc = check_options(options, &train, &infer, error);

	if (!rc)
		rc = topology_open(&topology, options->topology, train.world, infer_ranks(&infer),
				   error);
	if (!rc)
		rc = print(topology, options, error);
	topology_free(&topology);
	return rc;
}

const struct verb route_topology_verb = {
	VERB_OF(struct options, rows),
	.defaults = &(const struct options){.topology = "flat"},
	.too_many = "'%1$s' is not an option; say --topology %1$s?",
	.doc = "Shows where the ranks of a job sit: hosts, NICs with rail and speed, and how far "
	       "each rank's device is from each NIC.\v"
	       "Example:\n  weft route topology --train world=16 --infer engines=2,tp=8 \\\n"
	       "      --topology per_host=8,nics=8,gbps=400",
	.run = run,
};
