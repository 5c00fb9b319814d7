/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"

#include "base/clock.h"
#include "cli/screen.h"
#include "cli/verb.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROLLER_DEFAULT "tcp://127.0.0.1:29600"
#define EVERY_MS	   1000

struct options {
	const char *controller, *key;
	uint64_t timeout_ms, every_ms;
	bool json, why, links, watch, check;
};

/* Two looks lie two heartbeats apart, so that every worker has said something new, but no longer than somebody waits for a command. */
static uint64_t apart_ms(const struct message_report *report)
{
	uint64_t apart = 2 * (uint64_t)report->heartbeat_ms + 100;

	return apart < 1200 ? apart : 1200;
}

static int out_of_memory(struct error *error)
{
	return memory_error(error, "judging the job", 0);
}

/* 0, or 1 with --check where somebody is at fault. */
static int show(const struct options *options, const struct message *before,
		const struct message *now, struct error *error)
{
	findings found = {0};
	struct status_view view = {.job = now->job,
				   .controller = options->controller,
				   .before = before->type == MESSAGE_REPORT ? &before->u.report
									    : NULL,
				   .now = &now->u.report,
				   .found = &found,
				   .links = options->links};
	int rc = status_why(view.before, view.now, &found) ? 0 : out_of_memory(error);

	if (!rc && options->json)
		status_json(&view);
	else if (!rc && (options->why || options->check))
		status_show_why(&view);
	else if (!rc)
		status_show(&view);
	if (!rc && options->check && findings_fault(&found))
		rc = 1;
	findings_free(&found);
	return rc;
}

static void forget(struct message *message)
{
	message_fini(message);
	*message = (struct message){0};
}

static int once(const struct options *options, struct asker *asker, struct error *error)
{
	struct message before = {0}, now = {0};
	int rc = asker_ask(asker, &before, error);

	if (!rc) {
		clock_sleep_ms(apart_ms(&before.u.report));
		rc = asker_ask(asker, &now, error);
	}
	if (!rc)
		rc = show(options, &before, &now, error);
	message_fini(&before);
	message_fini(&now);
	return rc;
}

/* A terminal is written over, from its first line on, and a pipe gets one look after the other. */
static void begin_page(const struct options *options, bool first)
{
	if (options->json)
		return;
	if (isatty(STDOUT_FILENO))
		printf("\033[H\033[J");
	else if (!first)
		printf("\n");
}

/* Until it is interrupted, or the controller does not answer any more. */
static int watch(const struct options *options, struct asker *asker, struct error *error)
{
	struct message before = {0}, now = {0};
	int rc = 0;

	for (bool first = true; !rc && !screen_failed(); first = false) {
		rc = asker_ask(asker, &now, error);
		if (rc)
			break;
		begin_page(options, first);
		rc = show(options, &before, &now, error);
		screen_flush();
		forget(&before);
		before = now;
		now = (struct message){0};
		clock_sleep_ms(options->every_ms);
	}
	message_fini(&before);
	message_fini(&now);
	return rc;
}

static int run(void *given, struct error *error)
{
	const struct options *options = given;
	struct asker_options asking = {.controller = options->controller,
				       .key_file = options->key ? options->key : "",
				       .timeout_ms = options->timeout_ms,
				       .links = options->links};
	struct asker *asker = NULL;
	int rc = asker_open(&asker, &asking, error);

	if (!rc)
		rc = options->watch ? watch(options, asker, error) : once(options, asker, error);
	asker_close(&asker);
	return rc;
}

static void begin(void *given)
{
	struct options *options = given;
	const char *controller = getenv("WEFT_CONTROLLER");

	options->controller = controller && *controller ? controller : CONTROLLER_DEFAULT;
	options->key = getenv("WEFT_KEY_FILE");
	options->timeout_ms = 5000;
	options->every_ms = EVERY_MS;
}

static void check(void *given, struct argp_state *state)
{
	const struct options *options = given;

	if (options->watch && options->check)
		argp_error(state, "--check looks once, and --watch never ends: give one of them");
	if (strcmp(options->controller, "auto") == 0)
		argp_error(state,
			   "--controller: 'auto' is for workers of torchrun; give the address that "
			   "the controller logs, as tcp://HOST:29600");
}

static const struct verb_option rows[] = {
	TEXT(controller, "controller", "ADDRESS",
	     "where the controller listens, as tcp://HOST:29600 (default: WEFT_CONTROLLER, or "
	     "tcp://127.0.0.1:29600)"),
	TEXT(key, "key", "FILE",
	     "the job's key, or one of its observers or workers (WEFT_KEY_FILE; docs/trust.md)"),
	FLAG(why, "why", "only who is at fault, or is waited for, and why"),
	FORMAT(json, "json", "one JSON object a look, for programs"),
	FLAG(links, "links", "who sends how much to whom, too"),
	FLAG(watch, "watch", "look again and again, until it is interrupted"),
	{.name = "every",
	 .argument = "TIME",
	 .doc = "so often (default 1s)",
	 .kind = VERB_TIME,
	 .offset = offsetof(struct options, every_ms)},
	FLAG(check, "check", "for probes: only who is at fault; the exit code is 1 if anybody is"),
	{.name = "timeout",
	 .argument = "TIME",
	 .doc = "how long an answer may take (default 5s)",
	 .kind = VERB_TIME,
	 .offset = offsetof(struct options, timeout_ms)},
	{0}};

static const struct verb status_verb = {
	VERB_OF(struct options, rows),
	.begin = begin,
	.check = check,
	.doc = "Shows a running job: who does what, since when, who waits for whom, and who is at fault. It asks the "
	       "controller, and changes nothing.\v"
	       "Exit codes: 0 shown, 1 somebody is at fault (--check), 2 usage, 75 the controller does not answer. "
	       "docs/status.md explains each word.",
	.run = run,
};

const struct command status_commands[] = {
	{"status", NULL, "a running job: who does what, and who is at fault", &status_verb}, {0}};
