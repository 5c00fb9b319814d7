/* SPDX-License-Identifier: Apache-2.0
 *
 * strmap.h -- from a string to a u32. Open addressing; keys are borrowed and must outlive it.
 * A zeroed struct is an empty map. The order of insertion does not matter to any result, and keys that
 * fall on each other cannot be chosen (base/hash.h): peers name what is put here.
 */
#ifndef JOB_STRMAP_H
#define JOB_STRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct strmap_slot {
	const char *key;
	uint32_t value;
};

struct strmap {
	struct strmap_slot *slots;
	size_t count, capacity;
};

bool strmap_put(struct strmap *map, const char *key, uint32_t value); /* false: no memory */
bool strmap_get(const struct strmap *map, const char *key, uint32_t *value);
void strmap_fini(struct strmap *map);

#endif
