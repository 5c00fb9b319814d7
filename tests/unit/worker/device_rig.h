/* SPDX-License-Identifier: Apache-2.0
 *
 * device_rig.h -- worker_rig.h with a trainer's tensors in memory of a mock GPU, and ranks' parameters wherever they lie.
 */
#ifndef TESTS_UNIT_WORKER_DEVICE_RIG_H
#define TESTS_UNIT_WORKER_DEVICE_RIG_H

#include "tests/cuda_mock/cuda_mock.h"
#include "tests/unit/worker/worker_rig.h"
#include "worker/api/weft_play.h"

/* A trainer's tensors on its GPU. */
struct tensors {
	weft_memory memory[RIG_TENSORS];
};

static inline void tensors_open(struct tensors *tensors, int32_t device)
{
	for (uint32_t t = 0; t < RIG_TENSORS; t++) {
		tensors->memory[t] = (weft_memory)WEFT_MEMORY_INIT;
		assert_int_equal(
			weft_play_allocate(device, rig_bytes[t], &tensors->memory[t], NULL), 0);
	}
}

static inline void tensors_fill(struct tensors *tensors, struct rig *rig, uint64_t version)
{
	rig_fill(rig, version);
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		assert_int_equal(weft_play_copy(tensors->memory[t].device,
						tensors->memory[t].pointer, rig->tensors[t],
						rig_bytes[t], NULL),
				 0);
}

static inline void tensors_close(struct tensors *tensors)
{
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		weft_play_free(&tensors->memory[t]);
}

static inline void open_all(struct rig *rig, struct tensors *tensors, const struct rig_options *options)
{
	cuda_mock_open(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	rig_open(rig, options);
	tensors_open(tensors, weft_device(rig->trainers[0]));
}

/* Trainers first: a rank's memory is freed once nobody has it open. */
static inline void close_all(struct rig *rig, struct tensors *tensors)
{
	for (uint32_t i = 0; i < RIG_MAX; i++)
		weft_close(&rig->trainers[i]);
	tensors_close(tensors);
	rig_close(rig);
	assert_int_equal(cuda_mock_close(), 0);
}

static inline void send(struct rig *rig, struct tensors *tensors, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = rig->trainers[0];

	rig_ok(weft_update_begin(worker, version, &error), &error);
	rig_ok(weft_update_write_all(worker, tensors->memory, RIG_TENSORS, sizeof(*tensors->memory),
				     &error),
	       &error);
	rig_ok(weft_update_end(worker, &error), &error);
}

/* The rank's parameters, wherever they lie, are of the version. */
static inline void check_rank(struct rig *rig, uint32_t rank, uint64_t version)
{
	uint64_t rows = 12 / rig->options.ranks;
	const uint64_t bytes[RIG_TENSORS] = {rows * 40, rows * 40, 32};
	unsigned char here[RIG_TENSORS][480];

	for (uint32_t p = 0; p < RIG_TENSORS; p++) {
		const void *memory = weft_param_memory(rig->ranks[rank], p, version);

		assert_non_null(memory);
		assert_int_equal(weft_play_copy(weft_device(rig->ranks[rank]), here[p], memory,
						bytes[p], NULL),
				 0);
	}
	for (uint64_t i = 0; i < rows * 40; i++)
		assert_int_equal(here[0][i], rig_byte(version, 0, rank * rows * 40 + i));
	for (uint64_t r = 0; r < 10; r++)
		for (uint64_t i = 0; i < rows * 4; i++)
			assert_int_equal(here[1][r * rows * 4 + i],
					 rig_byte(version, 1, r * 48 + rank * rows * 4 + i));
	for (uint64_t i = 0; i < 28; i++)
		assert_int_equal(here[2][i], rig_byte(version, 2, i));
	assert_memory_equal(here[2] + 28, "\0\0\0\0", 4);
}

static inline void update(struct rig *rig, struct tensors *tensors, uint64_t version)
{
	tensors_fill(tensors, rig, version);
	rig_wait_begin(rig, version, 0);
	send(rig, tensors, version);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < rig->options.ranks; i++)
		check_rank(rig, i, version);
}

/* A copy that waits on a stream of its own until somebody waits for it. */
static inline void *queue_late(weft_memory *to, const void *from, uint64_t bytes)
{
	const struct cuda_calls *calls = cuda_calls();
	cuda_stream stream;

	assert_int_equal(calls->enter(to->device), 0);
	assert_int_equal(calls->stream_create(&stream), 0);
	assert_int_equal(calls->copy((uint64_t)(uintptr_t)to->pointer, (uint64_t)(uintptr_t)from,
				     bytes, stream),
			 0);
	calls->leave();
	return stream;
}

static inline void end_stream(int32_t device, void *stream)
{
	assert_int_equal(cuda_calls()->enter(device), 0);
	assert_int_equal(cuda_calls()->stream_synchronize(stream), 0);
	assert_int_equal(cuda_calls()->stream_destroy(stream), 0);
	cuda_calls()->leave();
}

#endif
