/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_pack: how fast pieces are packed. One JSON object a line:
 *   bench_pack [--mib 512] [--rounds 5] [--threads N] [--kernel avx512|avx2|portable] [WORD]
 * Only jobs with WORD in their name, when given; 1 and 2 threads unless told. Column slices are
 * measured twice, each on its own and all of a tensor together ("together: ", "lanes").
 *
 * A job is one tensor of a published model and the piece that a rank takes of it, in a source of
 * --mib full of such tensors. A round packs every rank's piece of all tensors, rank by rank, so
 * that nothing is in the cache when its turn comes, and takes turns with the yardstick over the
 * same memory: memcpy() of the same bytes in pieces of the same size, or, for what is quantised,
 * reading them once. What the memory itself allows for rows that lie apart is measured beside it:
 * of_lines is the time to read the cache lines of the same pieces, and no more, over that to pack
 * them. Ratios are medians over the rounds. Seconds are those of the processor, the
 * slowest thread's: on a busy machine the wall clock also counts the others.
 */
#include "base/array.h"
#include "base/copy.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "pack/pack.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 64, ROUNDS_MAX = 99, SLICES_MAX = 64 };

struct job {
	const char *name;
	uint64_t rows, columns; /* of the tensor */
	uint32_t row_slices, column_slices;
	enum dtype from, to;
	struct transform transform;
};

static const struct job jobs[] = {
	{"rows: Qwen3-30B-A3B expert gate_proj", 768, 2048, 1, 1, DTYPE_BF16, DTYPE_BF16, {0}},
	{"rows: Qwen3-30B-A3B k_proj tp8", 512, 2048, 4, 1, DTYPE_BF16, DTYPE_BF16, {0}},
	{"rows: GLM-Z1-9B gate_proj tp4", 13696, 4096, 4, 1, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Qwen2.5-0.5B o_proj tp2", 896, 896, 1, 2, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Qwen2.5-0.5B down_proj tp2", 896, 4864, 1, 2, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Qwen3-30B-A3B o_proj tp8", 2048, 4096, 1, 8, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Qwen3-235B-A22B o_proj tp32", 4096, 8192, 1, 32, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: GLM-Z1-9B o_proj tp4", 4096, 4096, 1, 4, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: GLM-Z1-9B down_proj tp4", 4096, 13696, 1, 4, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Moonlight o_proj tp8", 2048, 2048, 1, 8, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Moonlight w2 tp8", 2048, 1408, 1, 8, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Qwen3-30B-A3B w2 tp8", 2048, 768, 1, 8, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: Moonlight shared down_proj tp8", 2048, 2816, 1, 8, DTYPE_BF16, DTYPE_BF16, {0}},
	{"columns: DeepSeek-V3 o_proj tp16", 7168, 16384, 1, 16, DTYPE_F8_E4M3, DTYPE_F8_E4M3, {0}},
	{"columns: DeepSeek-V3 down_proj tp16",
	 7168,
	 18432,
	 1,
	 16,
	 DTYPE_F8_E4M3,
	 DTYPE_F8_E4M3,
	 {0}},
	{"columns: DeepSeek-V3 w2 tp8", 7168, 2048, 1, 8, DTYPE_F8_E4M3, DTYPE_F8_E4M3, {0}},
	{"columns: Kimi-K2 shared down_proj tp32",
	 7168,
	 2048,
	 1,
	 32,
	 DTYPE_F8_E4M3,
	 DTYPE_F8_E4M3,
	 {0}},
	{"convert: BF16 to F32", 4096, 4096, 1, 1, DTYPE_BF16, DTYPE_F32, {0}},
	{"convert: F32 to BF16", 4096, 4096, 1, 1, DTYPE_F32, DTYPE_BF16, {0}},
	{"convert: F32 to F16", 4096, 4096, 1, 1, DTYPE_F32, DTYPE_F16, {0}},
	{"convert: F16 to BF16", 4096, 4096, 1, 1, DTYPE_F16, DTYPE_BF16, {0}},
	{"convert: BF16 to F16, columns of tp4", 4096, 4096, 1, 4, DTYPE_BF16, DTYPE_F16, {0}},
	{"dequantise: 128x128 to BF16",
	 7168,
	 2048,
	 1,
	 1,
	 DTYPE_F8_E4M3,
	 DTYPE_BF16,
	 {.from_rows = 128, .from_columns = 128}},
	{"quantise: BF16 to 128x128, w2",
	 7168,
	 2048,
	 1,
	 1,
	 DTYPE_BF16,
	 DTYPE_F8_E4M3,
	 {.to_rows = 128, .to_columns = 128}},
	{"quantise: BF16 to 128x128, gate_proj",
	 2048,
	 7168,
	 1,
	 1,
	 DTYPE_BF16,
	 DTYPE_F8_E4M3,
	 {.to_rows = 128, .to_columns = 128}},
	{"quantise: BF16 to 128x128, o_proj tp16",
	 7168,
	 16384,
	 1,
	 16,
	 DTYPE_BF16,
	 DTYPE_F8_E4M3,
	 {.to_rows = 128, .to_columns = 128}},
	{"quantise: F32 to 128x128, gate_proj",
	 2048,
	 7168,
	 1,
	 1,
	 DTYPE_F32,
	 DTYPE_F8_E4M3,
	 {.to_rows = 128, .to_columns = 128}},
	{"quantise: BF16 to 128x128, scales",
	 2048,
	 7168,
	 1,
	 1,
	 DTYPE_BF16,
	 DTYPE_F32,
	 {.part = TRANSFORM_SCALES, .to_rows = 128, .to_columns = 128}},
	{"requantise: 128x128 to 64x64",
	 2048,
	 7168,
	 1,
	 1,
	 DTYPE_F8_E4M3,
	 DTYPE_F8_E4M3,
	 {.from_rows = 128, .from_columns = 128, .to_rows = 64, .to_columns = 64}},
};

