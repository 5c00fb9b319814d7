/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/screen.h"

#include "base/array.h"
#include "base/text.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LEAST 80
#define MOST  200

int screen_columns(void)
{
	const char *given = getenv("COLUMNS");
	struct winsize size;
	uint64_t columns = 0;

	if (isatty(STDOUT_FILENO) != 1)
		return 0;
	if (!given || !parse_u64(given, &columns) || columns == 0)
		columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
	if (columns == 0)
		return LEAST;
	return columns < LEAST ? LEAST : columns > MOST ? MOST : (int)columns;
}

int screen_name_width(int usual, int others)
{
	int columns = screen_columns();

	return columns && columns - others < usual ? columns - others : usual;
}

/* Both ends tell names apart: the layer is in the front, the matrix behind. */
const char *screen_name(const char *name, int width)
{
	static char kept[8][MOST + 1];
	static unsigned next;
	int length = (int)strlen(name), front = (width - 2) / 2;
	char *out;

	if (length <= width || !screen_columns() || width < 4 || width > MOST)
		return name;
	out = kept[next++ % ARRAY_SIZE(kept)];
	snprintf(out, sizeof(kept[0]), "%.*s..%s", front, name,
		 name + length - (width - 2 - front));
	return out;
}
