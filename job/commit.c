/* SPDX-License-Identifier: Apache-2.0 */
#include "job/commit.h"

#include <string.h>

static const char *const names[COMMIT_COUNT] = {
	[COMMIT_ENGINE] = "engine", [COMMIT_RANK] = "rank", [COMMIT_JOB] = "job"};

const char *commit_name(enum commit commit)
{
	return names[commit];
}

int commit_parse(enum commit *commit, const char *text, struct error *error)
{
	for (int i = 0; i < COMMIT_COUNT; i++)
		if (strcmp(text, names[i]) == 0) {
			*commit = (enum commit)i;
			return 0;
		}
	return error_set(
		error, ERROR_USAGE,
		"--commit '%.60s' is none of engine (all ranks of an engine show a version together), "
		"job (all inference ranks do) and rank (each by itself)",
		text);
}

static bool is_away(const struct commit_ranks *ranks, uint32_t rank)
{
	return ranks->away && ranks->away[rank];
}

/* Of those that are here. */
static uint32_t first_rank(const struct commit_ranks *ranks)
{
	uint32_t first = 0;

	while (first < ranks->count && is_away(ranks, first))
		first += ranks->engine_ranks;
	return first;
}

bool commit_decider(const struct commit_ranks *ranks, uint32_t rank, uint32_t *decider)
{
	uint32_t of_engine = rank - rank % ranks->engine_ranks;
	uint32_t of_all = first_rank(ranks);

	if (ranks->commit == COMMIT_RANK || rank == of_all ||
	    (rank == of_engine && ranks->commit != COMMIT_JOB))
		return false;
	*decider = rank == of_engine ? of_all : of_engine;
	return true;
}

static void add(uint32_t *mates, uint32_t *count, uint32_t rank)
{
	if (mates)
		mates[*count] = rank;
	++*count;
}

uint32_t commit_mates(const struct commit_ranks *ranks, uint32_t rank, uint32_t *mates)
{
	uint32_t count = 0, decider, engine_ranks = ranks->engine_ranks;

	if (commit_decider(ranks, rank, &decider))
		add(mates, &count, decider);
	if (ranks->commit == COMMIT_RANK || rank % engine_ranks)
		return count;
	for (uint32_t mate = rank + 1; mate < rank + engine_ranks && mate < ranks->count; mate++)
		add(mates, &count, mate);
	if (ranks->commit != COMMIT_JOB || rank != first_rank(ranks))
		return count;
	for (uint32_t mate = rank + engine_ranks; mate < ranks->count; mate += engine_ranks)
		if (!is_away(ranks, mate))
			add(mates, &count, mate);
	return count;
}
