/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_parts.h -- between the files that play a world: update_world_plan.c makes trainers'
 * plans, update_world.c threads, update_world_steps.c what they do, update_world_rank.c and update_world_window.c ranks,
 * update_world_network.c writes and signals.
 */
#ifndef TESTS_SUPPORT_UPDATE_WORLD_PARTS_H
#define TESTS_SUPPORT_UPDATE_WORLD_PARTS_H

#include "tests/support/update_world.h"

#define NEVER UINT64_MAX
#define MS    1000000u
#define WORLD_RUNS 3

/* What lies in a slot, a home or a cell: 0, while it changes, or who made it. */
typedef uint64_t tag;

struct flight {
	uint64_t number, complete_at;
	uint32_t row, part;           /* row UINT32_MAX: checksums, or what is said of a window */
	uint64_t at, bytes;           /* in the rank's window; bytes 0: where it belongs */
	const tag *from;              /* slot or home, looked at when it completes; NULL: in place */
	tag wanted;
};

struct world_signal {
	bool there;
	uint64_t at;
	enum update_tag word;
	struct update_end end;
	struct update_abort gone;
	struct update_accept accept;
	struct update_landed landed;
	struct update_taken taken;
};

/* One pair. */
struct world_link {
	struct flight flights[256];
	uint32_t first, next;
	uint64_t posted, completed, last_at;
	bool broken;
	struct world_signal to_rank, to_trainer;
};

enum thread_state { THREAD_READY, THREAD_CHANGE, THREAD_WORK, THREAD_ACCEPT, THREAD_TAKEN, THREAD_OUT };

struct world_thread {
	enum thread_state state;
	uint64_t at;                  /* of its event, or the end of its wait */
	struct task task;
	struct call call;
	struct error error;
	struct event event;
	struct step step;
	struct flight flight;         /* that is posted when the step ends */
	uint32_t tensors[WORLD_TENSORS], tensor_count, tensor_next;
	bool helper;                  /* a packing thread */
};

enum script { SCRIPT_BEGIN, SCRIPT_BEGINNING, SCRIPT_WRITING, SCRIPT_ENDING, SCRIPT_OVER };

struct world_trainer {
	struct send_plan plan;
	struct send_row rows[WORLD_ROWS];
	struct send_source sources[WORLD_SOURCES];
	uint32_t source_rows[WORLD_ROWS], tensor_first[WORLD_TENSORS + 2];
	uint32_t tensor_rows[2 * WORLD_ROWS];
	struct full_place places[WORLD_SOURCES];
	bool lands[WORLD_RANKS], deltas[WORLD_RANKS];
	struct sent sent;
	struct sent_source sent_sources[WORLD_SOURCES];
	struct sent_block sent_blocks[WORLD_BLOCKS];
	struct sent_run sent_runs[WORLD_BLOCKS * WORLD_RUNS];
	struct send_merge merges[WORLD_RANKS];
	tag merged[WORLD_RANKS][WORLD_WINDOW / 8]; /* by 8 bytes: what small parts were copied to */
	struct window_entry entries[WORLD_RANKS * WINDOW_ENTRIES];
	struct schedule schedule;
	struct world_thread threads[WORLD_THREADS];
	uint32_t thread_count;
	enum script script;
	uint64_t version;
	tag ring[WORLD_RING / 8];     /* by 8 bytes; of homes too */
	tag scratch[WORLD_SOURCES][WORLD_PARTS];
	struct error error;
};

struct world_rank {
	struct receiver receiver;
	struct receive_peer peers[WORLD_TRAINERS];
	struct receive_link links[WORLD_TRAINERS];
	struct receive_event event;
	struct update_end end;
	struct update_abort gone;
	struct update_landed landed;
	struct error error;
	uint64_t at;                  /* of its next event */
	uint64_t heard_until;         /* of the wait */
	bool waits, over;
	uint64_t published;
	tag cells[WORLD_TRAINERS][WORLD_ROWS][WORLD_PARTS];
	uint64_t window_bytes;        /* of its rings; 0: it has none */
	uint64_t based[WORLD_TRAINERS]; /* the opening in which its cells hold what is published */
	struct world_window {
		struct window_entry entries[WINDOW_ENTRIES];
		tag ring[WORLD_WINDOW / 8]; /* by 8 bytes */
		tag tags[WORLD_ROWS][WORLD_PARTS]; /* what was taken last, and how much of it */
		uint64_t bytes[WORLD_ROWS][WORLD_PARTS];
	} windows[WORLD_TRAINERS];
};

struct world {
	struct world_options options;
	uint64_t random, now;
	uint32_t trainer_count, rank_count, steps, publications, posts;
	struct world_trainer trainers[WORLD_TRAINERS];
	struct world_rank ranks[WORLD_RANKS];
	struct world_link links[WORLD_TRAINERS][WORLD_RANKS];
	char names[WORLD_TRAINERS + WORLD_RANKS][16];
	const char *rank_names[WORLD_RANKS];
	const char *tensor_names[WORLD_TENSORS];
	bool failed;                  /* the job: everybody hears of it */
	uint32_t dead;                /* that rank + 1; 0: all live */
	char finding[256];
	struct text story;
};

uint64_t world_random(struct world *world, uint64_t below);
bool world_chance(struct world *world, uint32_t percent);
uint64_t world_takes(struct world *world); /* how long something takes */
uint64_t world_lands(struct world *world); /* and a write */
void world_find(struct world *world, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void world_tell(struct world *world, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
tag tag_of(uint64_t version, uint32_t source, uint32_t part);

/* update_world.c */
void world_wake(struct world *world, struct world_trainer *trainer, enum thread_state state);

/* update_world_steps.c: begins thread->step; and what is done when its event is due */
void world_do_step(struct world *world, uint32_t t, struct world_thread *thread);
void world_pack_ends(struct world *world, uint32_t t, const struct step *step);
void world_post_ends(struct world *world, uint32_t t, struct world_thread *thread);

/* update_world_host.c */
void world_host_begin(struct world *world, struct world_trainer *trainer);
/* The end that the thread was in is called again, whatever of it was done. */
void world_host_ends_again(struct world *world, struct world_thread *thread);
/* A call of that thread is out. */
void world_host_heard(struct world *world, struct world_trainer *trainer,
		      struct world_thread *thread, bool ok);

/* update_world_rank.c */
void world_make_rank(struct world *world, uint32_t r);
void world_rank_acts(struct world *world, uint32_t r);
uint64_t world_rank_next(const struct world *world, uint32_t r);
bool world_trainers_over(const struct world *world);

/* update_world_window.c: what landed is taken, at the end of the step; bytes of it */
uint64_t world_take(struct world *world, uint32_t r, uint32_t t, uint64_t entries);
/* A chunk lands. */
void world_land(struct world *world, uint32_t r, uint32_t t, const struct flight *flight);

/* update_world_plan.c */
int world_make_plan(struct world *world, struct world_trainer *trainer); /* by chance or small */

/* update_world_network.c: everything that is due by world.now */
void world_network(struct world *world);
uint64_t world_network_next(const struct world *world); /* when something will be; NEVER */
/* False: the pair broke. */
bool world_post(struct world *world, uint32_t t, uint32_t r, const struct flight *flight);
void world_check_publication(struct world *world, uint32_t r, uint64_t version);

#endif
