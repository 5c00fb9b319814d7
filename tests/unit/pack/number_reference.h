/* SPDX-License-Identifier: Apache-2.0
 *
 * number_reference.h -- number formats as their specifications say them, for tests of kernels: a
 * number is a double, where every format's numbers and half ways are exact, and is rounded to the
 * nearest multiple of its step. No bit trick is shared with worker/replica/.
 */
#ifndef TESTS_UNIT_PACK_NUMBER_REFERENCE_H
#define TESTS_UNIT_PACK_NUMBER_REFERENCE_H

#include "job/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct number_format {
	int exponent_bits, mantissa_bits;
	bool infinite; /* else its NaN is the largest magnitude alone: F8_E4M3 */
};

static inline struct number_format number_format(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_F32:
		return (struct number_format){8, 23, true};
	case DTYPE_BF16:
		return (struct number_format){8, 7, true};
	case DTYPE_F16:
		return (struct number_format){5, 10, true};
	default:
		return (struct number_format){4, 3, false};
	}
}

static inline int number_bits(struct number_format format)
{
	return format.exponent_bits + format.mantissa_bits; /* without the sign */
}

static inline bool number_negative(uint32_t bits, struct number_format format)
{
	return bits >> number_bits(format) & 1;
}

static inline uint32_t number_infinity(struct number_format format)
{
	return ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
}

static inline bool number_nan(uint32_t bits, struct number_format format)
{
	uint32_t magnitude = bits & ((1u << number_bits(format)) - 1);

	return format.infinite ? magnitude > number_infinity(format) : magnitude == 0x7f;
}

static inline double number_value(uint32_t bits, struct number_format format)
{
	uint32_t magnitude = bits & ((1u << number_bits(format)) - 1);
	uint32_t part = magnitude & ((1u << format.mantissa_bits) - 1);
	int field = (int)(magnitude >> format.mantissa_bits);
	int lowest = 2 - (1 << (format.exponent_bits - 1)) - format.mantissa_bits;
	double value = field ? ldexp(part + (1u << format.mantissa_bits), field - 1 + lowest)
			     : ldexp(part, lowest);

	if (number_nan(bits, format))
		return NAN;
	if (format.infinite && magnitude == number_infinity(format))
		value = INFINITY;
	return number_negative(bits, format) ? -value : value;
}

/* |value| with that sign; a NaN is quiet and without payload */
static inline uint32_t number_nearest(double value, bool negative, struct number_format format)
{
	uint32_t sign = (uint32_t)negative << number_bits(format);
	uint32_t most = format.infinite ? number_infinity(format) : 0x7e;
	int lowest = 2 - (1 << (format.exponent_bits - 1)), power;
	double code;

	if (isnan(value))
		return sign | (format.infinite ? most | 1u << (format.mantissa_bits - 1) : 0x7f);
	if (isinf(value))
		return sign | most;
	frexp(value, &power);
	power = value == 0 || power - 1 < lowest ? lowest : power - 1;
	code = ldexp(power - lowest, format.mantissa_bits) +
	       nearbyint(ldexp(fabs(value), format.mantissa_bits - power));
	return sign | (code < most ? (uint32_t)code : most);
}

/* One element as pack/element.h promises it. */
static inline uint32_t number_convert(uint32_t bits, enum dtype from, enum dtype to, float scale)
{
	struct number_format wide = number_format(from), narrow = number_format(to);
	double value = number_value(bits, wide);
	uint32_t part = bits & ((1u << wide.mantissa_bits) - 1), made;
	int shift = wide.mantissa_bits - narrow.mantissa_bits;

	if (from == to)
		return bits;
	if (from == DTYPE_F8_E4M3)
		value = (float)(value * (double)scale); /* 28 bits at most: rounded once */
	if (from == DTYPE_F8_E4M3 && !isnan(value))
		return number_nearest(value, signbit(value), narrow);
	made = number_nearest(value, number_negative(bits, wide), narrow);
	if (isnan(value) && from != DTYPE_F8_E4M3)
		made |= shift > 0 ? part >> shift : part << -shift;
	return made;
}

static inline uint32_t number_load(const unsigned char *bytes, uint32_t size)
{
	uint32_t bits = 0;

	memcpy(&bits, bytes, size); /* little-endian, as tensors are */
	return bits;
}

#endif
