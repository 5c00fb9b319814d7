/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.c -- writes what dump_read.c reads; docs/routing.md has the schema. One line each for
 * the head, the trainers, the inference ranks, every route, the summary and the digest.
 */
#include "routing/dump.h"

#include "common/file.h"
#include "common/json_write.h"
#include "routing/report.h"
#include <errno.h>

static void write_ranks(struct json *json, const struct problem *problem)
{
	uint32_t width = problem->ranks_per_engine;

	json_put_newline(json);
	json_put_key(json, "trainers");
	json_put_array(json);
	for (uint32_t t = 0; t < problem->trainer_count; t++) {
		json_put_object(json);
		json_put_key_u64(json, "rank", t);
		json_put_key_u64(json, "stage", problem->trainer_stage[t]);
		json_put_object_end(json);
	}
	json_put_array_end(json);
	json_put_newline(json);
	json_put_key(json, "inference");
	json_put_array(json);
	for (uint32_t i = 0; i < problem->inference_count; i++) {
		json_put_object(json);
		json_put_key_u64(json, "rank", i);
		json_put_key_u64(json, "engine", width ? i / width : 0);
		json_put_key_u64(json, "engine_rank", width ? i % width : i);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static void write_piece(struct json *json, const struct layout *layout,
			const struct route_piece *piece, enum route_how how)
{
	json_put_object(json);
	json_put_key(json, "src");
	json_put_array(json);
	for (uint32_t d = 0; d < piece->src.dims; d++) {
		json_put_array(json);
		json_put_u64(json, piece->src.lo[d]);
		json_put_u64(json, piece->src.hi[d]);
		json_put_array_end(json);
	}
	json_put_array_end(json);
	json_put_key_string(json, "param", layout->params[piece->param].name);
	json_put_key_u64(json, "offset", piece->offset);
	json_put_key_u64(json, "bytes", piece->bytes);
	if (piece->how != how)
		json_put_key_string(json, "how", route_how_name(piece->how));
	json_put_object_end(json);
}

static void write_routes(struct json *json, const struct table *table)
{
	const struct problem *problem = table->problem;

	json_put_newline(json);
	json_put_key(json, "routes");
	json_put_array(json);
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		const struct route_piece *pieces = table->pieces + route->piece_first;
		const struct layout *layout =
			problem->layouts[problem->inference_layout[route->inference]].layout;

		json_put_newline(json);
		json_put_object(json);
		json_put_key_string(json, "tensor", problem->tensors[route->tensor].name);
		json_put_key_u64(json, "trainer", route->trainer);
		json_put_key_u64(json, "inference", route->inference);
		json_put_key_u64(json, "bytes", route->bytes);
		json_put_key_string(json, "how", route_how_name(pieces[0].how));
		json_put_key(json, "pieces");
		json_put_array(json);
		for (uint32_t p = 0; p < route->piece_count; p++)
			write_piece(json, layout, &pieces[p], pieces[0].how);
		json_put_array_end(json);
		json_put_object_end(json);
	}
	json_put_newline(json);
	json_put_array_end(json);
}

static void write_counts(struct json *json, const char *key, const uint64_t *values, uint32_t count)
{
	json_put_key(json, key);
	json_put_array(json);
	for (uint32_t i = 0; i < count; i++)
		json_put_u64(json, values[i]);
	json_put_array_end(json);
}

static void write_figures(struct json *json, const struct summary *summary, uint32_t trainers,
			  uint32_t ranks)
{
	json_put_key_u64(json, "routes", summary->routes);
	json_put_key_u64(json, "pieces", summary->pieces);
	json_put_key_u64(json, "bytes_total", summary->bytes_total);
	write_counts(json, "trainer_bytes", summary->trainer_bytes, trainers);
	write_counts(json, "inference_bytes", summary->inference_bytes, ranks);
	json_put_key_u64(json, "makespan_bytes", summary->makespan_bytes);
	json_put_key_u64(json, "lower_bound_bytes", summary->lower_bound_bytes);
	json_put_key_u64(json, "receiver_bound_bytes", summary->receiver_bound_bytes);
	json_put_key_double(json, "gap", summary->gap);
	json_put_key_double(json, "imbalance", summary->imbalance);
	json_put_key_u64(json, "prepared_bytes", summary->prepared_bytes);
	json_put_key_u64(json, "prepared_minimum_bytes", summary->prepared_minimum_bytes);
	json_put_key(json, "sessions");
	json_put_array(json);
	for (uint32_t t = 0; t < trainers; t++)
		json_put_u64(json, summary->sessions[t]);
	json_put_array_end(json);
	json_put_key(json, "how_bytes");
	json_put_object(json);
	for (int how = 0; how < HOW_COUNT; how++)
		json_put_key_u64(json, route_how_name((enum route_how)how),
				 summary->how_bytes[how]);
	json_put_object_end(json);
}

static void write_names(struct json *json, const char *key, const struct names *names)
{
	json_put_key(json, key);
	json_put_array(json);
	for (size_t i = 0; i < names->count; i++)
		json_put_string(json, names->items[i]);
	json_put_array_end(json);
}

static void write_report(struct json *json, const struct report *report, uint32_t trainers,
			 uint32_t ranks)
{
	json_put_newline(json);
	json_put_key(json, "summary");
	json_put_object(json);
	write_figures(json, &report->own, trainers, ranks);
	write_names(json, "unwanted", &report->unwanted);
	write_names(json, "filled", &report->filled);
	json_put_key_u64(json, "filled_bytes", report->filled_bytes);
	json_put_newline(json);
	json_put_key(json, "round_robin");
	json_put_object(json);
	write_figures(json, &report->round_robin, trainers, ranks);
	json_put_object_end(json);
	json_put_object_end(json);
}

int dump_write(FILE *stream, const struct table *table, enum dump_part part, struct error *error)
{
	const struct problem *problem = table->problem;
	char digest[DIGEST_TEXT_BYTES];
	struct report report;
	struct json json;
	int rc = report_of(&report, table, error);

	if (rc)
		return rc;
	json_to_file(&json, stream);
	json_put_object(&json);
	json_put_key_string(&json, "schema", DUMP_SCHEMA);
	json_put_key_string(&json, "policy", table->policy);
	json_put_key_string(&json, "order", table->order);
	json_put_key_string(&json, "model", problem->model);
	json_put_key_string(&json, "train", problem->train);
	json_put_key_string(&json, "infer", problem->infer);
	write_ranks(&json, problem);
	if (part == DUMP_WHOLE)
		write_routes(&json, table);
	write_report(&json, &report, problem->trainer_count, problem->inference_count);
	json_put_newline(&json);
	json_put_key_string(&json, "digest", digest_text(table->digest, digest));
	json_put_object_end(&json);
	json_put_newline(&json);
	report_fini(&report);
	return 0;
}

int dump_save(const char *path, const struct table *table, struct error *error)
{
	struct file_writer writer;
	int rc = file_writer_open(&writer, path, error);

	if (rc)
		return rc;
	rc = dump_write(writer.stream, table, DUMP_WHOLE, error);
	if (!rc && ferror(writer.stream))
		rc = error_set_errno(error, ERROR_IO, errno ? errno : EIO,
				     "cannot write the routing dump %s", path);
	if (rc) {
		file_writer_abort(&writer);
		return rc;
	}
	return file_writer_commit(&writer, error);
}
