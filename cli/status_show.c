/* SPDX-License-Identifier: Apache-2.0
 *
 * status_show.c -- a running job for people. Ranks that do the same stand on one line:
 *
 *   ranks            does       version       for waits for              bytes/s              heard host
 *   trainer 0..6     between          7     1.2 s                                             0.2 s a
 *   trainer 7        writes           7     3.4 s inference 2          12.3 MB/s ██████████   0.1 s b
 */
#include "cli/status.h"

#include "base/text.h"
#include "cli/grid.h"
#include "cli/screen.h"
#include "cli/shown.h"

#include <stdio.h>
#include <string.h>

#define BAR_CELLS 10

static double seconds(uint64_t ms)
{
	return (double)ms / 1e3;
}

/* ---- one line of ranks ---- */

static bool same_waits(const struct message_activity *a, const struct message_activity *b)
{
	if (a->wait_count != b->wait_count || a->waits_more != b->waits_more)
		return false;
	for (size_t i = 0; i < a->wait_count; i++)
		if (a->waits[i].role != b->waits[i].role || a->waits[i].rank != b->waits[i].rank)
			return false;
	return true;
}

static bool same(const struct report_member *a, const struct report_member *b)
{
	return a->who.role == b->who.role && a->known == b->known && a->version == b->version &&
	       strcmp(a->phase, b->phase) == 0 && a->activity.what == b->activity.what &&
	       strcmp(a->host, b->host) == 0 && same_waits(&a->activity, &b->activity);
}

/* Of one that is no part of the job any more what it said last means nothing. */
static bool tells(const struct report_member *member)
{
	return member->known && strcmp(member->phase, "connected") == 0;
}

static const char *does(const struct report_member *member)
{
	return tells(member) ? activity_name(member->activity.what) : shown(member->phase);
}

static const char *waits_text(const struct message_activity *activity)
{
	struct text text = {0};
	const char *cell;

	for (size_t i = 0; i < activity->wait_count; i++) {
		const struct member *one = &activity->waits[i];
		bool first = i == 0 || activity->waits[i - 1].role != one->role;

		text_format(&text, "%s%s%u", i ? "," : "",
			    !first			? ""
			    : one->role == ROLE_TRAINER ? "trainer "
							: "inference ",
			    one->rank);
	}
	if (activity->waits_more)
		text_format(&text, " and %u more", activity->waits_more);
	cell = grid_cell("%s", text_string(&text));
	text_fini(&text);
	return cell;
}

static const char *bar(uint64_t value, uint64_t most)
{
	char cells[3 * BAR_CELLS + 1] = "";
	uint64_t full = most ? (value * BAR_CELLS + most / 2) / most : 0;

	for (uint64_t i = 0; i < full && i < BAR_CELLS; i++)
		strcat(cells, "█");
	return grid_cell("%s", cells);
}

/* The longest, and all of them together, of ranks [from, to). */
static void put_ranks(struct grid *grid, const struct message_report *report, size_t from,
		      size_t to, uint64_t most)
{
	const struct report_member *first = &report->members[from];
	uint64_t since = 0, rate = 0, fastest = 0, heard = 0;
	char name[MEMBER_TEXT_BYTES];
	const char *ranks = member_text(first->who, name);

	for (size_t i = from; i < to; i++) {
		const struct report_member *one = &report->members[i];

		since = one->activity.since_ms + one->age_ms > since
				? one->activity.since_ms + one->age_ms
				: since;
		heard = one->heard_ms > heard ? one->heard_ms : heard;
		rate += one->bytes_per_second;
		fastest = one->bytes_per_second > fastest ? one->bytes_per_second : fastest;
	}
	if (to - from > 1)
		ranks = grid_cell("%s..%u", ranks, report->members[to - 1].who.rank);
	grid_row(grid, (const char *[]){ranks, does(first),
					grid_cell("%llu", (unsigned long long)first->version),
					tells(first) ? grid_cell("%.1f s", seconds(since)) : "",
					tells(first) ? waits_text(&first->activity) : "",
					rate ? grid_cell("%s/s", BYTES_TEXT(rate)) : "",
					bar(fastest, most),
					*first->host ? grid_cell("%.1f s", seconds(heard)) : "",
					grid_cell("%s", shown(first->host))});
}

