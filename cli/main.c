/* SPDX-License-Identifier: Apache-2.0
 *
 * The `weft` tool: finds the row of `weft NOUN VERB` and runs it.
 */
#include "cli/command.h"
#include "common/error.h"
#include "common/log.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

static const struct command *const tables[] = {model_commands, checkpoint_commands, route_commands,
					       bench_commands, NULL};

int command_fail(const struct error *error)
{
	fprintf(stderr, "weft: WEFT-E%d %s: %s\n", (int)error->code, error_words(error->code),
		error->text);
	return error_exit_code(error->code);
}

static void print_usage(FILE *stream)
{
	fprintf(stream, "usage: weft NOUN VERB [OPTION...]\n\n");
	for (size_t t = 0; tables[t]; t++)
		for (const struct command *row = tables[t]; row->noun; row++)
			fprintf(stream, "  %-10s %-8s  %s\n", row->noun, row->verb ? row->verb : "",
				row->what);
	fprintf(stream,
		"\n`weft NOUN VERB --help` tells more. Programs: weft-controller, weft-worker.\n");
}

/* The table's row; *words is how many arguments named it. */
static const struct command *find(int argc, char **argv, int *words)
{
	for (size_t t = 0; tables[t]; t++)
		for (const struct command *row = tables[t]; row->noun; row++) {
			if (strcmp(row->noun, argv[1]) != 0)
				continue;
			if (row->verb && (argc < 3 || strcmp(row->verb, argv[2]) != 0))
				continue;
			*words = row->verb ? 2 : 1;
			return row;
		}
	return NULL;
}

static void print_unknown(int argc, char **argv)
{
	const char *separator = "";

	fprintf(stderr, "weft: there is no command '%s%s%s'", argv[1],
		argc > 2 && argv[2][0] != '-' ? " " : "",
		argc > 2 && argv[2][0] != '-' ? argv[2] : "");
	for (size_t t = 0; tables[t]; t++)
		for (const struct command *row = tables[t]; row->noun; row++)
			if (strcmp(row->noun, argv[1]) == 0 && row->verb) {
				fprintf(stderr, "%s%s",
					*separator ? separator : "; verbs of this noun: ",
					row->verb);
				separator = ", ";
			}
	fprintf(stderr, "; see `weft --help`\n");
}

int main(int argc, char **argv)
{
	const struct command *row;
	char name[64];
	int words;

	log_open("weft", "");
	argp_err_exit_status = 2; /* wrong usage, in all programs of the project */
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
		print_usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
		printf("weft %s\n", WEFT_VERSION);
		return 0;
	}
	row = find(argc, argv, &words);
	if (!row) {
		print_unknown(argc, argv);
		return 2;
	}
	snprintf(name, sizeof(name), "weft %s%s%s", row->noun, row->verb ? " " : "",
		 row->verb ? row->verb : "");
	argv[words] = name; /* argp prints it in usage and errors */
	return row->run(argc - words, argv + words);
}
