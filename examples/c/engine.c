/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c -- an inference rank of its own model: says of which tensors its parameter is made, waits for
 * versions, and reads them meanwhile in a second thread, which nobody waits for and which never sees a mixture.
 *
 *   engine CONTROLLER UPDATES              as engine tcp://127.0.0.1:29600 3
 */
#include "example.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct reader {
	weft_worker *worker;
	uint32_t param;
	_Atomic bool stop;
	_Atomic uint64_t last; /* version that was read whole */
	uint64_t reads, torn, wrong;
};

static int declare(weft_worker *worker, uint32_t *param, weft_error *error)
{
	weft_param declared = WEFT_PARAM_INIT;
	int rc = weft_declare_labels(worker, "example", TRAIN, INFER, error);

	declared.name = "qk.weight";
	declared.dtype = "F32";
	declared.dims = 2;
	declared.shape[0] = PARAM_ROWS;
	declared.shape[1] = COLUMNS;
	if (!rc)
		rc = weft_declare_param(worker, &declared, param, error);
	for (int t = 0; t < TENSORS && !rc; t++) {
		weft_tensor tensor = tensor_of(t);
		const uint64_t lo[] = {0, 0}, hi[] = {tensors[t].rows, COLUMNS};

		rc = weft_declare_piece(worker, &tensor, lo, hi, *param,
					tensors[t].first * COLUMNS * sizeof(float), error);
	}
	return rc;
}

static bool is_version(const float *weights, uint64_t version)
{
	for (uint64_t row = 0; row < PARAM_ROWS; row++)
		for (uint64_t column = 0; column < COLUMNS; column++)
			if (weights[row * COLUMNS + column] != value_of(version, row, column))
				return false;
	return true;
}

/* Stands for a forward pass: any thread, at any time, between weft_read_begin and weft_read_end. */
static void *read_on(void *given)
{
	const struct timespec pause = {0, 1000000};
	struct reader *reader = given;
	uint64_t version;

	while (!atomic_load(&reader->stop)) {
		if (weft_read_begin(reader->worker, &version) == 0) {
			bool right = is_version(
				weft_param_memory(reader->worker, reader->param, version), version);

			if (weft_read_end(reader->worker, version)) {
				reader->torn++; /* it was overwritten meanwhile: what was read is not used */
			} else {
				reader->reads++;
				reader->wrong += !right;
				atomic_store(&reader->last, version);
			}
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static int update(struct reader *reader, uint64_t updates, weft_error *error)
{
	const struct timespec pause = {0, 1000000};
	pthread_t thread;
	int rc = 0;

	if (pthread_create(&thread, NULL, read_on, reader)) {
		fprintf(stderr, "engine: no thread for the reader\n");
		exit(1);
	}
	for (uint64_t version = 1; version <= updates && !rc; version++) {
		rc = weft_update_wait(reader->worker, version, 0, NULL, error);
		if (!rc)
			printf("engine: version %llu is here\n", (unsigned long long)version);
	}
	while (!rc && atomic_load(&reader->last) != updates)
		nanosleep(&pause, NULL);
	atomic_store(&reader->stop, true);
	pthread_join(thread, NULL); /* readers are done before the worker is closed */
	return rc;
}

int main(int argc, char **argv)
{
	weft_error error = WEFT_ERROR_INIT;
	weft_options options = WEFT_OPTIONS_INIT;
	struct reader reader = {0};
	uint64_t updates;
	int rc;

	if (argc != 3 || (updates = strtoull(argv[2], NULL, 10)) < 1) {
		fprintf(stderr, "usage: engine CONTROLLER UPDATES (at least 1)\n");
		return 2;
	}
	options.controller = argv[1];
	options.role = WEFT_INFERENCE;
	options.rank = 0;
	options.shadow = 1; /* two copies: readers keep the last version while the next arrives */
	rc = weft_open(&reader.worker, &options, &error);
	if (!rc)
		rc = declare(reader.worker, &reader.param, &error);
	if (!rc)
		rc = weft_join(reader.worker, 0, &error);
	if (!rc)
		rc = update(&reader, updates, &error);
	if (!rc)
		rc = weft_leave(reader.worker, &error);
	weft_close(&reader.worker);
	if (rc)
		return failed("engine", &error);
	printf("engine: the reader read version %llu whole, %llu reads were wrong\n",
	       (unsigned long long)reader.last, (unsigned long long)reader.wrong);
	return reader.wrong ? 1 : 0;
}
