/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/message_text.h"

#include <inttypes.h>
#include <stdio.h>

/* Enough of a digest to tell two apart in a log. */
#define DIGEST_SHORT(digest) (uint32_t)((digest).high >> 32)

typedef int writer(const struct message *message, char *out, size_t bytes);

static const char *shown(const char *text)
{
	return text ? text : "";
}

static int hello(const struct message *message, char *out, size_t bytes)
{
	const struct message_hello *hello = &message->u.hello;

	char runs[40] = "";

	if (hello->attempt)
		snprintf(runs, sizeof(runs), ", %s plan attempt %u",
			 hello->unconnected ? "exchanges"
			 : hello->paused    ? "paused at"
					    : "runs by",
			 hello->attempt);
	return snprintf(out, bytes, " %s %u pid %" PRIu64 " on %s, incarnation %" PRIx64 "%s",
			role_name(hello->role), hello->rank, hello->pid, shown(hello->host),
			hello->incarnation, runs);
}

static int declare(const struct message *message, char *out, size_t bytes)
{
	const struct message_declare *declare = &message->u.declare;

	return snprintf(out, bytes, " %s, train %s, infer %s, %08" PRIx32 "%s%s%s%s%s%s%s",
			shown(declare->model), shown(declare->train), shown(declare->infer),
			DIGEST_SHORT(declare->digest), declare->mapped ? ", mapped" : "",
			declare->registered ? ", registered" : "",
			declare->device ? ", device" : "", declare->landed ? ", landed" : "",
			declare->checksums ? ", checksums" : "",
			shown(declare->transport)[0] ? ", " : "", shown(declare->transport));
}

static int layout(const struct message *message, char *out, size_t bytes)
{
	const struct layout *layout = &message->u.layout.layout;

	return snprintf(out, bytes,
			" %08" PRIx32 ": %zu tensors, %zu params, %zu pieces, %zu fills",
			DIGEST_SHORT(message->u.layout.digest), layout->tensor_count,
			layout->param_count, layout->piece_count, layout->fill_count);
}

static int holding(const struct message *message, char *out, size_t bytes)
{
	const struct holding *holding = &message->u.holding.holding;

	int n = snprintf(out, bytes, " %08" PRIx32 ": %zu tensors, %zu boxes",
			 DIGEST_SHORT(message->u.holding.digest), holding->tensor_count,
			 holding->held_count);

	if (holding->local_count && n >= 0 && (size_t)n < bytes)
		n += snprintf(out + n, bytes - (size_t)n, ", %zu local parameters",
			      holding->local_count);
	return n;
}

static int endpoints(const struct message *message, char *out, size_t bytes)
{
	const struct message_endpoints *endpoints = &message->u.endpoints;

	return snprintf(out, bytes,
			" attempt %u: %zu records, %zu regions, %zu places in %u copies",
			endpoints->attempt, endpoints->record_count, endpoints->region_count,
			endpoints->place_count, endpoints->copies);
}

/* Of connected and go. */
static int attempt(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, " attempt %u", message->u.go.attempt);
}

static int failure(const struct message *message, char *out, size_t bytes)
{
	const struct message_failure *failure = &message->u.failure;

	return snprintf(out, bytes, " E%d at version %" PRIu64 ": %s", failure->code,
			failure->version, shown(failure->text));
}

static int leave(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, " %s", message->u.leave.done ? "done" : "interrupted");
}

static int heartbeat(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, " %" PRIu64 " at version %" PRIu64,
			message->u.heartbeat.sequence, message->u.heartbeat.version);
}

static int welcome(const struct message *message, char *out, size_t bytes)
{
	const struct message_welcome *welcome = &message->u.welcome;

	char orphan[40] = "";

	if (welcome->orphan_ms)
		snprintf(orphan, sizeof(orphan), ", orphans go on for %u ms", welcome->orphan_ms);
	return snprintf(out, bytes, " by %" PRIx64 ": beat every %u ms, lost after %u ms%s%s",
			welcome->controller, welcome->heartbeat_ms, welcome->lost_ms,
			welcome->runs ? ", the job runs" : "", orphan);
}

static int refuse(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, " E%d: %s", message->u.refuse.code,
			shown(message->u.refuse.text));
}

static int want(const struct message *message, char *out, size_t bytes)
{
	const struct message_want *want = &message->u.want;

	if (want->digest_count == 0)
		return snprintf(out, bytes, " nothing");
	return snprintf(out, bytes, " %zu: %08" PRIx32 "%s", want->digest_count,
			DIGEST_SHORT(want->digests[0]), want->digest_count > 1 ? ", .." : "");
}

