/* SPDX-License-Identifier: Apache-2.0
 *
 * post_load.c -- plays the engine's post-load hook: a command of the shell, once a version.
 */
#include "player.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "WEFT_VERSION="
#define STOPPED	 256 /* no exit status: the command was ended by a signal or never began */
#define LOOK_US	 2000
#define SAY_S	 2  /* after so long that a command goes on is said, */
#define AGAIN_S	 30 /* and so often again */

/* The environment with WEFT_VERSION; free it. NULL: no memory. */
static char **make_environment(char *variable)
{
	size_t count = 0, kept = 0;
	char **made;

	while (environ[count])
		count++;
	made = calloc(count + 2, sizeof(*made));
	if (!made)
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (strncmp(environ[i], VARIABLE, sizeof(VARIABLE) - 1) != 0)
			made[kept++] = environ[i];
	made[kept] = variable;
	return made;
}

/* Nobody else knows: the trainers have ended that update, and a hook has no deadline. */
static void say_long(const struct player *player, uint64_t version, time_t began, time_t *due)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (player->arguments.quiet || now.tv_sec < *due)
		return;
	*due = now.tv_sec + AGAIN_S;
	say("weft-worker: inference %u: still waiting for the hook '%.200s' (--post-load) before version %llu "
	    "is published, for %lld s",
	    player->rank, player->arguments.post_load, (unsigned long long)version,
	    (long long)(now.tv_sec - began));
}

/* Its status; a signal to us ends it too, for it may wait for something that never comes. */
static int wait_for(const struct player *player, uint64_t version, pid_t child)
{
	bool told = false;
	struct timespec began;
	time_t due;
	int status;

	clock_gettime(CLOCK_MONOTONIC, &began);
	due = began.tv_sec + SAY_S;
	for (;;) {
		pid_t ended = waitpid(child, &status, WNOHANG);

		if (ended == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : STOPPED;
		if (ended < 0 && errno != EINTR)
			return STOPPED;
		if (player_signal() && !told) {
			told = true;
			kill(child, SIGTERM);
		}
		say_long(player, version, began.tv_sec, &due);
		usleep(LOOK_US);
	}
}

static int run_command(void *context, uint64_t version)
{
	const struct player *player = context;
	char *argv[] = {"sh", "-c", (char *)(uintptr_t)player->arguments.post_load, NULL};
	char variable[64];
	char **environment;
	int status = STOPPED;
	pid_t child;

	snprintf(variable, sizeof(variable), VARIABLE "%llu", (unsigned long long)version);
	environment = make_environment(variable);
	if (environment && !posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environment))
		status = wait_for(player, version, child);
	free(environment);
	return status;
}

int post_load_set(struct player *player, weft_error *error)
{
	if (!player->arguments.post_load)
		return 0;
	return weft_set_post_load(player->worker, run_command, player, error);
}
