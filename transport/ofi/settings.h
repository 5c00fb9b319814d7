/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.h -- what a user may set about tcp and efa: environment variables (docs/tcp.md lists them).
 */
#ifndef TRANSPORT_OFI_SETTINGS_H
#define TRANSPORT_OFI_SETTINGS_H

#include "base/error.h"
#include <stdint.h>

struct ofi_settings {
	char nics[256];          /* "": choose */
	const char *nics_from;   /* "--nic" or "WEFT_NIC" */
	uint32_t streams;        /* per (peer, interface): 1..8 */
	uint32_t depth;          /* writes in flight of one lane: 2..256 */
	uint64_t chunk_bytes;    /* 4 KiB..16 MiB, a multiple of 4 KiB; 0: ofi_chunk_standard() */
	uint32_t port_low, port_high; /* that a process listens on; 0: whatever is free */
};

/* The piece a write is cut into where nobody says, by the name of the host's congestion control ("": not known, or
 * no TCP). */
uint64_t ofi_chunk_standard(const char *congestion);

/* The environment through `get` (getenv in life), then nics (the --nic flag; "" is none).
 * ERROR_CONFIG names variable, value and range. */
int ofi_settings_read(struct ofi_settings *settings, const char *nics,
		      char *(*get)(const char *name), struct error *error);

#endif
