/* SPDX-License-Identifier: Apache-2.0
 *
 * Protection domains, memory regions, completion queues with their channels, shared receive
 * queues.
 */
#include "tests/support/verbs_mock_parts.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CONTEXT_OF(object) MOCK_OF(context, (object)->context)

static int context_fault(struct ibv_context *context, enum verbs_mock_call call)
{
	int rc = mock_fault(call);

	if (!mock_object_ok(&MOCK_OF(context, context)->head, MOCK_CONTEXT,
			    verbs_mock_call_name(call)))
		return EINVAL;
	return rc < 0 && mock_device_of(context)->dead ? EIO : rc;
}

/* ---- protection domains ---- */

struct ibv_pd *mock_alloc_pd(struct ibv_context *context)
{
	struct mock_pd *pd;
	int rc;

	mock_lock();
	rc = context_fault(context, VERBS_MOCK_alloc_pd);
	if (rc >= 0)
		return mock_null(rc);
	pd = mock_memory(sizeof(*pd));
	pd->ibv.context = context;
	mock_object_new(&pd->head, MOCK_PD, mock_device_of(context));
	MOCK_OF(context, context)->head.children++;
	mock_unlock();
	return &pd->ibv;
}

/* Ends an object that others may still need; 0, or EBUSY with a violation. A call that a fault
 * strikes has its effect all the same: nobody could call it again in a useful way. */
static int end(struct mock_head *head, enum mock_type type, enum verbs_mock_call call, int *failed)
{
	const char *name = verbs_mock_call_name(call);

	*failed = mock_fault(call);
	if (!mock_object_ok(head, type, name))
		return EINVAL;
	if (head->children) {
		mock_violation("%s: %d objects still need it", name, head->children);
		return EBUSY;
	}
	mock_object_end(head, name);
	return 0;
}

static int ended(int failed)
{
	if (failed >= 0)
		return mock_positive(failed);
	mock_unlock();
	return 0;
}

int mock_dealloc_pd(struct ibv_pd *pd)
{
	int failed, rc;

	mock_lock();
	rc = end(&MOCK_OF(pd, pd)->head, MOCK_PD, VERBS_MOCK_dealloc_pd, &failed);
	if (rc)
		return mock_positive(rc);
	CONTEXT_OF(pd)->head.children--;
	return ended(failed);
}

/* ---- memory regions ---- */

static struct ibv_mr *mr_new(struct ibv_pd *pd, void *address, size_t bytes, unsigned access,
			     uint64_t device)
{
	struct mock_mr *mr = mock_memory(sizeof(*mr)), **place = array_push(&mock_fabric.mrs);

	if (!place)
		abort();
	*place = mr;
	mr->access = access;
	mr->device = device;
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = address;
	mr->ibv.length = bytes;
	/* local and remote keys differ, so that one is not used for the other */
	mr->ibv.lkey = (uint32_t)mock_fabric.mrs.count << 9 | 0x35;
	mr->ibv.rkey = (uint32_t)mock_fabric.mrs.count << 9 | 0x100 | 0x36;
	mock_object_new(&mr->head, MOCK_MR, mock_device_of(pd->context));
	MOCK_OF(pd, pd)->head.children++;
	mock_unlock();
	return &mr->ibv;
}

struct mock_mr *mock_mr_find(uint32_t key)
{
	uint32_t index = key >> 9;
	struct mock_mr *mr;

	if (index == 0 || index > mock_fabric.mrs.count)
		return NULL;
	mr = mock_fabric.mrs.items[index - 1];
	return mr->head.alive ? mr : NULL;
}

