/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/calls.h"

#include "base/array.h"
#include "base/library.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libfabric.so.1"
#define CALLS(X)                  \
	X(getinfo, "FABRIC_1.3")  \
	X(freeinfo, "FABRIC_1.3") \
	X(dupinfo, "FABRIC_1.3")  \
	X(fabric, "FABRIC_1.1")   \
	X(version, "FABRIC_1.0")  \
	X(strerror, "FABRIC_1.0")

static const struct library_row rows[] = {
#define X(name, version) {"fi_" #name, version, offsetof(struct ofi_calls, name)},
	CALLS(X)
#undef X
};

static struct ofi_calls opened;
static char failure[LIBRARY_WHY_BYTES]; /* "": it is open */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Debian's library is linked to a driver (infinipath) whose constructor takes the handlers of INT, TERM, SEGV, BUS,
 * ILL and ABRT, to end the process with 1 and no word. They are the host's. Threads of ours take no signal, so in
 * our programs one that comes meanwhile waits for its own handler. */
static void *open_without_handlers(void)
{
	struct sigaction before[NSIG], after;
	bool known[NSIG] = {false};
	sigset_t all, mask;
	void *library;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	for (int i = 1; i < NSIG; i++)
		known[i] = sigaction(i, NULL, &before[i]) == 0;
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	for (int i = 1; i < NSIG; i++)
		if (known[i] && sigaction(i, NULL, &after) == 0 &&
		    after.sa_handler != before[i].sa_handler)
			sigaction(i, &before[i], NULL);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return library;
}

static void open_library(void)
{
	library_fill(open_without_handlers(), rows, ARRAY_SIZE(rows), &opened, failure);
}

const struct ofi_calls *ofi_calls_open(struct error *error)
{
	pthread_once(&once, open_library);
	if (!*failure)
		return &opened;
	error_set(
		error, ERROR_UNSUPPORTED,
		"libfabric cannot be opened: %s; install Debian's libfabric1, or put another " LIBRARY
		" of version 1.17 or newer into LD_LIBRARY_PATH",
		failure);
	return NULL;
}

const char *ofi_strerror(int errnum)
{
	const struct ofi_calls *calls = ofi_calls_open(NULL);

	return calls ? calls->strerror(errnum) : strerror(errnum);
}
