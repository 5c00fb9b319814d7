/* SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint.h"

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/text.h"
#include "job/strmap.h"
#include "model/adapter.h"
#include "model/checkpoint_names.h"
#include "model/folder.h"
#include "model/content.h"
#include "model/layout_file.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "model/tower.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINGLE_FILE  "model.safetensors"
#define INDEX_FILE   "model.safetensors.index.json"
#define VERIFY_BYTES (1u << 20)

struct file {
	char *name, *path;
	struct file_map map;
	struct safetensors header;
};

struct checkpoint {
	char *folder;
	ARRAY(struct file) files;
	ARRAY(struct checkpoint_tensor) tensors;
	struct strmap names;
	ARRAY(char *) renamed; /* names that are not the files' own */
	uint64_t bytes;
};

/* The model's name of a file's tensor, which lives as long as the checkpoint. */
static const char *plain_name(struct checkpoint *checkpoint, const char *name)
{
	char plain[CHECKPOINT_NAME_BYTES], *kept;

	if (!checkpoint_plain_name(name, plain))
		return name;
	kept = memory_string(plain);
	if (kept && array_add(&checkpoint->renamed, kept))
		return kept;
	memory_free(kept);
	return NULL;
}

static int add_tensor(struct checkpoint *checkpoint, uint32_t file_index,
		      const struct safetensors_entry *entry, struct error *error)
{
	const struct file *file = &checkpoint->files.items[file_index];
	struct checkpoint_tensor tensor = {
		.name = plain_name(checkpoint, entry->name),
		.dtype = entry->dtype,
		.dims = entry->dims,
		.data = file->map.data + file->header.data_offset + entry->begin,
		.bytes = entry->end - entry->begin,
		.file = file_index,
	};
	uint32_t other;

	if (!tensor.name)
		return memory_error(error, "listing a checkpoint", strlen(entry->name));
	if (strmap_get(&checkpoint->names, tensor.name, &other))
		return error_set(
			error, ERROR_FILE, "%s: tensor %.200s is also in %s", file->path,
			entry->name,
			checkpoint->files.items[checkpoint->tensors.items[other].file].path);
	memcpy(tensor.shape, entry->shape, sizeof(tensor.shape));
	if (!array_add(&checkpoint->tensors, tensor) ||
	    !strmap_put(&checkpoint->names, tensor.name, (uint32_t)checkpoint->tensors.count - 1))
		return memory_error(error, "listing a checkpoint", sizeof(tensor));
	checkpoint->bytes += tensor.bytes;
	return 0;
}

/* Maps and decodes one file and lists its tensors. */
/* Of what cannot be opened. A cache of downloads links to files beside it, and one that was cut short, or
 * moved, leaves the links. 0: it is no such link. */
static int check_link(const char *path, struct error *error)
{
	char to[PATH_MAX];
	ssize_t length = readlink(path, to, sizeof(to) - 1);

	if (length < 0 || access(path, F_OK) == 0)
		return 0;
	to[length] = 0;
	return error_set(error, ERROR_FILE,
			 "%s is a link to %.300s, where nothing is: was the download cut short, or "
			 "the folder moved without what its links lead to?",
			 path, to);
}

static int add_file(struct checkpoint *checkpoint, const char *name, struct error *error)
{
	uint32_t index = (uint32_t)checkpoint->files.count;
	struct file *file = array_push(&checkpoint->files);
	int rc;

	if (!file)
		return memory_error(error, "opening a checkpoint", sizeof(*file));
	file->name = memory_string(name);
	file->path = memory_format("%s/%s", checkpoint->folder, name);
	if (!file->name || !file->path)
		return memory_error(error, "opening a checkpoint", strlen(name));
	rc = file_map_open(&file->map, file->path, error);
	if (rc) {
		int link = check_link(file->path, error);

		return link ? link : rc;
	}
	if (rc == 0)
		rc = safetensors_decode(file->map.data, file->map.bytes, file->path, &file->header,
					error);
	for (size_t i = 0; i < file->header.count && rc == 0; i++)
		rc = add_tensor(checkpoint, index, &file->header.entries[i], error);
	return rc;
}

