/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_split.h"

#include "base/memory.h"
#include <inttypes.h>
#include <string.h>

#define END_OF_TEXT (-1)

#define REFUSE(split, format, ...) \
	error_set((split)->error, ERROR_FILE, "%s: " format, (split)->name, __VA_ARGS__)

void split_text(struct split *split, const char *text, size_t bytes, const char *name,
		struct error *error)
{
	*split = (struct split){.name = name, .data = text, .end = bytes, .error = error};
}

int split_file(struct split *split, struct file_stream *file, const char *name, struct error *error)
{
	*split = (struct split){.name = name, .file = file, .error = error};
	split->data = split->chunk = memory_alloc(SPLIT_CHUNK_BYTES);
	return split->chunk ? 0 : memory_error(error, "reading a file", SPLIT_CHUNK_BYTES);
}

void split_fini(struct split *split)
{
	memory_free(split->chunk);
	text_fini(&split->carried);
	*split = (struct split){0};
}

uint64_t split_offset(const struct split *split)
{
	return split->base + split->at;
}

int split_seek(struct split *split, uint64_t offset)
{
	if (!split->file) {
		split->at = (size_t)offset;
		return 0;
	}
	split->base = offset;
	split->at = split->end = 0;
	return file_stream_seek(split->file, offset, split->error);
}

/* The chunk is used up: the next one; at == end afterwards only at the end of the file. */
static int refill(struct split *split)
{
	if (!split->file)
		return 0;
	split->base += split->end;
	split->at = split->end = 0;
	return file_stream_read(split->file, split->chunk, SPLIT_CHUNK_BYTES, &split->end,
				split->error);
}

static int peek(struct split *split, int *byte)
{
	int rc = split->at == split->end ? refill(split) : 0;

	*byte = !rc && split->at < split->end ? (unsigned char)split->data[split->at] : END_OF_TEXT;
	return rc;
}

