/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/sent.h"

#include "base/assert.h"
#include "base/copy.h"
#include "base/memory.h"
#include "pack/delta.h"
#include "worker/epoch/windows.h"

#include <string.h>

/* ---- life ---- */

/* Of its bytes, as they are at the target: what a value is. */
static uint32_t element_of(const struct send_plan *plan, const struct send_source *source)
{
	uint32_t bytes = dtype_bytes(source->pack.to) > 4 ? 4 : dtype_bytes(source->pack.to);
	bool wanted = false;

	for (uint32_t i = 0; i < source->row_count && !wanted && send_plan_readable(plan, source);
	     i++) {
		const struct send_row *row = &plan->rows[plan->source_rows[source->first_row + i]];

		wanted = plan->deltas[row->peer] && !row->stored && !row->by_device;
	}
	if (!wanted)
		return 0;
	return bytes && source->pack.bytes % bytes == 0 && source->part_bytes % bytes == 0 ? bytes
											   : 1;
}

/* Less than this is worth it: five eighths. */
static uint64_t coded_max(uint64_t bytes)
{
	return bytes / 8 * 5 + 8;
}

/* Two runs one after the other are more than one together might be. */
static uint32_t run_max(uint64_t bytes)
{
	return (uint32_t)(2 * (coded_max(bytes) / WINDOW_DELTA_BYTES) + 2);
}

/* Places of all that is kept; how much there is of each. */
static void lay_out(struct sent *sent, uint64_t *coded, uint64_t *runs)
{
	const struct send_plan *plan = sent->plan;

	*coded = *runs = 0;
	for (size_t s = 0; s < plan->source_count; s++) {
		const struct send_source *source = &plan->sources[s];

		sent->sources[s].element_bytes = element_of(plan, source);
		if (!sent->sources[s].element_bytes)
			continue;
		sent->sources[s].last_at = sent->bytes;
		sent->bytes += (source->pack.bytes + 63) / 64 * 64;
		for (uint32_t p = 0; p < source->parts; p++) {
			uint64_t from, bytes = source_part(source, p, &from);

			sent->blocks[source->first_block + p] =
				(struct sent_block){.coded_at = *coded,
						    .coded_max = coded_max(bytes),
						    .first_run = (uint32_t)*runs,
						    .run_max = run_max(bytes)};
			*coded += coded_max(bytes);
			*runs += run_max(bytes);
		}
	}
}

int sent_open(struct sent *sent, const struct send_plan *plan, struct error *error)
{
	uint64_t coded, runs;

	*sent = (struct sent){.plan = plan};
	sent->sources = pool_array(&sent->pool, plan->source_count, sizeof(*sent->sources));
	sent->blocks = pool_array(&sent->pool, plan->block_count, sizeof(*sent->blocks));
	if (!pool_ok(&sent->pool))
		return memory_error(error, "preparing --delta",
				    plan->block_count * sizeof(*sent->blocks));
	lay_out(sent, &coded, &runs);
	if (runs > UINT32_MAX)
		return error_set(error, ERROR_LIMIT, "--delta: %llu runs of what differs",
				 (unsigned long long)runs);
	sent->runs = pool_array(&sent->pool, runs, sizeof(*sent->runs));
	/* little of what is coded is ever touched */
	sent->last = memory_alloc(sent->bytes);
	sent->coded = memory_alloc(coded);
	if (!pool_ok(&sent->pool) || (sent->bytes && (!sent->last || !sent->coded)))
		return memory_error(error, "what was sent last, which --delta keeps",
				    sent->bytes + coded);
	return 0;
}

void sent_close(struct sent *sent)
{
	memory_free(sent->last);
	memory_free(sent->coded);
	pool_free(&sent->pool);
	*sent = (struct sent){0};
}

/* ---- versions ---- */

static void begin_source(struct sent *sent, struct sent_source *source,
			 const struct send_source *of, uint64_t version, uint64_t ended)
{
	if (source->keeps && atomic_load(&source->parts) != of->parts)
		source->version = 0; /* of no version all is there */
	if (source->codes && atomic_load(&source->bytes) * 2 > of->pack.bytes)
		source->rests_until = sent->versions + SENT_REST_VERSIONS;
	source->keeps = sent->versions >= source->rests_until;
	source->codes = source->keeps && ended && source->version == ended;
	if (source->keeps)
		source->version = version;
	atomic_store(&source->parts, 0);
	atomic_store(&source->bytes, 0);
}

