/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c -- who am I, from flags and from what launchers put into the environment.
 *
 * One table of sources in order of precedence. A launcher can sit inside another (torchrun in a
 * Slurm task, MPI in a pod); the outer one then numbers nodes or agents, not workers, so rows
 * outside the launcher that started this very process are not looked at. All others that speak
 * must agree: two ranks in one environment are a mistake that is cheap to name here and costly
 * to find later.
 */
#include "base/error.h"
#include "base/text.h"
#include "worker/api/abi.h"
#include "worker/api/worker.h"
#include "worker/launch/launch_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_PORT	29600
#define PORT_DIGITS_MAX 5
#define AUTO_PORT_STEP	100 /* torchrun's store listens on MASTER_PORT itself */

enum launcher { LAUNCHER_HAND, LAUNCHER_TORCH, LAUNCHER_MPI, LAUNCHER_SLURM, LAUNCHER_POD };

struct launch_row {
	enum launcher launcher;
	const char *rank, *world, *local; /* variables; NULL: this launcher has none */
};

/* Innermost launcher first. PET_NODE_RANK numbers nodes: see node_is_worker(). */
static const struct launch_row rows[] = {
	{LAUNCHER_HAND, "WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK"},
	{LAUNCHER_TORCH, "RANK", "WORLD_SIZE", "LOCAL_RANK"},
	{LAUNCHER_POD, "PET_NODE_RANK", "PET_NNODES", NULL},
	{LAUNCHER_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
	 "OMPI_COMM_WORLD_LOCAL_RANK"},
	{LAUNCHER_MPI, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	{LAUNCHER_MPI, "PMIX_RANK", NULL, NULL},
	{LAUNCHER_SLURM, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
	{LAUNCHER_POD, "JOB_COMPLETION_INDEX", NULL, NULL},
	{LAUNCHER_POD, "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", NULL},
};

/* A found number and where it was found. */
struct finding {
	int64_t value;
	const char *source; /* NULL: nothing */
};

static const char *variable(const char *name)
{
	const char *value = name ? getenv(name) : NULL;

	return value && *value ? value : NULL;
}

static int read_number(const char *name, int64_t *value, struct error *error)
{
	const char *text = variable(name);
	uint64_t number;

	*value = -1;
	if (!text)
		return 0;
	if (!strncmp(text, "tcp://", 6) || !strncmp(text, "udp://", 6))
		return error_set(
			error, ERROR_CONFIG,
			"%s is '%s': Kubernetes makes such variables for "
			"a Service of that name; set enableServiceLinks: false in the pod, "
			"or rename the Service",
			name, text);
	if (!parse_u64(text, &number) || number > INT32_MAX)
		return error_set(error, ERROR_CONFIG, "%s is '%s'; a number from 0 to %d is needed",
				 name, text, INT32_MAX);
	*value = (int64_t)number;
	return 0;
}

static int merge(struct finding *kept, int64_t value, const char *source, const char *what,
		 struct error *error)
{
	if (value < 0)
		return 0;
	if (!kept->source) {
		*kept = (struct finding){value, source};
		return 0;
	}
	if (kept->value == value)
		return 0;
	return error_set(error, ERROR_CONFIG, "%s is %lld by %s, but %lld by %s; unset one of them",
			 what, (long long)kept->value, kept->source, (long long)value, source);
}

/* How deep the launcher of this process sits: rows of outer launchers are not about it. */
static enum launcher innermost(void)
{
	if (variable("TORCHELASTIC_RUN_ID"))
		return LAUNCHER_TORCH;
	/* MPICH's mpirun starts its agents by srun, which numbers those; srun itself sets no MPI_LOCALRANKID */
	if (variable("OMPI_COMM_WORLD_RANK") || variable("MPI_LOCALRANKID"))
		return LAUNCHER_MPI;
	return LAUNCHER_POD;
}

/* Kubeflow's PET_ variables are for torchrun; without it, a node is a worker only when it has
 * one process. */
static bool node_is_worker(void)
{
	const char *processes = variable("PET_NPROC_PER_NODE");

	return !processes || !strcmp(processes, "1");
}

static int read_row(const struct launch_row *row, struct finding *rank, struct finding *world,
		    int64_t *local, struct error *error)
{
	int64_t r, w = -1, l;
	int rc;

	if (!strcmp(row->rank, "PET_NODE_RANK") && (!node_is_worker() || variable("RANK")))
		return 0;
	rc = read_number(row->rank, &r, error);
	/* an elastic PET_NNODES is a range, and says nothing about this world */
	if (!rc && !(row->world && !strcmp(row->world, "PET_NNODES") && variable(row->world) &&
		     strchr(variable(row->world), ':')))
		rc = read_number(row->world, &w, error);
	if (!rc)
		rc = read_number(row->local, &l, error);
	/* a size without a rank is left over from something else, except for our own */
	if (rc || (r < 0 && row->launcher != LAUNCHER_HAND))
		return rc;
	if (*local < 0)
		*local = l;
	rc = merge(rank, r, row->rank, "the rank", error);
	return rc ? rc : merge(world, w, row->world, "the world size", error);
}

/* A StatefulSet's pod is called name-3. */
static void read_hostname(struct finding *rank)
{
	static const char source[] = "the pod's name";
	char name[256] = "";
	char *dash;
	uint64_t number;

	if (!variable("KUBERNETES_SERVICE_HOST") || gethostname(name, sizeof(name) - 1))
		return;
	dash = strrchr(name, '-');
	if (dash && parse_u64(dash + 1, &number) && number <= INT32_MAX)
		*rank = (struct finding){(int64_t)number, source};
}

/* Whether a launcher counted it, and not the user. */
static bool counted(const struct finding *found)
{
	return found->source && strncmp(found->source, "--", 2) != 0 &&
	       strncmp(found->source, "WEFT_", 5) != 0;
}

/* An engine can be a launch of its own: a group of a LeaderWorkerSet, a Job of a JobSet, a torchrun.
 * Each launch counts from 0, and which of them this is comes from a label of the pod. */
static int leave_group(struct finding *rank, struct finding *world, int64_t *group,
		       struct error *error)
{
	struct finding size = {-1, NULL};
	int64_t number;
	int rc = read_number("WEFT_GROUP_INDEX", group, error);

	if (rc || *group < 0 || !counted(rank))
		return rc;
	rc = read_number("WEFT_GROUP_SIZE", &number, error);
	if (!rc)
		rc = merge(&size, number, "WEFT_GROUP_SIZE", "the size of a group", error);
	if (!rc && counted(world))
		rc = merge(&size, world->value, world->source, "the size of a group", error);
	if (rc)
		return rc;
	if (!size.source)
		return error_set(
			error, ERROR_CONFIG,
			"WEFT_GROUP_INDEX is %lld, and nothing says how many ranks a group "
			"has; set WEFT_GROUP_SIZE",
			(long long)*group);
	if (rank->value >= size.value)
		return error_set(error, ERROR_CONFIG,
				 "rank %lld (from %s) is not below the size of a group, %lld (from "
				 "%s)",
				 (long long)rank->value, rank->source, (long long)size.value,
				 size.source);
	if (*group > (INT32_MAX - rank->value) / size.value)
		return error_set(error, ERROR_CONFIG,
				 "WEFT_GROUP_INDEX is %lld; with %lld ranks a group that is beyond "
				 "rank %d",
				 (long long)*group, (long long)size.value, INT32_MAX);
	rank->value += *group * size.value;
	if (counted(world))
		*world = (struct finding){-1, NULL};
	return 0;
}

static int find_rank(weft_launch *launch, struct error *error)
{
	struct finding rank = {-1, NULL}, world = {-1, NULL};
	enum launcher inner = innermost();
	int64_t group = -1;
	int64_t local = -1;
	int rc = merge(&rank, launch->rank, "--rank", "the rank", error);

	if (!rc)
		rc = merge(&world, launch->world, "--world", "the world size", error);
	for (size_t i = 0; i < ARRAY_SIZE(rows) && !rc; i++)
		if (rows[i].launcher <= inner)
			rc = read_row(&rows[i], &rank, &world, &local, error);
	if (rc)
		return rc;
	if (!rank.source)
		read_hostname(&rank);
	if (rank.source && world.source && rank.value >= world.value)
		return error_set(error, ERROR_CONFIG,
				 "rank %lld (from %s) is not below world size "
				 "%lld (from %s)",
				 (long long)rank.value, rank.source, (long long)world.value,
				 world.source);
	rc = leave_group(&rank, &world, &group, error);
	if (rc)
		return rc;
	launch->rank = rank.value;
	launch->world = world.value;
	launch->local_rank = local;
	snprintf(launch->rank_source, sizeof(launch->rank_source), "%s",
		 rank.source ? rank.source : "");
	if (group >= 0 && counted(&rank))
		snprintf(launch->rank_source, sizeof(launch->rank_source), "%s in group %lld",
			 rank.source, (long long)group);
	return 0;
}

/* Letters, digits, - _ . of a name; in brackets an IPv6 number. A few digits alone are a port whose
 * host is missing: resolvers take them for an address in 0.0.0.0/8. */
static bool is_host(const char *host, size_t length)
{
	static const char name[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	static const char number[] = "abcdefABCDEF0123456789:.";
	static const char digits[] = "0123456789";

	if (*host == '[') {
		size_t inside = strcspn(host + 1, "]%");
		const char *end = memchr(host, ']', length);

		return end == host + length - 1 && inside && strspn(host + 1, number) >= inside;
	}
	if (length <= PORT_DIGITS_MAX && strspn(host, digits) >= length)
		return false;
	return strspn(host, name) >= length;
}

/* "host", "host:port" and "tcp://host:port" become the last form. */
static int spell_address(weft_launch *launch, const char *text, const char *source,
			 struct error *error)
{
	const char *host = strncmp(text, "tcp://", 6) ? text : text + 6;
	const char *bracket = strrchr(host, ']'), *colon = strrchr(host, ':');
	char out[sizeof(launch->controller)];
	uint64_t port = CONTROL_PORT;
	size_t length = strlen(host);
	int n;

	if (strstr(host, "://"))
		return error_set(error, ERROR_CONFIG,
				 "controller address '%s' (from %s): only tcp:// "
				 "is possible",
				 text, source);
	if (colon && (!bracket || colon > bracket)) {
		if (!parse_u64(colon + 1, &port) || !port || port > 65535)
			return error_set(error, ERROR_CONFIG,
					 "controller address '%s' (from %s): the "
					 "port is no number from 1 to 65535",
					 text, source);
		length = (size_t)(colon - host);
		n = snprintf(out, sizeof(out), "tcp://%.*s:%llu", (int)length, host,
			     (unsigned long long)port);
	} else {
		n = snprintf(out, sizeof(out), "tcp://%s:%llu", host, (unsigned long long)port);
	}
	if (!is_host(host, length) || (size_t)n >= sizeof(out))
		return error_set(error, ERROR_CONFIG,
				 "controller address '%s' (from %s) has no usable "
				 "host; write it as tcp://host:%d, or tcp://[number]:%d for IPv6",
				 text, source, CONTROL_PORT, CONTROL_PORT);
	memcpy(launch->controller, out, sizeof(out));
	snprintf(launch->controller_source, sizeof(launch->controller_source), "%s", source);
	return 0;
}

/* Every worker of the launch computes the same address; rank 0 starts the controller there. */
static int auto_address(weft_launch *launch, const char *source, struct error *error)
{
	const char *host = variable("MASTER_ADDR");
	int64_t port;
	char text[300];
	int rc = read_number("MASTER_PORT", &port, error);

	if (rc)
		return rc;
	if (!host || port < 1 || port > 65535)
		return error_set(error, ERROR_CONFIG,
				 "controller 'auto' (from %s) needs MASTER_ADDR "
				 "and MASTER_PORT, which torchrun sets; %s is '%s'",
				 source, host ? "MASTER_PORT" : "MASTER_ADDR",
				 host && variable("MASTER_PORT") ? variable("MASTER_PORT") : "");
	if (launch->rank < 0)
		return error_set(error, ERROR_CONFIG,
				 "controller 'auto' (from %s) needs a rank: rank 0 "
				 "starts the controller",
				 source);
	port += port + AUTO_PORT_STEP <= 65535 ? AUTO_PORT_STEP : -AUTO_PORT_STEP;
	if (strchr(host, ':') && host[0] != '[')
		snprintf(text, sizeof(text), "[%.200s]:%lld", host, (long long)port);
	else
		snprintf(text, sizeof(text), "%.200s:%lld", host, (long long)port);
	rc = spell_address(launch, text, source, error);
	launch->start_controller = !rc && launch->rank == 0;
	return rc;
}

/* *automatic: rank 0 starts it. */
static int find_controller(weft_launch *launch, bool *automatic, struct error *error)
{
	const char *from_env = variable("WEFT_CONTROLLER");
	const char *leader = variable("LWS_LEADER_ADDRESS");
	char flag[sizeof(launch->controller)];
	char from_flag[sizeof(launch->controller)] = "";
	int rc;

	memcpy(flag, launch->controller, sizeof(flag));
	flag[sizeof(flag) - 1] = 0;
	memset(launch->controller, 0, sizeof(launch->controller));
	*automatic = !strcmp(flag, "auto") || (from_env && !strcmp(from_env, "auto"));
	if (!*flag && !from_env)
		return leader ? spell_address(launch, leader, "LWS_LEADER_ADDRESS", error) : 0;
	if (*flag) {
		rc = strcmp(flag, "auto") ? spell_address(launch, flag, "--controller", error)
					  : auto_address(launch, "--controller", error);
		if (rc || !from_env)
			return rc;
		memcpy(from_flag, launch->controller, sizeof(from_flag));
	}
	rc = strcmp(from_env, "auto") ? spell_address(launch, from_env, "WEFT_CONTROLLER", error)
				      : auto_address(launch, "WEFT_CONTROLLER", error);
	if (rc || !*flag)
		return rc;
	if (strcmp(from_flag, launch->controller))
		return error_set(error, ERROR_CONFIG,
				 "the controller is %s by --controller, but %s by "
				 "WEFT_CONTROLLER; unset one of them",
				 from_flag, launch->controller);
	snprintf(launch->controller_source, sizeof(launch->controller_source), "--controller");
	return 0;
}

int weft_launch_find(weft_launch *launch, weft_error *error)
{
	weft_launch ours;
	struct error inner;
	bool automatic;
	int rc = abi_take(ABI_LAUNCH, "weft_launch_find", launch, &ours, &inner);

	if (rc)
		return worker_result(rc, &inner, error);
	ours.local_rank = -1;
	ours.restart_count = 0;
	ours.start_controller = 0;
	ours.rank_source[0] = ours.controller_source[0] = 0;
	rc = find_rank(&ours, &inner);
	if (!rc)
		rc = read_number("TORCHELASTIC_RESTART_COUNT", &ours.restart_count, &inner);
	if (!rc && ours.restart_count < 0)
		ours.restart_count = 0;
	if (!rc)
		rc = find_controller(&ours, &automatic, &inner);
	if (!rc)
		rc = launch_find_key(&ours, automatic, &inner);
	abi_give(ABI_LAUNCH, &ours, launch);
	return worker_result(rc, &inner, error);
}
