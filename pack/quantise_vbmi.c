/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_vbmi.c -- BF16 to codes without arithmetic on single numbers. Twice the number has a
 * code that is 8 more, down to 2^-6. So within a block the 7 bits of its mantissa say the code up
 * to multiples of 8, and the exponent adds them:
 *
 *   number  s eeeeeeee mmmmmmm      code = 8 e + table[m]      of its low byte; then the sign
 *
 * The table, 128 bytes for each block, is made by the arithmetic of quantise_avx512.h; one
 * VPERMI2B looks 64 numbers up. Numbers of two octaves above 2^-6 and all below, subnormal codes
 * among them, are few: where there is one among the 64, they all go the other way.
 */
#include "pack/quantise_avx512.h"

#if PROCESSOR_X86

#define TABLE_ROWS_MIN 8 /* fewer are not worth a table */

/* What is added to bits 4..11 of a number, 8 e + m / 16, modulo 256. */
struct table {
	__m512i lower, upper; /* of mantissas up to 63, from 64 on */
	__m512i least;	      /* e / 2 from here on has such a code */
};

/* With the inverse's exponent taken away, 1.m * inverse is in [1, 4): its code is none of the
 * exceptions. */
INLINE_VBMI __m512i table_half(float inverse, int mantissa)
{
	uint32_t bits = element_bits(inverse);
	__m512 factor = _mm512_set1_ps(element_float((bits & 0x007fffff) | 127u << 23));
	__m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	__m512i half = _mm512_setzero_si512();

	for (int i = 0; i < 4; i++, mantissa += 16) {
		__m512i m = _mm512_add_epi32(index, _mm512_set1_epi32(mantissa));
		__m512i number =
			_mm512_add_epi32(_mm512_slli_epi32(m, 16), _mm512_set1_epi32(127 << 23));
		/* 127 of the number's exponent, and 127 of the inverse's */
		int rest = 8 * ((int)(bits >> 23) - 254) - mantissa / 16;
		__m512i code =
			_mm512_add_epi32(quantise_code_of(number, factor), _mm512_set1_epi32(rest));

		half = _mm512_mask_expand_epi32(half, (__mmask16)(0xf << 4 * i),
						_mm512_castsi128_si512(_mm512_cvtepi32_epi8(code)));
	}
	return half;
}

INLINE_VBMI struct table table_of(float inverse)
{
	/* e + the inverse's exponent - 254 >= -6; and e is no subnormal's */
	int least = 248 - (int)(element_bits(inverse) >> 23);

	return (struct table){
		.lower = table_half(inverse, 0),
		.upper = table_half(inverse, 64),
		.least = _mm512_set1_epi8((char)(least < 1 ? 1 : (least + 1) / 2)),
	};
}

/* Codes of 32 numbers in `a` and 32 in `b`, in the order a0 b0 a1 b1 ..; *other when there are
 * numbers among them that the table is not for. */
INLINE_VBMI __m512i codes_of(__m512i a, __m512i b, const struct table *table, __mmask64 *other)
{
	__m512i low = _mm512_set1_epi16(0x00ff);
	/* of each number bits 0..7, 4..11 and 8..15; 0xb8: b ? c : a, 0xe2: b ? a : c */
	__m512i bits_0 = _mm512_ternarylogic_epi32(_mm512_slli_epi16(b, 8), low, a, 0xb8);
	__m512i bits_4 = _mm512_ternarylogic_epi32(_mm512_slli_epi16(b, 4), low,
						   _mm512_srli_epi16(a, 4), 0xb8);
	__m512i bits_8 = _mm512_ternarylogic_epi32(_mm512_srli_epi16(a, 8), low, b, 0xe2);
	__m512i code = _mm512_add_epi8(
		bits_4, _mm512_permutex2var_epi8(table->lower, bits_0, table->upper));
	__m512i magnitude = _mm512_set1_epi8(0x7f);

	*other = _mm512_cmplt_epu8_mask(_mm512_and_si512(bits_8, magnitude), table->least);
	return _mm512_ternarylogic_epi32(code, magnitude, bits_8, 0xe2);
}

/* Of a row within a block. */
INLINE_VBMI void row_values(unsigned char *to, const unsigned char *from, uint64_t n, float inverse,
			    const struct table *table, const unsigned char *ahead, bool stream)
{
	/* a0 b0 a1 b1 .. to a0 a1 .. b0 b1 .. */
	__m512i even = _mm512_setr_epi64(0x0e0c0a0806040200, 0x1e1c1a1816141210, 0x2e2c2a2826242220,
					 0x3e3c3a3836343230, 0x0f0d0b0907050301, 0x1f1d1b1917151311,
					 0x2f2d2b2927252321, 0x3f3d3b3937353331);
	uint64_t at = 0;

	for (; at + 64 <= n; at += 64) {
		__mmask64 other;
		__m512i codes = codes_of(_mm512_loadu_si512(from + 2 * at),
					 _mm512_loadu_si512(from + 2 * at + 64), table, &other);

		if (ahead)
			quantise_ask(ahead + 2 * at, 2);
		codes = _mm512_permutexvar_epi8(even, codes);
		if (__builtin_expect(other != 0, 0))
			codes = quantise_64_bf16(from + 2 * at, ~0ull, _mm512_set1_ps(inverse));
		quantise_store(to + at, codes, stream);
	}
	if (at < n)
		_mm512_mask_storeu_epi8(to + at, quantise_first(n - at),
					quantise_64_bf16(from + 2 * at, quantise_first(n - at),
							 _mm512_set1_ps(inverse)));
}

