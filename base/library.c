/* SPDX-License-Identifier: Apache-2.0 */
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool library_fill(void *library, const struct library_row *rows, size_t count, void *table,
		  char why[LIBRARY_WHY_BYTES])
{
	bool all = library != NULL;

	for (size_t i = 0; all && i < count; i++) {
		void *found = rows[i].version ? dlvsym(library, rows[i].symbol, rows[i].version)
					      : dlsym(library, rows[i].symbol);

		all = found != NULL;
		/* ISO C has no cast between the two kinds of pointers */
		memcpy((char *)table + rows[i].at, &found, sizeof(found));
	}
	snprintf(why, LIBRARY_WHY_BYTES, "%s", all ? "" : dlerror());
	return all;
}
