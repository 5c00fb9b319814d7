/* SPDX-License-Identifier: Apache-2.0
 *
 * topology_file.h -- a topology as text: the file (schema weft.topology/1, docs/topology.md),
 * and the one-line spec that most clusters need:
 *
 *   per_host=8,nics=8,gbps=400[,uplink_gbps=N][,rails=N]
 *
 * ranks and NICs of each host, speed of a NIC and of the host's uplink, rails. Missing keys:
 * one rank a host, a NIC a rank, 400 Gb/s, no uplink limit, a rail for each NIC of a host.
 * Trainers come first, inference ranks on hosts of their own; device k of a host is nearest to
 * NIC k * nics / per_host (to several where there are more NICs than ranks). A spec and the
 * file that it is written as give equal topologies.
 */
#ifndef ROUTING_PLAN_TOPOLOGY_FILE_H
#define ROUTING_PLAN_TOPOLOGY_FILE_H

#include "base/json_write.h"
#include "routing/plan/topology.h"

#define TOPOLOGY_FILE_BYTES_MAX (UINT64_C(1) << 26)

struct json_t; /* jansson's */

/* What --topology takes: "flat"; a spec, when there is '=' in it and no '/'; else a file. The
 * counts must be the job's. Errors begin with "--topology TEXT". */
int topology_open(struct topology **topology, const char *text, uint32_t trainers,
		  uint32_t inference, struct error *error);

/* ERROR_CONFIG names the key, the value and what is allowed. */
int topology_expand(struct topology **topology, const char *spec, uint32_t trainers,
		    uint32_t inference, struct error *error);

/* ERROR_FILE says where, the file as `name`: "NAME: hosts[3].nics[0]: ..". Any counts. */
int topology_parse(struct topology **topology, const char *text, size_t bytes, const char *name,
		   struct error *error);
/* The same from JSON that is parsed already, duplicate keys rejected: an object as topology_put
 * writes it. Errors begin with the place in it. */
int topology_take(struct topology **topology, const struct json_t *value, struct error *error);
/* ERROR_CONFIG with both numbers when the topology is of another job. */
int topology_fits(const struct topology *topology, uint32_t trainers, uint32_t inference,
		  struct error *error);

/* Canonical: equal topologies give equal bytes. An object with its own "schema"; one host and
 * one rank a line. */
void topology_put(struct json *json, const struct topology *topology);

#endif
