/* SPDX-License-Identifier: Apache-2.0
 *
 * message_status.c -- what people see of a running job: activity, ask, report (status.h).
 */
#include "wire/message_parts.h"

#include <string.h>

_Static_assert(ACTIVITY_JOINS == 0 && ACTIVITY_PREPARED == 12 && ACTIVITY_COUNT == 13,
	       "activity on the wire");

static const char *const activity_names[ACTIVITY_COUNT] = {
	[ACTIVITY_JOINS] = "joins",	  [ACTIVITY_BETWEEN] = "between",
	[ACTIVITY_PAUSED] = "paused",	  [ACTIVITY_BEGINS] = "begins",
	[ACTIVITY_OPEN] = "open",	  [ACTIVITY_WRITES] = "writes",
	[ACTIVITY_ENDS] = "ends",	  [ACTIVITY_STANDS_BY] = "stands_by",
	[ACTIVITY_RECEIVES] = "receives", [ACTIVITY_VERIFIES] = "verifies",
	[ACTIVITY_MEETS] = "meets",	  [ACTIVITY_LOADS] = "loads",
	[ACTIVITY_PREPARED] = "prepared",
};

const char *activity_name(enum activity activity)
{
	return (unsigned)activity < ACTIVITY_COUNT ? activity_names[activity] : "unknown";
}

/* nic [name, bytes, busy_ms, waiting_bytes] */
static const struct codec_field traffic_fields[] = {
	FIELD_TEXT(struct nic_traffic, name, LIMIT_TRAFFIC_NAME_BYTES),
	FIELD_U64(struct nic_traffic, bytes),
	FIELD_U64(struct nic_traffic, busy_ms),
	FIELD_U64(struct nic_traffic, waiting_bytes),
};
static const struct codec_record traffic_record = {
	CODEC_RECORD_OF(struct nic_traffic, traffic_fields)};

/* last [version, bytes, update_us, wait_us, write_us, verify_us, install_us, post_load_us, pause_us] */
static const struct codec_field clocks_fields[] = {
	FIELD_U64(struct update_clocks, version),    FIELD_U64(struct update_clocks, bytes),
	FIELD_U64(struct update_clocks, update_us),  FIELD_U64(struct update_clocks, wait_us),
	FIELD_U64(struct update_clocks, write_us),   FIELD_U64(struct update_clocks, verify_us),
	FIELD_U64(struct update_clocks, install_us), FIELD_U64(struct update_clocks, post_load_us),
	FIELD_U64(struct update_clocks, pause_us),
};
static const struct codec_record clocks_record = {
	CODEC_RECORD_OF(struct update_clocks, clocks_fields)};

/* {"what":8, "version":12, "since_ms":140, "bytes":..., "busy_ms":.., "waits":[[role, rank], ..], "waits_more":0,
 *  "last":[..], "nics":[["mlx5_0:1", ..], ..], "trouble":""} */
static const struct codec_field activity_fields[] = {
	FIELD_U32(struct message_activity, what, ACTIVITY_COUNT - 1),
	FIELD_U64(struct message_activity, version),
	FIELD_U64(struct message_activity, since_ms),
	FIELD_U64(struct message_activity, bytes),
	FIELD_U64(struct message_activity, busy_ms),
	FIELD_LIST(struct message_activity, waits, wait_count, struct member, message_member_record,
		   LIMIT_WAITS),
	FIELD_U32(struct message_activity, waits_more, LIMIT_RANKS),
	FIELD_RECORD(struct message_activity, last, struct update_clocks, clocks_record),
	FIELD_LIST(struct message_activity, nics, nic_count, struct nic_traffic, traffic_record,
		   LIMIT_NICS),
	FIELD_ERROR_TEXT(struct message_activity, trouble),
};
MESSAGE_RECORD(activity);

void message_activity_fini(struct message_activity *activity)
{
	codec_fini(&message_activity_record, activity);
	memset(activity, 0, sizeof(*activity));
}

int message_activity_copy(struct message_activity *to, const struct message_activity *from)
{
	memset(to, 0, sizeof(*to));
	if (!codec_copy(&message_activity_record, to, from, NULL))
		return 0;
	message_activity_fini(to);
	return -(int)ERROR_MEMORY;
}

/* {"links":false} */
static const struct codec_field ask_fields[] = {
	FIELD_BOOL(struct message_ask, links),
};
MESSAGE_RECORD(ask);