static int reg_check(struct ibv_pd *pd, size_t bytes, unsigned access)
{
	const struct verbs_mock_options *options = &mock_fabric.options;

	if (!mock_object_ok(&MOCK_OF(pd, pd)->head, MOCK_PD, "reg_mr"))
		return EINVAL;
	if (options->max_mr && (uint32_t)mock_fabric.alive[MOCK_MR] >= options->max_mr)
		return ENOMEM;
	if (options->max_mr_size && bytes > options->max_mr_size) {
		mock_violation("reg_mr: %zu bytes are more than max_mr_size", bytes);
		return EINVAL;
	}
	if (access & IBV_ACCESS_REMOTE_WRITE && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		mock_violation("reg_mr: remote write needs local write");
		return EINVAL;
	}
	return -1;
}

/* Addresses of a device, as they are: the driver of its NICs has to know how. */
static int find_device(const void *address, uint64_t *device)
{
	const struct verbs_mock_gpu *gpu = mock_fabric.options.gpu;

	*device = 0;
	if (!gpu || !gpu->is_device((uintptr_t)address))
		return -1;
	if (!mock_fabric.options.peermem)
		return EFAULT;
	*device = (uintptr_t)address;
	return -1;
}

struct ibv_mr *mock_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, unsigned access)
{
	uint64_t device;
	int rc;

	mock_lock();
	rc = context_fault(pd->context, VERBS_MOCK_reg_mr);
	if (rc < 0)
		rc = reg_check(pd, bytes, access);
	if (rc < 0 && bytes && !address)
		rc = EFAULT;
	if (rc < 0)
		rc = find_device(address, &device);
	return rc >= 0 ? mock_null(rc) : mr_new(pd, address, bytes, access, device);
}

/* Bytes [offset, offset + bytes) of what the descriptor stands for, wherever iova says that they are. */
static int find_dmabuf(int fd, uint64_t offset, size_t bytes, uint64_t iova, uint64_t *device)
{
	const struct verbs_mock_gpu *gpu = mock_fabric.options.gpu;
	uint64_t length;

	if (!mock_fabric.options.dmabuf)
		return EOPNOTSUPP;
	if (fd < 0 || !gpu || !gpu->dmabuf(fd, device, &length))
		return EBADF;
	if ((offset & 4095) != (iova & 4095) || offset > length || bytes > length - offset)
		return EINVAL;
	*device += offset;
	return -1;
}

struct ibv_mr *mock_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
				  int fd, int access)
{
	uint64_t device;
	int rc;

	mock_lock();
	rc = context_fault(pd->context, VERBS_MOCK_reg_dmabuf_mr);
	if (rc < 0)
		rc = find_dmabuf(fd, offset, bytes, iova, &device);
	if (rc < 0)
		rc = reg_check(pd, bytes, (unsigned)access);
	return rc >= 0 ? mock_null(rc)
		       : mr_new(pd, (void *)(uintptr_t)iova, bytes, (unsigned)access, device);
}

int mock_dereg_mr(struct ibv_mr *mr)
{
	struct mock_mr *mock = MOCK_OF(mr, mr);
	int failed, rc;

	mock_lock();
	if (mock->head.alive)
		mock_mr_settle(mock);
	rc = end(&mock->head, MOCK_MR, VERBS_MOCK_dereg_mr, &failed);
	if (rc)
		return mock_positive(rc);
	MOCK_OF(pd, mr->pd)->head.children--;
	return ended(failed);
}

/* ---- channels ---- */

struct ibv_comp_channel *mock_create_comp_channel(struct ibv_context *context)
{
	struct mock_channel *channel;
	int rc;

	mock_lock();
	rc = context_fault(context, VERBS_MOCK_create_comp_channel);
	if (rc >= 0)
		return mock_null(rc);
	channel = mock_memory(sizeof(*channel));
	channel->ibv.context = context;
	channel->ibv.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (channel->ibv.fd < 0) {
		free(channel);
		return mock_null(errno);
	}
	mock_object_new(&channel->head, MOCK_CHANNEL, mock_device_of(context));
	MOCK_OF(context, context)->head.children++;
	mock_unlock();
	return &channel->ibv;
}

