/* SPDX-License-Identifier: Apache-2.0
 *
 * route_print.c -- a table's figures for people:
 *
 *   bytes by trainer (| is the lower bound)
 *     trainer 0   ########################################|   247 MB   4 sessions
 */
#include "cli/route.h"
#include "cli/screen.h"
#include "cli/shown.h"

#include "base/compare.h"
#include "base/memory.h"
#include "routing/plan/order.h"
#include <inttypes.h>

#define BAR_WIDTH    44
#define BAR_BESIDE   (16 + 1 + 9 + 1 + 13 + 10) /* whose it is; bytes, sessions, stage */
#define TRAINERS_MAX 32 /* bars; of more trainers the most loaded are shown */
#define NAMES_MAX    8

struct load {
	uint64_t bytes;
	uint32_t trainer;
};

static int by_load(const void *x, const void *y)
{
	const struct load *a = x, *b = y;

	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return a->trainer < b->trainer ? -1 : a->trainer > b->trainer;
}

static uint32_t columns_of(uint64_t bytes, uint64_t largest, uint32_t width)
{
	return largest ? (uint32_t)((double)bytes / (double)largest * (width - 1) + 0.5) : 0;
}

static void print_bar(FILE *stream, uint64_t bytes, uint64_t bound, uint64_t largest)
{
	uint32_t width = (uint32_t)screen_width(BAR_WIDTH, BAR_BESIDE);
	uint32_t full = columns_of(bytes, largest, width), mark = columns_of(bound, largest, width);

	for (uint32_t column = 0; column < width; column++)
		fputc(column == mark ? '|' : column < full ? '#' : ' ', stream);
}

static void print_loads(FILE *stream, const struct route_view *view)
{
	const struct summary *own = &view->report->own;
	struct load *loads = memory_zalloc(view->labels.trainer_count, sizeof(*loads));
	uint32_t shown = view->labels.trainer_count;
	bool stages = false;

	if (!loads)
		return; /* the figures below do not need them */
	for (uint32_t t = 0; t < view->labels.trainer_count; t++) {
		loads[t] = (struct load){own->trainer_bytes[t], t};
		stages = stages || view->labels.trainer_stage[t] != 0;
	}
	fprintf(stream, "bytes by trainer (| is the lower bound)\n");
	if (shown > TRAINERS_MAX) {
		sort_items(loads, view->labels.trainer_count, by_load);
		shown = TRAINERS_MAX / 2;
	}
	for (uint32_t i = 0; i < shown; i++) {
		uint32_t t = loads[i].trainer;

		fprintf(stream, "  trainer %-5" PRIu32 " ", t);
		print_bar(stream, loads[i].bytes, own->lower_bound_bytes, own->makespan_bytes);
		fprintf(stream, " %9s %4" PRIu64 " session%s", BYTES_TEXT(loads[i].bytes),
			own->sessions[t], own->sessions[t] == 1 ? "" : "s");
		if (stages)
			fprintf(stream, ", stage %" PRIu32, view->labels.trainer_stage[t]);
		fputc('\n', stream);
	}
	if (shown < view->labels.trainer_count)
		fprintf(stream,
			"  and %" PRIu32 " more, down to %s (`weft route show FILE --by "
			"trainer --top 0` lists all)\n",
			view->labels.trainer_count - shown,
			BYTES_TEXT(loads[view->labels.trainer_count - 1].bytes));
	memory_free(loads);
	fputc('\n', stream);
}

/* ---- the table beside round-robin ---- */

static void row_bytes(FILE *stream, const char *what, uint64_t own, uint64_t other)
{
	fprintf(stream, "  %-34s %12s %12s    %s\n", what, BYTES_TEXT(own), BYTES_TEXT(other),
		GROUPED_TEXT(own));
}

static void row_percent(FILE *stream, const char *what, double own, double other)
{
	fprintf(stream, "  %-34s %11.2f%% %11.2f%%\n", what, own * 100, other * 100);
}

static void row_ratio(FILE *stream, const char *what, double own, double other)
{
	fprintf(stream, "  %-34s %12.3f %12.3f\n", what, own, other);
}

static void row_count(FILE *stream, const char *what, uint64_t own, uint64_t other)
{
	fprintf(stream, "  %-34s %12s %12s\n", what, GROUPED_TEXT(own), GROUPED_TEXT(other));
}

