/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text becomes a routing dump whose indexes all mean something, or an error.
 */
#include "routing/dump_read.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	struct dump *dump;
	uint64_t next = 0;
	int rc = dump_parse(&dump, (const char *)data, size, "fuzz", &error);

	if (rc) {
		must(!dump && rc < 0 && error.text[0]);
		return 0;
	}
	for (size_t r = 0; r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];

		must(route->tensor < dump->names.count);
		must(route->trainer < dump->trainer_count);
		must(route->inference < dump->inference_count);
		must(route->piece_count > 0 && route->piece_first == next);
		next += route->piece_count;
	}
	must(next == dump->piece_count);
	for (size_t p = 0; p < dump->piece_count; p++) {
		const struct route_piece *piece = &dump->pieces[p];

		must(piece->param < dump->names.count && piece->how < HOW_COUNT);
		must(piece->src.dims >= 1 && piece->src.dims <= BOX_DIMS_MAX);
		for (uint32_t d = 0; d < piece->src.dims; d++)
			must(piece->src.lo[d] < piece->src.hi[d]);
	}
	must(dump->report.own.trainer_bytes && dump->report.round_robin.sessions);
	dump_free(&dump);
	return 0;
}
