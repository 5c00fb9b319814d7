/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/path.h"

#include <stddef.h>

enum route_path path_of_piece(bool copy, const struct box *src, const uint64_t *shape,
			      bool registered, bool mapped)
{
	/* A held shard is whole rows, so a box is one run of the shard exactly when it is one
	 * run of the whole tensor. */
	if (copy && registered && box_contiguous(src, shape))
		return PATH_DIRECT;
	return mapped ? PATH_MAPPED : PATH_REPLICA;
}

struct path_reason path_reason(enum route_path path, bool copy, const struct box *src,
			       const uint64_t *shape)
{
	static const char *const ways[PATH_COUNT] = {
		[PATH_DIRECT] = "sent from where it lies, which is one run of bytes",
		[PATH_MAPPED] = "packed straight into the target, which the trainer reaches",
		[PATH_REPLICA] =
			"packed into the trainer's ring and sent from there, for the trainer does "
			"not reach the target's memory",
		[PATH_LANDED] = "written beside the target's memory, which the transport does not "
				"write, and put in place by the inference rank",
	};
	const char *because = NULL;

	if (path != PATH_DIRECT && path != PATH_LANDED)
		because = !copy ? "it is transformed"
			  : box_contiguous(src, shape)
				  ? "the transport does not read it where it lies"
				  : "its rows are cut";
	return (struct path_reason){because, ways[path]};
}
