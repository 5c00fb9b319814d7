/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_pairs.c -- which transport each pair uses, in a dump of a job that lists several:
 *
 *   "transports": [{"name":"shm", "trainers":[1,2], "inference":[1,0]}, {"name":"verbs", ..}]
 *
 * A number a rank: 0 has it not, and those with equal numbers reach each other. Where some inference
 * rank's memory is not written by it, "landed": [0,1] says whose. Every route says the one of its pair
 * too, for people: it follows from this.
 */
#include "routing/report/dump_value.h"

#include <inttypes.h>
#include <string.h>

static const char *const lists[ROLE_COUNT] = {
	[ROLE_TRAINER] = "trainers", [ROLE_INFERENCE] = "inference"};

/* ---- writing ---- */

static void put_landed(struct json *json, const struct pairs *pairs, uint32_t transport)
{
	bool any = false;

	for (uint32_t rank = 0; rank < pairs->count[ROLE_INFERENCE]; rank++)
		any = any || pairs_side(pairs, ROLE_INFERENCE, rank, transport)->landed;
	if (!any)
		return;
	json_put_key_array(json, "landed");
	for (uint32_t rank = 0; rank < pairs->count[ROLE_INFERENCE]; rank++)
		json_put_u64(json, pairs_side(pairs, ROLE_INFERENCE, rank, transport)->landed);
	json_put_array_end(json);
}

