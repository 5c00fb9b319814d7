/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_peer.h -- what the two hosts of `weft doctor --peer` say to each other.
 *
 *   --peer (trainer 0)                           --serve (inference rank 0)
 *   about: version, host name, rails ◄─────────► about
 *   the link of bench_write.h: settings, records, connect, probe
 *   write n bytes, signal; check n ────────────► waits for the signal, sums its own memory
 *                                  ◄── checked ─
 *   ping; signal ══► ◄══ signal, over and over   answers every signal with one
 *                                  ◄───── pong ─
 *   bye
 */
#ifndef CLI_DOCTOR_PEER_H
#define CLI_DOCTOR_PEER_H

#include "cli/bench_write.h"
#include "cli/doctor.h"

#define DOCTOR_TOOL         "doctor"
#define DOCTOR_REGION_BYTES (UINT64_C(1) << 20)
#define DOCTOR_STEP_NS      UINT64_C(20000000000) /* the other side has that long for a step */
#define DOCTOR_TAG         0x646f6374u
#define DOCTOR_PINGS_MAX    10000

struct doctor_rail {
	unsigned char gid[16];
	uint32_t prefix_bits;
};

/* What we know of the other side. */
struct doctor_about {
	char host[64];
	uint32_t rail_count;
	struct doctor_rail rails[VERBS_NICS_MAX];
};

/* Ours goes, theirs comes; another version of weft is ERROR_WIRE_VERSION. */
int doctor_about_swap(const struct doctor *doctor, struct exchange *exchange,
		      struct doctor_about *theirs, struct error *error);
/* Waits for the peer's signal with at least this sequence. */
int doctor_signal_wait(struct write_link *link, uint64_t sequence, struct error *error);

#endif
