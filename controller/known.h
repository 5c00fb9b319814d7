/* SPDX-License-Identifier: Apache-2.0
 *
 * known.h -- what a worker knows of its plan, as little of it as tells what differs in the next one: a mark for each peer and row.
 * Marks are of this process alone (base/hash.h), and what is told by them is checked by its digest at the worker.
 */
#ifndef CONTROLLER_KNOWN_H
#define CONTROLLER_KNOWN_H

#include "wire/message.h"

struct known;

/* Of a plan that is all there. Out of memory is -ERROR_MEMORY everywhere here, in no words. */
int known_new(struct known **known, const struct message_plan *plan);
/* Shared by the epochs that need it; of NULL: NULL. */
struct known *known_hold(struct known *known);
void known_release(struct known **known);
/* A whole plan, of which `now` was made, is told by what differs from the one that the worker has; peers are left where they are. */
int known_leave_out(const struct known *had, const struct known *now, struct message_plan *plan);
/* That peer is what it was there. */
bool known_has_peer(const struct known *had, const struct plan_peer *peer);

#endif
