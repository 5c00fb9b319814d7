/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_rows.c -- how each worker reads its part of the table.
 *
 *   table.routes   r0: t0>i0   r1: t1>i0   r2: t0>i1   r3: t0>i0 ...     canonical order
 *   pieces         p0 p1       p2          p3          p4
 *   ordinal        0  1        0           0           2                within (trainer, rank)
 *
 * A trainer gets its rows in send order, an inference rank by (peer, ordinal); both name a
 * piece by the same ordinal, which is its checksum slot.
 */
#include "controller/epoch.h"

#include "base/assert.h"
#include <string.h>

static enum role other_role(enum role role)
{
	return role == ROLE_TRAINER ? ROLE_INFERENCE : ROLE_TRAINER;
}

static uint32_t world_of(const struct epoch *epoch, enum role role)
{
	return role == ROLE_TRAINER ? epoch->trainers : epoch->count - epoch->trainers;
}

static int number_pieces(struct epoch *epoch)
{
	const struct table *table = epoch->table;
	uint32_t *next = pool_array(&epoch->pool, world_of(epoch, ROLE_INFERENCE), sizeof(*next));

	epoch->ordinals = pool_array(&epoch->pool, table->piece_count, sizeof(*epoch->ordinals));
	if (!next || !epoch->ordinals)
		return -ERROR_MEMORY;
	for (uint32_t t = 0; t < epoch->trainers; t++) {
		size_t begin = epoch->of[ROLE_TRAINER].first[t];
		size_t end = epoch->of[ROLE_TRAINER].first[t + 1];

		for (size_t k = begin; k < end; k++) {
			const struct route *route =
				&table->routes[epoch->of[ROLE_TRAINER].routes[k]];

			for (uint32_t p = 0; p < route->piece_count; p++)
				epoch->ordinals[route->piece_first + p] = next[route->inference]++;
		}
		for (size_t k = begin; k < end; k++)
			next[table->routes[epoch->of[ROLE_TRAINER].routes[k]].inference] = 0;
	}
	return 0;
}

/* As in the plan. */
static uint32_t decider(const struct commit_ranks *ranks, uint32_t rank)
{
	uint32_t first = rank;

	while (commit_decider(ranks, first, &first))
		;
	return first == rank ? 0 : first + 1;
}

/* The ranks that exchange bytes with the party, then those that it agrees with. */
static int find_peers(struct epoch *epoch, const struct epoch_rules *rules, struct party *party)
{
	enum role role = party->worker->who.role, other = other_role(role);
	uint32_t world = world_of(epoch, other);
	uint32_t before = other == ROLE_TRAINER ? 0 : epoch->trainers;
	const size_t *first = &epoch->of[role].first[party->worker->who.rank];
	bool *met = memory_zalloc(world, sizeof(*met));
	size_t n = 0;

	const struct commit_ranks ranks = epoch_commits(epoch, rules);
	uint32_t self = party->worker->who.rank, mates = 0;

	WEFT_ASSERT(!party->peers);
	if (!met)
		return -ERROR_MEMORY;
	if (role == ROLE_INFERENCE && !party->away) {
		mates = commit_mates(&ranks, self, NULL);
		party->decider = decider(&ranks, self);
	}
	for (size_t k = first[0]; k < first[1] && !party->away; k++) {
		uint32_t rank = route_rank(&epoch->table->routes[epoch->of[role].routes[k]], other);

		WEFT_ASSERT_OP(rank, <, world);
		if (epoch->parties[before + rank].away)
			continue;
		n += !met[rank];
		met[rank] = true;
	}
	party->peers = pool_array(&epoch->pool, n + mates, sizeof(*party->peers));
	for (uint32_t rank = 0; party->peers && rank < world; rank++)
		if (met[rank])
			party->peers[party->peer_count++] = before + rank;
	memory_free(met);
	if (!party->peers)
		return -ERROR_MEMORY;
	if (mates)
		commit_mates(&ranks, self, party->peers + n);
	for (; mates; mates--)
		party->peers[party->peer_count++] += epoch->trainers;
	return 0;
}

