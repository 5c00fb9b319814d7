/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/available.h"

#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number at the start of a small file, or UINT64_MAX ("max", or no such file). */
static uint64_t file_number(const char *path, const char *key)
{
	char line[256];
	uint64_t value = UINT64_MAX;
	FILE *file = fopen(path, "re");
	size_t n = strlen(key);

	while (file && fgets(line, sizeof(line), file)) {
		char *end;

		if (strncmp(line, key, n) != 0)
			continue;
		value = strtoull(line + n, &end, 10);
		if (end == line + n)
			value = UINT64_MAX;
		break;
	}
	if (file)
		fclose(file);
	return value;
}

int available_check(uint64_t bytes, const char *what, const char *kind, struct error *error)
{
	uint64_t kib = file_number("/proc/meminfo", "MemAvailable:");
	uint64_t swap = file_number("/proc/meminfo", "SwapFree:");
	uint64_t limit = file_number("/sys/fs/cgroup/memory.max", "");
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
