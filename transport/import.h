/* SPDX-License-Identifier: Apache-2.0
 *
 * import.h -- records as far as all providers share them: a peer's checked, our own begun.
 */
#ifndef TRANSPORT_IMPORT_H
#define TRANSPORT_IMPORT_H

#include "transport/provider.h"

/* The head belongs to this job, provider and peer; ERROR_MESSAGE if not. */
int import_open(const struct transport_endpoint *endpoint, enum record_kind kind,
		const void *record, size_t length, struct record_reader *reader,
		struct record_head *head, struct error *error);
/* The same of a record of another provider than the endpoint's. */
int import_open_as(const struct transport_endpoint *endpoint, const char *provider,
		   enum record_kind kind, const void *record, size_t length,
		   struct record_reader *reader, struct record_head *head, struct error *error);
/* The other way: a record of this domain, up to its body; of `head` its kind, peer and bytes. */
int export_begin(const struct transport_domain *domain,
		 unsigned char record[TRANSPORT_RECORD_BYTES], const struct record_head *head,
		 struct record_writer *writer, struct error *error);
/* Lets go of the peer's memory; the object stays, as a remote of no endpoint. */
void import_detach(struct transport_remote *remote);

#endif
