/* SPDX-License-Identifier: Apache-2.0
 *
 * params.h -- the memory of an inference rank's parameters: regions from weft's allocator, or the
 * host's memory registered as it is. It lies where it lies for as long as the worker, whatever plan
 * is carried out.
 */
#ifndef WORKER_EPOCH_PARAMS_H
#define WORKER_EPOCH_PARAMS_H

#include "base/pool.h"
#include "job/layout.h"
#include "transport/transport.h"
#include "wire/message.h"

#define PARAMS_COPIES_MAX 2 /* shadow keeps two */

struct params {
	struct pool pool;                  /* of all arrays here */
	uint32_t copies;
	size_t count;                      /* parameters */
	struct param_place *places;        /* copies * count, copy-major */
	unsigned char **memory;            /* the same, as addresses */
	struct transport_region **regions;
	size_t region_count;
};

/* host: by parameter, `hosted` of them, the host's memory to use (then copies is 1); NULL: weft
 * allocates. Fills are zeroed. Whatever it returns, params_close. */
int params_open(struct params *params, struct transport_domain *domain,
		const struct layout *layout, uint32_t copies, void *const *host, size_t hosted,
		struct error *error);
void params_close(struct params *params);
static inline unsigned char *params_memory(const struct params *params, uint32_t copy, size_t id)
{
	return params->memory[(size_t)copy * params->count + id];
}

#endif
