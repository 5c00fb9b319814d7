/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ofi/calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libfabric.so.1"

/* The versions of the symbols that the headers of OFI_API are for: a later one may fill longer structs. */
static const struct {
	const char *name, *version;
	size_t at;
} rows[] = {
	{"fi_getinfo", "FABRIC_1.3", offsetof(struct ofi_calls, getinfo)},
	{"fi_freeinfo", "FABRIC_1.3", offsetof(struct ofi_calls, freeinfo)},
	{"fi_dupinfo", "FABRIC_1.3", offsetof(struct ofi_calls, dupinfo)},
	{"fi_fabric", "FABRIC_1.1", offsetof(struct ofi_calls, fabric)},
	{"fi_version", "FABRIC_1.0", offsetof(struct ofi_calls, version)},
	{"fi_strerror", "FABRIC_1.0", offsetof(struct ofi_calls, strerror)},
};

static struct ofi_calls opened;
static char failure[256]; /* "": it is open */
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
	void *library = open_without_handlers(), *found;

	if (!library)
		snprintf(failure, sizeof(failure), "%s", dlerror());
	for (size_t i = 0; !*failure && i < sizeof(rows) / sizeof(rows[0]); i++) {
		found = dlvsym(library, rows[i].name, rows[i].version);
		if (!found)
			snprintf(failure, sizeof(failure), "%s", dlerror());
		/* ISO C has no cast between the two kinds of pointers */
		memcpy((char *)&opened + rows[i].at, &found, sizeof(found));
	}
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
