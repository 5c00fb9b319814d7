/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_checks_link.c -- ports, GIDs, quality of service, PCIe links, and which NICs come out.
 */
#include "cli/doctor.h"

#include <inttypes.h>
#include <stdio.h>

#define MTU_ROCE_WANTED 4200 /* of the Ethernet interface, for packets of 4096 */

static const char *link_name(enum verbs_link link)
{
	static const char *const names[] = {"link layer unknown", "InfiniBand", "Ethernet"};

	return names[link];
}

/* Walks all ports of all devices. */
struct walk {
	size_t next_device, next_port;
	const struct verbs_device *device;
	const struct verbs_port *port;
};

static bool next_port(const struct doctor *doctor, struct walk *at)
{
	for (; at->next_device < doctor->facts.devices.count;
	     at->next_device++, at->next_port = 0) {
		at->device = &doctor->facts.devices.items[at->next_device];
		if (at->next_port < at->device->ports.count) {
			at->port = &at->device->ports.items[at->next_port++];
			return true;
		}
	}
	return false;
}

/* ---- ports ---- */

static void say_port(struct finding *finding, const struct verbs_device *device,
		     const struct verbs_port *port)
{
	char speed[64] = "speed not told by software devices", netdev[96] = "", lid[32] = "";

	if (!device->soft)
		snprintf(speed, sizeof(speed), "%.1f Gb/s", (double)port->speed_mbps / 1e3);
	if (port->netdev[0] && port->netdev_mtu)
		snprintf(netdev, sizeof(netdev), ", netdev %s MTU %u", port->netdev,
			 port->netdev_mtu);
	else if (port->netdev[0])
		snprintf(netdev, sizeof(netdev), ", netdev %s", port->netdev);
	if (port->link == VERBS_LINK_INFINIBAND)
		snprintf(lid, sizeof(lid), ", LID %u", port->lid);
	finding_detail(finding, "%s:%u %s, %s, %s, active MTU %u%s%s%s%s", device->name,
		       port->number, port->state, link_name(port->link), speed, port->mtu, netdev,
		       lid, port->rejected[0] ? "; not usable: " : "", port->rejected);
}

static void check_ports(struct doctor *doctor, struct finding *finding)
{
	struct walk at = {0};
	uint32_t active = 0, count = 0;

	while (next_port(doctor, &at)) {
		count++;
		active += at.port->active;
		say_port(finding, at.device, at.port);
		if (!at.port->active)
			finding_fix(finding,
				    "%s:%u is %s: look at the cable, the switch port and "
				    "`ip link set %s up`",
				    at.device->name, at.port->number, at.port->state,
				    at.port->netdev[0] ? at.port->netdev : "INTERFACE");
	}
	finding_say(finding, check_share(active, count), "%u of %u ports are active", active,
		    count);
}

static void check_mtu(struct doctor *doctor, struct finding *finding)
{
	struct walk at = {0};
	uint32_t small = 0, soft = 0, count = 0;

	while (next_port(doctor, &at)) {
		if (!at.port->active)
			continue;
		count++;
		if (at.port->mtu >= 4096 ||
		    (at.port->link == VERBS_LINK_INFINIBAND && at.port->mtu >= 2048))
			continue;
		/* soft devices sit on whatever interface there is: theirs is no fault */
		small += !at.device->soft;
		soft += at.device->soft;
		finding_detail(finding, "%s:%u active MTU %u%s%s%s", at.device->name,
			       at.port->number, at.port->mtu, at.port->netdev[0] ? " (netdev " : "",
			       at.port->netdev, at.port->netdev[0] ? ")" : "");
		if (at.port->netdev[0] && !at.device->soft)
			finding_fix(finding,
				    "ip link set %s mtu %d, and as much on the switch and "
				    "the peers",
				    at.port->netdev, MTU_ROCE_WANTED);
	}
	if (!count)
		finding_say(finding, CHECK_SKIP, "no port is active");
	else if (small)
		finding_say(finding, CHECK_WARN,
			    "packets of %u of %u active ports are shorter than they could be",
			    small, count);
	else if (soft)
		finding_say(finding, CHECK_PASS,
			    "short packets on %u of %u active ports: software devices take what "
			    "their interface has",
			    soft, count);
	else
		finding_say(finding, CHECK_PASS,
			    "packets are as long as they can be on all %u active ports", count);
}

