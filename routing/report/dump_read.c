/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_read.c -- reads what dump.c writes, and any other legal layout of it, in bounded memory:
 *
 *   file ──1 MiB──► split ──each route──► jansson ──► a row of the compact arrays,
 *                     │                               or the visitor
 *                     └──the other keys──► one small tree ──► labels, ranks, summary, digest
 *
 * Routes are read where they stand when the schema, the labels and the ranks stood before them,
 * as they do in every dump that weft writes. Else (keys sorted by a tool) they are passed over
 * and read at the end, which a pipe cannot do.
 */
#include "routing/report/dump_read.h"

#include "base/array.h"
#include "base/file.h"
#include "routing/report/dump.h"
#include "base/json_split.h"
#include "base/plain.h"
#include "base/progress.h"
#include "routing/report/dump_value.h"
#include "routing/plan/order.h"
#include "routing/plan/topology_file.h"
#include <inttypes.h>
#include <string.h>

#define HEAD_BYTES_MAX	(UINT64_C(64) << 20) /* of all values beside the routes */
#define ROUTE_BYTES_MAX (UINT64_C(16) << 20) /* of one route */

static const char *const head_keys[] = {"schema", "policy",   "model",	   "train",
					"infer",  "trainers", "inference", NULL};
static const char *const keys[] = {"schema",	"policy",      "model",	    "train",
				   "infer",	"trainers",    "inference", "summary",
				   "digest",	"order|",      "away|",	    "sessions_max|",
				   "topology|", "transports|", "moved|",    NULL};

struct parse {
	struct json_reader reader;
	struct dump *dump;
	struct split split;
	json_t *root; /* all but the routes */
	const struct dump_visitor *visitor;
	uint64_t head_bytes;
	uint64_t routes_at; /* where routes that were passed over begin */
	bool has_head, routes_waiting;
	struct progress progress; /* of a file whose size is known */
};

/* ---- ranks ---- */

static const struct rank_list {
	const char *key, *what;
	size_t count; /* of numbers of a rank */
	const char *keys[4];
} trainer_list = {"trainers", "trainers", 1, {"rank", "stage"}},
  inference_list = {"inference", "inference ranks", 2, {"rank", "engine", "engine_rank"}};

/* The numbers of each rank, one rank after the other. */
static void *read_ranks(struct json_reader *r, struct dump *dump, json_t *root,
			const struct rank_list *list, uint32_t *count)
{
	size_t bytes = list->count * sizeof(uint32_t);
	uint32_t *numbers, *at;
	json_t *items;

	if (json_take_list(r, root, list->key, &items))
		return NULL;
	*count = (uint32_t)json_array_size(items);
	if (json_array_size(items) > PARALLEL_RANKS_MAX) {
		json_refuse(r, "%zu %s; at most %d are possible", json_array_size(items),
			    list->what, PARALLEL_RANKS_MAX);
		return NULL;
	}
	at = numbers = pool_array(&dump->pool, *count, bytes);
	if (!numbers)
		dump_no_memory(r, *count * bytes);
	for (uint32_t i = 0; !r->failed && i < *count; i++) {
		json_t *item = json_array_get(items, i);
		uint64_t rank = i;

		r->at = (struct json_place){.list = list->key, .index = i};
		dump_keys(r, item, list->keys);
		json_take_number(r, item, "rank", 0, PARALLEL_RANKS_MAX, &rank);
		if (rank != i)
			json_refuse(r, "\"rank\" is %" PRIu64 "; ranks count from 0", rank);
		for (size_t k = 0; k < list->count; k++)
			json_take_number32(r, item, list->keys[k + 1], PARALLEL_RANKS_MAX, at++);
	}
	r->at = (struct json_place){0};
	return numbers;
}

/* Ranks of one role that have no part in the plan; NULL: all have. */
static const bool *read_away_ranks(struct json_reader *r, struct dump *dump, json_t *away,
				   const char *key, uint32_t count)
{
	json_t *ranks;
	bool *flags;

	if (!json_object_get(away, key) || json_take_list(r, away, key, &ranks))
		return NULL;
	flags = pool_array(&dump->pool, count, sizeof(*flags));
	if (!flags)
		dump_no_memory(r, count);
	for (size_t i = 0; !r->failed && i < json_array_size(ranks); i++) {
		json_t *rank = json_array_get(ranks, i);
		json_int_t value = json_is_integer(rank) ? json_integer_value(rank) : -1;

		if (value < 0 || value >= count)
			json_refuse(r,
				    "\"away\": \"%s\"[%zu] is no rank of the %" PRIu32 " there are",
				    key, i, count);
		else
			flags[value] = true;
	}
	return flags;
}

