/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_key.h -- which key file a launch has.
 */
#ifndef WORKER_LAUNCH_LAUNCH_KEY_H
#define WORKER_LAUNCH_LAUNCH_KEY_H

#include "base/error.h"
#include "trust/key.h"
#include "worker/api/weft.h"
#include <stdbool.h>

/* The launch's key_file and key_waits, from the flag that is in it, WEFT_KEY_FILE or (`automatic`: with
 * --controller auto) the place where rank 0 will put one. Its controller is found already. */
int launch_find_key(weft_launch *launch, bool automatic, struct error *error);
/* Makes that one, instead of what lies there. */
int launch_make_key(const char *path, struct key_place *place, struct error *error);

#endif
