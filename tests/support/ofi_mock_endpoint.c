/* SPDX-License-Identifier: Apache-2.0
 *
 * ofi_mock_endpoint.c -- an endpoint, what is posted on it, and what libfabric asks of both.
 */
#include "tests/support/ofi_mock_parts.h"

#include <stdlib.h>
#include <string.h>

static int ep_close(struct fid *fid)
{
	struct om_ep *ep = OM_OF(ep, fid);
	int rc;

	om_lock();
	rc = om_end(&ep->head, OFI_MOCK_ep_close);
	if (!ep->head.alive) {
		om_ep_gone(ep);
		if (ep->cq)
			ep->cq->head.children--;
		if (ep->av)
			ep->av->head.children--;
	}
	return om_unlock(rc);
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct om_ep *ep = OM_OF(ep, fid);
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_ep_bind);
	if (rc || !om_ok(&ep->head, "fi_ep_bind"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	if (ep->enabled)
		om_violation("fi_ep_bind after fi_enable");
	if (other->fclass == FI_CLASS_CQ && !ep->cq && flags == (FI_TRANSMIT | FI_RECV)) {
		ep->cq = OM_OF(cq, other);
		ep->cq->head.children++;
	} else if (other->fclass == FI_CLASS_AV && !ep->av && !flags) {
		ep->av = OM_OF(av, other);
		ep->av->head.children++;
	} else {
		om_violation("fi_ep_bind of class %zu with flags %#lx", other->fclass, flags);
		rc = -FI_EINVAL;
	}
	return om_unlock(rc);
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct om_ep *ep = OM_OF(ep, fid);
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_ep_enable);
	if (rc || !om_ok(&ep->head, "fi_enable"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	if (command != FI_ENABLE || !ep->cq || !ep->av || ep->enabled) {
		om_violation("fi_enable twice, or of an endpoint without queue or table");
		rc = -FI_EINVAL;
	}
	ep->enabled = true;
	return om_unlock(rc);
}

static int ep_getname(struct fid *fid, void *address, size_t *length)
{
	struct om_ep *ep = OM_OF(ep, fid);
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_getname);
	if (!rc && (!om_ok(&ep->head, "fi_getname") || !ep->enabled))
		rc = -FI_EINVAL; /* EFA's queue pair, and so its number, comes with fi_enable */
	if (!rc && *length < sizeof(ep->address))
		rc = -FI_ETOOSMALL;
	if (!rc)
		memcpy(address, &ep->address, sizeof(ep->address));
	*length = sizeof(ep->address);
	return om_unlock(rc);
}

/* ---- posts ---- */

static bool local_ok(const struct om_ep *ep, const void *memory, size_t bytes, const void *desc,
		     uint64_t access, const char *call)
{
	const struct om_mr *mr = desc;
	const unsigned char *at = memory;

	if (!mr || !om_ok(&mr->head, call) || mr->domain != ep->domain || !(mr->access & access) ||
	    at < mr->memory || bytes > mr->bytes || at + bytes > mr->memory + mr->bytes) {
		om_violation("%s of memory whose registration it is not", call);
		return false;
	}
	return true;
}

static ssize_t ep_recv(struct fid_ep *fid, void *memory, size_t bytes, void *desc, fi_addr_t source,
		       void *context)
{
	struct om_ep *ep = OM_OF(ep, fid);
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_recv);
	if (!rc && (!om_ok(&ep->head, "fi_recv") || !ep->enabled || !context ||
		    !local_ok(ep, memory, bytes, desc, FI_RECV, "fi_recv")))
		rc = -FI_EINVAL;
	if (!rc && ep->receive_count == OFI_MOCK_RECEIVES)
		rc = -FI_EAGAIN;
	if (!rc) {
		ep->receives[(ep->receive_first + ep->receive_count++) % OFI_MOCK_RECEIVES] =
			(struct om_receive){memory, context, bytes, desc};
		OM_OF(mr, desc)->receives++;
	}
	return om_unlock(rc);
}

/* Full, or without a reason, or the two do not know each other yet. */
static bool again(struct om_ep *ep, fi_addr_t to)
{
	if (ep->met != to) {
		ep->met = to;
		ep->met_at = ep->cq->reads + om_random(6);
	}
	return om.mute || ep->cq->reads < ep->met_at || ep->posted >= om.options.tx_size ||
	       om_random(om.options.again_in) == 0;
}

static int post(struct om_ep *ep, fi_addr_t to, const struct om_op *wanted, const char *call,
		enum ofi_mock_call which, uint64_t access)
{
	struct om_op *op;
	int rc;

