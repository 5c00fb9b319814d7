/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "controller/shell.h"
#include "routing/plan/topology_file.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

enum kind { KIND_TEXT, KIND_DURATION, KIND_COUNT, KIND_TRAIN, KIND_INFER, KIND_FLAG };

struct arguments {
	struct shell_options shell;
	const char *topology, *key, *log_format;
	bool have_train, have_infer, die_with_parent, remove_key, quiet;
	struct error *error;
};

/* One row an option: how it is spelled, which variable stands in for it, where it goes. */
static const struct option_row {
	const char *name, *variable, *argument;
	enum kind kind;
	size_t offset;
	const char *doc;
} rows[] = {
#define AT(member) offsetof(struct arguments, member)
	{"job", "WEFT_JOB", "ID", KIND_TEXT, AT(shell.controller.job),
	 "job id, the same for all workers (default weft)"},
	{"bind", "WEFT_BIND", "ADDRESS", KIND_TEXT, AT(shell.channel.bind),
	 "where to listen (default tcp://*:29600, without a key tcp://127.0.0.1:29600; port 0 lets the "
	 "system choose)"},
	{"key", "WEFT_KEY_FILE", "FILE", KIND_TEXT, AT(key),
	 "the job's key, made by 'weft key make': who has none is kept out (docs/trust.md)"},
	{"insecure", "WEFT_INSECURE", NULL, KIND_FLAG, AT(shell.channel.insecure),
	 "listen to other hosts without a key: whoever reaches the port can join and end the job"},
	{"remove-key", NULL, NULL, KIND_FLAG, AT(remove_key),
	 "remove the key file and its folder at the end (--controller auto made it)"},
	{"train", "WEFT_TRAIN", "SPEC", KIND_TRAIN, AT(shell.controller.train),
	 "the trainers, as world=4,pp=2,source=gathered (needed; all sources: docs/sources.md)"},
	{"infer", "WEFT_INFER", "SPEC", KIND_INFER, AT(shell.controller.infer),
	 "the inference ranks, as engines=2,tp=2 (needed; all keys: docs/models.md)"},
	{"policy", "WEFT_POLICY", "NAME", KIND_TEXT, AT(shell.controller.policy),
	 "who sends what (default " POLICY_DEFAULT "): "},
	{"order", "WEFT_ORDER", "NAME", KIND_TEXT, AT(shell.controller.order),
	 "in which order each trainer sends (default " ORDER_DEFAULT "): "},
	{"commit", "WEFT_COMMIT", "WHO", KIND_TEXT, AT(shell.controller.commit),
	 "which inference ranks show a version together: engine (default), those of one engine; job, all; "
	 "rank, none (docs/versions.md)"},
	{"on-loss", "WEFT_ON_LOSS", "WHAT", KIND_TEXT, AT(shell.controller.on_loss),
	 "what the loss of a worker means: end (default), the job fails; continue, an inference rank takes its "
	 "engine out, a trainer is gone on without or replaced (docs/living.md)"},
	{"on-miss", "WEFT_ON_MISS", "WHAT", KIND_TEXT, AT(shell.controller.on_miss),
	 "what an engine does of which a rank makes no version of what came (checksum, post-load hook): stay (default), it shows what "
	 "it has and takes the next one; leave, as if it was lost (docs/living.md)"},
	{"catch-up-from", "WEFT_CATCH_UP_FROM", "WHO", KIND_TEXT,
	 AT(shell.controller.catch_up_from),
	 "who sends the last version to an engine that lacks it while trainers have nothing new: engines (default), those "
	 "that show it, where they can; trainers (docs/living.md)"},
	{"delta", "WEFT_DELTA", NULL, KIND_FLAG, AT(shell.controller.delta),
	 "trainers keep what they sent last and send what differs from it; every version is verified by checksums "
	 "(docs/delta.md)"},
	{"hedge", "WEFT_HEDGE", "TIME", KIND_DURATION, AT(shell.controller.hedge_ms),
	 "a trainer that is so much later than another one that holds the same is not waited for alone: that one sends its pieces "
	 "too; every version is verified by checksums (default: it is waited for; docs/living.md)"},
	{"sessions-max", "WEFT_SESSIONS_MAX", "N", KIND_COUNT, AT(shell.controller.sessions_max),
	 "inference ranks one trainer may write to, for policies that can limit it (default: any)"},
	{"topology", "WEFT_TOPOLOGY", "WHAT", KIND_TEXT, AT(topology),
	 "where the ranks sit: flat (default), workers (as they report), a spec such as "
	 "per_host=8,nics=8,gbps=400, or a file (docs/topology.md)"},
	{"dump", "WEFT_DUMP", "FILE", KIND_TEXT, AT(shell.dump),
	 "write the routing table there once it is planned"},
	{"join-timeout", "WEFT_JOIN_TIMEOUT", "TIME", KIND_DURATION,
	 AT(shell.controller.join_timeout_ms),
	 "from the first worker to the last declaration (default 120s)"},
	{"exchange-timeout", "WEFT_EXCHANGE_TIMEOUT", "TIME", KIND_DURATION,
	 AT(shell.controller.exchange_timeout_ms),
	 "from the plan to the last connection (default 60s)"},
	{"update-timeout", "WEFT_UPDATE_TIMEOUT", "TIME", KIND_DURATION,
	 AT(shell.controller.update_timeout_ms),
	 "any wait inside an update; passed to the workers (default 60s)"},
	{"heartbeat", "WEFT_HEARTBEAT", "TIME", KIND_DURATION, AT(shell.controller.heartbeat_ms),
	 "between two signs of life (default 500ms)"},
	{"lost-after", "WEFT_LOST_AFTER", "TIME", KIND_DURATION, AT(shell.controller.lost_ms),
	 "silence after which a worker is given up (default 5s)"},
	{"engines-min", "WEFT_ENGINES_MIN", "N", KIND_COUNT, AT(shell.controller.engines_min),
	 "begin when so many engines are here; the others come in later (default: all; docs/living.md)"},
	{"orphan", "WEFT_ORPHAN", "TIME", KIND_DURATION, AT(shell.controller.orphan_ms),
	 "how long updates go on when this controller is lost (default: the job ends; docs/living.md)"},
	{"restarts", "WEFT_RESTARTS", "N", KIND_COUNT, AT(shell.controller.restarts),
	 "how often the job may gather again after a loss (default 0)"},
	{"metrics", "WEFT_METRICS", "ADDRESS:PORT", KIND_TEXT, AT(shell.metrics.address),
	 "serve figures for Prometheus there, as :9464 or 127.0.0.1:9464; :9464+ takes the first free port from there on "
	 "(default: off; docs/metrics.md)"},
	{"metrics-file", "WEFT_METRICS_FILE", "FILE", KIND_TEXT, AT(shell.metrics.file),
	 "write them there every 5 s, for node-exporter; %h is the host, %p the process, %r 'controller'"},
	{"trace", "WEFT_TRACE", "FILE", KIND_TEXT, AT(shell.trace.file),
	 "write there when the controller did what, for ui.perfetto.dev and 'weft trace merge'; the name as of --metrics-file "
	 "(docs/traces.md)"},
	{"log-format", "WEFT_LOG_FORMAT", "FORMAT", KIND_TEXT, AT(log_format),
	 "lines on standard error are text (default) or json, one object a line (docs/logs.md)"},
	{"port-file", "WEFT_PORT_FILE", "FILE", KIND_TEXT, AT(shell.channel.port_file),
	 "write the bound port there"},
	{"die-with-parent", NULL, NULL, KIND_FLAG, AT(die_with_parent),
	 "stop when the process that started this one ends"},
	{"quiet", NULL, NULL, KIND_FLAG, AT(quiet),
	 "on standard error only what failed, as WEFT_LOG=error does (-q)"},
#undef AT
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
#define KEY_FIRST 1000
/* one of them has a letter */
#define KEY(row) \
	((row)->offset == offsetof(struct arguments, quiet) ? 'q' : KEY_FIRST + (int)((row)-rows))

static const struct option_row *row_of(int key)
{
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (key == KEY(&rows[i]))
			return &rows[i];
	return NULL;
}

static int set(struct arguments *arguments, const struct option_row *row, const char *value,
	       struct error *error)
{
	void *place = (char *)arguments + row->offset;
	uint64_t parsed;

	switch (row->kind) {
	case KIND_TEXT:
		*(const char **)place = value;
		return 0;
	case KIND_DURATION:
		if (!parse_duration_ms(value, &parsed) || parsed == 0 || parsed > UINT32_MAX)
			return error_set(error, ERROR_CONFIG,
					 "'%.60s' is no time: write 30s, 500ms or 2m, more than 0",
					 value);
		*(uint32_t *)place = (uint32_t)parsed;
		return 0;
	case KIND_COUNT:
		if (!parse_u64(value, &parsed) || parsed > UINT32_MAX)
			return error_set(error, ERROR_CONFIG, "'%.60s' is no count", value);
		*(uint32_t *)place = (uint32_t)parsed;
		return 0;
	case KIND_TRAIN:
		arguments->have_train = true;
		return train_spec_parse(place, value, error);
	case KIND_INFER:
		arguments->have_infer = true;
		return infer_spec_parse(place, value, error);
	case KIND_FLAG:
		*(bool *)place = true;
		if (value && !parse_flag(value, place))
			return error_set(error, ERROR_CONFIG, "'%.60s' is neither 1 nor 0", value);
		return 0;
	}
	return 0;
}

/* A flag that cannot be read is wrong usage; a spec that can be, but not be meant, is a wrong
 * configuration, whose error message already names the flag. */
static error_t parse(int key, char *value, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	const struct option_row *row;
	struct error error;

	if (key == ARGP_KEY_ARG)
		argp_error(state, "unexpected argument '%s'", value);
	row = row_of(key);
	if (!row)
		return ARGP_ERR_UNKNOWN;
	if (row->kind == KIND_TRAIN || row->kind == KIND_INFER)
		return set(arguments, row, value, arguments->error) ? EINVAL : 0;
	if (set(arguments, row, value, &error))
		argp_error(state, "--%s: %s", row->name, error.text);
	return 0;
}

static int from_environment(struct arguments *arguments, struct error *error)
{
	for (size_t i = 0; i < ROW_COUNT; i++) {
		const char *value = rows[i].variable ? getenv(rows[i].variable) : NULL;

		if (value && *value && set(arguments, &rows[i], value, error))
			return error_wrap(error, "%s", rows[i].variable);
	}
	return 0;
}

/* --join_timeout is --join-timeout: launchers and habits differ. */
static void hyphens(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strncmp(argv[i], "--", 2) != 0)
			continue;
		for (char *at = argv[i]; *at && *at != '='; at++)
			if (*at == '_')
				*at = '-';
	}
}

