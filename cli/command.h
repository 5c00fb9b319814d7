/* SPDX-License-Identifier: Apache-2.0
 *
 * command.h -- the `weft` tool: one row a subcommand, one file a noun.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

struct verb;

/* A subcommand's rows say what it takes (verb.h); or it gets argv[0] = "weft noun verb" and parses with
 * argp itself. Either returns the exit code (base/error.h). */
struct command {
	const char *noun, *verb; /* verb NULL: the noun alone is the command */
	const char *what;        /* one line for `weft --help` */
	int (*run)(int argc, char **argv);
	const struct verb *takes;
};

/* One per file of cli/; ends with a row of NULLs. */
extern const struct command model_commands[], checkpoint_commands[], route_commands[],
	bench_commands[], doctor_commands[];

/* Shared by all: prints "weft: WEFT-Ennn <words>: <sentence>" to stderr, returns exit code. */
struct error;
int command_fail(const struct error *error);

#endif
