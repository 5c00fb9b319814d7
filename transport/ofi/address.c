/* SPDX-License-Identifier: Apache-2.0
 *
 * address.c -- lanes over addresses (EFA): each lane has a fid_ep, and so an address, of its own, which
 * the peer's record tells; what is sent there needs no connection.
 */
#include "transport/ofi/way.h"

#include <rdma/fi_errno.h>
#include <stdio.h>

/* What an application can be asked to do for its memory, and we do. */
#define MR_MODE (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

static int info_of(const struct ofi_domain *domain, const char *name, struct fi_info **info,
		   struct error *error)
{
	const struct ofi_calls *calls = domain->calls;
	struct fi_info *hints = calls->dupinfo(NULL);
	char provider[32], wanted[OFI_RAIL_NAME_BYTES];
	int rc;

	if (!hints)
		return memory_error(error, "asking libfabric", sizeof(*hints));
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = MR_MODE;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->cq_data_size = sizeof(uint32_t);
	snprintf(provider, sizeof(provider), "%s", domain->fabric);
	hints->fabric_attr->prov_name = provider;
	if (name) {
		snprintf(wanted, sizeof(wanted), "%s", name);
		hints->domain_attr->name = wanted;
	}
	rc = calls->getinfo(OFI_API, NULL, NULL, 0, hints, info);
	hints->fabric_attr->prov_name = hints->domain_attr->name =
		NULL; /* not libfabric's to free */
	calls->freeinfo(hints);
	if (rc)
		return error_set(error, ERROR_UNSUPPORTED,
				 "libfabric %u.%u here offers no EFA device (%s): it takes an EFA "
				 "interface on this instance and a libfabric with provider efa, as "
				 "AWS's EFA installer brings it; between any two hosts --transport "
				 "tcp works",
				 FI_MAJOR(calls->version()), FI_MINOR(calls->version()),
				 ofi_strerror(-rc));
	return 0;
}

static int interfaces(const struct ofi_domain *domain, struct ofi_interface *out, uint32_t capacity,
		      uint32_t *count, struct error *error)
{
	struct fi_info *list = NULL;
	int rc = info_of(domain, NULL, &list, error);

	*count = 0;
	for (struct fi_info *at = list; at && *count < capacity; at = at->next) {
		const char *name = at->domain_attr->name;
		bool known = !name || strlen(name) >= sizeof(out->name);

		for (uint32_t i = 0; i < *count && !known; i++)
			known = strcmp(out[i].name, name) == 0;
		if (known)
			continue;
		out[*count] = (struct ofi_interface){0};
		memcpy(out[*count].name, name, strlen(name) + 1);
		++*count;
	}
	if (list)
		domain->calls->freeinfo(list);
	return rc;
}

static int rail_info(struct ofi_rail *rail, struct error *error)
{
	return info_of(rail->domain, rail->interface.name, &rail->info, error);
}

static int rail_listen(struct ofi_rail *rail, struct error *error)
{
	return 0; /* each lane has an address of its own */
}

static int endpoint_open(struct ofi_endpoint *endpoint, struct error *error)
{
	int rc = 0;

	ofi_each_lane(lane, endpoint) {
		struct ofi_rail *rail = &endpoint->domain->rails[lane->index];

		pthread_mutex_lock(&rail->lock);
		lane->rail = rail;
		snprintf(lane->path, sizeof(lane->path), "%s", rail->interface.name);
		rc = ofi_lane_open(lane, rail->info, error);
		pthread_mutex_unlock(&rail->lock);
		if (rc)
			break;
	}
	return rc;
}

/* -FI_ENOTCONN: it was lost meanwhile, before it was of any use. */
static int name_of(struct ofi_lane *lane, struct ofi_address *address, size_t *length)
{
	int rc = -FI_ENOTCONN;

	pthread_mutex_lock(&lane->rail->lock);
	if (lane->ep)
		rc = fi_getname(&lane->ep->fid, address->bytes, length);
	pthread_mutex_unlock(&lane->rail->lock);
	return rc;
}

