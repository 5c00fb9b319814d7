/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_system.h -- what files of this machine say: /proc, /sys, /dev below a root that can be
 * set, so that the same code reads a copied tree (`weft doctor --root`), and tests a made one.
 * A file that is missing or may not be read is an answer, never an error.
 */
#ifndef CLI_DOCTOR_SYSTEM_H
#define CLI_DOCTOR_SYSTEM_H

#include "base/array.h"
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct system {
	const char *root; /* "": this machine */
};

#define SYSTEM_TEXT_BYTES 256

struct system_name {
	char text[SYSTEM_TEXT_BYTES];
};
typedef ARRAY(struct system_name) system_names;

/* The path below the root. */
const char *system_path(const struct system *system, char path[PATH_MAX], const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* 0, or the errno that says why there is nothing. */
int system_exists(const struct system *system, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* A file's beginning as text, without the newline at its end; 0 or errno, then text is "". */
int system_read(const struct system *system, char *text, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
bool system_read_u64(const struct system *system, uint64_t *value, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A folder's entries, sorted, without those that start with a dot; 0 or errno. */
int system_list(const struct system *system, system_names *names, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The last part of what a symbolic link points to; 0 or errno. */
int system_link(const struct system *system, char *text, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The value behind "key" in a file of lines as "key: value" or "key value". */
bool system_field(const char *text, const char *key, char *value, size_t bytes);

/* ---- cgroups ---- */

/* rdma.max of the cgroups this process is in, innermost first: "path: line". */
struct system_rdma_limit {
	char path[2 * SYSTEM_TEXT_BYTES];
	char device[64];
	uint64_t handles, objects; /* UINT64_MAX: unlimited */
};
typedef ARRAY(struct system_rdma_limit) system_rdma_limits;
/* `controller`: the rdma controller is there, whether it limits or not. */
void system_rdma_limits_read(const struct system *system, system_rdma_limits *limits,
			     bool *controller);

/* ---- PCI ---- */

struct system_gpu {
	char pci[16];
	char name[SYSTEM_TEXT_BYTES];
	bool nvidia;
	uint64_t bar_bytes; /* its largest window: what peers can reach; NVIDIA's BAR1 */
	int numa;
};
typedef ARRAY(struct system_gpu) system_gpus;
void system_gpus_read(const struct system *system, system_gpus *gpus);

struct system_pcie_link {
	char speed[32], speed_max[32]; /* "16.0 GT/s PCIe" */
	uint64_t width, width_max;
};
bool system_pcie_link(const struct system *system, const char *pci,
		      struct system_pcie_link *link);

/* Bridges whose access control sends traffic between devices up to the root. */
struct system_acs {
	uint32_t bridges, readable, redirecting;
	char first[16]; /* one of them */
};
void system_acs_read(const struct system *system, struct system_acs *acs);

struct system_iommu {
	uint64_t groups, translating; /* translating: their type is not "identity" */
	char type[32];                /* of the first translating one */
};
void system_iommu_read(const struct system *system, struct system_iommu *iommu);

#endif
