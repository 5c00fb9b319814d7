/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_stream.c -- what a device does, and in which order: streams, events, copies, kernels.
 */
#include "transport/cuda/driver.h"

static CUstream stream_of(cuda_stream stream)
{
	return (CUstream)(void *)stream;
}

static CUevent event_of(cuda_event event)
{
	return (CUevent)(void *)event;
}

int driver_stream_create(cuda_stream *stream)
{
	CUstream made = NULL;
	CUresult rc = driver.cuStreamCreate_(&made, CU_STREAM_NON_BLOCKING);

	*stream = (cuda_stream)(void *)made;
	return driver_answer(rc);
}

int driver_stream_destroy(cuda_stream stream)
{
	return driver_answer(driver.cuStreamDestroy_(stream_of(stream)));
}

int driver_stream_query(cuda_stream stream)
{
	return driver_answer(driver.cuStreamQuery_(stream_of(stream)));
}

int driver_stream_synchronize(cuda_stream stream)
{
	return driver_answer(driver.cuStreamSynchronize_(stream_of(stream)));
}

int driver_stream_wait(cuda_stream stream, cuda_event event)
{
	return driver_answer(driver.cuStreamWaitEvent_(stream_of(stream), event_of(event), 0));
}

int driver_stream_wait_value(cuda_stream stream, uint64_t address, uint64_t least)
{
	return driver_answer(driver.cuStreamWaitValue64_(stream_of(stream), address, least,
							 CU_STREAM_WAIT_VALUE_GEQ));
}

int driver_event_create(cuda_event *event)
{
	CUevent made = NULL;
	CUresult rc = driver.cuEventCreate_(&made, CU_EVENT_DISABLE_TIMING);

	*event = (cuda_event)(void *)made;
	return driver_answer(rc);
}

int driver_event_destroy(cuda_event event)
{
	return driver_answer(driver.cuEventDestroy_(event_of(event)));
}

int driver_event_record(cuda_event event, cuda_stream stream)
{
	return driver_answer(driver.cuEventRecord_(event_of(event), stream_of(stream)));
}

int driver_event_query(cuda_event event)
{
	return driver_answer(driver.cuEventQuery_(event_of(event)));
}

int driver_event_synchronize(cuda_event event)
{
	return driver_answer(driver.cuEventSynchronize_(event_of(event)));
}

/* ---- copies ---- */

int driver_copy(uint64_t to, uint64_t from, uint64_t bytes, cuda_stream stream)
{
	return driver_answer(driver.cuMemcpyAsync_(to, from, bytes, stream_of(stream)));
}

int driver_copy_rows(uint64_t to, uint64_t from, uint64_t row_bytes, uint64_t from_stride,
		     uint64_t rows, cuda_stream stream)
{
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
		.srcDevice = from,
		.srcPitch = from_stride,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = to,
		.dstPitch = row_bytes,
		.WidthInBytes = row_bytes,
		.Height = rows,
	};

	return driver_answer(driver.cuMemcpy2DAsync_(&copy, stream_of(stream)));
}

int driver_fill(uint64_t to, uint8_t byte, uint64_t bytes, cuda_stream stream)
{
	return driver_answer(driver.cuMemsetD8Async_(to, byte, bytes, stream_of(stream)));
}

/* ---- kernels ---- */

int driver_load(const struct cuda_image *image, cuda_kernel *kernel)
{
	CUmodule module;
	CUfunction function = NULL;
	CUresult rc = driver.cuModuleLoadData_(&module, image->bytes);

	if (rc != CUDA_SUCCESS)
		return driver_answer(rc);
	rc = driver.cuModuleGetFunction_(&function, module, image->kernel);
	if (rc != CUDA_SUCCESS)
		driver.cuModuleUnload_(module);
	*kernel = (cuda_kernel)(void *)function;
	return driver_answer(rc);
}

int driver_unload(cuda_kernel kernel)
{
	CUmodule module;
	CUresult rc = driver.cuFuncGetModule_(&module, (CUfunction)(void *)kernel);

	return driver_answer(rc == CUDA_SUCCESS ? driver.cuModuleUnload_(module) : rc);
}

int driver_launch(cuda_kernel kernel, struct cuda_dim dim, void *argument, cuda_stream stream)
{
	void *arguments[] = {argument};

	return driver_answer(driver.cuLaunchKernel_((CUfunction)(void *)kernel, dim.blocks, 1, 1,
						    dim.threads, 1, 1, 0, stream_of(stream),
						    arguments, NULL));
}
