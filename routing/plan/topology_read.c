/* SPDX-License-Identifier: Apache-2.0
 *
 * topology_read.c -- the file of a topology, strictly: what is unknown, missing, repeated, out
 * of range or means nothing is an error that says where. A person wrote it.
 */
#include "routing/plan/topology_file.h"

#include "base/file.h"
#include "job/parallel.h"
#include "job/strmap.h"
#include "model/json_read.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BYTES_PER_GIGABIT 125e6

static const char *const rank_lists[ROLE_COUNT] = {
	[ROLE_TRAINER] = "trainers",
	[ROLE_INFERENCE] = "inference",
};

struct reader {
	struct json_reader json;
	struct topology *topology;
	struct strmap hosts; /* name -> host */
};

static int take_keys(struct json_reader *r, json_t *object, const char *const *groups)
{
	json_known_keys(r, object, groups);
	return json_needed_keys(r, object, groups);
}

static int take_list(struct json_reader *r, json_t *object, const char *key, size_t most,
		     json_t **out)
{
	if (json_take_list(r, object, key, out))
		return r->failed;
	if (json_array_size(*out) > most)
		return json_refuse(r, "\"%s\" has %zu items; at most %zu are possible", key,
				   json_array_size(*out), most);
	return 0;
}

static int take_name(struct json_reader *r, json_t *object, const char *key, const char **out)
{
	size_t bytes = json_string_length(json_object_get(object, key));

	if (json_take_string(r, object, key, out))
		return r->failed;
	if (bytes == 0 || bytes >= TOPOLOGY_NAME_BYTES)
		return json_refuse(r, "\"%s\" has %zu bytes; 1 to %u are possible", key, bytes,
				   TOPOLOGY_NAME_BYTES - 1);
	return 0;
}

/* A speed by one of two keys: bytes per second, or gigabits per second (a fraction is fine). */
static int take_rate(struct json_reader *r, json_t *object, const char *bytes_key,
		     const char *gbps_key, uint64_t *out)
{
	double gbps, rate;

	if (json_object_get(object, bytes_key))
		return json_take_number(r, object, bytes_key, 1, TOPOLOGY_RATE_MAX, out);
	if (json_take_ratio(r, object, gbps_key, &gbps))
		return r->failed;
	rate = gbps * BYTES_PER_GIGABIT;
	if (!(rate >= 1 && rate <= (double)TOPOLOGY_RATE_MAX))
		return json_refuse(r, "\"%s\" is %.9g; more than 0 and at most %.0f is possible",
				   gbps_key, gbps, (double)TOPOLOGY_RATE_MAX / BYTES_PER_GIGABIT);
	*out = (uint64_t)llround(rate);
	return 0;
}

/* ---- hosts ---- */

static uint32_t find_nic(const struct topology *topology, const struct topology_host *host,
			 const char *name)
{
	for (uint32_t n = host->nic_first; n < host->nic_first + host->nic_count; n++)
		if (strcmp(topology->nics[n].name, name) == 0)
			return n;
	return UINT32_MAX;
}

static int read_nic(struct reader *reader, json_t *object)
{
	static const char *const groups[] = {"name", "rail", "bytes_per_second|gbps", NULL};
	struct topology *topology = reader->topology;
	const struct topology_host *host = &topology->hosts[topology->host_count - 1];
	struct json_reader *r = &reader->json;
	uint32_t rail;
	uint64_t rate;
	const char *name;

	take_keys(r, object, groups);
	if (take_name(r, object, "name", &name))
		return r->failed;
	if (find_nic(topology, host, name) != UINT32_MAX)
		return json_refuse(r, "the host has a NIC \"%.64s\" already", name);
	json_take_number32(r, object, "rail", NIC_RAIL_MAX, &rail);
	if (take_rate(r, object, "bytes_per_second", "gbps", &rate))
		return r->failed;
	return json_failed(r, topology_add_nic(topology, name, rail, rate, r->error));
}

