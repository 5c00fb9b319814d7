/* SPDX-License-Identifier: Apache-2.0 */
#include "job/dtype.h"

#include <string.h>
#include <strings.h>

static const struct {
	const char *name;
	uint32_t bytes;
} rows[DTYPE_COUNT] = {[DTYPE_NONE] = {"none", 0},
#define X(name, bytes) [DTYPE_##name] = {#name, bytes},
		       DTYPES(X)
#undef X
};

uint32_t dtype_bytes(enum dtype dtype)
{
	return (unsigned)dtype < DTYPE_COUNT ? rows[dtype].bytes : 0;
}

const char *dtype_name(enum dtype dtype)
{
	return (unsigned)dtype < DTYPE_COUNT ? rows[dtype].name : "none";
}

enum dtype dtype_from_name(const char *name)
{
	for (int i = 1; i < DTYPE_COUNT; i++)
		if (strcmp(rows[i].name, name) == 0)
			return (enum dtype)i;
	return DTYPE_NONE;
}

enum dtype dtype_from_text(const char *text)
{
	for (int i = 1; i < DTYPE_COUNT; i++)
		if (strcasecmp(rows[i].name, text) == 0)
			return (enum dtype)i;
	return DTYPE_NONE;
}
