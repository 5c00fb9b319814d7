/* SPDX-License-Identifier: Apache-2.0
 *
 * say.c -- a line to the user. Its text may name what is in a file, and stderr may be a pipe that nobody reads: it
 * is one line whatever it names, and no reason to wait.
 */
#include "player.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <unistd.h>

#define PATIENCE_MS 250

void say(const char *format, ...)
{
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
	char line[PIPE_BUF]; /* what a pipe that can be written takes whole */
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (n < 0)
		return;
	if (n > (int)sizeof(line) - 1)
		n = (int)sizeof(line) - 1;
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f ||
		    (line[i] == '\xc2' && (line[i + 1] & 0xe0) == 0x80)) /* C1 */
			line[i] = '?';
	line[n++] = '\n';
	if (poll(&out, 1, PATIENCE_MS) == 1 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nobody is left to be told */
}
