/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c -- a post is the copy itself, so it is complete when it returns; poll only
 * tells.
 */
#include "transport/shm/shm.h"

#include "base/copy.h"

static int check_allowed(const struct transport_endpoint *endpoint, struct error *error)
{
	const struct shm_endpoint *shm = endpoint->state;

	if (atomic_load_explicit(&shm->peer_slot->stop, memory_order_relaxed))
		return error_set(error, ERROR_ABORTED,
				 "%s gave this sender up (closed or fenced its endpoint)",
				 endpoint->name);
	return 0;
}

static int write_one(struct transport_endpoint *endpoint, const struct provider_write *write,
		     struct error *error)
{
	const struct shm_remote *remote = write->remote->state;

	if (remote->kind == SHM_MAPPED) {
		copy_bytes(remote->memory + write->offset, write->source, write->bytes);
		return 0;
	}
	/* between death and a reused pid lies at least this look */
	if (shm_peer_dead(endpoint))
		return error_set(error, ERROR_PEER_LOST, "the process of %s has died",
				 endpoint->name);
	return shm_process_write(remote->pid, remote->address + write->offset, write->source,
				 write->bytes, error);
}

int shm_post_write(struct transport_endpoint *endpoint, uint32_t rail,
		   const struct provider_write *writes, uint32_t count, uint32_t *posted,
		   struct error *error)
{
	struct shm_endpoint *shm = endpoint->state;

	(void)rail;
	*posted = 0;
	for (uint32_t i = 0; i < count; i++) {
		int rc = check_allowed(endpoint, error);

		if (!rc)
			rc = write_one(endpoint, &writes[i], error);
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
	int rc = check_allowed(endpoint, error);

	(void)id;
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

	(void)error;
	while (n < max && shm->reported < shm->posted)
		out[n++] = (struct provider_completion){.id = shm->reported++};
	return n;
}

int shm_settle(struct transport_endpoint *endpoint, struct error *error)
{
	(void)endpoint;
	(void)error;
	copy_fence();
	return 0;
}
