/* SPDX-License-Identifier: Apache-2.0
 *
 * ip.h -- addresses of IPv4 and IPv6 as records carry them, and which of a peer's is called. Pure.
 *
 *   bytes   family (4 or 6), prefix bits, port (2, network order), address (16; IPv4 in the first 4)
 */
#ifndef TRANSPORT_OFI_IP_H
#define TRANSPORT_OFI_IP_H

#include "transport/ofi/records.h"
#include <netinet/in.h>
#include <sys/socket.h>

#define IP_BYTES      20
#define IP_TEXT_BYTES 64

/* False: not of IP. The prefix is the interface's; 0 where it is not known. */
bool ip_from_sockaddr(struct ofi_address *address, const struct sockaddr *from, uint32_t prefix_bits);
/* Length of what was written; 0: not an address of IP. */
socklen_t ip_to_sockaddr(const struct ofi_address *address, struct sockaddr_storage *to);
/* "10.0.0.2:4711" or "[fd00::2]:4711", without the port where it is 0. */
const char *ip_text(const struct ofi_address *address, char text[IP_TEXT_BYTES]);
/* Whether `from` reaches `to` at all, and how well: 0 not (another family), 1 perhaps, 2 both are
 * of one subnet. */
int ip_reaches(const struct ofi_address *from, const struct ofi_address *to);
/* Loopback, or an address of one link alone, which another host cannot use. */
bool ip_is_loopback(const struct ofi_address *address);
bool ip_is_link_local(const struct ofi_address *address);

#endif
