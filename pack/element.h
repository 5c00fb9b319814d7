/* SPDX-License-Identifier: Apache-2.0
 *
 * element.h -- one number from one format to another, by its bits: what every kernel must agree
 * with. An F32 is passed as its bits, so that no compiler rounds, contracts or flushes it.
 *
 *          sign exponent mantissa  bias   largest
 *   F32       1     8       23      127   3.4e38
 *   BF16      1     8        7      127   3.4e38
 *   F16       1     5       10       15   65504
 *   F8_E4M3   1     4        3        7   448       no infinity; 0x7f and 0xff are NaN
 *
 * Rounded to nearest even, subnormals too; what is too large becomes infinity. A NaN stays one:
 * its sign, the upper bits of its payload, the quiet bit set (as F16C does). In F8_E4M3 it is
 * 0x7f with the sign, and an infinity becomes 448 (job/transform.h).
 * Sources: IEEE 754-2008 §3.4, §6.2; OCP 8-bit floating point specification 1.0 §5.
 */
#ifndef PACK_ELEMENT_H
#define PACK_ELEMENT_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__ /* pack/cuda/ */
#define ELEMENT_FUNCTION static __host__ __device__ inline
#else
#define ELEMENT_FUNCTION static inline
#endif

#define ELEMENT_F32_INFINITY 0x7f800000u
#define ELEMENT_F32_QUIET    0x00400000u
#define ELEMENT_F32_NAN      0x7fc00000u

ELEMENT_FUNCTION uint32_t element_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

ELEMENT_FUNCTION float element_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* value / 2^shift, 1 <= shift <= 31 */
ELEMENT_FUNCTION uint32_t element_round(uint32_t value, uint32_t shift)
{
	uint32_t odd = (value >> shift) & 1;

	return (value + (1u << (shift - 1)) - 1 + odd) >> shift;
}

/* The subnormal of a format with steps of 2^-step that is nearest to the F32, which is below the
 * format's smallest normal number. The F32's own subnormals are far below half a step. */
ELEMENT_FUNCTION uint32_t element_subnormal(uint32_t magnitude, uint32_t step)
{
	uint32_t shift = 150 - step - (magnitude >> 23);

	if (shift > 25)
		return 0;
	return element_round((magnitude & 0x007fffff) | 0x00800000, shift);
}

ELEMENT_FUNCTION uint32_t element_f32_from_bf16(uint16_t bits)
{
	uint32_t nan = (bits & 0x7fffu) > 0x7f80 ? ELEMENT_F32_QUIET : 0;

	return (uint32_t)bits << 16 | nan;
}

ELEMENT_FUNCTION uint32_t element_f32_from_f16(uint16_t bits)
{
	uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;

	if (magnitude < 0x0400)
		return sign | element_bits((float)magnitude * 0x1p-24f);
	if (magnitude < 0x7c00)
		return sign | ((magnitude << 13) + (112u << 23));
	return sign | ELEMENT_F32_INFINITY | (magnitude & 0x03ff) << 13 |
	       (magnitude > 0x7c00 ? ELEMENT_F32_QUIET : 0);
}

ELEMENT_FUNCTION uint32_t element_f32_from_f8(uint8_t bits)
{
	uint32_t sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;

	if (magnitude == 0x7f)
		return sign | ELEMENT_F32_NAN;
	if (magnitude < 0x08)
		return sign | element_bits((float)magnitude * 0x1p-9f);
	return sign | ((magnitude << 20) + (120u << 23));
}

/* Of an F8_E4M3 element and the scale of its block. Every NaN is the element's sign with no
 * payload: which of two NaNs a product keeps is the processor's affair. */
ELEMENT_FUNCTION uint32_t element_f32_from_f8_scaled(uint8_t bits, float scale)
{
	float product = element_float(element_f32_from_f8(bits)) * scale;

	return product == product ? element_bits(product)
				  : ((bits & 0x80u) << 24 | ELEMENT_F32_NAN);
}

ELEMENT_FUNCTION uint16_t element_bf16_from_f32(uint32_t bits)
{
	if ((bits & 0x7fffffff) > ELEMENT_F32_INFINITY)
		return (uint16_t)(bits >> 16 | 0x0040);
	return (uint16_t)element_round(bits, 16);
}

ELEMENT_FUNCTION uint16_t element_f16_from_f32(uint32_t bits)
{
	uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff, to;

	if (magnitude > ELEMENT_F32_INFINITY)
		to = 0x7e00 | (magnitude >> 13 & 0x01ff);
	else if (magnitude >= 0x47800000) /* 2^16; what is below may round up to infinity */
		to = 0x7c00;
	else if (magnitude >= 0x38800000) /* 2^-14 */
		to = element_round(magnitude - (112u << 23), 13);
	else
		to = element_subnormal(magnitude, 24);
	return (uint16_t)(sign | to);
}

ELEMENT_FUNCTION uint8_t element_f8_from_f32(uint32_t bits)
{
	uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff, to;

	if (magnitude > ELEMENT_F32_INFINITY)
		to = 0x7f;
	else if (magnitude >= 0x43e00000) /* 448 */
		to = 0x7e;
	else if (magnitude >= 0x3c800000) /* 2^-6 */
		to = element_round(magnitude - (120u << 23), 20);
	else
		to = element_subnormal(magnitude, 9);
	return (uint8_t)(sign | to);
}

/* Numbers in memory, any alignment, as the bits of an F32. */
ELEMENT_FUNCTION uint32_t element_load_f32(const unsigned char *bytes)
{
	uint32_t bits;

	memcpy(&bits, bytes, sizeof(bits));
	return bits;
}

ELEMENT_FUNCTION uint32_t element_load_bf16(const unsigned char *bytes)
{
	uint16_t bits;

	memcpy(&bits, bytes, sizeof(bits));
	return element_f32_from_bf16(bits);
}

ELEMENT_FUNCTION uint32_t element_load_f16(const unsigned char *bytes)
{
	uint16_t bits;

	memcpy(&bits, bytes, sizeof(bits));
	return element_f32_from_f16(bits);
}

#endif
