/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_hedge.c -- trainers that are late, and the ones that stand in for them. The rows of the late one are a second sender
 * of the other, with a plan, a ring, checksums and a schedule of its own, over the same links (worker/update/stand_in.c):
 *
 *   trainer 1        begin ── write ── end ── stands by ─┬─ RELEASES of every rank ──────────────► begin ..
 *   its second sender                                    └─ STAND_IN of some ─► begin, write, end ─┘
 *
 * A trainer that is stopped does nothing at all; what it has posted lands meanwhile. Drawn with it: links that are slow or break,
 * versions that are given up, drains, interrupts of an end and of a stand-in in the midst of its rows, windows, full rings, ranks that are slow, time
 * out or die, trainers that are lost, words that cannot be said at once, ranks to which a trainer has nothing to send, trainers for whom nobody
 * stands in. Not drawn: --delta, which the controller refuses beside it; shadows, GPUs, ranks that agree on versions, the pause itself.
 */
#include "tests/support/update_world_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct world_trainer *second(struct world *world, uint32_t t)
{
	return &world->trainers[WORLD_TRAINERS + t];
}

/* ---- late ---- */

uint64_t world_thread_next(const struct world *world, uint32_t s, uint32_t i)
{
	const struct world_trainer *trainer = &world->trainers[s];
	uint64_t at = trainer->threads[i].at;
	uint64_t stopped = world->trainers[trainer->wire].standing.stopped_until;

	return at != NEVER && at < stopped ? stopped : at;
}

/* In a story. */
static bool stops_as_told(struct world *world, uint32_t t)
{
	struct world_standing *standing = &world->trainers[t].standing;

	if (t || standing->stopped_until || world->now < 4 * MS || !world->options.late_ms)
		return false;
	standing->stopped_until = world->options.late_ms * (uint64_t)MS;
	world_tell(world, "trainer %u is stopped", t);
	return true;
}

bool world_stops(struct world *world, uint32_t s)
{
	uint32_t t = world->trainers[s].wire;
	struct world_standing *standing = &world->trainers[t].standing;

	if (world->options.small)
		return stops_as_told(world, t);
	if (!world->options.hedge || world_random(world, 100))
		return false;
	/* who looks for a rank that may have died looks again and again, so something always happens */
	standing->stopped_until = world_chance(world, 40) && !world->options.dies
					  ? NEVER
					  : world->now + world_random(world, 100 * MS);
	world_tell(world, "trainer %u is stopped", t);
	return true;
}

bool world_stops_end(struct world *world)
{
	bool any = false;

	for (uint32_t t = 0; t < world->trainer_count; t++)
		if (world->trainers[t].standing.stopped_until == NEVER) {
			world_tell(world, "trainer %u goes on", t);
			world->trainers[t].standing.stopped_until = world->now;
			any = true;
		}
	return any;
}

bool world_is_spared(struct world *world, uint32_t s, uint32_t r, bool *released)
{
	struct world_trainer *trainer = &world->trainers[s];
	struct world_signal *signal = &world->links[trainer->wire][r].to_trainer;
	const struct update_accept *accept = &signal->accept;

	if (!world->options.hedge || !signal->there || signal->at > world->now ||
	    signal->word != UPDATE_ACCEPT ||
	    (accept->kind != ACCEPT_SPARES && accept->kind != ACCEPT_RELEASES) ||
	    accept->opening != trainer->schedule.links[r].used_opening)
		return false;
	signal->there = false;
	*released = accept->kind == ACCEPT_RELEASES;
	world_tell(world, "%s is spared by rank %u", world->senders[s], r);
	return true;
}

/* ---- permissions, as send.c has them ---- */

bool world_takes_accept(struct world *world, uint32_t t, uint32_t r, uint64_t version,
			const struct update_accept *accept)
{
	struct world_trainer *trainer = &world->trainers[t];
	struct send_link *link = &trainer->schedule.links[r];

	if (!world->options.hedge || accept->kind == ACCEPT_WRITES)
		return true;
	if (accept->opening <= link->used_opening)
		return false;
	if (world->options.bug == BUG_ASK_IS_OWN ||
	    (accept->kind != ACCEPT_STAND_IN && accept->max_version == version))
		return true;
	link->used_opening = link->accept.opening = trainer->standing.unused[r] = accept->opening;
	return false;
}

