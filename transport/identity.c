/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.c -- processes by (pid, start time): a pid alone may be somebody else by now.
 */
#include "transport/identity.h"

#include "base/file.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* State letter and start time; the command before them may hold spaces and parentheses,
 * so fields are counted from the last one. Returns 0 or -errno. */
static int read_stat(uint64_t pid, char *state, uint64_t *start)
{
	char path[64], line[1024], *at;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/stat", pid);
	n = file_read_small(path, line, sizeof(line));
	if (n < 0)
		return (int)n;
	at = strrchr(line, ')');
	if (!at || at[1] != ' ')
		return -EPROTO;
	at += 2; /* field 3 */
	*state = *at;
	for (int field = 3; field < 22; field++) {
		at = strchr(at, ' ');
		if (!at)
			return -EPROTO;
		at++;
	}
	*start = strtoull(at, NULL, 10);
	return 0;
}

static int read_boot(unsigned char boot[16], struct error *error)
{
	char text[64];
	ssize_t n = file_read_small("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	const char *at = text;

	memset(boot, 0, 16);
	if (n < 0)
		return error_set_errno(error, ERROR_UNSUPPORTED, (int)-n,
				       "/proc/sys/kernel/random/boot_id cannot be read, and "
				       "it tells one host from another");
	for (int i = 0; i < 16 && sscanf(at, "%2hhx", &boot[i]) == 1; i++) {
		at += 2;
		at += *at == '-';
	}
	return 0;
}

int identity_read(struct identity *identity, struct error *error)
{
	struct stat namespace;
	char state;
	int rc = read_boot(identity->boot, error);

	if (rc)
		return rc;
	identity->pid = (uint64_t)getpid();
	rc = read_stat(identity->pid, &state, &identity->start);
	if (rc)
		return error_set_errno(error, ERROR_UNSUPPORTED, -rc,
				       "/proc/%d/stat cannot be read: mount /proc here",
				       (int)getpid());
	if (stat("/proc/self/ns/pid", &namespace) != 0)
		return error_set_errno(error, ERROR_UNSUPPORTED, errno,
				       "/proc/self/ns/pid cannot be read");
	identity->pid_namespace = (uint64_t) namespace.st_ino;
	return 0;
}

bool identity_comparable(const struct identity *a, const struct identity *b)
{
	return memcmp(a->boot, b->boot, sizeof(a->boot)) == 0 &&
	       a->pid_namespace == b->pid_namespace;
}

int identity_random(void *out, size_t bytes, const char *who, struct error *error)
{
	if (getentropy(out, bytes) != 0)
		return error_set_errno(error, ERROR_UNSUPPORTED, errno,
				       "%s: the kernel gives no random bytes", who);
	return 0;
}

int process_open(uint64_t pid, uint64_t start)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	uint64_t now;
	char state;

	/* asked after the open: if the start time still matches, the pidfd is of that
	 * process */
	if (fd >= 0 && (read_stat(pid, &state, &now) != 0 || now != start)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Readable once every thread has ended, reaped or not. */
bool process_fd_dead(int pidfd)
{
	struct pollfd one = {.fd = pidfd, .events = POLLIN};

	return poll(&one, 1, 0) == 1 && (one.revents & POLLIN);
}

bool process_exists(uint64_t pid)
{
	return kill((pid_t)pid, 0) == 0 || errno != ESRCH;
}

bool process_dead(uint64_t pid, uint64_t start)
{
	uint64_t now = start;
	char state = 0;
	int rc = read_stat(pid, &state, &now), fd;
	bool dead = false;

	if (rc == -ENOENT || rc == -ESRCH) /* or /proc hides it: then kill finds it */
		return !process_exists(pid);
	if (rc)
		return false;
	if (now != start)
		return true;
	if (state != 'Z' && state != 'X')
		return false;
	/* Z is also a living process whose first thread has ended: only a pidfd tells */
	fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (fd >= 0) {
		dead = process_fd_dead(fd);
		close(fd);
		return dead;
	}
	return errno == ESRCH || errno == ENOSYS || errno == EPERM || state == 'X';
}