int epoch_number_rows(struct epoch *epoch, const struct epoch_rules *rules)
{
	int rc = order_group(epoch->table, ROLE_TRAINER, &epoch->of[ROLE_TRAINER], NULL);

	if (!rc)
		rc = order_group(epoch->table, ROLE_INFERENCE, &epoch->of[ROLE_INFERENCE], NULL);
	if (!rc)
		rc = number_pieces(epoch);
	for (uint32_t i = 0; !rc && i < epoch->count; i++)
		rc = find_peers(epoch, rules, &epoch->parties[i]);
	if (!rc && rules->hedge)
		rc = epoch_stand_ins(epoch);
	return rc;
}

/* What filling one plan needs at hand. */
struct filling {
	const struct epoch *epoch;
	const struct worker *worker;
	const struct strmap *tensors; /* names of the receiver's own declaration */
	uint32_t *peer_of;	      /* other side's rank -> index into plan peers */
	struct message_plan *plan;
};

static int undeclared(const struct filling *filling, const char *name, struct error *error)
{
	return error_set(error, ERROR_INTERNAL,
			 "the table routes tensor '%.200s', which %s %u never declared", name,
			 role_name(filling->worker->who.role), filling->worker->who.rank);
}

/* To a rank that has left since the plan was made. */
static bool goes_nowhere(const struct epoch *epoch, const struct route *route)
{
	return epoch->parties[epoch->trainers + route->inference].away;
}

static int fill_route(struct filling *filling, uint32_t index, struct error *error)
{
	const struct table *table = filling->epoch->table;
	const struct route *route = &table->routes[index];
	const struct problem *problem = filling->epoch->problem;
	const char *name = problem->tensors[route->tensor].name;
	uint32_t peer = filling->peer_of[route_rank(route, other_role(filling->worker->who.role))];
	struct message_plan *plan = filling->plan;
	uint32_t tensor, scales = 0;

	if (goes_nowhere(filling->epoch, route))
		return 0;
	if (!strmap_get(filling->tensors, name, &tensor))
		return undeclared(filling, name, error);
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];
		const struct problem_transformed *transformed =
			&problem->transformed[piece->transformed];

		if (transformed->transform.from_rows &&
		    !strmap_get(filling->tensors, problem->tensors[transformed->scales].name,
				&scales))
			return undeclared(filling, problem->tensors[transformed->scales].name,
					  error);
		plan->rows[plan->row_count++] = (struct plan_row){
			.peer = peer,
			.ordinal = filling->epoch->ordinals[route->piece_first + p],
			.tensor = tensor,
			.param = piece->param,
			.path = piece->path,
			.src = piece->src,
			.offset = piece->offset,
			.bytes = piece->bytes,
			.transform = transformed->transform,
			.scales = transformed->transform.from_rows ? scales : 0,
			/* what stands in a message is a dtype */
			.to = piece->spread.run_bytes && transformed->to == DTYPE_NONE
				      ? problem->tensors[route->tensor].dtype
				      : transformed->to,
			.spread = piece->spread,
		};
	}
	return 0;
}

/* An inference rank's rows: canonical order, then stably by peer: (peer, ordinal). */
static int by_peer(struct message_plan *plan)
{
	size_t *next = memory_zalloc(plan->peer_count + 1, sizeof(*next));
	struct plan_row *sorted = memory_zalloc(plan->row_count, sizeof(*sorted));

	if (!next || !sorted) {
		memory_free(next);
		memory_free(sorted);
		return -ERROR_MEMORY;
	}
	for (size_t i = 0; i < plan->row_count; i++)
		next[plan->rows[i].peer + 1]++;
	for (size_t p = 0; p < plan->peer_count; p++)
		next[p + 1] += next[p];
	for (size_t i = 0; i < plan->row_count; i++)
		sorted[next[plan->rows[i].peer]++] = plan->rows[i];
	memory_free(next);
	memory_free(plan->rows);
	plan->rows = sorted;
	return 0;
}

