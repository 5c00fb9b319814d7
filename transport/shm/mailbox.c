/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.c -- the pages that peers signal into: blocks of slots, grown when full.
 */
#include "transport/shm/shm.h"

enum { SLOT_FREE, SLOT_USED, SLOT_WAITS };

static struct shm_slot *block_slot(const struct shm_block *block, uint32_t index)
{
	return (struct shm_slot *)(void *)(block->memfd.memory + SHM_HEAD_BYTES) + index;
}

int shm_mailbox_grow(struct shm_domain *domain, struct error *error)
{
	struct shm_block *block = memory_zalloc(1, sizeof(*block)), **place;
	struct shm_block_head *head;
	int rc;

	if (!block)
		return memory_error(error, "adding a mailbox", sizeof(*block));
	rc = shm_memfd_create(&block->memfd, "a mailbox", SHM_BLOCK_BYTES, error);
	if (rc) {
		memory_free(block);
		return rc;
	}
	place = array_push(&domain->blocks);
	if (!place) {
		shm_memfd_close(&block->memfd);
		memory_free(block);
		return memory_error(error, "adding a mailbox", sizeof(*place));
	}
	head = (struct shm_block_head *)(void *)block->memfd.memory;
	head->magic = SHM_BLOCK_MAGIC;
	memcpy(head->cookie, block->memfd.cookie, sizeof(head->cookie));
	*place = block;
	return 0;
}

void shm_mailbox_close(struct shm_domain *domain)
{
	for (size_t i = 0; i < domain->blocks.count; i++) {
		shm_memfd_close(&domain->blocks.items[i]->memfd);
		memory_free(domain->blocks.items[i]);
	}
	array_free(&domain->blocks);
}

struct doorbell *shm_mailbox_doorbell(const struct shm_domain *domain)
{
	void *memory = domain->blocks.items[0]->memfd.memory;

	return &((struct shm_block_head *)memory)->doorbell;
}

struct shm_slot *shm_slot_at(const struct shm_domain *domain, struct shm_place place)
{
	return block_slot(domain->blocks.items[place.block], place.index);
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
	atomic_store(&slot->word, shm_word(generation, 0, SHM_OPEN));
}

static bool find_free(struct shm_domain *domain, struct shm_place *place)
{
	for (uint32_t b = 0; b < domain->blocks.count; b++) {
		struct shm_block *block = domain->blocks.items[b];

		for (uint32_t i = 0; i < SHM_BLOCK_SLOTS; i++) {
			/* closed here before its peer was: perhaps the peer is done by
			 * now */
			if (block->used[i] == SLOT_WAITS && shm_slot_quiet(block_slot(block, i)))
				block->used[i] = SLOT_FREE;
			if (block->used[i] == SLOT_FREE) {
				*place = (struct shm_place){b, i};
				return true;
			}
		}
	}
	return false;
}

int shm_slot_take(struct shm_domain *domain, struct shm_place *place, struct error *error)
{
	if (!find_free(domain, place)) {
		int rc = shm_mailbox_grow(domain, error);

		if (rc)
			return rc;
		*place = (struct shm_place){(uint32_t)domain->blocks.count - 1, 0};
	}
	domain->blocks.items[place->block]->used[place->index] = SLOT_USED;
	open_slot(shm_slot_at(domain, *place));
	return 0;
}

void shm_slot_give(struct shm_domain *domain, struct shm_place place)
{
	struct shm_slot *slot = shm_slot_at(domain, place);

	shm_slot_refuse(slot);
	domain->blocks.items[place.block]->used[place.index] =
		shm_slot_quiet(slot) ? SLOT_FREE : SLOT_WAITS;
}
