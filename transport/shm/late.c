/* SPDX-License-Identifier: Apache-2.0
 *
 * late.c -- a peer that is in the middle of a write when its endpoint closes here.
 *
 * It cannot be made not to write: only its own word that it is through, or its death, says that it will
 * not. Its word lies in the slot, so the mailbox block stays mapped for as long: under the very address
 * that a probe, which writes the slot itself, would hit.
 */
#include "transport/late.h"
#include "transport/shm/turn.h"

#include <stdio.h>

/* What is_done needs when domain and endpoint are gone. */
struct hold {
	struct shm_block *block;
	struct shm_slot *slot;
	uint64_t generation;
};

static bool is_done(void *state)
{
	const struct hold *hold = state;

	/* a slot is given to another peer when this one closed it, and so is through, or has died */
	return !shm_turn_busy(hold->slot) ||
	       shm_word_generation(atomic_load(&hold->slot->word)) != hold->generation;
}

static void let_go(void *state)
{
	const struct hold *hold = state;

	shm_block_drop(hold->block);
}

struct late_write *shm_late_new(void)
{
	return late_new(sizeof(struct hold));
}

bool shm_late_busy(struct shm_slot *slot)
{
	return shm_turn_busy(slot) && !shm_slot_quiet(slot);
}

/* The peer's pidfd, opened when the endpoint connected; else, if only the peer had connected, a new one. */
static int take_pidfd(struct shm_endpoint *shm, uint64_t pid, uint64_t start)
{
	int fd = shm->pidfd;

	if (fd < 0 || shm->peer.identity.pid != pid || shm->peer.identity.start != start)
		return process_open(pid, start);
	shm->pidfd = -1;
	return fd;
}

/* Of what a mapping can still write a slot says nothing: only that its peer closed, or died. */
static bool is_quiet(void *state)
{
	const struct hold *hold = state;

	return shm_word_generation(atomic_load(&hold->slot->word)) != hold->generation ||
	       shm_slot_quiet(hold->slot);
}

static void hold_range(struct transport_endpoint *endpoint, struct late_write *late, uintptr_t at,
		       uint64_t bytes, bool (*done)(void *state))
{
	struct shm_endpoint *shm = endpoint->state;
	struct hold *hold = late->state;

	*hold = (struct hold){
		.block = shm->place.block,
		.slot = shm->slot,
		.generation = shm_word_generation(atomic_load(&shm->slot->word)),
	};
	atomic_fetch_add(&hold->block->holders, 1);
	late->at = at;
	late->bytes = bytes;
	late->pid = shm_word_pid(atomic_load(&shm->slot->word));
	late->start = atomic_load(&shm->slot->start);
	late->pidfd = take_pidfd(shm, late->pid, late->start);
	snprintf(late->name, sizeof(late->name), "%s", endpoint->name);
	late->done = done;
	late->drop = let_go;
	late_hold(late);
}

void shm_late_hold(struct transport_endpoint *endpoint)
{
	struct shm_endpoint *shm = endpoint->state;

	shm_slot_refuse(shm->slot);
	if (!shm_late_busy(shm->slot))
		return;
	hold_range(endpoint, shm->late, atomic_load(&shm->slot->writing_at),
		   atomic_load(&shm->slot->writing), is_done);
	shm->late = NULL;
}

void shm_late_hold_mapped(struct transport_endpoint *endpoint, struct late_write **late,
			  uintptr_t at, uint64_t bytes)
{
	struct shm_endpoint *shm = endpoint->state;

	shm_slot_refuse(shm->slot);
	if (!bytes || shm_slot_quiet(shm->slot))
		return;
	hold_range(endpoint, *late, at, bytes, is_quiet);
	*late = NULL;
}
