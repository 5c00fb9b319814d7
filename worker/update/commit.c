/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/commit.h"

#include "base/assert.h"
#include <stdio.h>

#define NAMED_MAX 4 /* missing ranks named in a message */

void committer_init(struct committer *committer, struct commit_link *links, uint32_t link_count,
		    bool decided_for)
{
	WEFT_ASSERT(!decided_for || link_count);
	*committer = (struct committer){
		.links = links, .link_count = link_count, .decided_for = decided_for};
}

static bool is_child(const struct committer *committer, uint32_t link)
{
	return link > 0 || !committer->decided_for;
}

/* Of this turn, or at OPEN of one that this rank has not been in. */
static bool has_arrived(const struct committer *committer, const struct commit_link *link)
{
	if (link->last.round != (uint32_t)committer->round)
		return false;
	return committer->round == MEET_OPEN ? link->last.turn > link->turn
					     : link->last.turn == link->turn;
}

static bool in_turn(const struct committer *committer)
{
	return committer->phase == COMMIT_BETWEEN || committer->phase == COMMIT_MEETING;
}

/* ---- giving up ---- */

/* It is in this turn, and has not ended it itself. */
static bool hears_of_it(struct committer *committer, uint32_t link)
{
	const struct commit_link *child = &committer->links[link];

	if (link == committer->from)
		return false;
	if (!is_child(committer, link))
		return committer->told || !committer->opening;
	return committer->opening ? child->last.turn > child->turn
				  : child->last.turn && child->last.turn == child->turn;
}

static struct commit_step say_next(struct committer *committer)
{
	while (committer->at < committer->link_count) {
		uint32_t link = committer->at++;
		struct commit_link *to = &committer->links[link];

		if (!hears_of_it(committer, link))
			continue;
		committer->given_up.turn =
			is_child(committer, link) ? to->last.turn : committer->turn;
		to->last.turn = 0;
		return (struct commit_step){.kind = COMMIT_SAY, .link = link};
	}
	committer->phase = COMMIT_IDLE;
	return (struct commit_step){.kind = COMMIT_FAIL};
}

static struct commit_step give_up(struct committer *committer, uint32_t from, uint64_t version,
				  const char *why)
{
	committer->given_up = (struct update_give_up){.version = version};
	snprintf(committer->given_up.why, sizeof(committer->given_up.why), "%s", why);
	committer->opening = committer->phase == COMMIT_MEETING && committer->round == MEET_OPEN;
	committer->phase = COMMIT_GIVING_UP;
	committer->from = from;
	committer->at = 0;
	return say_next(committer);
}

/* Another rank has ended the turn: those that do not know it are told whose words they are. */
static struct commit_step given_up_by(struct committer *committer, uint32_t link, uint64_t version,
				      const char *why)
{
	const char *name = committer->links[link].name;
	char text[sizeof(committer->given_up.why)], update[48] = "the update";

	if (version && version != GIVE_UP_PAUSES)
		snprintf(update, sizeof(update), "update %llu", (unsigned long long)version);
	error_set(&committer->error, ERROR_ABORTED, "%s was given up by %s: %s", update, name, why);
	snprintf(text, sizeof(text), "%s: %s", name, why);
	return give_up(committer, link, version, text);
}

/* ---- meeting ---- */

static struct commit_step let_go(struct committer *committer)
{
	committer->phase = COMMIT_LETTING_GO;
	committer->at = 0;
	return (struct commit_step){
		.kind = COMMIT_STORE,
		.word = committer->round == MEET_PUBLISH ? committer->release.min_version : 0};
}

static bool stores(const struct committer *committer)
{
	bool has_children = committer->link_count > (committer->decided_for ? 1u : 0u);

	return has_children && (committer->round != MEET_OPEN || committer->release.closes);
}

