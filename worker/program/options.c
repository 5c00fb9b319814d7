/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "player.h"

enum kind {
	KIND_TEXT,
	KIND_NUMBER,
	KIND_RANK,  /* no larger than a launcher can count */
	KIND_PAUSE, /* a time that may be 0 */
	KIND_MS,
	KIND_BYTES,
	KIND_FLAG
};

/* One row an option: its spelling, the variable that stands in for it, where it goes. Where the
 * doc begins with a role, the other one has no use for it. */
static const struct option_row {
	const char *name, *variable, *argument;
	enum kind kind;
	size_t offset;
	const char *doc;
} rows[] = {
#define AT(member) offsetof(struct arguments, member)
	{"controller", NULL, "ADDRESS", KIND_TEXT, AT(controller),
	 "tcp://host:29600, or auto: rank 0 starts it (or WEFT_CONTROLLER)"},
	{"key", NULL, "FILE", KIND_TEXT, AT(key),
	 "the job's key, or its role's, as the controller has one (or WEFT_KEY_FILE; docs/trust.md)"},
	{"role", "WEFT_ROLE", "ROLE", KIND_TEXT, AT(role),
	 "trainer, inference, or auto (default): the first ranks of the launch are trainers"},
	{"rank", NULL, "N", KIND_RANK, AT(rank),
	 "within --role if given, else of the launch (or WEFT_RANK, torchrun's, MPI's, ...)"},
	{"world", NULL, "N", KIND_RANK, AT(world), "all workers of the launch"},
	{"job", "WEFT_JOB", "ID", KIND_TEXT, AT(job), "job id (default weft)"},
	{"model", "WEFT_MODEL", "NAME", KIND_TEXT, AT(model),
	 "built-in name, or a config.json, checkpoint folder or layout file (needed)"},
	{"as", "WEFT_AS", "FAMILY", KIND_TEXT, AT(as),
	 "read the model as one of this family, as llama, whatever class its config names"},
	{"checkpoint", "WEFT_CHECKPOINT", "DIR", KIND_TEXT, AT(checkpoint),
	 "weights that versions are made from (trainers, --verify)"},
	{"train", "WEFT_TRAIN", "SPEC", KIND_TEXT, AT(train),
	 "as world=4,pp=2,source=gathered (needed; all sources: docs/sources.md)"},
	{"infer", "WEFT_INFER", "SPEC", KIND_TEXT, AT(infer),
	 "as engines=2,tp=2 (needed; all keys: docs/models.md)"},
	{"updates", "WEFT_UPDATES", "N", KIND_NUMBER, AT(updates), "updates to run (default 1)"},
	{"first-version", NULL, "V", KIND_NUMBER, AT(first_version),
	 "version of the first update, at least 1 (default 1)"},
	{"interval", NULL, "TIME", KIND_PAUSE, AT(interval_ms),
	 "a trainer's pause between updates (default 0)"},
	{"every", NULL, "TIME", KIND_PAUSE, AT(every_ms),
	 "trainer: begin an update, once its version is made, at the next multiple of TIME of the host's clock, so "
	 "that all begin together, as after a training step (default 0: each when it is ready)"},
	{"change-one-in", NULL, "N", KIND_NUMBER, AT(change_one_in),
	 "a version differs from the one before in one of N of its 16-bit values (default 1: in all); give it to all workers"},
	{"repeat", NULL, NULL, KIND_FLAG, AT(repeat),
	 "trainer: in that pause engines that come back, or had to give it up, are sent the last version; give it to all trainers"},
	{"admit", NULL, NULL, KIND_FLAG, AT(admit),
	 "trainer: in that pause engines come in too, and have the last version from other engines that show it, or none; not beside --repeat"},
	{"transport", "WEFT_TRANSPORT", "NAME", KIND_TEXT, AT(transport),
	 "shm (default), cuda, verbs, tcp or efa: a requirement, never changed silently; or a list as "
	 "shm,verbs,tcp (auto: shm,verbs), of which each pair uses the first that both sides have and "
	 "that reaches; for memory of a GPU the first that writes it, if any does"},
	/* no variable: WEFT_NIC is the provider's own, and says there where it was read */
	{"nic", NULL, "LIST", KIND_TEXT, AT(nic),
	 "which NICs, as mlx5_0,mlx5_1:2 (docs/verbs.md), or eth0 with tcp (docs/tcp.md); default: chosen, near the "
	 "GPU where there is one"},
	{"register-sources", NULL, NULL, KIND_FLAG, AT(register_sources),
	 "trainer: register the tensors' memory, so that verbs sends from there without a copy; a GPU's where "
	 "NICs reach it"},
	{"memory", "WEFT_MEMORY", "KIND", KIND_TEXT, AT(memory),
	 "where a trainer's tensors and a rank's parameters lie: host (default), cuda (the GPU of the local "
	 "rank) or cuda:N; by role as trainer=cuda,inference=host (docs/cuda.md)"},
	{"stage", "WEFT_STAGE", "WHERE", KIND_TEXT, AT(stage),
	 "inference: with --memory cuda, versions land in spare memory, of the GPU (device), pinned (host) or "
	 "whichever has room (auto), and are copied at once; none (default): they are written in place"},
	{"checksums", NULL, NULL, KIND_FLAG, AT(checksums), "sum and verify every piece"},
	{"verify", NULL, NULL, KIND_FLAG, AT(verify),
	 "inference: recompute every byte of every version and compare; with --own-memory also that "
	 "no byte around a parameter was written"},
	{"digests", NULL, "FILE", KIND_TEXT, AT(digests),
	 "inference: write a digest of every parameter of every version, JSON lines"},
	{"own-memory", NULL, NULL, KIND_FLAG, AT(own_memory),
	 "inference: parameters lie in this program's memory, not weft's"},
	{"shadow", NULL, NULL, KIND_FLAG, AT(shadow),
	 "inference: two copies (of a GPU's memory too), readers keep the last version during an update and "
	 "change to the new one at once"},
	{"live-params", NULL, "FILE", KIND_TEXT, AT(live_params),
	 "inference: the engine's own list of parameters, compared before it joins "
	 "(docs/models.md)"},
	{"post-load", NULL, "COMMAND", KIND_TEXT, AT(post_load),
	 "inference: run by sh before a version is published, with WEFT_VERSION; its failure keeps "
	 "the version back"},
	{"ring-bytes", "WEFT_RING_BYTES", "SIZE", KIND_BYTES, AT(ring_bytes),
	 "trainer: ring that pieces are packed in, at most (default 1G); of a GPU's tensors it lies on the GPU where "
	 "NICs read it there"},
	{"replica", "WEFT_REPLICA", "FORM", KIND_TEXT, AT(replica),
	 "trainer: ring (default), of --ring-bytes; host: the same, for a GPU's tensors in host memory even "
	 "where NICs read the GPU's; or full: keeps all that one inference rank gets"},
	{"landing-bytes", "WEFT_LANDING_BYTES", "SIZE", KIND_BYTES, AT(landing_bytes),
	 "inference: memory that pieces land in where the transport does not write a GPU's, or where trainers cut "
	 "rows finer or smaller than the engine: of all trainers together (default 256M), 80K for each at least"},
	{"pack-threads", "WEFT_PACK_THREADS", "N", KIND_RANK, AT(pack_threads),
	 "trainer: threads that pack, 1 to 64 (default: a thread a processor, at most 4)"},
	{"join-timeout", "WEFT_JOIN_TIMEOUT", "TIME", KIND_MS, AT(join_timeout_ms),
	 "until all workers are connected (default 60s)"},
	{"update-timeout", "WEFT_UPDATE_TIMEOUT", "TIME", KIND_MS, AT(update_timeout_ms),
	 "any wait inside an update (default: the controller's, 60s)"},
	/* no variables: WEFT_METRICS and WEFT_METRICS_FILE are the library's own, which says where it read what is wrong */
	{"metrics", NULL, "ADDRESS:PORT", KIND_TEXT, AT(metrics),
	 "serve figures for Prometheus there, as :9464 or 127.0.0.1:9464; :9464+ takes the first free port from there on "
	 "(or WEFT_METRICS; default: off; docs/metrics.md)"},
	{"metrics-file", NULL, "FILE", KIND_TEXT, AT(metrics_file),
	 "write them there every 5 s, for node-exporter; %h is the host, %p the process, %r role and rank as t3 (or WEFT_METRICS_FILE)"},
	{"trace", NULL, "FILE", KIND_TEXT, AT(trace),
	 "write there when this worker did what, for ui.perfetto.dev and 'weft trace merge'; the name as of --metrics-file (or WEFT_TRACE; "
	 "docs/traces.md)"},
	{"json", NULL, NULL, KIND_FLAG, AT(json), "print JSON lines"},
	{"log-format", NULL, "FORMAT", KIND_TEXT, AT(log_format),
	 "lines on standard error are text (default) or json, one object a line (or WEFT_LOG_FORMAT; docs/logs.md)"},
	{"die-with-parent", NULL, NULL, KIND_FLAG, AT(die_with_parent),
	 "stop when the process that started this one ends"},
	{"quiet", NULL, NULL, KIND_FLAG, AT(quiet),
	 "on standard error only what failed, as WEFT_LOG=error does (-q)"},
	{"local-rank", NULL, "N", KIND_FLAG, AT(ignored),
	 "accepted from old launchers, and not looked at: see LOCAL_RANK"},
#undef AT
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
#define KEY_FIRST 1000
/* one of them has a letter */
#define KEY(row) \
	((row)->offset == offsetof(struct arguments, quiet) ? 'q' : KEY_FIRST + (int)((row)-rows))
_Static_assert(ROW_COUNT <= 64, "arguments.given has a bit for every row");

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
	enum kind unit = kind == KIND_PAUSE ? KIND_MS : kind;
	char *end;
	double number = strtod(text, &end);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (units[i].kind == unit && !strcmp(end, units[i].name)) {
			number *= units[i].factor;
			*value = (uint64_t)(number < 1e18 ? number : 0);
			/* 0 would be taken for the default: only a pause can be that short */
			return *text >= '0' && *text <= '9' && number < 1e18 &&
			       (*value || kind == KIND_PAUSE) &&
			       (unit != KIND_MS || number <= (double)UINT32_MAX);
		}
	return false;
}

