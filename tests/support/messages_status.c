/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/messages_draw.h"

static void numbers(uint64_t *state, uint64_t *const *into)
{
	for (; *into; into++)
		**into = draw_number(state);
}

void messages_random_activity(struct message_activity *activity, uint64_t *state)
{
	activity->what = (enum activity)random_below(state, ACTIVITY_COUNT);
	numbers(state, (uint64_t *const[]){&activity->version, &activity->since_ms,
					   &activity->bytes, &activity->busy_ms, NULL});
	activity->waits = draw_list(&activity->wait_count, sizeof(*activity->waits), state);
	for (size_t i = 0; i < activity->wait_count; i++)
		activity->waits[i] = draw_member(state);
	activity->waits_more = (uint32_t)random_below(state, LIMIT_RANKS);
	for (size_t i = 0; i < sizeof(activity->last) / sizeof(uint64_t); i++)
		((uint64_t *)&activity->last)[i] = draw_number(state);
	activity->nics = draw_list(&activity->nic_count, sizeof(*activity->nics), state);
	for (size_t i = 0; i < activity->nic_count; i++) {
		activity->nics[i].name = draw_text(state);
		numbers(state,
			(uint64_t *const[]){&activity->nics[i].bytes, &activity->nics[i].busy_ms,
					    &activity->nics[i].waiting_bytes, NULL});
	}
	activity->trouble = draw_text(state);
}

static void random_report_member(struct report_member *one, uint64_t *state)
{
	one->who = draw_member(state);
	one->host = draw_text(state);
	one->phase = draw_text(state);
	one->known = draw_coin(state);
	numbers(state,
		(uint64_t *const[]){&one->pid, &one->heard_ms, &one->version, &one->version_ms,
				    &one->plan_bytes, &one->age_ms, &one->bytes_per_second, NULL});
	messages_random_activity(&one->activity, state);
}

static void random_report_lists(struct message_report *report, uint64_t *state)
{
	report->members = draw_list(&report->member_count, sizeof(*report->members), state);
	for (size_t i = 0; i < report->member_count; i++)
		random_report_member(&report->members[i], state);
	report->events = draw_list(&report->event_count, sizeof(*report->events), state);
	for (size_t i = 0; i < report->event_count; i++) {
		report->events[i].age_ms = draw_number(state);
		report->events[i].who = draw_member(state);
		report->events[i].code = (int)random_below(state, LIMIT_CODE + 1);
		report->events[i].text = draw_text(state);
	}
	report->links = draw_list(&report->link_count, sizeof(*report->links), state);
	for (size_t i = 0; i < report->link_count; i++) {
		report->links[i].trainer = draw_member(state).rank;
		report->links[i].rank = draw_member(state).rank;
		report->links[i].bytes = draw_number(state);
		report->links[i].transport = draw_text(state);
	}
}

void messages_random_report(struct message_report *report, uint64_t *state)
{
	report->state = draw_text(state);
	report->attempt = draw_number32(state);
	report->heartbeat_ms = draw_number32(state);
	report->lost_ms = draw_number32(state);
	report->update_timeout_ms = draw_number32(state);
	report->trainers = (uint32_t)random_below(state, LIMIT_RANKS);
	report->engines = (uint32_t)random_below(state, LIMIT_RANKS);
	report->engine_ranks = (uint32_t)random_below(state, LIMIT_RANKS);
	report->policy = draw_text(state);
	report->commit = draw_text(state);
	report->continues = draw_coin(state);
	report->missing = draw_text(state);
	numbers(state, (uint64_t *const[]){&report->plans, &report->up_ms, &report->largest_bytes,
					   &report->bound_bytes, &report->predicted_us,
					   &report->bound_us, &report->links_left_out, NULL});
	report->trouble = draw_text(state);
	random_report_lists(report, state);
}
