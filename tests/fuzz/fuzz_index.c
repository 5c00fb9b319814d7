/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a model.safetensors.index.json. What is accepted names plain files, ascending
 * and once each, and every entry one of them.
 */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct safetensors_index index;
	struct error error = {0};

	if (safetensors_index_decode((const char *)data, bytes, "input", &index, &error)) {
		check(error.code == ERROR_FILE && error.text[0]);
		return 0;
	}
	for (size_t i = 0; i < index.file_count; i++) {
		check(index.files[i][0] != '.' && !strchr(index.files[i], '/'));
		check(i == 0 || strcmp(index.files[i - 1], index.files[i]) < 0);
	}
	for (size_t i = 0; i < index.count; i++)
		check(index.entries[i].name && index.entries[i].file < index.file_count);
	safetensors_index_fini(&index);
	return 0;
}
