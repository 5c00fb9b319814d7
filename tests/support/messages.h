/* SPDX-License-Identifier: Apache-2.0
 *
 * messages.h -- valid messages with random contents, and equality of messages member by
 * member. The comparison is written out by hand: what a field table forgets, it would forget
 * in both directions, and only an outsider sees that.
 */
#ifndef TESTS_SUPPORT_MESSAGES_H
#define TESTS_SUPPORT_MESSAGES_H

#include "base/memory.h"
#include "wire/message.h"

uint64_t random_next(uint64_t *state); /* splitmix64; any seed is fine */
uint64_t random_below(uint64_t *state, uint64_t bound);

/* A message of that type, every list short; contents follow from *state. message_fini it. */
void messages_random(struct message *message, enum message_type type, uint64_t *state);
/* A finished layout of `params` parameters in `pieces` pieces each, 2-dimensional. */
void messages_layout(struct layout *layout, size_t params, uint64_t pieces);
/* Name of the first member that differs, or NULL. */
const char *messages_differ(const struct message *a, const struct message *b);

#endif
