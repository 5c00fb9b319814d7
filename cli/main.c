/* SPDX-License-Identifier: Apache-2.0
 *
 * The `weft` tool: finds the row of `weft NOUN VERB`, or of a noun that has no verbs, and runs it.
 */
#include "cli/verb.h"
#include "base/error.h"
#include "base/log.h"
#include "base/truncated.h"
#include "cli/screen.h"

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command *const tables[] = {
	model_commands, checkpoint_commands, route_commands,   bench_commands, doctor_commands,
	key_commands,	status_commands,     explain_commands, trace_commands, NULL};

int command_fail(const struct error *error)
{
	log_say("weft: WEFT-E%d %s: %s", (int)error->code, error_strerror(error->code),
		error->text);
	return error_exit_code(error->code);
}

/* So that what they do stands in one column. */
static int verb_width(const struct command *rows)
{
	int width = 8;

	for (const struct command *row = rows; row->noun; row++)
		if (row->verb && (int)strlen(row->verb) > width)
			width = (int)strlen(row->verb);
	return width;
}

/* All commands, or those of one noun. */
static void print_usage(FILE *stream, const char *noun)
{
	fprintf(stream, "usage: weft %s VERB [OPTION...]\n\n", noun ? noun : "NOUN");
	for (size_t t = 0; tables[t]; t++)
		for (const struct command *row = tables[t]; row->noun; row++)
			if (!noun || strcmp(row->noun, noun) == 0)
				fprintf(stream, "  %-10s %-*s  %s\n", row->noun,
					verb_width(tables[t]), row->verb ? row->verb : "",
					row->what);
	fprintf(stream,
		"\n`weft NOUN VERB --help` tells more. Programs: weft-controller, weft-worker.\n");
}

static bool is_noun(const char *word)
{
	for (size_t t = 0; tables[t]; t++)
		for (const struct command *row = tables[t]; row->noun; row++)
			if (strcmp(row->noun, word) == 0)
				return true;
	return false;
}

static bool is_help(const char *word)
{
	return strcmp(word, "--help") == 0 || strcmp(word, "-?") == 0 || strcmp(word, "help") == 0;
}

static bool flushed;

/* Output that did not arrive is a failure, whatever the command thinks of its work. */
static int flush_output(int rc)
{
	struct error error;
	int why = screen_failed();

	flushed = true;
	if (rc || !why)
		return rc;
	error_set_errno(&error, ERROR_IO, why, "cannot write to standard output");
	return command_fail(&error);
}

/* argp ends the process itself after --help, --usage and wrong usage. */
static void flush_at_exit(void)
{
	if (!flushed && flush_output(0))
		_exit(1);
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
	truncated_catch("weft");
	atexit(flush_at_exit);
	argp_err_exit_status = 2; /* wrong usage, in all programs of the project */
	if (argc < 2 || is_help(argv[1])) {
		print_usage(argc < 2 ? stderr : stdout, NULL);
		return argc < 2 ? 2 : flush_output(0);
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
		printf("weft %s\n", WEFT_VERSION);
		return flush_output(0);
	}
	row = find(argc, argv, &words);
	if (!row && is_noun(argv[1]) && (argc == 2 || is_help(argv[2]))) {
		print_usage(argc == 2 ? stderr : stdout, argv[1]);
		return argc == 2 ? 2 : flush_output(0);
	}
	if (!row) {
		print_unknown(argc, argv);
		return 2;
	}
	snprintf(name, sizeof(name), "weft %s%s%s", row->noun, row->verb ? " " : "",
		 row->verb ? row->verb : "");
	argv[words] = name; /* argp prints it in usage and errors */
	return flush_output(verb_run(row->takes, argc - words, argv + words));
}
