/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_checks_host.c -- GPUs and the way from them to the NICs, IOMMU, memory of this host.
 */
#include "cli/doctor.h"

#include "transport/verbs/calls.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- GPUs ---- */

static void check_gpus(struct doctor *doctor, struct finding *finding)
{
	size_t count = doctor->gpus.count;
	uint32_t small = 0;

	for (size_t i = 0; i < count; i++) {
		const struct system_gpu *gpu = &doctor->gpus.items[i];
		bool narrow = gpu->bar_bytes <= UINT64_C(256) << 20;

		finding_detail(finding, "GPU %zu at %s: %s, %s %s, NUMA node %d", i, gpu->pci,
			       gpu->name, gpu->nvidia ? "BAR1" : "largest BAR",
			       gpu->bar_bytes ? BYTES_TEXT(gpu->bar_bytes) : "not readable",
			       gpu->numa);
		small += gpu->bar_bytes && narrow;
	}
	if (!count)
		finding_say(finding, CHECK_SKIP, "no NVIDIA or AMD GPU on PCI");
	else
		finding_say(finding, small ? CHECK_WARN : CHECK_PASS, "%zu GPU%s on PCI%s", count,
			    count == 1 ? "" : "s",
			    small ? "; NICs reach at most 256 MiB of some" : "");
	if (small)
		finding_fix(finding, "turn on 'Above 4G decoding' and 'Resizable BAR' in the BIOS; "
				     "consumer cards may stay at 256 MiB");
}

static bool nvidia_peermem(const struct doctor *doctor, struct finding *finding)
{
	static const char *const files[] = {"/sys/module/nvidia_peermem/version",
					    "/sys/kernel/mm/memory_peers/nv_mem/version",
					    "/sys/kernel/mm/memory_peers/nv_mem_nc/version"};
	bool found = false;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char text[64];

		if (system_exists(&doctor->system, "%s", files[i]) != 0)
			continue;
		if (system_read(&doctor->system, text, sizeof(text), "%s", files[i]))
			snprintf(text, sizeof(text), "not readable");
		finding_detail(finding, "peermem: %s is there (version %s)", files[i], text);
		found = true;
	}
	if (!found)
		finding_detail(finding, "peermem: not loaded");
	return found;
}

/* dma-buf needs three: NVIDIA's open kernel modules, Linux 5.12, and the NIC's driver. */
static void check_gpu_memory(struct doctor *doctor, struct finding *finding)
{
	bool open_modules, peermem, nic = false;
	char text[1024];

	if (!doctor->gpus.count)
		finding_say(finding, CHECK_SKIP, "no GPU");
	if (!doctor->gpus.count || !doctor_meets(doctor, NEEDS_RDMA, finding))
		return;
	if (system_read(&doctor->system, text, sizeof(text), "/proc/driver/nvidia/version"))
		snprintf(text, sizeof(text), "no NVIDIA kernel driver is loaded");
	open_modules = strstr(text, "Open Kernel Module") != NULL;
	finding_detail(finding, "%.*s", (int)strcspn(text, "\n"), text);
	finding_detail(finding,
		       "dma-buf by the GPU's driver: %s; the attribute itself and GPUDirect "
		       "ordering are known to CUDA only",
		       open_modules ? "yes, open kernel modules"
				    : "no: that needs NVIDIA's open kernel modules");
	for (size_t i = 0; i < doctor->facts.devices.count; i++) {
		const struct verbs_device *device = &doctor->facts.devices.items[i];

		nic |= device->dmabuf;
		finding_detail(finding, "dma-buf by %s: %s", device->name,
			       device->dmabuf ? "yes" : "no");
	}
	peermem = nvidia_peermem(doctor, finding);
	if (nic && open_modules)
		finding_say(finding, CHECK_PASS, "NICs reach GPU memory by dma-buf");
	else if (peermem)
		finding_say(finding, CHECK_PASS, "NICs reach GPU memory by nvidia-peermem");
	else
		finding_say(finding, doctor->live ? CHECK_WARN : CHECK_SKIP,
			    "NICs cannot reach GPU memory%s",
			    doctor->live ? "" : ", as far as files tell");
	if (!peermem && !(nic && open_modules))
		finding_fix(finding, "install NVIDIA's open kernel modules, or modprobe "
				     "nvidia-peermem");
}

