/* SPDX-License-Identifier: Apache-2.0
 *
 * nics.c -- which ports this process uses. Pure, but for log lines about what was decided.
 *
 *   every port ─► examine: ACTIVE, link known, a GID ──► candidates
 *        named ("--nic") ────────────────────────────► those, in that order, or an error
 *        NCCL_IB_HCA ─► only what it matches ┐
 *        nothing said ───────────────────────┴► hardware before soft devices
 *                                               one function of a port
 *                                               the link and speed that carry most of the host
 *                                               the nearest, all of them, turned by rank
 *
 * Every step that drops a port writes the reason on the port: weft doctor shows it, and the
 * error when nothing is left is the list of them.
 */
#include "transport/verbs/nics.h"

#include "base/log.h"
#include "base/text.h"
#include "transport/transport.h"
#include "transport/verbs/topology.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void nics_reject(struct verbs_port *port, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(port->rejected, sizeof(port->rejected), format, args);
	va_end(args);
}

void nics_drop_rejected(struct nics_chooser *chooser)
{
	size_t kept = 0;

	for (size_t i = 0; i < chooser->left.count; i++)
		if (!chooser->left.items[i].port->rejected[0])
			chooser->left.items[kept++] = chooser->left.items[i];
	chooser->left.count = kept;
}

/* ---- what a port is by itself ---- */

static void reject_for_gids(const struct verbs_device *device, struct verbs_port *port)
{
	const struct verbs_gid *told = NULL;
	char text[VERBS_GID_TEXT_BYTES];

	array_each(gid, &port->gids) {
		if (!told || (told->type != VERBS_GID_ROCE_V2 && gid->type == VERBS_GID_ROCE_V2))
			told = gid;
	}
	if (told)
		nics_reject(port, "none of its %zu GIDs can be used: GID %u (%s) %s",
			    port->gids.count, told->index, verbs_gid_text(told->raw, text),
			    told->rejected);
	else if (port->link == VERBS_LINK_INFINIBAND)
		nics_reject(port, "it has no GID");
	else
		nics_reject(port, "it has no GID: give the network interface of %s an address",
			    device->name);
}

static void examine(struct nics_chooser *chooser, const struct verbs_device *device,
		    struct verbs_port *port)
{
	struct error error = {0};

	port->rejected[0] = '\0';
	int rc = verbs_gids_judge(device, port, chooser->settings->gid_index,
				  chooser->settings->gid_from, &error);

	if (!port->active) {
		nics_reject(port, "the port is %s, not ACTIVE", port->state);
	} else if (port->link == VERBS_LINK_UNKNOWN) {
		nics_reject(port, "its link is neither InfiniBand nor Ethernet");
	} else if (rc) {
		nics_reject(port, "%s", error.text);
		chooser->bad_index = true;
	} else if (port->gid < 0) {
		reject_for_gids(device, port);
	}
}

static int examine_all(struct nics_chooser *chooser, verbs_distance *distance, void *context,
		       struct error *error)
{
	array_each(device, &chooser->facts->devices) {
		array_each(port, &device->ports) {
			struct nics_candidate candidate = {device, port, 0};

			examine(chooser, device, port);
			if (port->rejected[0])
				continue;
			candidate.distance = distance ? distance(context, device) : 0;
			if (!array_add(&chooser->left, candidate))
				return memory_error(error, "choosing NICs", sizeof(candidate));
		}
	}
	return 0;
}

/* ---- messages ---- */

static void list_ports(const struct nics_chooser *chooser, struct text *text, bool reasons)
{
	array_each(device, &chooser->facts->devices) {
		const char *between = text->bytes ? (reasons ? "; " : ", ") : "";

		if (device->open_errno)
			text_format(text, "%s%s (cannot be opened: %s)", between, device->name,
				    strerror(device->open_errno));
		else if (device->ports.count == 0)
			text_format(text, "%s%s (no ports)", between, device->name);
		array_each(port, &device->ports) {
			between = text->bytes ? (reasons ? "; " : ", ") : "";
			text_format(text, "%s%s:%u", between, device->name, port->number);
			if (reasons)
				text_format(text, ": %s", port->rejected);
		}
	}
	if (chooser->facts->devices.count == 0)
		text_add(text, "no RDMA device at all");
}

static int nothing_left(const struct nics_chooser *chooser, struct error *error)
{
	struct text text = {0};

	list_ports(chooser, &text, true);
	int rc = error_set(error, chooser->bad_index ? ERROR_CONFIG : ERROR_UNSUPPORTED,
			   "no NIC can be used here: %s", text_string(&text));

	text_fini(&text);
	return rc;
}