/* The index and the files must say the same about every tensor. */
static int check_index(const struct checkpoint *checkpoint, const struct safetensors_index *index,
		       const char *where, struct error *error)
{
	for (size_t i = 0; i < index->count; i++) {
		const char *name = index->entries[i].name;
		const char *file = index->files[index->entries[i].file];
		const struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, name);

		if (!tensor)
			return error_set(
				error, ERROR_FILE,
				"%s: weight_map: tensor %.200s should be in %s, but no file has it",
				where, name, file);
		if (tensor->file != index->entries[i].file)
			return error_set(
				error, ERROR_FILE,
				"%s: weight_map: tensor %.200s should be in %s, but is in %s",
				where, name, file, checkpoint_file(checkpoint, tensor->file));
	}
	if (index->count == checkpoint->tensors.count)
		return 0;
	/* every entry was found, so some tensor has none */
	struct strmap listed = {0};
	const struct checkpoint_tensor *extra = NULL;
	bool room = true;
	uint32_t unused;

	for (size_t i = 0; i < index->count && room; i++)
		room = strmap_put(&listed, index->entries[i].name, 0);
	for (size_t i = 0; i < checkpoint->tensors.count && room && !extra; i++)
		if (!strmap_get(&listed, checkpoint->tensors.items[i].name, &unused))
			extra = &checkpoint->tensors.items[i];
	strmap_fini(&listed);
	if (!room || !extra)
		return memory_error(error, "checking an index", index->count);
	return error_set(error, ERROR_FILE,
			 "%s: weight_map does not name tensor %.200s, which is in %s", where,
			 extra->name, checkpoint_file(checkpoint, extra->file));
}

static int open_index(struct checkpoint *checkpoint, const char *name, struct error *error)
{
	char *path = memory_format("%s/%s", checkpoint->folder, name);
	struct safetensors_index index = {0};
	struct file_map map = {0};
	int rc;

	if (!path)
		return memory_error(error, "opening a checkpoint", strlen(name));
	rc = file_map_open(&map, path, error);
	if (rc == 0)
		rc = safetensors_index_decode(map.data ? (const char *)map.data : "", map.bytes,
					      path, &index, error);
	file_map_close(&map);
	for (size_t i = 0; i < index.file_count && rc == 0; i++) {
		rc = add_file(checkpoint, index.files[i], error);
		if (rc == -ERROR_IO)
			error_wrap(error, "%s names it", path);
	}
	if (rc == 0)
		rc = check_index(checkpoint, &index, path, error);
	safetensors_index_fini(&index);
	memory_free(path);
	return rc;
}

/* 1 there, 0 not there, or an error. */
static int has_file(const struct checkpoint *checkpoint, const char *name, struct error *error)
{
	char *path = memory_format("%s/%s", checkpoint->folder, name);
	struct stat status;
	int rc;

	if (!path)
		return memory_error(error, "opening a checkpoint", strlen(name));
	rc = stat(path, &status) == 0;
	if (!rc && errno != ENOENT)
		rc = file_error(error, "read", path);
	if (!rc)
		rc = check_link(path, error);
	memory_free(path);
	return rc;
}

static int open_folder(struct checkpoint *checkpoint, struct error *error)
{
	int single = has_file(checkpoint, SINGLE_FILE, error);
	int index = single < 0 ? 0 : has_file(checkpoint, INDEX_FILE, error);
	int rc;

	if (single < 0 || index < 0)
		return single < 0 ? single : index;
	if (single && index)
		return error_set(error, ERROR_FILE,
				 "%s holds both " SINGLE_FILE " and " INDEX_FILE
				 ": name the one that is meant",
				 checkpoint->folder);
	if (index)
		return open_index(checkpoint, INDEX_FILE, error);
	if (single)
		return add_file(checkpoint, SINGLE_FILE, error);
	rc = adapter_refuse(checkpoint->folder, error);
	if (rc)
		return rc;
	return error_set(error, ERROR_IO,
			 "%s holds neither " SINGLE_FILE " nor " INDEX_FILE
			 "; `weft checkpoint make MODEL FOLDER` writes a made checkpoint",
			 checkpoint->folder);
}

