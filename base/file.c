/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int file_error(struct error *error, const char *what, const char *path)
{
	return error_set_errno(error, ERROR_IO, errno, "cannot %s %s", what, path);
}

/* A regular file or, if `pipe`, a pipe. */
static int open_file(const char *path, bool pipe, int *fd, struct stat *status, struct error *error)
{
	int rc = 0;

	/* a FIFO without a writer must not hold the open: it is an empty file */
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0)
		return file_error(error, "open", path);
	if (fstat(*fd, status) != 0)
		rc = file_error(error, "read the size of", path);
	else if (!S_ISREG(status->st_mode) && !(pipe && S_ISFIFO(status->st_mode)))
		rc = error_set(error, ERROR_IO, "%s is not a regular file", path);
	if (rc)
		close(*fd);
	return rc;
}

int file_map_open(struct file_map *map, const char *path, struct error *error)
{
	struct stat status;
	void *data = NULL;
	int fd, rc = open_file(path, false, &fd, &status, error);

	*map = (struct file_map){0};
	if (rc)
		return rc;
	if (status.st_size > 0)
		data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED) {
		rc = file_error(error, "map", path);
		data = NULL;
	}
	close(fd);
	if (data)
		*map = (struct file_map){data, (size_t)status.st_size};
	return rc;
}

ssize_t file_read_small(const char *path, char *out, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	out[0] = 0;
	if (fd < 0)
		return -errno;
	n = TEMP_FAILURE_RETRY(read(fd, out, bytes - 1));
	if (n < 0)
		n = -errno;
	close(fd);
	out[n < 0 ? 0 : n] = 0;
	return n;
}

void file_map_close(struct file_map *map)
{
	if (map->data)
		munmap((void *)(uintptr_t)map->data, map->bytes);
	*map = (struct file_map){0};
}

int file_stream_open(struct file_stream *stream, const char *path, struct error *error)
{
	struct stat status;
	int fd, rc = open_file(path, true, &fd, &status, error);

	*stream = (struct file_stream){.fd = rc ? -1 : fd, .path = path, .bytes = UINT64_MAX};
	if (rc)
		return rc;
	if (S_ISREG(status.st_mode))
		stream->bytes = (uint64_t)status.st_size;
	if (fcntl(fd, F_SETFL, 0) != 0) {
		rc = file_error(error, "read", path);
		file_stream_close(stream);
	}
	return rc;
}

int file_stream_read(struct file_stream *stream, void *data, size_t most, size_t *got,
		     struct error *error)
{
	*got = 0;
	while (*got < most) {
		ssize_t n = TEMP_FAILURE_RETRY(read(stream->fd, (char *)data + *got, most - *got));

		if (n < 0)
			return file_error(error, "read", stream->path);
		if (n == 0)
			break;
		*got += (size_t)n;
	}
	return 0;
}

int file_stream_seek(struct file_stream *stream, uint64_t offset, struct error *error)
{
	return lseek(stream->fd, (off_t)offset, SEEK_SET) < 0
		       ? error_set_errno(error, ERROR_IO, errno,
					 "cannot go back to byte %" PRIu64 " of %s", offset,
					 stream->path)
		       : 0;
}

void file_stream_close(struct file_stream *stream)
{
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
}

/* A file without a name where `path` will be; -1 with errno where that cannot be, or could not be
 * named later (through /proc). */
