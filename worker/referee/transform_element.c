/* SPDX-License-Identifier: Apache-2.0
 *
 * transform_element.c -- formulas without branches, one loop a format, so that compilers make
 * vectors of each loop. Every product is exact but the two that job/transform.h rounds, so one that
 * is fused with the addition after it changes nothing. A small format's finite magnitude is its
 * code read as a number of steps:
 *
 *   code    | exponent | fraction |     value = (fraction + 2^m, or without it in the lowest
 *                                        binade) steps of 2^(exponent - bias - m)
 *
 * and a value's code is the nearest whole number of steps of its binade, counted on from the
 * binade's first code; the nearest past the end is the first code of the next binade.
 */
#include "worker/referee/transform_element.h"

#include "job/transform.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define INFINITY_BITS 0x7f800000u
#define QUIET	      0x00400000u
#define QUIET_NAN     0x7fc00000u
#define MAGNITUDE     0x7fffffffu

static inline uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Both are computed, so that no branch is left. */
static inline uint32_t choose(bool first, uint32_t a, uint32_t b)
{
	uint32_t mask = 0u - (uint32_t)first;

	return (a & mask) | (b & ~mask);
}

/* 2^exponent, of a normal F32 */
static inline float power_of_two(int exponent)
{
	return float_of((uint32_t)(127 + exponent) << 23);
}

/* ---- one element ---- */

static inline float small_value(uint32_t code, int mantissa, int bias)
{
	uint32_t exponent = code >> mantissa, fraction = code & ((1u << mantissa) - 1);
	uint32_t steps = fraction + choose(exponent, 1u << mantissa, 0);
	int binade = (int)choose(exponent, exponent, 1);

	return (float)(int)steps * power_of_two(binade - bias - mantissa);
}

/* Of a magnitude below 2^(127 - mantissa); its steps fit the 23 bits of an F32 whose last is 1. */
static inline uint32_t small_code(uint32_t magnitude, int mantissa, int bias)
{
	int exponent = (int)(magnitude >> 23) - 127;
	int binade = (int)choose(exponent < 1 - bias, (uint32_t)(1 - bias), (uint32_t)exponent);
	float steps = float_of(magnitude) * power_of_two(mantissa - binade);
	uint32_t nearest = bits_of(steps + 0x1p23f) & 0x007fffff;

	return ((uint32_t)(binade + bias - 1) << mantissa) + nearest;
}

static inline float f8_value(uint8_t element)
{
	uint32_t code = element & 0x7fu;
	uint32_t bits = choose(code == 0x7f, QUIET_NAN, bits_of(small_value(code, 3, 7)));

	return float_of(bits | (element & 0x80u) << 24);
}

static inline float bf16_value(uint16_t element)
{
	uint32_t bits = (uint32_t)element << 16;

	return float_of(bits | choose((bits & MAGNITUDE) > INFINITY_BITS, QUIET, 0));
}

static inline float f16_value(uint16_t element)
{
	uint32_t code = element & 0x7fffu;
	uint32_t special = INFINITY_BITS | (code & 0x03ff) << 13 | choose(code > 0x7c00, QUIET, 0);
	uint32_t bits = choose(code >= 0x7c00, special, bits_of(small_value(code, 10, 15)));

	return float_of(bits | (element & 0x8000u) << 16);
}

/* Values past 448 and infinities become 448. */
static inline uint8_t f8_code(float value)
{
	uint32_t magnitude = bits_of(value) & MAGNITUDE;
	uint32_t most = bits_of(TRANSFORM_FP8_MAX),
		 limited = choose(magnitude < most, magnitude, most);
	uint32_t code = choose(magnitude > INFINITY_BITS, 0x7f, small_code(limited, 3, 7));

	return (uint8_t)(code | (bits_of(value) >> 31 << 7));
}

static inline uint16_t bf16_code(float value)
{
	uint32_t bits = bits_of(value), code = bits >> 16, rest = bits & 0xffff;
	uint32_t up = rest > 0x8000 || (rest == 0x8000 && (code & 1));

	return (uint16_t)((bits & MAGNITUDE) > INFINITY_BITS ? code | 0x0040 : code + up);
}

static inline uint16_t f16_code(float value)
{
	uint32_t magnitude = bits_of(value) & MAGNITUDE;
	uint32_t most = bits_of(0x1p16f), limited = choose(magnitude < most, magnitude, most);
	uint32_t nan = 0x7e00 | (magnitude & 0x007fffff) >> 13;
	uint32_t code = choose(magnitude > INFINITY_BITS, nan, small_code(limited, 10, 15));

	return (uint16_t)(code | bits_of(value) >> 31 << 15);
}

