/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_writer.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/threads.h"
#include "base/trouble.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS		50 /* between two looks at whether the process ends, or stderr is another */
#define PATIENCE_MS	250  /* with a stderr that takes nothing, at the end */
#define PATIENCE_ALL_MS 3000 /* with one that takes little */

static struct {
	pthread_mutex_t lock; /* held over no write that could wait */
	pthread_cond_t moved;
	size_t from, used;	       /* of the queue, a ring */
	uint64_t taken;		       /* bytes out of it, ever */
	uint64_t dropped;	       /* lines, not told yet */
	bool dropping, failed;	       /* full until told; the last write went wrong */
	bool running, started, ending; /* the thread; it is to be joined; no other is started */
	pthread_t thread;
	void (*tell)(void);
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static char ring[LOG_QUEUE_BYTES];

/* ---- out ---- */

/* A description of our own, so that not waiting is our affair alone. */
static ssize_t write_once_more_opened(int fd, const char *data, size_t bytes, bool may_wait)
{
	char path[32];
	ssize_t n;
	int own, number;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (own >= 0) {
		n = write(own, data, bytes);
		number = errno;
		close(own);
		errno = number;
		return n;
	}
	if (errno == ENXIO) /* a pipe that nobody can read any more */
		return -1;
	if (may_wait)
		return write(fd, data, bytes);
	errno = EAGAIN;
	return -1;
}

/* Bytes that stderr took; 0: none now; -1: it fails. */
static ssize_t offer(const char *data, size_t bytes, bool may_wait)
{
	int fd = fileno(stderr), before = errno;
	struct stat is;
	ssize_t n;

	if (fstat(fd, &is))
		n = -1;
	else if (S_ISREG(is.st_mode) || S_ISBLK(is.st_mode))
		n = write(fd, data, bytes);
	else if (S_ISSOCK(is.st_mode))
		n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		n = write_once_more_opened(fd, data, bytes, may_wait);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		n = 0;
	if (n < 0)
		trouble_set(TROUBLE_LOG, "lines of its log are lost (standard error): %s",
			    strerrordesc_np(errno));
	else if (n > 0)
		trouble_over(TROUBLE_LOG);
	errno = before; /* who logs may be about to tell of it */
	return n;
}

/* ---- the queue, under the lock ---- */

static void push(const char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		ring[(queue.from + queue.used + i) % sizeof(ring)] = data[i];
	queue.used += bytes;
}

/* The first line, or what is left of it. */
static size_t first_line(char out[LOG_LINE_BYTES])
{
	size_t bytes = 0;

	while (bytes < queue.used && bytes < LOG_LINE_BYTES) {
		out[bytes] = ring[(queue.from + bytes) % sizeof(ring)];
		if (out[bytes++] == '\n')
			break;
	}
	return bytes;
}

static void pop(size_t bytes)
{
	queue.from = (queue.from + bytes) % sizeof(ring);
	queue.used -= bytes;
	queue.taken += bytes;
	pthread_cond_broadcast(&queue.moved);
}

/* stderr fails, and all that waits for it. */
static void lose_all(void)
{
	for (size_t i = 0; i < queue.used; i++)
		queue.dropped += ring[(queue.from + i) % sizeof(ring)] == '\n';
	queue.failed = true;
	queue.dropping = false;
	pop(queue.used);
}

static bool can_tell(void)
{
	return queue.dropped && !queue.failed && queue.used <= sizeof(ring) / 2;
}

/* ---- the thread ---- */

/* One step; false: nothing is left to do. */
static bool move_one(char line[LOG_LINE_BYTES])
{
	struct pollfd out = {.fd = fileno(stderr), .events = POLLOUT};
	ssize_t n = 0;
	size_t bytes;
	bool tell;

	pthread_mutex_lock(&queue.lock);
	tell = can_tell() && queue.tell;
	bytes = first_line(line);
	queue.running = !(queue.ending && !bytes) && (tell || bytes);
	if (!queue.running)
		pthread_cond_broadcast(&queue.moved);
	if (!queue.running || tell) {
		pthread_mutex_unlock(&queue.lock);
		if (tell)
			queue.tell();
		return tell;
	}
	pthread_mutex_unlock(&queue.lock);
	if (poll(&out, 1, LOOK_MS) > 0)
		n = offer(line, bytes, true);
	pthread_mutex_lock(&queue.lock);
	if (n < 0)
		lose_all();
	else if (n > 0)
		pop((size_t)n < queue.used ? (size_t)n
					   : queue.used); /* at the end it was emptied */
	pthread_mutex_unlock(&queue.lock);
	return true;
}

static void *write_queue(void *unused)
{
	char line[LOG_LINE_BYTES];

	while (move_one(line))
		;
	return NULL;
}

/* Under the lock. A thread that is not running has left it for the last time. */
static void start_thread(void)
{
	if (queue.running || queue.ending)
		return;
	if (queue.started)
		pthread_join(queue.thread, NULL);
	queue.started = queue.running = !threads_start(&queue.thread, write_queue, NULL);
}

/* ---- in ---- */

void log_writer_put(const char *line, size_t bytes)
{
	ssize_t n = 0;

	pthread_mutex_lock(&queue.lock);
	if (!queue.running && !queue.used) {
		n = offer(line, bytes, false);
		queue.failed = n < 0;
	}
	if (n < 0) {
		queue.dropped++;
	} else if ((size_t)n < bytes) {
		bytes -= (size_t)n;
		queue.dropping |= queue.used + bytes > sizeof(ring);
		if (queue.dropping)
			queue.dropped++;
		else
			push(line + n, bytes);
		start_thread();
	}
	pthread_mutex_unlock(&queue.lock);
}

uint64_t log_writer_missed(void)
{
	uint64_t missed = 0;

	pthread_mutex_lock(&queue.lock);
	if (can_tell()) {
		missed = queue.dropped;
		queue.dropped = 0;
		queue.dropping = false;
	}
	pthread_mutex_unlock(&queue.lock);
	return missed;
}

void log_writer_on_missed(void (*tell)(void))
{
	pthread_mutex_lock(&queue.lock);
	queue.tell = tell;
	pthread_mutex_unlock(&queue.lock);
}

/* ---- the end ---- */

/* Under the lock, until something moved. False: nothing did. */
static bool wait_for_move(void)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += PATIENCE_MS * 1000000;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	return pthread_cond_timedwait(&queue.moved, &queue.lock, &end) == 0;
}

