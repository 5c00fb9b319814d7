/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c -- a post is the copy itself, so it is complete when it returns; poll only
 * tells.
 */
#include "transport/shm/turn.h"

#include "base/copy.h"

int shm_given_up(const struct transport_endpoint *endpoint, struct error *error)
{
	return error_set(error, ERROR_ABORTED,
			 "%s gave this sender up (closed or fenced its endpoint)", endpoint->name);
}

int shm_check_allowed(const struct transport_endpoint *endpoint, struct error *error)
{
	const struct shm_endpoint *shm = endpoint->state;

	if (atomic_load_explicit(&shm->peer_slot->stop, memory_order_relaxed))
		return shm_given_up(endpoint, error);
	return 0;
}

/* At most `max` pieces of what is left of a write from its byte `at` on, as they lie. */
static size_t pieces_of(const struct provider_write *write, uint64_t at, struct iovec *out,
			size_t max)
{
	const struct transport_rows *rows = write->rows;
	size_t count = 0;

	if (!rows) {
		*out = (struct iovec){(void *)(uintptr_t)(write->source + at), write->bytes - at};
		return 1;
	}
	for (; count < max && at < write->bytes; count++) {
		uint64_t row = (write->from + at) / rows->row_bytes;
		uint64_t skip = (write->from + at) % rows->row_bytes;
		uint64_t bytes = rows->row_bytes - skip, left = write->bytes - at;
		const unsigned char *first = rows->first;

		if (bytes > left)
			bytes = left;
		out[count] = (struct iovec){
			(void *)(uintptr_t)(first + row * rows->stride_bytes + skip), bytes};
		at += bytes;
	}
	return count;
}

static void write_mapped(const struct provider_write *write)
{
	const struct shm_remote *remote = write->remote->state;
	struct iovec piece;

	for (uint64_t done = 0; done < write->bytes; done += piece.iov_len) {
		pieces_of(write, done, &piece, 1);
		copy_bytes(remote->memory + write->offset + done, piece.iov_base, piece.iov_len);
	}
}

/* Inside its turn: asked before each call, since one chunk of short rows can take a thousand of them. */
static int write_process(struct transport_endpoint *endpoint, const struct provider_write *write,
			 struct error *error)
{
	const struct shm_remote *remote = write->remote->state;
	const struct shm_endpoint *shm = endpoint->state;
	struct iovec pieces[SHM_PIECES_MAX];
	uint64_t done = 0, moved;
	int rc = 0;

	/* between death and a reused pid lies at least this look */
	if (shm_peer_dead(endpoint))
		return error_set(error, ERROR_PEER_LOST, "the process of %s has died",
				 endpoint->name);
	for (; done < write->bytes && !rc; done += moved) {
		if (!shm_turn_may(shm->peer_slot))
			return shm_given_up(endpoint, error);
		rc = shm_process_gather(
			remote->record.identity.pid, remote->record.address + write->offset + done,
			pieces, pieces_of(write, done, pieces, SHM_PIECES_MAX), &moved, error);
	}
	return rc;
}

static int write_one(struct transport_endpoint *endpoint, const struct provider_write *write,
		     struct error *error)
{
	const struct shm_remote *remote = write->remote->state;
	const struct shm_endpoint *shm = endpoint->state;
	int rc = 0;

	if (remote->record.kind == SHM_MAPPED) {
		rc = shm_check_allowed(endpoint, error);
		if (!rc)
			write_mapped(write);
		return rc;
	}
	shm_turn_say(shm->peer_slot, remote->record.address + write->offset, write->bytes);
	rc = write_process(endpoint, write, error);
	shm_turn_end(shm->peer_slot);
	return rc;
}

int shm_post_write(struct transport_endpoint *endpoint, uint32_t rail,
		   const struct provider_write *writes, uint32_t count, uint32_t *posted,
		   struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;

	*posted = 0;
	for (uint32_t i = 0; i < count; i++) {
		int rc = write_one(endpoint, &writes[i], error);

		if (rc)
			return rc;
		shm->posted++;
		++*posted;
	}
	return 0;
}

int shm_post_signal(struct transport_endpoint *endpoint, uint64_t id,
		    const struct transport_signal *signal, struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	int rc = shm_check_allowed(endpoint, error);

	if (rc)
		return rc;
	copy_fence();
	mailbox_store(&shm->peer_slot->mailbox, signal);
	doorbell_ring(shm->peer_bell);
	shm->posted++;
	return 0;
}

/* The shared layer counts ids from 0 as it posts, and so does this side. */
int shm_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
	     struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;
	int n = 0;

	while (n < max && shm->reported < shm->posted)
		out[n++] = (struct provider_completion){.id = shm->reported++};
	return n;
}

int shm_settle(struct transport_endpoint *endpoint, struct error *error)
{
	copy_fence();
	return 0;
}
