/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "trust/key.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/weft-key-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static const char *path_of(const char *name)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static struct key new_key(void)
{
	struct error error;
	struct key key;

	assert_int_equal(key_make(&key, &error), 0);
	return key;
}

static struct key_pair pair_of(const struct key *key, enum key_role role)
{
	struct key_pair pair;
	struct error error;

	assert_int_equal(key_pair(key, role, &pair, &error), 0);
	return pair;
}

static void test_key__of_a_role_gives_the_pair_that_the_jobs_key_gives(void **state)
{
	struct key job = new_key();
	struct error error;

	(void)state;
	for (int role = KEY_TRAINER; role < KEY_ROLES; role++) {
		struct key_pair both = pair_of(&job, (enum key_role)role), own;
		struct key key;

		assert_int_equal(key_of_role(&job, (enum key_role)role, &key, &error), 0);
		assert_memory_equal(key.controller, pair_of(&job, KEY_JOB).public_key, KEY_BYTES);
		own = pair_of(&key, (enum key_role)role);
		assert_memory_equal(&own, &both, sizeof(own));
		for (int other = KEY_JOB; other < KEY_ROLES; other++)
			if (other != role)
				assert_int_equal(key_pair(&key, (enum key_role)other, &own, &error),
						 -ERROR_CONFIG);
		assert_int_equal(key_of_role(&key, KEY_TRAINER, &key, &error), -ERROR_CONFIG);
	}
}

static void test_keys__of_two_roles_or_jobs_share_nothing(void **state)
{
	struct key jobs[2] = {new_key(), new_key()};
	struct key_pair pairs[2 * KEY_ROLES];

	(void)state;
	for (int i = 0; i < 2 * KEY_ROLES; i++) {
		pairs[i] = pair_of(&jobs[i / KEY_ROLES], (enum key_role)(i % KEY_ROLES));
		for (int k = 0; k < i; k++) {
			assert_memory_not_equal(pairs[i].secret, pairs[k].secret, KEY_BYTES);
			assert_memory_not_equal(pairs[i].public_key, pairs[k].public_key,
						KEY_BYTES);
		}
	}
}

static void test_file__comes_back_as_it_was_written_and_only_for_its_owner(void **state)
{
	struct key job = new_key(), back;
	struct error error;
	struct stat about;

	(void)state;
	for (int role = KEY_JOB; role < KEY_ROLES; role++) {
		const char *path = path_of(key_role_name((enum key_role)role));
		struct key key;

		assert_int_equal(key_of_role(&job, (enum key_role)role, &key, &error), 0);
		assert_int_equal(key_write(&key, path, &error), 0);
		assert_int_equal(stat(path, &about), 0);
		assert_int_equal(about.st_mode & 07777, 0600);
		assert_int_equal(key_read(&back, path, &error), 0);
		assert_memory_equal(&back, &key, sizeof(key));
		assert_int_equal(key_write(&key, path, &error), -ERROR_CONFIG);
		assert_non_null(strstr(error.text, "is there already"));
	}
}

static void test_file__that_others_may_read_is_refused(void **state)
{
	static const mode_t refused[] = {0604, 0620, 0602, 0644, 0666, 0610, 0601},
			    taken[] = {0600, 0400, 0440, 0640};
	const char *path = path_of("modes");
	struct key key = new_key();
	struct error error;

	(void)state;
	assert_int_equal(key_write(&key, path, &error), 0);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_int_equal(chmod(path, refused[i]), 0);
		assert_int_equal(key_read(&key, path, &error), -ERROR_CONFIG);
		assert_non_null(strstr(error.text, "chmod 600"));
	}
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		assert_int_equal(chmod(path, taken[i]), 0);
		assert_int_equal(key_read(&key, path, &error), 0);
	}
	assert_int_equal(key_read(&key, folder, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "no regular file"));
	assert_int_equal(key_read(&key, path_of("none"), &error), -ERROR_CONFIG);
}

/* Whatever is changed, cut or added is found, and no message tells what is in the file. */
static void test_text__that_is_damaged_anywhere_is_refused(void **state)
{
	struct key job = new_key(), key, back;
	char text[KEY_FILE_BYTES], secret[2 * KEY_BYTES + 1];
	struct error error;

	(void)state;
	for (int role = KEY_JOB; role < KEY_ROLES; role++) {
		size_t bytes;

		assert_int_equal(key_of_role(&job, (enum key_role)role, &key, &error), 0);
		bytes = key_print(&key, text);
		memcpy(secret, strstr(text, "secret ") + 7, sizeof(secret) - 1);
		secret[sizeof(secret) - 1] = 0;
		assert_int_equal(key_parse(&back, text, bytes, "k", &error), 0);
		for (size_t at = 0; at < bytes; at++) {
			char before = text[at];

			for (int bit = 0; bit < 8; bit++) {
				text[at] = (char)(before ^ 1 << bit);
				assert_int_equal(key_parse(&back, text, bytes, "k", &error),
						 -ERROR_CONFIG);
				assert_null(strstr(error.text, secret));
			}
			text[at] = before;
			assert_int_equal(key_parse(&back, text, at, "k", &error), -ERROR_CONFIG);
		}
		text[bytes] = '\n';
		assert_int_equal(key_parse(&back, text, bytes + 1, "k", &error), -ERROR_CONFIG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key__of_a_role_gives_the_pair_that_the_jobs_key_gives),
		cmocka_unit_test(test_keys__of_two_roles_or_jobs_share_nothing),
		cmocka_unit_test(test_file__comes_back_as_it_was_written_and_only_for_its_owner),
		cmocka_unit_test(test_file__that_others_may_read_is_refused),
		cmocka_unit_test(test_text__that_is_damaged_anywhere_is_refused),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
