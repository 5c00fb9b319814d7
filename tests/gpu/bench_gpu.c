/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu: what packing on a device costs, as ratios of what the device does at all, in one run. One JSON object a line:
 *   bench_gpu [--mib 4096] [--rounds 7]
 *
 * A job is a table of pieces in --mib of tensors, packed into other memory of the device by one launch; its yardstick one
 * copy of the bytes that it writes (for fp8: of the bytes that it reads, at the rate at which a copy moves memory, which
 * reads and writes). Jobs and yardsticks take turns, after a turn that does not count; ratios are of medians. Seconds are
 * those of the host's clock around work and a wait for it, so a few us of each launch are counted.
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/memory.h"
#include "pack/cuda/image.h"
#include "pack/cuda/launch.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 99, SLICES = 2, STEPS_MAX = 256 };
#define STEP_BYTES (UINT64_C(64) << 20)
#define HALF_BYTES (UINT64_C(160) << 20) /* a step, and one piece more at most */

struct shape {
	uint64_t rows, columns;
	int axis; /* that tp cuts: 0 rows, 1 columns, -1 none */
};

struct job {
	const char *name;
	const struct shape *shapes;
	size_t shape_count;
	enum dtype to;
	struct transform transform;
};

/* Of a layer of Qwen2.5-7B, tp=2: q, k, v, o, gate, up, down, two norms. */
static const struct shape layer[] = {{3584, 3584, 0},  {512, 3584, 0},	 {512, 3584, 0},
				     {3584, 3584, 1},  {18944, 3584, 0}, {18944, 3584, 0},
				     {3584, 18944, 1}, {1, 3584, -1},	 {1, 3584, -1}};
static const struct shape columns[] = {{3584, 3584, 1}, {3584, 18944, 1}};
static const struct shape rows[] = {{18944, 3584, 0}};

static const struct job jobs[] = {
	{"model mix: Qwen2.5-7B tp2", layer, ARRAY_SIZE(layer), DTYPE_BF16, {0}},
	{"columns: Qwen2.5-7B o_proj and down_proj tp2",
	 columns,
	 ARRAY_SIZE(columns),
	 DTYPE_BF16,
	 {0}},
	{"rows: Qwen2.5-7B gate_proj tp2", rows, ARRAY_SIZE(rows), DTYPE_BF16, {0}},
	{"quantise: bf16 to fp8 in blocks of 128x128",
	 rows,
	 ARRAY_SIZE(rows),
	 DTYPE_F8_E4M3,
	 {.to_rows = 128, .to_columns = 128}},
	{"convert: bf16 to f32, column slices", columns, ARRAY_SIZE(columns), DTYPE_F32, {0}},
};

static const struct cuda_calls *calls;
static struct cuda_facts facts;
static uint64_t bytes_all, tensors, targets; /* device memory */
static cuda_kernel kernel;
static unsigned rounds = 7;

static void must(int rc, const char *what)
{
	struct error error;

	if (!rc)
		return;
	cuda_failed(rc, &error, "%s", what);
	fprintf(stderr, "bench_gpu: %s\n", error.text);
	exit(1);
}

#define MUST(call) must(call, #call)

