/* SPDX-License-Identifier: Apache-2.0
 *
 * grid.h -- a table that a command prints: columns as rows of a table, cells as text.
 *
 *   static const struct grid_column columns[] = {
 *           COLUMN("name", -19), COLUMN("class", -22, .least = 9), COLUMN("bytes", 17)};
 *   grid_begin(&grid, columns, ARRAY_SIZE(columns));
 *   grid_row(&grid, (const char *[]){name, class, GROUPED_TEXT(bytes)});
 *   grid_end(&grid);
 *
 * A pipe or a file gets the columns as they are declared, longer cells as long as they are. On a terminal columns
 * with a `least` give way where the line is too long for it, and cells that stand to the left are cut in the
 * middle; where that does not do, the table comes in several blocks, each beginning with the first column:
 *
 *   policy      largest   gap  imbalance          policy      routes  sessions
 *   greedy       630 MB   0 %      1.276          greedy        4640         2
 */
#ifndef CLI_GRID_H
#define CLI_GRID_H

#include "base/array.h"
#include <stdbool.h>
#include <stddef.h>

#define GRID_COLUMNS_MAX 1026

struct grid_column {
	const char *head;   /* NULL: the line of heads ends before it */
	int width;          /* of the cell, text to the right; negative: to the left; 0: to the left, as long
	                       as it is, but `least` where rows are out before that is known */
	const char *before; /* NULL: a blank, in front of the first column nothing */
	int least;          /* a terminal may make it as narrow as that; 0: it may not */
	bool folds;         /* of the last one: what does not fit stands on the line below */
	bool spare;         /* says again what another says: a terminal that is too narrow goes without */
	const char *group;  /* a head above those of all neighbours of the same group */
};

/* A row of such a table: COLUMN("name", -19), or COLUMN("name", -19, .least = 9). */
#define COLUMN(text, columns, ...)                      \
	{                                               \
		.head = (text), .width = (columns), __VA_ARGS__ \
	}

struct grid {
	const struct grid_column *columns;
	size_t count;
	bool slow;            /* rows are out as they come, if the line can be made to fit beforehand */
	bool kept;            /* rows are kept until the end */
	int *widths;          /* of rows that are out as they come; NULL: as declared */
	ARRAY(char *) cells;  /* count of each row; NULL: the row ends before it, or it is a line */
	ARRAY(char *) lines;  /* by row: NULL, or a line of its own between rows */
};

void grid_begin(struct grid *grid, const struct grid_column *columns, size_t count);
/* The same for rows that are long in coming. */
void grid_begin_slow(struct grid *grid, const struct grid_column *columns, size_t count);
/* `count` cells; a NULL ends the row. They are copied where they are kept. */
void grid_row(struct grid *grid, const char *const *cells);
/* A line between two rows; it is folded, if anything. */
void grid_line(struct grid *grid, const char *line);
void grid_end(struct grid *grid);

/* The text of a cell; good until the 32nd call after. */
const char *grid_cell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
