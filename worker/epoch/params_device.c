/* SPDX-License-Identifier: Apache-2.0
 *
 * params_device.c -- parameters in memory of a GPU: regions of it, spare memory that a version lands in, and how it gets
 * from there to where it is read.
 */
#include "worker/epoch/params.h"

#include "base/log.h"
#include "base/memory.h"

#include <string.h>

static uint64_t address_of(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

static int open_block(struct params *params, struct transport_domain *domain, uint64_t bytes,
		      struct error *error)
{
	size_t r = params->region_count;
	int rc = device_allocate(params->device, bytes, &params->blocks[r], error);

	if (rc)
		return rc;
	params->starts[r] = (unsigned char *)(uintptr_t)params->blocks[r];
	if (params->written)
		rc = transport_region_register(domain, params->starts[r], bytes,
					       &params->regions[r], error);
	if (!rc)
		return 0;
	device_release(params->device, params->blocks[r]);
	params->blocks[r] = 0;
	return rc;
}

/* What lands there goes on to the GPU, which reads pinned memory alone at its full speed. */
static int open_landing(struct params *params, struct transport_domain *domain, uint64_t bytes,
			struct error *error)
{
	size_t r = params->region_count;
	int rc = transport_region_allocate(domain, bytes, &params->regions[r], error);

	if (rc)
		return rc;
	params->starts[r] = transport_region_memory(params->regions[r]);
	if (params->landing != LANDING_HOST)
		return 0;
	rc = device_pin(params->device, params->starts[r],
			transport_region_bytes(params->regions[r]), error);
	params->pinned[r] = !rc;
	if (rc)
		transport_region_close(&params->regions[r]);
	return rc;
}

int params_region(struct params *params, struct transport_domain *domain, uint64_t bytes,
		  struct error *error)
{
	int rc = params_on_device(params) ? open_block(params, domain, bytes, error)
					  : open_landing(params, domain, bytes, error);

	if (!rc)
		params->sizes[params->region_count++] = bytes;
	return rc;
}

int params_pin_given(struct params *params, const struct layout *layout,
		     const struct params_options *options, struct error *error)
{
	params->given = pool_array(&params->pool, params->count, sizeof(*params->given));
	params->on_host = pool_array(&params->pool, params->count, sizeof(*params->on_host));
	if (!pool_ok(&params->pool))
		return memory_error(error, "placing parameters",
				    params->count * sizeof(*params->given));
	for (size_t i = 0; i < params->count; i++) {
		const struct tensor_info *param = &layout->params[i];

		params->on_host[i] = !device_has(options->host[i]);
		if (params->on_host[i] && device_pin_pages(params->device, options->host[i],
							   param->bytes, &params->given[i], error))
			return error_wrap(error,
					  "parameter %s, in memory of the host (give it whole "
					  "pages, or pin it: torch's pin_memory())",
					  param->name);
	}
	return 0;
}

/* ---- staged ---- */

static int open_own(struct params *params, const struct layout *layout, struct error *error)
{
	for (size_t r = 0; r < params->region_count; r++) {
		int rc = device_allocate(params->device, params->sizes[r], &params->live[r], error);

		if (rc)
			return error_wrap(error,
					  "parameters beside the memory that versions land in "
					  "(--stage)");
	}
	for (size_t i = 0; i < layout->param_count; i++)
		params->memory[i] =
			(unsigned char *)(uintptr_t)(params->live[params->places[i].region] +
						     params->places[i].offset);
	return 0;
}

/* A run of bytes of region `place.region`. */
static int init_part(struct pack_cuda_part *part, const struct params *params, size_t param,
		     uint64_t bytes, struct error *error)
{
	const struct param_place *place = &params->places[param];
	struct pack_source source = {.from = DTYPE_U8, .to = DTYPE_U8, .dims = 1};
	struct pack pack;
	int rc;

	source.shape[0] = source.held_hi = params->sizes[place->region];
	source.src.dims = 1;
	source.src.lo[0] = place->offset;
	source.src.hi[0] = place->offset + bytes;
	rc = pack_init(&pack, &source, error);
	if (!rc)
		pack_cuda_part_init(part, &pack, place->region, PACK_CUDA_NO_TENSOR, 0, bytes,
				    address_of(params->memory[param]));
	return rc;
}

static int open_bases(struct params *params, struct error *error)
{
	uint64_t bytes = params->region_count * sizeof(uint64_t);
	uint64_t *bases = pool_array(&params->pool, params->region_count, sizeof(*bases));
	int rc;

	if (!bases)
		return memory_error(error, "placing parameters", bytes);
	for (size_t r = 0; r < params->region_count; r++)
		bases[r] = address_of(params->starts[r]);
	rc = device_allocate(params->device, bytes, &params->bases, error);
	return rc ? rc
		  : device_copy(params->device, params->bases, address_of(bases), bytes, error);
}

static int open_given(struct params *params, const struct layout *layout, void *const *host,
		      struct error *error)
{
	struct pack_cuda_part *parts = pool_array(&params->pool, params->count, sizeof(*parts));
	int rc = parts ? 0
		       : memory_error(error, "placing parameters", params->count * sizeof(*parts));

	for (size_t i = 0; i < params->count && !rc; i++) {
		params->memory[i] = host[i];
		rc = init_part(&parts[i], params, i, layout->params[i].bytes, error);
	}
	if (!rc)
		rc = device_table_open(&params->commit, params->device, parts, params->count,
				       error);
	return rc ? rc : open_bases(params, error);
}

int params_open_live(struct params *params, const struct layout *layout,
		     const struct params_options *options, struct error *error)
{
	params->memory = pool_array(&params->pool, params->count, sizeof(*params->memory));
	params->live = pool_array(&params->pool, params->region_count, sizeof(*params->live));
	if (!pool_ok(&params->pool))
		return memory_error(error, "placing parameters",
				    params->count * sizeof(*params->memory));
	return options->host ? open_given(params, layout, options->host, error)
			     : open_own(params, layout, error);
}

int params_commit(struct params *params, uint64_t until_ns, struct error *error)
{
	int rc = 0;

	if (params->commit.count)
		rc = device_table_launch(&params->commit, params->device, 0, params->commit.count,
					 params->bases, 0, error);
	for (size_t r = 0; r < params->region_count && !params->commit.count && !rc; r++)
		rc = device_queue_copy(params->device, DEVICE_KERNELS, params->live[r],
				       address_of(params->starts[r]), params->sizes[r], error);
	return rc ? rc : device_settle(params->device, until_ns, error);
}

/* ---- for all ---- */

int params_zero(const struct params *params, unsigned char *at, uint64_t bytes, struct error *error)
{
	if (params->device && params->landing != LANDING_HOST && device_has(at))
		return device_zero(params->device, address_of(at), bytes, error);
	memset(at, 0, bytes);
	return 0;
}

int params_read(const struct params *params, void *to, const unsigned char *from, uint64_t bytes,
		struct error *error)
{
	if (params->device)
		return device_copy(params->device, address_of(to), address_of(from), bytes, error);
	memcpy(to, from, bytes);
	return 0;
}

/* A driver leaves undefined what comes of freeing what another process has open. */
static void release_block(struct params *params, size_t r)
{
	struct error error;

	if (!transport_memory_check((void *)(uintptr_t)params->blocks[r], params->sizes[r],
				    &error)) {
		transport_region_close(&params->regions[r]);
		device_release(params->device, params->blocks[r]);
		return;
	}
	log_warn_of(error.code, "%s; its memory on %s stays allocated until this process ends",
		    error.text, device_text(params->device));
}

bool params_close_device(struct params *params)
{
	if (!device_closes(params->device))
		return false;
	for (size_t i = 0; params->given && i < params->count; i++)
		if (params->given[i])
			device_unpin(params->device, params->given[i]);
	device_table_close(&params->commit, params->device);
	device_release(params->device, params->bases);
	for (size_t r = 0; r < params->region_count; r++) {
		if (params->pinned[r])
			device_unpin(params->device, params->starts[r]);
		if (params->blocks[r])
			release_block(params, r);
		if (params->live)
			device_release(params->device, params->live[r]);
	}
	return true;
}