static uint64_t at(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

static uint64_t allocate(uint64_t bytes)
{
	uint64_t memory = 0;

	MUST(calls->allocate(bytes, &memory));
	return memory;
}

/* ---- a table ---- */

struct table {
	ARRAY(struct pack_cuda_part) parts;
	ARRAY(uint64_t) bases;
	uint64_t read, written, device_parts, device_bases;
	struct pack_cuda_launch launch;
};

static struct pack_source source_of(const struct job *job, const struct shape *shape,
				    uint64_t slice)
{
	uint64_t shape_of[2] = {shape->rows, shape->columns};
	struct pack_source source = {.from = DTYPE_BF16,
				     .to = job->to,
				     .dims = 2,
				     .shape = {shape->rows, shape->columns},
				     .src = {.dims = 2, .hi = {shape->rows, shape->columns}},
				     .held_hi = shape->rows,
				     .transform = job->transform};

	if (shape->axis >= 0) {
		source.src.lo[shape->axis] = shape_of[shape->axis] / SLICES * slice;
		source.src.hi[shape->axis] = shape_of[shape->axis] / SLICES * (slice + 1);
	}
	return source;
}

/* Tensor after tensor until no room is left; of each the piece of the one rank, then of the other. */
static void add_tensor(struct table *table, const struct job *job, const struct shape *shape,
		       uint64_t where)
{
	if (!array_add(&table->bases, tensors + where))
		exit(1);
	for (uint64_t slice = 0; slice < (shape->axis < 0 ? 1 : SLICES); slice++) {
		struct pack_source source = source_of(job, shape, slice);
		struct pack_cuda_part part;
		struct error error;
		struct pack pack;

		if (pack_init(&pack, &source, &error)) {
			fprintf(stderr, "bench_gpu: %s\n", error.text);
			exit(1);
		}
		pack_cuda_part_init(&part, &pack, (uint32_t)table->bases.count - 1,
				    PACK_CUDA_NO_TENSOR, 0, pack.bytes, targets + table->written);
		table->written += (pack.bytes + 255) / 256 * 256;
		if (!array_add(&table->parts, part))
			exit(1);
	}
}

static void table_make(struct table *table, const struct job *job)
{
	uint64_t most = job->to == DTYPE_F32 ? bytes_all / 2 : bytes_all;

	for (size_t i = 0;; i++) {
		const struct shape *shape = &job->shapes[i % job->shape_count];
		uint64_t bytes = shape->rows * shape->columns * 2;

		if (table->read + bytes > most)
			break;
		add_tensor(table, job, shape, table->read);
		table->read += bytes;
	}
	pack_cuda_table_finish(table->parts.items, table->parts.count);
	table->device_parts = allocate(table->parts.count * sizeof(*table->parts.items));
	table->device_bases = allocate(table->bases.count * sizeof(uint64_t));
	MUST(calls->copy(table->device_parts, at(table->parts.items),
			 table->parts.count * sizeof(*table->parts.items), NULL));
	MUST(calls->copy(table->device_bases, at(table->bases.items),
			 table->bases.count * sizeof(uint64_t), NULL));
	MUST(calls->stream_synchronize(NULL)); /* other streams launch from it */
	table->launch = pack_cuda_launch_of(table->parts.items, 0, (uint32_t)table->parts.count,
					    table->device_parts, table->device_bases, 0);
}

static void table_free(struct table *table)
{
	calls->release(table->device_parts);
	calls->release(table->device_bases);
	array_free(&table->parts);
	array_free(&table->bases);
}

static void run_table(struct table *table)
{
	MUST(calls->launch(kernel,
			   (struct cuda_dim){pack_cuda_blocks(&table->launch, facts.processors),
					     PACK_CUDA_THREADS},
			   &table->launch, NULL));
}

/* ---- rounds ---- */

static double since(uint64_t begin)
{
	MUST(calls->stream_synchronize(NULL));
	return (double)(clock_ns() - begin) / 1e9;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *seconds)
{
	qsort(seconds, rounds, sizeof(*seconds), by_size);
	return seconds[rounds / 2];
}

static void print(const char *name, uint64_t bytes, size_t pieces, size_t launches, double seconds,
		  double copy_seconds, const char *of, double ratio)
{
	printf("{\"bench\":\"gpu\",\"device\":\"%s\",\"name\":\"%s\",\"bytes\":%" PRIu64
	       ",\"pieces\":%zu,\"launches\":%zu,\"gbps\":%.1f,\"yardstick_gbps\":%.1f,\"%s\":%.3f}\n",
	       facts.name, name, bytes, pieces, launches, (double)bytes / seconds / 1e9,
	       (double)bytes / copy_seconds / 1e9, of, ratio);
	fflush(stdout);
}

static void bench_job(const struct job *job)
{
	double packing[ROUNDS_MAX], copying[ROUNDS_MAX];
	struct table table = {.read = 0};
	bool fp8 = job->to == DTYPE_F8_E4M3;
	uint64_t copied;

	table_make(&table, job);
	copied = fp8 ? table.read / 2
		     : table.written; /* a copy of half of them moves as much as reading all */
	for (unsigned i = 0; i <= rounds; i++) {
		uint64_t begin = clock_ns();

		run_table(&table);
		packing[i ? i - 1 : 0] = since(begin);
		begin = clock_ns();
		MUST(calls->copy(targets, tensors, copied, NULL));
		copying[i ? i - 1 : 0] = since(begin);
	}
	double pack = median(packing), copy = median(copying);

	print(job->name, fp8 ? table.read : table.written, table.parts.count, 1, pack, copy,
	      fp8 ? "of_reading" : "of_copy", copy / pack);
	table_free(&table);
}

/* ---- down to the host ---- */

/* Pieces that lie one after the other in `targets`, and leave it as one copy. */
struct step {
	uint32_t first, count;
	uint64_t from, bytes;
};

static size_t steps_of(const struct table *table, struct step *steps)
{
	size_t count = 0;

	for (uint32_t i = 0; i < table->parts.count && count < STEPS_MAX; count++) {
		struct step *step = &steps[count];

		*step = (struct step){.first = i, .from = table->parts.items[i].target};
		for (; i < table->parts.count && step->bytes < STEP_BYTES; i++, step->count++)
			step->bytes = table->parts.items[i].target + table->parts.items[i].bytes -
				      step->from;
	}
	return count;
}

struct down {
	unsigned char *host; /* two halves, pinned */
	cuda_stream pack, copy;
	cuda_event packed[2], copied[2];
};

static void down_open(struct down *down)
{
	down->host = aligned_alloc(4096, 2 * HALF_BYTES);
	if (!down->host)
		exit(1);
	MUST(calls->host_register(down->host, 2 * HALF_BYTES));
	MUST(calls->stream_create(&down->pack));
	MUST(calls->stream_create(&down->copy));
	for (int h = 0; h < 2; h++) {
		MUST(calls->event_create(&down->packed[h]));
		MUST(calls->event_create(&down->copied[h]));
	}
}

static void down_close(struct down *down)
{
	for (int h = 0; h < 2; h++) {
		calls->event_destroy(down->packed[h]);
		calls->event_destroy(down->copied[h]);
	}
	calls->stream_destroy(down->pack);
	calls->stream_destroy(down->copy);
	calls->host_unregister(down->host);
	free(down->host);
}

/* A half is packed for again once its copy is complete, and copied once it is packed. */
static void down_step(struct down *down, const struct table *table, const struct step *step,
		      int half)
{
	struct pack_cuda_launch launch =
		pack_cuda_launch_of(table->parts.items, step->first, step->count,
				    table->device_parts, table->device_bases, 0);

	MUST(calls->stream_wait(down->pack, down->copied[half]));
	MUST(calls->launch(
		kernel,
		(struct cuda_dim){pack_cuda_blocks(&launch, facts.processors), PACK_CUDA_THREADS},
		&launch, down->pack));
	MUST(calls->event_record(down->packed[half], down->pack));
	MUST(calls->stream_wait(down->copy, down->packed[half]));
	MUST(calls->copy(at(down->host) + (uint64_t)half * HALF_BYTES, step->from, step->bytes,
			 down->copy));
	MUST(calls->event_record(down->copied[half], down->copy));
}

/* Column slices packed on the device while the copy engine brings down what was packed before, beside the same copies
 * alone. */
static void bench_down(void)
{
	double piped[ROUNDS_MAX], plain[ROUNDS_MAX];
	static struct step steps[STEPS_MAX];
	struct table table = {.read = 0};
	uint64_t bytes = 0;
	struct down down;
	size_t count;

	table_make(&table, &jobs[1]);
	count = steps_of(&table, steps);
	for (size_t s = 0; s < count; s++)
		bytes += steps[s].bytes;
	down_open(&down);
	for (unsigned i = 0; i <= rounds; i++) {
		uint64_t begin = clock_ns();

		for (size_t s = 0; s < count; s++)
			down_step(&down, &table, &steps[s], s % 2);
		MUST(calls->stream_synchronize(down.copy));
		piped[i ? i - 1 : 0] = since(begin);
		begin = clock_ns();
		for (size_t s = 0; s < count; s++)
			MUST(calls->copy(at(down.host) + s % 2 * HALF_BYTES, steps[s].from,
					 steps[s].bytes, down.copy));
		MUST(calls->stream_synchronize(down.copy));
		plain[i ? i - 1 : 0] = since(begin);
	}
	double pipe = median(piped), alone = median(plain);

	print("column slices, device to pinned ring, packed on the device", bytes,
	      table.parts.count, count, pipe, alone, "of_copy", alone / pipe);
	down_close(&down);
	table_free(&table);
}

static uint64_t number(int count, char **words, const char *name, uint64_t otherwise)
{
	for (int i = 1; i + 1 < count; i++)
		if (strcmp(words[i], name) == 0)
			return strtoull(words[i + 1], NULL, 10);
	return otherwise;
}

int main(int count, char **words)
{
	struct error error;
	size_t image_bytes;

	calls = cuda_calls();
	bytes_all = number(count, words, "--mib", 4096) << 20;
	rounds = (unsigned)number(count, words, "--rounds", rounds);
	if (bytes_all < (UINT64_C(192) << 20) || !rounds || rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: bench_gpu [--mib N (192 or more)] [--rounds N (1 to %d)]\n",
			ROUNDS_MAX);
		return 2;
	}
	if (cuda_ready(&error) || cuda_device_facts(0, &facts, &error) || cuda_enter(0, &error)) {
		fprintf(stderr, "bench_gpu: %s\n", error.text);
		return 1;
	}
	tensors = allocate(bytes_all);
	targets = allocate(bytes_all + (bytes_all >> 6));
	MUST(calls->fill(tensors, 0x3f, bytes_all, NULL));
	MUST(calls->fill(targets, 0, bytes_all, NULL));
	MUST(calls->load(&(struct cuda_image){pack_cuda_image(&image_bytes), PACK_CUDA_KERNEL_NAME},
			 &kernel));
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		bench_job(&jobs[i]);
	bench_down();
	calls->unload(kernel);
	calls->release(tensors);
	calls->release(targets);
	cuda_leave();
	return 0;
}
