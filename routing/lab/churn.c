/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/churn.h"

#include "base/memory.h"
#include "base/pool.h"
#include "routing/lab/simulate_without.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one trainer sends one rank of a tensor. */
struct share {
	uint32_t tensor, inference, trainer;
	uint64_t bytes;
};

struct state {
	const struct table *first;
	const struct policy *policy;
	const struct plan_options *plan;
	struct simulate_options options;
	struct pool pool;
	bool *lost[ROLE_COUNT];
	struct share *shares; /* of the plan before */
	size_t share_count;
	struct planned {
		struct problem_without without;
		struct table *table; /* NULL: none */
	} plans[2];		     /* that plan, and room for the next */
	uint32_t last;
};

static uint32_t width(const struct problem *problem)
{
	return problem->ranks_per_engine ? problem->ranks_per_engine : 1;
}

/* ---- changes ---- */

struct change {
	bool back;
	enum role role;
	uint32_t first, count; /* ranks */
};

static int read_change(const struct problem *problem, const char *text, struct change *change,
		       struct error *error)
{
	static const char *const kinds[] = {"trainer=", "engine="};
	uint32_t there[] = {problem->trainer_count, problem->inference_count / width(problem)};
	size_t kind = 0;
	char *end;
	unsigned long index;

	while (kind < 2 && strncmp(text + (text[0] != '\0'), kinds[kind], strlen(kinds[kind])) != 0)
		kind++;
	if ((text[0] != '+' && text[0] != '-') || kind == 2 ||
	    text[1 + strlen(kinds[kind])] < '0' || text[1 + strlen(kinds[kind])] > '9')
		return error_set(
			error, ERROR_USAGE,
			"--churn: '%s' is no change, such as -trainer=3, +trainer=3, -engine=1 or +engine=1",
			text);
	index = strtoul(text + 1 + strlen(kinds[kind]), &end, 10);
	if (*end || index >= there[kind])
		return error_set(error, ERROR_USAGE, "--churn: '%s': there are %s 0 to %u", text,
				 kind ? "engines" : "trainers", there[kind] - 1);
	*change = (struct change){
		.back = text[0] == '+',
		.role = kind ? ROLE_INFERENCE : ROLE_TRAINER,
		.first = (uint32_t)index * (kind ? width(problem) : 1),
		.count = kind ? width(problem) : 1,
	};
	return 0;
}

static int make_change(struct state *state, const char *text, struct error *error)
{
	const struct problem *problem = state->first->problem;
	struct change change = {0};
	const bool *away;
	int rc = read_change(problem, text, &change, error);

	if (rc)
		return rc;
	away = change.role == ROLE_TRAINER ? problem->trainer_away : problem->inference_away;
	if (away && away[change.first])
		return error_set(
			error, ERROR_USAGE,
			"--churn: '%s': it was away when the plan was made, which says nothing of it",
			text);
	if (state->lost[change.role][change.first] != change.back)
		return error_set(error, ERROR_USAGE, "--churn: '%s': it is %s", text,
				 change.back ? "here already" : "lost already");
	for (uint32_t r = 0; r < change.count; r++)
		state->lost[change.role][change.first + r] = !change.back;
	return 0;
}

/* ---- what a plan is ---- */

static int compare_shares(const void *left, const void *right)
{
	const struct share *a = left, *b = right;

	if (a->tensor != b->tensor)
		return a->tensor < b->tensor ? -1 : 1;
	if (a->inference != b->inference)
		return a->inference < b->inference ? -1 : 1;
	return a->trainer < b->trainer ? -1 : a->trainer > b->trainer;
}

static int shares_of(const struct table *table, struct share **shares, size_t *count,
		     struct error *error)
{
	*count = 0;
	*shares = memory_alloc((table->route_count + 1) * sizeof(**shares));
	if (!*shares)
		return memory_error(error, "comparing plans",
				    table->route_count * sizeof(**shares));
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];

		(*shares)[r] = (struct share){route->tensor, route->inference, route->trainer,
					      route->bytes};
	}
	qsort(*shares, table->route_count, sizeof(**shares), compare_shares);
	/* a unit that is cut has several routes of one trainer */
	for (size_t r = 0; r < table->route_count; r++) {
		if (*count && compare_shares(&(*shares)[*count - 1], &(*shares)[r]) == 0)
			(*shares)[*count - 1].bytes += (*shares)[r].bytes;
		else
			(*shares)[(*count)++] = (*shares)[r];
	}
	return 0;
}

/* Of ranks that the plan before had, too. */
static uint64_t moved(const struct state *state, const struct share *shares, size_t count,
		      const bool *was_here)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++) {
		const struct share *before =
			state->shares ? bsearch(&shares[i], state->shares, state->share_count,
						sizeof(*shares), compare_shares)
				      : NULL;
		uint64_t same = before ? before->bytes : 0;

		if (state->shares && was_here[shares[i].inference] && shares[i].bytes > same)
			bytes += shares[i].bytes - same;
	}
	return bytes;
}