static void print_figures(FILE *stream, const struct route_view *view)
{
	const struct summary *own = &view->report->own, *other = &view->report->round_robin;

	fprintf(stream, "  %-34s %12s %12s    %s\n", "", shown(view->labels.policy), "round-robin",
		"exact bytes");
	row_bytes(stream, "bytes of one update", own->bytes_total, other->bytes_total);
	row_bytes(stream, "largest trainer", own->makespan_bytes, other->makespan_bytes);
	row_bytes(stream, "lower bound of that", own->lower_bound_bytes, other->lower_bound_bytes);
	row_percent(stream, "gap to the bound", own->gap, other->gap);
	row_ratio(stream, "imbalance (largest over mean)", own->imbalance, other->imbalance);
	row_bytes(stream, "largest inference rank", own->receiver_bound_bytes,
		  other->receiver_bound_bytes);
	row_bytes(stream, "prepared by all trainers", own->prepared_bytes, other->prepared_bytes);
	row_bytes(stream, "least that must be prepared", own->prepared_minimum_bytes,
		  other->prepared_minimum_bytes);
	row_count(stream, "sessions of the busiest trainer",
		  summary_sessions_max(own, view->labels.trainer_count),
		  summary_sessions_max(other, view->labels.trainer_count));
	row_count(stream, "routes", own->routes, other->routes);
	row_count(stream, "pieces", own->pieces, other->pieces);
	if (own->writes.count) {
		row_count(stream, "writes", own->writes.count, other->writes.count);
		row_count(stream, "writes of the busiest trainer", own->writes.most,
			  other->writes.most);
		row_bytes(stream, "smallest write", own->writes.smallest_bytes,
			  other->writes.smallest_bytes);
		row_bytes(stream, "median write", own->writes.median_bytes,
			  other->writes.median_bytes);
	}
	for (int path = 0; path < PATH_COUNT; path++) {
		static const char *const what[PATH_COUNT] = {
			[PATH_DIRECT] = "direct (no copy)",
			[PATH_MAPPED] = "mapped (one copy)",
			[PATH_REPLICA] = "replica (pack, then write)",
			[PATH_LANDED] = "landed (put in place by the target)",
		};

		if (own->path_bytes[path] || other->path_bytes[path])
			row_bytes(stream, what[path], own->path_bytes[path],
				  other->path_bytes[path]);
	}
	fputc('\n', stream);
}

static void print_seconds(FILE *stream, const char *what, double seconds, const char *limit)
{
	double shown = seconds < 1e-3 ? seconds * 1e6 : seconds < 1 ? seconds * 1e3 : seconds;

	fprintf(stream, "  %-34s %9.3f %-2s    %s\n", what, shown,
		seconds < 1e-3 ? "us"
		: seconds < 1  ? "ms"
			       : "s",
		limit);
}

static void print_certificate(FILE *stream, const struct certificate *certificate)
{
	if (certificate->bound_seconds <= 0)
		return;
	fprintf(stream, "  %-34s %12s    %s\n", "on the wire alone", "", "limited by");
	print_seconds(stream,
		      certificate->exact ? "least possible" : "least possible (not less than)",
		      certificate->bound_seconds, shown(certificate->bound_limit));
	print_seconds(stream, "this table", certificate->makespan_seconds,
		      shown(certificate->makespan_limit));
	fprintf(stream, "  %-34s %11.2f%%\n\n", "gap", certificate->gap * 100);
}

static void print_names(FILE *stream, const char *what, const struct names *names)
{
	if (names->count == 0)
		return;
	fprintf(stream, "%s (%zu):", what, names->count);
	for (size_t i = 0; i < names->count && i < NAMES_MAX; i++)
		fprintf(stream, "%s %s", i ? "," : "", shown(names->items[i]));
	if (names->count > NAMES_MAX)
		fprintf(stream, ", and %zu more (--json lists all)", names->count - NAMES_MAX);
	fputc('\n', stream);
}

void route_print(FILE *stream, const struct route_view *view)
{
	const struct policy *policy = policy_find(view->labels.policy);
	const struct order *order = order_find(view->labels.order);
	char digest[DIGEST_TEXT_BYTES], names[TRANSPORTS_TEXT_BYTES];

	fprintf(stream, "%s from %" PRIu32 " trainers (%s) to %" PRIu32 " inference ranks (%s)\n",
		view->labels.model[0] ? shown(view->labels.model) : "(no model name)",
		view->labels.trainer_count, shown(view->labels.train), view->labels.inference_count,
		shown(view->labels.infer));
	if (policy)
		fprintf(stream, "%s: %s\n", policy->name, policy->rule);
	if (order)
		fprintf(stream, "%s: %s\n", order->name, order->rule);
	if (view->labels.pairs)
		fprintf(stream,
			"transports %s: each pair uses the first of them that both sides have and "
			"that reaches\n",
			transports_text(&view->labels.pairs->list, names));
	fputc('\n', stream);
	print_loads(stream, view);
	print_figures(stream, view);
	if (view->certificate)
		print_certificate(stream, view->certificate);
	print_names(stream, "held, but wanted by no inference rank", &view->report->unwanted);
	print_names(stream, "no source by design, zeroed by the inference rank",
		    &view->report->filled);
	if (view->report->filled_bytes)
		fprintf(stream, "  %s of such bytes on all inference ranks\n",
			BYTES_TEXT(view->report->filled_bytes));
	fprintf(stream, "digest %s\n", digest_text(view->labels.digest, digest));
}
