/* SPDX-License-Identifier: Apache-2.0 */
#include "model/content.h"

#include "base/processor.h"
#include "job/digest.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "contents are little-endian words");

#define GOLDEN 0x9E3779B97F4A7C15u

/* Vectors by hand: compilers at -O2 do not widen a loop of unknown length, and these decide the
 * rate of a full-size check. */
typedef uint64_t words __attribute__((vector_size(32)));
#define VECTOR_WORDS (sizeof(words) / sizeof(uint64_t))

/* Bits of a word that stay random, and bits that are set: every float a finite number near
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
	uint64_t name,
		version; /* of versions that differ in some values only: the name's hash, and */
	uint32_t one_in; /* in one of so many; else 0 */
};

static _Atomic uint32_t changes_one_in = 1;

void content_change_one_in(uint32_t values)
{
	changes_one_in = values;
}

static uint64_t key_of(uint64_t name, uint64_t n)
{
	return splitmix64(name + n * GOLDEN);
}

/* Each of the word's 16-bit values as of the latest version in which it has changed. */
static uint64_t changed_word(const struct source *source, uint64_t i, uint64_t word)
{
	uint64_t out = 0;

	for (uint64_t k = 0; k < 4; k++) {
		uint64_t turn = splitmix64(source->name + i * 4 + k) % source->one_in, last = word;
		uint64_t since = (source->version + source->one_in - turn) % source->one_in;

		if (since < source->version)
			last += key_of(source->name, source->version - since) * (2 * i + 1);
		out |= last & (UINT64_C(0xffff) << 16 * k);
	}
	return out;
}

/* Word i, the last one of a tensor padded with zero bytes. */
static uint64_t word_at(const struct source *source, uint64_t i)
{
	uint64_t word = 0, at = i * 8;

	if (!source->tensor)
		return (splitmix64(source->key + i) & source->keep) | source->set;
	if (at < source->tensor_bytes)
		memcpy(&word, source->tensor + at,
		       source->tensor_bytes - at < 8 ? source->tensor_bytes - at : 8);
	if (source->one_in)
		return changed_word(source, i, word);
	return word + source->key * (2 * i + 1);
}

/* Made words, as many of `count` as fill whole vectors, from word `first` on; returns how many. Two
 * products of 64 bits a word decide how fast contents are made, and only vectors have enough of
 * them: the same lines three times, for what the processor has. */
#define MAKE_VECTORS(name, features, bytes)                                                        \
	features static uint64_t name(const struct source *source, uint64_t first, uint64_t count, \
				      unsigned char *out)                                          \
	{                                                                                          \
		typedef uint64_t vector __attribute__((vector_size(bytes)));                       \
		const uint64_t width = sizeof(vector) / sizeof(uint64_t);                          \
		const uint64_t keep = source->keep, set = source->set;                             \
		uint64_t i = 0;                                                                    \
		vector state;                                                                      \
                                                                                                   \
		for (uint64_t element = 0; element < width; element++)                             \
			state[element] = source->key + first + element + GOLDEN;                   \
		for (; i + width <= count; i += width, state += width) {                           \
			vector x = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;                    \
                                                                                                   \
			x = (x ^ x >> 27) * 0x94D049BB133111EBu;                                   \
			x = ((x ^ x >> 31) & keep) | set;                                          \
			memcpy(out + i * 8, &x, sizeof(x));                                        \
		}                                                                                  \
		return i;                                                                          \
	}

typedef uint64_t (*make_vectors)(const struct source *source, uint64_t first, uint64_t count,
				 unsigned char *out);

MAKE_VECTORS(make_portable, , 32)
#if PROCESSOR_X86
MAKE_VECTORS(make_avx2, __attribute__((target("avx2"))), 32)
MAKE_VECTORS(make_avx512, __attribute__((target("avx512f,avx512dq"))), 64)
#endif

static const struct kernel {
	struct processor_row row;
	make_vectors make;
} kernel_rows[] = {
#if PROCESSOR_X86
	{{"avx512", processor_has_avx512}, make_avx512},
	{{"avx2", processor_has_avx2}, make_avx2},
#endif
	{{"portable", processor_has_any}, make_portable},
};
static struct processor_kernels kernels = PROCESSOR_KERNELS(kernel_rows);

bool content_kernel_use(const char *name)
{
	return processor_choose(&kernels, name);
}

static void make_words(const struct source *source, uint64_t first, uint64_t count,
		       unsigned char *out)
{
	const struct kernel *kernel = processor_chosen(&kernels);

	for (uint64_t i = kernel->make(source, first, count, out); i < count; i++) {
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

	for (; i + VECTOR_WORDS <= count; i += VECTOR_WORDS) {
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
	for (uint64_t i = 0; source->one_in && i < whole; i++)
		memcpy(out + i * 8, (uint64_t[]){word_at(source, offset / 8 + i)}, 8);
	if (source->one_in)
		;
	else if (source->tensor)
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
		.key = key_of(hash64(name, strlen(name)), seed),
		.keep = masks[dtype].keep,
		.set = masks[dtype].set,
	};

	fill(&source, offset, bytes, out);
}

void content_version(const char *name, const void *tensor, uint64_t tensor_bytes, uint64_t version,
		     uint64_t offset, uint64_t bytes, void *out)
{
	struct source source = {
		.tensor = tensor,
		.tensor_bytes = tensor_bytes,
		.name = hash64(name, strlen(name)),
		.version = version,
		.one_in = changes_one_in > 1 ? changes_one_in : 0,
	};

	source.key = key_of(source.name, version);

	if (version == 0)
		memcpy(out, source.tensor + offset, bytes);
	else
		fill(&source, offset, bytes, out);
}
