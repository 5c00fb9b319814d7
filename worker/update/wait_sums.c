/* SPDX-License-Identifier: Apache-2.0
 *
 * wait_sums.c -- what arrived at an inference rank against the checksums that trainers sent of it.
 */
#include "worker/update/wait.h"

#include "base/clock.h"
#include "base/memory.h"
#include "pack/pack.h"
#include "worker/update/copy_sums.h"

#include <stdio.h>
#include <string.h>

static struct sums_piece piece_at(const struct epoch *epoch, size_t number, uint32_t copy)
{
	const struct layout *layout = epoch->options.layout;
	const struct plan_row *row = &epoch->plan->rows[epoch->receive.rows[number]];

	return (struct sums_piece){
		.memory = params_landed(epoch->options.params, copy, row->param) + row->offset,
		.bytes = row->bytes,
		.block_bytes =
			pack_block_bytes(&row->transform, layout->tensors[row->tensor].dtype,
					 layout->params[row->param].dtype, &row->src, row->bytes),
		.spread = row->spread};
}

int waiter_open_sums(struct waiter *waiter, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	size_t count = epoch->plan->row_count, copies = epoch->options.params->copies;
	struct sums_piece *pieces = memory_zalloc(copies * count + 1, sizeof(*pieces));
	int rc;

	if (!pieces)
		return memory_error(error, "preparing checksums", copies * count * sizeof(*pieces));
	for (uint32_t copy = 0; copy < copies; copy++)
		for (size_t i = 0; i < count; i++)
			pieces[copy * count + i] = piece_at(epoch, i, copy);
	rc = sums_open(&waiter->sums, epoch->options.params->device, pieces, copies * count, error);
	memory_free(pieces);
	return rc;
}

/* As pack_piece_sum, of bytes that lie in runs. */
static uint64_t sum_spread(const struct sums_piece *piece)
{
	struct digest_stream all, block;
	uint64_t n, place, last = 0;

	checksum_begin(&all);
	for (uint64_t from = 0; from < piece->bytes; from += piece->block_bytes) {
		uint64_t left = piece->bytes - from,
			 bytes = left < piece->block_bytes ? left : piece->block_bytes;

		checksum_begin(&block);
		for (uint64_t done = 0; done < bytes; done += n) {
			n = spread_next(&piece->spread, from + done, bytes - done, &place);
			digest_add(&block, (const unsigned char *)piece->memory + place, n);
		}
		last = checksum_end(&block);
		digest_add_u64(&all, last);
	}
	return piece->bytes <= piece->block_bytes ? last : checksum_end(&all);
}

/* The k-th piece of a trainer against what is said of it; 1 when they differ. */
static int verify_piece(const struct waiter *waiter, const uint64_t *sums, size_t p, uint32_t k,
			uint64_t version, bool name_it, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	const struct receive_plan *plan = &epoch->receive;
	const struct layout *layout = epoch->options.layout;
	const struct plan_row *row =
		&epoch->plan->rows[plan->rows[epoch->peers[p].first_piece + k]];
	size_t number = epoch->peers[p].first_piece + k;
	struct sums_piece piece = piece_at(epoch, number, waiter->copy);
	uint64_t sum = waiter->sums.device ? sums_of(&waiter->sums,
						     waiter->copy * epoch->plan->row_count + number)
		       : piece.spread.run_bytes
			       ? sum_spread(&piece)
			       : pack_piece_sum(piece.memory, piece.bytes, piece.block_bytes);
	uint64_t sent = sums[number];
	char runs[48] = "";

	if (sum == sent)
		return 0;
	if (piece.spread.run_bytes)
		snprintf(runs, sizeof(runs), " in runs of %llu",
			 (unsigned long long)piece.spread.run_bytes);
	if (name_it)
		error_set(
			error, ERROR_CHECKSUM,
			"update %llu: tensor %s from %s differs in "
			"parameter %s, bytes %llu..%llu%s: checksum %016llx here, %016llx sent",
			(unsigned long long)version, layout->tensors[row->tensor].name,
			epoch->peers[p].name, layout->params[row->param].name,
			(unsigned long long)row->offset,
			(unsigned long long)(row->offset + spread_span(&piece.spread, piece.bytes)),
			runs, (unsigned long long)sum, (unsigned long long)sent);
	return 1;
}

