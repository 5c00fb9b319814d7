/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/delta.h"

#include "base/assert.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define HEAD_BYTES  8u
#define GROUP	    64u				/* values in a mask */
#define GROUPS_MAX  (DELTA_CHUNK_BYTES / GROUP) /* of one byte each */
#define WORDS_MAX   (GROUPS_MAX / 64)
#define KIND_SHIFT  30
#define LENGTH_MASK ((1u << KIND_SHIFT) - 1)

enum { DELTA_SAME, DELTA_WHOLE, DELTA_VALUES };

struct head {
	unsigned kind;
	uint32_t bytes, span;
};

static void put_head(void *out, unsigned kind, uint32_t bytes, uint32_t span)
{
	uint32_t words[2] = {kind << KIND_SHIFT | bytes, span};

	memcpy(out, words, sizeof(words));
}

static struct head get_head(const void *from)
{
	uint32_t words[2];

	memcpy(words, from, sizeof(words));
	return (struct head){words[0] >> KIND_SHIFT, words[0] & LENGTH_MASK, words[1]};
}

/* ---- which differ ---- */

#ifdef __SSE2__
static __m128i load(const unsigned char *from)
{
	return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* A bit for each of 16 values that is equal. */
static unsigned equal_16(const unsigned char *a, const unsigned char *b, unsigned element)
{
	__m128i lanes[4];

	if (element == 1)
		return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(load(a), load(b)));
	if (element == 2)
		return (unsigned)_mm_movemask_epi8(
			_mm_packs_epi16(_mm_cmpeq_epi16(load(a), load(b)),
					_mm_cmpeq_epi16(load(a + 16), load(b + 16))));
	for (unsigned i = 0; i < 4; i++)
		lanes[i] = _mm_cmpeq_epi32(load(a + 16 * i), load(b + 16 * i));
	return (unsigned)_mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(lanes[0], lanes[1]),
							   _mm_packs_epi32(lanes[2], lanes[3])));
}
#else
static unsigned equal_16(const unsigned char *a, const unsigned char *b, unsigned element)
{
	unsigned mask = 0;

	for (unsigned i = 0; i < 16; i++)
		mask |= (unsigned)!memcmp(a + i * element, b + i * element, element) << i;
	return mask;
}
#endif

/* A bit for each of up to 64 values that differs. */
static uint64_t differ(const unsigned char *was, const unsigned char *is, size_t values,
		       unsigned element)
{
	uint64_t mask = 0;

	if (values == GROUP) {
		for (unsigned i = 0; i < 4; i++)
			mask |= (uint64_t)equal_16(was + 16 * i * element, is + 16 * i * element,
						   element)
				<< 16 * i;
		return ~mask;
	}
	for (size_t i = 0; i < values; i++)
		mask |= (uint64_t) !!memcmp(was + i * element, is + i * element, element) << i;
	return mask;
}

/* ---- coding ---- */

static void put_value(unsigned char *to, const unsigned char *from, unsigned element)
{
	if (element == 2)
		memcpy(to, from, 2);
	else if (element == 1)
		*to = *from;
	else
		memcpy(to, from, 4);
}

static unsigned char *put_values(unsigned char *out, const unsigned char *is, uint64_t mask,
				 unsigned element)
{
	for (; mask; mask &= mask - 1, out += element)
		put_value(out, is + (size_t)__builtin_ctzll(mask) * element, element);
	return out;
}

static size_t words_of(size_t values)
{
	size_t groups = (values + GROUP - 1) / GROUP;

	return (groups + 63) / 64;
}

size_t delta_code(const void *was_at, const void *is_at, size_t bytes, unsigned element,
		  void *out_at)
{
	const unsigned char *was = was_at, *is = is_at;
	unsigned char *out = out_at, *end;
	uint64_t masks[GROUPS_MAX], groups[WORDS_MAX] = {0};
	size_t values = bytes / element, count = 0, some = 0, length;

	WEFT_ASSERT_OP(bytes, <=, DELTA_CHUNK_BYTES);
	WEFT_ASSERT_OP(bytes % element, ==, 0);
	for (size_t g = 0, at = 0; at < values; g++, at += GROUP) {
		masks[g] = differ(was + at * element, is + at * element,
				  values - at < GROUP ? values - at : GROUP, element);
		groups[g / 64] |= (uint64_t) !!masks[g] << g % 64;
		some += !!masks[g];
		count += (size_t)__builtin_popcountll(masks[g]);
	}
	length = (words_of(values) + some) * 8 + count * element;
	if (!count) {
		delta_same(out, (uint32_t)bytes);
		return HEAD_BYTES;
	}
	if (length >= bytes) {
		put_head(out, DELTA_WHOLE, (uint32_t)bytes, (uint32_t)bytes);
		memcpy(out + HEAD_BYTES, is, bytes);
		return HEAD_BYTES + bytes;
	}
	put_head(out, DELTA_VALUES, (uint32_t)length, (uint32_t)bytes);
	end = out + HEAD_BYTES + words_of(values) * 8;
	memcpy(out + HEAD_BYTES, groups, words_of(values) * 8);
	for (size_t g = 0; g * GROUP < values; g++)
		if (masks[g]) {
			memcpy(end, &masks[g], 8);
			end += 8;
		}
	for (size_t g = 0; g * GROUP < values; g++)
		end = put_values(end, is + g * GROUP * element, masks[g], element);
	WEFT_ASSERT_OP((size_t)(end - out), ==, HEAD_BYTES + length);
	return HEAD_BYTES + length;
}

