/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *self_role(const struct player *player)
{
	return player->role == WEFT_TRAINER ? "trainer" : "inference";
}

static int check_arguments(const struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	bool trainer = player->role == WEFT_TRAINER;

	if (!a->updates || !a->first_version || a->first_version > UINT64_MAX - a->updates)
		return fail(error, WEFT_E_USAGE, "--updates and --first-version are at least 1");
	if (!a->change_one_in || a->change_one_in > 65536)
		return fail(error, WEFT_E_USAGE, "--change-one-in %llu: it is from 1 to 65536",
			    (unsigned long long)a->change_one_in);
	if (!a->checkpoint && (trainer || a->verify))
		return fail(error, WEFT_E_USAGE, "--checkpoint is needed: %s",
			    trainer ? "a trainer makes its versions from one"
				    : "--verify compares with one");
	return 0;
}

static int check_world(const struct player *player, uint32_t trainers, uint32_t inference,
		       bool automatic, weft_error *error)
{
	const char *variable = getenv("WEFT_WORLD_SIZE");
	const struct arguments *a = &player->arguments;
	int64_t world = player->launch.world, own = trainers;

	if (!strcmp(a->role, "inference"))
		own = inference;
	if (world < 0 || world == (int64_t)trainers + inference)
		return 0;
	/* with a role, each role may have a launch of its own, and what launchers say of the size
	 * is their affair; what the user says must be one or the other */
	if (!automatic && (world == own || (a->world == NOT_GIVEN && !(variable && *variable))))
		return 0;
	return fail(error, WEFT_E_CONFIG,
		    "%lld workers were launched, but --train and --infer "
		    "have %u trainers and %u inference ranks, %llu in all",
		    (long long)world, trainers, inference,
		    (unsigned long long)trainers + inference);
}

static int take_rank(struct player *player, uint32_t trainers, uint32_t inference,
		     weft_error *error)
{
	const struct arguments *a = &player->arguments;
	const weft_launch *launch = &player->launch;
	bool automatic = !strcmp(a->role, "auto");
	int64_t rank = launch->rank;

	player->source = launch->rank_source;
	if (!automatic && strcmp(a->role, "trainer") && strcmp(a->role, "inference"))
		return fail(error, WEFT_E_USAGE,
			    "--role is '%.40s'; it is trainer, inference or auto", a->role);
	if (!automatic && a->rank != NOT_GIVEN) {
		rank = a->rank <= INT32_MAX ? (int64_t)a->rank : INT32_MAX;
		player->source = "--rank";
	}
	if (rank < 0)
		return fail(error, WEFT_E_USAGE,
			    "no rank: give --rank or WEFT_RANK, or launch with "
			    "torchrun, MPI, Slurm or Kubernetes");
	if (check_world(player, trainers, inference, automatic, error))
		return -error->code;
	player->role = !strcmp(a->role, "inference") || (automatic && rank >= (int64_t)trainers)
			       ? WEFT_INFERENCE
			       : WEFT_TRAINER;
	player->count = player->role == WEFT_TRAINER ? trainers : inference;
	if (automatic && player->role == WEFT_INFERENCE)
		rank -= trainers;
	player->rank = (uint32_t)rank;
	if (player->rank >= player->count)
		return fail(error, WEFT_E_CONFIG, "%s rank %u (from %s), but %s %s has %s 0..%u",
			    self_role(player), player->rank, player->source,
			    player->role == WEFT_TRAINER ? "--train" : "--infer",
			    player->role == WEFT_TRAINER ? a->train : a->infer,
			    player->role == WEFT_TRAINER ? "trainers" : "inference ranks",
			    player->count - 1);
	return 0;
}

/* The controller may come from elsewhere: it is asked for later, and named here beside what else is missing. */
static int check_given(const struct arguments *a, weft_error *error)
{
	const char *controller = a->controller ? a->controller : getenv("WEFT_CONTROLLER");
	const struct {
		const char *flag, *value;
	} rows[] = {{"--controller", controller},
		    {"--model", a->model},
		    {"--train", a->train},
		    {"--infer", a->infer}};
	const size_t count = sizeof(rows) / sizeof(rows[0]);
	size_t missing = 0, named = 0, bytes = 0;
	char names[64];

	if (a->train && a->infer && a->model)
		return 0;
	for (size_t i = 0; i < count; i++)
		missing += !rows[i].value;
	for (size_t i = 0; i < count; i++) {
		if (rows[i].value)
			continue;
		named++;
		bytes += (size_t)snprintf(names + bytes, sizeof(names) - bytes, "%s%s",
					  named == 1	     ? ""
					  : named == missing ? " and "
							     : ", ",
					  rows[i].flag);
	}
	return fail(error, WEFT_E_USAGE,
		    "--controller ADDRESS, --model NAME, --train SPEC and "
		    "--infer SPEC are needed; %s %s missing",
		    names, missing == 1 ? "is" : "are");
}

int self_find(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	weft_launch *launch = &player->launch;
	bool automatic = !strcmp(a->role, "auto");
	uint32_t trainers = 0, inference = 0;
	int rc;

	if (check_given(a, error))
		return -error->code;
	rc = weft_count_ranks(a->train, a->infer, &trainers, &inference, error);
	if (rc)
		return rc;
	*launch = (weft_launch){.size = sizeof(*launch), .rank = -1, .world = -1};
	/* with a role, --rank counts within it; the launcher counts all workers */
	if (automatic && a->rank != NOT_GIVEN)
		launch->rank = a->rank <= INT32_MAX ? (int64_t)a->rank : INT32_MAX;
	if (a->world != NOT_GIVEN)
		launch->world = a->world <= INT32_MAX ? (int64_t)a->world : INT32_MAX;
	snprintf(launch->controller, sizeof(launch->controller), "%s",
		 a->controller ? a->controller : "");
	snprintf(launch->key_file, sizeof(launch->key_file), "%s", a->key ? a->key : "");
	rc = weft_launch_find(launch, error);
	if (!rc)
		rc = take_rank(player, trainers, inference, error);
	if (rc)
		return rc;
	if (!launch->controller[0])
		return fail(error, WEFT_E_USAGE,
			    "no controller: give --controller tcp://host:29600 or "
			    "WEFT_CONTROLLER, or --controller auto under torchrun");
	return check_arguments(player, error);
}

/* The line that tells a user which of many sources was believed. Standard error: standard output
 * is for figures. */
void self_print(const struct player *player)
{
	const weft_launch *launch = &player->launch;
	bool launched = player->source == launch->rank_source && launch->world >= 0;

	if (player->arguments.quiet)
		return;
	say("weft-worker: rank %lld/%lld (from %s), %s %u/%u, controller %s (from %s)",
	    launched ? (long long)launch->rank : player->rank,
	    launched ? (long long)launch->world : player->count, player->source, self_role(player),
	    player->rank, player->count, launch->controller, launch->controller_source);
}
