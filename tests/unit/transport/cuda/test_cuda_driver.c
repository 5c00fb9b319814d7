/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_driver.c -- what is asked of the driver itself, of one that answers as NVIDIA's 580.159 was seen to on an H100:
 * mock devices begin a table above it.
 */
#include "transport/cuda/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BASE  UINT64_C(0x7f5973e00000)
#define BYTES UINT64_C(0x100000)

static struct {
	unsigned type, managed, ipc, rdma;
	bool mapped;
} memory;

static void put(void *value, uint64_t bits, size_t bytes)
{
	memcpy(value, &bits, bytes);
}

/* Booleans are of 4 bytes, whatever cuda.h says of them. */
static CUresult answer(void *value, CUpointer_attribute which)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		put(value, memory.type, 4);
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		put(value, memory.managed, 4);
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		put(value, memory.ipc, 4);
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		put(value, memory.rdma, 4);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		put(value, memory.type ? 3 : 0, 4);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		put(value, memory.type ? BASE : 0, 8);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		put(value, memory.type ? BYTES : 0, 8);
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		put(value, memory.type ? 0x39f : 0, 8);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		put(value, BASE + 0x200000, 8);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		put(value, 0x200000, 8);
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		put(value, 0, 8);
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult attributes(unsigned count, CUpointer_attribute *which, void **values,
			   CUdeviceptr address)
{
	CUresult rc = CUDA_SUCCESS;

	(void)address;
	for (unsigned i = 0; i < count && rc == CUDA_SUCCESS; i++)
		rc = answer(values[i], which[i]);
	return rc;
}

static CUresult retain(CUmemGenericAllocationHandle *physical, void *address)
{
	(void)address;
	*physical = 1;
	return memory.mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult let_go(CUmemGenericAllocationHandle physical)
{
	(void)physical;
	return CUDA_SUCCESS;
}

static int stub(void **state)
{
	(void)state;
	driver.cuPointerGetAttributes_ = attributes;
	driver.cuMemRetainAllocationHandle_ = retain;
	driver.cuMemRelease_ = let_go;
	return 0;
}

static struct cuda_pointer ask(void)
{
	struct cuda_pointer pointer;

	assert_int_equal(driver_pointer(BASE + 0x1000, &pointer), 0);
	return pointer;
}

static void test_pointer__of_cudaMalloc_is_the_devices_and_keeps_every_fact(void **state)
{
	struct cuda_pointer pointer;

	(void)state;
	memory = (__typeof__(memory)){CU_MEMORYTYPE_DEVICE, 0, 1, 1, false};
	pointer = ask();
	assert_int_equal(pointer.memory, CUDA_MEMORY_DEVICE);
	assert_int_equal(pointer.device, 3);
	assert_true(pointer.base == BASE && pointer.bytes == BYTES && pointer.id == 0x39f);
	assert_true(pointer.ipc && pointer.rdma && !pointer.pool && !pointer.mapped);
}

static void test_pointer__of_mapped_memory_is_its_physical_part(void **state)
{
	struct cuda_pointer pointer;

	(void)state;
	memory = (__typeof__(memory)){CU_MEMORYTYPE_DEVICE, 0, 0, 0, true};
	pointer = ask();
	assert_true(pointer.mapped && !pointer.ipc && !pointer.rdma);
	assert_true(pointer.base == BASE + 0x200000 && pointer.bytes == 0x200000);
}

static void test_pointer__of_others_memory_is_told_apart(void **state)
{
	(void)state;
	memory = (__typeof__(memory)){CU_MEMORYTYPE_DEVICE, 1, 0, 0, false};
	assert_int_equal(ask().memory, CUDA_MEMORY_MANAGED);
	memory = (__typeof__(memory)){CU_MEMORYTYPE_HOST, 0, 0, 0, false};
	assert_int_equal(ask().memory, CUDA_MEMORY_HOST);
	memory = (__typeof__(memory)){0, 0, 0, 0, false};
	assert_int_equal(ask().memory, CUDA_MEMORY_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pointer__of_cudaMalloc_is_the_devices_and_keeps_every_fact),
		cmocka_unit_test(test_pointer__of_mapped_memory_is_its_physical_part),
		cmocka_unit_test(test_pointer__of_others_memory_is_told_apart),
	};

	return cmocka_run_group_tests(tests, stub, NULL);
}
