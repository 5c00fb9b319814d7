/* SPDX-License-Identifier: Apache-2.0
 *
 * nic_names.c -- NICs by name. Two grammars, because NCCL's is what hosts already have set:
 *
 *   --nic, WEFT_NIC   mlx5_0,mlx5_1:1            these, in this order; all of them must work
 *                     0=mlx5_0,1=mlx5_1+mlx5_2   the same, a list for each rank
 *   NCCL_IB_HCA       mlx5  =mlx5_0:1  ^mlx5_3   by prefix, exactly, all but: what may be used
 *
 * The first is an order and fails when it cannot be followed. The second is a filter: what it
 * lets through is still chosen by distance.
 */
#include "transport/verbs/nics.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct named {
	char name[VERBS_NAME_BYTES];
	uint32_t port; /* 0: any */
};
typedef ARRAY(struct named) names;

/* `part` of what names NICs is wrong, for `why`. */
static int bad_part(const struct nics_chooser *chooser, const char *part, size_t bytes,
		    const char *why, struct error *error)
{
	return error_set(error, ERROR_CONFIG, "%s=%s: '%.*s' %s", chooser->from,
			 chooser->settings->nics, (int)bytes, part, why);
}

static const char no_name[] = "is no NIC; write mlx5_0 or mlx5_0:1, several with "
			      "commas, or for each rank 0=mlx5_0,1=mlx5_1+mlx5_2";
/* In a map by rank: a plain name among the others, usually meant for the rank before it. */
static const char no_rank[] =
	"says no rank; in a list by rank every entry is RANK=NAME, "
	"and several NICs of one rank are joined by +: 0=mlx5_0,1=mlx5_1+mlx5_2";

/* ---- names ---- */

/* "mlx5_0" or "mlx5_0:1". */
static bool parse_name(const char *part, size_t bytes, struct named *named)
{
	const char *colon = memchr(part, ':', bytes);
	size_t length = colon ? (size_t)(colon - part) : bytes;
	char number[8] = "";
	uint64_t port = 0;

	if (length == 0 || length >= sizeof(named->name) || strcspn(part, "=^+") < length)
		return false;
	memset(named, 0, sizeof(*named));
	memcpy(named->name, part, length);
	if (!colon)
		return true;
	if (bytes - length - 1 >= sizeof(number))
		return false;
	memcpy(number, colon + 1, bytes - length - 1);
	if (!parse_u64(number, &port) || port == 0 || port > UINT8_MAX)
		return false;
	named->port = (uint32_t)port;
	return true;
}

static int parse_names(const struct nics_chooser *chooser, const char *part, size_t bytes,
		       char separator, names *out, struct error *error)
{
	const char *end = part + bytes;

	for (;;) {
		const char *stop = memchr(part, separator, (size_t)(end - part));
		size_t length = (size_t)((stop ? stop : end) - part);
		struct named *named = array_push(out);

		if (!named)
			return memory_error(error, "reading NIC names", sizeof(*named));
		if (!parse_name(part, length, named))
			return bad_part(chooser, part, length, no_name, error);
		if (!stop)
			return 0;
		part = stop + 1;
	}
}

/* "0=mlx5_0,1=mlx5_1+mlx5_2": finds the entry of this rank; checks all of them. */
static int parse_ranks(const struct nics_chooser *chooser, names *out, struct error *error)
{
	const char *part = chooser->settings->nics;
	bool found = false;

	for (;;) {
		size_t bytes = strcspn(part, ",");
		const char *equals = memchr(part, '=', bytes);
		char number[16] = "";
		uint64_t rank;

		if (equals && (size_t)(equals - part) < sizeof(number))
			memcpy(number, part, (size_t)(equals - part));
		if (!parse_u64(number, &rank)) /* none, or one that is too long */
			return bad_part(chooser, part, bytes, no_rank, error);
		names scratch = {0};
		bool mine = rank == chooser->rank;
		int rc = parse_names(chooser, equals + 1, bytes - (size_t)(equals + 1 - part), '+',
				     mine ? out : &scratch, error);

		array_free(&scratch);
		if (rc)
			return rc;
		if (mine && found)
			return error_set(error, ERROR_CONFIG, "%s=%s: rank %u is named twice",
					 chooser->from, chooser->settings->nics, chooser->rank);
		found |= mine;
		if (part[bytes] == '\0')
			break;
		part += bytes + 1;
	}
	if (found)
		return 0;
	return error_set(error, ERROR_CONFIG, "%s=%s names no NIC for rank %u: add %u=NAME",
			 chooser->from, chooser->settings->nics, chooser->rank, chooser->rank);
}

static const struct nics_candidate *find_port(const nics_candidates *among,
					      const struct verbs_port *port)
{
	for (size_t i = 0; i < among->count; i++)
		if (among->items[i].port == port)
			return &among->items[i];
	return NULL;
}

static int take_port(struct nics_chooser *chooser, struct verbs_device *device,
		     struct verbs_port *port, nics_candidates *taken, struct error *error)
{
	const struct nics_candidate *known = find_port(&chooser->left, port);

	if (find_port(taken, port))
		return error_set(error, ERROR_CONFIG, "%s=%s: %s:%u is named twice", chooser->from,
				 chooser->settings->nics, device->name, port->number);
	if (!array_add(taken, known ? *known : (struct nics_candidate){device, port, 0}))
		return memory_error(error, "choosing NICs", sizeof(*known));
	return 0;
}