/* Of all trainers; *wrong counts those that differ. */
static int verify_pieces(struct waiter *waiter, uint64_t version, size_t *wrong,
			 struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	size_t pieces = epoch->plan->row_count;
	int rc = waiter->sums.device ? sums_run(&waiter->sums, waiter->copy * pieces, pieces, error)
				     : 0;

	for (size_t p = 0; p < epoch->peer_count && !rc; p++)
		for (uint32_t k = 0; k < epoch->peers[p].plan->pieces; k++)
			*wrong += (size_t)verify_piece(waiter, epoch->receive.sums, p, k, version,
						       !*wrong, error);
	if (!rc && waiter->verified)
		memcpy(waiter->verified, epoch->receive.sums, pieces * sizeof(uint64_t));
	return rc;
}

/* Whole parameters, against what the rank that sent them says. */
static int verify_copy(const struct waiter *waiter, uint64_t version, size_t *wrong,
		       struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	const struct tensor_info *params = epoch->options.layout->params;
	const uint64_t *sent = epoch->receive.sums + waiter->now->from->first_piece;
	size_t count = epoch->options.layout->param_count;
	uint64_t *here = memory_zalloc(count, sizeof(*here));
	int rc = here ? copy_sums(epoch, waiter->copy, true, 0, count, here, error)
		      : memory_error(error, "checksums of parameters", count * sizeof(*here));

	for (size_t k = 0; k < count && !rc; k++)
		if (here[k] != sent[k] && !(*wrong)++)
			error_set(
				error, ERROR_CHECKSUM,
				"update %llu: parameter %s, as %s shows it, differs here: checksum "
				"%016llx here, %016llx sent",
				(unsigned long long)version, params[k].name,
				waiter->now->from->name, (unsigned long long)here[k],
				(unsigned long long)sent[k]);
	memory_free(here);
	return rc;
}

/* Kernels see what NICs wrote: those that sum here, and those of whoever is told of the version. */
static int flush(const struct waiter *waiter, struct error *error)
{
	const struct params *params = waiter->epoch->options.params;

	if (!params_on_device(params))
		return 0;
	for (size_t p = 0; p < waiter->now->count; p++)
		if (transport_endpoint_caps(waiter->now->from[p].endpoint)->gpu_direct)
			return device_flush(params->device, error);
	return 0;
}

int waiter_verify_again(struct waiter *waiter, uint32_t p, uint64_t version, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	size_t pieces = epoch->plan->row_count, wrong = 0;
	int rc = flush(waiter, error);

	if (!rc && waiter->sums.device)
		rc = sums_run(&waiter->sums, waiter->copy * pieces, pieces, error);
	for (uint32_t k = 0; k < epoch->peers[p].plan->pieces && !rc; k++)
		wrong += (size_t)verify_piece(waiter, waiter->verified, p, k, version, !wrong,
					      error);
	return rc ? rc : wrong ? -(int)ERROR_CHECKSUM : 0;
}

int waiter_verify(struct waiter *waiter, uint64_t version, struct error *error)
{
	uint64_t begin = clock_ns();
	size_t wrong = 0;
	int rc = flush(waiter, error);

	if (!rc && waiter->epoch->sums)
		rc = waiter->copies ? verify_copy(waiter, version, &wrong, error)
				    : verify_pieces(waiter, version, &wrong, error);
	if (rc)
		return rc;
	if (wrong > 1) {
		size_t n = strlen(error->text);

		snprintf(error->text + n, sizeof(error->text) - n, "; %zu pieces differ in all",
			 wrong);
	}
	waiter->stats.verify_ns = clock_ns() - begin;
	if (wrong)
		waiter_base_distrust(waiter);
	return wrong ? -(int)ERROR_CHECKSUM : 0;
}
