/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_run.c -- the work, and who does it: pack_copy.c what is copied, pack_elements.c what is
 * converted, pack_transformed.c what is transformed in blocks. The latter two make a part chunk by
 * chunk; a chunk stays in the first caches while it is summed and goes from there to its targets:
 *
 *   source ──► chunk ──► sum ──► target 0, 1, .. (non-temporal)
 */
#include "pack/pack_steps.h"

#include "base/copy.h"
#include "pack/quantise.h"

#define ROW_MIN_BYTES 4096u /* rows from here on are read as fast alone */

/* Of converts; NULL is the best one. Copies and blocks keep their own. */
static const char *forced;

void pack_emit(const struct pack_part *part, struct digest_stream *sum, size_t first, uint64_t done,
	       const unsigned char *chunk, uint64_t bytes)
{
	if (sum)
		digest_add(sum, chunk, bytes);
	for (size_t i = first; i < part->target_count; i++)
		copy_bytes((unsigned char *)part->targets[i] + done, chunk, bytes);
}

void pack_run(const struct pack *pack, const struct pack_part *part)
{
	struct digest_stream stream, *sum = part->sum ? &stream : NULL;

	if (transform_plain(&pack->transform) && pack->from == pack->to) {
		pack_run_columns(&(struct pack_column){pack, *part}, 1);
		return;
	}
	if (!pack->transform.to_rows) {
		pack_elements(pack, part, forced);
		return;
	}
	if (sum)
		checksum_begin(sum);
	pack_transformed(pack, part, sum, forced);
	if (sum)
		*part->sum = checksum_end(sum);
}

bool pack_can_copack(const struct pack *a, const struct pack *b)
{
	const struct runs *x = &a->runs, *y = &b->runs;

	return transform_plain(&a->transform) && transform_plain(&b->transform) &&
	       a->from == a->to && b->from == b->to && x->row_bytes == y->row_bytes &&
	       x->row_bytes < ROW_MIN_BYTES && x->rows == y->rows && x->rows > 1 &&
	       x->stride_bytes == y->stride_bytes &&
	       x->offset / x->stride_bytes == y->offset / y->stride_bytes;
}

const char *pack_kernel_name(void)
{
	return copy_kernel_name();
}

bool pack_kernel_use(const char *name)
{
	/* conversions ask the most of a processor, and know the names */
	if (!convert_find(DTYPE_F32, DTYPE_BF16, name) || !quantise_use(name) ||
	    !copy_kernel_use(name))
		return false;
	forced = copy_kernel_name();
	return true;
}
