/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PACK_CUDA_IMAGE_H
#define PACK_CUDA_IMAGE_H

#include <stddef.h>

/* The kernels of kernels.cu, for every architecture that was asked for, and how long that is. NULL: this build has
 * no CUDA. */
const void *pack_cuda_image(size_t *bytes);

#endif
