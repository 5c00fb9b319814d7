/* SPDX-License-Identifier: Apache-2.0 */
#include "trust/key.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEX_BYTES   (2 * KEY_BYTES)
#define CHECK_BYTES 16u /* crypto_generichash gives no less; half of it is written */
#define CONTEXT	    "weft-key"

_Static_assert(crypto_box_PUBLICKEYBYTES == KEY_BYTES && crypto_box_SECRETKEYBYTES == KEY_BYTES &&
		       crypto_box_SEEDBYTES == KEY_BYTES && crypto_kdf_KEYBYTES == KEY_BYTES,
	       "all keys have 32 bytes");
_Static_assert(sizeof(CONTEXT) - 1 == crypto_kdf_CONTEXTBYTES, "the context has 8 characters");

static const char *const names[KEY_ROLES] = {[KEY_JOB] = "job",
					     [KEY_TRAINER] = "trainer",
					     [KEY_INFERENCE] = "inference",
					     [KEY_OBSERVER] = "observer"};

const char *key_role_name(enum key_role role)
{
	return names[role];
}

enum key_role key_role_find(const char *name)
{
	enum key_role role = KEY_JOB;

	while (role < KEY_ROLES && strcmp(names[role], name) != 0)
		role++;
	return role;
}

static int begin(struct error *error)
{
	if (sodium_init() >= 0)
		return 0;
	return error_set(error, ERROR_UNSUPPORTED,
			 "keys: libsodium cannot start; the kernel gives no random bytes");
}

void key_forget(struct key *key)
{
	sodium_memzero(key, sizeof(*key));
}

void key_pair_forget(struct key_pair *pair)
{
	sodium_memzero(pair, sizeof(*pair));
}

/* ---- derived ---- */

/* Of the job's secret; the role's number is part of what it is derived from, and never changes. */
static void derive(const unsigned char secret[KEY_BYTES], enum key_role role, struct key_pair *out)
{
	unsigned char seed[KEY_BYTES];

	crypto_kdf_derive_from_key(seed, sizeof(seed), (uint64_t)role, CONTEXT, secret);
	crypto_box_seed_keypair(out->public_key, out->secret, seed);
	sodium_memzero(seed, sizeof(seed));
}

int key_make(struct key *key, struct error *error)
{
	struct key_pair controller;
	int rc = begin(error);

	if (rc)
		return rc;
	key->role = KEY_JOB;
	randombytes_buf(key->secret, sizeof(key->secret));
	derive(key->secret, KEY_JOB, &controller);
	memcpy(key->controller, controller.public_key, KEY_BYTES);
	key_pair_forget(&controller);
	return 0;
}

int key_of_role(const struct key *job, enum key_role role, struct key *out, struct error *error)
{
	struct key_pair pair;
	int rc = begin(error);

	if (rc)
		return rc;
	if (job->role != KEY_JOB)
		return error_set(error, ERROR_CONFIG,
				 "keys of roles come from the job's own key; this is the one of %s",
				 names[job->role]);
	*out = *job;
	if (role == KEY_JOB)
		return 0;
	derive(job->secret, role, &pair);
	out->role = role;
	memcpy(out->secret, pair.secret, KEY_BYTES);
	key_pair_forget(&pair);
	return 0;
}

int key_pair(const struct key *key, enum key_role as, struct key_pair *out, struct error *error)
{
	int rc = begin(error);

	if (rc)
		return rc;
	if (key->role == KEY_JOB) {
		derive(key->secret, as, out);
		return 0;
	}
	if (key->role != as)
		return error_set(
			error, ERROR_CONFIG,
			"this key is good for %s alone, and %s is asked for; take the job's own"
			"%s%s",
			names[key->role], as == KEY_JOB ? "the controller's" : names[as],
			as == KEY_JOB ? "" : ", or one of role ", as == KEY_JOB ? "" : names[as]);
	memcpy(out->secret, key->secret, KEY_BYTES);
	crypto_scalarmult_base(out->public_key, out->secret);
	return 0;
}

char *key_id(const struct key *key, char out[KEY_ID_BYTES])
{
	unsigned char hash[CHECK_BYTES];

	crypto_generichash(hash, sizeof(hash), key->controller, KEY_BYTES, NULL, 0);
	return sodium_bin2hex(out, KEY_ID_BYTES, hash, KEY_ID_BYTES / 2);
}

/* ---- text ---- */

static void check_of(const char *text, size_t bytes, char out[CHECK_BYTES + 1])
{
	unsigned char hash[CHECK_BYTES];

	crypto_generichash(hash, sizeof(hash), (const unsigned char *)text, bytes, NULL, 0);
	sodium_bin2hex(out, CHECK_BYTES + 1, hash, CHECK_BYTES / 2);
}

size_t key_print(const struct key *key, char out[KEY_FILE_BYTES])
{
	char controller[HEX_BYTES + 1], secret[HEX_BYTES + 1], check[CHECK_BYTES + 1];
	int used;

	sodium_bin2hex(controller, sizeof(controller), key->controller, KEY_BYTES);
	sodium_bin2hex(secret, sizeof(secret), key->secret, KEY_BYTES);
	used = snprintf(out, KEY_FILE_BYTES, "weft-key 1 %s\ncontroller %s\nsecret %s\n",
			names[key->role], controller, secret);
	check_of(out, (size_t)used, check);
	sodium_memzero(secret, sizeof(secret));
	return (size_t)used +
	       (size_t)snprintf(out + used, KEY_FILE_BYTES - (size_t)used, "check %s\n", check);
}

