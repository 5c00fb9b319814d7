/* SPDX-License-Identifier: Apache-2.0
 *
 * errors.c -- what a set-up step that failed means: one table by step and errno, one that looks
 * at both ends of a queue pair. Both are searched from the top, the narrower row first.
 */
#include "transport/verbs/errors.h"

#include "base/array.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DOING_BYTES 320

int verbs_errno(long result)
{
	if (result == 0 || result == -1)
		return errno;
	if (result < -4095 || result > 4095)
		return 0;
	return (int)(result < 0 ? -result : result);
}

/* "ENOMEM (Cannot allocate memory)"; never the words that strerror has for 0. */
const char *verbs_errno_text(int errnum, const char *device, char text[VERBS_ERRNO_BYTES])
{
	const char *name = errnum ? strerrorname_np(errnum) : NULL;
	const char *words = errnum ? strerrordesc_np(errnum) : NULL;

	if (errnum == 0)
		snprintf(text, VERBS_ERRNO_BYTES,
			 "not supported by %.63s, whose driver names no error", device);
	else if (name && words)
		snprintf(text, VERBS_ERRNO_BYTES, "%s (%s)", name, words);
	else
		snprintf(text, VERBS_ERRNO_BYTES, "errno %d", errnum);
	return text;
}

#define BIT(step) (1u << VERBS_STEP_##step)
#define ANY_STEP  (~0u)
#define QUEUES	  (BIT(CQ) | BIT(SRQ) | BIT(QP))
#define CREATES	  (BIT(PD) | BIT(CHANNEL) | QUEUES)
#define POSTS	  (BIT(RECEIVE) | BIT(POST))
#define ANY_ERRNO (-1)
#define NO_ERRNO  0

struct step_cause {
	unsigned steps;
	int errnum;
	enum error_code code;
	const char *cause, *fix;
};

#define READ_DMESG "read dmesg for that device"
#define OTHER_NIC  "choose another NIC with --nic (weft doctor shows what each can do)"
#define NODE_MISSING                                    \
	"there is no node of it under /dev/infiniband", \
		"load ib_uverbs on the host, and pass /dev/infiniband into the container"
#define NODE_FORBIDDEN                                                                         \
	"this process may not use the device's node under /dev/infiniband",                    \
		"start the container with --device=/dev/infiniband (Kubernetes: with an RDMA " \
		"device plugin)"
#define NO_KERNEL \
	"this kernel has no RDMA support", "boot one with it (/sys/class/infiniband must exist)"
#define CGROUP                                                       \
	"the limit of this process's RDMA control group is reached", \
		"raise rdma.max of its control group on the host"

