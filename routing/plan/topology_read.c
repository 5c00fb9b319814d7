/* SPDX-License-Identifier: Apache-2.0
 *
 * topology_read.c -- the file of a topology, strictly: what is unknown, missing, repeated, out
 * of range or means nothing is an error that says where. A person wrote it.
 */
#include "routing/plan/topology_file.h"

#include "base/array.h"
#include "base/file.h"
#include "job/parallel.h"
#include "job/strmap.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#define BYTES_PER_GIGABIT 125e6

static const char *const rank_lists[ROLE_COUNT] = {
	[ROLE_TRAINER] = "trainers",
	[ROLE_INFERENCE] = "inference",
};

/* Where in the file the reader is: "hosts[3].nics[0]". */
struct reader {
	struct topology *topology;
	struct strmap hosts; /* name -> host */
	const char *list, *inner;
	size_t index, inner_index;
	struct error *error;
};

static int refuse(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct reader *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_vset(r->error, ERROR_FILE, format, args);
	va_end(args);
	if (r->inner)
		return error_wrap(r->error, "%s[%zu].%s[%zu]", r->list, r->index, r->inner,
				  r->inner_index);
	if (r->list)
		return error_wrap(r->error, "%s[%zu]", r->list, r->index);
	return -ERROR_FILE;
}

/* Keys of an object: of each group "a|b" exactly one, of a group that ends in "|" at most one. */
static bool in_group(const char *group, const char *key)
{
	size_t length = strlen(key);

	for (const char *at = group; at; at = strchr(at, '|')) {
		at += *at == '|';
		if (strncmp(at, key, length) == 0 && (at[length] == '|' || !at[length]))
			return length > 0;
	}
	return false;
}

static int check_group(struct reader *r, json_t *object, const char *group)
{
	const char *key, *found = NULL;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		if (!in_group(group, key))
			continue;
		if (found)
			return refuse(r, "both \"%s\" and \"%s\" are given", found, key);
		found = key;
	}
	if (found || group[strlen(group) - 1] == '|')
		return 0;
	if (strchr(group, '|'))
		return refuse(r, "key \"%.*s\" or \"%s\" is missing",
			      (int)(strchr(group, '|') - group), group, strchr(group, '|') + 1);
	return refuse(r, "key \"%s\" is missing", group);
}

static int check_keys(struct reader *r, json_t *object, const char *const *groups)
{
	const char *key;
	json_t *value;
	int rc = 0;

	if (!json_is_object(object))
		return refuse(r, "not an object");
	json_object_foreach(object, key, value)
	{
		bool known = false;

		for (size_t g = 0; groups[g] && !known; g++)
			known = in_group(groups[g], key);
		if (!known)
			return refuse(r, "key \"%.64s\" is unknown", key);
	}
	for (size_t g = 0; groups[g] && !rc; g++)
		rc = check_group(r, object, groups[g]);
	return rc;
}

/* ---- values ---- */

static int list_of(struct reader *r, json_t *object, const char *key, size_t max, json_t **out)
{
	*out = json_object_get(object, key);
	if (!json_is_array(*out))
		return refuse(r, "\"%s\" is not a list", key);
	if (json_array_size(*out) > max)
		return refuse(r, "\"%s\" has %zu items; at most %zu are possible", key,
			      json_array_size(*out), max);
	return 0;
}

static int name_of(struct reader *r, json_t *object, const char *key, const char **out)
{
	json_t *value = json_object_get(object, key);

	*out = json_string_value(value);
	if (!*out)
		return refuse(r, "\"%s\" is not a string", key);
	if (json_string_length(value) == 0 || json_string_length(value) >= TOPOLOGY_NAME_BYTES)
		return refuse(r, "\"%s\" has %zu bytes; 1 to %u are possible", key,
			      json_string_length(value), TOPOLOGY_NAME_BYTES - 1);
	return 0;
}

