/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_file_read.c -- reads a layout file in bounded memory:
 *
 *   file ──► the small values ──► one small tree
 *        ──► "tensors", then "left_alone", then "params", item by item ──► jansson ──► compact arrays
 *
 * The lists are passed over first and then read where they stand, so that keys may come in any order.
 * What is read is checked by the very functions that declare a layout by hand.
 */
#include "model/layout_file.h"

#include "base/file.h"
#include "base/json_split.h"
#include "base/memory.h"
#include "model/config.h"
#include "model/json_read.h"
#include "model/layout_file_params.h"
#include "model/model.h"
#include "model/tensors.h"
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define HEAD_BYTES_MAX	 (UINT64_C(64) << 10) /* of all values beside the lists */
#define TENSOR_BYTES_MAX (UINT64_C(64) << 10)
#define PARAM_BYTES_MAX	 (UINT64_C(16) << 20)
#define LABEL_BYTES	 256
#define NOT_THERE	 UINT64_MAX

/* The lists, in the order in which they are read. */
enum list { LIST_TENSORS, LIST_LEFT_ALONE, LIST_PARAMS, LIST_COUNT };
static const char *const list_names[LIST_COUNT] = {"tensors", "left_alone", "params"};

struct reading {
	struct json_reader reader;
	struct split split;
	struct model *model;
	json_t *root; /* all but the lists */
	uint64_t head_bytes;
	uint64_t lists_at[LIST_COUNT];
	ARRAY(struct model_tensor) tensors;
};

/* What jansson says of one value, with the byte of the file. */
static int load(struct reading *reading, const struct split_value *value, json_t **out)
{
	json_error_t where;

	*out = json_loadb(value->text, value->bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
			  &where);
	return *out ? 0
		    : json_refuse(&reading->reader, "%s, at byte %" PRIu64, where.text,
				  value->offset +
					  (uint64_t)(where.position > 0 ? where.position : 0));
}

/* ---- the top ---- */

static int meet_list(struct reading *reading, enum list list)
{
	if (reading->lists_at[list] != NOT_THERE)
		return json_refuse(&reading->reader, "duplicate key \"%s\" before byte %" PRIu64,
				   list_names[list], split_offset(&reading->split));
	reading->lists_at[list] = split_offset(&reading->split);
	return split_take(&reading->split, 0, NULL);
}

static int meet_value(struct reading *reading, const char *name)
{
	struct split_value value;
	json_t *loaded;
	int rc;

	if (json_object_get(reading->root, name))
		return json_refuse(&reading->reader, "duplicate key \"%.64s\" before byte %" PRIu64,
				   name, split_offset(&reading->split));
	rc = split_take(&reading->split, HEAD_BYTES_MAX - reading->head_bytes, &value);
	if (rc)
		return rc;
	reading->head_bytes += value.bytes + strlen(name);
	if (reading->head_bytes > HEAD_BYTES_MAX)
		return json_refuse(&reading->reader,
				   "the values beside the lists have more than %" PRIu64 " bytes",
				   HEAD_BYTES_MAX);
	rc = load(reading, &value, &loaded);
	if (!rc && json_object_set_new(reading->root, name, loaded) != 0)
		rc = json_failed(
			&reading->reader,
			memory_error(reading->reader.error, "reading a layout file", value.bytes));
	return rc;
}

static int read_pair(struct reading *reading)
{
	struct split_value value;
	json_t *key = NULL;
	int list = 0, rc = split_key(&reading->split, &value);

	if (!rc)
		rc = load(reading, &value, &key);
	if (!rc)
		rc = split_open(&reading->split, ':', "':' after a key");
	if (!rc) {
		const char *name = json_string_value(key);

		while (list < LIST_COUNT && strcmp(list_names[list], name) != 0)
			list++;
		rc = list < LIST_COUNT ? meet_list(reading, (enum list)list)
				       : meet_value(reading, name);
	}
	json_decref(key);
	return rc;
}

static int read_pairs(struct reading *reading)
{
	bool more = true;
	int rc = split_open(&reading->split, '{', "the '{' of a layout file");

	for (bool first = true; !rc; first = false) {
		rc = split_next(&reading->split, '}', first, "',' or the '}' of the layout file",
				&more);
		if (rc || !more)
			break;
		rc = read_pair(reading);
	}
	return rc ? rc : split_finish(&reading->split);
}

