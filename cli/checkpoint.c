/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c -- weft checkpoint make | show | verify: HuggingFace checkpoints on disk.
 */
#include "cli/model_verbs.h"
#include "cli/verb.h"
#include "cli/grid.h"
#include "cli/shown.h"

#include "base/array.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "model/checkpoint.h"
#include "model/checkpoint_names.h"
#include "model/folder.h"
#include "model/layout_file.h"
#include "model/model.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct options {
	const char *arguments[2];
	const char *model, *as;
	uint64_t seed, shard_bytes;
	bool json, force, contents;
};

static void take_seed(void *taken, const char *argument, struct argp_state *state)
{
	if (!parse_u64(argument, &((struct options *)taken)->seed))
		argp_error(state, "--seed %s: a number from 0 to 2^64 - 1 is needed", argument);
}

static void take_shard_bytes(void *taken, const char *argument, struct argp_state *state)
{
	if (!parse_bytes(argument, &((struct options *)taken)->shard_bytes))
		argp_error(state,
			   "--shard-bytes %s: bytes are needed, as 2G or 500M; 0 makes "
			   "one file",
			   argument);
}

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	stop = 1;
}

/* The first signal ends the work in an orderly way, a second one at once. */
static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int make(void *taken, struct error *error)
{
	const struct options *options = taken;

	struct model *model;
	struct json json;
	int rc = model_open_as(&model, options->arguments[0], options->as, error);

	if (rc)
		return rc;
	catch_signals();
	rc = checkpoint_make_until(model, options->arguments[1], options->seed,
				   options->shard_bytes, options->force, false, &stop, error);
	if (rc == 0 && options->json) {
		json_put_line(&json, stdout);
		json_put_key_string(&json, "path", options->arguments[1]);
		json_put_key_string(&json, "model", model->name);
		json_put_key_u64(&json, "seed", options->seed);
		json_put_key_u64(&json, "tensors", model->tensor_count);
		json_put_key_u64(&json, "bytes", model->bytes);
		json_put_line_end(&json);
	} else if (rc == 0) {
		printf("%s: %s with seed %" PRIu64 ", %zu tensors, %s bytes\n",
		       shown(options->arguments[1]), shown(model->name), options->seed,
		       model->tensor_count, GROUPED_TEXT(model->bytes));
	}
	model_close(&model);
	return rc;
}

static const struct verb_option make_rows[] = {
	TAKE(take_seed, "seed", "N", "which contents (default 0)"),
	TAKE(take_shard_bytes, "shard-bytes", "BYTES",
	     "start a new file before one would hold more (default 2G; 0: one file)"),
	ROW_AS,
	FLAG(force, "force",
	     "replace DIR if it is a checkpoint that was made here, and what a run that was killed "
	     "left of it"),
	FORMAT(json, "json", "print what was made as one JSON object"),
	{0},
};

static const struct verb make_verb = {
	VERB_OF(struct options, make_rows),
	VERB_ARGUMENTS(struct options, arguments, 2, 2),
	.defaults = &(const struct options){.shard_bytes = (uint64_t)2 << 30},
	.arguments = "MODEL DIR",
	.too_few = "2 arguments are needed, %d given",
	.doc = "Write a HuggingFace checkpoint of a model's shapes at full size: config.json "
	       "(of a layout file: weft.layout.json), safetensors files and, when there are several, their index. The contents look like "
	       "weights and are a function of the seed and the tensor's name. DIR appears whole or "
	       "not at all.",
	.run = make,
};

static void show_json(const struct checkpoint *checkpoint)
{
	struct json json;

	for (size_t i = 0; i < checkpoint_count(checkpoint); i++) {
		const struct checkpoint_tensor *tensor = checkpoint_at(checkpoint, i);

		json_put_line(&json, stdout);
		json_put_key_string(&json, "tensor", tensor->name);
		json_put_key_string(&json, "dtype", dtype_name(tensor->dtype));
		json_put_key_u64s(&json, "shape", tensor->shape, tensor->dims);
		json_put_key_u64(&json, "bytes", tensor->bytes);
		json_put_key_string(&json, "file", checkpoint_file(checkpoint, tensor->file));
		json_put_line_end(&json);
	}
}

