/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/verb.h"

#include "cli/screen.h"
#include "base/log.h"
#include "base/memory.h"
#include <inttypes.h>
#include <string.h>

#define ROWS_MAX  32
#define KEY_FIRST 0x100 /* of options without a letter: no character */
#define KEY_QUIET 'q'	/* of every verb */
#define BYTES_MAX (UINT64_C(1) << 46)
#define DAY_MS	  86400000

struct parsing {
	const struct verb *verb;
	void *options;
	unsigned arguments;
	bool as_is;
};

static int key_of(const struct verb *verb, const struct verb_option *row)
{
	return row->letter ? row->letter : KEY_FIRST + (int)(row - verb->rows);
}

static const struct verb_option *row_of(const struct verb *verb, int key)
{
	for (const struct verb_option *row = verb->rows; row->name || row->doc; row++)
		if (row->name && key_of(verb, row) == key)
			return row;
	return NULL;
}

static void set_count(const struct verb_option *row, void *member, const char *argument,
		      struct argp_state *state)
{
	uint64_t value;

	if (!parse_u64(argument, &value) || value < row->least || value > row->most)
		argp_error(state, "--%s is '%s': give a number from %" PRIu64 " to %" PRIu64,
			   row->name, argument, row->least, row->most);
	else if (row->kind == VERB_COUNT32)
		*(uint32_t *)member = (uint32_t)value;
	else
		*(uint64_t *)member = value;
}

static void set_bytes(const struct verb_option *row, uint64_t *member, const char *argument,
		      struct argp_state *state)
{
	if (!parse_bytes(argument, member) || *member < 1 || *member > BYTES_MAX)
		argp_error(state, "--%s is '%s': give bytes, like 4096, 64K or 1M", row->name,
			   argument);
}

static void set_time(const struct verb_option *row, uint64_t *member, const char *argument,
		     struct argp_state *state)
{
	if (!parse_duration_ms(argument, member) || *member < 1 || *member > DAY_MS)
		argp_error(state, "--%s is '%s': give a time from 1ms to a day, like 10s or 500ms",
			   row->name, argument);
}

static void set(const struct verb_option *row, void *options, const char *argument,
		struct argp_state *state)
{
	void *member = (char *)options + row->offset;

	switch (row->kind) {
	case VERB_FLAG:
		*(bool *)member = true;
		break;
	case VERB_TEXT:
		*(const char **)member = argument;
		break;
	case VERB_CHARS:
		if (strlen(argument) > row->most || !*argument)
			argp_error(state, "--%s is '%s': give 1 to %" PRIu64 " characters",
				   row->name, argument, row->most);
		else
			strcpy(member, argument);
		break;
	case VERB_NUMBER:
		if (!parse_u64(argument, member))
			argp_error(state, "--%s %s is not a number", row->name, argument);
		break;
	case VERB_COUNT:
	case VERB_COUNT32:
		set_count(row, member, argument, state);
		break;
	case VERB_BYTES:
		set_bytes(row, member, argument, state);
		break;
	case VERB_TIME:
		set_time(row, member, argument, state);
		break;
	case VERB_TAKE:
		row->take(options, argument, state);
		break;
	}
}

static void add_argument(struct parsing *parsing, const char *argument, struct argp_state *state)
{
	const struct verb *verb = parsing->verb;
	const char **arguments =
		(const char **)(void *)((char *)parsing->options + verb->arguments_at);

	if (parsing->arguments == verb->most)
		argp_error(state, verb->too_many ? verb->too_many : "'%s' is one argument too many",
			   argument);
	else
		arguments[parsing->arguments++] = argument;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct parsing *parsing = state->input;
	const struct verb *verb = parsing->verb;
	const struct verb_option *row;

	switch (key) {
	case ARGP_KEY_INIT:
		if (verb->children)
			state->child_inputs[0] = parsing->options;
		return 0;
	case ARGP_KEY_ARG:
		add_argument(parsing, argument, state);
		return 0;
	case ARGP_KEY_END:
		if (parsing->arguments < verb->least)
			argp_error(state, verb->too_few, parsing->arguments);
		if (verb->check)
			verb->check(parsing->options, state);
		return 0;
	}
	if (key == KEY_QUIET) {
		log_set_level(LOG_LEVEL_ERROR);
		return 0;
	}
	row = row_of(verb, key);
	if (!row)
		return ARGP_ERR_UNKNOWN;
	if (row->note)
		*(const char **)(void *)((char *)parsing->options + row->note) = row->name;
	set(row, parsing->options, argument, state);
	parsing->as_is = parsing->as_is || row->as_is;
	return 0;
}

/* argp frees what differs from `doc`. */
static char *filter_help(int key, const char *doc, void *input)
{
	const struct verb *verb = ((struct parsing *)input)->verb;
	const struct verb_option *row = row_of(verb, key);
	struct text text = {0};

	if (!verb->help || (!row && key != ARGP_KEY_HELP_POST_DOC) ||
	    !verb->help(&text, row ? row->name : NULL, doc))
		return (char *)(uintptr_t)doc;
	if (!text_ok(&text)) {
		text_fini(&text);
		return (char *)(uintptr_t)doc;
	}
	return text.data;
}

int verb_run(const struct verb *verb, int argc, char **argv)
{
	struct argp_option rows[ROWS_MAX] = {{0}};
	size_t count = 0;
	struct argp argp = {.options = rows,
			    .parser = parse,
			    .args_doc = verb->arguments,
			    .doc = verb->doc,
			    .children = verb->children,
			    .help_filter = filter_help};
	struct parsing parsing = {.verb = verb, .options = memory_zalloc(1, verb->size)};
	struct error error = {0};
	int rc;

	if (!parsing.options) {
		memory_error(&error, "reading options", verb->size);
		return command_fail(&error);
	}
	if (verb->defaults)
		memcpy(parsing.options, verb->defaults, verb->size);
	if (verb->begin)
		verb->begin(parsing.options);
	for (; verb->rows[count].name || verb->rows[count].doc; count++) {
		const struct verb_option *row = &verb->rows[count];

		rows[count] = (struct argp_option){.name = row->name,
						   .key = row->name ? key_of(verb, row) : 0,
						   .arg = row->argument,
						   .doc = row->doc,
						   .group = row->group};
	}
	rows[count] = (struct argp_option){
		.name = "quiet",
		.key = KEY_QUIET,
		.doc = "on standard error only what failed: no warnings, no progress",
		.group = -1,
	};
	argp_parse(&argp, argc, argv, 0, NULL, &parsing);
	if (!parsing.as_is && !verb->as_is)
		screen_fold();
	rc = verb->run(parsing.options, &error);
	memory_free(parsing.options);
	return rc < 0 ? command_fail(&error) : rc;
}
