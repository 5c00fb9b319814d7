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

void shm_late_hold(struct transport_endpoint *endpoint)
{
	struct shm_endpoint *shm = endpoint->state;
	struct late_write *late = shm->late;
	struct hold *hold;

	shm_slot_refuse(shm->slot);
	if (!shm_late_busy(shm->slot))
		return;
	hold = late->state;
	*hold = (struct hold){
		.block = shm->place.block,
		.slot = shm->slot,
		.generation = shm_word_generation(atomic_load(&shm->slot->word)),
	};
	atomic_fetch_add(&hold->block->holders, 1);
	late->at = atomic_load(&shm->slot->writing_at);
	late->bytes = atomic_load(&shm->slot->writing);
	late->pid = shm_word_pid(atomic_load(&shm->slot->word));
	late->start = atomic_load(&shm->slot->start);
	late->pidfd = take_pidfd(shm, late->pid, late->start);
	snprintf(late->name, sizeof(late->name), "%s", endpoint->name);
	late->done = is_done;
	late->drop = let_go;
	late_hold(late);
	shm->late = NULL;
}
