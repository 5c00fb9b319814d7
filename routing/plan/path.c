/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/path.h"

#include <stddef.h>

enum route_path path_of_piece(bool copy, bool in_one_run, bool registered, bool mapped)
{
	if (copy && registered && in_one_run)
		return PATH_DIRECT;
	return mapped ? PATH_MAPPED : PATH_REPLICA;
}

struct path_reason path_reason(enum route_path path, bool copy, bool in_one_run, bool spread,
			       bool written)
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
	static const char beside[] =
		"written beside the target's memory and put in place by the inference rank";
	static const char finer[] =
		"trainers cut its rows finer than the engine, so that it is many short runs there";
	const char *because = NULL; /* what is not written at all lands for that alone */

	if (path == PATH_LANDED && written)
		return (struct path_reason){
			spread ? finer
			       : "it is small, and is sent with all else that is small between the two",
			beside};
	if (path != PATH_DIRECT && path != PATH_LANDED)
		because = spread       ? finer
			  : !copy      ? "it is transformed"
			  : in_one_run ? "the transport does not read it where it lies"
				       : "its rows are cut";
	return (struct path_reason){because, ways[path]};
}
