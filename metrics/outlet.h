/* SPDX-License-Identifier: Apache-2.0
 *
 * outlet.h -- where metrics leave a process: a port (serve.h), and a file for node-exporter's textfile collector.
 *
 *                         ┌─ at most once in 0.1 s ──► HTTP, its thread         GET /metrics
 *   render(context, text) ┤
 *                         └─ every 5 s ──────────────► PATH, written whole and renamed, a thread
 *
 * Neither: no thread, no port. Threads: `render` runs on these two, one at a time, and with no lock of the caller's held; a caller
 * copies figures under a lock of its own that is held for that copy alone.
 */
#ifndef METRICS_OUTLET_H
#define METRICS_OUTLET_H

#include "metrics/serve.h"

struct outlet_options {
	const char *address, *file;           /* NULL, "" or "off": none. In file %h is the host, %p the process, %r `who` */
	const char *address_name, *file_name; /* as a message calls them: "--metrics" */
	const char *who;                      /* "t3", "controller" */
	serve_page *render;
	void *context;
};

struct outlet;
/* Something is to be served, or written. */
bool outlet_wanted(const struct outlet_options *options);
/* *outlet NULL: it has nothing to do. An error names the flag, its value, and what to do. */
int outlet_open(struct outlet **outlet, const struct outlet_options *options, struct error *error);
/* The file is written a last time. When it returns `render` is not running. NULL inside is fine. */
void outlet_close(struct outlet **outlet);

/* Of an option that has a variable: `given`, or where that is NULL or "" what the variable says, if anything does; and which of the
 * two it was. */
const char *outlet_choose(const char *given, const char *given_name, const char *variable, const char **name);

#endif
