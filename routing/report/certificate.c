/* SPDX-License-Identifier: Apache-2.0
 *
 * certificate.c -- two sides, each with its limits. What inference ranks receive is the same in
 * every table, so their side of the bound is a division. What trainers send is not: that is
 * bound.c's question.
 *
 * Traffic inside a host does not pass its uplink. How much that is depends on the table; for the
 * bound, `local` is the most that it can be in any.
 */
#include "routing/report/certificate.h"

#include "base/pool.h"
#include "routing/report/writes.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The bytes of one side. */
struct side {
	struct limits limits;
	uint64_t *rank_bytes; /* by rank */
	uint64_t *away_bytes; /* by host: to or from other hosts */
	long double *load;    /* by limit, bytes; by NIC, seconds: scratch */
	long double *nic;
};

struct work {
	const struct table *table;
	const struct topology *topology;
	struct side side[ROLE_COUNT];
	uint64_t *local;  /* by host */
	struct pool pool; /* of all that is counted in */
};

static int side_init(struct side *side, struct pool *pool, const struct topology *topology,
		     enum role role, struct error *error)
{
	int rc = limits_of(&side->limits, topology, role, error);

	if (rc)
		return rc;
	side->rank_bytes = pool_array(pool, topology->rank_count[role], sizeof(*side->rank_bytes));
	side->away_bytes = pool_array(pool, topology->host_count, sizeof(*side->away_bytes));
	side->load = pool_array(pool, side->limits.count, sizeof(*side->load));
	side->nic = pool_array(pool, topology->nic_count, sizeof(*side->nic));
	return pool_ok(pool)
		       ? 0
		       : memory_error(error, "computing the certificate", sizeof(struct side));
}

/* Seconds of the slowest limit of a side, and its name if they are more than *seconds. */
static void slowest(struct side *side, double *seconds, char text[LIMITS_TEXT_BYTES])
{
	const struct limits *limits = &side->limits;
	const struct topology *topology = limits->topology;
	uint32_t worst = BOUND_NO_LIMIT;

	memset(side->load, 0, limits->count * sizeof(*side->load));
	memset(side->nic, 0, topology->nic_count * sizeof(*side->nic));
	for (uint32_t r = 0; r < topology->rank_count[limits->role]; r++) {
		const struct topology_rank *place = &topology->ranks[limits->role][r];
		long double own = (long double)side->rank_bytes[r] /
				  (long double)topology_rank_rate(topology, limits->role, r);

		side->load[limits->of[r]] += (long double)side->rank_bytes[r];
		for (uint32_t k = 0; k < place->used_count; k++)
			side->nic[topology->links[place->link_first + k].nic] += own;
	}
	for (uint32_t l = 0; l < limits->count; l++) {
		const struct limit_what *what = &limits->what[l];
		uint32_t parent = limits->items[l].parent;

		if (what->kind == LIMITS_UPLINK)
			side->load[l] = (long double)side->away_bytes[what->index];
		else if (parent != BOUND_NO_LIMIT && limits->what[parent].kind == LIMITS_NICS)
			side->load[parent] += side->load[l];
		if ((double)(side->load[l] / (long double)limits->items[l].rate) > *seconds) {
			*seconds = (double)(side->load[l] / (long double)limits->items[l].rate);
			worst = l;
		}
	}
	if (worst != BOUND_NO_LIMIT)
		limit_text(limits, worst, text);
	for (uint32_t n = 0; limits->mixed && n < topology->nic_count; n++) {
		/* beyond rounding: what its ranks have together was counted above */
		if (side->nic[n] <= (long double)*seconds * (1 + 1e-12L))
			continue;
		*seconds = (double)side->nic[n];
		snprintf(text, LIMITS_TEXT_BYTES, "NIC %.*s of host %.*s", 100,
			 topology->nics[n].name, 100, topology->hosts[topology->nics[n].host].name);
	}
}

/* ---- the table's own ---- */

