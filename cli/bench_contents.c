/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_contents.h"

#include "base/array.h"
#include "job/layout.h"
#include "base/memory.h"
#include "base/threads.h"
#include "worker/api/weft_play.h"
#include "model/content.h"
#include "model/model.h"
#include "worker/referee/transform.h"

#include <string.h>

#define PART_BYTES (16u << 20)

static uint32_t threads_of(uint32_t processes)
{
	uint32_t each = threads_here() / processes;

	return each ? each : 1;
}

/* ---- contents ---- */

/* A run of bytes of one tensor. */
struct part {
	const char *name;
	enum dtype dtype;
	uint64_t offset, bytes;
	unsigned char *out;
	struct box box; /* dims 0: the bytes are one run of the tensor's */
	struct placement place;
	uint64_t shape[BOX_DIMS_MAX], seed;
};

struct filling {
	ARRAY(struct part) parts;
	_Atomic size_t next;
	uint64_t seed;
	struct bench_work *work;
};

/* A box that is no one run, in its memory. */
static void fill_run(void *context, uint64_t at, uint64_t place, uint64_t elements, uint64_t stride)
{
	const struct part *part = context;
	uint64_t each = dtype_bytes(part->dtype);

	for (uint64_t i = 0; i < elements; i += stride == 1 ? elements : 1) {
		uint64_t n = stride == 1 ? elements : 1;

		content_make(part->name, part->dtype, part->seed, (at + i) * each, n * each,
			     part->out + (place + i * stride) * each);
	}
}

static void fill_parts(void *context)
{
	struct filling *filling = context;

	for (size_t i; (i = atomic_fetch_add(&filling->next, 1)) < filling->parts.count;) {
		const struct part *part = &filling->parts.items[i];

		if (part->box.dims) {
			struct part box = *part;

			box.seed = filling->seed;
			placement_each(&part->place, &part->box, part->shape, fill_run, &box);
		} else {
			content_make(part->name, part->dtype, filling->seed, part->offset,
				     part->bytes, part->out);
		}
		atomic_fetch_add(&filling->work->done, part->bytes);
	}
}

static int add_part(struct filling *filling, const struct part *part)
{
	if (!array_add(&filling->parts, *part))
		return -WEFT_E_MEMORY;
	atomic_fetch_add(&filling->work->total, part->bytes);
	return 0;
}

static int add_parts(struct filling *filling, const weft_holding_view *view, unsigned char *out)
{
	struct part part = {.name = view->name, .dtype = dtype_from_name(view->dtype), .out = out};
	uint64_t each = dtype_bytes(part.dtype), bytes;
	struct placement place = {.offset = view->offset};
	struct box box = {.dims = view->dims};
	struct runs tensor, memory;

	memcpy(box.lo, view->lo, sizeof(box.lo));
	memcpy(box.hi, view->hi, sizeof(box.hi));
	memcpy(place.stride, view->stride, sizeof(place.stride));
	bytes = box_elements(&box) * each;
	if (!box_runs(&box, view->shape, (uint32_t)each, &tensor) || tensor.rows > 1 ||
	    !placement_runs(&place, &box, &box, (uint32_t)each, &memory) || memory.rows > 1) {
		part.bytes = bytes;
		part.box = box;
		part.place = place;
		memcpy(part.shape, view->shape, sizeof(part.shape));
		return add_part(filling, &part);
	}
	for (uint64_t at = 0; at < bytes; at += PART_BYTES) {
		part.offset = tensor.offset + at;
		part.bytes = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
		part.out = out + memory.offset + at;
		if (add_part(filling, &part))
			return -WEFT_E_MEMORY;
	}
	return 0;
}

int bench_fill(struct bench_shared *shared, const struct bench_options *options,
	       enum bench_stage stage, const weft_worker *worker, void *const *data, uint64_t seed,
	       weft_error *error)
{
	struct filling filling = {.seed = seed, .work = &shared->work[stage]};
	weft_holding_view view = WEFT_HOLDING_VIEW_INIT;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && weft_holding_at(worker, i, &view, NULL) == 0; i++)
		if (data[view.local])
			rc = add_parts(&filling, &view, data[view.local]);
	if (rc == 0)
		threads_run(threads_of(options->train.world), fill_parts, &filling);
	else
		*error = (weft_error){.size = sizeof(*error),
				      .code = WEFT_E_MEMORY,
				      .text = "no memory for a list of tensors"};
	array_free(&filling.parts);
	return rc;
}

/* ---- comparison ---- */

/* What the comparison of one rank knows. */
struct expected {
	const weft_worker *worker;
	const struct layout *layout;
	uint64_t version, seed;
	struct bench_work *work;
};

static int read_made(void *context, const struct tensor_info *tensor, uint64_t offset,
		     uint64_t bytes, void *out, struct error *error)
{
	const struct expected *expected = context;

	content_make(tensor->name, tensor->dtype, expected->seed, offset, bytes, out);
	return 0;
}

/* 1: they differ. */
static int compare(const weft_worker *worker, const unsigned char *here, const unsigned char *bytes,
		   uint64_t count, struct error *error)
{
	int32_t device = weft_device(worker);
	weft_error why = WEFT_ERROR_INIT;
	unsigned char *copy;
	int rc;

	if (device < 0)
		return memcmp(here, bytes, count) != 0;
	copy = memory_alloc(count);
	if (!copy)
		return memory_error(error, "comparing a parameter", count);
	if (weft_play_copy(device, copy, here, count, &why))
		rc = error_set(error, (enum error_code)why.code, "%s", why.text);
	else
		rc = memcmp(copy, bytes, count) != 0;
	memory_free(copy);
	return rc;
}

static int compare_transformed(void *context, const struct piece *piece, uint64_t offset,
			       const unsigned char *bytes, uint64_t count, struct error *error)
{
	struct expected *expected = context;
	const unsigned char *here =
		weft_param_memory(expected->worker, piece->param, expected->version);
	int differs = compare(expected->worker, here + offset, bytes, count, error);

	if (differs < 0)
		return differs;
	if (differs)
		return error_set(error, ERROR_CHECKSUM,
				 "parameter %s differs from tensor %s in bytes %llu..%llu",
				 expected->layout->params[piece->param].name,
				 expected->layout->tensors[piece->tensor].name,
				 (unsigned long long)offset, (unsigned long long)(offset + count));
	atomic_fetch_add(&expected->work->done, count);
	return 0;
}

int bench_compare(struct bench_shared *shared, const struct bench_options *options,
		  const weft_worker *worker, uint32_t rank, uint64_t version, uint64_t seed,
		  struct error *error)
{
	struct model *model = NULL;
	struct layout layout;
	struct expected expected = {.worker = worker,
				    .layout = &layout,
				    .version = version,
				    .seed = seed,
				    .work = &shared->work[BENCH_COMPARING]};
	struct referee_transform transform = {
		.context = &expected, .read = read_made, .take = compare_transformed};
	int rc;

	layout_init(&layout);
	rc = model_open_as(&model, options->model, options->as, error);
	if (rc == 0)
		rc = model_layout(model, &options->infer, rank % options->infer.tp, &layout, error);
	for (size_t i = 0; rc == 0 && i < layout.piece_count; i++)
		atomic_fetch_add(&expected.work->total, layout.pieces[i].bytes);
	if (rc == 0)
		rc = referee_transform_layout(&transform, &layout,
					      threads_of(infer_ranks(&options->infer)), error);
	layout_fini(&layout);
	model_close(&model);
	return rc;
}