/* ---- GIDs ---- */

static const char *gid_type(enum verbs_gid_type type)
{
	static const char *const names[] = {"IB", "RoCEv1", "RoCEv2"};

	return names[type];
}

#define PASSED_OVER_BYTES 48

/* Why a row that could be used is not the chosen one. */
static const char *passed_over(const struct doctor *doctor, char text[PASSED_OVER_BYTES])
{
	if (doctor->settings.gid_index < 0)
		return "usable, another is better";
	snprintf(text, PASSED_OVER_BYTES, "usable, row %d is asked for",
		 doctor->settings.gid_index);
	return text;
}

static void say_gids(const struct doctor *doctor, struct finding *finding,
		     const struct verbs_device *device, const struct verbs_port *port)
{
	char text[VERBS_GID_TEXT_BYTES], other[PASSED_OVER_BYTES];

	for (size_t g = 0; g < port->gids.count; g++) {
		const struct verbs_gid *gid = &port->gids.items[g];
		bool chosen = port->gid >= 0 && (size_t)port->gid == g;

		finding_detail(finding, "%s:%u gid[%u] %-6s %-28s %-10s %s%s", device->name,
			       port->number, gid->index, gid_type(gid->type),
			       verbs_gid_text(gid->raw, text), gid->netdev[0] ? gid->netdev : "-",
			       chosen		  ? "chosen"
			       : gid->rejected[0] ? "rejected: "
						  : passed_over(doctor, other),
			       chosen ? "" : gid->rejected);
	}
}

static void fix_gids(const struct doctor *doctor, struct finding *finding,
		     const struct verbs_port *port)
{
	if (doctor->settings.gid_index >= 0)
		finding_fix(finding, "unset %s, or set it to a row that every port used has",
			    doctor->settings.gid_from);
	else
		finding_fix(finding,
			    "give %s an IPv4 address (ip addr add A.B.C.D/NN dev %s); in a "
			    "container its network namespace must have the interface (host "
			    "network, or SR-IOV)",
			    port->netdev[0] ? port->netdev : "the interface",
			    port->netdev[0] ? port->netdev : "INTERFACE");
}

static void check_gids(struct doctor *doctor, struct finding *finding)
{
	struct walk at = {0};
	uint32_t ports = 0, chosen = 0, active = 0;

	while (next_port(doctor, &at)) {
		say_gids(doctor, finding, at.device, at.port);
		active += at.port->active;
		if (!at.port->active || at.port->link == VERBS_LINK_INFINIBAND)
			continue;
		ports++;
		chosen += at.port->gid >= 0;
		if (at.port->gid < 0)
			fix_gids(doctor, finding, at.port);
	}
	if (!active)
		finding_say(finding, CHECK_SKIP, "no port is active");
	else if (!ports)
		finding_say(finding, CHECK_PASS, "InfiniBand ports need none");
	else
		finding_say(finding, check_share(chosen, ports),
			    "%u of %u active Ethernet ports have a GID to use", chosen, ports);
}

/* ---- quality of service ---- */

/* "0 0 0 1 0 0 0 0" of OFED's sysfs, or eight files of 0 and 1: which are on; -1: not told. */
static int enabled_bits(const struct doctor *doctor, const char *netdev, const char *folder)
{
	int bits = 0;

	for (int priority = 0; priority < 8; priority++) {
		uint64_t on;

		if (!system_read_u64(&doctor->system, &on, "/sys/class/net/%s/ecn/%s/enable/%d",
				     netdev, folder, priority))
			return -1;
		bits |= on ? 1 << priority : 0;
	}
	return bits;
}