static int fill_rows(struct filling *filling, struct error *error)
{
	const struct epoch *epoch = filling->epoch;
	enum role role = filling->worker->who.role;
	uint32_t rank = filling->worker->who.rank;
	const size_t *first = &epoch->of[role].first[rank];
	struct message_plan *plan = filling->plan;
	size_t pieces = 0;
	int rc = 0;

	for (size_t k = first[0]; k < first[1]; k++)
		pieces += epoch->table->routes[epoch->of[role].routes[k]].piece_count;
	if (pieces > LIMIT_ROUTES)
		return error_set(error, ERROR_LIMIT,
				 "%s %u would get %zu rows, the limit is %u: use more ranks",
				 role_name(role), rank, pieces, LIMIT_ROUTES);
	plan->rows = memory_zalloc(pieces, sizeof(*plan->rows));
	if (!plan->rows)
		return -ERROR_MEMORY;
	if (role == ROLE_TRAINER) {
		const struct send_order *sends = &epoch->sends;

		for (size_t k = sends->first[rank]; !rc && k < sends->first[rank + 1]; k++)
			rc = fill_route(filling, sends->routes[k], error);
	} else {
		for (size_t k = first[0]; !rc && k < first[1]; k++)
			rc = fill_route(filling, epoch->of[role].routes[k], error);
		if (!rc)
			rc = by_peer(plan);
	}
	WEFT_ASSERT(rc || plan->row_count <= pieces);
	for (size_t i = 0; !rc && i < plan->row_count; i++) {
		WEFT_ASSERT_OP(plan->rows[i].peer, <, plan->peer_count);
		plan->peers[plan->rows[i].peer].bytes += plan->rows[i].bytes;
		plan->peers[plan->rows[i].peer].pieces++;
	}
	return rc;
}

/* The rows of the one that it stands in for, as that one has them: both hold the same. */
static int fill_spares(const struct epoch *epoch, const struct party *party,
		       struct message_plan *plan, struct error *error)
{
	const struct party *late = &epoch->parties[party->stands_for - 1];
	struct message_plan theirs = {0};
	struct filling filling = {
		.epoch = epoch,
		.worker = late->worker,
		.tensors = &party->worker->body->holding.tensor_names,
		.plan = &theirs,
		.peer_of = memory_zalloc(epoch->count, sizeof(uint32_t)),
	};
	int rc = 0;

	theirs.peers = memory_zalloc(late->served_count, sizeof(*theirs.peers));
	plan->spares = memory_zalloc(late->served_count, sizeof(*plan->spares));
	if (!filling.peer_of || !theirs.peers || !plan->spares)
		rc = -ERROR_MEMORY;
	for (size_t i = 0; !rc && i < late->served_count; i++) {
		theirs.peer_count++;
		filling.peer_of[epoch->parties[late->served[i]].worker->who.rank] = (uint32_t)i;
	}
	if (!rc)
		rc = fill_rows(&filling, error);
	for (size_t i = 0; !rc && i < late->served_count; i++)
		plan->spares[plan->spare_count++] =
			(struct plan_spare){epoch->parties[late->served[i]].worker->who,
					    theirs.peers[i].bytes, theirs.peers[i].pieces};
	plan->spare_rows = theirs.rows;
	plan->spare_row_count = theirs.row_count;
	plan->stands_for = party->stands_for;
	if (!rc && plan->row_count + plan->spare_row_count > LIMIT_ROUTES)
		rc = error_set(
			error, ERROR_LIMIT,
			"trainer %u would get %zu rows, and %zu of the one that it stands in for; the limit is %u "
			"of both: use more ranks, or leave --hedge out",
			party->worker->who.rank, plan->row_count, plan->spare_row_count,
			LIMIT_ROUTES);
	memory_free(theirs.peers);
	memory_free(filling.peer_of);
	return rc;
}

