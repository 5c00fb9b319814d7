/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.c -- writes what dump_read.c reads; docs/routing.md has the schema. One line each for
 * the head, the trainers, the inference ranks, every route, the summary and the digest.
 */
#include "routing/report/dump.h"

#include "base/file.h"
#include "base/json_write.h"
#include "routing/report/dump_read.h"
#include "routing/plan/topology_file.h"
#include <errno.h>

/* What is written, whether it comes from a table or from a dump: names are asked for. */
struct source {
	struct plan_labels labels;
	struct dump_rank (*rank)(const struct source *source, uint32_t inference);
	const struct route *routes;
	size_t route_count;
	const struct route_piece *pieces;
	const char *(*tensor)(const struct source *source, const struct route *route);
	const char *(*param)(const struct source *source, const struct route *route,
			     const struct route_piece *piece);
	const struct problem_transformed *transformed; /* not asked for a copy */
	const char *(*scales)(const struct source *source, uint32_t index);
	const struct report *report;
	const struct problem *problem; /* of a table */
	const struct dump *dump;
};

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
		struct dump_rank rank = source->rank(source, i);

		json_put_object(json);
		json_put_key_u64(json, "rank", i);
		json_put_key_u64(json, "engine", rank.engine);
		json_put_key_u64(json, "engine_rank", rank.engine_rank);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static void write_transformed(struct json *json, const struct source *source, uint32_t index)
{
	const struct problem_transformed *transformed = &source->transformed[index];
	char text[TRANSFORM_TEXT_BYTES];

	json_put_key_string(json, "make", transform_text(&transformed->transform, true, text));
	json_put_key_string(json, "to", dtype_name(transformed->to));
	if (transformed->transform.from_rows)
		json_put_key_string(json, "scales", source->scales(source, transformed->scales));
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
		json_put_key_string(json, "tensor", source->tensor(source, route));
		json_put_key_u64(json, "trainer", route->trainer);
		json_put_key_u64(json, "inference", route->inference);
		json_put_key_u64(json, "bytes", route->bytes);
		json_put_key_string(json, "how", route_path_name(pieces[0].path));
		json_put_key_array(json, "pieces");
		for (uint32_t p = 0; p < route->piece_count; p++)
			write_piece(json, source, source->param(source, route, &pieces[p]),
				    &pieces[p], pieces[0].path);
		json_put_array_end(json);
		json_put_object_end(json);
	}
	json_put_newline(json);
	json_put_array_end(json);
}

static void write_figures(struct json *json, const struct summary *summary, uint32_t trainers,
			  uint32_t ranks)
{
	json_put_key_u64(json, "routes", summary->routes);
	json_put_key_u64(json, "pieces", summary->pieces);
	json_put_key_u64(json, "bytes_total", summary->bytes_total);
	json_put_key_u64s(json, "trainer_bytes", summary->trainer_bytes, trainers);
	json_put_key_u64s(json, "inference_bytes", summary->inference_bytes, ranks);
	json_put_key_u64(json, "makespan_bytes", summary->makespan_bytes);
	json_put_key_u64(json, "lower_bound_bytes", summary->lower_bound_bytes);
	json_put_key_u64(json, "receiver_bound_bytes", summary->receiver_bound_bytes);
	json_put_key_double(json, "gap", summary->gap);
	json_put_key_double(json, "imbalance", summary->imbalance);
	json_put_key_u64(json, "prepared_bytes", summary->prepared_bytes);
	json_put_key_u64(json, "prepared_minimum_bytes", summary->prepared_minimum_bytes);
	json_put_key_u32s(json, "sessions", summary->sessions, trainers);
	json_put_key_object(json, "how_bytes");
	for (int path = 0; path < PATH_COUNT; path++)
		json_put_key_u64(json, route_path_name((enum route_path)path),
				 summary->path_bytes[path]);
	json_put_object_end(json);
}

static void write_names(struct json *json, const char *key, const struct names *names)
{
	json_put_key_array(json, key);
	for (size_t i = 0; i < names->count; i++)
		json_put_string(json, names->items[i]);
	json_put_array_end(json);
}

