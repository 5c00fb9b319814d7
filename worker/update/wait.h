/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.h -- an inference rank's side of updates: does what receive.h says.
 *
 *   signals of trainers, or of the one rank that sends what it shows (donor.h) ─► receive_next ─► ACCEPT by signal, checksums, the host's hook, one store
 *
 * Threads: the host's, one at a time; readers look at versions.h.
 */
#ifndef WORKER_UPDATE_WAIT_H
#define WORKER_UPDATE_WAIT_H

#include "base/pool.h"
#include "worker/api/weft.h"
#include "worker/control/watch.h"
#include "worker/device/scatter.h"
#include "worker/device/sums.h"
#include "worker/epoch/epoch.h"
#include "worker/update/commit.h"
#include "worker/update/receive.h"
#include "worker/update/versions.h"

/* The host's, called before a version is published: there an engine rebuilds what it derives from
 * parameters and nobody sends. */
struct post_load {
	weft_post_load *hook; /* NULL: none */
	void *context;
	bool running;
};

/* What is queued of a trainer's window. */
struct taking {
	cuda_event mark;           /* behind them; NULL: none are */
	uint64_t opening, entries, bytes;
};

/* The version that this rank's memory holds, for trainers that send what differs from it (--delta). Each has written its own pieces,
 * so each has a permission, the first after that version, in which this is true. */
struct base {
	bool deltas;               /* some trainer may */
	bool applied;              /* since that version something was put on top of it */
	uint64_t version;          /* 0: none is whole */
	uint32_t copy;             /* that holds it */
	uint64_t *openings;        /* by peer: in which it is true, */
	uint64_t *given;           /* and in which that was said to it */
};

/* Whom a version is waited for: so many of the epoch's peers, and what is known of each of them. */
struct sources {
	struct peer *from;
	size_t count;
	struct receive_peer *peers;
	struct receive_link *links;
	uint64_t *seen;            /* sequence of the signal handled last */
	struct taking *taking;
};

struct waiter {
	struct epoch *epoch;       /* held */
	struct health *health;
	struct watch *watch;
	struct versions *versions;
	struct post_load post_load;
	struct receiver receiver;
	struct pool pool;          /* of all arrays here */
	struct sources trainers, donor; /* the rank of another engine that sends what it shows here, if one does */
	uint64_t copies;           /* so: that version, of which the donor is waited for, and not trainers; 0: they are */
	uint64_t copy_until_ns;    /* and so long; 0: not begun */
	bool copy_used;            /* it has ended it, or given it up: it writes here no more */
	bool copy_unwanted;        /* this rank has given it up, or asked for a later one */
	const struct sources *now; /* that are: one of the two */
	size_t mates_from, mates_count; /* of the epoch's mates, those that are met now */
	uint64_t alone;            /* plan.alone, up to which those of its engine are; 0: all */
	bool by_plan;              /* one of those has left, and what is shown the next plan says */
	bool holds;                /* so: it has said what it has promised, and hears nothing of them any more */
	uint32_t news;             /* control_news when it said so last, */
	uint64_t said;             /* of that version */
	uint64_t settled;          /* that version is shown because the next plan says so, which the word does not know yet; 0: none */
	uint64_t *mates_seen;      /* sequence of the signal of a mate handled last */
	uint64_t *mates_later;     /* when it said last that it waits for a trainer; 0: never */
	uint64_t excused_ns;       /* when this rank did */
	uint64_t *mates_written;   /* of waiter_shows: a mate has the word when so many writes to it are done; 0: none was begun */
	struct receive_step *unsaid; /* by trainer, with --hedge: what it is to be told as soon as it can; of kind WAIT: nothing */
	bool untold;               /* what was taken last its trainer was not reached to be told */
	struct committer committer; /* of the epoch's mates, if it has any */
	struct commit_link *mates;
	uint64_t arrived_ns;       /* at the meeting that it is at */
	bool asks_anew;            /* a wait has begun: it arrives at OPEN in a new turn */
	uint32_t heard;            /* peer that was heard last: the next one is listened to first */
	uint64_t signals;          /* of the domain, seen */
	uint32_t copy;             /* that is open; the same while any permission is out */
	uint64_t clear_began_ns, clear_until_ns; /* of waiter_clear, until it is through; until 0: it has not begun */
	uint64_t *verified;        /* with --hedge: by piece, what it was verified by last; NULL without */
	struct sums sums;          /* of pieces in memory of a GPU, where they are summed: copy after copy */
	struct scatter *scatter;   /* what lands there and is spread, or small; NULL: copies do it */
	struct base base;          /* what trainers need not send once more */
	bool opened;               /* since the last version, it is */
	bool started_over;         /* a mate has stopped for a pause, and what was counted is forgotten */
	bool installing;           /* staged: readers' memory may have changed */
	uint64_t installs_ns, paused_ns; /* when that began, and when readers lost their version */
	bool unfinished;           /* the last wait failed */
	uint64_t past;             /* receiver.past, of the epochs before */
	uint64_t mates_past;       /* what a mate gave up, and this rank's wait failed for it */
	uint32_t gone_heard;       /* of what control_gone says */
	weft_stats stats;
};