TARGET_VBMI static void values_bf16(const struct quantise_strip *strip)
{
	struct table tables[QUANTISE_STRIP_BLOCKS];
	uint64_t blocks = (strip->columns - 1) / strip->block_columns + 1;

	if (strip->rows < TABLE_ROWS_MIN || strip->block_columns < 64) {
		quantise_512_values_bf16(strip);
		return;
	}
	for (uint64_t b = 0; b < blocks; b++)
		tables[b] = table_of(strip->inverse[b]);
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		const unsigned char *ahead = strip->ahead;
		unsigned char *to = strip->values + row * strip->values_stride;
		uint64_t left = strip->columns;

		for (uint64_t b = 0; b < blocks; b++) {
			uint64_t n = left < strip->block_columns ? left : strip->block_columns;

			row_values(to, from, n, strip->inverse[b], &tables[b],
				   ahead ? ahead + row * strip->stride_bytes +
						   2 * b * strip->block_columns
					 : NULL,
				   strip->stream);
			left -= n;
			from += 2 * n;
			to += n;
		}
	}
}

/* ---- F8_E4M3 by tables ---- */

INLINE_VBMI __m512i look_up_64(__m512i codes, __m512i lower, __m512i upper)
{
	__m512i found = _mm512_permutex2var_epi8(lower, codes, upper);

	return _mm512_ternarylogic_epi32(found, _mm512_set1_epi8(0x7f), codes, 0xe2);
}

TARGET_VBMI static void look_up(const struct requantise_strip *strip)
{
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		const unsigned char *ahead = strip->ahead;
		unsigned char *to = strip->values + row * strip->values_stride;

		ahead += ahead ? row * strip->stride_bytes : 0;
		for (uint64_t c = 0, at = 0; c < strip->cells; at = strip->ends[c++]) {
			__m512i lower = _mm512_loadu_si512(strip->tables[c]);
			__m512i upper = _mm512_loadu_si512(strip->tables[c] + 64);
			uint64_t end = strip->ends[c];

			for (; at + 64 <= end; at += 64) {
				__m512i codes = _mm512_loadu_si512(from + at);

				if (ahead)
					quantise_ask(ahead + at, 1);
				quantise_store(to + at, look_up_64(codes, lower, upper),
					       strip->stream);
			}
			if (at < end) {
				__mmask64 mask = quantise_first(end - at);
				__m512i codes = _mm512_maskz_loadu_epi8(mask, from + at);

				_mm512_mask_storeu_epi8(to + at, mask,
							look_up_64(codes, lower, upper));
			}
		}
	}
}

TARGET_VBMI static void peaks_f8(unsigned char *peaks, const struct requantise_strip *strip)
{
	__m512i best[REQUANTISE_CELLS], one = _mm512_set1_epi8(1), low = _mm512_set1_epi8(0x7f);

	for (uint64_t c = 0; c < strip->cells; c++)
		best[c] = _mm512_setzero_si512();
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;

		for (uint64_t c = 0, at = 0; c < strip->cells; at = strip->ends[c++])
			for (uint64_t end = strip->ends[c]; at < end; at += 64) {
				__mmask64 mask = quantise_first(end - at);
				__m512i codes = _mm512_maskz_loadu_epi8(mask, from + at);

				/* one more than the code, of which a NaN's is 0 */
				codes = _mm512_and_si512(_mm512_add_epi8(codes, one), low);
				best[c] = _mm512_max_epu8(best[c], codes);
			}
	}
	for (uint64_t c = 0; c < strip->cells; c++) {
		unsigned char numbers[64], peak = 1;

		_mm512_storeu_si512(numbers, best[c]);
		for (int i = 0; i < 64; i++)
			peak = numbers[i] > peak ? numbers[i] : peak;
		peaks[c] = peak - 1;
	}
}

const struct quantise_kernel quantise_vbmi = {
	.f32 = {quantise_512_peaks_32, quantise_512_values_f32, quantise_512_gather_32},
	.bf16 = {quantise_512_peaks_16, values_bf16, quantise_512_gather_16},
	.f16 = {quantise_512_peaks_16, quantise_512_values_f16, quantise_512_gather_16},
	.f8 = {peaks_f8, look_up},
};
#endif