static void read_away(struct json_reader *r, struct dump *dump, json_t *root)
{
	static const char *const known[] = {"trainers|", "inference|", NULL};
	json_t *away = json_object_get(root, "away");
	struct plan_labels *labels = &dump->labels;

	if (!away || r->failed)
		return;
	if (!json_is_object(away)) {
		json_refuse(r, "\"away\" is no object");
		return;
	}
	dump_keys(r, away, known);
	labels->trainer_away = read_away_ranks(r, dump, away, "trainers", labels->trainer_count);
	labels->inference_away =
		read_away_ranks(r, dump, away, "inference", labels->inference_count);
}

static void read_moved(struct json_reader *r, struct dump *dump, json_t *root)
{
	static const char *const known[] = {"routes", "bytes", NULL};
	json_t *moved = json_object_get(root, "moved");
	struct table_moved *labels = &dump->labels.moved;

	if (!moved || r->failed)
		return;
	if (!json_is_object(moved)) {
		json_refuse(r, "\"moved\" is no object");
		return;
	}
	dump_keys(r, moved, known);
	labels->follows = true;
	if (!json_take_number(r, moved, "routes", 0, UINT64_MAX, &labels->routes))
		json_take_number(r, moved, "bytes", 0, UINT64_MAX, &labels->bytes);
}

/* ---- routes ---- */

static int read_box(struct json_reader *r, json_t *object, struct box *box)
{
	json_t *src;

	if (json_take_list(r, object, "src", &src))
		return r->failed;
	if (json_array_size(src) < 1 || json_array_size(src) > BOX_DIMS_MAX)
		return json_refuse(r, "\"src\" has %zu dimensions; 1 to %d are possible",
				   json_array_size(src), BOX_DIMS_MAX);
	*box = (struct box){.dims = (uint32_t)json_array_size(src)};
	for (uint32_t d = 0; d < box->dims; d++) {
		json_t *range = json_array_get(src, d);
		json_t *lo = json_array_get(range, 0), *hi = json_array_get(range, 1);

		if (json_array_size(range) != 2 || !json_is_integer(lo) || !json_is_integer(hi) ||
		    json_integer_value(lo) < 0 || json_integer_value(hi) <= json_integer_value(lo))
			return json_refuse(r,
					   "\"src\"[%" PRIu32 "] is not [low, high] with 0 <= low "
					   "< high",
					   d);
		box->lo[d] = (uint64_t)json_integer_value(lo);
		box->hi[d] = (uint64_t)json_integer_value(hi);
	}
	return 0;
}

static int read_piece(struct json_reader *r, struct dump *dump, json_t *object,
		      enum route_path path)
{
	static const char *const piece_keys[] = {"src",	       "param",		"offset", "bytes",
						 "run_bytes|", "stride_bytes|", "how|",	  "make|",
						 "to|",	       "scales|",	NULL};
	struct route_piece piece = {.path = path}, *slot;

	dump_keys(r, object, piece_keys);
	read_box(r, object, &piece.src);
	dump_name(r, dump, object, "param", &piece.param);
	json_take_number(r, object, "offset", 0, DUMP_VALUE_MAX, &piece.offset);
	json_take_number(r, object, "bytes", 0, DUMP_VALUE_MAX, &piece.bytes);
	if (json_object_get(object, "run_bytes") || json_object_get(object, "stride_bytes")) {
		json_take_number(r, object, "run_bytes", 1, DUMP_VALUE_MAX,
				 &piece.spread.run_bytes);
		json_take_number(r, object, "stride_bytes", 1, DUMP_VALUE_MAX,
				 &piece.spread.stride_bytes);
	}
	if (json_object_get(object, "how"))
		dump_path(r, object, &piece.path);
	if (dump_take_transformed(r, dump, object, &piece.transformed))
		return r->failed;
	slot = array_push_raw((void **)&dump->pieces, &dump->piece_count, &dump->piece_capacity,
			      sizeof(*slot));
	if (!slot)
		return dump_no_memory(r, sizeof(*slot));
	*slot = piece;
	return 0;
}

