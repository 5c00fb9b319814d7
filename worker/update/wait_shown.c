/* SPDX-License-Identifier: Apache-2.0
 *
 * wait_shown.c -- what an inference rank tells people of a wait: what it does, and whom it waits for (worker/control/activity.h).
 */
#include "worker/update/wait.h"

void waiter_show(struct waiter *waiter, const struct receive_step *step)
{
	static const enum activity of[] = {
		[RECEIVE_ACCEPT] = ACTIVITY_RECEIVES, [RECEIVE_ASK] = ACTIVITY_RECEIVES,
		[RECEIVE_SPARE] = ACTIVITY_RECEIVES,  [RECEIVE_RELEASE] = ACTIVITY_RECEIVES,
		[RECEIVE_TAKE] = ACTIVITY_RECEIVES,   [RECEIVE_WAIT] = ACTIVITY_RECEIVES,
		[RECEIVE_VERIFY] = ACTIVITY_VERIFIES, [RECEIVE_MEET] = ACTIVITY_MEETS,
		[RECEIVE_LOAD] = ACTIVITY_LOADS,
	};

	/* what is told at the end of a wait has its own words */
	if (step->kind < sizeof(of) / sizeof(of[0]) && of[step->kind])
		activity_is(&waiter->health->activity, of[step->kind], waiter->receiver.wanted);
}

struct names {
	struct member first[LIMIT_WAITS];
	size_t count;
};

static void add(struct names *names, const struct peer *peer)
{
	if (names->count < LIMIT_WAITS)
		names->first[names->count] = peer->plan->member;
	names->count++;
}

static void trainers(const struct waiter *waiter, struct names *names)
{
	const struct sources *now = waiter->now;

	for (size_t p = 0; p < now->count; p++)
		if (!now->links[p].gone && !now->links[p].ended)
			add(names, &now->from[p]);
}

/* Who has not arrived; or, where all have, who decides. */
static void mates(const struct waiter *waiter, struct names *names)
{
	const struct peer *first = &waiter->epoch->mates[waiter->mates_from];

	for (uint32_t m = 0; m < waiter->mates_count; m++)
		if (!first[m].gone && commit_lacks(&waiter->committer, m))
			add(names, &first[m]);
	if (!names->count && waiter->mates_count && waiter->committer.decided_for)
		add(names, first);
}

void waiter_show_whom(struct waiter *waiter, const struct receive_step *step)
{
	struct activity_board *board = &waiter->health->activity;
	struct names names = {.count = 0};

	if (!activity_due(board))
		return;
	if (step->kind == RECEIVE_MEET)
		mates(waiter, &names);
	else
		trainers(waiter, &names);
	activity_waits(board, names.first, names.count);
}
