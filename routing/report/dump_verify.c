/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_verify.c -- is a dump a right table for this job, and are its figures that table's?
 */
#include "routing/report/dump_value.h"

#include "base/array.h"
#include "base/memory.h"
#include "job/strmap.h"
#include "routing/plan/order.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REFUSE(...) error_set(error, ERROR_UNPROVED, __VA_ARGS__)

static int check_ranks(const struct dump *dump, const struct problem *problem, struct error *error)
{
	if (dump->labels.trainer_count != problem->trainer_count ||
	    dump->labels.inference_count != problem->inference_count)
		return REFUSE("the dump has %" PRIu32 " trainers and %" PRIu32
			      " inference ranks; the job '%s' to '%s' has %" PRIu32 " and %" PRIu32,
			      dump->labels.trainer_count, dump->labels.inference_count,
			      problem->train, problem->infer, problem->trainer_count,
			      problem->inference_count);
	if (strcmp(dump->labels.train, problem->train) ||
	    strcmp(dump->labels.infer, problem->infer))
		return REFUSE("the dump is of '%s' to '%s'; the job is '%s' to '%s'",
			      dump->labels.train, dump->labels.infer, problem->train,
			      problem->infer);
	for (uint32_t t = 0; t < dump->labels.trainer_count; t++)
		if (dump->labels.trainer_stage[t] != problem->trainer_stage[t])
			return REFUSE("the dump has trainer %" PRIu32 " in stage %" PRIu32
				      "; it is in stage %" PRIu32,
				      t, dump->labels.trainer_stage[t], problem->trainer_stage[t]);
	for (uint32_t i = 0; i < dump->labels.inference_count; i++) {
		struct dump_rank said = dump->inference[i], is = rank_in_engine(problem, i);

		if (said.engine != is.engine || said.engine_rank != is.engine_rank)
			return REFUSE("the dump has inference %" PRIu32 " as rank %" PRIu32
				      " of engine %" PRIu32 "; it is rank %" PRIu32
				      " of engine %" PRIu32,
				      i, said.engine_rank, said.engine, is.engine_rank, is.engine);
	}
	return 0;
}

/* What the labels do not say: `direct` anywhere means registered, `mapped` means mapped. The
 * proof then wants every other piece of these ranks to agree. */
static int take_facts(const struct dump *dump, struct problem *problem, struct error *error)
{
	char *model = memory_string(dump->labels.model);

	if (!model)
		return memory_error(error, "naming the model", strlen(dump->labels.model));
	memory_free(problem->model);
	problem->model = model;
	memset(problem->trainer_registered, 0, problem->trainer_count * sizeof(bool));
	memset(problem->inference_mapped, 0, problem->inference_count * sizeof(bool));
	/* what lands because it is spread or small says nothing: some of its rank's does not land */
	for (uint32_t i = 0; i < problem->inference_count; i++)
		problem->inference_landed[i] = true;
	for (size_t r = 0; r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];

		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct route_piece *piece = &dump->pieces[route->piece_first + p];

			if (piece->path == PATH_DIRECT)
				problem->trainer_registered[route->trainer] = true;
			else if (piece->path == PATH_MAPPED)
				problem->inference_mapped[route->inference] = true;
			if (piece->path != PATH_LANDED)
				problem->inference_landed[route->inference] = false;
		}
	}
	return dump_pair_facts(dump, problem, error);
}

/* The problem's number for what the dump says is made of that tensor for that parameter. */
static bool find_transformed(const struct problem *problem, const struct dump *dump,
			     const struct strmap *tensors, const struct route *route,
			     struct route_piece *piece)
{
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[route->inference]];
	const struct problem_transformed *said =
		piece->transformed ? &dump->transformed[piece->transformed] : NULL;
	uint32_t scales = 0;

	if (!said)
		return true; /* a copy; the proof says whether it should be one */
	if (said->transform.from_rows &&
	    !strmap_get(tensors, dump->names.items[said->scales], &scales))
		return false;
	for (uint32_t p = layout->pieces_of[route->tensor];
	     p < layout->pieces_of[route->tensor + 1]; p++) {
		const struct problem_transformed *is =
			&problem->transformed[layout->transformed[p]];

		if (transform_equal(&is->transform, &said->transform) && is->scales == scales &&
		    is->to == said->to) {
			piece->transformed = layout->transformed[p];
			return true;
		}
	}
	return false;
}

