/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_late.c -- what a rank does beside receive_next where trainers may be late: it says things without waiting for who
 * is stopped, compares checksums, and opens for another version when nobody may write the last one (worker/update/wait_accept.c,
 * wait_sums.c).
 *
 *   publishes 8 ── clears: END 8 of who was late, END of who stood in ── checksums once more ── opens for 9
 */
#include "tests/support/update_world_parts.h"

#include <inttypes.h>
#include <string.h>

/* ---- what lands ---- */

void world_check_write(struct world *world, uint32_t t, uint32_t r, uint64_t version)
{
	if (version && version <= world->ranks[r].opened_above)
		world_find(world,
			   "trainer %u wrote version %" PRIu64
			   " into rank %u, which has opened for those after version %" PRIu64,
			   t, version, r, world->ranks[r].opened_above);
}

void world_land_sums(struct world *world, uint32_t t, uint32_t r, const struct flight *flight)
{
	world_check_write(world, t, r, flight->wanted >> 32);
	world->ranks[r].sums[flight->owner] = flight->wanted;
}

/* How many of that trainer's pieces are not what the checksums of them say. */
static uint32_t differ(const struct world *world, uint32_t r, uint32_t t, tag sums)
{
	const struct world_trainer *trainer = &world->trainers[t];
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < trainer->plan.row_count; i++) {
		const struct send_row *row = &trainer->rows[i];

		for (uint32_t part = 0;
		     row->peer == r && part < trainer->sources[row->source].parts; part++)
			wrong += world->ranks[r].cells[t][i][part] !=
				 (tag_of(sums >> 32, t, row->source, part) | (sums & OTHER_BYTES));
	}
	return wrong;
}

void world_verify(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];
	uint64_t version = rank->verifies;
	uint32_t wrong = 0;

	rank->verifies = 0;
	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (rank->peers[t].pieces)
			wrong += differ(world, r, t, rank->sums[t]) ||
				 rank->sums[t] >> 32 != version;
	memcpy(rank->verified, rank->sums, sizeof(rank->verified));
	if (!wrong)
		return;
	if (!world->options.clash)
		world_find(world, "checksums of version %" PRIu64 " differ at rank %u", version, r);
	world->clashes++;
	error_set(&rank->error, ERROR_CHECKSUM, "checksums of version %" PRIu64 " differ", version);
	rank->event = (struct receive_event){.kind = RECEIVE_FAILED, .error = &rank->error};
}

/* ---- what is said ---- */

/* As wait_accept.c has it: what was given up here a trainer may have yet to begin. */
static uint64_t min_version(const struct world *world, const struct world_rank *rank)
{
	const struct receiver *receiver = &rank->receiver;
	uint64_t next = rank->published + 1;

	if (world->lost)
		return 1;
	if (receiver->wanted > receiver->past + 1 || next > receiver->min_version)
		return receiver->min_version;
	return next;
}

static void deliver(struct world *world, uint32_t r, const struct receive_step *step)
{
	struct world_rank *rank = &world->ranks[r];
	const struct receive_link *link = &rank->links[step->peer];
	struct world_signal said = {.there = true, .at = world->now, .word = UPDATE_ACCEPT};
	struct update_accept *accept = &said.accept;

	*accept = (struct update_accept){.opening = link->opening,
					 .min_version = min_version(world, rank),
					 .max_version = rank->receiver.max_version,
					 .taken = link->taken};
	if (rank->window_bytes)
		accept->window_bytes = WINDOW_HEAD_BYTES + rank->window_bytes;
	if (step->kind == RECEIVE_TAKE) {
		said.word = UPDATE_TAKEN;
		said.taken = (struct update_taken){link->opening,
						   step->version ? step->version : link->taken};
	} else if (step->kind != RECEIVE_ACCEPT) {
		accept->min_version = accept->max_version = step->version;
		accept->kind = step->kind == RECEIVE_ASK     ? ACCEPT_STAND_IN
			       : step->kind == RECEIVE_SPARE ? ACCEPT_SPARES
							     : ACCEPT_RELEASES;
		world_tell(world, "rank %u %s trainer %u, version %" PRIu64 ", permission %" PRIu64,
			   r,
			   step->kind == RECEIVE_ASK	 ? "asks"
			   : step->kind == RECEIVE_SPARE ? "spares"
							 : "releases",
			   step->peer, step->version, accept->opening);
	}
	world->links[step->peer][r].to_trainer = said;
	world_wake(world, &world->trainers[step->peer], THREAD_ACCEPT);
	world_wake(world, &world->trainers[step->peer], THREAD_TAKEN);
	world_wake(world, &world->trainers[WORLD_TRAINERS + step->peer], THREAD_TAKEN);
	world_standing_wakes(world, step->peer);
}

