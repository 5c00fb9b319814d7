/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.c -- the pages that peers signal into: blocks of slots, grown when full.
 */
#include "transport/shm/shm.h"

enum { SLOT_FREE, SLOT_USED, SLOT_WAITS };

int shm_mailbox_grow(struct shm_domain *domain, struct error *error)
{
	struct shm_block **at = array_push(&domain->blocks), *block;
	struct shm_block_head *head;
	int rc;

	if (!at)
		return memory_error(error, "adding a mailbox", sizeof(*at));
	*at = block = memory_zalloc(1, sizeof(*block));
	rc = block ? shm_memfd_create(&block->memfd, "a mailbox", SHM_BLOCK_BYTES, error)
		   : memory_error(error, "adding a mailbox", sizeof(*block));
	if (rc) {
		memory_free(block);
		domain->blocks.count--;
		return rc;
	}
	atomic_store(&block->holders, 1);
	head = (struct shm_block_head *)(void *)block->memfd.memory;
	head->magic = SHM_BLOCK_MAGIC;
	memcpy(head->cookie, block->memfd.cookie, sizeof(head->cookie));
	return 0;
}

void shm_block_drop(struct shm_block *block)
{
	if (atomic_fetch_sub(&block->holders, 1) != 1)
		return;
	shm_memfd_close(&block->memfd);
	memory_free(block);
}

void shm_mailbox_close(struct shm_domain *domain)
{
	array_each(block, &domain->blocks)
		shm_block_drop(*block);
	array_free(&domain->blocks);
}

struct doorbell *shm_mailbox_doorbell(const struct shm_domain *domain)
{
	void *memory = domain->blocks.items[0]->memfd.memory;

	return &((struct shm_block_head *)memory)->doorbell;
}

struct shm_slot *shm_slot_at(struct shm_place place)
{
	return (struct shm_slot *)(void *)(place.block->memfd.memory + SHM_HEAD_BYTES) +
	       place.index;
}

bool shm_slot_quiet(struct shm_slot *slot)
{
	uint64_t word = atomic_load(&slot->word);
	uint64_t start = atomic_load(&slot->start);

	if (shm_word_state(word) != SHM_CONNECTED)
		return shm_word_state(word) != SHM_OPEN;
	/* claimed, and its start time not written yet: dead only if no process has that
	 * pid */
	if (!start)
		return !process_exists(shm_word_pid(word));
	return process_dead(shm_word_pid(word), start);
}

void shm_slot_refuse(struct shm_slot *slot)
{
	uint64_t word = atomic_load(&slot->word);

	atomic_store(&slot->stop, 1);
	if (shm_word_state(word) == SHM_OPEN)
		atomic_compare_exchange_strong(&slot->word, &word,
					       shm_word(shm_word_generation(word), 0, SHM_FENCED));
}

static void open_slot(struct shm_slot *slot)
{
	uint64_t generation = shm_word_generation(atomic_load(&slot->word)) + 1;

	mailbox_clear(&slot->mailbox);
	atomic_store(&slot->start, 0);
	atomic_store(&slot->stop, 0);
	atomic_store(&slot->probe_mapped, 0);
	atomic_store(&slot->probe_process, 0);
	atomic_store(&slot->writing, 0);
	atomic_store(&slot->word, shm_word(generation, 0, SHM_OPEN));
}

static bool find_free(struct shm_domain *domain, struct shm_place *place)
{
	array_each(block, &domain->blocks) {
		for (uint32_t i = 0; i < SHM_BLOCK_SLOTS; i++) {
			unsigned char *used = &(*block)->used[i];

			*place = (struct shm_place){*block, i};
			/* closed here before its peer was: perhaps the peer is done by
			 * now */
			if (*used == SLOT_WAITS && shm_slot_quiet(shm_slot_at(*place)))
				*used = SLOT_FREE;
			if (*used == SLOT_FREE)
				return true;
		}
	}
	return false;
}

int shm_slot_take(struct shm_domain *domain, struct shm_place *place, struct error *error)
{
	while (!find_free(domain, place)) {
		int rc = shm_mailbox_grow(domain, error);

		if (rc)
			return rc;
	}
	place->block->used[place->index] = SLOT_USED;
	open_slot(shm_slot_at(*place));
	return 0;
}

void shm_slot_give(struct shm_place place)
{
	struct shm_slot *slot = shm_slot_at(place);

	shm_slot_refuse(slot);
	place.block->used[place.index] = shm_slot_quiet(slot) ? SLOT_FREE : SLOT_WAITS;
}
