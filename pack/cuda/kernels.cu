/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.cu -- kernels.h for devices. Bits must be those of the processor, so it is compiled with
 *
 *     -std=c++17 -O3 -fmad=false -prec-div=true -ftz=false
 */
#include "pack/cuda/kernels.h"

extern "C" __global__ void __launch_bounds__(PACK_CUDA_THREADS)
	pack_cuda_table(const __grid_constant__ struct pack_cuda_launch launch)
{
	__shared__ struct block block;

	run_block(&block, &launch, blockIdx.x, gridDim.x);
}
