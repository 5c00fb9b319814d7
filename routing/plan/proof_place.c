/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/proof_place.h"

bool proof_within_rows(const struct piece *want, const struct route_piece *piece, uint64_t at)
{
	const struct box *in = &want->src, *box = &piece->src;
	uint64_t elements = 1, first = 0, last = 0, mine = 1;

	if (want->transform.part || want->transform.from_rows || want->transform.to_rows)
		return false;
	for (uint32_t d = 0; d < in->dims; d++) {
		uint64_t size = in->hi[d] - in->lo[d];

		if (box->lo[d] < in->lo[d] || box->hi[d] > in->hi[d])
			return false;
		elements *= size;
		mine *= box->hi[d] - box->lo[d];
		first = first * size + box->lo[d] - in->lo[d];
		last = last * size + box->hi[d] - 1 - in->lo[d];
	}
	return last - first + 1 == mine && (at - want->offset) * elements == first * want->bytes &&
	       piece->bytes * elements == mine * want->bytes;
}

/* Where a box of another one, element by element, lies in it: after how many, in which runs. False: not with one stride. */
static bool lie(const struct box *in, const struct box *box, uint64_t *first, struct spread *spread)
{
	uint64_t inner = 1, run = 1, rows = 1, stride = 0;

	*first = 0;
	for (uint32_t d = 0; d < in->dims; d++) {
		if (box->lo[d] < in->lo[d] || box->hi[d] > in->hi[d])
			return false;
		*first = *first * (in->hi[d] - in->lo[d]) + box->lo[d] - in->lo[d];
	}
	for (uint32_t d = in->dims; d-- > 0;) {
		uint64_t size = box->hi[d] - box->lo[d];

		if (size > 1 && run == inner) {
			run *= size;
		} else if (size > 1) {
			if (stride && stride * rows != inner)
				return false;
			stride = stride ? stride : inner;
			rows *= size;
		}
		inner *= in->hi[d] - in->lo[d];
	}
	*spread = rows > 1 ? (struct spread){run, stride} : (struct spread){0};
	return true;
}

/* From elements to blocks, whose scales the parameter is. False: the box ends inside of one. */
static bool count_blocks(const struct piece *want, struct box *box)
{
	const uint64_t block[2] = {want->transform.to_rows, want->transform.to_columns};

	for (int d = 0; d < 2 && block[0]; d++) {
		if ((box->lo[d] % block[d] && box->lo[d] != want->src.lo[d]) ||
		    (box->hi[d] % block[d] && box->hi[d] != want->src.hi[d]))
			return false;
		if (want->transform.part != TRANSFORM_SCALES)
			continue;
		box->lo[d] /= block[d];
		box->hi[d] = (box->hi[d] + block[d] - 1) / block[d];
	}
	return true;
}

/* As the parameter has what is transposed: the last two dimensions change over. */
static void turn(struct box *box)
{
	uint32_t d = box->dims - 1;
	uint64_t lo = box->lo[d], hi = box->hi[d];

	box->lo[d] = box->lo[d - 1];
	box->hi[d] = box->hi[d - 1];
	box->lo[d - 1] = lo;
	box->hi[d - 1] = hi;
}

bool proof_place(const struct piece *want, const struct route_piece *piece)
{
	struct box in = want->src, box = piece->src;
	struct spread spread;
	uint64_t first, each;

	if (want->transform.part == TRANSFORM_PADDED || want->transform.from_rows ||
	    !count_blocks(want, &in) || !count_blocks(want, &box))
		return false;
	if (want->transform.part == TRANSFORM_TRANSPOSED) {
		turn(&in);
		turn(&box);
	}
	if (!lie(&in, &box, &first, &spread))
		return false;
	each = want->bytes / box_elements(&in);
	return piece->offset == want->offset + first * each &&
	       piece->spread.run_bytes == spread.run_bytes * each &&
	       piece->spread.stride_bytes == spread.stride_bytes * each &&
	       piece->bytes == box_elements(&box) * each;
}
