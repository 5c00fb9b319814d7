/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries that are opened when they are wanted. This program's own dlopen() hides RDMA's two from it, as on a host
 * that has not got them.
 */
#include "base/array.h"
#include "base/library.h"
#include "transport/transport.h"
#include "transport/verbs/calls.h"
#include "transport/verbs/resolver.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WHY(library) library ".gone: cannot open shared object file: No such file or directory"

void *dlopen(const char *file, int flags)
{
	void *(*opens)(const char *, int);
	void *found = dlsym(RTLD_NEXT, "dlopen");
	bool hidden = file && (strstr(file, "libibverbs.so") || strstr(file, "librdmacm.so"));
	char name[4096];

	memcpy(&opens, &found, sizeof(opens));
	snprintf(name, sizeof(name), "%s.gone", hidden ? file : "");
	return opens(hidden ? name : file, flags);
}

static void test_a_symbol_that_is_not_there__is_named_with_its_version(void **unused)
{
	static const struct library_row rows[] = {{"no_such_function", "WEFT_7", 0}};
	void *table[1] = {NULL};
	char why[LIBRARY_WHY_BYTES];

	(void)unused;
	assert_false(library_fill(dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL), rows,
				  ARRAY_SIZE(rows), table, why));
	assert_non_null(strstr(why, "libc.so.6: "));
	assert_non_null(strstr(why, "no_such_function"));
	assert_non_null(strstr(why, "WEFT_7"));
	assert_null(table[0]);
}

static void test_a_library_that_is_not_there__is_told_in_the_loaders_words(void **unused)
{
	char why[LIBRARY_WHY_BYTES];

	(void)unused;
	assert_false(
		library_fill(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL), NULL, 0, NULL, why));
	assert_string_equal(why, WHY("libibverbs.so.1"));
}

static void test_verbs__without_libibverbs_names_the_packages_that_bring_it(void **unused)
{
	struct transport_options options = {.secret = 1};
	struct transport_domain *domain = NULL;
	struct error error = {0};

	(void)unused;
	assert_string_equal(verbs_calls_system()->missing,
			    "libibverbs cannot be opened: " WHY("libibverbs.so.1"));
	assert_int_equal(transport_domain_open(&domain, "verbs", &options, &error),
			 -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "libibverbs cannot be opened: " WHY("libibverbs.so.1")));
	assert_non_null(strstr(error.text, VERBS_INSTALL));
}

static void test_routes__without_librdmacm_name_the_package_that_brings_it(void **unused)
{
	struct resolver_path path;
	struct error error = {0};

	(void)unused;
	assert_string_equal(resolver_missing(),
			    "librdmacm cannot be opened: " WHY("librdmacm.so.1"));
	assert_int_equal(resolver_resolve("127.0.0.1", NULL, 1000, &path, &error),
			 -ERROR_UNSUPPORTED);
	if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0)
		assert_string_equal(error.text, "librdmacm cannot be opened: " WHY(
							"librdmacm.so.1") "; " RESOLVER_INSTALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_symbol_that_is_not_there__is_named_with_its_version),
		cmocka_unit_test(test_a_library_that_is_not_there__is_told_in_the_loaders_words),
		cmocka_unit_test(test_verbs__without_libibverbs_names_the_packages_that_bring_it),
		cmocka_unit_test(test_routes__without_librdmacm_name_the_package_that_brings_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
