/* SPDX-License-Identifier: Apache-2.0
 *
 * ofi_mock_objects.c -- what a rail is made of: fabric, domain, queue, table of addresses, memory.
 */
#include "tests/support/ofi_mock_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- memory ---- */

static int mr_close(struct fid *fid)
{
	struct om_mr *mr = OM_OF(mr, fid);
	int rc;

	om_lock();
	rc = om_end(&mr->head, OFI_MOCK_mr_close);
	if (!mr->head.alive)
		om_mr_gone(mr);
	return om_unlock(rc);
}

static struct fi_ops mr_fid_ops = {.size = sizeof(mr_fid_ops), .close = mr_close};

static int mr_reg(struct fid *fid, const void *memory, size_t bytes, uint64_t access,
		  uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **out,
		  void *context)
{
	struct om_domain *domain = OM_OF(domain, fid);
	struct om_mr *mr;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_mr_reg);
	if (rc || !om_ok(&domain->head, "fi_mr_reg"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	if (offset || !bytes || !access)
		om_violation("fi_mr_reg of %zu bytes with access %#lx and offset %lu", bytes,
			     access, offset);
	mr = om_memory(sizeof(*mr));
	om_new(&mr->head, "memory region", &domain->head, mr);
	mr->fid.fid = (struct fid){.fclass = FI_CLASS_MR, .context = context, .ops = &mr_fid_ops};
	mr->fid.mem_desc = mr;
	mr->fid.key = om.key; /* whatever was asked for: FI_MR_PROV_KEY */
	mr->domain = domain;
	mr->memory = (void *)(uintptr_t)memory;
	mr->bytes = bytes;
	mr->access = access;
	om.mrs = om_grow(om.mrs, om.key);
	om.mrs[om.key++] = mr;
	*out = &mr->fid;
	return om_unlock(0);
}

static struct fi_ops_mr domain_mr_ops = {.size = sizeof(domain_mr_ops), .reg = mr_reg};

/* ---- a queue of completions ---- */

static int cq_close(struct fid *fid)
{
	struct om_cq *cq = OM_OF(cq, fid);
	int rc;

	om_lock();
	rc = om_end(&cq->head, OFI_MOCK_cq_close);
	while (!cq->head.alive && cq->first) {
		struct om_entry *gone = cq->first;

		cq->first = gone->next;
		free(gone);
	}
	if (!cq->head.alive && cq->fd >= 0) {
		close(cq->fd);
		cq->fd = -1;
	}
	return om_unlock(rc);
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct om_cq *cq = OM_OF(cq, fid);
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_cq_getwait);
	if (!rc && (!om_ok(&cq->head, "fi_control") || command != FI_GETWAIT || cq->fd < 0))
		rc = -FI_ENOSYS;
	if (!rc)
		*(int *)arg = cq->fd;
	return om_unlock(rc);
}

void om_push(struct om_cq *cq, const struct fi_cq_err_entry *entry)
{
	struct om_entry *item = om_memory(sizeof(*item));

	if (++cq->count > cq->size)
		om_violation("a completion queue of %zu entries overflows", cq->size);
	item->entry = *entry;
	*cq->last = item;
	cq->last = &item->next;
	if (cq->fd >= 0 && eventfd_write(cq->fd, 1))
		om_violation("an eventfd cannot be written");
}

static void pop(struct om_cq *cq)
{
	struct om_entry *gone = cq->first;

	cq->first = gone->next;
	if (!cq->first)
		cq->last = &cq->first;
	cq->count--;
	free(gone);
}