/* Nobody who is stopped holds up the rank that others wait for: what cannot be said at once is said later, and what comes after it
 * takes its place. */
static bool is_deaf(struct world *world, uint32_t t)
{
	bool stopped =
		!world->options.small && world->trainers[t].standing.stopped_until > world->now;

	return stopped ? world_chance(world, 60) : world->options.delay && world_chance(world, 5);
}

void world_say(struct world *world, uint32_t r, const struct receive_step *step)
{
	struct world_rank *rank = &world->ranks[r];
	struct receive_step *unsaid = &rank->unsaid[step->peer];

	/* it may begin an older version, whose bytes are none that another trainer has */
	if (step->kind == RECEIVE_ACCEPT && min_version(world, rank) < rank->receiver.min_version)
		rank->links[step->peer].accepted = false;
	if (world->lost == step->peer + 1) {
		if (step->kind == RECEIVE_ASK)
			receive_settle(&rank->receiver, step->peer);
		unsaid->kind = RECEIVE_WAIT;
		return;
	}
	*unsaid = *step;
	if (is_deaf(world, step->peer))
		return;
	unsaid->kind = RECEIVE_WAIT;
	deliver(world, r, step);
}

void world_say_taken(struct world *world, uint32_t r, uint32_t t, uint64_t entries)
{
	struct world_rank *rank = &world->ranks[r];
	const struct receive_link *link = &rank->links[t];
	struct receive_step step = {.kind = RECEIVE_TAKE, .peer = t, .version = entries};

	if (rank->unsaid[t].kind != RECEIVE_WAIT) /* which says so too */
		return;
	if (link->released) { /* it may not have heard that */
		step.kind = RECEIVE_RELEASE;
		step.version = link->end.version;
		world_say(world, r, &step);
	} else if (is_deaf(world, t)) {
		rank->unsaid[t] = (struct receive_step){.kind = RECEIVE_TAKE, .peer = t};
	} else {
		deliver(world, r, &step);
	}
}

bool world_push(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];
	bool any = false;

	for (uint32_t t = 0; t < world->trainer_count; t++) {
		struct receive_step step = rank->unsaid[t];

		if (step.kind == RECEIVE_ASK && !rank->links[t].stands)
			rank->unsaid[t].kind = step.kind = RECEIVE_WAIT; /* it is over */
		if (step.kind != RECEIVE_WAIT)
			world_say(world, r, &step);
		any = any || rank->unsaid[t].kind != RECEIVE_WAIT;
	}
	return any;
}

void world_push_out(struct world *world, uint32_t r)
{
	const struct world_rank *rank = &world->ranks[r];

	for (uint32_t t = 0; t < world->trainer_count; t++)
		for (int i = 0;
		     i < 10 && !rank->links[t].stood && rank->unsaid[t].kind != RECEIVE_WAIT; i++)
			world_push(world, r);
}

void world_rank_stops(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];

	world_release_all(world, r);
	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (rank->unsaid[t].kind != RECEIVE_WAIT && t + 1 != world->lost)
			deliver(world, r, &rank->unsaid[t]);
	rank->over = true;
	rank->at = NEVER;
}

void world_release_all(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];
	struct receive_step step = {.kind = RECEIVE_RELEASE};

	while (receive_unreleased(&rank->receiver, &step.peer)) {
		step.version = rank->links[step.peer].end.version;
		if (step.version && world->options.bug != BUG_UNRELEASED)
			world_say(world, r, &step);
	}
}

/* ---- before another version ---- */

static void say_again(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];

	for (uint32_t t = 0; t < world->trainer_count; t++) {
		struct receive_link *link = &rank->links[t];

		if (!link->outstanding || (!link->stood && !link->stands))
			continue;
		link->released = true;
		world_say(world, r,
			  &(struct receive_step){.kind = RECEIVE_RELEASE,
						 .peer = t,
						 .version = link->end.version});
	}
}

/* It has used its permission up: true. */
static bool hear(struct world *world, uint32_t r, uint32_t t)
{
	const struct receive_link *link = &world->ranks[r].links[t];
	struct world_signal *signal = &world->links[t][r].to_rank;
	uint64_t opening;

	if (!signal->there || signal->at > world->now)
		return false;
	signal->there = false;
	opening = signal->word == UPDATE_LANDED ? signal->landed.opening
		  : signal->word == UPDATE_END	? signal->end.opening
						: signal->gone.opening;
	if (opening != link->opening)
		world_find(world,
			   "trainer %u uses permission %" PRIu64
			   " of rank %u, which gave it %" PRIu64,
			   t, opening, r, link->opening);
	if (signal->word == UPDATE_END && !link->stands && signal->end.version != link->end.version)
		world_find(world,
			   "trainer %u ends version %" PRIu64 " by a permission for %" PRIu64, t,
			   signal->end.version, link->end.version);
	return signal->word != UPDATE_LANDED;
}

