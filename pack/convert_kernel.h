/* SPDX-License-Identifier: Apache-2.0
 *
 * convert_kernel.h -- one table of rows for each instruction set.
 */
#ifndef PACK_CONVERT_KERNEL_H
#define PACK_CONVERT_KERNEL_H

#include "pack/convert.h"
#include "pack/processor.h"
#include <string.h>

/* F8 stands for F8_E4M3; nothing is converted into it here (quantise.h). */
enum convert_format {
	CONVERT_OTHER, CONVERT_F32, CONVERT_BF16, CONVERT_F16, CONVERT_F8, CONVERT_FORMATS
};

struct convert_kernel {
	convert_row rows[CONVERT_FORMATS][CONVERT_F8]; /* [from][to]; NULL where there is none */
	convert_row streamed[CONVERT_FORMATS][CONVERT_F8]; /* the same; NULL for none */
	convert_scaled scaled[CONVERT_F8];             /* from F8 */
};

extern const struct convert_kernel convert_avx512, convert_avx2;

/* `name` is name_run in the default floating point mode. */
#define CONVERT_ROW(name)                                                                 \
	static void name(void *target, const void *source, uint64_t count, float scale)   \
	{                                                                                 \
		struct float_mode mode = float_mode_enter();                              \
											  \
		name##_run(target, source, count, scale);                                 \
		float_mode_leave(mode);                                                   \
	}

/* The mode is switched once a row, not once a scale. */
#define CONVERT_SCALED(name, to_bytes)                                                    \
	static void name##_scaled(void *target, const void *source, uint64_t count,       \
				  const void *scales, uint64_t skip, uint64_t width)      \
	{                                                                                 \
		struct float_mode mode = float_mode_enter();                              \
		const unsigned char *from = source, *at = scales;                         \
		unsigned char *to = target;                                               \
											  \
		for (uint64_t n; count; count -= n, skip = 0, at += sizeof(float)) {      \
			float scale;                                                      \
											  \
			n = width - skip < count ? width - skip : count;                  \
			memcpy(&scale, at, sizeof(scale));                                \
			name##_run(to, from, n, scale);                                   \
			from += n;                                                        \
			to += n * (to_bytes);                                             \
		}                                                                         \
		float_mode_leave(mode);                                                   \
	}

/* Every conversion, as a ROW of its kernel: name, from and its bytes, to and its bytes. What F8 times
 * a scale becomes has no payload: `f8_bf16_store` says how a kernel stores that as BF16. */
#define CONVERT_EACH(ROW, f8_bf16_store)                                                  \
	ROW(f32_bf16, f32, 4, bf16, 2)                                                    \
	ROW(f32_f16, f32, 4, f16, 2)                                                      \
	ROW(bf16_f32, bf16, 2, f32, 4)                                                    \
	ROW(bf16_f16, bf16, 2, f16, 2)                                                    \
	ROW(f16_f32, f16, 2, f32, 4)                                                      \
	ROW(f16_bf16, f16, 2, bf16, 2)                                                    \
	ROW(f8_f32, f8, 1, f32, 4)                                                        \
	ROW(f8_bf16, f8, 1, f8_bf16_store, 2)                                             \
	ROW(f8_f16, f8, 1, f16, 2)                                                        \
	CONVERT_SCALED(f8_f32, 4)                                                         \
	CONVERT_SCALED(f8_bf16, 2)                                                        \
	CONVERT_SCALED(f8_f16, 2)

#define CONVERT_SCALED_ROWS {NULL, f8_f32_scaled, f8_bf16_scaled, f8_f16_scaled}

/* `past`: nothing, or _past for those past the caches. */
#define CONVERT_ROWS(past)                                                                \
	{                                                                                 \
		[CONVERT_F32] = {[CONVERT_BF16] = f32_bf16##past,                         \
				 [CONVERT_F16] = f32_f16##past},                          \
		[CONVERT_BF16] = {[CONVERT_F32] = bf16_f32##past,                         \
				  [CONVERT_F16] = bf16_f16##past},                        \
		[CONVERT_F16] = {[CONVERT_F32] = f16_f32##past,                           \
				 [CONVERT_BF16] = f16_bf16##past},                        \
		[CONVERT_F8] = {NULL, f8_f32##past, f8_bf16##past, f8_f16##past},         \
	}

#endif
