/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_checks.c -- is there RDMA, and may this process use it: kernel, device files, provider
 * libraries, devices, locked memory, cgroup.
 */
#include "cli/doctor.h"

#include "transport/verbs/calls.h"
#include "transport/verbs/resolver.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- the kernel ---- */

static void list_modules(const struct doctor *doctor, struct finding *finding)
{
	static const char *const modules[] = {"ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm"};
	struct text text = {0};

	for (size_t i = 0; i < ARRAY_SIZE(modules); i++)
		if (system_exists(&doctor->system, "/sys/module/%s", modules[i]) == 0)
			text_format(&text, " %s", modules[i]);
	if (text.bytes)
		finding_detail(finding, "modules:%s", text_string(&text));
	text_fini(&text);
}

/* How bad it is that something of RDMA is not there at all: who names NICs means to use them. */
static enum check_state if_missing(const struct doctor *doctor)
{
	return doctor_wants_only(doctor, "verbs") ||
			       (doctor->options.nics && !doctor_wants_several(doctor))
		       ? CHECK_FAIL
		       : CHECK_SKIP;
}

static void say_kernel(const struct doctor *doctor, struct finding *finding)
{
	enum check_state missing = if_missing(doctor);
	struct text names = {0};

	for (size_t i = 0; i < doctor->devices.count; i++)
		text_format(&names, " %s", doctor->devices.items[i].text);
	if (doctor->devices.count)
		finding_say(finding, CHECK_PASS, "%zu RDMA device%s:%s", doctor->devices.count,
			    doctor->devices.count == 1 ? "" : "s", text_string(&names));
	else if (doctor->facts.devices.count)
		/* libibverbs finds them by netlink too, but reads partition keys from sysfs */
		finding_say(finding, CHECK_FAIL,
			    "libibverbs sees %zu RDMA devices, /sys/class/infiniband is hidden",
			    doctor->facts.devices.count);
	else if (doctor->devices_errno == ENOENT)
		finding_say(finding, missing,
			    "this kernel has no RDMA support loaded: there is no "
			    "/sys/class/infiniband");
	else if (doctor->devices_errno)
		finding_say(finding, CHECK_FAIL, "/sys/class/infiniband cannot be read: %s",
			    strerror(doctor->devices_errno));
	else
		finding_say(finding, missing,
			    "the kernel has RDMA but no device: /sys/class/infiniband is empty");
	text_fini(&names);
}

static void check_kernel(struct doctor *doctor, struct finding *finding)
{
	say_kernel(doctor, finding);
	list_modules(doctor, finding);
	if (!doctor->devices.count &&
	    (doctor->facts.devices.count ||
	     (doctor->devices_errno && doctor->devices_errno != ENOENT))) {
		finding_fix(finding, "mount sysfs on /sys in this container");
	} else if (!doctor->devices.count) {
		finding_fix(finding,
			    "load the NIC's driver on the host (modprobe mlx5_ib, irdma, "
			    "bnxt_re, efa; for tests rdma_rxe); in a VM the NIC must be "
			    "passed through%s",
			    doctor->options.nics && !doctor->options.transport
				    ? "; if --nic names a network interface: --transport tcp too"
				    : "");
	} else if (system_exists(&doctor->system, "/sys/class/infiniband_verbs") != 0) {
		finding_say(finding, CHECK_FAIL,
			    "there are RDMA devices but no way to them from programs: ib_uverbs is "
			    "not loaded");
		finding_fix(finding, "on the host: modprobe ib_uverbs rdma_ucm");
	}
}

/* ---- /dev/infiniband ---- */

static void owner_text(const struct stat *status, char *text, size_t bytes)
{
	const struct passwd *user = getpwuid(status->st_uid);
	char name[40];
	const struct group *group;

	snprintf(name, sizeof(name), "%s", user ? user->pw_name : "?");
	group = getgrgid(status->st_gid);
	snprintf(text, bytes, "%s(%u):%s(%u) %04o", name, status->st_uid,
		 group ? group->gr_name : "?", status->st_gid, status->st_mode & 07777);
}

