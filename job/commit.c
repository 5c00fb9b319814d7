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

bool commit_decider(enum commit commit, uint32_t rank, uint32_t engine_ranks, uint32_t *decider)
{
	bool first = rank % engine_ranks == 0;

	if (commit == COMMIT_RANK || rank == 0 || (first && commit != COMMIT_JOB))
		return false;
	*decider = first ? 0 : rank - rank % engine_ranks;
	return true;
}

static void add(uint32_t *mates, uint32_t *count, uint32_t rank)
{
	if (mates)
		mates[*count] = rank;
	++*count;
}

uint32_t commit_mates(enum commit commit, uint32_t rank, uint32_t ranks, uint32_t engine_ranks,
		      uint32_t *mates)
{
	uint32_t count = 0, decider;

	if (commit_decider(commit, rank, engine_ranks, &decider))
		add(mates, &count, decider);
	if (commit == COMMIT_RANK || rank % engine_ranks)
		return count;
	for (uint32_t mate = rank + 1; mate < rank + engine_ranks && mate < ranks; mate++)
		add(mates, &count, mate);
	for (uint32_t mate = engine_ranks; commit == COMMIT_JOB && !rank && mate < ranks;
	     mate += engine_ranks)
		add(mates, &count, mate);
	return count;
}
