/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/settings.h"

#include "base/array.h"
#include "base/text.h"
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A number that a variable sets. */
struct row {
	const char *variable;
	size_t offset, bytes;
	uint64_t least, most, multiple, standard;
	const char *words;
};

#define AT(field) offsetof(struct ofi_settings, field), sizeof(((struct ofi_settings *)0)->field)
#define MIB	  (UINT64_C(1) << 20)

static const struct row rows[] = {
	{"WEFT_STREAMS", AT(streams), 1, 8, 1, 2, "1 to 8 streams per peer and interface"},
	{"WEFT_STREAM_DEPTH", AT(depth), 2, 256, 1, 8, "2 to 256 writes in flight per stream"},
	{"WEFT_CHUNK_BYTES", AT(chunk_bytes), 4096, 16 * MIB, 4096, 0,
	 "4 KiB to 16 MiB and a multiple of 4 KiB, written like 1M or 262144"},
};

/* A piece is copied into its socket at once. What TCP cannot send meanwhile is left over, and a congestion control that
 * paces sends the rest with a timer a packet: there pieces are small. Elsewhere a piece costs its system calls alone. */
uint64_t ofi_chunk_standard(const char *congestion)
{
	bool paced = !*congestion || strncmp(congestion, "bbr", 3) == 0;

	return paced ? MIB / 2 : 2 * MIB;
}

static int row_read(struct ofi_settings *settings, const struct row *row,
		    char *(*get)(const char *name), struct error *error)
{
	const char *text = get(row->variable);
	uint64_t value = row->standard;

	if (text && *text &&
	    (!parse_bytes(text, &value) || value < row->least || value > row->most ||
	     value % row->multiple))
		return error_set(error, ERROR_CONFIG, "%s=%.64s: must be %s", row->variable, text,
				 row->words);
	if (row->bytes == sizeof(uint64_t))
		*(uint64_t *)((char *)settings + row->offset) = value;
	else
		*(uint32_t *)((char *)settings + row->offset) = (uint32_t)value;
	return 0;
}

static int ports_read(struct ofi_settings *settings, const char *text, struct error *error)
{
	unsigned low, high;
	int read = 0;

	if (!text || !*text)
		return 0;
	/* digits alone: sscanf() takes blanks and signs before a number */
	if (text[strspn(text, "0123456789-")] || text[0] == '-' || strstr(text, "--") ||
	    sscanf(text, "%5u-%5u%n", &low, &high, &read) != 2 || text[read] || !low ||
	    low > high || high > UINT16_MAX)
		return error_set(error, ERROR_CONFIG,
				 "WEFT_TCP_PORTS=%.64s: must be LOW-HIGH, ports from 1 to 65535, "
				 "like 30000-30100",
				 text);
	settings->port_low = low;
	settings->port_high = high;
	return 0;
}

static int nics_read(struct ofi_settings *settings, const char *nics,
		     char *(*get)(const char *name), struct error *error)
{
	const char *from = "--nic", *text = nics;

	if (!text || !*text) {
		from = "WEFT_NIC";
		text = get(from);
	}
	settings->nics_from = "";
	if (!text || !*text)
		return 0;
	if (strlen(text) >= sizeof(settings->nics))
		return error_set(error, ERROR_CONFIG,
				 "%s names interfaces in %zu characters (%.32s...): must be at "
				 "most %zu",
				 from, strlen(text), text, sizeof(settings->nics) - 1);
	for (size_t i = 0; text[i]; i++)
		if (!isgraph((unsigned char)text[i]))
			return error_set(error, ERROR_CONFIG,
					 "%s has a blank or an unprintable character at position "
					 "%zu: must be interface names like eth0,eth1 without "
					 "blanks",
					 from, i + 1);
	memcpy(settings->nics, text, strlen(text) + 1);
	settings->nics_from = from;
	return 0;
}

int ofi_settings_read(struct ofi_settings *settings, const char *nics,
		      char *(*get)(const char *name), struct error *error)
{
	int rc = 0;

	*settings = (struct ofi_settings){0};
	for (size_t i = 0; !rc && i < ARRAY_SIZE(rows); i++)
		rc = row_read(settings, &rows[i], get, error);
	if (!rc)
		rc = ports_read(settings, get("WEFT_TCP_PORTS"), error);
	return rc ? rc : nics_read(settings, nics, get, error);
}
