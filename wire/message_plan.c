/* SPDX-License-Identifier: Apache-2.0
 *
 * message_plan.c -- a worker's own part of the routing table.
 *
 *   {"attempt":1, "digest":bin16, "follows":false, "policy":"greedy", "order":"rotated",
 *    "checksums":false, "continues":false, "update_timeout_ms":60000, "gone":0, "away":[], "next":0, "copy":0, "repeat":0, "together":0,
 *    "shows":0, "alone":0, "decider":0, "rows_of":0, "peers":[..], "dropped":[], "rows":[..], "runs":[], "whole":bin16, "spared":false,
 *    "misses_leave":false, "hedge_ms":0, "stands_for":0, "spares":[..], "spare_rows":[..]}
 *
 *   away   [[[role, rank], count], ..]; dropped [[role, rank], ..]
 *   peers  [[[role, rank], host, bytes, pieces, transport, lacks, delta, copy, kept, stand_in], ..]
 *   spares [[[role, rank], bytes, pieces], ..]; spare_rows as rows, of those
 *   rows   [[peer, ordinal, tensor, param, how, [lo0, hi0, lo1, hi1, ..], offset, bytes], ..]
 *             │      └─ below that peer's pieces
 *             └──────── place in peers
 *          and where the bytes are no copy, or no one run of the parameter's: [.., bytes, transform, scales, to, run_bytes,
 *          stride_bytes]
 *
 * With rows_of it is told by what differs from that attempt's plan (message_rows.c): runs [[fresh, first, count], ..].
 */
#include "wire/message_parts.h"

#include <string.h>

_Static_assert(PATH_DIRECT == 0 && PATH_MAPPED == 1 && PATH_REPLICA == 2 && PATH_LANDED == 3 &&
		       PATH_COUNT == 4,
	       "path on the wire");

static const struct codec_field peer_fields[] = {
	FIELD_RECORD(struct plan_peer, member, struct member, message_member_record),
	FIELD_TEXT(struct plan_peer, host, LIMIT_NAME_BYTES),
	FIELD_U64(struct plan_peer, bytes),
	FIELD_U32(struct plan_peer, pieces, LIMIT_PIECES),
	FIELD_TEXT(struct plan_peer, transport, TRANSPORTS_NAME_BYTES),
	FIELD_BOOL(struct plan_peer, lacks),
	FIELD_BOOL(struct plan_peer, delta),
	FIELD_U32(struct plan_peer, copy, COPY_COUNT - 1),
	FIELD_BOOL(struct plan_peer, kept),
	FIELD_U32(struct plan_peer, stand_in, LIMIT_RANKS),
};
static const struct codec_record peer_record = {CODEC_RECORD_OF(struct plan_peer, peer_fields)};

static const struct codec_field spare_fields[] = {
	FIELD_RECORD(struct plan_spare, member, struct member, message_member_record),
	FIELD_U64(struct plan_spare, bytes),
	FIELD_U32(struct plan_spare, pieces, LIMIT_PIECES),
};
static const struct codec_record spare_record = {CODEC_RECORD_OF(struct plan_spare, spare_fields)};

static const struct codec_field row_fields[] = {
	FIELD_U32(struct plan_row, peer, LIMIT_PEERS - 1),
	FIELD_U32(struct plan_row, ordinal, LIMIT_PIECES - 1),
	FIELD_U32(struct plan_row, tensor, LIMIT_TENSORS - 1),
	FIELD_U32(struct plan_row, param, LIMIT_PARAMS - 1),
	FIELD_U32(struct plan_row, path, PATH_COUNT - 1),
	FIELD_BOX(struct plan_row, src),
	FIELD_U64(struct plan_row, offset),
	FIELD_U64(struct plan_row, bytes),
	FIELD_RECORD(struct plan_row, transform, struct transform, message_transform_record),
	FIELD_U32(struct plan_row, scales, LIMIT_TENSORS - 1),
	FIELD_DTYPE(struct plan_row, to),
	FIELD_U64(struct plan_row, spread.run_bytes),
	FIELD_U64(struct plan_row, spread.stride_bytes),
};