int nics_unknown_name(const struct nics_chooser *chooser, const char *what, struct error *error)
{
	struct text text = {0};

	list_ports(chooser, &text, false);
	int rc = error_set(error, ERROR_CONFIG, "%s=%s: %s is not here; there is: %s",
			   chooser->from, chooser->settings->nics, what, text_string(&text));

	text_fini(&text);
	return rc;
}

/* ---- steps of choosing; each keeps candidates and says why it dropped the others ---- */

static void keep_hardware(struct nics_chooser *chooser)
{
	size_t hard = 0, present = 0;

	for (size_t i = 0; i < chooser->left.count; i++)
		hard += !chooser->left.items[i].device->soft;
	for (size_t d = 0; d < chooser->facts->devices.count; d++)
		present += !chooser->facts->devices.items[d].soft;
	if (hard == 0) {
		if (present && chooser->left.count)
			log_warn("none of the %zu hardware NICs here can be used: taking the soft "
				 "device %s, which is slow; weft doctor shows why",
				 present, chooser->left.items[0].device->name);
		return;
	}
	for (size_t i = 0; i < chooser->left.count; i++)
		if (chooser->left.items[i].device->soft)
			nics_reject(
				chooser->left.items[i].port,
				"soft device: taken only when there is no hardware, or by name");
	nics_drop_rejected(chooser);
}

/* Two PCI functions of one physical port share node GUID and port number; the nearer stays. */
static void merge_functions(struct nics_chooser *chooser)
{
	for (size_t i = 0; i < chooser->left.count; i++)
		for (size_t k = 0; k < i; k++) {
			const struct nics_candidate *a = &chooser->left.items[k];
			const struct nics_candidate *b = &chooser->left.items[i];
			const struct nics_candidate *nearer = b->distance < a->distance ? b : a;

			if (a->device->node_guid == 0 ||
			    a->device->node_guid != b->device->node_guid ||
			    a->port->number != b->port->number || a->port->rejected[0] ||
			    b->port->rejected[0])
				continue;
			nics_reject((nearer == b ? a : b)->port,
				    "another function of the same port as %s (node GUID %016" PRIx64
				    ")",
				    nearer->device->name, nearer->device->node_guid);
		}
	nics_drop_rejected(chooser);
}

static uint64_t speed_of(const struct nics_candidate *candidate)
{
	return candidate->device->soft ? 0 : candidate->port->speed_mbps;
}

/* The link and the speed that together carry most of this host's bandwidth are the fabric for
 * data; what is slower is a management or storage NIC. */
static uint64_t weight_of(const struct nics_chooser *chooser, const struct nics_candidate *like,
			  bool by_speed)
{
	uint64_t sum = 0;

	array_each(other, &chooser->left) {
		uint64_t speed = speed_of(other);

		if (by_speed ? speed == speed_of(like) : other->port->link == like->port->link)
			sum += speed ? speed : 1;
	}
	return sum;
}

static const struct nics_candidate *heaviest(const struct nics_chooser *chooser, bool by_speed)
{
	const struct nics_candidate *best = NULL;
	uint64_t most = 0;

	array_each(candidate, &chooser->left) {
		uint64_t weight = weight_of(chooser, candidate, by_speed);

		if (!best || weight > most ||
		    (weight == most && speed_of(candidate) > speed_of(best))) {
			best = candidate;
			most = weight;
		}
	}
	return best;
}

static void keep_fabric(struct nics_chooser *chooser)
{
	const struct nics_candidate *main_link = heaviest(chooser, false);

	if (!main_link)
		return;
	enum verbs_link link = main_link->port->link;

	for (size_t i = 0; i < chooser->left.count; i++) {
		struct verbs_port *port = chooser->left.items[i].port;

		if (port->link != link)
			nics_reject(port,
				    "its link is %s, the NICs for data here have %s: name it to "
				    "use it",
				    link == VERBS_LINK_INFINIBAND ? "Ethernet" : "InfiniBand",
				    link == VERBS_LINK_INFINIBAND ? "InfiniBand" : "Ethernet");
	}
	nics_drop_rejected(chooser);
	uint64_t speed = speed_of(heaviest(chooser, true));

	array_each(candidate, &chooser->left) {
		uint64_t own = speed_of(candidate);

		if (own && own < speed)
			nics_reject(
				candidate->port,
				"%.4g Gb/s, slower than the %.4g Gb/s of the NICs for data here: "
				"taken for a management NIC; name it to use it",
				(double)own / 1000, (double)speed / 1000);
	}
	nics_drop_rejected(chooser);
}

