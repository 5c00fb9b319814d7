/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/route_options.h"

#include "routing/plan/order.h"
#include "routing/plan/topology_file.h"
#include <stddef.h>
#include <string.h>

/* One row a flag: its key says which member it sets. */
#define OPTION_FIRST 0x1000
#define KEY(member)  (OPTION_FIRST + (int)offsetof(struct route_options, member))

static const struct argp_option option_rows[] = {
	{"model", KEY(model), "NAME", 0,
	 "a built-in model, or a folder or config.json written with a '/'", 0},
	{"train", KEY(train), "SPEC", 0,
	 "trainers: world=16,pp=2 or world=16,fsdp=8,source=sharded", 0},
	{"infer", KEY(infer), "SPEC", 0, "inference: engines=2,tp=4 (all keys: docs/models.md)", 0},
	{"policy", KEY(policy), "NAME", 0, "who sends what: ", 0},
	{"order", KEY(order), "NAME", 0, "in which order each trainer sends: ", 0},
	{"memory", KEY(memory), "KIND", 0,
	 "engine memory: mapped (default; trainers on the host map it) or process (they do not, so "
	 "cut columns are packed first)",
	 0},
	{"sessions-max", KEY(sessions_max), "N", 0,
	 "at most N inference ranks for any trainer (only for policies that can)", 0},
	{"topology", KEY(topology), "FILE|SPEC", 0,
	 "hosts and NICs: flat (default: a host and a 400 Gb/s NIC for every rank), a spec like "
	 "per_host=8,nics=8,gbps=400 (also uplink_gbps, rails), or a file of schema "
	 "weft.topology/1 (docs/topology.md)",
	 0},
	{0},
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	if (key < OPTION_FIRST || key >= OPTION_FIRST + (int)sizeof(struct route_options))
		return ARGP_ERR_UNKNOWN;
	memcpy((char *)state->input + (key - OPTION_FIRST), &argument, sizeof(argument));
	return 0;
}

/* ---- --help: the rows as they are now ---- */

static void add_names(struct text *text, const char *doc, bool orders)
{
	size_t count;
	const struct policy *policies = policy_list(&count);
	const struct order *order_rows = NULL;

	if (orders)
		order_rows = order_list(&count);
	text_add(text, doc);
	for (size_t i = 0; i < count; i++) {
		const char *name = orders ? order_rows[i].name : policies[i].name;

		text_format(text, "%s%s%s", i ? ", " : "", name,
			    strcmp(name, orders ? ORDER_DEFAULT : POLICY_DEFAULT) ? ""
										  : " (default)");
	}
}

#define HELP_COLUMNS 78

/* "  name: rule", with lines of a width that argp leaves alone, and the rest set in. */
static void add_rule(struct text *text, const char *name, const char *rule)
{
	size_t column = strlen(name) + 3;

	text_format(text, "  %s:", name);
	for (size_t length; *rule; rule += length + strspn(rule + length, " ")) {
		length = strcspn(rule, " ");
		if (column + 1 + length > HELP_COLUMNS) {
			text_add(text, "\n     ");
			column = 5;
		}
		text_add(text, " ");
		text_add_bytes(text, rule, length);
		column += 1 + length;
	}
	text_add(text, "\n");
}

static void add_rules(struct text *text)
{
	size_t policy_count, order_count;
	const struct policy *policies = policy_list(&policy_count);
	const struct order *orders = order_list(&order_count);

	text_add(text, "Policies:\n");
	for (size_t i = 0; i < policy_count; i++)
		add_rule(text, policies[i].name, policies[i].rule);
	text_add(text, "\nOrders:\n");
	for (size_t i = 0; i < order_count; i++)
		add_rule(text, orders[i].name, orders[i].rule);
}

/* argp frees what differs from `doc`. */
static char *filter_help(int key, const char *doc, void *input)
{
	struct text text = {0};

	if (key == KEY(policy) || key == KEY(order))
		add_names(&text, doc, key == KEY(order));
	else if (key == ARGP_KEY_HELP_POST_DOC)
		add_rules(&text);
	else
		return (char *)doc;
	if (!text_ok(&text)) {
		text_fini(&text);
		return (char *)doc;
	}
	return text.data;
}

const struct argp route_argp = {option_rows, parse_option, NULL, "\v(rules)",
				NULL,	     filter_help,  NULL};

const struct argp_child route_children[] = {{&route_argp, 0, NULL, 0}, {0}};

/* ---- checks ---- */

bool route_options_any(const struct route_options *options)
{
	static const struct route_options none;

	return memcmp(options, &none, sizeof(none)) != 0;
}

static int check(const struct route_options *options, struct route_job *job, struct error *error)
{
	const char *memory = options->memory ? options->memory : "mapped";
	const char *missing = !options->model	? "--model NAME (see `weft model list`)"
			      : !options->train ? "--train SPEC (such as world=4)"
			      : !options->infer ? "--infer SPEC (such as engines=2,tp=2)"
						: NULL;
	uint64_t sessions = 0;
	int rc;

	if (missing)
		return error_set(error, ERROR_USAGE, "%s is missing", missing);
	if (strcmp(memory, "mapped") && strcmp(memory, "process"))
		return error_set(error, ERROR_USAGE,
				 "--memory %s is not known; it is mapped or process", memory);
	if (options->sessions_max && (!parse_u64(options->sessions_max, &sessions) ||
				      sessions == 0 || sessions > UINT32_MAX))
		return error_set(error, ERROR_USAGE,
				 "--sessions-max %s is not a count of inference ranks (1 to %u)",
				 options->sessions_max, UINT32_MAX);
	job->plan.sessions_max = (uint32_t)sessions;
	rc = policy_named(&job->policy, "--policy",
			  options->policy ? options->policy : POLICY_DEFAULT, error);
	if (!rc)
		rc = order_named(&job->plan.order, "--order",
				 options->order ? options->order : ORDER_DEFAULT, error);
	return rc;
}

int route_options_open(struct route_job *job, const struct route_options *options,
		       struct error *error)
{
	struct route_job checked = {0};
	int rc;

	*job = (struct route_job){0};
	rc = check(options, &checked, error);
	if (!rc)
		rc = route_job_open(job, options->model, options->train, options->infer,
				    !options->memory || strcmp(options->memory, "mapped") == 0,
				    error);
	if (rc)
		return rc;
	job->policy = checked.policy;
	job->plan = checked.plan;
	if (!options->topology)
		return 0;
	rc = topology_open(&job->topology, options->topology, job->problem->trainer_count,
			   job->problem->inference_count, error);
	if (rc)
		route_job_close(job);
	job->plan.topology = job->topology;
	return rc;
}

int route_options_plan(struct route_job *job, const struct route_options *options,
		       struct error *error)
{
	int rc = route_options_open(job, options, error);

	return rc ? rc : table_plan(&job->table, job->problem, job->policy, &job->plan, error);
}