static int read_host(struct reader *reader, json_t *object)
{
	static const char *const groups[] = {"name", "uplink_bytes_per_second|uplink_gbps|", "nics",
					     NULL};
	struct topology *topology = reader->topology;
	uint32_t at = topology->host_count, other;
	struct json_reader *r = &reader->json;
	uint64_t uplink = 0;
	json_t *nics;
	const char *name;

	take_keys(r, object, groups);
	if (take_name(r, object, "name", &name))
		return r->failed;
	if (strmap_get(&reader->hosts, name, &other))
		return json_refuse(r, "hosts[%" PRIu32 "] is named \"%.64s\" already", other, name);
	if (json_object_get(object, "uplink_bytes_per_second") ||
	    json_object_get(object, "uplink_gbps"))
		take_rate(r, object, "uplink_bytes_per_second", "uplink_gbps", &uplink);
	if (take_list(r, object, "nics", TOPOLOGY_HOST_NICS_MAX, &nics) ||
	    json_failed(r, topology_add_host(topology, name, uplink, r->error)))
		return r->failed;
	if (!strmap_put(&reader->hosts, topology->hosts[at].name, at))
		json_failed(r, memory_error(r->error, "reading a topology",
					    sizeof(struct strmap_slot)));
	for (size_t n = 0; !r->failed && n < json_array_size(nics); n++) {
		r->at.inner = "nics";
		r->at.inner_index = n;
		read_nic(reader, json_array_get(nics, n));
	}
	r->at.inner = NULL;
	return r->failed;
}

/* ---- ranks ---- */

static int read_links(struct reader *reader, json_t *links, enum role role, uint32_t rank,
		      uint32_t host)
{
	struct topology *topology = reader->topology;
	const struct topology_host *place = &topology->hosts[host];
	struct json_reader *r = &reader->json;
	const char *name;
	json_t *value;

	if (!json_is_object(links))
		return json_refuse(r, "\"links\" is not an object of NICs and distances");
	if (json_object_size(links) == 0)
		return json_refuse(r, "\"links\" is empty; a rank needs a NIC");
	json_object_foreach(links, name, value)
	{
		const char *word = json_string_value(value);
		uint32_t nic = find_nic(topology, place, name);
		enum nic_distance distance;

		if (nic == UINT32_MAX)
			return json_refuse(
				r, "\"links\" has \"%.64s\", which is no NIC of host \"%.64s\"",
				name, place->name);
		if (!word || !nic_distance_parse(word, &distance))
			return json_refuse(r,
					   "\"links\" has \"%.64s\" at \"%.32s\"; distances are "
					   "pix, pxb, phb, node, sys",
					   name, word ? word : "(not a string)");
		if (json_failed(r,
				topology_add_link(topology, role, rank, nic, distance, r->error)))
			break;
	}
	return r->failed;
}

static int read_rank(struct reader *reader, json_t *object, enum role role, uint32_t rank)
{
	static const char *const groups[] = {"rank", "host", "links", NULL};
	struct json_reader *r = &reader->json;
	uint64_t number = rank;
	const char *name;
	uint32_t host;

	take_keys(r, object, groups);
	json_take_number(r, object, "rank", 0, PARALLEL_RANKS_MAX, &number);
	if (number != rank)
		json_refuse(r, "\"rank\" is %" PRIu64 "; ranks count from 0", number);
	if (take_name(r, object, "host", &name))
		return r->failed;
	if (!strmap_get(&reader->hosts, name, &host))
		return json_refuse(r, "\"host\" is \"%.64s\", which \"hosts\" does not have", name);
	topology_place(reader->topology, role, rank, host);
	return read_links(reader, json_object_get(object, "links"), role, rank, host);
}

