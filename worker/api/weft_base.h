/* SPDX-License-Identifier: Apache-2.0
 *
 * weft_base.h -- what all of weft.h rests on: versions, sized structs, errors, memory. Include weft.h.
 */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_API __attribute__((visibility("default")))

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 2
#define WEFT_VERSION_PATCH 0

WEFT_API const char *weft_version_text(void); /* [any thread] "0.2.0" */

/* ---- structs that cross the border ----
 *
 * Each begins with its size, the caller's sizeof: WEFT_STATS_INIT and its like set it, and zero the
 * rest. New fields come at the end, so a program and a library of different age understand each other:
 *
 *   a struct given    shorter than the library's: the fields it lacks are 0, which is their default.
 *                     Longer: what the library does not know must be 0, or the call is WEFT_E_USAGE
 *                     naming struct, both sizes and the byte. Nothing that was asked for is dropped.
 *   a struct filled   as far as it reaches; what the library does not know is set to 0.
 *   an array          comes with its stride, the caller's sizeof; each element has its size too.
 *
 * A size that no version of the struct had (0: forgotten) is WEFT_E_USAGE. */
#ifdef __cplusplus
extern "C++" {
template <typename Sized> inline Sized weft_sized()
{
	Sized sized = Sized();

	sized.size = sizeof(Sized);
	return sized;
}
}
#define WEFT_INIT(type) weft_sized<type>()
#else
#define WEFT_INIT(type) {.size = sizeof(type)}
#endif

/* ---- errors ---- */

enum weft_code {
	WEFT_OK = 0,
	WEFT_E_USAGE = 101,           /* a wrong argument */
	WEFT_E_CONFIG = 102,          /* bad configuration: flag, spec, variable */
	WEFT_E_STATE = 103,           /* call out of order; nothing changed */
	WEFT_E_FILE = 110,            /* malformed file */
	WEFT_E_IO = 111,
	WEFT_E_MEMORY = 112,
	WEFT_E_MESSAGE = 120,         /* malformed message from a peer */
	WEFT_E_JOB = 121,             /* the controller serves another job */
	WEFT_E_WIRE_VERSION = 122,
	WEFT_E_DUPLICATE_RANK = 123,
	WEFT_E_CONFLICT = 124,        /* declarations contradict each other */
	WEFT_E_UNSOURCED = 125,       /* an engine parameter that nobody can source */
	WEFT_E_UNPROVED = 126,
	WEFT_E_LIMIT = 127,
	WEFT_E_TIMEOUT = 130,         /* names who is missing */
	WEFT_E_PEER_LOST = 131,       /* the job has lost a worker: close, and start again */
	WEFT_E_CONTROLLER_LOST = 132,
	WEFT_E_TRANSPORT = 140,
	WEFT_E_UNSUPPORTED = 141,
	WEFT_E_BOUNDS = 142,
	WEFT_E_CHECKSUM = 150,        /* nothing was published; the rank is tainted */
	WEFT_E_VERSION = 151,         /* version out of order; nothing changed */
	WEFT_E_ABORTED = 152,         /* the trainer gave the update up; the rank is tainted */
	WEFT_E_INTERRUPTED = 153,     /* weft_interrupt was called */
	WEFT_E_POST_LOAD = 154,       /* the host's own hook failed; nothing was published */
	WEFT_E_UNSAFE = 155,          /* a process that was given up may still write this memory */
	WEFT_E_HOST = 156,            /* a host program gave up (weft_fail) */
	WEFT_E_INTERNAL = 199
};

/* Filled by a call that failed; else untouched. */
typedef struct weft_error {
	size_t size;
	int code;          /* enum weft_code */
	uint32_t reserved; /* 0 */
	char text[1024];   /* one message: what, where, value seen and needed, what to change */
} weft_error;
#define WEFT_ERROR_INIT WEFT_INIT(weft_error)