void world_hands_back(struct world *world, uint32_t t)
{
	struct world_standing *standing = &world->trainers[t].standing;

	for (uint32_t r = 0; r < world->rank_count; r++) {
		struct world_link *link = &world->links[t][r];
		uint64_t at = world->now + world_takes(world), opening = standing->unused[r];

		standing->unused[r] = 0;
		if (!opening || link->broken)
			continue;
		world_tell(world, "trainer %u hands permission %" PRIu64 " of rank %u back", t,
			   opening, r);
		link->to_rank = (struct world_signal){
			.there = true,
			.at = at > link->last_at ? at : link->last_at,
			.word = UPDATE_ABORT,
			.gone = {.opening = opening, .version = 1, .why = "it has no use for it"}};
	}
}

static void use(struct world *world, uint32_t t, uint32_t r, uint64_t opening)
{
	struct send_link *own = &world->trainers[t].schedule.links[r];

	own->used_opening = own->accept.opening = opening;
}

/* ---- what ranks say to one that stands by ---- */

static bool serves(const struct world *world, uint32_t t, uint32_t r)
{
	uint32_t late = world->trainers[t].standing.stands_for - 1;

	return world->ranks[r].peers[late].pieces != 0;
}

bool world_stands_by(struct world *world, uint32_t t)
{
	struct world_trainer *own = &world->trainers[t];
	struct world_standing *standing = &own->standing;
	/* of the last version no call comes after that, which would hand back what it is asked by */
	bool brief = world->options.slow_target && !world->options.loses &&
		     world_chance(world, 30) && own->version < world->options.versions;

	if (!standing->stands_for)
		return false;
	own->script = SCRIPT_STANDING;
	standing->version = own->schedule.ended_version;
	standing->until = world->now + (brief ? 20 : 1000000) * (uint64_t)MS;
	standing->has_all =
		!standing->drained && (world->options.small || !world_chance(world, 10));
	standing->interrupted = false;
	standing->at = world->now;
	for (uint32_t r = 0; r < world->rank_count; r++)
		standing->over[r] = link_out(&own->schedule.links[r]) ||
				    own->schedule.links[r].released || !serves(world, t, r);
	return true;
}

static void hear(struct world *world, uint32_t t, uint32_t r)
{
	struct world_trainer *own = &world->trainers[t];
	struct world_standing *standing = &own->standing;
	struct world_signal *signal = &world->links[t][r].to_trainer;
	const struct update_accept *accept = &signal->accept;
	uint64_t used = own->schedule.links[r].used_opening;

	if (own->schedule.links[r].gone || world->ranks[r].over) { /* dead, or it has left */
		standing->over[r] = true;
		return;
	}
	if (!signal->there || signal->at > world->now || signal->word != UPDATE_ACCEPT)
		return;
	/* what is of another version the next begin reads too */
	if (accept->opening <= used ||
	    (accept->kind != ACCEPT_WRITES && accept->max_version <= standing->version))
		signal->there = false;
	if (accept->kind == ACCEPT_STAND_IN && accept->opening > used &&
	    accept->max_version == standing->version && standing->has_all) {
		standing->asked[r] = true;
		second(world, t)->schedule.links[r].accept = *accept;
		return;
	}
	if (accept->opening <= used && accept->kind != ACCEPT_RELEASES)
		return;
	standing->over[r] = true;
	if (accept->opening <= used || accept->kind == ACCEPT_WRITES ||
	    accept->max_version > standing->version)
		return;
	standing->unused[r] = accept->opening;
	use(world, t, r, accept->opening);
	world_hands_back(world, t);
}

/* ---- what it sends in the late one's place ---- */

static void serve(struct world *world, uint32_t t)
{
	struct world_standing *standing = &world->trainers[t].standing;
	struct world_trainer *trainer = second(world, t);
	struct schedule *schedule = &trainer->schedule;
	struct world_thread *thread = &trainer->threads[0];

	for (uint32_t r = 0; r < world->rank_count; r++)
		if (world->trainers[t].schedule.links[r].gone || world->dead == r + 1)
			schedule_note(schedule, NULL,
				      &(struct event){.kind = EVENT_GONE, .peer = r});
	schedule->last_version = standing->version - 1;
	for (uint32_t r = 0; r < world->rank_count; r++)
		schedule->links[r].rests = !standing->asked[r];
	world_start_call(world, thread, CALL_BEGIN);
	thread->call.version = standing->version;
	thread->step = schedule_next(schedule, &thread->task,
				     &(struct event){.kind = EVENT_ASK, .now_ns = world->now});
	if (thread->step.kind != STEP_DONE)
		world_find(world, "%s does not begin: %s", world->senders[WORLD_TRAINERS + t],
			   thread->error.text);
	for (uint32_t k = 0; k < trainer->plan.tensor_count; k++)
		if (send_plan_wants(&trainer->plan, k))
			schedule_submit(schedule, k);
	world_tell(world, "%s is asked for version %" PRIu64, world->senders[WORLD_TRAINERS + t],
		   standing->version);
	schedule->writers++;
	world_start_call(world, thread, CALL_WRITE);
	thread->call.count = trainer->plan.row_count;
	standing->serves = true;
	standing->at = NEVER;
}

