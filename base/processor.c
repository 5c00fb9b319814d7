/* SPDX-License-Identifier: Apache-2.0 */
#include "base/processor.h"

#include <string.h>

bool processor_has_any(void)
{
	return true;
}

#if PROCESSOR_X86
#include <cpuid.h>

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
#endif

const void *processor_find(const struct processor_kernels *kernels, const char *name)
{
	const char *at = kernels->rows;

	for (size_t i = 0; i < kernels->count; i++, at += kernels->row_bytes) {
		const struct processor_row *row = (const void *)at;

		if ((!name || strcmp(row->name, name) == 0) && row->here())
			return row;
	}
	return NULL;
}

const void *processor_choose(struct processor_kernels *kernels, const char *name)
{
	const void *found = processor_find(kernels, name);

	if (found)
		atomic_store_explicit(&kernels->chosen, found, memory_order_relaxed);
	return found;
}