WEFT_API const char *weft_strerror(int code);    /* [any thread] "deadline passed" */
/* [any thread] Exit code a program should end with: 1 failed, 2 usage, 75 try again, 78 bad
 * configuration. */
WEFT_API int weft_exit_code(int code);

/* ---- memory ---- */

enum weft_memory_kind {
	WEFT_MEMORY_HOST = 1,
	WEFT_MEMORY_CUDA = 2 /* of a GPU: for workers that are opened with one (weft_options.memory) */
};

/* Memory that the host program hands in. */
typedef struct weft_memory {
	size_t size;
	uint32_t kind;  /* enum weft_memory_kind; 0 is WEFT_E_USAGE */
	int32_t device; /* cuda: its number; host: 0 */
	void *pointer;  /* what weft only reads it does not write to */
	uint64_t bytes;
	void *stream;   /* cuda: a cudaStream_t, and what is queued on it comes first (NULL: the default stream);
			   host: NULL */
} weft_memory;
#define WEFT_MEMORY_INIT WEFT_INIT(weft_memory)

static inline weft_memory weft_host_memory(const void *pointer, uint64_t bytes)
{
	weft_memory memory = WEFT_MEMORY_INIT;

	memory.kind = WEFT_MEMORY_HOST;
	memory.pointer = (void *)(uintptr_t)pointer;
	memory.bytes = bytes;
	return memory;
}

/* Any part of an allocation: cudaMalloc's, a caching allocator's block, mapped memory. */
static inline weft_memory weft_cuda_memory(int32_t device, const void *pointer, uint64_t bytes, void *stream)
{
	weft_memory memory = weft_host_memory(pointer, bytes);

	memory.kind = WEFT_MEMORY_CUDA;
	memory.device = device;
	memory.stream = stream;
	return memory;
}

/* ---- log ---- */

enum weft_log_level {
	WEFT_LOG_ERROR = 1,
	WEFT_LOG_WARN = 2,
	WEFT_LOG_INFO = 3,
	WEFT_LOG_DEBUG = 4
};

typedef struct weft_log_field {
	size_t size;
	const char *key, *value;
} weft_log_field;

/* One line. Strings live as long as the call. */
typedef struct weft_log_entry {
	size_t size;       /* the library's: fields behind it are not there */
	uint64_t time_ms;  /* since 1970, UTC */
	enum weft_log_level level;
	uint32_t reserved;
	const char *who;   /* the worker whose line it is: "t3" trainer, "i0" inference rank; "" none */
	const char *text;
	/* All of it as text: time_ms, level, program, host, pid, who, message, role, rank, job, code ("WEFT-E130"), repeats
	 * (lines like this one that were not shown); "" where there is none; more may come. Field i is
	 * at (const char *)fields + i * field_stride. */
	const weft_log_field *fields;
	size_t field_count, field_stride;
} weft_log_entry;

/* Called with one line at a time, of any worker of the process, on whatever thread it comes from (the
 * host's inside a call, or one of the library's), with a lock held: be quick, and call nothing of this
 * library. */
typedef void weft_log_sink(void *context, const weft_log_entry *entry);

/* [any thread] Lines of this process go to the sink and no more to standard error ($WEFT_LOG_FILE);
 * those below `level` are not made. sink NULL: back to there. level 0: what $WEFT_LOG says ("error",
 * "warn", the default, "info", "debug"). When it returns, the sink before is not running and will not
 * be called again. Inside of a sink it is WEFT_E_STATE. */
WEFT_API int weft_set_log(weft_log_sink *sink, void *context, enum weft_log_level level,
			  weft_error *error);

/* [any thread] Lines that go to standard error ($WEFT_LOG_FILE) are "text", or "json": one object a line. NULL: as
 * $WEFT_LOG_FORMAT says, and without that text. Else WEFT_E_CONFIG. */
WEFT_API int weft_set_log_format(const char *format, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
