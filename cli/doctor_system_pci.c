/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_system_pci.c -- GPUs, links, access control and IOMMU from sysfs: no vendor library is
 * asked, so what only one of them knows is not here.
 */
#include "cli/doctor_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEVICES "/sys/bus/pci/devices"

static uint64_t read_hex(const struct system *system, const char *pci, const char *file)
{
	char text[64];

	if (system_read(system, text, sizeof(text), DEVICES "/%s/%s", pci, file))
		return 0;
	return strtoull(text, NULL, 16);
}

/* One line a BAR: first address, last address, flags. The largest is the memory that peers reach,
 * NVIDIA's BAR1; which line it is depends on the width of the BAR before it. */
static uint64_t bar_bytes(const struct system *system, const char *pci)
{
	char text[2048];
	uint64_t largest = 0;
	char *line = text;

	if (system_read(system, text, sizeof(text), DEVICES "/%s/resource", pci))
		return 0;
	for (int bar = 0; bar < 6 && line; bar++) {
		char *end;
		uint64_t first = strtoull(line, &end, 16), last = strtoull(end, NULL, 16);
		uint64_t bytes = last > first ? last - first + 1 : 0;

		largest = bytes > largest ? bytes : largest;
		line = strchr(line, '\n');
		line += line != NULL;
	}
	return largest;
}

static void gpu_name(const struct system *system, struct system_gpu *gpu, uint64_t device)
{
	char text[4096];

	if (!gpu->nvidia) {
		snprintf(gpu->name, sizeof(gpu->name), "AMD device 0x%04x", (unsigned)device);
		return;
	}
	if (system_read(system, text, sizeof(text), "/proc/driver/nvidia/gpus/%s/information",
			gpu->pci) ||
	    !system_field(text, "Model", gpu->name, sizeof(gpu->name)))
		snprintf(gpu->name, sizeof(gpu->name), "NVIDIA device 0x%04x, driver not loaded",
			 (unsigned)device);
}

void system_gpus_read(const struct system *system, system_gpus *gpus)
{
	system_names names = {0};

	if (system_list(system, &names, DEVICES)) {
		array_free(&names);
		return;
	}
	for (size_t i = 0; i < names.count; i++) {
		const char *pci = names.items[i].text;
		uint64_t vendor = read_hex(system, pci, "vendor");
		uint64_t class = read_hex(system, pci, "class") >> 8;
		struct system_gpu *gpu;
		char numa[32];

		/* VGA, 3D, display and processing accelerators of the two that RDMA reaches */
		if ((vendor != 0x10de && vendor != 0x1002) ||
		    (class >> 8 != 0x03 && class != 0x1200))
			continue;
		gpu = array_push(gpus);
		if (!gpu)
			break;
		snprintf(gpu->pci, sizeof(gpu->pci), "%.15s", pci);
		gpu->nvidia = vendor == 0x10de;
		gpu->bar_bytes = bar_bytes(system, pci);
		gpu->numa = -1;
		if (system_read(system, numa, sizeof(numa), DEVICES "/%s/numa_node", pci) == 0)
			gpu->numa = (int)strtol(numa, NULL, 10);
		gpu_name(system, gpu, read_hex(system, pci, "device"));
	}
	array_free(&names);
}

bool system_pcie_link(const struct system *system, const char *pci, struct system_pcie_link *link)
{
	memset(link, 0, sizeof(*link));
	return system_read(system, link->speed, sizeof(link->speed),
			   DEVICES "/%s/current_link_speed", pci) == 0 &&
	       system_read(system, link->speed_max, sizeof(link->speed_max),
			   DEVICES "/%s/max_link_speed", pci) == 0 &&
	       system_read_u64(system, &link->width, DEVICES "/%s/current_link_width", pci) &&
	       system_read_u64(system, &link->width_max, DEVICES "/%s/max_link_width", pci);
}

#define CONFIG_BYTES		4096
#define EXTENDED_START		0x100
#define CAPABILITY_ACS		0x000d
#define ACS_CONTROL		6
#define ACS_REQUEST_REDIRECT	0x04
#define ACS_COMPLETION_REDIRECT 0x08

/* The ACS control word of a bridge; -1: has none; -2: may not be read (more than the first 64
 * bytes are for root). */
static int acs_control(const struct system *system, const char *pci)
{
	unsigned char config[CONFIG_BYTES];
	char path[PATH_MAX];
	int fd = open(system_path(system, path, DEVICES "/%s/config", pci), O_RDONLY | O_CLOEXEC);
	size_t at = EXTENDED_START;
	ssize_t got;

	if (fd < 0)
		return -2;
	got = pread(fd, config, sizeof(config), 0);
	close(fd);
	if (got < CONFIG_BYTES)
		return got <= 64 ? -2 : -1;
	/* each capability names the next; 960 of 4 bytes fit, so a loop ends */
	for (int hops = 0; hops < 960 && at >= EXTENDED_START && at + 8 <= CONFIG_BYTES; hops++) {
		if ((config[at] | config[at + 1] << 8) == CAPABILITY_ACS)
			return config[at + ACS_CONTROL] | config[at + ACS_CONTROL + 1] << 8;
		at = (size_t)(config[at + 2] >> 4 | config[at + 3] << 4);
	}
	return -1;
}

void system_acs_read(const struct system *system, struct system_acs *acs)
{
	system_names names = {0};

	memset(acs, 0, sizeof(*acs));
	if (system_list(system, &names, DEVICES))
		names.count = 0;
	for (size_t i = 0; i < names.count; i++) {
		int control;

		if (read_hex(system, names.items[i].text, "class") >> 8 != 0x0604)
			continue;
		acs->bridges++;
		control = acs_control(system, names.items[i].text);
		acs->readable += control != -2;
		if (control < 0 || !(control & (ACS_REQUEST_REDIRECT | ACS_COMPLETION_REDIRECT)))
			continue;
		if (acs->redirecting++ == 0)
			snprintf(acs->first, sizeof(acs->first), "%.15s", names.items[i].text);
	}
	array_free(&names);
}

void system_iommu_read(const struct system *system, struct system_iommu *iommu)
{
	system_names names = {0};

	memset(iommu, 0, sizeof(*iommu));
	if (system_list(system, &names, "/sys/kernel/iommu_groups"))
		names.count = 0;
	iommu->groups = names.count;
	for (size_t i = 0; i < names.count; i++) {
		char type[32];

		if (system_read(system, type, sizeof(type), "/sys/kernel/iommu_groups/%s/type",
				names.items[i].text) ||
		    strcmp(type, "identity") == 0)
			continue;
		if (iommu->translating++ == 0)
			snprintf(iommu->type, sizeof(iommu->type), "%s", type);
	}
	array_free(&names);
}
