/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/convert.h"

#include "pack/convert_kernel.h"
#include "pack/element.h"

#include <stddef.h>

static uint32_t load32(const unsigned char *bytes)
{
	uint32_t bits;

	memcpy(&bits, bytes, sizeof(bits));
	return bits;
}

static uint16_t load16(const unsigned char *bytes)
{
	uint16_t bits;

	memcpy(&bits, bytes, sizeof(bits));
	return bits;
}

static void store32(unsigned char *bytes, uint32_t bits)
{
	memcpy(bytes, &bits, sizeof(bits));
}

static void store16(unsigned char *bytes, uint16_t bits)
{
	memcpy(bytes, &bits, sizeof(bits));
}

#define LOAD_F32(bytes)		load32(bytes)
#define LOAD_BF16(bytes)	element_f32_from_bf16(load16(bytes))
#define LOAD_F16(bytes)		element_f32_from_f16(load16(bytes))
#define LOAD_F8(bytes)		element_f32_from_f8_scaled(*(bytes), scale)
#define STORE_F32(bytes, bits)	store32(bytes, bits)
#define STORE_BF16(bytes, bits) store16(bytes, element_bf16_from_f32(bits))
#define STORE_F16(bytes, bits)	store16(bytes, element_f16_from_f32(bits))

#define ROW(name, FROM, from_bytes, TO, to_bytes)                                          \
	__attribute__((noinline)) static void name##_run(void *target, const void *source, \
							 uint64_t count, float scale)      \
	{                                                                                  \
		const unsigned char *from = source;                                        \
		unsigned char *to = target;                                                \
                                                                                           \
		(void)scale;                                                               \
		for (; count; count--, from += (from_bytes), to += (to_bytes))             \
			STORE_##TO(to, LOAD_##FROM(from));                                 \
	}                                                                                  \
	CONVERT_ROW(name)

ROW(f32_bf16, F32, 4, BF16, 2)
ROW(f32_f16, F32, 4, F16, 2)
ROW(bf16_f32, BF16, 2, F32, 4)
ROW(bf16_f16, BF16, 2, F16, 2)
ROW(f16_f32, F16, 2, F32, 4)
ROW(f16_bf16, F16, 2, BF16, 2)
ROW(f8_f32, F8, 1, F32, 4)
ROW(f8_bf16, F8, 1, BF16, 2)
ROW(f8_f16, F8, 1, F16, 2)
CONVERT_SCALED(f8_f32, 4)
CONVERT_SCALED(f8_bf16, 2)
CONVERT_SCALED(f8_f16, 2)

static const struct convert_kernel portable = {
	.name = "portable",
	.here = processor_has_any,
	.rows = CONVERT_ROWS,
	.scaled = CONVERT_SCALED_ROWS,
};

static const struct convert_kernel *const kernels[] = {
#if PROCESSOR_X86
	&convert_avx512,
	&convert_avx2,
#endif
	&portable,
};

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

static enum convert_format format_of(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_F32:
		return CONVERT_F32;
	case DTYPE_BF16:
		return CONVERT_BF16;
	case DTYPE_F16:
		return CONVERT_F16;
	case DTYPE_F8_E4M3:
		return CONVERT_F8;
	default:
		return CONVERT_FORMATS;
	}
}

static const struct convert_kernel *find_kernel(const char *name)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if ((!name || strcmp(kernels[i]->name, name) == 0) && kernels[i]->here())
			return kernels[i];
	return NULL;
}

convert_row convert_find(enum dtype from, enum dtype to, const char *kernel)
{
	enum convert_format source = format_of(from), target = format_of(to);
	const struct convert_kernel *found = find_kernel(kernel);

	if (!found)
		return NULL;
	if (from == to)
		return find_copy(from);
	if (source == CONVERT_FORMATS || target >= CONVERT_F8)
		return NULL;
	return found->rows[source][target];
}

convert_row convert_find_streamed(enum dtype from, enum dtype to, const char *kernel)
{
	enum convert_format source = format_of(from), target = format_of(to);
	const struct convert_kernel *found = find_kernel(kernel);

	if (!found || from == to || source == CONVERT_FORMATS || target >= CONVERT_F8)
		return NULL;
	return found->streamed[source][target];
}

convert_scaled convert_find_scaled(enum dtype to, const char *kernel)
{
	enum convert_format target = format_of(to);
	const struct convert_kernel *found = find_kernel(kernel);

	return found && target < CONVERT_F8 ? found->scaled[target] : NULL;
}
