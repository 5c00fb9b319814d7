/* SPDX-License-Identifier: Apache-2.0
 *
 * image.c -- the kernels as a device's driver takes them, part of the library (cmake/cuda.cmake compiles them).
 */
#include "pack/cuda/image.h"

#ifdef WEFT_CUDA_IMAGE
__asm__(".section .rodata\n"
	".balign 64\n"
	"pack_cuda_image_first:\n"
	".incbin \"" WEFT_CUDA_IMAGE "\"\n"
	"pack_cuda_image_end:\n"
	".byte 0\n"
	".previous\n");
extern const unsigned char pack_cuda_image_first[], pack_cuda_image_end[];

const void *pack_cuda_image(size_t *bytes)
{
	*bytes = (size_t)(pack_cuda_image_end - pack_cuda_image_first);
	return pack_cuda_image_first;
}
#else
const void *pack_cuda_image(size_t *bytes)
{
	*bytes = 0;
	return NULL;
}
#endif
