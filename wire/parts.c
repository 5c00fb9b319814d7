/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/parts.h"

#include "base/memory.h"

#include <endian.h>
#include <string.h>

#define MARK	0xc1u
#define CARRIES (PART_BYTES - PART_HEAD_BYTES)
#define FIRST_BYTES \
	(4 * CARRIES) /* collected at first, whatever total is said: room comes with bytes */

static void put(unsigned char *at, size_t value)
{
	uint32_t little = htole32((uint32_t)value);

	memcpy(at, &little, sizeof(little));
}

static uint32_t get(const unsigned char *at)
{
	uint32_t little;

	memcpy(&little, at, sizeof(little));
	return le32toh(little);
}

static size_t carried(const struct parts_out *out)
{
	size_t left = out->length - out->at;

	if (out->length <= PART_BYTES)
		return left;
	return left < CARRIES ? left : CARRIES;
}

size_t parts_next(const struct parts_out *out, unsigned char frame[PART_BYTES])
{
	size_t bytes = carried(out), head = out->length <= PART_BYTES ? 0 : PART_HEAD_BYTES;

	if (!bytes)
		return 0;
	if (head) {
		frame[0] = MARK;
		put(frame + 1, out->number);
		put(frame + 5, out->length);
		put(frame + 9, out->at);
	}
	memcpy(frame + head, out->bytes + out->at, bytes);
	return head + bytes;
}

void parts_sent(struct parts_out *out)
{
	out->at += carried(out);
}

bool parts_is(const void *frame, size_t length)
{
	return length >= PART_HEAD_BYTES && *(const unsigned char *)frame == MARK;
}

void parts_drop(struct parts_in *in, struct parts_budget *budget)
{
	budget->used -= in->room;
	memory_free(in->bytes);
	*in = (struct parts_in){0};
}

/* Room for `bytes` more: twice what there is, the total at most. */
static int grow(struct parts_in *in, struct parts_budget *budget, size_t bytes, struct error *error)
{
	size_t room = in->room ? in->room : FIRST_BYTES;
	unsigned char *larger;

	if (in->have + bytes <= in->room)
		return 0;
	while (room < in->have + bytes)
		room *= 2;
	if (room > in->total)
		room = in->total;
	if (budget->used + room - in->room > budget->most)
		return error_set(
			error, ERROR_LIMIT,
			"a message of %zu bytes: with it, messages that are not whole yet would "
			"take more than %zu bytes",
			in->total, budget->most);
	larger = memory_resize(in->bytes, room, 1);
	if (!larger)
		return memory_error(error, "collecting a message", room);
	budget->used += room - in->room;
	in->bytes = larger;
	in->room = room;
	return 0;
}

int parts_take(struct parts_in *in, struct parts_budget *budget, const void *frame, size_t length,
	       size_t most, struct error *error)
{
	const unsigned char *head = frame;
	uint32_t number = get(head + 1), total = get(head + 5), offset = get(head + 9);
	size_t bytes = length - PART_HEAD_BYTES;
	int rc;

	if (total <= PART_BYTES || total > most || !bytes || bytes > CARRIES || offset >= total ||
	    bytes > total - offset) {
		parts_drop(in, budget);
		return error_set(
			error, ERROR_MESSAGE,
			"part of %zu bytes at %u of a message of %u bytes: %u to %zu bytes are "
			"possible, in parts of at most %u",
			bytes, offset, total, PART_BYTES + 1, most, CARRIES);
	}
	if (offset != in->have || (offset && (number != in->number || total != in->total))) {
		parts_drop(in, budget);
		if (offset)
			return 0; /* its start is missing */
	}
	in->number = number;
	in->total = total;
	rc = grow(in, budget, bytes, error);
	if (rc) {
		parts_drop(in, budget);
		return rc;
	}
	memcpy(in->bytes + in->have, head + PART_HEAD_BYTES, bytes);
	in->have += bytes;
	return in->have == in->total;
}