static int check_schema(struct json_reader *r, json_t *root)
{
	const char *schema;

	if (!json_object_get(root, "schema"))
		return json_refuse(r, "not a layout file: key \"schema\" is missing; it is \"%s\"",
				   LAYOUT_FILE_SCHEMA);
	if (!json_take_string(r, root, "schema", &schema) &&
	    strcmp(schema, LAYOUT_FILE_SCHEMA) != 0)
		json_refuse(r, "\"schema\" is \"%.64s\"; a layout file that this weft reads has %s",
			    schema, LAYOUT_FILE_SCHEMA);
	return r->failed;
}

/* The spec of one engine, whose ranks the file is about. */
static int read_infer(struct json_reader *r, json_t *root, struct infer_spec *infer)
{
	const char *text;
	int rc;

	if (json_take_string(r, root, "infer", &text))
		return r->failed;
	rc = infer_spec_parse(infer, text, r->error);
	if (rc == -ERROR_CONFIG) { /* of a flag; here it is the file that is wrong */
		if (r->error)
			r->error->code = ERROR_FILE;
		error_wrap(r->error, "%s: \"infer\"", r->name);
		return json_failed(r, -ERROR_FILE);
	}
	if (rc)
		return json_failed(r, rc);
	if (infer->engines != 1)
		json_refuse(r,
			    "\"infer\" is \"%.200s\"; the file is about one engine and fits any "
			    "number of them: leave engines out",
			    text);
	return r->failed;
}

static int read_head(struct reading *reading)
{
	static const char *const keys[] = {"schema", "model", "infer", "layers|", "tied|", NULL};
	struct json_reader *r = &reading->reader;
	struct model *model = reading->model;
	const char *name;

	check_schema(r, reading->root);
	json_known_keys(r, reading->root, keys);
	json_needed_keys(r, reading->root, keys);
	for (int list = 0; list < LIST_COUNT; list++)
		if (list != LIST_LEFT_ALONE && reading->lists_at[list] == NOT_THERE)
			json_refuse(r, "key \"%s\" is missing", list_names[list]);
	if (json_object_get(reading->root, "layers"))
		json_take_number(r, reading->root, "layers", 1, CONFIG_LAYERS_MAX,
				 &model->config.layers);
	if (json_object_get(reading->root, "tied"))
		json_take_bool(r, reading->root, "tied", &model->config.tied);
	read_infer(r, reading->root, &model->file->infer);
	if (json_take_string(r, reading->root, "model", &name))
		return r->failed;
	if (!*name || strlen(name) >= LABEL_BYTES)
		return json_refuse(r, "\"model\" has %zu bytes; 1 to %d are possible", strlen(name),
				   LABEL_BYTES - 1);
	model->name = pool_string(&model->pool, name);
	return model->name ? 0
			   : json_failed(r, memory_error(r->error, "reading a layout file",
							 strlen(name)));
}

/* ---- tensors ---- */

/* -1: before the layers; as many as there are: after them. */
static int read_layer(struct reading *reading, json_t *object, int64_t *layer)
{
	struct json_reader *r = &reading->reader;
	json_t *value = json_object_get(object, "layer");
	int64_t layers = (int64_t)reading->model->config.layers;

	*layer = json_integer_value(value);
	if (!value)
		*layer = -1;
	else if (!json_is_integer(value))
		return json_refuse(r, "\"layer\" is not a whole number");
	else if (*layer < -1 || *layer > layers)
		return json_refuse(r,
				   "\"layer\" is %" PRId64 "; -1 (before the layers) to %" PRId64
				   " (after them) are possible: the file's \"layers\" is %" PRId64,
				   *layer, layers, layers);
	return r->failed;
}

static void count_tensor(struct model *model, const struct model_tensor *tensor, bool sent)
{
	uint64_t parameters = tensor->scale ? 0 : tensor->bytes / dtype_bytes(tensor->dtype);

	model->all_count++;
	model->all_bytes += tensor->bytes;
	model->all_parameters += parameters;
	if (!sent)
		return;
	model->tensor_count++;
	model->bytes += tensor->bytes;
	model->parameters += parameters;
}

