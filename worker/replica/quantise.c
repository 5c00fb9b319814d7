/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/quantise.h"

#include "common/make.h"
#include "worker/replica/element.h"

#include <stddef.h>

static uint32_t f32_at(const unsigned char *bytes, enum dtype from)
{
	uint32_t wide;
	uint16_t narrow;

	if (from == DTYPE_F32) {
		memcpy(&wide, bytes, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, bytes, sizeof(narrow));
	return from == DTYPE_BF16 ? element_f32_from_bf16(narrow) : element_f32_from_f16(narrow);
}

void quantise_band(unsigned char *values, float *scales, const void *source, enum dtype from,
		   uint64_t rows, uint64_t columns, uint64_t stride_bytes, uint64_t block_columns)
{
	uint32_t element = dtype_bytes(from);

	for (uint64_t at = 0; at < columns; at += block_columns, scales++) {
		uint64_t end = columns - at < block_columns ? columns : at + block_columns;
		uint32_t peak = element_bits(MAKE_AMAX_MIN);
		float inverse;

		for (uint64_t row = 0; row < rows; row++) {
			const unsigned char *line =
				(const unsigned char *)source + row * stride_bytes;

			for (uint64_t column = at; column < end; column++) {
				uint32_t x = f32_at(line + column * element, from) & 0x7fffffff;

				if (x > peak && x < ELEMENT_F32_INFINITY)
					peak = x;
			}
		}
		*scales = element_float(peak) / MAKE_FP8_MAX;
		inverse = 1.0f / *scales;
		for (uint64_t row = 0; values && row < rows; row++) {
			const unsigned char *line =
				(const unsigned char *)source + row * stride_bytes;

			for (uint64_t column = at; column < end; column++) {
				float x = element_float(f32_at(line + column * element, from));

				values[row * columns + column] =
					element_f8_from_f32(element_bits(x * inverse));
			}
		}
	}
}

bool quantise_use(const char *kernel)
{
	return !kernel || strcmp(kernel, "portable") == 0;
}
