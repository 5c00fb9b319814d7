/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_avx512.c -- a finite y >= 0 of at most 448 becomes its code with one addition. With
 * 2^e the power of two at or below y, not below 2^-6, adding 2^(e+20) rounds y to a multiple n of
 * 2^(e-3), the step of F8_E4M3 there: the sum's lowest bits are n, its exponent is e + 147.
 *
 *   code = 8 (e + 6) + n = 8 (e + 147) + n - 1128
 *
 * Bits 20.. of the sum are 8 (e + 147). -1128 is 152 modulo 256: an addend of 2^(e+20) with 152
 * in its lowest bits brings it along, so the code is the low byte of sum + (sum >> 20). The
 * product and the addition carry their rounding with them, and are so never contracted.
 */
#include "worker/replica/processor.h"
#include "worker/replica/quantise_kernel.h"

#if PROCESSOR_X86
#include <immintrin.h>

#define TARGET512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE512 TARGET512 __attribute__((always_inline)) static inline
#define NEAREST	  (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE512 __mmask64 first(uint64_t count)
{
	return count >= 64 ? ~0ull : (1ull << count) - 1;
}

/* What the sum above has in its low byte; other bits are not cleared. */
INLINE512 __m512i code_of(__m512i magnitude, __m512 inverse)
{
	__m512 y = _mm512_mul_round_ps(_mm512_castsi512_ps(magnitude), inverse, NEAREST);
	__m512i power = _mm512_max_epi32(
		_mm512_and_epi32(_mm512_castps_si512(y), _mm512_set1_epi32(0x7f800000)),
		_mm512_set1_epi32(121 << 23));
	__m512i addend = _mm512_add_epi32(power, _mm512_set1_epi32((20 << 23) + 152));
	__m512i sum =
		_mm512_castps_si512(_mm512_add_round_ps(y, _mm512_castsi512_ps(addend), NEAREST));

	return _mm512_add_epi32(sum, _mm512_srli_epi32(sum, 20));
}

/* 16 numbers as F32 to 16 codes in lanes of 32 bits */
INLINE512 __m512i codes_f32(__m512i bits, __m512 inverse)
{
	__m512i code = code_of(_mm512_and_epi32(bits, _mm512_set1_epi32(0x7fffffff)), inverse);

	/* bits 0..6 of the code, the others of the number's top byte: its sign */
	return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7f), code, _mm512_srli_epi32(bits, 24),
					 0xca);
}

/* 32 of BF16 to 32 codes in lanes of 16 bits: the even ones, and the odd ones, in halves of F32
 * lanes that they need not be moved from */
INLINE512 __m512i codes_bf16(__m512i bits, __m512 inverse)
{
	__m512i magnitude = _mm512_and_epi32(bits, _mm512_set1_epi32(0x7fff7fff));
	__m512i even = code_of(_mm512_slli_epi32(magnitude, 16), inverse);
	__m512i odd = code_of(_mm512_and_epi32(magnitude, _mm512_set1_epi32(0x7fff0000)), inverse);
	__m512i code = _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));

	return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x7f), code, _mm512_srli_epi16(bits, 8),
					 0xca);
}

/* 64 numbers, fewer at the end of a block, to as many codes */
typedef void (*codes_store)(unsigned char *to, const unsigned char *from, uint64_t count,
			    __m512 inverse);

INLINE512 void store_bf16(unsigned char *to, const unsigned char *from, uint64_t count,
			  __m512 inverse)
{
	__mmask64 mask = first(count);
	__m512i a = _mm512_maskz_loadu_epi16((__mmask32)mask, from);
	__m512i b = _mm512_maskz_loadu_epi16((__mmask32)(mask >> 32), from + 64);
	__m512i codes = _mm512_packus_epi16(codes_bf16(a, inverse), codes_bf16(b, inverse));

	codes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), codes);
	_mm512_mask_storeu_epi8(to, mask, codes);
}

INLINE512 void store_four(unsigned char *to, __mmask64 mask, const __m512i bits[4], __m512 inverse)
{
	__m512i a = _mm512_packus_epi32(codes_f32(bits[0], inverse), codes_f32(bits[1], inverse));
	__m512i b = _mm512_packus_epi32(codes_f32(bits[2], inverse), codes_f32(bits[3], inverse));
	__m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

	_mm512_mask_storeu_epi8(to, mask,
				_mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)));
}

