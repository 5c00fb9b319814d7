/* SPDX-License-Identifier: Apache-2.0
 *
 * export_html_data.c -- the data of the HTML report, as inert <script> blocks:
 *
 *   weft-head       JSON: labels, figures by rank, names (each tensor once)
 *   weft-tensor     columns of the routes, in table order: base64 of little-endian numbers, as
 *   weft-trainer    narrow as the largest value lets them be (1, 2, 4 or 8 bytes)
 *   ..
 *   weft-cell-*     columns of (trainer, inference rank) sums of the plan that stands beside
 *
 * 10^6 routes are 11 to 13 bytes each, 15 to 17 MB of text. Everything is written as it is met.
 */
#include "routing/report/export_html.h"

#include "base/json_write.h"
#include "base/memory.h"
#include "routing/plan/topology.h"
#include "routing/report/export.h"
#include <string.h>

/* ---- columns ---- */

#define LINE_BYTES 3072 /* of data: 4096 characters a line */

struct column {
	FILE *file;
	unsigned width; /* bytes of one number */
	size_t used;
	unsigned char bytes[LINE_BYTES];
};

static unsigned width_of(uint64_t largest)
{
	return largest <= UINT8_MAX ? 1 : largest <= UINT16_MAX ? 2 : largest <= UINT32_MAX ? 4 : 8;
}

static void column_flush(struct column *column)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char line[LINE_BYTES / 3 * 4 + 1];
	size_t at = 0;

	for (size_t i = 0; i < column->used; i += 3) {
		size_t left = column->used - i;
		uint32_t three = (uint32_t)column->bytes[i] << 16;

		if (left > 1)
			three |= (uint32_t)column->bytes[i + 1] << 8;
		if (left > 2)
			three |= column->bytes[i + 2];
		line[at++] = letters[three >> 18];
		line[at++] = letters[three >> 12 & 63];
		line[at++] = left > 1 ? letters[three >> 6 & 63] : '=';
		line[at++] = left > 2 ? letters[three & 63] : '=';
	}
	line[at++] = '\n';
	if (column->used)
		fwrite(line, 1, at, column->file);
	column->used = 0;
}

static void column_begin(struct column *column, FILE *file, const char *name, uint64_t largest,
			 size_t count)
{
	column->file = file;
	column->width = width_of(largest);
	column->used = 0;
	fprintf(file,
		"<script type=\"text/plain\" id=\"weft-%s\" data-width=\"%u\" data-count=\"%zu\">\n",
		name, column->width, count);
}

static void column_add(struct column *column, uint64_t value)
{
	for (unsigned i = 0; i < column->width; i++)
		column->bytes[column->used + i] = (unsigned char)(value >> 8 * i);
	column->used += column->width;
	if (column->used + column->width > LINE_BYTES)
		column_flush(column); /* 3072 is a multiple of every width: lines are full */
}

static void column_end(struct column *column)
{
	column_flush(column);
	fputs("</script>\n", column->file);
}

/* ---- the columns of the routes ---- */

enum route_column { TENSOR, TRAINER, INFERENCE, BYTES, PIECES, HOW, ROUTE_COLUMNS };

static const char *const route_columns[ROUTE_COLUMNS] = {"tensor", "trainer", "inference",
							 "bytes",  "pieces",  "how"};

/* tensor_of: a name's place among the tensors */
static uint64_t route_value(const struct dump *dump, const uint32_t *tensor_of,
			    const struct route *route, enum route_column column)
{
	const struct route_piece *pieces = dump->pieces + route->piece_first;
	uint64_t bits = 0;

	switch (column) {
	case TENSOR:
		return tensor_of[route->tensor];
	case TRAINER:
		return route->trainer;
	case INFERENCE:
		return route->inference;
	case BYTES:
		return route->bytes;
	case PIECES:
		return route->piece_count;
	default: /* one bit for each path of the route's pieces */
		for (uint32_t p = 0; p < route->piece_count; p++)
			bits |= UINT64_C(1) << pieces[p].path;
		return bits;
	}
}

static void put_routes(FILE *file, const struct dump *dump, const uint32_t *tensor_of)
{
	for (enum route_column c = TENSOR; c < ROUTE_COLUMNS; c++) {
		struct column column;
		uint64_t largest = 0;

		for (size_t r = 0; r < dump->route_count; r++) {
			uint64_t value = route_value(dump, tensor_of, &dump->routes[r], c);

			largest = value > largest ? value : largest;
		}
		column_begin(&column, file, route_columns[c], largest, dump->route_count);
		for (size_t r = 0; r < dump->route_count; r++)
			column_add(&column, route_value(dump, tensor_of, &dump->routes[r], c));
		column_end(&column);
	}
}

/* ---- who sends how much to whom in the plan that stands beside ---- */

