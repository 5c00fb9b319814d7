/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/screen.h"

#include "base/array.h"
#include "base/plain.h"
#include "base/text.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
		return SCREEN_LEAST;
	return columns < SCREEN_LEAST  ? SCREEN_LEAST
	       : columns > SCREEN_MOST ? SCREEN_MOST
				       : (int)columns;
}

int screen_width(int usual, int others)
{
	int columns = screen_columns();

	return columns && columns - others < usual ? columns - others : usual;
}

/* ---- how long a text is ---- */

/* Letters of two columns, and marks of none; what a terminal takes them for. */
static int columns_of(uint32_t code)
{
	static const struct {
		uint32_t from, to;
		int columns;
	} rows[] = {
		{0x300, 0x36f, 0},   {0x200b, 0x200d, 0},   {0xfe00, 0xfe0f, 0},
		{0x1100, 0x115f, 2}, {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},
		{0xf900, 0xfaff, 2}, {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},
		{0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
	};

	if (code >= 0x300)
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
			if (code >= rows[i].from && code <= rows[i].to)
				return rows[i].columns;
	return 1;
}

/* A character, or a whole colour ("\033[31m"), which takes none. */
static int next_character(const char **at)
{
	struct plain_character first;

	if ((*at)[0] == '\033' && (*at)[1] == '[') {
		*at += 2 + strcspn(*at + 2, "m");
		*at += **at == 'm';
		return 0;
	}
	first = plain_first(*at);
	*at += first.bytes;
	return columns_of(first.code);
}

int screen_length(const char *text)
{
	int length = 0;

	while (*text)
		length += next_character(&text);
	return length;
}

/* Where the character stands that would pass `width` columns. */
static const char *after(const char *text, int width)
{
	const char *at = text;

	while (*at) {
		const char *next = at;

		width -= next_character(&next);
		if (width < 0)
			break;
		at = next;
	}
	return at;
}

/* Both ends tell names apart: the layer is in the front, the matrix behind. */
const char *screen_cut(const char *text, int width)
{
	static char kept[8][4 * SCREEN_MOST + 16];
	static unsigned next;
	int length = screen_length(text), front = (width - 2) / 2;
	const char *tail;
	char *out;

	if (length <= width || width < 4 || width > SCREEN_MOST)
		return text;
	tail = after(text, length - (width - 2 - front));
	if (screen_length(tail) > width - 2 - front) /* half of a letter of two columns */
		next_character(&tail);
	out = kept[next++ % ARRAY_SIZE(kept)];
	snprintf(out, sizeof(kept[0]), "%.*s..%s", (int)(after(text, front) - text), text, tail);
	return out;
}

/* ---- folding ---- */

static struct fold {
	FILE *stream;
	int columns;
	struct text line; /* not yet complete */
} fold;

/* How far what is folded is indented: under the last column of a row, else two more than the line. */
static int indent_of(const char *line, int columns)
{
	int column = 0, blanks = 0, lead = (int)strspn(line, " "), row = 0;

	for (const char *at = line + lead; *at;) {
		bool blank = *at == ' ';

		if (!blank && blanks >= 2 && lead + column < columns * 5 / 8)
			row = lead + column;
		blanks = blank ? blanks + 1 : 0;
		column += next_character(&at);
	}
	return row ? row : lead < columns / 2 ? lead + 2 : 2;
}

/* Up to where a line of `width` columns goes: a blank, else a mark that names are made of, else anywhere. */
static const char *break_of(const char *line, int width)
{
	const char *end = after(line, width), *least = after(line, width / 2), *found = NULL;

	if (!*end)
		return end;
	for (const char *at = end; at > least && !found; at--)
		if (*at == ' ')
			found = at;
	for (const char *at = end; at > least && !found; at--)
		if (strchr("./_-,:;=", at[-1]))
			found = at;
	return found ? found : end > line ? end : line + strlen(line);
}

static void put_line(const char *line)
{
	int indent = 0;

	if (screen_length(line) > fold.columns)
		indent = indent_of(line, fold.columns);
	for (bool first = true; first || *line; first = false) {
		const char *end = break_of(line, fold.columns - (first ? 0 : indent));

		fprintf(fold.stream, "%*s%.*s\n", first ? 0 : indent, "", (int)(end - line), line);
		line = end + strspn(end, *end == ' ' ? " " : "");
	}
}

static ssize_t add(void *context, const char *bytes, size_t count)
{
	(void)context;
	for (size_t i = 0; i < count; i++) {
		if (bytes[i] != '\n') {
			text_add_bytes(&fold.line, &bytes[i], 1);
			continue;
		}
		put_line(text_string(&fold.line));
		fold.line.bytes = 0;
		if (fold.line.data)
			fold.line.data[0] = '\0';
	}
	if (!text_ok(&fold.line) || fflush(fold.stream) || ferror(fold.stream))
		return 0; /* the stream above fails too */
	return (ssize_t)count;
}

static int finish(void *context)
{
	(void)context;
	if (fold.line.bytes)
		fputs(text_string(&fold.line), fold.stream);
	text_fini(&fold.line);
	return fflush(fold.stream);
}

static void finish_at_exit(void)
{
	if (stdout != fold.stream)
		fclose(stdout);
	stdout = fold.stream;
}

void screen_fold(void)
{
	const cookie_io_functions_t calls = {.write = add, .close = finish};
	FILE *stream;

	if (!screen_columns() || fold.stream)
		return;
	stream = fopencookie(NULL, "w", calls);
	if (!stream)
		return; /* lines are whole, as in a pipe */
	setvbuf(stream, NULL, _IOLBF, 0);
	fold = (struct fold){.stream = stdout, .columns = screen_columns()};
	stdout = stream;
	atexit(finish_at_exit);
}

static int first_failure;

void screen_flush(void)
{
	if (fflush(stdout) && !first_failure)
		first_failure = errno ? errno : EIO;
}

int screen_failed(void)
{
	screen_flush();
	return first_failure ? first_failure : ferror(stdout) ? EIO : 0;
}
