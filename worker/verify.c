/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c -- the referee: every byte of an inference rank's parameters against a recomputation
 * from the checkpoint, by the layout alone; neither the plan nor the transport is trusted.
 */
#include "worker/worker.h"

#include "model/checkpoint.h"
#include "model/content.h"
#include "worker/contents.h"

#include <string.h>

#define BLOCK_BYTES (1u << 20)

struct referee {
	const struct weft_worker *worker;
	uint64_t version, compared;
	unsigned char *block; /* BLOCK_BYTES of expected bytes */
};

static int differ(const struct referee *referee, uint32_t param, uint64_t offset,
		  const unsigned char *here, const unsigned char *expected, const char *source,
		  struct error *error)
{
	uint64_t at = 0;

	while (here[at] == expected[at])
		at++;
	return error_set(error, ERROR_CHECKSUM,
			 "version %llu: parameter %s, byte %llu is 0x%02x; "
			 "%s says 0x%02x",
			 (unsigned long long)referee->version,
			 referee->worker->layout.params[param].name,
			 (unsigned long long)(offset + at), here[at], source, expected[at]);
}

static const unsigned char *memory_of(const struct referee *referee, uint32_t param)
{
	return weft_param_memory(referee->worker, param, referee->version);
}

/* One run of source bytes against the parameter's bytes from `offset` on. */
static int compare_run(struct referee *referee, const struct checkpoint_tensor *tensor,
		       uint64_t from, uint64_t bytes, uint32_t param, uint64_t offset,
		       struct error *error)
{
	const unsigned char *here = memory_of(referee, param);

	if (!here)
		return 1;
	for (uint64_t done = 0; done < bytes;) {
		uint64_t n = bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES;

		content_version(tensor->name, tensor->data, tensor->bytes, referee->version,
				from + done, n, referee->block);
		if (memcmp(here + offset + done, referee->block, n))
			return differ(referee, param, offset + done, here + offset + done,
				      referee->block, tensor->name, error);
		done += n;
	}
	referee->compared += bytes;
	return 0;
}

static int compare_piece(struct referee *referee, const struct checkpoint *checkpoint,
			 const struct piece *piece, struct error *error)
{
	const struct tensor_info *info = &referee->worker->layout.tensors[piece->tensor];
	const struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, info->name);
	struct runs runs;

	if (!tensor)
		return error_set(error, ERROR_FILE, "the checkpoint has no tensor %s", info->name);
	if (tensor->bytes != info->bytes || tensor->dtype != info->dtype)
		return error_set(error, ERROR_FILE,
				 "tensor %s has %llu bytes of %s in the "
				 "checkpoint, %llu of %s in the layout",
				 info->name, (unsigned long long)tensor->bytes,
				 dtype_name(tensor->dtype), (unsigned long long)info->bytes,
				 dtype_name(info->dtype));
	if (!box_runs(&piece->src, info->shape, dtype_bytes(info->dtype), &runs))
		return error_set(error, ERROR_UNSUPPORTED, "tensor %s: a box with two strides",
				 info->name);
	for (uint64_t row = 0; row < runs.rows; row++) {
		int rc = compare_run(referee, tensor, runs.offset + row * runs.stride_bytes,
				     runs.row_bytes, piece->param,
				     piece->offset + row * runs.row_bytes, error);

		if (rc)
			return rc;
	}
	return 0;
}

static int compare_fill(struct referee *referee, const struct fill *fill, struct error *error)
{
	const unsigned char *here = memory_of(referee, fill->param);

	if (!here)
		return 1;
	memset(referee->block, 0, BLOCK_BYTES);
	for (uint64_t done = 0; done < fill->bytes;) {
		uint64_t left = fill->bytes - done;
		uint64_t n = left < BLOCK_BYTES ? left : BLOCK_BYTES;

		if (memcmp(here + fill->offset + done, referee->block, n))
			return differ(referee, fill->param, fill->offset + done,
				      here + fill->offset + done, referee->block, "padding", error);
		done += n;
	}
	referee->compared += fill->bytes;
	return 0;
}

static int compare_all(struct referee *referee, const struct checkpoint *checkpoint,
		       struct error *error)
{
	const struct layout *layout = &referee->worker->layout;
	int rc = 0;

	for (size_t i = 0; i < layout->piece_count && !rc; i++)
		rc = compare_piece(referee, checkpoint, &layout->pieces[i], error);
	for (size_t i = 0; i < layout->fill_count && !rc; i++)
		rc = compare_fill(referee, &layout->fills[i], error);
	if (rc >= 0 && (rc || weft_read_end(referee->worker, referee->version)))
		rc = error_set(error, ERROR_STATE,
			       "version %llu was overwritten while it was "
			       "verified",
			       (unsigned long long)referee->version);
	return rc;
}

int weft_verify(const weft_worker *worker, const weft_checkpoint *checkpoint, uint64_t version,
		uint64_t *bytes_compared, weft_error *error)
{
	struct referee referee = {.worker = worker, .version = version};
	struct error inner;
	int rc;

	if (!worker || !checkpoint)
		return worker_result(
			error_set(&inner, ERROR_USAGE, "weft_verify: worker or checkpoint is NULL"),
			&inner, error);
	rc = worker_role(worker, ROLE_INFERENCE, "weft_verify", &inner);
	if (!rc && versions_copy(&worker->versions, version) < 0)
		rc = error_set(&inner, ERROR_STATE, "version %llu is not here; %llu is published%s",
			       (unsigned long long)version,
			       (unsigned long long)weft_published(worker),
			       weft_tainted(worker) ? ", and a later update failed" : "");
	if (rc)
		return worker_result(rc, &inner, error);
	referee.block = memory_alloc(BLOCK_BYTES);
	if (!referee.block)
		return worker_result(memory_error(&inner, "verifying", BLOCK_BYTES), &inner, error);
	rc = compare_all(&referee, checkpoint->inner, &inner);
	memory_free(referee.block);
	if (bytes_compared)
		*bytes_compared = referee.compared;
	return worker_result(rc, &inner, error);
}

int weft_param_digest(const weft_worker *worker, uint32_t id, uint64_t version, char digest[33])
{
	const void *memory;

	if (!worker || id >= worker->layout.param_count || !digest)
		return -WEFT_E_USAGE;
	memory = weft_param_memory(worker, id, version);
	if (!memory || !version)
		return WEFT_NONE;
	digest_text(digest_bytes(memory, worker->layout.params[id].bytes), digest);
	return weft_read_end(worker, version);
}
