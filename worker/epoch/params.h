/* SPDX-License-Identifier: Apache-2.0
 *
 * params.h -- the memory of an inference rank's parameters: regions from weft's allocator, of a GPU's memory, or the
 * host's memory registered as it is. It lies where it lies for as long as the worker, whatever plan
 * is carried out.
 *
 *                 peers write             readers read
 *   in place      region ───────────────► the same bytes
 *   shadow        region 0, region 1      the one that is published
 *   staged        landing regions ─ commit: one launch, or one copy a region ─► parameters on the GPU
 */
#ifndef WORKER_EPOCH_PARAMS_H
#define WORKER_EPOCH_PARAMS_H

#include "base/pool.h"
#include "job/layout.h"
#include "transport/transport.h"
#include "wire/message.h"
#include "worker/device/table.h"

#define PARAMS_COPIES_MAX 2 /* shadow keeps two */

/* Where a version lands that is not written in place. */
enum landing { LANDING_NONE, LANDING_HOST, LANDING_DEVICE };

struct params_options {
	uint32_t copies;
	void *const *host;                 /* by parameter, `hosted` of them, the host program's memory to use (then
					      copies is 1); NULL: weft allocates */
	size_t hosted;
	const struct device *device;       /* parameters lie in its memory; NULL: in the host's */
	enum landing landing;              /* with a device and one copy */
};

struct params {
	struct pool pool;                  /* of all arrays here */
	const struct device *device;
	enum landing landing;
	uint32_t copies;
	size_t count;                      /* parameters */
	struct param_place *places;        /* copies * count, copy-major */
	unsigned char **memory;            /* as addresses, where readers read; of a device's not to be touched */
	unsigned char **landed;            /* and where peers write: the same but for what is staged */
	bool written;                      /* by peers; else they write windows, and what lands there is put in place */
	unsigned char **starts;            /* of regions, */
	uint64_t *sizes;                   /* in bytes */
	struct transport_region **regions; /* as peers write them; NULL: they do not */
	size_t region_count;
	uint64_t *blocks;                  /* device memory under regions, by region; 0: none */
	uint64_t *live;                    /* staged, weft's own: what region r is copied to */
	bool *pinned;                      /* regions */
	bool *on_host;                     /* by parameter: of the host program's, in memory of the host; NULL: none is */
	void **given;                      /* by parameter: host memory of the host program's that was pinned here; or NULL */
	struct device_table commit;               /* staged, the host program's own: one part a parameter */
	uint64_t bases;                    /* where its regions lie, for the device */
};

/* Fills are zeroed. Whatever it returns, params_close. */
int params_open(struct params *params, struct transport_domain *domain,
		const struct layout *layout, const struct params_options *options, struct error *error);
/* Memory of a device that some peer may still have open stays allocated until this process ends. */
void params_close(struct params *params);
/* Staged: from where a version landed to where it is read; ERROR_TIMEOUT: not by then. */
int params_commit(struct params *params, uint64_t until_ns, struct error *error);
/* Bytes at `from`, which params handed out, to host memory. */
int params_read(const struct params *params, void *to, const unsigned char *from, uint64_t bytes,
		struct error *error);

/* What peers write, or put in place, the processor cannot read. */
static inline bool params_on_device(const struct params *params)
{
	return params->device && params->landing != LANDING_HOST;
}

/* Does the processor put in place what lands beside this one? */
static inline bool params_by_processor(const struct params *params, size_t id)
{
	return !params_on_device(params) ||
	       (params->on_host && params->on_host[id] && !params->landing);
}

static inline unsigned char *params_memory(const struct params *params, uint32_t copy, size_t id)
{
	return params->memory[(size_t)copy * params->count + id];
}

static inline unsigned char *params_landed(const struct params *params, uint32_t copy, size_t id)
{
	return params->landed[(size_t)copy * params->count + id];
}

/* ---- params_device.c, for params.c ---- */

/* A region that peers write, where the options want it. */
int params_region(struct params *params, struct transport_domain *domain, uint64_t bytes, struct error *error);
/* Parameters of the host program's that lie on the host: pinned, so that kernels reach them too. */
int params_pin_given(struct params *params, const struct layout *layout, const struct params_options *options,
		     struct error *error);
/* Staged: what is read, and how a version gets there. */
int params_open_live(struct params *params, const struct layout *layout, const struct params_options *options,
		     struct error *error);
int params_zero(const struct params *params, unsigned char *at, uint64_t bytes, struct error *error);
/* False: it is stuck, and all that it may touch stays. */
bool params_close_device(struct params *params);

#endif