static int open_path(struct checkpoint *checkpoint, const char *path, struct error *error)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct stat status;

	if (stat(path, &status) != 0) {
		int rc = file_error(error, "read the checkpoint at", path),
		    link = check_link(path, error);

		return link ? link : rc;
	}
	if (S_ISDIR(status.st_mode))
		checkpoint->folder = memory_string(path);
	else if (slash)
		checkpoint->folder = slash == path
					     ? memory_string("/")
					     : memory_format("%.*s", (int)(slash - path), path);
	else
		checkpoint->folder = memory_string(".");
	if (!checkpoint->folder)
		return memory_error(error, "opening a checkpoint", strlen(path));
	if (S_ISDIR(status.st_mode))
		return open_folder(checkpoint, error);
	if (text_ends(name, ".json") && strcmp(name, ".json") != 0)
		return open_index(checkpoint, name, error);
	return add_file(checkpoint, name, error);
}

int checkpoint_open(struct checkpoint **checkpoint, const char *path, struct error *error)
{
	struct checkpoint *made;
	int rc;

	*checkpoint = NULL;
	made = memory_zalloc(1, sizeof(*made));
	if (!made)
		return memory_error(error, "opening a checkpoint", sizeof(*made));
	if (folder_is_partial(path))
		rc = error_set(
			error, ERROR_FILE,
			"%s is half a checkpoint: `weft checkpoint make` is writing it, or was killed",
			path);
	else
		rc = open_path(made, path, error);
	if (rc)
		checkpoint_close(&made);
	*checkpoint = made;
	return rc;
}

void checkpoint_close(struct checkpoint **checkpoint)
{
	struct checkpoint *old = *checkpoint;

	*checkpoint = NULL;
	if (!old)
		return;
	strmap_fini(&old->names);
	for (size_t i = 0; i < old->renamed.count; i++)
		memory_free(old->renamed.items[i]);
	array_free(&old->renamed);
	array_free(&old->tensors);
	for (size_t i = 0; i < old->files.count; i++) {
		safetensors_fini(&old->files.items[i].header);
		file_map_close(&old->files.items[i].map);
		memory_free(old->files.items[i].name);
		memory_free(old->files.items[i].path);
	}
	array_free(&old->files);
	memory_free(old->folder);
	memory_free(old);
}

size_t checkpoint_count(const struct checkpoint *checkpoint)
{
	return checkpoint->tensors.count;
}

const struct checkpoint_tensor *checkpoint_at(const struct checkpoint *checkpoint, size_t i)
{
	return &checkpoint->tensors.items[i];
}

const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
						const char *name)
{
	char plain[CHECKPOINT_NAME_BYTES];
	uint32_t index;

	if (strmap_get(&checkpoint->names, name, &index) ||
	    (checkpoint_plain_name(name, plain) && strmap_get(&checkpoint->names, plain, &index)))
		return &checkpoint->tensors.items[index];
	return NULL;
}

uint64_t checkpoint_bytes(const struct checkpoint *checkpoint)
{
	return checkpoint->bytes;
}

size_t checkpoint_file_count(const struct checkpoint *checkpoint)
{
	return checkpoint->files.count;
}

const char *checkpoint_file(const struct checkpoint *checkpoint, size_t i)
{
	return checkpoint->files.items[i].name;
}

const char *checkpoint_folder(const struct checkpoint *checkpoint)
{
	return checkpoint->folder;
}

const char *checkpoint_note(const struct checkpoint *checkpoint, const char *key)
{
	const char *first = NULL;

	for (size_t i = 0; i < checkpoint->files.count; i++) {
		const char *value = safetensors_note(&checkpoint->files.items[i].header, key);

		if (!value || (first && strcmp(first, value) != 0))
			return NULL;
		first = value;
	}
	return first;
}

int checkpoint_has(const struct checkpoint *checkpoint, const char *name, enum dtype dtype,
		   uint32_t dims, const uint64_t *shape, const char *who, struct error *error)
{
	const struct checkpoint_tensor *found = checkpoint_find(checkpoint, name);
	char a[100], b[100];

	if (!found)
		return error_set(error, ERROR_FILE, "%s has no tensor %s, which %s needs",
				 checkpoint->folder, name, who);
	if (found->dtype == dtype && found->dims == dims &&
	    memcmp(found->shape, shape, dims * sizeof(shape[0])) == 0)
		return 0;
	return error_set(error, ERROR_FILE, "%s: tensor %s is %s %s, but %s needs %s %s",
			 checkpoint->files.items[found->file].path, found->name,
			 dtype_name(found->dtype),
			 shape_text(found->dims, found->shape, a, sizeof(a)), who,
			 dtype_name(dtype), shape_text(dims, shape, b, sizeof(b)));
}

