/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pattern.h"

#include <stdio.h>
#include <unistd.h>

bool pattern_expand(char *out, size_t room, const char *pattern, const char *who)
{
	char host[65] = "";
	size_t n = 0;

	if (gethostname(host, sizeof(host) - 1))
		snprintf(host, sizeof(host), "unknown");
	for (; *pattern && n + 1 < room; pattern++) {
		char kind = *pattern == '%' ? pattern[1] : 0;
		int more;

		if (kind == 'h' || kind == 'r')
			more = snprintf(out + n, room - n, "%s", kind == 'h' ? host : who);
		else if (kind == 'p')
			more = snprintf(out + n, room - n, "%d", (int)getpid());
		else
			more = snprintf(out + n, room - n, "%c", *pattern);
		pattern += kind == 'h' || kind == 'r' || kind == 'p';
		n += (size_t)more;
	}
	return n + 1 < room;
}
