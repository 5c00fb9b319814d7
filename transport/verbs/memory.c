/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- regions of weft's own: zeroed, in huge pages where there are any (a device's table of
 * addresses is shorter then), and all of it taken at once.
 */
#include "transport/verbs/verbs.h"

#include "base/log.h"
#include "base/text.h"
#include "transport/available.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void *map(uint64_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Takes all pages now: later, on a first touch, a lack of memory is a signal and no answer. */
static int reserve(void *memory, uint64_t bytes)
{
	volatile unsigned char *at = memory;
	int rc;

	do
		rc = madvise(memory, bytes, MADV_POPULATE_WRITE);
	while (rc != 0 && (errno == EINTR || errno == EAGAIN));
	if (rc == 0 || errno != EINVAL)
		return rc ? errno : 0;
	for (uint64_t i = 0; i < bytes; i += memory_page_bytes()) /* Linux before 5.14 */
		at[i] = 0;
	return 0;
}

static void *map_memory(struct verbs_region *verbs, uint64_t bytes)
{
	void *memory;

	verbs->mapped_bytes = memory_round_up(bytes, VERBS_HUGE_BYTES);
	if (bytes >= VERBS_HUGE_BYTES) {
		memory = map(verbs->mapped_bytes, MAP_HUGETLB);
		verbs->huge = memory != NULL;
		if (memory)
			return memory;
		/* from a multiple of a huge page on, which is where the kernel puts one */
		memory = memory_map_aligned(verbs->mapped_bytes, VERBS_HUGE_BYTES,
					    PROT_READ | PROT_WRITE);
		if (memory && madvise(memory, verbs->mapped_bytes, MADV_HUGEPAGE) != 0)
			log_debug("verbs: this kernel gives no huge pages on advice (errno %d)",
				  errno);
		return memory;
	}
	verbs->mapped_bytes = memory_round_up(bytes, memory_page_bytes());
	return map(verbs->mapped_bytes, 0);
}

int verbs_memory_map(struct verbs_region *verbs, uint64_t bytes, void **memory, struct error *error)
{
	char wanted[TEXT_SHORT_BYTES];
	int rc = available_check(bytes, "a region", "memory", error);

	*memory = NULL;
	if (rc)
		return rc;
	*memory = map_memory(verbs, bytes);
	if (!*memory)
		return error_set_errno(error, ERROR_MEMORY, errno,
				       "a region of %s cannot be mapped",
				       bytes_text(verbs->mapped_bytes, wanted));
	log_debug("verbs: a region of %s in %s pages", bytes_text(verbs->mapped_bytes, wanted),
		  verbs->huge				   ? "reserved huge"
		  : verbs->mapped_bytes < VERBS_HUGE_BYTES ? "small"
							   : "transparent huge");
	rc = reserve(*memory, verbs->mapped_bytes);
	if (!rc)
		return 0;
	verbs_memory_unmap(verbs, *memory);
	*memory = NULL;
	return error_set_errno(error, ERROR_MEMORY, rc, "a region of %s cannot be reserved",
			       bytes_text(verbs->mapped_bytes, wanted));
}

void verbs_memory_unmap(const struct verbs_region *verbs, void *memory)
{
	munmap(memory, verbs->mapped_bytes);
}