static bool is_head(const struct model *model, const char *name)
{
	char head[RULE_NAME_BYTES] = HEAD_TENSOR;

	return tower_tensor_name(model->config.tower, head) && strcmp(name, head) == 0;
}

/* What the model leaves out of a checkpoint that may carry it all the same: a tied model's
 * lm_head, rotary frequencies, of which config.json says nothing, and what a layout file leaves alone. */
static bool may_be_extra(const struct model *model, const char *name)
{
	if (model->file && layout_file_leaves(model->file, name))
		return true;
	return (model->config.tied && is_head(model, name)) ||
	       (*name && text_ends(name + 1, ".rotary_emb.inv_freq"));
}

int checkpoint_matches(const struct checkpoint *checkpoint, const struct model *model,
		       struct error *error)
{
	for (size_t i = 0; i < model->all_count; i++) {
		const struct model_tensor *tensor = &model->tensors[i];
		int rc = 0;

		/* a checkpoint may come without MTP layers: nothing here is made of them */
		if (i < model->tensor_count || checkpoint_find(checkpoint, tensor->name))
			rc = checkpoint_has(checkpoint, tensor->name, tensor->dtype, tensor->dims,
					    tensor->shape, model->name, error);
		if (rc)
			return rc;
	}
	for (size_t i = 0; i < checkpoint->tensors.count; i++) {
		const struct checkpoint_tensor *tensor = &checkpoint->tensors.items[i];

		if (model_find(model, tensor->name) >= 0 || may_be_extra(model, tensor->name) ||
		    checkpoint_leaves(model, tensor->name))
			continue;
		return error_set(error, ERROR_FILE, "%s: tensor %.200s is not one of %s",
				 checkpoint->files.items[tensor->file].path, tensor->name,
				 model->name);
	}
	return 0;
}

static int verify_tensor(const struct checkpoint *checkpoint,
			 const struct checkpoint_tensor *tensor, uint64_t seed, void *buffer,
			 struct progress *progress, uint64_t done,
			 const volatile sig_atomic_t *stop, struct error *error)
{
	for (uint64_t at = 0; at < tensor->bytes; at += VERIFY_BYTES) {
		uint64_t left = tensor->bytes - at, n = left < VERIFY_BYTES ? left : VERIFY_BYTES;
		const unsigned char *made = buffer, *data = tensor->data + at;
		uint64_t i = 0;

		if (stop && *stop)
			return error_set(error, ERROR_INTERRUPTED, "interrupted while checking %s",
					 checkpoint->folder);
		content_make(tensor->name, tensor->dtype, seed, at, n, buffer);
		if (memcmp(made, data, n) != 0) {
			while (made[i] == data[i])
				i++;
			return error_set(error, ERROR_CHECKSUM,
					 "%s: tensor %s: byte %" PRIu64 " is 0x%02x; seed %" PRIu64
					 " makes 0x%02x",
					 checkpoint->files.items[tensor->file].path, tensor->name,
					 at + i, data[i], seed, made[i]);
		}
		progress_at(progress, done + at + n);
	}
	return 0;
}

int checkpoint_verify_contents(const struct checkpoint *checkpoint, uint64_t seed, bool quiet,
			       const volatile sig_atomic_t *stop, struct error *error)
{
	void *buffer = memory_aligned(64, VERIFY_BYTES);
	struct progress progress;
	uint64_t done = 0;
	int rc = 0;

	if (!buffer)
		return memory_error(error, "checking contents", VERIFY_BYTES);
	progress_begin(&progress, "checking contents", checkpoint->bytes, quiet);
	for (size_t i = 0; i < checkpoint->tensors.count && rc == 0; i++) {
		const struct checkpoint_tensor *tensor = &checkpoint->tensors.items[i];

		rc = verify_tensor(checkpoint, tensor, seed, buffer, &progress, done, stop, error);
		done += rc == 0 ? tensor->bytes : 0;
	}
	progress_end(&progress, done);
	memory_free(buffer);
	return rc;
}