/* Takes hold of a connected epoch. Whatever it returns, waiter_close. */
int waiter_open(struct waiter *waiter, struct epoch *epoch, struct health *health,
		struct versions *versions, struct watch *watch, struct error *error);
void waiter_close(struct waiter *waiter);
/* wait_copy.c, of what a rank of another engine sends here. Before a wait for `version`: where it is here, or not wanted, trainers are
 * waited for from now on; or, without block, WEFT_AGAIN: the donor may still write. */
int waiter_begin_copy(struct waiter *waiter, uint64_t version, bool block, struct error *error);
/* That is the donor's word that it sends nothing any more. */
bool waiter_hears_no_copy(struct waiter *waiter, const struct transport_signal *signal);
/* The donor was told where to write, and has said neither that all is there nor that nothing comes. */
bool waiter_may_be_copied(const struct waiter *waiter);
/* It has said so, is gone, or has had its time: *event. */
bool waiter_copy_never_comes(struct waiter *waiter, struct error *error, struct receive_event *event);
/* wait_open.c: from now on those are waited for. */
void waiter_use(struct waiter *waiter, const struct sources *sources);
/* weft_update_wait, or, without block, weft_update_try_wait: WEFT_AGAIN when there is more to come.
 * Version 0 is the next one; *published may be NULL. WAITER_PAUSES: the job is to make that pause, and nothing is on its way
 * to this rank that it waits for. */
#define WAITER_PAUSES 100
int waiter_wait(struct waiter *waiter, uint64_t version, uint32_t timeout_ms, bool block,
		uint64_t *published, struct error *error);
/* weft_commit_at. */
int waiter_commit(struct waiter *waiter, uint64_t version, struct error *error);
/* The job failed between two tries: the memory that one has opened is a mixture, and no later try will say so. */
void waiter_lost(struct waiter *waiter);
/* The first version that may come yet. */
uint64_t waiter_next(const struct waiter *waiter);
/* After a pause: 0, or ERROR_ABORTED, that version cannot come any more. */
int waiter_check_past(const struct waiter *waiter, uint64_t version, struct error *error);
/* wait_gone.c: who left the job, as the controller says, is gone. */
void waiter_hear_gone(struct waiter *waiter);
/* One of those that write here is. */
bool waiter_lacks_peer(struct waiter *waiter);
/* That trainer is, or its process has ended. broken: and this rank ends with it, for the reason *error. */
bool waiter_misses(struct waiter *waiter, uint32_t p, bool *broken, struct error *error);
/* That one is not reached, which ends this rank; false: it is gone on without, and the controller told, unless it is who sends a copy. */
bool waiter_fails_by(struct waiter *waiter, struct peer *peer, const struct error *why);
/* Nothing that this one writes can land any more, or ERROR_UNSAFE, which says what has become of it. */
int waiter_fence(const struct peer *peer, const char *what, uint64_t deadline_ns, struct error *error);
/* The same of all who are gone, and whose processes are not. */
int waiter_fence_gone(struct waiter *waiter, uint32_t timeout_ms, struct error *error);
/* wait_accept.c: a step that tells a trainer what it may write. */
int waiter_accept(struct waiter *waiter, const struct receive_step *step, struct error *error);
/* .. and how many entries of its window are free again. */
int waiter_tell_taken(struct waiter *waiter, uint32_t p, uint64_t entries, struct error *error);
/* What was said without waiting for it goes on its way. */
void waiter_push(struct waiter *waiter);
/* .. and has come, late: also to who is: before the job pauses, for then endpoints may be kept. Of who is too slow for that they are
 * made anew. */
