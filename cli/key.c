/* SPDX-License-Identifier: Apache-2.0
 *
 * key.c -- `weft key make`, `role`, `show`: key files of jobs (trust/key.h, docs/trust.md).
 */
#include "cli/verb.h"
#include "cli/shown.h"
#include "trust/key.h"

#include <stdio.h>
#include <string.h>

struct options {
	const char *paths[2], *role;
};

static int made(const struct key *key, const char *path)
{
	char id[KEY_ID_BYTES];

	printf("%s: %s%s, job number %s\n", shown(path),
	       key->role == KEY_JOB ? "the key of a job" : "a key of role ",
	       key->role == KEY_JOB ? "" : key_role_name(key->role), key_id(key, id));
	return 0;
}

static int make(void *given, struct error *error)
{
	const struct options *options = given;
	struct key key;
	int rc = key_make(&key, error);

	if (!rc)
		rc = key_write(&key, options->paths[0], error);
	if (!rc)
		rc = made(&key, options->paths[0]);
	key_forget(&key);
	return rc;
}

static const struct verb_option no_rows[] = {{0}};
static const struct verb make_verb = {
	VERB_OF(struct options, no_rows),
	VERB_ARGUMENTS(struct options, paths, 1, 1),
	.arguments = "FILE",
	.doc = "Makes the key of a new job: who has it can be its controller and any of its workers.",
	.too_many = "unexpected argument '%s'",
	.too_few = "give the name of the file to make",
	.run = make,
};

static void take_role(void *options, const char *argument, struct argp_state *state)
{
	if (key_role_find(argument) == KEY_ROLES || !strcmp(argument, "job"))
		argp_error(state, "--role: '%s' is no role; it is trainer, inference or observer",
			   argument);
	((struct options *)options)->role = argument;
}

static const struct verb_option role_rows[] = {
	TAKE(take_role, "role", "ROLE", "trainer, inference or observer (needed)"), {0}};

static void need_role(void *options, struct argp_state *state)
{
	if (!((struct options *)options)->role)
		argp_error(state, "--role is needed: trainer, inference or observer");
}

static int of_role(void *given, struct error *error)
{
	const struct options *options = given;
	struct key job, key;
	int rc = key_read(&job, options->paths[0], error);

	if (!rc)
		rc = key_of_role(&job, key_role_find(options->role), &key, error);
	if (!rc)
		rc = key_write(&key, options->paths[1], error);
	if (!rc)
		rc = made(&key, options->paths[1]);
	key_forget(&job);
	key_forget(&key);
	return rc;
}

static const struct verb role_verb = {
	VERB_OF(struct options, role_rows),
	VERB_ARGUMENTS(struct options, paths, 2, 2),
	.arguments = "JOBFILE FILE",
	.doc = "Makes a file that is good for one role alone, out of the job's own.",
	.too_many = "unexpected argument '%s'",
	.too_few = "give two files, the job's and the one to make (%u given)",
	.check = need_role,
	.run = of_role,
};

static int show(void *given, struct error *error)
{
	const struct options *options = given;
	struct key key;
	int rc = key_read(&key, options->paths[0], error);

	if (!rc)
		rc = made(&key, options->paths[0]);
	key_forget(&key);
	return rc;
}

static const struct verb show_verb = {
	VERB_OF(struct options, no_rows),
	VERB_ARGUMENTS(struct options, paths, 1, 1),
	.arguments = "FILE",
	.doc = "Says whose key a file has, and of which job: files of one job show the same number. No "
	       "secret is shown.",
	.too_many = "unexpected argument '%s'",
	.too_few = "give a key file",
	.run = show,
};

const struct command key_commands[] = {
	{"key", "make", "the key of a new job, to keep strangers out", &make_verb},
	{"key", "role", "a key for one role alone, out of the job's", &role_verb},
	{"key", "show", "whose key a file has, and of which job", &show_verb},
	{0},
};
