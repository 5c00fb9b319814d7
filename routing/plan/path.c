/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/path.h"

enum route_path path_of_piece(bool copy, const struct box *src, const uint64_t *shape,
			      bool registered, bool mapped)
{
	/* A held shard is whole rows, so a box is one run of the shard exactly when it is one
	 * run of the whole tensor. */
	if (copy && registered && box_contiguous(src, shape))
		return PATH_DIRECT;
	return mapped ? PATH_MAPPED : PATH_REPLICA;
}
