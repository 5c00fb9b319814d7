/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c -- weft-worker: plays one trainer or one inference rank of a job. A plain user of
 * weft.h: it includes nothing else of this project.
 */
#include "weft.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define STOP_CONTROLLER_MS 5000 /* how long our controller may take to end after a failure */

enum kind { KIND_TEXT, KIND_NUMBER, KIND_MS, KIND_BYTES, KIND_FLAG };

struct arguments {
	const char *controller, *role, *model, *checkpoint, *train, *infer, *job, *transport;
	const char *digests;
	uint64_t rank, world, updates, first_version, interval_ms, join_timeout_ms;
	uint64_t update_timeout_ms, ring_bytes;
	bool checksums, verify, own_memory, shadow, json, die_with_parent, ignored;
};

/* One row an option: its spelling, the variable that stands in for it, where it goes. */
static const struct option_row {
	const char *name, *variable, *argument;
	enum kind kind;
	size_t offset;
	const char *doc;
} rows[] = {
#define AT(member) offsetof(struct arguments, member)
	{"controller", NULL, "ADDRESS", KIND_TEXT, AT(controller),
	 "tcp://host:29600, or auto: rank 0 starts it (or WEFT_CONTROLLER)"},
	{"role", "WEFT_ROLE", "ROLE", KIND_TEXT, AT(role),
	 "trainer, inference, or auto (default): the first ranks of the launch are trainers"},
	{"rank", NULL, "N", KIND_NUMBER, AT(rank),
	 "within --role if given, else of the launch (or WEFT_RANK, torchrun's, MPI's, ...)"},
	{"world", NULL, "N", KIND_NUMBER, AT(world), "all workers of the launch"},
	{"job", "WEFT_JOB", "ID", KIND_TEXT, AT(job), "job id (default weft)"},
	{"model", "WEFT_MODEL", "NAME", KIND_TEXT, AT(model),
	 "built-in name, config.json or checkpoint folder (needed)"},
	{"checkpoint", "WEFT_CHECKPOINT", "DIR", KIND_TEXT, AT(checkpoint),
	 "weights that versions are made from (trainers, --verify)"},
	{"train", "WEFT_TRAIN", "SPEC", KIND_TEXT, AT(train),
	 "as world=4,pp=2,source=gathered (needed)"},
	{"infer", "WEFT_INFER", "SPEC", KIND_TEXT, AT(infer), "as engines=2,tp=2 (needed)"},
	{"updates", "WEFT_UPDATES", "N", KIND_NUMBER, AT(updates), "updates to run (default 1)"},
	{"first-version", NULL, "V", KIND_NUMBER, AT(first_version),
	 "version of the first update, at least 1 (default 1)"},
	{"interval", NULL, "TIME", KIND_MS, AT(interval_ms),
	 "a trainer's pause between updates (default 0)"},
	{"transport", "WEFT_TRANSPORT", "NAME", KIND_TEXT, AT(transport),
	 "a requirement, never changed silently (default shm)"},
	{"checksums", NULL, NULL, KIND_FLAG, AT(checksums), "sum and verify every piece"},
	{"verify", NULL, NULL, KIND_FLAG, AT(verify),
	 "inference: recompute every byte of every version and compare"},
	{"digests", NULL, "FILE", KIND_TEXT, AT(digests),
	 "inference: write a digest of every parameter of every version, JSON lines"},
	{"own-memory", NULL, NULL, KIND_FLAG, AT(own_memory),
	 "inference: parameters lie in this program's memory, not weft's"},
	{"shadow", NULL, NULL, KIND_FLAG, AT(shadow),
	 "inference: two copies, readers keep the last version during an update"},
	{"ring-bytes", "WEFT_RING_BYTES", "SIZE", KIND_BYTES, AT(ring_bytes),
	 "trainer: CPU replica (default 1G)"},
	{"join-timeout", "WEFT_JOIN_TIMEOUT", "TIME", KIND_MS, AT(join_timeout_ms),
	 "until all workers are connected (default 60s)"},
	{"update-timeout", "WEFT_UPDATE_TIMEOUT", "TIME", KIND_MS, AT(update_timeout_ms),
	 "any wait inside an update (default: the controller's, 60s)"},
	{"json", NULL, NULL, KIND_FLAG, AT(json), "print JSON lines"},
	{"die-with-parent", NULL, NULL, KIND_FLAG, AT(die_with_parent),
	 "stop when the process that started this one ends"},
	{"local-rank", NULL, "N", KIND_FLAG, AT(ignored), "accepted from old launchers"},
#undef AT
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
#define KEY_FIRST 1000

/* What one process plays. */
struct player {
	struct arguments arguments;
	weft_launch launch;
	enum weft_role role;
	uint32_t rank, count; /* of the role */
	const char *source;   /* of the rank */
	weft_worker *worker;
	weft_checkpoint *checkpoint;
	weft_plan_view plan;
	int64_t controller; /* its process, when started here */
	FILE *digests;
	void *memory; /* trainer: contents; own_memory: parameters */
	size_t memory_bytes;
	const void **data; /* trainer: by tensor id; NULL when not wanted */
	uint64_t verified;
};

static weft_worker *volatile signal_worker;
static volatile sig_atomic_t signalled;

__attribute__((format(printf, 3, 4))) static int fail(weft_error *error, int code,
						      const char *format, ...)
{
	va_list args;

	error->code = code;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return -code;
}

static void on_signal(int number)
{
	signalled = number;
	if (signal_worker)
		weft_interrupt(signal_worker);
}

/* ---- options ---- */

static bool parse_number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* A number and a unit, in base units: milliseconds or bytes. */
static bool parse_unit(const char *text, enum kind kind, uint64_t *value)
{
	static const struct {
		enum kind kind;
		const char *name;
		double factor;
	} units[] = {
		{KIND_MS, "ms", 1},	    {KIND_MS, "s", 1e3},	{KIND_MS, "", 1e3},
		{KIND_MS, "m", 6e4},	    {KIND_MS, "h", 3.6e6},	{KIND_BYTES, "", 1},
		{KIND_BYTES, "K", 1 << 10}, {KIND_BYTES, "M", 1 << 20}, {KIND_BYTES, "G", 1 << 30},
	};
	char *end;
	double number = strtod(text, &end);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (units[i].kind == kind && !strcmp(end, units[i].name)) {
			number *= units[i].factor;
			*value = (uint64_t)(number < 1e18 ? number : 0);
			return *text >= '0' && *text <= '9' && number < 1e18 &&
			       (kind != KIND_MS || number <= (double)UINT32_MAX);
		}
	return false;
}

static int set(struct arguments *arguments, const struct option_row *row, const char *value,
	       weft_error *error)
{
	void *place = (char *)arguments + row->offset;

	switch (row->kind) {
	case KIND_TEXT:
		*(const char **)place = value;
		return 0;
	case KIND_NUMBER:
		if (parse_number(value, place))
			return 0;
		return fail(error, WEFT_E_CONFIG, "'%.60s' is no number", value);
	case KIND_MS:
	case KIND_BYTES:
		if (parse_unit(value, row->kind, place))
			return 0;
		return fail(error, WEFT_E_CONFIG, "'%.60s' is no %s", value,
			    row->kind == KIND_MS ? "time; write 30s, 500ms or 2m"
						 : "size; write 512M or 1G");
	case KIND_FLAG:
		*(bool *)place = true;
		return 0;
	}
	return 0;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	const struct option_row *row;
	weft_error error;

	if (key == ARGP_KEY_ARG)
		argp_error(state, "unexpected argument '%s'", value);
	if (key < KEY_FIRST || key >= KEY_FIRST + (int)ROW_COUNT)
		return ARGP_ERR_UNKNOWN;
	row = &rows[key - KEY_FIRST];
	if (set(state->input, row, value, &error))
		argp_error(state, "--%s: %s", row->name, error.text);
	return 0;
}

/* --local_rank is --local-rank: launchers and habits differ. */
static void hyphens(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		for (char *at = argv[i]; !strncmp(argv[i], "--", 2) && *at && *at != '='; at++)
			if (*at == '_')
				*at = '-';
}

static int read_arguments(struct arguments *arguments, int argc, char **argv, weft_error *error)
{
	static struct argp_option options[ROW_COUNT + 1];
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Plays one trainer or one inference rank of a weft job.\v"
		       "Exit codes: 0 done, 1 failed, 2 usage, 75 try again (network, deadline, lost "
		       "worker, signal), 78 bad configuration.",
	};

	*arguments = (struct arguments){.role = "auto",
					.rank = UINT64_MAX,
					.world = UINT64_MAX,
					.updates = 1,
					.first_version = 1};
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const char *value = rows[i].variable ? getenv(rows[i].variable) : NULL;

		if (value && *value && set(arguments, &rows[i], value, error)) {
			char text[sizeof(error->text)];

			memcpy(text, error->text, sizeof(text));
			return fail(error, error->code, "%s: %.900s", rows[i].variable, text);
		}
		options[i] = (struct argp_option){.name = rows[i].name,
						  .key = KEY_FIRST + (int)i,
						  .arg = rows[i].argument,
						  .doc = rows[i].doc};
	}
	hyphens(argc, argv);
	argp_parse(&argp, argc, argv, 0, NULL, arguments);
	return 0;
}

