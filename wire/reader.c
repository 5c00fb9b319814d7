/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/reader.h"

#include "base/memory.h"
#include "base/utf8.h"
#include <inttypes.h>
#include <stdarg.h>

enum kind {
	KIND_NIL,
	KIND_BOOL,
	KIND_UINT,
	KIND_INT,
	KIND_FLOAT,
	KIND_TEXT,
	KIND_BYTES,
	KIND_ARRAY,
	KIND_MAP,
	KIND_EXT,
	KIND_NEVER,
	KIND_COUNT
};

static const char *const kind_words[KIND_COUNT] = {
	[KIND_NIL] = "nil",
	[KIND_BOOL] = "a boolean",
	[KIND_UINT] = "an integer",
	[KIND_INT] = "an integer below 0",
	[KIND_FLOAT] = "a float",
	[KIND_TEXT] = "a string",
	[KIND_BYTES] = "bytes",
	[KIND_ARRAY] = "an array",
	[KIND_MAP] = "a map",
	[KIND_EXT] = "an extension",
	[KIND_NEVER] = "the never-used byte 0xc1",
};

/* Lead bytes c0..df: what follows, and in how many bytes its number (value, length or count)
 * is. The rest of the 256 carry their number inside. */
static const struct {
	unsigned char kind, width;
} leads[32] = {
	{KIND_NIL, 0},	 {KIND_NEVER, 0}, {KIND_BOOL, 0},  {KIND_BOOL, 0},  /* c0 */
	{KIND_BYTES, 1}, {KIND_BYTES, 2}, {KIND_BYTES, 4}, {KIND_EXT, 1},   /* c4 */
	{KIND_EXT, 2},	 {KIND_EXT, 4},	  {KIND_FLOAT, 4}, {KIND_FLOAT, 8}, /* c8 */
	{KIND_UINT, 1},	 {KIND_UINT, 2},  {KIND_UINT, 4},  {KIND_UINT, 8},  /* cc */
	{KIND_INT, 1},	 {KIND_INT, 2},	  {KIND_INT, 4},   {KIND_INT, 8},   /* d0 */
	{KIND_EXT, 0},	 {KIND_EXT, 0},	  {KIND_EXT, 0},   {KIND_EXT, 0},   /* d4 */
	{KIND_EXT, 0},	 {KIND_TEXT, 1},  {KIND_TEXT, 2},  {KIND_TEXT, 4},  /* d8 */
	{KIND_ARRAY, 2}, {KIND_ARRAY, 4}, {KIND_MAP, 2},   {KIND_MAP, 4},   /* dc */
};

/* One item's lead: kind, its number, and where it began. */
struct lead {
	enum kind kind;
	uint64_t number;
	size_t at;
};

void reader_open(struct reader *reader, const unsigned char *bytes, size_t length,
		 struct error *error)
{
	*reader = (struct reader){.bytes = bytes, .length = length, .error = error};
}

bool reader_ok(const struct reader *reader)
{
	return reader->failed == 0;
}

void reader_fail(struct reader *reader, size_t at, const char *format, ...)
{
	char where[PATH_TEXT_BYTES];
	va_list args;

	if (reader->failed)
		return;
	va_start(args, format);
	reader->failed = error_vset(reader->error, ERROR_MESSAGE, format, args);
	va_end(args);
	error_wrap(reader->error, "%s at byte %zu", path_text(&reader->path, where), at);
}

void reader_wrap(struct reader *reader, size_t at, int status)
{
	char where[PATH_TEXT_BYTES];

	if (reader->failed)
		return;
	reader->failed = status;
	error_wrap(reader->error, "%s at byte %zu", path_text(&reader->path, where), at);
}

void reader_no_memory(struct reader *reader, size_t bytes)
{
	char where[PATH_TEXT_BYTES];

	if (!reader->failed)
		reader->failed =
			memory_error(reader->error, path_text(&reader->path, where), bytes);
}

static const unsigned char *take(struct reader *reader, uint64_t bytes, size_t at)
{
	const unsigned char *view = reader->bytes + reader->at;

	if (reader->failed)
		return NULL;
	if (bytes > reader->length - reader->at) {
		reader_fail(reader, at,
			    "cut off: %" PRIu64 " more bytes are needed and %zu are left", bytes,
			    reader->length - reader->at);
		return NULL;
	}
	reader->at += (size_t)bytes;
	return view;
}

/* Sign-extends the number of a d0..d3; what is not negative is as good as a cc..cf. */
static void settle_sign(struct lead *lead, unsigned width)
{
	unsigned shift = 64 - 8 * width;
	int64_t value = (int64_t)(lead->number << shift) >> shift;

	lead->number = (uint64_t)value;
	if (value >= 0)
		lead->kind = KIND_UINT;
}