static const struct step_cause step_causes[] = {
	{BIT(OPEN), NO_ERRNO, ERROR_UNSUPPORTED,
	 "the provider library does not fit the kernel's driver",
	 "install the ibverbs-providers package of this distribution"},
	{BIT(OPEN), ENOENT, ERROR_UNSUPPORTED, NODE_MISSING},
	{BIT(OPEN), ENODEV, ERROR_UNSUPPORTED, NODE_MISSING},
	{BIT(OPEN), ENXIO, ERROR_UNSUPPORTED, NODE_MISSING},
	{BIT(OPEN), EINVAL, ERROR_UNSUPPORTED,
	 "the provider library is older than the kernel's driver",
	 "install the ibverbs-providers package that belongs to this kernel"},
	{BIT(CQ), EINVAL, ERROR_UNSUPPORTED, "the queue is longer than the device's max_cqe",
	 "lower WEFT_QUEUE_DEPTH (of signals: WEFT_RECEIVE_DEPTH)"},
	{BIT(SRQ), EINVAL, ERROR_UNSUPPORTED, "the queue is longer than the device's max_srq_wr",
	 "lower WEFT_RECEIVE_DEPTH"},
	{BIT(QP), EINVAL, ERROR_UNSUPPORTED, "the queue is longer than the device's max_qp_wr",
	 "lower WEFT_QUEUE_DEPTH"},
	{BIT(INIT), EINVAL, ERROR_TRANSPORT,
	 "the port does not exist or its partition key moved to another row",
	 "look at the port with ibv_devinfo -v, then connect anew"},
	{BIT(RTR), EINVAL, ERROR_TRANSPORT, "the row of the GID table is empty or has moved",
	 "connect anew, so that the table is read again"},
	{BIT(RTS), EINVAL, ERROR_TRANSPORT,
	 "the device does not take this timeout or number of retries",
	 "unset WEFT_IB_TIMEOUT and WEFT_IB_RETRY"},
	{POSTS, EINVAL, ERROR_TRANSPORT, "the queue is in a state that takes no request",
	 "look for the first failure of this endpoint in the logs of both sides"},
	{ANY_STEP, EINVAL, ERROR_TRANSPORT, "the driver refused one of the values",
	 "update rdma-core and the kernel's driver to versions that belong together"},
	{QUEUES, ENOMEM, ERROR_LIMIT, "queues are locked memory, and the limit on it is reached",
	 "start with 'ulimit -l unlimited' (docs/verbs.md, locked memory)"},
	{POSTS, ENOMEM, ERROR_TRANSPORT,
	 "the queue was full although weft counts what is in it, which is a bug in weft or the "
	 "driver",
	 "report it, and set WEFT_QPS=1 meanwhile"},
	{ANY_STEP, ENOMEM, ERROR_MEMORY, "the kernel has no memory for it",
	 "raise the container's memory limit or free memory on this host"},
	{ANY_STEP, EMFILE, ERROR_LIMIT, "this process has no file descriptor left",
	 "start with 'ulimit -n 65536'"},
	{ANY_STEP, ENFILE, ERROR_LIMIT, "this host has no file descriptor left",
	 "raise sysctl fs.file-max"},
	{BIT(OPEN) | CREATES, EAGAIN, ERROR_LIMIT, CGROUP},
	{BIT(OPEN) | CREATES, ENOSPC, ERROR_LIMIT, "the device has no object of this kind left",
	 "end other processes that use it ('rdma resource' counts what each holds)"},
	{BIT(RTR), ETIMEDOUT, ERROR_TIMEOUT, "the peer's address was not resolved",
	 "ping the peer's address from this NIC's interface"},
	{ANY_STEP, ETIMEDOUT, ERROR_TIMEOUT, "the device's firmware did not answer", READ_DMESG},
	{ANY_STEP, ENODEV, ERROR_TRANSPORT, "the device was removed or is being reset",
	 "wait until 'rdma link' shows it again, then restart this process"},
	{ANY_STEP, EIO, ERROR_TRANSPORT, "the device has failed", READ_DMESG},
	{ANY_STEP, EACCES, ERROR_UNSUPPORTED, NODE_FORBIDDEN},
	{ANY_STEP, EPERM, ERROR_UNSUPPORTED, NODE_FORBIDDEN},
	{BIT(QP), EOPNOTSUPP, ERROR_UNSUPPORTED, "the driver lacks the ibv_wr calls",
	 "set WEFT_IBV_WR=off"},
	{BIT(OPEN) | BIT(QUERY), ENOSYS, ERROR_UNSUPPORTED, NO_KERNEL},
	{ANY_STEP, EOPNOTSUPP, ERROR_UNSUPPORTED, "the driver lacks this call", OTHER_NIC},
	{ANY_STEP, ENOSYS, ERROR_UNSUPPORTED, "the driver lacks this call", OTHER_NIC},
	{ANY_STEP, NO_ERRNO, ERROR_UNSUPPORTED, "the driver lacks this call", OTHER_NIC},
	{ANY_STEP, ANY_ERRNO, ERROR_TRANSPORT, "the driver gives no further reason", READ_DMESG},
};

static const char *const step_words[VERBS_STEP_COUNT] = {
	[VERBS_STEP_OPEN] = "opening a context",
	[VERBS_STEP_QUERY] = "reading attributes",
	[VERBS_STEP_PD] = "making a protection domain",
	[VERBS_STEP_CHANNEL] = "making a completion channel",
	[VERBS_STEP_CQ] = "making a completion queue",
	[VERBS_STEP_SRQ] = "making a shared receive queue",
	[VERBS_STEP_RECEIVE] = "posting receives",
	[VERBS_STEP_QP] = "making a queue pair",
	[VERBS_STEP_INIT] = "moving a queue pair to INIT",
	[VERBS_STEP_RTR] = "moving a queue pair to RTR",
	[VERBS_STEP_RTS] = "moving a queue pair to RTS",
	[VERBS_STEP_ERR] = "moving a queue pair to ERR",
	[VERBS_STEP_POST] = "posting a request",
	[VERBS_STEP_POLL] = "polling a completion queue",
	[VERBS_STEP_NOTIFY] = "asking for a completion event",
};

static const struct step_cause *step_cause(enum verbs_step step, int errnum)
{
	const struct step_cause *row = step_causes;

	while (!(row->steps & 1u << step) || (row->errnum != ANY_ERRNO && row->errnum != errnum))
		row++; /* the last row fits everything */
	return row;
}

int verbs_step_error(struct error *error, enum verbs_step step, const char *device, int errnum,
		     const char *format, ...)
{
	const struct step_cause *row = step_cause(step, errnum);
	char doing[DOING_BYTES], name[VERBS_ERRNO_BYTES];
	va_list args;

	snprintf(doing, sizeof(doing), "%s", step_words[step]);
	if (format && *format) {
		va_start(args, format);
		vsnprintf(doing, sizeof(doing), format, args);
		va_end(args);
	}
	return error_set(error, row->code, "%s on %.63s failed: %s: %s; %s", doing, device,
			 verbs_errno_text(errnum, device, name), row->cause, row->fix);
}

