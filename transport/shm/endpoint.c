/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm/shm.h"
#include "transport/late.h"

#include <inttypes.h>
#include <stddef.h>
#include <unistd.h>

int shm_endpoint_open(struct transport_endpoint *endpoint, struct error *error)
{
	struct shm_domain *domain = endpoint->domain->state;
	struct shm_endpoint *shm = memory_zalloc(1, sizeof(*shm));
	int rc;

	if (!shm)
		return memory_error(error, "opening an endpoint", sizeof(*shm));
	shm->pidfd = -1;
	shm->late = shm_late_new();
	rc = shm->late ? identity_random(&shm->nonce, sizeof(shm->nonce), "shm", error)
		       : memory_error(error, "opening an endpoint", sizeof(*shm->late));
	if (!rc)
		rc = shm_slot_take(domain, &shm->place, error);
	if (rc) {
		memory_free(shm->late);
		memory_free(shm);
		return rc;
	}
	shm->slot = shm_slot_at(shm->place);
	atomic_store(&shm->slot->nonce, shm->nonce);
	endpoint->state = shm;
	return 0;
}

int shm_endpoint_record(const struct transport_endpoint *endpoint, struct record_writer *writer,
			struct error *error)
{
	const struct shm_domain *domain = endpoint->domain->state;
	const struct shm_endpoint *shm = endpoint->state;
	const struct shm_memfd *bell = &domain->blocks.items[0]->memfd;
	const struct shm_memfd *slot = &shm->place.block->memfd;
	struct shm_endpoint_record record = {
		.identity = domain->self,
		.bell_fd = (uint32_t)bell->fd,
		.slot_fd = (uint32_t)slot->fd,
		.slot_offset = SHM_HEAD_BYTES + shm->place.index * sizeof(struct shm_slot),
		.slot_address = (uint64_t)(uintptr_t)shm->slot,
		.generation = shm_word_generation(atomic_load(&shm->slot->word)),
		.nonce = shm->nonce,
	};

	memcpy(record.bell_cookie, bell->cookie, SHM_COOKIE_BYTES);
	memcpy(record.slot_cookie, slot->cookie, SHM_COOKIE_BYTES);
	shm_endpoint_record_put(writer, &record);
	return 0;
}

static int map_block(uint64_t pid, uint32_t number, const unsigned char *cookie,
		     unsigned char **map, int *fd, struct error *error)
{
	struct shm_block_head *head;
	int rc = shm_memfd_open_peer(pid, number, SHM_BLOCK_BYTES, fd, error);

	if (rc)
		return rc;
	rc = shm_map(*fd, SHM_BLOCK_BYTES, map, error);
	head = (void *)*map;
	if (!rc && (head->magic != SHM_BLOCK_MAGIC ||
		    memcmp(head->cookie, cookie, SHM_COOKIE_BYTES) != 0)) {
		shm_unmap(map, SHM_BLOCK_BYTES);
		rc = error_set(error, ERROR_PEER_LOST,
			       "what process %" PRIu64
			       " has there is not the mailbox of the record "
			       "any more",
			       pid);
	}
	if (rc) {
		close(*fd);
		*fd = -1;
	}
	return rc;
}

static void unmap_peer(struct shm_endpoint *shm)
{
	if (shm->peer_bell_map != shm->peer_slot_map)
		shm_unmap(&shm->peer_bell_map, SHM_BLOCK_BYTES);
	shm_unmap(&shm->peer_slot_map, SHM_BLOCK_BYTES);
	shm->peer_bell_map = NULL;
	shm->peer_slot = NULL;
	shm->peer_bell = NULL;
	if (shm->pidfd >= 0)
		close(shm->pidfd);
	shm->pidfd = -1;
}

/* Takes the slot for this process, unless the target closed or fenced it meanwhile. */
static int claim(struct shm_endpoint *shm, const struct identity *self, struct error *error)
{
	uint64_t word = shm_word(shm->peer.generation, 0, SHM_OPEN);
	uint64_t mine = shm_word(shm->peer.generation, self->pid, SHM_CONNECTED);

	if (atomic_load(&shm->peer_slot->nonce) != shm->peer.nonce ||
	    !atomic_compare_exchange_strong(&shm->peer_slot->word, &word, mine))
		return error_set(error, ERROR_PEER_LOST,
				 "the peer closed or fenced this endpoint, or another process "
				 "connected to it, since it made the record");
	atomic_store(&shm->peer_slot->start, self->start);
	return 0;
}

/* One word through the mapping, looked at through the file: the page is the peer's page.
 */
static int probe_mapping(struct shm_endpoint *shm, int fd, struct error *error)
{
	uint64_t probe = shm->nonce ^ shm->peer.nonce, seen = 0;
	off_t at = (off_t)(shm->peer.slot_offset + offsetof(struct shm_slot, probe_mapped));

	atomic_store(&shm->peer_slot->probe_mapped, probe);
	if (pread(fd, &seen, sizeof(seen), at) != sizeof(seen) || seen != probe)
		return error_set(error, ERROR_UNSUPPORTED,
				 "a word stored in the peer's mailbox did not arrive there");
	return 0;
}