static void add_routes(struct work *w)
{
	const struct topology_rank *from = w->topology->ranks[ROLE_TRAINER];
	const struct topology_rank *to = w->topology->ranks[ROLE_INFERENCE];

	for (size_t r = 0; r < w->table->route_count; r++) {
		const struct route *route = &w->table->routes[r];
		uint32_t a = from[route->trainer].host, b = to[route->inference].host;

		w->side[ROLE_TRAINER].rank_bytes[route->trainer] += route->bytes;
		w->side[ROLE_INFERENCE].rank_bytes[route->inference] += route->bytes;
		w->side[ROLE_TRAINER].away_bytes[a] += a != b ? route->bytes : 0;
		w->side[ROLE_INFERENCE].away_bytes[b] += a != b ? route->bytes : 0;
	}
}

/* ---- the bound ---- */

static bool serves_host(const struct work *w, const struct holder_set *set, uint32_t host)
{
	for (uint32_t k = 0; k < set->count; k++)
		if (w->topology->ranks[ROLE_TRAINER][set->trainers[k]].host == host)
			return true;
	return false;
}

/* The most that can stay inside each host with a limited uplink. */
static int find_local(struct work *w, bool *any, struct error *error)
{
	const struct problem *problem = w->table->problem;
	const uint32_t *sends = w->side[ROLE_TRAINER].limits.uplink_of;
	const uint32_t *receives = w->side[ROLE_INFERENCE].limits.uplink_of;
	struct units units;
	bool meet = false;
	int rc;

	*any = false;
	for (uint32_t h = 0; h < w->topology->host_count; h++)
		meet = meet || (sends[h] != BOUND_NO_LIMIT && receives[h] != BOUND_NO_LIMIT);
	if (!meet)
		return 0;
	rc = units_build_cut(&units, problem, error);
	for (size_t i = 0; !rc && i < units.count; i++) {
		const struct unit *unit = &units.items[i];
		uint32_t host = w->topology->ranks[ROLE_INFERENCE][unit->inference].host;

		if (sends[host] == BOUND_NO_LIMIT ||
		    !serves_host(w, &units.sets[unit->holders], host))
			continue;
		w->local[host] += unit->bytes;
		*any = true;
	}
	units_fini(&units);
	return rc;
}

/* "trainers 0..3, 7 together": of the tight ones, if no single limit tells it. */
static void name_bound(const struct work *w, const struct bound *bound,
		       char text[LIMITS_TEXT_BYTES])
{
	const struct limits *limits = &w->side[ROLE_TRAINER].limits;
	uint32_t count = w->topology->rank_count[ROLE_TRAINER], binding = 0, last = 0, written = 0;
	size_t at = 0;

	for (uint32_t l = 0; l < limits->count; l++) {
		if (!bound->binding[l])
			continue;
		binding++;
		last = l;
	}
	if (binding == 0)
		return;
	if (binding == 1) {
		limit_text(limits, last, text);
		return;
	}
	at = (size_t)snprintf(text, LIMITS_TEXT_BYTES, "trainers ");
	for (uint32_t t = 0, end; t < count; t = end) {
		for (end = t + 1; bound->tight[t] && end < count && bound->tight[end]; end++)
			;
		if (!bound->tight[t])
			continue;
		if (at > LIMITS_TEXT_BYTES - 64) {
			at += (size_t)snprintf(text + at, LIMITS_TEXT_BYTES - at, ", ..");
			break;
		}
		at += (size_t)snprintf(text + at, LIMITS_TEXT_BYTES - at,
				       end - t > 1 ? "%s%" PRIu32 "..%" PRIu32 : "%s%" PRIu32,
				       written++ ? ", " : "", t, end - 1);
	}
	snprintf(text + at, LIMITS_TEXT_BYTES - at, " together");
}

