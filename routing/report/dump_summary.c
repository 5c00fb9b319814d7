/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_summary.c -- reads the "summary" of a dump.
 */
#include "routing/report/dump_value.h"

#include "base/memory.h"
#include <inttypes.h>
#include <string.h>

#define KEYS_MAX 32

static int take_keys(struct json_reader *r, json_t *object, const struct figure *figures,
		     const char *const *others)
{
	const char *keys[KEYS_MAX] = {NULL};
	size_t count = 0;

	for (; figures->name; figures++)
		keys[count++] = figures->kind == FIGURE_WRITES ? "writes|" : figures->name;
	while (*others)
		keys[count++] = *others++;
	return dump_keys(r, object, keys);
}

static int read_list(struct json_reader *r, json_t *object, const char *key, uint32_t count,
		     uint64_t most, uint64_t **out)
{
	json_t *items;

	if (json_take_list(r, object, key, &items))
		return r->failed;
	if (json_array_size(items) != count)
		return json_refuse(r, "\"%s\" has %zu items for %" PRIu32 " ranks", key,
				   json_array_size(items), count);
	*out = memory_zalloc(count, sizeof(**out));
	if (!*out)
		return dump_no_memory(r, count * sizeof(**out));
	for (uint32_t i = 0; i < count; i++) {
		json_t *item = json_array_get(items, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0 ||
		    (uint64_t)json_integer_value(item) > most)
			return json_refuse(r,
					   "\"%s\"[%" PRIu32 "] is not a number from 0 to %" PRIu64,
					   key, i, most);
		(*out)[i] = (uint64_t)json_integer_value(item);
	}
	return 0;
}

static int read_paths(struct json_reader *r, json_t *object, const char *key,
		      uint64_t out[PATH_COUNT])
{
	const char *keys[PATH_COUNT + 1] = {NULL}, *needed[PATH_LANDED + 1] = {NULL};
	json_t *split = json_object_get(object, key);

	for (int path = 0; path < PATH_COUNT; path++)
		keys[path] = route_path_name((enum route_path)path);
	if (!json_is_object(split))
		return json_refuse(r, "\"%s\" is not an object", key);
	memcpy(needed, keys, PATH_LANDED * sizeof(*keys));
	json_needed_keys(r, split, needed);
	json_known_keys(r, split, keys);
	out[PATH_LANDED] = 0; /* named where there is any */
	for (int path = 0; path < PATH_COUNT; path++)
		if (path != PATH_LANDED || json_object_get(split, keys[path]))
			json_take_number(r, split, keys[path], path == PATH_LANDED, DUMP_VALUE_MAX,
					 &out[path]);
	return r->failed;
}

static int read_writes(struct json_reader *r, const struct dump *dump, json_t *object,
		       const char *key, struct writes *out)
{
	static const char *const keys[] = {"count", "smallest_bytes", "median_bytes",
					   "most",  "trainer",	      NULL};
	json_t *writes = json_object_get(object, key);
	uint64_t trainer = 0;

	if (!writes)
		return r->failed;
	if (!json_is_object(writes))
		return json_refuse(r, "\"%s\" is not an object", key);
	dump_keys(r, writes, keys);
	json_take_number(r, writes, "count", 1, DUMP_VALUE_MAX, &out->count);
	json_take_number(r, writes, "smallest_bytes", 1, DUMP_VALUE_MAX, &out->smallest_bytes);
	json_take_number(r, writes, "median_bytes", 1, DUMP_VALUE_MAX, &out->median_bytes);
	json_take_number(r, writes, "most", 1, DUMP_VALUE_MAX, &out->most);
	json_take_number(r, writes, "trainer", 0, dump->labels.trainer_count - 1, &trainer);
	out->trainer = (uint32_t)trainer;
	return r->failed;
}

static int read_limit(struct json_reader *r, json_t *object, const char *key,
		      char out[LIMITS_TEXT_BYTES])
{
	const char *text;

	if (json_take_string(r, object, key, &text))
		return r->failed;
	if (strlen(text) >= LIMITS_TEXT_BYTES)
		return json_refuse(r, "\"%s\" has more than %d bytes", key, LIMITS_TEXT_BYTES - 1);
	strcpy(out, text);
	return 0;
}

/* `most` of any number. */
static int read_figures(struct json_reader *r, const struct dump *dump, json_t *object,
			const struct figure *figures, uint64_t most, void *record)
{
	for (const struct figure *figure = figures; !r->failed && figure->name; figure++) {
		const char *key = figure->name;
		void *out = (char *)record + figure->at;

		switch (figure->kind) {
		case FIGURE_NUMBER:
			json_take_number(r, object, key, 0, most, out);
			break;
		case FIGURE_RATIO:
			json_take_ratio(r, object, key, out);
			break;
		case FIGURE_BOOL:
			json_take_bool(r, object, key, out);
			break;
		case FIGURE_LIMIT:
			read_limit(r, object, key, out);
			break;
		case FIGURE_TRAINERS:
			read_list(r, object, key, dump->labels.trainer_count, most, out);
			break;
		case FIGURE_INFERENCE:
			read_list(r, object, key, dump->labels.inference_count, most, out);
			break;
		case FIGURE_SESSIONS:
			read_list(r, object, key, dump->labels.trainer_count,
				  dump->labels.inference_count, out);
			break;
		case FIGURE_PATHS:
			read_paths(r, object, key, out);
			break;
		case FIGURE_WRITES:
			read_writes(r, dump, object, key, out);
			break;
		}
	}
	return r->failed;
}

static int read_names(struct json_reader *r, json_t *object, const char *key, struct names *names)
{
	json_t *items;
	int rc = json_take_list(r, object, key, &items);

	for (size_t i = 0; !rc && i < json_array_size(items); i++) {
		const char *name = json_string_value(json_array_get(items, i));

		rc = name ? json_failed(r, names_add(names, name, r->error))
			  : json_refuse(r, "\"%s\"[%zu] is not a string", key, i);
	}
	return rc;
}

int dump_take_summary(struct json_reader *r, struct dump *dump, json_t *summary)
{
	static const char *const own_keys[] = {"unwanted",    "filled",	      "filled_bytes",
					       "round_robin", "certificate|", NULL};
	static const char *const no_keys[] = {NULL};
	json_t *certificate = json_object_get(summary, "certificate");
	json_t *baseline = json_object_get(summary, "round_robin");
	struct report *report = &dump->report;

	r->at = (struct json_place){.list = "summary", .index = SIZE_MAX};
	take_keys(r, summary, summary_figures, own_keys);
	read_figures(r, dump, summary, summary_figures, DUMP_VALUE_MAX, &report->own);
	read_names(r, summary, "unwanted", &report->unwanted);
	read_names(r, summary, "filled", &report->filled);
	json_take_number(r, summary, "filled_bytes", 0, DUMP_VALUE_MAX, &report->filled_bytes);
	report->has_certificate = certificate != NULL;
	if (report->has_certificate != (dump->labels.topology != NULL))
		json_refuse(r, report->has_certificate
				       ? "a \"certificate\" without a \"topology\""
				       : "a \"topology\" without a \"certificate\"");
	if (certificate) {
		r->at.list = "summary.certificate";
		take_keys(r, certificate, certificate_figures, no_keys);
		read_figures(r, dump, certificate, certificate_figures, UINT64_MAX,
			     &report->certificate);
	}
	r->at.list = "summary.round_robin";
	take_keys(r, baseline, summary_figures, no_keys);
	read_figures(r, dump, baseline, summary_figures, DUMP_VALUE_MAX, &report->round_robin);
	r->at = (struct json_place){0};
	return r->failed;
}
