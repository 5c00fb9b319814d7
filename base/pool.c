/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <stdalign.h>
#include <string.h>

struct pool_block {
	struct pool_block *before;
	alignas(max_align_t) unsigned char bytes[];
};

void *pool_array(struct pool *pool, size_t count, size_t size)
{
	struct pool_block *block = NULL;
	size_t bytes;

	if (!__builtin_mul_overflow(count, size, &bytes) &&
	    !__builtin_add_overflow(bytes, sizeof(*block), &bytes))
		block = memory_zalloc(1, bytes);
	if (!block) {
		pool->failed = true;
		return NULL;
	}
	block->before = pool->last;
	pool->last = block;
	return block->bytes;
}

char *pool_string(struct pool *pool, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = pool_array(pool, 1, bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

bool pool_ok(const struct pool *pool)
{
	return !pool->failed;
}

void pool_free(struct pool *pool)
{
	while (pool->last) {
		struct pool_block *block = pool->last;

		pool->last = block->before;
		memory_free(block);
	}
	pool->failed = false;
}
