/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_sum.h -- checksum64() of bytes in memory: XXH3 with 64 bits, seed 0 and the default secret (the xxHash
 * specification, XXH3 algorithm). Its accumulators are scrambled once a KiB, one KiB after the other; what is added in
 * between is a sum and so is made by all threads at once:
 *
 *   thread (segment, lane)     adds lane's 8 bytes of its segment's 16 stripes       32 segments of 1 KiB
 *   thread lane                folds the 32 segments in, one after the other: add, scramble
 *
 * `at` counts the part's bytes, which may lie in runs.
 */
#ifndef PACK_CUDA_KERNELS_SUM_H
#define PACK_CUDA_KERNELS_SUM_H

#include "pack/cuda/kernels_elements.h"

#define SUM_PRIME32_1 0x9E3779B1ull
#define SUM_PRIME32_2 0x85EBCA77ull
#define SUM_PRIME32_3 0xC2B2AE3Dull
#define SUM_PRIME64_1 0x9E3779B185EBCA87ull
#define SUM_PRIME64_2 0xC2B2AE3D27D4EB4Full
#define SUM_PRIME64_3 0x165667B19E3779F9ull
#define SUM_PRIME64_4 0x85EBCA77C2B2AE63ull
#define SUM_PRIME64_5 0x27D4EB2F165667C5ull

#define SUM_STRIPE  64u
#define SUM_STRIPES 16u /* of a segment */
#define SUM_SEGMENT 1024u
#define SUM_SHORT   240u /* up to here there are other rules */

CONSTANT uint64_t sum_secret[24] = {
	0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
	0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
	0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
	0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
	0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
	0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull
};

KERNEL uint64_t secret_at(uint32_t at)
{
	uint32_t shift = at % 8 * 8;

	return shift ? sum_secret[at / 8] >> shift | sum_secret[at / 8 + 1] << (64 - shift) : sum_secret[at / 8];
}

KERNEL uint64_t multiply_fold(uint64_t a, uint64_t b)
{
#ifdef __CUDACC__
	return a * b ^ __umul64hi(a, b);
#else
	__extension__ unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
#endif
}

KERNEL uint64_t avalanche(uint64_t h)
{
	h = (h ^ h >> 37) * 0x165667919E3779F9ull;
	return h ^ h >> 32;
}

KERNEL uint64_t avalanche_64(uint64_t h)
{
	h = (h ^ h >> 33) * SUM_PRIME64_2;
	h = (h ^ h >> 29) * SUM_PRIME64_3;
	return h ^ h >> 32;
}

KERNEL uint64_t turn_left(uint64_t x, uint32_t by)
{
	return x << by | x >> (64 - by);
}

KERNEL uint64_t swap_bytes(uint64_t x)
{
	uint64_t swapped = 0;

	for (uint32_t i = 0; i < 8; i++)
		swapped = swapped << 8 | (x >> 8 * i & 0xff);
	return swapped;
}

/* Bytes that runs may part. */
KERNEL uint64_t load_part(const struct block *block, uint64_t at, uint32_t bytes)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < bytes; i++)
		bits |= load_bits(block, target_at(block, at + i), 1) << 8 * i;
	return bits;
}

/* Eight bytes, of any alignment. */
KERNEL uint64_t load_64(const struct block *block, uint64_t at)
{
	const struct pack_cuda_runs *runs = &block->part.target_runs;
	uint64_t address = target_at(block, at);

	if (runs->run_bytes && (at + runs->skip) % runs->run_bytes + 8 > runs->run_bytes)
		return load_part(block, at, 8);
	if (!(address & 7))
		return *(const uint64_t *)(const void *)READ(block, address, 8);
	return load_bits(block, address, 8);
}

/* ---- up to 240 bytes: by one thread ---- */

KERNEL uint64_t mix_16(const struct block *block, uint64_t at, uint32_t secret)
{
	return multiply_fold(load_64(block, at) ^ secret_at(secret),
			     load_64(block, at + 8) ^ secret_at(secret + 8));
}

KERNEL uint64_t sum_16(const struct block *block, uint32_t bytes)
{
	uint64_t low, high;

	if (!bytes)
		return avalanche_64(secret_at(56) ^ secret_at(64));
	if (bytes <= 3) {
		uint64_t all = load_part(block, 0, 1) << 16 | load_part(block, bytes / 2, 1) << 24 |
			       load_part(block, bytes - 1, 1) | (uint64_t)bytes << 8;

		return avalanche_64(all ^ (uint32_t)(secret_at(0) ^ secret_at(0) >> 32));
	}
	if (bytes <= 8) {
		uint64_t h = (load_part(block, bytes - 4, 4) + (load_part(block, 0, 4) << 32)) ^
			     (secret_at(8) ^ secret_at(16));

		h ^= turn_left(h, 49) ^ turn_left(h, 24);
		h *= 0x9FB21C651E98DF25ull;
		h ^= (h >> 35) + bytes;
		h *= 0x9FB21C651E98DF25ull;
		return h ^ h >> 28;
	}
	low = load_64(block, 0) ^ secret_at(24) ^ secret_at(32);
	high = load_64(block, bytes - 8) ^ secret_at(40) ^ secret_at(48);
	return avalanche(bytes + swap_bytes(low) + high + multiply_fold(low, high));
}