static bool row_is_more(const void *item)
{
	static const struct transform copy;
	const struct plan_row *row = item;

	return !transform_equal(&row->transform, &copy) || row->scales || row->to != DTYPE_NONE ||
	       row->spread.run_bytes || row->spread.stride_bytes;
}

static const struct codec_record row_record = {CODEC_RECORD_OF(struct plan_row, row_fields),
					       .tail = 5, .has_tail = row_is_more};

static const struct codec_field run_fields[] = {
	FIELD_U32(struct plan_run, fresh, LIMIT_ROUTES),
	FIELD_U32(struct plan_run, first, LIMIT_ROUTES),
	FIELD_U32(struct plan_run, count, LIMIT_ROUTES),
};
static const struct codec_record run_record = {CODEC_RECORD_OF(struct plan_run, run_fields)};

static const struct codec_field plan_fields[] = {
	FIELD_U32(struct message_plan, attempt, UINT32_MAX),
	FIELD_DIGEST(struct message_plan, digest),
	FIELD_BOOL(struct message_plan, follows),
	FIELD_TEXT(struct message_plan, policy, LIMIT_NAME_BYTES),
	FIELD_TEXT(struct message_plan, order, LIMIT_NAME_BYTES),
	FIELD_BOOL(struct message_plan, checksums),
	FIELD_BOOL(struct message_plan, continues),
	FIELD_U32(struct message_plan, update_timeout_ms, UINT32_MAX),
	FIELD_U32(struct message_plan, gone, UINT32_MAX),
	FIELD_LIST(struct message_plan, away, away_count, struct members, message_members_record,
		   LIMIT_RANKS),
	FIELD_U64(struct message_plan, next),
	FIELD_U64(struct message_plan, copy),
	FIELD_U64(struct message_plan, repeat),
	FIELD_U32(struct message_plan, together, UINT32_MAX),
	FIELD_U64(struct message_plan, shows),
	FIELD_U64(struct message_plan, alone),
	FIELD_U32(struct message_plan, decider, LIMIT_RANKS),
	FIELD_U32(struct message_plan, rows_of, UINT32_MAX),
	FIELD_LIST(struct message_plan, peers, peer_count, struct plan_peer, peer_record,
		   LIMIT_PEERS),
	FIELD_LIST(struct message_plan, dropped, dropped_count, struct member,
		   message_member_record, LIMIT_PEERS),
	FIELD_LIST(struct message_plan, rows, row_count, struct plan_row, row_record, LIMIT_ROUTES),
	FIELD_LIST(struct message_plan, runs, run_count, struct plan_run, run_record, LIMIT_ROUTES),
	FIELD_DIGEST(struct message_plan, whole),
	FIELD_BOOL(struct message_plan, spared),
	FIELD_BOOL(struct message_plan, misses_leave),
	FIELD_U32(struct message_plan, hedge_ms, UINT32_MAX),
	FIELD_U32(struct message_plan, stands_for, LIMIT_RANKS),
	FIELD_LIST(struct message_plan, spares, spare_count, struct plan_spare, spare_record,
		   LIMIT_PEERS),
	FIELD_LIST(struct message_plan, spare_rows, spare_row_count, struct plan_row, row_record,
		   LIMIT_ROUTES),
};
MESSAGE_RECORD(plan);

static int check_transform(const char *rows, const struct plan_row *row, size_t index,
			   struct error *error)
{
	const struct transform *transform = &row->transform;

	if (!transform_valid(transform))
		return error_set(
			error, ERROR_MESSAGE,
			"%s[%zu].transform has part %d and blocks of %ux%u to %ux%u, which is "
			"nothing that can be transformed",
			rows, index, (int)transform->part, transform->from_rows,
			transform->from_columns, transform->to_rows, transform->to_columns);
	if (row->scales && !transform->from_rows)
		return error_set(error, ERROR_MESSAGE,
				 "%s[%zu].scales is %u, and transform.from_rows is 0", rows, index,
				 row->scales);
	return 0;
}

static int check_spread(const char *rows, const struct plan_row *row, size_t index,
			struct error *error)
{
	const struct spread *spread = &row->spread;
	uint64_t between = 0;