static void show_ranks(const struct message_report *report)
{
	static const struct grid_column columns[] = {COLUMN("ranks", -16),
						     COLUMN("does", -10),
						     COLUMN("version", 7),
						     COLUMN("for", 9),
						     COLUMN("waits for", -18, .least = 12),
						     COLUMN("bytes/s", 11),
						     COLUMN("", -BAR_CELLS, .spare = true),
						     COLUMN("heard", 7),
						     COLUMN("host", -12, .least = 6)};
	struct grid grid;
	uint64_t most = 0;

	for (size_t i = 0; i < report->member_count; i++)
		if (report->members[i].bytes_per_second > most)
			most = report->members[i].bytes_per_second;
	grid_begin(&grid, columns, ARRAY_SIZE(columns));
	for (size_t from = 0, to; from < report->member_count; from = to) {
		for (to = from + 1; to < report->member_count &&
				    same(&report->members[from], &report->members[to]);)
			to++;
		put_ranks(&grid, report, from, to, most);
	}
	grid_end(&grid);
}

/* ---- the last update, beside the plan ---- */

/* Without the time until ranks accept, which is theirs; with what the host program does between begin and end. */
static uint64_t sending_us(const struct update_clocks *last)
{
	return last->update_us > last->wait_us ? last->update_us - last->wait_us : 0;
}

/* What of its last update is its own: an inference rank waits for trainers that compute, whoever is slow. */
static uint64_t own_us(const struct report_member *one)
{
	return one->who.role == ROLE_TRAINER ? sending_us(&one->activity.last)
					     : one->activity.last.install_us;
}

static const struct report_member *slowest(const struct message_report *report, enum role role)
{
	const struct report_member *worst = NULL;

	for (size_t i = 0; i < report->member_count; i++) {
		const struct report_member *one = &report->members[i];

		if (one->who.role != role || !tells(one) || !one->activity.last.update_us)
			continue;
		if (!worst || own_us(one) > own_us(worst))
			worst = one;
	}
	return worst;
}

static void show_plan(const struct message_report *report)
{
	if (!report->largest_bytes)
		return;
	printf("plan %u: policy %s; the busiest trainer sends %s, no plan less than %s\n",
	       report->attempt, shown(report->policy), BYTES_TEXT(report->largest_bytes),
	       BYTES_TEXT(report->bound_bytes));
}

static void show_trainer(const struct message_report *report, const struct report_member *one)
{
	const struct update_clocks *last = &one->activity.last;
	char name[MEMBER_TEXT_BYTES];

	printf("slowest trainer of its last update, %s, version %llu: %s in %s; of that writing %s; "
	       "before it %s until ranks accepted",
	       member_text(one->who, name), (unsigned long long)last->version,
	       BYTES_TEXT(last->bytes), SECONDS_TEXT(sending_us(last) * 1000),
	       SECONDS_TEXT(last->write_us * 1000), SECONDS_TEXT(last->wait_us * 1000));
	if (report->predicted_us && sending_us(last))
		printf("; predicted %s, at least %s: %.0f %% of what is possible",
		       SECONDS_TEXT(report->predicted_us * 1000),
		       SECONDS_TEXT(report->bound_us * 1000),
		       100.0 * (double)report->bound_us / (double)sending_us(last));
	printf("\n");
}

static void show_rank(const struct report_member *one)
{
	const struct update_clocks *last = &one->activity.last;
	char name[MEMBER_TEXT_BYTES];

	printf("slowest rank of its last update, %s, version %llu: %s; bytes %s, checksums %s, install "
	       "%s (hook %s); readers paused %s\n",
	       member_text(one->who, name), (unsigned long long)last->version,
	       SECONDS_TEXT(last->update_us * 1000), SECONDS_TEXT(last->wait_us * 1000),
	       SECONDS_TEXT(last->verify_us * 1000), SECONDS_TEXT(last->install_us * 1000),
	       SECONDS_TEXT(last->post_load_us * 1000), SECONDS_TEXT(last->pause_us * 1000));
}

static void show_clocks(const struct message_report *report)
{
	const struct report_member *trainer = slowest(report, ROLE_TRAINER);
	const struct report_member *rank = slowest(report, ROLE_INFERENCE);

	if (trainer)
		show_trainer(report, trainer);
	if (rank)
		show_rank(rank);
}

/* ---- NICs ---- */

