/* SPDX-License-Identifier: Apache-2.0
 *
 * abi.h -- the structs of weft.h on their way over the border, whose two sides may be of different age:
 * a caller's struct is copied into one of ours, or one of ours out as far as the caller's reaches.
 *
 *   caller's    size  a  b  c            ours    size  a  b  c  d      taken: d = 0
 *   caller's    size  a  b  c  d  e      ours    size  a  b  c  d      taken if e is 0, else refused
 */
#ifndef WORKER_API_ABI_H
#define WORKER_API_ABI_H

#include "base/error.h"
#include <stddef.h>

struct weft_memory;

/* Up to `first`: the least that is taken, what any version of it had; it never changes.
 * Up to `known`: what has a meaning, the same or less where a reserved field fills the end. */
#define ABI_STRUCTS(X)                                                       \
	/* ABI_       struct            first           known             last */ \
	X(ERROR,       weft_error,       text,           text,             text) \
	X(LAUNCH,      weft_launch,      key_waits,      key_file,         key_file) \
	X(OPTIONS,     weft_options,     pack_threads,   trace,            trace)        \
	X(MEMORY,      weft_memory,      stream,         stream,           stream) \
	X(TENSOR,      weft_tensor,      shape,          shape,            shape) \
	X(PARAM,       weft_param,       memory,         memory,           memory) \
	X(TRANSFORM,   weft_transform,   order,          order,            order) \
	X(SLICE,       weft_slice,       memory,         memory,           memory) \
	X(TENSOR_VIEW, weft_tensor_view, bytes,          bytes,            bytes) \
	X(HOLDING,     weft_holding,     stride,         stride,           stride) \
	X(HOLDING_VIEW, weft_holding_view, stride,       stride,           stride) \
	X(PARAM_VIEW,  weft_param_view,  bytes,          bytes,            bytes) \
	X(PLAN_VIEW,   weft_plan_view,   reserved,       peers,            reserved) \
	X(LOSS,        weft_loss,        text,           role,             reserved) \
	X(STATS,       weft_stats,       parts_copacked, saved_bytes,      saved_bytes)

#define X(id, type, first, known, last) ABI_##id,
enum abi_struct { ABI_STRUCTS(X) ABI_COUNT };
#undef X

/* The caller's struct, which `call` was given, into *ours. ERROR_USAGE: it is NULL, its size is none
 * that the struct ever had, or something is set in it that is not known here. */
int abi_take(enum abi_struct type, const char *call, const void *theirs, void *ours,
	     struct error *error);
/* The same for element `at` of an array of `stride` bytes each. */
int abi_take_at(enum abi_struct type, const char *call, const void *array, size_t stride, size_t at,
		void *ours, struct error *error);
/* A weft_memory that was taken. ERROR_USAGE: no kind, or a host's with a device or stream. */
int abi_check_memory(const char *call, const struct weft_memory *ours, struct error *error);
/* Before the work, that what is filled afterwards can be: the caller's struct is there and its size is
 * possible. */
int abi_check_out(enum abi_struct type, const char *call, const void *theirs, struct error *error);
/* *ours into the caller's struct, as far as it reaches; what lies beyond ours is zeroed. */
void abi_give(enum abi_struct type, const void *ours, void *theirs);

#endif