static bool is_space(int byte)
{
	return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* The next byte that is no white space. */
static int peek_token(struct split *split, int *byte)
{
	int rc = peek(split, byte);

	while (!rc && is_space(*byte)) {
		split->at++;
		rc = peek(split, byte);
	}
	return rc;
}

static int refuse_byte(struct split *split, int byte, const char *wanted)
{
	uint64_t offset = split_offset(split);

	if (byte == END_OF_TEXT)
		return REFUSE(split,
			      "the text ends at byte %" PRIu64
			      " where %s is due: the file was cut short",
			      offset, wanted);
	if (byte > ' ' && byte < 0x7f)
		return REFUSE(split, "'%c' at byte %" PRIu64 " where %s is due", byte, offset,
			      wanted);
	return REFUSE(split, "byte 0x%02x at byte %" PRIu64 " where %s is due", byte, offset,
		      wanted);
}

int split_open(struct split *split, char bracket, const char *what)
{
	int byte, rc = peek_token(split, &byte);

	if (!rc && byte != bracket)
		rc = refuse_byte(split, byte, what);
	split->at += rc == 0;
	return rc;
}

int split_next(struct split *split, char closing, bool first, const char *what, bool *more)
{
	int byte, rc = peek_token(split, &byte);

	*more = false;
	if (rc)
		return rc;
	if (byte == closing) {
		split->at++;
		return 0;
	}
	*more = true;
	if (first)
		return byte == END_OF_TEXT ? refuse_byte(split, byte, what) : 0;
	if (byte != ',')
		return refuse_byte(split, byte, what);
	split->at++;
	rc = peek_token(split, &byte);
	if (!rc && byte == closing)
		rc = refuse_byte(split, byte, "another item after ','");
	return rc;
}

int split_key(struct split *split, struct split_value *key)
{
	int byte, rc = peek_token(split, &byte);

	if (!rc && byte != '"')
		rc = refuse_byte(split, byte, "a key in quotes");
	return rc ? rc : split_take(split, SPLIT_STRING_MAX, key);
}

/* ---- one value ---- */

/* How far into a value: a string or word goes on in the next chunk. */
struct walk {
	int depth;
	bool in_string, escaped, done;
	uint64_t token; /* bytes of the string or word so far */
};

static bool ends_word(char byte)
{
	return is_space((unsigned char)byte) || (byte && strchr(",:[]{}\"", byte));
}

static int walk_string(struct split *split, struct walk *walk)
{
	while (split->at < split->end) {
		char byte = split->data[split->at];

		if (++walk->token > SPLIT_STRING_MAX)
			return REFUSE(split,
				      "a string before byte %" PRIu64 " has more than %" PRIu64
				      " bytes",
				      split_offset(split), SPLIT_STRING_MAX);
		split->at++;
		if (walk->escaped) {
			walk->escaped = false;
		} else if (byte == '\\') {
			walk->escaped = true;
		} else if (byte == '"') {
			walk->in_string = false;
			walk->token = 0;
			walk->done = walk->depth == 0;
			return 0;
		}
	}
	return 0;
}

static int walk_structure(struct split *split, struct walk *walk)
{
	char byte = split->data[split->at];

	/* a word at depth 0 ends before what ends it */
	if (walk->depth == 0 && walk->token && ends_word(byte)) {
		walk->done = true;
		return 0;
	}
	split->at++;
	if (!ends_word(byte)) {
		if (++walk->token > SPLIT_WORD_MAX)
			return REFUSE(split,
				      "a number or word before byte %" PRIu64
				      " has more than %d bytes",
				      split_offset(split), SPLIT_WORD_MAX);
		return 0;
	}
	walk->token = 0;
	if (byte == '"') {
		walk->in_string = true;
	} else if (byte == '{' || byte == '[') {
		if (++walk->depth > SPLIT_DEPTH_MAX)
			return REFUSE(split,
				      "more than %d brackets inside each other at byte %" PRIu64,
				      SPLIT_DEPTH_MAX, split_offset(split) - 1);
	} else if (byte == '}' || byte == ']') {
		walk->done = --walk->depth == 0;
	}
	return 0;
}

/* Puts the part of a value that is in this chunk away, before the chunk goes. */
static int carry(struct split *split, size_t from)
{
	text_add_bytes(&split->carried, split->data + from, split->end - from);
	return text_ok(&split->carried)
		       ? 0
		       : memory_error(split->error, "reading a file", split->end - from);
}

static int too_long(struct split *split, uint64_t start, uint64_t most)
{
	return REFUSE(split, "the value at byte %" PRIu64 " has more than %" PRIu64 " bytes", start,
		      most);
}

int split_take(struct split *split, uint64_t most, struct split_value *value)
{
	struct walk walk = {0};
	uint64_t start;
	size_t from;
	int byte, rc = peek_token(split, &byte);

	if (rc)
		return rc;
	if (byte == END_OF_TEXT || (byte && strchr(",:]}", byte)))
		return refuse_byte(split, byte, "a value");
	start = split_offset(split);
	from = split->at;
	split->carried.bytes = 0;
	while (!walk.done) {
		if (split->at == split->end) {
			if (value && split->file)
				rc = carry(split, from);
			if (!rc)
				rc = refill(split);
			if (rc)
				return rc;
			from = split->file ? 0 : from;
			if (split->at == split->end) {
				/* a word may be the last thing there is */
				if (walk.depth || walk.in_string || !walk.token)
					return refuse_byte(split, END_OF_TEXT,
							   "the rest of a value");
				break;
			}
		}
		rc = walk.in_string ? walk_string(split, &walk) : walk_structure(split, &walk);
		if (!rc && value && split_offset(split) - start > most)
			rc = too_long(split, start, most);
		if (rc)
			return rc;
	}
	if (!value)
		return 0;
	*value = (struct split_value){split->data + from, split->at - from, start};
	if (split->carried.bytes) {
		text_add_bytes(&split->carried, value->text, value->bytes);
		if (!text_ok(&split->carried))
			return memory_error(split->error, "reading a file", value->bytes);
		value->text = split->carried.data;
		value->bytes = split->carried.bytes;
	}
	return 0;
}

int split_finish(struct split *split)
{
	int byte, rc = peek_token(split, &byte);

	if (!rc && byte != END_OF_TEXT)
		rc = REFUSE(split, "text after the end, at byte %" PRIu64, split_offset(split));
	return rc;
}