/* All ports that can be used of the device, or the port named. */
static int take_named(struct nics_chooser *chooser, const struct named *named,
		      nics_candidates *taken, struct error *error)
{
	const struct verbs_facts *facts = chooser->facts;
	struct verbs_port *refused = NULL;
	size_t before = taken->count;
	char what[VERBS_NAME_BYTES + 16];
	uint32_t d = 0;

	if (named->port)
		snprintf(what, sizeof(what), "%s:%u", named->name, named->port);
	else
		snprintf(what, sizeof(what), "%s", named->name);
	while (d < facts->devices.count && strcmp(facts->devices.items[d].name, named->name) != 0)
		d++;
	if (d == facts->devices.count)
		return nics_unknown_name(chooser, what, error);
	struct verbs_device *device = &facts->devices.items[d];

	if (device->open_errno)
		return error_set_errno(error, ERROR_UNSUPPORTED, device->open_errno,
				       "%s=%s: %s cannot be opened", chooser->from,
				       chooser->settings->nics, what);
	array_each(port, &device->ports) {
		if (named->port && port->number != named->port)
			continue;
		if (port->rejected[0]) {
			refused = refused ? refused : port;
			continue;
		}
		int rc = take_port(chooser, device, port, taken, error);

		if (rc)
			return rc;
	}
	if (taken->count > before)
		return 0;
	if (!refused)
		return nics_unknown_name(chooser, what, error);
	if (chooser->bad_index) { /* the whole message, with all rows */
		int rc = verbs_gids_judge(device, refused, chooser->settings->gid_index,
					  chooser->settings->gid_from, error);

		if (rc)
			return rc;
	}
	return error_set(error, ERROR_UNSUPPORTED, "%s=%s: %s cannot be used: %s", chooser->from,
			 chooser->settings->nics, what, refused->rejected);
}

static void reject_unnamed(struct nics_chooser *chooser, const nics_candidates *taken)
{
	for (size_t i = 0; i < chooser->left.count; i++)
		if (!find_port(taken, chooser->left.items[i].port))
			nics_reject(chooser->left.items[i].port, "%s names others", chooser->from);
}

int nics_choose_named(struct nics_chooser *chooser, uint32_t max, struct error *error)
{
	const char *text = chooser->settings->nics;
	names wanted = {0};
	nics_candidates taken = {0};
	int rc = strchr(text, '=') ? parse_ranks(chooser, &wanted, error)
				   : parse_names(chooser, text, strlen(text), ',', &wanted, error);

	for (size_t i = 0; !rc && i < wanted.count; i++)
		rc = take_named(chooser, &wanted.items[i], &taken, error);
	if (!rc && taken.count > max)
		rc = error_set(error, ERROR_CONFIG,
			       "%s=%s names %zu NICs, a process uses at most "
			       "%u: name fewer",
			       chooser->from, text, taken.count, max);
	if (!rc)
		reject_unnamed(chooser, &taken);
	array_free(&wanted);
	array_free(&chooser->left);
	chooser->left = taken;
	return rc;
}

/* ---- NCCL_IB_HCA: "=mlx5_0:1,mlx5_1" exactly these; "^mlx5_3" all but; "mlx5" by prefix ---- */

struct pattern {
	const char *list;
	bool exact, inverse;
};

static struct pattern parse_pattern(const char *text)
{
	struct pattern pattern = {.list = text};

	if (*pattern.list == '^') {
		pattern.inverse = true;
		pattern.list++;
	}
	if (*pattern.list == '=') {
		pattern.exact = true;
		pattern.list++;
	}
	return pattern;
}

static bool entry_matches(const char *entry, size_t bytes, bool exact, const char *name,
			  uint32_t port)
{
	const char *colon = memchr(entry, ':', bytes);
	size_t length = colon ? (size_t)(colon - entry) : bytes;

	if (length == 0 || strncmp(entry, name, length) != 0)
		return false;
	if (exact && name[length] != '\0')
		return false;
	return !colon || strtoul(colon + 1, NULL, 10) == port;
}

static bool pattern_matches(const struct pattern *pattern, const char *name, uint32_t port)
{
	const char *entry = pattern->list;

	for (;;) {
		size_t bytes = strcspn(entry, ",");

		if (entry_matches(entry, bytes, pattern->exact, name, port))
			return !pattern->inverse;
		if (entry[bytes] == '\0')
			return pattern->inverse;
		entry += bytes + 1;
	}
}

/* Ports that cannot be used anyway keep that reason. */
int nics_keep_matching(struct nics_chooser *chooser, bool *named, struct error *error)
{
	struct pattern pattern = parse_pattern(chooser->settings->nics);
	size_t matching = 0;

	*named = !pattern.inverse;
	array_each(device, &chooser->facts->devices) {
		matching += device->open_errno && pattern_matches(&pattern, device->name, 1);
		array_each(port, &device->ports) {
			if (pattern_matches(&pattern, device->name, port->number))
				matching++;
			else if (!port->rejected[0])
				nics_reject(port, "%s=%.64s leaves it out", chooser->from,
					    chooser->settings->nics);
		}
	}
	if (matching == 0 && *named)
		return nics_unknown_name(chooser, "what it names", error);
	nics_drop_rejected(chooser);
	return 0;
}
