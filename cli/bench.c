/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"

#include "cli/bench_write.h"
#include "cli/command.h"
#include "cli/children.h"
#include "base/copy.h"
#include "base/json_write.h"
#include "base/progress.h"
#include "base/text.h"
#include "model/model.h"
#include "routing/plan/order.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UPDATES_MAX 1000000u

static void print_header(const struct bench_options *options)
{
	printf("# weft bench update: %s, train %s, infer %s, transport %s, policy %s, order %s\n",
	       options->model, options->train_text, options->infer_text, options->transport,
	       options->policy, options->order);
	printf("# weft copies with %s; memcpy: the same bytes by as many processes, between updates\n",
	       copy_kernel_name());
	printf("#%7s %16s %10s %12s %12s %8s\n", "update", "bytes", "seconds", "GB/s",
	       "memcpy GB/s", "ratio");
}

static void print_round(const struct bench_options *options, uint32_t update, uint64_t bytes,
			double seconds, double memcpy_seconds)
{
	double rate = (double)bytes / seconds, memcpy_rate = (double)bytes / memcpy_seconds;
	struct json json;

	if (!options->json) {
		printf("%8u %16llu %10.4f %12.2f %12.2f %8.3f\n", update, (unsigned long long)bytes,
		       seconds, rate / 1e9, memcpy_rate / 1e9, rate / memcpy_rate);
	} else {
		json_put_line(&json, stdout);
		json_put_key_u64(&json, "update", update);
		json_put_key_u64(&json, "bytes", bytes);
		json_put_key_double(&json, "seconds", seconds);
		json_put_key_double(&json, "bytes_per_second", rate);
		json_put_key_double(&json, "memcpy_bytes_per_second", memcpy_rate);
		json_put_key_double(&json, "ratio", rate / memcpy_rate);
		json_put_line_end(&json);
	}
	fflush(stdout);
}

/* What the parent does while it waits. */
struct waiting {
	struct children *children;
	struct bench_shared *shared;
	struct bench_work *work; /* that progress is shown of; NULL: none */
	const char *what;	 /* it is */
	struct progress progress;
	bool begun;
};

/* Before its first byte a stage is still being prepared: opening memory, connecting. */
static void show(struct waiting *waiting)
{
	uint64_t total = atomic_load(&waiting->work->total);

	if (total && !waiting->begun) {
		progress_begin(&waiting->progress, waiting->what, total, false);
		waiting->begun = true;
	}
	waiting->progress.total_bytes = total;
	if (total)
		progress_at(&waiting->progress, atomic_load(&waiting->work->done));
}

static void watch(void *context)
{
	struct waiting *waiting = context;

	children_watch(waiting->children);
	if (waiting->work)
		show(waiting);
}

static bool gate(struct waiting *waiting)
{
	return bench_gate(waiting->shared, watch, waiting);
}

/* A gate that is long in coming says how far it is. */
static bool gate_after(struct waiting *waiting, enum bench_stage stage)
{
	static const char *const what[BENCH_STAGES] = {
		[BENCH_CONTENTS] = "making contents",
		[BENCH_OTHER_CONTENTS] = "making other contents for the last update",
		[BENCH_COMPARING] = "comparing every byte",
	};
	bool open;

	waiting->what = what[stage];
	waiting->begun = false;
	waiting->work = &waiting->shared->work[stage];
	open = gate(waiting);
	if (waiting->begun && waiting->progress.shown_ns != waiting->progress.begin_ns)
		progress_end(&waiting->progress, atomic_load(&waiting->work->done));
	waiting->work = NULL;
	return open;
}

/* Between this gate and the next one all processes do one thing: its seconds. */
static bool time_phase(struct waiting *waiting, double *seconds)
{
	uint64_t begin = atomic_load(&waiting->shared->opened_ns);
	bool open = gate(waiting);

	*seconds = (double)(atomic_load(&waiting->shared->last_done_ns) - begin) / 1e9;
	return open;
}

