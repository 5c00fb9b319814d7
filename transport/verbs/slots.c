/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c -- memory that peers signal into, in blocks that are registered once on every NIC:
 *
 *   block    [ probe area, anybody may overwrite it ][ slot ][ slot ] ...
 *
 * Never with relaxed ordering: a signal must not overtake itself.
 */
#include "transport/verbs/verbs.h"

#include "base/log.h"

_Static_assert(sizeof(struct verbs_slot) % 64 == 0, "slots begin on cache lines");

static void unregister(struct verbs_domain *domain, struct verbs_block *block)
{
	for (uint32_t i = 0; i < VERBS_NICS_MAX; i++) {
		if (block->mrs[i] && domain->calls->dereg_mr(block->mrs[i]))
			log_warn("verbs: %s does not let go of a mailbox",
				 domain->nics[i].limits.name);
		block->mrs[i] = NULL;
	}
}

static int register_everywhere(struct verbs_domain *domain, struct verbs_block *block,
			       struct error *error)
{
	verbs_each_nic(nic, domain) {
		struct verbs_memlock memlock;
		int errnum;

		block->mrs[nic->index] =
			domain->calls->reg_mr(nic->pd, block->memory, VERBS_BLOCK_BYTES,
					      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		if (block->mrs[nic->index])
			continue;
		errnum = verbs_errno(-1);
		unregister(domain, block);
		verbs_memlock_read(&memlock, NULL);
		return verbs_register_error(error, errnum, nic->limits.name, VERBS_BLOCK_BYTES,
					    domain->nic_count, &memlock, &nic->limits);
	}
	return 0;
}

static int fill_block(struct verbs_domain *domain, struct verbs_block *block, struct error *error)
{
	block->memory = memory_aligned(4096, VERBS_BLOCK_BYTES);
	if (!block->memory)
		return memory_error(error, "opening a mailbox", VERBS_BLOCK_BYTES);
	memset(block->memory, 0, VERBS_BLOCK_BYTES);
	return register_everywhere(domain, block, error);
}

static void free_block(struct verbs_block *block)
{
	if (block)
		memory_free(block->memory);
	memory_free(block);
}

static int add_block(struct verbs_domain *domain, struct error *error)
{
	struct verbs_block **at = array_push(&domain->blocks);
	int rc;

	if (!at)
		return memory_error(error, "opening a mailbox", sizeof(*at));
	*at = memory_zalloc(1, sizeof(**at));
	rc = *at ? fill_block(domain, *at, error)
		 : memory_error(error, "opening a mailbox", sizeof(**at));
	if (rc)
		free_block(domain->blocks.items[--domain->blocks.count]);
	return rc;
}

int verbs_slot_take(struct verbs_domain *domain, struct verbs_place *place, struct error *error)
{
	struct verbs_block *block = NULL;
	uint32_t b = 0, i = 0;
	int rc;

	while (b < domain->blocks.count && domain->blocks.items[b]->used == VERBS_BLOCK_SLOTS)
		b++;
	if (b == domain->blocks.count) {
		rc = add_block(domain, error);
		if (rc)
			return rc;
	}
	block = domain->blocks.items[b];
	while (block->taken[i])
		i++;
	block->taken[i] = 1;
	block->used++;
	*place = (struct verbs_place){block, i};
	mailbox_clear(&verbs_slot_at(*place)->mailbox);
	return 0;
}

/* The queue pairs that could write into it are destroyed, so the next one may have it. */
void verbs_slot_give(struct verbs_place place)
{
	place.block->taken[place.index] = 0;
	place.block->used--;
}

struct verbs_slot *verbs_slot_at(struct verbs_place place)
{
	unsigned char *slots = place.block->memory + VERBS_PROBE_BYTES;

	return (struct verbs_slot *)(void *)(slots + place.index * sizeof(struct verbs_slot));
}

void verbs_slots_close(struct verbs_domain *domain)
{
	for (size_t i = 0; i < domain->blocks.count; i++) {
		struct verbs_block *block = domain->blocks.items[i];

		unregister(domain, block);
		free_block(block);
	}
	array_free(&domain->blocks);
}