static struct lead wide_lead(struct reader *reader, unsigned char byte, size_t at)
{
	struct lead lead = {.kind = (enum kind)leads[byte - 0xc0].kind, .at = at};
	unsigned width = leads[byte - 0xc0].width;
	const unsigned char *number = take(reader, width, at);

	for (unsigned i = 0; number && i < width; i++)
		lead.number = lead.number << 8 | number[i];
	if (lead.kind == KIND_INT)
		settle_sign(&lead, width);
	if (lead.kind == KIND_BOOL)
		lead.number = byte & 1;
	return lead;
}

static struct lead next(struct reader *reader)
{
	size_t at = reader->at;
	const unsigned char *byte = take(reader, 1, at);

	if (!byte)
		return (struct lead){KIND_NEVER, 0, at};
	if (*byte <= 0x7f)
		return (struct lead){KIND_UINT, *byte, at};
	if (*byte <= 0x8f)
		return (struct lead){KIND_MAP, *byte & 0x0f, at};
	if (*byte <= 0x9f)
		return (struct lead){KIND_ARRAY, *byte & 0x0f, at};
	if (*byte <= 0xbf)
		return (struct lead){KIND_TEXT, *byte & 0x1f, at};
	if (*byte >= 0xe0)
		return (struct lead){KIND_INT, (uint64_t)((int64_t)*byte - 0x100), at};
	return wide_lead(reader, *byte, at);
}

/* The next lead, which must be of that kind; all zero once anything failed. */
static struct lead expect(struct reader *reader, enum kind kind)
{
	struct lead lead = next(reader);

	if (!reader->failed && lead.kind != kind) {
		if (lead.kind == KIND_INT)
			reader_fail(reader, lead.at, "%" PRId64 " where %s is needed",
				    (int64_t)lead.number,
				    kind == KIND_UINT ? "a number of 0 or more" : kind_words[kind]);
		else
			reader_fail(reader, lead.at, "%s where %s is needed", kind_words[lead.kind],
				    kind_words[kind]);
	}
	if (reader->failed)
		lead.number = 0;
	return lead;
}

uint64_t reader_uint(struct reader *reader, uint64_t max)
{
	struct lead lead = expect(reader, KIND_UINT);

	if (lead.number > max)
		reader_fail(reader, lead.at, "%" PRIu64 ", and at most %" PRIu64 " is allowed",
			    lead.number, max);
	return reader->failed ? 0 : lead.number;
}

bool reader_bool(struct reader *reader)
{
	return expect(reader, KIND_BOOL).number != 0;
}

static const unsigned char *view(struct reader *reader, enum kind kind, size_t max, size_t *length,
				 size_t *at)
{
	struct lead lead = expect(reader, kind);

	*length = 0;
	*at = lead.at;
	if (lead.number > max)
		reader_fail(reader, lead.at, "%" PRIu64 " bytes long, and at most %zu are allowed",
			    lead.number, max);

	const unsigned char *bytes = take(reader, lead.number, lead.at);

	if (bytes)
		*length = (size_t)lead.number;
	return bytes;
}

size_t reader_text(struct reader *reader, const char **text, size_t max)
{
	size_t length, at;
	const unsigned char *bytes = view(reader, KIND_TEXT, max, &length, &at);
	size_t good = bytes ? utf8_prefix((const char *)bytes, length) : 0;

	*text = bytes ? (const char *)bytes : "";
	if (good == length)
		return length;
	reader_fail(reader, at, "byte 0x%02x at %zu of the string %s", bytes[good], good,
		    bytes[good] ? "is not UTF-8" : "is a NUL, which no string here may hold");
	*text = "";
	return 0;
}

size_t reader_bytes(struct reader *reader, const unsigned char **bytes, size_t max)
{
	size_t length, at;

	*bytes = view(reader, KIND_BYTES, max, &length, &at);
	return length;
}

static size_t count(struct reader *reader, const struct lead *lead, uint64_t max, size_t item_bytes)
{
	size_t left = reader->length - reader->at;

	if (lead->number > max)
		reader_fail(reader, lead->at,
			    "%" PRIu64 " items, and at most %" PRIu64 " are allowed", lead->number,
			    max);
	if (lead->number > left / item_bytes)
		reader_fail(reader, lead->at,
			    "%" PRIu64 " items of at least %zu bytes are claimed"
			    " with %zu bytes left",
			    lead->number, item_bytes, left);
	return reader->failed ? 0 : (size_t)lead->number;
}

size_t reader_array(struct reader *reader, uint64_t max, size_t item_bytes)
{
	struct lead lead = expect(reader, KIND_ARRAY);

	return count(reader, &lead, max, item_bytes);
}

size_t reader_map(struct reader *reader)
{
	struct lead lead = expect(reader, KIND_MAP);

	return count(reader, &lead, UINT32_MAX, 2);
}

void reader_end(struct reader *reader)
{
	if (reader->at != reader->length)
		reader_fail(reader, reader->at, "%zu bytes follow the end of the message",
			    reader->length - reader->at);
}
