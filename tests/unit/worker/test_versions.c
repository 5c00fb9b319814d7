/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/versions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Version 7 in copy 0 was published, 8 in copy 1 is prepared; `word` is looked at. */
static void prepare(struct versions *versions, const _Atomic uint64_t *word, bool checked)
{
	*versions = (struct versions){.copies = 2};
	versions_publish(versions, 0, 7);
	versions_follow(versions, word, checked);
	versions_open(versions, 1);
	versions_prepare(versions, 1, 8);
}

static void test_word__says_which_of_two_copies_readers_are_shown(void **unused)
{
	_Atomic uint64_t word = 7;
	struct versions versions;
	uint64_t version;

	(void)unused;
	prepare(&versions, &word, false);
	assert_true(versions_begin(&versions, &version));
	assert_int_equal(version, 7);
	word = 8;
	assert_true(versions_begin(&versions, &version));
	assert_int_equal(version, 8);
	assert_int_equal(versions_copy(&versions, 8), 1);
	word = 0;
	assert_false(versions_begin(&versions, &version));
}

static void test_word__that_a_peer_has_half_written_shows_the_version_before(void **unused)
{
	_Atomic uint64_t word[] = {7, ~(uint64_t)7};
	struct versions versions;
	uint64_t halves[] = {8, 0x0800000000000007};

	(void)unused;
	prepare(&versions, word, true);
	for (size_t i = 0; i < 2; i++) {
		word[0] = halves[i];
		assert_int_equal(versions_shown(&versions), 7);
	}
	word[0] = 8;
	word[1] = ~(uint64_t)8;
	assert_int_equal(versions_shown(&versions), 8);
	versions_publish(&versions, 1, 8);
	word[0] = 0;
	assert_int_equal(versions_shown(&versions), 8);
	word[1] = ~(uint64_t)0;
	assert_int_equal(versions_shown(&versions), 0);
}

static void test_hidden__readers_are_shown_none_and_who_reads_reads_on(void **unused)
{
	struct versions versions = {.copies = 2};
	uint64_t version;

	(void)unused;
	versions_publish(&versions, 0, 7);
	versions_hide(&versions, true);
	versions_publish(&versions, 1, 8);
	assert_false(versions_begin(&versions, &version));
	assert_true(versions_end(&versions, 7));
	assert_int_equal(versions_published(&versions), 8);
	versions_hide(&versions, false);
	assert_true(versions_begin(&versions, &version));
	assert_int_equal(version, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_word__says_which_of_two_copies_readers_are_shown),
		cmocka_unit_test(test_hidden__readers_are_shown_none_and_who_reads_reads_on),
		cmocka_unit_test(test_word__that_a_peer_has_half_written_shows_the_version_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