void sent_begin(struct sent *sent, uint64_t version, uint64_t ended)
{
	const struct send_plan *plan = sent->plan;

	for (size_t s = 0; s < plan->source_count; s++)
		if (sent->sources[s].element_bytes)
			begin_source(sent, &sent->sources[s], &plan->sources[s], version, ended);
	for (size_t b = 0; b < plan->block_count; b++)
		sent->blocks[b].runs = 0;
	sent->versions++;
}

/* ---- a part ---- */

struct coding {
	struct sent *sent;
	const struct sent_block *block;
	uint64_t begin; /* of the part in its source */
	uint32_t runs;
	uint64_t used; /* of the block's room */
	uint32_t same; /* bytes that do not differ, and were not said yet */
};

/* A part that begins with much that differs is not gone on with: its memory, once touched, stays. */
static bool is_worth_it(const struct coding *coding, uint64_t done)
{
	uint64_t most = coding->block->coded_max;

	return coding->used <= done / 8 * 5 + most / 16 + DELTA_CODED_MAX;
}

/* A chunk of that many bytes, of `span`: behind the last run, or a new one. False: there is no room. */
static bool add(struct coding *coding, uint64_t from, uint32_t span, const void *chunk,
		uint32_t bytes)
{
	struct sent *sent = coding->sent;
	struct sent_run *runs = &sent->runs[coding->block->first_run];
	struct sent_run *run = coding->runs ? &runs[coding->runs - 1] : NULL;
	uint64_t at = coding->block->coded_at + coding->used;

	if (coding->used + bytes > coding->block->coded_max)
		return false;
	if (!run || run->bytes + bytes > WINDOW_DELTA_BYTES) {
		if (coding->runs == coding->block->run_max)
			return false;
		run = &runs[coding->runs++];
		*run = (struct sent_run){.from = from, .at = at};
	}
	memcpy(sent->coded + at, chunk, bytes);
	run->span += span;
	run->bytes += bytes;
	coding->used += bytes;
	return true;
}

static bool flush_same(struct coding *coding, uint64_t end)
{
	unsigned char chunk[DELTA_SAME_BYTES];
	uint32_t same = coding->same;

	coding->same = 0;
	delta_same(chunk, same);
	return !same || add(coding, end - same, same, chunk, sizeof(chunk));
}

/* What of the chunk differs, and `last` after it. False: it is no use to go on. */
static bool code(struct coding *coding, uint64_t from, unsigned char *last, const unsigned char *is,
		 uint32_t bytes, uint32_t element_bytes)
{
	unsigned char chunk[DELTA_CODED_MAX];
	size_t length = delta_code(last, is, bytes, element_bytes, chunk);

	if (delta_is_same(chunk)) {
		coding->same += bytes;
		return true;
	}
	delta_apply(chunk, length, element_bytes, last);
	return flush_same(coding, from) && is_worth_it(coding, from - coding->begin) &&
	       add(coding, from, bytes, chunk, (uint32_t)length);
}

void sent_note(struct sent *sent, uint32_t index, uint32_t part, const void *memory)
{
	const struct send_source *of = &sent->plan->sources[index];
	struct sent_source *source = &sent->sources[index];
	struct sent_block *block = &sent->blocks[of->first_block + part];
	struct coding coding = {.sent = sent, .block = block};
	uint64_t begin, bytes, n;
	bool codes = source->codes;

	if (!source->element_bytes || !source->keeps)
		return;
	bytes = source_part(of, part, &begin);
	coding.begin = begin;
	for (uint64_t done = 0; done < bytes; done += n) {
		unsigned char *last = sent->last + source->last_at + begin + done;
		const unsigned char *is = (const unsigned char *)memory + done;

		n = bytes - done < DELTA_CHUNK_BYTES ? bytes - done : DELTA_CHUNK_BYTES;
		if (codes)
			codes = code(&coding, begin + done, last, is, (uint32_t)n,
				     source->element_bytes);
		if (!codes)
			copy_bytes(last, is, n);
	}
	copy_fence();
	codes = codes && flush_same(&coding, begin + bytes) && coding.used < bytes;
	block->runs = codes ? coding.runs : 0;
	WEFT_ASSERT(!codes || coding.runs);
	atomic_fetch_add(&source->bytes, codes ? coding.used : bytes);
	atomic_fetch_add(&source->parts, 1);
}
