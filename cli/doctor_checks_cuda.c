/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_checks_cuda.c -- the GPUs as CUDA has them, by using each: a kernel packs a few bytes, memory is shared as a
 * job would.
 */
#include "cli/doctor.h"

#include "pack/cuda/image.h"
#include "pack/cuda/launch.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRY_BYTES  5000u
#define PART_BYTES (UINT64_C(2) << 20)

static bool nvidia_on_bus(const struct doctor *doctor)
{
	for (size_t i = 0; i < doctor->gpus.count; i++)
		if (doctor->gpus.items[i].nvidia)
			return true;
	return false;
}

bool doctor_has_cuda(struct finding *finding, int *count)
{
	struct error error;

	if (!cuda_device_count(count, &error))
		return true;
	finding_say(finding, CHECK_SKIP, "no GPU that CUDA can use");
	return false;
}

static void check_driver(struct doctor *doctor, struct finding *finding)
{
	bool wanted = doctor_wants(doctor, "cuda");
	int count, version = 0;
	struct error error;

	cuda_calls()->driver_version(&version);
	if (cuda_device_count(&count, &error)) {
		bool here = version || nvidia_on_bus(doctor);

		finding_say(finding,
			    wanted ? CHECK_FAIL
			    : here ? CHECK_WARN
				   : CHECK_SKIP,
			    "%s", error.text);
		return;
	}
	finding_say(finding, CHECK_PASS,
		    "%d device%s; driver for CUDA %d.%d, built with CUDA %d.%d", count,
		    count == 1 ? "" : "s", version / 1000, version % 1000 / 10,
		    cuda_built_version() / 1000, cuda_built_version() % 1000 / 10);
}

/* ---- each device ---- */

struct trial {
	const struct cuda_calls *calls;
	uint64_t source, target, table, bases;
	cuda_kernel kernel;
	bool loaded;
};

static int trial_open(struct trial *trial)
{
	uint64_t *const places[] = {&trial->source, &trial->target, &trial->table, &trial->bases};
	size_t bytes;
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(places) && !rc; i++) {
		rc = trial->calls->allocate(2 * TRY_BYTES, places[i]);
		if (rc)
			*places[i] = 0;
	}
	if (!rc) {
		rc = trial->calls->load(
			&(struct cuda_image){pack_cuda_image(&bytes), PACK_CUDA_KERNEL_NAME},
			&trial->kernel);
		trial->loaded = !rc;
	}
	return rc;
}

static void trial_close(struct trial *trial)
{
	const uint64_t places[] = {trial->source, trial->target, trial->table, trial->bases};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (places[i])
			trial->calls->release(places[i]);
	if (trial->loaded)
		trial->calls->unload(trial->kernel);
}

static int copy(const struct trial *trial, uint64_t to, uint64_t from, uint64_t bytes)
{
	int rc = trial->calls->copy(to, from, bytes, NULL);

	return rc ? rc : trial->calls->stream_synchronize(NULL);
}

