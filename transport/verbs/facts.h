/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.h -- what is plugged in: devices, ports and GID tables as plain data, and the pure
 * judgement over them. No libibverbs type here, so doctor, tests and fixtures use it too.
 *
 *   verbs_facts_read ─► devices ─► ports ─► gids     each with "rejected because ..."
 *                          │ verbs_gids_judge        picks a GID per port
 *                          │ verbs_nics_choose       picks and orders the NICs of this process
 *
 * The rules for GIDs and NICs: docs/verbs.md.
 */
#ifndef TRANSPORT_VERBS_FACTS_H
#define TRANSPORT_VERBS_FACTS_H

#include "base/array.h"
#include "base/error.h"
#include "transport/verbs/settings.h"
#include <stdbool.h>
#include <stdint.h>

#define VERBS_NAME_BYTES 64
#define VERBS_WHY_BYTES  160
#define VERBS_GID_TEXT_BYTES 48

struct verbs_calls;

enum verbs_gid_type { VERBS_GID_IB, VERBS_GID_ROCE_V1, VERBS_GID_ROCE_V2 };
enum verbs_link { VERBS_LINK_UNKNOWN, VERBS_LINK_INFINIBAND, VERBS_LINK_ETHERNET };

struct verbs_gid {
	unsigned char raw[16];
	uint32_t index;
	enum verbs_gid_type type;
	uint32_t ifindex;            /* 0: none */
	char netdev[16];             /* "" when not in this network namespace */
	uint32_t prefix_bits;        /* 24 for 10.0.0.1/24 on the netdev; 0: not found */
	int rank;                    /* larger is better; below 0: rejected */
	char rejected[VERBS_WHY_BYTES]; /* why, or "" */
};

struct verbs_port {
	uint8_t number;              /* from 1 */
	bool active;
	char state[16];              /* "ACTIVE", "DOWN", ... */
	enum verbs_link link;
	uint32_t lid, sm_lid, lmc;
	uint32_t mtu;                /* active, bytes */
	uint32_t max_message_bytes;
	uint64_t speed_mbps;         /* active width * speed; soft devices report nonsense */
	char netdev[16];
	uint32_t netdev_mtu;
	int32_t traffic_class;       /* from sysfs, -1 unknown */
	ARRAY(struct verbs_gid) gids;
	int32_t gid;                 /* position in gids that was chosen, -1: none */
	char rejected[VERBS_WHY_BYTES]; /* this port cannot be used, or "" */
};

struct verbs_device {
	char name[VERBS_NAME_BYTES];
	char driver[VERBS_NAME_BYTES];     /* "mlx5_core", "rdma_rxe"; "" unknown */
	char firmware[VERBS_NAME_BYTES];
	char pci[16];                /* "0000:3b:00.0", or "" for a soft device */
	int32_t numa;                /* -1: unknown */
	uint64_t node_guid;
	bool soft;                   /* rxe, siw: no hardware behind it */
	int open_errno;              /* 0: opened; else why the facts below are missing */
	bool dmabuf;                 /* ibv_reg_dmabuf_mr is there (probed) */
	uint64_t max_mr_bytes;
	uint32_t max_qp, max_qp_wr, max_cq, max_cqe, max_mr, max_srq_wr, max_read;
	ARRAY(struct verbs_port) ports;
};

struct verbs_facts {
	ARRAY(struct verbs_device) devices;
};

/* Opens every device, reads, closes. A device that cannot be opened stays in the list with its
 * errno. ERROR_UNSUPPORTED when there is no RDMA in this kernel or nothing to open at all: says
 * which. facts is valid (perhaps empty) after any return. */
int verbs_facts_read(const struct verbs_calls *calls, struct verbs_facts *facts,
		     struct error *error);
/* The same below another root folder than "": tests bring their own sys/ and dev/. */
int verbs_facts_read_at(const struct verbs_calls *calls, const char *root,
			struct verbs_facts *facts, struct error *error);
void verbs_facts_free(struct verbs_facts *facts);

/* ---- pure ---- */

/* Ranks the GIDs of a port and sets port->gid; `forced` is an index (-1: none). A forced index
 * that is not there or is empty is ERROR_CONFIG with the rows there are. */
int verbs_gids_judge(const struct verbs_device *device, struct verbs_port *port, int32_t forced,
		     const char *forced_from, struct error *error);
/* "::ffff:10.77.0.1" and the like, as inet_ntop writes it. */
const char *verbs_gid_text(const unsigned char raw[16], char text[VERBS_GID_TEXT_BYTES]);
bool verbs_gid_is_zero(const unsigned char raw[16]);
bool verbs_gid_is_ipv4(const unsigned char raw[16]);
/* Both lie in one subnet by the shorter known prefix; false when none is known. */
bool verbs_gid_same_subnet(const unsigned char a[16], uint32_t a_bits, const unsigned char b[16],
			   uint32_t b_bits);

struct verbs_nic_choice {
	uint32_t device, port;       /* positions in facts */
	uint32_t distance;           /* to this process's cores or GPU; 0 nearest */
};

/* How far a device is from where this process computes (topology.h); tests pass their own. */
typedef uint32_t verbs_distance(void *context, const struct verbs_device *device);

/* The NICs of this process, best first, at most `max`; judges the GIDs of every port itself, and
 * leaves on every port not taken the reason why.
 *
 * Named (--nic, WEFT_NIC): those, in that order, each must work. "mlx5_0" is every usable port of
 * it, "mlx5_0:1" one port, "mlx5_0,mlx5_3" several; per rank "0=mlx5_0,1=mlx5_1+mlx5_2".
 * NCCL_IB_HCA: a filter in its own grammar ("=" exact, "^" all but, prefixes), then the nearest.
 * Nothing said: hardware before soft devices, one function of a port, the link and speed that
 * carry most of the host (slower ones are management), of these all that are nearest, beginning
 * at another one for each rank.
 *
 * ERROR_CONFIG for names and grammar, ERROR_UNSUPPORTED lists every port with its reason. NULL
 * `distance`: all are equally far. */
int verbs_nics_choose(struct verbs_facts *facts, const struct verbs_settings *settings,
		      uint32_t rank, verbs_distance *distance, void *context,
		      struct verbs_nic_choice *out, uint32_t max, uint32_t *count,
		      struct error *error);

/* What transport_domain_nics() says of a chosen port. Its rail is its place among the active
 * ports of the host that have its link and speed, in the order of the facts: NIC k of every host
 * on rail k is how clusters with rails are cabled. */
struct transport_nic;
void verbs_nic_describe(const struct verbs_facts *facts, const struct verbs_nic_choice *choice,
			struct transport_nic *out);

#endif