static bool run_rounds(struct bench_shared *shared, const struct bench_options *options,
		       struct children *children)
{
	struct waiting waiting = {.children = children, .shared = shared};
	uint32_t rounds = options->warmup + options->updates;

	for (uint32_t round = 0; round < rounds; round++) {
		double memcpy_seconds, seconds;

		if (!(round == 0	    ? gate_after(&waiting, BENCH_CONTENTS)
		      : round + 1 == rounds ? gate_after(&waiting, BENCH_OTHER_CONTENTS)
					    : gate(&waiting)))
			return false;
		if (!time_phase(&waiting, &memcpy_seconds) || !gate(&waiting) ||
		    !time_phase(&waiting, &seconds))
			return false;
		if (round == options->warmup && !options->json)
			print_header(options);
		if (round >= options->warmup)
			print_round(options, round - options->warmup + 1,
				    atomic_load(&shared->bytes), seconds, memcpy_seconds);
		if (!(round + 1 == rounds ? gate_after(&waiting, BENCH_COMPARING) : gate(&waiting)))
			return false;
	}
	return true;
}

static int first_failure(const struct bench_shared *shared, const struct children *children,
			 struct error *error)
{
	if (atomic_load(&shared->failing))
		return error_set(error, shared->failure.code, "%s", shared->failure.text);
	return error_set(error, ERROR_PEER_LOST, "a process of the benchmark ended with code %d%s",
			 children->worst,
			 children->worst == 128 + SIGKILL ? " (killed: was there enough memory? "
							    "--help says how much is needed)"
							  : "");
}

int bench_update_run(const struct bench_options *options, struct error *error)
{
	const char *controller[] = {"--job",	"bench",
				    "--train",	options->train_text,
				    "--infer",	options->infer_text,
				    "--policy", options->policy,
				    "--order",	options->order,
				    NULL};
	uint32_t workers = options->train.world + infer_ranks(&options->infer);
	struct children children;
	struct bench_shared *shared;
	int rc;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return error_set(error, ERROR_MEMORY, "no memory to share between the processes");
	shared->parties = workers + 1;
	rc = children_open(&children, workers + 1, &shared->aborted, error);
	if (rc == 0)
		rc = children_controller(&children, controller, shared->controller,
					 sizeof(shared->controller), error);
	for (uint32_t rank = 0; rc == 0 && rank < workers; rank++) {
		pid_t pid = children_fork(&children, error);

		if (pid == 0)
			_exit(bench_worker(shared, options, rank));
		if (pid < 0)
			rc = -(int)error->code;
	}
	if (rc == 0) {
		/* a failed process has said why; the others are ended by children_close */
		if (run_rounds(shared, options, &children))
			rc = children_wait(&children, error);
		else
			rc = first_failure(shared, &children, error);
		if (rc == 0 && !options->json) {
			char text[TEXT_SHORT_BYTES];

			printf("# verified after the last update: %s bytes equal\n",
			       grouped_text(atomic_load(&shared->work[BENCH_COMPARING].done),
					    text));
			printf("# pieces of all updates: %llu straight from the tensors, %llu packed "
			       "into mapped targets, %llu packed into the replica\n",
			       (unsigned long long)atomic_load(&shared->direct),
			       (unsigned long long)atomic_load(&shared->mapped),
			       (unsigned long long)atomic_load(&shared->packed));
		}
	}
	children_close(&children);
	munmap(shared, sizeof(*shared));
	return rc;
}

static int run(void *taken, struct error *error)
{
	struct bench_options *options = taken;
	const struct policy *policy;
	const struct order *order;
	struct model *model = NULL;
	int rc = model_open(&model, options->model, error); /* before processes start for it */

	model_close(&model);
	if (rc == 0)
		rc = train_spec_parse(&options->train, options->train_text, error);
	if (rc == 0)
		rc = infer_spec_parse(&options->infer, options->infer_text, error);
	if (rc == 0)
		rc = policy_named(&policy, "--policy", options->policy, error);
	if (rc == 0)
		rc = order_named(&order, "--order", options->order, error);
	return rc ? rc : bench_update_run(options, error);
}

