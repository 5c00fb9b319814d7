/* SPDX-License-Identifier: Apache-2.0
 *
 * Parallel specs come from command lines, from other workers and from dumps. What is accepted
 * has one canonical text, which means the same.
 */
#include "job/parallel.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char string[2 * PARALLEL_TEXT_BYTES], text[PARALLEL_TEXT_BYTES], again[PARALLEL_TEXT_BYTES];
	struct train_spec train;
	struct infer_spec infer;
	struct error error;

	if (size >= sizeof(string))
		return 0;
	memcpy(string, data, size);
	string[size] = '\0';
	if (train_spec_parse(&train, string, &error) == 0) {
		train_spec_text(&train, text);
		if (train_spec_parse(&train, text, &error) ||
		    strcmp(train_spec_text(&train, again), text) != 0 ||
		    train_stage(&train, train.world - 1) != train.pp - 1)
			abort();
	}
	if (infer_spec_parse(&infer, string, &error) == 0) {
		infer_spec_text(&infer, text);
		if (infer_spec_parse(&infer, text, &error) ||
		    strcmp(infer_spec_text(&infer, again), text) != 0 || infer_ranks(&infer) == 0)
			abort();
	}
	return 0;
}
