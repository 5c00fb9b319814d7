/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.h -- which process made a record, and whether it still lives: host, pid namespace,
 * pid and start time. A pid alone may be somebody else by now.
 */
#ifndef TRANSPORT_IDENTITY_H
#define TRANSPORT_IDENTITY_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct identity {
	unsigned char boot[16]; /* of the host */
	uint64_t pid_namespace;
	uint64_t pid, start;    /* start: field 22 of /proc/<pid>/stat */
};

int identity_read(struct identity *identity, struct error *error);
/* Same host and pid namespace: only then do pids mean anything between the two. */
bool identity_comparable(const struct identity *a, const struct identity *b);
/* What tells two objects of one process apart, at most 256 bytes. `who` asks, for the message. */
int identity_random(void *out, size_t bytes, const char *who, struct error *error);
bool process_dead(uint64_t pid, uint64_t start);
bool process_exists(uint64_t pid);
/* A pidfd of exactly that process, or -1 where the kernel does not give one. */
int process_open(uint64_t pid, uint64_t start);
bool process_fd_dead(int pidfd);

#endif
