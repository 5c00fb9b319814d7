/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h -- what the user asked for: flags, and the variables that stand in for them.
 */
#ifndef WEFT_WORKER_PROGRAM_OPTIONS_H
#define WEFT_WORKER_PROGRAM_OPTIONS_H

#include "weft_play.h"

#include <stdbool.h>

#define NOT_GIVEN UINT64_MAX /* rank, world */

struct arguments {
	const char *controller, *key, *role, *model, *as, *checkpoint, *train, *infer, *job, *transport;
	const char *digests, *nic, *replica, *live_params, *post_load, *memory, *stage, *metrics, *metrics_file,
		*log_format, *trace;
	uint64_t rank, world, updates, first_version, change_one_in, interval_ms, every_ms, join_timeout_ms;
	uint64_t update_timeout_ms, ring_bytes, landing_bytes, pack_threads;
	uint64_t given; /* a bit for every option of the command line */
	bool checksums, verify, own_memory, shadow, json, die_with_parent, ignored, quiet;
	bool register_sources, repeat, admit;
};

/* A wrong flag ends the program (argp, status 2); a wrong variable is returned. */
int options_read(struct arguments *arguments, int argc, char **argv, weft_error *error);

/* One line when flags were given that say nothing to this role. */
void options_warn(const struct arguments *arguments, bool trainer);

#endif
