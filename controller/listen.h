/* SPDX-License-Identifier: Apache-2.0
 *
 * listen.h -- where the controller may listen: anywhere with a key; without one on this host alone,
 * unless its user takes the risk.
 */
#ifndef CONTROLLER_LISTEN_H
#define CONTROLLER_LISTEN_H

#include "base/error.h"
#include <stdbool.h>

/* The address when none is given. */
const char *listen_default(bool key);
/* ERROR_CONFIG: no possible port, or open to other hosts with neither key nor `insecure`. The rest is
 * the library's to judge. */
int listen_check(const char *address, bool key, bool insecure, struct error *error);
/* Others than this host's processes can reach it. */
bool listen_is_open(const char *address);
/* One line to the log: the address as bound, as users write it. */
void listen_say(const char *bound);
/* The bound port into a file, whole or not at all. */
int listen_write_port(const char *path, const char *bound, struct error *error);

#endif