static int set(struct arguments *arguments, const struct option_row *row, const char *value,
	       weft_error *error)
{
	static const char *const needed[] = {
		[KIND_PAUSE] = "time; write 30s, 500ms or 2m",
		[KIND_MS] = "time; write 30s, 500ms or 2m, more than 0",
		[KIND_BYTES] = "size; write 512M or 1G, more than 0",
	};
	void *place = (char *)arguments + row->offset;
	uint64_t most = row->kind == KIND_RANK ? INT32_MAX : UINT64_MAX - 1;

	switch (row->kind) {
	case KIND_TEXT:
		if (!*value)
			return fail(error, WEFT_E_CONFIG,
				    "'' is empty; give a value or leave the flag out");
		*(const char **)place = value;
		return 0;
	case KIND_NUMBER:
	case KIND_RANK:
		if (parse_number(value, place) && *(uint64_t *)place <= most)
			return 0;
		return fail(error, WEFT_E_CONFIG, "'%.60s' is not a number from 0 to %llu", value,
			    (unsigned long long)most);
	case KIND_PAUSE:
	case KIND_MS:
	case KIND_BYTES:
		if (parse_unit(value, row->kind, place))
			return 0;
		return fail(error, WEFT_E_CONFIG, "'%.60s' is no %s", value, needed[row->kind]);
	case KIND_FLAG:
		*(bool *)place = true;
		return 0;
	}
	return 0;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	const struct option_row *row;
	weft_error error = WEFT_ERROR_INIT;

	if (key == ARGP_KEY_ARG)
		argp_error(state, "unexpected argument '%s'", value);
	for (row = rows; row < rows + ROW_COUNT && KEY(row) != key;)
		row++;
	if (row == rows + ROW_COUNT)
		return ARGP_ERR_UNKNOWN;
	if (set(state->input, row, value, &error))
		argp_error(state, "--%s: %s", row->name, error.text);
	((struct arguments *)state->input)->given |= UINT64_C(1) << (row - rows);
	return 0;
}