void log_writer_flush(void)
{
	uint64_t end = clock_ms() + PATIENCE_ALL_MS;

	pthread_mutex_lock(&queue.lock);
	while (queue.running && clock_ms() < end && wait_for_move())
		;
	pthread_mutex_unlock(&queue.lock);
}

/* At exit, and when the library is unloaded: no thread may be left in its code. After those without a priority, which may log. */
__attribute__((destructor(200))) static void at_end(void)
{
	bool join;

	log_writer_flush();
	pthread_mutex_lock(&queue.lock);
	queue.ending = true;
	pop(queue.used);
	while (queue.running && wait_for_move())
		;
	join = queue.started &&
	       !queue.running; /* else it is held in a write, and ends with the process */
	queue.started &= !join;
	pthread_mutex_unlock(&queue.lock);
	if (join)
		pthread_join(queue.thread, NULL);
}

/* ---- fork: the thread and the lines that wait are the parent's ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&queue.lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&queue.lock);
}

static void in_child(void)
{
	pthread_cond_init(&queue.moved, NULL);
	queue.from = queue.used = 0;
	queue.dropped = 0;
	queue.dropping = queue.failed = queue.running = queue.started = false;
	pthread_mutex_unlock(&queue.lock);
}

__attribute__((constructor)) static void at_begin(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}
