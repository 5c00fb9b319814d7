/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_avx512.h -- what quantise_avx512.c and quantise_vbmi.c share: numbers to codes by
 * arithmetic, and the look for the largest magnitude.
 *
 * A finite y >= 0 of at most 448 becomes its code with one addition. With 2^e the power of two at
 * or below y, not below 2^-6, adding 2^(e+20) rounds y to a multiple n of 2^(e-3), the step of
 * F8_E4M3 there: the sum's lowest bits are n, its exponent is e + 147.
 *
 *   code = 8 (e + 6) + n = 8 (e + 147) + n - 1128
 *
 * Bits 20.. of the sum are 8 (e + 147). -1128 is 152 modulo 256: an addend of 2^(e+20) with 152
 * in its lowest bits brings it along, so the code is the low byte of sum + (sum >> 20). The
 * product and the addition carry their rounding with them, and are so never contracted.
 */
#ifndef PACK_QUANTISE_AVX512_H
#define PACK_QUANTISE_AVX512_H

#include "pack/element.h"
#include "pack/processor.h"
#include "pack/quantise_kernel.h"

#if PROCESSOR_X86
#include <immintrin.h>

#define NEAREST	  (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

INLINE512 __mmask64 quantise_first(uint64_t count)
{
	return count >= 64 ? ~0ull : (1ull << count) - 1;
}

/* What the sum above has in its low byte; other bits are not cleared. */
INLINE512 __m512i quantise_code_of(__m512i magnitude, __m512 inverse)
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

/* 32 of BF16 to 32 codes of 16 bits each: the even ones, and the odd ones, in halves of F32
 * elements that they need not be moved from */
INLINE512 __m512i quantise_codes_bf16(__m512i bits, __m512 inverse)
{
	__m512i magnitude = _mm512_and_epi32(bits, _mm512_set1_epi32(0x7fff7fff));
	__m512i even = quantise_code_of(_mm512_slli_epi32(magnitude, 16), inverse);
	__m512i odd = quantise_code_of(_mm512_and_epi32(magnitude, _mm512_set1_epi32(0x7fff0000)),
				       inverse);
	__m512i code = _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));

	return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x7f), code, _mm512_srli_epi16(bits, 8),
					 0xca);
}

/* 64 numbers, fewer at the end of a block, to as many codes */
INLINE512 __m512i quantise_64_bf16(const unsigned char *from, __mmask64 mask, __m512 inverse)
{
	__m512i a = _mm512_maskz_loadu_epi16((__mmask32)mask, from);
	__m512i b = _mm512_maskz_loadu_epi16((__mmask32)(mask >> 32), from + 64);
	__m512i codes = _mm512_packus_epi16(quantise_codes_bf16(a, inverse),
					    quantise_codes_bf16(b, inverse));

	return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), codes);
}

/* Asks for lines of the next strip while this one is computed: into the second cache, for this
 * strip has the first one. */
INLINE512 void quantise_ask(const unsigned char *at, uint64_t lines)
{
	for (uint64_t i = 0; at && i < lines; i++)
		_mm_prefetch((const char *)(at + 64 * i), _MM_HINT_T1);
}

INLINE512 void quantise_store(unsigned char *to, __m512i codes, bool stream)
{
	if (stream)
		_mm512_stream_si512((void *)to, codes);
	else
		_mm512_storeu_si512(to, codes);
}

/* The row that is asked for while a gather copies row `row`: GATHER_AHEAD rows on, perhaps in the
 * strip that comes next. */
#define GATHER_AHEAD 2u
static inline const unsigned char *quantise_ahead(const struct quantise_strip *strip, uint64_t row)
{
	const unsigned char *next = strip->ahead ? strip->ahead : strip->source;

	row += GATHER_AHEAD;
	if (row < strip->rows)
		return strip->source + row * strip->stride_bytes;
	return next + (row - strip->rows) * strip->stride_bytes;
}

void quantise_512_values_f32(const struct quantise_strip *strip);
void quantise_512_values_f16(const struct quantise_strip *strip);
void quantise_512_values_bf16(const struct quantise_strip *strip);
void quantise_512_peaks_32(uint32_t *peaks, const struct quantise_strip *strip);
void quantise_512_peaks_16(uint32_t *peaks, const struct quantise_strip *strip);
void quantise_512_gather_32(uint32_t *peaks, const struct quantise_strip *strip,
			    unsigned char *near);
void quantise_512_gather_16(uint32_t *peaks, const struct quantise_strip *strip,
			    unsigned char *near);
#endif

#endif
