/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/pack.h"

#include "common/copy.h"
#include "common/digest.h"

void pack_range(void *target, const void *source, const struct runs *runs, uint64_t from,
		uint64_t bytes)
{
	const unsigned char *first = (const unsigned char *)source + runs->offset;
	unsigned char *out = target;
	uint64_t row = from / runs->row_bytes, skip = from % runs->row_bytes, whole;

	if (skip && bytes) {
		uint64_t n = runs->row_bytes - skip < bytes ? runs->row_bytes - skip : bytes;

		copy_bytes(out, first + row * runs->stride_bytes + skip, n);
		out += n;
		bytes -= n;
		row++;
	}
	whole = bytes / runs->row_bytes;
	if (whole) {
		copy_rows(out, first + row * runs->stride_bytes, whole, runs->row_bytes,
			  runs->stride_bytes);
		out += whole * runs->row_bytes;
		bytes -= whole * runs->row_bytes;
		row += whole;
	}
	if (bytes)
		copy_bytes(out, first + row * runs->stride_bytes, bytes);
}

uint64_t pack_checksum(const void *source, const struct runs *runs)
{
	const unsigned char *first = (const unsigned char *)source + runs->offset;
	struct digest_stream stream;

	if (runs->rows == 1 || runs->stride_bytes == runs->row_bytes)
		return checksum64(first, runs->rows * runs->row_bytes);
	checksum_begin(&stream);
	for (uint64_t row = 0; row < runs->rows; row++)
		digest_add(&stream, first + row * runs->stride_bytes, runs->row_bytes);
	return checksum_end(&stream);
}
