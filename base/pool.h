/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h -- arrays that live and die together: those of one struct, or of one piece of work.
 *
 *   struct pool pool = {0};
 *   a = pool_array(&pool, n, sizeof(*a));
 *   b = pool_array(&pool, m, sizeof(*b));
 *   if (!pool_ok(&pool))
 *           ...                            out of memory is sticky, as in struct text
 *   pool_free(&pool);
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/memory.h"

struct pool {
	struct pool_block *last;
	bool failed;
};

/* Zeroed; NULL when out of memory. */
void *pool_array(struct pool *pool, size_t count, size_t size);
/* A copy; NULL when out of memory. */
char *pool_string(struct pool *pool, const char *text);
bool pool_ok(const struct pool *pool);
/* Everything in it; an empty pool is fine, and may be used again. */
void pool_free(struct pool *pool);

#endif
