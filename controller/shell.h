/* SPDX-License-Identifier: Apache-2.0
 *
 * shell.h -- the controller's outside: socket, clock, signals, files. Decides nothing.
 */
#ifndef CONTROLLER_SHELL_H
#define CONTROLLER_SHELL_H

#include "controller/channel.h"
#include "controller/core.h"
#include "controller/metrics.h"
#include "controller/traced.h"

struct shell_options {
	struct controller_options controller;
	struct channel_options channel; /* is_member is the shell's own */
	int parent;            /* whose end ends the job, by SIGTERM; 0: nobody's */
	const char *dump;      /* file for the routing table of each plan; NULL: none */
	struct metrics_options metrics;
	struct trace_names trace;
};

/* Runs one job to its end. SIGTERM, SIGINT and SIGHUP end it cleanly, SIGUSR1 logs one line of
 * state; these must be blocked in every thread of the process before the call
 * (shell_block_signals). Returns 0 when all workers left with their work done. */
int shell_run(const struct shell_options *options, struct error *error);
void shell_block_signals(void);

#endif
