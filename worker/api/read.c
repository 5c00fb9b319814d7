/* SPDX-License-Identifier: Apache-2.0
 *
 * read.c -- readers of a published version, from any thread.
 */
#include "worker/api/worker.h"

const void *weft_param_memory(const weft_worker *worker, uint32_t id, uint64_t version)
{
	const struct params *params;
	int copy;

	if (!worker)
		return NULL;
	params = &worker->params;
	copy = versions_copy(&worker->versions, version);
	if (!params->memory || id >= params->count)
		return NULL;
	if (!version && params->copies == 1)
		copy = 0;
	return copy < 0 ? NULL : params_memory(params, (uint32_t)copy, id);
}

int weft_read_begin(const weft_worker *worker, uint64_t *version)
{
	if (!worker || !version)
		return -WEFT_E_USAGE;
	/* looking is the only thing that is written */
	return versions_begin((struct versions *)(uintptr_t)&worker->versions, version) ? 0
											: WEFT_NONE;
}

int weft_read_end(const weft_worker *worker, uint64_t version)
{
	if (!worker)
		return -WEFT_E_USAGE;
	/* no worker is ever in read-only memory; see versions_end for the write that is none */
	return versions_end((struct versions *)(uintptr_t)&worker->versions, version) ? 0
										      : WEFT_TORN;
}

static int digest_of(const weft_worker *worker, const void *memory, uint64_t bytes, char digest[33])
{
	void *copy = NULL;
	int rc = 0;

	if (worker->device) {
		copy = memory_alloc(bytes);
		rc = copy ? params_read(&worker->params, copy, memory, bytes, NULL) : -1;
		memory = copy;
	}
	if (!rc)
		digest_text(digest_bytes(memory, bytes), digest);
	memory_free(copy);
	return rc;
}

int weft_param_digest(const weft_worker *worker, uint32_t id, uint64_t version, char digest[33])
{
	const void *memory;

	if (!worker || id >= worker->layout.param_count || !digest)
		return -WEFT_E_USAGE;
	memory = weft_param_memory(worker, id, version);
	if (!memory || !version)
		return WEFT_NONE;
	if (digest_of(worker, memory, worker->layout.params[id].bytes, digest))
		return -WEFT_E_MEMORY;
	return weft_read_end(worker, version);
}