static void write_certificate(struct json *json, const struct certificate *certificate)
{
	json_put_newline(json);
	json_put_key_object(json, "certificate");
	json_put_key_double(json, "bound_seconds", certificate->bound_seconds);
	json_put_key_double(json, "sender_bound_seconds", certificate->sender_bound_seconds);
	json_put_key_double(json, "receiver_bound_seconds", certificate->receiver_bound_seconds);
	json_put_key_u64(json, "sender_bound_bytes", certificate->sender_bound_bytes);
	json_put_key_u64(json, "sender_bound_rate", certificate->sender_bound_rate);
	json_put_key_double(json, "makespan_seconds", certificate->makespan_seconds);
	json_put_key_double(json, "gap", certificate->gap);
	json_put_key_bool(json, "exact", certificate->exact);
	json_put_key_string(json, "bound_limit", certificate->bound_limit);
	json_put_key_string(json, "makespan_limit", certificate->makespan_limit);
	json_put_object_end(json);
}

static void write_report(struct json *json, const struct report *report, uint32_t trainers,
			 uint32_t ranks)
{
	json_put_newline(json);
	json_put_key_object(json, "summary");
	write_figures(json, &report->own, trainers, ranks);
	write_names(json, "unwanted", &report->unwanted);
	write_names(json, "filled", &report->filled);
	json_put_key_u64(json, "filled_bytes", report->filled_bytes);
	if (report->has_certificate)
		write_certificate(json, &report->certificate);
	json_put_newline(json);
	json_put_key_object(json, "round_robin");
	write_figures(json, &report->round_robin, trainers, ranks);
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
	if (routes)
		write_routes(&json, source);
	write_report(&json, source->report, source->labels.trainer_count,
		     source->labels.inference_count);
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
		.topology = table->topology && !table->topology->flat ? table->topology : NULL,
		.digest = table->digest,
	};
}

static struct dump_rank table_rank(const struct source *source, uint32_t inference)
{
	uint32_t width = source->problem->ranks_per_engine;

	return width ? (struct dump_rank){inference / width, inference % width}
		     : (struct dump_rank){0, inference};
}

static const char *table_tensor(const struct source *source, const struct route *route)
{
	return source->problem->tensors[route->tensor].name;
}

static const char *table_param(const struct source *source, const struct route *route,
			       const struct route_piece *piece)
{
	const struct problem *problem = source->problem;

	return problem->layouts[problem->inference_layout[route->inference]]
		.layout->params[piece->param]
		.name;
}

static const char *table_scales(const struct source *source, uint32_t index)
{
	return source->problem->tensors[index].name;
}

void dump_write(FILE *stream, const struct table *table, const struct report *report,
		enum dump_part part)
{
	const struct problem *problem = table->problem;
	struct source source = {
		.labels = table_labels(table),
		.rank = table_rank,
		.routes = table->routes,
		.route_count = table->route_count,
		.pieces = table->pieces,
		.tensor = table_tensor,
		.param = table_param,
		.transformed = problem->transformed,
		.scales = table_scales,
		.report = report,
		.problem = problem,
	};

	write_source(stream, &source, part == DUMP_WHOLE);
}

/* ---- from a dump ---- */

struct plan_labels dump_labels(const struct dump *dump)
{
	return (struct plan_labels){
		.policy = dump->policy,
		.order = dump->order,
		.sessions_max = dump->sessions_max,
		.model = dump->model,
		.train = dump->train,
		.infer = dump->infer,
		.trainer_count = dump->trainer_count,
		.inference_count = dump->inference_count,
		.trainer_stage = dump->trainer_stage,
		.topology = dump->topology,
		.digest = dump->digest,
	};
}

static struct dump_rank dump_rank(const struct source *source, uint32_t inference)
{
	return source->dump->inference[inference];
}

static const char *dump_tensor(const struct source *source, const struct route *route)
{
	return source->dump->names.items[route->tensor];
}

static const char *dump_param(const struct source *source, const struct route *route,
			      const struct route_piece *piece)
{
	(void)route;
	return source->dump->names.items[piece->param];
}

static const char *dump_scales(const struct source *source, uint32_t index)
{
	return source->dump->names.items[index];
}

void dump_put(FILE *stream, const struct dump *dump, enum dump_part part)
{
	struct source source = {
		.labels = dump_labels(dump),
		.rank = dump_rank,
		.routes = dump->routes,
		.route_count = dump->route_count,
		.pieces = dump->pieces,
		.tensor = dump_tensor,
		.param = dump_param,
		.transformed = dump->transformed,
		.scales = dump_scales,
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
