/* SPDX-License-Identifier: Apache-2.0
 *
 * bound.c -- when no trainer is in two sets and none shares a limit, the bound is the largest
 * bytes / rate of a set's trainers. Otherwise it is a fraction p/q = max over sets T of trainers
 * of (W(T) - F(T)) / R(T): W(T) is the bytes that only trainers of T can send, R(T) the least
 * rate of limits that cut T off, F(T) what is free there. Dinkelbach's iteration: guess p/q, and
 * ask a flow network whether every set's bytes fit in that time:
 *
 *   source --W*q--> set --inf--> trainers (alike ones as one node) --> limits --p*rate + q*free--> sink
 *
 * If all flows, the guess is enough; else the trainers on the source's side of the least cut
 * are a T with a larger ratio, which is the next guess. Everything is multiplied by q, so all
 * is exact: bytes up to 2^62 times rates up to 2^62 need 128 bits.
 */
#include "routing/plan/bound.h"

#include "routing/plan/maxflow.h"
#include <string.h>

#define NONE BOUND_NO_LIMIT

/* Nodes: 0 source, 1 sink, then the sets, then the types of trainers, then the limits. A type
 * whose trainers each have a limit of their own and no other stands for those limits too. */
struct network {
	struct pool pool; /* owns what is not the flow's */
	const struct bound_input *input;
	uint32_t *type;	      /* trainer -> type: trainers that are in the same sets, and either all
				alone with their limits or behind the same one */
	uint32_t *type_size;  /* trainers */
	uint32_t *type_limit; /* NONE: alone */
	uint64_t *type_rate;  /* of those that are alone */
	uint32_t type_count;
	size_t limits_at, rest_at; /* edges: sets, types, limits, then sets to types */
	struct maxflow flow;
};

static int no_memory(struct error *error)
{
	return memory_error(error, "computing the lower bound", sizeof(struct bound_share));
}

static uint64_t trainer_rate(const struct bound_input *input, uint32_t trainer)
{
	return input->limits ? input->limits[input->limit_of[trainer]].rate : 1;
}

/* ---- trainers that are alike ---- */

/* users[l]: trainers that pass limit l first. Those that share one start as one type, those
 * that are alone are all of type 0 if there are any. */
static int first_types(struct network *n, struct error *error)
{
	const struct bound_input *input = n->input;
	uint32_t *users = pool_array(&n->pool, input->limit_count, sizeof(*users));
	uint32_t *type_of = pool_array(&n->pool, input->limit_count, sizeof(*type_of));
	uint32_t alone = NONE;

	if (!pool_ok(&n->pool))
		return no_memory(error);
	memset(type_of, 0xff, input->limit_count * sizeof(*type_of));
	for (uint32_t t = 0; input->limits && t < input->trainer_count; t++)
		users[input->limit_of[t]]++;
	for (uint32_t l = 0; l < input->limit_count; l++)
		if (input->limits[l].parent != NONE)
			users[input->limits[l].parent] = NONE; /* others come through it */
	for (uint32_t t = 0; t < input->trainer_count; t++) {
		uint32_t limit = input->limits ? input->limit_of[t] : NONE;
		bool shared =
			limit != NONE && (users[limit] != 1 || input->limits[limit].free_bytes ||
					  input->limits[limit].parent != NONE);
		uint32_t *type = shared ? &type_of[limit] : &alone;

		if (*type == NONE) {
			*type = n->type_count++;
			n->type_limit[*type] = shared ? limit : NONE;
		}
		n->type[t] = *type;
		n->type_size[*type]++;
	}
	return 0;
}

/* Splits each type by each set: members leave for a new type unless all are members. */
static int split_types(struct network *n, struct error *error)
{
	const struct bound_input *input = n->input;
	uint32_t *inside = pool_array(&n->pool, input->trainer_count, sizeof(*inside));
	uint32_t *leave_to = pool_array(&n->pool, input->trainer_count, sizeof(*leave_to));

	if (!pool_ok(&n->pool))
		return no_memory(error);
	for (size_t s = 0; s < input->set_count; s++) {
		const struct holder_set *set = &input->sets[s];

		for (uint32_t k = 0; k < set->count; k++) {
			leave_to[n->type[set->trainers[k]]] = NONE;
			inside[n->type[set->trainers[k]]]++;
		}
		for (uint32_t k = 0; k < set->count; k++) {
			uint32_t trainer = set->trainers[k], old = n->type[trainer];

			if (inside[old] == n->type_size[old] && leave_to[old] == NONE)
				continue; /* all of them are members */
			if (leave_to[old] == NONE) {
				leave_to[old] = n->type_count++;
				n->type_limit[leave_to[old]] = n->type_limit[old];
			}
			n->type[trainer] = leave_to[old];
			n->type_size[old]--;
			n->type_size[leave_to[old]]++;
			inside[old]--;
		}
		for (uint32_t k = 0; k < set->count; k++)
			inside[n->type[set->trainers[k]]] = 0;
	}
	return 0;
}