static int read_route(struct json_reader *r, struct dump *dump, json_t *object)
{
	static const char *const route_keys[] = {"tensor", "trainer", "inference",  "bytes",
						 "how",	   "pieces",  "transport|", NULL};
	struct route route = {.piece_first = dump->piece_count}, *slot;
	enum route_path path = PATH_DIRECT;
	json_t *pieces = NULL;

	dump_keys(r, object, route_keys);
	dump_name(r, dump, object, "tensor", &route.tensor);
	json_take_number32(r, object, "trainer", dump->labels.trainer_count - 1, &route.trainer);
	json_take_number32(r, object, "inference", dump->labels.inference_count - 1,
			   &route.inference);
	json_take_number(r, object, "bytes", 0, DUMP_VALUE_MAX, &route.bytes);
	dump_path(r, object, &path);
	if (!r->failed)
		dump_check_pair(r, dump, object, &route);
	if (json_take_list(r, object, "pieces", &pieces))
		return r->failed;
	if (json_array_size(pieces) == 0 || json_array_size(pieces) > UINT32_MAX)
		return json_refuse(r, "\"pieces\" has %zu items", json_array_size(pieces));
	route.piece_count = (uint32_t)json_array_size(pieces);
	for (size_t p = 0; p < route.piece_count; p++) {
		r->at.inner = "pieces";
		r->at.inner_index = p;
		if (read_piece(r, dump, json_array_get(pieces, p), path))
			return r->failed;
	}
	r->at.inner = NULL;
	slot = array_push_raw((void **)&dump->routes, &dump->route_count, &dump->route_capacity,
			      sizeof(*slot));
	if (!slot)
		return dump_no_memory(r, sizeof(*slot));
	*slot = route;
	return 0;
}

/* ---- values as text ---- */

/* What jansson says of one value, with the byte of the file. */
static int load(struct parse *p, const struct split_value *value, json_t **out)
{
	json_error_t where;

	*out = json_loadb(value->text, value->bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
			  &where);
	return *out ? 0
		    : json_refuse(&p->reader, "%s, at byte %" PRIu64, where.text,
				  value->offset +
					  (uint64_t)(where.position > 0 ? where.position : 0));
}

static int read_one_route(struct parse *p, size_t index)
{
	struct dump *dump = p->dump;
	struct split_value value;
	json_t *object;
	int rc = split_take(&p->split, ROUTE_BYTES_MAX, &value);

	p->reader.at = (struct json_place){.list = "routes", .index = index};
	if (!rc)
		rc = load(p, &value, &object);
	if (rc)
		return rc;
	rc = read_route(&p->reader, dump, object);
	json_decref(object);
	if (rc || !p->visitor)
		return rc;
	rc = p->visitor->route(p->visitor->context, dump, &dump->routes[0], dump->pieces,
			       p->reader.error);
	dump->route_count = dump->piece_count = dump->transformed_count = 0;
	return rc;
}

static int read_routes(struct parse *p)
{
	static const char what[] = "',' or the ']' of the routes";
	struct dump *dump = p->dump;
	bool more;
	int rc = split_open(&p->split, '[', "the list of \"routes\"");

	dump->has_routes = true;
	if (!rc && p->visitor && p->visitor->head)
		rc = p->visitor->head(p->visitor->context, dump, p->reader.error);
	for (size_t i = 0; !rc; i++) {
		rc = split_next(&p->split, ']', i == 0, what, &more);
		if (rc || !more)
			break;
		if (dump->labels.trainer_count == 0 || dump->labels.inference_count == 0)
			return json_refuse(&p->reader,
					   "routes between no trainers and no inference ranks");
		if (i == UINT32_MAX)
			return json_refuse(&p->reader, "more than %" PRIu32 " routes", UINT32_MAX);
		rc = read_one_route(p, i);
		progress_at(&p->progress, split_offset(&p->split));
	}
	if (!rc)
		p->reader.at = (struct json_place){0};
	return rc;
}

/* ---- the whole ---- */

static int check_schema(struct json_reader *r, json_t *root)
{
	const char *schema;

	if (!json_object_get(root, "schema"))
		return json_refuse(r, "not a routing dump: key \"schema\" is missing");
	if (!json_take_string(r, root, "schema", &schema) && strcmp(schema, DUMP_SCHEMA) != 0)
		json_refuse(r,
			    "\"schema\" is \"%.64s\"; this weft reads %s: use the weft that "
			    "wrote it, or plan again with this one",
			    schema, DUMP_SCHEMA);
	return r->failed;
}

