/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/children.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LISTEN_TIMEOUT_MS 20000
#define WAIT_TIMEOUT_MS	  60000

int children_open(struct children *children, size_t most, _Atomic uint32_t *failed,
		  struct error *error)
{
	*children = (struct children){.capacity = most, .failed = failed};
	children->pids = memory_zalloc(most, sizeof(*children->pids));
	return children->pids ? 0 : memory_error(error, "starting processes", most);
}

pid_t children_fork(struct children *children, struct error *error)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		error_set_errno(error, ERROR_IO, errno, "cannot start a process");
		return -1;
	}
	if (pid > 0) {
		children->pids[children->count++] = pid;
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1); /* the parent was gone before the line above */
	return 0;
}

void children_watch(void *context)
{
	struct children *children = context;

	for (size_t i = 0; i < children->count; i++) {
		int status;

		if (!children->pids[i] || waitpid(children->pids[i], &status, WNOHANG) <= 0)
			continue;
		children->pids[i] = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			continue;
		if (!children->worst)
			children->worst =
				WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		atomic_store(children->failed, 1);
	}
}

static void exec_controller(const char *const *arguments, const char *port_file)
{
	const char *argv[6 + 32] = {NULL, "--bind", "tcp://127.0.0.1:0", "--port-file", port_file};
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 32);
	char *slash;

	if (n < 0)
		n = 0;
	self[n] = '\0';
	slash = strrchr(self, '/');
	strcpy(slash ? slash + 1 : self, "weft-controller");
	setenv("WEFT_LOG", "warn", 0); /* its joins and leaves would drown the figures */
	argv[0] = self;
	for (size_t i = 0; i < 32 && arguments[i]; i++)
		argv[5 + i] = arguments[i];
	execv(self, (char *const *)argv);
	fprintf(stderr, "weft: cannot run %s: %s\n", self, strerror(errno));
	_exit(127);
}

int children_controller(struct children *children, const char *const *arguments, char *address,
			size_t address_bytes, struct error *error)
{
	uint64_t deadline_ms = clock_ms() + LISTEN_TIMEOUT_MS;
	char port_file[96], port[16] = "";
	struct file_map map;
	pid_t pid;

	strcpy(children->folder, "/tmp/weft-bench-XXXXXX");
	if (!mkdtemp(children->folder)) {
		children->folder[0] = '\0';
		return error_set_errno(error, ERROR_IO, errno, "cannot make a folder in /tmp");
	}
	snprintf(port_file, sizeof(port_file), "%s/port", children->folder);
	pid = children_fork(children, error);
	if (pid < 0)
		return -(int)error->code;
	if (pid == 0)
		exec_controller(arguments, port_file);
	while (access(port_file, R_OK) != 0) {
		children_watch(children);
		if (atomic_load(children->failed))
			return error_set(error, ERROR_CONTROLLER_LOST,
					 "weft-controller ended with code %d before it listened",
					 children->worst);
		if (clock_ms() > deadline_ms)
			return error_set(error, ERROR_TIMEOUT,
					 "weft-controller does not listen after %d s",
					 LISTEN_TIMEOUT_MS / 1000);
		clock_sleep_ms(5);
	}
	if (file_map_open(&map, port_file, error))
		return -(int)error->code;
	snprintf(port, sizeof(port), "%.*s", (int)map.bytes, (const char *)map.data);
	file_map_close(&map);
	port[strcspn(port, "\n")] = '\0';
	snprintf(address, address_bytes, "tcp://127.0.0.1:%s", port);
	return 0;
}

int children_wait(struct children *children, struct error *error)
{
	uint64_t deadline_ms = clock_ms() + WAIT_TIMEOUT_MS;
	size_t left = 1;

	while (left) {
		left = 0;
		children_watch(children);
		for (size_t i = 0; i < children->count; i++)
			left += children->pids[i] != 0;
		if (left && clock_ms() > deadline_ms)
			return error_set(error, ERROR_TIMEOUT, "%zu of %zu processes do not end",
					 left, children->count);
		if (left)
			clock_sleep_ms(5);
	}
	if (children->worst)
		return error_set(error, ERROR_TRANSPORT, "a process ended with code %d (see above)",
				 children->worst);
	return 0;
}

void children_close(struct children *children)
{
	char port_file[96];

	for (size_t i = 0; i < children->count; i++) {
		if (!children->pids[i])
			continue;
		kill(children->pids[i], SIGKILL);
		waitpid(children->pids[i], NULL, 0);
	}
	if (children->folder[0]) {
		snprintf(port_file, sizeof(port_file), "%s/port", children->folder);
		unlink(port_file);
		rmdir(children->folder);
	}
	memory_free(children->pids);
	*children = (struct children){0};
}