static int pfc_bits(const struct doctor *doctor, const char *netdev)
{
	char text[128];
	int bits = 0, priority = 0;

	if (system_read(&doctor->system, text, sizeof(text), "/sys/class/net/%s/qos/pfc", netdev))
		return -1;
	for (const char *at = text; *at && priority < 8; at++)
		if (*at == '0' || *at == '1')
			bits |= (*at == '1') << priority++;
	return priority == 8 ? bits : -1;
}

static const char *bits_text(int bits, char text[64])
{
	size_t length = 0;

	text[0] = '\0';
	for (int i = 0; i < 8; i++)
		if (bits >= 0 && bits & 1 << i)
			length += (size_t)snprintf(text + length, 64 - length, "%s%d",
						   length ? "," : "", i);
	return bits < 0 ? "not told by sysfs" : bits == 0 ? "off" : text;
}

/* Counters that say the fabric drops, reorders or is congested. */
static void say_counters(const struct doctor *doctor, struct finding *finding,
			 const struct verbs_device *device, const struct verbs_port *port)
{
	static const char *const names[] = {"local_ack_timeout_err", "packet_seq_err",
					    "out_of_sequence",	     "rnr_nak_retry_err",
					    "rp_cnp_handled",	     "np_ecn_marked_roce_packets",
					    "retry_exceeded_err"};
	struct text text = {0};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		uint64_t value;

		if (system_read_u64(&doctor->system, &value,
				    "/sys/class/infiniband/%s/ports/%u/hw_counters/%s",
				    device->name, port->number, names[i]) &&
		    value)
			text_format(&text, " %s=%" PRIu64, names[i], value);
	}
	if (text.bytes)
		finding_detail(finding, "%s:%u since it came up:%s", device->name, port->number,
			       text_string(&text));
	text_fini(&text);
}

static void check_quality(struct doctor *doctor, struct finding *finding)
{
	struct walk at = {0};
	uint32_t told = 0, off = 0;

	while (next_port(doctor, &at)) {
		char texts[3][64], class[32] = "not told by sysfs";
		int pfc, sender, receiver;

		if (!at.port->active || at.port->link != VERBS_LINK_ETHERNET)
			continue;
		pfc = pfc_bits(doctor, at.port->netdev);
		sender = enabled_bits(doctor, at.port->netdev, "roce_rp");
		receiver = enabled_bits(doctor, at.port->netdev, "roce_np");
		told += pfc >= 0 || sender >= 0;
		off += (pfc >= 0 || sender >= 0) && pfc <= 0 && (sender <= 0 || receiver <= 0);
		if (at.port->traffic_class >= 0)
			snprintf(class, sizeof(class), "%d", at.port->traffic_class);
		finding_detail(
			finding,
			"%s:%u traffic class %s; PFC priorities %s; ECN sender %s, receiver %s",
			at.device->name, at.port->number, class, bits_text(pfc, texts[0]),
			bits_text(sender, texts[1]), bits_text(receiver, texts[2]));
		say_counters(doctor, finding, at.device, at.port);
	}
	if (doctor->settings.traffic_class >= 0)
		finding_detail(finding, "WEFT_TRAFFIC_CLASS=%d goes on every packet",
			       doctor->settings.traffic_class);
	if (off) {
		finding_say(finding, CHECK_WARN,
			    "%u Ethernet port%s with neither PFC nor ECN: loss under load ends "
			    "queue pairs",
			    off, off == 1 ? "" : "s");
		finding_fix(finding, "set PFC or ECN for RoCE's priority on NIC and switch, and "
				     "WEFT_TRAFFIC_CLASS to that class");
	} else {
		finding_say(finding, CHECK_PASS, "%s",
			    told ? "PFC or ECN is on"
				 : "PFC and ECN are not in sysfs here; ask the "
				   "switch, or `dcb pfc show dev IF`");
	}
}

/* ---- PCIe ---- */

