/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "worker/api/weft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const variables[] = {
	"WEFT_KEY_FILE",
	"WEFT_INSECURE",
	"XDG_RUNTIME_DIR",
	"LOCAL_WORLD_SIZE",
	"OMPI_COMM_WORLD_LOCAL_SIZE",
	"WEFT_RANK",
	"WEFT_WORLD_SIZE",
	"WEFT_LOCAL_RANK",
	"WEFT_GROUP_INDEX",
	"WEFT_GROUP_SIZE",
	"WEFT_CONTROLLER",
	"RANK",
	"WORLD_SIZE",
	"LOCAL_RANK",
	"PET_NODE_RANK",
	"PET_NNODES",
	"PET_NPROC_PER_NODE",
	"OMPI_COMM_WORLD_RANK",
	"OMPI_COMM_WORLD_SIZE",
	"OMPI_COMM_WORLD_LOCAL_RANK",
	"PMI_RANK",
	"PMI_SIZE",
	"MPI_LOCALRANKID",
	"PMIX_RANK",
	"SLURM_PROCID",
	"SLURM_NTASKS",
	"SLURM_LOCALID",
	"JOB_COMPLETION_INDEX",
	"LWS_WORKER_INDEX",
	"LWS_GROUP_SIZE",
	"LWS_LEADER_ADDRESS",
	"KUBERNETES_SERVICE_HOST",
	"TORCHELASTIC_RUN_ID",
	"TORCHELASTIC_RESTART_COUNT",
	"TORCHELASTIC_ERROR_FILE",
	"MASTER_ADDR",
	"MASTER_PORT",
};

static void clean_environment(void)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
}

/* "A=1 B=2" into a clean environment. */
static void set_environment(const char *text)
{
	char copy[1024], *save = NULL;

	clean_environment();
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *item = strtok_r(copy, " ", &save); item; item = strtok_r(NULL, " ", &save)) {
		char *equals = strchr(item, '=');

		*equals = 0;
		setenv(item, equals + 1, 1);
	}
}

static int find(const char *environment, int64_t rank, const char *controller, weft_launch *launch,
		weft_error *error)
{
	*launch = (weft_launch){.size = sizeof(*launch), .rank = rank, .world = -1};
	snprintf(launch->controller, sizeof(launch->controller), "%s", controller);
	set_environment(environment);
	return weft_launch_find(launch, error);
}

