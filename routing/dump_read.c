/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/dump_read.h"

#include "common/array.h"
#include "common/file.h"
#include "common/strmap.h"
#include "routing/dump.h"
#include "routing/order.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define BYTES_MAX (UINT64_C(1) << 62)

/* Where in the dump the reader is: "routes[12].pieces[0]". */
struct place {
	const char *list;
	size_t index;
	const char *inner;
	size_t inner_index;
};

struct reader {
	struct dump *dump;
	const char *name; /* of the file */
	struct place at;
	struct strmap known; /* name -> index into dump.names */
	struct error *error;
};

/* "FILE: routes[12].pieces[0]: <sentence>" */
static int refuse(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct reader *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_vset(r->error, ERROR_FILE, format, args);
	va_end(args);
	if (r->at.inner)
		return error_wrap(r->error, "%s: %s[%zu].%s[%zu]", r->name, r->at.list, r->at.index,
				  r->at.inner, r->at.inner_index);
	if (r->at.list && r->at.index != SIZE_MAX)
		return error_wrap(r->error, "%s: %s[%zu]", r->name, r->at.list, r->at.index);
	return r->at.list ? error_wrap(r->error, "%s: %s", r->name, r->at.list)
			  : error_wrap(r->error, "%s", r->name);
}

static int no_memory(struct reader *r, size_t bytes)
{
	return memory_error(r->error, "reading a routing dump", bytes);
}

/* ---- values ---- */

