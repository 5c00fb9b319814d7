/* SPDX-License-Identifier: Apache-2.0
 *
 * late.h -- memory that a write may still land in, after who owns it has closed everything.
 *
 * Most providers take memory back by themselves: a queue pair is destroyed, a mapping is of a file that is
 * never shown again. What cannot be taken back from a process that lives is another process's call that
 * is about to write host memory, or a device that does not let go of it. Then the range is kept here, for
 * the whole process and whatever is opened in it later, with who holds it:
 *
 *   endpoint or region closed ─► late_hold ─► transport_memory_check refuses what overlaps it
 *                                    │
 *                                    └── its process has ended, or said that the write is done ─► gone
 *
 * Whoever may have to hold a range allocates its entry beforehand: closing never fails for want of memory.
 */
#ifndef TRANSPORT_LATE_H
#define TRANSPORT_LATE_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct late_write {
	uintptr_t at;
	uint64_t bytes;
	char name[96];             /* who: "trainer 3 (host b)", or a device */
	uint64_t pid, start;       /* of that process; pid 0: a device, until this process ends */
	int pidfd;                 /* of it, or -1; closed when the entry goes */
	bool (*done)(void *state); /* the writer has said so; NULL: never */
	void (*drop)(void *state); /* when the entry goes; NULL: nothing to do */
	void *state;
	struct late_write *next;
};

/* With that much room at `state`. memory_free it, or late_hold it. NULL: out of memory. */
struct late_write *late_new(size_t state_bytes);
/* Takes the entry over. Any thread. */
void late_hold(struct late_write *entry);
/* 0, or ERROR_UNSAFE with who may write where, and what to do. Any thread. */
int late_check(const void *memory, uint64_t bytes, struct error *error);
/* A forked child's memory is written by nobody. In the child, from its fork handler. */
void late_forked(void);

#endif
