/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define STOP_CONTROLLER_MS 5000 /* how long our controller may take to end after a failure */

static weft_worker *volatile signal_worker;
static volatile sig_atomic_t signalled;
/* while it joins: the controller that this process started, and that it has ended */
static volatile pid_t awaited;
static volatile sig_atomic_t ended, ended_with; /* its exit code; -1: a signal */

int fail(weft_error *error, int code, const char *format, ...)
{
	va_list args;

	error->code = code;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return -code;
}

void player_interrupt(int number)
{
	signalled = number;
	if (signal_worker)
		weft_interrupt(signal_worker);
}

int player_signal(void)
{
	return signalled;
}

size_t player_padded(uint64_t bytes)
{
	return (size_t)((bytes + 4095) / 4096 * 4096);
}

int player_map(struct player *player, size_t bytes, weft_error *error)
{
	player->memory_bytes = bytes ? bytes : 1;
	player->memory = mmap(NULL, player->memory_bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (player->memory != MAP_FAILED)
		return 0;
	player->memory = NULL;
	return fail(error, WEFT_E_MEMORY, "no %zu bytes of memory: %s", bytes, strerror(errno));
}

int player_map_device(struct player *player, size_t bytes, weft_error *error)
{
	int32_t device = weft_device(player->worker);

	player->device_memory = (weft_memory)WEFT_MEMORY_INIT;
	return device < 0 ? 0
			  : weft_play_allocate(device, bytes ? bytes : 1, &player->device_memory,
					       error);
}

weft_memory player_memory_at(const struct player *player, size_t offset, uint64_t bytes)
{
	const weft_memory *device = &player->device_memory;

	return device->pointer ? weft_cuda_memory(device->device, (char *)device->pointer + offset,
						  bytes, NULL)
			       : weft_host_memory((char *)player->memory + offset, bytes);
}

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

/* One trainer says it for all: what of the checkpoint nobody sends. */
static int say_left_alone(const struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	char left[512];
	int length = weft_checkpoint_left_alone(player->checkpoint, a->model, a->as, left,
						sizeof(left), error);

	if (length > 0)
		say("%s: %s", a->checkpoint, left);
	return length < 0 ? length : 0;
}

static int open_worker(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	const weft_options options = {
		.size = sizeof(options),
		.controller = player->launch.controller,
		.key_file = player->launch.key_file,
		.key_waits = player->launch.key_waits,
		.job = a->job,
		.role = player->role,
		.rank = player->rank,
		.transport = a->transport,
		.nic = a->nic,
		.join_timeout_ms = (uint32_t)a->join_timeout_ms,
		.update_timeout_ms = (uint32_t)a->update_timeout_ms,
		.ring_bytes = a->ring_bytes,
		.landing_bytes = a->landing_bytes,
		.replica = player->role == WEFT_TRAINER ? a->replica : NULL,
		.pack_threads = (uint32_t)a->pack_threads,
		.checksums = a->checksums,
		.shadow = player->role == WEFT_INFERENCE && a->shadow,
		.own_memory = player->role == WEFT_INFERENCE && a->own_memory,
		.memory = a->memory,
		.metrics = a->metrics,
		.metrics_file = a->metrics_file,
		.trace = a->trace,
		.stage = player->role == WEFT_INFERENCE ? a->stage : NULL,
	};
	int rc = weft_open(&player->worker, &options, error);

	weft_content_change_one_in((uint32_t)a->change_one_in);

	if (rc)
		return rc;
	signal_worker = player->worker;
	if (signalled)
		weft_interrupt(player->worker);
	return 0;
}

static int declare(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	int rc = weft_declare_model_as(player->worker, a->model, a->as, a->train, a->infer, error);

	if (!rc && player->checkpoint)
		rc = weft_checkpoint_fits(player->checkpoint, player->worker, error);
	if (!rc && player->checkpoint && player->role == WEFT_TRAINER && !player->rank)
		rc = say_left_alone(player, error);
	if (rc)
		return rc;
	if (player->role == WEFT_TRAINER)
		return trainer_register(player, error);
	rc = inference_compare(player, error);
	if (!rc)
		rc = post_load_set(player, error);
	return rc ? rc : inference_bind(player, error);
}

static int open_files(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;

	if (a->digests && player->role == WEFT_INFERENCE) {
		player->digests = fopen(a->digests, "we");
		if (!player->digests)
			return fail(error, WEFT_E_IO, "--digests: cannot open %s: %s", a->digests,
				    strerror(errno));
	}
	if (!a->checkpoint || (player->role == WEFT_INFERENCE && !a->verify))
		return 0;
	return weft_checkpoint_open(&player->checkpoint, a->checkpoint, error);
}

/* A signal handler: ours has ended before the job ran, so nobody answers any more. */
static void child_ended(int number)
{
	siginfo_t about = {0};

	(void)number;
	if (!awaited || waitid(P_PID, (id_t)awaited, &about, WEXITED | WNOHANG | WNOWAIT) ||
	    about.si_pid != awaited)
		return;
	ended = 1;
	ended_with = about.si_code == CLD_EXITED ? about.si_status : -1;
	if (signal_worker)
		weft_interrupt(signal_worker);
}

static int join(struct player *player, weft_error *error)
{
	struct sigaction action = {.sa_handler = child_ended, .sa_flags = SA_RESTART};
	int rc;

	awaited = (pid_t)player->controller;
	if (awaited) {
		sigaction(SIGCHLD, &action, NULL);
		child_ended(SIGCHLD); /* perhaps it has already */
	}
	rc = weft_join(player->worker, 0, error);
	awaited = 0;
	if (!rc || !ended || signalled)
		return rc;
	return fail(error, ended_with == 78 ? WEFT_E_CONFIG : WEFT_E_CONTROLLER_LOST,
		    "the controller that this rank started (pid %lld) ended before the job ran; it "
		    "says why above",
		    (long long)player->controller);
}

static int play(struct player *player, weft_error *error)
{
	int rc = self_find(player, error);

	if (rc)
		return rc;
	self_print(player);
	options_warn(&player->arguments, player->role == WEFT_TRAINER);
	/* controller and worker first: what fails then is told to the others */
	rc = start_controller(player, error);
	if (!rc)
		rc = open_worker(player, error);
	if (!rc)
		rc = open_files(player, error);
	if (!rc)
		rc = declare(player, error);
	if (!rc)
		rc = join(player, error);
	player->plan = (weft_plan_view)WEFT_PLAN_VIEW_INIT;
	if (!rc)
		rc = weft_plan(player->worker, &player->plan, error);
	if (rc)
		return rc;
	figures_joined(player);
	rc = player->role == WEFT_TRAINER ? trainer_run(player, error)
					  : inference_run(player, error);
	if (!rc)
		rc = weft_leave(player->worker, error);
	if (!rc)
		figures_done(player);
	return rc;
}

/* Whoever reads the message wants the signal, wherever in its work it found this process. */
static void say_signal(const struct player *player, weft_error *error)
{
	static const struct {
		int number;
		const char *name;
	} rows[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].number == player_signal())
			fail(error, WEFT_E_INTERRUPTED, "%s %u was interrupted by %s",
			     self_role(player), player->rank, rows[i].name);
}

int player_play(struct player *player, weft_error *error)
{
	int rc = play(player, error);

	if (rc && error->code == WEFT_E_INTERRUPTED)
		say_signal(player, error);
	if (!rc)
		rc = figures_written(player, error);
	/* the others are told, also of what is our own, between two updates; by a controller that lives */
	if (rc && player->worker && !ended)
		weft_fail(player->worker, error->code, error->text, NULL);
	return rc;
}

int player_close(struct player *player, bool failed)
{
	int rc;

	signal_worker = NULL;
	rc = weft_close(&player->worker);
	end_controller(player, failed);
	weft_checkpoint_close(&player->checkpoint);
	if (player->digests)
		fclose(player->digests);
	if (player->memory && !rc) /* else somebody may still write it */
		munmap(player->memory, player->memory_bytes);
	if (!rc)
		weft_play_free(&player->device_memory);
	free(player->data);
	free(player->holdings);
	return rc;
}