static void show_nics(const struct status_view *view)
{
	static const struct grid_column columns[] = {
		COLUMN("ranks", -16),	  COLUMN("NIC", -16, .least = 8),
		COLUMN("while busy", 13), COLUMN("carried", 11),
		COLUMN("on its way", 11), COLUMN("host", -12, .least = 6)};
	const struct message_report *now = view->now;
	struct grid grid;
	bool any = false;

	for (size_t i = 0; i < now->member_count; i++) {
		const struct report_member *one = &now->members[i];
		const struct report_member *before =
			view->before ? status_find(view->before, one->who) : NULL;
		char name[MEMBER_TEXT_BYTES];

		for (size_t n = 0; n < one->activity.nic_count; n++) {
			const struct nic_traffic *nic = &one->activity.nics[n];
			uint64_t rate = status_nic_rate(before, nic);

			if (!any) {
				printf("\n");
				grid_begin(&grid, columns, ARRAY_SIZE(columns));
			}
			any = true;
			grid_row(&grid,
				 (const char *[]){
					 member_text(one->who, name),
					 grid_cell("%s", shown(nic->name)),
					 rate ? grid_cell("%s/s", BYTES_TEXT(rate)) : "",
					 grid_cell("%s", BYTES_TEXT(nic->bytes)),
					 nic->waiting_bytes
						 ? grid_cell("%s", BYTES_TEXT(nic->waiting_bytes))
						 : "",
					 grid_cell("%s", shown(one->host))});
		}
	}
	if (any)
		grid_end(&grid);
}

/* ---- who sends to whom ---- */

static uint64_t link_bytes(const struct message_report *report, size_t *at, uint32_t trainer,
			   uint32_t rank)
{
	const struct report_link *link = &report->links[*at];

	if (*at == report->link_count || link->trainer != trainer || link->rank != rank)
		return 0;
	++*at;
	return link->bytes;
}

static void show_links(const struct message_report *report)
{
	uint32_t ranks = report->engines * report->engine_ranks;
	uint32_t columns = ranks + 1 < GRID_COLUMNS_MAX ? ranks + 1 : GRID_COLUMNS_MAX;
	struct grid_column *heads = memory_zalloc(columns, sizeof(*heads));
	const char **cells = memory_zalloc(columns, sizeof(*cells));
	char(*names)[16] = memory_zalloc(columns, sizeof(*names));
	char(*texts)[16] = memory_zalloc(
		columns, sizeof(*texts)); /* a row may be wider than what grid_cell keeps */
	struct grid grid;
	size_t at = 0;

	if (!heads || !cells || !names || !texts)
		goto out;
	heads[0] = (struct grid_column)COLUMN("trainer", -8);
	for (uint32_t c = 1; c < columns; c++) {
		snprintf(names[c], sizeof(names[c]), "i%u", c - 1);
		heads[c] = (struct grid_column){.head = names[c], .width = 9};
	}
	printf("\nbytes of an update, from trainers to inference ranks\n");
	grid_begin(&grid, heads, columns);
	for (uint32_t trainer = 0; trainer < report->trainers; trainer++) {
		char first[16];

		snprintf(first, sizeof(first), "%u", trainer);
		cells[0] = first;
		for (uint32_t c = 1; c < columns; c++) {
			uint64_t bytes = link_bytes(report, &at, trainer, c - 1);

			snprintf(texts[c], sizeof(texts[c]), "%s", bytes ? BYTES_TEXT(bytes) : ".");
			cells[c] = texts[c];
		}
		while (at < report->link_count && report->links[at].trainer == trainer)
			at++;
		grid_row(&grid, cells);
	}
	grid_end(&grid);
	if (report->links_left_out)
		printf("%llu more pairs are left out\n",
		       (unsigned long long)report->links_left_out);
out:
	memory_free(heads);
	memory_free(cells);
	memory_free(names);
	memory_free(texts);
}

/* ---- all of it ---- */

static void show_events(const struct message_report *report)
{
	for (size_t i = 0; i < report->event_count; i++) {
		const struct report_event *event = &report->events[i];

		if (i == 0)
			printf("\nlosses and failures, the newest last\n");
		printf("  %.1f s ago  WEFT-E%d  %s\n", seconds(event->age_ms), event->code,
		       shown(event->text));
	}
}

void status_show_why(const struct status_view *view)
{
	for (size_t i = 0; i < view->found->count; i++)
		printf("%s  %s\n", view->found->items[i].fault ? "FAULT" : "note ",
		       view->found->items[i].text);
	if (!view->found->count)
		printf("nobody is at fault, and nobody waits for long\n");
}

void status_show(const struct status_view *view)
{
	const struct message_report *now = view->now;

	printf("job '%s' at %s: %s, up %.1f s; %u trainers, %u engines of %u rank%s; versions are "
	       "shown by %s; a loss %s\n",
	       shown(view->job), shown(view->controller), shown(now->state), seconds(now->up_ms),
	       now->trainers, now->engines, now->engine_ranks, now->engine_ranks == 1 ? "" : "s",
	       shown(now->commit), now->continues ? "ends nobody else" : "ends the job");
	show_plan(now);
	show_clocks(now);
	printf("\n");
	show_ranks(now);
	show_nics(view);
	if (view->links)
		show_links(now);
	show_events(now);
	printf("\n");
	status_show_why(view);
}
