/* SPDX-License-Identifier: Apache-2.0
 *
 * address.h -- where metrics are served, as people write it:
 *
 *   :9464   10.9.0.1:9464   [::1]:9464   node0:9464      that port
 *   :9464+                                               the first free one from there on, of 64: several workers of a host
 *   :0                                                   the system's choice
 */
#ifndef METRICS_ADDRESS_H
#define METRICS_ADDRESS_H

#include "base/error.h"
#include <stdint.h>

#define ADDRESS_HOST_BYTES 256
#define ADDRESS_PORTS	   64u

struct address {
	char host[ADDRESS_HOST_BYTES]; /* "": all of this host's */
	uint16_t port;
	uint16_t ports;                /* that may be tried */
};

/* ERROR_CONFIG: what is wrong with it. */
int address_parse(struct address *address, const char *text, struct error *error);
/* A socket that listens there, which does not block, and its port. */
int address_listen(const struct address *address, int *descriptor, uint16_t *port, struct error *error);

#endif
