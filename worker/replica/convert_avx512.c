/* SPDX-License-Identifier: Apache-2.0
 *
 * convert_avx512.c -- 16 elements at a time through F32, the rest of a row under a mask. BF16 is
 * rounded with integers: VCVTNEPS2BF16 flushes subnormals, whatever MXCSR says. VCVTPH2PS and
 * VCVTPS2PH do what element.h says in the default mode (Intel SDM, volume 2).
 */
#include "worker/replica/convert_kernel.h"

#if PROCESSOR_X86
#include <immintrin.h>

#define TARGET512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE512 TARGET512 __attribute__((always_inline)) static inline
#define NEAREST	  (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define IS_NAN	  0x81 /* VFPCLASSPS: quiet, or signalling */

INLINE512 __m512i load_f32(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	(void)scale;
	return _mm512_maskz_loadu_epi32(mask, from);
}

INLINE512 __m512i load_bf16(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	__m256i half = _mm256_maskz_loadu_epi16(mask, from);
	__m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
	__mmask16 nan = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(bits), IS_NAN);

	(void)scale;
	return _mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(0x00400000));
}

INLINE512 __m512i load_f16(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	(void)scale;
	return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from)));
}

/* The fields of F8_E4M3 are those of an F16 that is 2^8 times smaller, its subnormals too. */
INLINE512 __m512i load_f8(const unsigned char *from, __mmask16 mask, __m512 scale)
{
	__m128i codes = _mm_maskz_loadu_epi8(mask, from);
	__m512i signs = _mm512_cvtepi8_epi32(codes); /* spread over the upper bits */
	__m256i wide = _mm256_cvtepu8_epi16(codes), half;
	__m128i magnitude = _mm_and_si128(codes, _mm_set1_epi8(0x7f));
	__mmask16 nan = _mm_cmpeq_epi8_mask(magnitude, _mm_set1_epi8(0x7f));
	__m512 product;

	half = _mm256_or_si256(
		_mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7f)), 7),
		_mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8));
	product = _mm512_mul_round_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f), NEAREST);
	product = _mm512_mul_round_ps(product, scale, NEAREST);
	nan |= _mm512_fpclass_ps_mask(product, IS_NAN);
	signs = _mm512_and_si512(signs, _mm512_set1_epi32((int)0x80000000));
	return _mm512_mask_or_epi32(_mm512_castps_si512(product), nan, signs,
				    _mm512_set1_epi32(0x7fc00000));
}

INLINE512 void store_f32(unsigned char *to, __mmask16 mask, __m512i bits)
{
	_mm512_mask_storeu_epi32(to, mask, bits);
}

INLINE512 void store_bf16(unsigned char *to, __mmask16 mask, __m512i bits)
{
	__mmask16 nan = _mm512_fpclass_ps_mask(_mm512_castsi512_ps(bits), IS_NAN);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);

	up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x00400000));
	_mm256_mask_storeu_epi16(to, mask, _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

INLINE512 void store_f16(unsigned char *to, __mmask16 mask, __m512i bits)
{
	_mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(_mm512_castsi512_ps(bits), NEAREST));
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
	CONVERT_ROW(name)

ROW(f32_bf16, f32, 4, bf16, 2)
ROW(f32_f16, f32, 4, f16, 2)
ROW(bf16_f32, bf16, 2, f32, 4)
ROW(bf16_f16, bf16, 2, f16, 2)
ROW(f16_f32, f16, 2, f32, 4)
ROW(f16_bf16, f16, 2, bf16, 2)
ROW(f8_f32, f8, 1, f32, 4)
ROW(f8_bf16, f8, 1, bf16, 2)
ROW(f8_f16, f8, 1, f16, 2)

const struct convert_kernel convert_avx512 = {
	.name = "avx512",
	.here = processor_has_avx512,
	.rows = CONVERT_ROWS,
};
#endif
