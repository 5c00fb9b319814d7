/* SPDX-License-Identifier: Apache-2.0
 *
 * params.c -- the memory of an inference rank's parameters: regions from weft's allocator, or
 * the host's memory registered as it is.
 */
#include "worker/api/worker.h"

#include "worker/epoch/place.h"

#include <string.h>

/* One region more, at the end of inference.regions. */
static struct transport_region **next_region(struct inference *inference)
{
	return &inference->regions[inference->region_count];
}

static int allocate_copy(struct weft_worker *worker, uint32_t copy, struct error *error)
{
	struct inference *inference = &worker->inference;
	size_t params = worker->layout.param_count;
	struct param_place *places = inference->places + copy * params;
	uint32_t first = (uint32_t)inference->region_count, count = 0;
	uint64_t *bytes = NULL;
	int rc = place_params(&worker->layout, PLACE_REGION_BYTES, first, places, &bytes, &count,
			      error);

	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = transport_region_allocate(worker->domain, bytes[i], next_region(inference),
					       error);
		if (!rc)
			inference->region_count++;
	}
	memory_free(bytes);
	if (rc)
		return error_wrap(error, "memory for %zu parameters (copy %u)", params, copy);
	for (size_t i = 0; i < params; i++) {
		struct transport_region *region = inference->regions[places[i].region];

		inference->memory[copy * params + i] =
			(unsigned char *)transport_region_memory(region) + places[i].offset;
	}
	return 0;
}

static int register_params(struct weft_worker *worker, struct error *error)
{
	struct inference *inference = &worker->inference;

	for (size_t i = 0; i < worker->layout.param_count; i++) {
		const struct param_info *param = &worker->layout.params[i];
		int rc;

		/* shorter than the parameters when the host went on after an allocation failed */
		if (i >= worker->host_capacity || !worker->host_memory[i])
			return error_set(error, ERROR_USAGE,
					 "parameter %s has no memory; with "
					 "own_memory every parameter needs weft_param.memory or "
					 "weft_param_bind",
					 param->name);
		rc = transport_region_register(worker->domain, worker->host_memory[i], param->bytes,
					       next_region(inference), error);
		if (rc)
			return error_wrap(error, "parameter %s", param->name);
		inference->places[i] =
			(struct param_place){.region = (uint32_t)inference->region_count++};
		inference->memory[i] = worker->host_memory[i];
	}
	return 0;
}

/* Allocated memory is zero already. */
static void zero_fills(struct weft_worker *worker)
{
	for (size_t i = 0; i < worker->layout.fill_count; i++) {
		const struct fill *fill = &worker->layout.fills[i];

		memset(worker->inference.memory[fill->param] + fill->offset, 0, fill->bytes);
	}
}

int params_open(struct weft_worker *worker, struct error *error)
{
	struct inference *inference = &worker->inference;
	size_t params = worker->layout.param_count;
	size_t places;
	int rc = 0;

	inference->copies = worker->shadow ? 2 : 1;
	places = inference->copies * params;
	/* one region a parameter at most, and one for checksums */
	if (worker->own_memory && params + 1 > LIMIT_REGIONS)
		return error_set(error, ERROR_LIMIT,
				 "%zu parameters in host memory; at most %d: "
				 "let weft allocate them",
				 params, LIMIT_REGIONS - 1);
	inference->places = memory_zalloc(places, sizeof(*inference->places));
	inference->memory = memory_zalloc(places, sizeof(*inference->memory));
	inference->regions = memory_zalloc(places + 1, sizeof(*inference->regions));
	if (!inference->places || !inference->memory || !inference->regions)
		return memory_error(error, "placing parameters",
				    places * sizeof(*inference->places));
	if (worker->own_memory) {
		rc = register_params(worker, error);
		if (!rc)
			zero_fills(worker);
		return rc;
	}
	for (uint32_t copy = 0; copy < inference->copies && !rc; copy++)
		rc = allocate_copy(worker, copy, error);
	if (!rc && inference->region_count + 1 > LIMIT_REGIONS)
		rc = error_set(error, ERROR_LIMIT, "%zu regions of memory; at most %d",
			       inference->region_count, LIMIT_REGIONS - 1);
	return rc;
}

int params_open_sums(struct weft_worker *worker, struct error *error)
{
	struct inference *inference = &worker->inference;
	int rc;

	if (inference->sums_region) {
		/* a new attempt at joining: the plan may have other numbers of pieces */
		transport_region_close(&inference->sums_region);
		inference->regions[--inference->region_count] = NULL;
		inference->sums = NULL;
	}
	rc = peers_open_sums(worker, &inference->sums_region, error);
	if (rc || !inference->sums_region)
		return rc;
	*next_region(inference) = inference->sums_region;
	inference->region_count++;
	inference->sums = transport_region_memory(inference->sums_region);
	return 0;
}

void params_close(struct weft_worker *worker)
{
	struct inference *inference = &worker->inference;

	for (size_t i = 0; i < inference->region_count; i++)
		transport_region_close(&inference->regions[i]);
	memory_free(inference->regions);
	memory_free(inference->places);
	memory_free(inference->memory);
	memset(inference, 0, sizeof(*inference));
}