static struct commit_step release_next(struct committer *committer)
{
	while (committer->at < committer->link_count) {
		uint32_t link = committer->at++;
		struct commit_link *child = &committer->links[link];

		if (!is_child(committer, link))
			continue;
		child->turn = child->last.turn;
		committer->release.turn = child->turn;
		return (struct commit_step){
			.kind = COMMIT_RELEASE,
			.link = link,
			.word = committer->round == MEET_PUBLISH ? committer->release.min_version
								 : 0,
			.writes = child->last.writes &&
				  (committer->round != MEET_OPEN || committer->release.closes),
		};
	}
	committer->phase = committer->round == MEET_PUBLISH ? COMMIT_IDLE : COMMIT_BETWEEN;
	return (struct commit_step){.kind = COMMIT_MET};
}

static struct commit_step released(struct committer *committer)
{
	struct commit_step step = let_go(committer);

	return stores(committer) ? step : release_next(committer);
}

/* No version is what both want. */
static struct commit_step differ(struct committer *committer, const struct update_arrive *a,
				 const char *who)
{
	const struct update_arrive *b = &committer->own;

	error_set(
		&committer->error, ERROR_VERSION,
		"%s waits for update %llu, and this rank for update %llu: all ranks that show versions together "
		"wait for the same",
		who, (unsigned long long)a->min_version, (unsigned long long)b->min_version);
	return give_up(committer, UINT32_MAX, b->min_version,
		       "not all ranks wait for the same update");
}

/* One shows it when the host says so, the other at once. */
static struct commit_step differ_in_way(struct committer *committer, const struct commit_link *link)
{
	const char *by_host = "when its host calls weft_commit_at (commit_by_host)";
	bool own = committer->own.by_host;

	error_set(
		&committer->error, ERROR_USAGE,
		"%s shows versions %s, and this rank %s: all ranks that show versions together do it the same way",
		link->name, own ? "at once" : by_host, own ? by_host : "at once");
	return give_up(
		committer, UINT32_MAX, committer->own.min_version,
		"not all ranks show versions the same way: set commit_by_host on all or none");
}

static struct commit_step meet(struct committer *committer)
{
	struct update_arrive all = committer->own;
	const struct commit_link *other = NULL, *otherwise = NULL;

	for (uint32_t i = 0; i < committer->link_count; i++) {
		const struct commit_link *link = &committer->links[i];

		if (!is_child(committer, i))
			continue;
		if (!has_arrived(committer, link))
			return (struct commit_step){.kind = COMMIT_WAIT};
		if (link->last.min_version > all.min_version)
			all.min_version = link->last.min_version;
		if (link->last.max_version < all.max_version)
			all.max_version = link->last.max_version;
		if (!other && all.min_version > all.max_version)
			other = link;
		all.closes |= link->last.closes;
		if (!otherwise && !link->last.by_host != !all.by_host)
			otherwise = link;
	}
	if (otherwise)
		return differ_in_way(committer, otherwise);
	if (other) /* not before all are there to be told */
		return differ(committer, &other->last, other->name);
	committer->all = all;
	if (committer->decided_for) {
		if (committer->told)
			return (struct commit_step){.kind = COMMIT_WAIT};
		committer->told = true;
		return (struct commit_step){.kind = COMMIT_TELL, .link = 0};
	}
	committer->release = (struct update_release){
		.min_version = all.min_version,
		.max_version = committer->round == MEET_OPEN ? all.max_version : all.min_version,
		.round = (uint32_t)committer->round,
		.closes = all.closes};
	return released(committer);
}

static struct commit_step go_on(struct committer *committer)
{
	switch (committer->phase) {
	case COMMIT_MEETING:
		return meet(committer);
	case COMMIT_LETTING_GO:
		return release_next(committer);
	case COMMIT_GIVING_UP:
		return say_next(committer);
	case COMMIT_IDLE:
	case COMMIT_BETWEEN:
		break;
	}
	return (struct commit_step){.kind = COMMIT_WAIT};
}

