/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor_system.h"

#include "base/compare.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

/* A path that is too long names nothing: it is cut to an empty one. */
static void expand(const struct system *system, char path[PATH_MAX], const char *format,
		   va_list arguments)
{
	size_t root = (size_t)snprintf(path, PATH_MAX, "%s", system->root);
	int wrote;

	if (root >= PATH_MAX) {
		path[0] = '\0';
		return;
	}
	wrote = vsnprintf(path + root, PATH_MAX - root, format, arguments);
	if (wrote < 0 || (size_t)wrote >= PATH_MAX - root)
		path[0] = '\0';
}

#define EXPAND(system, path, format)                         \
	do {                                                 \
		va_list arguments;                           \
		va_start(arguments, format);                 \
		expand((system), (path), format, arguments); \
		va_end(arguments);                           \
	} while (0)

const char *system_path(const struct system *system, char path[PATH_MAX], const char *format, ...)
{
	EXPAND(system, path, format);
	return path;
}

int system_exists(const struct system *system, const char *format, ...)
{
	char path[PATH_MAX];

	EXPAND(system, path, format);
	return access(path, F_OK) == 0 ? 0 : errno;
}

static int read_path(const char *path, char *text, size_t bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t length = 0;
	ssize_t got = 0;
	int errnum;

	text[0] = '\0';
	if (fd < 0)
		return errno;
	while (length + 1 < bytes && (got = read(fd, text + length, bytes - 1 - length)) > 0)
		length += (size_t)got;
	errnum = got < 0 ? errno : 0;
	close(fd);
	if (errnum)
		length = 0;
	while (length && (text[length - 1] == '\n' || text[length - 1] == '\0'))
		length--;
	text[length] = '\0';
	return errnum;
}

int system_read(const struct system *system, char *text, size_t bytes, const char *format, ...)
{
	char path[PATH_MAX];

	EXPAND(system, path, format);
	return read_path(path, text, bytes);
}

bool system_read_u64(const struct system *system, uint64_t *value, const char *format, ...)
{
	char path[PATH_MAX], text[64];

	EXPAND(system, path, format);
	return read_path(path, text, sizeof(text)) == 0 && parse_u64(text, value);
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(a, b);
}

int system_list(const struct system *system, system_names *names, const char *format, ...)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *folder;

	EXPAND(system, path, format);
	folder = opendir(path);
	if (!folder)
		return errno;
	while ((entry = readdir(folder)) != NULL) {
		struct system_name *name;

		if (entry->d_name[0] == '.')
			continue;
		name = array_push(names);
		if (!name) {
			closedir(folder);
			return ENOMEM;
		}
		snprintf(name->text, sizeof(name->text), "%s", entry->d_name);
	}
	closedir(folder);
	sort_items(names->items, names->count, by_name);
	return 0;
}

int system_link(const struct system *system, char *text, size_t bytes, const char *format, ...)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *last;
	ssize_t length;

	text[0] = '\0';
	EXPAND(system, path, format);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return errno;
	target[length] = '\0';
	last = strrchr(target, '/');
	snprintf(text, bytes, "%s", last ? last + 1 : target);
	return 0;
}

bool system_field(const char *text, const char *key, char *value, size_t bytes)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, length) != 0 || !strchr(": \t", line[length]))
			continue;
		line += length;
		line += strspn(line, ": \t");
		snprintf(value, bytes, "%.*s", (int)strcspn(line, "\n"), line);
		return true;
	}
	return false;
}

/* "mlx5_0 hca_handle=2 hca_object=max" */
static void add_limits(system_rdma_limits *limits, const char *path, const char *text)
{
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		char device[64], handles[32], objects[32];
		struct system_rdma_limit *limit;

		if (sscanf(line, "%63s hca_handle=%31s hca_object=%31s", device, handles,
			   objects) != 3)
			continue;
		limit = array_push(limits);
		if (!limit)
			return;
		snprintf(limit->path, sizeof(limit->path), "%s", path);
		snprintf(limit->device, sizeof(limit->device), "%s", device);
		if (!parse_u64(handles, &limit->handles))
			limit->handles = UINT64_MAX;
		if (!parse_u64(objects, &limit->objects))
			limit->objects = UINT64_MAX;
	}
}

/* The cgroup and every one above it: the smallest limit holds. */
static void climb(const struct system *system, system_rdma_limits *limits, const char *mount,
		  const char *group, bool *controller)
{
	char path[SYSTEM_TEXT_BYTES], text[4096];
	char *end;

	snprintf(path, sizeof(path), "%s", group);
	for (;;) {
		char shown[2 * SYSTEM_TEXT_BYTES];

		while ((end = strrchr(path, '/')) != NULL && end[1] == '\0')
			*end = '\0';
		snprintf(shown, sizeof(shown), "%s%s/rdma.max", mount, path);
		if (system_read(system, text, sizeof(text), "%s", shown) == 0) {
			*controller = true;
			add_limits(limits, shown, text);
		}
		end = strrchr(path, '/');
		if (!end)
			return;
		*end = '\0';
	}
}

void system_rdma_limits_read(const struct system *system, system_rdma_limits *limits,
			     bool *controller)
{
	char text[8192];

	*controller = false;
	if (system_read(system, text, sizeof(text), "/proc/self/cgroup"))
		return;
	for (char *line = text, *next; line && *line; line = next) {
		char *names = strchr(line, ':'), *group;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		group = names ? strchr(names + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		names++;
		if (*names == '\0')
			climb(system, limits, "/sys/fs/cgroup", group, controller);
		else if (strcmp(names, "rdma") == 0)
			climb(system, limits, "/sys/fs/cgroup/rdma", group, controller);
	}
}
