/* SPDX-License-Identifier: Apache-2.0
 *
 * processor.h -- arithmetic that is IEEE 754's default whatever the calling thread has set: a
 * framework may flush subnormals in its threads, a host may round another way or trap. Between float_mode_enter() and float_mode_leave() call a function that is
 * not inlined: compilers move plain arithmetic across both.
 */
#ifndef PACK_PROCESSOR_H
#define PACK_PROCESSOR_H

#include "base/processor.h"
#if !PROCESSOR_X86
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

#endif
