/* SPDX-License-Identifier: Apache-2.0
 *
 * topology.h -- where the ranks of a job sit: hosts, their NICs (speed, rail), and how far each
 * rank's device is from each NIC. Plain data; policies, orders and the simulator read it.
 *
 *   host 0  "a01"   uplink 0 (no limit)
 *     nic 0 "mlx5_0" rail 0  50e9 ──pix── trainer 0
 *     nic 1 "mlx5_1" rail 1  50e9 ──pix── trainer 1
 *
 * A rank uses its nearest NICs (the least distance of its links), all of them, its bytes spread
 * in proportion to their speed. Without a topology a cluster is flat: one host and one NIC of
 * TOPOLOGY_FLAT_BYTES_PER_SECOND a rank, and no other limit.
 *
 * topology_file.h has the file, the one-line spec and the JSON.
 */
#ifndef ROUTING_PLAN_TOPOLOGY_H
#define ROUTING_PLAN_TOPOLOGY_H

#include "base/error.h"
#include "base/pool.h"
#include "job/member.h"
#include "job/nic.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPOLOGY_SCHEMA "weft.topology/1"
#define TOPOLOGY_FLAT_BYTES_PER_SECOND UINT64_C(50000000000) /* 400 Gb/s */

#define TOPOLOGY_HOSTS_MAX     131072u /* every rank of both roles may have its own */
#define TOPOLOGY_HOST_NICS_MAX 1024u   /* of one host; so many workers without a NIC, too */
#define TOPOLOGY_NAME_BYTES    512u    /* of a host or NIC, terminator included */
#define TOPOLOGY_RATE_MAX      NIC_RATE_MAX

struct topology_host {
	char *name;                       /* unique */
	uint64_t uplink_bytes_per_second; /* each direction, to other hosts; 0: no limit */
	uint32_t nic_first, nic_count;    /* into nics */
};
struct topology_nic {
	char *name;                       /* unique on its host */
	uint32_t host, rail;
	uint64_t bytes_per_second;        /* each direction; never 0 */
};
struct topology_link { uint32_t nic; enum nic_distance distance; };
struct topology_rank {
	uint32_t host;
	uint32_t link_first, link_count;  /* into links, by (distance, nic) */
	uint32_t used_count;              /* of these, the first that share the least distance */
};

struct topology {
	struct pool pool;                 /* owns the names and ranks */
	bool flat;
	struct topology_host *hosts;
	uint32_t host_count;
	struct topology_nic *nics;        /* by (host, as given) */
	uint32_t nic_count;
	struct topology_link *links;
	uint32_t link_count;
	struct topology_rank *ranks[ROLE_COUNT];
	uint32_t rank_count[ROLE_COUNT];
};

int topology_flat(struct topology **topology, uint32_t trainers, uint32_t inference,
		  struct error *error);
void topology_free(struct topology **topology);

/* Bytes a second that a rank can send, and receive: of its used NICs together. */
uint64_t topology_rank_rate(const struct topology *topology, enum role role, uint32_t rank);

/* Building one: all hosts, each followed by its NICs; then every rank, followed by its links;
 * then finish. Names are copied. The caller has checked what it adds; what is checked here is
 * the order of calls, by assert. A failure leaves the topology to topology_free. */
int topology_new(struct topology **topology, uint32_t trainers, uint32_t inference,
		 struct error *error);
int topology_add_host(struct topology *topology, const char *name,
		      uint64_t uplink_bytes_per_second, struct error *error);
int topology_add_nic(struct topology *topology, const char *name, uint32_t rail,
		     uint64_t bytes_per_second, struct error *error); /* of the last host */
void topology_place(struct topology *topology, enum role role, uint32_t rank, uint32_t host);
/* Of the rank placed last; `nic` indexes the topology's. */
int topology_add_link(struct topology *topology, enum role role, uint32_t rank, uint32_t nic,
		      enum nic_distance distance, struct error *error);
/* Every rank is placed and has a link: sorts the links, counts the used ones. */
void topology_finish(struct topology *topology);

#endif