static int read_all(struct reader *reader, json_t *root)
{
	static const char *const groups[] = {"schema", "hosts", "trainers", "inference", NULL};
	const char *schema = json_string_value(json_object_get(root, "schema"));
	json_t *hosts, *ranks[ROLE_COUNT];
	struct json_reader *r = &reader->json;

	if (schema && strcmp(schema, TOPOLOGY_SCHEMA) != 0)
		return json_refuse(r, "its schema is \"%.64s\"; " TOPOLOGY_SCHEMA " is read",
				   schema);
	take_keys(r, root, groups);
	json_take_string(r, root, "schema", &schema);
	take_list(r, root, "hosts", TOPOLOGY_HOSTS_MAX, &hosts);
	for (int role = 0; role < ROLE_COUNT; role++)
		take_list(r, root, rank_lists[role], PARALLEL_RANKS_MAX, &ranks[role]);
	if (r->failed ||
	    json_failed(r,
			topology_new(&reader->topology,
				     (uint32_t)json_array_size(ranks[ROLE_TRAINER]),
				     (uint32_t)json_array_size(ranks[ROLE_INFERENCE]), r->error)))
		return r->failed;
	for (size_t h = 0; !r->failed && h < json_array_size(hosts); h++) {
		r->at = (struct json_place){.list = "hosts", .index = h};
		read_host(reader, json_array_get(hosts, h));
	}
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t i = 0; !r->failed && i < reader->topology->rank_count[role]; i++) {
			r->at = (struct json_place){.list = rank_lists[role], .index = i};
			read_rank(reader, json_array_get(ranks[role], i), (enum role)role, i);
		}
	return r->failed;
}

int topology_take(struct topology **out, const struct json_t *value, struct error *error)
{
	struct reader reader = {.json = {.error = error}};
	/* jansson's readers take no const; nothing here writes */
	int rc = read_all(&reader, (json_t *)(uintptr_t)value);

	strmap_fini(&reader.hosts);
	if (rc)
		topology_free(&reader.topology);
	else
		topology_finish(reader.topology);
	*out = reader.topology;
	return rc;
}

int topology_parse(struct topology **out, const char *text, size_t bytes, const char *name,
		   struct error *error)
{
	json_error_t where;
	json_t *root;
	int rc;

	*out = NULL;
	if (bytes > TOPOLOGY_FILE_BYTES_MAX)
		return error_set(error, ERROR_LIMIT,
				 "%s has %zu bytes; topologies of up to %" PRIu64 " are read", name,
				 bytes, TOPOLOGY_FILE_BYTES_MAX);
	root = json_loadb(text ? text : "", bytes, JSON_REJECT_DUPLICATES, &where);
	if (!root)
		return error_set(error, ERROR_FILE, "%s: line %d, column %d: %s", name, where.line,
				 where.column, where.text);
	rc = topology_take(out, root, error);
	json_decref(root);
	if (rc)
		error_wrap(error, "%s", name);
	return rc;
}

int topology_fits(const struct topology *topology, uint32_t trainers, uint32_t inference,
		  struct error *error)
{
	if (topology->rank_count[ROLE_TRAINER] == trainers &&
	    topology->rank_count[ROLE_INFERENCE] == inference)
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "the topology places %" PRIu32 " trainers and %" PRIu32
			 " inference ranks, the job has %" PRIu32 " and %" PRIu32,
			 topology->rank_count[ROLE_TRAINER], topology->rank_count[ROLE_INFERENCE],
			 trainers, inference);
}

static int open_file(struct topology **topology, const char *path, struct error *error)
{
	struct file_map map;
	int rc = file_map_open(&map, path, error);

	*topology = NULL;
	if (rc)
		return rc;
	rc = topology_parse(topology, (const char *)map.data, map.bytes, path, error);
	file_map_close(&map);
	return rc;
}

int topology_open(struct topology **topology, const char *text, uint32_t trainers,
		  uint32_t inference, struct error *error)
{
	bool spec = strchr(text, '=') && !strchr(text, '/');
	int rc;

	*topology = NULL;
	if (strcmp(text, "flat") == 0)
		return topology_flat(topology, trainers, inference, error);
	if (spec)
		rc = topology_expand(topology, text, trainers, inference, error);
	else if (!*text)
		rc = error_set(error, ERROR_CONFIG,
			       "it is empty; say flat, a spec or the name of a file");
	else
		rc = open_file(topology, text, error);
	if (rc == -ERROR_IO && strcmp(text, "workers") == 0)
		rc = error_set(error, ERROR_CONFIG,
			       "no worker reports here ('workers' is for weft-controller), and "
			       "there is no file of that name");
	if (!rc)
		rc = topology_fits(*topology, trainers, inference, error);
	if (!rc)
		return 0;
	topology_free(topology);
	if (spec)
		error_wrap(error, "--topology %.200s", text);
	else
		error_wrap(error, "--topology");
	return rc;
}
