/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/trace_spans.h"

#include "base/compare.h"
#include "base/memory.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define GAVE_UP "update given up"

static const struct trace_file *file_of(const struct trace_set *set, const struct trace_span *span)
{
	return &set->files[span->row->file];
}

/* ---- ids ---- */

struct digest trace_process_digest(const struct trace_file *file)
{
	struct digest_stream stream;

	digest_begin(&stream);
	digest_add_string(&stream, file->job);
	digest_add_string(&stream, file->boot);
	digest_add_string(&stream, file->role);
	digest_add_u64(&stream, (uint64_t)file->rank);
	digest_add_u64(&stream, (uint64_t)file->pid);
	digest_add_u64(&stream, (uint64_t)file->wall_ns);
	return digest_end(&stream);
}

/* No two numbers have the same (the end of splitmix64), so spans of a process never share an id; of two processes they do with a
 * chance of rows over 2^64. */
static uint64_t scatter(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

char *trace_id_text(const struct trace_spans *spans, uint64_t version, char out[DIGEST_TEXT_BYTES])
{
	const uint64_t of[3] = {spans->run.high, spans->run.low, version};
	struct digest id = digest_bytes(of, sizeof(of));

	id.low += !(id.high | id.low);
	return digest_text(id, out);
}

/* Lines count from 1, so what a seed alone gives is nobody's: it stands in for the one number that would give 0. */
char *span_id_text(const struct trace_spans *spans, const struct trace_span *span,
		   char out[SPAN_ID_BYTES])
{
	uint64_t seed = spans->seeds[span->row->file];

	snprintf(out, SPAN_ID_BYTES, "%016" PRIx64,
		 scatter(seed + span->row->number) ?: scatter(seed));
	return out;
}

/* ---- what a row says ---- */

static void read_row(struct trace_span *span, bool *updates)
{
	json_t *row = json_loadb(span->row->line, span->row->bytes, 0, NULL);
	const char *name = json_string_value(json_object_get(row, "name"));
	json_int_t version =
		json_integer_value(json_object_get(json_object_get(row, "args"), "version"));

	span->lane = json_integer_value(json_object_get(row, "tid"));
	span->version = version > 0 ? (uint64_t)version : 0;
	span->gave_up = name && !strcmp(name, GAVE_UP);
	*updates = span->gave_up || (name && !strcmp(name, "update"));
	json_decref(row);
}

/* ---- parents ---- */

/* Begin is compared too, since a lane may be shared by threads (trace/trace.h) whose slices lie across each other. */
static bool holds(const struct trace_span *parent, const struct trace_span *child)
{
	const struct trace_row *out = parent->row, *in = child->row;

	return parent->version == child->version && out->at_ns <= in->at_ns &&
	       in->at_ns < out->at_ns + out->ns && in->at_ns + in->ns <= out->at_ns + out->ns;
}

/* By time: what encloses has been there before. A process is in one update at a time. */
static int find_owners(struct trace_spans *spans, struct error *error)
{
	const struct trace_span **last =
		memory_zalloc(spans->set->count, sizeof(*last)); /* of each file */

	if (!last)
		return memory_error(error, "reading traces", spans->set->count * sizeof(*last));
	for (size_t i = 0; i < spans->count; i++) {
		struct trace_span *span = &spans->items[i];
		const struct trace_span **of = &last[span->row->file];
		bool updates;

		read_row(span, &updates);
		if (span->version && *of && holds(*of, span))
			span->parent = *of;
		if (updates)
			*of = span;
	}
	memory_free(last);
	return 0;
}

static bool same_lane(const struct trace_span *a, const struct trace_span *b)
{
	return a->row->file == b->row->file && a->lane == b->lane;
}

/* In the order of lanes: the one before, or one of those that it is in. */
static void find_parents(struct trace_spans *spans)
{
	for (size_t i = 1; i < spans->count; i++) {
		struct trace_span *span = &spans->items[spans->order[i] - spans->items];
		const struct trace_span *at = spans->order[i - 1];

		if (!same_lane(at, span))
			continue;
		while (at && !holds(at, span))
			at = at->parent;
		if (at)
			span->parent = at;
	}
}

static int by_lane(const void *x, const void *y, void *set)
{
	const struct trace_span *a = *(const struct trace_span *const *)x;
	const struct trace_span *b = *(const struct trace_span *const *)y;

	return compare_u64(file_of(set, a)->place, file_of(set, b)->place)
		       ?: (a->lane > b->lane) - (a->lane < b->lane)
		       ?: (a > b) - (a < b);
}

int trace_spans_make(struct trace_spans *spans, const struct trace_set *set, struct error *error)
{
	int rc;

	*spans = (struct trace_spans){.set = set, .count = set->rows.count};
	spans->run = trace_process_digest(set->order[0]);
	spans->items = memory_zalloc(spans->count + 1, sizeof(*spans->items));
	spans->order = memory_zalloc(spans->count + 1, sizeof(const struct trace_span *));
	spans->seeds = memory_zalloc(set->count, sizeof(*spans->seeds));
	if (!spans->items || !spans->order || !spans->seeds)
		return memory_error(error, "reading traces", spans->count * sizeof(*spans->items));
	for (size_t i = 0; i < set->count; i++)
		spans->seeds[i] = trace_process_digest(&set->files[i]).low;
	for (size_t i = 0; i < spans->count; i++) {
		spans->items[i].row = &set->rows.items[i];
		spans->order[i] = &spans->items[i];
	}
	rc = find_owners(spans, error);
	if (rc)
		return rc;
	if (spans->count)
		qsort_r(spans->order, spans->count, sizeof(const struct trace_span *), by_lane,
			(void *)set);
	find_parents(spans);
	return 0;
}

void trace_spans_fini(struct trace_spans *spans)
{
	memory_free(spans->seeds);
	memory_free(spans->order);
	memory_free(spans->items);
	*spans = (struct trace_spans){.count = 0};
}