enum way { WAY_YARDSTICK, WAY_LINES, WAY_PACK, WAY_SUMMED, WAY_COUNT };

/* One job with its memory. */
struct bench {
	const struct job *job;
	struct pack packs[SLICES_MAX];
	uint32_t slices, threads;
	uint32_t group; /* packed together: all slices of a tensor, or each on its own */
	uint64_t tensors, tensor_bytes, piece_source_bytes;
	unsigned char *source, *target;
	float *scales;
};

struct worker {
	const struct bench *bench;
	enum way way;
	uint32_t index;
	double seconds;
	uint64_t seen; /* so that nothing is optimised away */
};

typedef uint64_t vector __attribute__((vector_size(64), aligned(64)));

static uint64_t read_once(const unsigned char *data, uint64_t bytes)
{
	vector a = {0}, b = {0}, c = {0}, d = {0};

	for (uint64_t i = 0; i + 256 <= bytes; i += 256) {
		a += *(const vector *)(const void *)(data + i);
		b += *(const vector *)(const void *)(data + i + 64);
		c += *(const vector *)(const void *)(data + i + 128);
		d += *(const vector *)(const void *)(data + i + 192);
	}
	a = a + b + c + d;
	return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
}

static bool in_blocks(const struct job *job)
{
	return job->transform.to_rows || job->transform.from_rows;
}

/* The yardstick: the k-th run of a piece's bytes. A conversion moves (source + target) / 2. */
static void yardstick(struct worker *worker, uint64_t k)
{
	const struct bench *bench = worker->bench;
	uint64_t source = bench->piece_source_bytes, target = bench->packs[0].bytes;

	if (in_blocks(bench->job))
		worker->seen += read_once(bench->source + k * source, source);
	else
		memcpy(bench->target + k * (source + target) / 2,
		       bench->source + k * (source + target) / 2, (source + target) / 2);
}

/* The lines that the piece of rank `slice` lies in: a word of each is as slow as all of it. */
static void read_lines(struct worker *worker, uint64_t slice, uint64_t tensor)
{
	const struct bench *bench = worker->bench;
	const struct runs *runs = &bench->packs[slice].runs;
	const unsigned char *first = bench->source + tensor * bench->tensor_bytes + runs->offset;
	uint64_t sum = 0;

	for (uint64_t row = 0; row < runs->rows; row++, first += runs->stride_bytes) {
		const unsigned char *line = first - (uintptr_t)first % 64;

		for (; line < first + runs->row_bytes; line += 64)
			sum += *(const uint64_t *)(const void *)line;
	}
	worker->seen += sum;
}

/* The pieces of a tensor from `slice` on that are packed together, or the one. */
static void pack_some(struct worker *worker, uint64_t slice, uint64_t tensor)
{
	const struct bench *bench = worker->bench;
	struct pack_column together[SLICES_MAX];
	void *targets[SLICES_MAX];
	uint64_t sums[SLICES_MAX] = {0};

	for (uint32_t i = 0; i < bench->group; i++) {
		const struct pack *pack = &bench->packs[slice + i];

		targets[i] = bench->target + ((slice + i) * bench->tensors + tensor) * pack->bytes;
		together[i].pack = pack;
		together[i].part = (struct pack_part){
			.data = bench->source + tensor * bench->tensor_bytes,
			.scales = bench->scales,
			.bytes = pack->bytes,
			.targets = &targets[i],
			.target_count = 1,
			.sum = worker->way == WAY_SUMMED ? &sums[i] : NULL,
		};
	}
	if (bench->group > 1)
		pack_run_columns(together, bench->group);
	else
		pack_run(together[0].pack, &together[0].part);
	for (uint32_t i = 0; i < bench->group; i++)
		worker->seen += sums[i];
}

