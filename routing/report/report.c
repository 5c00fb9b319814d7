/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/report.h"

#include "base/array.h"
#include "base/compare.h"
#include <stddef.h>
#include <string.h>

#define OWN(member, kind)                                       \
	{                                                       \
#member, kind, offsetof(struct summary, member) \
	}

const struct figure summary_figures[] = {
	OWN(routes, FIGURE_NUMBER),
	OWN(pieces, FIGURE_NUMBER),
	OWN(bytes_total, FIGURE_NUMBER),
	OWN(trainer_bytes, FIGURE_TRAINERS),
	OWN(inference_bytes, FIGURE_INFERENCE),
	OWN(makespan_bytes, FIGURE_NUMBER),
	OWN(lower_bound_bytes, FIGURE_NUMBER),
	OWN(receiver_bound_bytes, FIGURE_NUMBER),
	OWN(gap, FIGURE_RATIO),
	OWN(imbalance, FIGURE_RATIO),
	OWN(prepared_bytes, FIGURE_NUMBER),
	OWN(prepared_minimum_bytes, FIGURE_NUMBER),
	OWN(sessions, FIGURE_SESSIONS),
	{"how_bytes", FIGURE_PATHS, offsetof(struct summary, path_bytes)},
	{"writes", FIGURE_WRITES, offsetof(struct summary, writes)},
	{0},
};

#undef OWN
#define OWN(member, kind)                                           \
	{                                                           \
#member, kind, offsetof(struct certificate, member) \
	}

const struct figure certificate_figures[] = {
	OWN(bound_seconds, FIGURE_RATIO),
	OWN(sender_bound_seconds, FIGURE_RATIO),
	OWN(receiver_bound_seconds, FIGURE_RATIO),
	OWN(sender_bound_bytes, FIGURE_NUMBER),
	OWN(sender_bound_rate, FIGURE_NUMBER),
	OWN(makespan_seconds, FIGURE_RATIO),
	OWN(gap, FIGURE_RATIO),
	OWN(exact, FIGURE_BOOL),
	OWN(bound_limit, FIGURE_LIMIT),
	OWN(makespan_limit, FIGURE_LIMIT),
	{0},
};

int names_add(struct names *names, const char *name, struct error *error)
{
	char *copy = memory_string(name);
	char **slot = copy ? array_push(names) : NULL;

	if (!slot) {
		memory_free(copy);
		return memory_error(error, "copying a name", strlen(name) + 1);
	}
	*slot = copy;
	return 0;
}

void names_fini(struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		memory_free(names->items[i]);
	array_free(names);
}

void report_fini(struct report *report)
{
	summary_fini(&report->own);
	summary_fini(&report->round_robin);
	names_fini(&report->unwanted);
	names_fini(&report->filled);
	report->filled_bytes = 0;
}

static int by_name(const void *x, const void *y)
{
	return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static int add_filled(struct report *report, const struct problem *problem, struct error *error)
{
	ARRAY(const char *) found = {0};
	int rc = 0;

	for (size_t l = 0; l < problem->layout_count; l++) {
		const struct layout *layout = problem->layouts[l].layout;

		for (size_t f = 0; f < layout->fill_count; f++) {
			const char *name = layout->params[layout->fills[f].param].name;

			if (!array_add(&found, name)) {
				array_free(&found);
				return memory_error(error, "listing fills", sizeof(name));
			}
		}
	}
	for (uint32_t i = 0; i < problem->inference_count; i++) {
		const struct layout *layout = problem->layouts[problem->inference_layout[i]].layout;

		for (size_t f = 0; f < layout->fill_count; f++)
			report->filled_bytes += layout->fills[f].bytes;
	}
	sort_items(found.items, found.count, by_name);
	for (size_t i = 0; !rc && i < found.count; i++)
		if (i == 0 || strcmp(found.items[i - 1], found.items[i]) != 0)
			rc = names_add(&report->filled, found.items[i], error);
	array_free(&found);
	return rc;
}

static int add_unwanted(struct report *report, const struct problem *problem, struct error *error)
{
	uint32_t *tensors;
	size_t count;
	int rc = problem_unwanted(problem, &tensors, &count, error);

	for (size_t i = 0; !rc && i < count; i++)
		rc = names_add(&report->unwanted, problem->tensors[tensors[i]].name, error);
	memory_free(tensors);
	return rc;
}

static int add_round_robin(struct report *report, const struct table *table, struct error *error)
{
	const struct policy *policy = policy_find("round-robin");
	struct table *baseline;
	int rc;

	if (strcmp(table->policy, policy->name) == 0)
		return summary_of(&report->round_robin, table, error);
	rc = table_plan(&baseline, table->problem, policy, NULL, error);
	if (!rc)
		rc = summary_of(&report->round_robin, baseline, error);
	table_free(&baseline);
	return rc ? error_wrap(error, "round-robin, for comparison") : 0;
}

int report_of(struct report *report, const struct table *table, struct error *error)
{
	int rc;

	*report = (struct report){0};
	rc = summary_of(&report->own, table, error);
	if (!rc)
		rc = add_round_robin(report, table, error);
	if (!rc)
		rc = add_unwanted(report, table->problem, error);
	if (!rc)
		rc = add_filled(report, table->problem, error);
	report->has_certificate = table->topology && !table->topology->flat;
	if (!rc && report->has_certificate)
		rc = certificate_of(&report->certificate, table, error);
	if (rc)
		report_fini(report);
	return rc;
}
