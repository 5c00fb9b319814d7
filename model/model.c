/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include "base/closest.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/family.h"
#include "model/layout_file.h"
#include "model/own_head.h"
#include "model/router_bias.h"
#include "model/tensors.h"
#include "model/tower.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct filling {
	struct model *model;
	struct error *error;
};

static int add_tensor(void *context, const struct model_tensor *tensor, bool mtp)
{
	const struct filling *fill = context;
	struct model *model = fill->model;
	const struct rule *rule = &model->config.family->rules[tensor->rule];
	struct model_tensor *added = &model->tensors[model->all_count];
	char name[RULE_NAME_BYTES], *copy;

	if (!rule_name(rule->tensor, (uint64_t)tensor->layer, tensor->expert, tensor->scale,
		       name) ||
	    !tower_tensor_name(model->config.tower, name))
		return error_set(fill->error, ERROR_INTERNAL, "row %s makes no name", rule->tensor);
	copy = pool_string(&model->pool, name);
	if (!copy || !strmap_put(&model->names, copy, (uint32_t)model->all_count))
		return memory_error(fill->error, "naming a tensor", strlen(name));
	*added = *tensor;
	added->name = copy;
	model->all_count++;
	model->tensor_count += !mtp;
	return 0;
}

static int add_tensors(struct model *model, struct error *error)
{
	struct filling fill = {model, error};
	struct model_total totals[2];
	int rc = model_totals(&model->config, totals, error);

	if (rc)
		return rc;
	model->tensors = pool_array(&model->pool, totals[1].tensors, sizeof(*model->tensors));
	if (!model->tensors)
		return memory_error(error, "opening a model",
				    totals[1].tensors * sizeof(*model->tensors));
	model->parameters = totals[0].parameters;
	model->bytes = totals[0].bytes;
	model->all_parameters = totals[1].parameters;
	model->all_bytes = totals[1].bytes;
	return tensors_each(&model->config, add_tensor, &fill, error);
}

int model_from_config(struct model **model, const char *name, const struct model_config *config,
		      struct error *error)
{
	struct model *made;
	int rc;

	*model = NULL;
	made = memory_zalloc(1, sizeof(*made));
	if (!made)
		return memory_error(error, "opening a model", sizeof(*made));
	made->config = *config;
	made->name = pool_string(&made->pool, name);
	if (!made->name)
		rc = memory_error(error, "opening a model", strlen(name));
	else
		rc = add_tensors(made, error);
	if (rc)
		model_close(&made);
	*model = made;
	return rc;
}

void model_close(struct model **model)
{
	struct model *old = *model;

	*model = NULL;
	if (!old)
		return;
	layout_file_free(&old->file);
	strmap_fini(&old->names);
	pool_free(&old->pool);
	memory_free(old);
}

int64_t model_find(const struct model *model, const char *name)
{
	uint32_t index;

	return strmap_get(&model->names, name, &index) ? (int64_t)index : -1;
}

char *model_config_json(const struct model *model, struct error *error)
{
	struct text text = {0};
	char *copy;

	config_write(&model->config, &text);
	copy = text_ok(&text) ? memory_string(text_string(&text)) : NULL;
	if (!copy)
		memory_error(error, "writing a config", text.bytes);
	text_fini(&text);
	return copy;
}

static int open_builtin(struct model **model, const char *name, const char *as, struct error *error)
{
	size_t count;
	const struct model_builtin *builtins = model_builtins(&count);
	struct model_config config;
	struct closest closest = {.wanted = name};
	char known[256];
	int rc;

	for (size_t i = 0; i < count; i++) {
		closest_offer(&closest, builtins[i].name);
		if (strcasecmp(builtins[i].name, name) != 0)
			continue;
		if (as)
			return error_set(
				error, ERROR_USAGE,
				"%s is built in, and its family with it; --as %.60s is for a "
				"folder or config.json: leave it out",
				builtins[i].name, as);
		rc = config_parse(builtins[i].config_json, strlen(builtins[i].config_json),
				  builtins[i].name, &config, error);
		return rc ? rc : model_from_config(model, builtins[i].name, &config, error);
	}
	return error_set(
		error, ERROR_CONFIG,
		"no built-in model is called '%.100s'; the closest are %s (`weft model list` "
		"shows all), and there is no folder, config.json or layout file %.100s here",
		name, closest_text(&closest, known, sizeof(known)), name);
}

/* Built-in names win: a folder never takes the place of one silently, and is then written ./NAME. */
static bool names_builtin(const char *text)
{
	size_t count;
	const struct model_builtin *builtins = model_builtins(&count);
	struct stat status;

	if (strchr(text, '/') || text[0] == '.')
		return false;
	for (size_t i = 0; i < count; i++)
		if (strcasecmp(builtins[i].name, text) == 0)
			return true;
	return stat(text, &status) != 0; /* what is neither is told by names */
}

/* The label of a model on disk: its folder's name. `path` is the config's; changed in place. */
static const char *folder_label(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	slash = strrchr(path, '/');
	if (slash && slash[1])
		return slash + 1;
	return *path ? path : "model";
}

static int open_file(struct model **model, const char *path, const char *as, struct error *error)
{
	struct model_config config;
	struct file_map map;
	char whole[PATH_MAX];
	bool ours;
	int rc = layout_file_is(path, &ours, error);

	if (rc)
		return rc;
	if (ours && as)
		return error_set(
			error, ERROR_USAGE,
			"%s is a layout file, which names all that it holds: leave --as %.64s out",
			path, as);
	if (ours)
		return layout_file_open(model, path, error);
	rc = file_map_open(&map, path, error);
	if (rc)
		return rc;
	rc = config_parse_as(map.data ? (const char *)map.data : "", map.bytes, path, as, &config,
			     error);
	file_map_close(&map);
	if (rc)
		return rc;
	router_bias_look(path, &config);
	own_head_look(path, &config);
	if (!realpath(path, whole))
		return file_error(error, "resolve", path);
	return model_from_config(model, folder_label(whole), &config, error);
}

int model_open_as(struct model **model, const char *name_or_path, const char *as,
		  struct error *error)
{
	struct stat status;
	char *path;
	int rc;

	*model = NULL;
	if (names_builtin(name_or_path))
		return open_builtin(model, name_or_path, as, error);
	if (stat(name_or_path, &status) != 0)
		return file_error(error, "read the model at", name_or_path);
	if (!S_ISDIR(status.st_mode))
		return open_file(model, name_or_path, as, error);
	path = memory_format("%s/" LAYOUT_FILE_NAME, name_or_path);
	if (path && access(path, F_OK) != 0) {
		memory_free(path);
		path = memory_format("%s/config.json", name_or_path);
	}
	if (!path)
		return memory_error(error, "naming a config", strlen(name_or_path));
	rc = access(path, F_OK) == 0 ? 0 : adapter_refuse(name_or_path, error);
	if (!rc)
		rc = open_file(model, path, as, error);
	memory_free(path);
	return rc;
}

int model_open(struct model **model, const char *name_or_path, struct error *error)
{
	return model_open_as(model, name_or_path, NULL, error);
}
