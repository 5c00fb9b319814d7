/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/memory.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/content.h"
#include "model/model.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 256

static const char config_text[] =
	"{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 16, \"intermediate_size\": 24,"
	"\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
	"\"vocab_size\": 70, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}";

/* Each test works in a fresh folder and ends with an empty one. */
struct scene {
	char folder[64];
	struct model *model;
};

static int set_up(void **state)
{
	struct scene *scene = memory_zalloc(1, sizeof(*scene));
	struct model_config config;

	snprintf(scene->folder, sizeof(scene->folder), "%s/weft-test-XXXXXX", P_tmpdir);
	if (!mkdtemp(scene->folder) ||
	    config_parse(config_text, strlen(config_text), "c", &config, NULL) ||
	    model_from_config(&scene->model, "small", &config, NULL))
		return -1;
	*state = scene;
	return 0;
}

static void remove_tree(const char *path)
{
	DIR *stream = opendir(path);
	struct dirent *entry;
	char inner[PATH_BYTES * 2];

	if (!stream) {
		unlink(path);
		return;
	}
	while ((entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		remove_tree(inner);
	}
	closedir(stream);
	rmdir(path);
}

static int tear_down(void **state)
{
	struct scene *scene = *state;

	remove_tree(scene->folder);
	model_close(&scene->model);
	memory_free(scene);
	return 0;
}

static const char *in_scene(const struct scene *scene, const char *name, char out[PATH_BYTES])
{
	snprintf(out, PATH_BYTES, "%s/%s", scene->folder, name);
	return out;
}

static int entries_in(const char *path)
{
	DIR *stream = opendir(path);
	int n = 0;

	assert_non_null(stream);
	while (readdir(stream))
		n++;
	closedir(stream);
	return n - 2;
}

static void write_file(const char *path, const void *data, size_t bytes)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	fclose(file);
}

static size_t read_file(const char *path, unsigned char **data)
{
	FILE *file = fopen(path, "r");
	struct stat status;

	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &status), 0);
	*data = memory_alloc((size_t)status.st_size + 1);
	assert_int_equal(fread(*data, 1, (size_t)status.st_size, file), status.st_size);
	fclose(file);
	return (size_t)status.st_size;
}

static void make(const struct scene *scene, const char *path, uint64_t shard_bytes)
{
	struct error error = {0};

	if (checkpoint_make(scene->model, path, 5, shard_bytes, false, true, &error))
		fail_msg("%s", error.text);
}

static void test_make__writes_the_model_in_checkpoint_order_with_its_contents(void **state)
{
	struct scene *scene = *state;
	struct checkpoint *checkpoint;
	struct model *again;
	char path[PATH_BYTES], config[PATH_BYTES];

	make(scene, in_scene(scene, "m", path), 0);
	assert_int_equal(entries_in(path), 2);
	assert_int_equal(entries_in(scene->folder), 1);
	assert_int_equal(checkpoint_open(&checkpoint, path, NULL), 0);
	assert_int_equal(checkpoint_count(checkpoint), scene->model->tensor_count);
	assert_int_equal(checkpoint_bytes(checkpoint), scene->model->bytes);
	assert_int_equal(checkpoint_file_count(checkpoint), 1);
	assert_string_equal(checkpoint_file(checkpoint, 0), "model.safetensors");
	assert_string_equal(checkpoint_note(checkpoint, CHECKPOINT_SEED_NOTE), "5");
	for (size_t i = 0; i < checkpoint_count(checkpoint); i++) {
		const struct checkpoint_tensor *tensor = checkpoint_at(checkpoint, i);
		unsigned char *made = memory_alloc(tensor->bytes);

		assert_string_equal(tensor->name, scene->model->tensors[i].name);
		assert_ptr_equal(checkpoint_find(checkpoint, tensor->name), tensor);
		content_make(tensor->name, tensor->dtype, 5, 0, tensor->bytes, made);
		assert_memory_equal(tensor->data, made, tensor->bytes);
		memory_free(made);
	}
	assert_null(checkpoint_find(checkpoint, "none"));
	assert_int_equal(checkpoint_matches(checkpoint, scene->model, NULL), 0);
	assert_int_equal(checkpoint_verify_contents(checkpoint, 5, true, NULL, NULL), 0);
	assert_int_equal(checkpoint_verify_contents(checkpoint, 6, true, NULL, NULL),
			 -ERROR_CHECKSUM);
	checkpoint_close(&checkpoint);
	assert_null(checkpoint);
	snprintf(config, sizeof(config), "%.200s/config.json", path);
	assert_int_equal(model_open(&again, config, NULL), 0);
	assert_int_equal(again->bytes, scene->model->bytes);
	assert_string_equal(again->name, "m");
	model_close(&again);
}

