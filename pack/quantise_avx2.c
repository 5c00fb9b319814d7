/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_avx2.c -- as quantise_avx512.c says, 32 numbers at a time; the rest of a block number
 * by number. Its target has no FMA, so that nothing can be contracted.
 */
#include "pack/element.h"
#include "pack/processor.h"
#include "pack/quantise_kernel.h"

#if PROCESSOR_X86
#include <immintrin.h>

INLINE256 __m256i load(const unsigned char *from)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

/* 8 numbers as F32 to 8 codes of 32 bits each */
INLINE256 __m256i codes_f32(__m256i bits, __m256 inverse)
{
	__m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
	__m256 y = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), inverse);
	__m256i power = _mm256_max_epi32(
		_mm256_and_si256(_mm256_castps_si256(y), _mm256_set1_epi32(0x7f800000)),
		_mm256_set1_epi32(121 << 23));
	__m256i addend = _mm256_add_epi32(power, _mm256_set1_epi32((20 << 23) + 152));
	__m256i sum = _mm256_castps_si256(_mm256_add_ps(y, _mm256_castsi256_ps(addend)));
	__m256i code = _mm256_add_epi32(sum, _mm256_srli_epi32(sum, 20));
	__m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));

	return _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)), sign);
}

/* 32 numbers to as many codes */
typedef void (*codes_store)(unsigned char *to, const unsigned char *from, __m256 inverse);

INLINE256 void store_four(unsigned char *to, const __m256i bits[4], __m256 inverse)
{
	__m256i a = _mm256_packus_epi32(codes_f32(bits[0], inverse), codes_f32(bits[1], inverse));
	__m256i b = _mm256_packus_epi32(codes_f32(bits[2], inverse), codes_f32(bits[3], inverse));
	__m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

	_mm256_storeu_si256((__m256i *)(void *)to,
			    _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
}

INLINE256 void store_f32(unsigned char *to, const unsigned char *from, __m256 inverse)
{
	__m256i bits[4] = {load(from), load(from + 32), load(from + 64), load(from + 96)};

	store_four(to, bits, inverse);
}

INLINE256 __m256i load_bf16(const unsigned char *from)
{
	__m128i half = _mm_loadu_si128((const __m128i *)(const void *)from);

	return _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

INLINE256 __m256i load_f16(const unsigned char *from)
{
	__m128i half = _mm_loadu_si128((const __m128i *)(const void *)from);

	return _mm256_castps_si256(_mm256_cvtph_ps(half));
}

#define STORE_16(name)                                                                            \
	INLINE256 void store_##name(unsigned char *to, const unsigned char *from, __m256 inverse) \
	{                                                                                         \
		__m256i bits[4] = {load_##name(from), load_##name(from + 16),                     \
				   load_##name(from + 32), load_##name(from + 48)};               \
                                                                                                  \
		store_four(to, bits, inverse);                                                    \
	}

STORE_16(bf16)
STORE_16(f16)

INLINE256 void values(const struct quantise_strip *strip, uint64_t element, codes_store store)
{
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		unsigned char *to = strip->values + row * strip->values_stride;
		const float *inverse = strip->inverse;

		for (uint64_t left = strip->columns; left; inverse++) {
			uint64_t n = left < strip->block_columns ? left : strip->block_columns;
			unsigned char rest[32 * 4] = {0}, codes[32];

			left -= n;
			for (; n >= 32; n -= 32, from += 32 * element, to += 32)
				store(to, from, _mm256_set1_ps(*inverse));
			if (!n)
				continue;
			memcpy(rest, from, n * element);
			store(codes, rest, _mm256_set1_ps(*inverse));
			memcpy(to, codes, n);
			from += n * element;
			to += n;
		}
	}
}

#define VALUES(name, element)                                                   \
	TARGET256 static void values_##name(const struct quantise_strip *strip) \
	{                                                                       \
		values(strip, element, store_##name);                           \
	}

VALUES(f32, 4)
VALUES(bf16, 2)
VALUES(f16, 2)

INLINE256 __m256i largest(__m256i most, __m256i bits, uint64_t element)
{
	bits = _mm256_and_si256(bits, _mm256_set1_epi32(element == 4 ? 0x7fffffff : 0x7fff7fff));
	return element == 4 ? _mm256_max_epu32(most, bits) : _mm256_max_epu16(most, bits);
}

INLINE256 uint32_t largest_of(__m256i most, uint64_t element)
{
	uint32_t numbers[8], peak = 0;

	if (element == 2) /* the larger half of each element */
		most = _mm256_max_epu32(_mm256_and_si256(most, _mm256_set1_epi32(0xffff)),
					_mm256_srli_epi32(most, 16));
	memcpy(numbers, &most, sizeof(numbers));
	for (int i = 0; i < 8; i++)
		peak = numbers[i] > peak ? numbers[i] : peak;
	return peak;
}

INLINE256 void peaks(uint32_t *out, const struct quantise_strip *strip, uint64_t element)
{
	__m256i best[QUANTISE_STRIP_BLOCKS];
	uint64_t blocks = (strip->columns - 1) / strip->block_columns + 1;

	for (uint64_t b = 0; b < blocks; b++)
		best[b] = _mm256_setzero_si256();
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		uint64_t left = strip->columns;

		for (uint64_t b = 0; b < blocks; b++) {
			uint64_t n = left < strip->block_columns ? left : strip->block_columns;
			uint64_t bytes = n * element;
			__m256i most = best[b];
			unsigned char rest[32] = {0};

			left -= n;
			for (; bytes >= 32; bytes -= 32, from += 32)
				most = largest(most, load(from), element);
			if (bytes) {
				memcpy(rest, from, bytes);
				most = largest(most, load(rest), element);
			}
			best[b] = most;
			from += bytes;
		}
	}
	for (uint64_t b = 0; b < blocks; b++)
		out[b] = largest_of(best[b], element);
}

TARGET256 static void peaks_32(uint32_t *out, const struct quantise_strip *strip)
{
	peaks(out, strip, 4);
}

TARGET256 static void peaks_16(uint32_t *out, const struct quantise_strip *strip)
{
	peaks(out, strip, 2);
}

const struct quantise_kernel quantise_avx2 = {
	.f32 = {.peaks = peaks_32, .values = values_f32},
	.bf16 = {.peaks = peaks_16, .values = values_bf16},
	.f16 = {.peaks = peaks_16, .values = values_f16},
};
#endif