static struct commit_step arrive(struct committer *committer, const struct commit_event *event)
{
	WEFT_ASSERT(event->round == MEET_OPEN || committer->phase == COMMIT_BETWEEN);
	if (event->round == MEET_OPEN)
		committer->turn++;
	committer->own = event->arrive;
	committer->own.turn = committer->turn;
	committer->own.round = (uint32_t)event->round;
	committer->round = event->round;
	committer->told = false;
	committer->phase = COMMIT_MEETING;
	return meet(committer);
}

/* ---- what is heard ---- */

static struct commit_step heard_child(struct committer *committer, const struct commit_event *event)
{
	struct commit_link *child = &committer->links[event->link];
	bool open = committer->phase == COMMIT_MEETING && committer->round == MEET_OPEN;

	if (event->tag == UPDATE_ARRIVE) {
		child->last = event->arrive;
		/* what it has promised it does not keep, and nothing was decided by it */
		if (in_turn(committer) && !open && child->last.turn > child->turn)
			return given_up_by(committer, event->link, committer->own.min_version,
					   "it waits for another version");
		return go_on(committer);
	}
	if (!in_turn(committer))
		return go_on(committer);
	if (open && event->give_up.turn == child->last.turn) {
		child->last.turn = 0; /* it may come again */
		return go_on(committer);
	}
	if (open || event->give_up.turn != child->turn)
		return go_on(committer);
	return given_up_by(committer, event->link, event->give_up.version, event->give_up.why);
}

static struct commit_step heard_decider(struct committer *committer,
					const struct commit_event *event)
{
	if (event->tag == UPDATE_RELEASE) {
		if (committer->phase != COMMIT_MEETING || event->release.turn != committer->turn ||
		    event->release.round != (uint32_t)committer->round)
			return go_on(committer);
		committer->release = event->release;
		return released(committer);
	}
	if (!in_turn(committer) || event->give_up.turn != committer->turn)
		return go_on(committer);
	return given_up_by(committer, event->link, event->give_up.version, event->give_up.why);
}

struct commit_step commit_next(struct committer *committer, const struct commit_event *event)
{
	switch (event->kind) {
	case COMMIT_ARRIVES:
		return arrive(committer, event);
	case COMMIT_HEARS:
		return is_child(committer, event->link) ? heard_child(committer, event)
							: heard_decider(committer, event);
	case COMMIT_CANNOT:
		if (!in_turn(committer))
			return (struct commit_step){.kind = COMMIT_FAIL};
		return give_up(committer, UINT32_MAX, event->version, event->why);
	case COMMIT_ASKS:
		break;
	}
	return go_on(committer);
}

void commit_shown(struct committer *committer)
{
	WEFT_ASSERT_OP(committer->round, ==, MEET_PUBLISH);
	WEFT_ASSERT(committer->decided_for && committer->link_count == 1);
	committer->phase = COMMIT_IDLE;
}

bool commit_lacks(const struct committer *committer, uint32_t link)
{
	return committer->phase == COMMIT_MEETING && is_child(committer, link) &&
	       !has_arrived(committer, &committer->links[link]);
}

void commit_missing(const struct committer *committer, struct text *text)
{
	static const char *const what[] = {[MEET_OPEN] = "in weft_update_wait for it",
					   [MEET_CLOSE] = "through with verifying it",
					   [MEET_PUBLISH] = "through with loading it"};
	uint32_t count = 0;

	for (uint32_t i = 0; i < committer->link_count; i++) {
		if (!commit_lacks(committer, i))
			continue;
		if (++count <= NAMED_MAX)
			text_format(text, "%s%s", count > 1 ? ", " : "", committer->links[i].name);
	}
	if (!count) {
		text_format(text, "%s, which decides, has not said that all ranks are %s",
			    committer->links[0].name, what[committer->round]);
		return;
	}
	if (count > NAMED_MAX)
		text_format(text, " and %u more", count - NAMED_MAX);
	text_format(text, " %s not %s", count > 1 ? "are" : "is", what[committer->round]);
}
