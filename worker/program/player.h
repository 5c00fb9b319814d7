/* SPDX-License-Identifier: Apache-2.0
 *
 * player.h -- one process that plays one trainer or one inference rank of a job.
 *
 *   main.c       signals, exit codes
 *   options.c    what the user asked for
 *   self.c       which rank of which role that makes this process
 *   player.c     the life: controller, worker, join, updates, leave
 *   trainer.c    makes versions and writes them
 *   inference.c  waits for versions, compares them, writes digests
 *   post_load.c  runs a command before a version is published
 *   figures.c    the lines for standard output
 *   say.c        a line for standard error
 *
 * This program is a plain user of weft.h and weft_play.h, as any host program: it includes nothing else of this
 * project, and may allocate as it likes.
 */
#ifndef WEFT_WORKER_PROGRAM_PLAYER_H
#define WEFT_WORKER_PROGRAM_PLAYER_H

#include "options.h"

#include <stdio.h>

struct player {
	struct arguments arguments;
	weft_launch launch;
	enum weft_role role;
	uint32_t rank, count; /* of the role */
	const char *source;   /* of the rank */
	weft_worker *worker;
	weft_checkpoint *checkpoint;
	weft_plan_view plan;
	int64_t controller; /* its process, when started here */
	FILE *digests;
	void *memory; /* trainer: contents; own_memory: parameters and guards; of what lies on a GPU a copy */
	size_t memory_bytes;
	weft_memory device_memory; /* the same on a GPU; its pointer NULL: none */
	weft_memory *data; /* trainer: by tensor id; its pointer NULL when not wanted */
	uint32_t tensors;
	weft_holding_view *holdings; /* trainer: all boxes, by the id that they are written with */
	uint32_t holding_count;
	uint64_t verified;
	uint64_t saved_bytes;        /* of all updates but the last; trainer */
	int output_errno; /* of the first line that standard output did not take */
};

/* ---- player.c ---- */
int player_play(struct player *player, weft_error *error);
int player_close(struct player *player, bool failed); /* weft_close's answer */
void player_interrupt(int number); /* from a signal handler */
int player_signal(void);           /* the number of the signal that came, or 0 */

/* Zeroed, or a message; player_close unmaps it. */
int player_map(struct player *player, size_t bytes, weft_error *error);
size_t player_padded(uint64_t bytes); /* to whole pages */
/* Memory of the worker's GPU, where it has one; player_close frees it. */
int player_map_device(struct player *player, size_t bytes, weft_error *error);
/* `bytes` of memory that a worker reads or writes, at `offset` in what was mapped. */
weft_memory player_memory_at(const struct player *player, size_t offset, uint64_t bytes);

/* Fills the error; -code. */
__attribute__((format(printf, 3, 4))) int fail(weft_error *error, int code, const char *format,
					       ...);

/* ---- say.c ---- */
/* The line break is added. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* ---- self.c ---- */
int self_find(struct player *player, weft_error *error);
void self_print(const struct player *player);
const char *self_role(const struct player *player);

/* ---- trainer.c, inference.c ---- */
int trainer_register(struct player *player, weft_error *error);
int trainer_run(struct player *player, weft_error *error);
int inference_compare(struct player *player, weft_error *error);
int inference_bind(struct player *player, weft_error *error);
int inference_run(struct player *player, weft_error *error);

/* ---- post_load.c ---- */
int post_load_set(struct player *player, weft_error *error);

/* ---- figures.c ---- */
void figures_joined(struct player *player);
void figures_update(struct player *player, uint64_t version);
void figures_done(struct player *player);
/* Lines that did not arrive are a failure, unless their reader went away. */
int figures_written(const struct player *player, weft_error *error);

#endif
