/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_view.c -- a simulation for people:
 *
 *   makespan         98.1 ms
 *   bound            95.0 ms   96.8 % of it reached
 *   senders        ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▅▃   share of all NICs that is used
 */
#include "cli/simulate_view.h"
#include "cli/shown.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define NAMES_MAX 16

char *simulate_seconds(double seconds, char out[TEXT_SHORT_BYTES])
{
	if (!isfinite(seconds))
		snprintf(out, TEXT_SHORT_BYTES, "never");
	else
		seconds_text((uint64_t)(seconds * 1e9 + 0.5), out);
	return out;
}

bool simulate_repeats(const struct simulate_view *view, double *seconds)
{
	const struct simulate_flags *flags = view->flags;

	if (!view->replay)
		return false;
	*seconds =
		flags->failure.seconds + flags->lost_after_seconds + view->replay->makespan_seconds;
	return true;
}

static void print_head(const struct simulate_view *view)
{
	const struct problem *problem = view->table->problem;
	const struct simulate_options *options = &view->flags->simulate;

	printf("%s from %" PRIu32 " trainers (%s) to %" PRIu32 " inference ranks (%s)\n",
	       problem->model[0] ? shown(problem->model) : "(no model name)",
	       problem->trainer_count, shown(problem->train), problem->inference_count,
	       shown(problem->infer));
	printf("policy %s, order %s; up to %s posted ahead to a rank, ring of %s\n",
	       view->table->policy, view->table->order, BYTES_TEXT(options->depth_bytes),
	       BYTES_TEXT(options->ring_bytes));
	printf("assumed of each worker:");
	for (int s = 0; s < STAGE_COUNT; s++) {
		double rate = options->stage_bytes_per_second[s];

		printf("%s %s", s ? "," : "", stage_name((enum stage)s));
		if (rate > 0)
			printf(" %.4g GB/s", rate / 1e9);
		else
			printf(" is no stage");
	}
	if (options->writes_per_second > 0)
		printf(", write %.4g million a second", options->writes_per_second / 1e6);
	printf("\n");
	if (view->simulation->flow_bytes_min)
		printf("routes below %s ride along with others to the same rank\n",
		       BYTES_TEXT(view->simulation->flow_bytes_min));
	printf("\n");
}

static void print_bound(const struct simulate_view *view)
{
	const struct simulated_bound *bound = view->bound;
	double makespan = view->simulation->makespan_seconds;

	printf("  %-16s %10s\n", "makespan", simulate_seconds(makespan, TEXT_HERE));
	printf("  %-16s %10s", "bound", simulate_seconds(bound->seconds, TEXT_HERE));
	if (makespan > 0)
		printf("   %.1f %% of it reached", 100 * bound->seconds / makespan);
	printf("\n  %-16s", "  of each stage");
	for (int s = 0; s < STAGE_VERIFY; s++)
		if (bound->stage_seconds[s] > 0)
			printf(" %s %s,", stage_name((enum stage)s),
			       simulate_seconds(bound->stage_seconds[s], TEXT_HERE));
	printf(" wire %s", simulate_seconds(bound->wire_seconds, TEXT_HERE));
	if (bound->stage_seconds[STAGE_VERIFY] > 0)
		printf(", verify %s",
		       simulate_seconds(bound->stage_seconds[STAGE_VERIFY], TEXT_HERE));
	printf("\n");
}

static void print_bottleneck(const struct simulate_view *view)
{
	struct bottleneck most = simulation_bottleneck(view->simulation);
	char what[BOTTLENECK_TEXT_BYTES];

	if (most.seconds <= 0)
		return;
	printf("  %-16s %10s   of work for %s", "bottleneck",
	       simulate_seconds(most.seconds, TEXT_HERE),
	       shown(bottleneck_text(view->simulation, &most, view->topology, what)));
	printf(", %.1f %% of the makespan\n",
	       100 * most.seconds / view->simulation->makespan_seconds);
}

/* First and last rank of those that had something to do. */
static bool ends(const struct simulation *simulation, enum role role, uint32_t *first,
		 uint32_t *last)
{
	const struct simulated_rank *ranks = simulation->ranks[role];
	bool any = false;

	for (uint32_t r = 0; r < simulation->rank_count[role]; r++) {
		if (ranks[r].bytes <= 0 && ranks[r].finish_seconds <= 0)
			continue;
		if (!any || ranks[r].finish_seconds < ranks[*first].finish_seconds)
			*first = r;
		if (!any || ranks[r].finish_seconds > ranks[*last].finish_seconds)
			*last = r;
		any = true;
	}
	return any;
}

static double idle_share(const struct simulation *simulation, enum role role)
{
	double all = simulation->rate[role] * simulation->makespan_seconds, moved = 0;

	for (uint32_t r = 0; r < simulation->rank_count[role]; r++)
		moved += simulation->ranks[role][r].bytes;
	return all > 0 ? fmax(0, 1 - moved / all) : 0;
}

