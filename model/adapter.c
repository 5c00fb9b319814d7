/* SPDX-License-Identifier: Apache-2.0 */
#include "model/adapter.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#define NAME_SHOWN 200

static bool has(const char *folder, const char *name, struct text *path)
{
	path->bytes = 0;
	text_format(path, "%s/%s", folder, name);
	return text_ok(path) && access(text_string(path), F_OK) == 0;
}

/* ", of the model X" as the adapter's config says it; empty where it does not. */
static void base_model(const char *path, char out[NAME_SHOWN + 20])
{
	struct file_map map;
	json_t *config, *name;

	out[0] = '\0';
	if (file_map_open(&map, path, NULL))
		return;
	config = json_loadb(map.data ? (const char *)map.data : "", map.bytes, 0, NULL);
	file_map_close(&map);
	name = json_object_get(config, "base_model_name_or_path");
	if (json_is_string(name))
		snprintf(out, NAME_SHOWN + 20, ", of the model %.*s", NAME_SHOWN,
			 json_string_value(name));
	json_decref(config);
}

int adapter_refuse(const char *folder, struct error *error)
{
	static const char *const files[] = {ADAPTER_CONFIG_FILE, ADAPTER_FILE};
	char of[NAME_SHOWN + 20] = "";
	struct text path = {0};
	bool found = false;

	if (!has(folder, "config.json", &path))
		for (size_t i = 0; i < 2 && !found; i++)
			found = has(folder, files[i], &path);
	if (found && has(folder, ADAPTER_CONFIG_FILE, &path))
		base_model(text_string(&path), of);
	text_fini(&path);
	if (!found)
		return 0;
	return error_set(error, ERROR_UNSUPPORTED,
			 "%s holds a LoRA adapter alone (" ADAPTER_CONFIG_FILE ", " ADAPTER_FILE
			 ")%s, and no model: give the base model's folder, which is sent without "
			 "the adapter, whose matrices are left alone; or merge the adapter into it "
			 "(peft's merge_and_unload, then save_pretrained) and give that folder",
			 folder, of);
}