static ssize_t cq_read(struct fid_cq *fid, void *room, size_t count)
{
	struct fi_cq_data_entry *out = room;
	struct om_cq *cq = OM_OF(cq, fid);
	ssize_t n = 0;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_cq_read);
	if (rc || !om_ok(&cq->head, "fi_cq_read"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	cq->reads++;
	for (uint64_t steps = om_random(om.options.steps_per_read + 1); steps; steps--)
		om_step();
	while (n < (ssize_t)count && cq->first && !cq->first->entry.err) {
		const struct fi_cq_err_entry *entry = &cq->first->entry;

		out[n++] = (struct fi_cq_data_entry){.op_context = entry->op_context,
						     .flags = entry->flags,
						     .len = entry->len,
						     .data = entry->data};
		pop(cq);
	}
	if (!n)
		n = cq->first ? -FI_EAVAIL : -FI_EAGAIN;
	return om_unlock((int)n);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags)
{
	struct om_cq *cq = OM_OF(cq, fid);
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_cq_readerr);
	if (!rc && (!om_ok(&cq->head, "fi_cq_readerr") || !cq->first || !cq->first->entry.err))
		rc = -FI_EAGAIN;
	if (!rc) {
		*entry = cq->first->entry;
		pop(cq);
		rc = 1;
	}
	return om_unlock(rc);
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof(cq_fid_ops), .close = cq_close, .control = cq_control};
static struct fi_ops_cq cq_ops = {.size = sizeof(cq_ops), .read = cq_read, .readerr = cq_readerr};

static int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out,
		   void *context)
{
	struct om_domain *domain = OM_OF(domain, fid);
	struct om_cq *cq;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_cq_open);
	if (!rc && attr->wait_obj != FI_WAIT_NONE &&
	    (attr->wait_obj != FI_WAIT_FD || !om.options.wait_fd))
		rc = -FI_ENOSYS;
	if (rc || !om_ok(&domain->head, "fi_cq_open"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	if (attr->format != FI_CQ_FORMAT_DATA)
		om_violation("the mock's queues have format FI_CQ_FORMAT_DATA alone");
	cq = om_memory(sizeof(*cq));
	om_new(&cq->head, "completion queue", &domain->head, cq);
	cq->fid.fid = (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &cq_fid_ops};
	cq->fid.ops = &cq_ops;
	cq->size = attr->size;
	cq->last = &cq->first;
	cq->fd = attr->wait_obj == FI_WAIT_FD ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
	*out = &cq->fid;
	return om_unlock(0);
}

/* ---- a table of addresses ---- */

static int av_close(struct fid *fid)
{
	struct om_av *av = OM_OF(av, fid);
	int rc;

	om_lock();
	rc = om_end(&av->head, OFI_MOCK_av_close);
	if (!av->head.alive) {
		free(av->addresses);
		av->addresses = NULL;
	}
	return om_unlock(rc);
}

/* As EFA does it: an address that is in the table already keeps its place. */
static fi_addr_t place_of(struct om_av *av, const struct om_address *address)
{
	fi_addr_t free_place = av->count;

	for (fi_addr_t i = 0; i < av->count; i++) {
		if (memcmp(&av->addresses[i], address, sizeof(*address)) == 0)
			return i;
		if (!av->addresses[i].magic && free_place == av->count)
			free_place = i;
	}
	if (free_place == av->capacity) {
		av->capacity = av->capacity ? 2 * av->capacity : 4;
		av->addresses = realloc(av->addresses, av->capacity * sizeof(*av->addresses));
		if (!av->addresses)
			abort();
	}
	if (free_place == av->count)
		av->count++;
	av->addresses[free_place] = *address;
	return free_place;
}

static int av_insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *out,
		     uint64_t flags, void *context)
{
	struct om_av *av = OM_OF(av, fid);
	struct om_address address;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_av_insert);
	if (rc || !om_ok(&av->head, "fi_av_insert"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	if (count != 1)
		om_violation("fi_av_insert of %zu addresses", count);
	memcpy(&address, addresses, sizeof(address));
	*out = FI_ADDR_NOTAVAIL;
	if (address.magic == 0xefa)
		*out = place_of(av, &address);
	return om_unlock(*out != FI_ADDR_NOTAVAIL);
}

static int av_remove(struct fid_av *fid, fi_addr_t *addresses, size_t count, uint64_t flags)
{
	struct om_av *av = OM_OF(av, fid);
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_av_remove);
	if (!om_ok(&av->head, "fi_av_remove"))
		return om_unlock(-FI_EINVAL);
	for (size_t i = 0; i < count; i++) {
		if (addresses[i] >= av->count || !av->addresses[addresses[i]].magic)
			om_violation("fi_av_remove of an address that is not in the table");
		else
			av->addresses[addresses[i]] = (struct om_address){0};
	}
	return om_unlock(rc);
}

