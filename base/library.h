/* SPDX-License-Identifier: Apache-2.0
 *
 * library.h -- functions of a library that is opened when it is wanted, so that programs start on hosts without it:
 *
 *   rows: symbol, version, place ─► library_fill(dlopen(..), rows ..) ─► a table of the library's functions
 *
 * Versions are those of the headers that we are built with; another version of a symbol may fill longer structs.
 */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#define LIBRARY_WHY_BYTES 256

struct library_row {
	const char *symbol, *version; /* version NULL: of a library whose symbols have none */
	size_t at; /* of the pointer in the table */
};

/* library: what dlopen() just gave in this thread. False: it is NULL or lacks a symbol, and `why` is dlerror()'s text. */
bool library_fill(void *library, const struct library_row *rows, size_t count, void *table,
		  char why[LIBRARY_WHY_BYTES]);

#endif
