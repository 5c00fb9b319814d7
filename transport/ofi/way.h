/* SPDX-License-Identifier: Apache-2.0
 *
 * way.h -- how a rail is found and a lane comes to its peer: one row a kind of libfabric endpoint.
 *
 *   connect_way  FI_EP_MSG   tcp   the trainer's side dials, the other side's thread accepts
 *   address_way  FI_EP_RDM   efa   each side puts the other's address into its table
 */
#ifndef TRANSPORT_OFI_WAY_H
#define TRANSPORT_OFI_WAY_H

#include "transport/ofi/ofi.h"

struct ofi_way {
	enum fi_ep_type type;
	bool stream;                 /* lanes keep order; a region can be closed only once none is inside of it */
	bool takes_all;              /* without --nic: all interfaces, they are for nothing else */
	/* The interfaces there are. */
	int (*interfaces)(const struct ofi_domain *domain, struct ofi_interface *out,
			  uint32_t capacity, uint32_t *count, struct error *error);
	/* rail->info for rail->interface. */
	int (*info)(struct ofi_rail *rail, struct error *error);
	/* After fabric, domain and queues are there: addresses that peers are told. */
	int (*listen)(struct ofi_rail *rail, struct error *error);
	/* Lanes of an endpoint that is being opened. */
	int (*open)(struct ofi_endpoint *endpoint, struct error *error);
	/* The addresses of each lane, for the record. */
	int (*describe)(struct ofi_endpoint *endpoint, struct ofi_endpoint_record *record,
			struct error *error);
	int (*connect)(struct ofi_endpoint *endpoint, struct error *error);
	/* A lane whose fid_ep is closed: what else there is of it; the caller holds rail->lock. */
	void (*forget)(struct ofi_lane *lane);
	/* What the queue of events has; the caller holds rail->lock. */
	void (*events)(struct ofi_rail *rail);
};

extern const struct ofi_way ofi_connect_way, ofi_address_way;

#endif
