/* SPDX-License-Identifier: Apache-2.0 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *file, int line, const char *condition, const long long values[2])
{
	char shown[80] = "";

	if (values)
		snprintf(shown, sizeof(shown), " (left is %lld, right is %lld)", values[0],
			 values[1]);
	fprintf(stderr, "%s:%d: a bug in weft: this must hold: %s%s\n", file, line, condition,
		shown);
	abort();
}
