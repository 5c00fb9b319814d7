/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.h -- what a user may set about the verbs path: one row a setting in settings.c, each
 * an environment variable, with its range. docs/verbs.md lists them.
 */
#ifndef TRANSPORT_VERBS_SETTINGS_H
#define TRANSPORT_VERBS_SETTINGS_H

#include "base/error.h"
#include <stdint.h>

#define VERBS_NICS_TEXT_BYTES 256

enum verbs_tristate { VERBS_AUTO, VERBS_ON, VERBS_OFF };

struct verbs_settings {
	char nics[VERBS_NICS_TEXT_BYTES]; /* "": choose */
	const char *nics_from;            /* "--nic", "WEFT_NIC", "NCCL_IB_HCA" or "" */
	int32_t gid_index;                /* -1: choose */
	const char *gid_from;             /* "WEFT_GID_INDEX", "NCCL_IB_GID_INDEX" or "" */
	uint32_t qps;                     /* per (peer, NIC): 1..8, default 2 */
	uint32_t depth;                   /* of one send queue: 16..4096, default 128 */
	uint32_t receive_depth;           /* signals a NIC can hold unread: default 4096 */
	uint64_t chunk_bytes;             /* default 1 MiB; 4 KiB..16 MiB, a multiple of 4 KiB */
	uint32_t timeout;                 /* exponent: 4.096 us * 2^timeout; default 17, 1..31 */
	uint32_t retry;                   /* default 6; 7 is refused: some devices never give up */
	uint32_t rnr_retry;               /* default 7: without end, our deadline ends it */
	uint32_t rnr_timer;               /* min_rnr_timer code, default 12 (0.64 ms) */
	uint32_t mtu;                     /* bytes, at most; 0: the smaller of both ports */
	int32_t traffic_class;            /* -1: what sysfs says, else 0 */
	uint32_t service_level;
	enum verbs_tristate relaxed;      /* relaxed ordering on data regions */
	enum verbs_tristate new_post;     /* ibv_wr_*: AUTO tries it, OFF is ibv_post_send */
};

void verbs_settings_default(struct verbs_settings *settings);
/* Defaults, then the environment through `get` (getenv in life), then nics (the --nic flag; ""
 * is none). ERROR_CONFIG names variable, value and range. */
int verbs_settings_read(struct verbs_settings *settings, const char *nics,
			char *(*get)(const char *name), struct error *error);

/* 4.096 us * 2^exponent, the least time of one try. Devices may take up to four times that. */
uint64_t verbs_timeout_ns(uint32_t exponent);
/* All tries: timeout * (retry + 1). */
uint64_t verbs_retry_ns(uint32_t exponent, uint32_t retry);

#endif
