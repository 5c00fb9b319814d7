/* SPDX-License-Identifier: Apache-2.0
 *
 * In programs of tests that have one thread (tests/CMakeLists.txt) and are therefore not built for TSan: a second one,
 * whoever starts it, fails the test in every other build. Only ctest asks for that: on a real GPU
 * (tests/gpu/run) the driver starts threads.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
							  const pthread_attr_t *attributes,
							  void *(*start)(void *), void *argument)
{
	void *symbol = dlsym(RTLD_NEXT, "pthread_create");
	create_fn *create;

	if (getenv("WEFT_TEST_ONE_THREAD")) {
		fprintf(stderr, "a test of one thread starts another, so it is for TSan too: "
				"name it in `threads` of tests/CMakeLists.txt\n");
		abort();
	}
	memcpy(&create, &symbol, sizeof(create));
	return create(thread, attributes, start, argument);
}
