/* SPDX-License-Identifier: Apache-2.0
 *
 * absent.c -- why there is no GPU for us. From the build up, the first thing that is missing is the answer:
 *
 *   built with CUDA? ─► a GPU on the bus? ─► its kernel module? ─► a node in /dev? ─► may I open it?
 *                                                 ─► libcuda.so.1? ─► new enough? ─► what it says itself
 */
#include "transport/cuda/device.h"

#include "base/array.h"
#include "base/file.h"
#include "transport/cuda/errors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 512

static ssize_t read_below(const char *root, const char *path, char *out, size_t bytes)
{
	char whole[PATH_BYTES];

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	return file_read_small(whole, out, bytes);
}

/* A display or 3D controller of NVIDIA's: the first one's place on the bus. */
static bool gpu_on_bus(const char *root, char *place, size_t bytes)
{
	char path[PATH_BYTES], vendor[16], class[16];
	struct dirent *entry;
	bool found = false;
	DIR *stream;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", root);
	stream = opendir(path);
	while (stream && !found && (entry = readdir(stream))) {
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.64s/vendor", entry->d_name);
		if (read_below(root, path, vendor, sizeof(vendor)) <= 0 ||
		    strncmp(vendor, "0x10de", 6) != 0)
			continue;
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.64s/class", entry->d_name);
		found = read_below(root, path, class, sizeof(class)) > 0 &&
			strncmp(class, "0x03", 4) == 0;
		snprintf(place, bytes, "%.31s", entry->d_name);
	}
	if (stream)
		closedir(stream);
	return found;
}

/* "535.104.05", of the line that the kernel module writes; "" when there is none. */
static void module_version(const char *root, char *out, size_t bytes)
{
	char text[512];
	const char *at;

	*out = '\0';
	if (read_below(root, "/proc/driver/nvidia/version", text, sizeof(text)) <= 0)
		return;
	at = strstr(text, "Kernel Module");
	if (!at)
		return;
	at += strcspn(
		at,
		"0123456789\n"); /* "Kernel Module  535.104.05", "Kernel Module for x86_64  535.." */
	if (strncmp(at, "86_64", 5) == 0)
		at += 5 + strcspn(at + 5, "0123456789\n");
	snprintf(out, bytes, "%.*s", (int)strspn(at, "0123456789."), at);
}

static int no_node(const char *root, struct error *error)
{
	char path[PATH_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/dev/nvidiactl", root);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		return 0;
	}
	if (errno == ENOENT)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"the kernel has the NVIDIA driver, but there is no /dev/nvidiactl: start the "
			"container with --gpus all (or as the GPU plugin does); on a host, "
			"nvidia-modprobe");
	return error_set_errno(
		error, ERROR_UNSUPPORTED, errno,
		"/dev/nvidiactl cannot be opened (uid %u): run as a member of its group, or in a "
		"container allow the device (--gpus all)",
		geteuid());
}

static int too_old(const char *module, int version, struct error *error)
{
	char said[96] = "";

	if (version)
		snprintf(said, sizeof(said), ": it is %s%sfor CUDA %d.%d", module,
			 *module ? ", " : "", version / 1000, version % 1000 / 10);
	else if (*module)
		snprintf(said, sizeof(said), ": it is %s", module);
	return error_set(
		error, ERROR_UNSUPPORTED,
		"the NVIDIA driver is too old%s, and this build, with CUDA %d.%d, needs %s "
		"or newer: update the driver, or build with a CUDA that it knows (-DWEFT_CUDA_ROOT=..)",
		said, cuda_built_version() / 1000, cuda_built_version() % 1000 / 10,
		cuda_driver_needed());
}

int cuda_absent(const char *root, int result, int version, bool library, struct error *error)
{
	char place[32] = "", module[32];
	int rc;

	if (!cuda_built_version() && result == CUDA_NOT_SUPPORTED)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"this build knows no GPU memory: build with -DWEFT_CUDA=on (README, Install)");
	if (result != CUDA_NO_DRIVER) /* it was found, and says itself what is wrong */
		return cuda_failed(result, error, "starting the NVIDIA driver");
	module_version(root, module, sizeof(module));
	if (version)
		return too_old(module, version, error);
	if (!*module && !gpu_on_bus(root, place, sizeof(place)))
		return error_set(
			error, ERROR_UNSUPPORTED,
			"this host has no NVIDIA GPU: none is on its PCI bus (/sys/bus/pci/devices)");
	if (!*module)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"there is an NVIDIA GPU, %s, but the kernel has no driver for it "
			"(/proc/driver/nvidia): install NVIDIA's driver, %s or newer, and modprobe nvidia",
			place, cuda_driver_needed());
	rc = no_node(root, error);
	if (rc)
		return rc;
	if (!library)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"the kernel has NVIDIA's driver %s, but its library libcuda.so.1 is not here: in a "
			"container let NVIDIA_DRIVER_CAPABILITIES contain compute; on a host install the "
			"driver's libcuda1",
			module);
	return too_old(module, 0, error);
}
