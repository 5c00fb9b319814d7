/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c -- how NICs reach memory of this process's GPU (GPUDirect), decided once and said in one line:
 *
 *   every NIC and the GPU know dma-bufs      ─► dma-buf
 *   else nvidia-peermem is loaded            ─► addresses, as they are
 *   else                                     ─► none, with the reason: what is written from or into there goes
 *                                               through memory of the host
 */
#include "transport/verbs/verbs.h"

#include "base/log.h"
#include "transport/cuda/device.h"

#include <stdio.h>

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

void verbs_gpu_choose(struct transport_domain *domain, struct verbs_domain *verbs)
{
	const struct verbs_device *nic = without_dmabuf(verbs);
	struct cuda_facts facts;
	struct error error;

	if (!domain->options.device_memory)
		return;
	if (cuda_device_facts(domain->options.device, &facts, &error)) {
		snprintf(domain->no_gpu, sizeof(domain->no_gpu), "%.200s", error.text);
		return;
	}
	if (!nic && facts.dmabuf)
		verbs->gpu = VERBS_GPU_DMABUF;
	else if (facts.peermem)
		verbs->gpu = VERBS_GPU_PEERMEM;
	if (verbs->gpu == VERBS_GPU_NONE)
		say_none(domain, nic, &facts);
	else
		log_info("verbs: NICs reach memory of %s by %s",
			 cuda_device_text(domain->options.device),
			 verbs->gpu == VERBS_GPU_DMABUF
				 ? "dma-buf"
				 : "nvidia-peermem: not every NIC and GPU here knows dma-bufs");
}

const char *verbs_gpu_pci(const struct transport_domain *domain, struct cuda_facts *facts)
{
	struct error error;

	if (!domain->options.device_memory ||
	    cuda_device_facts(domain->options.device, facts, &error))
		facts->pci[0] = '\0';
	return facts->pci;
}