static int translate(struct table *table, const struct dump *dump, const struct strmap *tensors,
		     struct error *error)
{
	const struct problem *problem = table->problem;

	for (size_t r = 0; r < dump->route_count; r++) {
		struct route *route = &table->routes[r];
		const struct layout *layout =
			problem->layouts[problem->inference_layout[dump->routes[r].inference]]
				.layout;

		*route = dump->routes[r];
		if (!strmap_get(tensors, dump->names.items[route->tensor], &route->tensor))
			return REFUSE(
				"routes[%zu]: the model it is checked against has no tensor '%s'",
				r, dump->names.items[dump->routes[r].tensor]);
		for (uint32_t p = 0; p < route->piece_count; p++) {
			struct route_piece *piece = &table->pieces[route->piece_first + p];
			const char *param;

			*piece = dump->pieces[route->piece_first + p];
			param = dump->names.items[piece->param];
			if (!strmap_get(&layout->param_names, param, &piece->param))
				return REFUSE("routes[%zu].pieces[%" PRIu32 "]: inference %" PRIu32
					      " has no parameter '%s'",
					      r, p, route->inference, param);
			if (!find_transformed(problem, dump, tensors, route, piece))
				return REFUSE(
					"routes[%zu].pieces[%" PRIu32 "]: inference %" PRIu32
					" asks for nothing of tensor '%s' that is transformed so",
					r, p, route->inference,
					dump->names.items[dump->routes[r].tensor]);
		}
	}
	return 0;
}

int dump_table(struct table **out, const struct dump *dump, struct problem *problem,
	       struct error *error)
{
	struct strmap tensors = {0};
	struct table *table;
	int rc;

	*out = NULL;
	if (!dump->has_routes)
		return error_set(error, ERROR_FILE,
				 "the dump has no routes: it was written with "
				 "--summary, write it without");
	rc = check_ranks(dump, problem, error);
	if (!rc)
		rc = take_facts(dump, problem, error);
	if (rc)
		return rc;
	table = memory_zalloc(1, sizeof(*table));
	if (!table)
		return memory_error(error, "reading the table", sizeof(*table));
	table->problem = problem;
	table->policy = dump->labels.policy;
	table->order = dump->labels.order;
	table->topology = dump->labels.topology;
	table->sessions_max = dump->labels.sessions_max;
	table->moved = dump->labels.moved;
	table->routes = memory_zalloc(dump->route_count, sizeof(*table->routes));
	table->pieces = memory_zalloc(dump->piece_count, sizeof(*table->pieces));
	if (!table->routes || !table->pieces)
		rc = memory_error(error, "reading the table",
				  dump->piece_count * sizeof(*table->pieces));
	for (size_t t = 0; !rc && t < problem->tensor_count; t++)
		if (!strmap_put(&tensors, problem->tensors[t].name, (uint32_t)t))
			rc = memory_error(error, "reading the table", sizeof(struct strmap_slot));
	if (!rc)
		rc = translate(table, dump, &tensors, error);
	strmap_fini(&tensors);
	if (rc) {
		table_free(&table);
		return rc;
	}
	table->route_count = dump->route_count;
	table->piece_count = dump->piece_count;
	table->digest = table_digest(table);
	*out = table;
	return 0;
}

/* ---- figures ---- */

static int check_number(const char *where, const char *name, long index, uint64_t said, uint64_t is,
			struct error *error)
{
	char at[32] = "";