static void check_distances(struct doctor *doctor, struct finding *finding)
{
	size_t count = doctor->gpus.count;

	if (!count || !doctor_has_card(doctor))
		finding_say(finding, CHECK_SKIP, "%s", !count ? "no GPU" : "no RDMA card");
	else if (!doctor->topology)
		finding_say(finding, CHECK_WARN,
			    "hwloc cannot read this machine's topology: name "
			    "NICs with --nic");
	else
		finding_say(finding, CHECK_PASS, "%zu GPUs to %zu devices", count,
			    doctor->facts.devices.count);
	for (size_t i = 0; finding->state == CHECK_PASS && i < count; i++) {
		struct text text = {0};

		for (size_t d = 0; d < doctor->facts.devices.count; d++) {
			const struct verbs_device *device = &doctor->facts.devices.items[d];

			if (device->pci[0])
				text_format(&text, "  %s: %s", device->name,
					    verbs_topology_distance_name(verbs_topology_distance(
						    doctor->topology, doctor->gpus.items[i].pci,
						    device->pci)));
		}
		finding_detail(finding, "GPU %zu%s", i, text_string(&text));
		text_fini(&text);
	}
}

/* ---- what stands between two devices ---- */

static void check_acs(struct doctor *doctor, struct finding *finding)
{
	struct system_acs acs;

	system_acs_read(&doctor->system, &acs);
	if (!acs.bridges) {
		finding_say(finding, CHECK_PASS, "no PCI bridge between devices");
	} else if (acs.redirecting) {
		finding_say(
			finding, CHECK_WARN,
			"PCI access control on %u of %u bridges (%s first) sends device-to-device "
			"traffic up to the root: GPU transfers get slow or fail",
			acs.redirecting, acs.bridges, acs.first);
		finding_fix(finding,
			    "turn ACS off in the BIOS, or as root for each: setpci -s %s "
			    "ECAP_ACS+6.w=0000",
			    acs.first);
	} else if (acs.readable < acs.bridges) {
		finding_say(finding, CHECK_SKIP,
			    "access control of %u of %u PCI bridges can be read by root only",
			    acs.bridges - acs.readable, acs.bridges);
		finding_fix(finding, "run `weft doctor` once as root on the host");
	} else {
		finding_say(finding, CHECK_PASS, "no redirection on %u PCI bridges", acs.bridges);
	}
}

static void check_iommu(struct doctor *doctor, struct finding *finding)
{
	struct system_iommu iommu;

	system_iommu_read(&doctor->system, &iommu);
	if (!iommu.groups) {
		finding_say(finding, CHECK_PASS, "no IOMMU is on");
	} else if (iommu.translating) {
		finding_say(finding, CHECK_WARN,
			    "the IOMMU translates for %" PRIu64 " of %" PRIu64 " groups (type %s)",
			    iommu.translating, iommu.groups, iommu.type);
		finding_fix(finding, "boot the host with iommu=pt, unless a VM needs it");
	} else {
		finding_say(finding, CHECK_PASS, "IOMMU on, in pass-through, %" PRIu64 " groups",
			    iommu.groups);
	}
}

/* ---- kernel and memory ---- */

static void check_fork(struct doctor *doctor, struct finding *finding)
{
	static const struct {
		int value;
		enum check_state state;
		const char *words;
	} rows[] = {
		{IBV_FORK_UNNEEDED, CHECK_PASS, "safe: this kernel copies pinned pages at fork"},
		{IBV_FORK_ENABLED, CHECK_PASS, "safe: libibverbs marks registered memory"},
		{IBV_FORK_DISABLED, CHECK_WARN,
		 "a fork would take registered pages away, until the verbs transport turns "
		 "protection on at its start"}};
	const struct verbs_calls *calls = verbs_calls_system();
	int value;

	if (calls->missing) {
		finding_say(finding, CHECK_SKIP, "%s", calls->missing);
		return;
	}
	value = calls->is_fork_initialized();
	finding_say(finding, CHECK_WARN, "libibverbs answers %d, which is unknown", value);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].value == value)
			finding_say(finding, rows[i].state, "%s", rows[i].words);
	if (finding->state == CHECK_WARN)
		finding_fix(finding, "use Linux 5.12 or newer; do not fork while weights move");
}

