/* SPDX-License-Identifier: Apache-2.0
 *
 * message_session.c -- the small messages: who is here, what goes on, how it ends. Shown
 * without the head that every message has (message.c).
 */
#include "wire/message_parts.h"

#include <string.h>

/* Enums travel as numbers: these are the wire's, so they stay what they are. */
_Static_assert(ROLE_TRAINER == 0 && ROLE_INFERENCE == 1 && ROLE_COUNT == 2, "role on the wire");

/* member   [role, rank] */
static const struct codec_field member_fields[] = {
	FIELD_U32(struct member, role, ROLE_COUNT - 1),
	FIELD_U32(struct member, rank, LIMIT_RANKS - 1),
};
const struct codec_record message_member_record = {CODEC_RECORD_OF(struct member, member_fields)};

static const struct codec_field members_fields[] = {
	FIELD_RECORD(struct members, first, struct member, message_member_record),
	FIELD_U32(struct members, count, LIMIT_RANKS),
};
const struct codec_record message_members_record = {
	CODEC_RECORD_OF(struct members, members_fields)};

/* {"role":0, "rank":3, "incarnation":0x9f.., "host":"n1", "host_id":"5c4e..", "pid":4711, "attempt":0, "plan":bin16,
 *  "follows":false, "away":[[[role, rank], count], ..], "lost":[..], "done":[..]} */
static const struct codec_field hello_fields[] = {
	FIELD_U32(struct message_hello, role, ROLE_COUNT - 1),
	FIELD_U32(struct message_hello, rank, LIMIT_RANKS - 1),
	FIELD_U64(struct message_hello, incarnation),
	FIELD_TEXT(struct message_hello, host, LIMIT_NAME_BYTES),
	FIELD_TEXT(struct message_hello, host_id, LIMIT_NAME_BYTES),
	FIELD_U64(struct message_hello, pid),
	FIELD_U32(struct message_hello, attempt, INT32_MAX),
	FIELD_DIGEST(struct message_hello, plan),
	FIELD_BOOL(struct message_hello, follows),
	FIELD_BOOL(struct message_hello, paused),
	FIELD_BOOL(struct message_hello, unconnected),
	FIELD_LIST(struct message_hello, away, away_count, struct members, message_members_record,
		   LIMIT_RANKS),
	FIELD_LIST(struct message_hello, lost, lost_count, struct members, message_members_record,
		   LIMIT_RANKS),
	FIELD_LIST(struct message_hello, done, done_count, struct members, message_members_record,
		   LIMIT_RANKS),
};
MESSAGE_RECORD(hello);

int message_hello_check(const void *body, struct error *error)
{
	const struct message_hello *hello = body;

	if (hello->incarnation == 0)
		return error_set(error, ERROR_MESSAGE, "incarnation is 0, which no process has");
	return 0;
}

_Static_assert(DISTANCE_PIX == 0 && DISTANCE_SYS == 4 && DISTANCE_COUNT == 5,
	       "distance on the wire");

/* nic   [name, rail, bytes_per_second, distance] */
static const struct codec_field nic_fields[] = {
	FIELD_TEXT(struct nic_report, name, LIMIT_NAME_BYTES),
	FIELD_U32(struct nic_report, rail, NIC_RAIL_MAX),
	FIELD_LIMITED_U64(struct nic_report, bytes_per_second, NIC_RATE_MAX),
	FIELD_U32(struct nic_report, distance, DISTANCE_COUNT - 1),
};
static const struct codec_record nic_record = {CODEC_RECORD_OF(struct nic_report, nic_fields)};

/* offer [name, reach, mapped, registered, landed] */
static const struct codec_field offer_fields[] = {
	FIELD_TEXT(struct transport_offer, name, TRANSPORTS_NAME_BYTES),
	FIELD_TEXT(struct transport_offer, reach, LIMIT_REACH_BYTES),
	FIELD_BOOL(struct transport_offer, mapped),
	FIELD_BOOL(struct transport_offer, registered),
	FIELD_BOOL(struct transport_offer, landed),
};
static const struct codec_record offer_record = {
	CODEC_RECORD_OF(struct transport_offer, offer_fields)};

/* {"model":"Qwen3-4B", "train":"world=4,..", "infer":"engines=2,tp=2", "digest":bin16,
 *  "mapped":true, "registered":false, "device":false, "landed":false, "stands_in":false, "transport":"verbs", "checksums":false,
 *  "nics":[["mlx5_0:1", 0, 50000000000, 0], ..], "offers":[["verbs", "", false, true, false], ..]} */
