/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench.h"

#include "cli/bench_copy.h"
#include "cli/bench_judge.h"
#include "cli/bench_measured.h"
#include "cli/bench_report.h"
#include "cli/bench_write.h"
#include "cli/children.h"
#include "base/progress.h"
#include "model/model.h"
#include "routing/plan/order.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define UPDATES_MAX 1000000u

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

/* One round, from the gate before its copy to that before the next one; false: a process failed. */
static bool run_round(struct waiting *waiting, const struct bench_options *options,
		      struct bench_copy *copy, uint32_t number, struct bench_round *round,
		      struct error *error)
{
	struct bench_shared *shared = waiting->shared;
	uint32_t last = options->warmup + options->updates - 1;
	double before, after;

	if (!(number == 0      ? gate_after(waiting, BENCH_CONTENTS)
	      : number == last ? gate_after(waiting, BENCH_OTHER_CONTENTS)
			       : gate(waiting)))
		return false;
	round->bytes = atomic_load(&shared->bytes);
	if (!options->memory && !copy->source &&
	    bench_copy_open(copy, round->bytes, options->train.world, options->pack_threads, error))
		return false;
	round->copy = options->memory ? 0 : bench_copy_run(copy);
	if (!gate(waiting) || !time_phase(waiting, &before) ||
	    !time_phase(waiting, &round->seconds) || !time_phase(waiting, &after))
		return false;
	round->rate = (double)round->bytes / round->seconds;
	round->memcpy_before = (double)round->bytes / before;
	round->memcpy_after = (double)round->bytes / after;
	if (options->memory) /* the processor's copy says nothing of a GPU's memory */
		round->copy = round->memcpy_before;
	return number == last ? gate_after(waiting, BENCH_COMPARING) : gate(waiting);
}

static int run_rounds(struct bench_shared *shared, const struct bench_options *options,
		      struct children *children, uint32_t *disturbed, struct error *error)
{
	struct waiting waiting = {.children = children, .shared = shared};
	struct bench_copy copy = {0};
	struct bench_judge judge = {0};
	struct grid grid = {0};
	bool good = true;

	error->code = ERROR_NONE;
	for (uint32_t i = 0; good && i < options->warmup + options->updates; i++) {
		struct bench_round round = {0};

		if (i < options->warmup)
			progress_step("%s %u of %u, to warm up",
				      i ? "update" : "making contents, then update", i + 1,
				      options->warmup);
		else
			progress_step("%s %u of %u", i ? "update" : "making contents, then update",
				      i - options->warmup + 1, options->updates);
		good = run_round(&waiting, options, &copy, i, &round, error);
		progress_steps_end();
		if (!good)
			break;
		round.disturbed = bench_disturbed(&judge, round.memcpy_before, round.memcpy_after);
		if (i < options->warmup)
			continue;
		round.update = i - options->warmup + 1;
		*disturbed += round.disturbed;
		if (i == options->warmup)
			bench_report_header(&grid, options, copy.threads);
		bench_report_round(&grid, options, &round);
	}
	grid_end(&grid);
	bench_copy_close(&copy);
	if (good)
		return 0;
	return error->code ? -(int)error->code : first_failure(shared, children, error);
}

int bench_update_run(const struct bench_options *options, struct error *error)
{
	const char *controller[] = {"--job",	"bench",
				    "--train",	options->train_text,
				    "--infer",	options->infer_text,
				    "--policy", options->policy,
				    "--order",	options->order,
				    NULL,	NULL,
				    NULL};
	char *plan = NULL;
	uint32_t workers = options->train.world + infer_ranks(&options->infer), disturbed = 0;
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
		rc = bench_measured_open(shared, options, error);
	if (rc == 0 && options->report) {
		plan = bench_measured_plan(options);
		controller[10] = "--dump";
		controller[11] = plan;
		rc = plan ? 0 : memory_error(error, "naming the plan", 0);
	}
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
	/* a failed process has said why; the others are ended by children_close */
	if (rc == 0)
		rc = run_rounds(shared, options, &children, &disturbed, error);
	if (rc == 0)
		rc = children_wait(&children, error);
	if (rc == 0)
		bench_report_end(shared, options, disturbed);
	if (rc == 0 && options->report)
		rc = bench_measured_write(shared, options, error);
	children_close(&children);
	bench_measured_close(shared, options);
	memory_free(plan);
	munmap(shared, sizeof(*shared));
	return rc;
}

static int run(void *taken, struct error *error)
{
	struct bench_options *options = taken;
	const struct policy *policy;
	const struct order *order;
	struct model *model = NULL;
	int rc = model_open_as(&model, options->model, options->as,
			       error); /* before processes start for it */

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
	 "a built-in model, or a folder, config.json or layout file (default Qwen2.5-0.5B)",
	 VERB_TEXT, AT(model)},
	{"as", 0, "FAMILY",
	 "read the folder's or file's model as one of this family, whatever class its config names",
	 VERB_TEXT, AT(as)},
	{"train", 't', "SPEC", "trainers (default world=4,source=gathered)", VERB_TEXT,
	 AT(train_text)},
	{"infer", 'i', "SPEC", "inference ranks (default engines=2,tp=2; all keys: docs/models.md)",
	 VERB_TEXT, AT(infer_text)},
	{"transport", 'T', "NAME",
	 "a requirement, or a list as shm,verbs (default shm; cuda from GPU to GPU)", VERB_TEXT,
	 AT(transport)},
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
	{"replica", 0, "FORM", "of the trainers: ring (default), host, or full (docs/replica.md)",
	 VERB_TEXT, AT(replica)},
	{"pack-threads", 0, "N",
	 "that pack in each trainer, 1 to 64 (default: a thread a processor, at most 4)",
	 VERB_COUNT32, AT(pack_threads), .least = 1, .most = 64},
	{"own-memory", 0, NULL,
	 "targets in ordinary process memory (shm: process_vm_writev) instead of weft's allocator",
	 VERB_FLAG, AT(own_memory)},
	{"memory", 0, "KIND",
	 "where tensors and parameters lie: host (default), cuda, cuda:N, or trainer=cuda,inference=host; the "
	 "measure is then a copy of the same bytes by each trainer's GPU",
	 VERB_TEXT, AT(memory)},
	{"stage", 0, "WHERE",
	 "where versions land with --memory cuda: none (default), device or host", VERB_TEXT,
	 AT(stage)},
	{"nic", 'd', "NICS", "of the trainers (verbs): rxe0, or per rank 0=mlx5_0,1=mlx5_1",
	 VERB_TEXT, AT(nic)},
	{"infer-nic", 0, "NICS", "of the inference ranks (default: as --nic)", VERB_TEXT,
	 AT(infer_nic)},
	{"report", 0, "FILE.html",
	 "the routing report of the plan, with what each rank took (docs/routing.md)", VERB_TEXT,
	 AT(report)},
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
	       "target), with --replica full up to four, and 512 MiB. seconds: from the moment all "
	       "processes stand ready to the last rank's publication; ratio: of both rates, above 1 "
	       "the update is the faster one; strict: over a plain copy of two ranges by as many "
	       "threads; disturbed: a memcpy beside the update was below 0.8 of the best so far, so "
	       "others worked (docs/benchmarks.md).",
	.run = run,
};

const struct command bench_commands[] = {
	{"bench", "update", "time whole updates beside memcpy", &update_verb},
	{"bench", "write", "one-sided writes into another process or host", &bench_write_verb},
	{0},
};
