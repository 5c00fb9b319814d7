/* SPDX-License-Identifier: Apache-2.0 */
#include "model/content.h"

#include "common/digest.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "contents are little-endian words");

#define GOLDEN 0x9E3779B97F4A7C15u

/* Four words at a time by hand: compilers at -O2 do not widen a loop of unknown length, and
 * this one decides the rate of a full-size check. */
typedef uint64_t words __attribute__((vector_size(32)));
#define LANES (sizeof(words) / sizeof(uint64_t))

/* Bits of a word that stay random, and bits that are set: every lane a finite number near
 * 2^-7 .. 2^-3 (the size of real weights) for floats wide enough to hold one. */
static const struct {
	uint64_t keep, set;
} masks[DTYPE_COUNT] = {
	[DTYPE_BOOL] = {0x0101010101010101u, 0},
	[DTYPE_U8] = {UINT64_MAX, 0},
	[DTYPE_I8] = {UINT64_MAX, 0},
	[DTYPE_F8_E4M3] = {0x9f9f9f9f9f9f9f9fu, 0x2020202020202020u},
	[DTYPE_F8_E5M2] = {0x8f8f8f8f8f8f8f8fu, 0x2020202020202020u},
	[DTYPE_I16] = {UINT64_MAX, 0},
	[DTYPE_U16] = {UINT64_MAX, 0},
	[DTYPE_F16] = {0x8fff8fff8fff8fffu, 0x2000200020002000u},
	[DTYPE_BF16] = {0x81ff81ff81ff81ffu, 0x3c003c003c003c00u},
	[DTYPE_I32] = {UINT64_MAX, 0},
	[DTYPE_U32] = {UINT64_MAX, 0},
	[DTYPE_F32] = {0x81ffffff81ffffffu, 0x3c0000003c000000u},
	[DTYPE_I64] = {UINT64_MAX, 0},
	[DTYPE_U64] = {UINT64_MAX, 0},
	[DTYPE_F64] = {0x803fffffffffffffu, 0x3f80000000000000u},
};

uint64_t splitmix64(uint64_t x)
{
	x += GOLDEN;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

/* What makes word i, for the two kinds of contents. */
struct source {
	uint64_t key;
	uint64_t keep, set;	     /* made */
	const unsigned char *tensor; /* versions; NULL for made */
	uint64_t tensor_bytes;
};

/* Word i, the last one of a tensor padded with zero bytes. */
static uint64_t word_at(const struct source *source, uint64_t i)
{
	uint64_t word = 0, at = i * 8;

	if (!source->tensor)
		return (splitmix64(source->key + i) & source->keep) | source->set;
	if (at < source->tensor_bytes)
		memcpy(&word, source->tensor + at,
		       source->tensor_bytes - at < 8 ? source->tensor_bytes - at : 8);
	return word + source->key * (2 * i + 1);
}

static void make_words(const struct source *source, uint64_t first, uint64_t count,
		       unsigned char *out)
{
	uint64_t i = 0;

	for (; i + 4 <= count; i += 4) {
		uint64_t four[4];

		for (uint64_t lane = 0; lane < 4; lane++)
			four[lane] = (splitmix64(source->key + first + i + lane) & source->keep) |
				     source->set;
		memcpy(out + i * 8, four, sizeof(four));
	}
	for (; i < count; i++) {
		uint64_t word = word_at(source, first + i);

		memcpy(out + i * 8, &word, 8);
	}
}

/* key * (2 i + 1) grows by 2 key a word, so a step is one addition, not a product. */
static void version_words(const struct source *source, uint64_t first, uint64_t count,
			  unsigned char *out)
{
	uint64_t key = source->key, i = 0;
	uint64_t start = key * (2 * first + 1);
	words add = {start, start + 2 * key, start + 4 * key, start + 6 * key};
	const words step = {8 * key, 8 * key, 8 * key, 8 * key};

	for (; i + LANES <= count; i += LANES) {
		words in;

		memcpy(&in, source->tensor + (first + i) * 8, sizeof(in));
		in += add;
		add += step;
		memcpy(out + i * 8, &in, sizeof(in));
	}
	for (; i < count; i++) {
		uint64_t word = word_at(source, first + i);

		memcpy(out + i * 8, &word, 8);
	}
}

/* Bytes [offset, offset + bytes): a partial word, whole words, a partial word. */
static void fill(const struct source *source, uint64_t offset, uint64_t bytes, unsigned char *out)
{
	uint64_t whole;

	if (offset % 8 && bytes) {
		uint64_t word = word_at(source, offset / 8), n = 8 - offset % 8;

		n = n < bytes ? n : bytes;
		memcpy(out, (unsigned char *)&word + offset % 8, n);
		offset += n;
		out += n;
		bytes -= n;
	}
	whole = bytes / 8;
	if (source->tensor)
		version_words(source, offset / 8, whole, out);
	else
		make_words(source, offset / 8, whole, out);
	if (bytes % 8) {
		uint64_t word = word_at(source, offset / 8 + whole);

		memcpy(out + whole * 8, &word, bytes % 8);
	}
}

void content_make(const char *name, enum dtype dtype, uint64_t seed, uint64_t offset,
		  uint64_t bytes, void *out)
{
	struct source source = {
		.key = splitmix64(hash64(name, strlen(name)) + seed * GOLDEN),
		.keep = masks[dtype].keep,
		.set = masks[dtype].set,
	};

	fill(&source, offset, bytes, out);
}

void content_version(const char *name, const void *tensor, uint64_t tensor_bytes, uint64_t version,
		     uint64_t offset, uint64_t bytes, void *out)
{
	struct source source = {
		.key = splitmix64(hash64(name, strlen(name)) + version * GOLDEN),
		.tensor = tensor,
		.tensor_bytes = tensor_bytes,
	};

	if (version == 0)
		memcpy(out, source.tensor + offset, bytes);
	else
		fill(&source, offset, bytes, out);
}