/* False: sysfs does not tell. A GPU without work lowers its speed, so only its width counts. */
static bool say_link(const struct doctor *doctor, struct finding *finding, const char *name,
		     const char *pci, bool gpu, bool *below)
{
	struct system_pcie_link link;

	if (!system_pcie_link(&doctor->system, pci, &link))
		return false;
	finding_detail(finding, "%s (%s): %s x%" PRIu64 " of %s x%" PRIu64, name, pci, link.speed,
		       link.width, link.speed_max, link.width_max);
	*below = link.width < link.width_max || (!gpu && strcmp(link.speed, link.speed_max) != 0);
	if (*below)
		finding_fix(finding,
			    "seat %s again, or move it to a slot of %s x%" PRIu64
			    "; a BIOS setting may hold the slot down",
			    name, link.speed_max, link.width_max);
	return true;
}

static void check_pcie(struct doctor *doctor, struct finding *finding)
{
	uint32_t count = 0, slow = 0;
	bool below = false;

	for (size_t i = 0; i < doctor->devices.count; i++, below = false) {
		const char *name = doctor->devices.items[i].text;
		char pci[SYSTEM_TEXT_BYTES];

		if (system_link(&doctor->system, pci, sizeof(pci),
				"/sys/class/infiniband/%s/device", name) == 0)
			count += say_link(doctor, finding, name, pci, false, &below);
		slow += below;
	}
	for (size_t i = 0; i < doctor->gpus.count; i++, below = false) {
		char name[32];

		snprintf(name, sizeof(name), "GPU %zu", i);
		count += say_link(doctor, finding, name, doctor->gpus.items[i].pci, true, &below);
		slow += below;
	}
	if (!count)
		finding_say(finding, CHECK_SKIP,
			    "no RDMA device or GPU on PCI whose link sysfs tells");
	else if (slow)
		finding_say(finding, CHECK_WARN, "%u of %u devices run below what they can", slow,
			    count);
	else
		finding_say(finding, CHECK_PASS, "all %u devices run at their full speed and width",
			    count);
}

/* ---- which NICs come out ---- */

static void check_rails(struct doctor *doctor, struct finding *finding)
{
	if (!doctor->nics_chosen) {
		finding_say(finding, CHECK_FAIL, "%s",
			    doctor->nics_error.code ? doctor->nics_error.text
						    : "no NIC could be chosen");
		if (doctor->nics_error.code == ERROR_CONFIG && doctor->settings.nics[0])
			finding_fix(finding, "correct or unset %s; docs/verbs.md has its grammar",
				    doctor->settings.nics_from);
		else
			finding_fix(finding, "see ports and gids above%s%s",
				    doctor->settings.nics[0] ? ", or correct "
							     : ", or name them with --nic",
				    doctor->settings.nics[0] ? doctor->settings.nics_from : "");
		return;
	}
	for (uint32_t i = 0; i < doctor->nic_count; i++) {
		const struct verbs_port *port;
		const struct verbs_device *device = doctor_nic(doctor, i, &port);
		char text[VERBS_GID_TEXT_BYTES] = "no GID";

		if (port->gid >= 0)
			verbs_gid_text(port->gids.items[port->gid].raw, text);
		finding_detail(finding, "rail %u: %s:%u %s, distance: %s", i, device->name,
			       port->number, text,
			       verbs_topology_distance_name(
				       (enum verbs_topology_distance)doctor->nics[i].distance));
	}
	finding_say(finding, CHECK_PASS, "%u rail%s%s%s", doctor->nic_count,
		    doctor->nic_count == 1 ? "" : "s",
		    doctor->settings.nics[0] ? ", as named by "
					     : ", chosen by state, speed and distance",
		    doctor->settings.nics_from);
}

const struct check doctor_link_checks[] = {{"ports", NEEDS_PORTS, check_ports},
					   {"mtu", NEEDS_PORTS, check_mtu},
					   {"gids", NEEDS_PORTS, check_gids},
					   {"traffic-class", NEEDS_PORTS, check_quality},
					   {"pcie-link", 0, check_pcie},
					   {"rails", NEEDS_PORTS, check_rails},
					   {0}};
