/* SPDX-License-Identifier: Apache-2.0
 *
 * kept.c -- memory of peers that stays mapped when its remote closes:
 *
 *   in a pause              for the remotes that the next plan imports; what none of them takes is unmapped behind it
 *   of who is dead          a lost engine's. Whoever unmaps it last gives all its pages back, 50 ms a GB, which no update
 *                           shall wait for; nobody waits until this process has let go of it either
 *
 * A thread unmaps it beside whatever the host does.
 */
#include "transport/shm/shm.h"

#include "base/threads.h"
#include <string.h>
#include <unistd.h>

#define BESIDE_BYTES (UINT64_C(512) << 10) /* a thread for less costs what it saves */
/* A call keeps whoever maps or unmaps anything in this process waiting. */
#define CALL_BYTES (UINT64_C(4) << 20)

bool shm_kept_take(struct shm_domain *domain, struct shm_remote *shm)
{
	for (size_t i = 0; i < domain->kept.count; i++) {
		struct shm_kept *kept = &domain->kept.items[i];

		/* whoever made the record has that region yet, and no other has its cookie */
		if (kept->pid != shm->record.identity.pid ||
		    kept->start != shm->record.identity.start || kept->bytes != shm->map_bytes ||
		    memcmp(kept->cookie, shm->record.cookie, sizeof(kept->cookie)) != 0)
			continue;
		shm->memory = kept->memory;
		*kept = domain->kept.items[--domain->kept.count];
		return true;
	}
	return false;
}

/* ---- the thread ---- */

static void unmap_in_parts(const struct shm_kept *kept)
{
	for (uint64_t at = 0; at < kept->bytes; at += CALL_BYTES) {
		unsigned char *part = kept->memory + at;
		uint64_t left = kept->bytes - at;

		shm_unmap(&part, left < CALL_BYTES ? left : CALL_BYTES);
	}
}

static void *unmap_beside(void *context)
{
	struct shm_unmapper *unmapper = context;

	threads_step_back("weft-unmap");
	pthread_mutex_lock(&unmapper->lock);
	while (unmapper->left.count) {
		struct shm_kept kept = unmapper->left.items[--unmapper->left.count];

		pthread_mutex_unlock(&unmapper->lock);
		unmap_in_parts(&kept);
		pthread_mutex_lock(&unmapper->lock);
	}
	unmapper->ended = true;
	pthread_mutex_unlock(&unmapper->lock);
	return NULL;
}

static void wait_for_unmapper(struct shm_unmapper *unmapper)
{
	if (unmapper->started)
		pthread_join(unmapper->thread, NULL);
	unmapper->started = false;
}

/* Starts the thread unless it runs; false: there is none that would come to it. */
static bool start(struct shm_unmapper *unmapper)
{
	if (unmapper->started && !unmapper->ended)
		return true;
	wait_for_unmapper(unmapper); /* it has ended, but for its return */
	unmapper->ended = false;
	unmapper->started = threads_start(&unmapper->thread, unmap_beside, unmapper) == 0;
	return unmapper->started;
}

static void unmap(struct shm_domain *domain, struct shm_kept *kept)
{
	struct shm_unmapper *unmapper = &domain->unmapper;
	bool beside = false;

	if (kept->bytes >= BESIDE_BYTES) {
		pthread_mutex_lock(&unmapper->lock);
		beside = array_add(&unmapper->left, *kept);
		if (beside && !start(unmapper)) {
			unmapper->left.count--;
			beside = false;
		}
		pthread_mutex_unlock(&unmapper->lock);
	}
	if (!beside)
		shm_unmap(&kept->memory, kept->bytes);
}

/* ---- of remotes that close ---- */

void shm_kept_put(const struct transport_remote *remote)
{
	struct shm_domain *domain = remote->endpoint->domain->state;
	const struct shm_remote *shm = remote->state;
	struct shm_kept kept = {.pid = shm->record.identity.pid,
				.start = shm->record.identity.start,
				.memory = shm->memory,
				.bytes = shm->map_bytes};

	memcpy(kept.cookie, shm->record.cookie, sizeof(kept.cookie));
	if (!kept.memory || (domain->keeps && array_add(&domain->kept, kept)))
		return;
	if (shm_peer_dead(remote->endpoint))
		unmap(domain, &kept);
	else
		shm_unmap(&kept.memory, kept.bytes);
}

void shm_domain_keep_mapped(struct transport_domain *domain, bool keep)
{
	struct shm_domain *shm = domain->state;

	shm->keeps = keep;
	while (!keep && shm->kept.count)
		unmap(shm, &shm->kept.items[--shm->kept.count]);
}

void shm_kept_open(struct shm_domain *domain)
{
	pthread_mutex_init(&domain->unmapper.lock, NULL);
}

/* Not in a forked child: it never had the mappings, and may have others there; nor the thread. */
void shm_kept_close(struct transport_domain *domain)
{
	struct shm_domain *shm = domain->state;

	if (getpid() == domain->pid) {
		shm_domain_keep_mapped(domain, false);
		wait_for_unmapper(&shm->unmapper);
		pthread_mutex_destroy(&shm->unmapper.lock);
	}
	array_free(&shm->kept);
	array_free(&shm->unmapper.left);
}
