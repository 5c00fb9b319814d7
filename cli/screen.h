/* SPDX-License-Identifier: Apache-2.0
 *
 * screen.h -- what a command prints fits the terminal: tables are as wide as that (grid.h), and every other
 * line that is longer is folded at a blank, under its own beginning:
 *
 *   PASS  locked-memory      locked memory: soft 8 MiB, hard 8 MiB;
 *                            already pinned 0 MiB
 *
 * What is no terminal (a pipe, a file) gets every line and every name whole, and so does --json.
 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include <stddef.h>

#define SCREEN_LEAST 80
#define SCREEN_MOST  200

/* Columns of standard output, from 80 to 200: COLUMNS if it is set, else what the terminal says. 0 where
 * that is no terminal: as wide as it likes. */
int screen_columns(void);
/* How wide a part of a line is, a bar for example, beside `others` columns; `usual` where nothing has to fit. */
int screen_width(int usual, int others);

/* Columns that the text takes, colours and marks above letters not counted. */
int screen_length(const char *text);
/* The text, or where it is longer than `width` its beginning and end, with ".." between; good until the eighth
 * call after. */
const char *screen_cut(const char *text, int width);

/* From now on standard output folds; nothing happens where it is no terminal. Lines that are complete are
 * out at once. */
void screen_fold(void);

/* What was printed is out now; a failure is remembered, since nothing after it tells why. */
void screen_flush(void);
/* 0, or an errno: all that was printed is out, or the first failure. */
int screen_failed(void);

#endif
