/* SPDX-License-Identifier: Apache-2.0
 *
 * export_lines.c -- one route a line, for spreadsheets and data frames:
 *
 *   tensor,trainer,stage,inference,engine,engine_rank,bytes,how,pieces,rows,make,columns
 *   model.embed_tokens.weight,0,0,3,1,1,1792,direct,1,7:8,copy,0:896
 *
 * `rows` are the rows of the tensor (dimension 0) that the route sends, low:high, high not
 * included, neighbours merged, by a space where there are several; in JSON [[low,high],..].
 * A CSV cell that a spreadsheet would take for a formula begins with an apostrophe (owasp.org, "CSV Injection").
 * `make` is how its pieces are made, each way once, by " + " where there are several. `columns` are those of its pieces, each
 * range once: low:high of dimension 1, of all further ones where there are more, by "x" (0:8x0:16); in JSON a list of
 * [low,high] for each; nothing where the tensor has rows alone. A plan whose pairs use several transports has one more column
 * before that, `transport`.
 */
#include "routing/report/export.h"

#include "base/array.h"
#include "base/compare.h"
#include "base/json_write.h"
#include "base/plain.h"
#include "base/text.h"
#include <inttypes.h>
#include <string.h>

struct row_range {
	uint64_t lo, hi;
};

#define RANGES_INLINE 16

struct row_ranges {
	struct row_range own[RANGES_INLINE], *items; /* items: own, or from the heap */
	size_t count;
};

static int by_low(const void *x, const void *y)
{
	const struct row_range *a = x, *b = y;

	return compare_u64(a->lo, b->lo) ?: compare_u64(a->hi, b->hi);
}

static int gather_rows(struct row_ranges *ranges, const struct route *route,
		       const struct route_piece *pieces, struct error *error)
{
	size_t count = route->piece_count, kept = 0;
	struct row_range *items = ranges->own;

	if (count > RANGES_INLINE)
		items = memory_alloc(count * sizeof(*items));
	if (!items)
		return memory_error(error, "merging rows", count * sizeof(*items));
	for (size_t p = 0; p < count; p++)
		items[p] = (struct row_range){pieces[p].src.lo[0], pieces[p].src.hi[0]};
	sort_items(items, count, by_low);
	for (size_t p = 1; p < count; p++) {
		if (items[p].lo > items[kept].hi)
			items[++kept] = items[p];
		else if (items[p].hi > items[kept].hi)
			items[kept].hi = items[p].hi;
	}
	ranges->items = items;
	ranges->count = count ? kept + 1 : 0;
	return 0;
}

static void drop_rows(struct row_ranges *ranges)
{
	if (ranges->items != ranges->own)
		memory_free(ranges->items);
}

/* The ways that the route's pieces are made, as one text. */
static int transform_name(struct text *text, const struct dump *dump, const struct route *route,
			  const struct route_piece *pieces, struct error *error)
{
	char one[TRANSFORM_TEXT_BYTES];

	for (uint32_t p = 0; p < route->piece_count; p++) {
		static const struct transform copy;
		uint32_t first = 0;

		while (pieces[first].transformed != pieces[p].transformed)
			first++;
		if (first < p)
			continue;
		text_format(
			text, "%s%s", p ? " + " : "",
			transform_text(pieces[p].transformed
					       ? &dump->transformed[pieces[p].transformed].transform
					       : &copy,
				       pieces[p].transformed != 0, one));
	}
	return text_ok(text) ? 0 : memory_error(error, "writing a route", TRANSFORM_TEXT_BYTES);
}

/* The next piece from `p` on whose columns no piece before it has; the count when there is none. */
static uint32_t next_columns(const struct route *route, const struct route_piece *pieces,
			     uint32_t p)
{
	for (; p < route->piece_count; p++) {
		uint32_t first = 0;

		while (first < p && !box_same_columns(&pieces[first].src, &pieces[p].src))
			first++;
		if (first == p && pieces[p].src.dims > 1)
			break;
	}
	return p;
}

/* What both forms need of a route: its rows, and how its pieces are made. */
static int gather(struct row_ranges *ranges, struct text *made, const struct dump *head,
		  const struct route *route, const struct route_piece *pieces, struct error *error)
{
	int rc = transform_name(made, head, route, pieces, error);

	if (!rc)
		rc = gather_rows(ranges, route, pieces, error);
	if (rc)
		text_fini(made);
	return rc;
}

/* ---- CSV (RFC 4180, lines end in \n) ---- */

/* = + - @, also as wide as ideographs, and what some programs skip before them. */
static bool begins_a_formula(const char *value)
{
	static const uint32_t begins[] = {'=',	'+',	'-',	'@',	'\t',  '\r',
					  '\n', 0xff1d, 0xff0b, 0xff0d, 0xff20};
	uint32_t code = *value ? plain_first(value).code : 0;

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++)
		if (code == begins[i])
			return true;
	return false;
}

