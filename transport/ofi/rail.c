/* SPDX-License-Identifier: Apache-2.0
 *
 * rail.c -- one interface: libfabric's objects, memory registered there, its queues.
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include <rdma/fi_errno.h>

#define CQ_ENTRIES 8192 /* more than all lanes of a rail have in flight, were all peers to write */

/* Sleeping on a queue is an extra that a provider may not have: then it is looked at again and
 * again. */
static int open_cq(struct ofi_rail *rail, struct error *error)
{
	struct fi_cq_attr attr = {
		.size = CQ_ENTRIES, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
	int rc = rail->domain->no_sleep ? -FI_ENOSYS
					: fi_cq_open(rail->access, &attr, &rail->cq, NULL);

	if (rc) {
		attr.wait_obj = FI_WAIT_NONE;
		rc = fi_cq_open(rail->access, &attr, &rail->cq, NULL);
		if (rc)
			return ofi_error(error, rail->domain, -rc, "a completion queue on %s",
					 rail->interface.name);
		return 0;
	}
	rc = fi_control(&rail->cq->fid, FI_GETWAIT, &rail->cq_fd);
	return rc ? ofi_error(error, rail->domain, -rc, "sleeping on %s", rail->interface.name) : 0;
}

static int open_eq(struct ofi_rail *rail, struct error *error)
{
	struct fi_eq_attr attr = {.size = 1024, .wait_obj = FI_WAIT_FD};
	int rc = fi_eq_open(rail->fabric, &attr, &rail->eq, NULL);

	if (!rc)
		rc = fi_control(&rail->eq->fid, FI_GETWAIT, &rail->eq_fd);
	return rc ? ofi_error(error, rail->domain, -rc, "an event queue on %s",
			      rail->interface.name)
		  : 0;
}

static int open_av(struct ofi_rail *rail, struct error *error)
{
	struct fi_av_attr attr = {.type = FI_AV_TABLE};
	int rc = fi_av_open(rail->access, &attr, &rail->av, NULL);

	return rc ? ofi_error(error, rail->domain, -rc, "a table of addresses on %s",
			      rail->interface.name)
		  : 0;
}

static int open_objects(struct ofi_rail *rail, struct error *error)
{
	const struct ofi_domain *domain = rail->domain;
	int rc = domain->calls->fabric(rail->info->fabric_attr, &rail->fabric, NULL);

	if (!rc)
		rc = fi_domain(rail->fabric, rail->info, &rail->access, NULL);
	if (rc)
		return ofi_error(error, domain, -rc, "opening %s", rail->interface.name);
	rc = open_cq(rail, error);
	if (!rc)
		rc = domain->way->type == FI_EP_MSG ? open_eq(rail, error) : open_av(rail, error);
	return rc;
}

bool ofi_rail_needs_local(const struct ofi_rail *rail)
{
	return rail->info->domain_attr->mr_mode & FI_MR_LOCAL;
}

/* A key that we may choose is random, so that one who was not told it does not guess it. */
int ofi_rail_register(struct ofi_rail *rail, void *memory, uint64_t bytes, uint64_t access,
		      struct fid_mr **mr, uint64_t *key, uint64_t *base, struct error *error)
{
	int mode = rail->info->domain_attr->mr_mode;
	uint64_t wanted = 0;
	int rc = 0;

	while (!rc && !wanted && !(mode & FI_MR_PROV_KEY))
		rc = identity_random(&wanted, sizeof(wanted), rail->domain->name, error);
	if (rc)
		return rc;
	rc = fi_mr_reg(rail->access, memory, bytes, access, 0, wanted, 0, mr, NULL);
	if (rc)
		return ofi_error(error, rail->domain, -rc,
				 "registering %llu bytes on %s (memlock allows what 'ulimit -l' "
				 "says)",
				 (unsigned long long)bytes, rail->interface.name);
	*key = fi_mr_key(*mr);
	*base = mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
	return 0;
}

static int open_probe(struct ofi_rail *rail, struct error *error)
{
	const struct pages *probe = &rail->domain->probe;
	int rc = ofi_rail_register(rail, probe->memory, probe->bytes, FI_WRITE | FI_REMOTE_WRITE,
				   &rail->probe_mr, &rail->probe_key, &rail->probe_base, error);

	rail->probe_base += rail->index * OFI_PROBE_BYTES; /* peers write behind the first */
	return rc;
}

/* Rails of one interface have the same, and asking for it is a good part of what opening costs. */
static int find_info(struct ofi_rail *rail, struct error *error)
{
	for (const struct ofi_rail *at = rail->domain->rails; at < rail; at++) {
		if (strcmp(at->interface.name, rail->interface.name) != 0)
			continue;
		rail->info = rail->domain->calls->dupinfo(at->info);
		return rail->info ? 0
				  : memory_error(error, "asking libfabric", sizeof(*rail->info));
	}
	return rail->domain->way->info(rail, error);
}

int ofi_rail_open(struct ofi_rail *rail, struct error *error)
{
	int rc;

	rail->cq_fd = rail->eq_fd = -1;
	pthread_mutex_init(&rail->lock, NULL);
	rc = find_info(rail, error);
	if (!rc)
		rc = open_objects(rail, error);
	if (!rc)
		rc = open_probe(rail, error);
	if (!rc)
		rc = rail->domain->way->listen(rail, error);
	return rc;
}

#define CLOSE(object)                           \
	do {                                    \
		if (object)                     \
			fi_close(&object->fid); \
		object = NULL;                  \
	} while (0)

/*
 * libfabric 1.17 forgets the connections that it took and whose request
 * nobody has read, with their descriptors, when their queue is closed. One look takes them, the
 * next reads what they ask, the third sees that they are gone. Who connects and says nothing even
 * then costs 376 bytes and a descriptor (tests/lsan.supp).
 */
static void turn_away_late_calls(struct ofi_rail *rail)
{
	pthread_mutex_lock(&rail->lock);
	rail->closing = true;
	for (int look = 0; look < 3 && rail->listener_count; look++)
		rail->domain->way->events(rail);
	pthread_mutex_unlock(&rail->lock);
}

void ofi_rail_close(struct ofi_rail *rail)
{
	turn_away_late_calls(rail);
	for (uint32_t i = 0; i < rail->listener_count; i++)
		CLOSE(rail->listeners[i].pep);
	CLOSE(rail->probe_mr);
	CLOSE(rail->av);
	CLOSE(rail->cq);
	CLOSE(rail->eq);
	CLOSE(rail->access);
	CLOSE(rail->fabric);
	if (rail->info)
		rail->domain->calls->freeinfo(rail->info);
	pthread_mutex_destroy(&rail->lock);
}
