/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/processor.h"

bool processor_has_any(void)
{
	return true;
}

#if PROCESSOR_X86
#include <cpuid.h>
#include <immintrin.h>

#define MXCSR_DEFAULT 0x1f80u /* nearest even, nothing flushed, nothing traps */
#define MXCSR_FLAGS   0x003fu
#define MXCSR_FLUSHED 0x9fc0u /* the default, and subnormals are 0, read or made */

bool processor_has_avx512(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool processor_has_avx512vbmi(void)
{
	return processor_has_avx512() && __builtin_cpu_supports("avx512vbmi");
}

bool processor_has_avx2(void)
{
	unsigned int a, b, c, d;

	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

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