static struct fi_ops av_fid_ops = {.size = sizeof(av_fid_ops), .close = av_close};
static struct fi_ops_av av_ops = {.size = sizeof(av_ops), .insert = av_insert, .remove = av_remove};

static int av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **out,
		   void *context)
{
	struct om_domain *domain = OM_OF(domain, fid);
	struct om_av *av;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_av_open);
	if (rc || !om_ok(&domain->head, "fi_av_open"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	av = om_memory(sizeof(*av));
	om_new(&av->head, "table of addresses", &domain->head, av);
	av->fid.fid = (struct fid){.fclass = FI_CLASS_AV, .context = context, .ops = &av_fid_ops};
	av->fid.ops = &av_ops;
	*out = &av->fid;
	return om_unlock(0);
}

/* ---- domain and fabric ---- */

static int domain_close(struct fid *fid)
{
	om_lock();
	return om_unlock(om_end(&OM_OF(domain, fid)->head, OFI_MOCK_domain_close));
}

static struct fi_ops domain_fid_ops = {.size = sizeof(domain_fid_ops), .close = domain_close};
static struct fi_ops_domain domain_ops = {.size = sizeof(domain_ops),
					  .av_open = av_open,
					  .cq_open = cq_open,
					  .endpoint = om_endpoint};

static int domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out,
		       void *context)
{
	struct om_fabric *fabric = OM_OF(fabric, fid);
	struct om_domain *domain;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_domain);
	if (rc || !om_ok(&fabric->head, "fi_domain"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	domain = om_memory(sizeof(*domain));
	om_new(&domain->head, "domain", &fabric->head, domain);
	domain->fid.fid =
		(struct fid){.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid_ops};
	domain->fid.ops = &domain_ops;
	domain->fid.mr = &domain_mr_ops;
	domain->device = (uint32_t)strtoul(info->domain_attr->name + strlen("mock"), NULL, 10);
	*out = &domain->fid;
	return om_unlock(0);
}

/* 0: its descriptor tells of whatever comes now. */
static int trywait(struct fid_fabric *fid, struct fid **fids, int count)
{
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_trywait);
	for (int i = 0; i < count && !rc; i++) {
		struct om_cq *cq = OM_OF(cq, fids[i]);
		eventfd_t value;

		if (fids[i]->fclass != FI_CLASS_CQ || !om_ok(&cq->head, "fi_trywait")) {
			om_violation("fi_trywait of what is no queue");
			continue;
		}
		(void)!eventfd_read(cq->fd, &value);
		if (cq->first)
			rc = -FI_EAGAIN;
	}
	return om_unlock(rc);
}

static int fabric_close(struct fid *fid)
{
	om_lock();
	return om_unlock(om_end(&OM_OF(fabric, fid)->head, OFI_MOCK_fabric_close));
}

static struct fi_ops fabric_fid_ops = {.size = sizeof(fabric_fid_ops), .close = fabric_close};
static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(fabric_ops), .domain = domain_open, .trywait = trywait};

int om_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct om_fabric *fabric;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_fabric);
	if (rc)
		return om_unlock(rc);
	if (!attr->prov_name || strcmp(attr->prov_name, "efa") != 0)
		om_violation("a fabric of another provider");
	fabric = om_memory(sizeof(*fabric));
	om_new(&fabric->head, "fabric", NULL, fabric);
	fabric->fid.fid =
		(struct fid){.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid_ops};
	fabric->fid.ops = &fabric_ops;
	*out = &fabric->fid;
	return om_unlock(0);
}