/* ---- connecting: what both ends together tell ---- */

struct connection {
	const struct verbs_side *local, *remote;
	uint32_t path_mtu;
};

static bool by_address(const struct connection *connection)
{
	return connection->local->gid_index >= 0 && connection->remote->gid_index >= 0;
}

static bool addresses_differ_in_kind(const struct connection *connection)
{
	return by_address(connection) && verbs_gid_is_ipv4(connection->local->gid) !=
						 verbs_gid_is_ipv4(connection->remote->gid);
}

static bool links_differ_in_kind(const struct connection *connection)
{
	return (connection->local->gid_index < 0) != (connection->remote->gid_index < 0);
}

/* Prefix lengths are not known of both; /24 and /64 are what people use. */
static bool subnets_differ(const struct connection *connection)
{
	const struct verbs_side *a = connection->local, *b = connection->remote;
	size_t bytes = verbs_gid_is_ipv4(a->gid) ? 15 : 8;

	return by_address(connection) && memcmp(a->gid, b->gid, bytes) != 0;
}

static bool path_mtu_too_large(const struct connection *connection)
{
	return connection->path_mtu > connection->local->mtu ||
	       connection->path_mtu > connection->remote->mtu;
}

struct connect_cause {
	int errnum;
	bool (*fits)(const struct connection *connection);
	const char *cause, *fix;
};

#define NO_NEIGHBOUR                                                            \
	"nothing answered for the peer's address (ARP or neighbour discovery)", \
		"ping the peer's address from this NIC's interface"
#define OTHER_SUBNET                                                                     \
	"the two addresses seem to lie in different subnets with no route between them", \
		"name NICs of one subnet with --nic on both sides"

/* Errnos that are not here, and rows that do not fit, are told as for any other step. */
static const struct connect_cause connect_causes[] = {
	{ETIMEDOUT, addresses_differ_in_kind, "one address is IPv4 and the other IPv6",
	 "choose rows of one kind with WEFT_GID_INDEX on both sides"},
	{ETIMEDOUT, subnets_differ, OTHER_SUBNET},
	{ETIMEDOUT, by_address, NO_NEIGHBOUR},
	{EHOSTUNREACH, subnets_differ, OTHER_SUBNET},
	{EHOSTUNREACH, by_address, NO_NEIGHBOUR},
	{ENETUNREACH, by_address, OTHER_SUBNET},
	{ENODEV, by_address, "no interface of this NIC leads to the peer's address",
	 "check 'ip route get' with that address on this host"},
	{ENODATA, by_address, "the local row of the GID table is empty",
	 "choose another with WEFT_GID_INDEX (weft doctor lists them)"},
	{EINVAL, links_differ_in_kind, "one port is InfiniBand and the other is RoCE",
	 "name NICs of one kind with --nic on both sides"},
	{EINVAL, addresses_differ_in_kind, "one address is IPv4 and the other IPv6",
	 "choose rows of one kind with WEFT_GID_INDEX on both sides"},
	{EINVAL, path_mtu_too_large, "the path MTU is larger than the MTU of one port",
	 "raise the interface's MTU to 4200 bytes or more, or set WEFT_MTU to the smaller one"},
};

/* INIT and RTS do not look at addresses. */
static const struct connect_cause *connect_cause(enum verbs_step step, int errnum,
						 const struct connection *connection)
{
	for (size_t i = 0; step == VERBS_STEP_RTR && i < ARRAY_SIZE(connect_causes); i++)
		if (connect_causes[i].errnum == errnum && connect_causes[i].fits(connection))
			return &connect_causes[i];
	return NULL;
}

int verbs_connect_error(struct error *error, enum verbs_step step, int errnum,
			const struct verbs_side *local, const struct verbs_side *remote,
			uint32_t path_mtu, uint64_t waited_ns)
{
	const struct connection connection = {local, remote, path_mtu};
	const struct connect_cause *pair = connect_cause(step, errnum, &connection);
	const struct step_cause *row = step_cause(step, errnum);
	char here[VERBS_SIDE_TEXT_BYTES], there[VERBS_SIDE_TEXT_BYTES];
	char waited[TEXT_SHORT_BYTES], name[VERBS_ERRNO_BYTES];

	return error_set(
		error, pair ? ERROR_TRANSPORT : row->code,
		"connecting %s to %s failed after %s while %s: %s; path MTU %u bytes, port "
		"MTU %u bytes here and %u bytes there: %s; %s",
		verbs_side_text(local, here), verbs_side_text(remote, there),
		seconds_text(waited_ns, waited), step_words[step],
		verbs_errno_text(errnum, local->device, name), path_mtu, local->mtu, remote->mtu,
		pair ? pair->cause : row->cause, pair ? pair->fix : row->fix);
}
