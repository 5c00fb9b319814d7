/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/cuda/device.h"

#include "transport/cuda/errors.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool library_opens(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (library)
		dlclose(library);
	return library != NULL;
}

int cuda_ready(struct error *error)
{
	int version = 0, rc = cuda_calls()->start();

	if (!rc)
		return 0;
	cuda_calls()->driver_version(&version);
	return cuda_absent("", rc, version, library_opens(), error);
}

int cuda_device_count(int *count, struct error *error)
{
	int rc = cuda_ready(error);

	*count = 0;
	if (rc)
		return rc;
	rc = cuda_calls()->device_count(count);
	if (!rc && *count > 0)
		return 0;
	return cuda_failed(rc ? rc : CUDA_NO_DEVICE, error, "asking the driver for its devices");
}

int cuda_device_facts(int device, struct cuda_facts *facts, struct error *error)
{
	int rc = cuda_calls()->device_facts(device, facts);

	return rc ? cuda_failed(rc, error, "asking for device cuda:%d", device) : 0;
}

const char *cuda_device_text(int device)
{
	static _Thread_local char text[128];
	struct cuda_facts facts;

	if (cuda_calls()->device_facts(device, &facts))
		snprintf(text, sizeof(text), "cuda:%d", device);
	else
		snprintf(text, sizeof(text), "cuda:%d (%s)", device, facts.name);
	return text;
}

int cuda_enter(int device, struct error *error)
{
	int rc = cuda_calls()->enter(device);

	return rc ? cuda_failed(rc, error, "%s", cuda_device_text(device)) : 0;
}

/* Fails only where enter had not been called, or the context was taken from under us: what follows fails too. */
void cuda_leave(void)
{
	cuda_calls()->leave();
}

int cuda_device_named(const char *name, int local_rank, int *device, struct error *error)
{
	int count, rc = cuda_device_count(&count, error);
	char *end;
	long number = local_rank < 0 ? 0 : local_rank;

	if (rc)
		return rc;
	if (strncmp(name, "cuda:", 5) == 0) {
		number = strtol(name + 5, &end, 10);
		if (end == name + 5 || *end || number < 0)
			return error_set(error, ERROR_CONFIG,
					 "'%s' names no device: cuda, or cuda:N with N from 0",
					 name);
	} else if (strcmp(name, "cuda") == 0) {
		number %=
			count; /* fewer are visible than ranks: as with CUDA_VISIBLE_DEVICES set by rank */
	} else {
		return error_set(error, ERROR_CONFIG,
				 "'%s' names no device: cuda, or cuda:N with N from 0", name);
	}
	if (number >= count)
		return error_set(
			error, ERROR_CONFIG,
			"there is no device %s: the driver shows %d (cuda:0 to cuda:%d; see "
			"CUDA_VISIBLE_DEVICES)",
			name, count, count - 1);
	*device = (int)number;
	return 0;
}

int cuda_pointer_of(const void *address, uint64_t bytes, struct cuda_pointer *pointer,
		    struct error *error)
{
	uint64_t at = (uint64_t)(uintptr_t)address;
	int rc = cuda_calls()->pointer(at, pointer);

	if (rc)
		return cuda_failed(rc, error, "asking where %p lies", address);
	/* mapped memory goes on in the next part, which who shares it follows */
	if (pointer->memory != CUDA_MEMORY_DEVICE || pointer->mapped)
		return 0;
	if (at < pointer->base || bytes > pointer->bytes - (at - pointer->base))
		return error_set(error, ERROR_BOUNDS,
				 "%" PRIu64 " bytes at %p reach beyond their allocation, %" PRIu64
				 " bytes at 0x%" PRIx64
				 " on %s: register no more than was allocated",
				 bytes, address, pointer->bytes, pointer->base,
				 cuda_device_text(pointer->device));
	return 0;
}

int cuda_peer_check(int device, int peer, struct error *error)
{
	bool possible = true;
	char from[128];
	int rc = device == peer ? 0 : cuda_calls()->peer_possible(device, peer, &possible);

	if (rc)
		return cuda_failed(rc, error,
				   "asking whether cuda:%d may use the memory of cuda:%d", device,
				   peer);
	if (possible)
		return 0;
	snprintf(from, sizeof(from), "%s", cuda_device_text(device));
	return error_set(
		error, ERROR_UNSUPPORTED,
		"no peer access from %s to %s (nvidia-smi topo -p2p w tells between which there is, and a "
		"virtual machine may forbid it): use --transport verbs or tcp between them",
		from, cuda_device_text(peer));
}