static int check_arguments(const struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	bool trainer = player->role == WEFT_TRAINER;

	if (!a->updates || !a->first_version || a->first_version > UINT64_MAX - a->updates)
		return fail(error, WEFT_E_USAGE, "--updates and --first-version are at least 1");
	if (!a->checkpoint && (trainer || a->verify))
		return fail(error, WEFT_E_USAGE, "--checkpoint is needed: %s",
			    trainer ? "a trainer makes its versions from one"
				    : "--verify compares with one");
	return 0;
}

/* ---- who am I ---- */

static const char *role_text(const struct player *player)
{
	return player->role == WEFT_TRAINER ? "trainer" : "inference";
}

static int take_rank(struct player *player, uint32_t trainers, uint32_t inference,
		     weft_error *error)
{
	const struct arguments *a = &player->arguments;
	const weft_launch *launch = &player->launch;
	bool automatic = !strcmp(a->role, "auto");
	int64_t rank = launch->rank;

	player->source = launch->rank_source;
	if (!automatic && strcmp(a->role, "trainer") && strcmp(a->role, "inference"))
		return fail(error, WEFT_E_USAGE,
			    "--role is '%.40s'; it is trainer, inference or auto", a->role);
	if (!automatic && a->rank != UINT64_MAX) {
		rank = a->rank <= INT32_MAX ? (int64_t)a->rank : INT32_MAX;
		player->source = "--rank";
	}
	if (rank < 0)
		return fail(error, WEFT_E_USAGE,
			    "no rank: give --rank or WEFT_RANK, or launch with "
			    "torchrun, MPI, Slurm or Kubernetes");
	if (automatic && launch->world >= 0 && launch->world != (int64_t)trainers + inference)
		return fail(error, WEFT_E_CONFIG,
			    "%lld workers were launched, but --train and --infer "
			    "have %u trainers and %u inference ranks, %llu in all",
			    (long long)launch->world, trainers, inference,
			    (unsigned long long)trainers + inference);
	player->role = !strcmp(a->role, "inference") || (automatic && rank >= (int64_t)trainers)
			       ? WEFT_INFERENCE
			       : WEFT_TRAINER;
	player->count = player->role == WEFT_TRAINER ? trainers : inference;
	if (automatic && player->role == WEFT_INFERENCE)
		rank -= trainers;
	player->rank = (uint32_t)rank;
	if (player->rank >= player->count)
		return fail(error, WEFT_E_CONFIG, "%s rank %u (from %s) is not below %s=%u",
			    role_text(player), player->rank, player->source,
			    player->role == WEFT_TRAINER ? "world" : "engines*tp", player->count);
	return 0;
}

