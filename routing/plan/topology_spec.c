/* SPDX-License-Identifier: Apache-2.0
 *
 * topology_spec.c -- a cluster of equal hosts in one line:
 *
 *   per_host=4,nics=2    rank 0 ─┬─ nic 0      per_host=2,nics=4    rank 0 ─┬─ nic 0
 *                        rank 1 ─┘                                          └─ nic 1
 *                        rank 2 ─┬─ nic 1                           rank 1 ─┬─ nic 2
 *                        rank 3 ─┘                                          └─ nic 3
 *
 * The NICs drawn are at distance pix, all others of the host at sys.
 */
#include "routing/plan/topology_file.h"

#include "job/parallel.h"
#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BYTES_PER_GIGABIT 125000000u
#define SPEC_NICS_MAX	  64u
#define GBPS_MAX	  8000000u /* TOPOLOGY_RATE_MAX */

enum key { KEY_PER_HOST, KEY_NICS, KEY_GBPS, KEY_UPLINK, KEY_RAILS, KEY_COUNT };

static const struct {
	const char *name;
	uint32_t max;
} keys[KEY_COUNT] = {
	[KEY_PER_HOST] = {"per_host", PARALLEL_RANKS_MAX},
	[KEY_NICS] = {"nics", SPEC_NICS_MAX},
	[KEY_GBPS] = {"gbps", GBPS_MAX},
	[KEY_UPLINK] = {"uplink_gbps", GBPS_MAX},
	[KEY_RAILS] = {"rails", SPEC_NICS_MAX},
};

/* All values are from 1; 0 is "not given". */
static int take_key(uint32_t values[KEY_COUNT], const char *key, const char *value,
		    struct error *error)
{
	uint64_t number;

	for (int k = 0; k < KEY_COUNT; k++) {
		if (strcmp(keys[k].name, key) != 0)
			continue;
		if (values[k])
			return error_set(error, ERROR_CONFIG, "key '%s' is given twice", key);
		if (!parse_u64(value, &number) || number < 1 || number > keys[k].max)
			return error_set(error, ERROR_CONFIG,
					 "%s is '%s'; it must be a number from 1 to %u", key, value,
					 keys[k].max);
		values[k] = (uint32_t)number;
		return 0;
	}
	return error_set(error, ERROR_CONFIG,
			 "unknown key '%s'; keys are per_host, nics, gbps, uplink_gbps, rails",
			 key);
}

static int parse(uint32_t values[KEY_COUNT], const char *spec, struct error *error)
{
	char copy[256];
	char *rest = copy, *item;
	int rc = 0;

	if (strlen(spec) >= sizeof(copy))
		return error_set(error, ERROR_CONFIG, "a spec has at most %zu characters",
				 sizeof(copy) - 1);
	strcpy(copy, spec);
	while (!rc && (item = strsep(&rest, ",")) != NULL) {
		char *value = strchr(item, '=');

		if (!value)
			return error_set(error, ERROR_CONFIG, "'%s' is not key=value", item);
		*value++ = '\0';
		rc = take_key(values, item, value, error);
	}
	if (rc)
		return rc;
	if (!values[KEY_PER_HOST])
		values[KEY_PER_HOST] = 1;
	if (!values[KEY_NICS] && values[KEY_PER_HOST] > SPEC_NICS_MAX)
		return error_set(error, ERROR_CONFIG,
				 "per_host is %u; a host has at most %u NICs: give nics",
				 values[KEY_PER_HOST], SPEC_NICS_MAX);
	if (!values[KEY_NICS])
		values[KEY_NICS] = values[KEY_PER_HOST];
	if (!values[KEY_GBPS])
		values[KEY_GBPS] = TOPOLOGY_FLAT_BYTES_PER_SECOND / BYTES_PER_GIGABIT;
	if (!values[KEY_RAILS])
		values[KEY_RAILS] = values[KEY_NICS];
	if (values[KEY_RAILS] > values[KEY_NICS])
		return error_set(error, ERROR_CONFIG, "rails=%u is more than nics=%u",
				 values[KEY_RAILS], values[KEY_NICS]);
	return 0;
}

static int add_host(struct topology *topology, const uint32_t values[KEY_COUNT],
		    struct error *error)
{
	char name[32];
	int rc;

	snprintf(name, sizeof(name), "host %" PRIu32, topology->host_count);
	rc = topology_add_host(topology, name, (uint64_t)values[KEY_UPLINK] * BYTES_PER_GIGABIT,
			       error);
	for (uint32_t n = 0; !rc && n < values[KEY_NICS]; n++) {
		snprintf(name, sizeof(name), "nic %" PRIu32, n);
		rc = topology_add_nic(topology, name, n % values[KEY_RAILS],
				      (uint64_t)values[KEY_GBPS] * BYTES_PER_GIGABIT, error);
	}
	return rc;
}

static int link_rank(struct topology *topology, const uint32_t values[KEY_COUNT], enum role role,
		     uint32_t rank, uint32_t host, struct error *error)
{
	uint32_t nics = values[KEY_NICS];
	uint64_t device = rank % values[KEY_PER_HOST];
	uint32_t first = (uint32_t)(device * nics / values[KEY_PER_HOST]);
	uint32_t end = (uint32_t)((device + 1) * nics / values[KEY_PER_HOST]);
	int rc = 0;

	if (end <= first)
		end = first + 1;
	topology_place(topology, role, rank, host);
	for (uint32_t n = 0; !rc && n < nics; n++)
		rc = topology_add_link(topology, role, rank, topology->hosts[host].nic_first + n,
				       n >= first && n < end ? DISTANCE_PIX : DISTANCE_SYS, error);
	return rc;
}

int topology_expand(struct topology **out, const char *spec, uint32_t trainers, uint32_t inference,
		    struct error *error)
{
	uint32_t values[KEY_COUNT] = {0};
	int rc = parse(values, spec, error);

	*out = NULL;
	if (!rc)
		rc = topology_new(out, trainers, inference, error);
	for (int role = 0; !rc && role < ROLE_COUNT; role++) {
		for (uint32_t r = 0; !rc && r < (*out)->rank_count[role]; r++) {
			if (r % values[KEY_PER_HOST] == 0)
				rc = add_host(*out, values, error);
			if (!rc)
				rc = link_rank(*out, values, (enum role)role, r,
					       (*out)->host_count - 1, error);
		}
	}
	if (rc)
		topology_free(out);
	else
		topology_finish(*out);
	return rc;
}
