/* SPDX-License-Identifier: Apache-2.0
 *
 * json_split.h -- takes one large JSON object apart, in chunks, without a tree of the whole:
 *
 *   {"schema":"weft.routing/1", ... ,"routes":[ {...} , {...} , ... ],"summary":{...}}
 *    ^key     ^value                          ^item   ^item
 *
 * It knows strings and brackets, and nothing of numbers, escapes or UTF-8: each value goes to
 * jansson as text, which is strict about these. Depth, tokens and values have a largest size, so
 * memory is bounded whatever the file says. Errors are ERROR_FILE with the byte they are at.
 */
#ifndef BASE_JSON_SPLIT_H
#define BASE_JSON_SPLIT_H

#include "base/file.h"
#include "base/text.h"

#define SPLIT_CHUNK_BYTES (UINT64_C(1) << 20)
#define SPLIT_DEPTH_MAX   16                   /* brackets inside a value */
#define SPLIT_STRING_MAX  (UINT64_C(1) << 16)  /* bytes, as written */
#define SPLIT_WORD_MAX    64                   /* a number, true, false or null */

struct split {
	const char *name;          /* of the file, in messages; borrowed */
	struct file_stream *file;  /* NULL: all of the text is there */
	const char *data;          /* the chunk */
	char *chunk;               /* the same, when it is ours */
	size_t at, end;            /* in the chunk */
	uint64_t base;             /* of the chunk's first byte in the file */
	struct text carried;       /* a value that began in an earlier chunk */
	struct error *error;
};

/* A value as text; valid until the next call. */
struct split_value {
	const char *text;
	size_t bytes;
	uint64_t offset;
};

void split_text(struct split *split, const char *text, size_t bytes, const char *name,
		struct error *error);
int split_file(struct split *split, struct file_stream *file, const char *name,
	       struct error *error);
void split_fini(struct split *split);

uint64_t split_offset(const struct split *split); /* of the next byte */
int split_seek(struct split *split, uint64_t offset);

/* The bracket that opens the object or list, then its items one by one: *more is false after the
 * last, with the closing bracket taken. `what` goes into messages ("the list of routes"). */
int split_open(struct split *split, char bracket, const char *what);
int split_next(struct split *split, char closing, bool first, const char *what, bool *more);
/* Of an object's item: its key, as a JSON string with its quotes; then the value follows. */
int split_key(struct split *split, struct split_value *key);
/* One value of at most `most` bytes as written; value NULL: passed over, of any size. */
int split_take(struct split *split, uint64_t most, struct split_value *value);
int split_finish(struct split *split); /* nothing but white space follows */

#endif
