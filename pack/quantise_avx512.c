/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_avx512.c -- 64 numbers at a time, as quantise_avx512.h says; the rest of a block under
 * a mask.
 */
#include "pack/quantise_avx512.h"

#if PROCESSOR_X86

/* 16 numbers as F32 to 16 codes of 32 bits each */
INLINE512 __m512i codes_f32(__m512i bits, __m512 inverse)
{
	__m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));

	/* bits 0..6 of the code, the others of the number's top byte: its sign */
	return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7f),
					 quantise_code_of(magnitude, inverse),
					 _mm512_srli_epi32(bits, 24), 0xca);
}

INLINE512 __m512i four(const __m512i bits[4], __m512 inverse)
{
	__m512i a = _mm512_packus_epi32(codes_f32(bits[0], inverse), codes_f32(bits[1], inverse));
	__m512i b = _mm512_packus_epi32(codes_f32(bits[2], inverse), codes_f32(bits[3], inverse));
	__m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

	return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b));
}

/* 64 numbers, fewer at the end of a block, to as many codes */
typedef __m512i (*codes_64)(const unsigned char *from, __mmask64 mask, __m512 inverse);

INLINE512 __m512i codes_64_f32(const unsigned char *from, __mmask64 mask, __m512 inverse)
{
	__m512i bits[4];

	for (int i = 0; i < 4; i++)
		bits[i] = _mm512_maskz_loadu_epi32((__mmask16)(mask >> 16 * i), from + 64 * i);
	return four(bits, inverse);
}

INLINE512 __m512i codes_64_f16(const unsigned char *from, __mmask64 mask, __m512 inverse)
{
	__m512i bits[4];

	for (int i = 0; i < 4; i++)
		bits[i] = _mm512_castps_si512(_mm512_cvtph_ps(
			_mm256_maskz_loadu_epi16((__mmask16)(mask >> 16 * i), from + 32 * i)));
	return four(bits, inverse);
}

INLINE512 void values(const struct quantise_strip *strip, uint64_t element, codes_64 codes)
{
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		const unsigned char *ahead =
			strip->ahead ? strip->ahead + row * strip->stride_bytes : NULL;
		unsigned char *to = strip->values + row * strip->values_stride;
		const float *inverse = strip->inverse;

		for (uint64_t left = strip->columns; left;) {
			uint64_t n = left < strip->block_columns ? left : strip->block_columns;
			__m512 factor = _mm512_set1_ps(*inverse++);

			left -= n;
			for (; n >= 64; n -= 64, from += 64 * element, to += 64) {
				quantise_ask(ahead, element);
				ahead += ahead ? 64 * element : 0;
				quantise_store(to, codes(from, ~0ull, factor), strip->stream);
			}
			if (n)
				_mm512_mask_storeu_epi8(to, quantise_first(n),
							codes(from, quantise_first(n), factor));
			from += n * element;
			to += n;
		}
	}
}

#define VALUES(name, element, codes)                                                  \
	TARGET512 void quantise_512_values_##name(const struct quantise_strip *strip) \
	{                                                                             \
		values(strip, element, codes);                                        \
	}

VALUES(f32, 4, codes_64_f32)
VALUES(bf16, 2, quantise_64_bf16)
VALUES(f16, 2, codes_64_f16)

/* ---- the largest magnitudes ---- */

/* Of 64 bytes and what was the largest so far, element by element; a copy of the bytes for
 * `near`. */
INLINE512 __m512i largest(__m512i most, __m512i bits, uint64_t element)
{
	bits = _mm512_and_si512(bits, _mm512_set1_epi32(element == 4 ? 0x7fffffff : 0x7fff7fff));
	return element == 4 ? _mm512_max_epu32(most, bits) : _mm512_max_epu16(most, bits);
}

/* Of one row of a block. A gather asks for the row GATHER_AHEAD further on, line by line as it
 * goes: rows that lie apart are foreseen by no prefetcher. */
INLINE512 __m512i row_peak(__m512i most, const unsigned char *from, uint64_t bytes,
			   uint64_t element, unsigned char *near, const unsigned char *ahead)
{
	uint64_t at = 0;
	__m512i bits;

	for (; at + 64 <= bytes; at += 64) {
		bits = _mm512_loadu_si512(from + at);
		if (near) {
			_mm_prefetch((const char *)(ahead + at), _MM_HINT_T0);
			_mm512_storeu_si512(near + at, bits);
		}
		most = largest(most, bits, element);
	}
	if (at == bytes)
		return most;
	bits = _mm512_maskz_loadu_epi8(quantise_first(bytes - at), from + at);
	if (near)
		_mm512_mask_storeu_epi8(near + at, quantise_first(bytes - at), bits);
	return largest(most, bits, element);
}

INLINE512 void peaks(uint32_t *out, const struct quantise_strip *strip, uint64_t element,
		     unsigned char *near)
{
	__m512i best[QUANTISE_STRIP_BLOCKS];
	uint64_t blocks = (strip->columns - 1) / strip->block_columns + 1;

	for (uint64_t b = 0; b < blocks; b++)
		best[b] = _mm512_setzero_si512();
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		const unsigned char *ahead = near ? quantise_ahead(strip, row) : NULL;
		uint64_t left = strip->columns;

		for (uint64_t b = 0; b < blocks; b++) {
			uint64_t n = left < strip->block_columns ? left : strip->block_columns;

			best[b] = row_peak(best[b], from, n * element, element, near, ahead);
			left -= n;
			from += n * element;
			ahead += near ? n * element : 0;
			near += near ? n * element : 0;
		}
	}
	for (uint64_t b = 0; b < blocks; b++) {
		__m512i wide = best[b];

		if (element == 2) /* the larger half of each element */
			wide = _mm512_max_epu32(_mm512_and_si512(wide, _mm512_set1_epi32(0xffff)),
						_mm512_srli_epi32(wide, 16));
		out[b] = _mm512_reduce_max_epu32(wide);
	}
}

#define PEAKS(bits)                                                                     \
	TARGET512 void quantise_512_peaks_##bits(uint32_t *out,                         \
						 const struct quantise_strip *strip)    \
	{                                                                               \
		peaks(out, strip, (bits) / 8, NULL);                                    \
	}                                                                               \
	TARGET512 void quantise_512_gather_##bits(                                      \
		uint32_t *out, const struct quantise_strip *strip, unsigned char *near) \
	{                                                                               \
		peaks(out, strip, (bits) / 8, near);                                    \
	}

PEAKS(32)
PEAKS(16)

const struct quantise_kernel quantise_avx512 = {
	.f32 = {quantise_512_peaks_32, quantise_512_values_f32, quantise_512_gather_32},
	.bf16 = {quantise_512_peaks_16, quantise_512_values_bf16, quantise_512_gather_16},
	.f16 = {quantise_512_peaks_16, quantise_512_values_f16, quantise_512_gather_16},
};
#endif
