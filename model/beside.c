/* SPDX-License-Identifier: Apache-2.0 */
#include "model/beside.h"

#include "base/memory.h"
#include "base/text.h"
#include <string.h>

/* The file beside `path` that has such a tensor, for memory_free(); the only file where there is no
 * index. NULL: there is none. */
static char *file_of(const char *path, int folder, const char *tail)
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
			if (text_ends(index.entries[i].name, tail))
				found = memory_format("%.*s%s", folder, path,
						      index.files[index.entries[i].file]);
	safetensors_index_fini(&index);
	file_map_close(&map);
	memory_free(index_path);
	return found;
}

bool beside_find(const char *path, const char *tail, struct beside *found)
{
	const char *slash = strrchr(path, '/');
	char *file = file_of(path, slash ? (int)(slash + 1 - path) : 0, tail);

	*found = (struct beside){0};
	if (file && file_map_open(&found->map, file, NULL) == 0 &&
	    safetensors_decode(found->map.data, found->map.bytes, file, &found->header, NULL) == 0)
		for (size_t i = 0; i < found->header.count && !found->entry; i++)
			if (text_ends(found->header.entries[i].name, tail))
				found->entry = &found->header.entries[i];
	memory_free(file);
	return found->entry != NULL;
}

const unsigned char *beside_data(const struct beside *found)
{
	uint64_t begin = found->header.data_offset;

	if (found->map.bytes < begin || found->map.bytes - begin < found->entry->end)
		return NULL;
	return found->map.data + begin + found->entry->begin;
}

void beside_fini(struct beside *found)
{
	safetensors_fini(&found->header);
	file_map_close(&found->map);
	*found = (struct beside){0};
}
