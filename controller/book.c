/* SPDX-License-Identifier: Apache-2.0
 *
 * book.c -- the plan of one epoch: the routing table, and how each worker reads its part.
 *
 *   table.routes   r0: t0>i0   r1: t1>i0   r2: t0>i1   r3: t0>i0 ...     canonical order
 *   pieces         p0 p1       p2          p3          p4
 *   ordinal        0  1        0           0           2                within (trainer, rank)
 *
 * A trainer gets its rows in send order, an inference rank by (peer, ordinal); both name a
 * piece by the same ordinal, which is its checksum slot.
 */
#include "controller/state.h"

#include <string.h>

struct book {
	struct topology *reported; /* by the workers, where the plan uses that */
	struct problem *problem;
	struct table *table;
	uint32_t *ordinals;	      /* by piece of the table */
	uint32_t *routes[ROLE_COUNT]; /* route indexes bucketed by rank, canonical inside */
	uint64_t *first[ROLE_COUNT];  /* rank -> first of its routes; one more at the end */
	struct send_order sends;
};

struct input {
	struct problem_input problem;
	const struct holding **trainers;
	const struct layout **inference;
	struct digest *trainer_digests, *inference_digests;
	uint32_t *stages;
	bool *registered, *mapped;
};

static void input_fini(struct input *input)
{
	memory_free(input->trainers);
	memory_free(input->inference);
	memory_free(input->trainer_digests);
	memory_free(input->inference_digests);
	memory_free(input->stages);
	memory_free(input->registered);
	memory_free(input->mapped);
}

static bool input_alloc(struct input *input, uint32_t trainers, uint32_t ranks)
{
	input->trainers = memory_zalloc(trainers, sizeof(*input->trainers));
	input->inference = memory_zalloc(ranks, sizeof(*input->inference));
	input->trainer_digests = memory_zalloc(trainers, sizeof(struct digest));
	input->inference_digests = memory_zalloc(ranks, sizeof(struct digest));
	input->stages = memory_zalloc(trainers, sizeof(uint32_t));
	input->registered = memory_zalloc(trainers, sizeof(bool));
	input->mapped = memory_zalloc(ranks, sizeof(bool));
	return input->trainers && input->inference && input->trainer_digests &&
	       input->inference_digests && input->stages && input->registered && input->mapped;
}

static bool same_host(const struct slot *a, const struct slot *b)
{
	return a->hello.host_id && b->hello.host_id &&
	       strcmp(a->hello.host_id, b->hello.host_id) == 0;
}

/* Routing knows one bit a rank: its memory can be mapped by every trainer, or it cannot. */
static bool mapped_by_all(const struct controller *controller, const struct slot *rank)
{
	if (!rank->declare.mapped)
		return false;
	for (uint32_t t = 0; t < controller->options.train.world; t++) {
		const struct slot *trainer = &controller->slots[t];

		if (!trainer->declare.mapped || !same_host(trainer, rank))
			return false;
	}
	return true;
}

static void input_fill(struct input *input, const struct controller *controller)
{
	uint32_t trainers = controller->options.train.world;
	const struct message_declare *labels = &controller->slots[0].declare;
	struct problem_input *problem = &input->problem;

	for (uint32_t i = 0; i < controller->slot_count; i++) {
		const struct slot *slot = &controller->slots[i];

		if (i < trainers) {
			input->trainers[i] = &slot->body->holding;
			input->trainer_digests[i] = slot->body->digest;
			input->stages[i] = train_stage(&controller->options.train, i);
			input->registered[i] = slot->declare.registered;
		} else {
			input->inference[i - trainers] = &slot->body->layout;
			input->inference_digests[i - trainers] = slot->body->digest;
			input->mapped[i - trainers] = mapped_by_all(controller, slot);
		}
	}
	*problem = (struct problem_input){
		.model = labels->model,
		.train = labels->train,
		.infer = labels->infer,
		.ranks_per_engine = controller->options.infer.tp,
		.trainers = input->trainers,
		.trainer_digests = input->trainer_digests,
		.trainer_stages = input->stages,
		.trainer_registered = input->registered,
		.trainer_count = trainers,
		.inference = input->inference,
		.inference_digests = input->inference_digests,
		.inference_mapped = input->mapped,
		.inference_count = controller->slot_count - trainers,
	};
}