static int make_types(struct network *n, struct error *error)
{
	uint32_t trainers = n->input->trainer_count;
	int rc;

	n->type = pool_array(&n->pool, trainers, sizeof(*n->type));
	n->type_size = pool_array(&n->pool, trainers, sizeof(*n->type_size));
	n->type_limit = pool_array(&n->pool, trainers, sizeof(*n->type_limit));
	n->type_rate = pool_array(&n->pool, trainers, sizeof(*n->type_rate));
	if (!pool_ok(&n->pool))
		return no_memory(error);
	rc = first_types(n, error);
	if (!rc)
		rc = split_types(n, error);
	for (uint32_t t = 0; !rc && t < trainers; t++)
		n->type_rate[n->type[t]] += trainer_rate(n->input, t);
	return rc;
}

/* ---- the iteration ---- */

static uint32_t set_node(size_t set)
{
	return 2 + (uint32_t)set;
}

static uint32_t type_node(const struct network *n, uint32_t type)
{
	return 2 + (uint32_t)n->input->set_count + type;
}

static uint32_t limit_node(const struct network *n, uint32_t limit)
{
	return limit == NONE ? 1 : 2 + (uint32_t)n->input->set_count + n->type_count + limit;
}

/* Edges in a fixed order: one a set from the source, one a type, one a limit, then the rest. */
static int make_network(struct network *n, struct error *error)
{
	const struct bound_input *input = n->input;
	uint32_t *seen = pool_array(&n->pool, n->type_count + 1, sizeof(*seen));
	int rc = seen ? maxflow_init(&n->flow, limit_node(n, input->limit_count), error)
		      : no_memory(error);

	if (!rc)
		memset(seen, 0xff, (n->type_count + 1) * sizeof(*seen));
	for (size_t s = 0; !rc && s < input->set_count; s++)
		rc = maxflow_edge(&n->flow, 0, set_node(s), error);
	for (uint32_t t = 0; !rc && t < n->type_count; t++)
		rc = maxflow_edge(&n->flow, type_node(n, t), limit_node(n, n->type_limit[t]),
				  error);
	n->limits_at = n->flow.edges.count;
	for (uint32_t l = 0; !rc && l < input->limit_count; l++)
		rc = maxflow_edge(&n->flow, limit_node(n, l),
				  limit_node(n, input->limits[l].parent), error);
	n->rest_at = n->flow.edges.count;
	for (size_t s = 0; !rc && s < input->set_count; s++) {
		for (uint32_t k = 0; !rc && k < input->sets[s].count; k++) {
			uint32_t type = n->type[input->sets[s].trainers[k]];

			if (seen[type] == s)
				continue;
			seen[type] = (uint32_t)s;
			rc = maxflow_edge(&n->flow, set_node(s), type_node(n, type), error);
		}
	}
	return rc;
}

static bool limit_cut(const struct network *n, uint32_t limit)
{
	return maxflow_reached(&n->flow, limit_node(n, limit)) &&
	       !maxflow_reached(&n->flow, limit_node(n, n->input->limits[limit].parent));
}

/* p/q becomes the ratio of the cut. */
static void take_cut(struct network *n, struct bound *bound)
{
	const struct bound_input *input = n->input;

	bound->bytes = bound->rate = 0;
	for (uint32_t t = 0; t < input->trainer_count; t++) {
		uint32_t type = n->type[t];

		bound->tight[t] = maxflow_reached(&n->flow, type_node(n, type));
		if (n->type_limit[type] == NONE) {
			bound->binding[input->limits ? input->limit_of[t] : t] = bound->tight[t];
			bound->rate += bound->tight[t] ? trainer_rate(input, t) : 0;
		}
	}
	for (size_t s = 0; s < input->set_count; s++) {
		bool within = input->sets[s].count > 0;

		for (uint32_t k = 0; k < input->sets[s].count && within; k++)
			within = bound->tight[input->sets[s].trainers[k]];
		bound->bytes += within ? input->bytes[s] : 0;
	}
	for (uint32_t l = 0; l < input->limit_count; l++) {
		bool cut = limit_cut(n, l);

		if (!maxflow_reached(&n->flow, limit_node(n, l)))
			continue; /* or it stands in a type */
		bound->binding[l] = cut;
		bound->rate += cut ? input->limits[l].rate : 0;
		bound->bytes -= cut ? input->limits[l].free_bytes : 0;
	}
}

