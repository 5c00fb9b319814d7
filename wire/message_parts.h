/* SPDX-License-Identifier: Apache-2.0
 *
 * message_parts.h -- inside wire/: the tables of each message type's own fields, and the
 * checks of fields against each other. message.c ties them to the types.
 */
#ifndef WIRE_MESSAGE_PARTS_H
#define WIRE_MESSAGE_PARTS_H

#include "wire/frame.h"
#include "wire/message.h"

/* Of `struct message_name`, by the table name_fields. */
#define MESSAGE_RECORD(name)                            \
	const struct codec_record message_##name##_record = { \
		CODEC_RECORD_OF(struct message_##name, name##_fields)}

/* Fields against each other. */
frame_check message_gone_check, message_pause_check, message_paused_check, message_hello_check, message_declare_check, message_welcome_check,
	message_layout_check, message_holding_check, message_plan_check,
	message_endpoints_check, message_peers_check;

/* message_session.c; attempt: of connected and go, member: [role, rank] */
extern const struct codec_record message_hello_record, message_declare_record,
	message_attempt_record, message_failure_record, message_leave_record,
	message_heartbeat_record, message_welcome_record, message_refuse_record,
	message_drop_record, message_gone_record, message_pause_record, message_paused_record, message_want_record, message_lost_record, message_member_record,
	message_members_record;

/* message_status.c */
extern const struct codec_record message_activity_record, message_ask_record, message_report_record;

/* message_layout.c; transform: of struct transform, [part, from, to] */
extern const struct codec_record message_transform_record, message_layout_record,
	message_holding_record;

/* message_plan.c, message_endpoints.c */
extern const struct codec_record message_plan_record, message_endpoints_record,
	message_peers_record;

#endif