void dump_put_pairs(struct json *json, const struct pairs *pairs)
{
	json_put_newline(json);
	json_put_key_array(json, "transports");
	for (uint32_t t = 0; t < pairs->list.count; t++) {
		json_put_object(json);
		json_put_key_string(json, "name", pairs->list.names[t]);
		for (int role = 0; role < ROLE_COUNT; role++) {
			json_put_key_array(json, lists[role]);
			for (uint32_t rank = 0; rank < pairs->count[role]; rank++)
				json_put_u64(json,
					     pairs_side(pairs, (enum role)role, rank, t)->reach);
			json_put_array_end(json);
		}
		put_landed(json, pairs, t);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

/* ---- reading ---- */

static int read_names(struct json_reader *r, json_t *items, struct transports *list)
{
	size_t count = json_array_size(items);

	if (count < 1 || count > TRANSPORTS_MAX)
		return json_refuse(r, "%zu transports; 1 to %d are possible", count,
				   TRANSPORTS_MAX);
	for (uint32_t i = 0; i < count; i++) {
		static const char *const needed[] = {"name", "trainers", "inference", NULL};
		static const char *const known[] = {"name", "trainers", "inference", "landed",
						    NULL};
		json_t *item = json_array_get(items, i);
		struct transports one;
		const char *name;

		r->at = (struct json_place){.list = "transports", .index = i};
		json_needed_keys(r, item, needed);
		json_known_keys(r, item, known);
		if (json_take_string(r, item, "name", &name))
			return r->failed;
		if (transports_listed(name) || transports_parse(&one, name, NULL) ||
		    transports_find(list, name) < list->count)
			return json_refuse(r, "\"name\" is \"%.32s\", which is %s", name,
					   transports_find(list, name) < list->count
						   ? "there already"
						   : "no name of a transport");
		memcpy(list->names[list->count++], one.names[0], sizeof(one.names[0]));
	}
	return 0;
}

/* A number a rank. */
static int read_numbers(struct json_reader *r, json_t *item, const char *key, uint32_t count,
			json_t **numbers)
{
	if (json_take_list(r, item, key, numbers))
		return r->failed;
	return json_array_size(*numbers) == count
		       ? 0
		       : json_refuse(r, "\"%s\" has %zu numbers; the dump has %" PRIu32 " of them",
				     key, json_array_size(*numbers), count);
}

static int number_at(struct json_reader *r, const json_t *numbers, const char *key, uint32_t rank,
		     int most, uint32_t *out)
{
	const json_t *number = json_array_get(numbers, rank);
	json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;

	*out = 0;
	if (value < 0 || value > most)
		return json_refuse(r, "\"%s\"[%" PRIu32 "] is no number of 0 to %d", key, rank,
				   most);
	*out = (uint32_t)value;
	return 0;
}

static int read_sides(struct json_reader *r, json_t *item, struct pairs *pairs, enum role role,
		      uint32_t transport)
{
	json_t *numbers;

	if (read_numbers(r, item, lists[role], pairs->count[role], &numbers))
		return r->failed;
	for (uint32_t rank = 0; rank < pairs->count[role]; rank++)
		if (number_at(r, numbers, lists[role], rank, 2 * PARALLEL_RANKS_MAX,
			      &pairs_side(pairs, role, rank, transport)->reach))
			return r->failed;
	return 0;
}

static int read_landed(struct json_reader *r, json_t *item, struct pairs *pairs, uint32_t transport)
{
	json_t *numbers;

	if (!json_object_get(item, "landed"))
		return 0;
	if (read_numbers(r, item, "landed", pairs->count[ROLE_INFERENCE], &numbers))
		return r->failed;
	for (uint32_t rank = 0; rank < pairs->count[ROLE_INFERENCE]; rank++) {
		uint32_t value;

		if (number_at(r, numbers, "landed", rank, 1, &value))
			return r->failed;
		pairs_side(pairs, ROLE_INFERENCE, rank, transport)->landed = value != 0;
	}
	return 0;
}

int dump_take_pairs(struct json_reader *r, struct dump *dump, json_t *root)
{
	struct transports list = {0};
	struct pairs *pairs;
	json_t *items;

	if (r->failed || !json_object_get(root, "transports"))
		return r->failed;
	if (json_take_list(r, root, "transports", &items) || read_names(r, items, &list))
		return r->failed;
	pairs = pool_array(&dump->pool, 1, sizeof(*pairs));
	if (!pairs || !pairs_init(pairs, &dump->pool, &list, dump->labels.trainer_count,
				  dump->labels.inference_count))
		return dump_no_memory(r, sizeof(*pairs));
	for (uint32_t t = 0; t < list.count; t++) {
		r->at = (struct json_place){.list = "transports", .index = t};
		for (int role = 0; role < ROLE_COUNT; role++)
			if (read_sides(r, json_array_get(items, t), pairs, (enum role)role, t))
				return r->failed;
		if (read_landed(r, json_array_get(items, t), pairs, t))
			return r->failed;
	}
	r->at = (struct json_place){0};
	dump->labels.pairs = pairs;
	return 0;
}

int dump_check_pair(struct json_reader *r, const struct dump *dump, json_t *object,
		    const struct route *route)
{
	const struct pairs *pairs = dump->labels.pairs;
	const char *said, *is;

	if (!pairs)
		return json_object_get(object, "transport")
			       ? json_refuse(r,
					     "a \"transport\", and no \"transports\" stand before "
					     "the routes")
			       : 0;
	if (json_take_string(r, object, "transport", &said))
		return r->failed;
	is = pairs_name(pairs, route->trainer, route->inference);
	return strcmp(said, is)
		       ? json_refuse(r,
				     "\"transport\" is \"%.32s\"; by \"transports\" the pair "
				     "uses %s",
				     said, is)
		       : 0;
}

/* ---- facts ---- */

/* A rank that others map, and this trainer does not: it is a GPU's, and the trainer lies on the host. */
static void note_device(struct pairs *pairs, const struct dump *dump, const struct route *route)
{
	uint32_t t = pairs_transport(pairs, route->trainer, route->inference);
	struct pair_side *to = pairs_side(pairs, ROLE_INFERENCE, route->inference, t);
	bool around = false;

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &dump->pieces[route->piece_first + p];

		around = around || piece->path == PATH_REPLICA ||
			 (piece->path == PATH_LANDED && !to->landed);
	}
	if (!around || !to->mapped)
		return;
	to->device = true;
	pairs_side(pairs, ROLE_TRAINER, route->trainer, t)->device = false;
}

int dump_pair_facts(const struct dump *dump, struct problem *problem, struct error *error)
{
	const struct pairs *from = dump->labels.pairs;
	struct pairs *pairs;

	problem->pairs = NULL;
	if (!from)
		return 0;
	pairs = pool_array(&problem->pool, 1, sizeof(*pairs));
	if (!pairs || !pairs_copy(pairs, &problem->pool, from))
		return memory_error(error, "listing transports", sizeof(*pairs));
	for (size_t i = 0; i < (size_t)pairs->count[ROLE_TRAINER] * pairs->list.count; i++)
		pairs->sides[ROLE_TRAINER][i].mapped = pairs->sides[ROLE_TRAINER][i].device = true;
	problem->pairs = pairs;
	for (size_t r = 0; r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];
		uint32_t t = pairs_transport(pairs, route->trainer, route->inference);

		if (t == pairs->list.count)
			return error_set(error, ERROR_UNPROVED,
					 "routes[%zu]: no transport gets from trainer %" PRIu32
					 " to inference %" PRIu32,
					 r, route->trainer, route->inference);
		for (uint32_t p = 0; p < route->piece_count; p++) {
			enum route_path path = dump->pieces[route->piece_first + p].path;

			if (path == PATH_DIRECT)
				pairs_side(pairs, ROLE_TRAINER, route->trainer, t)->registered =
					true;
			else if (path == PATH_MAPPED)
				pairs_side(pairs, ROLE_INFERENCE, route->inference, t)->mapped =
					true;
		}
	}
	for (size_t r = 0; r < dump->route_count; r++)
		note_device(pairs, dump, &dump->routes[r]);
	return 0;
}
