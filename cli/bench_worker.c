/* SPDX-License-Identifier: Apache-2.0
 *
 * One process of `weft bench update`: a host program over weft.h whose tensors are made in
 * memory. The last round sends other bytes than all before, and the inference ranks compare
 * what arrived with what that round must have sent.
 */
#include "cli/bench.h"

#include "cli/bench_contents.h"
#include "cli/bench_measured.h"
#include "base/clock.h"
#include "base/memory.h"
#include "worker/api/weft_play.h"

#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define GATE_SLICE_NS 50000000

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
		  const struct timespec *timeout)
{
	return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

bool bench_gate(struct bench_shared *shared, void (*watch)(void *context), void *context)
{
	const struct timespec slice = {0, GATE_SLICE_NS};
	uint32_t generation = atomic_load(&shared->generation);

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == shared->parties) {
		atomic_store(&shared->arrived, 0);
		atomic_store(&shared->opened_ns, clock_ns());
		atomic_fetch_add(&shared->generation, 1);
		futex(&shared->generation, FUTEX_WAKE, INT32_MAX, NULL);
		return !atomic_load(&shared->aborted);
	}
	while (atomic_load(&shared->generation) == generation) {
		if (atomic_load(&shared->aborted))
			return false;
		futex(&shared->generation, FUTEX_WAIT, generation, &slice);
		if (watch)
			watch(context);
	}
	return !atomic_load(&shared->aborted);
}

/* The latest of all processes' ends. */
static void done_now(struct bench_shared *shared)
{
	uint64_t now = clock_ns(), seen = atomic_load(&shared->last_done_ns);

	while (seen < now && !atomic_compare_exchange_weak(&shared->last_done_ns, &seen, now))
		;
}

static uint64_t seed_of(const struct bench_options *options, uint32_t round)
{
	return round + 1 == options->warmup + options->updates ? 2 : 1;
}

/* The first failure is the cause, which the parent prints; the others only see it. */
static int fail(struct bench_shared *shared, const weft_error *error, const char *who,
		uint32_t rank)
{
	if (!atomic_exchange(&shared->failing, 1)) {
		error_set(&shared->failure, (enum error_code)error->code, "%s %u: %s", who, rank,
			  error->text);
		atomic_store(&shared->aborted, 1);
	}
	return weft_exit_code(error->code);
}

struct trainer {
	weft_worker *worker;
	void **data;	     /* by tensor id; NULL when not wanted */
	weft_memory *memory; /* the same, as a write takes it */
	uint32_t tensors;
	unsigned char *target; /* of the memcpy: shared pages like the real one's */
	uint64_t target_bytes;
	unsigned char *arena; /* registered before join, with room for every tensor; or NULL */
	/* on a GPU: tensors, one after the other, which `memory` is of, and what they are copied to */
	weft_memory device, device_target;
	uint64_t device_bytes;
};

