/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h -- how every function of the project fails.
 *
 * A function that can fail returns int: 0 done; negative (-code) fatal for the call, with the
 * message in *error; positive a documented answer that the caller must handle. Messages are
 * built where the fact is known (what, where, value seen and needed, what to change) and are
 * wrapped on the way up, never replaced. `struct error *` is the last parameter; NULL is fine.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>

#define ERROR_TEXT_BYTES 1024

/* name, number (stable: it is public and stands in messages as WEFT-Ennn), exit code, words.
 * Exit codes: 1 failed, 2 usage, 75 try again (network, deadline), 78 bad configuration. */
#define ERROR_CODES(X)                                                                     \
	X(USAGE, 101, 2, "wrong usage")                                                    \
	X(CONFIG, 102, 78, "bad configuration")                                            \
	X(STATE, 103, 1, "call out of order")                                              \
	X(FILE, 110, 1, "malformed file")                                                  \
	X(IO, 111, 1, "input or output failed")                                            \
	X(MEMORY, 112, 1, "out of memory")                                                 \
	X(MESSAGE, 120, 1, "malformed message")                                            \
	X(JOB, 121, 78, "worker of another job")                                           \
	X(WIRE_VERSION, 122, 78, "other wire version")                                     \
	X(DUPLICATE_RANK, 123, 78, "rank claimed twice")                                   \
	X(CONFLICT, 124, 78, "declarations contradict each other")                         \
	X(UNSOURCED, 125, 78, "engine parameter without a source")                         \
	X(UNPROVED, 126, 1, "routing table refused by the proof")                          \
	X(LIMIT, 127, 78, "a limit was exceeded")                                          \
	X(TIMEOUT, 130, 75, "deadline passed")                                             \
	X(PEER_LOST, 131, 75, "a worker was lost")                                         \
	X(CONTROLLER_LOST, 132, 75, "the controller was lost")                             \
	X(TRANSPORT, 140, 75, "transfer failed")                                           \
	X(UNSUPPORTED, 141, 78, "not possible here")                                       \
	X(BOUNDS, 142, 1, "write outside a region")                                        \
	X(CHECKSUM, 150, 1, "bytes differ from what they must be")                         \
	X(VERSION, 151, 1, "version out of order")                                         \
	X(ABORTED, 152, 1, "update aborted")                                               \
	X(INTERRUPTED, 153, 75, "interrupted")                                             \
	X(POST_LOAD, 154, 1, "the host's post-load hook failed")                           \
	X(UNSAFE, 155, 75, "memory may still be written")                                  \
	X(HOST, 156, 1, "the host program failed")                                         \
	X(INTERNAL, 199, 1, "a bug in weft")

enum error_code {
	ERROR_NONE = 0,
#define X(name, number, exit_code, words) ERROR_##name = number,
	ERROR_CODES(X)
#undef X
};

struct error {
	enum error_code code;
	char text[ERROR_TEXT_BYTES]; /* one message, no newline; cut with "..." when too long */
};

/* Sets *error and returns -code. */
int error_set(struct error *error, enum error_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* As error_set, with ": <strerror(errnum)>" appended. */
int error_set_errno(struct error *error, enum error_code code, int errnum,
		    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Puts "<prefix>: " before the message; keeps the code; returns -code. */
int error_wrap(struct error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same failure once more: copies it out and returns -code. */
int error_copy(struct error *error, const struct error *failure);
int error_vset(struct error *error, enum error_code code, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

const char *error_strerror(enum error_code code); /* "deadline passed"; "unknown error" if none */
int error_exit_code(enum error_code code);      /* 0 for ERROR_NONE, 1 for unknown codes */
bool error_known(int code);

#endif
