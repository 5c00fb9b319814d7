/* SPDX-License-Identifier: Apache-2.0
 *
 * without.c -- the table of a build without CUDA (WEFT_CUDA=off, or no toolkit): instead of driver*.c.
 */
#include "transport/cuda/calls.h"
#include "transport/cuda/errors.h"

#define X(name, parameters)                  \
	static int without_##name parameters \
	{                                    \
		return CUDA_NOT_SUPPORTED;   \
	}
CUDA_CALLS(X)
#undef X

const struct cuda_calls cuda_calls_system = {
#define X(name, parameters) .name = without_##name,
	CUDA_CALLS(X)
#undef X
};

int cuda_built_version(void)
{
	return 0;
}

const char *cuda_driver_needed(void)
{
	return NULL;
}