	if (spread->run_bytes && (!transform_cuts_columns(&row->transform) ||
				  row->transform.part == TRANSFORM_TRANSPOSED))
		return error_set(
			error, ERROR_MESSAGE,
			"%s[%zu] is transformed, and in runs of %llu bytes: what is transformed is one run",
			rows, index, (unsigned long long)spread->run_bytes);

	if (spread->run_bytes
		    ? row->bytes % spread->run_bytes || spread->stride_bytes < spread->run_bytes ||
			      __builtin_mul_overflow(row->bytes / spread->run_bytes - 1,
						     spread->stride_bytes, &between) ||
			      between > UINT64_MAX - row->bytes - row->offset
		    : spread->stride_bytes != 0)
		return error_set(
			error, ERROR_MESSAGE,
			"%s[%zu] is %llu bytes from offset %llu in runs of %llu, %llu apart, which is no range",
			rows, index, (unsigned long long)row->bytes,
			(unsigned long long)row->offset, (unsigned long long)spread->run_bytes,
			(unsigned long long)spread->stride_bytes);
	return 0;
}

/* Of a row of a whole plan; pieces: of the peer, which is among `peers`. */
static int check_peer(const char *rows, const struct plan_row *row, size_t index, size_t peers,
		      uint32_t pieces, struct error *error)
{
	if (row->peer >= peers)
		return error_set(error, ERROR_MESSAGE,
				 "%s[%zu].peer is %u, and there are"
				 " %zu peers",
				 rows, index, row->peer, peers);
	if (row->ordinal >= pieces)
		return error_set(error, ERROR_MESSAGE,
				 "%s[%zu].ordinal is %u, and"
				 " peers[%u].pieces is %u",
				 rows, index, row->ordinal, row->peer, pieces);
	return 0;
}

static int check_row(const char *rows, const struct plan_row *row, size_t index,
		     struct error *error)
{
	int rc;

	if (row->bytes == 0 || row->bytes > UINT64_MAX - row->offset)
		return error_set(error, ERROR_MESSAGE,
				 "%s[%zu] is %llu bytes from offset"
				 " %llu, which is no range",
				 rows, index, (unsigned long long)row->bytes,
				 (unsigned long long)row->offset);
	rc = check_transform(rows, row, index, error);
	return rc ? rc : check_spread(rows, row, index, error);
}

int message_plan_check(const void *body, struct error *error)
{
	const struct message_plan *plan = body;
	int rc = 0;

	for (size_t i = 0; i < plan->row_count && !rc; i++) {
		const struct plan_row *row = &plan->rows[i];

		if (!plan->rows_of) /* else its peers are not here yet */
			rc = check_peer("rows", row, i, plan->peer_count,
					row->peer < plan->peer_count ? plan->peers[row->peer].pieces
								     : 0,
					error);
		rc = rc ? rc : check_row("rows", row, i, error);
	}
	for (size_t i = 0; i < plan->spare_row_count && !rc; i++) {
		const struct plan_row *row = &plan->spare_rows[i];

		rc = check_peer("spare_rows", row, i, plan->spare_count,
				row->peer < plan->spare_count ? plan->spares[row->peer].pieces : 0,
				error);
		rc = rc ? rc : check_row("spare_rows", row, i, error);
	}
	if (!rc && !plan->rows_of && (plan->run_count || plan->dropped_count || plan->spared))
		rc = error_set(
			error, ERROR_MESSAGE,
			"rows_of is 0, and runs, dropped or spared say what differs from a plan");
	if (!rc && plan->spared && (plan->stands_for || plan->spare_count || plan->spare_row_count))
		rc = error_set(
			error, ERROR_MESSAGE,
			"spared says that spares are those of the plan before, and there are %zu, for %u",
			plan->spare_count, plan->stands_for);
	if (!rc && plan->spare_count && !plan->stands_for)
		rc = error_set(error, ERROR_MESSAGE,
			       "spares has %zu items, and stands_for is 0: nobody is stood in for",
			       plan->spare_count);
	return rc;
}