static uint64_t random_incarnation(void)
{
	uint64_t value = 0;

	if (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value))
		value = clock_ns() ^ ((uint64_t)getpid() << 40);
	return value ? value : 1;
}

static int die_with_parent(pid_t parent, struct error *error)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() == parent)
		return 0;
	return error_set(error, ERROR_INTERRUPTED, "the process that started this one is gone");
}

static int open_topology(struct topology **topology, struct arguments *arguments,
			 struct error *error)
{
	struct controller_options *controller = &arguments->shell.controller;
	int rc;

	if (!arguments->topology || strcmp(arguments->topology, "flat") == 0)
		return 0;
	controller->topology_from_workers = strcmp(arguments->topology, "workers") == 0;
	if (controller->topology_from_workers)
		return 0;
	rc = topology_open(topology, arguments->topology, controller->train.world,
			   infer_ranks(&controller->infer), error);
	controller->topology = *topology;
	return rc;
}

/* --help lists the rows of routing as they are now; argp frees what differs from `doc`. */
static char *filter_help(int key, const char *doc, void *input)
{
	const struct option_row *row;
	const struct policy *policies;
	const struct order *orders;
	struct text text = {0};
	size_t count = 0;

	row = row_of(key);
	if (!row)
		return (char *)doc;
	text_add(&text, doc);
	policies = policy_list(&count);
	for (size_t i = 0; !strcmp(row->name, "policy") && i < count; i++)
		text_format(&text, "%s%s", i ? ", " : "", policies[i].name);
	orders = order_list(&count);
	for (size_t i = 0; !strcmp(row->name, "order") && i < count; i++)
		text_format(&text, "%s%s", i ? ", " : "", orders[i].name);
	if (text_ok(&text))
		return text.data;
	text_fini(&text);
	return (char *)doc;
}

