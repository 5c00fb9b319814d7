/* SPDX-License-Identifier: Apache-2.0
 *
 * absent.c -- from the kernel up, the first thing that is missing is the answer:
 *
 *   kernel has RDMA? ─► a device? ─► its node in /dev/infiniband? ─► may I open it?
 *                                        ─► is libibverbs installed? ─► does it know the device?
 *
 * Where something comes before the library and that is missing too, the answer has both.
 */
#include "transport/verbs/sysfs.h"

#include "base/text.h"
#include "transport/verbs/calls.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char no_kernel[] =
	"this kernel has no RDMA support: there is no /sys/class/infiniband; load "
	"the NIC's driver (modprobe mlx5_ib, irdma, bnxt_re, efa, ...) or, to try "
	"without hardware, rdma_rxe";

static const char no_device[] =
	"there is no RDMA device: /sys/class/infiniband is empty; load the NIC's "
	"driver (modprobe mlx5_ib, irdma, bnxt_re, efa, ...), or hand the NIC to "
	"this machine, or add a soft one: rdma link add rxe0 type rxe netdev NAME";

static int no_node(struct error *error, const char *device, const char *node)
{
	return error_set(
		error, ERROR_UNSUPPORTED,
		"the kernel has the RDMA device %s, but there is no /dev/infiniband/%s; in "
		"a container, start it with --device /dev/infiniband (or the RDMA device "
		"plugin); on a host, modprobe ib_uverbs",
		device, node);
}

/* "crw-rw---- root:rdma" */
static void who_may(const struct stat *about, char *text, size_t bytes)
{
	char mode[] = "c---------", buffer[2048], user[32], group[32];
	struct passwd passwd, *owner = NULL;
	struct group grp, *owners = NULL;

	for (int i = 0; i < 9; i++)
		if (about->st_mode & (0400u >> i))
			mode[i + 1] = "rwx"[i % 3];
	if (getpwuid_r(about->st_uid, &passwd, buffer, sizeof(buffer), &owner) == 0 && owner)
		snprintf(user, sizeof(user), "%s", owner->pw_name);
	else
		snprintf(user, sizeof(user), "%u", about->st_uid);
	if (getgrgid_r(about->st_gid, &grp, buffer, sizeof(buffer), &owners) == 0 && owners)
		snprintf(group, sizeof(group), "%s", owners->gr_name);
	else
		snprintf(group, sizeof(group), "%u", about->st_gid);
	snprintf(text, bytes, "%s %s:%s", mode, user, group);
}

static int no_permission(struct error *error, const char *node, const struct stat *about,
			 int errnum)
{
	char who[96];

	who_may(about, who, sizeof(who));
	if (errnum == EPERM)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"the device rules of this container forbid /dev/infiniband/%s (%s; "
			"this is uid %u): start it with --device /dev/infiniband/%s",
			node, who, geteuid(), node);
	return error_set(error, ERROR_UNSUPPORTED,
			 "uid %u (gid %u) may not open /dev/infiniband/%s, which is %s: run as "
			 "a member of its group, or let a udev rule give it mode 0666",
			 geteuid(), getegid(), node, who);
}

static const char no_provider[] =
	"the kernel has %s, but libibverbs has no driver library for it: install "
	"ibverbs-providers (Debian, Ubuntu) or libibverbs with rdma-core (Red Hat), "
	"in the container too, of the same version as libibverbs";

/* Names below a folder, with commas; "" when it is empty, false when it is not there. */
static bool list_folder(const struct sysfs *sysfs, const char *folder, const char *prefix,
			struct text *names)
{
	char path[SYSFS_PATH_BYTES];
	struct dirent *entry;

	snprintf(path, sizeof(path), "%s%s", sysfs->root, folder);
	DIR *stream = opendir(path);

