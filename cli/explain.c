/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.c -- `weft explain`: what an error code means, and what to do (base/error_help.h).
 */
#include "base/error_help.h"
#include "base/json_write.h"
#include "cli/shown.h"
#include "cli/verb.h"

#include <stdio.h>

struct options {
	const char *codes[1];
	bool json;
};

static void print_json(const struct error_help *help)
{
	struct json json;
	char code[16];

	snprintf(code, sizeof(code), "WEFT-E%d", (int)help->code);
	json_put_line(&json, stdout);
	json_put_key_string(&json, "code", code);
	json_put_key_string(&json, "name", help->name);
	json_put_key_string(&json, "words", error_strerror(help->code));
	json_put_key_u64(&json, "exit_code", (uint64_t)error_exit_code(help->code));
	json_put_key_string(&json, "meaning", help->meaning);
	json_put_key_string(&json, "remedy", help->remedy);
	json_put_line_end(&json);
}

static void print(const struct error_help *help)
{
	printf("WEFT-E%d: %s (exit code %d)\n\n%s\n\nWhat to do: %s\n", (int)help->code,
	       error_strerror(help->code), error_exit_code(help->code), help->meaning,
	       help->remedy);
}

static int explain(void *given, struct error *error)
{
	const struct options *options = given;
	const struct error_help *help;

	if (options->codes[0]) {
		help = error_help_find(options->codes[0]);
		if (!help)
			return error_set(error, ERROR_USAGE,
					 "'%.40s' is no code of weft; `weft explain` lists them",
					 options->codes[0]);
		(options->json ? print_json : print)(help);
		return 0;
	}
	for (unsigned i = 0; (help = error_help_at(i)); i++)
		if (options->json)
			print_json(help);
		else
			printf("WEFT-E%d  %s\n", (int)help->code, error_strerror(help->code));
	return 0;
}

static const struct verb_option rows[] = {FORMAT(json, "json", "one JSON object a line"), {0}};
static const struct verb explain_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, codes, 0, 1),
	.arguments = "[CODE]",
	.doc = "Says what an error code means and what to do, as WEFT-E130 or 130; without one, which there are.",
	.too_many = "unexpected argument '%s'",
	.run = explain,
};

const struct command explain_commands[] = {
	{"explain", NULL, "what an error code means, and what to do", &explain_verb}, {0}};