	if (said == is)
		return 0;
	if (index >= 0)
		snprintf(at, sizeof(at), "[%ld]", index);
	return REFUSE("%s.%s%s says %" PRIu64 "; the routes give %" PRIu64, where, name, at, said,
		      is);
}

/* As printed: nine digits. */
static int check_ratio(const char *where, const char *name, double said, double is,
		       struct error *error)
{
	char a[40], b[40];

	snprintf(a, sizeof(a), "%.9g", said);
	snprintf(b, sizeof(b), "%.9g", is);
	return strcmp(a, b) ? REFUSE("%s.%s says %s; the routes give %s", where, name, a, b) : 0;
}

static int check_list(const char *where, const char *name, const void *said, const void *is,
		      uint32_t count, struct error *error)
{
	const uint64_t *a = *(uint64_t *const *)said, *b = *(uint64_t *const *)is;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < count; i++)
		rc = check_number(where, name, (long)i, a[i], b[i], error);
	return rc;
}

static int check_paths(const char *where, const uint64_t *said, const uint64_t *is,
		       struct error *error)
{
	char name[32];
	int rc = 0;

	for (int path = 0; !rc && path < PATH_COUNT; path++) {
		snprintf(name, sizeof(name), "how_bytes.%s",
			 route_path_name((enum route_path)path));
		rc = check_number(where, name, -1, said[path], is[path], error);
	}
	return rc;
}

static int check_writes(const char *where, const struct writes *said, const struct writes *is,
			struct error *error)
{
	const struct {
		const char *name;
		uint64_t said, is;
	} numbers[] = {{"writes.count", said->count, is->count},
		       {"writes.smallest_bytes", said->smallest_bytes, is->smallest_bytes},
		       {"writes.median_bytes", said->median_bytes, is->median_bytes},
		       {"writes.most", said->most, is->most},
		       {"writes.trainer", said->trainer, is->trainer}};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(numbers) && !rc; i++)
		rc = check_number(where, numbers[i].name, -1, numbers[i].said, numbers[i].is,
				  error);
	return rc;
}

/* One figure; a list is left out unless `lists`, and then all else is. */
static int check_figure(const char *where, const struct figure *figure, const void *said,
			const void *is, const struct problem *problem, bool lists,
			struct error *error)
{
	const void *a = (const char *)said + figure->at, *b = (const char *)is + figure->at;
	uint32_t ranks = figure->kind == FIGURE_INFERENCE ? problem->inference_count
							  : problem->trainer_count;
	const char *name = figure->name;

	switch (figure->kind) {
	case FIGURE_TRAINERS:
	case FIGURE_SESSIONS:
	case FIGURE_INFERENCE:
		return lists ? check_list(where, name, a, b, ranks, error) : 0;
	default:
		if (lists)
			return 0;
	}
	switch (figure->kind) {
	case FIGURE_NUMBER:
		return check_number(where, name, -1, *(const uint64_t *)a, *(const uint64_t *)b,
				    error);
	case FIGURE_BOOL:
		return check_number(where, name, -1, *(const bool *)a, *(const bool *)b, error);
	case FIGURE_RATIO:
		return check_ratio(where, name, *(const double *)a, *(const double *)b, error);
	case FIGURE_PATHS:
		return check_paths(where, a, b, error);
	case FIGURE_WRITES:
		return check_writes(where, a, b, error);
	default:
		if (strcmp(a, b) == 0)
			return 0;
		return REFUSE("%s.%s says '%s'; it is '%s'", where, name, (const char *)a,
			      (const char *)b);
	}
}

/* Lists last: what is said of all ranks tells more than the first rank that differs. */
static int check_figures(const char *where, const struct figure *figures, const void *said,
			 const void *is, const struct problem *problem, struct error *error)
{
	int rc = 0;

	for (int lists = 0; lists < 2; lists++)
		for (const struct figure *figure = figures; !rc && figure->name; figure++)
			rc = check_figure(where, figure, said, is, problem, lists, error);
	return rc;
}

