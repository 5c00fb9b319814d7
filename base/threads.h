/* SPDX-License-Identifier: Apache-2.0
 *
 * threads.h -- one piece of work shared out to threads of this call.
 */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <pthread.h>
#include <stdint.h>

#define THREADS_MAX 64u

/* pthread_create with all signals blocked in the thread: they go to the host's. Its errno, or 0. */
int threads_start(pthread_t *thread, void *(*body)(void *context), void *context);

/* The calling thread, for what is done beside everything else: its name for debuggers, 15 characters at most, and a lower priority. */
void threads_step_back(const char *name);

uint32_t threads_here(void); /* processors that this process may run on, 1 to THREADS_MAX */

/* Runs body(context) on `count` threads at once, the caller's among them, until all have returned.
 * The bodies share the work out themselves (a counter): what one thread leaves the others do, so
 * it is all done too where the system starts fewer threads. Signals go to the caller's thread. */
void threads_run(uint32_t count, void (*body)(void *context), void *context);

#endif
