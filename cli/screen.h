/* SPDX-License-Identifier: Apache-2.0
 *
 * screen.h -- tables that fit the terminal: a column of names is as wide as the rest of the line leaves it.
 * What is no terminal (a pipe, a file) gets every name whole, in the width that the table always had.
 */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include <stddef.h>

/* Columns of standard output, from 80 to 200: COLUMNS if it is set, else what the terminal says. 0 where
 * that is no terminal: as wide as it likes. */
int screen_columns(void);
/* How wide a column of names is, beside `others` columns; `usual` where nothing has to fit. */
int screen_name_width(int usual, int others);
/* The name, or its beginning and end where it is longer than `width` on a terminal; good until the eighth call
 * after. */
const char *screen_name(const char *name, int width);

#endif