	if (!stream)
		return false;
	while ((entry = readdir(stream)))
		if (entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			text_format(names, "%s%s", names->bytes ? ", " : "", entry->d_name);
	closedir(stream);
	return true;
}

/* The node of `device`: there, and open for us? 0 when it is, else the message. errnum: what
 * opening it through libibverbs gave, 0 when that was not tried. */
static int explain_node(const struct sysfs *sysfs, const char *device, int errnum,
			struct error *error)
{
	char node[VERBS_NAME_BYTES], path[SYSFS_PATH_BYTES];
	struct stat about;

	if (!sysfs_uverbs(sysfs, device, node, sizeof(node)))
		return no_node(error, device, "uverbs*");
	snprintf(path, sizeof(path), "%s/dev/infiniband/%s", sysfs->root, node);
	if (stat(path, &about) != 0)
		return no_node(error, device, node);
	if (errnum == 0)
		errnum = sysfs_node_errno(sysfs, device);
	if (errnum == EACCES || errnum == EPERM)
		return no_permission(error, node, &about, errnum);
	return 0;
}

/* The kernel's side: 0 when all of it is there, and `devices` names its devices. */
static int explain_kernel(const struct sysfs *sysfs, struct text *devices, struct error *error)
{
	char first[VERBS_NAME_BYTES];

	if (!list_folder(sysfs, "/sys/class/infiniband", "", devices))
		return error_set(error, ERROR_UNSUPPORTED, no_kernel);
	if (devices->bytes == 0 && !devices->failed)
		return error_set(error, ERROR_UNSUPPORTED, no_device);
	if (!text_ok(devices))
		return memory_error(error, "listing RDMA devices", devices->bytes);
	snprintf(first, sizeof(first), "%.*s", (int)strcspn(text_string(devices), ","),
		 text_string(devices));
	return explain_node(sysfs, first, 0, error);
}

static int explain_unlisted(const struct sysfs *sysfs, const char *missing, int list_errno,
			    struct error *error)
{
	struct text devices = {0};
	struct error kernel = {0};
	int rc = explain_kernel(sysfs, &devices, &kernel);

	if (rc == -ERROR_UNSUPPORTED && missing)
		rc = error_set(error, ERROR_UNSUPPORTED, "%s; and %s: " VERBS_INSTALL, kernel.text,
			       missing);
	else if (rc)
		rc = error_copy(error, &kernel);
	else if (missing)
		rc = error_set(error, ERROR_UNSUPPORTED,
			       "the kernel has %s, but %s; " VERBS_INSTALL, text_string(&devices),
			       missing);
	else if (list_errno != 0 && list_errno != ENOSYS)
		rc = error_set_errno(
			error, ERROR_UNSUPPORTED, list_errno,
			"libibverbs cannot list RDMA devices, though the kernel has %s",
			text_string(&devices));
	else
		rc = error_set(error, ERROR_UNSUPPORTED, no_provider, text_string(&devices));
	text_fini(&devices);
	return rc;
}

static int explain_unopened(const struct sysfs *sysfs, const struct verbs_facts *facts,
			    struct error *error)
{
	const struct verbs_device *first = &facts->devices.items[0];
	int rc = 0;

	if (first->open_errno == EACCES || first->open_errno == EPERM ||
	    first->open_errno == ENOENT || first->open_errno == ENXIO)
		rc = explain_node(sysfs, first->name, first->open_errno, error);
	if (rc)
		return rc;
	return error_set_errno(error, ERROR_UNSUPPORTED, first->open_errno,
			       "none of the %zu RDMA devices can be opened; the first is %s",
			       facts->devices.count, first->name);
}

int absent_explain(const struct sysfs *sysfs, const struct verbs_facts *facts, const char *missing,
		   int list_errno, struct error *error)
{
	for (size_t i = 0; i < facts->devices.count; i++)
		if (facts->devices.items[i].open_errno == 0)
			return 0;
	if (facts->devices.count == 0)
		return explain_unlisted(sysfs, missing, list_errno, error);
	return explain_unopened(sysfs, facts, error);
}