static bool is_one_of(const char *key, const char *const *keys)
{
	for (size_t i = 0; keys && keys[i]; i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

/* The object has all of `needed` and nothing else than these and `optional` (may be NULL). */
static int check_keys(struct reader *r, json_t *object, const char *const *needed,
		      const char *const *optional)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return refuse(r, "not an object");
	for (size_t i = 0; needed[i]; i++)
		if (!json_object_get(object, needed[i]))
			return refuse(r, "key \"%s\" is missing", needed[i]);
	json_object_foreach(object, key, value)
	{
		if (!is_one_of(key, needed) && !is_one_of(key, optional))
			return refuse(r, "key \"%.64s\" is unknown", key);
	}
	return 0;
}

static int number(struct reader *r, json_t *object, const char *key, uint64_t max, uint64_t *out)
{
	json_t *value = json_object_get(object, key);

	if (!json_is_integer(value))
		return refuse(r, "\"%s\" is not a whole number", key);
	if (json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > max)
		return refuse(r, "\"%s\" is %" PRId64 "; 0 to %" PRIu64 " are possible", key,
			      (int64_t)json_integer_value(value), max);
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

static int number32(struct reader *r, json_t *object, const char *key, uint32_t max, uint32_t *out)
{
	uint64_t value = 0;
	int rc = number(r, object, key, max, &value);

	*out = (uint32_t)value;
	return rc;
}

static int ratio(struct reader *r, json_t *object, const char *key, double *out)
{
	json_t *value = json_object_get(object, key);

	if (!json_is_number(value))
		return refuse(r, "\"%s\" is not a number", key);
	*out = json_number_value(value);
	return 0;
}

static int string(struct reader *r, json_t *object, const char *key, const char **out)
{
	*out = json_string_value(json_object_get(object, key));
	return *out ? 0 : refuse(r, "\"%s\" is not a string", key);
}

static int copy_string(struct reader *r, json_t *object, const char *key, char **out)
{
	const char *value;
	int rc = string(r, object, key, &value);

	if (rc)
		return rc;
	*out = memory_string(value);
	return *out ? 0 : no_memory(r, strlen(value));
}

static int list(struct reader *r, json_t *object, const char *key, json_t **out)
{
	*out = json_object_get(object, key);
	return json_is_array(*out) ? 0 : refuse(r, "\"%s\" is not a list", key);
}

static int how_of(struct reader *r, json_t *object, enum route_how *out)
{
	const char *name;
	int rc = string(r, object, "how", &name);

	if (rc)
		return rc;
	for (int how = 0; how < HOW_COUNT; how++) {
		if (strcmp(name, route_how_name((enum route_how)how)) == 0) {
			*out = (enum route_how)how;
			return 0;
		}
	}
	return refuse(r, "\"how\" is \"%.32s\"; direct, mapped and replica are known", name);
}

/* The index of a name, each kept once: routes repeat them by the million. */
static int name_of(struct reader *r, json_t *object, const char *key, uint32_t *out)
{
	struct names *names = &r->dump->names;
	const char *name;
	int rc = string(r, object, key, &name);

	if (rc || strmap_get(&r->known, name, out))
		return rc;
	rc = names_add(names, name, r->error);
	if (rc)
		return rc;
	*out = (uint32_t)names->count - 1;
	return strmap_put(&r->known, names->items[*out], *out) ? 0 : no_memory(r, strlen(name));
}

/* ---- ranks ---- */

static int read_trainers(struct reader *r, json_t *root)
{
	static const char *const keys[] = {"rank", "stage", NULL};
	struct dump *dump = r->dump;
	json_t *items;
	int rc = list(r, root, "trainers", &items);

	if (rc)
		return rc;
	if (json_array_size(items) > PARALLEL_RANKS_MAX)
		return refuse(r, "%zu trainers; at most %d are possible", json_array_size(items),
			      PARALLEL_RANKS_MAX);
	dump->trainer_count = (uint32_t)json_array_size(items);
	dump->trainer_stage = memory_zalloc(dump->trainer_count, sizeof(uint32_t));
	if (!dump->trainer_stage)
		return no_memory(r, dump->trainer_count * sizeof(uint32_t));
	for (uint32_t t = 0; t < dump->trainer_count; t++) {
		json_t *item = json_array_get(items, t);
		uint64_t rank = 0;

		r->at = (struct place){.list = "trainers", .index = t};
		rc = check_keys(r, item, keys, NULL);
		if (!rc)
			rc = number(r, item, "rank", PARALLEL_RANKS_MAX, &rank);
		if (!rc && rank != t)
			rc = refuse(r, "\"rank\" is %" PRIu64 "; ranks count from 0", rank);
		if (!rc)
			rc = number32(r, item, "stage", PARALLEL_RANKS_MAX,
				      &dump->trainer_stage[t]);
		if (rc)
			return rc;
	}
	r->at = (struct place){0};
	return 0;
}

static int read_inference(struct reader *r, json_t *root)
{
	static const char *const keys[] = {"rank", "engine", "engine_rank", NULL};
	struct dump *dump = r->dump;
	json_t *items;
	int rc = list(r, root, "inference", &items);

	if (rc)
		return rc;
	if (json_array_size(items) > PARALLEL_RANKS_MAX)
		return refuse(r, "%zu inference ranks; at most %d are possible",
			      json_array_size(items), PARALLEL_RANKS_MAX);
	dump->inference_count = (uint32_t)json_array_size(items);
	dump->inference = memory_zalloc(dump->inference_count, sizeof(*dump->inference));
	if (!dump->inference)
		return no_memory(r, dump->inference_count * sizeof(*dump->inference));
	for (uint32_t i = 0; i < dump->inference_count; i++) {
		json_t *item = json_array_get(items, i);
		struct dump_rank *to = &dump->inference[i];
		uint64_t rank = 0;

		r->at = (struct place){.list = "inference", .index = i};
		rc = check_keys(r, item, keys, NULL);
		if (!rc)
			rc = number(r, item, "rank", PARALLEL_RANKS_MAX, &rank);
		if (!rc && rank != i)
			rc = refuse(r, "\"rank\" is %" PRIu64 "; ranks count from 0", rank);
		if (!rc)
			rc = number32(r, item, "engine", PARALLEL_RANKS_MAX, &to->engine);
		if (!rc)
			rc = number32(r, item, "engine_rank", PARALLEL_RANKS_MAX, &to->engine_rank);
		if (rc)
			return rc;
	}
	r->at = (struct place){0};
	return 0;
}

/* ---- routes ---- */

static int read_box(struct reader *r, json_t *object, struct box *box)
{
	json_t *src;
	int rc = list(r, object, "src", &src);

	if (rc)
		return rc;
	if (json_array_size(src) < 1 || json_array_size(src) > BOX_DIMS_MAX)
		return refuse(r, "\"src\" has %zu dimensions; 1 to %d are possible",
			      json_array_size(src), BOX_DIMS_MAX);
	*box = (struct box){.dims = (uint32_t)json_array_size(src)};
	for (uint32_t d = 0; d < box->dims; d++) {
		json_t *range = json_array_get(src, d);
		json_t *lo = json_array_get(range, 0), *hi = json_array_get(range, 1);

		if (json_array_size(range) != 2 || !json_is_integer(lo) || !json_is_integer(hi) ||
		    json_integer_value(lo) < 0 || json_integer_value(hi) <= json_integer_value(lo))
			return refuse(r,
				      "\"src\"[%" PRIu32 "] is not [low, high] with 0 <= low "
				      "< high",
				      d);
		box->lo[d] = (uint64_t)json_integer_value(lo);
		box->hi[d] = (uint64_t)json_integer_value(hi);
	}
	return 0;
}

static int read_piece(struct reader *r, json_t *object, enum route_how how)
{
	static const char *const keys[] = {"src", "param", "offset", "bytes", NULL};
	static const char *const optional[] = {"how", NULL};
	struct route_piece piece = {.how = how}, *slot;
	int rc = check_keys(r, object, keys, optional);

	if (!rc)
		rc = read_box(r, object, &piece.src);
	if (!rc)
		rc = name_of(r, object, "param", &piece.param);
	if (!rc)
		rc = number(r, object, "offset", BYTES_MAX, &piece.offset);
	if (!rc)
		rc = number(r, object, "bytes", BYTES_MAX, &piece.bytes);
	if (!rc && json_object_get(object, "how"))
		rc = how_of(r, object, &piece.how);
	if (rc)
		return rc;
	slot = array_push_raw((void **)&r->dump->pieces, &r->dump->piece_count,
			      &r->dump->piece_capacity, sizeof(*slot));
	if (!slot)
		return no_memory(r, sizeof(*slot));
	*slot = piece;
	return 0;
}

static int read_route(struct reader *r, json_t *object)
{
	static const char *const keys[] = {"tensor", "trainer", "inference", "bytes",
					   "how",    "pieces",	NULL};
	struct dump *dump = r->dump;
	struct route route = {.piece_first = dump->piece_count}, *slot;
	enum route_how how = HOW_DIRECT;
	json_t *pieces = NULL;
	int rc = check_keys(r, object, keys, NULL);

	if (!rc)
		rc = name_of(r, object, "tensor", &route.tensor);
	if (!rc)
		rc = number32(r, object, "trainer", dump->trainer_count - 1, &route.trainer);
	if (!rc)
		rc = number32(r, object, "inference", dump->inference_count - 1, &route.inference);
	if (!rc)
		rc = number(r, object, "bytes", BYTES_MAX, &route.bytes);
	if (!rc)
		rc = how_of(r, object, &how);
	if (!rc)
		rc = list(r, object, "pieces", &pieces);
	if (rc)
		return rc;
	if (json_array_size(pieces) == 0 || json_array_size(pieces) > UINT32_MAX)
		return refuse(r, "\"pieces\" has %zu items", json_array_size(pieces));
	route.piece_count = (uint32_t)json_array_size(pieces);
	for (size_t p = 0; p < route.piece_count; p++) {
		r->at.inner = "pieces";
		r->at.inner_index = p;
		rc = read_piece(r, json_array_get(pieces, p), how);
		if (rc)
			return rc;
	}
	r->at.inner = NULL;
	slot = array_push_raw((void **)&dump->routes, &dump->route_count, &dump->route_capacity,
			      sizeof(*slot));
	if (!slot)
		return no_memory(r, sizeof(*slot));
	*slot = route;
	return 0;
}

static int read_routes(struct reader *r, json_t *root)
{
	json_t *items;
	int rc = 0;

	if (!json_object_get(root, "routes"))
		return 0;
	rc = list(r, root, "routes", &items);
	if (rc)
		return rc;
	r->dump->has_routes = true;
	if (json_array_size(items) &&
	    (r->dump->trainer_count == 0 || r->dump->inference_count == 0))
		return refuse(r, "routes between no trainers and no inference ranks");
	for (size_t i = 0; !rc && i < json_array_size(items); i++) {
		r->at = (struct place){.list = "routes", .index = i};
		rc = read_route(r, json_array_get(items, i));
	}
	if (!rc)
		r->at = (struct place){0};
	return rc;
}

/* ---- summary ---- */

static int read_list(struct reader *r, json_t *object, const char *key, uint32_t count,
		     uint64_t max, uint64_t **out)
{
	json_t *items;
	int rc = list(r, object, key, &items);

	if (rc)
		return rc;
	if (json_array_size(items) != count)
		return refuse(r, "\"%s\" has %zu items for %" PRIu32 " ranks", key,
			      json_array_size(items), count);
	*out = memory_zalloc(count, sizeof(**out));
	if (!*out)
		return no_memory(r, count * sizeof(**out));
	for (uint32_t i = 0; i < count; i++) {
		json_t *item = json_array_get(items, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0 ||
		    (uint64_t)json_integer_value(item) > max)
			return refuse(r, "\"%s\"[%" PRIu32 "] is not a number from 0 to %" PRIu64,
				      key, i, max);
		(*out)[i] = (uint64_t)json_integer_value(item);
	}
	return 0;
}

static int read_sessions(struct reader *r, json_t *object, struct summary *summary)
{
	uint64_t *wide = NULL;
	int rc = read_list(r, object, "sessions", r->dump->trainer_count, r->dump->inference_count,
			   &wide);

	summary->sessions = rc ? NULL : memory_zalloc(r->dump->trainer_count, sizeof(uint32_t));
	if (!rc && !summary->sessions)
		rc = no_memory(r, r->dump->trainer_count * sizeof(uint32_t));
	for (uint32_t t = 0; !rc && t < r->dump->trainer_count; t++)
		summary->sessions[t] = (uint32_t)wide[t];
	memory_free(wide);
	return rc;
}

static int read_how_bytes(struct reader *r, json_t *object, struct summary *summary)
{
	const char *keys[HOW_COUNT + 1] = {NULL};
	json_t *split = json_object_get(object, "how_bytes");
	int rc;

	for (int how = 0; how < HOW_COUNT; how++)
		keys[how] = route_how_name((enum route_how)how);
	if (!json_is_object(split))
		return refuse(r, "\"how_bytes\" is not an object");
	rc = check_keys(r, split, keys, NULL);
	for (int how = 0; !rc && how < HOW_COUNT; how++)
		rc = number(r, split, keys[how], BYTES_MAX, &summary->how_bytes[how]);
	return rc;
}

#define FIGURES                                                                                    \
	"routes", "pieces", "bytes_total", "trainer_bytes", "inference_bytes", "makespan_bytes",   \
		"lower_bound_bytes", "receiver_bound_bytes", "gap", "imbalance", "prepared_bytes", \
		"prepared_minimum_bytes", "sessions", "how_bytes"

static int read_figures(struct reader *r, json_t *object, struct summary *summary)
{
	const struct {
		const char *key;
		uint64_t *to;
	} numbers[] = {
		{"routes", &summary->routes},
		{"pieces", &summary->pieces},
		{"bytes_total", &summary->bytes_total},
		{"makespan_bytes", &summary->makespan_bytes},
		{"lower_bound_bytes", &summary->lower_bound_bytes},
		{"receiver_bound_bytes", &summary->receiver_bound_bytes},
		{"prepared_bytes", &summary->prepared_bytes},
		{"prepared_minimum_bytes", &summary->prepared_minimum_bytes},
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < ARRAY_SIZE(numbers); i++)
		rc = number(r, object, numbers[i].key, BYTES_MAX, numbers[i].to);
	if (!rc)
		rc = ratio(r, object, "gap", &summary->gap);
	if (!rc)
		rc = ratio(r, object, "imbalance", &summary->imbalance);
	if (!rc)
		rc = read_list(r, object, "trainer_bytes", r->dump->trainer_count, BYTES_MAX,
			       &summary->trainer_bytes);
	if (!rc)
		rc = read_list(r, object, "inference_bytes", r->dump->inference_count, BYTES_MAX,
			       &summary->inference_bytes);
	if (!rc)
		rc = read_sessions(r, object, summary);
	return rc ? rc : read_how_bytes(r, object, summary);
}

static int read_names(struct reader *r, json_t *object, const char *key, struct names *names)
{
	json_t *items;
	int rc = list(r, object, key, &items);

	for (size_t i = 0; !rc && i < json_array_size(items); i++) {
		const char *name = json_string_value(json_array_get(items, i));

		rc = name ? names_add(names, name, r->error)
			  : refuse(r, "\"%s\"[%zu] is not a string", key, i);
	}
	return rc;
}

static int read_report(struct reader *r, json_t *root)
{
	static const char *const keys[] = {FIGURES,	   "unwanted",	  "filled",
					   "filled_bytes", "round_robin", NULL};
	static const char *const baseline_keys[] = {FIGURES, NULL};
	json_t *summary = json_object_get(root, "summary"), *baseline;
	struct report *report = &r->dump->report;
	int rc;

	r->at = (struct place){.list = "summary", .index = SIZE_MAX};
	rc = check_keys(r, summary, keys, NULL);
	if (!rc)
		rc = read_figures(r, summary, &report->own);
	if (!rc)
		rc = read_names(r, summary, "unwanted", &report->unwanted);
	if (!rc)
		rc = read_names(r, summary, "filled", &report->filled);
	if (!rc)
		rc = number(r, summary, "filled_bytes", BYTES_MAX, &report->filled_bytes);
	if (rc)
		return rc;
	baseline = json_object_get(summary, "round_robin");
	r->at = (struct place){.list = "summary.round_robin", .index = SIZE_MAX};
	rc = check_keys(r, baseline, baseline_keys, NULL);
	if (!rc)
		rc = read_figures(r, baseline, &report->round_robin);
	if (!rc)
		r->at = (struct place){0};
	return rc;
}

/* ---- the whole ---- */

static int check_schema(struct reader *r, json_t *root)
{
	const char *schema;
	int rc;

	if (!json_is_object(root))
		return refuse(r, "not a routing dump: the text is not one JSON object");
	if (!json_object_get(root, "schema"))
		return refuse(r, "not a routing dump: key \"schema\" is missing");
	rc = string(r, root, "schema", &schema);
	if (!rc && strcmp(schema, DUMP_SCHEMA) != 0)
		rc = refuse(r, "\"schema\" is \"%.64s\"; this weft reads %s", schema, DUMP_SCHEMA);
	return rc;
}

/* Dumps from before there was a choice have none. */
static int read_order(struct reader *r, json_t *root)
{
	if (json_object_get(root, "order"))
		return copy_string(r, root, "order", &r->dump->order);
	r->dump->order = memory_string(ORDER_DEFAULT);
	return r->dump->order ? 0 : no_memory(r, sizeof(ORDER_DEFAULT));
}

static int read_dump(struct reader *r, json_t *root)
{
	static const char *const keys[] = {"schema",   "policy",    "model",   "train",	 "infer",
					   "trainers", "inference", "summary", "digest", NULL};
	static const char *const optional[] = {"order", "routes", NULL};
	struct dump *dump = r->dump;
	const char *digest;
	int rc = check_schema(r, root);

	if (!rc)
		rc = check_keys(r, root, keys, optional);
	if (!rc)
		rc = copy_string(r, root, "policy", &dump->policy);
	if (!rc)
		rc = read_order(r, root);
	if (!rc)
		rc = copy_string(r, root, "model", &dump->model);
	if (!rc)
		rc = copy_string(r, root, "train", &dump->train);
	if (!rc)
		rc = copy_string(r, root, "infer", &dump->infer);
	if (!rc)
		rc = string(r, root, "digest", &digest);
	if (!rc && !digest_parse(digest, &dump->digest))
		rc = refuse(r, "\"digest\" is not 32 lower-case hex digits");
	if (!rc)
		rc = read_trainers(r, root);
	if (!rc)
		rc = read_inference(r, root);
	if (!rc)
		rc = read_routes(r, root);
	return rc ? rc : read_report(r, root);
}

int dump_parse(struct dump **out, const char *text, size_t bytes, const char *name,
	       struct error *error)
{
	struct reader r = {.name = name, .error = error};
	json_error_t where;
	json_t *root;
	int rc;

	*out = NULL;
	if (bytes > DUMP_BYTES_MAX)
		return error_set(error, ERROR_LIMIT,
				 "%s has %zu bytes; dumps of up to %" PRIu64 " are read", name,
				 bytes, DUMP_BYTES_MAX);
	root = json_loadb(text ? text : "", bytes, JSON_REJECT_DUPLICATES, &where);
	if (!root)
		return error_set(error, ERROR_FILE, "%s: line %d, column %d: %s", name, where.line,
				 where.column, where.text);
	r.dump = memory_zalloc(1, sizeof(*r.dump));
	rc = r.dump ? read_dump(&r, root) : no_memory(&r, sizeof(*r.dump));
	json_decref(root);
	strmap_fini(&r.known);
	if (rc)
		dump_free(&r.dump);
	*out = r.dump;
	return rc;
}

int dump_open(struct dump **dump, const char *path, struct error *error)
{
	struct file_map map;
	int rc = file_map_open(&map, path, error);

	*dump = NULL;
	if (rc)
		return rc;
	rc = dump_parse(dump, (const char *)map.data, map.bytes, path, error);
	file_map_close(&map);
	return rc;
}

void dump_free(struct dump **pointer)
{
	struct dump *dump = *pointer;

	if (!dump)
		return;
	*pointer = NULL;
	memory_free(dump->policy);
	memory_free(dump->order);
	memory_free(dump->model);
	memory_free(dump->train);
	memory_free(dump->infer);
	memory_free(dump->trainer_stage);
	memory_free(dump->inference);
	names_fini(&dump->names);
	memory_free(dump->routes);
	memory_free(dump->pieces);
	report_fini(&dump->report);
	memory_free(dump);
}
