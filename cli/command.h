/* SPDX-License-Identifier: Apache-2.0
 *
 * command.h -- the `weft` tool: one row a subcommand, one file a noun.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

struct verb;

struct command {
	const char *noun, *verb; /* verb NULL: the noun alone is the command */
	const char *what;        /* one line for `weft --help` */
	const struct verb *takes; /* and does (verb.h) */
};

/* One per file of cli/; ends with a row of zeros. */
extern const struct command model_commands[], checkpoint_commands[], route_commands[],
	bench_commands[], doctor_commands[];

/* Shared by all: prints "weft: WEFT-Ennn <words>: <message>" to stderr, returns exit code. */
struct error;
int command_fail(const struct error *error);

#endif