static void served(struct world *world, uint32_t t)
{
	struct world_standing *standing = &world->trainers[t].standing;
	struct schedule *schedule = &second(world, t)->schedule;

	schedule->state = UPDATE_CLOSED;
	for (uint32_t r = 0; r < world->rank_count; r++) {
		if (!standing->asked[r])
			continue;
		use(world, t, r, schedule->links[r].accept.opening);
		standing->asked[r] = false;
		standing->over[r] = true;
	}
	standing->serves = standing->takes_back = false;
	standing->at = world->now + world_takes(world);
}

/* The host's interrupt: what was written lands, and then the permission is handed back. */
static void take_back(struct world *world, uint32_t t)
{
	struct world_standing *standing = &world->trainers[t].standing;
	struct schedule *schedule = &second(world, t)->schedule;

	for (uint32_t r = 0; r < world->rank_count; r++) {
		struct world_link *link = &world->links[t][r];

		if (!standing->asked[r] || schedule->links[r].gone || world->dead == r + 1)
			continue;
		world->failed |= link->broken;
		if (link->last_at > world->now) {
			standing->at = link->last_at;
			return;
		}
		schedule_note(
			schedule, NULL,
			&(struct event){.kind = EVENT_COMPLETED, .peer = r, .write = link->posted});
		standing->unused[r] = schedule->links[r].accept.opening;
	}
	schedule->failed = false;
	world_hands_back(world, t);
	served(world, t);
}

void world_standing_heard(struct world *world, struct world_thread *thread, bool ok)
{
	uint32_t t = 0;
	struct schedule *schedule;

	while (&second(world, t)->threads[0] != thread)
		t++;
	schedule = &second(world, t)->schedule;
	if (thread->call.kind == CALL_WRITE)
		schedule->writers--;
	if (ok && thread->call.kind == CALL_WRITE) {
		schedule->state = UPDATE_ENDING;
		world_start_call(world, thread, CALL_END);
		return;
	}
	world->trainers[t].standing.takes_back = world->trainers[t].standing.interrupted;
	world->trainers[t].standing.at = world->now;
	if (!world->trainers[t].standing.takes_back)
		served(world, t);
}

/* Of the call that sends in another one's place, but not once a rank may have heard of its end. */
bool world_standing_is_interrupted(struct world *world, uint32_t s, struct world_thread *thread)
{
	struct world_trainer *trainer = &world->trainers[s];
	struct world_standing *standing = &world->trainers[trainer->wire].standing;
	bool writes = thread->call.kind == CALL_WRITE;

	if (!world->options.interrupt || standing->version == world->options.versions ||
	    trainer->schedule.failed || thread->event.kind == EVENT_FAILED ||
	    schedule_telling(&thread->task) || world_random(world, 25))
		return false;
	standing->interrupted = true;
	world_tell(world, "%s is interrupted", world->senders[s]);
	error_set(&thread->error, ERROR_INTERRUPTED, "a test");
	if (writes) { /* what happened is noted all the same */
		schedule_fail(&trainer->schedule, &thread->error);
		return false;
	}
	schedule_note(&trainer->schedule, &thread->task, &thread->event);
	thread->state = THREAD_OUT;
	thread->at = NEVER;
	world_standing_heard(world, thread, false);
	return true;
}

/* ---- the wait ---- */

uint64_t world_standing_next(const struct world *world, uint32_t t)
{
	const struct world_trainer *own = &world->trainers[t];
	const struct world_standing *standing = &own->standing;

	if (own->script != SCRIPT_STANDING || standing->at == NEVER)
		return NEVER;
	return standing->at < standing->stopped_until ? standing->stopped_until : standing->at;
}

void world_standing_wakes(struct world *world, uint32_t t)
{
	struct world_standing *standing = &world->trainers[t].standing;

	if (!standing->serves && standing->at > world->now)
		standing->at = world->now;
}