static const struct codec_field declare_fields[] = {
	FIELD_TEXT(struct message_declare, model, LIMIT_LABEL_BYTES),
	FIELD_TEXT(struct message_declare, train, LIMIT_LABEL_BYTES),
	FIELD_TEXT(struct message_declare, infer, LIMIT_LABEL_BYTES),
	FIELD_DIGEST(struct message_declare, digest),
	FIELD_BOOL(struct message_declare, mapped),
	FIELD_BOOL(struct message_declare, registered),
	FIELD_BOOL(struct message_declare, device),
	FIELD_BOOL(struct message_declare, landed),
	FIELD_BOOL(struct message_declare, stands_in),
	FIELD_TEXT(struct message_declare, transport, LIMIT_NAME_BYTES),
	FIELD_BOOL(struct message_declare, checksums),
	FIELD_LIST(struct message_declare, nics, nic_count, struct nic_report, nic_record,
		   LIMIT_NICS),
	FIELD_LIST(struct message_declare, offers, offer_count, struct transport_offer,
		   offer_record, LIMIT_OFFERS),
};
MESSAGE_RECORD(declare);

static int check_offers(const struct message_declare *declare, struct error *error)
{
	for (size_t i = 0; i < declare->offer_count; i++) {
		const char *name = declare->offers[i].name;

		if (!name || !name[0])
			return error_set(error, ERROR_MESSAGE, "offers[%zu] has no name", i);
		for (size_t k = 0; k < i; k++)
			if (strcmp(declare->offers[k].name, name) == 0)
				return error_set(error, ERROR_MESSAGE,
						 "offers[%zu] and offers[%zu] are both '%s'", k, i,
						 name);
	}
	return 0;
}

int message_declare_check(const void *body, struct error *error)
{
	const struct message_declare *declare = body;

	for (size_t i = 0; i < declare->nic_count; i++) {
		const char *name = declare->nics[i].name;

		if (!name || !name[0])
			return error_set(error, ERROR_MESSAGE, "nics[%zu] has no name", i);
		for (size_t k = 0; k < i; k++)
			if (strcmp(declare->nics[k].name, name) == 0)
				return error_set(error, ERROR_MESSAGE,
						 "nics[%zu] and nics[%zu] are both '%.64s'", k, i,
						 name);
	}
	return check_offers(declare, error);
}

/* connected, go: {"attempt":1} */
static const struct codec_field attempt_fields[] = {
	FIELD_U32(struct message_attempt, attempt, UINT32_MAX),
};
MESSAGE_RECORD(attempt);

/* {"code":140, "text":"update 12: write to inference 3 ..", "version":12} */
static const struct codec_field failure_fields[] = {
	FIELD_CODE(struct message_failure, code),
	FIELD_ERROR_TEXT(struct message_failure, text),
	FIELD_U64(struct message_failure, version),
};
MESSAGE_RECORD(failure);

/* {"attempt":2, "member":[1, 3], "code":140, "text":"write to inference 3 ..", "version":12} */
static const struct codec_field drop_fields[] = {
	FIELD_U32(struct message_drop, attempt, UINT32_MAX),
	FIELD_RECORD(struct message_drop, member, struct member, message_member_record),
	FIELD_CODE(struct message_drop, code),
	FIELD_ERROR_TEXT(struct message_drop, text),
	FIELD_U64(struct message_drop, version),
};
MESSAGE_RECORD(drop);

/* {"done":true} */
static const struct codec_field leave_fields[] = {
	FIELD_BOOL(struct message_leave, done),
};
MESSAGE_RECORD(leave);

/* {"sequence":812, "version":12} */
static const struct codec_field heartbeat_fields[] = {
	FIELD_U64(struct message_heartbeat, sequence),
	FIELD_U64(struct message_heartbeat, version),
	FIELD_U32(struct message_heartbeat, gone, UINT32_MAX),
};
MESSAGE_RECORD(heartbeat);

