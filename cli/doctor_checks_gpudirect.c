/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_checks_gpudirect.c -- memory of each GPU and each NIC: exported, and registered, as a job would.
 */
#include "cli/doctor.h"

#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"
#include "transport/transport.h"

#include <stdio.h>
#include <unistd.h>

#define PART_BYTES (UINT64_C(2) << 20)

static bool exports_dmabuf(int device)
{
	const struct cuda_calls *calls = cuda_calls();
	uint64_t memory;
	int fd, rc;

	if (cuda_enter(device, NULL))
		return false;
	rc = calls->allocate(PART_BYTES, &memory);
	if (!rc) {
		rc = calls->dmabuf(memory, PART_BYTES, &fd);
		if (!rc)
			close(fd);
		calls->release(memory);
	}
	cuda_leave();
	return !rc;
}

static void check_dmabuf(struct doctor *doctor, struct finding *finding)
{
	int count, good = 0;

	(void)doctor;
	if (!doctor_has_cuda(finding, &count))
		return;
	for (int i = 0; i < count; i++) {
		struct cuda_facts facts;
		struct error error;
		bool exported;

		if (cuda_device_facts(i, &facts, &error)) {
			finding_say(finding, CHECK_FAIL, "%s", error.text);
			return;
		}
		exported = exports_dmabuf(i);
		good += exported;
		finding_detail(
			finding, "cuda:%d: dma-buf %s; GPUDirect RDMA %s; what a NIC wrote %s", i,
			exported ? "exported" : "not to be had", facts.gpudirect ? "yes" : "no",
			!facts.flush_needed ? "is seen by kernels without a flush"
			: facts.flush	    ? "needs a flush, which works"
					    : "needs a flush, which this device does not have");
	}
	finding_say(finding, good == count ? CHECK_PASS : CHECK_WARN,
		    "%d of %d devices export their memory for NICs", good, count);
	if (good < count)
		finding_fix(
			finding,
			"install NVIDIA's open kernel modules (Linux 5.12 or newer); without dma-buf, "
			"nvidia-peermem or a copy through host memory");
}

/* ---- each of them with each NIC ---- */

/* One GPU's memory and one NIC, as a worker that has these two opens them. */
static int try_nic(int device, const char *nic, uint64_t memory, struct error *error)
{
	struct transport_options options = {.device = device, .device_memory = true};
	struct transport_domain *domain = NULL;
	struct transport_region *region = NULL;
	int rc;

	snprintf(options.name, sizeof(options.name), "doctor");
	snprintf(options.nics, sizeof(options.nics), "%s", nic);
	rc = transport_domain_open(&domain, "verbs", &options, error);
	if (!rc && !transport_domain_caps(domain)->gpu_direct)
		rc = error_set(error, ERROR_UNSUPPORTED, "%s", transport_domain_no_gpu(domain));
	if (!rc)
		rc = transport_region_register(domain, (void *)(uintptr_t)memory, PART_BYTES,
					       &region, error);
	transport_region_close(&region);
	transport_domain_close(&domain);
	return rc;
}

static const char *distance(const struct doctor *doctor, int device, const struct verbs_device *nic)
{
	struct cuda_facts facts;
	struct error error;

	if (!doctor->topology || !nic->pci[0] || cuda_device_facts(device, &facts, &error))
		return "distance unknown";
	return verbs_topology_distance_name(
		verbs_topology_distance(doctor->topology, facts.pci, nic->pci));
}

/* How many NICs register memory of the device; the first that does not says why. */
static size_t try_device(const struct doctor *doctor, struct finding *finding, int device)
{
	const struct cuda_calls *calls = cuda_calls();
	uint64_t memory = 0;
	size_t good = 0;
	struct error error;
	int rc = cuda_enter(device, &error);

	if (!rc) {
		rc = calls->allocate(PART_BYTES, &memory);
		cuda_leave();
		if (rc)
			cuda_failed(rc, &error, "%llu bytes of %s to try",
				    (unsigned long long)PART_BYTES, cuda_device_text(device));
	}
	if (rc) {
		finding_detail(finding, "%s", error.text);
		return 0;
	}
	for (size_t d = 0; d < doctor->facts.devices.count; d++) {
		const struct verbs_device *nic = &doctor->facts.devices.items[d];
		rc = try_nic(device, nic->name, memory, &error);

		good += !rc;
		finding_detail(finding, "cuda:%d and %s (%s): %s", device, nic->name,
			       distance(doctor, device, nic), rc ? error.text : "registered");
	}
	if (cuda_enter(device, &error))
		return good;
	calls->release(memory);
	cuda_leave();
	return good;
}

static void check_nics(struct doctor *doctor, struct finding *finding)
{
	size_t good = 0, all;
	int count;

	if (!doctor_has_cuda(finding, &count) || !doctor_meets(doctor, NEEDS_OPENED, finding))
		return;
	all = (size_t)count * doctor->facts.devices.count;
	for (int i = 0; i < count; i++)
		good += try_device(doctor, finding, i);
	finding_say(finding, good ? check_share(good, all) : CHECK_WARN,
		    "%zu of %zu pairs of a GPU and a NIC: the NIC registers its memory", good, all);
	if (good < all)
		finding_fix(finding, "install NVIDIA's open kernel modules, or modprobe "
				     "nvidia-peermem; without, pieces go through host memory");
}

const struct check doctor_gpudirect_checks[] = {{"cuda-dmabuf", NEEDS_LIVE, check_dmabuf},
						{"cuda-gpudirect", NEEDS_DEVICE, check_nics},
						{0}};