static void refused(struct finding *finding, const char *path, const struct stat *status,
		    int errnum)
{
	char owner[160];

	owner_text(status, owner, sizeof(owner));
	if (errnum == EPERM) {
		finding_detail(finding,
			       "%s: %s, yet opening is refused (EPERM): the container's "
			       "device cgroup forbids it",
			       path, owner);
		finding_fix(finding,
			    "start the container with --device=/dev/infiniband (docker) or "
			    "with the RDMA device plugin (Kubernetes)");
	} else if (errnum == EACCES) {
		finding_detail(finding, "%s: %s; uid %u gid %u may not open it", path, owner,
			       geteuid(), getegid());
		finding_fix(finding, "as root: chmod 0666 /dev/infiniband/*, or a udev rule "
				     "KERNEL==\"uverbs*\", MODE=\"0666\"");
	} else if (errnum == ENODEV || errnum == ENXIO) {
		finding_detail(finding,
			       "%s: %s, but no device is behind it: it is of an earlier "
			       "device or another host",
			       path, owner);
		finding_fix(finding, "restart the container, so that it gets today's devices");
	} else {
		finding_detail(finding, "%s: %s: %s", path, owner, strerror(errnum));
		finding_fix(finding, "look at the host's kernel log (dmesg)");
	}
}

/* True: it opens. Opening uverbs changes nothing until it is written to. */
static bool try_file(const struct doctor *doctor, struct finding *finding, const char *file,
		     const char *what)
{
	char path[PATH_MAX], owner[160];
	struct stat status;
	int fd;

	system_path(&doctor->system, path, "/dev/infiniband/%s", file);
	if (stat(path, &status) != 0) {
		finding_detail(finding, "%s (%s): %s", path, what, strerror(errno));
		finding_fix(finding, "pass /dev/infiniband into the container (docker: "
				     "--device=/dev/infiniband), or on the host: modprobe "
				     "ib_uverbs rdma_ucm");
		return false;
	}
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		refused(finding, path, &status, errno);
		return false;
	}
	close(fd);
	owner_text(&status, owner, sizeof(owner));
	finding_detail(finding, "%s (%s): %s, opens", path, what, owner);
	return true;
}

/* uverbs0, uverbs1, ...: as sysfs says, or where a container hides that, as /dev says. */
static void list_files(const struct doctor *doctor, system_names *files)
{
	static const char *const folders[] = {"/sys/class/infiniband_verbs", "/dev/infiniband"};
	size_t kept = 0;

	for (size_t f = 0; f < ARRAY_SIZE(folders) && !kept; f++) {
		files->count = 0;
		if (system_list(&doctor->system, files, "%s", folders[f]))
			files->count = 0;
		for (size_t i = 0; i < files->count; i++)
			if (strncmp(files->items[i].text, "uverbs", 6) == 0)
				files->items[kept++] = files->items[i];
		files->count = kept;
	}
}

static void check_files(struct doctor *doctor, struct finding *finding)
{
	system_names files = {0};
	size_t opened = 0;

	list_files(doctor, &files);
	for (size_t i = 0; i < files.count; i++) {
		char device[64];

		if (system_read(&doctor->system, device, sizeof(device),
				"/sys/class/infiniband_verbs/%s/ibdev", files.items[i].text))
			snprintf(device, sizeof(device), "of which device sysfs does not say");
		opened += try_file(doctor, finding, files.items[i].text, device);
	}
	if (!files.count)
		finding_fix(finding, "on the host: modprobe ib_uverbs rdma_ucm; docker: "
				     "--device=/dev/infiniband");
	finding_say(finding, check_share(opened, files.count),
		    "%zu of %zu device files can be opened by uid %u", opened, files.count,
		    geteuid());
	if (!try_file(doctor, finding, "rdma_cm", "route lookup"))
		finding_worsen(finding, CHECK_WARN);
	array_free(&files);
}

/* ---- libraries ---- */

/* Needed where there is a device to use; elsewhere it is only told. librdmacm answers --peer alone. */
static void check_libraries(struct doctor *doctor, struct finding *finding)
{
	const char *verbs = verbs_calls_system()->missing, *routes = resolver_missing();
	enum check_state state = doctor_has_rdma(doctor) ? CHECK_FAIL : if_missing(doctor);

	if (!verbs && !routes) {
		finding_say(finding, CHECK_PASS, "libibverbs and librdmacm can be opened");
	} else if (verbs) {
		finding_say(finding, state, "%s", verbs);
		finding_fix(finding, VERBS_INSTALL);
		if (routes)
			finding_detail(finding, "%s; " RESOLVER_INSTALL, routes);
	} else {
		finding_say(finding, state == CHECK_FAIL ? CHECK_WARN : state,
			    "%s: --peer cannot ask for routes", routes);
		finding_fix(finding, RESOLVER_INSTALL);
	}
}