/* Dumps from before there was a choice have none. */
static int read_order(struct json_reader *r, struct dump *dump, json_t *root)
{
	if (json_object_get(root, "order"))
		return dump_copy(r, dump, root, "order", &dump->labels.order);
	dump->labels.order = pool_string(&dump->pool, ORDER_DEFAULT);
	return dump->labels.order ? 0 : dump_no_memory(r, sizeof(ORDER_DEFAULT));
}

/* Where it is missing, there was no limit. */
static void read_sessions_max(struct json_reader *r, struct dump *dump, json_t *root)
{
	if (json_object_get(root, "sessions_max") &&
	    !json_take_number32(r, root, "sessions_max", UINT32_MAX, &dump->labels.sessions_max) &&
	    dump->labels.sessions_max == 0)
		json_refuse(r, "\"sessions_max\" is 0; a plan without a limit leaves it out");
}

static int read_topology(struct json_reader *r, struct dump *dump, json_t *root)
{
	const json_t *value = json_object_get(root, "topology");
	int rc;

	if (!value || r->failed)
		return r->failed;
	rc = topology_take(&dump->topology, value, r->error);
	dump->labels.topology = dump->topology;
	if (!rc)
		rc = topology_fits(dump->topology, dump->labels.trainer_count,
				   dump->labels.inference_count, r->error);
	if (rc == -ERROR_CONFIG) { /* of a flag; here it is the file that is wrong */
		rc = -ERROR_FILE;
		if (r->error)
			r->error->code = ERROR_FILE;
	}
	if (rc == -ERROR_FILE)
		error_wrap(r->error, "%s: topology", r->name);
	return json_failed(r, rc);
}

static int read_head(struct parse *p)
{
	struct json_reader *r = &p->reader;
	struct dump *dump = p->dump;

	p->has_head = true;
	check_schema(r, p->root);
	dump_copy(r, dump, p->root, "policy", &dump->labels.policy);
	dump_copy(r, dump, p->root, "model", &dump->labels.model);
	dump_copy(r, dump, p->root, "train", &dump->labels.train);
	dump_copy(r, dump, p->root, "infer", &dump->labels.infer);
	dump->labels.trainer_stage =
		read_ranks(r, dump, p->root, &trainer_list, &dump->labels.trainer_count);
	dump->inference =
		read_ranks(r, dump, p->root, &inference_list, &dump->labels.inference_count);
	return dump_take_pairs(r, dump, p->root);
}

/* The value of "routes": now, or remembered for the end. */
static int meet_routes(struct parse *p)
{
	bool ready = true;
	int rc;

	if (p->dump->has_routes || p->routes_waiting)
		return json_refuse(&p->reader, "duplicate key \"routes\" before byte %" PRIu64,
				   split_offset(&p->split));
	for (size_t i = 0; head_keys[i]; i++)
		ready = ready && json_object_get(p->root, head_keys[i]);
	if (ready) {
		rc = read_head(p);
		return rc ? rc : read_routes(p);
	}
	p->routes_waiting = true;
	p->routes_at = split_offset(&p->split);
	return split_take(&p->split, 0, NULL);
}

static int meet_value(struct parse *p, json_t *key)
{
	const char *name = json_string_value(key);
	struct split_value value;
	json_t *loaded;
	int rc;

	if (json_object_get(p->root, name))
		return json_refuse(&p->reader, "duplicate key \"%.64s\" before byte %" PRIu64, name,
				   split_offset(&p->split));
	rc = split_take(&p->split, HEAD_BYTES_MAX - p->head_bytes, &value);
	if (rc)
		return rc;
	p->head_bytes += value.bytes;
	p->reader.at = (struct json_place){.list = name, .index = SIZE_MAX};
	rc = load(p, &value, &loaded);
	p->reader.at = (struct json_place){0};
	if (!rc && json_object_set_new(p->root, name, loaded) != 0)
		rc = dump_no_memory(&p->reader, value.bytes);
	return rc;
}

static int read_pair(struct parse *p)
{
	struct split_value value;
	json_t *key = NULL;
	int rc = split_key(&p->split, &value);

	if (!rc)
		rc = load(p, &value, &key);
	if (!rc)
		rc = split_open(&p->split, ':', "':' after a key");
	if (!rc)
		rc = strcmp(json_string_value(key), "routes") == 0 ? meet_routes(p)
								   : meet_value(p, key);
	json_decref(key);
	return rc;
}

