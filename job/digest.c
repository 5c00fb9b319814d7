/* SPDX-License-Identifier: Apache-2.0 */
#include "job/digest.h"

/* the state lives on the caller's stack, so its size must be known here */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
/* The library's names, bound at run time to what the processor has (SSE2 to AVX-512: 8 and 30 GB/s
 * here); a build of the library without that has no such header. */
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif
#include <endian.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct digest_stream), "digest_stream too small");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct digest_stream), "digest_stream alignment");

static XXH3_state_t *state_of(struct digest_stream *stream)
{
	return (XXH3_state_t *)(void *)stream->state;
}

struct digest digest_bytes(const void *data, size_t bytes)
{
	XXH128_hash_t hash = XXH3_128bits(data, bytes);

	return (struct digest){hash.high64, hash.low64};
}

bool digest_equal(struct digest a, struct digest b)
{
	return a.high == b.high && a.low == b.low;
}

char *digest_text(struct digest digest, char out[DIGEST_TEXT_BYTES])
{
	snprintf(out, DIGEST_TEXT_BYTES, "%016llx%016llx", (unsigned long long)digest.high,
		 (unsigned long long)digest.low);
	return out;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

bool digest_parse(const char *text, struct digest *out)
{
	uint64_t half[2] = {0, 0};

	if (strlen(text) != DIGEST_TEXT_BYTES - 1)
		return false;
	for (int i = 0; i < DIGEST_TEXT_BYTES - 1; i++) {
		int digit = hex(text[i]);

		if (digit < 0)
			return false;
		half[i / 16] = half[i / 16] << 4 | (uint64_t)digit;
	}
	*out = (struct digest){half[0], half[1]};
	return true;
}

void digest_begin(struct digest_stream *stream)
{
	XXH3_INITSTATE(state_of(stream));
	XXH3_128bits_reset(state_of(stream));
}

void digest_add(struct digest_stream *stream, const void *data, size_t bytes)
{
	XXH3_128bits_update(state_of(stream), data, bytes);
}

void digest_add_u64(struct digest_stream *stream, uint64_t value)
{
	uint64_t value_le = htole64(value);

	digest_add(stream, &value_le, sizeof(value_le));
}

void digest_add_string(struct digest_stream *stream, const char *text)
{
	size_t n = strlen(text);

	digest_add_u64(stream, n);
	digest_add(stream, text, n);
}

struct digest digest_end(struct digest_stream *stream)
{
	XXH128_hash_t hash = XXH3_128bits_digest(state_of(stream));

	return (struct digest){hash.high64, hash.low64};
}

uint64_t hash64(const void *data, size_t bytes)
{
	return XXH64(data, bytes, 0);
}

uint64_t checksum64(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}

void checksum_begin(struct digest_stream *stream)
{
	XXH3_64bits_reset(state_of(stream));
}

uint64_t checksum_end(struct digest_stream *stream)
{
	return XXH3_64bits_digest(state_of(stream));
}
