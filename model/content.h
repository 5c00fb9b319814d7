/* SPDX-License-Identifier: Apache-2.0
 *
 * content.h -- deterministic contents: of a made checkpoint, and of every later version.
 *
 * A made tensor looks like weights (small, signed, no repeats): with
 *     key0 = splitmix64(xxh64(name, seed 0) + seed * 0x9E3779B97F4A7C15)
 * 64-bit word i of tensor `name` is w_i = splitmix64(key0 + i), and in each float of it
 * the exponent's upper bits are set so that the number is finite and small (content.c has the
 * masks: BF16 = (bits & 0x81ff) | 0x3c00, so 2^-7 <= |x| < 2^-3).
 *
 * Version v >= 1 of any tensor is a function of its checkpoint bytes and v alone. The tensor's
 * bytes are taken as little-endian 64-bit words w_0, w_1, ... (the last one padded with zero
 * bytes) and
 *     key = splitmix64(xxh64(name, seed 0) + v * 0x9E3779B97F4A7C15)
 *     word_i(v) = w_i + key * (2 i + 1)     mod 2^64
 * so every word changes with every version and depends on its place. Version 0 is the
 * checkpoint itself. splitmix64(x): x += 0x9E3779B97F4A7C15; x = (x ^ x>>30) *
 * 0xBF58476D1CE4E5B9; x = (x ^ x>>27) * 0x94D049BB133111EB; x ^ x>>31.
 * Source of splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014.
 */
#ifndef MODEL_CONTENT_H
#define MODEL_CONTENT_H

#include "job/dtype.h"
#include <stdbool.h>
#include <stdint.h>

uint64_t splitmix64(uint64_t x);

/* Bytes [offset, offset + bytes) of the made tensor `name`, into out. Any offset. */
void content_make(const char *name, enum dtype dtype, uint64_t seed, uint64_t offset,
		  uint64_t bytes, void *out);

/* Bytes [offset, offset + bytes) of version `version` of a tensor whose checkpoint bytes are
 * tensor[0 .. tensor_bytes). Any offset with offset + bytes <= tensor_bytes; out may not overlap
 * tensor. Memory speed; the first and last partial words cost a little. */
void content_version(const char *name, const void *tensor, uint64_t tensor_bytes,
		     uint64_t version, uint64_t offset, uint64_t bytes, void *out);

/* From now on a version differs from the one before in one of so many of its 16-bit values alone, as after a step of reinforcement
 * learning; 1, which is the default, in every word. All processes of a job say the same. Call it while no contents are made. */
void content_change_one_in(uint32_t values);

/* For tests: "avx512", "avx2" or "portable" from now on, the same bytes with each; false when this
 * processor has it not. Call it while nothing is transformed. */
bool content_kernel_use(const char *name);

#endif
