/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.h -- what peers of an inference rank write beside its parameters: checksums of pieces, windows, and the word that
 * ranks share which agree on what they show. Like the parameters it lies where it lies, whatever plan is carried out, so peers
 * that keep their endpoint over a pause are not told of it again. What is too small for a plan is replaced, under a number that
 * no region had before:
 *
 *   number    0 .. params - 1    parameters
 *             params ..          checksums, windows, in the order in which they are made
 *
 * What was replaced stays open as long as any endpoint is kept, for over a stream closing a region that peers write closes the
 * paths of all of them. It is less than half of what is in its place, and all of it together no more than that.
 */
#ifndef WORKER_EPOCH_BESIDE_H
#define WORKER_EPOCH_BESIDE_H

#include "base/array.h"
#include "transport/transport.h"

struct device;

/* What mates share: the version that ranks show, which who decides stores here, its complement, and at OUT_AT the two that
 * are on their way to one of them. */
#define WORD_REGION_BYTES 4096u
#define WORD_BYTES        16u
#define WORD_OUT_AT       64u

struct beside_region {
	struct transport_region *region; /* NULL: none was wanted yet */
	uint32_t number;
	const struct device *pinned;     /* by which; NULL: it is not */
};

struct beside {
	struct beside_region sums, windows;
	struct beside_region copied;     /* checksums of what this rank sends to others; peers know nothing of it */
	ARRAY(struct beside_region) replaced;
	struct transport_region *word;
	uint32_t made;                   /* so many numbers are given, behind those of parameters */
	uint32_t told;                   /* peers know of those up to this one, */
	size_t told_replaced;            /* and so many of the replaced to be no more */
};

/* At least that many bytes; where it is made larger, twice as many as before, but no more than `most`, if more are not asked for.
 * device: pinned for it. first: the number behind those of parameters. */
int beside_want(struct beside *beside, struct beside_region *which, struct transport_domain *domain, uint64_t bytes,
		uint64_t most, uint32_t first, const struct device *device, struct error *error);
int beside_want_word(struct beside *beside, struct transport_domain *domain, struct error *error);
/* Before a plan that keeps no endpoint. */
void beside_close_replaced(struct beside *beside);
void beside_close(struct beside *beside);

#endif