void waiter_push_out(struct waiter *waiter, bool late);
/* No version is waited for (now): trainers that can be asked to stand in wait no longer for that. */
void waiter_release_all(struct waiter *waiter);
/* Before memory is opened for another version: nobody has a permission out for the one that is shown, or gave up. A pause, and
 * without block WEFT_AGAIN, comes before. ERROR_TIMEOUT names who has. */
int waiter_clear(struct waiter *waiter, uint64_t version, uint32_t timeout_ms, bool block, struct error *error);
/* wait.c: the job is to make a pause, and of what is waited for nothing is on its way. */
bool waiter_pauses(struct waiter *waiter, uint64_t version);
/* wait_shown.c: to people, that this is what it does next; and, now and then, whom it waits for there. */
void waiter_show(struct waiter *waiter, const struct receive_step *step);
void waiter_show_whom(struct waiter *waiter, const struct receive_step *step);
/* wait_sums.c: of a device that sums. Then, all pieces of that version against what trainers say of them, if they do. */
int waiter_open_sums(struct waiter *waiter, struct error *error);
int waiter_verify(struct waiter *waiter, uint64_t version, struct error *error);
/* Once more, of that version, which is shown: that trainer has written as long as it had permission, though it was not waited for. */
int waiter_verify_again(struct waiter *waiter, uint32_t p, uint64_t version, struct error *error);
/* take.c: what landed in that trainer's window and is not taken yet, put in place, as taking[p] then says; the trainer is
 * told unless it has ended. After an error that is not broken it goes on where it was. */
int waiter_take(struct waiter *waiter, uint32_t p, uint64_t until_ns, bool *broken, struct error *error);
void waiter_forget(struct waiter *waiter, uint32_t p);
/* take_delta.c: none yet; and then, that version. */
int waiter_base_open(struct waiter *waiter, struct error *error);
void waiter_base_note(struct waiter *waiter, uint64_t version);
/* The sums of a version differ: where something was put on top of the one before, nothing is any more. */
void waiter_base_distrust(struct waiter *waiter);
/* What that trainer is told with its permission. */
uint64_t waiter_base(struct waiter *waiter, uint32_t p);
/* An entry that says what differs, which lies at `from` in the trainer's window. */
int waiter_put_delta(struct waiter *waiter, uint32_t p, const struct plan_row *row, const struct window_entry *entry,
		     const unsigned char *from, struct error *error);
/* meet.c: with the ranks that this one agrees with. Nothing to do without any. open: before readers may look; close: no
 * reader looks any more. */
int waiter_meets_open(struct waiter *waiter, struct error *error);
void waiter_meets_close(struct waiter *waiter);
/* One look at the meeting of the step. True: *event says what came of it, with an error in event->error's place. */
bool waiter_meet(struct waiter *waiter, const struct receive_step *step, struct error *error,
		 struct receive_event *event);