/* {"heartbeat_ms":1000, "lost_ms":5000, "controller":0x7a.., "runs":false} */
static const struct codec_field welcome_fields[] = {
	FIELD_U32(struct message_welcome, heartbeat_ms, UINT32_MAX),
	FIELD_U32(struct message_welcome, lost_ms, UINT32_MAX),
	FIELD_U64(struct message_welcome, controller),
	FIELD_BOOL(struct message_welcome, runs),
	FIELD_U32(struct message_welcome, orphan_ms, UINT32_MAX),
};
MESSAGE_RECORD(welcome);

int message_welcome_check(const void *body, struct error *error)
{
	const struct message_welcome *welcome = body;

	if (welcome->controller == 0)
		return error_set(error, ERROR_MESSAGE, "controller is 0, which no process has");
	return 0;
}

/* {"code":123, "text":"trainer 3 is taken by pid 4711 on n1 .."} */
static const struct codec_field refuse_fields[] = {
	FIELD_CODE(struct message_refuse, code),
	FIELD_ERROR_TEXT(struct message_refuse, text),
};
MESSAGE_RECORD(refuse);

/* {"digests":[bin16, ..]} */
static const struct codec_field digest_fields[] = {
	{.key = "digest", .kind = CODEC_DIGEST, .offset = 0, .required = true},
};
static const struct codec_record digest_record = {CODEC_RECORD_OF(struct digest, digest_fields),
						  .bare = true};
static const struct codec_field want_fields[] = {
	FIELD_LIST(struct message_want, digests, digest_count, struct digest, digest_record,
		   LIMIT_DIGESTS),
};
MESSAGE_RECORD(want);

/* {"code":131, "text":"trainer 3 (pid 4711 on n1) was lost ..", "member":[0, 3],
 *  "incarnation":0x9f..} */
static const struct codec_field lost_fields[] = {
	FIELD_CODE(struct message_lost, code),
	FIELD_ERROR_TEXT(struct message_lost, text),
	FIELD_RECORD(struct message_lost, member, struct member, message_member_record),
	FIELD_U64(struct message_lost, incarnation),
};
MESSAGE_RECORD(lost);

/* {"number":1, "departures":1, "first":[1, 2], "count":2, "code":131, "text":"inference 3 (pid 4711 on n1) was lost .."} */
static const struct codec_field gone_fields[] = {
	FIELD_U32(struct message_gone, number, UINT32_MAX),
	FIELD_U32(struct message_gone, departures, LIMIT_RANKS),
	FIELD_RECORD(struct message_gone, first, struct member, message_member_record),
	FIELD_U32(struct message_gone, count, LIMIT_RANKS),
	FIELD_CODE(struct message_gone, code),
	FIELD_ERROR_TEXT(struct message_gone, text),
};
MESSAGE_RECORD(gone);

int message_gone_check(const void *body, struct error *error)
{
	const struct message_gone *gone = body;

	if (gone->departures && gone->number >= gone->departures && gone->count)
		return 0;
	return error_set(
		error, ERROR_MESSAGE,
		"number %u, departures %u, count %u: none is ever 0, and number is the last of them",
		gone->number, gone->departures, gone->count);
}

static int check_number(uint32_t number, struct error *error)
{
	return number ? 0 : error_set(error, ERROR_MESSAGE, "number is 0, which no pause has");
}

/* {"number":1, "stop":true, "version":12} */
static const struct codec_field pause_fields[] = {
	FIELD_U32(struct message_pause, number, UINT32_MAX),
	FIELD_U32(struct message_pause, gone, UINT32_MAX),
	FIELD_BOOL(struct message_pause, stop),
	FIELD_U64(struct message_pause, version),
	FIELD_U64(struct message_pause, shows),
};
MESSAGE_RECORD(pause);

int message_pause_check(const void *body, struct error *error)
{
	return check_number(((const struct message_pause *)body)->number, error);
}

/* {"number":1, "stopped":true, "next":13, "version":12, "repeats":false} */
static const struct codec_field paused_fields[] = {
	FIELD_U32(struct message_paused, number, UINT32_MAX),
	FIELD_BOOL(struct message_paused, stopped),
	FIELD_U64(struct message_paused, next),
	FIELD_U64(struct message_paused, version),
	FIELD_BOOL(struct message_paused, repeats),
	FIELD_BOOL(struct message_paused, between),
	FIELD_BOOL(struct message_paused, anew),
	FIELD_U64(struct message_paused, promised),
};
MESSAGE_RECORD(paused);

int message_paused_check(const void *body, struct error *error)
{
	return check_number(((const struct message_paused *)body)->number, error);
}
