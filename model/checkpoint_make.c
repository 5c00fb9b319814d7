/* SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint.h"

#include "base/array.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/progress.h"
#include "model/content.h"
#include "model/folder.h"
#include "model/layout_file.h"
#include "model/model.h"
#include "model/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Large enough for few calls, small enough to be still in the cache when the kernel copies it. */
#define WRITE_BYTES	(256u << 10)
#define FILE_NAME_BYTES 64
/* For the check of the disk, generously: what a file takes beside its lines, and a tensor's lines in header,
 * index and layout file beside its name. */
#define ROOM_FILE   (32u << 10)
#define ROOM_TENSOR 512u

/* One file: the tensors [first, last) of the model. */
struct shard {
	size_t first, last;
	uint64_t bytes;
};

struct maker {
	const struct model *model;
	uint64_t seed;
	const volatile sig_atomic_t *stop;
	struct folder folder;
	ARRAY(struct shard) shards;
	unsigned char *buffer;
	struct progress progress;
	uint64_t written;
	struct error *error;
};

/* In checkpoint order, a new file when the next tensor would not fit. */
static int plan_shards(struct maker *maker, uint64_t shard_bytes)
{
	const struct model *model = maker->model;
	struct shard *shard = NULL;

	for (size_t t = 0; t < model->all_count; t++) {
		uint64_t bytes = model->tensors[t].bytes;

		if (!shard || (shard_bytes && shard->bytes + bytes > shard_bytes)) {
			shard = array_push(&maker->shards);
			if (!shard)
				return memory_error(maker->error, "planning files", sizeof(*shard));
			shard->first = t;
		}
		shard->last = t + 1;
		shard->bytes += bytes;
	}
	return 0;
}

static uint64_t beside_tensors(const struct maker *maker)
{
	const struct model *model = maker->model;
	uint64_t bytes = (maker->shards.count + 2) * ROOM_FILE; /* 2: config and index */

	for (size_t t = 0; t < model->all_count; t++)
		bytes += ROOM_TENSOR + 2 * strlen(model->tensors[t].name);
	return bytes;
}

static void shard_name(const struct maker *maker, size_t i, char out[FILE_NAME_BYTES])
{
	if (maker->shards.count == 1)
		snprintf(out, FILE_NAME_BYTES, "model.safetensors");
	else
		snprintf(out, FILE_NAME_BYTES, "model-%05zu-of-%05zu.safetensors", i + 1,
			 maker->shards.count);
}

static int write_all(const struct maker *maker, int fd, const char *name, const void *data,
		     uint64_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = TEMP_FAILURE_RETRY(write(fd, at, bytes));

		if (n < 0)
			return error_set_errno(maker->error, ERROR_IO, errno, "cannot write %s/%s",
					       maker->folder.path, name);
		at += n;
		bytes -= (uint64_t)n;
	}
	return 0;
}

