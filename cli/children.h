/* SPDX-License-Identifier: Apache-2.0
 *
 * children.h -- the processes that a command starts: a controller and workers. They die with
 * the parent; the first failure is kept and the others are ended.
 */
#ifndef CLI_CHILDREN_H
#define CLI_CHILDREN_H

#include "base/error.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct children {
	pid_t *pids;              /* 0 when reaped */
	size_t count, capacity;
	_Atomic uint32_t *failed; /* set when a child ends badly; shared with the children */
	char folder[64];          /* of the controller's port file; "" when none */
	int worst;                /* exit code of the first that failed */
};

int children_open(struct children *children, size_t most, _Atomic uint32_t *failed,
		  struct error *error);
/* Starts weft-controller (beside this program) on a free port of 127.0.0.1 with further arguments
 * (NULL-terminated, at most 32), waits until it listens, and gives its address. */
int children_controller(struct children *children, const char *const *arguments, char *address,
			size_t address_bytes, struct error *error);
/* As fork(): 0 in the child, which must end with _exit. */
pid_t children_fork(struct children *children, struct error *error);
/* Reaps what has ended, without blocking. */
void children_watch(void *children);
/* Waits for all; ERROR_TRANSPORT when any failed. */
int children_wait(struct children *children, struct error *error);
void children_close(struct children *children); /* kills what is left */

#endif
