/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/pack.h"

#include "job/digest.h"

uint64_t pack_piece_sum(const void *memory, uint64_t bytes, uint64_t block_bytes)
{
	const unsigned char *block = memory;
	struct digest_stream stream;

	if (bytes <= block_bytes)
		return checksum64(memory, bytes);
	checksum_begin(&stream);
	for (uint64_t left = bytes, n; left; left -= n, block += n) {
		n = left < block_bytes ? left : block_bytes;
		digest_add_u64(&stream, checksum64(block, n));
	}
	return checksum_end(&stream);
}
