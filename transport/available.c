/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/available.h"

#include "base/file.h"
#include "base/text.h"
#include <stdlib.h>

/* A number at the start of a small file, or of the line of a key; UINT64_MAX: "max", or not there. */
static uint64_t file_number(const char *path, const char *key)
{
	char text[8192], *end;
	const char *at = text;
	uint64_t value;

	file_read_small(path, text, sizeof(text));
	if (key)
		at = text_line(text, key);
	if (!at)
		return UINT64_MAX;
	value = strtoull(at, &end, 10);
	return end == at ? UINT64_MAX : value;
}

int available_check(uint64_t bytes, const char *what, const char *kind, struct error *error)
{
	uint64_t kib = file_number("/proc/meminfo", "MemAvailable");
	uint64_t swap = file_number("/proc/meminfo", "SwapFree");
	uint64_t limit = file_number("/sys/fs/cgroup/memory.max", NULL);
	char wanted[TEXT_SHORT_BYTES], have[TEXT_SHORT_BYTES];
	uint64_t room = UINT64_MAX;

	if (kib != UINT64_MAX)
		room = (kib + (swap == UINT64_MAX ? 0 : swap)) * 1024;
	if (bytes > room)
		return error_set(error, ERROR_MEMORY, "%s needs %s of %s; this host has %s left",
				 what, bytes_text(bytes, wanted), kind, bytes_text(room, have));
	/* what is used counts page cache that would be given back: only the limit is
	 * certain */
	if (limit != UINT64_MAX && bytes > limit)
		return error_set(error, ERROR_MEMORY,
				 "%s needs %s of %s; the container's limit is %s "
				 "(memory.max)",
				 what, bytes_text(bytes, wanted), kind, bytes_text(limit, have));
	return 0;
}