/* Does everything fit in p/q seconds? If not, p/q grows. */
static bool fits(struct network *n, struct bound *bound)
{
	const struct bound_input *input = n->input;
	struct maxflow_edge *edges = n->flow.edges.items;
	wide total = 0;

	for (size_t e = 0; e < n->flow.edges.count; e++)
		edges[e].room = e >= n->rest_at && e % 2 == 0 ? MAXFLOW_UNLIMITED : 0;
	for (size_t s = 0; s < input->set_count; s++) {
		edges[2 * s].room = (wide)input->bytes[s] * bound->rate;
		total += edges[2 * s].room;
	}
	for (uint32_t t = 0; t < n->type_count; t++)
		edges[2 * (input->set_count + t)].room =
			n->type_limit[t] == NONE ? (wide)bound->bytes * n->type_rate[t]
						 : MAXFLOW_UNLIMITED;
	for (uint32_t l = 0; l < input->limit_count; l++)
		edges[n->limits_at + 2 * l].room = (wide)bound->bytes * input->limits[l].rate +
						   (wide)bound->rate * input->limits[l].free_bytes;
	if (maxflow_run(&n->flow) == total)
		return true;
	take_cut(n, bound);
	return false;
}

/* ---- who sends how much of which set ---- */

/* whole * part / all, rounded down, where part <= all. */
static wide portion(wide whole, uint64_t part, uint64_t all)
{
	return whole / all * part + whole % all * part / all;
}

static int add_share(struct bound *bound, size_t *count, size_t capacity, uint32_t trainer,
		     uint64_t bytes, struct error *error)
{
	if (bytes == 0)
		return 0;
	if (*count == capacity)
		return error_set(error, ERROR_INTERNAL, "more shares than a flow can have");
	bound->shares[(*count)++] = (struct bound_share){trainer, bytes};
	return 0;
}

/* Sets that meet nowhere: each over its trainers, by their rates. */
static int share_alone(struct bound *bound, const struct bound_input *input, struct error *error)
{
	size_t count = 0, capacity = 0;
	int rc = 0;

	for (size_t s = 0; s < input->set_count; s++)
		capacity += input->sets[s].count;
	bound->shares = memory_alloc(capacity * sizeof(*bound->shares));
	if (!bound->shares)
		return no_memory(error);
	for (size_t s = 0; s < input->set_count; s++) {
		const struct holder_set *set = &input->sets[s];
		uint64_t all = 0, passed = 0, done = 0;

		bound->share_first[s] = count;
		for (uint32_t k = 0; k < set->count; k++)
			all += trainer_rate(input, set->trainers[k]);
		for (uint32_t k = 0; !rc && k < set->count; k++) {
			passed += trainer_rate(input, set->trainers[k]);
			uint64_t end = (uint64_t)portion(input->bytes[s], passed, all);

			rc = add_share(bound, &count, capacity, set->trainers[k], end - done,
				       error);
			done = end;
		}
	}
	bound->share_first[input->set_count] = count;
	return rc;
}

/* The trainers of a type one after the other: each takes its part of all that reaches the type,
 * so few of them have parts of several sets. */
struct taker {
	size_t next, end; /* into members */
	uint64_t passed;  /* rates of those before next, and next itself */
	wide all, taken;  /* of the type */
};

static wide taker_room(struct network *n, const uint32_t *members, struct taker *taker)
{
	for (;;) {
		uint32_t trainer = members[taker->next], type = n->type[trainer];
		wide end = portion(taker->all, taker->passed, n->type_rate[type]);

		if (taker->next + 1 == taker->end || end > taker->taken)
			return taker->next + 1 == taker->end ? taker->all - taker->taken
							     : end - taker->taken;
		taker->passed += trainer_rate(n->input, members[++taker->next]);
	}
}

static void start_takers(struct network *n, uint32_t *members, struct taker *takers)
{
	size_t at = 0;

	for (uint32_t t = 0; t < n->type_count; t++) {
		takers[t] = (struct taker){.next = at, .end = at};
		at += n->type_size[t];
		takers[t].all = n->flow.edges.items[2 * (n->input->set_count + t) + 1].room;
	}
	for (uint32_t t = 0; t < n->input->trainer_count; t++)
		members[takers[n->type[t]].end++] = t;
	for (uint32_t t = 0; t < n->type_count; t++)
		if (takers[t].next < takers[t].end)
			takers[t].passed = trainer_rate(n->input, members[takers[t].next]);
}

