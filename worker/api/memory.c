/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c -- where a worker's memory lies: what the host asks for when it opens the worker, and memory that it hands in.
 */
#include "worker/api/abi.h"
#include "worker/api/worker.h"

#include "base/log.h"
#include "base/text.h"
#include "job/transports.h"
#include "transport/cuda/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opened ---- */

static const char *text_or(const char *given, const char *other)
{
	return given && *given ? given : other;
}

static int choose_stage(struct weft_worker *worker, const weft_options *options, bool cuda,
			struct error *error)
{
	static const struct {
		const char *name;
		enum landing landing;
		bool open;
	} rows[] = {{"none", LANDING_NONE, false},
		    {"host", LANDING_HOST, false},
		    {"device", LANDING_DEVICE, false},
		    {"auto", LANDING_DEVICE, true}};
	const char *stage = text_or(options->stage, "none");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (strcmp(stage, rows[i].name) == 0) {
			worker->landing = rows[i].landing;
			worker->landing_open = rows[i].open;
			if (!worker->landing)
				return 0;
			if (options->role != WEFT_INFERENCE || !cuda)
				return error_set(
					error, ERROR_USAGE,
					"stage '%s' (--stage) is for inference ranks whose "
					"parameters lie on a GPU (memory \"cuda\", --memory cuda); "
					"in host memory shadow does the same without a copy",
					stage);
			if (options->shadow)
				return error_set(error, ERROR_USAGE,
						 "stage '%s' (--stage) and shadow both keep the "
						 "last version readable: choose one of them",
						 stage);
			return 0;
		}
	return error_set(
		error, ERROR_CONFIG,
		"stage '%.40s' (--stage) is unknown; it is \"none\", \"device\", \"host\" or \"auto\"",
		stage);
}

/* What a NIC writes into the GPU's memory must be seen there; what no transport writes lands beside it. */
int worker_check_way(struct weft_worker *worker, struct error *error)
{
	const struct cuda_facts *facts;

	if (!worker->device || worker->self.role == ROLE_TRAINER || worker->landing == LANDING_HOST)
		return 0;
	facts = &worker->device->facts;
	if (!transport_domain_caps(worker->domain)->gpu_direct || !facts->flush_needed ||
	    facts->flush)
		return 0;
	if (worker->landing_open) {
		worker->landing = LANDING_HOST;
		worker->landing_open = false;
		log_info("%s: versions land in pinned memory of the host: %s has no flush for what "
			 "NICs write",
			 worker->self_name, device_text(worker->device));
		return 0;
	}
	return error_set(
		error, ERROR_UNSUPPORTED,
		"%s needs a flush before kernels see what a NIC wrote into its memory, and "
		"its driver offers none: let versions land in pinned host memory (stage "
		"\"host\", --stage host)",
		device_text(worker->device));
}

int worker_choose_landing(struct weft_worker *worker, struct error *error)
{
	uint64_t bytes = 0, left = 0;
	int rc;

	if (!worker->landing_open)
		return 0;
	for (size_t i = 0; i < worker->layout.param_count; i++)
		bytes += worker->layout.params[i].bytes;
	if (!worker->own_memory)
		bytes *= 2;  /* what is read, and what versions land in */
	bytes += bytes / 20; /* sums, tables, and what an allocator rounds up to */
	rc = device_memory_left(worker->device, &left, error);
	if (rc)
		return rc;
	worker->landing = bytes <= left ? LANDING_DEVICE : LANDING_HOST;
	log_info("%s: versions land in %s: %s of %s are free, and %s are needed", worker->self_name,
		 worker->landing == LANDING_DEVICE ? "spare memory of the GPU"
						   : "pinned memory of the host",
		 BYTES_TEXT(left), device_text(worker->device), BYTES_TEXT(bytes));
	return 0;
}

bool worker_land_on_host(struct weft_worker *worker)
{
	if (!worker->landing_open || worker->landing != LANDING_DEVICE)
		return false;
	worker->landing = LANDING_HOST;
	log_info("%s: versions land in pinned memory of the host: %s has no room any more",
		 worker->self_name, device_text(worker->device));
	return true;
}

#define KIND_BYTES 24

/* "cuda" is for both roles, "trainer=cuda,inference=host" each its own; a role that is not named: host. */
static bool kind_of(const char *text, enum weft_role role, char kind[KIND_BYTES])
{
	static const char *const names[] = {
		[WEFT_TRAINER] = "trainer=", [WEFT_INFERENCE] = "inference="};

	snprintf(kind, KIND_BYTES, "%s", strchr(text, '=') ? "host" : text);
	while (strchr(text, '=')) {
		size_t length = strcspn(text, ",");
		enum weft_role named =
			strncmp(text, names[WEFT_TRAINER], strlen(names[WEFT_TRAINER])) == 0
				? WEFT_TRAINER
				: WEFT_INFERENCE;
		size_t name = strlen(names[named]);

		if (strncmp(text, names[named], name) != 0 || length <= name)
			return false;
		if (named == role)
			snprintf(kind, KIND_BYTES, "%.*s", (int)(length - name), text + name);
		text += length + (text[length] == ',');
	}
	return strcmp(kind, "host") == 0 || strcmp(kind, "cuda") == 0 ||
	       strncmp(kind, "cuda:", 5) == 0;
}

int worker_choose_memory(struct weft_worker *worker, const weft_options *options,
			 struct error *error)
{
	const char *text = text_or(options->memory, "host");
	char memory[KIND_BYTES];
	bool cuda;
	int rc;

