/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static _Atomic uint64_t allocations;
static _Atomic uint64_t fail_at; /* value of `allocations` at which to fail; 0 never */

static bool must_fail(void)
{
	uint64_t now = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;

	return atomic_load_explicit(&fail_at, memory_order_relaxed) == now;
}

void memory_fail_at(uint64_t k)
{
	atomic_store(&fail_at, k ? atomic_load(&allocations) + k : 0);
}

uint64_t memory_count(void)
{
	return atomic_load(&allocations);
}

void *memory_alloc(size_t bytes)
{
	return must_fail() ? NULL : malloc(bytes ? bytes : 1);
}

void *memory_zalloc(size_t count, size_t size)
{
	if (must_fail())
		return NULL;
	return count && size ? calloc(count, size) : calloc(1, 1);
}

void *memory_resize(void *old, size_t count, size_t size)
{
	size_t bytes;

	if (must_fail() || __builtin_mul_overflow(count, size, &bytes))
		return NULL;
	return realloc(old, bytes ? bytes : 1);
}

void *memory_aligned(size_t alignment, size_t bytes)
{
	void *pointer = NULL;

	if (must_fail() || posix_memalign(&pointer, alignment, bytes ? bytes : alignment) != 0)
		return NULL;
	return pointer;
}

char *memory_string(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = memory_alloc(bytes);

	if (copy)
		memcpy(copy, text, bytes);
	return copy;
}

char *memory_format(const char *format, ...)
{
	va_list args, again;
	char *text = NULL;
	int n;

	va_start(args, format);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, format, args);
	if (n >= 0)
		text = memory_alloc((size_t)n + 1);
	if (text)
		vsnprintf(text, (size_t)n + 1, format, again);
	va_end(again);
	va_end(args);
	return text;
}

void memory_free(void *pointer)
{
	free(pointer);
}

void *memory_map_aligned(size_t bytes, size_t alignment, int protection)
{
	size_t more = bytes + alignment, skip;
	unsigned char *range = mmap(NULL, more, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (range == MAP_FAILED)
		return NULL;
	skip = memory_round_up((uintptr_t)range, alignment) - (uintptr_t)range;
	if (skip)
		munmap(range, skip);
	munmap(range + skip + bytes, more - skip - bytes);
	return range + skip;
}

uint64_t memory_page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

void memory_map_pages(const void *memory, uint64_t bytes)
{
	uintptr_t page = memory_page_bytes(), at = (uintptr_t)memory / page * page;
	int before = errno;

	madvise((void *)at, memory_round_up((uintptr_t)memory + bytes - at, page),
		MADV_POPULATE_READ);
	errno = before;
}

int memory_error(struct error *error, const char *what, size_t bytes)
{
	return error_set(error, ERROR_MEMORY, "out of memory while %s (%zu bytes)", what, bytes);
}