static int open_nameless(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? memory_string(path) : NULL;
	int fd = -1;

	if (folder)
		folder[slash == path ? 1 : slash - path] = '\0';
	if ((folder || !slash) && access("/proc/self/fd", X_OK) == 0)
		fd = open(folder ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	memory_free(folder);
	return fd;
}

/* Replaces the last six letters of the temporary name until it is a new one. */
static int give_name(struct file_writer *writer)
{
	char *tail = writer->temporary + strlen(writer->temporary) - 6;
	char open_file[64];
	int rc = -1;

	snprintf(open_file, sizeof(open_file), "/proc/self/fd/%d", fileno(writer->stream));
	errno = EEXIST;
	for (unsigned attempt = 0; rc != 0 && errno == EEXIST && attempt < 1000; attempt++) {
		snprintf(tail, 7, "%06x", ((unsigned)getpid() + attempt * 7919) & 0xffffff);
		rc = linkat(AT_FDCWD, open_file, AT_FDCWD, writer->temporary, AT_SYMLINK_FOLLOW);
	}
	writer->named = rc == 0;
	return rc;
}

static int open_temporary(struct file_writer *writer, struct error *error)
{
	int rc, fd = open_nameless(writer->path);

	if (fd < 0) {
		fd = mkostemp(writer->temporary, O_CLOEXEC);
		writer->named = fd >= 0;
	}
	if (fd >= 0) {
		fchmod(fd, 0644);
		writer->stream = fdopen(fd, "w");
	}
	if (writer->stream)
		return 0;
	rc = file_error(error, "make a file in the folder of", writer->path);
	if (fd >= 0)
		close(fd);
	return rc;
}

int file_writer_open(struct file_writer *writer, const char *path, struct error *error)
{
	struct stat status;
	int rc = 0;

	*writer = (struct file_writer){0};
	if (!*path)
		return error_set(error, ERROR_IO, "cannot write a file: its name is empty");
	writer->path = memory_string(path);
	if (writer->path && stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
		/* Renaming over /dev/stdout, a pipe or a terminal would take it away from the
		 * whole machine. What is no regular file has no old contents to keep: it is
		 * written as it is. */
		writer->stream = fopen(path, "we");
		if (!writer->stream)
			rc = file_error(error, "write", path);
	} else {
		writer->temporary = memory_format("%s.XXXXXX", path);
		rc = writer->path && writer->temporary
			     ? open_temporary(writer, error)
			     : memory_error(error, "naming a file", strlen(path));
	}
	if (rc)
		file_writer_abort(writer);
	return rc;
}

int file_writer_check(const char *path, struct error *error)
{
	struct file_writer writer;
	struct stat status;
	int rc;

	if (*path && stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
		errno = S_ISDIR(status.st_mode) ? EISDIR : 0;
		return errno || access(path, W_OK) ? file_error(error, "write", path) : 0;
	}
	rc = file_writer_open(&writer, path, error);
	if (!rc)
		file_writer_abort(&writer);
	return rc;
}

static int close_stream(struct file_writer *writer)
{
	FILE *stream = writer->stream;

	writer->stream = NULL;
	return stream ? fclose(stream) : 0;
}

int file_writer_commit(struct file_writer *writer, struct error *error)
{
	int rc = 0;

	if (ferror(writer->stream) || fflush(writer->stream) != 0 ||
	    (writer->temporary && fsync(fileno(writer->stream)) != 0) ||
	    (writer->temporary && !writer->named && give_name(writer) != 0) ||
	    close_stream(writer) != 0 ||
	    (writer->temporary && rename(writer->temporary, writer->path) != 0))
		rc = file_error(error, "write", writer->path);
	else
		writer->named = false;
	file_writer_abort(writer);
	return rc;
}

void file_writer_abort(struct file_writer *writer)
{
	close_stream(writer);
	if (writer->named)
		unlink(writer->temporary);
	memory_free(writer->temporary);
	memory_free(writer->path);
	*writer = (struct file_writer){0};
}

int file_make_directory(const char *path, struct error *error)
{
	char *copy = memory_string(path);
	int rc = 0;

	if (!copy)
		return memory_error(error, "naming a folder", strlen(path));
	for (char *at = copy + 1; rc == 0; at++) {
		char kept = *at;

		if (kept != '/' && kept != '\0')
			continue;
		*at = '\0';
		if (mkdir(copy, 0777) != 0 && errno != EEXIST)
			rc = file_error(error, "make the folder", copy);
		*at = kept;
		if (kept == '\0')
			break;
	}
	memory_free(copy);
	return rc;
}
