/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise.c -- a band is quantised in strips that stay in the cache between the two passes, of
 * rows long enough that the processor's prefetchers see them coming:
 *
 *   strip 0           strip 1
 *   |b0|b1| .. |b15|  |b16|b17| ..      pass 1, row by row: the largest magnitude of each block
 *   |  |  |    |   |  |   |   |         scale and 1 / scale of each
 *                                       pass 2, row by row: the values
 *
 * The passes do not look for infinities and NaN: where a block's largest magnitude is one, the
 * largest of the others is found here, and the codes of those that are are quantised again.
 */
#include "pack/quantise.h"

#include "job/transform.h"
#include "pack/processor.h"
#include "pack/quantise_kernel.h"

#include <stddef.h>

#define STRIP_BYTES    (512u << 10) /* of a second-level cache of 1 MiB or more */
#define GATHERED_BYTES (256u << 10)
#define FAR_BYTES      4096u
#define MAGNITUDE      0x7fffffffu

static const struct row {
	struct processor_row row;
	const struct quantise_kernel *kernel;
} kernel_rows[] = {
#if PROCESSOR_X86
	{{"avx512vbmi", processor_has_avx512vbmi}, &quantise_vbmi},
	{{"avx512", processor_has_avx512}, &quantise_avx512},
	{{"avx2", processor_has_avx2}, &quantise_avx2},
#endif
	{{"portable", processor_has_any}, &quantise_portable},
};
static struct processor_kernels kernels = PROCESSOR_KERNELS(kernel_rows);

bool quantise_use(const char *kernel)
{
	return processor_choose(&kernels, kernel);
}

/* ---- a band ---- */

const struct quantise_kernel *quantise_chosen(void)
{
	return ((const struct row *)processor_chosen(&kernels))->kernel;
}

/* Of a block with infinities or NaN: its largest other magnitude, and the codes of these. */
#define DEFINE_SPECIALS(name, bytes)                                                              \
	static uint32_t finite_peak_##name(const struct quantise_strip *block)                    \
	{                                                                                         \
		uint32_t peak = 0;                                                                \
                                                                                                  \
		for (uint64_t row = 0; row < block->rows; row++) {                                \
			const unsigned char *from = block->source + row * block->stride_bytes;    \
                                                                                                  \
			for (uint64_t i = 0; i < block->columns; i++) {                           \
				uint32_t x = element_load_##name(from + i * (bytes)) & MAGNITUDE; \
                                                                                                  \
				x = x < ELEMENT_F32_INFINITY ? x : 0;                             \
				peak = x > peak ? x : peak;                                       \
			}                                                                         \
		}                                                                                 \
		return peak;                                                                      \
	}                                                                                         \
                                                                                                  \
	static void specials_##name(const struct quantise_strip *block)                           \
	{                                                                                         \
		for (uint64_t row = 0; row < block->rows; row++) {                                \
			const unsigned char *from = block->source + row * block->stride_bytes;    \
			unsigned char *to = block->values + row * block->values_stride;           \
                                                                                                  \
			for (uint64_t i = 0; i < block->columns; i++) {                           \
				uint32_t x = element_load_##name(from + i * (bytes));             \
                                                                                                  \
				if ((x & MAGNITUDE) < ELEMENT_F32_INFINITY)                       \
					continue;                                                 \
				to[i] = element_f8_from_f32(                                      \
					element_bits(element_float(x) * block->inverse[0]));      \
			}                                                                         \
		}                                                                                 \
	}

DEFINE_SPECIALS(f32, 4)
DEFINE_SPECIALS(bf16, 2)
DEFINE_SPECIALS(f16, 2)

/* The two passes of the kernel, and what it leaves to this file. */
struct source_kind {
	quantise_load load;
	uint32_t (*finite_peak)(const struct quantise_strip *block);
	quantise_values specials;
	struct quantise_passes passes;
};

