/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_pairs.c -- which transport each pair uses, where the workers list several: from what they offer to
 * numbers that routing compares (routing/plan/pairs.h), and what to say of a pair that none reaches.
 */
#include "controller/epoch.h"

#include "job/strmap.h"
#include <string.h>

const struct transport_offer *epoch_offer(const struct worker *worker, const char *name)
{
	for (size_t i = 0; i < worker->declare.offer_count; i++)
		if (strcmp(worker->declare.offers[i].name, name) == 0)
			return &worker->declare.offers[i];
	return NULL;
}

/* Equal texts become equal numbers, from 1 in the order of ranks. */
static int number(struct pairs *pairs, const struct epoch *epoch, uint32_t transport)
{
	struct strmap texts = {0};
	uint32_t used = 0;
	int rc = 0;

	for (uint32_t i = 0; i < epoch->count && !rc; i++) {
		const struct worker *worker = epoch->parties[i].worker;
		struct pair_side *side =
			pairs_side(pairs, worker->who.role, worker->who.rank, transport);
		const struct transport_offer *offer =
			epoch_offer(worker, pairs->list.names[transport]);

		if (!offer)
			continue;
		side->mapped = offer->mapped;
		side->device = worker->declare.device;
		side->landed = offer->landed;
		side->registered = offer->registered;
		if (strmap_get(&texts, offer->reach, &side->reach))
			continue;
		side->reach = ++used;
		if (!strmap_put(&texts, offer->reach, used))
			rc = -ERROR_MEMORY;
	}
	strmap_fini(&texts);
	return rc;
}

int epoch_pairs(struct pairs **out, struct pool *pool, const struct epoch *epoch,
		struct error *error)
{
	const char *text = epoch_labels(epoch)->transport;
	struct transports list;
	struct pairs *pairs;
	int rc;

	*out = NULL;
	if (!text || !transports_listed(text))
		return 0;
	rc = transports_parse(&list, text, error);
	if (rc)
		return rc;
	pairs = pool_array(pool, 1, sizeof(*pairs));
	if (!pairs ||
	    !pairs_init(pairs, pool, &list, epoch->trainers, epoch->count - epoch->trainers))
		return -ERROR_MEMORY;
	for (uint32_t i = 0; i < list.count && !rc; i++)
		rc = number(pairs, epoch, i);
	*out = pairs;
	return rc;
}

/* The first of the list that both inference ranks have and that reaches; its count: none. */
static uint32_t mates_transport(const struct pairs *pairs, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < pairs->list.count; i++) {
		uint32_t reach = pairs_side(pairs, ROLE_INFERENCE, a, i)->reach;

		if (reach && reach == pairs_side(pairs, ROLE_INFERENCE, b, i)->reach)
			return i;
	}
	return pairs->list.count;
}

/* Why this one of the list does not do. */
static void add_reason(struct text *text, const char *name, const struct worker *from,
		       const struct worker *to)
{
	const struct transport_offer *a = epoch_offer(from, name), *b = epoch_offer(to, name);
	char who[MEMBER_TEXT_BYTES];

	text_format(text, "%s%s: ", text->bytes ? "; " : "", name);
	if (!a && !b)
		text_add(text, "neither has it");
	else if (!a || !b)
		text_format(text, "%s has none", member_text(a ? to->who : from->who, who));
	else
		text_format(text, "one reaches '%.80s', the other '%.80s'", a->reach, b->reach);
}

/* Routing takes who reaches, so nobody who holds what this route brings does. tensor NULL: they are mates. */
static int refuse(const struct epoch *epoch, const struct worker *from, const struct worker *to,
		  const char *tensor, struct error *error)
{
	const struct transports *list = &epoch->problem->pairs->list;
	bool tcp = transports_find(list, "tcp") < list->count;
	char a[MEMBER_TEXT_BYTES], b[MEMBER_TEXT_BYTES], names[TRANSPORTS_TEXT_BYTES];
	struct text reasons = {0}, others = {0};

	transports_text(list, names);
	if (!tensor)
		text_add(&others, EPOCH_MATES_WHY);
	else if (epoch->trainers > 1)
		text_format(&others, "; no trainer that holds these rows of %.200s reaches it",
			    tensor);
	for (uint32_t i = 0; i < list->count; i++)
		add_reason(&reasons, list->names[i], from, to);
	error_set(
		error, ERROR_UNSUPPORTED,
		"no transport of %s gets from %s (host %.80s) to %s (host %.80s): %.500s; %s%s%s%s",
		names, member_text(from->who, a), from->hello.host, member_text(to->who, b),
		to->hello.host, text_string(&reasons),
		tcp ? "their logs say what could not be opened" : "give all workers --transport ",
		tcp ? "" : names, tcp ? "" : ",tcp", text_string(&others));
	text_fini(&reasons);
	text_fini(&others);
	return -ERROR_UNSUPPORTED;
}

static int check_mates(const struct epoch *epoch, const struct epoch_rules *rules,
		       struct error *error)
{
	const struct commit_ranks ranks = epoch_commits(epoch, rules);
	const struct pairs *pairs = epoch->problem->pairs;
	uint32_t mate;

	for (uint32_t rank = 0; pairs && rank < ranks.count; rank++)
		if (!ranks.away[rank] && commit_decider(&ranks, rank, &mate) &&
		    mates_transport(pairs, mate, rank) == pairs->list.count)
			return refuse(epoch, epoch->parties[epoch->trainers + mate].worker,
				      epoch->parties[epoch->trainers + rank].worker, NULL, error);
	return 0;
}

int epoch_pairs_check(const struct epoch *epoch, const struct epoch_rules *rules,
		      struct error *error)
{
	const struct table *table = epoch->table;
	size_t r = table_unreached(table);

	if (r == table->route_count)
		return check_mates(epoch, rules, error);
	return refuse(epoch, epoch->parties[table->routes[r].trainer].worker,
		      epoch->parties[epoch->trainers + table->routes[r].inference].worker,
		      table->problem->tensors[table->routes[r].tensor].name, error);
}

const char *epoch_copy_transport(const struct epoch *epoch, const struct worker *from,
				 const struct worker *to)
{
	const struct pairs *pairs = epoch->problem->pairs;

	if (!pairs)
		return from->declare.registered && !to->declare.landed ? "" : NULL;
	for (uint32_t i = 0; i < pairs->list.count; i++) {
		const struct pair_side *a = pairs_side(pairs, ROLE_INFERENCE, from->who.rank, i);
		const struct pair_side *b = pairs_side(pairs, ROLE_INFERENCE, to->who.rank, i);

		if (a->reach && a->reach == b->reach && a->registered && !b->landed)
			return pairs->list.names[i];
	}
	return NULL;
}

const char *epoch_pair_transport(const struct epoch *epoch, struct member a, struct member b)
{
	const struct pairs *pairs = epoch->problem->pairs;

	if (!pairs)
		return "";
	if (a.role == b.role)
		return pairs->list.names[mates_transport(pairs, a.rank, b.rank)];
	return a.role == ROLE_TRAINER ? pairs_name(pairs, a.rank, b.rank)
				      : pairs_name(pairs, b.rank, a.rank);
}
