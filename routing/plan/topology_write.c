/* SPDX-License-Identifier: Apache-2.0
 *
 * topology_write.c -- what topology_read.c reads. Speeds are always in bytes per second, and an
 * uplink without a limit is left out, so that there is one way to write a topology.
 */
#include "routing/plan/topology_file.h"

static void put_hosts(struct json *json, const struct topology *topology)
{
	json_put_newline(json);
	json_put_key_array(json, "hosts");
	for (uint32_t h = 0; h < topology->host_count; h++) {
		const struct topology_host *host = &topology->hosts[h];

		json_put_newline(json);
		json_put_object(json);
		json_put_key_string(json, "name", host->name);
		if (host->uplink_bytes_per_second)
			json_put_key_u64(json, "uplink_bytes_per_second",
					 host->uplink_bytes_per_second);
		json_put_key_array(json, "nics");
		for (uint32_t n = 0; n < host->nic_count; n++) {
			const struct topology_nic *nic = &topology->nics[host->nic_first + n];

			json_put_object(json);
			json_put_key_string(json, "name", nic->name);
			json_put_key_u64(json, "rail", nic->rail);
			json_put_key_u64(json, "bytes_per_second", nic->bytes_per_second);
			json_put_object_end(json);
		}
		json_put_array_end(json);
		json_put_object_end(json);
	}
	json_put_newline(json);
	json_put_array_end(json);
}

static void put_ranks(struct json *json, const struct topology *topology, enum role role,
		      const char *key)
{
	json_put_newline(json);
	json_put_key_array(json, key);
	for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
		const struct topology_rank *rank = &topology->ranks[role][r];

		json_put_newline(json);
		json_put_object(json);
		json_put_key_u64(json, "rank", r);
		json_put_key_string(json, "host", topology->hosts[rank->host].name);
		json_put_key_object(json, "links");
		for (uint32_t l = 0; l < rank->link_count; l++) {
			const struct topology_link *link = &topology->links[rank->link_first + l];

			json_put_key_string(json, topology->nics[link->nic].name,
					    nic_distance_name(link->distance));
		}
		json_put_object_end(json);
		json_put_object_end(json);
	}
	json_put_newline(json);
	json_put_array_end(json);
}

void topology_put(struct json *json, const struct topology *topology)
{
	json_put_object(json);
	json_put_key_string(json, "schema", TOPOLOGY_SCHEMA);
	put_hosts(json, topology);
	put_ranks(json, topology, ROLE_TRAINER, "trainers");
	put_ranks(json, topology, ROLE_INFERENCE, "inference");
	json_put_object_end(json);
}
