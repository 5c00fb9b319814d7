/* SPDX-License-Identifier: Apache-2.0
 *
 * processor.h -- which kernels run here, and arithmetic that is IEEE 754's default whatever the
 * calling thread has set: a framework may flush subnormals in its threads, a host may round
 * another way or trap. Between float_mode_enter() and float_mode_leave() call a function that is
 * not inlined: compilers move plain arithmetic across both.
 */
#ifndef PACK_PROCESSOR_H
#define PACK_PROCESSOR_H

#include <stdbool.h>

#if defined(__x86_64__)
#define PROCESSOR_X86 1
#else
#define PROCESSOR_X86 0
#include <fenv.h>
#endif

struct float_mode {
#if PROCESSOR_X86
	unsigned int control;
#else
	fenv_t environment;
#endif
};

struct float_mode float_mode_enter(void);
/* For results that no subnormal number can change: one costs a hundred times what others do, so
 * they may all be 0. */
struct float_mode float_mode_enter_flushed(void);
void float_mode_leave(struct float_mode mode);

/* Those of PROCESSOR_X86, where it is one. */
bool processor_has_avx512(void); /* F, BW, DQ and VL */
bool processor_has_avx512vbmi(void); /* and VBMI */
bool processor_has_avx2(void);   /* and F16C */
bool processor_has_any(void);    /* true: the portable kernels' row */

#endif
