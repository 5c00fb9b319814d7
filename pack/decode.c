/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/decode.h"

#include "base/processor.h"
#include "pack/convert.h"

#include <stddef.h>
#include <string.h>

#define CODES 128u

void decode_table_make(struct decode_table *table, enum dtype to, float scale)
{
	unsigned char codes[CODES], made[CODES * 4];
	uint32_t bytes = dtype_bytes(to);

	for (uint32_t i = 0; i < CODES; i++)
		codes[i] = (unsigned char)i;
	convert_find(DTYPE_F8_E4M3, to, NULL)(made, codes, CODES, scale);
	for (uint32_t p = 0; p < bytes; p++)
		for (uint32_t i = 0; i < CODES; i++)
			table->planes[p][i] = made[i * bytes + p];
}

#if PROCESSOR_X86
#include <immintrin.h>

/* Up to 64 codes to as many elements. */
typedef void (*decode_64)(__m512i out[4], __m512i codes, const struct decode_table *table);

INLINE_VBMI __m512i plane(const struct decode_table *table, int byte, __m512i codes)
{
	return _mm512_permutex2var_epi8(_mm512_load_si512(table->planes[byte]), codes,
					_mm512_load_si512(table->planes[byte] + 64));
}

/* found ^ (codes & 0x80) */
INLINE_VBMI __m512i with_sign(__m512i found, __m512i codes)
{
	return _mm512_ternarylogic_epi32(found, codes, _mm512_set1_epi8((char)0x80), 0x78);
}

/* Bytes are brought together within units of 128 bits: codes are put first where that takes
 * them. */
INLINE_VBMI void decode_16(__m512i out[4], __m512i codes, const struct decode_table *table)
{
	__m512i lower, upper;

	codes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), codes);
	lower = plane(table, 0, codes);
	upper = with_sign(plane(table, 1, codes), codes);
	out[0] = _mm512_unpacklo_epi8(lower, upper);
	out[1] = _mm512_unpackhi_epi8(lower, upper);
}

INLINE_VBMI void decode_32(__m512i out[4], __m512i codes, const struct decode_table *table)
{
	__m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	__m512i planes[4], lower[2], upper[2];

	codes = _mm512_permutexvar_epi32(order, codes);
	for (int i = 0; i < 4; i++)
		planes[i] = plane(table, i, codes);
	planes[3] = with_sign(planes[3], codes);
	lower[0] = _mm512_unpacklo_epi8(planes[0], planes[1]);
	lower[1] = _mm512_unpackhi_epi8(planes[0], planes[1]);
	upper[0] = _mm512_unpacklo_epi8(planes[2], planes[3]);
	upper[1] = _mm512_unpackhi_epi8(planes[2], planes[3]);
	for (int i = 0; i < 2; i++) {
		out[2 * i] = _mm512_unpacklo_epi16(lower[i], upper[i]);
		out[2 * i + 1] = _mm512_unpackhi_epi16(lower[i], upper[i]);
	}
}

INLINE_VBMI void decode_rest(unsigned char *to, const unsigned char *from, uint64_t n, int bytes,
			     const struct decode_table *table, decode_64 decode)
{
	__mmask64 mask = (1ull << n) - 1;
	__m512i out[4];

	decode(out, _mm512_maskz_loadu_epi8(mask, from), table);
	memcpy(to, out, n * (uint64_t)bytes);
}

INLINE_VBMI void decode_all(unsigned char *to, const unsigned char *from, uint64_t count,
			    const struct decode_table *table, uint64_t skip, uint64_t width,
			    const unsigned char *ahead, bool stream, int bytes, decode_64 decode)
{
	for (uint64_t n; count; count -= n, skip = 0, table++) {
		uint64_t left;

		n = width - skip < count ? width - skip : count;
		for (left = n; left >= 64; left -= 64, from += 64, to += 64 * bytes) {
			__m512i out[4];

			if (ahead) {
				_mm_prefetch((const char *)ahead, _MM_HINT_T0);
				ahead += 64;
			}
			decode(out, _mm512_loadu_si512(from), table);
			for (int i = 0; i < bytes; i++)
				if (stream)
					_mm512_stream_si512((void *)(to + 64 * i), out[i]);
				else
					_mm512_storeu_si512(to + 64 * i, out[i]);
		}
		if (left)
			decode_rest(to, from, left, bytes, table, decode);
		from += left;
		to += left * (uint64_t)bytes;
	}
}

TARGET_VBMI static void row_16(void *target, const void *source, uint64_t count,
			       const struct decode_table *tables, uint64_t skip, uint64_t width,
			       const void *ahead, bool stream)
{
	decode_all(target, source, count, tables, skip, width, ahead, stream, 2, decode_16);
}

TARGET_VBMI static void row_32(void *target, const void *source, uint64_t count,
			       const struct decode_table *tables, uint64_t skip, uint64_t width,
			       const void *ahead, bool stream)
{
	decode_all(target, source, count, tables, skip, width, ahead, stream, 4, decode_32);
}

decode_row decode_find(enum dtype to)
{
	if (!processor_has_avx512vbmi())
		return NULL;
	if (to == DTYPE_BF16 || to == DTYPE_F16)
		return row_16;
	return to == DTYPE_F32 ? row_32 : NULL;
}
#else
decode_row decode_find(enum dtype to)
{
	return NULL;
}
#endif
