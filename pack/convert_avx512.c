/* SPDX-License-Identifier: Apache-2.0
 *
 * convert_avx512.c -- 16 elements at a time through F32, the rest of a row under a mask. BF16 is
 * rounded with integers: VCVTNEPS2BF16 flushes subnormals, whatever MXCSR says. VCVTPH2PS and
 * VCVTPS2PH do what element.h says in the default mode (Intel SDM, volume 2).
 */
#include "pack/convert_kernel.h"

#if PROCESSOR_X86
#include <immintrin.h>

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define IS_NAN	0x81 /* VFPCLASSPS: quiet, or signalling */

INLINE512 __m512i load_f32(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	return _mm512_maskz_loadu_epi32(mask, from);
}

INLINE512 __m512i load_bf16(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	__m256i half = _mm256_maskz_loadu_epi16(mask, from);
	__m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
	__mmask16 nan = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(bits), IS_NAN);

	return _mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(0x00400000));
}

INLINE512 __m512i load_f16(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from)));
}

/* The fields of F8_E4M3 are an F32's upper ones, its exponent 120 less; subnormals from a table. */
INLINE512 __m512i load_f8(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	__m512i codes = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, from)); /* sign spread */
	__m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi32(0x7f));
	__m512i sign = _mm512_set1_epi32((int)0x80000000), bits;
	__m512 subnormals = _mm512_setr_ps(0x0p-9f, 0x1p-9f, 0x2p-9f, 0x3p-9f, 0x4p-9f, 0x5p-9f,
					   0x6p-9f, 0x7p-9f, 0, 0, 0, 0, 0, 0, 0, 0);
	__mmask16 subnormal = _mm512_testn_epi32_mask(codes, _mm512_set1_epi32(0x78));
	__mmask16 nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f));
	__m512 product;

	bits = _mm512_add_epi32(_mm512_slli_epi32(magnitude, 20), _mm512_set1_epi32(120 << 23));
	bits = _mm512_castps_si512(_mm512_mask_permutexvar_ps(_mm512_castsi512_ps(bits), subnormal,
							      codes, subnormals));
	/* (codes & sign) | bits */
	bits = _mm512_ternarylogic_epi32(codes, sign, bits, 0xea);
	product = _mm512_mul_round_ps(_mm512_castsi512_ps(bits), scale, NEAREST);
	nan |= _mm512_fpclass_ps_mask(product, IS_NAN);
	/* with the code's sign, as element.h says */
	return _mm512_mask_or_epi32(_mm512_castps_si512(product), nan,
				    _mm512_and_si512(codes, sign), _mm512_set1_epi32(0x7fc00000));
}

INLINE512 void store_f32(unsigned char *to, __mmask16 mask, __m512i bits)
{
	_mm512_mask_storeu_epi32(to, mask, bits);
}

/* ---- 16 elements of 16 bits, and their stores ---- */

INLINE512 __m256i half_bf16(__m512i bits)
{
	__mmask16 nan = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(bits), IS_NAN);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);

	up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x00400000));
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

/* Of numbers, and of NaN whose lower half is 0. */
INLINE512 __m256i half_rounded(__m512i bits)
{
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);

	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

INLINE512 __m256i half_f16(__m512i bits)
{
	return _mm512_cvtps_ph(_mm512_castsi512_ps(bits), NEAREST);
}

/* stream_*: 32 elements to whole lines past the caches. */
INLINE512 void stream_f32(unsigned char *to, __m512i a, __m512i b)
{
	_mm512_stream_si512((void *)to, a);
	_mm512_stream_si512((void *)(to + 64), b);
}

#define STORES_16(name)                                                                        \
	INLINE512 void store_##name(unsigned char *to, __mmask16 mask, __m512i bits)           \
	{                                                                                      \
		_mm256_mask_storeu_epi16(to, mask, half_##name(bits));                         \
	}                                                                                      \
	INLINE512 void stream_##name(unsigned char *to, __m512i a, __m512i b)                  \
	{                                                                                      \
		__m512i lower = _mm512_castsi256_si512(half_##name(a));                        \
                                                                                               \
		_mm512_stream_si512((void *)to, _mm512_inserti64x4(lower, half_##name(b), 1)); \
	}

STORES_16(bf16)
STORES_16(rounded)
STORES_16(f16)

/* The prefetchers stop at the end of a page, and find the next one late. */
#define AHEAD_BYTES 2048u
INLINE512 void ask(const unsigned char *from, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += 64)
		_mm_prefetch((const char *)(from + AHEAD_BYTES + at), _MM_HINT_T0);
}

#define ROW(name, FROM, from_bytes, TO, to_bytes)                                                  \
	TARGET512 __attribute__((noinline)) static void name##_run(                                \
		void *target, const void *source, uint64_t count, float scale)                     \
	{                                                                                          \
		const unsigned char *from = source;                                                \
		unsigned char *to = target;                                                        \
		__m512 factor = _mm512_set1_ps(scale);                                             \
                                                                                                   \
		for (; count >= 16; count -= 16, from += 16 * (from_bytes), to += 16 * (to_bytes)) \
			store_##TO(to, 0xffff, load_##FROM(from, 0xffff, factor));                 \
		if (count) {                                                                       \
			__mmask16 mask = (__mmask16)((1u << count) - 1);                           \
                                                                                                   \
			store_##TO(to, mask, load_##FROM(from, mask, factor));                     \
		}                                                                                  \
	}                                                                                          \
	TARGET512 __attribute__((noinline)) static void name##_past_run(                           \
		void *target, const void *source, uint64_t count, float scale)                     \
	{                                                                                          \
		const unsigned char *from = source;                                                \
		unsigned char *to = target;                                                        \
		__m512 factor = _mm512_set1_ps(scale);                                             \
                                                                                                   \
		for (; count >= 32;                                                                \
		     count -= 32, from += 32 * (from_bytes), to += 32 * (to_bytes)) {              \
			if (count * (from_bytes) > AHEAD_BYTES)                                    \
				ask(from, 32 * (from_bytes));                                      \
			stream_##TO(to, load_##FROM(from, 0xffff, factor),                         \
				    load_##FROM(from + 16 * (from_bytes), 0xffff, factor));        \
		}                                                                                  \
		name##_run(to, from, count, scale);                                                \
	}                                                                                          \
	CONVERT_ROW(name)                                                                          \
	CONVERT_ROW(name##_past)

CONVERT_EACH(ROW, rounded)

const struct convert_kernel convert_avx512 = {
	.rows = CONVERT_ROWS(),
	.streamed = CONVERT_ROWS(_past),
	.scaled = CONVERT_SCALED_ROWS,
};
#endif
