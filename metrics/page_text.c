/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/page_text.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

#define LABELS_MAX 3u
#define NAME_BYTES 24

const struct metric_family metric_families[METRIC_COUNT] = {
#define X(id, name, type, labels, help) {#name, labels, help, METRIC_##type},
	METRICS(X)
#undef X
};

static const char *const type_names[] = {
	[METRIC_COUNTER] = "counter",
	[METRIC_GAUGE] = "gauge",
	[METRIC_HISTOGRAM] = "histogram",
};

/* As the format wants a label's value: '\', '"' and line breaks are escaped. */
static void add_value(struct text *text, const char *value)
{
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			text_add_bytes(text, "\\", 1);
		if (*value == '\n')
			text_add(text, "\\n");
		else
			text_add_bytes(text, value, 1);
	}
}

/* The job's name is its user's: a piece of it that does not fit is left out, whole. */
void page_begin(struct page *page, struct text *text, const char *job, const char *role,
		uint32_t rank)
{
	struct text labels = {0};

	page->text = text;
	page->last = -1;
	text_add(&labels, "weft_job=\"");
	add_value(&labels, job);
	text_add(&labels, "\"");
	if (role)
		text_format(&labels, ",role=\"%s\",rank=\"%u\"", role, rank);
	text->failed |= labels.failed || labels.bytes >= sizeof(page->common);
	snprintf(page->common, sizeof(page->common), "%s", text_string(&labels));
	text_fini(&labels);
}

static void add_head(struct page *page, enum metric metric)
{
	const struct metric_family *family = &metric_families[metric];

	if (page->last == (int)metric)
		return;
	WEFT_ASSERT(page->last < (int)metric); /* samples of a metric stand together */
	page->last = (int)metric;
	text_format(page->text, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help,
		    family->name, type_names[family->type]);
}

/* name{weft_job="..",a="..",b="..", without the brace that ends it */
static void add_name(struct page *page, enum metric metric, const char *suffix,
		     const char *const values[LABELS_MAX])
{
	const struct metric_family *family = &metric_families[metric];
	const char *name = family->labels;

	text_format(page->text, "%s%s{%s", family->name, suffix, page->common);
	for (size_t i = 0; *name; i++) {
		size_t length = strcspn(name, ",");

		WEFT_ASSERT(i < LABELS_MAX && values[i]);
		text_format(page->text, ",%.*s=\"", (int)length, name);
		add_value(page->text, values[i]);
		text_add(page->text, "\"");
		name += length + (name[length] == ',');
	}
}

static void add_sample(struct page *page, enum metric metric, const char *const values[LABELS_MAX],
		       double value)
{
	add_head(page, metric);
	add_name(page, metric, "", values);
	text_format(page->text, "} %.15g\n", value);
}

void page_put(struct page *page, enum metric metric, const char *a, const char *b, double value)
{
	add_sample(page, metric, (const char *const[LABELS_MAX]){a, b, NULL}, value);
}

void page_histogram(struct page *page, enum metric metric, const char *a,
		    const struct histogram *histogram)
{
	const char *const values[LABELS_MAX] = {a, NULL, NULL};
	uint64_t below = 0;

	add_head(page, metric);
	for (uint32_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
		below += histogram->in[i];
		add_name(page, metric, "_bucket", values);
		text_format(page->text, ",le=\"%g\"} %llu\n", histogram_bounds[i],
			    (unsigned long long)below);
	}
	add_name(page, metric, "_bucket", values);
	text_format(page->text, ",le=\"+Inf\"} %llu\n", (unsigned long long)histogram->count);
	add_name(page, metric, "_sum", values);
	text_format(page->text, "} %.9f\n", (double)histogram->sum_ns / 1e9);
	add_name(page, metric, "_count", values);
	text_format(page->text, "} %llu\n", (unsigned long long)histogram->count);
}

void page_codes(struct page *page, enum metric metric, const char *of,
		const struct code_counts *counts)
{
	char code[NAME_BYTES];

	for (uint32_t i = 0; i < CODE_PLACES; i++) {
		if (!counts->of[i])
			continue;
		snprintf(code, sizeof(code), "WEFT-E%d", (int)codes_at(i));
		page_put(page, metric, of ? of : code, of ? code : NULL, (double)counts->of[i]);
	}
}

void page_build(struct page *page, uint32_t wire)
{
	char number[NAME_BYTES];

	snprintf(number, sizeof(number), "%u", wire);
	add_sample(page, METRIC_BUILD,
		   (const char *const[LABELS_MAX]){WEFT_VERSION, number, WEFT_FEATURES}, 1);
}
