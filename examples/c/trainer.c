/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer.c -- a trainer of its own model: declares the rows that it holds, and sends them, version by version.
 *
 *   trainer CONTROLLER RANK UPDATES        as trainer tcp://127.0.0.1:29600 0 3
 */
#include "example.h"

#define WORLD 2

/* The rows of a tensor that trainer `rank` holds. */
static uint64_t row_lo(int which, uint32_t rank)
{
	return tensors[which].rows * rank / WORLD;
}

static int declare(weft_worker *worker, uint32_t rank, uint32_t ids[TENSORS], weft_error *error)
{
	/* what the routing table says the job is; the same in each of its processes */
	int rc = weft_declare_labels(worker, "example", TRAIN, INFER, error);

	for (int t = 0; t < TENSORS && !rc; t++) {
		weft_tensor tensor = tensor_of(t);

		rc = weft_declare_tensor(worker, &tensor, (uint32_t)t, row_lo(t, rank),
					 row_lo(t, rank + 1), &ids[t], error);
	}
	return rc;
}

/* Stands for a training step. */
static void train(uint64_t version, uint32_t rank, float *weights[TENSORS])
{
	for (int t = 0; t < TENSORS; t++)
		for (uint64_t row = row_lo(t, rank); row < row_lo(t, rank + 1); row++)
			for (uint64_t column = 0; column < COLUMNS; column++)
				weights[t][(row - row_lo(t, rank)) * COLUMNS + column] =
					value_of(version, tensors[t].first + row, column);
}

static int send(weft_worker *worker, uint64_t version, uint32_t rank, const uint32_t ids[TENSORS],
		float *weights[TENSORS], weft_error *error)
{
	int rc = weft_update_begin(worker, version, error); /* waits until the engine accepts */

	for (int t = 0; t < TENSORS && !rc; t++) {
		uint64_t rows = row_lo(t, rank + 1) - row_lo(t, rank);
		weft_memory memory = weft_host_memory(weights[t], rows * COLUMNS * sizeof(float));

		rc = weft_update_write(worker, ids[t], &memory, error);
	}
	/* from here on the weights may change again */
	return rc ? rc : weft_update_end(worker, error);
}

int main(int argc, char **argv)
{
	static float q[64 * COLUMNS], k[32 * COLUMNS];
	float *weights[TENSORS] = {q, k};
	weft_error error = WEFT_ERROR_INIT;
	weft_options options = WEFT_OPTIONS_INIT;
	weft_worker *worker = NULL;
	uint32_t rank, ids[TENSORS];
	uint64_t updates;
	int rc;

	if (argc != 4 || (rank = (uint32_t)strtoul(argv[2], NULL, 10)) >= WORLD) {
		fprintf(stderr, "usage: trainer CONTROLLER RANK UPDATES (RANK is 0 or 1)\n");
		return 2;
	}
	updates = strtoull(argv[3], NULL, 10);
	options.controller = argv[1];
	options.role = WEFT_TRAINER;
	options.rank = rank;
	rc = weft_open(&worker, &options, &error);
	if (!rc)
		rc = declare(worker, rank, ids, &error);
	if (!rc)
		rc = weft_join(worker, 0, &error); /* waits for all others; says who is missing */
	for (uint64_t version = 1; version <= updates && !rc; version++) {
		train(version, rank, weights);
		rc = send(worker, version, rank, ids, weights, &error);
	}
	if (!rc)
		rc = weft_leave(worker, &error);
	weft_close(&worker);
	if (rc)
		return failed("trainer", &error);
	printf("trainer %u: sent versions 1 to %llu\n", rank, (unsigned long long)updates);
	return 0;
}