static int find_self(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	weft_launch *launch = &player->launch;
	bool automatic = !strcmp(a->role, "auto");
	uint32_t trainers = 0, inference = 0;
	int rc;

	if (!a->train || !a->infer || !a->model)
		return fail(error, WEFT_E_USAGE,
			    "--controller ADDRESS, --model NAME, --train SPEC and "
			    "--infer SPEC are needed; --%s is missing",
			    !a->model	? "model"
			    : !a->train ? "train"
					: "infer");
	rc = weft_count_ranks(a->train, a->infer, &trainers, &inference, error);
	if (rc)
		return rc;
	*launch = (weft_launch){.size = sizeof(*launch), .rank = -1, .world = -1};
	/* with a role, --rank counts within it; the launcher counts all workers */
	if (automatic && a->rank != UINT64_MAX)
		launch->rank = a->rank <= INT32_MAX ? (int64_t)a->rank : INT32_MAX;
	if (a->world != UINT64_MAX)
		launch->world = a->world <= INT32_MAX ? (int64_t)a->world : INT32_MAX;
	snprintf(launch->controller, sizeof(launch->controller), "%s",
		 a->controller ? a->controller : "");
	rc = weft_launch_find(launch, error);
	if (!rc)
		rc = take_rank(player, trainers, inference, error);
	if (rc)
		return rc;
	if (!launch->controller[0])
		return fail(error, WEFT_E_USAGE,
			    "no controller: give --controller tcp://host:29600 or "
			    "WEFT_CONTROLLER, or --controller auto under torchrun");
	return check_arguments(player, error);
}

