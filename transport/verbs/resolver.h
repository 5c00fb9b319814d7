/* SPDX-License-Identifier: Apache-2.0
 *
 * resolver.h -- which device, port and GID of this host reach a peer's address, asked from
 * librdmacm; it makes no connection and owns no data path. The only file of the project that
 * knows librdmacm is resolver.c.
 */
#ifndef TRANSPORT_VERBS_RESOLVER_H
#define TRANSPORT_VERBS_RESOLVER_H

#include "base/error.h"
#include "transport/verbs/facts.h"
#include <stdint.h>

struct resolver_path {
	char device[VERBS_NAME_BYTES];
	uint8_t port;
	unsigned char local_gid[16], remote_gid[16];
	char source[64], destination[64]; /* addresses as text */
	uint32_t mtu;                /* bytes, of the path; 0 when the route was not resolved */
	uint32_t hop_limit, traffic_class, service_level, flow_label;
};

/* what to do about a missing library */
#define RESOLVER_INSTALL                                                                          \
	"install librdmacm1 (Debian, Ubuntu) or librdmacm (Red Hat), in the container too"
/* [any thread] Why librdmacm cannot be opened, or NULL: it is. */
const char *resolver_missing(void);

/* host: a name or an address, IPv4 or IPv6. source: an address of this host, or NULL. Errors are
 * distinct messages: no such host; no route from here (ENETUNREACH); no answer to address
 * resolution (host down, other subnet); no RDMA device on that route; librdmacm not usable. */
int resolver_resolve(const char *host, const char *source, uint32_t timeout_ms,
		     struct resolver_path *path, struct error *error);

#endif
