/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/route_options.h"
#include "cli/shown.h"

#include "base/progress.h"
#include "routing/plan/order.h"
#include "routing/plan/topology_file.h"
#include "transport/transport.h"
#include <stddef.h>
#include <string.h>

/* One row a flag: its key says which member it sets. */
#define OPTION_FIRST 0x1000
#define KEY(member)  (OPTION_FIRST + (int)offsetof(struct route_options, member))

static const struct argp_option option_rows[] = {
	{"model", KEY(model), "NAME", 0,
	 "a built-in model, or a folder, config.json or layout file", 0},
	{"as", KEY(as), "FAMILY", 0,
	 "read the folder's or file's model as one of this family, as llama, whatever class its "
	 "config names",
	 0},
	{"train", KEY(train), "SPEC", 0,
	 "trainers: world=16,pp=2 or world=16,source=megatron,tp=4 (all sources: docs/sources.md)",
	 0},
	{"infer", KEY(infer), "SPEC", 0, "inference: engines=2,tp=4 (all keys: docs/models.md)", 0},
	{"policy", KEY(policy), "NAME", 0, "who sends what: ", 0},
	{"order", KEY(order), "NAME", 0, "in which order each trainer sends: ", 0},
	{"memory", KEY(memory), "KIND", 0,
	 "engine memory: mapped (default; trainers on the host map it), process (they do not, so "
	 "cut columns are packed first; what trainers cut finer than the engine, or into many small pieces, lands beside it) or landed (a GPU's that the transport does not write)",
	 0},
	{"sessions-max", KEY(sessions_max), "N", 0,
	 "at most N inference ranks for any trainer (only for policies that can)", 0},
	{"topology", KEY(topology), "FILE|SPEC", 0,
	 "hosts and NICs: flat (default: a host and a 400 Gb/s NIC for every rank), a spec like "
	 "per_host=8,nics=8,gbps=400 (also uplink_gbps, rails), or a file of schema "
	 "weft.topology/1 (docs/topology.md)",
	 0},
	{"transport", KEY(transport), "LIST", 0,
	 "the job's list of transports, such as shm,verbs, or auto: each pair uses the first that "
	 "reaches, on hosts as --topology says (default: one transport for all)",
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

/* ---- transports ---- */

static const struct transport_provider_info *find_transport(const char *name)
{
	size_t count;
	const struct transport_provider_info *infos = transport_providers(&count);

	for (size_t i = 0; i < count; i++)
		if (strcmp(infos[i].name, name) == 0)
			return &infos[i];
	return NULL;
}

/* A plan has no machines to look at: every host is taken to have all of them. */
static void fill_pairs(struct pairs *pairs, const struct topology *topology,
		       const struct transport_provider_info *info, uint32_t t, const char *memory)
{
	uint32_t trainers = pairs->count[ROLE_TRAINER];

	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t rank = 0; rank < pairs->count[role]; rank++) {
			uint32_t host = topology ? topology->ranks[role][rank].host
						 : rank + (role == ROLE_TRAINER ? 0 : trainers);

			*pairs_side(pairs, (enum role)role, rank, t) = (struct pair_side){
				.reach = info->one_host ? host + 1 : 1,
				.registered = true,
				.mapped = info->maps && !strcmp(memory, "mapped"),
				.landed = !strcmp(memory, "landed"),
			};
		}
}

static int set_pairs(struct route_job *job, const struct route_options *options, const char *memory,
		     struct error *error)
{
	struct problem *problem = job->problem;
	const struct topology *topology = job->topology;
	struct transports list;
	struct pairs pairs;
	struct pool pool = {0};
	int rc = transports_parse(&list, options->transport, error);

	if (!rc && !transports_listed(options->transport))
		return error_set(error, ERROR_USAGE,
				 "--transport %s is one transport for all pairs, which a plan need "
				 "not know; give a list, or leave it out",
				 options->transport);
	if (!rc &&
	    !pairs_init(&pairs, &pool, &list, problem->trainer_count, problem->inference_count))
		rc = memory_error(error, "listing transports", problem->trainer_count);
	for (uint32_t t = 0; !rc && t < list.count; t++) {
		const struct transport_provider_info *info = find_transport(list.names[t]);

		if (info)
			fill_pairs(&pairs, topology && !topology->flat ? topology : NULL, info, t,
				   memory);
		else
			rc = error_set(error, ERROR_USAGE,
				       "--transport %s: this weft has no transport '%s'",
				       options->transport, list.names[t]);
	}
	if (!rc && !pairs_number(&pairs))
		rc = memory_error(error, "listing transports", problem->trainer_count);
	if (!rc)
		rc = problem_set_pairs(problem, &pairs, error);
	pool_free(&pool);
	return rc;
}

static int check_pairs(const struct table *table, struct error *error)
{
	size_t r = table_unreached(table);
	char names[TRANSPORTS_TEXT_BYTES];

	if (r == table->route_count)
		return 0;
	return error_set(
		error, ERROR_UNSUPPORTED,
		"no transport of %s gets from trainer %u to inference %u, nor from another "
		"trainer that holds these rows of %.200s: they are on two hosts (of the "
		"--topology; without one every rank has a host of its own); name one "
		"between hosts too: --transport %s,tcp",
		transports_text(&table->problem->pairs->list, names), table->routes[r].trainer,
		table->routes[r].inference, table->problem->tensors[table->routes[r].tensor].name,
		names);
}

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
	if (strcmp(memory, "mapped") && strcmp(memory, "process") && strcmp(memory, "landed"))
		return error_set(error, ERROR_USAGE,
				 "--memory %s is not known; it is mapped, process or landed",
				 memory);
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
	const char *memory = options->memory ? options->memory : "mapped";
	struct route_job checked = {0};
	int rc;

	*job = (struct route_job){0};
	rc = check(options, &checked, error);
	if (!rc)
		rc = route_job_open(job, options->model, options->as, options->train,
				    options->infer, !strcmp(memory, "mapped"), error);
	if (rc)
		return rc;
	if (!strcmp(memory, "landed"))
		problem_land_all(job->problem);
	job->policy = checked.policy;
	job->plan = checked.plan;
	if (options->topology)
		rc = topology_open(&job->topology, options->topology, job->problem->trainer_count,
				   job->problem->inference_count, error);
	job->plan.topology = job->topology;
	if (!rc && options->transport)
		rc = set_pairs(job, options, memory, error);
	if (rc)
		route_job_close(job);
	return rc;
}

int route_options_plan(struct route_job *job, const struct route_options *options,
		       struct error *error)
{
	int rc = route_options_open(job, options, error);

	if (!rc) {
		progress_step("planning %s by %s", shown(options->model), job->policy->name);
		rc = table_plan(&job->table, job->problem, job->policy, &job->plan, error);
		progress_steps_end();
	}
	if (rc)
		route_sizes_add(options, error);
	return rc ? rc : check_pairs(job->table, error);
}
