/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_routing: how long planning takes, by number of pairs. One JSON object a line:
 *   bench_routing [LARGEST_PAIRS]          default 1,000,000
 * Jobs are 256 inference ranks (8 engines of 32) and 256 trainers in 8 stages; tensors are cut
 * by rows, by columns or not at all, as a model's are.
 */
#include "common/clock.h"
#include "common/json_write.h"
#include "common/memory.h"
#include "common/text.h"
#include "routing/summary.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>

enum { TRAINERS = 256, STAGES = 8, ENGINES = 8, WIDTH = 32, RANKS = ENGINES * WIDTH };

static struct holding holdings[STAGES];
static struct layout layouts[WIDTH];
static const struct holding *trainers[TRAINERS];
static const struct layout *inference[RANKS];
static struct digest trainer_digests[TRAINERS], inference_digests[RANKS];
static uint32_t stages[TRAINERS];

static int make_holdings(uint32_t tensors, uint32_t shards, struct error *error)
{
	for (uint32_t s = 0; s < STAGES; s++)
		holding_init(&holdings[s]);
	for (uint32_t t = 0; t < tensors; t++) {
		uint64_t shape[2] = {1024 + t % 7 * 512, 2048};
		/* gathered: a stage has whole tensors; sharded: all have rows of all */
		uint32_t first = shards ? 0 : (uint32_t)((uint64_t)t * STAGES / tensors);
		uint32_t last = shards ? STAGES - 1 : first;
		char name[64];

		snprintf(name, sizeof(name), "model.layers.%u.part.%u.weight", t / 12, t % 12);
		for (uint32_t s = first; s <= last; s++) {
			struct box box = box_whole(2, shape);
			int64_t index = holding_add_tensor(&holdings[s], name, DTYPE_BF16, 2, shape,
							   t, error);

			if (shards) {
				box.lo[0] = shape[0] / STAGES * s;
				box.hi[0] = shape[0] / STAGES * (s + 1);
			}
			if (index < 0 || holding_add(&holdings[s], (uint32_t)index, &box, error))
				return -1;
		}
	}
	for (uint32_t s = 0; s < STAGES; s++)
		if (holding_finish(&holdings[s], error))
			return -1;
	for (uint32_t t = 0; t < TRAINERS; t++) {
		stages[t] = t / (TRAINERS / STAGES);
		trainers[t] = &holdings[stages[t]];
		trainer_digests[t] = t % (TRAINERS / STAGES) ? trainer_digests[t - 1]
							     : holding_digest(&holdings[stages[t]]);
	}
	return 0;
}

static int make_layouts(uint32_t tensors, struct error *error)
{
	for (uint32_t r = 0; r < WIDTH; r++) {
		layout_init(&layouts[r]);
		for (uint32_t t = 0; t < tensors; t++) {
			uint64_t shape[2] = {1024 + t % 7 * 512, 2048}, own[2];
			struct piece piece = {.src = box_whole(2, shape)};
			uint32_t d = t % 3; /* rows, columns, whole */
			char name[64];

			snprintf(name, sizeof(name), "model.layers.%u.part.%u.weight", t / 12,
				 t % 12);
			if (d < 2) {
				piece.src.lo[d] = shape[d] / WIDTH * r;
				piece.src.hi[d] = shape[d] / WIDTH * (r + 1);
			}
			for (int k = 0; k < 2; k++)
				own[k] = piece.src.hi[k] - piece.src.lo[k];
			piece.bytes = own[0] * own[1] * 2;
			int64_t tensor =
				layout_add_tensor(&layouts[r], name, DTYPE_BF16, 2, shape, error);
			int64_t param =
				layout_add_param(&layouts[r], name, DTYPE_BF16, 2, own, error);

			if (tensor < 0 || param < 0)
				return -1;
			piece.tensor = (uint32_t)tensor;
			piece.param = (uint32_t)param;
			if (layout_add_piece(&layouts[r], &piece, error))
				return -1;
		}
		if (layout_finish(&layouts[r], error))
			return -1;
	}
	for (uint32_t i = 0; i < RANKS; i++) {
		inference[i] = &layouts[i % WIDTH];
		inference_digests[i] =
			i < WIDTH ? layout_digest(&layouts[i]) : inference_digests[i - WIDTH];
	}
	return 0;
}