static void test_make__cuts_files_at_the_limit_and_indexes_them(void **state)
{
	struct scene *scene = *state;
	struct checkpoint *checkpoint;
	char path[PATH_BYTES], index[PATH_BYTES + 40];
	uint64_t in_file[64] = {0};
	size_t tensors[64] = {0};

	/* the embedding, 2240 bytes, is larger than the limit and gets its own file */
	make(scene, in_scene(scene, "m", path), 2000);
	assert_int_equal(checkpoint_open(&checkpoint, path, NULL), 0);
	assert_true(checkpoint_file_count(checkpoint) > 2);
	assert_int_equal(entries_in(path), checkpoint_file_count(checkpoint) + 2);
	for (size_t i = 0; i < checkpoint_count(checkpoint); i++) {
		const struct checkpoint_tensor *tensor = checkpoint_at(checkpoint, i);

		assert_string_equal(tensor->name, scene->model->tensors[i].name);
		in_file[tensor->file] += tensor->bytes;
		tensors[tensor->file]++;
	}
	for (size_t f = 0; f < checkpoint_file_count(checkpoint); f++)
		assert_true(in_file[f] <= 2000 || tensors[f] == 1);
	assert_int_equal(checkpoint_matches(checkpoint, scene->model, NULL), 0);
	assert_int_equal(checkpoint_verify_contents(checkpoint, 5, true, NULL, NULL), 0);
	assert_string_equal(checkpoint_note(checkpoint, CHECKPOINT_SEED_NOTE), "5");
	checkpoint_close(&checkpoint);
	snprintf(index, sizeof(index), "%s/model.safetensors.index.json", path);
	assert_int_equal(checkpoint_open(&checkpoint, index, NULL), 0);
	checkpoint_close(&checkpoint);
	snprintf(index, sizeof(index), "%s/model-00001-of-%05d.safetensors", path,
		 entries_in(path) - 2);
	assert_int_equal(checkpoint_open(&checkpoint, index, NULL), 0);
	assert_int_equal(checkpoint_count(checkpoint), 1);
	checkpoint_close(&checkpoint);
}

static void test_make__refuses_an_existing_folder_unless_told_to_replace_it(void **state)
{
	struct scene *scene = *state;
	struct checkpoint *checkpoint;
	struct error error = {0};
	char path[PATH_BYTES], stray[PATH_BYTES + 20];

	make(scene, in_scene(scene, "m", path), 2000);
	assert_int_equal(checkpoint_make(scene->model, path, 6, 0, false, true, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "exists already"));
	assert_int_equal(checkpoint_make(scene->model, path, 6, 0, true, true, NULL), 0);
	assert_int_equal(entries_in(path), 2);
	assert_int_equal(entries_in(scene->folder), 1);
	assert_int_equal(checkpoint_open(&checkpoint, path, NULL), 0);
	assert_string_equal(checkpoint_note(checkpoint, CHECKPOINT_SEED_NOTE), "6");
	checkpoint_close(&checkpoint);
	/* somebody's own file is never taken away */
	snprintf(stray, sizeof(stray), "%s/notes.txt", path);
	write_file(stray, "x", 1);
	assert_int_equal(checkpoint_make(scene->model, path, 7, 0, true, true, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "notes.txt"));
	assert_int_equal(access(stray, F_OK), 0);
	assert_int_equal(entries_in(scene->folder), 1);
}