static int share_flow(struct network *n, struct bound *bound, struct error *error)
{
	const struct bound_input *input = n->input;
	size_t edges = (n->flow.edges.count - n->rest_at) / 2, e = n->rest_at, count = 0;
	/* each piece of flow ends an edge or a trainer */
	size_t capacity = edges + input->trainer_count;
	struct taker *takers = pool_array(&n->pool, n->type_count, sizeof(*takers));
	uint32_t *members = pool_array(&n->pool, input->trainer_count, sizeof(*members));
	int rc = 0;

	bound->shares = memory_alloc(capacity * sizeof(*bound->shares));
	if (!pool_ok(&n->pool) || !bound->shares)
		rc = no_memory(error);
	else
		start_takers(n, members, takers);
	for (size_t s = 0; !rc && s < input->set_count; s++) {
		wide passed = 0;
		uint64_t done = 0;

		bound->share_first[s] = count;
		for (;
		     !rc && e < n->flow.edges.count && n->flow.edges.items[e ^ 1].to == set_node(s);
		     e += 2) {
			uint32_t node = n->flow.edges.items[e].to;
			struct taker *taker = &takers[node - type_node(n, 0)];
			wide flow = n->flow.edges.items[e ^ 1].room;

			while (!rc && flow) {
				wide room = taker_room(n, members, taker);
				wide take = room < flow ? room : flow;
				uint64_t end = (uint64_t)((passed + take) / bound->rate);

				rc = add_share(bound, &count, capacity, members[taker->next],
					       end - done, error);
				taker->taken += take;
				passed += take;
				flow -= take;
				done = end;
			}
		}
	}
	bound->share_first[input->set_count] = count;
	return rc;
}

/* ---- all together ---- */

static bool shared(const struct bound_input *input, uint32_t *used, uint32_t *passed)
{
	for (size_t s = 0; s < input->set_count; s++)
		for (uint32_t k = 0; k < input->sets[s].count; k++)
			if (input->bytes[s] && used[input->sets[s].trainers[k]]++)
				return true;
	for (uint32_t t = 0; input->limits && t < input->trainer_count; t++) {
		const struct bound_limit *limit = &input->limits[input->limit_of[t]];

		if (limit->parent != NONE || limit->free_bytes || passed[input->limit_of[t]]++)
			return true;
	}
	return false;
}

static void best_set(struct bound *bound, const struct bound_input *input)
{
	size_t best = input->set_count;

	for (size_t s = 0; s < input->set_count; s++) {
		uint64_t rate = 0;

		for (uint32_t k = 0; k < input->sets[s].count; k++)
			rate += trainer_rate(input, input->sets[s].trainers[k]);
		if (rate && (wide)input->bytes[s] * bound->rate > (wide)bound->bytes * rate) {
			bound->bytes = input->bytes[s];
			bound->rate = rate;
			best = s;
		}
	}
	for (uint32_t k = 0; best < input->set_count && k < input->sets[best].count; k++) {
		uint32_t trainer = input->sets[best].trainers[k];

		bound->tight[trainer] = true;
		bound->binding[input->limits ? input->limit_of[trainer] : trainer] = true;
	}
}

static int solve_flow(struct bound *bound, const struct bound_input *input, struct error *error)
{
	struct network n = {.input = input};
	int rc = make_types(&n, error);

	if (!rc)
		rc = make_network(&n, error);
	while (!rc && !fits(&n, bound))
		;
	if (!rc)
		rc = share_flow(&n, bound, error);
	maxflow_fini(&n.flow);
	pool_free(&n.pool);
	return rc;
}

int bound_solve(struct bound *bound, const struct bound_input *input, struct error *error)
{
	uint32_t limits = input->limits ? input->limit_count : input->trainer_count;
	uint32_t *used, *passed;
	int rc;

	*bound = (struct bound){.rate = 1};
	used = pool_array(&bound->pool, input->trainer_count, sizeof(*used));
	passed = pool_array(&bound->pool, input->limit_count, sizeof(*passed));
	bound->tight = pool_array(&bound->pool, input->trainer_count, sizeof(*bound->tight));
	bound->binding = pool_array(&bound->pool, limits, sizeof(*bound->binding));
	bound->share_first = memory_zalloc(input->set_count + 1, sizeof(*bound->share_first));
	if (!pool_ok(&bound->pool) || !bound->share_first) {
		rc = no_memory(error);
	} else if (shared(input, used, passed)) {
		rc = solve_flow(bound, input, error);
	} else {
		best_set(bound, input);
		rc = share_alone(bound, input, error);
	}
	if (rc)
		bound_fini(bound);
	return rc;
}

void bound_fini(struct bound *bound)
{
	pool_free(&bound->pool);
	memory_free(bound->shares);
	memory_free(bound->share_first);
	*bound = (struct bound){0};
}

int bound_of(uint64_t *out, const struct holder_set *sets, const uint64_t *bytes, size_t count,
	     uint32_t trainer_count, struct error *error)
{
	struct bound_input input = {
		.sets = sets, .bytes = bytes, .set_count = count, .trainer_count = trainer_count};
	struct bound bound;
	int rc = bound_solve(&bound, &input, error);

	*out = rc ? 0 : bound.bytes / bound.rate + (bound.bytes % bound.rate != 0);
	bound_fini(&bound);
	return rc;
}