static int open_file(const struct maker *maker, const char *name, int *fd)
{
	*fd = openat(maker->folder.lock, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (*fd < 0)
		return error_set_errno(maker->error, ERROR_IO, errno, "cannot make %s/%s",
				       maker->folder.partial, name);
	return 0;
}

/* A late failure of the disk may show at close only. */
static int close_file(const struct maker *maker, const char *name, int fd, int rc)
{
	if (close(fd) != 0 && rc == 0)
		rc = error_set_errno(maker->error, ERROR_IO, errno, "cannot write %s/%s",
				     maker->folder.path, name);
	return rc;
}

static int write_text(const struct maker *maker, const char *name, const char *text)
{
	int fd, rc = open_file(maker, name, &fd);

	if (rc)
		return rc;
	rc = write_all(maker, fd, name, text, strlen(text));
	return close_file(maker, name, fd, rc);
}

static int write_header(const struct maker *maker, const struct shard *shard, int fd,
			const char *name)
{
	size_t count = shard->last - shard->first;
	struct safetensors_entry *entries = memory_zalloc(count, sizeof(*entries));
	struct text text = {0};
	char seed[TEXT_SHORT_BYTES];
	struct safetensors_note notes[] = {
		{(char[]){"format"}, (char[]){"pt"}},
		{(char[]){CHECKPOINT_SEED_NOTE}, seed},
		{(char[]){CHECKPOINT_CONTENTS_NOTE}, (char[]){"1"}},
	};
	uint64_t at = 0;
	int rc;

	if (!entries)
		return memory_error(maker->error, "writing a header", count * sizeof(*entries));
	snprintf(seed, sizeof(seed), "%" PRIu64, maker->seed);
	for (size_t i = 0; i < count; i++) {
		const struct model_tensor *tensor = &maker->model->tensors[shard->first + i];

		entries[i] = (struct safetensors_entry){
			.name = (char *)(uintptr_t)tensor->name,
			.dtype = tensor->dtype,
			.dims = tensor->dims,
			.begin = at,
			.end = at + tensor->bytes,
		};
		memcpy(entries[i].shape, tensor->shape, sizeof(tensor->shape));
		at += tensor->bytes;
	}
	rc = safetensors_encode(entries, count, notes, ARRAY_SIZE(notes), &text, maker->error);
	if (rc == 0)
		rc = write_all(maker, fd, name, text.data, text.bytes);
	text_fini(&text);
	memory_free(entries);
	return rc;
}

static int write_tensor(struct maker *maker, const struct model_tensor *tensor, int fd,
			const char *name)
{
	for (uint64_t at = 0; at < tensor->bytes; at += WRITE_BYTES) {
		uint64_t left = tensor->bytes - at, n = left < WRITE_BYTES ? left : WRITE_BYTES;
		int rc;

		if (maker->stop && *maker->stop)
			return error_set(maker->error, ERROR_INTERRUPTED,
					 "interrupted while writing %s; nothing was left behind",
					 maker->folder.path);
		content_make(tensor->name, tensor->dtype, maker->seed, at, n, maker->buffer);
		rc = write_all(maker, fd, name, maker->buffer, n);
		if (rc)
			return rc;
		maker->written += n;
		progress_at(&maker->progress, maker->written);
	}
	return 0;
}

static int write_shard(struct maker *maker, size_t i)
{
	const struct shard *shard = &maker->shards.items[i];
	char name[FILE_NAME_BYTES];
	int fd, rc;

	shard_name(maker, i, name);
	rc = open_file(maker, name, &fd);
	if (rc)
		return rc;
	rc = write_header(maker, shard, fd, name);
	for (size_t t = shard->first; t < shard->last && rc == 0; t++)
		rc = write_tensor(maker, &maker->model->tensors[t], fd, name);
	return close_file(maker, name, fd, rc);
}

static int write_index(const struct maker *maker)
{
	struct text text = {0};
	char name[FILE_NAME_BYTES];
	struct json json;
	int rc;

	json_to_text(&json, &text);
	json_put_object(&json);
	json_put_key_object(&json, "metadata");
	json_put_key_u64(&json, "total_size", maker->model->all_bytes);
	json_put_object_end(&json);
	json_put_key_object(&json, "weight_map");
	for (size_t i = 0; i < maker->shards.count; i++) {
		shard_name(maker, i, name);
		for (size_t t = maker->shards.items[i].first; t < maker->shards.items[i].last; t++)
			json_put_key_string(&json, maker->model->tensors[t].name, name);
	}
	json_put_object_end(&json);
	json_put_object_end(&json);
	text_add(&text, "\n");
	if (text_ok(&text))
		rc = write_text(maker, "model.safetensors.index.json", text_string(&text));
	else
		rc = memory_error(maker->error, "writing an index", text.bytes);
	text_fini(&text);
	return rc;
}

static int write_config(const struct maker *maker)
{
	char *config = model_config_json(maker->model, maker->error);
	int rc = config ? write_text(maker, "config.json", config) : -ERROR_MEMORY;

	memory_free(config);
	return rc;
}

/* Of a model that came from one. */
static int write_layout_file(const struct maker *maker)
{
	const struct model *model = maker->model;
	FILE *stream;
	int fd, rc = open_file(maker, LAYOUT_FILE_NAME, &fd);

	if (rc)
		return rc;
	stream = fdopen(fd, "w");
	if (!stream) {
		close(fd);
		return memory_error(maker->error, "writing a layout file", 0);
	}
	rc = layout_file_write(model, &model->file->infer, stream, maker->error);
	if ((ferror(stream) | fclose(stream)) && rc == 0)
		rc = error_set_errno(maker->error, ERROR_IO, errno,
				     "cannot write %s/" LAYOUT_FILE_NAME, maker->folder.path);
	return rc;
}

static int write_folder(struct maker *maker)
{
	int rc = maker->model->file ? write_layout_file(maker) : write_config(maker);

	for (size_t i = 0; i < maker->shards.count && rc == 0; i++)
		rc = write_shard(maker, i);
	if (rc == 0 && maker->shards.count > 1)
		rc = write_index(maker);
	return rc;
}

int checkpoint_make_until(const struct model *model, const char *folder, uint64_t seed,
			  uint64_t shard_bytes, bool replace, bool quiet,
			  const volatile sig_atomic_t *stop, struct error *error)
{
	struct maker maker = {.model = model, .seed = seed, .stop = stop, .error = error};
	char *what = memory_format("writing %s", model->name);
	int rc;

	maker.buffer = memory_aligned(4096, WRITE_BYTES);
	if (!maker.buffer || !what)
		rc = memory_error(error, "making a checkpoint", WRITE_BYTES);
	else
		rc = plan_shards(&maker, shard_bytes);
	if (rc == 0)
		rc = folder_begin(&maker.folder, folder, replace, model->all_bytes,
				  beside_tensors(&maker), error);
	if (rc == 0) {
		progress_begin(&maker.progress, what, model->all_bytes, quiet);
		rc = write_folder(&maker);
		if (rc == 0)
			rc = folder_commit(&maker.folder, error);
		progress_end(&maker.progress, maker.written);
		folder_abort(&maker.folder);
	}
	array_free(&maker.shards);
	memory_free(maker.buffer);
	memory_free(what);
	return rc;
}

int checkpoint_make(const struct model *model, const char *folder, uint64_t seed,
		    uint64_t shard_bytes, bool replace, bool quiet, struct error *error)
{
	return checkpoint_make_until(model, folder, seed, shard_bytes, replace, quiet, NULL, error);
}