static void test_make__refuses_names_that_are_no_folder(void **state)
{
	static const char *const names[] = {"", "/", ".", "..", "x/..", "x/."};
	struct scene *scene = *state;
	char path[PATH_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(checkpoint_make(scene->model, names[i], 0, 0, false, true, NULL),
				 -ERROR_USAGE);
	in_scene(scene, "file", path);
	write_file(path, "x", 1);
	assert_int_equal(checkpoint_make(scene->model, path, 0, 0, true, true, NULL), -ERROR_IO);
	unlink(path);
	/* parents are made, trailing slashes do not matter */
	make(scene, in_scene(scene, "a/b/m///", path), 0);
	assert_int_equal(access(in_scene(scene, "a/b/m/config.json", path), F_OK), 0);
}

static void test_make__interrupted_leaves_nothing(void **state)
{
	struct scene *scene = *state;
	volatile sig_atomic_t stop = 1;
	struct error error = {0};
	char path[PATH_BYTES];

	assert_int_equal(checkpoint_make_until(scene->model, in_scene(scene, "m", path), 0, 0,
					       false, true, &stop, &error),
			 -ERROR_INTERRUPTED);
	assert_int_equal(entries_in(scene->folder), 0);
}

static void
test_make__replaces_what_a_killed_run_left_when_told_to_but_not_a_living_one(void **state)
{
	struct scene *scene = *state;
	struct error error = {0};
	char path[PATH_BYTES], partial[PATH_BYTES], left[PATH_BYTES];
	int lock;

	in_scene(scene, "m", path);
	assert_int_equal(mkdir(in_scene(scene, ".m.weft-partial", partial), 0777), 0);
	write_file(in_scene(scene, ".m.weft-partial/model.safetensors", left), "half", 4);
	lock = open(partial, O_RDONLY | O_DIRECTORY);
	assert_int_equal(flock(lock, LOCK_EX), 0);
	assert_int_equal(checkpoint_make(scene->model, path, 0, 0, false, true, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "another process is writing"));
	assert_int_equal(access(left, F_OK), 0);
	assert_int_equal(checkpoint_make(scene->model, path, 0, 0, true, true, &error), -ERROR_IO);
	assert_int_equal(access(left, F_OK), 0);
	close(lock);
	assert_int_equal(checkpoint_make(scene->model, path, 0, 0, false, true, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, partial));
	assert_non_null(strstr(error.text, "rm -r"));
	assert_int_equal(access(left, F_OK), 0);
	assert_int_equal(checkpoint_make(scene->model, path, 0, 0, true, true, NULL), 0);
	assert_int_equal(entries_in(scene->folder), 1);
}

static void test_make__two_at_once_give_one_whole_folder(void **state)
{
	struct scene *scene = *state;
	struct checkpoint *checkpoint;
	char path[PATH_BYTES];
	int status, made = 0;
	pid_t children[4];

	in_scene(scene, "m", path);
	for (int round = 0; round < 10; round++) {
		for (int c = 0; c < 4; c++) {
			children[c] = fork();
			if (children[c] == 0)
				_exit(checkpoint_make(scene->model, path, 5, 900, true, true, NULL)
					      ? 1
					      : 0);
		}
		for (int c = 0; c < 4; c++) {
			assert_int_equal(waitpid(children[c], &status, 0), children[c]);
			made += WIFEXITED(status) && WEXITSTATUS(status) == 0;
		}
		assert_int_equal(entries_in(scene->folder), 1);
		assert_int_equal(checkpoint_open(&checkpoint, path, NULL), 0);
		assert_int_equal(checkpoint_matches(checkpoint, scene->model, NULL), 0);
		assert_int_equal(checkpoint_verify_contents(checkpoint, 5, true, NULL, NULL), 0);
		checkpoint_close(&checkpoint);
	}
	assert_true(made >= 10);
}

static void test_make__a_disk_without_room_is_told_before_writing(void **state)
{
	struct scene *scene = *state;
	struct model huge = *scene->model;
	struct error error = {0};
	char path[PATH_BYTES];

	huge.all_bytes = (uint64_t)1 << 60;
	assert_int_equal(
		checkpoint_make(&huge, in_scene(scene, "m", path), 0, 0, false, true, &error),
		-ERROR_IO);
	assert_non_null(strstr(error.text, "left"));
	/* what is kept beside them is named, and small for a small model */
	assert_non_null(strstr(error.text, " for tensors and up to "));
	assert_non_null(strstr(error.text, " kB for headers, index and config"));
	assert_int_equal(entries_in(scene->folder), 0);
}

static int open_error(const char *path, struct error *error)
{
	struct checkpoint *checkpoint;
	int rc = checkpoint_open(&checkpoint, path, error);

	if (rc)
		assert_null(checkpoint);
	checkpoint_close(&checkpoint);
	return rc;
}

static void test_open__tells_what_a_folder_lacks_or_has_twice(void **state)
{
	struct scene *scene = *state;
	struct error error = {0};
	char path[PATH_BYTES];

	assert_int_equal(open_error(scene->folder, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "neither model.safetensors nor"));
	assert_int_equal(open_error(in_scene(scene, "none", path), &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "/none"));
	/* the cache of a download that was cut short */
	assert_int_equal(symlink("../blobs/5f1e", in_scene(scene, "model.safetensors", path)), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(open_error(i ? path : scene->folder, &error), -ERROR_FILE);
		assert_non_null(strstr(error.text, "/model.safetensors is a link to ../blobs/5f1e, "
						   "where nothing is"));
	}
	assert_int_equal(unlink(path), 0);
	write_file(path, "", 0);
	assert_int_equal(open_error(scene->folder, &error), -ERROR_FILE);
	assert_non_null(strstr(error.text, "0 bytes are too few"));
	write_file(in_scene(scene, "model.safetensors.index.json", path), "", 0);
	assert_int_equal(open_error(scene->folder, &error), -ERROR_FILE);
	assert_non_null(strstr(error.text, "both"));
	assert_int_equal(open_error(path, &error), -ERROR_FILE);
	assert_non_null(strstr(error.text, "not JSON"));
}

/* A hand-written pair of one-tensor files, f.safetensors with `first` and g with `second`. */
static void write_pair(const struct scene *scene, const char *first, const char *second)
{
	const char *names[] = {first, second}, *files[] = {"f.safetensors", "g.safetensors"};

	for (int i = 0; i < 2; i++) {
		char header[200], image[300], path[PATH_BYTES];
		uint64_t length = (uint64_t)snprintf(
			header, sizeof(header),
			"{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
			names[i]);

		memcpy(image, &length, 8);
		memcpy(image + 8, header, length);
		memcpy(image + 8 + length, "data", 4);
		write_file(in_scene(scene, files[i], path), image, 12 + length);
	}
}

static void test_open__index_and_files_must_agree_both_ways(void **state)
{
	static const struct {
		const char *second, *map, *message;
	} rows[] = {
		{"b", "\"a\":\"f.safetensors\",\"b\":\"g.safetensors\"", NULL},
		{"b", "\"a\":\"g.safetensors\",\"b\":\"f.safetensors\"", "tensor a should be in g"},
		{"b", "\"a\":\"f.safetensors\",\"c\":\"g.safetensors\"", "tensor c should be in g"},
		{"a", "\"a\":\"f.safetensors\",\"b\":\"g.safetensors\"", "tensor a is also in"},
		{"b", "\"a\":\"f.safetensors\",\"b\":\"h.safetensors\"", "index.json names it"},
		{"b", "\"a\":\"f.safetensors\"", NULL}, /* g is simply not part of it */
	};
	struct scene *scene = *state;
	char path[PATH_BYTES], text[300];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error error = {0};
		int rc;

		write_pair(scene, "a", rows[i].second);
		snprintf(text, sizeof(text), "{\"weight_map\":{%s}}", rows[i].map);
		write_file(in_scene(scene, "model.safetensors.index.json", path), text,
			   strlen(text));
		rc = open_error(scene->folder, &error);
		assert_int_equal(rc != 0, rows[i].message != NULL);
		if (rows[i].message && !strstr(error.text, rows[i].message))
			fail_msg("'%s' does not say '%s'", error.text, rows[i].message);
	}
}

