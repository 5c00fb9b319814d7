/* SPDX-License-Identifier: Apache-2.0
 *
 * topology.c -- distances in hwloc's tree:
 *
 *   machine ─┬─ NUMA node 0 ── host bridge ─┬─ root port ── switch ─┬─ GPU     same switch
 *            │                              │                       └─ NIC
 *            │                              └─ root port ── NIC              same root
 *            └─ NUMA node 1 ── host bridge ── root port ── NIC               other NUMA node
 *
 * In most virtual machines all devices hang flat below one bridge of one node: where they are
 * then says nothing, and that is what the answer is.
 */
#include "transport/verbs/topology.h"

#include "base/memory.h"

#include <errno.h>
#include <hwloc.h>

struct verbs_topology {
	hwloc_topology_t tree;
	hwloc_bitmap_t cores; /* of this process */
	int nodes;	      /* NUMA nodes of the machine */
};

const char *verbs_topology_distance_name(enum verbs_topology_distance distance)
{
	static const char *const names[] = {"same PCI switch", "same PCI root", "same NUMA node",
					    "other NUMA node", "unknown"};

	return (unsigned)distance <= TOPOLOGY_UNKNOWN ? names[distance] : "unknown";
}

static int refuse(struct verbs_topology **topology, struct error *error, int errnum,
		  const char *what)
{
	verbs_topology_close(topology);
	return errnum ? error_set_errno(error, ERROR_UNSUPPORTED, errnum,
					"the topology of this host cannot be read: %s", what)
		      : error_set(error, ERROR_UNSUPPORTED,
				  "the topology of this host cannot be read: %s", what);
}

/* The tree with all PCI devices and bridges in it; from a file when `xml` is not NULL. */
static int load(struct verbs_topology **topology, const char *xml, struct error *error)
{
	struct verbs_topology *made = memory_zalloc(1, sizeof(*made));

	*topology = made;
	if (!made)
		return memory_error(error, "reading the topology", sizeof(*made));
	if (hwloc_topology_init(&made->tree) != 0) {
		made->tree = NULL;
		return refuse(topology, error, ENOMEM, "hwloc gives no topology");
	}
	if (xml && hwloc_topology_set_xml(made->tree, xml) != 0)
		return refuse(topology, error, errno, xml);
	if (hwloc_topology_set_io_types_filter(made->tree, HWLOC_TYPE_FILTER_KEEP_ALL) != 0)
		return refuse(topology, error, errno, "hwloc knows no PCI devices");
	errno = 0;
	if (hwloc_topology_load(made->tree) != 0)
		return refuse(topology, error, errno, "hwloc cannot load it");
	made->nodes = hwloc_get_nbobjs_by_type(made->tree, HWLOC_OBJ_NUMANODE);
	made->cores = hwloc_bitmap_alloc();
	if (!made->cores)
		return refuse(topology, error, ENOMEM, "hwloc gives no set of cores");
	return 0;
}

int verbs_topology_open(struct verbs_topology **topology, struct error *error)
{
	int rc = load(topology, NULL, error);

	if (rc)
		return rc;
	struct verbs_topology *made = *topology;

	/* where binding cannot be asked, all cores may be used */
	if (hwloc_get_cpubind(made->tree, made->cores, HWLOC_CPUBIND_PROCESS) != 0)
		hwloc_bitmap_copy(made->cores, hwloc_topology_get_topology_cpuset(made->tree));
	return 0;
}

int verbs_topology_open_xml(struct verbs_topology **topology, const char *path, const char *cores,
			    struct error *error)
{
	int rc = load(topology, path, error);

	if (rc)
		return rc;
	if (hwloc_bitmap_list_sscanf((*topology)->cores, cores) != 0)
		return refuse(topology, error, 0, "the list of cores is none");
	return 0;
}

void verbs_topology_close(struct verbs_topology **topology)
{
	if (!*topology)
		return;
	if ((*topology)->cores)
		hwloc_bitmap_free((*topology)->cores);
	if ((*topology)->tree)
		hwloc_topology_destroy((*topology)->tree);
	memory_free(*topology);
	*topology = NULL;
}

static hwloc_obj_t find(const struct verbs_topology *topology, const char *pci)
{
	return pci && *pci ? hwloc_get_pcidev_by_busidstring(topology->tree, pci) : NULL;
}

static bool is_host_bridge(const struct hwloc_obj *object)
{
	return object->type == HWLOC_OBJ_BRIDGE &&
	       object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

/* Directly below the host's bridge on a machine of one node: the flat tree of a virtual
 * machine, which says nothing of the hardware under it. */
static bool is_flat(const struct verbs_topology *topology, hwloc_obj_t device)
{
	return topology->nodes <= 1 && is_host_bridge(device->parent);
}

static bool same_function_group(const struct hwloc_obj *a, const struct hwloc_obj *b)
{
	return a->attr->pcidev.domain == b->attr->pcidev.domain &&
	       a->attr->pcidev.bus == b->attr->pcidev.bus &&
	       a->attr->pcidev.dev == b->attr->pcidev.dev;
}

/* By the node that the device's bridge is attached to. */
static enum verbs_topology_distance by_node(const struct verbs_topology *topology,
					    hwloc_obj_t device, hwloc_const_bitmap_t cores)
{
	hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(topology->tree, device);

	if (!home || !home->cpuset || hwloc_bitmap_iszero(home->cpuset))
		return TOPOLOGY_UNKNOWN;
	/* attached to the whole machine: the firmware did not say */
	if (topology->nodes > 1 &&
	    hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(topology->tree),
				    home->cpuset))
		return TOPOLOGY_UNKNOWN;
	return hwloc_bitmap_intersects(home->cpuset, cores) ? TOPOLOGY_SAME_NUMA
							    : TOPOLOGY_OTHER_NUMA;
}

/* hwloc's own function compares depths, which PCI objects do not have. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
	for (; a; a = a->parent)
		for (hwloc_obj_t other = b; other; other = other->parent)
			if (other == a)
				return a;
	return NULL;
}

static enum verbs_topology_distance between(const struct verbs_topology *topology, hwloc_obj_t a,
					    hwloc_obj_t b)
{
	hwloc_obj_t common = common_ancestor(a, b);

	if (a == b || same_function_group(a, b))
		return TOPOLOGY_SAME_SWITCH;
	if (is_flat(topology, a) || is_flat(topology, b))
		return TOPOLOGY_UNKNOWN;
	/* host bridge ── root port ── switch: a switch has a bridge above its own bridge */
	if (common && common->type == HWLOC_OBJ_BRIDGE)
		return !is_host_bridge(common) && !is_host_bridge(common->parent)
			       ? TOPOLOGY_SAME_SWITCH
			       : TOPOLOGY_SAME_ROOT;
	hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(topology->tree, a);

	if (!home || by_node(topology, a, home->cpuset) == TOPOLOGY_UNKNOWN)
		return TOPOLOGY_UNKNOWN;
	return by_node(topology, b, home->cpuset);
}

enum verbs_topology_distance verbs_topology_distance(const struct verbs_topology *topology,
						     const char *near_pci, const char *pci)
{
	hwloc_obj_t device = find(topology, pci);

	if (!device)
		return TOPOLOGY_UNKNOWN;
	if (near_pci && *near_pci) {
		hwloc_obj_t near = find(topology, near_pci);

		return near ? between(topology, near, device) : TOPOLOGY_UNKNOWN;
	}
	if (is_flat(topology, device))
		return TOPOLOGY_UNKNOWN;
	return by_node(topology, device, topology->cores);
}