/* Between meetings: the same, if one of them has given up or is gone. */
bool waiter_hear_mates(struct waiter *waiter, struct error *error, struct receive_event *event);
/* This rank has failed for good: they are told. */
void waiter_cannot(struct waiter *waiter, uint64_t version, const char *why);
/* What it has promised is shown, though it was not told: its meeting is over. */
bool waiter_is_shown(struct waiter *waiter);
/* The same by_host, where no word says so: what came since the last call is heard. */
bool waiter_is_let_go(struct waiter *waiter);
/* wait_together.c: in a job that goes on, and whose engines show versions together (plan.together). Which mates are met, from the
 * epoch on: before waiter_use; and from a wait for `version` on. */
void waiter_choose_mates(struct waiter *waiter);
void waiter_meet_all(struct waiter *waiter, uint64_t version);
/* That one looks at the word that this rank looks at. */
bool waiter_shares_word(const struct waiter *waiter, const struct peer *mate);
/* An engine is gone, and nobody is met any more. */
bool waiter_is_by_plan(struct waiter *waiter);
/* So: it had promised before it knew, and who decides may have. */
bool waiter_may_be_let_go(const struct waiter *waiter);
/* That mate is not reached: it is gone on without, and the controller told. False: this rank ends by it. */
bool waiter_loses_mate(struct waiter *waiter, struct peer *mate, const struct error *why);
/* By plan: trainers wait for this rank to accept that version. */
bool waiter_has_begun(struct waiter *waiter, uint64_t version);
/* What it has promised its word shows: who decides for it does. */
bool waiter_sees_promised(const struct waiter *waiter);
/* What it has promised: the controller says so, or who decides for it shows that. */
bool waiter_is_to_show(const struct waiter *waiter);
/* At PUBLISH, by plan: the controller is told what is promised, if it is to make a pause. True: that is shown now. */
bool waiter_promises(struct waiter *waiter, uint64_t version);
/* meet.c: it is, on this rank, and on those of its engine that it decides for: one that is not reached within a second takes the
 * engine with it. False: not before who decides for it does. */
bool waiter_shows(struct waiter *waiter, uint64_t version);
/* By plan: who shows it for this rank has died. It has shown it here too, or this rank ends. False: that one lives. */
bool waiter_loses_leader(struct waiter *waiter, struct error *error, struct receive_event *out);
/* The job ends, for this rank. Where who decides for it is lost, and what that one decided last may be shown on others, but its word
 * does not say so, it shows none: it cannot know. */
void waiter_ends(struct waiter *waiter);
/* Who decides for it and shares a word with it, where it decides for nobody; or NULL. */
const struct peer *waiter_leader(const struct waiter *waiter);
/* Of what the next plan says: ranks of its engine hear that at different times, and some may not show it yet. From then on until
 * all have heard it, which they have when the plan runs, readers are shown none. */
bool waiter_hides(const struct waiter *waiter, uint64_t version);
void waiter_unhides(struct waiter *waiter); /* the plan runs */
/* An engine that is waited for at CLOSE or PUBLISH for half of the update timeout is gone on without, as trainers do; since it said
 * last that it waits for a trainer, which excuse says for this rank, now and then. */
void waiter_drop_late(struct waiter *waiter);
void waiter_excuse(struct waiter *waiter);
/* Whom a meeting that has had its time waits for, and what for. */
void waiter_missing(struct waiter *waiter, struct text *text);
/* That the version may be read, what is queued on its streams for that goes on. Not while it is hidden. */
void waiter_tell_device(const struct waiter *waiter, uint64_t version);
/* What it has promised and does not show, for message_paused. */
uint64_t waiter_promised(const struct waiter *waiter);
/* wait.c: another plan has come, which says whether that is shown. */
void waiter_settle(struct waiter *waiter, const struct message_plan *plan);
/* ERROR_STATE inside the hook; `call` is for the message. */
int post_load_outside(const struct post_load *load, const char *call, struct error *error);

#endif