static void write_field(FILE *stream, const char *value)
{
	bool quote = value[strcspn(value, ",\"\r\n")] != '\0';
	char one[PLAIN_SHOWN_BYTES];

	if (quote)
		fputc('"', stream);
	if (begins_a_formula(value))
		fputc('\'', stream);
	if (!quote && plain_is(value)) {
		fputs(value, stream);
		return;
	}
	while (*value) {
		if (strchr("\t\r\n", *value)) { /* quoted, they are part of the cell */
			fputc(*value++, stream);
			continue;
		}
		if (*value == '"')
			fputc('"', stream);
		plain_next(&value, one);
		fputs(one, stream);
	}
	if (quote)
		fputc('"', stream);
}

static void write_columns(FILE *stream, const struct route *route, const struct route_piece *pieces)
{
	const char *between = "";

	for (uint32_t p = next_columns(route, pieces, 0); p < route->piece_count;
	     p = next_columns(route, pieces, p + 1)) {
		const struct box *box = &pieces[p].src;

		for (uint32_t d = 1; d < box->dims; d++)
			fprintf(stream, "%s%" PRIu64 ":%" PRIu64, d == 1 ? between : "x",
				box->lo[d], box->hi[d]);
		between = " ";
	}
}

int export_csv_begin(FILE *stream, const struct dump *head, struct error *error)
{
	fprintf(stream,
		"tensor,trainer,stage,inference,engine,engine_rank,bytes,how,pieces,rows,make%s,columns\n",
		head->labels.pairs ? ",transport" : "");
	return 0;
}

int export_csv_route(FILE *stream, const struct dump *head, const struct route *route,
		     const struct route_piece *pieces, struct error *error)
{
	const struct dump_rank *rank = &head->inference[route->inference];
	struct row_ranges ranges;
	struct text transformed = {0};
	int rc = gather(&ranges, &transformed, head, route, pieces, error);

	if (rc)
		return rc;
	write_field(stream, head->names.items[route->tensor]);
	fprintf(stream,
		",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu64
		",%s,%" PRIu32 ",",
		route->trainer, head->labels.trainer_stage[route->trainer], route->inference,
		rank->engine, rank->engine_rank, route->bytes, route_path_name(pieces[0].path),
		route->piece_count);
	for (size_t i = 0; i < ranges.count; i++)
		fprintf(stream, "%s%" PRIu64 ":%" PRIu64, i ? " " : "", ranges.items[i].lo,
			ranges.items[i].hi);
	fprintf(stream, ",%s", text_string(&transformed));
	if (head->labels.pairs)
		fprintf(stream, ",%s",
			pairs_name(head->labels.pairs, route->trainer, route->inference));
	fputc(',', stream);
	write_columns(stream, route, pieces);
	fputc('\n', stream);
	text_fini(&transformed);
	drop_rows(&ranges);
	return 0;
}

/* ---- JSON lines ---- */

static void put_columns(struct json *json, const struct route *route,
			const struct route_piece *pieces)
{
	json_put_key_array(json, "columns");
	for (uint32_t p = next_columns(route, pieces, 0); p < route->piece_count;
	     p = next_columns(route, pieces, p + 1)) {
		json_put_array(json);
		for (uint32_t d = 1; d < pieces[p].src.dims; d++)
			json_put_range(json, pieces[p].src.lo[d], pieces[p].src.hi[d]);
		json_put_array_end(json);
	}
	json_put_array_end(json);
}

int export_jsonl_route(FILE *stream, const struct dump *head, const struct route *route,
		       const struct route_piece *pieces, struct error *error)
{
	const struct dump_rank *rank = &head->inference[route->inference];
	struct row_ranges ranges;
	struct text transformed = {0};
	struct json json;
	int rc = gather(&ranges, &transformed, head, route, pieces, error);

	if (rc)
		return rc;
	json_to_file(&json, stream);
	json_put_object(&json);
	json_put_key_string(&json, "tensor", head->names.items[route->tensor]);
	json_put_key_u64(&json, "trainer", route->trainer);
	json_put_key_u64(&json, "stage", head->labels.trainer_stage[route->trainer]);
	json_put_key_u64(&json, "inference", route->inference);
	json_put_key_u64(&json, "engine", rank->engine);
	json_put_key_u64(&json, "engine_rank", rank->engine_rank);
	json_put_key_u64(&json, "bytes", route->bytes);
	json_put_key_string(&json, "how", route_path_name(pieces[0].path));
	json_put_key_u64(&json, "pieces", route->piece_count);
	json_put_key_array(&json, "rows");
	for (size_t i = 0; i < ranges.count; i++)
		json_put_range(&json, ranges.items[i].lo, ranges.items[i].hi);
	json_put_array_end(&json);
	json_put_key_string(&json, "make", text_string(&transformed));
	if (head->labels.pairs)
		json_put_key_string(
			&json, "transport",
			pairs_name(head->labels.pairs, route->trainer, route->inference));
	put_columns(&json, route, pieces);
	json_put_line_end(&json);
	text_fini(&transformed);
	drop_rows(&ranges);
	return 0;
}
