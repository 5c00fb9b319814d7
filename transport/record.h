/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h -- the bytes that carry a region or an endpoint to a peer, through the controller.
 *
 *    0  magic "WFTR"          4   version u16, kind u16 (1 region, 2 endpoint)
 *    8  length u32            12  zero u32
 *   16  job tag u64           24  provider, 16 bytes, zero padded
 *   40  owner role, rank u32  48  peer role, rank u32 (endpoint; zero in a region)
 *   56  region bytes u64 (zero in an endpoint)
 *   64  body: the provider's
 *  end  xxh3 of everything before, u64
 *
 * Little-endian, no padding. A record comes from a peer, so it is hostile until it was read:
 * length, version, kind, zeros, checksum and every range are checked, and a body must be
 * consumed to its last byte. The job tag is a hash of the job's secret, not the secret.
 */
#ifndef TRANSPORT_RECORD_H
#define TRANSPORT_RECORD_H

#include "base/error.h"
#include "job/member.h"
#include "transport/identity.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_VERSION        1
#define RECORD_HEAD_BYTES     64
#define RECORD_TAIL_BYTES     8
#define RECORD_PROVIDER_BYTES 16

enum record_kind { RECORD_REGION = 1, RECORD_ENDPOINT = 2 };

struct record_head {
	enum record_kind kind;
	uint64_t tag;
	char provider[RECORD_PROVIDER_BYTES];
	struct member owner, peer;
	uint64_t bytes;
};

/* Sticky: after an overflow later puts do nothing and record_finish fails. */
struct record_writer {
	unsigned char *data;
	size_t used, capacity;
	bool failed;
};

void record_begin(struct record_writer *writer, unsigned char *data, size_t capacity,
		  const struct record_head *head);
void record_put_u32(struct record_writer *writer, uint32_t value);
void record_put_u64(struct record_writer *writer, uint64_t value);
void record_put_bytes(struct record_writer *writer, const void *data, size_t bytes);
int record_finish(struct record_writer *writer, size_t *length, struct error *error);

/* Sticky likewise: gets past the end give zeros, and record_done says so. */
struct record_reader {
	const unsigned char *data;
	size_t used, length; /* of the body's end */
	bool failed;
	char provider[RECORD_PROVIDER_BYTES]; /* for messages */
};

/* Checks everything but the body. ERROR_MESSAGE names the field and the value. */
int record_open(struct record_reader *reader, const void *data, size_t length,
		struct record_head *head, struct error *error);
uint32_t record_get_u32(struct record_reader *reader);
uint64_t record_get_u64(struct record_reader *reader);
void record_get_bytes(struct record_reader *reader, void *out, size_t bytes);
int record_done(const struct record_reader *reader, struct error *error);

/* One row a field of a body, in order: where it lies in its struct, and what values it may have. */
enum record_type { RECORD_U32, RECORD_U64, RECORD_BYTES, RECORD_IDENTITY };
struct record_field {
	const char *name; /* in messages */
	enum record_type type;
	size_t offset, bytes;
	uint64_t least, most; /* of numbers */
};

void record_put_fields(struct record_writer *writer, const struct record_field *fields,
		       size_t count, const void *item);
/* Fills the item. ERROR_MESSAGE names the first field that is out of its range; of a body that
 * ends early it is record_done that tells. */
int record_get_fields(struct record_reader *reader, const struct record_field *fields,
		      size_t count, void *item, struct error *error);
/* Likewise of a number that is no field. */
int record_check(const struct record_reader *reader, const char *name, uint64_t value,
		 uint64_t least, uint64_t most, struct error *error);

/* Rows. A member of another type does not compile. */
#define RECORD_ROW_U32(owner, member, name, least, most)                                      \
	{name, RECORD_U32, _Generic(((owner *)0)->member, uint32_t: offsetof(owner, member)), \
	 4, least, most}
#define RECORD_ROW_U64(owner, member, name, least, most)                                      \
	{name, RECORD_U64, _Generic(((owner *)0)->member, uint64_t: offsetof(owner, member)), \
	 8, least, most}
#define RECORD_ROW_BYTES(owner, member)                                                       \
	{NULL, RECORD_BYTES, offsetof(owner, member), sizeof(((owner *)0)->member), 0, 0}
#define RECORD_ROW_IDENTITY(owner, member)                                                    \
	{"pid", RECORD_IDENTITY,                                                              \
	 _Generic(((owner *)0)->member, struct identity: offsetof(owner, member)), 0, 1, INT_MAX}

uint64_t record_tag(uint64_t secret);

#endif
