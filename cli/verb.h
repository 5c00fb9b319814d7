/* SPDX-License-Identifier: Apache-2.0
 *
 * verb.h -- what a verb of the `weft` tool takes, as rows, and the one parser of them all.
 *
 *   struct options { bool json; const char *output; };
 *   static const struct verb_option rows[] = {
 *           FLAG(json, "json", "one JSON object"),
 *           TEXT(output, "output", "FILE", "write to FILE"),
 *           {0}};
 *   const struct verb some_verb = {VERB_OF(struct options, rows), .doc = "..", .run = run};
 */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include "base/error.h"
#include "base/text.h"
#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum verb_kind {
	VERB_FLAG,    /* bool */
	VERB_TEXT,    /* const char * */
	VERB_CHARS,   /* char[most + 1], at least one of them */
	VERB_NUMBER,  /* uint64_t */
	VERB_COUNT,   /* uint64_t from least to most */
	VERB_COUNT32, /* uint32_t likewise */
	VERB_BYTES,   /* uint64_t, 4096 or 64K, above 0 */
	VERB_TIME,    /* uint64_t of milliseconds, from one to a day */
	VERB_TAKE     /* what `take` makes of it */
};

struct verb_option {
	const char *name;      /* NULL with a doc: a heading */
	int letter;            /* 0: none */
	const char *argument;  /* NULL: a flag */
	const char *doc;
	enum verb_kind kind;
	size_t offset;         /* of the member it sets */
	/* VERB_TAKE: sets what it means; argp_error on what cannot be. */
	void (*take)(void *options, const char *argument, struct argp_state *state);
	int group;
	bool as_is;            /* with it standard output is for programs: no line is folded */
	uint64_t least, most;
	size_t note;           /* of a const char * that becomes the name of what was given */
};

struct verb {
	const struct verb_option *rows;       /* ends with a row of zeros */
	size_t size;                          /* of the options */
	const void *defaults;                 /* NULL: zeros */
	void (*begin)(void *options);         /* sets the defaults that are computed */
	bool as_is;                           /* as of an option, always */
	const char *arguments, *doc;          /* of the usage line; of --help, as argp's */
	const struct argp_child *children;    /* their input is the options' first member */
	/* Adds what --help says instead of the doc, of an option or (NULL) behind all of them;
	 * false: the doc as it is. */
	bool (*help)(struct text *text, const char *option, const char *doc);
	unsigned least, most;                 /* arguments */
	size_t arguments_at;                  /* of const char *[most] */
	const char *too_many, *too_few;       /* formats: of one too many; of how many there are */
	void (*check)(void *options, struct argp_state *state); /* after the last option */
	int (*run)(void *options, struct error *error);         /* exit code, or a negative error */
};

/* A row of the tool: one file a noun, one row a verb. */
struct command {
	const char *noun, *verb;   /* verb NULL: the noun alone is the command */
	const char *what;          /* one line for `weft --help` */
	const struct verb *takes;  /* and does */
};

/* One per file of cli/; ends with a row of zeros. */
extern const struct command model_commands[], checkpoint_commands[], route_commands[],
	bench_commands[], doctor_commands[], key_commands[], status_commands[], explain_commands[], trace_commands[];

/* Shared by all: prints "weft: WEFT-Ennn <words>: <message>" to stderr, returns exit code. */
int command_fail(const struct error *error);

/* Parses, runs, prints the error; the exit code. */
int verb_run(const struct verb *verb, int argc, char **argv);

#define VERB_OF(type, table) .rows = (table), .size = sizeof(type)
/* Where arguments go: a member that is one, or an array of them. */
#define VERB_ARGUMENTS(type, member, from, to) \
	.arguments_at = offsetof(type, member), .least = (from), .most = (to)

/* Rows of a file's own `struct options`. A member of another type does not compile. */
#define VERB_MEMBER(member, type) \
	_Generic(((struct options *)0)->member, type: offsetof(struct options, member))
#define FLAG(member, option, says) \
	{.name = option, .doc = says, .kind = VERB_FLAG, .offset = VERB_MEMBER(member, bool)}
/* A flag that makes the output one for programs. */
#define FORMAT(member, option, says)                                                         \
	{.name = option, .doc = says, .kind = VERB_FLAG, .offset = VERB_MEMBER(member, bool), \
	 .as_is = true}
#define TEXT(member, option, takes, says)                                  \
	{.name = option, .argument = takes, .doc = says, .kind = VERB_TEXT, \
	 .offset = VERB_MEMBER(member, const char *)}
#define NUMBER(member, option, takes, says)                                  \
	{.name = option, .argument = takes, .doc = says, .kind = VERB_NUMBER, \
	 .offset = VERB_MEMBER(member, uint64_t)}
#define TAKE(function, option, takes, says)                                \
	{.name = option, .argument = takes, .doc = says, .kind = VERB_TAKE, \
	 .take = function}

#endif
