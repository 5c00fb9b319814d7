/* SPDX-License-Identifier: Apache-2.0
 *
 * errors.h -- the messages of the verbs path: every one carries both endpoints, the status by
 * name, how long was waited, and one probable cause with what to change. Pure; golden tests.
 */
#ifndef TRANSPORT_VERBS_ERRORS_H
#define TRANSPORT_VERBS_ERRORS_H

#include "base/error.h"
#include "transport/verbs/facts.h"
#include <stdint.h>

enum verbs_kind { VERBS_WRITE, VERBS_SIGNAL, VERBS_PROBE_BYTE, VERBS_PROBE_PACKET, VERBS_KIND_COUNT };

/* One end of a queue pair. */
struct verbs_side {
	char device[VERBS_NAME_BYTES];
	uint32_t port, qpn, lid;
	unsigned char gid[16];
	int32_t gid_index;           /* -1: IB without GRH */
	uint32_t mtu;                /* active, bytes */
	uint32_t netdev_mtu;         /* 0 unknown */
};
#define VERBS_SIDE_TEXT_BYTES 160
/* "mlx5_0:1 gid[3] ::ffff:10.1.2.5 qpn 0x1a2" */
const char *verbs_side_text(const struct verbs_side *side, char text[VERBS_SIDE_TEXT_BYTES]);

/* Of our own port, when a request failed: it explains more than the status does. */
enum verbs_port_trouble { VERBS_PORT_FINE, VERBS_PORT_DOWN, VERBS_PORT_NO_ADDRESS };

struct verbs_failure {
	int status;                  /* enum ibv_wc_status */
	uint32_t vendor_error;
	enum verbs_kind kind;        /* from our own table, never from the completion */
	uint64_t bytes;              /* of the request */
	struct verbs_side local, remote;
	uint64_t waited_ns;          /* since it was posted */
	uint32_t timeout, retry, rnr_retry, path_mtu;
	bool peer_known_dead;
	enum verbs_port_trouble port_trouble;
};
/* Sets *error and returns -code: PEER_LOST, TRANSPORT, ... by status. Unknown statuses are told by
 * number. */
int verbs_failure_error(const struct verbs_failure *failure, struct error *error);
/* Ends the message of a domain that cannot be opened; the doctor itself leaves it out. */
#define VERBS_SEE_DOCTOR "; weft doctor checks this machine step by step; without RDMA, --transport tcp works "  \
	"between any two hosts"
const char *verbs_status_name(int status); /* "RETRY_EXC_ERR"; "status 77" never NULL */

/* What a foreign call left: NULL or -1 with errno, -errno, or a positive errno. 0 when it set
 * none: then messages say "not supported by <device>" and never "Success". */
int verbs_errno(long result);
#define VERBS_ERRNO_BYTES 160
/* "ENOMEM (Cannot allocate memory)"; for 0 "not supported by rxe0, ...". */
const char *verbs_errno_text(int errnum, const char *device, char text[VERBS_ERRNO_BYTES]);
/* The format says what was being done, without the device: "creating a completion queue of %u
 * entries" becomes "creating a completion queue of 4096 entries on rxe0 failed: ...", with the
 * cause by step and errno. NULL or "": the step's own words. */
enum verbs_step {
	VERBS_STEP_OPEN, VERBS_STEP_QUERY, VERBS_STEP_PD, VERBS_STEP_CHANNEL, VERBS_STEP_CQ,
	VERBS_STEP_SRQ, VERBS_STEP_RECEIVE, VERBS_STEP_QP, VERBS_STEP_INIT, VERBS_STEP_RTR,
	VERBS_STEP_RTS, VERBS_STEP_ERR, VERBS_STEP_POST, VERBS_STEP_POLL, VERBS_STEP_NOTIFY,
	VERBS_STEP_COUNT
};
int verbs_step_error(struct error *error, enum verbs_step step, const char *device, int errnum,
		     const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The move to INIT, RTR or RTS failed: ARP, GID and MTU causes, told with both sides. */
int verbs_connect_error(struct error *error, enum verbs_step step, int errnum,
			const struct verbs_side *local, const struct verbs_side *remote,
			uint32_t path_mtu, uint64_t waited_ns);

/* Everything that decides whether memory can be locked, read from /proc by verbs_memlock_read. */
struct verbs_memlock {
	uint64_t soft, hard;         /* RLIMIT_MEMLOCK, UINT64_MAX: unlimited */
	uint64_t pinned_bytes;       /* VmPin of this process */
	uint32_t uid;
	bool ipc_lock;               /* CAP_IPC_LOCK is effective */
};
int verbs_memlock_read(struct verbs_memlock *memlock, struct error *error);
/* The part of it that is the text of /proc/self/status: all but the limits. */
int verbs_memlock_parse(const char *status, struct verbs_memlock *memlock, struct error *error);
/* Registration of `bytes` on one of `nics` NICs failed. memlock and limits may be NULL when
 * they are not known. Device memory is not charged to the limit: for it, a memlock with soft and
 * hard UINT64_MAX. */
int verbs_register_error(struct error *error, int errnum, const char *device, uint64_t bytes,
			 uint32_t nics, const struct verbs_memlock *memlock,
			 const struct verbs_device *limits);

#endif
