/* SPDX-License-Identifier: Apache-2.0
 *
 * descriptors.h -- file descriptors: libraries that end the process when they run out of them are asked for
 * nothing before it is known that there are enough.
 */
#ifndef BASE_DESCRIPTORS_H
#define BASE_DESCRIPTORS_H

#include "base/error.h"
#include <stdint.h>

/* ERROR_LIMIT unless `needed` (64 at most) can be opened now; `what` needs them, in the message. */
int descriptors_check(const char *what, unsigned needed, struct error *error);
/* Raises what this process may open to what it may be raised to; how many that is. For programs. */
uint64_t descriptors_raise(void);

#endif