static int plan(const struct message *message, char *out, size_t bytes)
{
	const struct message_plan *plan = &message->u.plan;
	char rows[64];
	int n = 0;

	if (plan->row_count || !plan->rows_of)
		n = snprintf(rows, sizeof(rows), "%zu rows%s", plan->row_count,
			     plan->rows_of ? " and " : "");
	if (plan->rows_of)
		snprintf(rows + n, sizeof(rows) - (size_t)n, "rows of attempt %u", plan->rows_of);
	return snprintf(out, bytes, " attempt %u: %s, %zu peers, %s, %s %08" PRIx32 "%s",
			plan->attempt, rows, plan->peer_count, shown(plan->policy),
			shown(plan->order), DIGEST_SHORT(plan->digest),
			plan->checksums ? ", checksums" : "");
}

static int peers(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, " attempt %u: %zu peers", message->u.peers.attempt,
			message->u.peers.peer_count);
}

static int lost(const struct message *message, char *out, size_t bytes)
{
	const struct message_lost *lost = &message->u.lost;
	char name[MEMBER_TEXT_BYTES];

	return snprintf(out, bytes, " %s (%" PRIx64 ") E%d: %s", member_text(lost->member, name),
			lost->incarnation, lost->code, shown(lost->text));
}

static int drop(const struct message *message, char *out, size_t bytes)
{
	const struct message_drop *drop = &message->u.drop;
	char name[MEMBER_TEXT_BYTES];

	return snprintf(out, bytes, " %s of attempt %u E%d at version %" PRIu64 ": %s",
			member_text(drop->member, name), drop->attempt, drop->code, drop->version,
			shown(drop->text));
}

static int gone(const struct message *message, char *out, size_t bytes)
{
	const struct message_gone *gone = &message->u.gone;

	char name[MEMBER_TEXT_BYTES];

	return snprintf(out, bytes, " %u: %u from %s, E%d: %s", gone->number, gone->count,
			member_text(gone->first, name), gone->code, shown(gone->text));
}

static int pause_text(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, " %u%s version %" PRIu64, message->u.pause.number,
			message->u.pause.stop ? " from" : ", soon: begun is",
			message->u.pause.version);
}

static int paused(const struct message *message, char *out, size_t bytes)
{
	const struct message_paused *paused = &message->u.paused;

	return snprintf(out, bytes, " %u%s before version %" PRIu64 ", after %" PRIu64,
			paused->number, paused->stopped ? "" : ", soon,", paused->next,
			paused->version);
}

static int activity(const struct message *message, char *out, size_t bytes)
{
	const struct message_activity *activity = &message->u.activity;

	return snprintf(out, bytes, " %s version %" PRIu64 " for %" PRIu64 " ms",
			activity_name(activity->what), activity->version, activity->since_ms);
}

static int ask(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, "%s", message->u.ask.links ? " links too" : "");
}

static int report(const struct message *message, char *out, size_t bytes)
{
	return snprintf(out, bytes, " %s, %zu members", shown(message->u.report.state),
			message->u.report.member_count);
}

static writer *const writers[] = {
	[MESSAGE_HELLO] = hello,	 [MESSAGE_DECLARE] = declare,
	[MESSAGE_LAYOUT] = layout,	 [MESSAGE_HOLDING] = holding,
	[MESSAGE_ENDPOINTS] = endpoints, [MESSAGE_CONNECTED] = attempt,
	[MESSAGE_FAILURE] = failure,	 [MESSAGE_LEAVE] = leave,
	[MESSAGE_HEARTBEAT] = heartbeat, [MESSAGE_WELCOME] = welcome,
	[MESSAGE_REFUSE] = refuse,	 [MESSAGE_WANT] = want,
	[MESSAGE_PLAN] = plan,		 [MESSAGE_PEERS] = peers,
	[MESSAGE_GO] = attempt,		 [MESSAGE_LOST] = lost,
	[MESSAGE_DROP] = drop,		 [MESSAGE_GONE] = gone,
	[MESSAGE_PAUSE] = pause_text,	 [MESSAGE_PAUSED] = paused,
	[MESSAGE_ACTIVITY] = activity,	 [MESSAGE_ASK] = ask,
	[MESSAGE_REPORT] = report,
};

_Static_assert(sizeof(writers) / sizeof(writers[0]) == MESSAGE_TYPE_COUNT, "a line a type");

char *message_text(const struct message *message, char *out, size_t bytes)
{
	int used;

	if (bytes == 0)
		return out;
	used = snprintf(out, bytes, "%s", message_type_name(message->type));
	if ((unsigned)message->type < MESSAGE_TYPE_COUNT && (size_t)used < bytes)
		writers[message->type](message, out + used, bytes - (size_t)used);
	for (char *at = out; *at; at++) /* one line, whatever a peer put into its strings */
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?';
	return out;
}
