/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text becomes a model whose ranks are laid out, byte for byte of their parameters, or an error.
 * What such a model is written as reads back to the same layouts, and to the same text.
 */
#include "model/layout_file.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RANKS_MAX 8 /* of a file that is written again */

static void must(bool condition)
{
	if (!condition)
		abort();
}

/* The sum of a layout's pieces and fills is its parameters'. */
static void check_layout(const struct model *model, const struct layout *layout)
{
	uint64_t parameters = 0, bytes = 0;

	for (size_t p = 0; p < layout->param_count; p++)
		parameters += layout->params[p].bytes;
	for (size_t i = 0; i < layout->piece_count; i++) {
		const struct piece *piece = &layout->pieces[i];
		const char *name = layout->tensors[piece->tensor].name;

		must(piece->param < layout->param_count);
		must(model_find(model, name) >= 0 &&
		     (size_t)model_find(model, name) < model->tensor_count);
		bytes += piece->bytes;
	}
	for (size_t i = 0; i < layout->fill_count; i++)
		bytes += layout->fills[i].bytes;
	must(bytes == parameters && layout->param_count > 0);
}

static char *text_of(const struct model *model, size_t *bytes)
{
	char *text = NULL;
	FILE *stream = open_memstream(&text, bytes);

	must(stream && layout_file_write(model, &model->file->infer, stream, NULL) == 0);
	must(fclose(stream) == 0);
	return text;
}

static void check_again(const struct model *model)
{
	size_t bytes, second_bytes;
	char *text = text_of(model, &bytes), *second;
	const struct infer_spec *infer = &model->file->infer;
	struct model *again;

	must(layout_file_parse(&again, text, bytes, "again", NULL) == 0);
	for (uint32_t rank = 0; rank < infer->tp; rank++) {
		struct layout a, b;

		must(model_layout(model, infer, rank, &a, NULL) == 0);
		must(model_layout(again, infer, rank, &b, NULL) == 0);
		must(digest_equal(layout_digest(&a), layout_digest(&b)));
		layout_fini(&a);
		layout_fini(&b);
	}
	second = text_of(again, &second_bytes);
	must(bytes == second_bytes && memcmp(text, second, bytes) == 0);
	model_close(&again);
	free(second);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	struct model *model;
	bool all = true;
	int rc = layout_file_parse(&model, (const char *)data, size, "fuzz", &error);

	if (rc) {
		must(!model && rc < 0 && error.text[0]);
		return 0;
	}
	must(model->tensor_count > 0 && model->tensor_count <= model->all_count);
	for (uint32_t rank = 0; rank < model->file->infer.tp && rank < RANKS_MAX; rank++) {
		struct layout layout;

		/* a rank between two that are good may be wrong, or have nothing */
		if (model_layout(model, &model->file->infer, rank, &layout, &error) == 0)
			check_layout(model, &layout);
		else
			all = false;
		layout_fini(&layout);
	}
	if (all && model->file->infer.tp <= RANKS_MAX)
		check_again(model);
	model_close(&model);
	return 0;
}