/* As a message calls it: the value of a flag is another text than that of its variable. */
static const char *given_by(const char *value, const char *variable, const char *flag)
{
	return value && value == getenv(variable) ? variable : flag;
}

static void name_files(struct shell_options *shell)
{
	shell->metrics.address_name = given_by(shell->metrics.address, "WEFT_METRICS", "--metrics");
	shell->metrics.file_name =
		given_by(shell->metrics.file, "WEFT_METRICS_FILE", "--metrics-file");
	shell->trace.file_name = given_by(shell->trace.file, "WEFT_TRACE", "--trace");
}

static int run(int argc, char **argv, pid_t parent, struct error *error)
{
	struct arguments arguments = {
		.error = error,
		.shell.controller = {.job = "weft",
				     .policy = "greedy",
				     .heartbeat_ms = 500,
				     .lost_ms = 5000,
				     .join_timeout_ms = 120000,
				     .exchange_timeout_ms = 60000,
				     .update_timeout_ms = 60000},
	};
	struct argp_option options[ROW_COUNT + 1] = {{0}};
	struct topology *topology = NULL;
	struct key_place place = {0};
	struct key key = {0};
	const struct argp argp = {
		.options = options,
		.parser = parse,
		.help_filter = filter_help,
		.doc = "Gathers the workers of one job, routes, connects them, and watches.\v"
		       "Every option but --die-with-parent, --remove-key and --quiet can also be given as a variable: "
		       "WEFT_JOB, WEFT_TRAIN, WEFT_JOIN_TIMEOUT and so on. SIGUSR1 logs the state, "
		       "SIGTERM ends the job. Exit codes: 0 all workers left with their work done, "
		       "1 failed, 2 usage, 75 try again, 78 bad configuration.",
	};
	int rc = from_environment(&arguments, error);

	if (rc)
		return rc;
	for (size_t i = 0; i < ROW_COUNT; i++)
		options[i] = (struct argp_option){.name = rows[i].name,
						  .key = KEY(&rows[i]),
						  .arg = rows[i].argument,
						  .doc = rows[i].doc};
	hyphens(argc, argv);
	rc = argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	if (rc)
		return rc == EINVAL ? -(int)error->code
				    : error_set(error, ERROR_MEMORY, "no memory for the options");
	if (arguments.quiet)
		log_set_level(LOG_LEVEL_ERROR);
	if (arguments.log_format && arguments.log_format != getenv("WEFT_LOG_FORMAT") &&
	    !log_set_format(arguments.log_format))
		return error_set(error, ERROR_CONFIG, "--log-format is '%.40s'; it is text or json",
				 arguments.log_format);
	log_of_job(arguments.shell.controller.job);
	if (!arguments.have_train || !arguments.have_infer)
		return error_set(error, ERROR_USAGE,
				 "--%s is needed, for example --train world=4 "
				 "--infer engines=2,tp=2: it says which ranks to wait for, also "
				 "where programs declare tensors of their own (weft.h)",
				 arguments.have_train ? "infer" : "train");
	if (arguments.die_with_parent && (rc = die_with_parent(parent, error)))
		return rc;
	arguments.shell.parent = arguments.die_with_parent ? parent : 0;
	arguments.shell.controller.incarnation = random_incarnation();
	if (arguments.key) {
		key_place_of(arguments.key, &place);
		rc = key_read(&key, arguments.key, error);
		arguments.shell.channel.key = &key;
	}
	if (!rc)
		rc = open_topology(&topology, &arguments, error);
	name_files(&arguments.shell);
	if (!rc)
		rc = shell_run(&arguments.shell, error);
	topology_free(&topology);
	key_forget(&key);
	if (arguments.remove_key && arguments.key)
		key_remove(arguments.key, &place);
	return rc;
}

int main(int argc, char **argv)
{
	pid_t parent = getppid();
	struct error error;
	int rc;

	argp_program_version = "weft-controller " WEFT_VERSION;
	argp_err_exit_status = 2;
	log_open("weft-controller", "");
	if (!getenv("WEFT_LOG"))
		log_set_level(LOG_LEVEL_INFO); /* few lines, and the only trace of a job */
	shell_block_signals();
	rc = run(argc, argv, parent, &error);
	if (rc == 0)
		return 0;
	log_say("weft-controller: WEFT-E%d %s: %s", (int)error.code, error_strerror(error.code),
		error.text);
	return error_exit_code(error.code);
}
