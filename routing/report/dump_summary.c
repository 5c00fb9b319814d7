/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_summary.c -- reads the "summary" of a dump.
 */
#include "routing/report/dump_value.h"

#include "base/array.h"
#include <inttypes.h>
#include <string.h>

static int read_list(struct dump_reader *r, json_t *object, const char *key, uint32_t count,
		     uint64_t max, uint64_t **out)
{
	json_t *items;
	int rc = dump_list(r, object, key, &items);

	if (rc)
		return rc;
	if (json_array_size(items) != count)
		return dump_refuse(r, "\"%s\" has %zu items for %" PRIu32 " ranks", key,
				   json_array_size(items), count);
	*out = memory_zalloc(count, sizeof(**out));
	if (!*out)
		return dump_no_memory(r, count * sizeof(**out));
	for (uint32_t i = 0; i < count; i++) {
		json_t *item = json_array_get(items, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0 ||
		    (uint64_t)json_integer_value(item) > max)
			return dump_refuse(r,
					   "\"%s\"[%" PRIu32 "] is not a number from 0 to %" PRIu64,
					   key, i, max);
		(*out)[i] = (uint64_t)json_integer_value(item);
	}
	return 0;
}

static int read_sessions(struct dump_reader *r, json_t *object, struct summary *summary)
{
	uint64_t *wide = NULL;
	int rc = read_list(r, object, "sessions", r->dump->trainer_count, r->dump->inference_count,
			   &wide);

	summary->sessions = rc ? NULL : memory_zalloc(r->dump->trainer_count, sizeof(uint32_t));
	if (!rc && !summary->sessions)
		rc = dump_no_memory(r, r->dump->trainer_count * sizeof(uint32_t));
	for (uint32_t t = 0; !rc && t < r->dump->trainer_count; t++)
		summary->sessions[t] = (uint32_t)wide[t];
	memory_free(wide);
	return rc;
}

static int read_path_bytes(struct dump_reader *r, json_t *object, struct summary *summary)
{
	const char *keys[PATH_COUNT + 1] = {NULL};
	json_t *split = json_object_get(object, "how_bytes");
	int rc;

	for (int path = 0; path < PATH_COUNT; path++)
		keys[path] = route_path_name((enum route_path)path);
	if (!json_is_object(split))
		return dump_refuse(r, "\"how_bytes\" is not an object");
	rc = dump_keys(r, split, keys, NULL);
	for (int path = 0; !rc && path < PATH_COUNT; path++)
		rc = dump_number(r, split, keys[path], DUMP_VALUE_MAX, &summary->path_bytes[path]);
	return rc;
}

#define FIGURES                                                                                    \
	"routes", "pieces", "bytes_total", "trainer_bytes", "inference_bytes", "makespan_bytes",   \
		"lower_bound_bytes", "receiver_bound_bytes", "gap", "imbalance", "prepared_bytes", \
		"prepared_minimum_bytes", "sessions", "how_bytes"

static int read_figures(struct dump_reader *r, json_t *object, struct summary *summary)
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

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		dump_number(r, object, numbers[i].key, DUMP_VALUE_MAX, numbers[i].to);
	dump_ratio(r, object, "gap", &summary->gap);
	dump_ratio(r, object, "imbalance", &summary->imbalance);
	read_list(r, object, "trainer_bytes", r->dump->trainer_count, DUMP_VALUE_MAX,
		  &summary->trainer_bytes);
	read_list(r, object, "inference_bytes", r->dump->inference_count, DUMP_VALUE_MAX,
		  &summary->inference_bytes);
	read_sessions(r, object, summary);
	return read_path_bytes(r, object, summary);
}

static int read_names(struct dump_reader *r, json_t *object, const char *key, struct names *names)
{
	json_t *items;
	int rc = dump_list(r, object, key, &items);

	for (size_t i = 0; !rc && i < json_array_size(items); i++) {
		const char *name = json_string_value(json_array_get(items, i));

		rc = name ? dump_failed(r, names_add(names, name, r->error))
			  : dump_refuse(r, "\"%s\"[%zu] is not a string", key, i);
	}
	return rc;
}

static int read_limit(struct dump_reader *r, json_t *object, const char *key,
		      char out[LIMITS_TEXT_BYTES])
{
	const char *text;
	int rc = dump_string(r, object, key, &text);

	if (rc)
		return rc;
	if (strlen(text) >= LIMITS_TEXT_BYTES)
		return dump_refuse(r, "\"%s\" has more than %d bytes", key, LIMITS_TEXT_BYTES - 1);
	strcpy(out, text);
	return 0;
}

static int read_certificate(struct dump_reader *r, json_t *object, struct certificate *out)
{
	static const char *const keys[] = {"bound_seconds",
					   "sender_bound_seconds",
					   "receiver_bound_seconds",
					   "sender_bound_bytes",
					   "sender_bound_rate",
					   "makespan_seconds",
					   "gap",
					   "exact",
					   "bound_limit",
					   "makespan_limit",
					   NULL};
	const struct {
		const char *key;
		double *to;
	} ratios[] = {
		{"bound_seconds", &out->bound_seconds},
		{"sender_bound_seconds", &out->sender_bound_seconds},
		{"receiver_bound_seconds", &out->receiver_bound_seconds},
		{"makespan_seconds", &out->makespan_seconds},
		{"gap", &out->gap},
	};

	r->at = (struct dump_place){.list = "summary.certificate", .index = SIZE_MAX};
	dump_keys(r, object, keys, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(ratios); i++)
		dump_ratio(r, object, ratios[i].key, ratios[i].to);
	dump_number(r, object, "sender_bound_bytes", UINT64_MAX, &out->sender_bound_bytes);
	dump_number(r, object, "sender_bound_rate", UINT64_MAX, &out->sender_bound_rate);
	dump_bool(r, object, "exact", &out->exact);
	read_limit(r, object, "bound_limit", out->bound_limit);
	return read_limit(r, object, "makespan_limit", out->makespan_limit);
}

int dump_take_summary(struct dump_reader *r, json_t *summary)
{
	static const char *const keys[] = {FIGURES,	   "unwanted",	  "filled",
					   "filled_bytes", "round_robin", NULL};
	static const char *const optional[] = {"certificate", NULL};
	static const char *const baseline_keys[] = {FIGURES, NULL};
	json_t *baseline;
	struct report *report = &r->dump->report;

	r->at = (struct dump_place){.list = "summary", .index = SIZE_MAX};
	dump_keys(r, summary, keys, optional);
	read_figures(r, summary, &report->own);
	read_names(r, summary, "unwanted", &report->unwanted);
	read_names(r, summary, "filled", &report->filled);
	dump_number(r, summary, "filled_bytes", DUMP_VALUE_MAX, &report->filled_bytes);
	report->has_certificate = json_object_get(summary, "certificate") != NULL;
	if (report->has_certificate != (r->dump->topology != NULL))
		dump_refuse(r, report->has_certificate
				       ? "a \"certificate\" without a \"topology\""
				       : "a \"topology\" without a \"certificate\"");
	if (report->has_certificate)
		read_certificate(r, json_object_get(summary, "certificate"), &report->certificate);
	if (r->failed)
		return r->failed;
	baseline = json_object_get(summary, "round_robin");
	r->at = (struct dump_place){.list = "summary.round_robin", .index = SIZE_MAX};
	dump_keys(r, baseline, baseline_keys, NULL);
	if (!read_figures(r, baseline, &report->round_robin))
		r->at = (struct dump_place){0};
	return r->failed;
}