static uint32_t rank_of(const struct route *route, enum role role)
{
	return role == ROLE_TRAINER ? route->trainer : route->inference;
}

/* A stable counting sort of the routes by rank. */
static int bucket(struct book *book, enum role role, uint32_t world, struct error *error)
{
	const struct table *table = book->table;
	uint64_t *first = memory_zalloc((size_t)world + 2, sizeof(*first));
	uint32_t *routes = memory_zalloc(table->route_count, sizeof(*routes));

	book->first[role] = first;
	book->routes[role] = routes;
	if (!first || !routes)
		return no_memory(error);
	for (size_t r = 0; r < table->route_count; r++)
		first[rank_of(&table->routes[r], role) + 2]++;
	for (uint32_t rank = 0; rank < world; rank++)
		first[rank + 2] += first[rank + 1];
	/* first[rank + 1] is now where the rank's next route goes, and at the end its end */
	for (size_t r = 0; r < table->route_count; r++)
		routes[first[rank_of(&table->routes[r], role) + 1]++] = (uint32_t)r;
	return 0;
}

static int number_pieces(struct book *book, uint32_t trainers, uint32_t ranks, struct error *error)
{
	const struct table *table = book->table;
	uint32_t *next = memory_zalloc(ranks, sizeof(*next));

	book->ordinals = memory_zalloc(table->piece_count, sizeof(*book->ordinals));
	if (!next || !book->ordinals) {
		memory_free(next);
		return no_memory(error);
	}
	for (uint32_t t = 0; t < trainers; t++) {
		uint64_t begin = book->first[ROLE_TRAINER][t];
		uint64_t end = book->first[ROLE_TRAINER][t + 1];

		for (uint64_t k = begin; k < end; k++) {
			const struct route *route = &table->routes[book->routes[ROLE_TRAINER][k]];

			for (uint32_t p = 0; p < route->piece_count; p++)
				book->ordinals[route->piece_first + p] = next[route->inference]++;
		}
		for (uint64_t k = begin; k < end; k++)
			next[table->routes[book->routes[ROLE_TRAINER][k]].inference] = 0;
	}
	memory_free(next);
	return 0;
}

static int check_hosts(const struct book *book, const struct controller *controller,
		       struct error *error)
{
	const struct table *table = book->table;
	char a[MEMBER_TEXT_BYTES], b[MEMBER_TEXT_BYTES];

	for (size_t r = 0; r < table->route_count; r++) {
		const struct slot *from = &controller->slots[table->routes[r].trainer];
		const struct slot *to = &controller->slots[controller->options.train.world +
							   table->routes[r].inference];

		if (!from->declare.transport || strcmp(from->declare.transport, "shm") != 0 ||
		    same_host(from, to))
			continue;
		return error_set(error, ERROR_UNSUPPORTED,
				 "transport shm needs one host: %s is on %.200s (boot id %.64s), "
				 "%s is on %.200s (boot id %.64s)",
				 member_text(from->who, a), from->hello.host, from->hello.host_id,
				 member_text(to->who, b), to->hello.host, to->hello.host_id);
	}
	return 0;
}

int book_make(struct book **out, struct controller *controller, struct error *error)
{
	uint32_t trainers = controller->options.train.world;
	uint32_t ranks = controller->slot_count - trainers;
	struct book *book = memory_zalloc(1, sizeof(*book));
	struct plan_options options = {.topology = controller->options.topology,
				       .order = controller->order,
				       .sessions_max = controller->options.sessions_max};
	struct input input = {0};
	int rc;

	if (!book || !input_alloc(&input, trainers, ranks)) {
		input_fini(&input);
		memory_free(book);
		return no_memory(error);
	}
	input_fill(&input, controller);
	rc = problem_build(&book->problem, &input.problem, error);
	input_fini(&input);
	if (!rc && controller->options.topology_from_workers) {
		rc = cluster_reported(&book->reported, controller, error);
		options.topology = book->reported;
	}
	if (!rc)
		rc = table_plan(&book->table, book->problem, controller->policy, &options, error);
	if (!rc)
		rc = check_hosts(book, controller, error);
	if (!rc)
		rc = order_sends(book->table, &book->sends, error);
	if (!rc)
		rc = bucket(book, ROLE_TRAINER, trainers, error);
	if (!rc)
		rc = bucket(book, ROLE_INFERENCE, ranks, error);
	if (!rc)
		rc = number_pieces(book, trainers, ranks, error);
	if (rc)
		book_free(&book);
	else
		*out = book;
	return rc;
}

