/* SPDX-License-Identifier: Apache-2.0
 *
 * interfaces.h -- what a rail can be of, and which of them are taken.
 */
#ifndef TRANSPORT_OFI_INTERFACES_H
#define TRANSPORT_OFI_INTERFACES_H

#include "transport/ofi/records.h"

struct ofi_interface {
	char name[OFI_RAIL_NAME_BYTES];
	struct ofi_address addresses[OFI_ADDRESSES_MAX]; /* of IP: IPv4 first; without a port */
	uint32_t address_count;
	uint32_t speed_mbps;         /* 0: not known */
	bool loopback, has_route;    /* has_route: the default route leaves through it */
	bool link_local;             /* IP: no address but link-local ones, so it is never taken */
};

/* Interfaces of this host that are up and have an address another host can use, or loopback's; after
 * them those with link-local addresses alone, so that messages can say so. */
int ofi_interfaces_read(struct ofi_interface *out, uint32_t capacity, uint32_t *count,
			struct error *error);
/* `names` as --nic has them: "eth0,eth1", or by rank "0=eth0,1=eth1"; "": the one of the default
 * route, or the only one that there is, or loopback. Chosen ones come to the front of `all`, in the
 * order asked for; *count is how many. ERROR_CONFIG tells what there is. Pure. */
int ofi_interfaces_choose(struct ofi_interface *all, uint32_t *count, const char *names,
			  const char *names_from, uint32_t rank, struct error *error);
/* The same of devices that are for data alone (EFA's): "" takes all of them. Where there are more than
 * `most`, ranks start with different ones, so that processes of one host use all between them. */
int ofi_devices_choose(struct ofi_interface *all, uint32_t *count, uint32_t most, const char *names,
		       const char *names_from, uint32_t rank, struct error *error);

#endif
