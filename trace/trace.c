/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pattern.h"
#include "base/plain.h"
#include "base/threads.h"
#include "base/trouble.h"
#include "trace/trace_line.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define FLUSH_MS   200u
#define LANES	   4096u /* that have a name; a power of two */
#define PATH_BYTES 4096

/* An event, or with a name of its own the lane that it is on. */
struct entry {
	uint32_t tid;
	bool names; /* event.text is the lane's name */
	struct trace_event event;
};

struct trace {
	int file, pid;
	uint32_t process; /* that opened it: processes_seen then */
	char *file_name;  /* as a message calls it */
	pthread_t writer;
	bool writes; /* that thread runs */
	bool failed; /* the file took no more; the writer's */
	uint64_t written;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under lock */
	struct entry *entries, *spare; /* TRACE_EVENTS each: filled, and written */
	uint32_t count;
	uint64_t dropped, told; /* told: of those, in the file */
	uint32_t named[LANES];	/* tids, by hash; 0: free */
	uint32_t named_count;
	bool stop;
};

static _Atomic uint32_t threads_seen;
static _Atomic uint32_t
	processes_seen; /* forks that this one came by: a system call for each event would be dear */
static _Thread_local uint32_t thread_number; /* from 1 */

static void in_child(void)
{
	atomic_fetch_add(&processes_seen, 1);
}

__attribute__((constructor)) static void at_begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* A forked child has the buffer and not the thread, and the lock as it was. */
static bool is_ours(const struct trace *trace)
{
	return trace &&
	       trace->process == atomic_load_explicit(&processes_seen, memory_order_relaxed);
}

/* ---- who adds ---- */

static uint32_t this_thread(void)
{
	if (!thread_number)
		thread_number = atomic_fetch_add(&threads_seen, 1) + 1;
	return thread_number < TRACE_THREADS ? thread_number - 1 : TRACE_THREADS - 1;
}

/* Under the lock. True: it had no name before. */
static bool names_lane(struct trace *trace, uint32_t tid)
{
	uint32_t at = tid * 2654435761u % LANES;

	while (trace->named[at] && trace->named[at] != tid)
		at = (at + 1) % LANES;
	if (trace->named[at] || trace->named_count >= LANES / 2)
		return false;
	trace->named[at] = tid;
	trace->named_count++;
	return true;
}

static bool push(struct trace *trace, uint32_t tid, const struct trace_event *event)
{
	if (trace->count == TRACE_EVENTS) {
		trace->dropped++;
		return false;
	}
	trace->entries[trace->count].tid = tid;
	trace->entries[trace->count].names = false;
	trace->entries[trace->count++].event = *event;
	return true;
}

/* Viewers leave out the midst of a long name: who it is stands in front, the thread at its end. */
static void push_lane(struct trace *trace, uint32_t tid, const char *name)
{
	struct trace_event lane = {.name = ""};
	char whole[TRACE_TEXT_BYTES];

	snprintf(whole, sizeof(whole), tid % TRACE_LANE_STEP ? "%.80s #%u" : "%.87s", name,
		 tid % TRACE_LANE_STEP + 1);
	trace_text(&lane, whole);
	if (push(trace, tid, &lane))
		trace->entries[trace->count - 1].names = true;
}

void trace_text(struct trace_event *event, const char *text)
{
	size_t n = 0;

	while (n < sizeof(event->text) && text[n] >= 0x20 && text[n] < 0x7f)
		n++;
	if (n < sizeof(event->text) && !text[n])
		memcpy(event->text, text, n + 1);
	else
		plain_put(event->text, sizeof(event->text), text);
}

void trace_add(struct trace *trace, const struct trace_event *event, const char *lane_name)
{
	uint32_t tid;

	if (!is_ours(trace))
		return;
	tid = event->lane * TRACE_LANE_STEP + (event->by_thread ? this_thread() : 0);
	pthread_mutex_lock(&trace->lock);
	if (trace->count < TRACE_EVENTS && names_lane(trace, tid))
		push_lane(trace, tid, lane_name);
	push(trace, tid, event);
	if (trace->count == TRACE_EVENTS / 2)
		pthread_cond_signal(&trace->changed);
	pthread_mutex_unlock(&trace->lock);
}

/* ---- the file ---- */