static uint64_t cell_value(const struct export_cell *cell, int which)
{
	return which == 0   ? cell->from
	       : which == 1 ? cell->to
	       : which == 2 ? cell->bytes
			    : cell->routes;
}

static int put_cells(FILE *file, const struct dump *dump, struct error *error)
{
	static const char *const names[] = {"cell-trainer", "cell-inference", "cell-bytes",
					    "cell-routes"};
	struct export_cell *cells = memory_alloc(dump->route_count * sizeof(*cells));
	size_t count;

	if (!cells)
		return memory_error(error, "adding up the routes of the plan that stands beside",
				    dump->route_count * sizeof(*cells));
	for (size_t r = 0; r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];

		cells[r] = (struct export_cell){route->trainer, route->inference, route->bytes, 1};
	}
	count = export_merge(cells, dump->route_count);
	for (int which = 0; which < 4; which++) {
		struct column column;
		uint64_t largest = 0;

		for (size_t i = 0; i < count; i++)
			if (cell_value(&cells[i], which) > largest)
				largest = cell_value(&cells[i], which);
		column_begin(&column, file, names[which], largest, count);
		for (size_t i = 0; i < count; i++)
			column_add(&column, cell_value(&cells[i], which));
		column_end(&column);
	}
	memory_free(cells);
	return 0;
}

/* ---- the head ---- */

struct head {
	FILE *file;
	struct text text;
	struct json json;
};

/* JSON inside HTML: without '<' no name can end the block or open a comment. */
static void head_flush(struct head *head)
{
	const char *text = text_string(&head->text);

	for (size_t i = 0; i < head->text.bytes; i++) {
		if (text[i] == '<')
			fputs("\\u003c", head->file);
		else
			fputc(text[i], head->file);
	}
	head->text.bytes = 0;
}

static void put_u64s(struct head *head, const char *key, const uint64_t *values, uint32_t count)
{
	json_put_newline(&head->json);
	json_put_key_u64s(&head->json, key, values, count);
	head_flush(head);
}

static void put_u32s(struct head *head, const char *key, const uint32_t *values, uint32_t count)
{
	json_put_newline(&head->json);
	json_put_key_u32s(&head->json, key, values, count);
	head_flush(head);
}

static void put_plan(struct head *head, const char *key, const char *name,
		     const struct summary *summary, const struct dump *dump)
{
	struct json *json = &head->json;

	json_put_newline(json);
	json_put_key_object(json, key);
	json_put_key_string(json, "name", name);
	json_put_key_u64(json, "bound", summary->lower_bound_bytes);
	json_put_key_u64(json, "bytes", summary->bytes_total);
	json_put_key_u64s(json, "how", summary->path_bytes, PATH_COUNT);
	put_u64s(head, "trainer", summary->trainer_bytes, dump->labels.trainer_count);
	put_u64s(head, "inference", summary->inference_bytes, dump->labels.inference_count);
	put_u64s(head, "sessions", summary->sessions, dump->labels.trainer_count);
	json_put_object_end(json);
}

static void put_ranks(struct head *head, const struct dump *dump)
{
	struct json *json = &head->json;

	put_u32s(head, "stage", dump->labels.trainer_stage, dump->labels.trainer_count);
	json_put_newline(json);
	json_put_key(json, "engine"); /* engine, rank in it, engine, rank in it, .. */
	json_put_array(json);
	for (uint32_t i = 0; i < dump->labels.inference_count; i++) {
		json_put_u64(json, dump->inference[i].engine);
		json_put_u64(json, dump->inference[i].engine_rank);
	}
	json_put_array_end(json);
}

static void put_places(struct head *head, const struct topology *topology, enum role role)
{
	struct json *json = &head->json;

	json_put_newline(json);
	json_put_key_object(json, role_name(role));
	json_put_key_array(json, "host");
	for (uint32_t r = 0; r < topology->rank_count[role]; r++)
		json_put_u64(json, topology->ranks[role][r].host);
	json_put_array_end(json);
	json_put_key_array(json, "nics");
	for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
		const struct topology_rank *rank = &topology->ranks[role][r];

		json_put_array(json);
		for (uint32_t l = 0; l < rank->used_count; l++)
			json_put_u64(json, topology->links[rank->link_first + l].nic);
		json_put_array_end(json);
	}
	json_put_array_end(json);
	json_put_object_end(json);
	head_flush(head);
}

