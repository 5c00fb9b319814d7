/* SPDX-License-Identifier: Apache-2.0
 *
 * update_payload.h -- signals of the other end, read as the payloads of update.h and checked as far
 * as they can be without the update they are about: tag, length, opening, ranges, text. Nothing of
 * a payload is looked at before its length is right. Pure; no allocation.
 */
#ifndef WORKER_UPDATE_UPDATE_PAYLOAD_H
#define WORKER_UPDATE_UPDATE_PAYLOAD_H

#include "base/error.h"
#include "worker/update/update.h"

/* What this end knows of the pair when a signal comes. */
struct update_pair {
	const char *name;   /* the other end, for messages */
	struct digest plan;
	uint64_t opening;   /* trainer: of the ACCEPT read last; inference rank: of the permission
			       that is out. 0: none */
	uint32_t copies;    /* trainer: of the rank's memory */
};

/* A trainer's side. ERROR_MESSAGE names the pair and what is wrong; *out is then as it was. */
int update_read_accept(const struct transport_signal *signal, const struct update_pair *pair,
		       struct update_accept *out, struct error *error);
/* The same of what was taken, as a TAKEN or an ACCEPT says it, while an update is open; pair->opening is that update's. */
int update_read_taken(const struct transport_signal *signal, const struct update_pair *pair,
		      struct update_taken *out, struct error *error);
/* An inference rank's side: END fills *end, ABORT *gone, LANDED *landed; *tag says which. The END's plan, bytes
 * and counts are checked against the update that is waited for, by who waits. */
int update_read_use(const struct transport_signal *signal, const struct update_pair *pair,
		    enum update_tag *tag, struct update_end *end, struct update_abort *gone,
		    struct update_landed *landed, struct error *error);
/* Of an inference rank that this one agrees with (commit.h): by its tag, which *tag gets, the one that decides for this
 * rank fills *release or *give_up, any other *arrive, *give_up or *later. */
struct update_meet {
	enum update_tag tag;
	struct update_arrive arrive;
	struct update_release release;
	struct update_give_up give_up;
	struct update_later later;
};
int update_read_meet(const struct transport_signal *signal, const char *name, bool decides, struct update_meet *out,
		     struct error *error);

#endif