/* The line that tells a user which of many sources was believed. Standard error: standard output
 * is for figures. */
static void print_self(const struct player *player)
{
	const weft_launch *launch = &player->launch;
	bool launched = player->source == launch->rank_source && launch->world >= 0;

	fprintf(stderr,
		"weft-worker: rank %lld/%lld (from %s), %s %u/%u, controller %s (from %s)\n",
		launched ? (long long)launch->rank : player->rank,
		launched ? (long long)launch->world : player->count, player->source,
		role_text(player), player->rank, player->count, launch->controller,
		launch->controller_source);
}

/* ---- a controller of our own ---- */

static int start_controller(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	char join[32], update[32];
	const char *more[16] = {"--train", a->train, "--infer", a->infer};
	const struct {
		const char *flag, *value;
	} rest[] = {
		{"--job", a->job},
		{"--join-timeout", a->join_timeout_ms ? join : NULL},
		{"--update-timeout", a->update_timeout_ms ? update : NULL},
	};
	size_t n = 4;

	snprintf(join, sizeof(join), "%llums", (unsigned long long)a->join_timeout_ms);
	snprintf(update, sizeof(update), "%llums", (unsigned long long)a->update_timeout_ms);
	for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
		if (rest[i].value) {
			more[n++] = rest[i].flag;
			more[n++] = rest[i].value;
		}
	return weft_launch_controller(&player->launch, more, &player->controller, error);
}

/* Our controller serves the others until they have left too. */
static void end_controller(struct player *player, bool failed)
{
	while (player->controller && !failed && !signalled)
		weft_launch_wait(&player->controller, 100);
	weft_launch_stop(&player->controller, STOP_CONTROLLER_MS);
}

/* ---- figures ---- */

/* A trainer's seconds begin when its targets have accepted, an inference rank's when it opens its
 * memory. */
static void print_update(const struct player *player, uint64_t version)
{
	double seconds, gbps;
	weft_stats stats;

	weft_get_stats(player->worker, &stats);
	if (player->role == WEFT_TRAINER)
		stats.update_ns -= stats.wait_ns;
	seconds = (double)stats.update_ns / 1e9;
	gbps = stats.update_ns ? (double)player->plan.bytes * 8e-9 / seconds : 0;
	printf(player->arguments.json
		       ? "{\"event\":\"update\",\"version\":%llu,\"role\":\"%s\",\"rank\":%u,\"bytes\":%llu,"
			 "\"seconds\":%.9f,\"gbps\":%.6f,\"wait_seconds\":%.9f,\"copy_seconds\":%.9f,"
			 "\"verify_seconds\":%.9f}\n"
		       : "update version=%llu role=%s rank=%u bytes=%llu seconds=%.6f gbps=%.3f "
			 "begin_wait=%.6f copy=%.6f verify=%.6f\n",
	       (unsigned long long)version, role_text(player), player->rank,
	       (unsigned long long)player->plan.bytes, seconds, gbps, (double)stats.wait_ns / 1e9,
	       (double)stats.copy_ns / 1e9, (double)stats.verify_ns / 1e9);
}

static void print_joined(const struct player *player)
{
	const weft_plan_view *plan = &player->plan;

	printf(player->arguments.json
		       ? "{\"event\":\"joined\",\"role\":\"%s\",\"rank\":%u,\"peers\":%u,\"pieces\":%llu,"
			 "\"bytes\":%llu,\"policy\":\"%s\",\"plan\":\"%s\"}\n"
		       : "joined role=%s rank=%u peers=%u pieces=%llu bytes=%llu policy=%s plan=%s\n",
	       role_text(player), player->rank, plan->peers, (unsigned long long)plan->pieces,
	       (unsigned long long)plan->bytes, plan->policy, plan->digest);
}

static void print_done(const struct player *player)
{
	weft_stats stats;

	weft_get_stats(player->worker, &stats);
	printf(player->arguments.json
		       ? "{\"event\":\"done\",\"role\":\"%s\",\"rank\":%u,\"updates\":%llu,"
			 "\"bytes\":%llu,\"bytes_verified\":%llu}\n"
		       : "done role=%s rank=%u updates=%llu bytes=%llu bytes_verified=%llu\n",
	       role_text(player), player->rank, (unsigned long long)stats.updates,
	       (unsigned long long)stats.bytes, (unsigned long long)player->verified);
}

