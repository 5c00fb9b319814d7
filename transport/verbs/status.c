/* SPDX-License-Identifier: Apache-2.0
 *
 * status.c -- what a failed completion means, as a message.
 *
 *   write of 1048576 bytes from mlx5_0:1 gid[3] ::ffff:10.1.2.5 qpn 0x1a2 to mlx5_3:1 gid[3]
 *   ::ffff:10.1.2.7 qpn 0x2b0 failed after 3.84 s: RETRY_EXC_ERR (status 12, vendor error 129;
 *   timeout 17, 6 retries: at least 3.8 s): <one cause>; <one fix>
 *
 * Two tables. Names and codes are one row a status. Causes are searched from the top, the
 * narrower row first: status, then what was sent, then the vendor's number. In a failed
 * completion the device vouches for status and vendor error only; what was sent comes from our
 * own table.
 */
#include "transport/verbs/errors.h"

#include "base/array.h"
#include "base/text.h"
#include <infiniband/verbs.h>
#include <arpa/inet.h>
#include <stdio.h>

struct status_row {
	int status;
	const char *name;
	enum error_code code;
	bool by_peer; /* a dead peer explains it */
};

/* PEER_LOST: nothing comes back, so the caller plans without this peer. TIMEOUT: the peer's NIC
 * answers, its process does not. The rest is TRANSPORT: connect anew. */
