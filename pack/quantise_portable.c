/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_portable.c -- number by number, as element.h says; for every processor.
 */
#include "pack/quantise_kernel.h"

#define PEAKS(name, type, magnitude)                                                            \
	static void name(uint32_t *peaks, const struct quantise_strip *strip)                   \
	{                                                                                       \
		for (uint64_t at = 0; at < strip->columns; at += strip->block_columns) {        \
			uint64_t left = strip->columns - at;                                    \
			uint64_t n = left < strip->block_columns ? left : strip->block_columns; \
			type peak = 0;                                                          \
                                                                                                \
			for (uint64_t row = 0; row < strip->rows; row++) {                      \
				const unsigned char *from = strip->source +                     \
							    row * strip->stride_bytes +         \
							    at * sizeof(type);                  \
                                                                                                \
				for (uint64_t i = 0; i < n; i++) {                              \
					type x;                                                 \
                                                                                                \
					memcpy(&x, from + i * sizeof(x), sizeof(x));            \
					x &= (magnitude);                                       \
					peak = x > peak ? x : peak;                             \
				}                                                               \
			}                                                                       \
			*peaks++ = peak;                                                        \
		}                                                                               \
	}

PEAKS(peaks_32, uint32_t, 0x7fffffff)
PEAKS(peaks_16, uint16_t, 0x7fff)

#define VALUES(name, load, bytes)                                                                \
	static void name(const struct quantise_strip *strip)                                     \
	{                                                                                        \
		for (uint64_t row = 0; row < strip->rows; row++) {                               \
			const unsigned char *from = strip->source + row * strip->stride_bytes;   \
			unsigned char *to = strip->values + row * strip->values_stride;          \
			const float *inverse = strip->inverse;                                   \
                                                                                                 \
			for (uint64_t i = 0, end = 0; i < strip->columns; inverse++) {           \
				end += strip->block_columns;                                     \
				for (; i < end && i < strip->columns; i++) {                     \
					float x = element_float(load(from + i * (bytes)));       \
                                                                                                 \
					to[i] = element_f8_from_f32(element_bits(x * *inverse)); \
				}                                                                \
			}                                                                        \
		}                                                                                \
	}

VALUES(values_f32, element_load_f32, 4)
VALUES(values_bf16, element_load_bf16, 2)
VALUES(values_f16, element_load_f16, 2)

/* One more than a code, of which a NaN's is 0. */
static unsigned char row_peak(const unsigned char *from, uint64_t n)
{
	unsigned char peak = 0;

	for (uint64_t i = 0; i < n; i++) {
		unsigned char x = (unsigned char)(from[i] + 1) & 0x7f;

		peak = x > peak ? x : peak;
	}
	return peak;
}

static void peaks_f8(unsigned char *peaks, const struct requantise_strip *strip)
{
	memset(peaks, 0, strip->cells);
	for (uint64_t row = 0; row < strip->rows; row++)
		for (uint64_t c = 0, at = 0; c < strip->cells; at = strip->ends[c++]) {
			unsigned char peak =
				row_peak(strip->source + row * strip->stride_bytes + at,
					 strip->ends[c] - at);

			peaks[c] = peak > peaks[c] ? peak : peaks[c];
		}
	for (uint64_t c = 0; c < strip->cells; c++)
		peaks[c] = peaks[c] ? (unsigned char)(peaks[c] - 1) : 0;
}

static void look_up(const struct requantise_strip *strip)
{
	for (uint64_t row = 0; row < strip->rows; row++) {
		const unsigned char *from = strip->source + row * strip->stride_bytes;
		unsigned char *to = strip->values + row * strip->values_stride;

		for (uint64_t c = 0, i = 0; c < strip->cells; c++)
			for (const unsigned char *table = strip->tables[c]; i < strip->ends[c]; i++)
				to[i] = (unsigned char)(table[from[i] & 0x7f] | (from[i] & 0x80));
	}
}

const struct quantise_kernel quantise_portable = {
	.f32 = {.peaks = peaks_32, .values = values_f32},
	.bf16 = {.peaks = peaks_16, .values = values_bf16},
	.f16 = {.peaks = peaks_16, .values = values_f16},
	.f8 = {peaks_f8, look_up},
};
