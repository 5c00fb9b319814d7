/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_key.c -- the job's key: a file that the user names, or, for --controller auto on one host, one
 * that rank 0 makes and the others wait for:
 *
 *   $XDG_RUNTIME_DIR or /tmp
 *     weft-auto-UID-PORT/    of this user, 0700
 *       key                  put there whole by rank 0, removed by the controller at its end
 *
 * One that an earlier launch left there is of no use: no controller has it, and whoever took it looks
 * again until he was heard (worker/control/control.c).
 */
#include "worker/launch/launch_key.h"

#include "base/array.h"
#include "base/text.h"
#include "trust/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* Whether the launcher says that all workers are on this host (`one`), or that they are not. */
static bool said(const weft_launch *launch, bool one)
{
	static const char *const local[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"};
	const char *host = variable("MASTER_ADDR");
	uint64_t count;

	for (size_t i = 0; i < ARRAY_SIZE(local); i++)
		if (variable(local[i]) && parse_u64(variable(local[i]), &count) &&
		    launch->world >= 0)
			return (count == (uint64_t)launch->world) == one;
	return one && host &&
	       (!strncmp(host, "127.", 4) || !strcmp(host, "localhost") || !strcmp(host, "::1"));
}

static int auto_key(weft_launch *launch, struct error *error)
{
	const char *base = variable("XDG_RUNTIME_DIR"), *port = strrchr(launch->controller, ':');
	const char *insecure = variable("WEFT_INSECURE");
	bool without_key = false;
	int n;

	if (insecure && !parse_flag(insecure, &without_key))
		return error_set(error, ERROR_CONFIG, "WEFT_INSECURE: '%.60s' is neither 1 nor 0",
				 insecure);
	if (said(launch, false) && !without_key)
		return error_set(
			error, ERROR_CONFIG,
			"controller 'auto' over several hosts needs a key that all of them "
			"have: make one with 'weft key make FILE', put it on each host and "
			"set WEFT_KEY_FILE (or --key); WEFT_INSECURE=1 goes without, and lets "
			"whoever reaches %s join",
			launch->controller);
	if (!said(launch, true)) /* the controller says what it needs */
		return 0;
	if (!base || access(base, W_OK | X_OK))
		base = "/tmp";
	n = snprintf(launch->key_file, sizeof(launch->key_file), "%s/weft-auto-%u-%s/key", base,
		     geteuid(), port ? port + 1 : "0");
	launch->key_waits = 1;
	if (n < (int)sizeof(launch->key_file))
		return 0;
	return error_set(error, ERROR_CONFIG, "XDG_RUNTIME_DIR '%.200s' is too long for a key file",
			 base);
}

int launch_find_key(weft_launch *launch, bool automatic, struct error *error)
{
	const char *given = variable("WEFT_KEY_FILE");

	launch->key_waits = 0;
	launch->key_file[sizeof(launch->key_file) - 1] = 0;
	if (launch->key_file[0])
		return 0;
	if (!given)
		return automatic ? auto_key(launch, error) : 0;
	if (strlen(given) >= sizeof(launch->key_file))
		return error_set(error, ERROR_CONFIG,
				 "WEFT_KEY_FILE has %zu characters, at most %zu are possible",
				 strlen(given), sizeof(launch->key_file) - 1);
	snprintf(launch->key_file, sizeof(launch->key_file), "%s", given);
	return 0;
}

/* Nobody else may have put it there, or look into it. */
static int own_folder(const char *folder, struct error *error)
{
	struct stat about;

	if (mkdir(folder, 0700) && errno != EEXIST)
		return error_set_errno(error, ERROR_IO, errno, "the key's folder %s", folder);
	if (lstat(folder, &about))
		return error_set_errno(error, ERROR_IO, errno, "the key's folder %s", folder);
	if (S_ISDIR(about.st_mode) && about.st_uid == geteuid() && !(about.st_mode & 077))
		return 0;
	return error_set(
		error, ERROR_CONFIG,
		"%s, where the key of --controller auto goes, is not a folder of this user "
		"alone (owner %u, mode %03o): remove it, or give WEFT_KEY_FILE",
		folder, about.st_uid, about.st_mode & 0777u);
}

int launch_make_key(const char *path, struct key_place *place, struct error *error)
{
	char folder[sizeof(((weft_launch *)0)->key_file)], fresh[sizeof(folder) + 8];
	struct key key;
	int rc;

	snprintf(folder, sizeof(folder), "%s", path);
	*strrchr(folder, '/') = '\0';
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	rc = own_folder(folder, error);
	if (!rc)
		rc = key_make(&key, error);
	if (rc)
		return rc;
	unlink(fresh); /* of a rank 0 that was killed here */
	rc = key_write(&key, fresh, error);
	key_forget(&key);
	if (!rc && rename(fresh, path)) {
		rc = error_set_errno(error, ERROR_IO, errno, "key file %s", path);
		unlink(fresh);
	}
	key_place_of(path, place);
	return rc;
}
