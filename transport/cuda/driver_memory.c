/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_memory.c -- memory of devices: where an address lies, sharing it, and its dma-buf.
 */
#include "transport/cuda/driver.h"

#include <string.h>

int driver_memory_left(uint64_t *free_bytes, uint64_t *bytes)
{
	size_t left = 0, all = 0;
	CUresult rc = driver.cuMemGetInfo_(&left, &all);

	*free_bytes = left;
	*bytes = all;
	return driver_answer(rc);
}

int driver_allocate(uint64_t bytes, uint64_t *address)
{
	CUdeviceptr memory = 0;
	CUresult rc = driver.cuMemAlloc_(&memory, bytes);

	*address = memory;
	return driver_answer(rc);
}

int driver_release(uint64_t address)
{
	return driver_answer(driver.cuMemFree_(address));
}

/* Memory under an address that was reserved: only that has a physical part to retain. */
static bool is_mapped(uint64_t address)
{
	CUmemGenericAllocationHandle physical;

	if (driver.cuMemRetainAllocationHandle_(&physical, (void *)(uintptr_t)address) !=
	    CUDA_SUCCESS)
		return false;
	driver.cuMemRelease_(physical);
	return true;
}

/* What is a range to the driver may be several parts in one reservation; each is shared alone. */
static int mapped_part(uint64_t address, struct cuda_pointer *pointer)
{
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
					    CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
	void *values[] = {&base, &bytes};
	CUresult rc = driver.cuPointerGetAttributes_(2, attributes, values, address);

	if (rc == CUDA_SUCCESS && base && bytes) {
		pointer->base = base;
		pointer->bytes = bytes;
	}
	return driver_answer(rc);
}

int driver_pointer(uint64_t address, struct cuda_pointer *pointer)
{
	/* booleans to cuda.h, of which the driver writes 4 bytes (580.159, seen): room for any width */
	uint64_t managed = 0, ipc = 0, rdma = 0;
	unsigned type = 0;
	int device = -1;
	CUdeviceptr base = 0;
	size_t bytes = 0;
	unsigned long long id = 0;
	CUmemoryPool pool = NULL;
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_BUFFER_ID,
		CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
		CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
		CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
	};
	void *values[] = {&type, &managed, &device, &base, &bytes, &id, &ipc, &pool, &rdma};
	/* an address that the driver does not know answers 0 and leaves every value at 0 */
	CUresult rc = driver.cuPointerGetAttributes_(sizeof(attributes) / sizeof(*attributes),
						     attributes, values, address);

	*pointer = (struct cuda_pointer){.memory = CUDA_MEMORY_UNKNOWN, .device = -1};
	if (rc == CUDA_ERROR_INVALID_VALUE || (rc == CUDA_SUCCESS && !type))
		return 0;
	if (rc != CUDA_SUCCESS)
		return driver_answer(rc);
	pointer->memory = managed			 ? CUDA_MEMORY_MANAGED
			  : type == CU_MEMORYTYPE_DEVICE ? CUDA_MEMORY_DEVICE
							 : CUDA_MEMORY_HOST;
	pointer->device = device;
	pointer->base = base;
	pointer->bytes = bytes;
	pointer->id = id;
	pointer->ipc = ipc != 0;
	pointer->pool = pool != NULL;
	pointer->rdma = rdma != 0;
	pointer->mapped =
		pointer->memory == CUDA_MEMORY_DEVICE && !ipc && !pool && is_mapped(address);
	return pointer->mapped ? mapped_part(address, pointer) : 0;
}

int driver_host_register(void *memory, uint64_t bytes)
{
	return driver_answer(driver.cuMemHostRegister_(
		memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
}

int driver_host_unregister(void *memory)
{
	return driver_answer(driver.cuMemHostUnregister_(memory));
}

/* ---- other processes ---- */

int driver_ipc_export(uint64_t address, unsigned char handle[CUDA_IPC_BYTES])
{
	CUipcMemHandle ipc;
	CUresult rc = driver.cuIpcGetMemHandle_(&ipc, address);

	if (rc == CUDA_SUCCESS)
		memcpy(handle, &ipc, sizeof(ipc));
	return driver_answer(rc);
}

int driver_ipc_open(const unsigned char handle[CUDA_IPC_BYTES], uint64_t *base)
{
	CUipcMemHandle ipc;
	CUdeviceptr memory = 0;
	CUresult rc;

	memcpy(&ipc, handle, sizeof(ipc));
	rc = driver.cuIpcOpenMemHandle_(&memory, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	*base = memory;
	return driver_answer(rc);
}

int driver_ipc_close(uint64_t base)
{
	return driver_answer(driver.cuIpcCloseMemHandle_(base));
}

int driver_physical_create(uint64_t bytes, cuda_physical *physical)
{
	CUmemAllocationProp wanted = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
	};
	CUmemGenericAllocationHandle handle = 0;
	CUdevice device;
	CUresult rc = driver.cuCtxGetDevice_(&device);

	wanted.location.id = device;
	if (rc == CUDA_SUCCESS)
		rc = driver.cuMemCreate_(&handle, bytes, &wanted, 0);
	*physical = handle;
	return driver_answer(rc);
}

int driver_retain(uint64_t address, cuda_physical *physical)
{
	CUmemGenericAllocationHandle handle = 0;
	CUresult rc = driver.cuMemRetainAllocationHandle_(&handle, (void *)(uintptr_t)address);

	*physical = handle;
	return driver_answer(rc);
}

int driver_physical_export(cuda_physical physical, int *fd)
{
	return driver_answer(driver.cuMemExportToShareableHandle_(
		fd, physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

int driver_physical_import(int fd, cuda_physical *physical)
{
	CUmemGenericAllocationHandle handle = 0;
	CUresult rc = driver.cuMemImportFromShareableHandle_(
		&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	*physical = handle;
	return driver_answer(rc);
}

int driver_physical_release(cuda_physical physical)
{
	return driver_answer(driver.cuMemRelease_(physical));
}

int driver_reserve(uint64_t bytes, uint64_t *address)
{
	CUdeviceptr memory = 0;
	CUresult rc = driver.cuMemAddressReserve_(&memory, bytes, 0, 0, 0);

	*address = memory;
	return driver_answer(rc);
}

int driver_unreserve(uint64_t address, uint64_t bytes)
{
	return driver_answer(driver.cuMemAddressFree_(address, bytes));
}

int driver_map(uint64_t address, uint64_t bytes, cuda_physical physical)
{
	CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdevice device;
	CUresult rc = driver.cuCtxGetDevice_(&device);

	if (rc != CUDA_SUCCESS)
		return driver_answer(rc);
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = device;
	rc = driver.cuMemMap_(address, bytes, 0, physical, 0);
	if (rc != CUDA_SUCCESS)
		return driver_answer(rc);
	rc = driver.cuMemSetAccess_(address, bytes, &access, 1);
	if (rc != CUDA_SUCCESS)
		driver.cuMemUnmap_(address, bytes);
	return driver_answer(rc);
}

int driver_unmap(uint64_t address, uint64_t bytes)
{
	return driver_answer(driver.cuMemUnmap_(address, bytes));
}

/* ---- NICs ---- */

int driver_dmabuf(uint64_t address, uint64_t bytes, int *fd)
{
	return driver_answer(driver.cuMemGetHandleForAddressRange_(
		fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

int driver_flush_writes(void)
{
	return driver_answer(driver.cuFlushGPUDirectRDMAWrites_(
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
}