static struct source_kind source_kind(enum dtype from)
{
	const struct quantise_kernel *kernel = quantise_chosen();

#define KIND(name)                                                                     \
	(struct source_kind)                                                           \
	{                                                                              \
		element_load_##name, finite_peak_##name, specials_##name, kernel->name \
	}
	return from == DTYPE_F32 ? KIND(f32) : from == DTYPE_BF16 ? KIND(bf16) : KIND(f16);
#undef KIND
}

float quantise_scale_of(uint32_t peak)
{
	uint32_t least = element_bits(TRANSFORM_AMAX_MIN); /* of numbers that are not negative, the
							 order of the bits is theirs */

	return element_float(peak > least ? peak : least) / TRANSFORM_FP8_MAX;
}

static struct quantise_strip block_of(const struct quantise_strip *strip, uint64_t at,
				      uint64_t element)
{
	struct quantise_strip block = *strip;
	uint64_t left = strip->columns - at;

	block.source += at * element;
	block.columns = left < strip->block_columns ? left : strip->block_columns;
	if (block.values)
		block.values += at;
	block.inverse[0] = strip->inverse[at / strip->block_columns];
	return block;
}

/* `given`: scales to use; NULL: they are made, into `scales`. */
static void run_strip(struct quantise_strip *strip, const uint32_t *peaks, float *scales,
		      const float *given, const struct source_kind *kind, uint64_t element)
{
	uint32_t special = 0; /* bit b: block b has an infinity or NaN */
	uint64_t blocks = (strip->columns - 1) / strip->block_columns + 1;

	for (uint64_t b = 0; b < blocks; b++) {
		unsigned char bits[sizeof(uint32_t)];
		uint16_t narrow = (uint16_t)peaks[b];
		uint32_t peak;

		memcpy(bits, &peaks[b], sizeof(bits));
		if (element == sizeof(narrow))
			memcpy(bits, &narrow, sizeof(narrow));
		peak = kind->load(bits);
		if (peak >= ELEMENT_F32_INFINITY) {
			struct quantise_strip block =
				block_of(strip, b * strip->block_columns, element);

			special |= 1u << b;
			if (!given)
				peak = kind->finite_peak(&block);
		}
		if (!given)
			scales[b] = quantise_scale_of(peak);
		strip->inverse[b] = 1.0f / (given ? given[b] : scales[b]);
	}
	if (!strip->values)
		return;
	kind->passes.values(strip);
	for (uint64_t b = 0; special >> b; b++) {
		struct quantise_strip block;

		if (!(special >> b & 1))
			continue;
		block = block_of(strip, b * strip->block_columns, element);
		kind->specials(&block);
	}
}

/* A strip whose rows lie many pages apart: with a stride of some power of two they share a few
 * sets of the cache and would not be there for the second pass. So they are brought together. */
__attribute__((noinline)) static void run_gathered(const struct quantise_strip *strip,
						   float *scales, const float *given,
						   const struct source_kind *kind, uint64_t element)
{
	_Alignas(64) unsigned char rows[GATHERED_BYTES];
	uint32_t peaks[QUANTISE_STRIP_BLOCKS];
	struct quantise_strip near = *strip;

	near.source = rows;
	near.stride_bytes = strip->columns * element;
	near.ahead = NULL; /* its rows would push each other out again */
	if (kind->passes.gather) {
		kind->passes.gather(peaks, strip, rows);
	} else {
		for (uint64_t row = 0; row < strip->rows; row++)
			memcpy(rows + row * near.stride_bytes,
			       strip->source + row * strip->stride_bytes, near.stride_bytes);
		kind->passes.peaks(peaks, &near);
	}
	run_strip(&near, peaks, scales, given, kind, element);
}

__attribute__((noinline)) static void run_direct(struct quantise_strip *strip, float *scales,
						 const float *given, const struct source_kind *kind,
						 uint64_t element)
{
	uint32_t peaks[QUANTISE_STRIP_BLOCKS];

	kind->passes.peaks(peaks, strip);
	run_strip(strip, peaks, scales, given, kind, element);
}