static int keep_tensor(struct reading *reading, struct model_tensor *tensor, const char *name,
		       bool sent)
{
	struct json_reader *r = &reading->reader;
	struct model *model = reading->model;
	uint32_t index = (uint32_t)reading->tensors.count;
	char *copy;

	if (strmap_get(&model->names, name, &index))
		return json_refuse(r, "tensor %s is listed before, as number %u", name, index);
	if (model->all_bytes + tensor->bytes > LAYOUT_FILE_VALUE_MAX)
		return json_refuse(r, "the tensors up to %s have more than 2^62 bytes", name);
	tensor->name = copy = pool_string(&model->pool, name);
	if (!copy || !strmap_put(&model->names, copy, index) ||
	    !array_add(&reading->tensors, *tensor))
		return json_failed(
			r, memory_error(r->error, "reading a layout file", sizeof(*tensor)));
	count_tensor(model, tensor, sent);
	return 0;
}

static int read_tensor(struct reading *reading, json_t *object, enum list list)
{
	static const char *const keys[] = {"name", "dtype", "shape", "layer|", "scale|", NULL};
	struct json_reader *r = &reading->reader;
	struct model_tensor tensor = {.expert = EXPERT_NONE};
	const char *name;

	json_known_keys(r, object, keys);
	json_needed_keys(r, object, keys);
	if (reading->tensors.count >= MODEL_TENSORS_MAX)
		return json_refuse(r, "more than %u tensors", MODEL_TENSORS_MAX);
	if (layout_file_name(r, object, "name", &name) ||
	    layout_file_shape(r, object, name, &tensor.dtype, &tensor.dims, tensor.shape,
			      &tensor.bytes) ||
	    read_layer(reading, object, &tensor.layer))
		return r->failed;
	if (json_object_get(object, "scale") && json_take_bool(r, object, "scale", &tensor.scale))
		return r->failed;
	return keep_tensor(reading, &tensor, name, list == LIST_TENSORS);
}

/* Of "left_alone": what the names of tensors begin with that nobody needs to list. */
static int read_beginning(struct reading *reading, json_t *text)
{
	struct json_reader *r = &reading->reader;
	struct layout_file *file = reading->model->file;
	const char *name = json_string_value(text);
	char *copy;

	if (!*name || strlen(name) >= LAYOUT_FILE_NAME_BYTES)
		return json_refuse(r, "a beginning of names has %zu bytes; 1 to %d are possible",
				   strlen(name), LAYOUT_FILE_NAME_BYTES - 1);
	if (file->left_alone.count >= LAYOUT_FILE_LEFT_MAX)
		return json_refuse(r, "more than %u beginnings of names", LAYOUT_FILE_LEFT_MAX);
	copy = pool_string(&file->names, name);
	if (!copy || !array_add(&file->left_alone, copy))
		return json_failed(r,
				   memory_error(r->error, "reading a layout file", strlen(name)));
	return 0;
}

/* ---- lists ---- */

static int read_item(struct reading *reading, enum list list, size_t index)
{
	struct split_value value;
	json_t *object;
	int rc = split_take(&reading->split,
			    list == LIST_PARAMS ? PARAM_BYTES_MAX : TENSOR_BYTES_MAX, &value);

	reading->reader.at = (struct json_place){.list = list_names[list], .index = index};
	if (!rc)
		rc = load(reading, &value, &object);
	if (rc)
		return rc;
	if (list == LIST_PARAMS)
		rc = layout_file_param(&reading->reader, reading->model, object);
	else if (list == LIST_LEFT_ALONE && json_is_string(object))
		rc = read_beginning(reading, object);
	else
		rc = read_tensor(reading, object, list);
	json_decref(object);
	return rc;
}

static int read_list(struct reading *reading, enum list list)
{
	char what[64], closing[64];
	bool more;
	int rc;

	if (reading->lists_at[list] == NOT_THERE)
		return 0;
	snprintf(what, sizeof(what), "the list of \"%s\"", list_names[list]);
	snprintf(closing, sizeof(closing), "',' or the ']' of \"%s\"", list_names[list]);
	rc = split_seek(&reading->split, reading->lists_at[list]);
	if (!rc)
		rc = split_open(&reading->split, '[', what);
	for (size_t i = 0; !rc; i++) {
		rc = split_next(&reading->split, ']', i == 0, closing, &more);
		if (rc || !more)
			break;
		rc = read_item(reading, list, i);
	}
	reading->reader.at = (struct json_place){0};
	return rc;
}

static int keep_tensors(struct reading *reading)
{
	struct model *model = reading->model;
	size_t count = reading->tensors.count;

	if (model->tensor_count == 0)
		return json_refuse(&reading->reader, "\"tensors\" is empty");
	model->tensors = pool_array(&model->pool, count, sizeof(*model->tensors));
	if (!model->tensors)
		return json_failed(&reading->reader,
				   memory_error(reading->reader.error, "reading a layout file",
						count * sizeof(*model->tensors)));
	memcpy(model->tensors, reading->tensors.items, count * sizeof(*model->tensors));
	return 0;
}

