/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <argp.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static int die_with_parent(pid_t parent, weft_error *error)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	return getppid() == parent ? 0
				   : fail(error, WEFT_E_INTERRUPTED, "the parent process is gone");
}

/* The number of a closed standard stream would go to the next file or socket that is opened, and
 * our lines into it. A write to what stands in for it fails, as it did. */
static void keep_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = player_interrupt},
			 hangup = {.sa_handler = SIG_DFL};
	struct player player = {0};
	pid_t parent = getppid();
	weft_error error = WEFT_ERROR_INIT;
	static char version[64];
	int rc, closed;

	keep_standard_streams();
	snprintf(version, sizeof(version), "weft-worker %s", weft_version_text());
	argp_program_version = version;
	argp_err_exit_status = 2;
	setlinebuf(stdout);
	weft_set_log_format(NULL, NULL);
	weft_catch_truncated_files("weft-worker");
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	/* a closed terminal ends the work in order too, unless nohup had it ignored */
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN); /* a job does not end because the one who read its lines has */
	rc = options_read(&player.arguments, argc, argv, &error);
	if (!rc && player.arguments.die_with_parent)
		rc = die_with_parent(parent, &error);
	if (!rc)
		rc = player_play(&player, &error);
	closed = player_close(&player, rc != 0);
	if (!rc && closed)
		rc = fail(&error, -closed,
			  "the work is done, but a trainer is in the middle of a write of this "
			  "process's memory (the log says which); it ends with this process");
	if (!rc)
		return 0;
	say("weft-worker: WEFT-E%d %s: %s", error.code, weft_strerror(error.code), error.text);
	weft_launch_report(&error);
	return weft_exit_code(error.code);
}
