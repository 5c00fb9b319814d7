/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/sysfs.h"

#include "base/file.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"

void sysfs_open(struct sysfs *sysfs, const char *root)
{
	sysfs->root = root;
	if (getifaddrs(&sysfs->addresses) != 0)
		sysfs->addresses = NULL;
}

void sysfs_close(struct sysfs *sysfs)
{
	if (sysfs->addresses)
		freeifaddrs(sysfs->addresses);
}

static void path_of(const struct sysfs *sysfs, char path[SYSFS_PATH_BYTES], const char *format,
		    va_list args)
{
	int used = snprintf(path, SYSFS_PATH_BYTES, "%s", sysfs->root);

	if (used >= 0 && used < SYSFS_PATH_BYTES)
		vsnprintf(path + used, SYSFS_PATH_BYTES - (size_t)used, format, args);
}

__attribute__((format(printf, 3, 4))) static void
path_to(const struct sysfs *sysfs, char path[SYSFS_PATH_BYTES], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	path_of(sysfs, path, format, args);
	va_end(args);
}

bool sysfs_line(const struct sysfs *sysfs, char *line, size_t bytes, const char *format, ...)
{
	char path[SYSFS_PATH_BYTES];
	va_list args;

	va_start(args, format);
	path_of(sysfs, path, format, args);
	va_end(args);
	ssize_t got = file_read_small(path, line, bytes);

	line[strcspn(line, "\n")] = '\0';
	return got > 0;
}

/* ---- devices ---- */

/* The last component of where a link leads; "" when it is none. */
static void link_name(const char *path, char *name, size_t bytes)
{
	char target[SYSFS_PATH_BYTES];
	ssize_t length = readlink(path, target, sizeof(target) - 1);

	name[0] = '\0';
	if (length <= 0)
		return;
	target[length] = '\0';
	const char *slash = strrchr(target, '/');

	snprintf(name, bytes, "%.*s", (int)bytes - 1, slash ? slash + 1 : target);
}

static bool is_pci_address(const char *text, size_t bytes)
{
	static const char shape[] = "xxxx:xx:xx.x";

	if (bytes != sizeof(shape) - 1)
		return false;
	for (size_t i = 0; i < bytes; i++)
		if (shape[i] == 'x' ? !strchr("0123456789abcdef", text[i]) : text[i] != shape[i])
			return false;
	return true;
}

/* The nearest PCI function above the device in the kernel's tree. */
static void pci_of(const char *where, char pci[16])
{
	for (const char *part = where; *part; part += strspn(part, "/")) {
		size_t bytes = strcspn(part, "/");

		if (is_pci_address(part, bytes))
			snprintf(pci, 16, "%.*s", (int)bytes, part);
		part += bytes;
	}
}

void sysfs_describe_device(const struct sysfs *sysfs, struct verbs_device *device)
{
	char path[SYSFS_PATH_BYTES], line[64], where[PATH_MAX];

	device->numa = -1;
	path_to(sysfs, path, CLASS "/%s", device->name);
	if (!realpath(path, where))
		where[0] = '\0';
	/* soft-RoCE names the interface that it sits on */
	bool rxe = sysfs_line(sysfs, line, sizeof(line), CLASS "/%s/parent", device->name);

	device->soft = rxe || strstr(where, "/devices/virtual/");
	if (rxe)
		snprintf(device->driver, sizeof(device->driver), "rdma_rxe");
	if (device->soft)
		return;
	pci_of(where, device->pci);
	path_to(sysfs, path, CLASS "/%s/device/driver", device->name);
	link_name(path, device->driver, sizeof(device->driver));
	if (sysfs_line(sysfs, line, sizeof(line), CLASS "/%s/device/numa_node", device->name))
		device->numa = (int32_t)strtol(line, NULL, 10);
}

/* "106", or "Global tclass=106" as some drivers write it. */
int32_t sysfs_traffic_class(const struct sysfs *sysfs, const char *device, uint32_t port)
{
	char line[64];
	uint64_t value;

	if (!sysfs_line(sysfs, line, sizeof(line), CLASS "/%s/tc/%u/traffic_class", device, port))
		return -1;
	const char *equals = strrchr(line, '=');

	return parse_u64(equals ? equals + 1 : line, &value) && value <= UINT8_MAX ? (int32_t)value
										   : -1;
}

/* "400 Gb/sec (4X NDR)" */
uint64_t sysfs_rate_mbps(const struct sysfs *sysfs, const char *device, uint32_t port)
{
	char line[64];

	if (!sysfs_line(sysfs, line, sizeof(line), CLASS "/%s/ports/%u/rate", device, port))
		return 0;
	double rate = strtod(line, NULL);

	return rate > 0 && rate < 1e6 ? (uint64_t)(rate * 1000) : 0;
}

/* ---- GIDs ---- */

