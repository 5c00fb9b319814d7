/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/convert.h"

#include "worker/replica/element.h"

#include <stddef.h>

#define LOAD_F32(bytes)		element_load32(bytes)
#define LOAD_BF16(bytes)	element_f32_from_bf16(element_load16(bytes))
#define LOAD_F16(bytes)		element_f32_from_f16(element_load16(bytes))
#define LOAD_F8(bytes)		element_f32_from_f8_scaled(*(bytes), scale)
#define STORE_F32(bytes, bits)	element_store32(bytes, bits)
#define STORE_BF16(bytes, bits) element_store16(bytes, element_bf16_from_f32(bits))
#define STORE_F16(bytes, bits)	element_store16(bytes, element_f16_from_f32(bits))

static uint32_t element_load32(const unsigned char *bytes)
{
	uint32_t bits;

	memcpy(&bits, bytes, sizeof(bits));
	return bits;
}

static uint16_t element_load16(const unsigned char *bytes)
{
	uint16_t bits;

	memcpy(&bits, bytes, sizeof(bits));
	return bits;
}

static void element_store32(unsigned char *bytes, uint32_t bits)
{
	memcpy(bytes, &bits, sizeof(bits));
}

static void element_store16(unsigned char *bytes, uint16_t bits)
{
	memcpy(bytes, &bits, sizeof(bits));
}

#define ROW(name, FROM, from_bytes, TO, to_bytes)                                       \
	static void name(void *target, const void *source, uint64_t count, float scale) \
	{                                                                               \
		const unsigned char *from = source;                                     \
		unsigned char *to = target;                                             \
                                                                                        \
		(void)scale;                                                            \
		for (; count; count--, from += (from_bytes), to += (to_bytes))          \
			STORE_##TO(to, LOAD_##FROM(from));                              \
	}

ROW(f32_bf16, F32, 4, BF16, 2)
ROW(f32_f16, F32, 4, F16, 2)
ROW(bf16_f32, BF16, 2, F32, 4)
ROW(bf16_f16, BF16, 2, F16, 2)
ROW(f16_f32, F16, 2, F32, 4)
ROW(f16_bf16, F16, 2, BF16, 2)
ROW(f8_f32, F8, 1, F32, 4)
ROW(f8_bf16, F8, 1, BF16, 2)
ROW(f8_f16, F8, 1, F16, 2)

#define COPY(bytes)                                                                             \
	static void copy_##bytes(void *target, const void *source, uint64_t count, float scale) \
	{                                                                                       \
		(void)scale;                                                                    \
		if (count)                                                                      \
			memcpy(target, source, count *(bytes));                                 \
	}

COPY(1)
COPY(2)
COPY(4)
COPY(8)

static const struct conversion {
	enum dtype from, to;
	convert_row row;
} conversions[] = {
	{DTYPE_F32, DTYPE_BF16, f32_bf16},  {DTYPE_F32, DTYPE_F16, f32_f16},
	{DTYPE_BF16, DTYPE_F32, bf16_f32},  {DTYPE_BF16, DTYPE_F16, bf16_f16},
	{DTYPE_F16, DTYPE_F32, f16_f32},    {DTYPE_F16, DTYPE_BF16, f16_bf16},
	{DTYPE_F8_E4M3, DTYPE_F32, f8_f32}, {DTYPE_F8_E4M3, DTYPE_BF16, f8_bf16},
	{DTYPE_F8_E4M3, DTYPE_F16, f8_f16},
};

static convert_row find_copy(enum dtype dtype)
{
	switch (dtype_bytes(dtype)) {
	case 1:
		return copy_1;
	case 2:
		return copy_2;
	case 4:
		return copy_4;
	case 8:
		return copy_8;
	default:
		return NULL;
	}
}

convert_row convert_find(enum dtype from, enum dtype to, const char *kernel)
{
	if (kernel && strcmp(kernel, "portable") != 0)
		return NULL;
	if (from == to)
		return find_copy(from);
	for (size_t i = 0; i < sizeof(conversions) / sizeof(conversions[0]); i++)
		if (conversions[i].from == from && conversions[i].to == to)
			return conversions[i].row;
	return NULL;
}
