/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.h -- a checkpoint folder that appears whole or not at all.
 *
 *   parent/.NAME.weft-partial   written here, under a lock that dies with the process
 *   parent/NAME                 renamed to (or exchanged with) this by commit
 *
 * Only files that a checkpoint made here consists of are ever removed: config.json, weft.layout.json,
 * model*.safetensors and the index.
 */
#ifndef MODEL_FOLDER_H
#define MODEL_FOLDER_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

/* Whether the path, links resolved, lies in (or is) a folder that is not yet whole, or never was. */
bool folder_is_partial(const char *path);
/* What a run that was killed left of `path`: its name and bytes on disk. False: nothing, or it is being
 * written now. */
struct folder_left {
	char *partial; /* memory_free it */
	uint64_t bytes;
};
bool folder_left(const char *path, struct folder_left *left);

struct folder {
	char *path, *partial;
	int lock;      /* the open, locked partial folder; -1 when closed */
	bool replace;
};

/* Refuses an existing `path`, and what a killed run left of it, unless `replace`; refuses foreign files
 * in either; refuses when `bytes` of tensors and `beside` of what is written with them do not fit on
 * the disk. */
int folder_begin(struct folder *folder, const char *path, bool replace, uint64_t bytes,
		 uint64_t beside, struct error *error);
int folder_commit(struct folder *folder, struct error *error);
/* Removes the partial folder. Fine after a failed begin or a commit. */
void folder_abort(struct folder *folder);

#endif
