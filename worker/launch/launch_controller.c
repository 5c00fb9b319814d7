/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_controller.c -- the controller of `--controller auto`, started by rank 0 of the launch.
 */
#include "worker/api/abi.h"
#include "base/array.h"
#include "worker/api/worker.h"
#include "worker/launch/launch_key.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_STEP_MS 10

/* The key that the controller of this process was given, and removes at its end; empty: none. */
static struct {
	char path[sizeof(((weft_launch *)0)->key_file)];
	struct key_place place;
} made;

static int make_key(const weft_launch *launch, struct error *error)
{
	if (!launch->key_waits)
		return 0;
	snprintf(made.path, sizeof(made.path), "%s", launch->key_file);
	return launch_make_key(made.path, &made.place, error);
}

static void remove_key(void)
{
	if (made.path[0])
		key_remove(made.path, &made.place);
	made.path[0] = '\0';
}

/* In the child: nothing but exec is safe here. */
static void exec_controller(const char *const *arguments, const char *path, int report)
{
	sigset_t none;
	int number;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (*path)
		execv(path, (char *const *)(uintptr_t)arguments);
	execvp("weft-controller", (char *const *)(uintptr_t)arguments);
	number = errno;
	TEMP_FAILURE_RETRY(write(report, &number, sizeof(number)));
	_exit(127);
}

/* The pipe's end closes when the program has started; what comes through it is why it has not. */
static int await_start(pid_t child, int report, struct error *error)
{
	int number;

	if (TEMP_FAILURE_RETRY(read(report, &number, sizeof(number))) != (ssize_t)sizeof(number))
		return 0;
	TEMP_FAILURE_RETRY(waitpid(child, NULL, 0));
	return error_set(
		error, ERROR_CONFIG,
		"weft-controller, which rank 0 starts for --controller auto, is neither "
		"beside this program nor in PATH (%s); extend PATH, or start it yourself and "
		"give --controller tcp://host:port",
		strerror(number));
}

/* weft-controller in this program's folder; "" when that has no name. */
static void beside_program(char *path, size_t bytes)
{
	static const char name[] = "weft-controller";
	ssize_t length = readlink("/proc/self/exe", path, bytes - sizeof(name));
	char *slash;

	path[length > 0 ? length : 0] = 0;
	slash = strrchr(path, '/');
	if (slash)
		memcpy(slash + 1, name, sizeof(name));
}

static int start(const weft_launch *launch, const char *const *more, int64_t *pid,
		 struct error *error)
{
	const char **arguments;
	char bind[32], path[PATH_MAX];
	const char *const first[] = {"weft-controller", "--die-with-parent", "--bind",	    bind,
				     "--key",		launch->key_file,    "--remove-key"};
	/* without a key neither flag; a key of the user's is not removed */
	size_t firsts = launch->key_waits ? 7 : launch->key_file[0] ? 6 : 4;
	const char *port = strrchr(launch->controller, ':');
	size_t count = 0;
	int report[2], number, rc;
	pid_t child;

	if (!port)
		return error_set(error, ERROR_USAGE, "the controller's address '%s' has no port",
				 launch->controller);
	snprintf(bind, sizeof(bind), "tcp://*%.8s", port);
	rc = make_key(launch, error);
	if (rc)
		return rc;
	beside_program(path, sizeof(path));
	while (more && more[count])
		count++;
	arguments = memory_zalloc(firsts + count + 1, sizeof(*arguments));
	if (!arguments)
		return memory_error(error, "starting the controller", sizeof(*arguments));
	memcpy(arguments, first, firsts * sizeof(*first));
	if (count)
		memcpy(arguments + firsts, more, count * sizeof(*more));
	if (pipe2(report, O_CLOEXEC)) {
		memory_free(arguments);
		return error_set_errno(error, ERROR_IO, errno, "starting the controller");
	}
	child = fork();
	if (!child)
		exec_controller(arguments, path, report[1]);
	number = errno;
	memory_free(arguments);
	close(report[1]);
	rc = child < 0 ? error_set_errno(error, ERROR_IO, number, "starting the controller")
		       : await_start(child, report[0], error);
	close(report[0]);
	if (!rc)
		*pid = child;
	else
		remove_key();
	return rc;
}

int weft_launch_controller(const weft_launch *launch, const char *const *arguments, int64_t *pid,
			   weft_error *error)
{
	weft_launch ours;
	struct error inner;
	int rc = abi_take(ABI_LAUNCH, "weft_launch_controller", launch, &ours, &inner);

	*pid = 0;
	if (!rc && ours.start_controller)
		rc = start(&ours, arguments, pid, &inner);
	return worker_result(rc, &inner, error);
}

int weft_launch_wait(int64_t *pid, uint32_t timeout_ms)
{
	int status;

	for (uint32_t waited = 0; *pid; waited += WAIT_STEP_MS) {
		if (waitpid((pid_t)*pid, &status, WNOHANG)) {
			*pid = 0;     /* ended, or not ours to wait for */
			remove_key(); /* it did, unless it was killed */
			break;
		}
		if (waited >= timeout_ms)
			return 1;
		usleep(WAIT_STEP_MS * 1000);
	}
	return 0;
}

void weft_launch_stop(int64_t *pid, uint32_t timeout_ms)
{
	if (!weft_launch_wait(pid, timeout_ms))
		return;
	kill((pid_t)*pid, SIGTERM);
	if (!weft_launch_wait(pid, timeout_ms))
		return;
	kill((pid_t)*pid, SIGKILL);
	weft_launch_wait(pid, timeout_ms);
}
