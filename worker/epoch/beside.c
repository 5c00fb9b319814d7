/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/beside.h"

#include "worker/device/device.h"

static void close_region(struct beside_region *which)
{
	if (which->pinned && !device_closes(which->pinned))
		return; /* kernels may touch it */
	if (which->pinned)
		device_unpin(which->pinned, transport_region_memory(which->region));
	transport_region_close(&which->region);
	*which = (struct beside_region){0};
}

int beside_want(struct beside *beside, struct beside_region *which, struct transport_domain *domain,
		uint64_t bytes, uint64_t most, uint32_t first, const struct device *device,
		struct error *error)
{
	struct beside_region made = {.number = first + beside->made};
	uint64_t before = which->region ? transport_region_bytes(which->region) : 0, twice;
	int rc;

	if (which->region && before >= bytes)
		return 0;
	twice = 2 * before < most ? 2 * before : most;
	bytes = bytes > twice ? bytes : twice;
	rc = transport_region_allocate(domain, bytes, &made.region, error);
	if (!rc && device)
		rc = device_pin(device, transport_region_memory(made.region),
				transport_region_bytes(made.region), error);
	if (!rc && device)
		made.pinned = device;
	if (!rc && which->region && !array_add(&beside->replaced, *which))
		rc = memory_error(error, "keeping a region", sizeof(*which));
	if (rc) {
		close_region(&made);
		return rc;
	}
	beside->made++;
	*which = made;
	return 0;
}

int beside_want_word(struct beside *beside, struct transport_domain *domain, struct error *error)
{
	return beside->word
		       ? 0
		       : transport_region_allocate(domain, WORD_REGION_BYTES, &beside->word, error);
}

void beside_close_replaced(struct beside *beside)
{
	for (size_t i = 0; i < beside->replaced.count; i++)
		close_region(&beside->replaced.items[i]);
	beside->replaced.count = beside->told_replaced = 0;
}

void beside_close(struct beside *beside)
{
	beside_close_replaced(beside);
	array_free(&beside->replaced);
	close_region(&beside->sums);
	close_region(&beside->windows);
	close_region(&beside->copied);
	transport_region_close(&beside->word);
	*beside = (struct beside){0};
}
