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
#define WORLD_SENDERS (2 * WORLD_TRAINERS) /* each trainer, then those that stand in: update_world_hedge.c */

/* What lies in a slot, a home or a cell: 0, while it changes, or who made it. */
typedef uint64_t tag;

struct flight {
	uint64_t number, complete_at;
	uint32_t row, part;           /* row UINT32_MAX: checksums, or what is said of a window */
	uint32_t owner;               /* the trainer whose row that is */
	bool sums;
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
	bool broken, slow;
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
	struct flight flight;         /* that is posted when the step ends, */
	bool for_nobody;              /* but where its peer needs nothing */
	uint32_t tensors[WORLD_TENSORS], tensor_count, tensor_next;
	bool helper;                  /* a packing thread */
};

enum script { SCRIPT_BEGIN, SCRIPT_BEGINNING, SCRIPT_WRITING, SCRIPT_ENDING, SCRIPT_STANDING, SCRIPT_OVER };

/* Of a trainer's process, and its wait for ranks that may ask it for another one's pieces: worker/update/stand_in.c. */
struct world_standing {
	uint64_t stopped_until;       /* the process is; NEVER: until nothing else happens */
	bool other_bytes;             /* its tensors are not those of who stands in for it */
	bool drained;                 /* in this version: it can stand in for nobody */
	uint32_t stand_in, stands_for; /* 1 + that trainer; 0: nobody */
	uint64_t unused[WORLD_RANKS]; /* permissions that it has to hand back */
	bool over[WORLD_RANKS], asked[WORLD_RANKS];
	bool has_all, serves, takes_back, interrupted;
	uint64_t version, until, at;  /* of its next look */
};

/* A sender: a trainer's own, or that of what it sends in another one's place. */
struct world_trainer {
	uint32_t wire, owner;         /* the trainer that it is of, and the one whose pieces it sends */
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
	struct world_standing standing;
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
	struct receive_step unsaid[WORLD_TRAINERS]; /* hedge, as waiter.unsaid */
	tag sums[WORLD_TRAINERS], verified[WORLD_TRAINERS]; /* as they are sent; and by which its pieces were verified */
	uint64_t verifies;            /* that version, since the last step; 0: none */
	uint64_t waited_ns;           /* hedge: so long a wait is */
	uint32_t owes;                /* whom it waits for while it clears */
	bool clears, leaves;          /* before it opens for another version; and it opens none */
	uint64_t clear_until, lost_heard_at;
	uint64_t opened_above;        /* it opened for versions after that one, of which nothing may be written any more */
	bool tainted;                 /* what it had published is no more */
	uint64_t based[WORLD_TRAINERS]; /* the opening in which its cells hold what is published */
	struct world_window {
		struct window_entry entries[WINDOW_ENTRIES];
		tag ring[WORLD_WINDOW / 8]; /* by 8 bytes */
		uint64_t opening;
		tag tags[WORLD_ROWS][WORLD_PARTS]; /* what was taken last, and how much of it */
		uint64_t bytes[WORLD_ROWS][WORLD_PARTS];
	} windows[WORLD_TRAINERS];
};