static void print_ends(const struct simulate_view *view, enum role role)
{
	const struct simulation *simulation = view->simulation;

	uint32_t first = 0, last = 0;

	if (!ends(simulation, role, &first, &last))
		return;
	printf("  %-16s first done: %" PRIu32 " at %s; last: %" PRIu32
	       " at %s; NICs idle %.1f %%\n",
	       role == ROLE_TRAINER ? "trainers" : "inference ranks", first,
	       simulate_seconds(simulation->ranks[role][first].finish_seconds, TEXT_HERE), last,
	       simulate_seconds(simulation->ranks[role][last].finish_seconds, TEXT_HERE),
	       100 * idle_share(simulation, role));
}

/* ---- timeline ---- */

static void print_bar(const char *what, const double bins[SIMULATE_BINS], double full)
{
	static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

	printf("  %-16s ", what);
	for (int b = 0; b < SIMULATE_BINS; b++) {
		double share = full > 0 ? bins[b] / full : 0;
		int block = (int)ceil(share * 8 - 1e-6);

		fputs(blocks[block < 0 ? 0 : block > 8 ? 8 : block], stdout);
	}
	printf("\n");
}

static void print_timeline(const struct simulate_view *view)
{
	const struct simulation *simulation = view->simulation;
	double bin = simulation->bin_seconds;

	printf("\n  used, of all     0%*s\n", SIMULATE_BINS - 1,
	       simulate_seconds(simulation->makespan_seconds, TEXT_HERE));
	for (int s = 0; s < STAGE_COUNT; s++) {
		double rate = view->flags->simulate.stage_bytes_per_second[s];

		if (s == STAGE_VERIFY) {
			print_bar("senders", simulation->wire_bins,
				  simulation->rate[ROLE_TRAINER] * bin);
			print_bar("receivers", simulation->wire_bins,
				  simulation->rate[ROLE_INFERENCE] * bin);
		}
		if (rate > 0)
			print_bar(stage_name((enum stage)s), simulation->stage_bins[s],
				  rate * bin *
					  simulation->rank_count[s == STAGE_VERIFY ? ROLE_INFERENCE
										   : ROLE_TRAINER]);
	}
}

/* ---- what else was asked ---- */

static void print_unpublished(const struct simulation *simulation)
{
	uint32_t count = 0, all = simulation->rank_count[ROLE_INFERENCE];

	for (uint32_t r = 0; r < all; r++)
		count += !isfinite(simulation->ranks[ROLE_INFERENCE][r].finish_seconds);
	printf("  cannot publish: %" PRIu32 " of %" PRIu32 " inference ranks", count, all);
	count = 0;
	for (uint32_t r = 0; r < all; r++)
		if (!isfinite(simulation->ranks[ROLE_INFERENCE][r].finish_seconds) &&
		    count++ < NAMES_MAX)
			printf("%s %" PRIu32, count > 1 ? "," : ":", r);
	printf("%s\n", count > NAMES_MAX ? ", .." : "");
}

static void print_failure(const struct simulate_view *view)
{
	const struct simulate_flags *flags = view->flags;

	double total;

	printf("\n%s %" PRIu32 " fails at %s\n", slow_name(flags->failure.what),
	       flags->failure.index, simulate_seconds(flags->failure.seconds, TEXT_HERE));
	if (!simulate_repeats(view, &total)) {
		printf("  the update goes on: no rank that it still needed was lost\n");
		return;
	}
	print_unpublished(view->simulation);
	printf("  %s later the controller counts it as lost (--lost-after), and the whole update "
	       "is repeated\n  without it by %s, %s, in %s\n",
	       simulate_seconds(flags->lost_after_seconds, TEXT_HERE), view->table->policy,
	       view->table->order, simulate_seconds(view->replay->makespan_seconds, TEXT_HERE));
	printf("  in all %s\n", simulate_seconds(total, TEXT_HERE));
}

static void print_baseline(const struct simulate_view *view)
{
	const struct baseline *baseline = view->baseline;

	printf("\nbroadcast from %" PRIu32 " first rank%s, %" PRIu64 " buckets: %s through every "
	       "receiver\n",
	       baseline->heads, baseline->heads == 1 ? "" : "s", baseline->buckets,
	       BYTES_TEXT(baseline->receiver_bytes));
	printf("  wire %s + gather %s + fixed %s",
	       simulate_seconds(baseline->wire_seconds, TEXT_HERE),
	       simulate_seconds(baseline->gather_seconds, TEXT_HERE),
	       simulate_seconds(baseline->fixed_seconds, TEXT_HERE));
	printf(" = %s, %.2f times the routed update\n",
	       simulate_seconds(baseline->seconds, TEXT_HERE),
	       baseline->seconds / view->simulation->makespan_seconds);
}

void simulate_print(const struct simulate_view *view)
{
	print_head(view);
	print_bound(view);
	print_bottleneck(view);
	print_ends(view, ROLE_TRAINER);
	print_ends(view, ROLE_INFERENCE);
	print_timeline(view);
	if (view->flags->simulate.slow_count)
		printf("\nthe bound is that of the cluster before --slow\n");
	if (view->flags->simulate.failure)
		print_failure(view);
	if (view->baseline)
		print_baseline(view);
}
