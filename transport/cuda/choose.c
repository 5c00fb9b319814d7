/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/cuda/calls.h"

const struct cuda_calls *cuda_calls_tested;

const struct cuda_calls *cuda_calls(void)
{
	return cuda_calls_tested ? cuda_calls_tested : &cuda_calls_system;
}

const char *cuda_call_name(enum cuda_call call)
{
	static const char *const names[] = {
#define X(name, parameters) #name,
		CUDA_CALLS(X)
#undef X
	};

	return names[call];
}
