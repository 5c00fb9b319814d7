/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/place.h"

#include "base/array.h"

#define LARGE_BYTES 16384 /* from here on a parameter starts on its own page */

int place_params(const struct layout *layout, uint64_t region_bytes, uint32_t first_region,
		 struct param_place *places, uint64_t **bytes, uint32_t *count, struct error *error)
{
	ARRAY(uint64_t) regions = {0};

	for (size_t i = 0; i < layout->param_count; i++) {
		uint64_t size = layout->params[i].bytes;
		uint64_t align = size >= LARGE_BYTES ? 4096 : 64;
		uint64_t used = regions.count ? regions.items[regions.count - 1] : 0;
		uint64_t offset = (used + align - 1) / align * align;

		if (!regions.count || (offset && offset + size > region_bytes)) {
			if (!array_push(&regions)) {
				array_free(&regions);
				return memory_error(error, "placing parameters",
						    sizeof(*regions.items));
			}
			offset = 0;
		}
		places[i] = (struct param_place){
			.region = first_region + (uint32_t)regions.count - 1, .offset = offset};
		regions.items[regions.count - 1] = offset + size;
	}
	*bytes = regions.items;
	*count = (uint32_t)regions.count;
	return 0;
}