static uint64_t padded(uint64_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* As an allocator of a framework places them. */
static uint64_t device_padded(uint64_t bytes)
{
	return (bytes + 511) / 512 * 512;
}

static int no_memory(weft_error *error, uint64_t bytes, const char *what)
{
	error->code = WEFT_E_MEMORY;
	snprintf(error->text, sizeof(error->text), "no memory for %s (%llu bytes)", what,
		 (unsigned long long)bytes);
	return -WEFT_E_MEMORY;
}

/* Before join nobody knows which tensors are wanted, so all get a place. */
static int register_sources(struct trainer *trainer, weft_error *error)
{
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;
	weft_memory memory;
	uint64_t bytes = 0;

	for (uint32_t id = 0; weft_tensor_at(trainer->worker, id, &view, NULL) == 0; id++)
		bytes += padded(view.bytes);
	trainer->arena = memory_aligned(4096, bytes);
	if (!trainer->arena)
		return no_memory(error, bytes, "all tensors of this trainer");
	memory = weft_host_memory(trainer->arena, bytes);
	return weft_source_register(trainer->worker, &memory, error);
}

static int place_on_device(struct trainer *trainer, weft_error *error)
{
	int32_t device = weft_device(trainer->worker);
	uint64_t bytes = 0, at = 0;
	int rc;

	for (uint32_t id = 0; id < trainer->tensors; id++)
		bytes += trainer->data[id] ? device_padded(trainer->memory[id].bytes) : 0;
	trainer->device = trainer->device_target = (weft_memory)WEFT_MEMORY_INIT;
	trainer->device_bytes = bytes;
	rc = weft_play_allocate(device, bytes + 1, &trainer->device, error);
	if (rc == 0)
		rc = weft_play_allocate(device, bytes + 1, &trainer->device_target, error);
	for (uint32_t id = 0; rc == 0 && id < trainer->tensors; id++) {
		if (!trainer->data[id])
			continue;
		trainer->memory[id] =
			weft_cuda_memory(device, (unsigned char *)trainer->device.pointer + at,
					 trainer->memory[id].bytes, NULL);
		at += device_padded(trainer->memory[id].bytes);
	}
	return rc;
}

/* What was made on the host goes up. */
static int upload(const struct trainer *trainer, weft_error *error)
{
	int rc = 0;

	for (uint32_t id = 0; trainer->device.pointer && rc == 0 && id < trainer->tensors; id++)
		if (trainer->data[id])
			rc = weft_play_copy(trainer->device.device, trainer->memory[id].pointer,
					    trainer->data[id], trainer->memory[id].bytes, error);
	return rc;
}

/* Places for the wanted tensors. */
static int place_tensors(struct trainer *trainer, weft_error *error)
{
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;
	uint64_t at = 0;

	for (uint32_t id = 0; weft_tensor_at(trainer->worker, id, &view, NULL) == 0; id++) {
		uint64_t place = at;

		at += padded(view.bytes);
		trainer->memory[id] = weft_host_memory(NULL, 0);
		if (!view.wanted)
			continue;
		trainer->data[id] =
			trainer->arena ? trainer->arena + place : memory_aligned(4096, view.bytes);
		if (!trainer->data[id])
			return no_memory(error, view.bytes, view.name);
		trainer->memory[id] = weft_host_memory(trainer->data[id], view.bytes);
	}
	return weft_device(trainer->worker) < 0 ? 0 : place_on_device(trainer, error);
}

static int trainer_open(struct trainer *trainer, weft_error *error)
{
	weft_plan_view plan = WEFT_PLAN_VIEW_INIT;
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;
	int rc = weft_plan(trainer->worker, &plan, error);

	if (rc)
		return rc;
	while (weft_tensor_at(trainer->worker, trainer->tensors, &view, NULL) == 0)
		trainer->tensors++;
	trainer->data = memory_zalloc(trainer->tensors, sizeof(*trainer->data));
	trainer->memory = memory_zalloc(trainer->tensors, sizeof(*trainer->memory));
	trainer->target_bytes = plan.bytes;
	trainer->target = mmap(NULL, plan.bytes + 1, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!trainer->data || !trainer->memory || trainer->target == MAP_FAILED)
		return no_memory(error, plan.bytes, "a memcpy of what this trainer sends");
	return place_tensors(trainer, error);
}

/* The measure: as many bytes as this trainer sends, whole tensors at a time, libc's memcpy. */
static void trainer_memcpy(const struct trainer *trainer)
{
	uint64_t at = 0, copied;
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;

	for (; trainer->device.pointer && at < trainer->target_bytes; at += copied) {
		copied = trainer->target_bytes - at;
		copied = copied < trainer->device_bytes ? copied : trainer->device_bytes;
		weft_play_copy(trainer->device.device, trainer->device_target.pointer,
			       trainer->device.pointer, copied, NULL);
	}
	while (at < trainer->target_bytes) {
		for (uint32_t id = 0; id < trainer->tensors && at < trainer->target_bytes; id++) {
			uint64_t bytes;

			if (!trainer->data[id] ||
			    weft_tensor_at(trainer->worker, id, &view, NULL) != 0)
				continue;
			bytes = view.bytes < trainer->target_bytes - at
					? view.bytes
					: trainer->target_bytes - at;
			memcpy(trainer->target + at, trainer->data[id], bytes);
			at += bytes;
		}
	}
}

static int trainer_update(const struct trainer *trainer, uint64_t version, weft_error *error)
{
	int rc = weft_update_begin(trainer->worker, version, error);

	if (rc == 0)
		rc = weft_update_write_all(trainer->worker, trainer->memory, trainer->tensors,
					   sizeof(*trainer->memory), error);
	return rc ? rc : weft_update_end(trainer->worker, error);
}

/* With --own-memory: one ordinary allocation for all parameters of the rank. */
static int bind_memory(weft_worker *worker, weft_memory *memory, weft_error *error)
{
	weft_param_view view = WEFT_PARAM_VIEW_INIT;
	uint64_t bytes = 0;
	int rc = 0;

	for (uint32_t id = 0; weft_param_at(worker, id, &view, NULL) == 0; id++)
		bytes += padded(view.bytes);
	rc = weft_play_allocate(weft_device(worker), bytes, memory, error);
	bytes = 0;
	for (uint32_t id = 0; rc == 0 && weft_param_at(worker, id, &view, NULL) == 0; id++) {
		weft_memory place = *memory;

		place.pointer = (unsigned char *)memory->pointer + bytes;
		place.bytes = view.bytes;
		rc = weft_param_bind(worker, id, &place, error);
		bytes += padded(view.bytes);
	}
	return rc;
}

/* Opened and declared. */
static int open_worker(struct bench_shared *shared, const struct bench_options *options,
		       enum weft_role role, uint32_t rank, weft_worker **worker, weft_error *error)
{
	weft_options open = {.size = sizeof(open),
			     .controller = shared->controller,
			     .job = "bench",
			     .role = role,
			     .rank = rank,
			     .transport = options->transport,
			     .nic = role == WEFT_INFERENCE && options->infer_nic
					    ? options->infer_nic
					    : options->nic,
			     .checksums = options->checksums,
			     .replica = role == WEFT_TRAINER ? options->replica : NULL,
			     .pack_threads = role == WEFT_TRAINER ? options->pack_threads : 0,
			     .own_memory = options->own_memory && role == WEFT_INFERENCE,
			     .memory = options->memory,
			     .stage = role == WEFT_INFERENCE ? options->stage : NULL};
	int rc = weft_open(worker, &open, error);

	return rc ? rc
		  : weft_declare_model_as(*worker, options->model, options->as, options->train_text,
					  options->infer_text, error);
}

static void count_pieces(struct bench_shared *shared, const weft_worker *worker)
{
	weft_stats stats = WEFT_STATS_INIT;

	if (weft_get_stats(worker, &stats, NULL))
		return;
	atomic_fetch_add(&shared->direct, stats.pieces_direct);
	atomic_fetch_add(&shared->mapped, stats.pieces_mapped);
	atomic_fetch_add(&shared->packed, stats.pieces_replica);
	atomic_fetch_add(&shared->landed, stats.pieces_landed);
}

static int run_trainer(struct bench_shared *shared, const struct bench_options *options,
		       uint32_t rank, weft_error *error)
{
	struct trainer trainer = {0};
	int rc = open_worker(shared, options, WEFT_TRAINER, rank, &trainer.worker, error);

	if (rc == 0 && options->register_sources)
		rc = register_sources(&trainer, error);
	if (rc == 0)
		rc = weft_join(trainer.worker, 0, error);
	if (rc == 0)
		rc = trainer_open(&trainer, error);
	if (rc == 0)
		atomic_fetch_add(&shared->bytes, trainer.target_bytes);
	for (uint32_t round = 0; rc == 0 && round < options->warmup + options->updates; round++) {
		uint64_t seed = seed_of(options, round);

		if (round == 0 || seed != seed_of(options, round - 1))
			rc = bench_fill(shared, options,
					round ? BENCH_OTHER_CONTENTS : BENCH_CONTENTS,
					trainer.worker, trainer.data, seed, error);
		if (rc == 0)
			rc = upload(&trainer, error);
		if (rc || !bench_gate(shared, NULL, NULL) || !bench_gate(shared, NULL, NULL))
			break;
		trainer_memcpy(&trainer);
		done_now(shared);
		if (!bench_gate(shared, NULL, NULL))
			break;
		rc = trainer_update(&trainer, round + 1, error);
		bench_measured_note(shared, options, rank, round);
		if (round + 1 == options->warmup + options->updates)
			count_pieces(shared, trainer.worker);
		if (rc || !bench_gate(shared, NULL, NULL))
			break;
		trainer_memcpy(&trainer);
		done_now(shared);
		if (!bench_gate(shared, NULL, NULL) || !bench_gate(shared, NULL, NULL))
			break;
	}
	weft_close(&trainer.worker);
	if (trainer.device_bytes) {
		weft_play_free(&trainer.device);
		weft_play_free(&trainer.device_target);
	}
	for (uint32_t id = 0; trainer.data && !trainer.arena && id < trainer.tensors; id++)
		memory_free(trainer.data[id]);
	memory_free(trainer.arena);
	memory_free(trainer.data);
	memory_free(trainer.memory);
	return rc;
}

static int run_inference(struct bench_shared *shared, const struct bench_options *options,
			 uint32_t rank, weft_error *error)
{
	uint32_t rounds = options->warmup + options->updates;
	weft_worker *worker = NULL;
	weft_memory memory = WEFT_MEMORY_INIT;
	struct error inner;
	int closed, rc = open_worker(shared, options, WEFT_INFERENCE, rank, &worker, error);

	if (rc == 0 && options->own_memory)
		rc = bind_memory(worker, &memory, error);
	if (rc == 0)
		rc = weft_join(worker, 0, error);
	for (uint32_t round = 0; rc == 0 && round < rounds; round++) {
		for (int gate = 0; gate < 3; gate++)
			if (!bench_gate(shared, NULL, NULL))
				goto out;
		rc = weft_update_wait(worker, round + 1, 0, NULL, error);
		done_now(shared);
		bench_measured_note(shared, options, options->train.world + rank, round);
		if (rc || !bench_gate(shared, NULL, NULL) || !bench_gate(shared, NULL, NULL))
			break;
		if (round + 1 == rounds && bench_compare(shared, options, worker, rank, rounds,
							 seed_of(options, round), &inner)) {
			error->code = (int)inner.code;
			snprintf(error->text, sizeof(error->text), "%s", inner.text);
			rc = -error->code;
			break;
		}
		if (!bench_gate(shared, NULL, NULL))
			break;
	}
out:
	closed = weft_close(&worker);
	if (!closed) /* else a trainer may still write it */
		weft_play_free(&memory);
	else if (!rc) {
		error->code = -closed;
		snprintf(
			error->text, sizeof(error->text),
			"a trainer is in the middle of a write of its memory (the log says which)");
		rc = closed;
	}
	return rc;
}

int bench_worker(struct bench_shared *shared, const struct bench_options *options, uint32_t rank)
{
	weft_error error = WEFT_ERROR_INIT;
	bool trains = rank < options->train.world;
	int rc;

	if (!trains)
		rank -= options->train.world;
	rc = trains ? run_trainer(shared, options, rank, &error)
		    : run_inference(shared, options, rank, &error);
	return rc ? fail(shared, &error, trains ? "trainer" : "inference", rank) : 0;
}