INLINE512 void store_f32(unsigned char *to, const unsigned char *from, uint64_t count,
			 __m512 inverse)
{
	__mmask64 mask = first(count);
	__m512i bits[4];

	for (int i = 0; i < 4; i++)
		bits[i] = _mm512_maskz_loadu_epi32((__mmask16)(mask >> 16 * i), from + 64 * i);
	store_four(to, mask, bits, inverse);
}

INLINE512 void store_f16(unsigned char *to, const unsigned char *from, uint64_t count,
			 __m512 inverse)
{
	__mmask64 mask = first(count);
	__m512i bits[4];

	for (int i = 0; i < 4; i++)
		bits[i] = _mm512_castps_si512(_mm512_cvtph_ps(
			_mm256_maskz_loadu_epi16((__mmask16)(mask >> 16 * i), from + 32 * i)));
	store_four(to, mask, bits, inverse);
}

INLINE512 void values(const struct quantise_strip *strip, uint64_t element, codes_store store)
{
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		unsigned char *to = strip->values + row * strip->values_stride;
		const float *inverse = strip->inverse;

		for (uint64_t left = strip->columns; left;) {
			uint64_t n = left < strip->block_columns ? left : strip->block_columns;
			__m512 factor = _mm512_set1_ps(*inverse++);

			left -= n;
			for (; n >= 64; n -= 64, from += 64 * element, to += 64)
				store(to, from, 64, factor);
			if (n)
				store(to, from, n, factor);
			from += n * element;
			to += n;
		}
	}
}

TARGET512 static void values_f32(const struct quantise_strip *strip)
{
	values(strip, 4, store_f32);
}

TARGET512 static void values_bf16(const struct quantise_strip *strip)
{
	values(strip, 2, store_bf16);
}

TARGET512 static void values_f16(const struct quantise_strip *strip)
{
	values(strip, 2, store_f16);
}

INLINE512 __m512i largest(__m512i a, __m512i b, uint64_t element)
{
	return element == 4 ? _mm512_max_epu32(a, b) : _mm512_max_epu16(a, b);
}

INLINE512 void peaks(uint32_t *out, const struct quantise_strip *strip, uint64_t element)
{
	__m512i best[QUANTISE_STRIP_BLOCKS];
	__m512i magnitude = _mm512_set1_epi32(element == 4 ? 0x7fffffff : 0x7fff7fff);
	uint64_t blocks = (strip->columns - 1) / strip->block_columns + 1;

	for (uint64_t b = 0; b < blocks; b++)
		best[b] = _mm512_setzero_si512();
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		uint64_t left = strip->columns;

		for (uint64_t b = 0; b < blocks; b++) {
			uint64_t n = left < strip->block_columns ? left : strip->block_columns;
			uint64_t bytes = n * element;
			__m512i most = best[b], bits;

			left -= n;
			for (; bytes >= 64; bytes -= 64, from += 64) {
				bits = _mm512_and_si512(_mm512_loadu_si512(from), magnitude);
				most = largest(most, bits, element);
			}
			bits = _mm512_maskz_loadu_epi8(first(bytes), from);
			best[b] = largest(most, _mm512_and_si512(bits, magnitude), element);
			from += bytes;
		}
	}
	for (uint64_t b = 0; b < blocks; b++) {
		__m512i wide = best[b];

		if (element == 2) /* the larger half of each lane */
			wide = _mm512_max_epu32(_mm512_and_si512(wide, _mm512_set1_epi32(0xffff)),
						_mm512_srli_epi32(wide, 16));
		out[b] = _mm512_reduce_max_epu32(wide);
	}
}

TARGET512 static void peaks_32(uint32_t *out, const struct quantise_strip *strip)
{
	peaks(out, strip, 4);
}

TARGET512 static void peaks_16(uint32_t *out, const struct quantise_strip *strip)
{
	peaks(out, strip, 2);
}

const struct quantise_kernel quantise_avx512 = {
	.name = "avx512",
	.here = processor_has_avx512,
	.f32 = {peaks_32, values_f32},
	.bf16 = {peaks_16, values_bf16},
	.f16 = {peaks_16, values_f16},
};
#endif
