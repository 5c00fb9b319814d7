/* SPDX-License-Identifier: Apache-2.0 */
#include "job/strmap.h"

#include "base/hash.h"
#include "base/memory.h"
#include <string.h>

static struct strmap_slot *slot_of(const struct strmap *map, const char *key)
{
	size_t mask = map->capacity - 1;
	size_t i = (size_t)hash_keyed(key, strlen(key)) & mask;

	while (map->slots[i].key && strcmp(map->slots[i].key, key) != 0)
		i = (i + 1) & mask;
	return &map->slots[i];
}

static bool grow(struct strmap *map)
{
	struct strmap bigger = {.capacity = map->capacity ? map->capacity * 2 : 16};

	bigger.slots = memory_zalloc(bigger.capacity, sizeof(*bigger.slots));
	if (!bigger.slots)
		return false;
	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].key)
			*slot_of(&bigger, map->slots[i].key) = map->slots[i];
	bigger.count = map->count;
	memory_free(map->slots);
	*map = bigger;
	return true;
}

bool strmap_put(struct strmap *map, const char *key, uint32_t value)
{
	struct strmap_slot *slot;

	if (map->count * 2 >= map->capacity && !grow(map))
		return false;
	slot = slot_of(map, key);
	if (!slot->key)
		map->count++;
	*slot = (struct strmap_slot){key, value};
	return true;
}

bool strmap_get(const struct strmap *map, const char *key, uint32_t *value)
{
	const struct strmap_slot *slot;

	if (map->count == 0)
		return false;
	slot = slot_of(map, key);
	if (slot->key)
		*value = slot->value;
	return slot->key != NULL;
}

void strmap_fini(struct strmap *map)
{
	memory_free(map->slots);
	*map = (struct strmap){0};
}
