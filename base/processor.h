/* SPDX-License-Identifier: Apache-2.0
 *
 * processor.h -- which kernels run here. A table has a row a kernel, best first; a row is a struct that
 * begins with struct processor_row.
 */
#ifndef BASE_PROCESSOR_H
#define BASE_PROCESSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#if defined(__x86_64__)
#define PROCESSOR_X86 1
#else
#define PROCESSOR_X86 0
#endif

/* Those of PROCESSOR_X86, where it is one. */
bool processor_has_avx512(void); /* F, BW, DQ and VL */
bool processor_has_avx512vbmi(void); /* and VBMI */
bool processor_has_avx2(void);   /* and F16C */
bool processor_has_any(void);    /* true: the portable kernels' row */

/* What a kernel is compiled for, where the question of the same name is answered with true. */
#define TARGET256   __attribute__((target("avx2,f16c")))
#define TARGET512   __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define TARGET_VBMI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")))
#define INLINE256   TARGET256 __attribute__((always_inline)) static inline
#define INLINE512   TARGET512 __attribute__((always_inline)) static inline
#define INLINE_VBMI TARGET_VBMI __attribute__((always_inline)) static inline

struct processor_row {
	const char *name;
	bool (*here)(void);
};

struct processor_kernels {
	const void *rows;
	size_t count, row_bytes;
	_Atomic(const void *) chosen;
};
#define PROCESSOR_KERNELS(rows) {rows, sizeof(rows) / sizeof((rows)[0]), sizeof((rows)[0]), NULL}

/* The best row of that name, or of any (NULL), that runs here; NULL: none. */
const void *processor_find(const struct processor_kernels *kernels, const char *name);
/* The same, and from now on the row in use; NULL leaves the one that is. */
const void *processor_choose(struct processor_kernels *kernels, const char *name);
/* The row in use: the best one, until another is chosen. A race only chooses the same one twice. */
static inline const void *processor_chosen(struct processor_kernels *kernels)
{
	const void *row = atomic_load_explicit(&kernels->chosen, memory_order_relaxed);

	return row ? row : processor_choose(kernels, NULL);
}

#endif