static double thread_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	const struct bench *bench = worker->bench;
	bool packs = worker->way == WAY_PACK || worker->way == WAY_SUMMED;
	uint64_t turns = bench->slices / (packs ? bench->group : 1) * bench->tensors;
	double begin = thread_seconds();

	for (uint64_t k = worker->index; k < turns; k += bench->threads) {
		if (worker->way == WAY_YARDSTICK)
			yardstick(worker, k);
		else if (worker->way == WAY_LINES)
			read_lines(worker, k / bench->tensors, k % bench->tensors);
		else
			pack_some(worker, k / bench->tensors, k % bench->tensors);
	}
	copy_fence();
	worker->seconds = thread_seconds() - begin;
	return NULL;
}

static double run(const struct bench *bench, enum way way)
{
	static volatile uint64_t seen;
	struct worker workers[THREADS_MAX];
	pthread_t threads[THREADS_MAX];
	double seconds = 0;

	for (uint32_t i = 0; i < bench->threads; i++) {
		workers[i] = (struct worker){.bench = bench, .way = way, .index = i};
		if (pthread_create(&threads[i], NULL, work, &workers[i])) {
			fprintf(stderr, "bench_pack: no thread\n");
			exit(1);
		}
	}
	for (uint32_t i = 0; i < bench->threads; i++) {
		pthread_join(threads[i], NULL);
		seconds = workers[i].seconds > seconds ? workers[i].seconds : seconds;
		seen += workers[i].seen;
	}
	return seconds;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare);
	return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void measure(const struct bench *bench, uint32_t rounds)
{
	double seconds[WAY_COUNT][ROUNDS_MAX], ratio[ROUNDS_MAX], summed[ROUNDS_MAX];
	double lines[ROUNDS_MAX];
	double bytes = (double)(bench->slices * bench->tensors * bench->piece_source_bytes);
	char name[96];
	struct json json;

	for (uint32_t round = 0; round <= rounds; round++) /* the first one only warms up */
		for (int way = 0; way < WAY_COUNT; way++)
			seconds[way][round ? round - 1 : 0] = run(bench, (enum way)way);
	for (uint32_t round = 0; round < rounds; round++) {
		ratio[round] = seconds[WAY_YARDSTICK][round] / seconds[WAY_PACK][round];
		lines[round] = seconds[WAY_LINES][round] / seconds[WAY_PACK][round];
		summed[round] = seconds[WAY_PACK][round] / seconds[WAY_SUMMED][round];
	}
	json_to_file(&json, stdout);
	json_put_object(&json);
	snprintf(name, sizeof(name), "%s%s", bench->group > 1 ? "together: " : "",
		 bench->job->name);
	json_put_key_string(&json, "job", name);
	json_put_key_string(&json, "kernel", pack_kernel_name());
	json_put_key_u64(&json, "threads", bench->threads);
	json_put_key_u64(&json, "piece_bytes", bench->packs[0].bytes);
	json_put_key_u64(&json, "lanes", bench->group);
	json_put_key_u64(&json, "row_bytes", bench->packs[0].runs.row_bytes);
	json_put_key_string(&json, "yardstick", in_blocks(bench->job) ? "read" : "memcpy");
	json_put_key_double(&json, "ratio", median(ratio, rounds));
	json_put_key_double(&json, "summed_over_unsummed", median(summed, rounds));
	json_put_key_double(&json, "of_lines", median(lines, rounds));
	json_put_key_double(&json, "lines_gb_per_second",
			    bytes / 1e9 / median(seconds[WAY_LINES], rounds));
	json_put_key_double(&json, "yardstick_gb_per_second",
			    bytes / 1e9 / median(seconds[WAY_YARDSTICK], rounds));
	json_put_key_double(&json, "gb_per_second",
			    bytes / 1e9 / median(seconds[WAY_PACK], rounds));
	json_put_key_double(&json, "summed_gb_per_second",
			    bytes / 1e9 / median(seconds[WAY_SUMMED], rounds));
	json_put_object_end(&json);
	json_put_newline(&json);
	fflush(stdout);
}