static void keep_nearest(struct nics_chooser *chooser)
{
	const struct nics_candidate *nearest = NULL;

	for (size_t i = 0; i < chooser->left.count; i++)
		if (!nearest || chooser->left.items[i].distance < nearest->distance)
			nearest = &chooser->left.items[i];
	for (size_t i = 0; i < chooser->left.count; i++)
		if (chooser->left.items[i].distance > nearest->distance)
			nics_reject(chooser->left.items[i].port, "farther away than %s",
				    nearest->device->name);
	size_t before = chooser->left.count;

	nics_drop_rejected(chooser);
	if (before > 1 && before == chooser->left.count)
		log_info("all %zu NICs are equally far away: rank %u starts with %s", before,
			 chooser->rank, chooser->left.items[chooser->rank % before].device->name);
}

static int choose_automatically(struct nics_chooser *chooser, struct error *error)
{
	bool named = false;

	if (chooser->settings->nics[0]) {
		int rc = nics_keep_matching(chooser, &named, error);

		if (rc)
			return rc;
	}
	if (!named) {
		keep_hardware(chooser);
		merge_functions(chooser);
		keep_fabric(chooser);
	}
	keep_nearest(chooser);
	return 0;
}

int verbs_nics_choose(struct verbs_facts *facts, const struct verbs_settings *settings,
		      uint32_t rank, verbs_distance *distance, void *context,
		      struct verbs_nic_choice *out, uint32_t max, uint32_t *count,
		      struct error *error)
{
	struct nics_chooser chooser = {.facts = facts,
				       .settings = settings,
				       .rank = rank,
				       .from = settings->nics_from && *settings->nics_from
						       ? settings->nics_from
						       : "--nic"};
	bool named = settings->nics[0] && strcmp(chooser.from, "NCCL_IB_HCA") != 0;

	*count = 0;
	int rc = examine_all(&chooser, distance, context, error);

	if (!rc)
		rc = named ? nics_choose_named(&chooser, max, error)
			   : choose_automatically(&chooser, error);
	if (!rc && chooser.left.count == 0)
		rc = nothing_left(&chooser, error);
	size_t n = chooser.left.count, first = named || n == 0 ? 0 : rank % n;

	for (size_t i = 0; !rc && i < n; i++) {
		const struct nics_candidate *candidate = &chooser.left.items[(first + i) % n];

		if (i >= max) {
			nics_reject(candidate->port, "a process uses at most %u NICs", max);
			continue;
		}
		out[(*count)++] = (struct verbs_nic_choice){
			(uint32_t)(candidate->device - facts->devices.items),
			(uint32_t)(candidate->port - candidate->device->ports.items),
			candidate->distance};
	}
	array_free(&chooser.left);
	return rc;
}

/* ---- what others are told of a NIC ---- */

/* What is not known counts as far: nothing may be preferred for what nobody said. */
static enum nic_distance distance_of(uint32_t distance)
{
	static const enum nic_distance words[] = {
		[TOPOLOGY_SAME_SWITCH] = DISTANCE_PIX, [TOPOLOGY_SAME_ROOT] = DISTANCE_PHB,
		[TOPOLOGY_SAME_NUMA] = DISTANCE_NODE,  [TOPOLOGY_OTHER_NUMA] = DISTANCE_SYS,
		[TOPOLOGY_UNKNOWN] = DISTANCE_SYS,
	};

	return distance < ARRAY_SIZE(words) ? words[distance] : DISTANCE_SYS;
}

static bool alike(const struct verbs_device *a, const struct verbs_port *p,
		  const struct verbs_device *b, const struct verbs_port *q)
{
	return a->soft == b->soft && p->link == q->link && p->active && q->active &&
	       (a->soft || p->speed_mbps == q->speed_mbps);
}

void verbs_nic_describe(const struct verbs_facts *facts, const struct verbs_nic_choice *choice,
			struct transport_nic *out)
{
	const struct verbs_device *device = &facts->devices.items[choice->device];
	const struct verbs_port *port = &device->ports.items[choice->port];
	uint64_t rate = device->soft ? 0 : port->speed_mbps * 125000;

	*out = (struct transport_nic){
		.bytes_per_second = rate <= NIC_RATE_MAX ? rate : 0,
		.distance = distance_of(choice->distance),
	};
	snprintf(out->name, sizeof(out->name), "%s:%u", device->name, port->number);
	for (uint32_t d = 0; d <= choice->device; d++) {
		const struct verbs_device *other = &facts->devices.items[d];
		size_t end = d == choice->device ? choice->port : other->ports.count;

		for (size_t p = 0; p < end; p++)
			out->rail += alike(other, &other->ports.items[p], device, port);
	}
}
