/* SPDX-License-Identifier: Apache-2.0
 *
 * sysfs.h -- what the kernel tells in files about RDMA devices and network interfaces. Private
 * to facts.c and absent.c. A file that is not there leaves the fact unknown: "", 0 or -1.
 */
#ifndef TRANSPORT_VERBS_SYSFS_H
#define TRANSPORT_VERBS_SYSFS_H

#include "base/error.h"
#include "transport/verbs/facts.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYSFS_PATH_BYTES 512

/* root: "" in life; tests bring a folder with its own sys/ and dev/. */
struct sysfs {
	const char *root;
	struct ifaddrs *addresses; /* NULL: none known */
};
void sysfs_open(struct sysfs *sysfs, const char *root);
void sysfs_close(struct sysfs *sysfs);

/* First line of the file without its newline; false when it cannot be read. */
bool sysfs_line(const struct sysfs *sysfs, char *line, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Driver, PCI address, NUMA node, soft or not. */
void sysfs_describe_device(const struct sysfs *sysfs, struct verbs_device *device);
int32_t sysfs_traffic_class(const struct sysfs *sysfs, const char *device, uint32_t port);
uint64_t sysfs_rate_mbps(const struct sysfs *sysfs, const char *device, uint32_t port);

enum sysfs_gid { SYSFS_GID_EMPTY, SYSFS_GID_UNKNOWN, SYSFS_GID_V1, SYSFS_GID_V2 };
/* A row of the GID table. Rows of other network namespaces have no type that can be read. */
enum sysfs_gid sysfs_gid(const struct sysfs *sysfs, const char *device, uint32_t port,
			 uint32_t index, unsigned char raw[16]);
bool sysfs_gid_netdev(const struct sysfs *sysfs, const char *device, uint32_t port,
		      uint32_t index, char *netdev, size_t bytes);

/* The interface of this port by its PCI function. */
void sysfs_port_netdev(const struct sysfs *sysfs, const char *device, uint32_t port,
		       char *netdev, size_t bytes);
uint32_t sysfs_netdev_mtu(const struct sysfs *sysfs, const char *netdev);
/* Prefix length of the address `raw` on this interface (24 for 10.0.0.1/24), 0: not there. */
uint32_t sysfs_prefix_bits(const struct sysfs *sysfs, const char *netdev,
			   const unsigned char raw[16]);

/* The character device of an RDMA device: "uverbs0"; false when the kernel has none. */
bool sysfs_uverbs(const struct sysfs *sysfs, const char *device, char *name, size_t bytes);
/* Why that node cannot be opened, 0: it can. libibverbs says "no such file" for all reasons. */
int sysfs_node_errno(const struct sysfs *sysfs, const char *device);

/* ---- absent.c: why no RDMA device can be opened here, told with what to do about it ---- */

/* 0 when facts has a device that could be opened; else ERROR_UNSUPPORTED. missing: of the table of calls.
 * list_errno: what libibverbs left when it gave no list at all, 0: an empty list. */
int absent_explain(const struct sysfs *sysfs, const struct verbs_facts *facts, const char *missing,
		   int list_errno, struct error *error);

#endif
