/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h -- of a message about peers that are silent: the network that their data takes. The control
 * channel may go another way and be alive, so nothing else points there.
 */
#ifndef WORKER_UPDATE_PATH_H
#define WORKER_UPDATE_PATH_H

#include "base/text.h"

#define PATHS_TEXT_BYTES 250 /* of all of them: most often they share a network, and one says it */

/* NULL and "": there is no network between the two. */
static inline void path_add(struct text *paths, const char *path)
{
	if (!path || !*path || paths->bytes > PATHS_TEXT_BYTES)
		return;
	text_format(paths, "%s%s",
		    paths->bytes ? "; " : "; if not, see whether the network of the data works: ",
		    path);
}

#endif
