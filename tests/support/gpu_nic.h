/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_nic.h -- NICs of the mock of libibverbs that reach memory of mock GPUs.
 */
#ifndef TESTS_SUPPORT_GPU_NIC_H
#define TESTS_SUPPORT_GPU_NIC_H

#include "tests/cuda_mock/cuda_mock.h"
#include "tests/support/verbs_mock.h"

static const struct verbs_mock_gpu gpu_nic = {.dmabuf = cuda_mock_dmabuf,
					      .is_device = cuda_mock_is_device,
					      .read = cuda_mock_nic_read,
					      .write = cuda_mock_nic_write};

#endif