#define AT(member) .offset = offsetof(struct bench_options, member)
static const struct verb_option rows[] = {
	{"model", 'm', "NAME",
	 "a built-in model, or a folder or config.json written with a '/' (default Qwen2.5-0.5B)",
	 VERB_TEXT, AT(model)},
	{"train", 't', "SPEC", "trainers (default world=4,source=gathered)", VERB_TEXT,
	 AT(train_text)},
	{"infer", 'i', "SPEC", "inference ranks (default engines=2,tp=2; all keys: docs/models.md)",
	 VERB_TEXT, AT(infer_text)},
	{"transport", 'T', "NAME", "a requirement (default shm)", VERB_TEXT, AT(transport)},
	{"policy", 0, "NAME",
	 "who sends what (default " POLICY_DEFAULT "; `weft route plan --help` lists all)",
	 VERB_TEXT, AT(policy)},
	{"order", 0, "NAME",
	 "in which order each trainer sends (default " ORDER_DEFAULT "; listed there too)",
	 VERB_TEXT, AT(order)},
	{"updates", 'n', "N", "timed updates (default 5)", VERB_COUNT32, AT(updates), .least = 1,
	 .most = UPDATES_MAX},
	{"warmup", 0, "N", "untimed updates first (default 2)", VERB_COUNT32, AT(warmup),
	 .most = UPDATES_MAX},
	{"checksums", 0, NULL, "sum every piece and verify at the target", VERB_FLAG,
	 AT(checksums)},
	{"register-sources", 0, NULL,
	 "register the trainers' tensors, so that verbs sends from there instead of from its ring",
	 VERB_FLAG, AT(register_sources)},
	{"replica", 0, "FORM", "of the trainers: ring (default), or full (docs/replica.md)",
	 VERB_TEXT, AT(replica)},
	{"pack-threads", 0, "N",
	 "that pack in each trainer, 1 to 64 (default: a thread a processor, at most 4)",
	 VERB_COUNT32, AT(pack_threads), .least = 1, .most = 64},
	{"own-memory", 0, NULL,
	 "targets in ordinary process memory (shm: process_vm_writev) instead of weft's allocator",
	 VERB_FLAG, AT(own_memory)},
	{"nic", 'd', "NICS", "of the trainers (verbs): rxe0, or per rank 0=mlx5_0,1=mlx5_1",
	 VERB_TEXT, AT(nic)},
	{"infer-nic", 0, "NICS", "of the inference ranks (default: as --nic)", VERB_TEXT,
	 AT(infer_nic)},
	{"json", 0, NULL, "one object a line", VERB_FLAG, AT(json)},
	{0},
};

static const struct verb update_verb = {
	VERB_OF(struct bench_options, rows),
	.defaults = &(const struct bench_options){.model = "Qwen2.5-0.5B",
						  .train_text = "world=4,source=gathered",
						  .infer_text = "engines=2,tp=2",
						  .transport = "shm",
						  .policy = POLICY_DEFAULT,
						  .order = ORDER_DEFAULT,
						  .updates = 5,
						  .warmup = 2},
	.too_many = "'%s' is not an option",
	.doc = "Times whole updates between processes of this machine, steady state, beside a memcpy "
	       "of the same bytes by the same number of processes.\v"
	       "Contents are made in memory: no checkpoint is read. After the last update, whose "
	       "contents differ from all before, every byte that arrived is compared. It needs memory "
	       "for up to three times the bytes of an update (tensors, parameters, the memcpy's "
	       "target), with --replica full up to four. seconds: from the moment all processes stand "
	       "ready to the last rank's publication; ratio: of both rates, above 1 the update is the "
	       "faster one (docs/benchmarks.md).",
	.run = run,
};

const struct command bench_commands[] = {
	{"bench", "update", "time whole updates beside memcpy", &update_verb},
	{"bench", "write", "one-sided writes into another process or host", &bench_write_verb},
	{0},
};
