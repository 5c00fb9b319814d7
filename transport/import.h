/* SPDX-License-Identifier: Apache-2.0
 *
 * import.h -- a peer's record, checked as far as all providers share it.
 */
#ifndef TRANSPORT_IMPORT_H
#define TRANSPORT_IMPORT_H

#include "transport/provider.h"

/* The head belongs to this job, provider and peer; ERROR_MESSAGE if not. */
int import_open(const struct transport_endpoint *endpoint, enum record_kind kind,
		const void *record, size_t length, struct record_reader *reader,
		struct record_head *head, struct error *error);
/* Lets go of the peer's memory; the object stays, as a remote of no endpoint. */
void import_detach(struct transport_remote *remote);

#endif
