/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c -- how NICs reach memory of this process's GPU (GPUDirect), decided once and said in one line:
 *
 *   every NIC registers a dma-buf of it      ─► dma-buf
 *   else every NIC takes its address         ─► nvidia-peermem
 *   else                                     ─► none, with the reason: what is written from or into there goes
 *                                               through memory of the host
 */
#include "transport/verbs/verbs.h"

#include "base/log.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <stdio.h>

#define TRY_BYTES 65536u

static const char *driver_of(const struct verbs_device *device)
{
	return device->driver[0] ? device->driver : "unknown";
}

/* The first NIC that knows no dma-buf, or NULL. */
static const struct verbs_device *without_dmabuf(const struct verbs_domain *verbs)
{
	for (uint32_t i = 0; i < verbs->nic_count; i++)
		if (!verbs->nics[i].limits.dmabuf)
			return &verbs->nics[i].limits;
	return NULL;
}

static void say_none(struct transport_domain *domain, const struct verbs_device *nic,
		     const struct cuda_facts *facts)
{
	char *why = domain->no_gpu;

	if (nic)
		snprintf(why, sizeof(domain->no_gpu),
			 "%s (driver %.20s) knows no dma-buf, and nvidia-peermem is not loaded",
			 nic->name, driver_of(nic));
	else
		snprintf(why, sizeof(domain->no_gpu),
			 "%.60s exports no dma-buf (NVIDIA's open kernel modules do), and "
			 "nvidia-peermem is not loaded",
			 facts->name);
}

/* As a job would: 0 when every NIC registers memory of that GPU so. */
static int try_way(struct transport_domain *domain, struct verbs_domain *verbs, enum verbs_gpu way,
		   uint64_t memory, struct error *error)
{
	struct transport_region region = {
		.domain = domain,
		.memory = (void *)(uintptr_t)memory,
		.bytes = TRY_BYTES,
		.on_device = true,
	};
	int rc;

	verbs->gpu = way;
	rc = verbs_region_register(&region, error);
	if (!rc)
		verbs_region_close(&region);
	else
		verbs->gpu = VERBS_GPU_NONE;
	return rc;
}

/* What drivers say of themselves is not yet a registration: BAR1 may be full, a module loaded for another driver. */
static void try_ways(struct transport_domain *domain, struct verbs_domain *verbs, bool dmabuf,
		     bool peermem)
{
	const struct cuda_calls *calls = cuda_calls();
	struct error error;
	uint64_t memory = 0;
	int rc = cuda_enter(domain->options.device, &error);

	if (!rc) {
		rc = calls->allocate(TRY_BYTES, &memory);
		if (rc)
			cuda_failed(rc, &error, "%u bytes of %s to try", TRY_BYTES,
				    cuda_device_text(domain->options.device));
		cuda_leave();
	}
	if (!rc && dmabuf)
		rc = try_way(domain, verbs, VERBS_GPU_DMABUF, memory, &error);
	/* the first reason is the one to act on */
	if (rc)
		snprintf(domain->no_gpu, sizeof(domain->no_gpu), "%.399s", error.text);
	if (memory && peermem && verbs->gpu == VERBS_GPU_NONE &&
	    try_way(domain, verbs, VERBS_GPU_PEERMEM, memory, &error) && !rc)
		snprintf(domain->no_gpu, sizeof(domain->no_gpu), "%.399s", error.text);
	if (verbs->gpu != VERBS_GPU_NONE)
		domain->no_gpu[0] = '\0';
	if (memory && !cuda_enter(domain->options.device, &error)) {
		calls->release(memory);
		cuda_leave();
	}
}

void verbs_gpu_choose(struct transport_domain *domain, struct verbs_domain *verbs)
{
	const struct verbs_device *nic = without_dmabuf(verbs);
	struct cuda_facts facts;
	struct error error;
	bool dmabuf;

	if (!domain->options.device_memory)
		return;
	if (cuda_device_facts(domain->options.device, &facts, &error)) {
		snprintf(domain->no_gpu, sizeof(domain->no_gpu), "%.200s", error.text);
		return;
	}
	dmabuf = !nic && facts.dmabuf;
	if (dmabuf || facts.peermem)
		try_ways(domain, verbs, dmabuf, facts.peermem);
	else
		say_none(domain, nic, &facts);
	if (verbs->gpu != VERBS_GPU_NONE)
		log_info("verbs: NICs reach memory of %s by %s",
			 cuda_device_text(domain->options.device),
			 verbs->gpu == VERBS_GPU_DMABUF ? "dma-buf" : "nvidia-peermem");
}

const char *verbs_gpu_pci(const struct transport_domain *domain, struct cuda_facts *facts)
{
	struct error error;

	if (!domain->options.device_memory ||
	    cuda_device_facts(domain->options.device, facts, &error))
		facts->pci[0] = '\0';
	return facts->pci;
}