/* The piece of rank `slice`, and how many tensors the memory holds. */
static int prepare(struct bench *bench, const struct job *job, uint64_t bytes, struct error *error)
{
	uint64_t target_bytes = 0;

	bench->job = job;
	bench->slices = job->row_slices * job->column_slices;
	bench->tensor_bytes = job->rows * job->columns * dtype_bytes(job->from);
	bench->piece_source_bytes = bench->tensor_bytes / bench->slices;
	for (uint32_t s = 0; s < bench->slices; s++) {
		uint64_t rows = job->rows / job->row_slices;
		uint64_t columns = job->columns / job->column_slices;
		uint64_t row = s / job->column_slices * rows;
		uint64_t column = s % job->column_slices * columns;
		struct pack_source source = {
			.from = job->from,
			.to = job->to,
			.dims = 2,
			.shape = {job->rows, job->columns},
			.src = {2, {row, column}, {row + rows, column + columns}},
			.held_hi = job->rows,
			.transform = job->transform,
		};

		if (job->transform.from_rows)
			source.scales_hi = (job->rows + job->transform.from_rows - 1) /
					   job->transform.from_rows;
		if (pack_init(&bench->packs[s], &source, error))
			return -1;
		target_bytes += bench->packs[s].bytes;
	}
	bench->tensors =
		bytes / (target_bytes > bench->tensor_bytes ? target_bytes : bench->tensor_bytes);
	if (bench->tensors == 0)
		return error_set(error, ERROR_USAGE, "--mib is too small for %s", job->name);
	return 0;
}

/* Small numbers of every type: no value of any dtype here is special. */
static void fill(struct bench *bench, uint64_t bytes, enum dtype from)
{
	uint64_t random = 1;

	for (uint64_t i = 0; i < bytes / 2; i++) {
		uint16_t word;

		random = random * 6364136223846793005u + 1442695040888963407u;
		word = (uint16_t)(random >> 48);
		if (from == DTYPE_BF16 || (from == DTYPE_F32 && i % 2))
			word = (uint16_t)((word & 0x83ff) | 0x3c00);
		else if (from == DTYPE_F16)
			word = (uint16_t)((word & 0x8fff) | 0x2000);
		else if (from == DTYPE_F8_E4M3)
			word &= 0xbfbf;
		memcpy(bench->source + i * 2, &word, 2);
	}
}

/* Every slice on its own; and all of a tensor together, where that is another thing. */
static void measure_job(struct bench *bench, uint32_t threads, uint32_t rounds)
{
	bench->threads = threads;
	bench->group = 1;
	measure(bench, rounds);
	bench->group = bench->slices;
	if (bench->group > 1 && pack_can_copack(&bench->packs[0], &bench->packs[1]))
		measure(bench, rounds);
}

struct options {
	uint64_t mib, rounds, threads;
	const char *word;
};

static bool take_options(struct options *options, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--mib") == 0 && parse_u64(value, &options->mib))
			i++;
		else if (strcmp(argv[i], "--rounds") == 0 && parse_u64(value, &options->rounds))
			i++;
		else if (strcmp(argv[i], "--threads") == 0 && parse_u64(value, &options->threads))
			i++;
		else if (strcmp(argv[i], "--kernel") == 0 && pack_kernel_use(value))
			i++;
		else if (argv[i][0] != '-' && !options->word)
			options->word = argv[i];
		else
			return false;
	}
	return options->mib && options->rounds && options->rounds <= ROUNDS_MAX - 1 &&
	       options->threads <= THREADS_MAX;
}

int main(int argc, char **argv)
{
	struct options options = {.mib = 512, .rounds = 5};
	static struct bench bench;
	enum dtype filled = DTYPE_NONE;
	struct error error = {0};
	uint64_t bytes;

	if (!take_options(&options, argc, argv)) {
		fprintf(stderr, "usage: bench_pack [--mib 512] [--rounds 5] [--threads N] "
				"[--kernel NAME] [WORD]\n");
		return 2;
	}
	bytes = options.mib << 20;
	bench.source = memory_aligned(4096, bytes);
	bench.target = memory_aligned(4096, bytes);
	bench.scales = memory_alloc(1 << 20);
	if (!bench.source || !bench.target || !bench.scales) {
		fprintf(stderr, "bench_pack: no memory\n");
		return 1;
	}
	memset(bench.target, 1, bytes);
	for (size_t i = 0; i < (1 << 20) / sizeof(float); i++)
		bench.scales[i] = 1.0f / (float)(1 + i % 64);
	for (size_t j = 0; j < ARRAY_SIZE(jobs); j++) {
		if (options.word && !strstr(jobs[j].name, options.word))
			continue;
		if (prepare(&bench, &jobs[j], bytes, &error)) {
			fprintf(stderr, "bench_pack: %s\n", error.text);
			return 1;
		}
		if (filled != jobs[j].from)
			fill(&bench, bytes, filled = jobs[j].from);
		if (options.threads) {
			measure_job(&bench, (uint32_t)options.threads, (uint32_t)options.rounds);
			continue;
		}
		for (uint32_t threads = 1; threads <= 2; threads++)
			measure_job(&bench, threads, (uint32_t)options.rounds);
	}
	memory_free(bench.source);
	memory_free(bench.target);
	memory_free(bench.scales);
	return 0;
}