/* Nobody asks it any more, who has not handed back what it was asked by. */
static void check_over(struct world *world, uint32_t t)
{
	const struct world_trainer *own = &world->trainers[t];

	for (uint32_t r = 0; r < world->rank_count && !world->options.slow_target; r++) {
		const struct receive_link *link = &world->ranks[r].links[t];

		if (link->stands && !world->ranks[r].over && serves(world, t, r) &&
		    link->opening > own->schedule.links[r].used_opening)
			world_find(world, "the end of trainer %u returns, and rank %u asks it", t,
				   r);
	}
}

/* What ranks have asked meanwhile it does not send. */
static void decline(struct world *world, uint32_t t)
{
	struct world_standing *standing = &world->trainers[t].standing;

	for (uint32_t r = 0; r < world->rank_count && world->options.bug != BUG_ASK_KEPT; r++) {
		if (!standing->asked[r])
			continue;
		standing->asked[r] = false;
		standing->unused[r] = second(world, t)->schedule.links[r].accept.opening;
		use(world, t, r, standing->unused[r]);
	}
	if (!standing->interrupted && !world->failed)
		world_hands_back(world, t);
}

void world_standing_acts(struct world *world, uint32_t t)
{
	struct world_trainer *own = &world->trainers[t];
	struct world_standing *standing = &own->standing;
	bool all = true, asked = false;

	if (own->script != SCRIPT_STANDING || world_stops(world, t)) /* lost just now */
		return;
	if (standing->takes_back) {
		take_back(world, t);
		return;
	}
	for (uint32_t r = 0; r < world->rank_count; r++) {
		if (!standing->over[r] && !standing->asked[r])
			hear(world, t, r);
		asked = asked || standing->asked[r];
		all = all && standing->over[r];
	}
	if (all)
		check_over(world, t);
	else if (world->now >= standing->until && !world->failed && !world->options.slow_target)
		world_find(world, "the end of trainer %u waits for ranks that say nothing", t);
	/* what it had to send is sent: an interrupt, or the job's end, is the next call's */
	if (all || world->now >= standing->until || world->failed || standing->interrupted) {
		decline(world, t);
		world_host_begin(world, own);
	} else if (asked) {
		serve(world, t);
	} else {
		standing->at = standing->until;
	}
}

/* ---- life ---- */

/* The late one's plan as it stands, with memory of its own. */
static int make_second(struct world *world, uint32_t t, uint32_t late)
{
	const struct world_trainer *of = &world->trainers[late];
	struct world_trainer *trainer = second(world, t);
	struct send_plan *plan = &trainer->plan;

	trainer->wire = t;
	trainer->owner = late;
	memcpy(trainer->rows, of->rows, sizeof(of->rows));
	memcpy(trainer->sources, of->sources, sizeof(of->sources));
	memcpy(trainer->source_rows, of->source_rows, sizeof(of->source_rows));
	memcpy(trainer->tensor_first, of->tensor_first, sizeof(of->tensor_first));
	memcpy(trainer->tensor_rows, of->tensor_rows, sizeof(of->tensor_rows));
	memcpy(trainer->merges, of->merges, sizeof(of->merges));
	memcpy(trainer->lands, of->lands, sizeof(of->lands));
	*plan = of->plan;
	plan->rows = trainer->rows;
	plan->sources = trainer->sources;
	plan->source_rows = trainer->source_rows;
	plan->tensor_first = trainer->tensor_first;
	plan->tensor_rows = trainer->tensor_rows;
	plan->merges = trainer->merges;
	plan->lands = trainer->lands;
	plan->deltas = trainer->deltas;
	snprintf(world->senders[WORLD_TRAINERS + t], sizeof(world->senders[0]), "trainer %u for %u",
		 t, late);
	return world_make_sender(world, trainer, 1, 1);
}

/* As controller/epoch_stand_in.c chooses them, where nothing but chance keeps one from it. */
int world_make_stand_ins(struct world *world)
{
	uint32_t count = world->trainer_count;
	int rc = 0;

	for (uint32_t t = 0; t < count; t++) {
		bool slow = !world->options.small && world_chance(world, 20);

		for (uint32_t r = 0; r < world->rank_count; r++)
			world->links[t][r].slow = slow;
		world->trainers[t].standing.other_bytes =
			world->options.clash && world_chance(world, 30);
	}
	for (uint32_t t = 0; t < count && !world->options.full && !rc; t++) {
		uint32_t by = (t + 1) % count;

		/* who is idle somewhere is so because it stands in for the last */
		if (by && !world->options.small && world_chance(world, 15))
			continue;
		world->trainers[t].standing.stand_in = by + 1;
		world->trainers[by].standing.stands_for = t + 1;
		rc = make_second(world, by, t);
	}
	return rc;
}
