/* SPDX-License-Identifier: Apache-2.0
 *
 * message_text.h -- a message as one line for logs and transcripts:
 *   "plan attempt 1: 290 rows, 4 peers, greedy 3f2a01bc"
 * Counts and names; never the bytes of regions and records, which may open memory.
 */
#ifndef WIRE_MESSAGE_TEXT_H
#define WIRE_MESSAGE_TEXT_H

#include "wire/message.h"

#define MESSAGE_TEXT_BYTES 512

/* Into out (always terminated, cut when too long, no control characters). Returns out. */
char *message_text(const struct message *message, char *out, size_t bytes);

#endif
