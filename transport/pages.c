/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/pages.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "transport/available.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_BYTES (UINT64_C(2) << 20) /* a device's table of addresses is shorter with these */

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

static void *map_any(struct pages *pages, uint64_t bytes, const char *who)
{
	void *memory;

	pages->bytes = memory_round_up(bytes, HUGE_BYTES);
	if (bytes >= HUGE_BYTES) {
		memory = map(pages->bytes, MAP_HUGETLB);
		pages->huge = memory != NULL;
		if (memory)
			return memory;
		/* from a multiple of a huge page on, which is where the kernel puts one */
		memory = memory_map_aligned(pages->bytes, HUGE_BYTES, PROT_READ | PROT_WRITE);
		if (memory && madvise(memory, pages->bytes, MADV_HUGEPAGE) != 0)
			log_debug("%s: this kernel gives no huge pages on advice (errno %d)", who,
				  errno);
		return memory;
	}
	pages->bytes = memory_round_up(bytes, memory_page_bytes());
	return map(pages->bytes, 0);
}

int pages_map(struct pages *pages, uint64_t bytes, const char *who, struct error *error)
{
	char wanted[TEXT_SHORT_BYTES];
	int rc = available_check(bytes, "a region", "memory", error);

	*pages = (struct pages){0};
	if (rc)
		return rc;
	pages->memory = map_any(pages, bytes, who);
	if (!pages->memory)
		return error_set_errno(error, ERROR_MEMORY, errno,
				       "a region of %s cannot be mapped",
				       bytes_text(pages->bytes, wanted));
	log_debug("%s: a region of %s in %s pages", who, bytes_text(pages->bytes, wanted),
		  pages->huge		      ? "reserved huge"
		  : pages->bytes < HUGE_BYTES ? "small"
					      : "transparent huge");
	rc = reserve(pages->memory, pages->bytes);
	if (!rc)
		return 0;
	pages_unmap(pages);
	return error_set_errno(error, ERROR_MEMORY, rc, "a region of %s cannot be reserved",
			       wanted);
}

void pages_unmap(struct pages *pages)
{
	if (pages->memory)
		munmap(pages->memory, pages->bytes);
	pages->memory = NULL;
}