static void test_open__a_tensor_the_index_leaves_out_is_named(void **state)
{
	struct scene *scene = *state;
	struct error error = {0};
	char path[PATH_BYTES], image[400];
	const char *header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
			     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}";
	const char *index = "{\"weight_map\":{\"a\":\"f.safetensors\"}}";
	uint64_t length = strlen(header);

	memcpy(image, &length, 8);
	memcpy(image + 8, header, length);
	memcpy(image + 8 + length, "data", 4);
	write_file(in_scene(scene, "f.safetensors", path), image, length + 12);
	write_file(in_scene(scene, "x.json", path), index, strlen(index));
	assert_int_equal(open_error(path, &error), -ERROR_FILE);
	assert_non_null(
		strstr(error.text, "weight_map does not name tensor b, which is in f.safe"));
}

static void test_matches__names_the_first_difference(void **state)
{
	struct scene *scene = *state;
	struct model_config config = scene->model->config;
	struct checkpoint *checkpoint;
	struct model *other;
	struct error error = {0};
	char path[PATH_BYTES];

	make(scene, in_scene(scene, "m", path), 0);
	assert_int_equal(checkpoint_open(&checkpoint, path, NULL), 0);
	config.tied = false;
	assert_int_equal(model_from_config(&other, "o", &config, NULL), 0);
	assert_int_equal(checkpoint_matches(checkpoint, other, &error), -ERROR_FILE);
	assert_non_null(strstr(error.text, "no tensor lm_head.weight"));
	model_close(&other);
	config = scene->model->config;
	config.layers = 1;
	assert_int_equal(model_from_config(&other, "o", &config, NULL), 0);
	assert_int_equal(checkpoint_matches(checkpoint, other, &error), -ERROR_FILE);
	assert_non_null(
		strstr(error.text, "model.layers.1.self_attn.q_proj.weight is not one of o"));
	model_close(&other);
	config = scene->model->config;
	config.intermediate_size = 32;
	assert_int_equal(model_from_config(&other, "o", &config, NULL), 0);
	assert_int_equal(checkpoint_matches(checkpoint, other, &error), -ERROR_FILE);
	assert_non_null(
		strstr(error.text, "gate_proj.weight is BF16 [24, 16], but o needs BF16 [32, 16]"));
	model_close(&other);
	config = scene->model->config;
	config.dtype = DTYPE_F16;
	assert_int_equal(model_from_config(&other, "o", &config, NULL), 0);
	assert_int_equal(checkpoint_matches(checkpoint, other, &error), -ERROR_FILE);
	model_close(&other);
	checkpoint_close(&checkpoint);
}

