/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/simulate_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "12.5" as a whole; finite and not negative. */
static bool parse_number(const char *text, double *value)
{
	char *end;

	if (!strchr("0123456789.", text[0]) || !text[0])
		return false;
	*value = strtod(text, &end);
	return *end == '\0' && isfinite(*value) && *value >= 0;
}

/* "0.2s", "200ms", "50us", "0.2" */
static bool parse_seconds(const char *text, double *seconds)
{
	static const struct {
		const char *unit;
		double seconds;
	} units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
	size_t length = strlen(text);
	char number[32];

	for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
		size_t unit = strlen(units[u].unit);

		if (length <= unit || length - unit >= sizeof(number) ||
		    strcmp(text + length - unit, units[u].unit))
			continue;
		memcpy(number, text, length - unit);
		number[length - unit] = '\0';
		if (!parse_number(number, seconds))
			return false;
		*seconds *= units[u].seconds;
		return true;
	}
	return parse_number(text, seconds);
}

static void take_rates(void *taken, const char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = taken;
	char copy[256], *at = copy, *part;

	if (strlen(argument) >= sizeof(copy))
		argp_error(state, "--rate is too long");
	snprintf(copy, sizeof(copy), "%s", argument);
	while ((part = strsep(&at, ","))) {
		char *value = strchr(part, '=');
		int stage = 0;
		double rate = 0;

		if (value)
			*value++ = '\0';
		while (stage < STAGE_COUNT && strcmp(part, stage_name((enum stage)stage)))
			stage++;
		if (stage == STAGE_COUNT && !strcmp(part, "write")) {
			if (!value || !parse_number(value, &rate))
				argp_error(
					state,
					"--rate %s: '%s' is not a number of millions of writes a "
					"second, such as write=1",
					argument, value ? value : "");
			flags->simulate.writes_per_second = rate * 1e6;
			continue;
		}
		if (stage == STAGE_COUNT)
			argp_error(state,
				   "--rate %s: '%s' is not a stage; they are gather, "
				   "device_to_host, pack and verify, and write",
				   argument, part);
		if (!value || !parse_number(value, &rate))
			argp_error(state, "--rate %s: '%s' is not a speed in GB/s, such as %s=25",
				   argument, value ? value : "", part);
		flags->simulate.stage_bytes_per_second[stage] = rate * 1e9;
	}
}

/* "nic=3" at the front of text; *rest behind it. */
static bool parse_what(const char *text, char stop, enum slow_what *what, uint32_t *index,
		       const char **rest)
{
	const char *equals = strchr(text, '='), *end = strchr(text, stop);
	char number[16];
	uint64_t value;

	if (!equals || !end || end < equals || (size_t)(end - equals) > sizeof(number))
		return false;
	memcpy(number, equals + 1, (size_t)(end - equals - 1));
	number[end - equals - 1] = '\0';
	if (!parse_u64(number, &value) || value > UINT32_MAX)
		return false;
	*index = (uint32_t)value;
	*rest = end + 1;
	for (int w = 0; w < SLOW_WHAT_COUNT; w++) {
		const char *name = slow_name((enum slow_what)w);

		if (strlen(name) == (size_t)(equals - text) &&
		    strncmp(text, name, (size_t)(equals - text)) == 0) {
			*what = (enum slow_what)w;
			return true;
		}
	}
	return false;
}

static void take_slow(void *taken, const char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = taken;
	struct slow *slow = &flags->slow[flags->simulate.slow_count];
	const char *factor;

	if (flags->simulate.slow_count == SLOW_MAX)
		argp_error(state, "--slow may be given %d times", SLOW_MAX);
	if (!parse_what(argument, ':', &slow->what, &slow->index, &factor) ||
	    !parse_number(factor, &slow->factor) || slow->factor <= 0)
		argp_error(state,
			   "--slow %s is not WHAT=INDEX:FACTOR, such as nic=3:0.5 (what: nic, "
			   "trainer, inference or host; the factor is above 0)",
			   argument);
	flags->simulate.slow_count++;
}

static void take_fail(void *taken, const char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = taken;
	const char *time;

	if (flags->simulate.failure)
		argp_error(state, "--fail may be given once");
	if (!parse_what(argument, '@', &flags->failure.what, &flags->failure.index, &time) ||
	    flags->failure.what == SLOW_HOST || !parse_seconds(time, &flags->failure.seconds))
		argp_error(state,
			   "--fail %s is not WHAT=INDEX@TIME, such as trainer=7@0.2s (what: "
			   "trainer, inference or nic)",
			   argument);
	flags->simulate.failure = &flags->failure;
}

static void take_depth(void *taken, const char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = taken;

	if (!parse_bytes(argument, &flags->simulate.depth_bytes) ||
	    flags->simulate.depth_bytes < SIMULATE_DEPTH_MIN)
		argp_error(state, "--depth %s is not a size of at least 4K", argument);
}

static void take_ring(void *taken, const char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = taken;

	if (!parse_bytes(argument, &flags->simulate.ring_bytes) ||
	    flags->simulate.ring_bytes < SIMULATE_RING_MIN)
		argp_error(state, "--ring %s is not a size of 1M or more, such as 1G", argument);
}