	om_lock();
	rc = om_fault(which);
	if (!rc && (!om_ok(&ep->head, call) || !ep->enabled || !wanted->context ||
		    !local_ok(ep, wanted->local, wanted->bytes, wanted->local_mr, access, call)))
		rc = -FI_EINVAL;
	if (!rc && (to >= ep->av->count || !ep->av->addresses[to].magic)) {
		om_violation("%s to an address that is not in the table", call);
		rc = -FI_EINVAL;
	}
	if (!rc && ep->cut)
		rc = -FI_ENOTCONN;
	if (!rc && again(ep, to))
		rc = -FI_EAGAIN;
	if (rc)
		return om_unlock(rc);
	op = om_memory(sizeof(*op));
	*op = *wanted;
	op->source = ep;
	op->to = ep->av->addresses[to];
	om_post(op);
	return om_unlock(0);
}

static ssize_t ep_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	const struct om_op op = {.message = true,
				 .delivery = flags & FI_DELIVERY_COMPLETE,
				 .context = msg->context,
				 .local = msg->msg_iov->iov_base,
				 .local_mr = msg->desc ? msg->desc[0] : NULL,
				 .bytes = msg->msg_iov->iov_len};

	if (msg->iov_count != 1 || !(flags & FI_COMPLETION))
		om_violation("fi_sendmsg of %zu parts with flags %#lx", msg->iov_count, flags);
	return post(OM_OF(ep, ep), msg->addr, &op, "fi_sendmsg", OFI_MOCK_sendmsg, FI_SEND);
}

static int write_one(struct fid_ep *ep, fi_addr_t to, struct om_op *op, uint64_t flags)
{
	op->delivery = flags & FI_DELIVERY_COMPLETE;
	if (op->data > UINT32_MAX)
		om_violation("remote data of more than the 4 bytes that are carried");
	return post(OM_OF(ep, ep), to, op, "fi_writemsg", OFI_MOCK_writemsg, FI_WRITE);
}

static ssize_t ep_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
	struct om_op op = {.context = msg->context,
			   .local = msg->msg_iov->iov_base,
			   .local_mr = msg->desc ? msg->desc[0] : NULL,
			   .bytes = msg->msg_iov->iov_len,
			   .data = msg->data,
			   .address = msg->rma_iov->addr,
			   .key = msg->rma_iov->key};

	if (msg->iov_count != 1 || msg->rma_iov_count != 1 || !(flags & FI_REMOTE_CQ_DATA) ||
	    !(flags & FI_COMPLETION) || msg->rma_iov->len != op.bytes)
		om_violation("fi_writemsg of %zu parts with flags %#lx", msg->iov_count, flags);
	return write_one(ep, msg->addr, &op, flags);
}

static ssize_t ep_writedata(struct fid_ep *ep, const void *memory, size_t bytes, void *desc,
			    uint64_t data, fi_addr_t to, uint64_t address, uint64_t key,
			    void *context)
{
	struct om_op op = {.context = context,
			   .local = memory,
			   .local_mr = desc,
			   .bytes = bytes,
			   .data = data,
			   .address = address,
			   .key = key};

	return write_one(ep, to, &op, 0);
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(ep_fid_ops), .close = ep_close, .bind = ep_bind, .control = ep_control};
static struct fi_ops_ep ep_ops = {.size = sizeof(ep_ops)};
static struct fi_ops_cm ep_cm_ops = {.size = sizeof(ep_cm_ops), .getname = ep_getname};
static struct fi_ops_msg ep_msg_ops = {
	.size = sizeof(ep_msg_ops), .recv = ep_recv, .sendmsg = ep_sendmsg};
static struct fi_ops_rma ep_rma_ops = {
	.size = sizeof(ep_rma_ops), .writemsg = ep_writemsg, .writedata = ep_writedata};

int om_endpoint(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct om_domain *domain = OM_OF(domain, fid);
	struct om_ep *ep;
	int rc;

	om_lock();
	rc = om_fault(OFI_MOCK_endpoint);
	if (rc || !om_ok(&domain->head, "fi_endpoint"))
		return om_unlock(rc ? rc : -FI_EINVAL);
	if (info->ep_attr->type != FI_EP_RDM)
		om_violation("an endpoint of type %d", info->ep_attr->type);
	ep = om_memory(sizeof(*ep));
	om_new(&ep->head, "endpoint", &domain->head, ep);
	ep->fid.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &ep_fid_ops};
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &ep_cm_ops;
	ep->fid.msg = &ep_msg_ops;
	ep->fid.rma = &ep_rma_ops;
	ep->domain = domain;
	ep->met = FI_ADDR_UNSPEC;
	ep->address =
		(struct om_address){.magic = 0xefa, .unique = om.unique, .device = domain->device};
	om.eps = om_grow(om.eps, om.unique);
	om.eps[om.unique++] = ep;
	*out = &ep->fid;
	return om_unlock(0);
}