static void put_topology(struct head *head, const struct dump *dump)
{
	const struct topology *topology = dump->labels.topology;
	struct json *json = &head->json;

	json_put_newline(json);
	json_put_key_object(json, "topology");
	json_put_key_double(json, "bound_seconds",
			    dump->report.has_certificate ? dump->report.certificate.bound_seconds
							 : 0);
	json_put_key_array(json, "hosts");
	for (uint32_t h = 0; h < topology->host_count; h++)
		json_put_string(json, topology->hosts[h].name);
	json_put_array_end(json);
	json_put_key_array(json, "nics");
	for (uint32_t n = 0; n < topology->nic_count; n++) {
		const struct topology_nic *nic = &topology->nics[n];

		json_put_newline(json);
		json_put_object(json);
		json_put_key_string(json, "name", nic->name);
		json_put_key_u64(json, "host", nic->host);
		json_put_key_u64(json, "rail", nic->rail);
		json_put_key_u64(json, "rate", nic->bytes_per_second);
		json_put_object_end(json);
	}
	json_put_array_end(json);
	put_places(head, topology, ROLE_TRAINER);
	put_places(head, topology, ROLE_INFERENCE);
	json_put_object_end(json);
}

static void put_transports(struct head *head, const struct pairs *pairs)
{
	struct json *json = &head->json;

	json_put_newline(json);
	json_put_key_array(json, "transports");
	for (uint32_t t = 0; t < pairs->list.count; t++) {
		json_put_object(json);
		json_put_key_string(json, "name", pairs->list.names[t]);
		for (int role = 0; role < ROLE_COUNT; role++) {
			json_put_key_array(json, role_name((enum role)role));
			for (uint32_t rank = 0; rank < pairs->count[role]; rank++)
				json_put_u64(json,
					     pairs_side(pairs, (enum role)role, rank, t)->reach);
			json_put_array_end(json);
			head_flush(head);
		}
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

/* Tensors get numbers in the order in which routes name them: checkpoint order. */
static int put_tensors(struct head *head, const struct dump *dump, uint32_t *tensor_of_name)
{
	uint32_t count = 0;

	memset(tensor_of_name, 0xff, dump->names.count * sizeof(*tensor_of_name));
	json_put_newline(&head->json);
	json_put_key_array(&head->json, "tensors");
	for (size_t r = 0; r < dump->route_count; r++) {
		uint32_t name = dump->routes[r].tensor;

		if (tensor_of_name[name] != UINT32_MAX)
			continue;
		tensor_of_name[name] = count++;
		json_put_string(&head->json, dump->names.items[name]);
		json_put_newline(&head->json);
		if (head->text.bytes > 1 << 16)
			head_flush(head);
	}
	json_put_array_end(&head->json);
	return text_ok(&head->text) ? 0 : -1;
}

static void put_seconds(struct head *head, const char *key, const double *seconds, uint32_t count)
{
	json_put_newline(&head->json);
	json_put_key_array(&head->json, key);
	for (uint32_t i = 0; i < count; i++)
		json_put_double(&head->json, seconds[i]);
	json_put_array_end(&head->json);
	head_flush(head);
}

static void put_measured(struct head *head, const struct measured *measured,
			 const struct dump *dump)
{
	json_put_newline(&head->json);
	json_put_key_object(&head->json, "measured");
	json_put_key_u64(&head->json, "updates", measured->updates);
	put_seconds(head, "trainer", measured->seconds[ROLE_TRAINER], dump->labels.trainer_count);
	put_seconds(head, "inference", measured->seconds[ROLE_INFERENCE],
		    dump->labels.inference_count);
	json_put_object_end(&head->json);
}

int page_put_data(const struct page *page, struct error *error)
{
	const struct dump *dump = page->dump;
	uint32_t *tensor_of_name = memory_alloc((dump->names.count + 1) * sizeof(uint32_t));
	struct head head = {.file = page->file};
	int rc = 0;

	if (!tensor_of_name)
		return memory_error(error, "numbering tensors",
				    (dump->names.count + 1) * sizeof(uint32_t));
	json_to_text(&head.json, &head.text);
	fputs("<script type=\"application/json\" id=\"weft-head\">\n", page->file);
	json_put_object(&head.json);
	json_put_key_string(&head.json, "policy", dump->labels.policy);
	json_put_key_bool(&head.json, "has_routes", dump->has_routes);
	put_ranks(&head, dump);
	put_plan(&head, "own", dump->labels.policy, page->own, dump);
	if (page->other)
		put_plan(&head, "other", page->other_name, page->other, dump);
	if (dump->labels.topology)
		put_topology(&head, dump);
	if (dump->labels.pairs)
		put_transports(&head, dump->labels.pairs);
	if (page->measured)
		put_measured(&head, page->measured, dump);
	if (put_tensors(&head, dump, tensor_of_name))
		rc = memory_error(error, "writing the report", head.text.capacity);
	json_put_object_end(&head.json);
	head_flush(&head);
	if (!rc && !text_ok(&head.text))
		rc = memory_error(error, "writing the report", head.text.capacity);
	text_fini(&head.text);
	fputs("\n</script>\n", page->file);
	if (!rc && dump->has_routes)
		put_routes(page->file, dump, tensor_of_name);
	if (!rc && page->beside && page->beside->has_routes)
		rc = put_cells(page->file, page->beside, error);
	memory_free(tensor_of_name);
	return rc;
}
