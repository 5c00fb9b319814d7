/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/path.h"

#include <assert.h>
#include <stdio.h>

void path_push(struct path *path, const char *key)
{
	assert(path->depth < PATH_STEPS_MAX);
	path->steps[path->depth].key = key;
	path->steps[path->depth].index = PATH_NO_INDEX;
	path->depth++;
}

void path_pop(struct path *path)
{
	assert(path->depth > 0);
	path->depth--;
}

void path_index(struct path *path, size_t index)
{
	path->steps[path->depth - 1].index = index;
}

char *path_text(const struct path *path, char out[PATH_TEXT_BYTES])
{
	size_t used = 0;

	for (unsigned i = 0; i <= path->depth && used < PATH_TEXT_BYTES; i++) {
		char *at = out + used;
		size_t left = PATH_TEXT_BYTES - used;
		int n;

		if (i == 0)
			n = snprintf(at, left, "%s%smessage", path->message ? path->message : "",
				     path->message ? " " : "");
		else if (path->steps[i - 1].index == PATH_NO_INDEX)
			n = snprintf(at, left, "%s%s", i == 1 ? ", " : ".", path->steps[i - 1].key);
		else
			n = snprintf(at, left, "%s%s[%zu]", i == 1 ? ", " : ".",
				     path->steps[i - 1].key, path->steps[i - 1].index);
		used += (size_t)n;
	}
	return out;
}
