/* SPDX-License-Identifier: Apache-2.0
 *
 * example.h -- what both examples know of the model: two tensors, and what version v of each holds, so that
 * the engine can tell that what it reads is right.
 *
 *   trainers hold    q.weight [64, 32]   k.weight [32, 32]     rows shared out among them
 *   an engine keeps  qk.weight [96, 32]                        q above k: one parameter, as engines fuse
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

#define COLUMNS 32
#define TRAIN	"world=2"          /* as the controller is told */
#define INFER	"engines=1,tp=1"

enum { TENSOR_Q, TENSOR_K, TENSORS };

static const struct {
	const char *name;
	uint64_t rows, first; /* rows of its own; its first row in the parameter */
} tensors[TENSORS] = {{"q.weight", 64, 0}, {"k.weight", 32, 64}};

#define PARAM_ROWS 96

/* Whole numbers that a float holds exactly. `row` is of the parameter. */
static inline float value_of(uint64_t version, uint64_t row, uint64_t column)
{
	return (float)(version * 10000 + row * COLUMNS + column);
}

static inline weft_tensor tensor_of(int which)
{
	weft_tensor tensor = WEFT_TENSOR_INIT;

	tensor.name = tensors[which].name;
	tensor.dtype = "F32";
	tensor.dims = 2;
	tensor.shape[0] = tensors[which].rows;
	tensor.shape[1] = COLUMNS;
	return tensor;
}

/* Ends the program, as its caller (a launcher, a shell) expects. */
static inline int failed(const char *program, const weft_error *error)
{
	fprintf(stderr, "%s: WEFT-E%d %s: %s\n", program, error->code, weft_strerror(error->code), error->text);
	return weft_exit_code(error->code);
}

#endif
