/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_of.c -- a table as a dump, without the text between: for what works on dumps alone.
 */
#include "routing/report/dump_read.h"

#include "base/array.h"
#include "routing/report/dump_value.h"
#include "routing/plan/topology_file.h"
#include <string.h>

struct dump_rank rank_in_engine(const struct problem *problem, uint32_t inference)
{
	uint32_t width = problem->ranks_per_engine;

	return width ? (struct dump_rank){inference / width, inference % width}
		     : (struct dump_rank){0, inference};
}

static int copy_labels(struct dump *dump, const struct table *table, struct error *error)
{
	struct plan_labels *labels = &dump->labels;
	const char **const texts[] = {&labels->policy, &labels->order, &labels->model,
				      &labels->train, &labels->infer};
	bool *trainers, *inference;
	uint32_t *stages;

	*labels = table_labels(table);
	labels->topology = NULL; /* copied below */
	labels->pairs = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		*texts[i] = pool_string(&dump->pool, *texts[i]);
	stages = pool_array(&dump->pool, labels->trainer_count, sizeof(*stages));
	dump->inference =
		pool_array(&dump->pool, labels->inference_count, sizeof(*dump->inference));
	trainers = pool_array(&dump->pool, labels->trainer_count, sizeof(bool));
	inference = pool_array(&dump->pool, labels->inference_count, sizeof(bool));
	if (!pool_ok(&dump->pool))
		return memory_error(error, "copying a table",
				    labels->inference_count * sizeof(*dump->inference));
	memcpy(trainers, labels->trainer_away, labels->trainer_count * sizeof(bool));
	memcpy(inference, labels->inference_away, labels->inference_count * sizeof(bool));
	labels->trainer_away = trainers;
	labels->inference_away = inference;
	memcpy(stages, labels->trainer_stage, labels->trainer_count * sizeof(*stages));
	labels->trainer_stage = stages;
	if (table->problem->pairs) {
		struct pairs *pairs = pool_array(&dump->pool, 1, sizeof(*pairs));

		if (!pairs || !pairs_copy(pairs, &dump->pool, table->problem->pairs))
			return memory_error(error, "copying a table", sizeof(*pairs));
		labels->pairs = pairs;
	}
	for (uint32_t i = 0; i < labels->inference_count; i++)
		dump->inference[i] = rank_in_engine(table->problem, i);
	return 0;
}

static int copy_transformed(struct dump *dump, const struct problem *problem, struct error *error)
{
	int rc = 0;

	for (size_t m = 0; !rc && m < problem->transformed_count; m++) {
		struct problem_transformed transformed = problem->transformed[m];

		if (transformed.transform.from_rows)
			rc = dump_name_index(dump, problem->tensors[transformed.scales].name,
					     &transformed.scales, error);
		if (!rc)
			rc = dump_add_transformed(dump, &transformed, error);
	}
	return rc;
}

static int copy_routes(struct dump *dump, const struct table *table, struct error *error)
{
	const struct problem *problem = table->problem;
	int rc = 0;

	dump->routes = memory_alloc(table->route_count * sizeof(*dump->routes));
	dump->pieces = memory_alloc(table->piece_count * sizeof(*dump->pieces));
	if (!dump->routes || !dump->pieces)
		return memory_error(error, "copying a table",
				    table->piece_count * sizeof(*dump->pieces));
	rc = copy_transformed(dump, problem, error);
	for (size_t r = 0; !rc && r < table->route_count; r++) {
		const struct route *from = &table->routes[r];
		struct route *to = &dump->routes[r];
		const struct layout *layout =
			problem->layouts[problem->inference_layout[from->inference]].layout;

		*to = *from;
		rc = dump_name_index(dump, problem->tensors[from->tensor].name, &to->tensor, error);
		for (uint32_t p = 0; !rc && p < from->piece_count; p++) {
			struct route_piece *piece = &dump->pieces[from->piece_first + p];

			*piece = table->pieces[from->piece_first + p];
			rc = dump_name_index(dump, layout->params[piece->param].name, &piece->param,
					     error);
		}
	}
	dump->has_routes = true;
	dump->route_count = dump->route_capacity = table->route_count;
	dump->piece_count = dump->piece_capacity = table->piece_count;
	return rc;
}

/* By way of its text, which is all of it. */
static int copy_topology(struct dump *dump, const struct topology *topology, struct error *error)
{
	struct text text = {0};
	struct json json;
	int rc;

	if (!topology || topology->flat)
		return 0;
	json_to_text(&json, &text);
	topology_put(&json, topology);
	rc = text_ok(&text)
		     ? topology_parse(&dump->topology, text.data, text.bytes, "topology", error)
		     : memory_error(error, "copying a topology", text.bytes);
	text_fini(&text);
	dump->labels.topology = dump->topology;
	return rc;
}

int dump_of(struct dump **out, const struct table *table, struct error *error)
{
	struct dump *dump = memory_zalloc(1, sizeof(*dump));
	int rc;

	*out = NULL;
	if (!dump)
		return memory_error(error, "copying a table", sizeof(*dump));
	rc = copy_labels(dump, table, error);
	if (!rc)
		rc = copy_routes(dump, table, error);
	if (!rc)
		rc = copy_topology(dump, table->topology, error);
	if (!rc)
		rc = report_of(&dump->report, table, error);
	if (rc)
		dump_free(&dump);
	*out = dump;
	return rc;
}
