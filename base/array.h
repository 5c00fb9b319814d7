/* SPDX-License-Identifier: Apache-2.0
 *
 * array.h -- growable arrays: ARRAY(type) is {items, count, capacity}.
 *
 * A zeroed struct is an empty array. array_push() returns a pointer to a new zeroed item, or
 * NULL when out of memory (the array is unchanged then). array_add(array, value) pushes a value,
 * false when out of memory. Pointers to items move on growth.
 */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include "base/memory.h"
#include <string.h>

#define ARRAY(type)                                                                        \
	struct {                                                                           \
		type *items;                                                               \
		size_t count;                                                              \
		size_t capacity;                                                           \
	}

#define array_push(array)                                                                  \
	((__typeof__((array)->items))array_push_raw((void **)&(array)->items,              \
						    &(array)->count, &(array)->capacity,   \
						    sizeof(*(array)->items)))

#define array_add(array, ...)                                                              \
	({                                                                                 \
		__typeof__(*(array)->items) value_ = __VA_ARGS__;                          \
		__typeof__(value_) *item_ = array_push(array);                             \
		if (item_)                                                                 \
			*item_ = value_;                                                   \
		item_ != NULL;                                                             \
	})

#define array_free(array)                                                                  \
	do {                                                                               \
		memory_free((array)->items);                                               \
		(array)->items = NULL;                                                     \
		(array)->count = (array)->capacity = 0;                                    \
	} while (0)

/* Every item in turn, by its address. */
#define array_each(item, array)                                                            \
	for (__typeof__(*(array)->items) *item = (array)->items;                           \
	     (size_t)(item - (array)->items) < (array)->count; item++)

static inline void *array_push_raw(void **items, size_t *count, size_t *capacity, size_t size)
{
	if (*count == *capacity) {
		size_t wanted = *capacity ? *capacity * 2 : 8;
		void *grown = memory_resize(*items, wanted, size);

		if (!grown)
			return NULL;
		*items = grown;
		*capacity = wanted;
	}
	void *item = (char *)*items + *count * size;

	memset(item, 0, size);
	(*count)++;
	return item;
}

#define ARRAY_SIZE(fixed) (sizeof(fixed) / sizeof((fixed)[0]))

#endif