static int find_balance(const struct table *table, struct churn_step *step, struct error *error)
{
	uint32_t trainers = table->problem->trainer_count;
	uint64_t *sent = memory_zalloc(trainers, sizeof(*sent));

	if (!sent)
		return memory_error(error, "comparing plans", trainers * sizeof(*sent));
	for (size_t r = 0; r < table->route_count; r++)
		sent[table->routes[r].trainer] += table->routes[r].bytes;
	for (uint32_t t = 0; t < trainers; t++) {
		step->bytes += sent[t];
		if (sent[t] > step->largest_bytes)
			step->largest_bytes = sent[t];
	}
	step->imbalance =
		step->bytes ? (double)step->largest_bytes * step->trainers / (double)step->bytes
			    : 1;
	memory_free(sent);
	return 0;
}

static int measure(struct state *state, const struct table *table, const bool *was_here,
		   struct churn_step *step, struct error *error)
{
	struct simulation simulation = {0};
	struct share *shares = NULL;
	size_t count;
	int rc = simulate(&simulation, table, &state->options, error);

	if (!rc)
		rc = shares_of(table, &shares, &count, error);
	if (!rc)
		rc = find_balance(table, step, error);
	if (!rc) {
		step->routes = table->route_count;
		step->makespan_seconds = simulation.makespan_seconds;
		step->moved_bytes = moved(state, shares, count, was_here);
		memory_free(state->shares);
		state->shares = shares;
		state->share_count = count;
		shares = NULL;
	}
	memory_free(shares);
	simulation_fini(&simulation);
	return rc;
}

static void forget(struct planned *plan)
{
	table_free(&plan->table);
	problem_without_fini(&plan->without);
}

static int plan_and_measure(struct state *state, const bool *was_here, struct churn_step *step,
			    struct error *error)
{
	const struct problem *problem = state->first->problem;
	struct plan_options options = *state->plan;
	struct planned *next = &state->plans[!state->last];
	int rc;

	for (uint32_t t = 0; t < problem->trainer_count; t++)
		step->trainers += !state->lost[ROLE_TRAINER][t];
	for (uint32_t r = 0; r < problem->inference_count; r += width(problem))
		step->engines += !state->lost[ROLE_INFERENCE][r];
	if (!step->trainers)
		return error_set(error, ERROR_ABORTED, "no trainer is left");
	forget(next);
	rc = problem_without(&next->without, problem, state->lost, error);
	if (rc) {
		error->code = error->code == ERROR_UNSOURCED ? ERROR_ABORTED : error->code;
		return -(int)error->code;
	}
	options.before = state->plans[state->last].table;
	rc = table_plan(&next->table, &next->without.problem, state->policy, &options, error);
	if (!rc)
		rc = measure(state, next->table, was_here, step, error);
	state->last = !state->last;
	return rc;
}

/* ---- all of them ---- */

static int one(struct churn *churn, struct state *state, const char *change, struct error *error)
{
	uint32_t ranks = state->first->problem->inference_count;
	bool *was_here = memory_alloc(ranks + 1);
	struct churn_step step = {.change = ""};
	int rc = 0;

	if (!was_here)
		return memory_error(error, "comparing plans", ranks);
	for (uint32_t r = 0; r < ranks; r++)
		was_here[r] = !state->lost[ROLE_INFERENCE][r];
	snprintf(step.change, sizeof(step.change), "%s", change ? change : "");
	if (change)
		rc = make_change(state, change, error);
	if (!rc) {
		rc = plan_and_measure(state, was_here, &step, error);
		if (rc && change)
			error_wrap(error, "--churn: after %s", change);
	}
	memory_free(was_here);
	if (!rc && !array_add(&churn->steps, step))
		rc = memory_error(error, "comparing plans", sizeof(step));
	return rc;
}

/* Who was away when the plan was made. */
static bool *lost_at_first(struct pool *pool, const bool *away, uint32_t count)
{
	bool *lost = pool_array(pool, count, sizeof(*lost));

	if (lost && away)
		memcpy(lost, away, count * sizeof(*lost));
	return lost;
}

int churn_run(struct churn *churn, const struct table *table, const struct policy *policy,
	      const struct plan_options *plan, const struct simulate_options *options,
	      const char *changes, struct error *error)
{
	const struct problem *problem = table->problem;
	struct state state = {.first = table, .policy = policy, .plan = plan, .options = *options};
	char *copy = memory_string(changes), *at = copy, *change;
	int rc;

	state.options.record = false;
	state.lost[ROLE_TRAINER] =
		lost_at_first(&state.pool, problem->trainer_away, problem->trainer_count);
	state.lost[ROLE_INFERENCE] =
		lost_at_first(&state.pool, problem->inference_away, problem->inference_count);
	rc = copy && pool_ok(&state.pool) ? one(churn, &state, NULL, error)
					  : memory_error(error, "comparing plans", strlen(changes));
	while (!rc && (change = strsep(&at, ",")))
		rc = one(churn, &state, change, error);
	forget(&state.plans[0]);
	forget(&state.plans[1]);
	memory_free(state.shares);
	memory_free(copy);
	pool_free(&state.pool);
	return rc;
}

void churn_fini(struct churn *churn)
{
	array_free(&churn->steps);
}
