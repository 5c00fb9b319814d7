/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that were chosen to fall on each other: a peer who knew the hash made one message of 763 KB take 20 s.
 */
#include "job/strmap.h"

#include "base/hash.h"
#include "job/digest.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NAMES	   3000
#define NAME_BYTES 16
#define SAME_BITS  0xfffu

static char names[NAMES][NAME_BYTES];

/* All with the same low bits under the hash that these maps once had. */
static void choose_names(void)
{
	uint32_t found = 0;

	for (uint64_t i = 0; found < NAMES; i++) {
		int length = snprintf(names[found], NAME_BYTES, "w%llu", (unsigned long long)i);

		found += (checksum64(names[found], (size_t)length) & SAME_BITS) == 7;
	}
}

/* The most slots in a row that are taken: what a lookup may have to walk. */
static size_t longest_run(const struct strmap *map)
{
	size_t longest = 0, run = 0;

	for (size_t i = 0; i < 2 * map->capacity; i++) {
		run = map->slots[i & (map->capacity - 1)].key ? run + 1 : 0;
		if (run > longest)
			longest = run;
	}
	return longest;
}

static void test_names__chosen_to_collide_do_not(void **state)
{
	struct strmap map = {0};
	uint32_t value;

	(void)state;
	choose_names();
	for (uint32_t i = 0; i < NAMES; i++)
		assert_true(strmap_put(&map, names[i], i));
	for (uint32_t i = 0; i < NAMES; i++) {
		assert_true(strmap_get(&map, names[i], &value));
		assert_int_equal(value, i);
	}
	assert_in_range(longest_run(&map), 1, 150);
	strmap_fini(&map);
}

static void test_hash__is_one_within_a_process_and_of_every_byte(void **state)
{
	char name[] = "model.layers.0.mlp.gate_proj.weight";
	uint64_t first = hash_keyed(name, sizeof(name));

	(void)state;
	assert_true(hash_keyed(name, sizeof(name)) == first);
	for (size_t i = 0; i < sizeof(name); i++) {
		name[i] ^= 1;
		assert_true(hash_keyed(name, sizeof(name)) != first);
		name[i] ^= 1;
	}
	assert_true(hash_keyed("weft-key", 8) != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names__chosen_to_collide_do_not),
		cmocka_unit_test(test_hash__is_one_within_a_process_and_of_every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