/* Of all that its layout has. */
static void fill_copy(const struct layout *layout, struct plan_peer *peer)
{
	peer->pieces = (uint32_t)layout->param_count;
	for (size_t i = 0; i < layout->param_count; i++)
		peer->bytes += layout->params[i].bytes;
}

static const char *transport_between(const struct epoch *epoch, const struct worker *worker,
				     const struct worker *peer, enum plan_copy copy)
{
	return copy == COPY_NONE ? epoch_pair_transport(epoch, worker->who, peer->who)
	       : copy == COPY_TO ? epoch_copy_transport(epoch, worker, peer)
				 : epoch_copy_transport(epoch, peer, worker);
}

/* In a pause most have most of them already. A plan that is sent once more is what it was. */
static int leave_out_rows(const struct epoch *epoch, struct party *party, struct message_plan *plan)
{
	int rc = 0;

	if (epoch->followed && !party->told)
		rc = known_new(&party->told, plan);
	return rc || !party->had ? rc : known_leave_out(party->had, party->told, plan);
}

int epoch_rows(struct epoch *epoch, uint32_t index, struct message_plan *plan, struct error *error)
{
	struct party *party = &epoch->parties[index];
	const struct worker *worker = party->worker;
	struct filling filling = {
		.epoch = epoch,
		.worker = worker,
		.tensors = worker->who.role == ROLE_TRAINER ? &worker->body->holding.tensor_names
							    : &worker->body->layout.tensor_names,
		.plan = plan,
	};
	int rc = 0;

	WEFT_ASSERT_OP(index, <, epoch->count);
	plan->attempt = epoch->attempt;
	plan->digest = epoch->table->digest;
	plan->follows = epoch->table->moved.follows;
	plan->checksums = worker->declare.checksums;
	plan->decider = party->decider;
	plan->policy = memory_string(epoch->table->policy);
	plan->order = memory_string(epoch->table->order);
	plan->peers = memory_zalloc(party->peer_count, sizeof(*plan->peers));
	filling.peer_of = memory_zalloc(epoch->count, sizeof(uint32_t));
	if (!plan->policy || !plan->order || !plan->peers || !filling.peer_of)
		rc = -ERROR_MEMORY;
	for (size_t i = 0; !rc && i < party->peer_count; i++) {
		const struct worker *peer = epoch->parties[party->peers[i]].worker;

		WEFT_ASSERT(peer->who.role != worker->who.role ||
			    worker->who.role == ROLE_INFERENCE);
		plan->peers[i].member = peer->who;
		plan->peers[i].host = memory_string(peer->hello.host);
		plan->peer_count++;
		if (peer->who.role != worker->who.role)
			filling.peer_of[peer->who.rank] = (uint32_t)i;
		plan->peers[i].copy = epoch_copy_of(party, &epoch->parties[party->peers[i]]);
		plan->peers[i].kept = epoch_keeps(party, i);
		if (plan->peers[i].copy != COPY_NONE)
			fill_copy(&worker->body->layout, &plan->peers[i]);
		plan->peers[i].transport =
			memory_string(transport_between(epoch, worker, peer, plan->peers[i].copy));
		rc = plan->peers[i].host && plan->peers[i].transport ? 0 : -ERROR_MEMORY;
	}
	if (!rc)
		rc = fill_rows(&filling, error);
	for (size_t i = 0; !rc && worker->who.role == ROLE_INFERENCE && i < plan->peer_count; i++)
		if (plan->peers[i].pieces)
			plan->peers[i].stand_in = epoch->parties[party->peers[i]].stand_in;
	if (!rc && party->stands_for)
		rc = fill_spares(epoch, party, plan, error);
	if (!rc)
		rc = leave_out_rows(epoch, party, plan);
	memory_free(filling.peer_of);
	return rc;
}
