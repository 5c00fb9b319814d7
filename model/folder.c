/* SPDX-License-Identifier: Apache-2.0 */
#include "model/folder.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/layout_file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool our_file(const char *name)
{
	return strcmp(name, "config.json") == 0 || strcmp(name, LAYOUT_FILE_NAME) == 0 ||
	       strcmp(name, "model.safetensors.index.json") == 0 ||
	       (strncmp(name, "model", 5) == 0 && text_ends(name, ".safetensors"));
}

/* Walks a folder: finds a foreign file (refused), or with `remove` unlinks ours. */
static int walk_folder(const char *path, bool remove, struct error *error)
{
	DIR *stream = opendir(path);
	struct dirent *entry;
	int rc = 0;

	if (!stream)
		return file_error(error, "read", path);
	while (rc == 0 && (entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (!our_file(entry->d_name))
			rc = error_set(error, ERROR_IO,
				       "%s holds %.200s, which is no part of a made checkpoint; it "
				       "is not replaced: move it away or choose another folder",
				       path, entry->d_name);
		else if (remove && unlinkat(dirfd(stream), entry->d_name, 0) != 0)
			rc = error_set_errno(error, ERROR_IO, errno, "cannot remove %s/%.200s",
					     path, entry->d_name);
	}
	closedir(stream);
	return rc;
}

static int remove_folder(const char *path, struct error *error)
{
	int rc = walk_folder(path, true, error);

	if (rc == 0 && rmdir(path) != 0)
		rc = file_error(error, "remove", path);
	return rc;
}

static int check_target(const struct folder *folder, struct error *error)
{
	struct stat status;

	if (lstat(folder->path, &status) != 0)
		return errno == ENOENT ? 0 : file_error(error, "read", folder->path);
	if (!folder->replace)
		return error_set(error, ERROR_IO,
				 "%s exists already; remove it or ask to replace it (--force)",
				 folder->path);
	if (!S_ISDIR(status.st_mode))
		return error_set(error, ERROR_IO, "%s is not a folder; it is not replaced",
				 folder->path);
	return walk_folder(folder->path, false, error);
}

static int check_space(const struct folder *folder, uint64_t bytes, uint64_t beside,
		       struct error *error)
{
	char need[TEXT_SHORT_BYTES], more[TEXT_SHORT_BYTES], have[TEXT_SHORT_BYTES];
	struct statvfs status;
	uint64_t available;

	/* a file system that cannot say is asked by writing */
	if (statvfs(folder->partial, &status) != 0)
		return 0;
	available = (uint64_t)status.f_bavail * status.f_frsize;
	if (available >= bytes + beside)
		return 0;
	return error_set(error, ERROR_IO,
			 "%s needs %s for tensors and up to %s for headers, index and config, but "
			 "its disk has %s left",
			 folder->path, bytes_text(bytes, need), bytes_text(beside, more),
			 bytes_text(available, have));
}

static void let_go(struct folder *folder)
{
	close(folder->lock);
	folder->lock = -1;
}

/* Bytes on disk of the files in a folder. */
static uint64_t folder_bytes(const char *path)
{
	DIR *stream = opendir(path);
	struct dirent *entry;
	struct stat status;
	uint64_t bytes = 0;

	while (stream && (entry = readdir(stream)))
		if (fstatat(dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(status.st_mode))
			bytes += (uint64_t)status.st_blocks * 512;
	if (stream)
		closedir(stream);
	return bytes;
}

static int refuse_left(const struct folder *folder, struct error *error)
{
	return error_set(
		error, ERROR_IO,
		"%s is what a run that was killed left of %s (%s): remove it (rm -r -- '%s') "
		"or write it anew with --force",
		folder->partial, folder->path, BYTES_TEXT(folder_bytes(folder->partial)),
		folder->partial);
}

/* Creates the partial folder, or with `replace` takes it over. One that nobody has locked is what a
 * killed run left: its files go when that was asked for, and never without. */
static int take_partial(struct folder *folder, struct error *error)
{
	bool fresh = mkdir(folder->partial, 0777) == 0;
	struct stat by_path, by_lock;

	if (!fresh && errno != EEXIST)
		return file_error(error, "make", folder->partial);
	folder->lock = open(folder->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder->lock < 0)
		return file_error(error, "open", folder->partial);
	if (flock(folder->lock, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || !fresh)) {
		let_go(folder);
		return error_set(error, ERROR_IO, "another process is writing %s (it holds %s)",
				 folder->path, folder->partial);
	}
	/* the one before us may have finished and renamed the folder that we have just locked */
	if (fstat(folder->lock, &by_lock) != 0 || stat(folder->partial, &by_path) != 0 ||
	    by_lock.st_ino != by_path.st_ino || by_lock.st_dev != by_path.st_dev) {
		let_go(folder);
		return error_set(error, ERROR_IO, "another process has just written %s",
				 folder->path);
	}
	if (fresh)
		return 0;
	if (folder->replace)
		return walk_folder(folder->partial, true, error);
	let_go(folder);
	return refuse_left(folder, error);
}

/* path without trailing slashes, and the hidden name beside it. */
static int name_folder(struct folder *folder, const char *path, struct error *error)
{
	size_t length = strlen(path);
	const char *slash, *name;

	while (length > 1 && path[length - 1] == '/')
		length--;
	folder->path = memory_format("%.*s", (int)length, path);
	if (!folder->path)
		return memory_error(error, "naming a folder", length);
	slash = strrchr(folder->path, '/');
	name = slash ? slash + 1 : folder->path;
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return error_set(error, ERROR_USAGE,
				 "'%s' is not the name of a folder that can be made", path);
	folder->partial = memory_format("%.*s.%s.weft-partial", (int)(name - folder->path),
					folder->path, name);
	if (!folder->partial)
		return memory_error(error, "naming a folder", length);
	return 0;
}

static int make_parent(const struct folder *folder, struct error *error)
{
	const char *slash = strrchr(folder->path, '/');
	char *parent;
	int rc;

	if (!slash || slash == folder->path)
		return 0;
	parent = memory_format("%.*s", (int)(slash - folder->path), folder->path);
	if (!parent)
		return memory_error(error, "naming a folder", strlen(folder->path));
	rc = file_make_directory(parent, error);
	memory_free(parent);
	return rc;
}

int folder_begin(struct folder *folder, const char *path, bool replace, uint64_t bytes,
		 uint64_t beside, struct error *error)
{
	int rc;

	*folder = (struct folder){.lock = -1, .replace = replace};
	rc = name_folder(folder, path, error);
	if (rc == 0)
		rc = check_target(folder, error);
	if (rc == 0)
		rc = make_parent(folder, error);
	if (rc == 0)
		rc = take_partial(folder, error);
	if (rc == 0)
		rc = check_space(folder, bytes, beside, error);
	if (rc)
		folder_abort(folder);
	return rc;
}

/* For file systems that cannot exchange two names: a moment without the folder, but never a
 * moment with half of it. */
static int replace_in_steps(const struct folder *folder, struct error *error)
{
	char *old = memory_format("%s.old", folder->partial);
	int rc = 0;

	if (!old)
		return memory_error(error, "naming a folder", strlen(folder->partial));
	if (rename(folder->path, old) != 0)
		rc = error_set_errno(error, ERROR_IO, errno, "cannot move %s aside", folder->path);
	else if (rename(folder->partial, folder->path) != 0) {
		rc = error_set_errno(error, ERROR_IO, errno, "cannot rename %s to %s",
				     folder->partial, folder->path);
		rename(old, folder->path);
	} else {
		rc = remove_folder(old, error);
	}
	memory_free(old);
	return rc;
}

/* Swaps the two names, then removes what was replaced. For that moment the old folder has the
 * partial name: it is locked, so that nobody takes it for what a killed run left. Positive when
 * the file system cannot swap. */
static int exchange(const struct folder *folder, struct error *error)
{
	int old = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int rc = 1;

	if (old < 0)
		return file_error(error, "open", folder->path);
	/* waits only for the one that has just published it and is about to let go */
	TEMP_FAILURE_RETRY(flock(old, LOCK_EX));
	if (renameat2(AT_FDCWD, folder->partial, AT_FDCWD, folder->path, RENAME_EXCHANGE) == 0)
		rc = remove_folder(folder->partial, error);
	close(old);
	return rc;
}

int folder_commit(struct folder *folder, struct error *error)
{
	int rc = check_target(folder, error);

	if (rc)
		return rc;
	if (renameat2(AT_FDCWD, folder->partial, AT_FDCWD, folder->path, RENAME_NOREPLACE) != 0) {
		bool there = errno == EEXIST || access(folder->path, F_OK) == 0;

		if (there && !folder->replace)
			rc = error_set(error, ERROR_IO, "%s was made by someone else meanwhile",
				       folder->path);
		else if (there)
			rc = exchange(folder, error);
		else if (rename(folder->partial, folder->path) != 0)
			rc = error_set_errno(error, ERROR_IO, errno, "cannot rename %s to %s",
					     folder->partial, folder->path);
		if (rc > 0)
			rc = replace_in_steps(folder, error);
	}
	if (rc == 0)
		let_go(folder);
	return rc;
}

void folder_abort(struct folder *folder)
{
	if (folder->lock >= 0) {
		remove_folder(folder->partial, NULL);
		close(folder->lock);
	}
	memory_free(folder->path);
	memory_free(folder->partial);
	*folder = (struct folder){.lock = -1};
}

bool folder_left(const char *path, struct folder_left *left)
{
	struct folder folder = {.lock = -1};
	bool found = name_folder(&folder, path, NULL) == 0;
	int lock = -1;

	*left = (struct folder_left){0};
	if (found)
		lock = open(folder.partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* who writes it holds the lock; a shared one is enough to ask, and disturbs nobody for long */
	found = lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) == 0;
	if (lock >= 0)
		close(lock);
	if (found) {
		left->bytes = folder_bytes(folder.partial);
		left->partial = folder.partial;
		folder.partial = NULL;
	}
	folder_abort(&folder);
	return found;
}

bool folder_is_partial(const char *path)
{
	static const char suffix[] = ".weft-partial";
	char whole[PATH_MAX];
	const char *at;

	if (!realpath(path, whole))
		return false;
	at = strstr(whole, suffix);
	return at && (!at[sizeof(suffix) - 1] || at[sizeof(suffix) - 1] == '/');
}