static void check_hugepages(struct doctor *doctor, struct finding *finding)
{
	char transparent[128];
	uint64_t total = 0, unused = 0;
	bool known, always;

	known = system_read_u64(&doctor->system, &total,
				"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") &&
		system_read_u64(&doctor->system, &unused,
				"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
	if (system_read(&doctor->system, transparent, sizeof(transparent),
			"/sys/kernel/mm/transparent_hugepage/enabled"))
		snprintf(transparent, sizeof(transparent), "not there");
	always = strstr(transparent, "[always]") || strstr(transparent, "[madvise]");
	if (!known && strcmp(transparent, "not there") == 0) {
		finding_say(finding, CHECK_SKIP, "this kernel or container does not tell");
		return;
	}
	finding_say(finding, unused || always ? CHECK_PASS : CHECK_WARN,
		    "2 MiB pages: %" PRIu64 " of %" PRIu64 " free; transparent: %s", unused, total,
		    transparent);
	if (!unused && !always)
		finding_fix(finding,
			    "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled "
			    "(registration is faster, NICs keep fewer entries)");
}

#define SHM_LOW (UINT64_C(1) << 30)

static void check_shm_size(struct doctor *doctor, struct finding *finding)
{
	struct statvfs status;
	uint64_t bytes;

	if (statvfs("/dev/shm", &status) != 0) {
		finding_say(finding, CHECK_SKIP, "/dev/shm: %s; weft does not use it, NCCL does",
			    strerror(errno));
		return;
	}
	bytes = (uint64_t)status.f_blocks * status.f_frsize;
	finding_say(finding, CHECK_PASS,
		    "/dev/shm holds %s; weft does not use it, NCCL and PyTorch do",
		    BYTES_TEXT(bytes));
	/* nothing of weft's: it must not be what to fix first */
	if (bytes < SHM_LOW)
		finding_detail(finding, "little for those two: docker --shm-size=8g or --ipc=host; "
					"Kubernetes: an emptyDir of medium Memory on /dev/shm");
}

/* A child writes into us, as a trainer writes into an inference rank: 0, or its errno. */
static int try_cma(void)
{
	volatile uint32_t word = 0;
	pid_t child = fork();
	int status;

	if (child < 0)
		return errno;
	if (child == 0) {
		uint32_t value = 0x77656674;
		struct iovec from = {&value, sizeof(value)}, to = {(void *)&word, sizeof(word)};

		_exit(process_vm_writev(getppid(), &from, 1, &to, 1, 0) == sizeof(value)
			      ? 0
			      : errno & 0xff);
	}
	if (waitpid(child, &status, 0) != child)
		return errno;
	if (!WIFEXITED(status))
		return EINTR;
	if (WEXITSTATUS(status) == 0 && word != 0x77656674)
		return EFAULT;
	return WEXITSTATUS(status);
}

static void check_ptrace(struct doctor *doctor, struct finding *finding)
{
	char scope[16];
	int errnum;

	if (system_read(&doctor->system, scope, sizeof(scope),
			"/proc/sys/kernel/yama/ptrace_scope"))
		snprintf(scope, sizeof(scope), "no Yama");
	if (!doctor->live) {
		finding_say(finding, CHECK_SKIP, "ptrace scope: %s; nothing was tried", scope);
		return;
	}
	/* as transport/shm does when it registers memory */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	errnum = try_cma();
	prctl(PR_SET_PTRACER, 0);
	if (!errnum) {
		finding_say(finding, CHECK_PASS,
			    "one process writes another's memory (ptrace scope: %s)", scope);
		return;
	}
	finding_say(finding, CHECK_WARN,
		    "one process cannot write another's memory: %s (ptrace scope: %s); memory of "
		    "weft's own allocator still works",
		    strerror(errnum), scope);
	if (atoi(scope) >= 2)
		finding_fix(finding, "as root: sysctl kernel.yama.ptrace_scope=1");
	else
		finding_fix(finding,
			    "allow process_vm_writev: docker --cap-add=SYS_PTRACE or a seccomp "
			    "profile with it");
}

static void check_release(struct doctor *doctor, struct finding *finding)
{
	unsigned major = 0, minor = 0;
	struct utsname name;
	bool mlx5 = false;

	uname(&name);
	sscanf(name.release, "%u.%u", &major, &minor);
	for (size_t i = 0; i < doctor->devices.count; i++)
		mlx5 |= strncmp(doctor->devices.items[i].text, "mlx5", 4) == 0;
	if (major > 5 || (major == 5 && minor >= 12))
		finding_say(finding, CHECK_PASS, "Linux %s: new enough for dma-buf and fork",
			    name.release);
	else
		finding_say(finding, CHECK_WARN,
			    "Linux %s: before 5.12 there is no dma-buf for NICs "
			    "and fork is not safe",
			    name.release);
	if (mlx5)
		finding_detail(finding,
			       "mlx5 drivers without the dma-buf page-size series (Linux 6.1 is "
			       "one) map GPU memory in entries of 4 KiB: slower than peermem, "
			       "not weft's doing");
}

const struct check doctor_host_checks[] = {{"gpus", 0, check_gpus},
					   {"gpu-memory", 0, check_gpu_memory},
					   {"gpu-nic-distance", NEEDS_LIVE, check_distances},
					   {"acs", NEEDS_PCI, check_acs},
					   {"iommu", NEEDS_PCI, check_iommu},
					   {"fork", NEEDS_DEVICE, check_fork},
					   {"hugepages", 0, check_hugepages},
					   {"dev-shm", NEEDS_LIVE, check_shm_size},
					   {"ptrace", 0, check_ptrace},
					   {"kernel", NEEDS_LIVE, check_release},
					   {0}};
