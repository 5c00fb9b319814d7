/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/convert.h"

#include "pack/convert_kernel.h"
#include "pack/element.h"

#include <stddef.h>

static void store32(unsigned char *bytes, uint32_t bits)
{
	memcpy(bytes, &bits, sizeof(bits));
}

static void store16(unsigned char *bytes, uint16_t bits)
{
	memcpy(bytes, &bits, sizeof(bits));
}

#define LOAD_f32(bytes)		element_load_f32(bytes)
#define LOAD_bf16(bytes)	element_load_bf16(bytes)
#define LOAD_f16(bytes)		element_load_f16(bytes)
#define LOAD_f8(bytes)		element_f32_from_f8_scaled(*(bytes), scale)
#define STORE_f32(bytes, bits)	store32(bytes, bits)
#define STORE_bf16(bytes, bits) store16(bytes, element_bf16_from_f32(bits))
#define STORE_f16(bytes, bits)	store16(bytes, element_f16_from_f32(bits))

#define ROW(name, FROM, from_bytes, TO, to_bytes)                                          \
	__attribute__((noinline)) static void name##_run(void *target, const void *source, \
							 uint64_t count, float scale)      \
	{                                                                                  \
		const unsigned char *from = source;                                        \
		unsigned char *to = target;                                                \
                                                                                           \
		for (; count; count--, from += (from_bytes), to += (to_bytes))             \
			STORE_##TO(to, LOAD_##FROM(from));                                 \
	}                                                                                  \
	CONVERT_ROW(name)

CONVERT_EACH(ROW, bf16)

static const struct convert_kernel portable = {
	.rows = CONVERT_ROWS(),
	.scaled = CONVERT_SCALED_ROWS,
};

static const struct row {
	struct processor_row row;
	const struct convert_kernel *kernel;
} kernel_rows[] = {
#if PROCESSOR_X86
	{{"avx512", processor_has_avx512}, &convert_avx512},
	{{"avx2", processor_has_avx2}, &convert_avx2},
#endif
	{{"portable", processor_has_any}, &portable},
};
static const struct processor_kernels kernels = PROCESSOR_KERNELS(kernel_rows);

#define COPY(bytes)                                                                             \
	static void copy_##bytes(void *target, const void *source, uint64_t count, float scale) \
	{                                                                                       \
		if (count)                                                                      \
			memcpy(target, source, count *(bytes));                                 \
	}

COPY(1)
COPY(2)
COPY(4)
COPY(8)

/* By the bytes of an element. */
static const convert_row copies[] = {[1] = copy_1, [2] = copy_2, [4] = copy_4, [8] = copy_8};

static const enum convert_format formats[DTYPE_COUNT] = {[DTYPE_F32] = CONVERT_F32,
							 [DTYPE_BF16] = CONVERT_BF16,
							 [DTYPE_F16] = CONVERT_F16,
							 [DTYPE_F8_E4M3] = CONVERT_F8};

static const struct convert_kernel *find_kernel(const char *name)
{
	const struct row *found = processor_find(&kernels, name);

	return found ? found->kernel : NULL;
}

convert_row convert_find(enum dtype from, enum dtype to, const char *kernel)
{
	const struct convert_kernel *found = find_kernel(kernel);

	if (!found)
		return NULL;
	if (from == to)
		return copies[dtype_bytes(from)];
	return to == DTYPE_F8_E4M3 ? NULL : found->rows[formats[from]][formats[to]];
}

convert_row convert_find_streamed(enum dtype from, enum dtype to, const char *kernel)
{
	const struct convert_kernel *found = find_kernel(kernel);

	return found && to != DTYPE_F8_E4M3 ? found->streamed[formats[from]][formats[to]] : NULL;
}

convert_scaled convert_find_scaled(enum dtype to, const char *kernel)
{
	const struct convert_kernel *found = find_kernel(kernel);

	return found && to != DTYPE_F8_E4M3 ? found->scaled[formats[to]] : NULL;
}
