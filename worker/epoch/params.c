/* SPDX-License-Identifier: Apache-2.0
 *
 * params.c -- parameters lie in a few large regions instead of one region each, because every region costs
 * a file descriptor, a mapping in each trainer and a record in each endpoint message.
 *
 *   region 0  |param 0 ....|param 1|param 2 ......|      param 0, 2: 4096-aligned (large)
 *   region 1  |param 3 ...........................|      param 1: 64-aligned (small)
 */
#include "worker/epoch/params.h"

#include "base/memory.h"

#define REGION_BYTES (2ull << 30)	 /* a region ends at the first parameter past this */
#define LARGE_BYTES  16384		 /* from here on a parameter starts on its own page */
#define REGIONS_MAX  (LIMIT_REGIONS - 2) /* one more is for checksums, and one for windows */

/* Region numbers from `first` on, and the regions' sizes in bytes[]. Returns how many there are. */
static uint32_t place(const struct layout *layout, uint32_t first, struct param_place *places,
		      uint64_t *bytes)
{
	uint32_t count = 0;

	for (size_t i = 0; i < layout->param_count; i++) {
		uint64_t size = layout->params[i].bytes;
		uint64_t align = size >= LARGE_BYTES ? 4096 : 64;
		uint64_t used = count ? bytes[count - 1] : 0;
		uint64_t offset = (used + align - 1) / align * align;

		if (!count || (offset && offset + size > REGION_BYTES)) {
			count++;
			offset = 0;
		}
		places[i] = (struct param_place){.region = first + count - 1, .offset = offset};
		bytes[count - 1] = offset + size;
	}
	return count;
}

static int allocate_copy(struct params *params, struct transport_domain *domain,
			 const struct layout *layout, uint32_t copy, struct error *error)
{
	struct param_place *places = params->places + copy * params->count;
	uint64_t *bytes = memory_zalloc(params->count, sizeof(*bytes));
	uint32_t count = 0;
	int rc = bytes ? 0
		       : memory_error(error, "placing parameters", params->count * sizeof(*bytes));

	if (!rc)
		count = place(layout, (uint32_t)params->region_count, places, bytes);
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = params_region(params, domain, bytes[i], error);
	memory_free(bytes);
	if (rc)
		return error_wrap(error, "memory for %zu parameters (copy %u)", params->count,
				  copy);
	for (size_t i = 0; i < params->count; i++) {
		params->landed[copy * params->count + i] =
			params->starts[places[i].region] + places[i].offset;
	}
	return 0;
}

/* Fewer than the parameters when the host went on after an allocation failed. */
static int check_given(const struct layout *layout, const struct params_options *options,
		       struct error *error)
{
	for (size_t i = 0; options->host && i < layout->param_count; i++)
		if (i >= options->hosted || !options->host[i])
			return error_set(error, ERROR_USAGE,
					 "parameter %s has no memory; with "
					 "own_memory every parameter needs weft_param.memory or "
					 "weft_param_bind",
					 layout->params[i].name);
	return 0;
}

static int register_params(struct params *params, struct transport_domain *domain,
			   const struct layout *layout, void *const *host, struct error *error)
{
	for (size_t i = 0; i < params->count; i++) {
		const struct tensor_info *param = &layout->params[i];

		if (params->written && transport_region_register(domain, host[i], param->bytes,
								 &params->regions[i], error))
			return error_wrap(error, "parameter %s", param->name);
		params->region_count = i + 1;
		params->starts[i] = params->landed[i] = host[i];
		params->sizes[i] = param->bytes;
		params->places[i] = (struct param_place){.region = (uint32_t)i};
	}
	return 0;
}

/* Allocated memory is zero already. */
static int zero_fills(const struct params *params, const struct layout *layout, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < layout->fill_count && !rc; i++) {
		const struct fill *fill = &layout->fills[i];

		rc = params_zero(params, params->landed[fill->param] + fill->offset, fill->bytes,
				 error);
	}
	return rc;
}

static int open_regions(struct params *params, struct transport_domain *domain,
			const struct layout *layout, const struct params_options *options,
			struct error *error)
{
	int rc = 0;

	if (options->host && !options->landing) {
		rc = register_params(params, domain, layout, options->host, error);
		return rc ? rc : zero_fills(params, layout, error);
	}
	for (uint32_t copy = 0; copy < params->copies && !rc; copy++)
		rc = allocate_copy(params, domain, layout, copy, error);
	if (!rc && params->region_count > REGIONS_MAX)
		rc = error_set(error, ERROR_LIMIT, "%zu regions of memory; at most %d",
			       params->region_count, REGIONS_MAX);
	return rc;
}

int params_open(struct params *params, struct transport_domain *domain, const struct layout *layout,
		const struct params_options *options, struct error *error)
{
	size_t places = options->copies * layout->param_count;
	int rc = 0;

	*params = (struct params){.copies = options->copies,
				  .count = layout->param_count,
				  .device = options->device,
				  .landing = options->landing};
	params->written = !params_on_device(params) || transport_domain_caps(domain)->gpu_memory;
	/* then one region a parameter */
	if (options->host && !options->landing && params->written && params->count > REGIONS_MAX)
		return error_set(error, ERROR_LIMIT,
				 "%zu parameters in memory of the host program; at most %d: let "
				 "weft allocate them",
				 params->count, REGIONS_MAX);
	params->places = pool_array(&params->pool, places, sizeof(*params->places));
	params->landed = pool_array(&params->pool, places, sizeof(*params->landed));
	params->starts = pool_array(&params->pool, places, sizeof(*params->starts));
	params->sizes = pool_array(&params->pool, places, sizeof(*params->sizes));
	params->regions = pool_array(&params->pool, places, sizeof(*params->regions));
	params->blocks = pool_array(&params->pool, places, sizeof(*params->blocks));
	params->pinned = pool_array(&params->pool, places, sizeof(*params->pinned));
	params->memory = params->landed;
	if (!pool_ok(&params->pool))
		return memory_error(error, "placing parameters", places * sizeof(*params->places));
	rc = check_given(layout, options, error);
	if (!rc && params->device && options->host)
		rc = params_pin_given(params, layout, options, error);
	if (!rc)
		rc = open_regions(params, domain, layout, options, error);
	return rc || !options->landing ? rc : params_open_live(params, layout, options, error);
}

void params_close(struct params *params)
{
	if (params->device && !params_close_device(params)) {
		*params = (struct params){0};
		return;
	}
	for (size_t i = 0; i < params->region_count; i++)
		transport_region_close(&params->regions[i]);
	pool_free(&params->pool);
	*params = (struct params){0};
}
