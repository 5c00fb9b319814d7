/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h -- one message of a protocol: a map whose first two pairs say what it is and which
 * version of the protocol its sender speaks.
 *
 *   {"type":"hello", "wire":4, ...fields of the head and of the type}
 *     └── these two stand first, in every version for ever: so that a program of another
 *         version is told so, whatever else has changed. The other keys come in any order.
 *
 * A protocol is a table of types: the control plane's is in message.c, the one of two `weft` tools
 * in tool.c. Its message is a struct that begins with its type, an enum.
 */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include "wire/codec.h"

/* Fields against each other, after decoding and before encoding, so that what the other side would
 * refuse is refused at home. */
typedef int frame_check(const void *body, struct error *error);

struct frame_type {
	const char *name;
	const struct codec_record *record;
	frame_check *check; /* optional */
};

struct frame_protocol {
	const char *key;   /* of the version */
	uint32_t version;
	const char *advice; /* after both versions: what to do */
	size_t bytes_max;
	size_t size;       /* of a message */
	size_t body;       /* where the body of a message lies */
	const struct codec_record *head; /* of fields that every type has; may have none */
	const struct frame_type *types;
	size_t type_count;
};

/* Encodes into *bytes (memory_free it): see message.h for what is refused. */
int frame_encode(const struct frame_protocol *protocol, const void *message,
		 unsigned char **bytes, size_t *length, struct error *error);
/* Whatever was in the message is overwritten; on failure it is all zero. */
int frame_decode(const struct frame_protocol *protocol, void *message,
		 const unsigned char *bytes, size_t length, struct error *error);
/* Frees what the body owns, and zeroes the message. */
void frame_fini(const struct frame_protocol *protocol, void *message);

#endif