/* ---- provider libraries ---- */

/* Where this process's libibverbs looks for them: beside itself. */
static bool provider_folder(char folder[PATH_MAX])
{
	void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *symbol = library ? dlsym(library, "ibv_get_device_list") : NULL;
	Dl_info info;
	char real[PATH_MAX], *end;

	if (library)
		dlclose(library);
	if (!symbol || !dladdr(symbol, &info) || !realpath(info.dli_fname, real))
		return false;
	end = strrchr(real, '/');
	if (!end)
		return false;
	*end = '\0';
	return (size_t)snprintf(folder, PATH_MAX, "%s/libibverbs", real) < PATH_MAX;
}

/* Returns 1: loads, 0: does not (said), -1: there is no such library. */
static int try_provider(struct finding *finding, const char *folder, const system_names *libraries,
			const char *driver)
{
	char prefix[96], path[PATH_MAX];

	snprintf(prefix, sizeof(prefix), "lib%.60s-rdmav", driver);
	for (size_t i = 0; i < libraries->count; i++) {
		const char *file = libraries->items[i].text;
		void *library;

		if (strncmp(file, prefix, strlen(prefix)) != 0)
			continue;
		snprintf(path, sizeof(path), "%.2000s/%s", folder, file);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (library) {
			dlclose(library);
			return 1;
		}
		finding_detail(finding, "%s", dlerror());
		return 0;
	}
	return -1;
}

static void try_providers(struct doctor *doctor, struct finding *finding, const char *folder)
{
	system_names drivers = {0}, libraries = {0};
	struct text loaded = {0};
	uint32_t count = 0, broken = 0;

	system_list(&(struct system){""}, &libraries, "%s", folder);
	system_list(&doctor->system, &drivers, "/etc/libibverbs.d");
	for (size_t i = 0; i < drivers.count; i++) {
		char text[SYSTEM_TEXT_BYTES], name[64] = "";
		int rc;

		if (system_read(&doctor->system, text, sizeof(text), "/etc/libibverbs.d/%s",
				drivers.items[i].text) ||
		    !system_field(text, "driver", name, sizeof(name)))
			continue;
		rc = try_provider(finding, folder, &libraries, name);
		if (rc < 0)
			finding_detail(finding, "driver %s: there is no lib%s-rdmav*.so in %s",
				       name, name, folder);
		broken += rc < 1;
		count += rc == 1;
		if (rc == 1)
			text_format(&loaded, " %s", name);
	}
	finding_say(finding,
		    count == 0 ? CHECK_FAIL
		    : broken   ? CHECK_WARN
			       : CHECK_PASS,
		    "%u provider librar%s load%s:%s", count, count == 1 ? "y" : "ies",
		    count == 1 ? "s" : "", text_string(&loaded));
	if (broken || !count)
		finding_fix(finding,
			    "install the package ibverbs-providers (rdma-core), of the same "
			    "version as libibverbs");
	text_fini(&loaded);
	array_free(&drivers);
	array_free(&libraries);
}

static void check_providers(struct doctor *doctor, struct finding *finding)
{
	char folder[PATH_MAX];

	if (verbs_calls_system()->missing)
		finding_say(finding, CHECK_SKIP, "libibverbs, which loads them, is missing itself");
	else if (provider_folder(folder))
		try_providers(doctor, finding, folder);
	else
		finding_say(finding, CHECK_WARN, "where libibverbs was loaded from cannot be told");
	for (size_t i = 0; i < doctor->devices.count; i++) {
		bool seen = false;

		for (size_t d = 0; d < doctor->facts.devices.count; d++)
			seen |= strcmp(doctor->facts.devices.items[d].name,
				       doctor->devices.items[i].text) == 0;
		if (seen || doctor->facts_error.code)
			continue;
		finding_worsen(finding, CHECK_FAIL);
		finding_detail(finding, "the kernel has %s, libibverbs has no provider for it",
			       doctor->devices.items[i].text);
		finding_fix(finding, "install the package ibverbs-providers (rdma-core) of this "
				     "device's driver");
	}
}