static void show_lines(const struct checkpoint *checkpoint)
{
	const char *seed = checkpoint_note(checkpoint, CHECKPOINT_SEED_NOTE);

	static const struct grid_column columns[] = {COLUMN(NULL, -56, .before = "  ", .least = 24),
						     COLUMN(NULL, -5), COLUMN(NULL, -18),
						     COLUMN(NULL, 15)};
	uint32_t file = UINT32_MAX;
	struct grid grid;

	grid_begin(&grid, columns, ARRAY_SIZE(columns));

	for (size_t i = 0; i < checkpoint_count(checkpoint); i++) {
		const struct checkpoint_tensor *tensor = checkpoint_at(checkpoint, i);
		struct text shape = {0};

		if (tensor->file != file)
			grid_line(&grid, grid_cell("%s:", shown(checkpoint_file(checkpoint,
										tensor->file))));
		file = tensor->file;
		for (uint32_t d = 0; d < tensor->dims; d++)
			text_format(&shape, "%s%" PRIu64, d ? ", " : "[", tensor->shape[d]);
		text_add(&shape, "]");
		grid_row(&grid, (const char *[]){shown(tensor->name), dtype_name(tensor->dtype),
						 text_string(&shape), GROUPED_TEXT(tensor->bytes)});
		text_fini(&shape);
	}
	grid_end(&grid);
	printf("%s: %zu tensors in %zu file%s, %s bytes", shown(checkpoint_folder(checkpoint)),
	       checkpoint_count(checkpoint), checkpoint_file_count(checkpoint),
	       checkpoint_file_count(checkpoint) == 1 ? "" : "s",
	       GROUPED_TEXT(checkpoint_bytes(checkpoint)));
	if (seed)
		printf(", made with seed %s", shown(seed));
	printf("\n");
}

/* Opens what a verb is about. Where there is none, a folder beside it may be what is left of one. */
static int open_checkpoint(struct checkpoint **checkpoint, const char *path, struct error *error)
{
	struct folder_left left;
	int rc = checkpoint_open(checkpoint, path, error);

	if (!rc || access(path, F_OK) == 0 || !folder_left(path, &left))
		return rc;
	error_set(
		error, ERROR_FILE,
		"there is no %s; %s is what a `weft checkpoint make` that was killed left of it (%s): "
		"remove it (rm -r -- '%s') or make it anew with --force",
		path, left.partial, BYTES_TEXT(left.bytes), left.partial);
	memory_free(left.partial);
	return -ERROR_FILE;
}

static int show(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct checkpoint *checkpoint;
	int rc = open_checkpoint(&checkpoint, options->arguments[0], error);

	if (rc)
		return rc;
	(options->json ? show_json : show_lines)(checkpoint);
	checkpoint_close(&checkpoint);
	return 0;
}

static const struct verb_option show_rows[] = {
	FORMAT(json, "json", "one JSON object a tensor"),
	{0},
};

static const struct verb show_verb = {
	VERB_OF(struct options, show_rows),
	VERB_ARGUMENTS(struct options, arguments, 1, 1),
	.arguments = "PATH",
	.too_few = "1 argument is needed, %d given",
	.doc = "The tensors of a checkpoint on disk, file by file. PATH is a folder, a .safetensors "
	       "file or an index.",
	.run = show,
};

/* The model to compare with: the one that was named, else the checkpoint's own layout file or
 * config.json; *model stays NULL when there is none. */
static int model_of(const struct options *options, const struct checkpoint *checkpoint,
		    struct model **model, struct error *error)
{
	static const char *const names[] = {LAYOUT_FILE_NAME, "config.json"};
	const char *folder = checkpoint_folder(checkpoint);
	int rc = 0;

	*model = NULL;
	if (options->model)
		return model_open_as(model, options->model, options->as, error);
	for (size_t i = 0; i < ARRAY_SIZE(names) && rc == 0 && !*model; i++) {
		char *path =
			memory_format("%s%s/%s", strchr(folder, '/') ? "" : "./", folder, names[i]);

		if (!path)
			return memory_error(error, "naming a config", strlen(folder));
		if (access(path, F_OK) == 0)
			rc = model_open_as(model, path, options->as, error);
		memory_free(path);
	}
	return rc;
}