static uint64_t at(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

/* Up, packed by the kernel, down; CUDA_UNKNOWN: other bytes came back. */
static int trial_pack(const struct trial *trial)
{
	const struct pack_source source = {.from = DTYPE_U8,
					   .to = DTYPE_U8,
					   .dims = 1,
					   .shape = {TRY_BYTES},
					   .src = {.dims = 1, .hi = {TRY_BYTES}},
					   .held_hi = TRY_BYTES};
	unsigned char sent[TRY_BYTES], back[TRY_BYTES] = {0};
	struct pack_cuda_launch launch;
	struct pack_cuda_part part;
	struct pack pack;
	int rc;

	for (size_t i = 0; i < TRY_BYTES; i++)
		sent[i] = (unsigned char)(i * 31 + 7);
	if (pack_init(&pack, &source, NULL))
		return CUDA_UNKNOWN;
	pack_cuda_part_init(&part, &pack, 0, PACK_CUDA_NO_TENSOR, 0, TRY_BYTES, trial->target);
	pack_cuda_table_finish(&part, 1);
	launch = pack_cuda_launch_of(&part, 0, 1, trial->table, trial->bases, 0);
	rc = copy(trial, trial->source, at(sent), TRY_BYTES);
	if (!rc)
		rc = copy(trial, trial->table, at(&part), sizeof(part));
	if (!rc)
		rc = copy(trial, trial->bases, at(&trial->source), sizeof(trial->source));
	if (!rc)
		rc = trial->calls->launch(trial->kernel, (struct cuda_dim){1, PACK_CUDA_THREADS},
					  &launch, NULL);
	if (!rc)
		rc = copy(trial, at(back), trial->target, TRY_BYTES);
	return rc ? rc : memcmp(back, sent, TRY_BYTES) ? CUDA_UNKNOWN : 0;
}

static int trial_run(struct trial *trial)
{
	int rc = trial_open(trial);

	if (!rc)
		rc = trial_pack(trial);
	trial_close(trial);
	return rc;
}

static bool shares_allocations(const struct cuda_calls *calls)
{
	unsigned char handle[CUDA_IPC_BYTES];
	uint64_t memory;
	int rc = calls->allocate(TRY_BYTES, &memory);

	if (rc)
		return false;
	rc = calls->ipc_export(memory, handle);
	calls->release(memory);
	return !rc;
}

static bool shares_mapped(const struct cuda_calls *calls)
{
	cuda_physical physical;
	int fd, rc = calls->physical_create(PART_BYTES, &physical);

	if (rc)
		return false;
	rc = calls->physical_export(physical, &fd);
	if (!rc)
		close(fd);
	calls->physical_release(physical);
	return !rc;
}

static void say_device(struct finding *finding, int device, const struct cuda_facts *facts)
{
	const struct cuda_calls *calls = cuda_calls();
	uint64_t left = 0, all = 0;
	bool ipc, mapped;

	calls->memory_left(&left, &all);
	ipc = shares_allocations(calls);
	mapped = shares_mapped(calls);
	finding_detail(
		finding,
		"cuda:%d %s at %s, sm_%d%d, %s, %s free%s; other processes open cudaMalloc: %s, "
		"expandable_segments: %s",
		device, facts->name, facts->pci, facts->major, facts->minor, BYTES_TEXT(all),
		BYTES_TEXT(left), facts->exclusive ? ", of one process alone" : "",
		ipc ? "yes" : "no", mapped ? "yes" : "no");
	if (ipc)
		return;
	finding_worsen(finding, CHECK_WARN);
	finding_fix(
		finding,
		"cuda:%d: memory of cudaMalloc cannot be shared here (a MIG slice, WSL, or a container "
		"without --ipc=host): see CUDA's documentation of IPC for this platform",
		device);
}

static void try_device(struct finding *finding, int device)
{
	struct trial trial = {.calls = cuda_calls()};
	struct cuda_facts facts;
	struct error error;
	int rc;

	if (cuda_device_facts(device, &facts, &error) || cuda_enter(device, &error)) {
		finding_say(finding, CHECK_FAIL, "%s", error.text);
		return;
	}
	rc = trial_run(&trial);
	if (rc) {
		cuda_failed(rc, &error, "packing %u bytes on %s", TRY_BYTES,
			    cuda_device_text(device));
		finding_say(finding, CHECK_FAIL, "%s", error.text);
	} else {
		say_device(finding, device, &facts);
	}
	cuda_leave();
}

static void check_devices(struct doctor *doctor, struct finding *finding)
{
	int count;

	(void)doctor;
	if (!doctor_has_cuda(finding, &count))
		return;
	finding_say(finding, CHECK_PASS,
		    "%d device%s: a kernel packed %u bytes on each, and they were right", count,
		    count == 1 ? "" : "s", TRY_BYTES);
	for (int i = 0; i < count && finding->state != CHECK_FAIL; i++)
		try_device(finding, i);
}

/* ---- between devices ---- */

static void check_peers(struct doctor *doctor, struct finding *finding)
{
	int count, pairs = 0, possible = 0;
	struct error error;

	(void)doctor;
	if (!doctor_has_cuda(finding, &count))
		return;
	for (int from = 0; from < count; from++)
		for (int to = 0; to < count; to++) {
			if (from == to)
				continue;
			pairs++;
			if (!cuda_peer_check(from, to, &error))
				possible++;
			else
				finding_detail(finding, "%s", error.text);
		}
	if (!pairs)
		finding_say(finding, CHECK_SKIP, "one device");
	else
		finding_say(finding,
			    check_share((size_t)possible, (size_t)pairs) == CHECK_PASS ? CHECK_PASS
										       : CHECK_WARN,
			    "%d of %d pairs of devices use each other's memory", possible, pairs);
}

const struct check doctor_cuda_checks[] = {{"cuda-driver", NEEDS_LIVE, check_driver},
					   {"cuda-devices", NEEDS_LIVE, check_devices},
					   {"cuda-peers", NEEDS_LIVE, check_peers},
					   {0}};