int mock_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	int failed, rc;

	mock_lock();
	rc = end(&MOCK_OF(channel, channel)->head, MOCK_CHANNEL, VERBS_MOCK_destroy_comp_channel,
		 &failed);
	if (rc)
		return mock_positive(rc);
	CONTEXT_OF(channel)->head.children--;
	close(channel->fd);
	channel->fd = -1;
	return ended(failed);
}

static void channel_ring(struct mock_cq *cq)
{
	struct mock_channel *channel = MOCK_OF(channel, cq->ibv.channel);
	struct mock_cq **place = array_push(&channel->events);
	uint64_t one = 1;

	if (!place)
		abort();
	*place = cq;
	if (write(channel->ibv.fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

static void channel_forget(struct mock_channel *channel, const struct mock_cq *cq)
{
	struct pollfd readable = {.fd = channel->ibv.fd, .events = POLLIN};
	uint64_t token;
	size_t kept = 0;

	for (size_t i = 0; i < channel->events.count; i++) {
		struct mock_cq *at = channel->events.items[i];

		if (at != cq)
			channel->events.items[kept++] = at;
		else if (poll(&readable, 1, 0) == 1 &&
			 read(channel->ibv.fd, &token, sizeof(token)) < 0)
			abort();
	}
	channel->events.count = kept;
}

int mock_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
	struct mock_channel *mock = MOCK_OF(channel, channel);
	struct mock_cq *got = NULL;
	uint64_t token;
	int rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_get_cq_event);
	if (!mock_object_ok(&mock->head, MOCK_CHANNEL, "get_cq_event"))
		rc = EBADF;
	if (rc >= 0)
		return mock_minus(rc);
	mock_unlock();
	do {
		if (read(channel->fd, &token, sizeof(token)) < 0)
			return -1;
		mock_lock();
		if (mock->events.count) {
			got = mock->events.items[0];
			mock->events.count--;
			memmove(mock->events.items, mock->events.items + 1,
				mock->events.count * sizeof(got));
			got->comp_taken++;
		}
		mock_unlock();
	} while (!got);
	*cq = &got->ibv;
	*user = got->ibv.cq_context;
	return 0;
}

void mock_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	struct mock_cq *mock = MOCK_OF(cq, cq);

	mock_lock();
	mock_fabric.called[VERBS_MOCK_ack_cq_events]++;
	if (mock_object_ok(&mock->head, MOCK_CQ, "ack_cq_events")) {
		mock->comp_acked += count;
		if (mock->comp_acked > mock->comp_taken)
			mock_violation("ack_cq_events: more than were taken");
	}
	mock_unlock();
}

/* ---- completion queues ---- */

struct ibv_cq *mock_create_cq(struct ibv_context *context, int entries, void *user,
			      struct ibv_comp_channel *channel)
{
	uint32_t max = mock_fabric.options.max_cqe;
	struct mock_cq *cq;
	int rc;

	mock_lock();
	rc = context_fault(context, VERBS_MOCK_create_cq);
	if (rc < 0 && (entries < 1 || (max && (uint32_t)entries > max))) {
		mock_violation("create_cq: %d entries, of at most %u", entries, max);
		rc = EINVAL;
	}
	if (rc >= 0)
		return mock_null(rc);
	cq = mock_memory(sizeof(*cq));
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = user;
	cq->ibv.cqe = entries;
	mock_object_new(&cq->head, MOCK_CQ, mock_device_of(context));
	MOCK_OF(context, context)->head.children++;
	if (channel)
		MOCK_OF(channel, channel)->head.children++;
	mock_unlock();
	return &cq->ibv;
}

