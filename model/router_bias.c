/* SPDX-License-Identifier: Apache-2.0 */
#include "model/router_bias.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/safetensors.h"
#include <string.h>

#define TENSOR ".e_score_correction_bias"

/* The file beside `path` that has such a tensor, for memory_free(); the only file where there is no
 * index. NULL: there is none. */
static char *file_of(const char *path, int folder)
{
	char *index_path = memory_format("%.*smodel.safetensors.index.json", folder, path);
	struct safetensors_index index = {0};
	struct file_map map = {0};
	char *found = NULL;

	if (!index_path || file_map_open(&map, index_path, NULL) != 0) {
		memory_free(index_path);
		return memory_format("%.*smodel.safetensors", folder, path);
	}
	if (safetensors_index_decode(map.data ? (const char *)map.data : "", map.bytes, index_path,
				     &index, NULL) == 0)
		for (size_t i = 0; i < index.count && !found; i++)
			if (text_ends(index.entries[i].name, TENSOR))
				found = memory_format("%.*s%s", folder, path,
						      index.files[index.entries[i].file]);
	safetensors_index_fini(&index);
	file_map_close(&map);
	memory_free(index_path);
	return found;
}

void router_bias_look(const char *path, struct model_config *config)
{
	const char *slash = strrchr(path, '/');
	struct safetensors header = {0};
	struct file_map map = {0};
	char *file;

	if (!config->router_bias)
		return;
	file = file_of(path, slash ? (int)(slash + 1 - path) : 0);
	if (file && file_map_open(&map, file, NULL) == 0 &&
	    safetensors_decode(map.data, map.bytes, file, &header, NULL) == 0)
		for (size_t i = 0; i < header.count; i++)
			if (text_ends(header.entries[i].name, TENSOR))
				config->router_bias_cast =
					header.entries[i].dtype == config->dtype &&
					config->dtype != DTYPE_F32;
	safetensors_fini(&header);
	file_map_close(&map);
	memory_free(file);
}
