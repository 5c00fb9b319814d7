/* SPDX-License-Identifier: Apache-2.0
 *
 * late_host.c -- a host program that does what it reads, a line each, and answers each with a line: "ok ...",
 * or "error CODE TEXT". As an inference rank it has two buffers of its own memory; as a trainer it can be
 * told to stop between its check and its write, as any process may be stopped there.
 *
 *   late_host trainer | inference
 *     open ADDRESS JOB [BUFFER]     opens, declares w [7680] F32, joins; BUFFER 0 or 1: where w lies
 *     update VERSION                trainer: each element is the version
 *     plant CALLS                   trainer: so many calls of process_vm_writev from now it stops before one
 *     wait VERSION MILLISECONDS     inference
 *     holds BUFFER VALUE            "ok", or "error 0 N bytes differ"
 *     close
 */
#include "worker/api/weft.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define ELEMENTS 7680u

static weft_worker *worker;
static bool trains;
static float buffers[2][ELEMENTS] __attribute__((aligned(4096)));
static unsigned planted;

/* The library's calls come here, for the program's symbols go before libc's. */
__attribute__((visibility("default"))) ssize_t
process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals,
		  const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	if (planted && !--planted)
		raise(SIGSTOP);
	return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
}

static void answer(int rc, const weft_error *error)
{
	if (rc < 0)
		printf("error %d %s\n", -rc, error->text);
	else
		printf("ok\n");
	fflush(stdout);
}

static int declare(unsigned buffer, weft_error *error)
{
	const uint64_t lo = 0, hi = ELEMENTS;
	weft_tensor tensor = WEFT_TENSOR_INIT;
	weft_param param = WEFT_PARAM_INIT;
	weft_memory memory = weft_host_memory(buffers[buffer], sizeof(buffers[buffer]));
	uint32_t id;
	int rc;

	tensor.name = param.name = "w";
	tensor.dtype = param.dtype = "F32";
	tensor.dims = param.dims = 1;
	tensor.shape[0] = param.shape[0] = ELEMENTS;
	if (trains)
		return weft_declare_tensor(worker, &tensor, 0, 0, ELEMENTS, &id, error);
	param.memory = &memory;
	rc = weft_declare_param(worker, &param, &id, error);
	return rc ? rc : weft_declare_piece(worker, &tensor, &lo, &hi, id, 0, error);
}

static int open_worker(const char *address, const char *job, unsigned buffer, weft_error *error)
{
	weft_options options = WEFT_OPTIONS_INIT;
	int rc;

	options.controller = address;
	options.job = job;
	options.role = trains ? WEFT_TRAINER : WEFT_INFERENCE;
	options.own_memory = !trains;
	rc = weft_open(&worker, &options, error);
	if (!rc)
		rc = declare(buffer, error);
	return rc ? rc : weft_join(worker, 0, error);
}

static int update(uint64_t version, weft_error *error)
{
	weft_memory memory = weft_host_memory(buffers[0], sizeof(buffers[0]));
	int rc;

	for (unsigned i = 0; i < ELEMENTS; i++)
		buffers[0][i] = (float)version;
	rc = weft_update_begin(worker, version, error);
	if (!rc)
		rc = weft_update_write(worker, 0, &memory, error);
	return rc ? rc : weft_update_end(worker, error);
}

static void holds(unsigned buffer, float value)
{
	size_t differ = 0;

	for (unsigned i = 0; i < ELEMENTS; i++)
		if (buffers[buffer][i] != value)
			differ += sizeof(float);
	if (differ)
		printf("error 0 %zu bytes differ\n", differ);
	else
		printf("ok\n");
	fflush(stdout);
}

static void obey(const char *line)
{
	char address[128], job[64];
	weft_error error = WEFT_ERROR_INIT;
	unsigned long version;
	unsigned number = 0;
	float value;

	if (sscanf(line, "open %127s %63s %u", address, job, &number) >= 2)
		answer(open_worker(address, job, number, &error), &error);
	else if (sscanf(line, "update %lu", &version) == 1)
		answer(update(version, &error), &error);
	else if (sscanf(line, "plant %u", &planted) == 1)
		answer(0, NULL);
	else if (sscanf(line, "wait %lu %u", &version, &number) == 2)
		answer(weft_update_wait(worker, version, number, NULL, &error), &error);
	else if (sscanf(line, "holds %u %f", &number, &value) == 2)
		holds(number, value);
	else if (!strncmp(line, "close", 5))
		answer(weft_close(&worker), &error);
	else
		abort();
}

int main(int argc, char **argv)
{
	char line[512];

	trains = argc == 2 && !strcmp(argv[1], "trainer");
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	weft_close(&worker);
	return 0;
}