/* Launchers pass the same flags to all, so this is no error. Variables are not looked at: they
 * are set for whole pods. */
void options_warn(const struct arguments *arguments, bool trainer)
{
	const char *other = trainer ? "inference: " : "trainer: ";
	char names[256] = "";
	size_t used = 0, count = 0;

	for (size_t i = 0; i < ROW_COUNT; i++)
		if (!arguments->quiet && arguments->given & UINT64_C(1) << i &&
		    !strncmp(rows[i].doc, other, strlen(other)))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s--%s",
						 count++ ? ", " : "", rows[i].name);
	if (count)
		say("weft-worker: warning: %s %s no meaning for %s", names,
		    count > 1 ? "have" : "has", trainer ? "a trainer" : "an inference rank");
}

/* --local_rank is --local-rank: launchers and habits differ. */
static void hyphens(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		for (char *at = argv[i]; !strncmp(argv[i], "--", 2) && *at && *at != '='; at++)
			if (*at == '_')
				*at = '-';
}

int options_read(struct arguments *arguments, int argc, char **argv, weft_error *error)
{
	static struct argp_option options[ROW_COUNT + 1];
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Plays one trainer or one inference rank of a weft job.\v"
		       "Exit codes: 0 done, 1 failed, 2 usage, 75 try again (network, deadline, lost "
		       "worker, signal), 78 bad configuration. WEFT_LOG=info says more, such as which "
		       "interfaces and devices were chosen.",
	};

	*arguments = (struct arguments){.role = "auto",
					.rank = NOT_GIVEN,
					.world = NOT_GIVEN,
					.updates = 1,
					.first_version = 1,
					.change_one_in = 1};
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const char *value = rows[i].variable ? getenv(rows[i].variable) : NULL;

		if (value && *value && set(arguments, &rows[i], value, error)) {
			char text[sizeof(error->text)];

			memcpy(text, error->text, sizeof(text));
			return fail(error, error->code, "%s: %.900s", rows[i].variable, text);
		}
		options[i] = (struct argp_option){.name = rows[i].name,
						  .key = KEY(&rows[i]),
						  .arg = rows[i].argument,
						  .doc = rows[i].doc};
	}
	hyphens(argc, argv);
	argp_parse(&argp, argc, argv, 0, NULL, arguments);
	if (arguments->log_format) /* a controller that is started from here has it too */
		setenv("WEFT_LOG_FORMAT", arguments->log_format, 1);
	if (arguments->log_format && weft_set_log_format(arguments->log_format, error))
		return -(int)error->code;
	return arguments->quiet ? weft_set_log(NULL, NULL, WEFT_LOG_ERROR, error) : 0;
}
