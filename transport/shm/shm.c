/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm/shm.h"

static int domain_open(struct transport_domain *domain, struct error *error)
{
	struct shm_domain *shm;
	int rc;

	if (domain->options.nics[0])
		return error_set(error, ERROR_CONFIG,
				 "transport shm uses no NIC, but '%s' is asked for: leave --nic "
				 "out, or choose --transport verbs",
				 domain->options.nics);
	shm = memory_zalloc(1, sizeof(*shm));
	if (!shm)
		return memory_error(error, "opening a shm domain", sizeof(*shm));
	rc = identity_read(&shm->self, error);
	if (!rc)
		rc = shm_mailbox_open(shm, error);
	if (rc) {
		array_free(&shm->blocks);
		memory_free(shm);
		return rc;
	}
	domain->state = shm;
	domain->caps = (struct transport_caps){
		.ordered = true, /* one thread stores, and the signal releases */
		.mapped_remote = true,
		.passive_target = true,
		.fence_waits = true,
		.endpoints_parallel = true, /* a post is a copy, and touches its endpoint alone */
		.gathers = true,
		.write_bytes_max = SHM_CHUNK_BYTES,
		.inflight_max = SHM_INFLIGHT_MAX,
		.rails = 1,
	};
	return 0;
}

static void domain_close(struct transport_domain *domain)
{
	struct shm_domain *shm = domain->state;

	shm_mailbox_close(shm);
	memory_free(shm);
}

static void domain_wake(struct transport_domain *domain)
{
	doorbell_wake(shm_mailbox_doorbell(domain->state));
}

static uint64_t signal_wait(struct transport_domain *domain, uint64_t seen, uint64_t deadline_ns)
{
	return doorbell_wait(shm_mailbox_doorbell(domain->state), seen, deadline_ns,
			     &domain->interrupt_pending);
}

static int signal_read(const struct transport_endpoint *endpoint, struct transport_signal *signal)
{
	const struct shm_endpoint *shm = endpoint->state;

	return mailbox_load(&shm->slot->mailbox, signal);
}

const struct provider provider_shm = {
	.name = "shm",
	.what = "processes of one host: mapped memory, or process_vm_writev",
	.domain_open = domain_open,
	.domain_close = domain_close,
	.domain_wake = domain_wake,
	.region_allocate = shm_region_allocate,
	.region_register = shm_region_register,
	.region_export = shm_region_export,
	.region_close = shm_region_close,
	.endpoint_open = shm_endpoint_open,
	.endpoint_record = shm_endpoint_record,
	.endpoint_connect = shm_endpoint_connect,
	.endpoint_fence = shm_endpoint_fence,
	.endpoint_close = shm_endpoint_close,
	.remote_import = shm_remote_import,
	.remote_close = shm_remote_close,
	.post_write = shm_post_write,
	.post_signal = shm_post_signal,
	.poll = shm_poll,
	.settle = shm_settle,
	.signal_read = signal_read,
	.signal_wait = signal_wait,
	.peer_dead = shm_peer_dead,
};
