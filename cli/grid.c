/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/grid.h"

#include "cli/screen.h"
#include "base/assert.h"
#include "base/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_BYTES 256
#define BELOW	   "      " /* before what did not fit */

const char *grid_cell(const char *format, ...)
{
	static char kept[32][CELL_BYTES];
	static unsigned next;
	char *out = kept[next++ % ARRAY_SIZE(kept)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(out, CELL_BYTES, format, arguments);
	va_end(arguments);
	return out;
}

/* ---- one line ---- */

static const char *before(const struct grid *grid, size_t c)
{
	const char *text = grid->columns[c].before;

	return text ? text : c ? " " : "";
}

static void put_cell(const char *text, int width, bool left)
{
	int blanks = width - screen_length(text);

	if (blanks < 0)
		blanks = 0;
	printf("%*s%s%*s", left ? 0 : blanks, "", text, left ? blanks : 0, "");
}

/* Columns from .. to, and the first in front of them; widths NULL: as declared. */
struct block {
	size_t from, to;
	const int *widths;
};

/* Below 0: left out. */
static int width_in(const struct grid *grid, const struct block *block, size_t c)
{
	return block->widths ? block->widths[c] : abs(grid->columns[c].width);
}

static void put_row(const struct grid *grid, const struct block *block, const char *const *cells)
{
	int used = 0;

	for (size_t c = 0; c < block->to; c++) {
		const struct grid_column *column = &grid->columns[c];

		if ((c && c < block->from) || width_in(grid, block, c) < 0)
			continue;
		if (!cells[c])
			break;
		used += screen_length(before(grid, c));
		if (column->folds && block->widths &&
		    used + screen_length(cells[c]) > screen_columns()) {
			printf("\n" BELOW "%s", cells[c]);
			continue;
		}
		used += width_in(grid, block, c);
		fputs(before(grid, c), stdout);
		put_cell(block->widths && column->least && column->width <= 0
				 ? screen_cut(cells[c], block->widths[c])
				 : cells[c],
			 column->width <= 0 && block->widths && c + 1 == block->to
				 ? 0 /* nothing stands behind it */
				 : width_in(grid, block, c),
			 column->width <= 0);
	}
	putchar('\n');
}

/* Heads of groups stand at the right end of their columns. */
static void put_groups(const struct grid *grid, const struct block *block)
{
	for (size_t c = 0, end; c < block->to; c = end) {
		const struct grid_column *column = &grid->columns[c];
		int width = width_in(grid, block, c);

		end = c + 1;
		if ((c && c < block->from) || width < 0)
			continue;
		for (;
		     end < block->to && column->group && grid->columns[end].group == column->group;
		     end++)
			width += screen_length(before(grid, end)) + width_in(grid, block, end);
		printf("%s%*s", before(grid, c), width, column->group ? column->group : "");
	}
	putchar('\n');
}

static void put_heads(const struct grid *grid, const struct block *block)
{
	const char *heads[GRID_COLUMNS_MAX];
	bool any = false, groups = false;

	for (size_t c = 0; c < grid->count; c++) {
		heads[c] = grid->columns[c].head;
		any = any || heads[c];
		groups = groups || grid->columns[c].group;
	}
	if (groups)
		put_groups(grid, block);
	if (any)
		put_row(grid, block, heads);
}

static struct block whole(const struct grid *grid)
{
	return (struct block){0, grid->count, grid->widths};
}

/* ---- what fits ---- */

static int line_width(const struct grid *grid, const int *widths)
{
	int all = 0;

	for (size_t c = 0; c < grid->count; c++)
		if (!grid->columns[c].folds && widths[c] >= 0)
			all += screen_length(before(grid, c)) + widths[c];
	return all;
}

/* The longest cell; no less than declared where there is room for that. */
static void measure(const struct grid *grid, int *widths, bool declared)
{
	for (size_t c = 0; c < grid->count; c++) {
		const struct grid_column *column = &grid->columns[c];

		widths[c] = declared || !column->least ? abs(column->width) : 0;
		if (column->folds)
			continue;
		if (column->head && screen_length(column->head) > widths[c])
			widths[c] = screen_length(column->head);
		for (size_t at = c; at < grid->cells.count; at += grid->count)
			if (grid->cells.items[at] &&
			    screen_length(grid->cells.items[at]) > widths[c])
				widths[c] = screen_length(grid->cells.items[at]);
	}
}

/* What is spare goes, then the widest that may be cut gives first. */
static void shrink(const struct grid *grid, int *widths, int columns)
{
	for (size_t c = 0; c < grid->count && line_width(grid, widths) > columns; c++)
		if (grid->columns[c].spare)
			widths[c] = -1;
	while (line_width(grid, widths) > columns) {
		size_t widest = grid->count;

		for (size_t c = 0; c < grid->count; c++)
			if (grid->columns[c].least && widths[c] > grid->columns[c].least &&
			    (widest == grid->count || widths[c] > widths[widest]))
				widest = c;
		if (widest == grid->count)
			return;
		widths[widest]--;
	}
}

/* The next columns that fit behind the first one, at least one. */
static struct block next_block(const struct grid *grid, const int *widths, size_t from, int columns)
{
	struct block block = {from, from, widths};
	int all = from ? widths[0] : 0;

	for (; block.to < grid->count; block.to++) {
		if (!grid->columns[block.to].folds && widths[block.to] >= 0)
			all += screen_length(before(grid, block.to)) + widths[block.to];
		if (all > columns && block.to >= from + 1 + !from)
			break;
	}
	return block;
}

/* ---- the whole ---- */

/* Can rows be out before all are known? */
static bool fits_beforehand(struct grid *grid, int room)
{
	grid->widths = memory_zalloc(grid->count, sizeof(*grid->widths));
	if (!grid->widths)
		return true; /* as in a pipe */
	for (size_t c = 0; c < grid->count; c++)
		grid->widths[c] = grid->columns[c].width ? abs(grid->columns[c].width)
							 : grid->columns[c].least;
	shrink(grid, grid->widths, room);
	if (line_width(grid, grid->widths) <= room)
		return true;
	memory_free(grid->widths);
	grid->widths = NULL;
	return false;
}

static void begin(struct grid *grid, const struct grid_column *columns, size_t count, bool slow)
{
	int room = screen_columns();
	struct block all;

	WEFT_ASSERT_OP(count, <=, GRID_COLUMNS_MAX);
	*grid = (struct grid){.columns = columns, .count = count, .slow = slow};
	grid->kept = room && !(slow && fits_beforehand(grid, room));
	all = whole(grid);
	if (!grid->kept)
		put_heads(grid, &all);
}

void grid_begin(struct grid *grid, const struct grid_column *columns, size_t count)
{
	begin(grid, columns, count, false);
}

void grid_begin_slow(struct grid *grid, const struct grid_column *columns, size_t count)
{
	begin(grid, columns, count, true);
}

static void forget(struct grid *grid)
{
	for (size_t i = 0; i < grid->cells.count; i++)
		memory_free(grid->cells.items[i]);
	for (size_t i = 0; i < grid->lines.count; i++)
		memory_free(grid->lines.items[i]);
	array_free(&grid->cells);
	array_free(&grid->lines);
	memory_free(grid->widths);
	grid->widths = NULL;
}

static void put_rows(const struct grid *grid, const struct block *block)
{
	for (size_t r = 0; r < grid->lines.count; r++)
		if (!grid->lines.items[r])
			put_row(grid, block,
				(const char *const *)grid->cells.items + r * grid->count);
		else if (block->from == 0)
			printf("%s\n", grid->lines.items[r]);
}

/* No memory to keep more: what there is, and all that comes, as in a pipe. */
static void keep_no_more(struct grid *grid)
{
	struct block all = whole(grid);

	while (grid->cells.count > grid->lines.count * grid->count)
		memory_free(grid->cells.items[--grid->cells.count]); /* of a row that is none */
	put_heads(grid, &all);
	put_rows(grid, &all);
	forget(grid);
	grid->kept = false;
}

static bool keep(struct grid *grid, const char *const *cells, const char *line)
{
	char *copy = line ? memory_string(line) : NULL;
	bool end = line != NULL;

	if (line && !copy)
		return false;
	for (size_t c = 0; c < grid->count; c++) {
		char *cell;

		end = end || !cells[c];
		cell = end ? NULL : memory_string(cells[c]);
		if ((!end && !cell) || !array_add(&grid->cells, cell)) {
			memory_free(cell);
			memory_free(copy);
			return false;
		}
	}
	if (array_add(&grid->lines, copy))
		return true;
	memory_free(copy);
	return false;
}

static void add(struct grid *grid, const char *const *cells, const char *line)
{
	struct block all = whole(grid);

	if (grid->kept && keep(grid, cells, line))
		return;
	if (grid->kept)
		keep_no_more(grid);
	if (line)
		printf("%s\n", line);
	else
		put_row(grid, &all, cells);
	if (grid->slow)
		screen_flush();
}

void grid_row(struct grid *grid, const char *const *cells)
{
	add(grid, cells, NULL);
}

void grid_line(struct grid *grid, const char *line)
{
	add(grid, NULL, line);
}

void grid_end(struct grid *grid)
{
	int widths[GRID_COLUMNS_MAX], columns = screen_columns();
	size_t from = 0;

	if (!grid->kept) {
		forget(grid);
		return;
	}
	measure(grid, widths, true);
	if (line_width(grid, widths) > columns)
		measure(grid, widths, false);
	shrink(grid, widths, columns);
	while (from < grid->count) {
		struct block block = next_block(grid, widths, from, columns);

		if (from)
			putchar('\n');
		put_heads(grid, &block);
		put_rows(grid, &block);
		from = block.to;
	}
	forget(grid);
}
