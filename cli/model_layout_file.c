/* SPDX-License-Identifier: Apache-2.0
 *
 * model_layout_file.c -- weft model layout --output: the layout file of a model; and --from alone:
 * is one good?
 */
#include "cli/model_verbs.h"
#include "cli/shown.h"

#include "base/file.h"
#include "job/digest.h"
#include "model/layout_file.h"
#include "model/model.h"
#include <inttypes.h>
#include <stdio.h>

int model_layout_output(const struct model *model, const struct infer_spec *infer, const char *path,
			struct error *error)
{
	struct file_writer writer;
	int rc = file_writer_open(&writer, path, error);

	if (rc)
		return rc;
	rc = layout_file_write(model, infer, writer.stream, error);
	if (rc == 0)
		rc = file_writer_commit(&writer, error);
	file_writer_abort(&writer);
	/* what was written to may be standard output itself */
	if (rc == 0)
		fprintf(stderr, "%s: %s, %zu tensors, the parameters of %u engine rank%s\n",
			shown(path), shown(model->name), model->tensor_count, infer->tp,
			infer->tp == 1 ? "" : "s");
	return rc;
}

static int show_rank(const struct model *model, const struct infer_spec *infer, uint32_t rank,
		     struct error *error)
{
	char digest[DIGEST_TEXT_BYTES];
	struct layout layout;
	uint64_t bytes = 0;
	int rc = model_layout(model, infer, rank, &layout, error);

	if (rc)
		return rc;
	for (size_t p = 0; p < layout.param_count; p++)
		bytes += layout.params[p].bytes;
	printf("  engine rank %u: %zu parameter%s, %s bytes; %zu piece%s, %zu fill%s; %s\n", rank,
	       layout.param_count, layout.param_count == 1 ? "" : "s", GROUPED_TEXT(bytes),
	       layout.piece_count, layout.piece_count == 1 ? "" : "s", layout.fill_count,
	       layout.fill_count == 1 ? "" : "s", digest_text(layout_digest(&layout), digest));
	layout_fini(&layout);
	return 0;
}

/* Tensors that no rank takes anything of: trainers hold them, and nobody is sent them. */
static size_t count_unused(const struct model *model, bool *used)
{
	const struct layout_file *file = model->file;
	size_t unused = 0;

	array_each(item, &file->items) {
		if (item->tensor == LAYOUT_FILL)
			continue;
		used[item->tensor] = true;
		if (item->transform.from_rows)
			used[item->scales] = true;
	}
	for (size_t t = 0; t < model->tensor_count; t++)
		unused += !used[t];
	return unused;
}

int model_layout_check(const struct model *model, const struct infer_spec *infer, const char *path,
		       struct error *error)
{
	bool *used = memory_zalloc(model->tensor_count, sizeof(*used));
	char text[PARALLEL_TEXT_BYTES];
	size_t unused;
	int rc = 0;

	if (!used)
		return memory_error(error, "checking a layout file", model->tensor_count);
	unused = count_unused(model, used);
	memory_free(used);
	printf("%s: %zu tensors, %s parameters, %s bytes", shown(model->name), model->tensor_count,
	       GROUPED_TEXT(model->parameters), GROUPED_TEXT(model->bytes));
	if (unused)
		printf("; %zu of them in no parameter", unused);
	if (model->all_count > model->tensor_count)
		printf("; %zu more left alone", model->all_count - model->tensor_count);
	putchar('\n');
	for (uint32_t rank = 0; rank < infer->tp && rc == 0; rank++)
		rc = show_rank(model, infer, rank, error);
	if (rc == 0)
		printf("%s: good, for --infer %s (any number of engines)\n", shown(path),
		       infer_spec_text(infer, text));
	return rc;
}