static int map_peer(struct shm_endpoint *shm, int *slot_fd, struct error *error)
{
	const struct shm_endpoint_record *peer = &shm->peer;
	struct shm_block_head *head;
	int bell_fd, rc;

	rc = map_block(peer->identity.pid, peer->slot_fd, peer->slot_cookie, &shm->peer_slot_map,
		       slot_fd, error);
	if (rc)
		return rc;
	if (peer->bell_fd == peer->slot_fd) {
		shm->peer_bell_map = shm->peer_slot_map;
	} else {
		rc = map_block(peer->identity.pid, peer->bell_fd, peer->bell_cookie,
			       &shm->peer_bell_map, &bell_fd, error);
		if (rc)
			return rc;
		close(bell_fd);
	}
	head = (void *)shm->peer_bell_map;
	shm->peer_bell = &head->doorbell;
	shm->peer_slot = (void *)(shm->peer_slot_map + peer->slot_offset);
	return 0;
}

static int probe_remotes(struct transport_endpoint *endpoint, struct error *error)
{
	int rc = 0;

	for (struct transport_remote *r = endpoint->remotes; r && !rc; r = r->next)
		rc = shm_remote_check(r, error);
	return rc;
}

/* The slot is given back when a later step fails: the target must not wait for us. */
static void unclaim(struct shm_endpoint *shm, const struct identity *self)
{
	atomic_store(&shm->peer_slot->word, shm_word(shm->peer.generation, self->pid, SHM_CLOSED));
}

int shm_endpoint_connect(struct transport_endpoint *endpoint, struct record_reader *reader,
			 uint64_t deadline_ns, struct error *error)
{
	const struct shm_domain *domain = endpoint->domain->state;
	struct shm_endpoint *shm = endpoint->state;
	bool claimed = false;
	int fd = -1, rc;

	(void)deadline_ns; /* nothing here waits for the peer */
	rc = shm_endpoint_record_get(reader, &shm->peer, error);
	if (!rc)
		rc = shm_identity_check(&shm->peer.identity, &domain->self, error);
	if (rc)
		return rc;
	shm->pidfd = process_open(shm->peer.identity.pid, shm->peer.identity.start);
	rc = map_peer(shm, &fd, error);
	if (!rc) {
		rc = claim(shm, &domain->self, error);
		claimed = !rc;
	}
	if (!rc)
		rc = probe_mapping(shm, fd, error);
	if (!rc)
		rc = probe_remotes(endpoint, error);
	if (fd >= 0)
		close(fd);
	if (rc) {
		if (claimed)
			unclaim(shm, &domain->self);
		unmap_peer(shm);
		return rc;
	}
	shm->connected = true;
	return 0;
}

/* Mapped memory cannot be taken back from a process, so this waits until the peer has let
 * go of it or has died. A peer that still writes learns of it at its next post. */
int shm_endpoint_fence(struct transport_endpoint *endpoint, uint64_t deadline_ns,
		       struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	struct transport_wait wait;
	int rc;

	shm_slot_refuse(shm->slot);
	wait_begin(&wait, endpoint->domain, deadline_ns);
	while (!shm_slot_quiet(shm->slot)) {
		rc = wait_turn(&wait, error);
		if (rc)
			return error_wrap(error,
					  "process %" PRIu64 " is alive and still has this "
					  "process's memory mapped",
					  shm_word_pid(atomic_load(&shm->slot->word))),
			       rc;
	}
	return 0;
}

/* Own memory needs no more than that nobody is in the middle of a write (turn.h). */
int shm_endpoint_stop(struct transport_endpoint *endpoint, uint64_t deadline_ns,
		      struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	struct transport_wait wait;
	int rc;

	shm_slot_refuse(shm->slot);
	wait_begin(&wait, endpoint->domain, deadline_ns);
	while (shm_late_busy(shm->slot)) {
		rc = wait_turn(&wait, error);
		if (rc)
			return error_wrap(error,
					  "process %" PRIu64 " is alive and in the middle of "
					  "a write of this process's memory",
					  shm_word_pid(atomic_load(&shm->slot->word))),
			       rc;
	}
	return 0;
}

void shm_endpoint_close(struct transport_endpoint *endpoint)
{
	struct shm_domain *domain = endpoint->domain->state;
	struct shm_endpoint *shm = endpoint->state;

	/* a forked child lets go of its own mappings only: both slots belong to its
	 * parent */
	bool own = getpid() == endpoint->domain->pid;

	/* the remotes are unmapped: from here on no store of ours can reach the peer's
	 * data */
	if (shm->connected && own && !shm->stays_open)
		unclaim(shm, &domain->self);
	if (own)
		shm_late_hold(endpoint);
	unmap_peer(shm);
	if (own)
		shm_slot_give(shm->place);
	memory_free(shm->late);
	memory_free(shm);
}

bool shm_peer_dead(const struct transport_endpoint *endpoint)
{
	const struct shm_endpoint *shm = endpoint->state;

	if (shm->pidfd >= 0)
		return process_fd_dead(shm->pidfd);
	if (shm->connected)
		return process_dead(shm->peer.identity.pid, shm->peer.identity.start);
	/* not connected here, but perhaps from there */
	return shm_word_state(atomic_load(&shm->slot->word)) == SHM_CONNECTED &&
	       shm_slot_quiet(shm->slot);
}