int mock_destroy_cq(struct ibv_cq *cq)
{
	struct mock_cq *mock = MOCK_OF(cq, cq);
	int failed, rc;

	mock_lock();
	rc = end(&mock->head, MOCK_CQ, VERBS_MOCK_destroy_cq, &failed);
	if (rc)
		return mock_positive(rc);
	if (mock->comp_taken != mock->comp_acked)
		mock_violation("destroy_cq: %u completion events were not acknowledged",
			       mock->comp_taken - mock->comp_acked);
	mock_event_drop(cq->context, &mock->head);
	CONTEXT_OF(cq)->head.children--;
	if (cq->channel) {
		channel_forget(MOCK_OF(channel, cq->channel), mock);
		MOCK_OF(channel, cq->channel)->head.children--;
	}
	return ended(failed);
}

int mock_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct mock_cq *mock = MOCK_OF(cq, cq);
	int rc;

	mock_lock();
	rc = context_fault(cq->context, VERBS_MOCK_req_notify_cq);
	if (rc < 0 && !mock_object_ok(&mock->head, MOCK_CQ, "req_notify_cq"))
		rc = EINVAL;
	if (rc >= 0)
		return mock_positive(rc);
	if (!cq->channel || solicited_only)
		mock_violation("req_notify_cq: no channel, or solicited events that nobody sends");
	mock->armed = true;
	mock_unlock();
	return 0;
}

void mock_cq_push(struct mock_cq *cq, const struct mock_wc *entry)
{
	struct mock_wc *place;

	if (!cq->head.alive)
		return;
	if (cq->entries.count - cq->first >= (size_t)cq->ibv.cqe) {
		struct ibv_async_event event = {.event_type = IBV_EVENT_CQ_ERR,
						.element.cq = &cq->ibv};

		mock_violation("a completion queue of %d entries overflowed", cq->ibv.cqe);
		mock_event_push(CONTEXT_OF(&cq->ibv), &event);
		return;
	}
	if (cq->first == cq->entries.count)
		cq->first = cq->entries.count = 0;
	place = array_push(&cq->entries);
	if (!place)
		abort();
	*place = *entry;
	cq->head.device->last[cq->ibv.channel != NULL] = entry->wc;
	cq->head.device->has_last[cq->ibv.channel != NULL] = true;
	if (cq->armed && cq->ibv.channel) {
		cq->armed = false;
		channel_ring(cq);
	}
}

/* A queue pair is going: some devices take its completions with it, some leave them. */
void mock_cq_purge(struct mock_cq *cq, struct mock_qp *qp, bool keep)
{
	struct mock_srq *srq = MOCK_OF(srq, qp->ibv.qp_base.srq);
	size_t kept = cq->first;

	for (size_t i = cq->first; i < cq->entries.count; i++) {
		struct mock_wc entry = cq->entries.items[i];

		if (entry.qp != qp || keep) {
			if (entry.qp == qp)
				entry.qp = NULL;
			cq->entries.items[kept++] = entry;
			continue;
		}
		if (entry.took_receive && srq) {
			uint64_t *place = array_push(&srq->wr_ids);

			if (!place)
				abort();
			*place = entry.wc.wr_id;
		}
	}
	cq->entries.count = kept;
}

/* Only status, wr_id, qp_num and vendor_err of a failure mean anything. */
static void garble(struct ibv_wc *wc)
{
	wc->opcode = (enum ibv_wc_opcode)mock_random(256);
	wc->byte_len = (uint32_t)mock_random(UINT32_MAX);
	wc->imm_data = (uint32_t)mock_random(UINT32_MAX);
	wc->wc_flags = (unsigned)mock_random(8);
	wc->src_qp = (uint32_t)mock_random(1 << 24);
	wc->slid = (uint16_t)mock_random(65536);
}

static int cq_take(struct mock_cq *cq, int max, struct ibv_wc *done)
{
	int taken = 0;

	while (taken < max && cq->first < cq->entries.count) {
		struct mock_wc *entry = &cq->entries.items[cq->first++];

		done[taken] = entry->wc;
		if (entry->wc.status != IBV_WC_SUCCESS)
			garble(&done[taken]);
		if (entry->qp && entry->qp->polled < entry->retires)
			entry->qp->polled = entry->retires;
		taken++;
	}
	return taken;
}