void book_free(struct book **out)
{
	struct book *book = *out;

	if (!book)
		return;
	memory_free(book->ordinals);
	send_order_fini(&book->sends);
	for (int role = 0; role < ROLE_COUNT; role++) {
		memory_free(book->routes[role]);
		memory_free(book->first[role]);
	}
	table_free(&book->table);
	topology_free(&book->reported);
	problem_free(&book->problem);
	memory_free(book);
	*out = NULL;
}

const struct table *book_table(const struct book *book)
{
	return book->table;
}

int book_unwanted(const struct book *book, struct text *names, size_t *count, struct error *error)
{
	enum { SHOWN = 5 };
	uint32_t *tensors = NULL;
	int rc = problem_unwanted(book->problem, &tensors, count, error);

	if (rc)
		return rc;
	for (size_t i = 0; i < *count && i < SHOWN; i++)
		text_format(names, "%s%s", i ? ", " : "", book->problem->tensors[tensors[i]].name);
	if (*count > SHOWN)
		text_format(names, " and %zu more", *count - SHOWN);
	memory_free(tensors);
	return 0;
}

static enum role other_role(enum role role)
{
	return role == ROLE_TRAINER ? ROLE_INFERENCE : ROLE_TRAINER;
}

int book_peers(const struct book *book, const struct controller *controller,
	       const struct slot *slot, uint32_t **peers, size_t *count, struct error *error)
{
	enum role role = slot->who.role, other = other_role(role);
	uint32_t trainers = controller->options.train.world;
	uint32_t world = other == ROLE_TRAINER ? trainers : controller->slot_count - trainers;
	const uint64_t *first = &book->first[role][slot->who.rank];
	bool *met = memory_zalloc(world, sizeof(*met));
	size_t n = 0;

	if (!met)
		return no_memory(error);
	for (uint64_t k = first[0]; k < first[1]; k++) {
		uint32_t rank = rank_of(&book->table->routes[book->routes[role][k]], other);

		n += !met[rank];
		met[rank] = true;
	}
	*peers = memory_alloc(n * sizeof(**peers));
	if (!*peers) {
		memory_free(met);
		return no_memory(error);
	}
	*count = 0;
	for (uint32_t rank = 0; rank < world; rank++)
		if (met[rank])
			(*peers)[(*count)++] = (other == ROLE_TRAINER ? 0 : trainers) + rank;
	memory_free(met);
	return 0;
}

/* What filling one plan needs at hand. */
struct filling {
	const struct book *book;
	const struct slot *slot;
	const struct strmap *tensors; /* names of the receiver's own declaration */
	uint32_t *peer_of;	      /* other side's rank -> index into plan peers */
	struct message_plan *plan;
};

static int undeclared(const struct filling *filling, const char *name, struct error *error)
{
	return error_set(error, ERROR_INTERNAL,
			 "the table routes tensor '%.200s', which %s %u never declared", name,
			 role_name(filling->slot->who.role), filling->slot->who.rank);
}

