/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shm/shm.h"

#include <inttypes.h>
#include <stdio.h>

/* One host and one pid namespace: whose records shm_identity_check takes. */
static void shm_reach(const struct identity *self, char *out, size_t bytes)
{
	char boot[2 * sizeof(self->boot) + 1];

	for (size_t i = 0; i < sizeof(self->boot); i++)
		snprintf(boot + 2 * i, 3, "%02x", self->boot[i]);
	snprintf(out, bytes, "boot %s, pid namespace %" PRIu64, boot, self->pid_namespace);
}

int shm_domain_open(struct transport_domain *domain, struct error *error)
{
	struct shm_domain *shm;
	int rc;

	if (domain->options.nics[0] && !domain->owner) /* else they are another member's */
		return error_set(error, ERROR_CONFIG,
				 "transport shm uses no NIC, but '%s' is asked for: leave --nic "
				 "out, or choose --transport verbs or tcp",
				 domain->options.nics);
	shm = memory_zalloc(1, sizeof(*shm));
	if (!shm)
		return memory_error(error, "opening a shm domain", sizeof(*shm));
	rc = identity_read(&shm->self, error);
	if (!rc)
		rc = shm_mailbox_grow(shm, error);
	if (rc) {
		array_free(&shm->blocks);
		memory_free(shm);
		return rc;
	}
	shm_kept_open(shm);
	domain->state = shm;
	shm_reach(&shm->self, domain->reach, sizeof(domain->reach));
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

void shm_domain_close(struct transport_domain *domain)
{
	struct shm_domain *shm = domain->state;

	shm_kept_close(domain);
	shm_mailbox_close(shm);
	memory_free(shm);
}

void shm_domain_wake(struct transport_domain *domain)
{
	doorbell_wake(shm_mailbox_doorbell(domain->state));
}

uint64_t shm_signal_wait(struct transport_domain *domain, uint64_t seen, uint64_t deadline_ns)
{
	return doorbell_wait(shm_mailbox_doorbell(domain->state), seen, deadline_ns,
			     &domain->interrupt_pending);
}

int shm_signal_read(const struct transport_endpoint *endpoint, struct transport_signal *signal)
{
	const struct shm_endpoint *shm = endpoint->state;

	return mailbox_load(&shm->slot->mailbox, signal);
}

/* holes: nothing to do, or not to be had */
#define shm_endpoint_probe NULL
#define shm_endpoint_abort NULL
#define shm_credit	   NULL
#define shm_idle	   NULL

const struct provider provider_shm = {
	.name = "shm",
	.what = "processes of one host: mapped memory, or process_vm_writev",
	.one_host = true,
	.maps = true,
#define X(op) .op = shm_##op,
	PROVIDER_OPS(X)
#undef X
};
