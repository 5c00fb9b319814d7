/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c -- the referee: every byte of an inference rank's parameters against a recomputation
 * from the checkpoint, by the layout alone; neither the plan nor the transport nor what
 * packs is trusted.
 */
#include "worker/referee/verify.h"

#include "base/memory.h"
#include "base/threads.h"
#include "model/checkpoint.h"
#include "model/content.h"
#include "worker/epoch/params.h"
#include "worker/referee/transform.h"
#include "worker/update/versions.h"

#include <stdatomic.h>
#include <string.h>

#define THREADS_MOST 4u
#define THREAD_BYTES (64u << 20)

struct referee {
	const struct verify_rank *rank;
	const struct checkpoint *checkpoint;
	uint64_t version;
	_Atomic uint64_t compared;
};

static int differ(const struct referee *referee, uint32_t param, uint64_t at, unsigned char here,
		  unsigned char expected, const char *source, struct error *error)
{
	return error_set(error, ERROR_CHECKSUM,
			 "version %llu: parameter %s, byte %llu is 0x%02x; "
			 "%s says 0x%02x",
			 (unsigned long long)referee->version,
			 referee->rank->layout->params[param].name, (unsigned long long)at, here,
			 source, expected);
}

static const unsigned char *memory_of(const struct referee *referee, uint32_t param)
{
	const struct verify_rank *rank = referee->rank;
	int copy = versions_copy(rank->versions, referee->version);

	return copy < 0 ? NULL : params_memory(rank->params, (uint32_t)copy, param);
}

/* The checkpoint's tensor of the piece or of its scales. */
static int read_version(void *context, const struct tensor_info *info, uint64_t offset,
			uint64_t bytes, void *out, struct error *error)
{
	const struct referee *referee = context;
	const struct checkpoint_tensor *tensor = checkpoint_find(referee->checkpoint, info->name);

	if (!tensor)
		return error_set(error, ERROR_FILE, "the checkpoint has no tensor %s", info->name);
	if (tensor->bytes != info->bytes || tensor->dtype != info->dtype)
		return error_set(error, ERROR_FILE,
				 "tensor %s has %llu bytes of %s in the "
				 "checkpoint, %llu of %s in the layout",
				 info->name, (unsigned long long)tensor->bytes,
				 dtype_name(tensor->dtype), (unsigned long long)info->bytes,
				 dtype_name(info->dtype));
	content_version(info->name, tensor->data, tensor->bytes, referee->version, offset, bytes,
			out);
	return 0;
}

/* Where the processor reads these bytes: in place, or in *copy of what lies on a GPU. 1: the version is gone. */
static int fetch(const struct referee *referee, uint32_t param, uint64_t offset, uint64_t bytes,
		 const unsigned char **here, unsigned char **copy, struct error *error)
{
	const unsigned char *memory = memory_of(referee, param);

	*copy = NULL;
	if (!memory)
		return 1;
	*here = memory + offset;
	if (!referee->rank->params->device)
		return 0;
	*copy = memory_alloc(bytes);
	if (!*copy)
		return memory_error(error, "comparing a parameter", bytes);
	*here = *copy;
	return params_read(referee->rank->params, *copy, memory + offset, bytes, error);
}

static int compare_bytes(void *context, const struct piece *piece, uint64_t offset,
			 const unsigned char *expected, uint64_t bytes, struct error *error)
{
	struct referee *referee = context;
	const char *name = referee->rank->layout->tensors[piece->tensor].name;
	const unsigned char *here;
	unsigned char *copy;
	uint64_t at = 0;
	int rc = fetch(referee, piece->param, offset, bytes, &here, &copy, error);

	if (!rc && memcmp(here, expected, bytes)) {
		while (here[at] == expected[at])
			at++;
		rc = differ(referee, piece->param, offset + at, here[at], expected[at], name,
			    error);
	}
	if (!rc)
		referee->compared += bytes;
	memory_free(copy);
	return rc;
}

static int compare_fill(struct referee *referee, const struct fill *fill, struct error *error)
{
	const unsigned char *here;
	unsigned char *copy;
	int rc = fetch(referee, fill->param, fill->offset, fill->bytes, &here, &copy, error);

	for (uint64_t at = 0; at < fill->bytes && !rc; at++)
		if (here[at])
			rc = differ(referee, fill->param, fill->offset + at, here[at], 0, "padding",
				    error);
	if (!rc)
		referee->compared += fill->bytes;
	memory_free(copy);
	return rc;
}

/* More only where they are worth their start: other ranks of this host compare too. */
static uint32_t verify_threads(const struct layout *layout)
{
	uint32_t threads = threads_here();
	uint64_t bytes = 0;

	for (size_t i = 0; i < layout->param_count; i++)
		bytes += layout->params[i].bytes;
	threads = threads < THREADS_MOST ? threads : THREADS_MOST;
	return bytes / THREAD_BYTES < threads ? (uint32_t)(bytes / THREAD_BYTES) + 1 : threads;
}

static int compare_all(struct referee *referee, struct error *error)
{
	const struct layout *layout = referee->rank->layout;
	struct referee_transform transform = {
		.context = referee, .read = read_version, .take = compare_bytes};
	int rc = referee_transform_layout(&transform, layout, verify_threads(layout), error);

	for (size_t i = 0; i < layout->fill_count && !rc; i++)
		rc = compare_fill(referee, &layout->fills[i], error);
	if (rc >= 0 && (rc || !versions_end(referee->rank->versions, referee->version)))
		rc = error_set(error, ERROR_STATE,
			       "version %llu was overwritten while it was "
			       "verified",
			       (unsigned long long)referee->version);
	return rc;
}

int verify_version(const struct verify_rank *rank, const struct checkpoint *checkpoint,
		   uint64_t version, uint64_t *bytes_compared, struct error *error)
{
	struct referee referee = {.rank = rank, .checkpoint = checkpoint, .version = version};
	int rc;

	if (versions_copy(rank->versions, version) < 0)
		return error_set(
			error, ERROR_STATE, "version %llu is not here; %llu is published%s",
			(unsigned long long)version,
			(unsigned long long)versions_published(rank->versions),
			atomic_load(&rank->versions->tainted) ? ", and a later update failed" : "");
	rc = compare_all(&referee, error);
	if (bytes_compared)
		*bytes_compared = referee.compared;
	return rc;
}
