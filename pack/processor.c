/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/processor.h"

#if PROCESSOR_X86
#include <immintrin.h>

#define MXCSR_DEFAULT 0x1f80u /* nearest even, nothing flushed, nothing traps */
#define MXCSR_FLAGS   0x003fu
#define MXCSR_FLUSHED 0x9fc0u /* the default, and subnormals are 0, read or made */

static struct float_mode enter(unsigned int wanted)
{
	struct float_mode mode = {_mm_getcsr()};

	if ((mode.control & ~MXCSR_FLAGS) != wanted)
		_mm_setcsr(wanted);
	return mode;
}

struct float_mode float_mode_enter(void)
{
	return enter(MXCSR_DEFAULT);
}

struct float_mode float_mode_enter_flushed(void)
{
	return enter(MXCSR_FLUSHED);
}

void float_mode_leave(struct float_mode mode)
{
	_mm_setcsr(mode.control);
}
#else
struct float_mode float_mode_enter(void)
{
	struct float_mode mode;

	fegetenv(&mode.environment);
	fesetenv(FE_DFL_ENV);
	return mode;
}

struct float_mode float_mode_enter_flushed(void)
{
	return float_mode_enter();
}

void float_mode_leave(struct float_mode mode)
{
	fesetenv(&mode.environment);
}
#endif
