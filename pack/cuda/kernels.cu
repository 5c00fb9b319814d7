/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.cu -- kernels.h for devices. Bits must be those of the processor, so it is compiled with
 *
 *     -std=c++17 -O3 -fmad=false -prec-div=true -ftz=false
 *
 * Two blocks of threads on a multiprocessor have registers enough for a block of 128 x 128 in BF16 and for four copies of 16
 * bytes a thread under way: with room for four, blocks are quantised at three quarters of the speed (docs/benchmarks.md).
 */
#include "pack/cuda/kernels.h"

extern "C" __global__ void __launch_bounds__(PACK_CUDA_THREADS, 2)
	pack_cuda_table(const __grid_constant__ struct pack_cuda_launch launch)
{
	__shared__ struct block block;

	run_block(&block, &launch, blockIdx.x, gridDim.x);
}