static int fill_route(struct filling *filling, uint32_t index, struct error *error)
{
	const struct table *table = filling->book->table;
	const struct route *route = &table->routes[index];
	const struct problem *problem = filling->book->problem;
	const char *name = problem->tensors[route->tensor].name;
	uint32_t peer = filling->peer_of[rank_of(route, other_role(filling->slot->who.role))];
	struct message_plan *plan = filling->plan;
	uint32_t tensor, scales = 0;

	if (!strmap_get(filling->tensors, name, &tensor))
		return undeclared(filling, name, error);
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];
		const struct problem_made *made = &problem->made[piece->made];

		if (made->make.from_rows &&
		    !strmap_get(filling->tensors, problem->tensors[made->scales].name, &scales))
			return undeclared(filling, problem->tensors[made->scales].name, error);
		plan->rows[plan->row_count++] = (struct plan_row){
			.peer = peer,
			.ordinal = filling->book->ordinals[route->piece_first + p],
			.tensor = tensor,
			.param = piece->param,
			.how = piece->how,
			.src = piece->src,
			.offset = piece->offset,
			.bytes = piece->bytes,
			.make = made->make,
			.scales = made->make.from_rows ? scales : 0,
			.to = made->to,
		};
	}
	return 0;
}

/* An inference rank's rows: canonical order, then stably by peer: (peer, ordinal). */
static int by_peer(struct message_plan *plan, struct error *error)
{
	size_t *next = memory_zalloc(plan->peer_count + 1, sizeof(*next));
	struct plan_row *sorted = memory_zalloc(plan->row_count, sizeof(*sorted));

	if (!next || !sorted) {
		memory_free(next);
		memory_free(sorted);
		return no_memory(error);
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
	const struct book *book = filling->book;
	enum role role = filling->slot->who.role;
	uint32_t rank = filling->slot->who.rank;
	const uint64_t *first = &book->first[role][rank];
	struct message_plan *plan = filling->plan;
	size_t pieces = 0;
	int rc = 0;

	for (uint64_t k = first[0]; k < first[1]; k++)
		pieces += book->table->routes[book->routes[role][k]].piece_count;
	if (pieces > LIMIT_ROUTES)
		return error_set(error, ERROR_LIMIT,
				 "%s %u would get %zu rows, the limit is %u: use more ranks",
				 role_name(role), rank, pieces, LIMIT_ROUTES);
	plan->rows = memory_zalloc(pieces, sizeof(*plan->rows));
	if (!plan->rows)
		return no_memory(error);
	if (role == ROLE_TRAINER) {
		const struct send_order *sends = &book->sends;

		for (size_t k = sends->first[rank]; !rc && k < sends->first[rank + 1]; k++)
			rc = fill_route(filling, sends->routes[k], error);
	} else {
		for (uint64_t k = first[0]; !rc && k < first[1]; k++)
			rc = fill_route(filling, book->routes[role][k], error);
		if (!rc)
			rc = by_peer(plan, error);
	}
	for (size_t i = 0; !rc && i < plan->row_count; i++) {
		plan->peers[plan->rows[i].peer].bytes += plan->rows[i].bytes;
		plan->peers[plan->rows[i].peer].pieces++;
	}
	return rc;
}

int book_plan(const struct book *book, const struct controller *controller, const struct slot *slot,
	      struct message_plan *plan, struct error *error)
{
	bool trainer = slot->who.role == ROLE_TRAINER;
	struct filling filling = {
		.book = book,
		.slot = slot,
		.tensors = trainer ? &slot->body->holding.tensor_names
				   : &slot->body->layout.tensor_names,
		.plan = plan,
	};
	int rc;

	plan->digest = book->table->digest;
	plan->checksums = slot->declare.checksums;
	plan->policy = memory_string(book->table->policy);
	plan->order = memory_string(book->table->order);
	plan->peers = memory_zalloc(slot->peer_count, sizeof(*plan->peers));
	filling.peer_of = memory_zalloc(controller->slot_count, sizeof(uint32_t));
	if (!plan->policy || !plan->order || !plan->peers || !filling.peer_of) {
		memory_free(filling.peer_of);
		return no_memory(error);
	}
	for (size_t i = 0; i < slot->peer_count; i++) {
		const struct slot *peer = &controller->slots[slot->peers[i]];

		plan->peers[i].member = peer->who;
		plan->peers[i].host = memory_string(peer->hello.host);
		plan->peer_count++;
		filling.peer_of[peer->who.rank] = (uint32_t)i;
		if (!plan->peers[i].host) {
			memory_free(filling.peer_of);
			return no_memory(error);
		}
	}
	rc = fill_rows(&filling, error);
	memory_free(filling.peer_of);
	return rc;
}
