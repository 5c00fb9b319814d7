/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route simulate: a table, from a plan or a dump, through the simulator.
 */
#include "cli/simulate_view.h"
#include "cli/shown.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "routing/report/dump_read.h"
#include "routing/plan/order.h"
#include "routing/lab/simulate_without.h"
#include "routing/plan/topology_file.h"
#include "routing/lab/trace.h"

#include <math.h>

/* What is open while a command runs. */
struct session {
	struct simulate_flags *flags;
	struct route_job job;
	struct dump *dump;
	struct topology *flat;
	struct simulation simulation, replay;
	struct simulated_bound bound;
	struct baseline baseline;
	struct churn churn;
	bool repeated;
};

/* ---- the table ---- */

static int open_dump(struct session *session, struct error *error)
{
	const struct simulate_flags *flags = session->flags;
	const struct order *order = NULL;
	int rc = dump_open(&session->dump, flags->file, error);

	if (rc)
		return rc;
	if (!session->dump->has_routes)
		rc = error_set(error, ERROR_FILE,
			       "there are no routes to simulate: it was written with --summary, "
			       "write it without");
	if (!rc)
		rc = route_job_open_without(
			&session->job, session->dump->labels.model, NULL,
			session->dump->labels.train, session->dump->labels.infer,
			&(struct problem_away){session->dump->labels.trainer_away,
					       session->dump->labels.inference_away},
			true, error);
	if (!rc)
		rc = dump_table(&session->job.table, session->dump, session->job.problem, error);
	progress_step("proving %s", shown(flags->file));
	if (!rc) /* times of a table that delivers something else would be worth nothing */
		rc = table_prove(session->job.table, error);
	progress_steps_end();
	if (rc)
		return error_wrap(error, "%s", flags->file);
	session->job.policy = policy_find(session->dump->labels.policy);
	rc = order_named(&order, flags->route.order ? "--order" : "its order",
			 flags->route.order ? flags->route.order : session->job.table->order,
			 error);
	if (rc && !flags->route.order) /* the file's fault, not the command's */
		return error_set(error, ERROR_FILE, "%s: order '%s' is not known to this version",
				 flags->file, session->job.table->order);
	if (!rc && flags->route.topology)
		rc = topology_open(&session->job.topology, flags->route.topology,
				   session->job.problem->trainer_count,
				   session->job.problem->inference_count, error);
	if (rc)
		return rc;
	session->job.table->order = order->name;
	if (session->job.topology)
		session->job.table->topology = session->job.topology;
	session->job.plan =
		(struct plan_options){.topology = session->job.table->topology, .order = order};
	return 0;
}

/* Memory of another host cannot be mapped, so `process` unless something else is asked for. */
static int open_plan(struct session *session, struct error *error)
{
	struct route_options *route = &session->flags->route;

	if (!route->memory)
		route->memory = "process";
	return route_options_plan(&session->job, route, error);
}

/* ---- after a failure ---- */

/* An engine with a lost rank serves nobody: all its ranks are left out of the repeated update. */
static void lose_engines(const struct problem *problem, bool *lost)
{
	uint32_t width = problem->ranks_per_engine;

	for (uint32_t r = 0; width && r < problem->inference_count; r += width) {
		bool any = false;

		for (uint32_t k = r; k < r + width && k < problem->inference_count; k++)
			any = any || lost[k];
		for (uint32_t k = r; k < r + width && k < problem->inference_count; k++)
			lost[k] = any;
	}
}

/* Did anyone whom the update still needed drop out? */
static bool is_needed(const struct simulation *simulation)
{
	for (uint32_t r = 0; r < simulation->rank_count[ROLE_INFERENCE]; r++)
		if (!isfinite(simulation->ranks[ROLE_INFERENCE][r].finish_seconds))
			return true;
	return false;
}

static int plan_replay(struct session *session, const struct problem *problem, struct error *error)
{
	struct simulate_options options = session->flags->simulate;
	struct failure at_once = session->flags->failure;
	struct table *table = NULL;
	int rc;

	at_once.seconds = 0; /* a NIC that failed stays away */
	options.failure = at_once.what == SLOW_NIC ? &at_once : NULL;
	options.record = false;
	rc = table_plan(&table, problem, session->job.policy, &session->job.plan, error);
	if (!rc)
		rc = simulate(&session->replay, table, &options, error);
	session->repeated = !rc;
	table_free(&table);
	return rc;
}

static int unknown_policy(const struct session *session, struct error *error)
{
	return error_set(error, ERROR_USAGE,
			 "%s was planned by policy %s, which is not known here, so the "
			 "update cannot be planned again",
			 session->flags->file, session->dump->labels.policy);
}