static const struct status_row statuses[] = {
	{IBV_WC_SUCCESS, "NO_ERROR", ERROR_INTERNAL, false},
	{IBV_WC_LOC_LEN_ERR, "LOC_LEN_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_LOC_EEC_OP_ERR, "LOC_EEC_OP_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_LOC_PROT_ERR, "LOC_PROT_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR", ERROR_TRANSPORT, true},
	{IBV_WC_MW_BIND_ERR, "MW_BIND_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_BAD_RESP_ERR, "BAD_RESP_ERR", ERROR_TRANSPORT, true},
	{IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR", ERROR_TRANSPORT, true},
	{IBV_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR", ERROR_TRANSPORT, true},
	{IBV_WC_REM_OP_ERR, "REM_OP_ERR", ERROR_TRANSPORT, true},
	{IBV_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR", ERROR_PEER_LOST, true},
	{IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR", ERROR_TIMEOUT, true},
	{IBV_WC_LOC_RDD_VIOL_ERR, "LOC_RDD_VIOL_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_REM_INV_RD_REQ_ERR, "REM_INV_RD_REQ_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_REM_ABORT_ERR, "REM_ABORT_ERR", ERROR_TRANSPORT, true},
	{IBV_WC_INV_EECN_ERR, "INV_EECN_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_INV_EEC_STATE_ERR, "INV_EEC_STATE_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_FATAL_ERR, "FATAL_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT_ERR", ERROR_PEER_LOST, true},
	{IBV_WC_GENERAL_ERR, "GENERAL_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_TM_ERR, "TM_ERR", ERROR_TRANSPORT, false},
	{IBV_WC_TM_RNDV_INCOMPLETE, "TM_RNDV_INCOMPLETE", ERROR_TRANSPORT, false},
};

#define BIT(kind)  (1u << (kind))
#define ON_WRITE   BIT(VERBS_WRITE)
#define ON_SIGNAL  BIT(VERBS_SIGNAL)
#define ON_BYTE	   BIT(VERBS_PROBE_BYTE)
#define ON_PACKET  BIT(VERBS_PROBE_PACKET)
#define ON_PROBE   (ON_BYTE | ON_PACKET)
#define ON_ANY	   (ON_WRITE | ON_SIGNAL | ON_PROBE)
#define ANY_VENDOR (-1)

enum status_fact { TELL_NOTHING, TELL_RETRY, TELL_RNR, TELL_MTU, TELL_RETRY_MTU };

struct status_cause {
	int status;
	unsigned kinds;
	int64_t vendor;
	enum status_fact tell;
	const char *cause, *fix;
};

/* cause and fix of what cannot happen unless a driver is wrong */
#define FOREIGN(feature)                                                                       \
	"it belongs to " feature ", which weft does not use, so driver and firmware disagree", \
		"update rdma-core, kernel driver and firmware of the local device"

static const struct status_cause causes[] = {
	{IBV_WC_SUCCESS, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "a request that was carried out was taken for a failed one, which is a bug in weft",
	 "report it with the log of this process"},
	{IBV_WC_LOC_LEN_ERR, ON_WRITE, ANY_VENDOR, TELL_NOTHING,
	 "the write is larger than one message of the local port may be",
	 "set WEFT_CHUNK_BYTES=1M (ibv_devinfo -v shows max_msg_sz)"},
	{IBV_WC_LOC_LEN_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the local device found a length wrong that every port takes, so driver and firmware "
	 "disagree",
	 "update rdma-core, kernel driver and firmware of the local device"},
	{IBV_WC_LOC_QP_OP_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the local device refused the request itself; soft RoCE says so when the source memory "
	 "is not registered any more",
	 "keep the source registered until the flush has returned"},
	{IBV_WC_LOC_EEC_OP_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING, FOREIGN("reliable datagrams")},
	{IBV_WC_LOC_PROT_ERR, ON_ANY, 81, TELL_NOTHING,
	 "the NIC was refused access to local memory, as PCI ACS or an IOMMU does",
	 "turn ACS off on the bridges above the NIC (setpci) and boot with iommu=pt"},
	{IBV_WC_LOC_PROT_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the source memory was freed, unmapped or closed as a region while it was being sent",
	 "keep the source registered and mapped until the flush has returned"},
	{IBV_WC_WR_FLUSH_ERR, ON_ANY, 249, TELL_NOTHING,
	 "the queue pair was already in error, and this vendor error usually means that the "
	 "peer's process was killed",
	 "look for the OOM killer in dmesg of the peer's host"},
	{IBV_WC_WR_FLUSH_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the queue pair was already in error, so this request is a consequence",
	 "look for the first failure of this endpoint in the logs of both sides"},
	{IBV_WC_MW_BIND_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING, FOREIGN("memory windows")},
	{IBV_WC_BAD_RESP_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the peer's device answered with a packet that makes no sense, usually different firmware",
	 "bring the firmware of both devices to one version (ibv_devinfo shows fw_ver)"},
	{IBV_WC_LOC_ACCESS_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the local device may not touch the memory in the way it was asked to, usually because "
	 "its registration was replaced",
	 "register the source again and open a new endpoint"},
	{IBV_WC_REM_INV_REQ_ERR, ON_ANY, ANY_VENDOR, TELL_MTU,
	 "the peer's device refused the packet although both ends agreed on MTU and operations, "
	 "usually a packet sent again that it mishandled after losses on the way",
	 "look for losses (out_of_sequence, packet_seq_err in hw_counters of both ports) and "
	 "whether PFC is on along the way"},
	{IBV_WC_REM_ACCESS_ERR, ON_WRITE, 136, TELL_NOTHING,
	 "the peer's memory moved or is registered only in part, as with expandable_segments or "
	 "after a sleep and wake",
	 "register the region again at the peer and import its new record here"},
	{IBV_WC_REM_ACCESS_ERR, ON_WRITE, ANY_VENDOR, TELL_NOTHING,
	 "the region was closed or registered anew at the peer, so its key is stale",
	 "import the region's new record before writing"},
	{IBV_WC_REM_ACCESS_ERR, ON_SIGNAL, ANY_VENDOR, TELL_NOTHING,
	 "the peer closed the endpoint whose mailbox this signal goes to", "connect anew"},
	{IBV_WC_REM_ACCESS_ERR, ON_PROBE, ANY_VENDOR, TELL_NOTHING,
	 "the endpoint record is of an endpoint that the peer has closed since",
	 "exchange endpoint records again"},
	{IBV_WC_REM_OP_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the peer's device could not carry the request out, usually a fault between it and its "
	 "memory",
	 "read dmesg on the peer's host for PCIe and IOMMU faults of that device"},
	{IBV_WC_RETRY_EXC_ERR, ON_BYTE, ANY_VENDOR, TELL_RETRY,
	 "no packet came back on a path that was never used before, usually a wrong pair of NICs "
	 "or a firewall",
	 "ping the peer's address from this NIC's, and let UDP port 4791 (RoCE) pass"},
	{IBV_WC_RETRY_EXC_ERR, ON_PACKET, ANY_VENDOR, TELL_RETRY_MTU,
	 "a write of 1 byte passed and one of this size did not, so something between the two "
	 "ports has a smaller MTU",
	 "raise the MTU of interfaces and switches to 4200 bytes or more, or set WEFT_MTU=1024"},
	{IBV_WC_RETRY_EXC_ERR, ON_ANY, 129, TELL_RETRY,
	 "no try was acknowledged, as when the peer's host or a link on the way is down",
	 "check that the peer's host is up and 'rdma link' says ACTIVE for both ports, then that "
	 "PFC is on along the way"},
	{IBV_WC_RETRY_EXC_ERR, ON_ANY, ANY_VENDOR, TELL_RETRY,
	 "the peer's process has ended or the link to it is down",
	 "check that the process runs and that 'rdma link' says ACTIVE for both ports"},
	{IBV_WC_RNR_RETRY_EXC_ERR, ON_ANY, ANY_VENDOR, TELL_RNR,
	 "the peer's device is there, but its process has left no receive for signals",
	 "see what the peer's process is stuck in (gdb -p, or its log)"},
	{IBV_WC_LOC_RDD_VIOL_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING, FOREIGN("reliable datagrams")},
	{IBV_WC_REM_INV_RD_REQ_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 FOREIGN("reliable datagrams")},
	{IBV_WC_REM_ABORT_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the peer's device gave the request up before it was done",
	 "read dmesg on the peer's host for resets of that device"},
	{IBV_WC_INV_EECN_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING, FOREIGN("reliable datagrams")},
	{IBV_WC_INV_EEC_STATE_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING, FOREIGN("reliable datagrams")},
	{IBV_WC_FATAL_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the local device has failed and serves nobody until it was reset",
	 "read dmesg here, then reset the device or reboot this host"},
	{IBV_WC_RESP_TIMEOUT_ERR, ON_ANY, ANY_VENDOR, TELL_RETRY,
	 "the peer's device acknowledged nothing in time",
	 "check that the peer's host is up and 'rdma link' says ACTIVE for both ports"},
	{IBV_WC_GENERAL_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING,
	 "the local device gives no reason, usually a fault of its own",
	 "read dmesg here for that device"},
	{IBV_WC_TM_ERR, ON_ANY, ANY_VENDOR, TELL_NOTHING, FOREIGN("tag matching")},
	{IBV_WC_TM_RNDV_INCOMPLETE, ON_ANY, ANY_VENDOR, TELL_NOTHING, FOREIGN("tag matching")},
};

/* What stands for statuses that came after this build, and for a peer known to be dead. */
static const struct status_row unknown_status = {-1, NULL, ERROR_TRANSPORT, false};
static const struct status_cause unknown_cause = {
	.cause = "this status is newer than weft, so nothing is known about its cause",
	.fix = "look the number up in enum ibv_wc_status of the installed infiniband/verbs.h"};
static const struct status_cause dead_cause = {
	.cause = "the peer's process has died",
	.fix = "find out why in its log and in dmesg of its host, then start it again"};

static const struct status_cause port_causes[] = {
	[VERBS_PORT_DOWN] = {.cause = "the sending port has no link",
			     .fix = "look at its cable, its switch port and 'ip link'"},
	[VERBS_PORT_NO_ADDRESS] = {.cause = "the sending port has lost that address",
				   .fix = "give it back to the network interface, or start the job "
					  "again and it finds the new one"},
};

static const struct status_row *status_find(int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
		if (statuses[i].status == status)
			return &statuses[i];
	return &unknown_status;
}

static const struct status_cause *cause_find(const struct verbs_failure *failure)
{
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++) {
		const struct status_cause *row = &causes[i];

		if (row->status == failure->status && row->kinds & BIT(failure->kind) &&
		    (row->vendor == ANY_VENDOR || row->vendor == failure->vendor_error))
			return row;
	}
	return &unknown_cause;
}

const char *verbs_status_name(int status)
{
	static _Thread_local char number[TEXT_SHORT_BYTES];
	const struct status_row *row = status_find(status);

	if (row->name)
		return row->name;
	snprintf(number, sizeof(number), "status %d", status);
	return number;
}

const char *verbs_side_text(const struct verbs_side *side, char text[VERBS_SIDE_TEXT_BYTES])
{
	char gid[INET6_ADDRSTRLEN] = "";

	if (side->gid_index < 0)
		snprintf(text, VERBS_SIDE_TEXT_BYTES, "%.63s:%u lid %u qpn 0x%x", side->device,
			 side->port, side->lid, side->qpn);
	else
		snprintf(text, VERBS_SIDE_TEXT_BYTES, "%.63s:%u gid[%d] %s qpn 0x%x", side->device,
			 side->port, side->gid_index,
			 inet_ntop(AF_INET6, side->gid, gid, sizeof(gid)), side->qpn);
	return text;
}

#define REQUEST_BYTES 64

static const char *request_text(const struct verbs_failure *failure, char text[REQUEST_BYTES])
{
	static const char *const names[VERBS_KIND_COUNT] = {
		[VERBS_WRITE] = "write",
		[VERBS_SIGNAL] = "signal",
		[VERBS_PROBE_BYTE] = "first probe write",
		[VERBS_PROBE_PACKET] = "full-packet probe write",
	};

	snprintf(text, REQUEST_BYTES, "%s of %llu byte%s", names[failure->kind],
		 (unsigned long long)failure->bytes, failure->bytes == 1 ? "" : "s");
	return text;
}

#define FACTS_BYTES 384

/* "3.8 s": what the tries take at the very least; a device may wait up to four times as long. */
static int tell_retries(const struct verbs_failure *failure, char text[FACTS_BYTES])
{
	uint64_t ns = verbs_retry_ns(failure->timeout, failure->retry);
	char seconds[TEXT_SHORT_BYTES];

	if (ns < 1000000000)
		seconds_text(ns, seconds);
	else
		snprintf(seconds, sizeof(seconds), "%.1f s", (double)ns / 1e9);
	return snprintf(text, FACTS_BYTES, "; timeout %u, %u %s: at least %s", failure->timeout,
			failure->retry, failure->retry == 1 ? "retry" : "retries", seconds);
}

static const char *interface_text(uint32_t mtu, char text[TEXT_SHORT_BYTES])
{
	if (mtu)
		snprintf(text, TEXT_SHORT_BYTES, "%u bytes", mtu);
	else
		snprintf(text, TEXT_SHORT_BYTES, "unknown");
	return text;
}

static const char *facts_text(enum status_fact tell, const struct verbs_failure *failure,
			      char text[FACTS_BYTES])
{
	char here[TEXT_SHORT_BYTES], there[TEXT_SHORT_BYTES];
	int used = 0;

	text[0] = '\0';
	if (tell == TELL_RETRY || tell == TELL_RETRY_MTU)
		used = tell_retries(failure, text);
	if (tell == TELL_MTU || tell == TELL_RETRY_MTU)
		snprintf(
			text + used, FACTS_BYTES - (size_t)used,
			"; path MTU %u bytes, port MTU %u bytes here and %u bytes there, interface "
			"MTU %s here and %s there",
			failure->path_mtu, failure->local.mtu, failure->remote.mtu,
			interface_text(failure->local.netdev_mtu, here),
			interface_text(failure->remote.netdev_mtu, there));
	if (tell == TELL_RNR && failure->rnr_retry == 7)
		snprintf(text, FACTS_BYTES, "; rnr retries without end");
	else if (tell == TELL_RNR)
		snprintf(text, FACTS_BYTES, "; %u rnr %s", failure->rnr_retry,
			 failure->rnr_retry == 1 ? "retry" : "retries");
	return text;
}

int verbs_failure_error(const struct verbs_failure *failure, struct error *error)
{
	const struct status_row *row = status_find(failure->status);
	const struct status_cause *cause = cause_find(failure);
	bool dead = failure->peer_known_dead && (row->by_peer || !row->name);
	char facts[FACTS_BYTES], local[VERBS_SIDE_TEXT_BYTES], remote[VERBS_SIDE_TEXT_BYTES];
	char request[REQUEST_BYTES], waited[TEXT_SHORT_BYTES];

	facts_text(cause->tell, failure, facts);
	if (dead)
		cause = &dead_cause;
	else if (failure->port_trouble)
		cause = &port_causes[failure->port_trouble];
	return error_set(error, dead ? ERROR_PEER_LOST : row->code,
			 "%s from %s to %s failed after %s: %s (status %d, vendor error %u%s): "
			 "%s; %s",
			 request_text(failure, request), verbs_side_text(&failure->local, local),
			 verbs_side_text(&failure->remote, remote),
			 seconds_text(failure->waited_ns, waited),
			 row->name ? row->name : "unknown", failure->status, failure->vendor_error,
			 facts, cause->cause, cause->fix);
}