enum sysfs_gid sysfs_gid(const struct sysfs *sysfs, const char *device, uint32_t port,
			 uint32_t index, unsigned char raw[16])
{
	char line[64];

	if (!sysfs_line(sysfs, line, sizeof(line), CLASS "/%s/ports/%u/gids/%u", device, port,
			index) ||
	    inet_pton(AF_INET6, line, raw) != 1 || verbs_gid_is_zero(raw))
		return SYSFS_GID_EMPTY;
	if (!sysfs_line(sysfs, line, sizeof(line), CLASS "/%s/ports/%u/gid_attrs/types/%u", device,
			port, index))
		return SYSFS_GID_UNKNOWN;
	return strstr(line, "v2") ? SYSFS_GID_V2 : SYSFS_GID_V1;
}

bool sysfs_gid_netdev(const struct sysfs *sysfs, const char *device, uint32_t port, uint32_t index,
		      char *netdev, size_t bytes)
{
	return sysfs_line(sysfs, netdev, bytes, CLASS "/%s/ports/%u/gid_attrs/ndevs/%u", device,
			  port, index);
}

/* ---- network interfaces ---- */

/* Functions with several ports number their interfaces from 0 in dev_port. */
void sysfs_port_netdev(const struct sysfs *sysfs, const char *device, uint32_t port, char *netdev,
		       size_t bytes)
{
	char path[SYSFS_PATH_BYTES], line[16];
	struct dirent *entry;

	path_to(sysfs, path, CLASS "/%s/device/net", device);
	DIR *folder = opendir(path);

	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= bytes)
			continue;
		sysfs_line(sysfs, line, sizeof(line), CLASS "/%s/device/net/%s/dev_port", device,
			   entry->d_name);
		if (strtoul(line, NULL, 10) + 1 == port)
			snprintf(netdev, bytes, "%s", entry->d_name);
	}
	closedir(folder);
}

uint32_t sysfs_netdev_mtu(const struct sysfs *sysfs, const char *netdev)
{
	char line[16];
	uint64_t mtu;

	if (!sysfs_line(sysfs, line, sizeof(line), "/sys/class/net/%s/mtu", netdev))
		return 0;
	return parse_u64(line, &mtu) && mtu <= UINT32_MAX ? (uint32_t)mtu : 0;
}

static uint32_t count_bits(const unsigned char *mask, size_t bytes)
{
	uint32_t bits = 0;

	for (size_t i = 0; i < bytes; i++)
		bits += (uint32_t)__builtin_popcount(mask[i]);
	return bits;
}

uint32_t sysfs_prefix_bits(const struct sysfs *sysfs, const char *netdev,
			   const unsigned char raw[16])
{
	bool ipv4 = verbs_gid_is_ipv4(raw);

	for (const struct ifaddrs *at = sysfs->addresses; at; at = at->ifa_next) {
		if (!at->ifa_addr || !at->ifa_netmask || strcmp(at->ifa_name, netdev) != 0)
			continue;
		if (ipv4 && at->ifa_addr->sa_family == AF_INET) {
			const struct sockaddr_in *in = (const void *)at->ifa_addr;
			const struct sockaddr_in *mask = (const void *)at->ifa_netmask;

			if (memcmp(&in->sin_addr, raw + 12, 4) == 0)
				return count_bits((const void *)&mask->sin_addr, 4);
		} else if (!ipv4 && at->ifa_addr->sa_family == AF_INET6) {
			const struct sockaddr_in6 *in = (const void *)at->ifa_addr;
			const struct sockaddr_in6 *mask = (const void *)at->ifa_netmask;

			if (memcmp(&in->sin6_addr, raw, 16) == 0)
				return count_bits((const void *)&mask->sin6_addr, 16);
		}
	}
	return 0;
}

/* ---- character devices ---- */

bool sysfs_uverbs(const struct sysfs *sysfs, const char *device, char *name, size_t bytes)
{
	char path[SYSFS_PATH_BYTES], line[VERBS_NAME_BYTES];
	struct dirent *entry;
	bool found = false;

	path_to(sysfs, path, "/sys/class/infiniband_verbs");
	DIR *folder = opendir(path);

	if (!folder)
		return false;
	while (!found && (entry = readdir(folder))) {
		if (strncmp(entry->d_name, "uverbs", 6) != 0)
			continue;
		found = sysfs_line(sysfs, line, sizeof(line),
				   "/sys/class/infiniband_verbs/%s/ibdev", entry->d_name) &&
			strcmp(line, device) == 0;
		if (found)
			snprintf(name, bytes, "%s", entry->d_name);
	}
	closedir(folder);
	return found;
}

int sysfs_node_errno(const struct sysfs *sysfs, const char *device)
{
	char path[SYSFS_PATH_BYTES], node[VERBS_NAME_BYTES];

	if (!sysfs_uverbs(sysfs, device, node, sizeof(node)))
		return ENOENT;
	path_to(sysfs, path, "/dev/infiniband/%s", node);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}
