/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tool.h"

#include "wire/frame.h"

static const struct codec_field hello_fields[] = {
	FIELD_LABEL(struct tool_hello, program),
};

static const struct codec_field failure_fields[] = {
	FIELD_CODE(struct tool_failure, code),
	FIELD_ERROR_TEXT(struct tool_failure, text),
};

static const struct codec_field settings_fields[] = {
	FIELD_LABEL(struct tool_settings, transport), FIELD_U64(struct tool_settings, qps),
	FIELD_U64(struct tool_settings, depth),	      FIELD_U64(struct tool_settings, mtu),
	FIELD_U64(struct tool_settings, chunk_bytes), FIELD_U64(struct tool_settings, region_bytes),
	FIELD_U64(struct tool_settings, secret),
};

static const struct codec_field record_fields[] = {
	FIELD_BYTES(struct tool_record, bytes, length, LIMIT_RECORD_BYTES),
};

static const struct codec_field pass_fields[] = {
	FIELD_U64(struct tool_pass, number),
	FIELD_U64(struct tool_pass, touched),
	FIELD_U64(struct tool_pass, sum),
	FIELD_BOOL(struct tool_pass, check),
};

/* rail   [gid, prefix_bits] */
static const struct codec_field rail_fields[] = {
	FIELD_LABEL(struct tool_rail, gid),
	FIELD_U32(struct tool_rail, prefix_bits, 128),
};
static const struct codec_record rail_record = {CODEC_RECORD_OF(struct tool_rail, rail_fields)};

static const struct codec_field about_fields[] = {
	FIELD_TEXT(struct tool_about, weft, LIMIT_NAME_BYTES),
	FIELD_TEXT(struct tool_about, host, LIMIT_NAME_BYTES),
	FIELD_LIST(struct tool_about, rails, rail_count, struct tool_rail, rail_record, LIMIT_NICS),
};

static const struct codec_field check_fields[] = {
	FIELD_U64(struct tool_check, bytes),
	FIELD_U64(struct tool_check, sequence),
};

static const struct codec_field checked_fields[] = {
	FIELD_U64(struct tool_checked, sum),
};

static const struct codec_field ping_fields[] = {
	FIELD_U64(struct tool_ping, count),
	FIELD_U64(struct tool_ping, sequence),
};

#define RECORD(name)                                               \
	{                                                          \
		CODEC_RECORD_OF(struct tool_##name, name##_fields) \
	}

static const struct codec_record nothing,
	hello_record = RECORD(hello), failure_record = RECORD(failure),
	settings_record = RECORD(settings), record_record = RECORD(record),
	pass_record = RECORD(pass), about_record = RECORD(about), check_record = RECORD(check),
	checked_record = RECORD(checked), ping_record = RECORD(ping);

static const struct frame_type types[] = {
	[TOOL_HELLO] = {"hello", &hello_record, NULL},
	[TOOL_FAILURE] = {"failure", &failure_record, NULL},
	[TOOL_SETTINGS] = {"settings", &settings_record, NULL},
	[TOOL_RECORD] = {"record", &record_record, NULL},
	[TOOL_REGION] = {"region", &record_record, NULL},
	[TOOL_CONNECTED] = {"connected", &nothing, NULL},
	[TOOL_PROVED] = {"proved", &nothing, NULL},
	[TOOL_PASS] = {"pass", &pass_record, NULL},
	[TOOL_PASSED] = {"passed", &nothing, NULL},
	[TOOL_ABOUT] = {"about", &about_record, NULL},
	[TOOL_CHECK] = {"check", &check_record, NULL},
	[TOOL_CHECKED] = {"checked", &checked_record, NULL},
	[TOOL_PING] = {"ping", &ping_record, NULL},
	[TOOL_PONG] = {"pong", &nothing, NULL},
	[TOOL_BYE] = {"bye", &nothing, NULL},
};

_Static_assert(sizeof(types) / sizeof(types[0]) == TOOL_TYPE_COUNT, "a row for every type");
_Static_assert(offsetof(struct tool_message, type) == 0, "a message begins with its type");

static const struct frame_protocol protocol = {
	.key = "tool",
	.version = TOOL_VERSION,
	.advice = "use the same weft on both hosts",
	.bytes_max = TOOL_MESSAGE_BYTES,
	.size = sizeof(struct tool_message),
	.body = offsetof(struct tool_message, u),
	.head = &nothing,
	.types = types,
	.type_count = TOOL_TYPE_COUNT,
};

const char *tool_type_name(enum tool_type type)
{
	return (unsigned)type < TOOL_TYPE_COUNT ? types[type].name : "unknown";
}

int tool_encode(const struct tool_message *message, unsigned char **bytes, size_t *length,
		struct error *error)
{
	return frame_encode(&protocol, message, bytes, length, error);
}

int tool_decode(struct tool_message *message, const unsigned char *bytes, size_t length,
		struct error *error)
{
	return frame_decode(&protocol, message, bytes, length, error);
}

void tool_fini(struct tool_message *message)
{
	frame_fini(&protocol, message);
}