static bool write_all(int file, const char *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(file, data, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* A disk that is full is told once. */
static void put(struct trace *trace, struct text *text)
{
	int why = ENOMEM;

	if (!trace->failed && text_ok(text) && write_all(trace->file, text->data, text->bytes))
		return;
	why = text_ok(text) ? errno : why;
	if (trace->failed)
		return;
	log_warn("%s: the trace ends here, since it could not be written: %s", trace->file_name,
		 strerror(why));
	trouble_set(TROUBLE_TRACE, "%s: the trace has ended, since it could not be written: %s",
		    trace->file_name, strerror(why));
	trace->failed = true;
}

/* What was taken out of the buffer. */
static void write_entries(struct trace *trace, const struct entry *entries, uint32_t count,
			  uint64_t dropped)
{
	struct text text = {0};

	for (uint32_t i = 0; i < count; i++) {
		if (entries[i].names)
			trace_line_lane(&text, trace->pid, entries[i].tid, entries[i].event.text);
		else
			trace_line_event(&text, trace->pid, entries[i].tid, &entries[i].event);
		trace->written += !entries[i].names;
	}
	if (dropped)
		trace_line_dropped(&text, trace->pid, clock_ns(), dropped);
	if (count || dropped)
		put(trace, &text);
	text_fini(&text);
}

/* With the lock held, which it drops meanwhile. */
static void flush(struct trace *trace)
{
	struct entry *filled = trace->entries;
	uint32_t count = trace->count;
	uint64_t dropped = trace->dropped - trace->told;

	trace->entries = trace->spare;
	trace->spare = filled;
	trace->count = 0;
	trace->told = trace->dropped;
	pthread_mutex_unlock(&trace->lock);
	write_entries(trace, filled, count, dropped);
	pthread_mutex_lock(&trace->lock);
}

static void *write_file(void *context)
{
	struct trace *trace = context;
	bool stop = false;

	pthread_setname_np(pthread_self(), "weft-trace");
	pthread_mutex_lock(&trace->lock);
	while (!stop) {
		uint64_t until = clock_deadline_ns(FLUSH_MS);
		const struct timespec at = {(time_t)(until / 1000000000u),
					    (long)(until % 1000000000u)};
		int rc = 0;

		while (!trace->stop && !rc && trace->count < TRACE_EVENTS / 2)
			rc = pthread_cond_timedwait(&trace->changed, &trace->lock, &at);
		stop = trace->stop;
		flush(trace);
	}
	pthread_mutex_unlock(&trace->lock);
	return NULL;
}

/* ---- life ---- */

static void begin_file(struct trace *trace, const struct trace_options *options)
{
	struct trace_process process = {.pid = trace->pid,
					.job = options->job,
					.role = options->role,
					.rank = options->rank,
					.wall_ns = clock_wall_ns(),
					.clock_ns = clock_ns()};
	char host[65] = "", plain[65], boot[64];
	struct text text = {0};

	if (gethostname(host, sizeof(host) - 1) || !host[0])
		snprintf(host, sizeof(host), "unknown");
	plain_put(plain, sizeof(plain), host);
	if (file_read_small("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) <= 0)
		snprintf(boot, sizeof(boot), "host:%.50s", plain);
	boot[strcspn(boot, "\n")] = '\0';
	process.host = plain;
	process.boot = boot;
	trace_line_begin(&text, &process);
	put(trace, &text);
	text_fini(&text);
}

static int open_file(struct trace *trace, const struct trace_options *options, struct error *error)
{
	char path[PATH_BYTES];

	if (!pattern_expand(path, sizeof(path), options->file, options->who))
		return error_set(error, ERROR_CONFIG, "%s: the path is too long",
				 options->file_name);
	trace->file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	/* one variable for many processes is easily set so; a file system without locks cannot say */
	if (trace->file >= 0 && flock(trace->file, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return error_set(
			error, ERROR_CONFIG,
			"%s: '%.200s' is being written by another worker: give each a file "
			"of its own, with %%r (role and rank) in its name",
			options->file_name, path);
	if (trace->file < 0 || (ftruncate(trace->file, 0) && errno != EINVAL))
		return error_set_errno(error, ERROR_IO, errno,
				       "%s: cannot write '%.200s' (give a file in a folder that "
				       "this process may write to)",
				       options->file_name, path);
	begin_file(trace, options);
	return 0;
}

static int allocate(struct trace *trace, const struct trace_options *options, struct error *error)
{
	trace->entries = memory_zalloc(TRACE_EVENTS, sizeof(*trace->entries));
	trace->spare = memory_zalloc(TRACE_EVENTS, sizeof(*trace->spare));
	trace->file_name = memory_string(options->file_name);
	if (trace->entries && trace->spare && trace->file_name)
		return 0;
	return memory_error(error, "opening a trace", 2 * TRACE_EVENTS * sizeof(*trace->entries));
}

int trace_open(struct trace **out, const struct trace_options *options, struct error *error)
{
	pthread_condattr_t attributes;
	struct trace *trace;
	int rc, why;

	*out = NULL;
	if (!options->file || !*options->file || !strcmp(options->file, "off"))
		return 0;
	trace = *out = memory_zalloc(1, sizeof(*trace));
	if (!trace)
		return memory_error(error, "opening a trace", sizeof(*trace));
	trace->file = -1;
	trace->pid = (int)getpid();
	trace->process = atomic_load(&processes_seen);
	pthread_mutex_init(&trace->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&trace->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	rc = allocate(trace, options, error);
	if (!rc)
		rc = open_file(trace, options, error);
	if (!rc) {
		why = threads_start(&trace->writer, write_file, trace);
		trace->writes = !why;
		if (why)
			rc = error_set_errno(error, ERROR_LIMIT, why, "%s: a thread that writes it",
					     options->file_name);
	}
	if (rc)
		trace_close(out);
	return rc;
}

static void end_file(struct trace *trace)
{
	struct text text = {0};

	trace_line_end(&text, trace->pid, trace->written, trace->dropped);
	put(trace, &text);
	text_fini(&text);
}

void trace_close(struct trace **out)
{
	struct trace *trace = *out;

	*out = NULL;
	if (!is_ours(trace))
		return;
	if (trace->writes) {
		pthread_mutex_lock(&trace->lock);
		trace->stop = true;
		pthread_cond_broadcast(&trace->changed);
		pthread_mutex_unlock(&trace->lock);
		pthread_join(trace->writer, NULL);
		end_file(trace);
	}
	if (trace->file >= 0)
		close(trace->file);
	pthread_cond_destroy(&trace->changed);
	pthread_mutex_destroy(&trace->lock);
	memory_free(trace->file_name);
	memory_free(trace->spare);
	memory_free(trace->entries);
	memory_free(trace);
}