	if (!kind_of(text, options->role, memory))
		return error_set(
			error, ERROR_CONFIG,
			"memory '%.60s' (--memory) is unknown; it is \"host\", \"cuda\" or "
			"\"cuda:N\", or by role as \"trainer=cuda,inference=host\"",
			text);
	cuda = strcmp(memory, "host") != 0;
	rc = choose_stage(worker, options, cuda, error);
	if (!rc && worker->host_ring && !cuda)
		return error_set(
			error, ERROR_USAGE,
			"replica 'host' (--replica host) is for tensors of a GPU (memory \"cuda\", "
			"--memory cuda); in host memory 'ring' is there already");
	if (rc || !cuda)
		return rc;
	if (worker->full)
		return error_set(error, ERROR_UNSUPPORTED,
				 "replica 'full' (--replica full) keeps a version in host memory, "
				 "which tensors of a GPU do not pass through: use 'ring'");
	worker->memory = pool_string(&worker->texts, memory);
	return 0;
}

/* -1: of a program that was launched by nobody we know. */
static int local_rank(void)
{
	weft_launch launch = WEFT_LAUNCH_INIT;

	launch.rank = launch.world = -1;
	return weft_launch_find(&launch, NULL) ? -1 : (int)launch.local_rank;
}

int worker_open_device(struct weft_worker *worker, struct error *error)
{
	return worker->memory ? device_open(&worker->device, worker->memory, local_rank(), error)
			      : 0;
}

int worker_device_number(const struct weft_worker *worker)
{
	struct transports list;
	struct error error;
	int number;

	if (worker->device)
		return worker->device->number;
	/* a driver takes its time to be opened: nobody pays for that who has no use for it */
	if (transports_parse(&list, worker->transport, &error) ||
	    transports_find(&list, "cuda") == list.count ||
	    cuda_device_named("cuda", local_rank(), &number, &error))
		return 0;
	return number;
}

int32_t weft_device(const weft_worker *worker)
{
	return worker && worker->device ? worker->device->number : -1;
}

/* ---- handed in ---- */

static int check_device(const struct weft_worker *worker, const char *call,
			const struct weft_memory *memory, struct error *error)
{
	if (memory->device != worker->device->number)
		return error_set(error, ERROR_USAGE,
				 "%s: memory of device %d, but this worker uses %s: open it with "
				 "memory \"cuda:%d\" (--memory cuda:%d)",
				 call, (int)memory->device, device_text(worker->device),
				 (int)memory->device, (int)memory->device);
	if (!memory->pointer)
		return 0;
	return device_holds(worker->device, memory->pointer, memory->bytes, call, error);
}

int worker_after(const struct weft_worker *worker, const struct weft_memory *memory,
		 const struct weft_memory *before, struct error *error)
{
	if (!worker->device || !memory->pointer || memory->kind != WEFT_MEMORY_CUDA ||
	    (before && before->pointer && before->stream == memory->stream))
		return 0;
	return device_after(worker->device, memory->stream, error);
}

int worker_check_memory(const struct weft_worker *worker, const char *call,
			const struct weft_memory *memory, struct error *error)
{
	int rc = abi_check_memory(call, memory, error);

	if (rc)
		return rc;
	if (memory->kind == WEFT_MEMORY_CUDA && worker->device)
		return check_device(worker, call, memory, error);
	if (memory->kind == WEFT_MEMORY_CUDA)
		return error_set(error, ERROR_UNSUPPORTED,
				 "%s: device memory (kind cuda, device %d, %llu bytes at %p), but "
				 "this worker was opened for host memory: open it with memory "
				 "\"cuda\" (weft_options.memory), or pass host memory",
				 call, (int)memory->device, (unsigned long long)memory->bytes,
				 memory->pointer);
	if (!worker->device || !memory->pointer)
		return 0;
	if (worker->self.role == ROLE_INFERENCE ||
	    ranges_find(&worker->ranges, memory->pointer, memory->bytes))
		return 0;
	return error_set(error, ERROR_USAGE,
			 "%s: host memory at %p, but this worker was opened with memory \"%s\": "
			 "pass memory of %s (weft_cuda_memory), name it in weft_source_register "
			 "before weft_join, so that the GPU reads it too, or open the worker with "
			 "memory \"host\"",
			 call, memory->pointer, worker->memory, device_text(worker->device));
}

int worker_take_memory(const struct weft_worker *worker, const char *call, const void *theirs,
		       struct weft_memory *ours, struct error *error)
{
	int rc = abi_take(ABI_MEMORY, call, theirs, ours, error);

	if (!rc)
		rc = worker_check_memory(worker, call, ours, error);
	return rc ? rc : worker_after(worker, ours, NULL, error);
}

/* ---- streams ---- */

int weft_stream_wait(weft_worker *worker, uint64_t version, void *stream, weft_error *error)
{
	struct error inner;
	int rc = worker ? worker_role(worker, ROLE_INFERENCE, "weft_stream_wait", &inner)
			: error_set(&inner, ERROR_USAGE, "weft_stream_wait: worker is NULL");

	if (!rc && !worker->device)
		rc = error_set(&inner, ERROR_STATE,
			       "weft_stream_wait: the worker was opened for host memory, which no "
			       "stream waits for (weft_options.memory)");
	if (!rc && !worker->device->facts.stream_wait)
		rc = error_set(&inner, ERROR_UNSUPPORTED,
			       "weft_stream_wait: %s cannot let a stream wait for a word of the "
			       "host; wait with weft_update_wait",
			       device_text(worker->device));
	if (!rc)
		rc = device_stream_wait(worker->device, stream, version, &inner);
	return worker_result(rc, &inner, error);
}
