/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.c -- writes what dump_read.c reads; docs/routing.md has the schema. One line each for
 * the head, the trainers, the inference ranks, every route, the summary and the digest.
 */
#include "routing/report/dump.h"

#include "base/file.h"
#include "base/json_write.h"
#include "routing/report/dump_value.h"
#include "routing/plan/topology_file.h"
#include <errno.h>

/* What is written, whether it comes from a table or from a dump. */
struct source {
	struct plan_labels labels;
	const struct route *routes;
	size_t route_count;
	const struct route_piece *pieces;
	const struct problem_transformed *transformed; /* not asked for a copy */
	const struct report *report;
	const struct problem *problem; /* of a table */
	const struct dump *dump;       /* NULL: it is a table */
};

static const char *tensor_name(const struct source *source, uint32_t tensor)
{
	return source->dump ? source->dump->names.items[tensor]
			    : source->problem->tensors[tensor].name;
}

static const char *param_name(const struct source *source, const struct route *route,
			      const struct route_piece *piece)
{
	const struct problem *problem = source->problem;

	if (source->dump)
		return source->dump->names.items[piece->param];
	return problem->layouts[problem->inference_layout[route->inference]]
		.layout->params[piece->param]
		.name;
}

static void write_ranks(struct json *json, const struct source *source)
{
	json_put_newline(json);
	json_put_key_array(json, "trainers");
	for (uint32_t t = 0; t < source->labels.trainer_count; t++) {
		json_put_object(json);
		json_put_key_u64(json, "rank", t);
		json_put_key_u64(json, "stage", source->labels.trainer_stage[t]);
		json_put_object_end(json);
	}
	json_put_array_end(json);
	json_put_newline(json);
	json_put_key_array(json, "inference");
	for (uint32_t i = 0; i < source->labels.inference_count; i++) {
		struct dump_rank rank = source->dump ? source->dump->inference[i]
						     : rank_in_engine(source->problem, i);

		json_put_object(json);
		json_put_key_u64(json, "rank", i);
		json_put_key_u64(json, "engine", rank.engine);
		json_put_key_u64(json, "engine_rank", rank.engine_rank);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static bool any(const bool *flags, uint32_t count)
{
	for (uint32_t i = 0; flags && i < count; i++)
		if (flags[i])
			return true;
	return false;
}

static void write_away_ranks(struct json *json, const char *key, const bool *away, uint32_t count)
{
	if (!any(away, count))
		return;
	json_put_key_array(json, key);
	for (uint32_t rank = 0; rank < count; rank++)
		if (away[rank])
			json_put_u64(json, rank);
	json_put_array_end(json);
}

static void write_away(struct json *json, const struct plan_labels *labels)
{
	if (!any(labels->trainer_away, labels->trainer_count) &&
	    !any(labels->inference_away, labels->inference_count))
		return;
	json_put_newline(json);
	json_put_key_object(json, "away");
	write_away_ranks(json, "trainers", labels->trainer_away, labels->trainer_count);
	write_away_ranks(json, "inference", labels->inference_away, labels->inference_count);
	json_put_object_end(json);
}

static void write_moved(struct json *json, const struct table_moved *moved)
{
	if (!moved->follows)
		return;
	json_put_newline(json);
	json_put_key_object(json, "moved");
	json_put_key_u64(json, "routes", moved->routes);
	json_put_key_u64(json, "bytes", moved->bytes);
	json_put_object_end(json);
}

static void write_transformed(struct json *json, const struct source *source, uint32_t index)
{
	const struct problem_transformed *transformed = &source->transformed[index];
	char text[TRANSFORM_TEXT_BYTES];

	json_put_key_string(json, "make", transform_text(&transformed->transform, true, text));
	json_put_key_string(json, "to", dtype_name(transformed->to));
	if (transformed->transform.from_rows)
		json_put_key_string(json, "scales", tensor_name(source, transformed->scales));
}

static void write_piece(struct json *json, const struct source *source, const char *param,
			const struct route_piece *piece, enum route_path path)
{
	json_put_object(json);
	json_put_key_array(json, "src");
	for (uint32_t d = 0; d < piece->src.dims; d++)
		json_put_range(json, piece->src.lo[d], piece->src.hi[d]);
	json_put_array_end(json);
	json_put_key_string(json, "param", param);
	json_put_key_u64(json, "offset", piece->offset);
	json_put_key_u64(json, "bytes", piece->bytes);
	if (piece->spread.run_bytes) {
		json_put_key_u64(json, "run_bytes", piece->spread.run_bytes);
		json_put_key_u64(json, "stride_bytes", piece->spread.stride_bytes);
	}
	if (piece->path != path)
		json_put_key_string(json, "how", route_path_name(piece->path));
	if (piece->transformed)
		write_transformed(json, source, piece->transformed);
	json_put_object_end(json);
}

static void write_routes(struct json *json, const struct source *source)
{
	json_put_newline(json);
	json_put_key_array(json, "routes");
	for (size_t r = 0; r < source->route_count; r++) {
		const struct route *route = &source->routes[r];
		const struct route_piece *pieces = source->pieces + route->piece_first;

		json_put_newline(json);
		json_put_object(json);
		json_put_key_string(json, "tensor", tensor_name(source, route->tensor));
		json_put_key_u64(json, "trainer", route->trainer);
		json_put_key_u64(json, "inference", route->inference);
		json_put_key_u64(json, "bytes", route->bytes);
		json_put_key_string(json, "how", route_path_name(pieces[0].path));
		if (source->labels.pairs)
			json_put_key_string(
				json, "transport",
				pairs_name(source->labels.pairs, route->trainer, route->inference));
		json_put_key_array(json, "pieces");
		for (uint32_t p = 0; p < route->piece_count; p++)
			write_piece(json, source, param_name(source, route, &pieces[p]), &pieces[p],
				    pieces[0].path);
		json_put_array_end(json);
		json_put_object_end(json);
	}
	json_put_newline(json);
	json_put_array_end(json);
}

/* What is landed is named where there is any. */
static void write_paths(struct json *json, const char *key, const uint64_t *bytes)
{
	json_put_key_object(json, key);
	for (int path = 0; path < PATH_COUNT; path++)
		if (path != PATH_LANDED || bytes[path])
			json_put_key_u64(json, route_path_name((enum route_path)path), bytes[path]);
	json_put_object_end(json);
}

static void write_writes(struct json *json, const char *key, const struct writes *writes)
{
	if (!writes->count)
		return;
	json_put_key_object(json, key);
	json_put_key_u64(json, "count", writes->count);
	json_put_key_u64(json, "smallest_bytes", writes->smallest_bytes);
	json_put_key_u64(json, "median_bytes", writes->median_bytes);
	json_put_key_u64(json, "most", writes->most);
	json_put_key_u64(json, "trainer", writes->trainer);
	json_put_object_end(json);
}

static void write_figures(struct json *json, const struct plan_labels *labels,
			  const struct figure *figures, const void *record)
{
	for (const struct figure *figure = figures; figure->name; figure++) {
		const void *at = (const char *)record + figure->at;
		const char *key = figure->name;

		switch (figure->kind) {
		case FIGURE_NUMBER:
			json_put_key_u64(json, key, *(const uint64_t *)at);
			break;
		case FIGURE_RATIO:
			json_put_key_double(json, key, *(const double *)at);
			break;
		case FIGURE_BOOL:
			json_put_key_bool(json, key, *(const bool *)at);
			break;
		case FIGURE_LIMIT:
			json_put_key_string(json, key, at);
			break;
		case FIGURE_TRAINERS:
		case FIGURE_SESSIONS:
			json_put_key_u64s(json, key, *(uint64_t *const *)at, labels->trainer_count);
			break;
		case FIGURE_INFERENCE:
			json_put_key_u64s(json, key, *(uint64_t *const *)at,
					  labels->inference_count);
			break;
		case FIGURE_PATHS:
			write_paths(json, key, at);
			break;
		case FIGURE_WRITES:
			write_writes(json, key, at);
			break;
		}
	}
}

static void write_names(struct json *json, const char *key, const struct names *names)
{
	json_put_key_array(json, key);
	for (size_t i = 0; i < names->count; i++)
		json_put_string(json, names->items[i]);
	json_put_array_end(json);
}

static void write_report(struct json *json, const struct report *report,
			 const struct plan_labels *labels)
{
	json_put_newline(json);
	json_put_key_object(json, "summary");
	write_figures(json, labels, summary_figures, &report->own);
	write_names(json, "unwanted", &report->unwanted);
	write_names(json, "filled", &report->filled);
	json_put_key_u64(json, "filled_bytes", report->filled_bytes);
	if (report->has_certificate) {
		json_put_newline(json);
		json_put_key_object(json, "certificate");
		write_figures(json, labels, certificate_figures, &report->certificate);
		json_put_object_end(json);
	}
	json_put_newline(json);
	json_put_key_object(json, "round_robin");
	write_figures(json, labels, summary_figures, &report->round_robin);
	json_put_object_end(json);
	json_put_object_end(json);
}

static void write_source(FILE *stream, const struct source *source, bool routes)
{
	char digest[DIGEST_TEXT_BYTES];
	struct json json;

	json_to_file(&json, stream);
	json_put_object(&json);
	json_put_key_string(&json, "schema", DUMP_SCHEMA);
	json_put_key_string(&json, "policy", source->labels.policy);
	json_put_key_string(&json, "order", source->labels.order);
	if (source->labels.sessions_max)
		json_put_key_u64(&json, "sessions_max", source->labels.sessions_max);
	json_put_key_string(&json, "model", source->labels.model);
	json_put_key_string(&json, "train", source->labels.train);
	json_put_key_string(&json, "infer", source->labels.infer);
	if (source->labels.topology) {
		json_put_newline(&json);
		json_put_key(&json, "topology");
		topology_put(&json, source->labels.topology);
	}
	write_ranks(&json, source);
	write_away(&json, &source->labels);
	write_moved(&json, &source->labels.moved);
	if (source->labels.pairs)
		dump_put_pairs(&json, source->labels.pairs);
	if (routes)
		write_routes(&json, source);
	write_report(&json, source->report, &source->labels);
	json_put_newline(&json);
	json_put_key_string(&json, "digest", digest_text(source->labels.digest, digest));
	json_put_line_end(&json);
}

/* ---- from a table ---- */

struct plan_labels table_labels(const struct table *table)
{
	const struct problem *problem = table->problem;

	return (struct plan_labels){
		.policy = table->policy,
		.order = table->order,
		.sessions_max = table->sessions_max,
		.model = problem->model,
		.train = problem->train,
		.infer = problem->infer,
		.trainer_count = problem->trainer_count,
		.inference_count = problem->inference_count,
		.trainer_stage = problem->trainer_stage,
		.trainer_away = problem->trainer_away,
		.inference_away = problem->inference_away,
		.moved = table->moved,
		.topology = table->topology && !table->topology->flat ? table->topology : NULL,
		.pairs = problem->pairs,
		.digest = table->digest,
	};
}

void dump_write(FILE *stream, const struct table *table, const struct report *report,
		enum dump_part part)
{
	const struct problem *problem = table->problem;
	struct source source = {
		.labels = table_labels(table),
		.routes = table->routes,
		.route_count = table->route_count,
		.pieces = table->pieces,
		.transformed = problem->transformed,
		.report = report,
		.problem = problem,
	};

	write_source(stream, &source, part == DUMP_WHOLE);
}

/* ---- from a dump ---- */

void dump_put(FILE *stream, const struct dump *dump, enum dump_part part)
{
	struct source source = {
		.labels = dump->labels,
		.routes = dump->routes,
		.route_count = dump->route_count,
		.pieces = dump->pieces,
		.transformed = dump->transformed,
		.report = &dump->report,
		.dump = dump,
	};

	write_source(stream, &source, part == DUMP_WHOLE && dump->has_routes);
}

int dump_save(const char *path, const struct table *table, const struct report *report,
	      enum dump_part part, struct error *error)
{
	struct file_writer writer;
	int rc = file_writer_open(&writer, path, error);

	if (rc)
		return rc;
	dump_write(writer.stream, table, report, part);
	if (ferror(writer.stream))
		rc = error_set_errno(error, ERROR_IO, errno ? errno : EIO,
				     "cannot write the routing dump %s", path);
	if (rc) {
		file_writer_abort(&writer);
		return rc;
	}
	return file_writer_commit(&writer, error);
}