static void test_matches__a_tied_model_may_carry_its_lm_head(void **state)
{
	struct scene *scene = *state;
	struct model_config config = scene->model->config;
	struct checkpoint *checkpoint;
	struct model *untied;
	char path[PATH_BYTES];

	config.tied = false;
	assert_int_equal(model_from_config(&untied, "u", &config, NULL), 0);
	assert_int_equal(
		checkpoint_make(untied, in_scene(scene, "m", path), 0, 0, false, true, NULL), 0);
	assert_int_equal(checkpoint_open(&checkpoint, path, NULL), 0);
	assert_int_equal(checkpoint_matches(checkpoint, scene->model, NULL), 0);
	checkpoint_close(&checkpoint);
	model_close(&untied);
}

static void test_verify__finds_one_flipped_bit_anywhere(void **state)
{
	struct scene *scene = *state;
	struct checkpoint *checkpoint;
	struct error error = {0};
	unsigned char *image;
	char path[PATH_BYTES], file[PATH_BYTES];
	size_t bytes;

	make(scene, in_scene(scene, "m", path), 0);
	bytes = read_file(in_scene(scene, "m/model.safetensors", file), &image);
	for (size_t at = bytes - scene->model->bytes; at < bytes; at += 611) {
		image[at] ^= 4;
		write_file(file, image, bytes);
		image[at] ^= 4;
		assert_int_equal(checkpoint_open(&checkpoint, path, NULL), 0);
		assert_int_equal(checkpoint_verify_contents(checkpoint, 5, true, NULL, &error),
				 -ERROR_CHECKSUM);
		assert_non_null(strstr(error.text, "byte "));
		checkpoint_close(&checkpoint);
	}
	memory_free(image);
}