static void take_lost_after(void *taken, const char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = taken;

	if (!parse_seconds(argument, &flags->lost_after_seconds))
		argp_error(state, "--lost-after %s is not a time, such as 5s", argument);
	flags->lost_after_given = true;
}

static void take_baseline(void *taken, const char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = taken;

	if (strcmp(argument, "broadcast"))
		argp_error(state, "--baseline %s is not known; it is broadcast", argument);
	flags->broadcast = true;
}

static void check(void *taken, struct argp_state *state)
{
	struct simulate_flags *flags = taken;

	flags->simulate.record = flags->trace != NULL;
	flags->simulate.slow = flags->slow;
	if (flags->row && !flags->published)
		argp_error(state, "--row names a published run: it needs --published");
	if (flags->published &&
	    (flags->file || route_options_any(&flags->route) || flags->simulate.failure ||
	     flags->simulate.slow_count || flags->trace || flags->broadcast))
		argp_error(state, "--published has its own jobs; beside it only --row, --rate, "
				  "--depth, --ring and --json mean something");
	if (flags->file &&
	    (flags->route.model || flags->route.train || flags->route.infer ||
	     flags->route.policy || flags->route.memory || flags->route.sessions_max))
		argp_error(state,
			   "'%s' says what its job and its policy are; beside a dump only "
			   "--order and --topology can be given",
			   flags->file);
	if (flags->churn &&
	    (flags->published || flags->simulate.failure || flags->trace || flags->broadcast))
		argp_error(
			state,
			"--churn is of whole updates, one after the other; beside it --fail, --trace, --baseline and "
			"--published mean nothing");
	if (flags->lost_after_given && !flags->simulate.failure)
		argp_error(state, "--lost-after needs --fail");
}

static void begin(void *taken)
{
	struct simulate_flags *flags = taken;

	simulate_rates_default(&flags->simulate);
	flags->simulate.depth_bytes = SIMULATE_DEPTH_DEFAULT;
	flags->simulate.ring_bytes = SIMULATE_RING_DEFAULT;
	flags->lost_after_seconds = LOST_AFTER_DEFAULT_SECONDS;
}

#define AT(member) .offset = offsetof(struct simulate_flags, member)

static const struct verb_option rows[] = {
	{"rate", 0, "STAGE=GB/S,..",
	 "speed of a worker's stages in GB/s (10^9 bytes): gather=400, device_to_host=50, pack=11, "
	 "verify=0; 0: not a stage; and how many writes a trainer makes, in millions a second: write=1; 0: they take no time",
	 VERB_TAKE, .take = take_rates, .group = 1},
	{"depth", 0, "SIZE", "posted ahead by a trainer to one inference rank (default 128M)",
	 VERB_TAKE, .take = take_depth, .group = 1},
	{"ring", 0, "SIZE", "of the CPU replica (default 1G, at least 1M)", VERB_TAKE,
	 .take = take_ring, .group = 1},
	{"slow", 0, "WHAT=I:FACTOR",
	 "nic=3:0.5, trainer=, inference= or host=: at that part of its speed; may be repeated",
	 VERB_TAKE, .take = take_slow, .group = 1},
	{"fail", 0, "WHAT=I@TIME",
	 "trainer=7@0.2s, inference= or nic=: lost at that time; what follows from it", VERB_TAKE,
	 .take = take_fail, .group = 1},
	{"churn", 0, "CHANGES",
	 "-trainer=3,-engine=1,+engine=1: lost and back, one after the other; the update after each, and what moved",
	 VERB_TEXT, AT(churn), .group = 1},
	{"lost-after", 0, "TIME", "with --fail: when the controller counts it as lost (default 5s)",
	 VERB_TAKE, .take = take_lost_after, .group = 1},
	{"baseline", 0, "broadcast", "also: a bucketed broadcast from the first rank of each stage",
	 VERB_TAKE, .take = take_baseline, .group = 1},
	{"trace", 0, "FILE", "write the schedule for ui.perfetto.dev", VERB_TEXT, AT(trace),
	 .group = 1},
	{"json", 0, NULL, "one JSON object (with --published one a line)", VERB_FLAG, AT(json),
	 .group = 1},
	{"published", 0, NULL,
	 "simulate the published runs, and print them beside what was measured", VERB_FLAG,
	 AT(published), .group = 2},
	{"row", 0, "NAME", "only this one of the published runs", VERB_TEXT, AT(row), .group = 2},
	{0},
};

const struct verb route_simulate_verb = {
	VERB_OF(struct simulate_flags, rows),
	VERB_ARGUMENTS(struct simulate_flags, file, 0, 1),
	.children = route_children,
	.begin = begin,
	.arguments = "[FILE]",
	.too_many = "'%s' is one file too many",
	.check = check,
	.doc = "How long an update would take: the sends of a plan (or of the routing dump FILE) in "
	       "their order, as fluid flows with max-min fair shares, and the stages of each worker "
	       "around them. docs/simulator.md says what is modelled.\v"
	       "Example:\n  weft route simulate --model Qwen3-30B-A3B --train world=16 \\\n"
	       "      --infer engines=2,tp=8,ep=8 --policy balanced --order rounds",
	.run = route_simulate_run,
};
