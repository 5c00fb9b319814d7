/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_routing: how long planning takes, by number of pairs. One JSON object a line:
 *   bench_routing [LARGEST_PAIRS]          default 1,000,000
 * Jobs are 256 inference ranks (8 engines of 32) and 256 trainers in 8 stages; tensors are cut
 * by rows, by columns or not at all, as a model's are. Then two published jobs. Sharded jobs
 * have several routes a pair and stop at 10^6 pairs. Each line is from a process of its own, so
 * that its memory is its own; the job itself is part of that.
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/model.h"
#include "routing/report/summary.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

static double seconds(uint64_t from, uint64_t to)
{
	return (double)(to - from) / 1e9;
}

struct times {
	uint64_t begin, built, planned, proved, done;
};

static void print(const char *job, const char *policy, const struct summary *summary,
		  const struct times *wall, const struct times *cpu)
{
	struct rusage usage;
	struct json json;

	getrusage(RUSAGE_SELF, &usage);
	json_to_file(&json, stdout);
	json_put_object(&json);
	json_put_key_string(&json, "job", job);
	json_put_key_string(&json, "policy", policy);
	json_put_key_u64(&json, "routes", summary->routes);
	json_put_key_double(&json, "problem_seconds", seconds(wall->begin, wall->built));
	json_put_key_double(&json, "plan_and_proof_seconds", seconds(wall->built, wall->planned));
	json_put_key_double(&json, "proof_seconds", seconds(wall->planned, wall->proved));
	json_put_key_double(&json, "summary_seconds", seconds(wall->proved, wall->done));
	json_put_key_double(&json, "plan_proof_summary_seconds",
			    seconds(wall->built, wall->planned) +
				    seconds(wall->proved, wall->done));
	json_put_key_double(&json, "plan_proof_summary_cpu_seconds",
			    seconds(cpu->built, cpu->planned) + seconds(cpu->proved, cpu->done));
	json_put_key_double(&json, "gap", summary->gap);
	json_put_key_double(&json, "prepared_over_minimum",
			    (double)summary->prepared_bytes /
				    (double)summary->prepared_minimum_bytes);
	json_put_key_u64(&json, "largest_resident_bytes", (uint64_t)usage.ru_maxrss * 1024);
	json_put_object_end(&json);
	json_put_newline(&json);
	fflush(stdout);
}

static void stamp(uint64_t *wall, uint64_t *cpu)
{
	*wall = clock_ns();
	*cpu = cpu_ns();
}

static int measure(const char *job, const char *policy, const struct problem *problem,
		   struct times *wall, struct times *cpu, struct error *error)
{
	struct table *table;
	struct summary summary;

	stamp(&wall->built, &cpu->built);
	if (table_plan(&table, problem, policy_find(policy), NULL, error))
		return -1;
	stamp(&wall->planned, &cpu->planned);
	if (table_prove(table, error)) /* again, to time it alone */
		return -1;
	stamp(&wall->proved, &cpu->proved);
	if (summary_of(&summary, table, error))
		return -1;
	stamp(&wall->done, &cpu->done);
	print(job, policy, &summary, wall, cpu);
	summary_fini(&summary);
	table_free(&table);
	return 0;
}

static int measure_transformed(const char *source, uint64_t pairs, const char *policy,
			       struct error *error)
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
	struct times wall, cpu;
	struct problem *problem;
	char job[64];
	int rc;

	snprintf(job, sizeof(job), "%llu pairs, %s", (unsigned long long)pairs, source);
	stamp(&wall.begin, &cpu.begin);
	if (problem_build(&problem, &input, error))
		return -1;
	rc = measure(job, policy, problem, &wall, &cpu, error);
	problem_free(&problem);
	return rc;
}

static int measure_model(const char *name, const char *train, const char *infer, const char *policy,
			 struct error *error)
{
	struct problem_storage *storage = NULL;
	struct problem *problem = NULL;
	struct model *model = NULL;
	struct train_spec train_spec;
	struct infer_spec infer_spec;
	struct times wall, cpu;
	int rc = -1;

	stamp(&wall.begin, &cpu.begin);
	if (!train_spec_parse(&train_spec, train, error) &&
	    !infer_spec_parse(&infer_spec, infer, error) && !model_open(&model, name, error) &&
	    !problem_from_model(&problem, &storage, model, &train_spec, &infer_spec, true, error))
		rc = measure(name, policy, problem, &wall, &cpu, error);
	problem_free(&problem);
	problem_storage_free(&storage);
	model_close(&model);
	return rc;
}

/* In a child: its largest resident memory is then of this job and policy alone. Nonzero after
 * saying why. */
struct published {
	const char *name, *train, *infer;
};

static int apart(const struct published *row, const char *source, uint64_t pairs,
		 const char *policy)
{
	struct error error = {0};
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		int rc = row ? measure_model(row->name, row->train, row->infer, policy, &error)
			     : measure_transformed(source, pairs, policy, &error);

		if (rc)
			fprintf(stderr, "bench_routing: %s\n", error.text);
		_exit(rc ? 1 : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return -1;
	return status;
}

static const char *const policies[] = {"greedy", "round-robin", "lpt", "balanced"};

static int bench_transformed(uint64_t pairs, uint32_t shards, struct error *error)
{
	uint32_t tensors = (uint32_t)((pairs + RANKS - 1) / RANKS);
	int rc = make_holdings(tensors, shards, error);

	if (!rc)
		rc = make_layouts(tensors, error);
	for (size_t p = 0; !rc && p < ARRAY_SIZE(policies); p++)
		rc = apart(NULL, shards ? "8 shards" : "gathered", pairs, policies[p]);
	for (uint32_t s = 0; s < STAGES; s++)
		holding_fini(&holdings[s]);
	for (uint32_t r = 0; r < WIDTH; r++)
		layout_fini(&layouts[r]);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct published published[] = {
		{"Kimi-K2-block64", "world=256,pp=8",
		 "engines=8,tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1"},
		{"Qwen3-235B-A22B", "world=128,pp=4", "engines=2,tp=32,ep=32"},
	};
	uint64_t largest = 1000000;
	struct error error = {0};
	int rc = 0;

	if (argc > 2 || (argc == 2 && !parse_u64(argv[1], &largest))) {
		fprintf(stderr, "usage: bench_routing [LARGEST_PAIRS]\n");
		return 2;
	}
	for (uint64_t pairs = 1000; !rc && pairs <= largest; pairs *= 10) {
		rc = bench_transformed(pairs, 0, &error);
		if (!rc && pairs <= 1000000)
			rc = bench_transformed(pairs, 1, &error);
	}
	for (size_t r = 0; !rc && r < ARRAY_SIZE(published); r++)
		for (size_t p = 0; !rc && p < ARRAY_SIZE(policies); p++)
			rc = apart(&published[r], NULL, 0, policies[p]);
	if (rc && error.text[0])
		fprintf(stderr, "bench_routing: %s\n", error.text);
	return rc ? 1 : 0;
}