static int number_of(struct reader *r, json_t *object, const char *key, uint64_t least,
		     uint64_t most, uint64_t *out)
{
	json_t *value = json_object_get(object, key);
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value))
		return refuse(r, "\"%s\" is not a whole number", key);
	if (number < 0 || (uint64_t)number < least || (uint64_t)number > most)
		return refuse(r, "\"%s\" is %" PRId64 "; %" PRIu64 " to %" PRIu64 " are possible",
			      key, (int64_t)number, least, most);
	*out = (uint64_t)number;
	return 0;
}

/* A speed by one of two keys: bytes per second, or gigabits per second (a fraction is fine). */
static int rate_of(struct reader *r, json_t *object, const char *bytes_key, const char *gbps_key,
		   uint64_t *out)
{
	json_t *value = json_object_get(object, gbps_key);
	double gbps = json_number_value(value);

	if (json_object_get(object, bytes_key))
		return number_of(r, object, bytes_key, 1, TOPOLOGY_RATE_MAX, out);
	if (!json_is_number(value))
		return refuse(r, "\"%s\" is not a number", gbps_key);
	if (!(gbps * BYTES_PER_GIGABIT >= 1 &&
	      gbps * BYTES_PER_GIGABIT <= (double)TOPOLOGY_RATE_MAX))
		return refuse(r, "\"%s\" is %.9g; more than 0 and at most %.0f is possible",
			      gbps_key, gbps, (double)TOPOLOGY_RATE_MAX / BYTES_PER_GIGABIT);
	*out = (uint64_t)llround(gbps * BYTES_PER_GIGABIT);
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

static int read_nic(struct reader *r, json_t *object)
{
	static const char *const groups[] = {"name", "rail", "bytes_per_second|gbps", NULL};
	struct topology *topology = r->topology;
	const struct topology_host *host = &topology->hosts[topology->host_count - 1];
	uint64_t rail = 0, rate = 0;
	const char *name;
	int rc = check_keys(r, object, groups);

	if (!rc)
		rc = name_of(r, object, "name", &name);
	if (!rc && find_nic(topology, host, name) != UINT32_MAX)
		rc = refuse(r, "the host has a NIC \"%.64s\" already", name);
	if (!rc)
		rc = number_of(r, object, "rail", 0, NIC_RAIL_MAX, &rail);
	if (!rc)
		rc = rate_of(r, object, "bytes_per_second", "gbps", &rate);
	return rc ? rc : topology_add_nic(topology, name, (uint32_t)rail, rate, r->error);
}

static int read_host(struct reader *r, json_t *object)
{
	static const char *const groups[] = {"name", "uplink_bytes_per_second|uplink_gbps|", "nics",
					     NULL};
	struct topology *topology = r->topology;
	uint32_t at = topology->host_count, other;
	uint64_t uplink = 0;
	json_t *nics = NULL;
	const char *name;
	int rc = check_keys(r, object, groups);

	if (!rc)
		rc = name_of(r, object, "name", &name);
	if (!rc && strmap_get(&r->hosts, name, &other))
		rc = refuse(r, "hosts[%" PRIu32 "] is named \"%.64s\" already", other, name);
	if (!rc && (json_object_get(object, "uplink_bytes_per_second") ||
		    json_object_get(object, "uplink_gbps")))
		rc = rate_of(r, object, "uplink_bytes_per_second", "uplink_gbps", &uplink);
	if (!rc)
		rc = list_of(r, object, "nics", TOPOLOGY_HOST_NICS_MAX, &nics);
	if (!rc)
		rc = topology_add_host(topology, name, uplink, r->error);
	if (!rc && !strmap_put(&r->hosts, topology->hosts[at].name, at))
		rc = memory_error(r->error, "reading a topology", sizeof(struct strmap_slot));
	for (size_t n = 0; !rc && n < json_array_size(nics); n++) {
		r->inner = "nics";
		r->inner_index = n;
		rc = read_nic(r, json_array_get(nics, n));
	}
	if (!rc)
		r->inner = NULL;
	return rc;
}

/* ---- ranks ---- */

static int read_links(struct reader *r, json_t *links, enum role role, uint32_t rank, uint32_t host)
{
	struct topology *topology = r->topology;
	const struct topology_host *place = &topology->hosts[host];
	const char *name;
	json_t *value;
	int rc = 0;

	if (!json_is_object(links))
		return refuse(r, "\"links\" is not an object of NICs and distances");
	if (json_object_size(links) == 0)
		return refuse(r, "\"links\" is empty; a rank needs a NIC");
	json_object_foreach(links, name, value)
	{
		const char *word = json_string_value(value);
		uint32_t nic = find_nic(topology, place, name);
		enum nic_distance distance;

		if (nic == UINT32_MAX)
			return refuse(r,
				      "\"links\" has \"%.64s\", which is no NIC of host \"%.64s\"",
				      name, place->name);
		if (!word || !nic_distance_parse(word, &distance))
			return refuse(r,
				      "\"links\" has \"%.64s\" at \"%.32s\"; distances are pix, "
				      "pxb, phb, node, sys",
				      name, word ? word : "(not a string)");
		rc = topology_add_link(topology, role, rank, nic, distance, r->error);
		if (rc)
			return rc;
	}
	return 0;
}

static int read_rank(struct reader *r, json_t *object, enum role role, uint32_t rank)
{
	static const char *const groups[] = {"rank", "host", "links", NULL};
	uint64_t number = 0;
	const char *name;
	uint32_t host = 0;
	int rc = check_keys(r, object, groups);

	if (!rc)
		rc = number_of(r, object, "rank", 0, PARALLEL_RANKS_MAX, &number);
	if (!rc && number != rank)
		rc = refuse(r, "\"rank\" is %" PRIu64 "; ranks count from 0", number);
	if (!rc)
		rc = name_of(r, object, "host", &name);
	if (!rc && !strmap_get(&r->hosts, name, &host))
		rc = refuse(r, "\"host\" is \"%.64s\", which \"hosts\" does not have", name);
	if (rc)
		return rc;
	topology_place(r->topology, role, rank, host);
	return read_links(r, json_object_get(object, "links"), role, rank, host);
}

static int read_all(struct reader *r, json_t *root)
{
	static const char *const groups[] = {"schema", "hosts", "trainers", "inference", NULL};
	const char *schema = json_string_value(json_object_get(root, "schema"));
	json_t *hosts = NULL, *ranks[ROLE_COUNT] = {NULL};
	int rc;

	if (schema && strcmp(schema, TOPOLOGY_SCHEMA) != 0)
		return refuse(r, "its schema is \"%.64s\"; " TOPOLOGY_SCHEMA " is read", schema);
	rc = check_keys(r, root, groups);
	if (!rc && !schema)
		rc = refuse(r, "\"schema\" is not a string");
	if (!rc)
		rc = list_of(r, root, "hosts", TOPOLOGY_HOSTS_MAX, &hosts);
	for (int role = 0; !rc && role < ROLE_COUNT; role++)
		rc = list_of(r, root, rank_lists[role], PARALLEL_RANKS_MAX, &ranks[role]);
	if (!rc)
		rc = topology_new(&r->topology, (uint32_t)json_array_size(ranks[ROLE_TRAINER]),
				  (uint32_t)json_array_size(ranks[ROLE_INFERENCE]), r->error);
	r->list = "hosts";
	for (r->index = 0; !rc && r->index < json_array_size(hosts); r->index++) {
		rc = read_host(r, json_array_get(hosts, r->index));
		if (rc)
			return rc;
	}
	for (int role = 0; !rc && role < ROLE_COUNT; role++) {
		r->list = rank_lists[role];
		for (uint32_t i = 0; !rc && i < r->topology->rank_count[role]; i++) {
			r->index = i;
			rc = read_rank(r, json_array_get(ranks[role], i), (enum role)role, i);
		}
	}
	return rc;
}

int topology_take(struct topology **out, const struct json_t *value, struct error *error)
{
	struct reader r = {.error = error};
	/* jansson's readers take no const; nothing here writes */
	int rc = read_all(&r, (json_t *)(uintptr_t)value);

	strmap_fini(&r.hosts);
	if (rc)
		topology_free(&r.topology);
	else
		topology_finish(r.topology);
	*out = r.topology;
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