/* What it wrote meanwhile is what stands there; else the version is shown no more. */
static bool settle(struct world *world, uint32_t r, uint32_t t)
{
	struct world_rank *rank = &world->ranks[r];
	const struct receive_link *link = &rank->links[t];
	uint32_t of = link->stands ? link->stands - 1 : t;
	bool shown = link->end.version == rank->published && !rank->tainted;

	receive_settle(&rank->receiver, t);
	if (!shown || world->options.bug == BUG_LATE_UNVERIFIED ||
	    !differ(world, r, of, rank->verified[of]))
		return true;
	world_tell(world, "rank %u: trainers hold other bytes of version %" PRIu64, r,
		   rank->published);
	if (!world->options.clash)
		world_find(world, "rank %u finds other bytes of version %" PRIu64 " by trainer %u",
			   r, rank->published, t);
	rank->tainted = true;
	world->clashes++;
	return false;
}

/* Nobody may write it any more, so what is shown now is shown until the next version is there. */
static void check_shown(struct world *world, uint32_t r)
{
	const struct world_rank *rank = &world->ranks[r];

	for (uint32_t t = 0; t < world->trainer_count && rank->published && !rank->tainted; t++)
		if (differ(world, r, t, rank->verified[t]))
			world_find(world,
				   "rank %u shows version %" PRIu64
				   ", and what trainer %u wrote of it is something else by now",
				   r, rank->published, t);
}

/* All of the version is here, so the end of who could stand in may return, whenever this rank's host waits for the next one. */
static void check_told(struct world *world, uint32_t r)
{
	const struct world_rank *rank = &world->ranks[r];

	for (uint32_t t = 0; t < world->trainer_count; t++) {
		const struct world_standing *standing = &world->trainers[t].standing;

		if (world->trainers[t].script == SCRIPT_STANDING &&
		    standing->version == rank->published && !standing->over[r] &&
		    !standing->asked[r] && !world->links[t][r].to_trainer.there &&
		    rank->unsaid[t].kind == RECEIVE_WAIT)
			world_find(world,
				   "rank %u has not told trainer %u that it need not stand by", r,
				   t);
	}
}

/* Who has done its work says nothing any more. One that gave the last version up may have been asked for another one's pieces. */
static bool has_left(struct world *world, uint32_t r, uint32_t t)
{
	const struct world_trainer *trainer = &world->trainers[t];

	if (world->lost == t + 1)
		return true;
	if (trainer->script != SCRIPT_OVER || world->links[t][r].to_rank.there ||
	    trainer->version != world->options.versions)
		return false;
	if (trainer->schedule.ended_version == trainer->version)
		world_find(world,
			   "rank %u waits until trainer %u has used its permission, which has left",
			   r, t);
	return true;
}

bool world_clear(struct world *world, uint32_t r)
{
	struct world_rank *rank = &world->ranks[r];
	uint32_t t;

	rank->heard_until = 0;
	if (!rank->clear_until) {
		rank->clear_until =
			world->now +
			(world->options.slow_target && world_chance(world, 30) ? 5 : 1000000) *
				(uint64_t)MS;
		say_again(world, r);
	}
	while (receive_owes(&rank->receiver, &t) && !world->failed) {
		rank->owes = t;
		if (hear(world, r, t) || has_left(world, r, t) ||
		    world->options.bug == BUG_OPENED_TOO_EARLY) {
			if (settle(world, r, t))
				continue;
			rank->clear_until = 0; /* its host waits again */
			rank->at = world->now + world_takes(world);
			return false;
		}
		if (world_rank_pauses(world, r)) {
			world_rank_stops(world, r);
			return false;
		}
		if (world->now >= rank->clear_until) {
			rank->clear_until = 0;
			rank->at = world->now + world_takes(world);
			return false;
		}
		rank->heard_until = rank->at = rank->clear_until;
		if (world_push(world, r) && world->now + 5 * MS < rank->at)
			rank->at = world->now + 5 * MS;
		return false;
	}
	if (world->failed) {
		rank->leaves = true;
		return true;
	}
	world_release_all(world, r);
	check_told(world, r);
	check_shown(world, r);
	rank->opened_above = rank->published;
	return true;
}