/* ---- devices ---- */

static void say_device(struct finding *finding, const struct verbs_device *device)
{
	if (device->open_errno) {
		finding_detail(finding, "%s: cannot be opened: %s", device->name,
			       strerror(device->open_errno));
		finding_fix(finding, "see char-devices above");
		return;
	}
	finding_detail(finding,
		       "%s: %s%s%s%s%s, %s, at most %u queue pairs of %u requests, %u regions",
		       device->name, device->driver[0] ? device->driver : "driver unknown",
		       device->firmware[0] ? " firmware " : "", device->firmware,
		       device->pci[0] ? " at " : "", device->pci,
		       device->soft ? "software (a test device, slow)" : "hardware", device->max_qp,
		       device->max_qp_wr, device->max_mr);
}

static void check_devices(struct doctor *doctor, struct finding *finding)
{
	size_t opened = 0;

	if (doctor->facts_error.code)
		finding_fix(finding,
			    "see kernel-rdma, char-devices, rdma-libraries and providers above");
	for (size_t i = 0; i < doctor->facts.devices.count; i++) {
		opened += doctor->facts.devices.items[i].open_errno == 0;
		say_device(finding, &doctor->facts.devices.items[i]);
	}
	if (doctor->facts_error.code)
		finding_say(finding, CHECK_FAIL, "%s", doctor->facts_error.text);
	else
		finding_say(finding, check_share(opened, doctor->facts.devices.count),
			    "libibverbs opens %zu of %zu devices", opened,
			    doctor->facts.devices.count);
}

static void say_setting(struct finding *finding, const struct error *error, const char *page)
{
	if (!error->code)
		return;
	if (finding->state == CHECK_FAIL)
		finding_detail(finding, "%s", error->text);
	else
		finding_say(finding, CHECK_FAIL, "%s", error->text);
	finding_fix(finding, "correct or unset %.*s; %s lists the settings",
		    (int)strcspn(error->text, "= "), error->text, page);
}

static void check_settings(struct doctor *doctor, struct finding *finding)
{
	extern char **environ;
	uint32_t weft = 0, honoured = 0;

	for (char **entry = environ; *entry; entry++) {
		bool ours = strncmp(*entry, "WEFT_", 5) == 0;
		bool known = strncmp(*entry, "NCCL_IB_HCA=", 12) == 0 ||
			     strncmp(*entry, "NCCL_IB_GID_INDEX=", 18) == 0;

		if (!ours && strncmp(*entry, "NCCL_IB_", 8) != 0)
			continue;
		weft += ours;
		honoured += known;
		finding_detail(
			finding, "%.200s%s", *entry,
			ours	? ""
			: known ? "  (honoured where WEFT_NIC, --nic or WEFT_GID_INDEX say nothing)"
				: "  (NCCL's own: weft does not read it)");
	}
	if (!doctor_wants_other(doctor, "verbs"))
		say_setting(finding, &doctor->settings_error, "docs/verbs.md");
	if (!doctor_wants_other(doctor, "tcp") || doctor_wants(doctor, "efa"))
		say_setting(finding, &doctor->tcp_settings_error, "docs/tcp.md");
	if (finding->state == CHECK_FAIL)
		return;
	if (doctor_wants_other(doctor, "verbs")) {
		finding_say(finding, CHECK_PASS, "%u WEFT_* set", weft);
		return;
	}
	finding_say(finding, CHECK_PASS,
		    "%u WEFT_* set, %u NCCL_IB_* honoured; NICs from %s, GID index from %s", weft,
		    honoured, doctor->settings.nics_from[0] ? doctor->settings.nics_from : "choice",
		    doctor->settings.gid_from[0] ? doctor->settings.gid_from : "choice");
}

/* ---- limits ---- */

#define MEMLOCK_LOW (UINT64_C(1) << 30) /* below it not even a small model can be registered */

static const char *limit_text(uint64_t bytes, char text[TEXT_SHORT_BYTES])
{
	if (bytes == UINT64_MAX)
		snprintf(text, TEXT_SHORT_BYTES, "unlimited");
	else if (bytes % 1024 == 0 && bytes < UINT64_C(1) << 40)
		snprintf(text, TEXT_SHORT_BYTES,
			 bytes % (1 << 20) ? "%" PRIu64 " KiB" : "%" PRIu64 " MiB",
			 bytes % (1 << 20) ? bytes >> 10 : bytes >> 20);
	else
		bytes_text(bytes, text);
	return text;
}

