/* SPDX-License-Identifier: Apache-2.0
 *
 * say.c -- a line to the user, of any length that a message has.
 */
#include "player.h"

#include <stdarg.h>
#include <stdio.h>

void say(const char *format, ...)
{
	char line[2048];
	va_list args;

	va_start(args, format);
	if (vsnprintf(line, sizeof(line), format, args) >= 0)
		weft_say(line);
	va_end(args);
}
