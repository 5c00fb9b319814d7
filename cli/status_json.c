/* SPDX-License-Identifier: Apache-2.0
 *
 * status_json.c -- a running job for programs: one object a line. docs/status.md names its keys.
 */
#include "cli/status.h"

#include "base/json_write.h"

#include <stdio.h>

static void put_who(struct json *json, struct member who)
{
	json_put_key_string(json, "role", role_name(who.role));
	json_put_key_u64(json, "rank", who.rank);
}

static void put_clocks(struct json *json, const struct update_clocks *last)
{
	const struct {
		const char *key;
		uint64_t us;
	} clocks[] = {
		{"update_seconds", last->update_us},   {"wait_seconds", last->wait_us},
		{"write_seconds", last->write_us},     {"verify_seconds", last->verify_us},
		{"install_seconds", last->install_us}, {"post_load_seconds", last->post_load_us},
		{"pause_seconds", last->pause_us}};

	json_put_key_object(json, "last_update");
	json_put_key_u64(json, "version", last->version);
	json_put_key_u64(json, "bytes", last->bytes);
	for (size_t i = 0; i < ARRAY_SIZE(clocks); i++)
		json_put_key_double(json, clocks[i].key, (double)clocks[i].us / 1e6);
	json_put_object_end(json);
}

static void put_nics(struct json *json, const struct report_member *before,
		     const struct report_member *one)
{
	json_put_key_array(json, "nics");
	for (size_t n = 0; n < one->activity.nic_count; n++) {
		const struct nic_traffic *nic = &one->activity.nics[n];

		json_put_object(json);
		json_put_key_string(json, "name", nic->name);
		json_put_key_u64(json, "bytes", nic->bytes);
		json_put_key_double(json, "busy_seconds", (double)nic->busy_ms / 1e3);
		json_put_key_u64(json, "waiting_bytes", nic->waiting_bytes);
		json_put_key_u64(json, "bytes_per_busy_second", status_nic_rate(before, nic));
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static void put_activity(struct json *json, const struct report_member *before,
			 const struct report_member *one)
{
	const struct message_activity *does = &one->activity;

	json_put_key_string(json, "does", activity_name(does->what));
	json_put_key_u64(json, "does_version", does->version);
	json_put_key_double(json, "does_seconds", (double)(does->since_ms + one->age_ms) / 1e3);
	json_put_key_array(json, "waits_for");
	for (size_t i = 0; i < does->wait_count; i++) {
		json_put_object(json);
		put_who(json, does->waits[i]);
		json_put_object_end(json);
	}
	json_put_array_end(json);
	json_put_key_u64(json, "waits_for_more", does->waits_more);
	json_put_key_u64(json, "bytes", does->bytes);
	json_put_key_double(json, "writing_seconds", (double)does->busy_ms / 1e3);
	json_put_key_u64(json, "bytes_per_second", one->bytes_per_second);
	put_clocks(json, &does->last);
	put_nics(json, before, one);
	json_put_key_string(json, "trouble", does->trouble);
}

static void put_members(struct json *json, const struct status_view *view)
{
	const struct message_report *now = view->now;

	json_put_key_array(json, "members");
	for (size_t i = 0; i < now->member_count; i++) {
		const struct report_member *one = &now->members[i];

		json_put_object(json);
		put_who(json, one->who);
		json_put_key_string(json, "host", one->host);
		json_put_key_u64(json, "pid", one->pid);
		json_put_key_string(json, "phase", one->phase);
		json_put_key_double(json, "heard_seconds", (double)one->heard_ms / 1e3);
		json_put_key_u64(json, "version", one->version);
		json_put_key_double(json, "version_seconds", (double)one->version_ms / 1e3);
		json_put_key_u64(json, "plan_bytes", one->plan_bytes);
		if (one->known)
			put_activity(json,
				     view->before ? status_find(view->before, one->who) : NULL,
				     one);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static void put_events(struct json *json, const struct message_report *now)
{
	json_put_key_array(json, "events");
	for (size_t i = 0; i < now->event_count; i++) {
		const struct report_event *event = &now->events[i];

		json_put_object(json);
		json_put_key_double(json, "ago_seconds", (double)event->age_ms / 1e3);
		if (event->who.rank != UINT32_MAX)
			put_who(json, event->who);
		json_put_key_u64(json, "code", (uint64_t)event->code);
		json_put_key_string(json, "text", event->text);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static void put_links(struct json *json, const struct message_report *now)
{
	json_put_key_array(json, "links");
	for (size_t i = 0; i < now->link_count; i++) {
		const struct report_link *link = &now->links[i];

		json_put_object(json);
		json_put_key_u64(json, "trainer", link->trainer);
		json_put_key_u64(json, "inference", link->rank);
		json_put_key_u64(json, "bytes", link->bytes);
		json_put_key_string(json, "transport", link->transport);
		json_put_object_end(json);
	}
	json_put_array_end(json);
	json_put_key_u64(json, "links_left_out", now->links_left_out);
}

static void put_findings(struct json *json, const findings *found)
{
	json_put_key_array(json, "why");
	for (size_t i = 0; i < found->count; i++) {
		const struct finding *one = &found->items[i];

		json_put_object(json);
		json_put_key_bool(json, "fault", one->fault);
		if (one->who.rank != UINT32_MAX)
			put_who(json, one->who);
		json_put_key_string(json, "text", one->text);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

void status_json(const struct status_view *view)
{
	const struct message_report *now = view->now;
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "job", view->job);
	json_put_key_string(&json, "controller", view->controller);
	json_put_key_string(&json, "state", now->state);
	json_put_key_double(&json, "up_seconds", (double)now->up_ms / 1e3);
	json_put_key_u64(&json, "plan", now->attempt);
	json_put_key_u64(&json, "plans", now->plans);
	json_put_key_u64(&json, "trainers", now->trainers);
	json_put_key_u64(&json, "engines", now->engines);
	json_put_key_u64(&json, "engine_ranks", now->engine_ranks);
	json_put_key_string(&json, "policy", now->policy);
	json_put_key_string(&json, "commit", now->commit);
	json_put_key_bool(&json, "continues", now->continues);
	json_put_key_double(&json, "heartbeat_seconds", now->heartbeat_ms / 1e3);
	json_put_key_double(&json, "lost_after_seconds", now->lost_ms / 1e3);
	json_put_key_string(&json, "missing", now->missing);
	json_put_key_u64(&json, "plan_largest_bytes", now->largest_bytes);
	json_put_key_u64(&json, "plan_bound_bytes", now->bound_bytes);
	json_put_key_double(&json, "plan_predicted_seconds", (double)now->predicted_us / 1e6);
	json_put_key_double(&json, "plan_bound_seconds", (double)now->bound_us / 1e6);
	json_put_key_string(&json, "trouble", now->trouble);
	put_members(&json, view);
	put_events(&json, now);
	if (view->links)
		put_links(&json, now);
	put_findings(&json, view->found);
	json_put_line_end(&json);
}