static int describe(struct ofi_endpoint *endpoint, struct ofi_endpoint_record *record,
		    struct error *error)
{
	for (uint32_t i = 0; i < endpoint->lane_count; i++) {
		struct ofi_lane *lane = &endpoint->lanes[i];
		struct ofi_address *address = &record->rails[i].addresses[0];
		size_t length = sizeof(address->bytes);
		int rc = name_of(lane, address, &length);

		if (rc == -FI_ENOTCONN)
			return ofi_lane_error(error, lane, lane->lost_errnum);
		if (rc)
			return ofi_error(error, endpoint->domain, -rc,
					 "the address of a stream on %s",
					 lane->rail->interface.name);
		record->rails[i].address_count = 1;
		address->length = (uint32_t)length;
	}
	return 0;
}

/* Out of the table, which would grow with every peer that ever was. The caller holds rail->lock. */
static void forget(struct ofi_lane *lane)
{
	if (lane->address != FI_ADDR_UNSPEC)
		fi_av_remove(lane->rail->av, &lane->address, 1, 0);
	lane->address = FI_ADDR_UNSPEC;
}

/* A lane that is lost has forgotten its address already, and does not get another. */
static int insert_address(struct ofi_lane *lane, const struct ofi_rail_record *peer)
{
	int rc = -FI_ENOTCONN;

	pthread_mutex_lock(&lane->rail->lock);
	if (lane->ep)
		rc = fi_av_insert(lane->rail->av, peer->addresses[0].bytes, 1, &lane->address, 0,
				  NULL);
	if (rc != 1)
		lane->address = FI_ADDR_UNSPEC;
	pthread_mutex_unlock(&lane->rail->lock);
	return rc;
}

static int insert(struct ofi_lane *lane, const struct ofi_rail_record *peer, struct error *error)
{
	const struct ofi_rail *rail = lane->rail;
	char path[sizeof(lane->path)];
	int rc = insert_address(lane, peer);

	if (rc == -FI_ENOTCONN)
		return ofi_lane_error(error, lane, lane->lost_errnum);
	if (rc < 0)
		return ofi_error(error, rail->domain, -rc, "taking the address of %s there on %s",
				 peer->name, rail->interface.name);
	if (rc != 1)
		return error_set(error, ERROR_MESSAGE,
				 "%s does not know what to do with the address of %s there",
				 rail->interface.name, peer->name);
	snprintf(path, sizeof(path), "%s to %s there", rail->interface.name, peer->name);
	memcpy(lane->path, path, sizeof(lane->path));
	return 0;
}

/* All of them or none, since a record that is refused leaves the endpoint as it was. */
static int endpoint_connect(struct ofi_endpoint *endpoint, struct error *error)
{
	uint32_t used = ofi_lanes_used(endpoint);
	int rc = 0;

	for (uint32_t i = 0; i < used && !rc; i++) {
		endpoint->lanes[i].peer_rail = i;
		rc = insert(&endpoint->lanes[i], &endpoint->peer.rails[i], error);
	}
	for (uint32_t i = 0; i < used && rc; i++) {
		pthread_mutex_lock(&endpoint->lanes[i].rail->lock);
		forget(&endpoint->lanes[i]);
		pthread_mutex_unlock(&endpoint->lanes[i].rail->lock);
	}
	pthread_mutex_lock(&endpoint->domain->lock);
	for (uint32_t i = 0; i < used && !rc; i++)
		if (endpoint->lanes[i].state == OFI_LANE_IDLE)
			endpoint->lanes[i].state = OFI_LANE_READY;
	pthread_mutex_unlock(&endpoint->domain->lock);
	return rc;
}

static void events(struct ofi_rail *rail)
{
	/* no connections, so nothing happens to them */
}

const struct ofi_way ofi_address_way = {
	.type = FI_EP_RDM,
	.takes_all = true,
	.interfaces = interfaces,
	.info = rail_info,
	.listen = rail_listen,
	.open = endpoint_open,
	.describe = describe,
	.connect = endpoint_connect,
	.forget = forget,
	.events = events,
};
