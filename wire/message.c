/* SPDX-License-Identifier: Apache-2.0
 *
 * message.c -- the control plane's protocol: its head, and the table of its types.
 */
#include "wire/message.h"

#include "wire/frame.h"
#include "wire/message_parts.h"
#include <assert.h>
#include <string.h>

static const struct codec_field head_fields[] = {
	FIELD_LABEL(struct message, job),
	FIELD_U64(struct message, epoch),
	FIELD_U64(struct message, from),
};
static const struct codec_record head_record = {CODEC_RECORD_OF(struct message, head_fields)};

static const struct frame_type types[] = {
	[MESSAGE_HELLO] = {"hello", &message_hello_record, message_hello_check},
	[MESSAGE_DECLARE] = {"declare", &message_declare_record, message_declare_check},
	[MESSAGE_LAYOUT] = {"layout", &message_layout_record, message_layout_check},
	[MESSAGE_HOLDING] = {"holding", &message_holding_record, message_holding_check},
	[MESSAGE_ENDPOINTS] = {"endpoints", &message_endpoints_record, message_endpoints_check},
	[MESSAGE_CONNECTED] = {"connected", &message_attempt_record, NULL},
	[MESSAGE_FAILURE] = {"failure", &message_failure_record, NULL},
	[MESSAGE_DROP] = {"drop", &message_drop_record, NULL},
	[MESSAGE_PAUSED] = {"paused", &message_paused_record, message_paused_check},
	[MESSAGE_LEAVE] = {"leave", &message_leave_record, NULL},
	[MESSAGE_ACTIVITY] = {"activity", &message_activity_record, NULL},
	[MESSAGE_ASK] = {"ask", &message_ask_record, NULL},
	[MESSAGE_HEARTBEAT] = {"heartbeat", &message_heartbeat_record, NULL},
	[MESSAGE_WELCOME] = {"welcome", &message_welcome_record, message_welcome_check},
	[MESSAGE_REFUSE] = {"refuse", &message_refuse_record, NULL},
	[MESSAGE_WANT] = {"want", &message_want_record, NULL},
	[MESSAGE_PLAN] = {"plan", &message_plan_record, message_plan_check},
	[MESSAGE_PEERS] = {"peers", &message_peers_record, message_peers_check},
	[MESSAGE_GO] = {"go", &message_attempt_record, NULL},
	[MESSAGE_LOST] = {"lost", &message_lost_record, NULL},
	[MESSAGE_GONE] = {"gone", &message_gone_record, message_gone_check},
	[MESSAGE_PAUSE] = {"pause", &message_pause_record, message_pause_check},
	[MESSAGE_REPORT] = {"report", &message_report_record, NULL},
};

_Static_assert(sizeof(types) / sizeof(types[0]) == MESSAGE_TYPE_COUNT, "a row for every type");
_Static_assert(offsetof(struct message, type) == 0, "a message begins with its type");

static const struct frame_protocol protocol = {
	.key = "wire",
	.version = WIRE_VERSION,
	.advice = "run the same release of weft everywhere in a job",
	.bytes_max = LIMIT_MESSAGE_BYTES,
	.size = sizeof(struct message),
	.body = offsetof(struct message, u),
	.head = &head_record,
	.types = types,
	.type_count = MESSAGE_TYPE_COUNT,
};

const char *message_type_name(enum message_type type)
{
	return (unsigned)type < MESSAGE_TYPE_COUNT ? types[type].name : "unknown";
}

void message_fini(struct message *message)
{
	frame_fini(&protocol, message);
}

void endpoints_fini(struct message_endpoints *endpoints)
{
	codec_fini(&message_endpoints_record, endpoints);
	memset(endpoints, 0, sizeof(*endpoints));
}

int message_copy(struct message *to, const struct message *from, struct error *error)
{
	int rc;

	memset(to, 0, sizeof(*to));
	assert((unsigned)from->type < MESSAGE_TYPE_COUNT);
	to->type = from->type;
	to->wire = from->wire;
	rc = codec_copy(&head_record, to, from, error);
	if (rc == 0)
		rc = codec_copy(types[from->type].record, &to->u, &from->u, error);
	if (rc) {
		message_fini(to);
		error_wrap(error, "copying a %s message", types[from->type].name);
	}
	return rc;
}

int message_encode(const struct message *message, unsigned char **bytes, size_t *length,
		   struct error *error)
{
	return frame_encode(&protocol, message, bytes, length, error);
}

int message_decode(struct message *message, const unsigned char *bytes, size_t length,
		   struct error *error)
{
	int rc = frame_decode(&protocol, message, bytes, length, error);

	message->wire = rc ? 0 : WIRE_VERSION;
	return rc;
}