/* The whole reader over damaged files on disk: cut, grown, header bits flipped. */
static void test_open__damaged_files_end_in_an_error_that_names_the_file(void **state)
{
	static const char *const files[] = {"m/model-00002-of-00003.safetensors",
					    "m/model.safetensors.index.json"};
	struct scene *scene = *state;
	char path[PATH_BYTES], file[PATH_BYTES];
	int damaged = 0;

	make(scene, in_scene(scene, "m", path), 4000);
	for (size_t f = 0; f < ARRAY_SIZE(files); f++) {
		unsigned char *image;
		size_t bytes = read_file(in_scene(scene, files[f], file), &image);

		for (size_t n = 0; n < bytes; n += 1 + n / 16) {
			struct error error = {0};

			write_file(file, image, n);
			assert_true(open_error(path, &error) != 0);
			assert_non_null(strstr(error.text, strrchr(files[f], '/')));
			image[n] ^= 1;
			write_file(file, image, bytes);
			image[n] ^= 1;
			damaged += open_error(path, &error) != 0;
		}
		image[bytes] = 'x';
		write_file(file, image, bytes + 1);
		assert_int_equal(open_error(path, NULL), -ERROR_FILE);
		write_file(file, image, bytes);
		assert_int_equal(open_error(path, NULL), 0);
		memory_free(image);
	}
	assert_true(damaged > 20);
}

static void test_checkpoint__every_failed_allocation_is_an_error_without_leak(void **state)
{
	struct scene *scene = *state;
	struct checkpoint *checkpoint;
	char path[PATH_BYTES];
	int rc = -1;

	in_scene(scene, "m", path);
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = checkpoint_make(scene->model, path, 5, 4000, false, true, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		if (rc)
			assert_int_equal(entries_in(scene->folder), 0);
	}
	rc = -1;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = checkpoint_open(&checkpoint, path, NULL);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	checkpoint_close(&checkpoint);
}

#define SCENE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE(test_make__writes_the_model_in_checkpoint_order_with_its_contents),
		SCENE(test_make__cuts_files_at_the_limit_and_indexes_them),
		SCENE(test_make__refuses_an_existing_folder_unless_told_to_replace_it),
		SCENE(test_make__refuses_names_that_are_no_folder),
		SCENE(test_make__interrupted_leaves_nothing),
		SCENE(test_make__replaces_what_a_killed_run_left_when_told_to_but_not_a_living_one),
		SCENE(test_make__two_at_once_give_one_whole_folder),
		SCENE(test_make__a_disk_without_room_is_told_before_writing),
		SCENE(test_open__tells_what_a_folder_lacks_or_has_twice),
		SCENE(test_open__index_and_files_must_agree_both_ways),
		SCENE(test_open__a_tensor_the_index_leaves_out_is_named),
		SCENE(test_matches__names_the_first_difference),
		SCENE(test_matches__a_tied_model_may_carry_its_lm_head),
		SCENE(test_verify__finds_one_flipped_bit_anywhere),
		SCENE(test_open__damaged_files_end_in_an_error_that_names_the_file),
		SCENE(test_checkpoint__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
