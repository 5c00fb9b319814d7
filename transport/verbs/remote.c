/* SPDX-License-Identifier: Apache-2.0
 *
 * remote.c -- a peer's region: keys and addresses, believed as far as the record can be. Nothing is
 * asked of the peer, so what a record of an earlier life would break is refused by its nonce.
 */
#include "transport/verbs/verbs.h"

#include <inttypes.h>

int verbs_remote_check(const struct transport_remote *remote, struct error *error)
{
	const struct verbs_endpoint *endpoint = remote->endpoint->state;
	const struct verbs_region_record *record = remote->state;

	if (record->nonce != endpoint->peer.nonce)
		return error_set(error, ERROR_MESSAGE,
				 "the region's record was made by process %" PRIu64
				 " and the endpoint's by process %" PRIu64
				 ": one of them is of an earlier life of %s",
				 record->identity.pid, endpoint->peer.identity.pid,
				 remote->endpoint->name);
	if (record->nic_count != endpoint->peer.nic_count)
		return error_set(
			error, ERROR_MESSAGE,
			"the region's record has keys for %u NICs and the endpoint's names "
			"%u",
			record->nic_count, endpoint->peer.nic_count);
	return 0;
}

int verbs_remote_import(struct transport_remote *remote, struct record_reader *reader,
			struct error *error)
{
	const struct verbs_domain *domain = remote->endpoint->domain->state;
	const struct verbs_endpoint *endpoint = remote->endpoint->state;
	struct verbs_region_record *record = memory_zalloc(1, sizeof(*record));
	int rc;

	if (!record)
		return memory_error(error, "importing a region", sizeof(*record));
	remote->state = record;
	rc = verbs_region_record_get(reader, remote->bytes, record, error);
	if (!rc)
		rc = verbs_identity_check(domain, &record->identity, error);
	if (!rc && endpoint->connected)
		rc = verbs_remote_check(remote, error);
	if (rc) {
		remote->state = NULL;
		memory_free(record);
	}
	return rc;
}

void verbs_remote_close(struct transport_remote *remote)
{
	memory_free(remote->state);
}