static int check_names(const char *name, const struct names *said, const struct names *is,
		       struct error *error)
{
	for (size_t i = 0; i < said->count && i < is->count; i++)
		if (strcmp(said->items[i], is->items[i]) != 0)
			return REFUSE("summary.%s[%zu] says '%s'; the job has '%s' there", name, i,
				      said->items[i], is->items[i]);
	if (said->count != is->count)
		return REFUSE("summary.%s has %zu names; the job has %zu", name, said->count,
			      is->count);
	return 0;
}

/* How each policy's pieces travel follows from facts of ranks, which a dump only shows for the
 * pieces it has: of round-robin's split only the sum can be checked. */
static int check_split(const struct summary *said, struct summary *is, struct error *error)
{
	uint64_t sum = 0;

	for (int path = 0; path < PATH_COUNT; path++)
		sum += said->path_bytes[path]; /* each below 2^62 + 1, so the sum stays whole */
	memcpy(is->path_bytes, said->path_bytes, sizeof(is->path_bytes));
	return check_number("summary.round_robin", "how_bytes (added up)", -1, sum, is->bytes_total,
			    error);
}

/* A plan under a limit keeps it. */
static int check_sessions(const struct table *table, const struct summary *own, struct error *error)
{
	for (uint32_t t = 0; table->sessions_max && t < table->problem->trainer_count; t++)
		if (own->sessions[t] > table->sessions_max)
			return REFUSE("\"sessions_max\" is %" PRIu32 "; trainer %" PRIu32
				      " writes to %" PRIu64 " inference ranks",
				      table->sessions_max, t, own->sessions[t]);
	return 0;
}

static int check_report(const struct dump *dump, const struct table *table, struct error *error)
{
	struct report is;
	int rc = report_of(&is, table, error);

	if (rc)
		return rc;
	rc = check_figures("summary", summary_figures, &dump->report.own, &is.own, table->problem,
			   error);
	if (!rc)
		rc = check_names("unwanted", &dump->report.unwanted, &is.unwanted, error);
	if (!rc)
		rc = check_names("filled", &dump->report.filled, &is.filled, error);
	if (!rc)
		rc = check_number("summary", "filled_bytes", -1, dump->report.filled_bytes,
				  is.filled_bytes, error);
	if (!rc)
		rc = check_sessions(table, &is.own, error);
	if (!rc && is.has_certificate)
		rc = check_figures("summary.certificate", certificate_figures,
				   &dump->report.certificate, &is.certificate, table->problem,
				   error);
	if (!rc)
		rc = check_split(&dump->report.round_robin, &is.round_robin, error);
	if (!rc)
		rc = check_figures("summary.round_robin", summary_figures,
				   &dump->report.round_robin, &is.round_robin, table->problem,
				   error);
	report_fini(&is);
	return rc;
}

/* Of policies a dump may know more than this weft: its routes are proved either way. An order is
 * only a name here, so it has to be one that means something. */
static int check_order(const struct dump *dump, struct error *error)
{
	const struct order *order;
	int rc = order_named(&order, "\"order\":", dump->labels.order, error);

	if (rc && error)
		error->code = ERROR_UNPROVED;
	return rc ? -ERROR_UNPROVED : 0;
}

int dump_verify(const struct dump *dump, struct problem *problem, struct error *error)
{
	char said[DIGEST_TEXT_BYTES], is[DIGEST_TEXT_BYTES];
	struct table *table;
	int rc = dump_table(&table, dump, problem, error);

	if (rc)
		return rc;
	rc = table_prove(table, error);
	if (!rc)
		rc = check_order(dump, error);
	if (!rc && !digest_equal(table->digest, dump->labels.digest))
		rc = REFUSE("the dump says digest %s; its labels and routes give %s",
			    digest_text(dump->labels.digest, said), digest_text(table->digest, is));
	if (!rc)
		rc = check_report(dump, table, error);
	table_free(&table);
	return rc;
}