bool delta_is_same(const void *chunk)
{
	return get_head(chunk).kind == DELTA_SAME;
}

void delta_same(void *chunk, uint32_t span)
{
	put_head(chunk, DELTA_SAME, 0, span);
}

/* ---- applying ---- */

/* Of a chunk of values: are all its bits of values that there are, and its bytes what they say? */
static bool values_valid(const unsigned char *chunk, const struct head *head, unsigned element)
{
	size_t values = head->span / element, words = words_of(values), at = words * 8, count = 0;
	uint64_t groups, mask;

	if (head->span % element || head->bytes < at)
		return false;
	for (size_t w = 0; w < words; w++) {
		memcpy(&groups, chunk + w * 8, 8);
		for (; groups; groups &= groups - 1) {
			size_t first = (w * 64 + (size_t)__builtin_ctzll(groups)) * GROUP;

			if (first >= values || head->bytes - at < 8)
				return false;
			memcpy(&mask, chunk + at, 8);
			at += 8;
			if (values - first < GROUP && mask >> (values - first))
				return false;
			count += (size_t)__builtin_popcountll(mask);
		}
	}
	return head->bytes - at == count * element;
}

static bool chunk_valid(const unsigned char *chunk, const struct head *head, unsigned element)
{
	switch (head->kind) {
	case DELTA_SAME:
		return head->span && !head->bytes;
	case DELTA_WHOLE:
		return head->span && head->bytes == head->span && head->span <= DELTA_CHUNK_BYTES;
	case DELTA_VALUES:
		return head->span && head->span <= DELTA_CHUNK_BYTES &&
		       values_valid(chunk, head, element);
	default:
		return false;
	}
}

uint64_t delta_span(const void *coded, size_t coded_bytes, unsigned element)
{
	const unsigned char *chunk = coded;
	uint64_t span = 0;

	while (coded_bytes) {
		struct head head;

		if (coded_bytes < HEAD_BYTES)
			return 0;
		head = get_head(chunk);
		if (head.bytes > coded_bytes - HEAD_BYTES ||
		    !chunk_valid(chunk + HEAD_BYTES, &head, element))
			return 0;
		span += head.span;
		chunk += HEAD_BYTES + head.bytes;
		coded_bytes -= HEAD_BYTES + head.bytes;
	}
	return span;
}

uint64_t delta_first(const void *coded, uint32_t *length)
{
	struct head head = get_head(coded);

	*length = HEAD_BYTES + head.bytes;
	return head.span;
}

static void apply_values(const unsigned char *chunk, const struct head *head, unsigned element,
			 unsigned char *memory)
{
	size_t words = words_of(head->span / element);
	const unsigned char *masks = chunk + words * 8, *values = masks;
	uint64_t groups, mask;

	for (size_t w = 0; w < words; w++) {
		memcpy(&groups, chunk + w * 8, 8);
		values += (size_t)__builtin_popcountll(groups) * 8;
	}
	for (size_t w = 0; w < words; w++) {
		memcpy(&groups, chunk + w * 8, 8);
		for (; groups; groups &= groups - 1, masks += 8) {
			unsigned char *group = memory + (w * 64 + (size_t)__builtin_ctzll(groups)) *
								GROUP * element;

			memcpy(&mask, masks, 8);
			for (; mask; mask &= mask - 1, values += element)
				put_value(group + (size_t)__builtin_ctzll(mask) * element, values,
					  element);
		}
	}
}

void delta_apply(const void *coded, size_t coded_bytes, unsigned element, void *memory)
{
	const unsigned char *chunk = coded, *end = chunk + coded_bytes;
	unsigned char *to = memory;

	while (chunk < end) {
		struct head head = get_head(chunk);

		chunk += HEAD_BYTES;
		if (head.kind == DELTA_WHOLE)
			memcpy(to, chunk, head.bytes);
		else if (head.kind == DELTA_VALUES)
			apply_values(chunk, &head, element, to);
		chunk += head.bytes;
		to += head.span;
	}
}