struct world {
	struct world_options options;
	uint64_t random, now;
	uint32_t trainer_count, rank_count, steps, publications, posts, asks, stood, clashes;
	struct world_trainer trainers[WORLD_SENDERS];
	struct world_rank ranks[WORLD_RANKS];
	struct world_link links[WORLD_TRAINERS][WORLD_RANKS];
	char names[WORLD_TRAINERS + WORLD_RANKS][16];
	char senders[WORLD_SENDERS][40];
	const char *rank_names[WORLD_RANKS];
	const char *tensor_names[WORLD_TENSORS];
	bool failed;                  /* the job: everybody hears of it */
	uint32_t lost, lost_shown;    /* that trainer + 1; and versions that were shown after it had not ended them */
	uint64_t pause_from;          /* then: no version from that one on is begun */
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
/* What that trainer's source holds; .. and as that sender has it, who may hold other bytes. */
tag tag_of(uint64_t version, uint32_t owner, uint32_t source, uint32_t part);
#define OTHER_BYTES (UINT64_C(1) << 31)
tag world_content(const struct world *world, uint32_t sender, uint64_t version, uint32_t source,
		  uint32_t part);

/* update_world.c */
void world_wake(struct world *world, struct world_trainer *trainer, enum thread_state state);
int world_make_sender(struct world *world, struct world_trainer *trainer, uint32_t callers,
		      uint32_t threads);

/* update_world_steps.c: begins thread->step; and what is done when its event is due */
void world_do_step(struct world *world, uint32_t t, struct world_thread *thread);
void world_pack_ends(struct world *world, uint32_t t, const struct step *step);
void world_post_ends(struct world *world, uint32_t t, struct world_thread *thread);

/* update_world_host.c */
void world_start_call(struct world *world, struct world_thread *thread, enum call_kind kind);
void world_host_begin(struct world *world, struct world_trainer *trainer);
/* The end that the thread was in is called again, whatever of it was done. */
void world_host_ends_again(struct world *world, struct world_thread *thread);
/* A call of that thread is out. */
void world_host_heard(struct world *world, struct world_trainer *trainer,
		      struct world_thread *thread, bool ok);

/* update_world_hedge.c: trainers that are late, and those that stand in for them */
int world_make_stand_ins(struct world *world);
/* Its process is stopped now. */
bool world_stops(struct world *world, uint32_t sender);
/* Those that are stopped until nothing else happens are no more; false: none was. */
bool world_stops_end(struct world *world);
uint64_t world_thread_next(const struct world *world, uint32_t sender, uint32_t thread);
/* What a begin makes of an ACCEPT: whether it may be a permission for it. */
bool world_takes_accept(struct world *world, uint32_t t, uint32_t r, uint64_t version,
			const struct update_accept *accept);
void world_hands_back(struct world *world, uint32_t t);
bool world_is_spared(struct world *world, uint32_t sender, uint32_t r, bool *released);
/* Its end is through, and it waits for ranks; false: it stands in for nobody. */
bool world_stands_by(struct world *world, uint32_t t);
uint64_t world_standing_next(const struct world *world, uint32_t t);
void world_standing_acts(struct world *world, uint32_t t);
void world_standing_wakes(struct world *world, uint32_t t);
/* The host's interrupt ends that step of a stand-in's call. */
bool world_standing_is_interrupted(struct world *world, uint32_t sender,
				   struct world_thread *thread);
/* A call of a stand-in is out. */
void world_standing_heard(struct world *world, struct world_thread *thread, bool ok);

/* update_world_lost.c: a trainer that is */
void world_may_lose_trainer(struct world *world);
/* That version is not begun for it. */
bool world_pauses(const struct world *world, uint64_t version);
/* What was begun is shown there, or past. */
bool world_rank_pauses(const struct world *world, uint32_t r);
/* It has yet to hear of it; .. and does: its event. */
bool world_rank_lacks(const struct world *world, uint32_t r);
bool world_hear_lost(struct world *world, uint32_t r);

/* update_world_late.c: what ranks do of them */
void world_check_write(struct world *world, uint32_t t, uint32_t r, uint64_t version);
void world_land_sums(struct world *world, uint32_t t, uint32_t r, const struct flight *flight);
void world_say(struct world *world, uint32_t r, const struct receive_step *step);
/* So many entries of its window; later, all that were. */
void world_say_taken(struct world *world, uint32_t r, uint32_t t, uint64_t entries);
/* What could not be said goes on its way; true: some of it still cannot. */
bool world_push(struct world *world, uint32_t r);
void world_push_out(struct world *world, uint32_t r);
void world_release_all(struct world *world, uint32_t r);
/* For a pause, before which all is said. */
void world_rank_stops(struct world *world, uint32_t r);
/* The event of its pieces' checksums. */
void world_verify(struct world *world, uint32_t r);
/* True: it opens now, or is over; else it waits for who is late. */
bool world_clear(struct world *world, uint32_t r);

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
