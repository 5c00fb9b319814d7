/* SPDX-License-Identifier: Apache-2.0
 *
 * play.c -- what programs that play trainer, and referees, need: checkpoints, contents, verification.
 */
#include "base/text.h"
#include "base/truncated.h"
#include "model/checkpoint.h"
#include "model/checkpoint_names.h"
#include "model/content.h"
#include "worker/api/abi.h"
#include "worker/api/weft_play.h"
#include "worker/api/worker.h"
#include "worker/referee/verify.h"

#include <stdio.h>
#include <string.h>

/* A weft_checkpoint is the model's checkpoint, under the name that a host knows. */
static struct checkpoint *inside(const weft_checkpoint *checkpoint)
{
	return (struct checkpoint *)(uintptr_t)checkpoint;
}

int weft_checkpoint_open(weft_checkpoint **out, const char *path, weft_error *error)
{
	struct checkpoint *opened = NULL;
	struct error inner;
	int rc;

	if (out && path)
		rc = checkpoint_open(&opened, path, &inner);
	else
		rc = error_set(&inner, ERROR_USAGE,
			       "weft_checkpoint_open: checkpoint or path is NULL");
	if (out)
		*out = rc ? NULL : (weft_checkpoint *)opened;
	return worker_result(rc, &inner, error);
}

void weft_checkpoint_close(weft_checkpoint **where)
{
	struct checkpoint *checkpoint = where ? inside(*where) : NULL;

	if (!checkpoint)
		return;
	checkpoint_close(&checkpoint);
	*where = NULL;
}

const void *weft_checkpoint_tensor(const weft_checkpoint *checkpoint, const char *name,
				   uint64_t *bytes)
{
	const struct checkpoint_tensor *tensor =
		checkpoint && name ? checkpoint_find(inside(checkpoint), name) : NULL;

	if (!tensor)
		return NULL;
	if (bytes)
		*bytes = tensor->bytes;
	return tensor->data;
}

int weft_checkpoint_fits(const weft_checkpoint *checkpoint, const weft_worker *worker,
			 weft_error *error)
{
	const struct tensor_info *tensors;
	struct error inner;
	size_t count;
	int rc = 0;

	if (!checkpoint || !worker)
		return worker_result(
			error_set(&inner, ERROR_USAGE,
				  "weft_checkpoint_fits: checkpoint or worker is NULL"),
			&inner, error);
	if (worker->self.role == ROLE_TRAINER) {
		tensors = worker->holding.tensors;
		count = worker->holding.tensor_count;
	} else {
		tensors = worker->layout.tensors;
		count = worker->layout.tensor_count;
	}
	for (size_t i = 0; !rc && i < count; i++)
		rc = checkpoint_has(inside(checkpoint), tensors[i].name, tensors[i].dtype,
				    tensors[i].dims, tensors[i].shape,
				    worker->model ? worker->model : "this worker", &inner);
	return worker_result(rc, &inner, error);
}

int weft_checkpoint_left_alone(const weft_checkpoint *checkpoint, const char *name, const char *as,
			       char *text, size_t size, weft_error *error)
{
	struct text left = {0};
	struct model *model = NULL;
	struct error inner;
	int rc, length = 0;

	if (checkpoint && name && text && size)
		rc = model_open_as(&model, name, as, &inner);
	else
		rc = error_set(&inner, ERROR_USAGE,
			       "weft_checkpoint_left_alone: checkpoint, model or text is NULL, or "
			       "the text of 0 bytes");
	if (!rc)
		rc = checkpoint_left_alone(inside(checkpoint), model, &left, &inner);
	if (!rc)
		length = snprintf(text, size, "%s", text_string(&left));
	text_fini(&left);
	model_close(&model);
	rc = worker_result(rc, &inner, error);
	return rc ? rc : length;
}

void weft_content_version(const char *name, const void *tensor, uint64_t tensor_bytes,
			  uint64_t version, uint64_t offset, uint64_t bytes, void *out)
{
	content_version(name, tensor, tensor_bytes, version, offset, bytes, out);
}

void weft_content_change_one_in(uint32_t values)
{
	content_change_one_in(values ? values : 1);
}

/* A box on its way into a local parameter. */
struct holding_content {
	const char *name;
	const void *tensor;
	uint64_t tensor_bytes, version;
	uint32_t element_bytes;
	unsigned char *local;
};

#define CONTENT_BYTES 4096u /* of elements that lie apart, in one go */