/* ---- the trainer ---- */

static int map_memory(struct player *player, size_t bytes, weft_error *error)
{
	player->memory_bytes = bytes ? bytes : 1;
	player->memory = mmap(NULL, player->memory_bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (player->memory != MAP_FAILED)
		return 0;
	player->memory = NULL;
	return fail(error, WEFT_E_MEMORY, "no %zu bytes of memory: %s", bytes, strerror(errno));
}

#define padded(bytes) ((size_t)(((bytes) + 4095) / 4096 * 4096))

/* One buffer for all wanted tensors; data[id] points into it. */
static int map_tensors(struct player *player, weft_error *error)
{
	weft_tensor_view view;
	size_t bytes = 0;
	uint32_t count = 0;
	char *next;
	int rc;

	for (; !weft_tensor_at(player->worker, count, &view); count++)
		bytes += view.wanted ? padded(view.bytes) : 0;
	rc = map_memory(player, bytes, error);
	if (rc)
		return rc;
	player->data = calloc(count + 1u, sizeof(*player->data));
	if (!player->data)
		return fail(error, WEFT_E_MEMORY, "no memory for %u tensors", count);
	next = player->memory;
	for (uint32_t id = 0; !weft_tensor_at(player->worker, id, &view); id++) {
		if (!view.wanted)
			continue;
		player->data[id] = next;
		next += padded(view.bytes);
	}
	return 0;
}

/* The held rows of every wanted tensor, as version `version` has them. */
static int make_version(struct player *player, uint64_t version, weft_error *error)
{
	weft_tensor_view view;

	for (uint32_t id = 0; !weft_tensor_at(player->worker, id, &view); id++) {
		uint64_t bytes = 0, row_bytes = view.bytes / (view.row_hi - view.row_lo);
		const void *tensor;

		if (!view.wanted)
			continue;
		tensor = weft_checkpoint_tensor(player->checkpoint, view.name, &bytes);
		if (!tensor || bytes != row_bytes * view.shape[0])
			return fail(
				error, WEFT_E_FILE, "%s: tensor %s has %llu bytes, not the model's",
				player->arguments.checkpoint, view.name, (unsigned long long)bytes);
		weft_content_version(view.name, tensor, bytes, version, view.row_lo * row_bytes,
				     view.bytes, (void *)(uintptr_t)player->data[id]);
		if (signalled)
			return fail(error, WEFT_E_INTERRUPTED, "interrupted by signal %d",
				    (int)signalled);
	}
	return 0;
}

static int run_trainer(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	const struct timespec pause = {(time_t)(a->interval_ms / 1000),
				       (long)(a->interval_ms % 1000) * 1000000};
	int rc = map_tensors(player, error);

	for (uint64_t i = 0; i < a->updates && !rc; i++) {
		uint64_t version = a->first_version + i;

		if (i) /* a signal ends the pause */
			nanosleep(&pause, NULL);
		rc = make_version(player, version, error);
		if (!rc)
			rc = weft_update_begin(player->worker, version, error);
		if (!rc)
			rc = weft_update_write_all(player->worker, player->data, error);
		if (!rc)
			rc = weft_update_end(player->worker, error);
		if (!rc)
			print_update(player, version);
	}
	return rc;
}

/* ---- the inference rank ---- */

static int bind_params(struct player *player, weft_error *error)
{
	weft_param_view view;
	size_t bytes = 0;
	char *next;
	int rc;

	if (player->role != WEFT_INFERENCE || !player->arguments.own_memory)
		return 0;
	for (uint32_t id = 0; !weft_param_at(player->worker, id, &view); id++)
		bytes += padded(view.bytes);
	rc = map_memory(player, bytes, error);
	next = player->memory;
	for (uint32_t id = 0; !rc && !weft_param_at(player->worker, id, &view); id++) {
		rc = weft_param_bind(player->worker, id, next, view.bytes, error);
		next += padded(view.bytes);
	}
	return rc;
}

static void write_name(FILE *file, const char *name)
{
	for (; *name; name++) {
		if (*name == '"' || *name == '\\')
			fputc('\\', file);
		fputc(*name, file);
	}
}

static int write_digests(struct player *player, uint64_t version, weft_error *error)
{
	weft_param_view view;

	for (uint32_t id = 0; !weft_param_at(player->worker, id, &view); id++) {
		char digest[33];

		if (weft_param_digest(player->worker, id, version, digest))
			return fail(error, WEFT_E_STATE, "version %llu is gone before its digest",
				    (unsigned long long)version);
		fprintf(player->digests, "{\"version\":%llu,\"rank\":%u,\"param\":\"",
			(unsigned long long)version, player->rank);
		write_name(player->digests, view.name);
		fprintf(player->digests, "\",\"bytes\":%llu,\"digest\":\"%s\"}\n",
			(unsigned long long)view.bytes, digest);
	}
	if (fflush(player->digests))
		return fail(error, WEFT_E_IO, "%s: %s", player->arguments.digests, strerror(errno));
	return 0;
}

static int run_inference(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	int rc = 0;

	for (uint64_t i = 0; i < a->updates && !rc; i++) {
		uint64_t version = a->first_version + i, compared = 0;

		rc = weft_update_wait(player->worker, version, 0, NULL, error);
		if (rc)
			break;
		print_update(player, version);
		if (a->verify)
			rc = weft_verify(player->worker, player->checkpoint, version, &compared,
					 error);
		player->verified += compared;
		if (!rc && player->digests)
			rc = write_digests(player, version, error);
	}
	return rc;
}

/* ---- the whole life ---- */

static int open_worker(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	const weft_options options = {
		.size = sizeof(options),
		.controller = player->launch.controller,
		.job = a->job,
		.role = player->role,
		.rank = player->rank,
		.transport = a->transport,
		.join_timeout_ms = (uint32_t)a->join_timeout_ms,
		.update_timeout_ms = (uint32_t)a->update_timeout_ms,
		.ring_bytes = a->ring_bytes,
		.checksums = a->checksums,
		.shadow = player->role == WEFT_INFERENCE && a->shadow,
		.own_memory = player->role == WEFT_INFERENCE && a->own_memory,
	};
	int rc = weft_open(&player->worker, &options, error);

	if (rc)
		return rc;
	signal_worker = player->worker;
	if (signalled)
		weft_interrupt(player->worker);
	rc = weft_declare_model(player->worker, a->model, a->train, a->infer, error);
	return rc ? rc : bind_params(player, error);
}

static int open_files(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;

	if (a->digests && player->role == WEFT_INFERENCE) {
		player->digests = fopen(a->digests, "we");
		if (!player->digests)
			return fail(error, WEFT_E_IO, "%s: %s", a->digests, strerror(errno));
	}
	if (!a->checkpoint || (player->role == WEFT_INFERENCE && !a->verify))
		return 0;
	return weft_checkpoint_open(&player->checkpoint, a->checkpoint, error);
}

static int play(struct player *player, weft_error *error)
{
	int rc = find_self(player, error);

	if (rc)
		return rc;
	print_self(player);
	rc = open_files(player, error);
	if (!rc)
		rc = start_controller(player, error);
	if (!rc)
		rc = open_worker(player, error);
	if (!rc)
		rc = weft_join(player->worker, 0, error);
	if (!rc)
		rc = weft_plan(player->worker, &player->plan, error);
	if (rc)
		return rc;
	print_joined(player);
	rc = player->role == WEFT_TRAINER ? run_trainer(player, error)
					  : run_inference(player, error);
	if (!rc)
		rc = weft_leave(player->worker, error);
	if (!rc)
		print_done(player);
	return rc;
}

static void clean(struct player *player, bool failed)
{
	signal_worker = NULL;
	weft_close(&player->worker);
	end_controller(player, failed);
	weft_checkpoint_close(&player->checkpoint);
	if (player->digests)
		fclose(player->digests);
	if (player->memory)
		munmap(player->memory, player->memory_bytes);
	free(player->data);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct player player = {0};
	pid_t parent = getppid();
	weft_error error;
	static char version[64];
	int rc;

	snprintf(version, sizeof(version), "weft-worker %s", weft_version_text());
	argp_program_version = version;
	argp_err_exit_status = 2;
	setlinebuf(stdout);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	rc = read_arguments(&player.arguments, argc, argv, &error);
	if (!rc && player.arguments.die_with_parent) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			rc = fail(&error, WEFT_E_INTERRUPTED, "the parent process is gone");
	}
	if (!rc)
		rc = play(&player, &error);
	clean(&player, rc != 0);
	if (!rc)
		return 0;
	fprintf(stderr, "weft-worker: WEFT-E%d %s: %s\n", error.code, weft_code_words(error.code),
		error.text);
	weft_launch_report(&error);
	return weft_exit_code(error.code);
}