/* ---- the whole ---- */

static int read_file(struct reading *reading)
{
	struct model *model = reading->model;
	int rc = read_pairs(reading);

	if (!rc)
		rc = read_head(reading);
	if (!rc)
		rc = read_list(reading, LIST_TENSORS);
	if (!rc)
		rc = read_list(reading, LIST_LEFT_ALONE);
	if (!rc)
		rc = keep_tensors(reading);
	if (!rc)
		rc = read_list(reading, LIST_PARAMS);
	if (!rc && model->file->entries.count == 0)
		rc = json_refuse(&reading->reader, "\"params\" is empty");
	return rc;
}

static int parse(struct model **out, struct reading *reading)
{
	struct model *model = memory_zalloc(1, sizeof(*model));
	int rc;

	reading->reader.name = reading->split.name;
	reading->reader.error = reading->split.error;
	reading->model = model;
	reading->root = json_object();
	for (int list = 0; list < LIST_COUNT; list++)
		reading->lists_at[list] = NOT_THERE;
	if (model)
		model->file = memory_zalloc(1, sizeof(*model->file));
	rc = model && model->file && reading->root
		     ? read_file(reading)
		     : memory_error(reading->reader.error, "reading a layout file",
				    sizeof(*model->file));
	json_decref(reading->root);
	array_free(&reading->tensors);
	split_fini(&reading->split);
	if (rc)
		model_close(&model);
	*out = model;
	return rc;
}

int layout_file_parse(struct model **out, const char *text, size_t bytes, const char *name,
		      struct error *error)
{
	struct reading reading = {0};

	split_text(&reading.split, text ? text : "", bytes, name, error);
	return parse(out, &reading);
}

int layout_file_open(struct model **out, const char *path, struct error *error)
{
	struct reading reading = {0};
	struct file_stream file;
	int rc = file_stream_open(&file, path, error);

	*out = NULL;
	if (rc)
		return rc;
	if (file.bytes == UINT64_MAX)
		rc = error_set(error, ERROR_IO,
			       "%s is no regular file; a layout file is read twice: store it first",
			       path);
	else if (file.bytes > LAYOUT_FILE_BYTES_MAX)
		rc = error_set(error, ERROR_LIMIT,
			       "%s has %" PRIu64 " bytes; layout files of up to %" PRIu64
			       " are read",
			       path, file.bytes, LAYOUT_FILE_BYTES_MAX);
	if (!rc)
		rc = split_file(&reading.split, &file, path, error);
	if (!rc)
		rc = parse(out, &reading);
	file_stream_close(&file);
	return rc;
}

/* ---- which kind of file ---- */

/* The value of the first "schema" of the top, when it is one of weft's. */
static int find_schema(struct split *split, bool *found)
{
	static const char key_text[] = "\"schema\"", ours[] = "\"weft.";
	struct split_value key, value;
	bool more, here;
	int rc = split_open(split, '{', "an object");

	for (bool first = true; !rc && !*found; first = false) {
		rc = split_next(split, '}', first, "a key", &more);
		if (rc || !more)
			break;
		rc = split_key(split, &key);
		here = !rc && key.bytes == sizeof(key_text) - 1 &&
		       memcmp(key.text, key_text, key.bytes) == 0;
		if (!rc)
			rc = split_open(split, ':', "':' after a key");
		if (!rc)
			rc = split_take(split, SPLIT_STRING_MAX, here ? &value : NULL);
		*found = !rc && here && value.bytes >= sizeof(ours) &&
			 memcmp(value.text, ours, sizeof(ours) - 1) == 0;
	}
	return rc;
}

int layout_file_is(const char *path, bool *is, struct error *error)
{
	struct split split = {0};
	struct file_stream file;
	struct stat status;
	int rc;

	*is = false;
	if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
		return 0; /* who opens it says what is wrong */
	rc = file_stream_open(&file, path, error);
	if (rc)
		return rc;
	rc = split_file(&split, &file, path, error);
	if (!rc)
		rc = find_schema(&split, is);
	split_fini(&split);
	file_stream_close(&file);
	return rc == -ERROR_FILE ? 0 : rc; /* no JSON, and so none of ours */
}