static __thread bool looking;

static void poll_steps(const struct mock_cq *cq)
{
	uint64_t steps = mock_random(mock_fabric.options.steps_per_poll + 1);
	void (*look)(void *context) = mock_fabric.look;
	void *context = mock_fabric.look_context;

	for (uint64_t i = 0; i < steps; i++) {
		if (!mock_step())
			return;
		if (!look || looking || cq->ibv.channel)
			continue;
		mock_unlock();
		looking = true;
		look(context);
		looking = false;
		mock_lock();
	}
}

int mock_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *done)
{
	struct mock_cq *mock = MOCK_OF(cq, cq);
	int taken = 0, rc;

	mock_lock();
	rc = mock_fault(VERBS_MOCK_poll_cq);
	if (!mock_object_ok(&mock->head, MOCK_CQ, "poll_cq"))
		rc = EINVAL;
	if (rc >= 0)
		return mock_minus(rc);
	poll_steps(mock);
	if (max > 1 && mock_random(4) == 0)
		max = 1 + (int)mock_random((uint64_t)max);
	if (!mock->head.device->dead)
		taken = cq_take(mock, max, done);
	mock_unlock();
	return taken;
}

/* ---- shared receive queues ---- */

struct ibv_srq *mock_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	uint32_t max = mock_fabric.options.max_srq_wr;
	struct mock_srq *srq;
	int rc;

	mock_lock();
	rc = context_fault(pd->context, VERBS_MOCK_create_srq);
	if (rc < 0 && max && attr->attr.max_wr > max) {
		mock_violation("create_srq: %u receives, of at most %u", attr->attr.max_wr, max);
		rc = EINVAL;
	}
	if (rc >= 0)
		return mock_null(rc);
	srq = mock_memory(sizeof(*srq));
	srq->ibv.context = pd->context;
	srq->ibv.pd = pd;
	srq->ibv.srq_context = attr->srq_context;
	srq->max_wr = attr->attr.max_wr;
	mock_object_new(&srq->head, MOCK_SRQ, mock_device_of(pd->context));
	MOCK_OF(pd, pd)->head.children++;
	mock_unlock();
	return &srq->ibv;
}

int mock_destroy_srq(struct ibv_srq *srq)
{
	struct mock_srq *mock = MOCK_OF(srq, srq);
	int failed, rc;

	mock_lock();
	rc = end(&mock->head, MOCK_SRQ, VERBS_MOCK_destroy_srq, &failed);
	if (rc)
		return mock_positive(rc);
	mock_event_drop(srq->context, &mock->head);
	MOCK_OF(pd, srq->pd)->head.children--;
	return ended(failed);
}

int mock_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct mock_srq *mock = MOCK_OF(srq, srq);
	int rc;

	mock_lock();
	rc = context_fault(srq->context, VERBS_MOCK_post_srq_recv);
	if (rc < 0 && !mock_object_ok(&mock->head, MOCK_SRQ, "post_srq_recv"))
		rc = EINVAL;
	for (uint32_t i = 0; wr; wr = wr->next, i++) {
		uint64_t *place;

		if (rc >= 0 && (i >= mock_fabric.fail_wr || !wr->next))
			break;
		if (mock->wr_ids.count - mock->first >= mock->max_wr) {
			rc = ENOMEM;
			break;
		}
		if (mock->first > 4096) {
			mock->wr_ids.count -= mock->first;
			memmove(mock->wr_ids.items, mock->wr_ids.items + mock->first,
				mock->wr_ids.count * sizeof(uint64_t));
			mock->first = 0;
		}
		place = array_push(&mock->wr_ids);
		if (!place)
			abort();
		*place = wr->wr_id;
	}
	if (rc >= 0) {
		*bad = wr;
		return mock_positive(rc);
	}
	mock_unlock();
	return 0;
}