static void test_launch__finds_the_rank_by_every_launcher(void **state)
{
	static const struct {
		const char *environment;
		int64_t rank, world, local;
		const char *source;
	} rows[] = {
		{"", -1, -1, -1, ""},
		{"WEFT_RANK=3 WEFT_WORLD_SIZE=8 WEFT_LOCAL_RANK=1", 3, 8, 1, "WEFT_RANK"},
		{"RANK=5 WORLD_SIZE=16 LOCAL_RANK=5", 5, 16, 5, "RANK"},
		{"PET_NODE_RANK=1 PET_NNODES=2", 1, 2, -1, "PET_NODE_RANK"},
		{"PET_NODE_RANK=1 PET_NNODES=2 PET_NPROC_PER_NODE=8", -1, -1, -1, ""},
		{"PET_NODE_RANK=1 PET_NNODES=1:4", 1, -1, -1, "PET_NODE_RANK"},
		{"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0", 2, 4,
		 0, "OMPI_COMM_WORLD_RANK"},
		{"PMI_RANK=2 PMI_SIZE=4", 2, 4, -1, "PMI_RANK"},
		{"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=1", 2, 4, 1, "PMI_RANK"},
		{"PMIX_RANK=7", 7, -1, -1, "PMIX_RANK"},
		{"SLURM_PROCID=9 SLURM_NTASKS=10 SLURM_LOCALID=3", 9, 10, 3, "SLURM_PROCID"},
		{"JOB_COMPLETION_INDEX=4", 4, -1, -1, "JOB_COMPLETION_INDEX"},
		{"LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2", 1, 2, -1, "LWS_WORKER_INDEX"},
		/* agreeing sources: the first in order is named */
		{"WEFT_RANK=1 RANK=1 WORLD_SIZE=2", 1, 2, -1, "WEFT_RANK"},
		/* a launcher inside another numbers the workers */
		{"TORCHELASTIC_RUN_ID=x RANK=5 WORLD_SIZE=8 SLURM_PROCID=1 SLURM_NTASKS=2 "
		 "PET_NODE_RANK=1 JOB_COMPLETION_INDEX=1",
		 5, 8, -1, "RANK"},
		{"PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 SLURM_PROCID=1 SLURM_NTASKS=2", 3, 4, 1,
		 "PMI_RANK"},
		{"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=4", 3,
		 4, -1, "OMPI_COMM_WORLD_RANK"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		weft_launch launch;
		weft_error error = WEFT_ERROR_INIT;

		assert_int_equal(find(rows[i].environment, -1, "", &launch, &error), 0);
		assert_int_equal(launch.rank, rows[i].rank);
		assert_int_equal(launch.world, rows[i].world);
		assert_int_equal(launch.local_rank, rows[i].local);
		assert_string_equal(launch.rank_source, rows[i].source);
	}
}

static void test_launch__counts_on_from_the_groups_before(void **state)
{
	static const struct {
		const char *environment;
		int64_t given, rank, world;
		const char *source;
	} rows[] = {
		{"LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2 WEFT_GROUP_INDEX=3", -1, 7, -1,
		 "LWS_WORKER_INDEX in group 3"},
		{"JOB_COMPLETION_INDEX=1 WEFT_GROUP_INDEX=2 WEFT_GROUP_SIZE=4", -1, 9, -1,
		 "JOB_COMPLETION_INDEX in group 2"},
		/* a torchrun for each group of a LeaderWorkerSet: its ranks, not the pods */
		{"TORCHELASTIC_RUN_ID=x RANK=5 WORLD_SIZE=16 LWS_WORKER_INDEX=0 LWS_GROUP_SIZE=2 "
		 "WEFT_GROUP_INDEX=1",
		 -1, 21, -1, "RANK in group 1"},
		{"JOB_COMPLETION_INDEX=1 WEFT_GROUP_INDEX=0 WEFT_GROUP_SIZE=2 WEFT_WORLD_SIZE=6",
		 -1, 1, 6, "JOB_COMPLETION_INDEX in group 0"},
		/* what the user counts is of the job; a size alone says nothing */
		{"WEFT_GROUP_INDEX=1 WEFT_GROUP_SIZE=2", 1, 1, -1, "--rank"},
		{"WEFT_RANK=1 WEFT_GROUP_INDEX=1 WEFT_GROUP_SIZE=2", -1, 1, -1, "WEFT_RANK"},
		{"RANK=1 WEFT_GROUP_SIZE=2", -1, 1, -1, "RANK"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		weft_launch launch;
		weft_error error = WEFT_ERROR_INIT;

		assert_int_equal(find(rows[i].environment, rows[i].given, "", &launch, &error), 0);
		assert_int_equal(launch.rank, rows[i].rank);
		assert_int_equal(launch.world, rows[i].world);
		assert_string_equal(launch.rank_source, rows[i].source);
	}
}

static void test_launch__refuses_what_contradicts_naming_both(void **state)
{
	static const struct {
		const char *environment;
		int64_t rank;
		const char *one, *other;
	} rows[] = {
		{"WEFT_RANK=1 RANK=2", -1, "1 by WEFT_RANK", "2 by RANK"},
		{"RANK=2", 1, "1 by --rank", "2 by RANK"},
		{"RANK=1 SLURM_PROCID=2", -1, "RANK", "SLURM_PROCID"},
		{"RANK=1 OMPI_COMM_WORLD_RANK=2", -1, "RANK", "OMPI_COMM_WORLD_RANK"},
		{"OMPI_COMM_WORLD_RANK=1 PMI_RANK=2", -1, "OMPI_COMM_WORLD_RANK", "PMI_RANK"},
		{"SLURM_PROCID=1 JOB_COMPLETION_INDEX=0", -1, "SLURM_PROCID",
		 "JOB_COMPLETION_INDEX"},
		{"RANK=1 WORLD_SIZE=4 SLURM_PROCID=1 SLURM_NTASKS=8", -1, "4 by WORLD_SIZE",
		 "8 by SLURM_NTASKS"},
		{"WEFT_WORLD_SIZE=3 RANK=1 WORLD_SIZE=4", -1, "WEFT_WORLD_SIZE", "WORLD_SIZE"},
		{"RANK=4 WORLD_SIZE=4", -1, "4 (from RANK)", "4 (from WORLD_SIZE)"},
		{"JOB_COMPLETION_INDEX=0 WEFT_GROUP_INDEX=1", -1, "WEFT_GROUP_INDEX is 1",
		 "set WEFT_GROUP_SIZE"},
		{"JOB_COMPLETION_INDEX=2 WEFT_GROUP_INDEX=1 WEFT_GROUP_SIZE=2", -1,
		 "2 (from JOB_COMPLETION_INDEX)", "2 (from WEFT_GROUP_SIZE)"},
		{"LWS_WORKER_INDEX=0 LWS_GROUP_SIZE=2 WEFT_GROUP_INDEX=1 WEFT_GROUP_SIZE=4", -1,
		 "4 by WEFT_GROUP_SIZE", "2 by LWS_GROUP_SIZE"},
		{"JOB_COMPLETION_INDEX=0 WEFT_GROUP_INDEX=2000000000 WEFT_GROUP_SIZE=2", -1,
		 "WEFT_GROUP_INDEX is 2000000000", "2 ranks a group"},
		{"RANK=four", -1, "RANK", "'four'"},
		{"WEFT_RANK=tcp://10.0.0.1:29600", -1, "WEFT_RANK", "enableServiceLinks"},
		{"WEFT_WORLD_SIZE=-1", -1, "WEFT_WORLD_SIZE", "'-1'"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		weft_launch launch;
		weft_error error = WEFT_ERROR_INIT;

		assert_int_equal(find(rows[i].environment, rows[i].rank, "", &launch, &error),
				 -WEFT_E_CONFIG);
		assert_int_equal(error.code, WEFT_E_CONFIG);
		assert_non_null(strstr(error.text, rows[i].one));
		assert_non_null(strstr(error.text, rows[i].other));
	}
}

static void test_launch__finds_the_controller(void **state)
{
	static const struct {
		const char *environment, *flag, *address, *source;
		int start;
	} rows[] = {
		{"", "", "", "", 0},
		{"", "tcp://head:1234", "tcp://head:1234", "--controller", 0},
		{"", "head", "tcp://head:29600", "--controller", 0},
		{"", "head:7", "tcp://head:7", "--controller", 0},
		{"", "tcp://[fe80::1]:7", "tcp://[fe80::1]:7", "--controller", 0},
		{"", "tcp://123456789012:7", "tcp://123456789012:7", "--controller", 0},
		{"WEFT_CONTROLLER=head", "", "tcp://head:29600", "WEFT_CONTROLLER", 0},
		{"WEFT_CONTROLLER=tcp://head:29600", "head", "tcp://head:29600", "--controller", 0},
		{"LWS_LEADER_ADDRESS=leader.ns", "", "tcp://leader.ns:29600", "LWS_LEADER_ADDRESS",
		 0},
		{"RANK=0 MASTER_ADDR=node0 MASTER_PORT=29500", "auto", "tcp://node0:29600",
		 "--controller", 1},
		{"RANK=2 MASTER_ADDR=node0 MASTER_PORT=29500", "auto", "tcp://node0:29600",
		 "--controller", 0},
		{"RANK=0 MASTER_ADDR=node0 MASTER_PORT=65500 WEFT_CONTROLLER=auto", "",
		 "tcp://node0:65400", "WEFT_CONTROLLER", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		weft_launch launch;
		weft_error error = WEFT_ERROR_INIT;

		assert_int_equal(find(rows[i].environment, -1, rows[i].flag, &launch, &error), 0);
		assert_string_equal(launch.controller, rows[i].address);
		assert_string_equal(launch.controller_source, rows[i].source);
		assert_int_equal(launch.start_controller, rows[i].start);
	}
}

static void test_launch__finds_the_key(void **state)
{
	static const struct {
		const char *environment, *controller, *file;
		int waits;
	} rows[] = {
		{"", "head", "", 0},
		{"WEFT_KEY_FILE=/k/job", "head", "/k/job", 0},
		{"RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 XDG_RUNTIME_DIR=/dev", "auto",
		 "/dev/weft-auto-UID-29600/key", 1},
		{"RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node MASTER_PORT=29500 "
		 "XDG_RUNTIME_DIR=/not/there",
		 "auto", "/tmp/weft-auto-UID-29600/key", 1},
		{"RANK=0 MASTER_ADDR=node MASTER_PORT=29500", "auto", "", 0},
		{"RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WEFT_KEY_FILE=/k", "auto", "/k",
		 0},
		{"RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n MASTER_PORT=29500 "
		 "WEFT_INSECURE=1",
		 "auto", "", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		weft_error error = WEFT_ERROR_INIT;
		weft_launch launch;
		char want[256];
		const char *uid = strstr(rows[i].file, "UID");

		snprintf(want, sizeof(want), "%s", rows[i].file);
		if (uid)
			snprintf(want, sizeof(want), "%.*s%u%s", (int)(uid - rows[i].file),
				 rows[i].file, geteuid(), uid + 3);
		assert_int_equal(find(rows[i].environment, -1, rows[i].controller, &launch, &error),
				 0);
		assert_string_equal(launch.key_file, want);
		assert_int_equal(launch.key_waits, rows[i].waits);
	}
}

static void test_launch__refuses_bad_controllers(void **state)
{
	static const struct {
		const char *environment, *flag, *word;
	} rows[] = {
		{"", "ipc:///x", "only tcp"},
		{"", "tcp://head:0", "port"},
		{"", "head:many", "port"},
		{"", "tcp://:5", "host"},
		{"", "29600", "tcp://host:29600"},
		{"", "tcp://29600:29600", "no usable host"},
		{"", "tcp:/head:5", "tcp://host:29600"},
		{"", "tcp://he ad:5", "tcp://host:29600"},
		{"", "::1:5", "[number]"},
		{"", "tcp://[::1:5", "[number]"},
		{"", "tcp://[]:5", "[number]"},
		{"WEFT_CONTROLLER=head/29600", "", "tcp://host:29600"},
		{"RANK=0", "auto", "MASTER_ADDR"},
		{"MASTER_ADDR=a MASTER_PORT=1", "auto", "rank"},
		{"RANK=0 MASTER_ADDR=a MASTER_PORT=tcp://1.2.3.4:5", "auto", "enableServiceLinks"},
		{"WEFT_CONTROLLER=b", "a", "tcp://b:29600 by WEFT_CONTROLLER"},
		{"RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n MASTER_PORT=29500", "auto",
		 "over several hosts needs a key"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		weft_launch launch;
		weft_error error = WEFT_ERROR_INIT;

		assert_int_equal(find(rows[i].environment, -1, rows[i].flag, &launch, &error),
				 -WEFT_E_CONFIG);
		assert_non_null(strstr(error.text, rows[i].word));
	}
}

static void report(const char *path, int code, char *text, size_t bytes)
{
	weft_error error = {.size = sizeof(error), .code = code, .text = "it said \"no\""};
	FILE *file;

	unlink(path);
	setenv("TORCHELASTIC_ERROR_FILE", path, 1);
	weft_launch_report(&error);
	error.code = WEFT_E_INTERNAL; /* the first report stays */
	weft_launch_report(&error);
	file = fopen(path, "re");
	assert_non_null(file);
	text[fread(text, 1, bytes - 1, file)] = 0;
	fclose(file);
	unlink(path);
}

static long long stamp_of(const char *text)
{
	const char *at = strstr(text, "\"timestamp\":\"");

	assert_non_null(at);
	return atoll(at + strlen("\"timestamp\":\""));
}

static void test_report__is_what_torchrun_reads_and_victims_come_second(void **state)
{
	char path[] = "weft-report-XXXXXX", cause[2048], victim[2048];
	int file = mkstemp(path);

	(void)state;
	assert_true(file >= 0);
	close(file);
	report(path, WEFT_E_TRANSPORT, cause, sizeof(cause));
	report(path, WEFT_E_PEER_LOST, victim, sizeof(victim));
	assert_non_null(strstr(cause,
			       "{\"message\":{\"message\":\"WEFT-E140 transfer failed: it said "
			       "\\\"no\\\"\""));
	assert_non_null(strstr(cause, "\"extraInfo\":{"));
	assert_true(stamp_of(victim) >= stamp_of(cause) + 5);
	clean_environment();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_launch__finds_the_rank_by_every_launcher),
		cmocka_unit_test(test_launch__counts_on_from_the_groups_before),
		cmocka_unit_test(test_launch__refuses_what_contradicts_naming_both),
		cmocka_unit_test(test_launch__finds_the_controller),
		cmocka_unit_test(test_launch__finds_the_key),
		cmocka_unit_test(test_launch__refuses_bad_controllers),
		cmocka_unit_test(test_report__is_what_torchrun_reads_and_victims_come_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
