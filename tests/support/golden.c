/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>

char *golden_path(const char *folder, const char *name, const char *ending)
{
	const char *root = getenv("WEFT_SOURCE_DIR");

	return memory_format("%s/%s/%s%s", root ? root : ".", folder, name, ending);
}

void golden_write(const char *path, const char *corpus, struct frame frame)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	for (size_t i = 0; i < frame.length; i++)
		fprintf(file, "%02x%s", frame.bytes[i],
			i % 40 == 39 || i + 1 == frame.length ? "\n" : "");
	assert_int_equal(fclose(file), 0);
	file = fopen(corpus, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(frame.bytes, 1, frame.length, file), frame.length);
	assert_int_equal(fclose(file), 0);
}

struct frame golden_read(const char *path)
{
	struct frame frame = {memory_alloc(1 << 16), 0};
	FILE *file = fopen(path, "r");
	unsigned byte;

	if (!file)
		fail_msg("%s: cannot be opened; run from the repository's root", path);
	while (frame.length < 1 << 16 && fscanf(file, "%2x", &byte) == 1)
		frame.bytes[frame.length++] = (unsigned char)byte;
	fclose(file);
	return frame;
}