static void content_run(void *context, uint64_t at, uint64_t place, uint64_t elements,
			uint64_t stride)
{
	const struct holding_content *c = context;
	unsigned char here[CONTENT_BYTES];
	uint64_t each = c->element_bytes, n;

	if (stride == 1)
		content_version(c->name, c->tensor, c->tensor_bytes, c->version, at * each,
				elements * each, c->local + place * each);
	for (uint64_t done = 0; stride != 1 && done < elements; done += n) {
		n = elements - done < CONTENT_BYTES / each ? elements - done : CONTENT_BYTES / each;
		content_version(c->name, c->tensor, c->tensor_bytes, c->version, (at + done) * each,
				n * each, here);
		for (uint64_t i = 0; i < n; i++)
			memcpy(c->local + (place + (done + i) * stride) * each, here + i * each,
			       each);
	}
}

void weft_content_holding(const weft_holding_view *view, const void *tensor, uint64_t tensor_bytes,
			  uint64_t version, void *local)
{
	struct holding_content content = {.name = view->name,
					  .tensor = tensor,
					  .tensor_bytes = tensor_bytes,
					  .version = version,
					  .element_bytes =
						  dtype_bytes(dtype_from_name(view->dtype)),
					  .local = local};
	struct placement place = {.offset = view->offset};
	struct box box = {.dims = view->dims};

	if (!content.element_bytes || !box.dims || box.dims > BOX_DIMS_MAX)
		return; /* weft_holding_at filled no such view */
	memcpy(place.stride, view->stride, sizeof(place.stride));
	memcpy(box.lo, view->lo, sizeof(box.lo));
	memcpy(box.hi, view->hi, sizeof(box.hi));
	placement_each(&place, &box, view->shape, content_run, &content);
}

int weft_verify(const weft_worker *worker, const weft_checkpoint *checkpoint, uint64_t version,
		uint64_t *bytes_compared, weft_error *error)
{
	struct verify_rank rank;
	struct error inner;
	int rc;

	if (!worker || !checkpoint)
		rc = error_set(&inner, ERROR_USAGE, "weft_verify: worker or checkpoint is NULL");
	else
		rc = worker_role(worker, ROLE_INFERENCE, "weft_verify", &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	/* no worker is ever in read-only memory; see versions_end for the write that is none */
	rank = (struct verify_rank){&worker->layout, &worker->params,
				    (struct versions *)(uintptr_t)&worker->versions};
	rc = verify_version(&rank, inside(checkpoint), version, bytes_compared, &inner);
	return worker_result(rc, &inner, error);
}

static int allocate(int32_t device, uint64_t bytes, weft_memory *memory, struct error *error)
{
	const struct device named = {.number = device};
	uint64_t address = 0;
	void *host;
	int rc;

	if (device >= 0) {
		rc = device_allocate(&named, bytes, &address, error);
		*memory = weft_cuda_memory(device, (void *)(uintptr_t)address, bytes, NULL);
		return rc;
	}
	host = memory_aligned(4096, bytes);
	if (host)
		memset(host, 0, bytes);
	*memory = weft_host_memory(host, bytes);
	return host ? 0 : memory_error(error, "weft_play_allocate", bytes);
}

int weft_play_allocate(int32_t device, uint64_t bytes, weft_memory *memory, weft_error *error)
{
	weft_memory ours = WEFT_MEMORY_INIT;
	struct error inner;
	int rc = abi_check_out(ABI_MEMORY, "weft_play_allocate", memory, &inner);

	if (!rc) {
		rc = allocate(device, bytes, &ours, &inner);
		if (rc)
			ours = (weft_memory)WEFT_MEMORY_INIT;
		abi_give(ABI_MEMORY, &ours, memory);
	}
	return worker_result(rc, &inner, error);
}

void weft_play_free(weft_memory *memory)
{
	const struct device named = {.number = memory ? memory->device : -1};

	if (!memory || !memory->pointer)
		return;
	if (memory->kind == WEFT_MEMORY_CUDA)
		device_release(&named, (uint64_t)(uintptr_t)memory->pointer);
	else
		memory_free(memory->pointer);
	memory->pointer = NULL;
}

int weft_play_copy(int32_t device, void *to, const void *from, uint64_t bytes, weft_error *error)
{
	const struct device named = {.number = device};
	struct error inner;
	int rc = 0;

	if (device >= 0)
		rc = device_copy(&named, (uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes,
				 &inner);
	else
		memcpy(to, from, bytes);
	return worker_result(rc, &inner, error);
}

void weft_catch_truncated_files(const char *program)
{
	truncated_catch(program);
}