/* member [[role, rank], host, pid, phase, heard_ms, version, version_ms, plan_bytes, known, age_ms, [activity], rate] */
static const struct codec_field member_fields[] = {
	FIELD_RECORD(struct report_member, who, struct member, message_member_record),
	FIELD_TEXT(struct report_member, host, LIMIT_NAME_BYTES),
	FIELD_U64(struct report_member, pid),
	FIELD_TEXT(struct report_member, phase, LIMIT_LABEL_BYTES),
	FIELD_U64(struct report_member, heard_ms),
	FIELD_U64(struct report_member, version),
	FIELD_U64(struct report_member, version_ms),
	FIELD_U64(struct report_member, plan_bytes),
	FIELD_BOOL(struct report_member, known),
	FIELD_U64(struct report_member, age_ms),
	FIELD_RECORD(struct report_member, activity, struct message_activity,
		     message_activity_record),
	FIELD_U64(struct report_member, bytes_per_second),
};
static const struct codec_record member_record = {
	CODEC_RECORD_OF(struct report_member, member_fields)};

/* The job's own events are nobody's: rank 4294967295. */
static const struct codec_field whose_fields[] = {
	FIELD_U32(struct member, role, ROLE_COUNT - 1),
	FIELD_U32(struct member, rank, UINT32_MAX),
};
static const struct codec_record whose_record = {CODEC_RECORD_OF(struct member, whose_fields)};

/* event [age_ms, [role, rank], code, text] */
static const struct codec_field event_fields[] = {
	FIELD_U64(struct report_event, age_ms),
	FIELD_RECORD(struct report_event, who, struct member, whose_record),
	FIELD_CODE(struct report_event, code),
	FIELD_ERROR_TEXT(struct report_event, text),
};
static const struct codec_record event_record = {
	CODEC_RECORD_OF(struct report_event, event_fields)};

/* link [trainer, rank, bytes, transport] */
static const struct codec_field link_fields[] = {
	FIELD_U32(struct report_link, trainer, LIMIT_RANKS - 1),
	FIELD_U32(struct report_link, rank, LIMIT_RANKS - 1),
	FIELD_U64(struct report_link, bytes),
	FIELD_TEXT(struct report_link, transport, LIMIT_NAME_BYTES),
};
static const struct codec_record link_record = {CODEC_RECORD_OF(struct report_link, link_fields)};

/* {"state":"running", .., "members":[..], "events":[..], "links":[..]} */
static const struct codec_field report_fields[] = {
	FIELD_TEXT(struct message_report, state, LIMIT_NAME_BYTES),
	FIELD_U32(struct message_report, attempt, UINT32_MAX),
	FIELD_U64(struct message_report, plans),
	FIELD_U64(struct message_report, up_ms),
	FIELD_U32(struct message_report, heartbeat_ms, UINT32_MAX),
	FIELD_U32(struct message_report, lost_ms, UINT32_MAX),
	FIELD_U32(struct message_report, update_timeout_ms, UINT32_MAX),
	FIELD_U32(struct message_report, trainers, LIMIT_RANKS),
	FIELD_U32(struct message_report, engines, LIMIT_RANKS),
	FIELD_U32(struct message_report, engine_ranks, LIMIT_RANKS),
	FIELD_TEXT(struct message_report, policy, LIMIT_NAME_BYTES),
	FIELD_TEXT(struct message_report, commit, LIMIT_NAME_BYTES),
	FIELD_BOOL(struct message_report, continues),
	FIELD_ERROR_TEXT(struct message_report, missing),
	FIELD_U64(struct message_report, largest_bytes),
	FIELD_U64(struct message_report, bound_bytes),
	FIELD_U64(struct message_report, predicted_us),
	FIELD_U64(struct message_report, bound_us),
	FIELD_ERROR_TEXT(struct message_report, trouble),
	FIELD_LIST(struct message_report, members, member_count, struct report_member,
		   member_record, 2 * LIMIT_RANKS),
	FIELD_LIST(struct message_report, events, event_count, struct report_event, event_record,
		   LIMIT_EVENTS),
	FIELD_LIST(struct message_report, links, link_count, struct report_link, link_record,
		   LIMIT_LINKS),
	FIELD_U64(struct message_report, links_left_out),
};
MESSAGE_RECORD(report);
