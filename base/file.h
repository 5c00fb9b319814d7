/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h -- files read by mapping or piece by piece, files written whole or not at all.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct file_map {
	const unsigned char *data; /* NULL when the file is empty */
	size_t bytes;
};

/* Maps a regular file read-only. ERROR_IO with path and reason. */
int file_map_open(struct file_map *map, const char *path, struct error *error);
void file_map_close(struct file_map *map);

/* What a file begins with, terminated, as one read gives it: whole where the kernel makes it up.
 * Returns its bytes, or -errno and "". */
ssize_t file_read_small(const char *path, char *out, size_t bytes);

/* A file that is read piece by piece: a regular file, or a pipe (`<(command)`, /dev/stdin). */
struct file_stream {
	int fd;           /* -1: closed */
	const char *path; /* borrowed */
	uint64_t bytes;   /* of a regular file; UINT64_MAX: not known */
};
int file_stream_open(struct file_stream *stream, const char *path, struct error *error);
/* Fills `data` as far as the file goes: *got is less than `most` only at its end. */
int file_stream_read(struct file_stream *stream, void *data, size_t most, size_t *got,
		     struct error *error);
/* From the file's first byte; ERROR_IO when it is a pipe. */
int file_stream_seek(struct file_stream *stream, uint64_t offset, struct error *error);
void file_stream_close(struct file_stream *stream);

/* Writes to a file without a name in the folder of `path` (where the file system has none, to a
 * temporary name), so that nothing is left of a process that is killed; commit flushes, syncs,
 * names it and renames it over `path`; abort drops it. Until commit returns 0 the old file is untouched. What is there and is no
 * regular file (a device, a pipe, /dev/stdout) is written in place, never replaced. */
struct file_writer {
	FILE *stream;		/* NULL when closed */
	char *path, *temporary; /* temporary: NULL when written in place */
	bool named;		/* the temporary name is on disk */
};
int file_writer_open(struct file_writer *writer, const char *path, struct error *error);
int file_writer_commit(struct file_writer *writer, struct error *error);
void file_writer_abort(struct file_writer *writer);
/* Whether a writer could be opened there now, before a long work whose result it is to take. Nothing
 * changes on disk; what is no regular file is not opened, only asked for the right. */
int file_writer_check(const char *path, struct error *error);

/* ERROR_IO: "cannot `what` `path`: " and what errno says. */
int file_error(struct error *error, const char *what, const char *path);

int file_make_directory(const char *path, struct error *error); /* with parents */

#endif
