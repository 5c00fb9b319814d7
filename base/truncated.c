/* SPDX-License-Identifier: Apache-2.0
 *
 * In the handler nothing may allocate, lock or print: /proc/self/maps is read line by line into memory of
 * our own, and the message goes out with write().
 *
 *   7f1c40000000-7f1c80000000 r--s 00000000 fe:00 393   /models/model-00001.safetensors
 */
#include "base/truncated.h"

#include "base/error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static char name[32];
static char lines[8192]; /* longer than any line: a path has 4,096 bytes at most */

static uint64_t hex(const char **at)
{
	uint64_t value = 0;

	for (;; (*at)++) {
		char c = **at;

		if (c >= '0' && c <= '9')
			value = value * 16 + (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value * 16 + (uint64_t)(c - 'a' + 10);
		else
			return value;
	}
}

/* The path in a line of a mapping that holds the address; NULL: it does not, or is of no file. */
static const char *path_at(const char *line, uintptr_t address)
{
	const char *at = line, *path;
	uint64_t lo = hex(&at), hi;

	if (*at++ != '-')
		return NULL;
	hi = hex(&at);
	path = strchr(at, '/');
	if (address < lo || address >= hi || !path)
		return NULL;
	if (!strncmp(path, "/memfd:", 7) || !strncmp(path, "/SYSV", 5) ||
	    (!strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9) != 0))
		return NULL; /* no file that somebody could have cut */
	return path;
}

/* The file that is mapped at the address, in `lines`; NULL: none. */
static const char *file_at(uintptr_t address)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t held = 0;
	ssize_t got;

	while (fd >= 0 && (got = read(fd, lines + held, sizeof(lines) - 1 - held)) > 0) {
		char *line = lines, *end;

		held += (size_t)got;
		lines[held] = '\0';
		while ((end = memchr(line, '\n', held - (size_t)(line - lines))) != NULL) {
			const char *path;

			*end = '\0';
			path = path_at(line, address);
			if (path) {
				close(fd);
				return path;
			}
			line = end + 1;
		}
		held -= (size_t)(line - lines);
		memmove(lines, line, held);
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

/* A name may have anything in it. */
static void make_plain(char *path)
{
	for (; *path; path++)
		if ((unsigned char)*path < 0x20 || (unsigned char)*path >= 0x7f)
			*path = '?';
}

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(error_exit_code(ERROR_IO));
}

static void caught(int number, siginfo_t *about, void *context)
{
	static atomic_flag busy = ATOMIC_FLAG_INIT;
	char *path;

	(void)context;
	while (atomic_flag_test_and_set(&busy)) /* another thread, which ends the process */
		pause();
	path = (char *)file_at((uintptr_t)about->si_addr);
	if (!path) { /* the fault comes again, without us */
		signal(number, SIG_DFL);
		atomic_flag_clear(&busy);
		return;
	}
	make_plain(path);
	say(name);
	say(": WEFT-E111 input or output failed: ");
	say(path);
	say(" has become shorter, or its device fails, while it is read: leave files alone that a job "
	    "uses, and put new ones there by rename\n");
	_exit(error_exit_code(ERROR_IO));
}

void truncated_catch(const char *program)
{
	struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};

	strncpy(name, program, sizeof(name) - 1);
	sigaction(SIGBUS, &action, NULL);
}
