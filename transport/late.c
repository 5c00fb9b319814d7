/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/late.h"

#include "base/memory.h"
#include "transport/identity.h"
#include "transport/transport.h"

#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late_write *held;

struct late_write *late_new(size_t state_bytes)
{
	struct late_write *entry = memory_zalloc(1, sizeof(*entry) + state_bytes);

	if (entry) {
		entry->pidfd = -1;
		entry->state = entry + 1;
	}
	return entry;
}

/* Only what was proved counts: a process that cannot be asked lives. */
static bool is_over(const struct late_write *entry)
{
	if (entry->done && entry->done(entry->state))
		return true;
	if (entry->pidfd >= 0)
		return process_fd_dead(entry->pidfd);
	return entry->pid && process_dead(entry->pid, entry->start);
}

static void drop(struct late_write *entry)
{
	if (entry->drop)
		entry->drop(entry->state);
	if (entry->pidfd >= 0)
		close(entry->pidfd);
	memory_free(entry);
}

static void drop_what_is_over(void)
{
	for (struct late_write **place = &held; *place;) {
		struct late_write *entry = *place;

		if (!is_over(entry)) {
			place = &entry->next;
			continue;
		}
		*place = entry->next;
		drop(entry);
	}
}

void late_hold(struct late_write *entry)
{
	pthread_mutex_lock(&lock);
	drop_what_is_over();
	entry->next = held;
	held = entry;
	pthread_mutex_unlock(&lock);
}

static int refuse(const struct late_write *entry, const void *memory, uint64_t bytes,
		  struct error *error)
{
	if (!entry->pid)
		return error_set(error, ERROR_UNSAFE,
				 "%" PRIu64 " bytes at %p: %s has not let go of %" PRIu64
				 " bytes at %p, so what is under way may land there until this "
				 "process ends: use other memory, and neither free nor reuse this",
				 bytes, memory, entry->name, entry->bytes, (void *)entry->at);
	return error_set(error, ERROR_UNSAFE,
			 "%" PRIu64 " bytes at %p: %s (process %" PRIu64
			 ", stopped or stuck) is about to write %" PRIu64
			 " bytes at %p for a job that is over, and will when it goes on: end that "
			 "process (kill -9 %" PRIu64
			 ") or use other memory; until it has ended, neither free nor reuse this",
			 bytes, memory, entry->name, entry->pid, entry->bytes, (void *)entry->at,
			 entry->pid);
}

/* Ends are compared as lengths: a range that a peer told us may reach beyond all memory. */
static bool overlap(const struct late_write *entry, uintptr_t at, uint64_t bytes)
{
	return at >= entry->at ? at - entry->at < entry->bytes : entry->at - at < bytes;
}

int late_check(const void *memory, uint64_t bytes, struct error *error)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	drop_what_is_over();
	for (const struct late_write *entry = held; entry && !rc; entry = entry->next)
		if (overlap(entry, (uintptr_t)memory, bytes))
			rc = refuse(entry, memory, bytes, error);
	pthread_mutex_unlock(&lock);
	return rc;
}

int transport_memory_check(const void *memory, uint64_t bytes, struct error *error)
{
	return late_check(memory, bytes, error);
}

void late_forked(void)
{
	pthread_mutex_init(&lock, NULL);
	held = NULL;
}
