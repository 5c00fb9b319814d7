/* SPDX-License-Identifier: Apache-2.0
 *
 * golden.h -- the bytes of a message as kept: tests/unit/golden/FOLDER/TYPE.hex, and the same raw
 * in the fuzzers' corpus.
 */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <stddef.h>

struct frame {
	unsigned char *bytes;
	size_t length;
};

/* Below WEFT_SOURCE_DIR, or here; memory_free it. */
char *golden_path(const char *folder, const char *name, const char *ending);
void golden_write(const char *path, const char *corpus, struct frame frame);
struct frame golden_read(const char *path); /* memory_free its bytes */

#endif