/* The rest of the line behind "WORD ", of which *at is the start; NULL: another word stands there. */
static const char *take_line(const char **at, const char *end, const char *word, size_t *bytes)
{
	size_t length = strlen(word);
	const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));

	if (!stop || (size_t)(stop - line) <= length || memcmp(line, word, length) != 0 ||
	    line[length] != ' ')
		return NULL;
	*at = stop + 1;
	*bytes = (size_t)(stop - line) - length - 1;
	return line + length + 1;
}

static bool take_hex(const char **at, const char *end, const char *word,
		     unsigned char out[KEY_BYTES])
{
	size_t bytes, got;
	const char *text = take_line(at, end, word, &bytes);

	return text && bytes == HEX_BYTES &&
	       sodium_hex2bin(out, KEY_BYTES, text, bytes, NULL, &got, NULL) == 0 &&
	       got == KEY_BYTES;
}

static int bad_line(const char *name, const char *line, struct error *error)
{
	return error_set(error, ERROR_CONFIG,
			 "%s is no key file of weft: its line '%s' is missing or damaged; copy it "
			 "again, or make one with 'weft key make'",
			 name, line);
}

static bool take_head(struct key *key, const char **at, const char *end)
{
	size_t bytes;
	const char *text = take_line(at, end, "weft-key", &bytes);

	key->role = KEY_ROLES;
	for (unsigned role = 0; text && role < KEY_ROLES; role++)
		if (bytes == 2 + strlen(names[role]) && !memcmp(text, "1 ", 2) &&
		    !memcmp(text + 2, names[role], bytes - 2))
			key->role = (enum key_role)role;
	return key->role < KEY_ROLES;
}

int key_parse(struct key *key, const char *text, size_t bytes, const char *name,
	      struct error *error)
{
	const char *at = text, *end = text + bytes, *line;
	char check[CHECK_BYTES + 1];
	struct key_pair controller;
	size_t length;
	bool right;
	int rc = begin(error);

	if (rc)
		return rc;
	if (!take_head(key, &at, end))
		return bad_line(name, "weft-key 1 ROLE", error);
	if (!take_hex(&at, end, "controller", key->controller))
		return bad_line(name, "controller", error);
	if (!take_hex(&at, end, "secret", key->secret))
		return bad_line(name, "secret", error);
	check_of(text, (size_t)(at - text), check);
	line = take_line(&at, end, "check", &length);
	if (!line || length != CHECK_BYTES || memcmp(line, check, CHECK_BYTES) != 0 || at != end)
		return bad_line(name, "check", error);
	if (key->role != KEY_JOB)
		return 0;
	derive(key->secret, KEY_JOB, &controller);
	right = !memcmp(controller.public_key, key->controller, KEY_BYTES);
	key_pair_forget(&controller);
	return right ? 0 : bad_line(name, "controller", error);
}

/* ---- files ---- */

static int check_mode(const struct stat *about, const char *path, struct error *error)
{
	if (!S_ISREG(about->st_mode))
		return error_set(error, ERROR_CONFIG, "key file %s is no regular file", path);
	if (about->st_mode & (S_IRWXO | S_IWGRP | S_IXGRP))
		return error_set(
			error, ERROR_CONFIG,
			"key file %s has mode %03o: others may read or change it; chmod 600 "
			"(a Kubernetes Secret: defaultMode 0400, or 0440 with fsGroup), and "
			"make a new key if somebody has",
			path, about->st_mode & 0777u);
	if (about->st_uid != geteuid() && about->st_uid != 0)
		return error_set(error, ERROR_CONFIG,
				 "key file %s belongs to user %u, and this is user %u: it must be "
				 "this user's or root's",
				 path, about->st_uid, geteuid());
	return 0;
}

int key_read(struct key *key, const char *path, struct error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
	char text[KEY_FILE_BYTES];
	struct stat about;
	ssize_t bytes = 0;

	if (fd < 0)
		return error_set_errno(error, ERROR_CONFIG, errno, "key file %s", path);
	rc = fstat(fd, &about) ? error_set_errno(error, ERROR_IO, errno, "key file %s", path)
			       : check_mode(&about, path, error);
	if (!rc && (bytes = read(fd, text, sizeof(text))) < 0)
		rc = error_set_errno(error, ERROR_IO, errno, "key file %s", path);
	close(fd);
	if (!rc)
		rc = key_parse(key, text, (size_t)bytes, path, error);
	sodium_memzero(text, sizeof(text));
	if (rc)
		key_forget(key);
	return rc;
}

int key_write(const struct key *key, const char *path, struct error *error)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc = 0;
	char text[KEY_FILE_BYTES];
	size_t bytes;

	if (fd < 0 && errno == EEXIST)
		return error_set(error, ERROR_CONFIG,
				 "key file %s is there already, and may be in use: name another "
				 "file, or remove it first",
				 path);
	if (fd < 0)
		return error_set_errno(error, ERROR_CONFIG, errno, "cannot make key file %s", path);
	bytes = key_print(key, text);
	if (write(fd, text, bytes) != (ssize_t)bytes || fsync(fd))
		rc = error_set_errno(error, ERROR_IO, errno, "key file %s", path);
	sodium_memzero(text, sizeof(text));
	close(fd);
	if (rc)
		unlink(path);
	return rc;
}

void key_place_of(const char *path, struct key_place *place)
{
	struct stat about;

	*place = (struct key_place){0};
	if (lstat(path, &about) == 0)
		*place = (struct key_place){about.st_ino, about.st_ctim};
}

void key_remove(const char *path, const struct key_place *place)
{
	char folder[PATH_MAX];
	struct key_place now;
	char *slash;

	key_place_of(path, &now);
	if (!now.inode || now.inode != place->inode ||
	    now.changed.tv_sec != place->changed.tv_sec ||
	    now.changed.tv_nsec != place->changed.tv_nsec)
		return;
	unlink(path);
	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (!slash)
		return;
	*slash = '\0';
	rmdir(folder);
}