/* ---- many ---- */

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

static bool processor_is_wide(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define WIDE

static bool processor_is_wide(void)
{
	return false;
}
#endif

/* The loop NAME_loop as it is, and once more for processors that have four times the width. */
#define MANY(name, parameters, arguments)       \
	WIDE static void name##_wide parameters \
	{                                       \
		name##_loop arguments;          \
	}                                       \
	void name parameters                    \
	{                                       \
		if (is_wide())                  \
			name##_wide arguments;  \
		else                            \
			name##_loop arguments;  \
	}
#define LOOP static inline __attribute__((always_inline)) void

static _Atomic bool narrow_only;

void referee_use_wide(bool wide)
{
	narrow_only = !wide;
}

static inline bool is_wide(void)
{
	return !narrow_only && processor_is_wide();
}

static inline uint16_t half_at(const void *elements, uint32_t i)
{
	uint16_t element;

	memcpy(&element, (const unsigned char *)elements + (size_t)i * 2, 2);
	return element;
}

static inline void set_half(void *elements, uint32_t i, uint16_t code)
{
	memcpy((unsigned char *)elements + (size_t)i * 2, &code, 2);
}

LOOP referee_widen_loop(enum dtype from, const void *elements, float *values, uint32_t count)
{
	const unsigned char *bytes = elements;

	if (from == DTYPE_F8_E4M3)
		for (uint32_t i = 0; i < count; i++)
			values[i] = f8_value(bytes[i]);
	else if (from == DTYPE_BF16)
		for (uint32_t i = 0; i < count; i++)
			values[i] = bf16_value(half_at(elements, i));
	else if (from == DTYPE_F16)
		for (uint32_t i = 0; i < count; i++)
			values[i] = f16_value(half_at(elements, i));
	else
		memcpy(values, elements, (size_t)count * sizeof(float));
}

LOOP referee_narrow_loop(enum dtype to, const float *values, void *elements, uint32_t count)
{
	unsigned char *bytes = elements;

	if (to == DTYPE_F8_E4M3)
		for (uint32_t i = 0; i < count; i++)
			bytes[i] = f8_code(values[i]);
	else if (to == DTYPE_BF16)
		for (uint32_t i = 0; i < count; i++)
			set_half(elements, i, bf16_code(values[i]));
	else if (to == DTYPE_F16)
		for (uint32_t i = 0; i < count; i++)
			set_half(elements, i, f16_code(values[i]));
	else
		memcpy(elements, values, (size_t)count * sizeof(float));
}

LOOP referee_scale_loop(float *values, float scale, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		float product = values[i] * scale;
		uint32_t sign = bits_of(values[i]) & ~MAGNITUDE;

		values[i] = float_of(choose(isnan(product), QUIET_NAN | sign, bits_of(product)));
	}
}

LOOP largest_loop(const float *values, uint32_t count, float *largest)
{
	int32_t most = 0; /* of numbers that are not negative, bits have the numbers' order */

	for (uint32_t i = 0; i < count; i++) {
		int32_t bits = (int32_t)(bits_of(values[i]) & MAGNITUDE);

		bits = bits < (int32_t)INFINITY_BITS ? bits : 0;
		most = bits > most ? bits : most;
	}
	*largest = float_of((uint32_t)most);
}

/* A magnitude below scale / 2^11 has a code of 0 (half of the first step is 2^-10). It is made 0
 * before the product, which would be a subnormal F32: a hundred times slower than others. */
LOOP referee_quantise_loop(const float *values, float scale, unsigned char *codes, uint32_t count)
{
	float inverse = 1.0f / scale;
	uint32_t least = bits_of(scale * 0x1p-11f);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t bits = bits_of(values[i]);
		uint32_t kept = bits & choose((bits & MAGNITUDE) < least, ~MAGNITUDE, ~0u);

		codes[i] = f8_code(float_of(kept) * inverse);
	}
}

MANY(referee_widen, (enum dtype from, const void *elements, float *values, uint32_t count),
     (from, elements, values, count))
MANY(referee_narrow, (enum dtype to, const float *values, void *elements, uint32_t count),
     (to, values, elements, count))
MANY(referee_scale, (float *values, float scale, uint32_t count), (values, scale, count))
static void largest(const float *values, uint32_t count, float *out);
MANY(largest, (const float *values, uint32_t count, float *out), (values, count, out))
MANY(referee_quantise, (const float *values, float scale, unsigned char *codes, uint32_t count),
     (values, scale, codes, count))

float referee_largest(const float *values, uint32_t count)
{
	float most;

	largest(values, count, &most);
	return most;
}
