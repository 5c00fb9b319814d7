/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h -- the project's only way to the heap.
 *
 * Every allocation passes here, so a test can make the k-th one fail and sweep k until the
 * call under test succeeds. Sizes are checked for overflow. Thread safe.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

/* NULL when out of memory; count * size overflow counts as out of memory. Zero bytes gives a
 * valid pointer. */
void *memory_alloc(size_t bytes);
void *memory_zalloc(size_t count, size_t size);
void *memory_resize(void *old, size_t count, size_t size); /* old stays valid on NULL */
void *memory_aligned(size_t alignment, size_t bytes);      /* free with memory_free */
char *memory_string(const char *text);                     /* copy; NULL when out of memory */
char *memory_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
void memory_free(void *pointer);                           /* NULL is fine */
/* Not of the heap: whole pages of no file from a multiple of `alignment` on, with PROT_* as mmap() takes
 * it, until munmap(); NULL with errno. */
void *memory_map_aligned(size_t bytes, size_t alignment, int protection);
uint64_t memory_page_bytes(void);
/* Of mapped memory that has its pages somewhere: maps them here in one go, where else the first touch of each would be a
 * fault. Advice: where the kernel has none of it (before Linux 5.14), nothing happens. */
void memory_map_pages(const void *memory, uint64_t bytes);
/* The least multiple of `unit` that is not below. */
static inline uint64_t memory_round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Sets "out of memory while <what> (<bytes> bytes)" and returns -ERROR_MEMORY. */
int memory_error(struct error *error, const char *what, size_t bytes);

/* Fault injection for tests: the k-th allocation from now (1 is the next) fails once; 0 turns
 * it off. memory_count() counts all allocations of the process so far. */
void memory_fail_at(uint64_t k);
uint64_t memory_count(void);

#endif