static int read_pairs(struct parse *p)
{
	bool more = true;
	int rc = split_open(&p->split, '{', "the '{' of a routing dump");

	for (bool first = true; !rc; first = false) {
		rc = split_next(&p->split, '}', first, "',' or the '}' of the dump", &more);
		if (rc || !more)
			break;
		rc = read_pair(p);
	}
	return rc ? rc : split_finish(&p->split);
}

static int read_dump(struct parse *p)
{
	struct json_reader *r = &p->reader;
	const char *digest;
	int rc = read_pairs(p);

	if (rc)
		return rc;
	check_schema(r, p->root);
	dump_keys(r, p->root, keys);
	read_order(r, p->dump, p->root);
	read_sessions_max(r, p->dump, p->root);
	if (!p->has_head)
		read_head(p);
	else if (!p->dump->labels.pairs && json_object_get(p->root, "transports"))
		json_refuse(r, "\"transports\" stand behind the routes; they have to come before");
	read_away(r, p->dump, p->root);
	read_moved(r, p->dump, p->root);
	read_topology(r, p->dump, p->root);
	rc = json_take_string(r, p->root, "digest", &digest);
	if (!rc && !digest_parse(digest, &p->dump->labels.digest))
		rc = json_refuse(r, "\"digest\" is not 32 lower-case hex digits");
	if (!rc && p->routes_waiting) {
		rc = split_seek(&p->split, p->routes_at);
		if (!rc)
			rc = read_routes(p);
		else
			error_wrap(r->error, "\"routes\" stand before the labels and ranks");
	}
	return rc ? rc : dump_take_summary(r, p->dump, json_object_get(p->root, "summary"));
}

static int parse(struct dump **out, struct parse *p)
{
	int rc;

	p->reader.name = p->split.name;
	p->reader.error = p->split.error;
	p->dump = memory_zalloc(1, sizeof(*p->dump));
	p->root = json_object();
	rc = p->dump && p->root ? read_dump(p) : dump_no_memory(&p->reader, sizeof(*p->dump));
	json_decref(p->root);
	split_fini(&p->split);
	if (rc)
		dump_free(&p->dump);
	*out = p->dump;
	return rc;
}

int dump_parse(struct dump **out, const char *text, size_t bytes, const char *name,
	       struct error *error)
{
	struct parse p = {0};

	*out = NULL;
	if (bytes > DUMP_BYTES_MAX)
		return error_set(error, ERROR_LIMIT,
				 "%s has %zu bytes; dumps of up to %" PRIu64 " are read", name,
				 bytes, DUMP_BYTES_MAX);
	split_text(&p.split, text ? text : "", bytes, name, error);
	return parse(out, &p);
}

int dump_visit(struct dump **out, const char *path, const struct dump_visitor *visitor,
	       struct error *error)
{
	struct parse p = {.visitor = visitor};
	struct file_stream file;
	char what[256] = "reading ";
	int rc = file_stream_open(&file, path, error);

	*out = NULL;
	if (rc)
		return rc;
	plain_put(what + strlen(what), sizeof(what) - strlen(what), path);
	if (file.bytes != UINT64_MAX && file.bytes > DUMP_BYTES_MAX)
		rc = error_set(error, ERROR_LIMIT,
			       "%s has %" PRIu64 " bytes; dumps of up to %" PRIu64 " are read",
			       path, file.bytes, DUMP_BYTES_MAX);
	if (!rc)
		rc = split_file(&p.split, &file, path, error);
	progress_begin(&p.progress, what, file.bytes, file.bytes == UINT64_MAX);
	if (!rc)
		rc = parse(out, &p);
	if (rc)
		progress_steps_end();
	else
		progress_end(&p.progress, file.bytes);
	file_stream_close(&file);
	return rc;
}

int dump_open(struct dump **dump, const char *path, struct error *error)
{
	return dump_visit(dump, path, NULL, error);
}

void dump_free(struct dump **pointer)
{
	struct dump *dump = *pointer;

	if (!dump)
		return;
	*pointer = NULL;
	pool_free(&dump->pool);
	topology_free(&dump->topology);
	names_fini(&dump->names);
	strmap_fini(&dump->known);
	memory_free(dump->routes);
	memory_free(dump->pieces);
	memory_free(dump->transformed);
	report_fini(&dump->report);
	memory_free(dump);
}
