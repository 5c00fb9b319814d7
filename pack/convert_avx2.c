/* SPDX-License-Identifier: Apache-2.0
 *
 * convert_avx2.c -- 8 elements at a time through F32; the rest of a row from a copy of 8.
 */
#include "pack/convert_kernel.h"

#if PROCESSOR_X86
#include <immintrin.h>

/* all ones where the element's F32 is NaN */
INLINE256 __m256i nan_of(__m256i bits)
{
	__m256 value = _mm256_castsi256_ps(bits);

	return _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
}

INLINE256 __m256i quiet(__m256i bits)
{
	return _mm256_or_si256(bits, _mm256_and_si256(nan_of(bits), _mm256_set1_epi32(0x00400000)));
}

INLINE256 __m128i load_eight(const unsigned char *from)
{
	return _mm_loadu_si128((const __m128i *)(const void *)from);
}

INLINE256 __m256i load_f32(const unsigned char *from, __m256 scale)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

INLINE256 __m256i load_bf16(const unsigned char *from, __m256 scale)
{
	return quiet(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_eight(from)), 16));
}

INLINE256 __m256i load_f16(const unsigned char *from, __m256 scale)
{
	return _mm256_castps_si256(_mm256_cvtph_ps(load_eight(from)));
}

/* The fields of F8_E4M3 are those of an F16 that is 2^8 times smaller, its subnormals too. */
INLINE256 __m256i load_f8(const unsigned char *from, __m256 scale)
{
	__m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)from);
	__m256i wide = _mm256_cvtepi8_epi32(codes); /* the sign spread over the upper bits */
	__m256i signs = _mm256_and_si256(wide, _mm256_set1_epi32((int)0x80000000));
	__m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi32(0x7f)), nan, bits;
	__m128i half = _mm_cvtepi8_epi16(codes);
	__m256 product;

	half = _mm_or_si128(_mm_slli_epi16(_mm_and_si128(half, _mm_set1_epi16(0x7f)), 7),
			    _mm_and_si128(half, _mm_set1_epi16((short)0x8000)));
	product = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
	product = _mm256_mul_ps(product, scale);
	bits = _mm256_castps_si256(product);
	nan = _mm256_or_si256(_mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f)), nan_of(bits));
	signs = _mm256_or_si256(signs, _mm256_set1_epi32(0x7fc00000));
	return _mm256_blendv_epi8(bits, signs, nan);
}

INLINE256 void store_f32(unsigned char *to, __m256i bits)
{
	_mm256_storeu_si256((__m256i *)(void *)to, bits);
}

INLINE256 void store_bf16(unsigned char *to, __m256i bits)
{
	__m256i nan = nan_of(bits);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);

	up = _mm256_blendv_epi8(up, _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000)), nan);
	up = _mm256_srli_epi32(up, 16);
	up = _mm256_permute4x64_epi64(_mm256_packus_epi32(up, up), 0x08);
	_mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(up));
}

INLINE256 void store_f16(unsigned char *to, __m256i bits)
{
	_mm_storeu_si128((__m128i *)(void *)to,
			 _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT));
}

#define ROW(name, FROM, from_bytes, TO, to_bytes)                                              \
	TARGET256 __attribute__((noinline)) static void name##_run(                            \
		void *target, const void *source, uint64_t count, float scale)                 \
	{                                                                                      \
		const unsigned char *from = source;                                            \
		unsigned char *to = target;                                                    \
		__m256 factor = _mm256_set1_ps(scale);                                         \
                                                                                               \
		for (; count >= 8; count -= 8, from += 8 * (from_bytes), to += 8 * (to_bytes)) \
			store_##TO(to, load_##FROM(from, factor));                             \
		if (count) {                                                                   \
			unsigned char rest[8 * (from_bytes)] = {0}, made[8 * (to_bytes)];      \
                                                                                               \
			memcpy(rest, from, count *(from_bytes));                               \
			store_##TO(made, load_##FROM(rest, factor));                           \
			memcpy(to, made, count *(to_bytes));                                   \
		}                                                                              \
	}                                                                                      \
	CONVERT_ROW(name)

CONVERT_EACH(ROW, bf16)

const struct convert_kernel convert_avx2 = {
	.rows = CONVERT_ROWS(),
	.scaled = CONVERT_SCALED_ROWS,
};
#endif