static int sender_bound(struct work *w, struct certificate *certificate, struct error *error)
{
	const struct problem *problem = w->table->problem;
	struct limits *limits = &w->side[ROLE_TRAINER].limits;
	struct bound bound;
	struct units units;
	uint64_t *bytes;
	int rc = units_weigh(&units, &bytes, problem, error);

	if (rc)
		return rc;
	for (uint32_t h = 0; h < w->topology->host_count; h++)
		if (limits->uplink_of[h] != BOUND_NO_LIMIT)
			limits->items[limits->uplink_of[h]].free_bytes = w->local[h];
	struct bound_input input = {
		.sets = units.sets,
		.bytes = bytes,
		.set_count = units.set_count,
		.trainer_count = problem->trainer_count,
		.limits = limits->items,
		.limit_of = limits->of,
		.limit_count = limits->count,
	};
	rc = bound_solve(&bound, &input, error);
	if (!rc) {
		certificate->sender_bound_bytes = bound.bytes;
		certificate->sender_bound_rate = bound.rate;
		certificate->sender_bound_seconds =
			(double)((long double)bound.bytes / (long double)bound.rate);
		name_bound(w, &bound, certificate->bound_limit);
	}
	bound_fini(&bound);
	memory_free(bytes);
	units_fini(&units);
	return rc;
}

/* What each rank receives is known; inside its host as much as can be. */
static void receiver_bound(struct work *w, struct certificate *certificate)
{
	struct side *side = &w->side[ROLE_INFERENCE];
	char text[LIMITS_TEXT_BYTES] = "";

	memset(side->away_bytes, 0, w->topology->host_count * sizeof(*side->away_bytes));
	for (uint32_t i = 0; i < w->topology->rank_count[ROLE_INFERENCE]; i++)
		side->away_bytes[w->topology->ranks[ROLE_INFERENCE][i].host] += side->rank_bytes[i];
	for (uint32_t h = 0; h < w->topology->host_count; h++)
		side->away_bytes[h] -= w->local[h];
	slowest(side, &certificate->receiver_bound_seconds, text);
	if (certificate->receiver_bound_seconds > certificate->sender_bound_seconds)
		memcpy(certificate->bound_limit, text, sizeof(text));
}

static int limit_writes(const struct table *table, struct certificate *certificate,
			struct error *error)
{
	struct writes writes;
	int rc = writes_count(&writes, table, error);
	double seconds = (double)writes.most / WRITES_PER_SECOND;

	if (rc || seconds <= certificate->makespan_seconds)
		return rc;
	certificate->makespan_seconds = seconds;
	snprintf(certificate->makespan_limit, sizeof(certificate->makespan_limit),
		 "%" PRIu64 " writes of trainer %" PRIu32, writes.most, writes.trainer);
	return 0;
}

static int certify(struct work *w, struct certificate *certificate, struct error *error)
{
	bool local;
	int rc = 0;

	w->local = pool_array(&w->pool, w->topology->host_count, sizeof(*w->local));
	for (int role = 0; !rc && role < ROLE_COUNT; role++)
		rc = side_init(&w->side[role], &w->pool, w->topology, (enum role)role, error);
	if (!rc)
		rc = find_local(w, &local, error);
	if (rc)
		return rc;
	add_routes(w);
	for (int role = 0; role < ROLE_COUNT; role++)
		slowest(&w->side[role], &certificate->makespan_seconds,
			certificate->makespan_limit);
	if (w->table->problem->boxed)
		rc = limit_writes(w->table, certificate, error);
	if (!rc)
		rc = sender_bound(w, certificate, error);
	if (rc)
		return rc;
	receiver_bound(w, certificate);
	certificate->bound_seconds =
		certificate->sender_bound_seconds > certificate->receiver_bound_seconds
			? certificate->sender_bound_seconds
			: certificate->receiver_bound_seconds;
	certificate->gap = certificate->makespan_seconds > certificate->bound_seconds
				   ? certificate->makespan_seconds / certificate->bound_seconds - 1
				   : 0;
	certificate->exact = !local && !w->side[ROLE_TRAINER].limits.mixed;
	return 0;
}

int certificate_of(struct certificate *certificate, const struct table *table, struct error *error)
{
	struct work w = {.table = table, .topology = table->topology};
	struct topology *flat = NULL;
	int rc = 0;

	*certificate = (struct certificate){0};
	if (!w.topology) {
		rc = topology_flat(&flat, table->problem->trainer_count,
				   table->problem->inference_count, error);
		w.topology = flat;
	}
	if (!rc)
		rc = certify(&w, certificate, error);
	for (int role = 0; role < ROLE_COUNT; role++)
		limits_fini(&w.side[role].limits);
	pool_free(&w.pool);
	topology_free(&flat);
	return rc;
}