static int verify_contents(const struct options *options, const struct checkpoint *checkpoint,
			   uint64_t *seed, struct error *error)
{
	const char *note = checkpoint_note(checkpoint, CHECKPOINT_SEED_NOTE);
	const char *recipe = checkpoint_note(checkpoint, CHECKPOINT_CONTENTS_NOTE);

	if (!note || !parse_u64(note, seed) || !recipe)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"%s: its files do not say with which seed `weft checkpoint make` wrote "
			"them, so their contents cannot be checked; leave --contents out",
			options->arguments[0]);
	if (strcmp(recipe, "1") != 0)
		return error_set(
			error, ERROR_UNSUPPORTED,
			"%s was made with recipe %.40s of the contents; this weft knows recipe 1",
			options->arguments[0], recipe);
	catch_signals();
	return checkpoint_verify_contents(checkpoint, *seed, false, &stop, error);
}

static void tell_verified(const struct options *options, const struct checkpoint *checkpoint,
			  const struct model *model, uint64_t seed, const char *left)
{
	struct json json;

	if (!options->json) {
		printf("%s: good: %zu tensors, %s bytes", shown(options->arguments[0]),
		       checkpoint_count(checkpoint), GROUPED_TEXT(checkpoint_bytes(checkpoint)));
		if (model)
			printf("; the tensors of %s", shown(model->name));
		if (options->contents)
			printf("; the contents of seed %" PRIu64, seed);
		else
			printf("; contents not compared (--contents)");
		printf("\n");
		if (*left)
			printf("%s: %s\n", shown(options->arguments[0]), shown(left));
		return;
	}
	json_put_line(&json, stdout);
	json_put_key_string(&json, "path", options->arguments[0]);
	json_put_key_u64(&json, "tensors", checkpoint_count(checkpoint));
	json_put_key_u64(&json, "bytes", checkpoint_bytes(checkpoint));
	if (model)
		json_put_key_string(&json, "model", model->name);
	if (*left)
		json_put_key_string(&json, "left_alone", left);
	json_put_key_bool(&json, "contents", options->contents);
	if (options->contents)
		json_put_key_u64(&json, "seed", seed);
	json_put_line_end(&json);
}

static int verify(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct checkpoint *checkpoint;
	struct model *model = NULL;
	struct text left = {0};
	uint64_t seed = 0;
	int rc = open_checkpoint(&checkpoint, options->arguments[0], error);

	if (rc)
		return rc;
	rc = model_of(options, checkpoint, &model, error);
	if (rc == 0 && model)
		rc = checkpoint_matches(checkpoint, model, error);
	if (rc == 0 && model)
		rc = checkpoint_left_alone(checkpoint, model, &left, error);
	if (rc == 0 && options->contents)
		rc = verify_contents(options, checkpoint, &seed, error);
	if (rc == 0)
		tell_verified(options, checkpoint, model, seed, text_string(&left));
	text_fini(&left);
	model_close(&model);
	checkpoint_close(&checkpoint);
	return rc;
}

static const struct verb_option verify_rows[] = {
	TEXT(model, "model", "MODEL",
	     "compare with this model (default: the folder's weft.layout.json or config.json, if any)"),
	ROW_AS,
	FLAG(contents, "contents", "recompute every byte that `weft checkpoint make` wrote"),
	FORMAT(json, "json", "print the result as one JSON object"),
	{0},
};

static const struct verb verify_verb = {
	VERB_OF(struct options, verify_rows),
	VERB_ARGUMENTS(struct options, arguments, 1, 1),
	.arguments = "PATH",
	.too_few = "1 argument is needed, %d given",
	.doc = "Check a checkpoint on disk: the files' structure, that the index and the files agree, "
	       "and that the tensors are those of its model. What the tensors hold is compared with "
	       "--contents alone, and only of what `weft checkpoint make` wrote. PATH is a folder, a "
	       ".safetensors file or an index.",
	.run = verify,
};

const struct command checkpoint_commands[] = {
	{"checkpoint", "make", "write a real-size checkpoint with deterministic contents",
	 &make_verb},
	{"checkpoint", "show", "the tensors of a checkpoint on disk", &show_verb},
	{"checkpoint", "verify", "check a checkpoint's files and tensors", &verify_verb},
	{0},
};
