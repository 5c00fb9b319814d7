/* SPDX-License-Identifier: Apache-2.0
 *
 * available.h -- is there that much memory? Asked before large memory is taken.
 */
#ifndef TRANSPORT_AVAILABLE_H
#define TRANSPORT_AVAILABLE_H

#include "base/error.h"
#include <stdint.h>

/* Taking too much does not fail: it wakes the OOM killer. Better a message beforehand:
 * ERROR_MEMORY. "<what> needs 3 GB of <kind>; this host has ...". */
int available_check(uint64_t bytes, const char *what, const char *kind, struct error *error);

#endif
