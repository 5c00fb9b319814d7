/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.h -- element types, spelled as safetensors spells them.
 * Source: safetensors format specification (dtype strings of the header).
 */
#ifndef JOB_DTYPE_H
#define JOB_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#define DTYPES(X)                                                                          \
	X(BOOL, 1)                                                                         \
	X(U8, 1)                                                                           \
	X(I8, 1)                                                                           \
	X(F8_E4M3, 1)                                                                      \
	X(F8_E5M2, 1)                                                                      \
	X(I16, 2)                                                                          \
	X(U16, 2)                                                                          \
	X(F16, 2)                                                                          \
	X(BF16, 2)                                                                         \
	X(I32, 4)                                                                          \
	X(U32, 4)                                                                          \
	X(F32, 4)                                                                          \
	X(I64, 8)                                                                          \
	X(U64, 8)                                                                          \
	X(F64, 8)

enum dtype {
	DTYPE_NONE = 0,
#define X(name, bytes) DTYPE_##name,
	DTYPES(X)
#undef X
	DTYPE_COUNT
};

uint32_t dtype_bytes(enum dtype dtype);          /* bytes of one element; 0 for DTYPE_NONE */
const char *dtype_name(enum dtype dtype);        /* "BF16"; "none" for DTYPE_NONE */
enum dtype dtype_from_name(const char *name);    /* as dtype_name writes it; DTYPE_NONE when unknown */
enum dtype dtype_from_text(const char *text);    /* of people and programs: in any case */

#endif
