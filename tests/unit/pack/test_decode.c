/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/copy.h"
#include "model/content.h"
#include "pack/convert.h"
#include "pack/decode.h"

#include <math.h>
#include <string.h>

enum { COUNT = 4096, BLOCKS = 65 };

static const enum dtype floats[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
static const float odd_scales[] = {1,	      -1,     0,	-0.0f,	    INFINITY,
				   -INFINITY, NAN,    -NAN,	0x1p-149f,  0x3p-140f,
				   3e38f,     -3e38f, 0x1p-16f, 0x1.7p-20f, 700.0f};

static unsigned char codes[COUNT];
static float scales[BLOCKS];
static struct decode_table tables[BLOCKS];
static _Alignas(64) unsigned char want[COUNT * 4], got[COUNT * 4 + 64];

static void check(enum dtype to, uint64_t count, uint64_t skip, uint64_t width, bool stream)
{
	uint32_t bytes = dtype_bytes(to);

	for (uint64_t b = 0; b <= (skip + count - 1) / width; b++)
		decode_table_make(&tables[b], to, scales[b]);
	convert_find_scaled(to, "portable")(want, codes, count, scales, skip, width);
	memset(got, 0xee, sizeof(got));
	decode_find(to)(got, codes, count, tables, skip, width, stream ? NULL : codes, stream);
	copy_fence();
	for (uint64_t i = 0; i < count; i++)
		if (memcmp(got + i * bytes, want + i * bytes, bytes) != 0)
			fail_msg("to %s, code %#x, scale %a", dtype_name(to), codes[i],
				 (double)scales[(skip + i) / width]);
	assert_int_equal(got[count * bytes], 0xee);
}

static void test_rows__are_what_the_portable_conversion_makes(void **state)
{
	uint64_t random = 1;

	(void)state;
	for (size_t f = 0; f < ARRAY_SIZE(floats) && decode_find(floats[f]); f++)
		for (int round = 0; round < 100; round++) {
			uint64_t width = 64 + splitmix64(++random) % 300;
			uint64_t skip = splitmix64(++random) % width;
			uint64_t count = 1 + splitmix64(++random) % COUNT;
			bool stream = round % 4 == 0;

			if (stream) {
				width = 64 + width / 64 * 64;
				skip = skip / 64 * 64;
				count = 64 + count / 65 * 64;
			}
			for (size_t i = 0; i < COUNT; i++)
				codes[i] = (unsigned char)splitmix64(++random);
			for (size_t b = 0; b < BLOCKS; b++)
				scales[b] = round % 2 ? odd_scales[splitmix64(++random) %
								   ARRAY_SIZE(odd_scales)]
						      : (float)(1 + splitmix64(++random) % 1000) *
								0x1p-15f;
			check(floats[f], count, skip, width, stream);
		}
}

static void test_every_code__with_every_odd_scale(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT; i++)
		codes[i] = (unsigned char)i;
	memcpy(scales, odd_scales, sizeof(odd_scales));
	for (size_t f = 0; f < ARRAY_SIZE(floats) && decode_find(floats[f]); f++)
		check(floats[f], ARRAY_SIZE(odd_scales) * 256, 0, 256, true);
}

static void test_find__knows_no_other_dtype(void **state)
{
	(void)state;
	assert_null(decode_find(DTYPE_F8_E4M3));
	assert_null(decode_find(DTYPE_NONE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows__are_what_the_portable_conversion_makes),
		cmocka_unit_test(test_every_code__with_every_odd_scale),
		cmocka_unit_test(test_find__knows_no_other_dtype),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