static void check_memlock(struct doctor *doctor, struct finding *finding)
{
	char soft[TEXT_SHORT_BYTES], hard[TEXT_SHORT_BYTES], pinned[TEXT_SHORT_BYTES];
	enum check_state state = CHECK_PASS;
	struct verbs_memlock memlock;
	struct error error;

	if (verbs_memlock_read(&memlock, &error) != 0) {
		finding_say(finding, CHECK_WARN, "%s", error.text);
		return;
	}
	if (!memlock.ipc_lock && memlock.soft != UINT64_MAX)
		state = memlock.soft < MEMLOCK_LOW ? CHECK_FAIL : CHECK_WARN;
	if (state != CHECK_PASS &&
	    (doctor_wants_other(doctor, "verbs") || !doctor_has_rdma(doctor)))
		state = CHECK_SKIP;
	finding_say(
		finding, state,
		"locked memory: soft %s, hard %s; already pinned %s; CAP_IPC_LOCK: %s (uid %u)%s",
		limit_text(memlock.soft, soft), limit_text(memlock.hard, hard),
		limit_text(memlock.pinned_bytes, pinned),
		memlock.ipc_lock ? "yes, no limit holds" : "no", memlock.uid,
		state == CHECK_SKIP ? "; counts with RDMA only" : "");
	if (state == CHECK_FAIL || state == CHECK_WARN) {
		finding_detail(finding, "each region counts once per NIC: weights of 16 GB on 2 "
					"NICs need 32 GB");
		finding_fix(finding,
			    "ulimit -l unlimited (docker: --ulimit memlock=-1; systemd and "
			    "containerd: LimitMEMLOCK=infinity; the capability IPC_LOCK "
			    "helps root only)");
	}
}

#define HANDLES_LOW 2	/* one context for us, one for whoever looks */
#define OBJECTS_LOW 512 /* a rank with 64 peers: queue pairs, queues, regions */

static void check_cgroup(struct doctor *doctor, struct finding *finding)
{
	system_rdma_limits limits = {0};
	bool controller;

	system_rdma_limits_read(&doctor->system, &limits, &controller);
	finding_say(finding, CHECK_PASS, "%s",
		    !controller	   ? "no rdma controller above this process: no limit"
		    : limits.count ? "the rdma controller's limits are wide enough"
				   : "the rdma controller sets no limit");
	for (size_t i = 0; i < limits.count; i++) {
		const struct system_rdma_limit *limit = &limits.items[i];
		bool none = limit->handles == 0 || limit->objects == 0;
		bool low = limit->handles < HANDLES_LOW || limit->objects < OBJECTS_LOW;
		char handles[24] = "max", objects[24] = "max";

		if (limit->handles != UINT64_MAX)
			snprintf(handles, sizeof(handles), "%" PRIu64, limit->handles);
		if (limit->objects != UINT64_MAX)
			snprintf(objects, sizeof(objects), "%" PRIu64, limit->objects);
		finding_detail(finding, "%.300s: %s hca_handle=%s hca_object=%s", limit->path,
			       limit->device, handles, objects);
		if (!low)
			continue;
		if (finding->state < CHECK_WARN || none)
			finding_say(finding, none ? CHECK_FAIL : CHECK_WARN,
				    "the rdma cgroup %s on %s",
				    none ? "forbids everything" : "allows little", limit->device);
		finding_fix(finding,
			    "as root on the host: echo '%s hca_handle=max hca_object=max' > "
			    "%.300s",
			    limit->device, limit->path);
	}
	array_free(&limits);
}

const struct check doctor_rdma_checks[] = {
	{"kernel-rdma", NEEDS_VERBS, check_kernel},
	{"char-devices", NEEDS_RDMA, check_files},
	{"rdma-libraries", NEEDS_VERBS | NEEDS_LIVE, check_libraries},
	{"providers", NEEDS_DEVICE, check_providers},
	{"devices", NEEDS_DEVICE, check_devices},
	{"settings", 0, check_settings},
	{"locked-memory", NEEDS_LIVE, check_memlock},
	{"cgroup-rdma", NEEDS_RDMA, check_cgroup},
	{0}};