KERNEL uint64_t sum_short(const struct block *block, uint32_t bytes)
{
	uint64_t sum = bytes * SUM_PRIME64_1;

	if (bytes <= 16)
		return sum_16(block, bytes);
	if (bytes <= 128) {
		for (uint32_t i = (bytes - 1) / 32; i + 1; i--)
			sum += mix_16(block, 16 * i, 32 * i) +
			       mix_16(block, bytes - 16 * (i + 1), 32 * i + 16);
		return avalanche(sum);
	}
	for (uint32_t i = 0; i < 8; i++)
		sum += mix_16(block, 16 * i, 16 * i);
	sum = avalanche(sum);
	for (uint32_t i = 8; i < bytes / 16; i++)
		sum += mix_16(block, 16 * i, 16 * (i - 8) + 3);
	return avalanche(sum + mix_16(block, bytes - 16, 136 - 17));
}

/* ---- longer: by all ---- */

/* What the lane gets of `stripes` stripes, its secret beginning at `secret` and moving on by 8. */
KERNEL void add_stripes(const struct block *block, uint64_t at, uint32_t stripes, uint32_t lane, uint32_t secret,
			uint64_t *product, uint64_t *raw)
{
	*product = *raw = 0;
	for (uint32_t i = 0; i < stripes; i++) {
		uint64_t value = load_64(block, at + i * SUM_STRIPE + 8 * lane);
		uint64_t keyed = value ^ secret_at(secret + 8 * i + 8 * lane);

		*raw += value;
		*product += (keyed & 0xffffffffu) * (keyed >> 32);
	}
}

/* Up to 32 segments; a lane's raw sum goes to its neighbour. */
KERNEL void add_segments(struct block *block, uint64_t at, uint32_t segments)
{
	EACH_THREAD(t)
		if (t / 8 < segments)
			add_stripes(block, at + t / 8 * SUM_SEGMENT, SUM_STRIPES, t % 8, 0,
				    &block->shared.sum.products[t / 8][t % 8], &block->shared.sum.raw[t / 8][t % 8]);
	BARRIER();
	EACH_THREAD(t)
		for (uint32_t i = 0; t < 8 && i < segments; i++) {
			uint64_t sum = block->shared.sum.lanes[t] + block->shared.sum.products[i][t] +
				       block->shared.sum.raw[i][t ^ 1];

			block->shared.sum.lanes[t] = (sum ^ sum >> 47 ^ secret_at(128 + 8 * t)) * SUM_PRIME32_1;
		}
	BARRIER();
}

/* The stripes behind the last whole segment, and the last 64 bytes once more. */
KERNEL void add_rest(struct block *block, uint64_t bytes)
{
	uint64_t done = (bytes - 1) / SUM_SEGMENT * SUM_SEGMENT;
	uint32_t stripes = (uint32_t)((bytes - 1 - done) / SUM_STRIPE);

	EACH_THREAD(t) {
		if (t < 8)
			add_stripes(block, done, stripes, t, 0, &block->shared.sum.products[0][t],
				    &block->shared.sum.raw[0][t]);
		else if (t < 16)
			add_stripes(block, bytes - SUM_STRIPE, 1, t - 8, 121,
				    &block->shared.sum.products[1][t - 8], &block->shared.sum.raw[1][t - 8]);
	}
	BARRIER();
	EACH_THREAD(t)
		if (t < 8)
			block->shared.sum.lanes[t] += block->shared.sum.products[0][t] +
						      block->shared.sum.products[1][t] +
						      block->shared.sum.raw[0][t ^ 1] +
						      block->shared.sum.raw[1][t ^ 1];
	BARRIER();
}

KERNEL uint64_t sum_end(const struct block *block, uint64_t bytes)
{
	uint64_t sum = bytes * SUM_PRIME64_1;

	for (uint32_t i = 0; i < 4; i++)
		sum += multiply_fold(block->shared.sum.lanes[2 * i] ^ secret_at(11 + 16 * i),
				     block->shared.sum.lanes[2 * i + 1] ^ secret_at(11 + 16 * i + 8));
	return avalanche(sum);
}

KERNEL void sum_long(struct block *block, uint64_t bytes)
{
	const uint64_t begin[8] = {SUM_PRIME32_3, SUM_PRIME64_1, SUM_PRIME64_2, SUM_PRIME64_3,
				   SUM_PRIME64_4, SUM_PRIME32_2, SUM_PRIME64_5, SUM_PRIME32_1};
	uint64_t segments = (bytes - 1) / SUM_SEGMENT;

	EACH_THREAD(t)
		if (t < 8)
			block->shared.sum.lanes[t] = begin[t];
	BARRIER();
	for (uint64_t done = 0; done < segments; done += SUM_SEGMENTS)
		add_segments(block, done * SUM_SEGMENT,
			     (uint32_t)kernel_least(segments - done, SUM_SEGMENTS));
	add_rest(block, bytes);
}

TILE_KERNEL void sum_tile(struct block *block, uint64_t sums)
{
	uint64_t bytes = block->part.bytes;

	if (bytes > SUM_SHORT)
		sum_long(block, bytes);
	EACH_THREAD(t)
		if (!t)
			*(uint64_t *)(void *)WRITE(block, sums + block->part.sum * sizeof(uint64_t), 8) =
				bytes > SUM_SHORT ? sum_end(block, bytes)
						  : sum_short(block, (uint32_t)bytes);
}

#endif
