/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/simulate_options.h"

#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPTION_RATE = 0x100,
	OPTION_DEPTH,
	OPTION_RING,
	OPTION_SLOW,
	OPTION_FAIL,
	OPTION_LOST_AFTER,
	OPTION_BASELINE,
	OPTION_TRACE,
	OPTION_PUBLISHED,
	OPTION_ROW,
	OPTION_JSON
};

static const struct argp_option option_rows[] = {
	{"rate", OPTION_RATE, "STAGE=GB/S,..", 0,
	 "speed of a worker's stages in GB/s (10^9 bytes): gather=400, device_to_host=50, pack=11, "
	 "verify=0; 0: not a stage",
	 1},
	{"depth", OPTION_DEPTH, "SIZE", 0,
	 "posted ahead by a trainer to one inference rank (default 128M)", 1},
	{"ring", OPTION_RING, "SIZE", 0, "of the CPU replica (default 1G, at least 1M)", 1},
	{"slow", OPTION_SLOW, "WHAT=I:FACTOR", 0,
	 "nic=3:0.5, trainer=, inference= or host=: at that part of its speed; may be repeated", 1},
	{"fail", OPTION_FAIL, "WHAT=I@TIME", 0,
	 "trainer=7@0.2s, inference= or nic=: lost at that time; what follows from it", 1},
	{"lost-after", OPTION_LOST_AFTER, "TIME", 0,
	 "with --fail: when the controller counts it as lost (default 5s)", 1},
	{"baseline", OPTION_BASELINE, "broadcast", 0,
	 "also: a bucketed broadcast from the first rank of each stage", 1},
	{"trace", OPTION_TRACE, "FILE", 0, "write the schedule for ui.perfetto.dev", 1},
	{"json", OPTION_JSON, NULL, 0, "one JSON object (with --published one a line)", 1},
	{"published", OPTION_PUBLISHED, NULL, 0,
	 "simulate the published runs, and print them beside what was measured", 2},
	{"row", OPTION_ROW, "NAME", 0, "only this one of the published runs", 2},
	{0},
};

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

static void parse_rates(struct simulate_flags *flags, const char *argument,
			struct argp_state *state)
{
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
		if (stage == STAGE_COUNT)
			argp_error(state,
				   "--rate %s: '%s' is not a stage; they are gather, "
				   "device_to_host, pack and verify",
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

static void parse_slow(struct simulate_flags *flags, const char *argument, struct argp_state *state)
{
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

static void parse_fail(struct simulate_flags *flags, const char *argument, struct argp_state *state)
{
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

static void check(const struct simulate_flags *flags, struct argp_state *state)
{
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
	if (flags->lost_after_given && !flags->simulate.failure)
		argp_error(state, "--lost-after needs --fail");
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct simulate_flags *flags = state->input;
	uint64_t number;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &flags->route;
		return 0;
	case OPTION_RATE:
		parse_rates(flags, argument, state);
		return 0;
	case OPTION_DEPTH:
		if (!parse_bytes(argument, &number) || number < SIMULATE_DEPTH_MIN)
			argp_error(state, "--depth %s is not a size of at least 4K", argument);
		flags->simulate.depth_bytes = number;
		return 0;
	case OPTION_RING:
		if (!parse_bytes(argument, &number) || number < SIMULATE_RING_MIN)
			argp_error(state, "--ring %s is not a size of 1M or more, such as 1G",
				   argument);
		flags->simulate.ring_bytes = number;
		return 0;
	case OPTION_SLOW:
		parse_slow(flags, argument, state);
		return 0;
	case OPTION_FAIL:
		parse_fail(flags, argument, state);
		return 0;
	case OPTION_LOST_AFTER:
		if (!parse_seconds(argument, &flags->lost_after_seconds))
			argp_error(state, "--lost-after %s is not a time, such as 5s", argument);
		flags->lost_after_given = true;
		return 0;
	case OPTION_BASELINE:
		if (strcmp(argument, "broadcast"))
			argp_error(state, "--baseline %s is not known; it is broadcast", argument);
		flags->broadcast = true;
		return 0;
	case OPTION_TRACE:
		flags->trace = argument;
		flags->simulate.record = true;
		return 0;
	case OPTION_PUBLISHED:
		flags->published = true;
		return 0;
	case OPTION_ROW:
		flags->row = argument;
		return 0;
	case OPTION_JSON:
		flags->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (flags->file)
			argp_error(state, "'%s' is one file too many", argument);
		flags->file = argument;
		return 0;
	case ARGP_KEY_END:
		check(flags, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void simulate_flags_parse(struct simulate_flags *flags, int argc, char **argv)
{
	static const struct argp_child children[] = {{&route_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
		option_rows,
		parse_option,
		"[FILE]",
		"How long an update would take: the sends of a plan (or of the routing dump FILE) in "
		"their order, as fluid flows with max-min fair shares, and the stages of each worker "
		"around them. docs/simulator.md says what is modelled.\v"
		"Example:\n  weft route simulate --model Qwen3-30B-A3B --train world=16 \\\n"
		"      --infer engines=2,tp=8,ep=8 --policy balanced --order rounds",
		children,
		NULL,
		NULL};

	*flags = (struct simulate_flags){.lost_after_seconds = LOST_AFTER_DEFAULT_SECONDS};
	simulate_rates_default(flags->simulate.stage_bytes_per_second);
	flags->simulate.depth_bytes = SIMULATE_DEPTH_DEFAULT;
	flags->simulate.ring_bytes = SIMULATE_RING_DEFAULT;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, flags);
	flags->simulate.slow = flags->slow;
}