static int repeat(struct session *session, struct error *error)
{
	const struct simulation *simulation = &session->simulation;
	const struct problem *problem = session->job.table->problem;
	struct problem_without without;
	bool *lost[ROLE_COUNT];
	struct pool pool = {0};
	int rc = 0;

	if (!is_needed(simulation))
		return 0;
	if (!session->job.policy)
		return unknown_policy(session, error);
	for (int role = 0; !rc && role < ROLE_COUNT; role++) {
		lost[role] = pool_array(&pool, simulation->rank_count[role], sizeof(bool));
		if (!pool_ok(&pool))
			rc = memory_error(error, "planning again", simulation->rank_count[role]);
		for (uint32_t r = 0; !rc && r < simulation->rank_count[role]; r++)
			lost[role][r] = simulation->ranks[role][r].lost;
	}
	if (!rc)
		lose_engines(problem, lost[ROLE_INFERENCE]);
	if (!rc)
		rc = problem_without(&without, problem, lost, error);
	if (!rc) {
		rc = plan_replay(session, &without.problem, error);
		problem_without_fini(&without);
	}
	pool_free(&pool);
	if (rc)
		/* what is missing decides, not whose job it was: a failed update */
		error->code = error->code == ERROR_UNSOURCED ? ERROR_ABORTED : error->code;
	return rc;
}

/* ---- run ---- */

static int write_trace(struct session *session, struct error *error)
{
	const char *path = session->flags->trace;
	struct file_writer writer;
	double merged;
	int rc = file_writer_open(&writer, path, error);

	if (rc)
		return rc;
	trace_write(writer.stream, &session->simulation, session->job.table, &merged);
	rc = file_writer_commit(&writer, error);
	if (!rc && merged > 0 && !session->flags->json)
		log_say("weft: %s: slices shorter than %.3g us are joined", path, merged * 1e6);
	return rc;
}

static int churn(struct session *session, struct error *error)
{
	int rc;

	if (!session->job.policy)
		return unknown_policy(session, error);
	progress_step("planning and simulating, change by change");
	rc = churn_run(&session->churn, session->job.table, session->job.policy, &session->job.plan,
		       &session->flags->simulate, session->flags->churn, error);
	progress_steps_end();
	return rc;
}

static int run(struct session *session, struct error *error)
{
	struct simulate_flags *flags = session->flags;
	int rc = flags->file ? open_dump(session, error) : open_plan(session, error);

	if (!rc && flags->churn)
		return churn(session, error);
	if (!rc) {
		progress_step("simulating");
		rc = simulate(&session->simulation, session->job.table, &flags->simulate, error);
		progress_steps_end();
	}
	if (!rc)
		rc = simulate_bound(&session->bound, session->job.table,
				    flags->simulate.stage_bytes_per_second, error);
	if (!rc && flags->broadcast)
		rc = baseline_broadcast(&session->baseline, session->job.table, &flags->simulate,
					error);
	if (!rc && !session->job.table->topology)
		rc = topology_flat(&session->flat, session->job.table->problem->trainer_count,
				   session->job.table->problem->inference_count, error);
	if (!rc && flags->trace)
		rc = write_trace(session, error);
	if (!rc && flags->simulate.failure)
		rc = repeat(session, error);
	return rc;
}

static void close_session(struct session *session)
{
	simulation_fini(&session->simulation);
	simulation_fini(&session->replay);
	churn_fini(&session->churn);
	topology_free(&session->flat);
	route_job_close(&session->job);
	dump_free(&session->dump);
}

static void show(const struct session *session)
{
	struct simulate_view view = {
		.flags = session->flags,
		.table = session->job.table,
		.topology = session->flat ? session->flat : session->job.table->topology,
		.simulation = &session->simulation,
		.bound = &session->bound,
		.replay = session->repeated ? &session->replay : NULL,
		.baseline = session->flags->broadcast ? &session->baseline : NULL,
	};

	if (session->flags->churn && session->flags->json)
		simulate_churn_put(&session->churn);
	else if (session->flags->churn)
		simulate_churn_print(&session->churn);
	else if (session->flags->json)
		simulate_put(&view);
	else
		simulate_print(&view);
}

int route_simulate_run(void *flags, struct error *error)
{
	struct session session = {.flags = flags};
	int rc;

	if (session.flags->published) {
		rc = published_run(session.flags, error);
	} else {
		rc = run(&session, error);
		if (!rc)
			show(&session);
		close_session(&session);
	}
	return rc;
}
