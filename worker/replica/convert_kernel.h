/* SPDX-License-Identifier: Apache-2.0
 *
 * convert_kernel.h -- one table of rows for each instruction set.
 */
#ifndef WORKER_REPLICA_CONVERT_KERNEL_H
#define WORKER_REPLICA_CONVERT_KERNEL_H

#include "worker/replica/convert.h"
#include "worker/replica/processor.h"
#include <stdbool.h>

/* F8 stands for F8_E4M3; nothing is converted into it here (quantise.h). */
enum convert_format { CONVERT_F32, CONVERT_BF16, CONVERT_F16, CONVERT_F8, CONVERT_FORMATS };

struct convert_kernel {
	const char *name;
	bool (*here)(void);
	convert_row rows[CONVERT_FORMATS][CONVERT_F8]; /* [from][to]; NULL where they are equal */
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

#define CONVERT_ROWS                                                                      \
	{                                                                                 \
		[CONVERT_F32] = {[CONVERT_BF16] = f32_bf16, [CONVERT_F16] = f32_f16},     \
		[CONVERT_BF16] = {[CONVERT_F32] = bf16_f32, [CONVERT_F16] = bf16_f16},    \
		[CONVERT_F16] = {[CONVERT_F32] = f16_f32, [CONVERT_BF16] = f16_bf16},     \
		[CONVERT_F8] = {f8_f32, f8_bf16, f8_f16},                                 \
	}

#endif
