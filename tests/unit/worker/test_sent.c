/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer sent last, over random versions: none of whose values differ, few, all of a stretch, or all; ended or given up.
 * Who has the version before and applies the runs has the next one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/content.h"
#include "pack/delta.h"
#include "worker/epoch/windows.h"
#include "worker/update/sent.h"

#include <string.h>

enum { SOURCES = 4, PARTS = 8, BYTES = 1 << 20 };

static const struct {
	uint64_t bytes, part_bytes;
	enum dtype to;
} shapes[SOURCES] = {
	{BYTES, BYTES / 4, DTYPE_BF16},
	{6, 4 << 20, DTYPE_BF16}, /* less than it takes to say that it is the same */
	{5004, 4 << 20, DTYPE_F32},
	{30001, 30000, DTYPE_F8_E4M3},
};

struct rig {
	struct send_plan plan;
	struct send_row rows[SOURCES];
	struct send_source sources[SOURCES];
	uint32_t source_rows[SOURCES];
	bool deltas[1];
	struct sent sent;
	uint64_t random;
};

static unsigned char is[SOURCES][BYTES], there[SOURCES][BYTES];

static uint64_t chance(struct rig *rig, uint64_t below)
{
	return splitmix64(rig->random++) % below;
}

static void open_rig(struct rig *rig, uint64_t seed)
{
	struct error error;

	*rig = (struct rig){.deltas = {true}, .random = seed << 32};
	rig->plan = (struct send_plan){.rows = rig->rows,
				       .sources = rig->sources,
				       .source_rows = rig->source_rows,
				       .source_count = SOURCES,
				       .row_count = SOURCES,
				       .peer_count = 1,
				       .deltas = rig->deltas};
	for (uint32_t s = 0; s < SOURCES; s++) {
		rig->rows[s] = (struct send_row){.source = s};
		rig->source_rows[s] = s;
		rig->sources[s] = (struct send_source){
			.first_row = s,
			.row_count = 1,
			.first_block = (uint32_t)rig->plan.block_count,
			.parts = (uint32_t)((shapes[s].bytes + shapes[s].part_bytes - 1) /
					    shapes[s].part_bytes),
			.part_bytes = shapes[s].part_bytes,
			.pack = {.bytes = shapes[s].bytes, .to = shapes[s].to}};
		rig->plan.block_count += rig->sources[s].parts;
	}
	assert_int_equal(sent_open(&rig->sent, &rig->plan, &error), 0);
}

static void change(struct rig *rig, uint32_t s)
{
	uint64_t bytes = shapes[s].bytes, kind = chance(rig, 8), from = 0, to = bytes;

	if (kind < 2)
		return;
	if (kind < 5)
		for (uint64_t n = 1 + bytes / 50; n; n--)
			is[s][chance(rig, bytes)] ^= (unsigned char)(1 + chance(rig, 255));
	if (kind < 5)
		return;
	if (kind < 7) {
		from = chance(rig, bytes);
		to = from + chance(rig, bytes / 4 + 1);
	}
	for (uint64_t i = from; i < to && i < bytes; i++)
		is[s][i] ^= (unsigned char)(1 + chance(rig, 255));
}

/* What a peer makes of it; how many bytes it was sent. */
static uint64_t receive(struct rig *rig, uint32_t s, uint32_t part, bool has_last)
{
	const struct send_source *source = &rig->sources[s];
	const struct sent_block *block = &rig->sent.blocks[source->first_block + part];
	uint64_t from, bytes = source_part(source, part, &from), at = from, sent = 0;

	if (!has_last || !block->runs) {
		memcpy(there[s] + from, is[s] + from, bytes);
		return bytes;
	}
	assert_in_range(block->runs, 1, block->run_max);
	for (uint32_t r = 0; r < block->runs; r++) {
		const struct sent_run *run = &rig->sent.runs[block->first_run + r];
		const unsigned char *coded = rig->sent.coded + run->at;
		unsigned element = rig->sent.sources[s].element_bytes;

		assert_int_equal(run->from, at);
		assert_in_range(run->bytes, 8, WINDOW_DELTA_BYTES);
		assert_true(run->at >= block->coded_at &&
			    run->at + run->bytes <= block->coded_at + block->coded_max);
		assert_int_equal(delta_span(coded, run->bytes, element), run->span);
		delta_apply(coded, run->bytes, element, there[s] + at);
		at += run->span;
		sent += run->bytes;
	}
	assert_int_equal(at, from + bytes);
	assert_true(sent < bytes);
	assert_memory_equal(there[s] + from, is[s] + from, bytes);
	return sent;
}

static void test_runs__on_top_of_the_last_version_are_the_next(void **state)
{
	uint64_t coded_parts = 0, whole_after_rest = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		uint64_t ended = 0;
		bool gave_up = false;
		struct rig rig;

		open_rig(&rig, seed);
		for (uint64_t version = 1; version <= 60; version++) {
			bool gives_up = chance(&rig, 10) == 0;

			sent_begin(&rig.sent, version, ended);
			for (uint32_t s = 0; s < SOURCES; s++)
				change(&rig, s);
			for (uint32_t s = 0; s < SOURCES; s++)
				for (uint32_t p = 0; p < rig.sources[s].parts; p++) {
					uint64_t from;

					if (gives_up && chance(&rig, 3) == 0)
						continue;
					source_part(&rig.sources[s], p, &from);
					sent_note(&rig.sent, s, p, is[s] + from);
					/* nothing is coded against what was given up */
					if (gave_up || !ended)
						assert_int_equal(
							rig.sent.blocks[rig.sources[s].first_block +
									p]
								.runs,
							0);
					receive(&rig, s, p, !gave_up && ended);
					coded_parts +=
						rig.sent.blocks[rig.sources[s].first_block + p]
							.runs != 0;
					whole_after_rest += !rig.sent.sources[s].keeps;
				}
			if (!gives_up)
				assert_memory_equal(there, is, sizeof(is));
			gave_up = gives_up;
			ended = gives_up ? ended : version;
		}
		sent_close(&rig.sent);
	}
	assert_true(coded_parts > 200 && whole_after_rest > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs__on_top_of_the_last_version_are_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