/* Blocks of a strip: as many as the cache takes, in strips of about equal width. */
static uint64_t strip_blocks(const struct quantise_strip *band, uint64_t block_bytes, uint64_t room)
{
	uint64_t all = (band->columns - 1) / band->block_columns + 1, most = room / block_bytes;

	most = most < 1 ? 1 : most > QUANTISE_STRIP_BLOCKS ? QUANTISE_STRIP_BLOCKS : most;
	return (all - 1) / ((all - 1) / most + 1) + 1;
}

/* band->ahead: the band that comes next. */
__attribute__((noinline)) static void run_band(const struct quantise_strip *band, float *scales,
					       const float *given, enum dtype from)
{
	struct source_kind kind = source_kind(from);
	uint64_t element = dtype_bytes(from);
	uint64_t block_bytes = band->rows * band->block_columns * element;
	bool gather = band->stride_bytes % FAR_BYTES == 0 && band->rows > 1 &&
		      band->columns * element != band->stride_bytes &&
		      block_bytes <= GATHERED_BYTES;
	uint64_t blocks = strip_blocks(band, block_bytes, gather ? GATHERED_BYTES : STRIP_BYTES);
	struct quantise_strip strip = *band;

	for (uint64_t left = band->columns; left; left -= strip.columns) {
		bool last = left <= blocks * band->block_columns;

		strip.columns = last ? left : blocks * band->block_columns;
		strip.ahead = last ? band->ahead : strip.source + strip.columns * element;
		if (gather)
			run_gathered(&strip, scales, given, &kind, element);
		else
			run_direct(&strip, scales, given, &kind, element);
		strip.source += strip.columns * element;
		if (strip.values)
			strip.values += strip.columns;
		if (given)
			given += blocks;
		else
			scales += blocks;
	}
}

static void run(struct quantise_strip *band, float *scales, const float *given, enum dtype from)
{
	struct float_mode mode;

	if (!band->rows || !band->columns)
		return;
	/* a longer block is one block too, and its products do not overflow */
	if (band->block_columns > band->columns)
		band->block_columns = band->columns;
	/* 1 / scale is below 2^43: what is subnormal, or is once multiplied by it, has code 0 */
	mode = float_mode_enter_flushed();
	run_band(band, scales, given, from);
	float_mode_leave(mode);
}

static struct quantise_strip band_of(unsigned char *values, const void *source, uint64_t rows,
				     uint64_t columns, uint64_t stride_bytes,
				     uint64_t block_columns)
{
	return (struct quantise_strip){
		.source = source,
		.rows = rows,
		.columns = columns,
		.stride_bytes = stride_bytes,
		.block_columns = block_columns,
		.values = values,
		.values_stride = columns,
	};
}

void quantise_band_on(unsigned char *values, float *scales, const void *source, enum dtype from,
		      uint64_t rows, uint64_t columns, uint64_t stride_bytes,
		      uint64_t block_columns, const void *next, bool stream)
{
	struct quantise_strip band =
		band_of(values, source, rows, columns, stride_bytes, block_columns);

	band.ahead = next;
	/* whole lines only: half a one past the caches is slower than all of it through them */
	band.stream = stream && ((uintptr_t)values | columns | block_columns) % 64 == 0;
	run(&band, scales, NULL, from);
}

void quantise_band(unsigned char *values, float *scales, const void *source, enum dtype from,
		   uint64_t rows, uint64_t columns, uint64_t stride_bytes, uint64_t block_columns)
{
	quantise_band_on(values, scales, source, from, rows, columns, stride_bytes, block_columns,
			 NULL, false);
}

void quantise_scaled(unsigned char *values, const float *scales, const void *source,
		     enum dtype from, uint64_t rows, uint64_t columns, uint64_t stride_bytes,
		     uint64_t block_columns)
{
	struct quantise_strip band =
		band_of(values, source, rows, columns, stride_bytes, block_columns);

	run(&band, NULL, scales, from);
}