/* Of this process alone: on a busy machine the wall clock also counts the others. */
static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int measure(const char *source, uint64_t pairs, const char *policy, struct error *error)
{
	struct problem_input input = {
		.model = "bench",
		.train = source,
		.infer = "engines=8,tp=32",
		.ranks_per_engine = WIDTH,
		.trainers = trainers,
		.trainer_digests = trainer_digests,
		.trainer_stages = stages,
		.trainer_count = TRAINERS,
		.inference = inference,
		.inference_digests = inference_digests,
		.inference_count = RANKS,
	};
	struct problem *problem;
	struct table *table;
	struct summary summary;
	struct rusage usage;
	struct json json;
	uint64_t begin = clock_ns(), built, planned, proved, done, cpu;

	if (problem_build(&problem, &input, error))
		return -1;
	built = clock_ns();
	cpu = cpu_ns();
	if (table_plan(&table, problem, policy_find(policy), NULL, error))
		return -1;
	planned = clock_ns();
	cpu = cpu_ns() - cpu;
	if (table_prove(table, error)) /* again, to time it alone */
		return -1;
	proved = clock_ns();
	if (summary_of(&summary, table, error))
		return -1;
	done = clock_ns();
	getrusage(RUSAGE_SELF, &usage);
	json_to_file(&json, stdout);
	json_put_object(&json);
	json_put_key_string(&json, "source", source);
	json_put_key_string(&json, "policy", policy);
	json_put_key_u64(&json, "pairs", pairs);
	json_put_key_u64(&json, "routes", summary.routes);
	json_put_key_double(&json, "problem_seconds", (double)(built - begin) / 1e9);
	json_put_key_double(&json, "plan_and_proof_seconds", (double)(planned - built) / 1e9);
	json_put_key_double(&json, "plan_and_proof_cpu_seconds", (double)cpu / 1e9);
	json_put_key_double(&json, "proof_seconds", (double)(proved - planned) / 1e9);
	json_put_key_double(&json, "summary_seconds", (double)(done - proved) / 1e9);
	json_put_key_double(&json, "plan_proof_summary_seconds",
			    (double)(planned - built + done - proved) / 1e9);
	json_put_key_double(&json, "gap", summary.gap);
	json_put_key_u64(&json, "largest_resident_bytes", (uint64_t)usage.ru_maxrss * 1024);
	json_put_object_end(&json);
	json_put_newline(&json);
	fflush(stdout);
	summary_fini(&summary);
	table_free(&table);
	problem_free(&problem);
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t largest = 1000000;
	struct error error = {0};
	int rc = 0;

	if (argc > 2 || (argc == 2 && !parse_u64(argv[1], &largest))) {
		fprintf(stderr, "usage: bench_routing [LARGEST_PAIRS]\n");
		return 2;
	}
	for (uint64_t pairs = 1000; !rc && pairs <= largest; pairs *= 10) {
		uint32_t tensors = (uint32_t)((pairs + RANKS - 1) / RANKS);

		for (uint32_t shards = 0; !rc && shards < 2; shards++) {
			const char *source = shards ? "sharded" : "gathered";

			rc = make_holdings(tensors, shards, &error);
			if (!rc)
				rc = make_layouts(tensors, &error);
			if (!rc)
				rc = measure(source, pairs, "greedy", &error);
			if (!rc)
				rc = measure(source, pairs, "round-robin", &error);
			for (uint32_t s = 0; s < STAGES; s++)
				holding_fini(&holdings[s]);
			for (uint32_t r = 0; r < WIDTH; r++)
				layout_fini(&layouts[r]);
		}
	}
	if (rc)
		fprintf(stderr, "bench_routing: %s\n", error.text);
	return rc ? 1 : 0;
}
