/* SPDX-License-Identifier: Apache-2.0
 *
 * Random jobs whose parameters are copied, converted, quantised and cut between blocks, from
 * trainers whose shards end anywhere: what can be planned is proved, what cannot is refused by
 * name, and no other way to make a piece passes the proof.
 */
#include "tests/unit/routing_job.h"

#include "routing/dump.h"
#include "routing/dump_read.h"
#include "routing/how.h"

/* How trainers hold the tensors. */
enum holding_mode { GATHERED, ALIGNED, SHARDED, ANYHOW, HOLDING_MODES };

/* A matrix, in blocks of its own or not. */
struct source {
	struct random_tensor values, scales;
	uint32_t block[2]; /* 0, 0: not in blocks */
};

static void hold_shards(struct job *job, const struct random_tensor *tensor, uint64_t chunk)
{
	uint64_t rows = tensor->shape[0];

	for (uint32_t t = 0; t < job->trainer_count; t++) {
		uint64_t lo = chunk * t, hi = lo + chunk;

		hold_rows(job, t, tensor, lo < rows ? lo : rows, hi < rows ? hi : rows);
	}
}

/* Aligned: shards of values end where 12 rows do, and every block is of 1 to 4 rows. */
static void hold_source(struct job *job, struct dice *dice, enum holding_mode mode,
			const struct source *source)
{
	const uint64_t world = job->trainer_count;
	const struct random_tensor *both[2] = {&source->values, &source->scales};

	for (uint32_t i = 0; i < (source->block[0] ? 2u : 1u); i++) {
		uint64_t rows = both[i]->shape[0];
		uint64_t unit = mode == ALIGNED ? (i ? 12 / source->block[0] : 12) : 1;
		uint64_t chunk = ((rows + unit - 1) / unit + world - 1) / world * unit;

		if (mode == ALIGNED && i) /* as many blocks as the values' shards have */
			chunk = ((source->values.shape[0] + 11) / 12 + world - 1) / world * unit;
		if (mode == GATHERED)
			hold_random(job, dice, 0, both[i], 1);
		else if (mode == ANYHOW)
			hold_anyhow(job, dice, both[i]);
		else
			hold_shards(job, both[i], chunk);
	}
}

static void random_source(struct dice *dice, struct source *source, uint32_t index)
{
	static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};
	struct random_tensor *values = &source->values, *scales = &source->scales;

	memset(source, 0, sizeof(*source));
	snprintf(values->name, sizeof(values->name), "tensor.%u", index);
	snprintf(scales->name, sizeof(scales->name), "tensor.%u.scale", index);
	values->dtype = dtypes[dice_below(dice, 3)];
	values->dims = scales->dims = 2;
	values->order = 2 * index;
	scales->order = 2 * index + (uint32_t)dice_below(dice, 2);
	scales->dtype = DTYPE_F32;
	for (uint32_t d = 0; d < 2; d++)
		values->shape[d] = 1 + dice_below(dice, d ? 9 : 60);
	if (dice_below(dice, 2))
		return;
	values->dtype = DTYPE_F8_E4M3;
	for (uint32_t d = 0; d < 2; d++) {
		source->block[d] = 1 + (uint32_t)dice_below(dice, 4);
		scales->shape[d] = (values->shape[d] + source->block[d] - 1) / source->block[d];
	}
}

/* lo..hi at multiples of grain, hi maybe at the end. */
static void random_range(struct dice *dice, uint64_t size, uint32_t grain, uint64_t *lo,
			 uint64_t *hi)
{
	uint64_t grains = (size + grain - 1) / grain;
	uint64_t first = dice_below(dice, grains);
	uint64_t end = first + 1 + dice_below(dice, grains - first);

	*lo = first * grain;
	*hi = end * grain < size ? end * grain : size;
}

/* One parameter of one piece, or of two: cut where it may be. */
static void want(struct job *job, struct dice *dice, uint32_t rank, struct piece piece,
		 enum dtype to)
{
	struct layout *layout = &job->layouts[rank];
	const struct tensor_info *tensor = &layout->tensors[piece.tensor];
	uint64_t grain = make_grain_rows(&piece.make);
	uint64_t row = piece.src.lo[0] / grain * grain + grain * dice_below(dice, 8), elements;
	struct piece part;
	char name[32];

	assert_true(make_bytes(&piece.make, &piece.src, 2, tensor->shape, to, &piece.bytes));
	elements = piece.bytes / dtype_bytes(to);
	snprintf(name, sizeof(name), "param.%zu", layout->param_count);
	int64_t param = layout_add_param(layout, name, to, 1, &elements, NULL);
	struct error error;

	assert_true(param >= 0);
	piece.param = (uint32_t)param;
	if (piece_cut_rows(&piece, 0, row, &part) && layout_add_piece(layout, &part, &error))
		fail_msg("%s", error.text);
	if (piece_cut_rows(&piece, row, UINT64_MAX, &part) &&
	    layout_add_piece(layout, &part, &error))
		fail_msg("%s", error.text);
}

static void want_source(struct job *job, struct dice *dice, uint32_t rank,
			const struct source *source)
{
	static const enum dtype floats[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16};
	struct layout *layout = &job->layouts[rank];
	const struct random_tensor *from = &source->values;
	struct piece piece = {.src.dims = 2};
	enum dtype to = from->dtype;
	uint64_t kind = dice_below(dice, 3); /* as it is, other floats, blocks */

	piece.tensor =
		(uint32_t)layout_add_tensor(layout, from->name, from->dtype, 2, from->shape, NULL);
	if (kind && source->block[0]) {
		piece.make.from_rows = source->block[0];
		piece.make.from_columns = source->block[1];
		piece.scales = (uint32_t)layout_add_tensor(layout, source->scales.name, DTYPE_F32,
							   2, source->scales.shape, NULL);
	}
	if (kind == 1)
		to = floats[dice_below(dice, 3)];
	if (kind == 2) {
		piece.make.to_rows = 1 + (uint32_t)dice_below(dice, 4);
		piece.make.to_columns = 1 + (uint32_t)dice_below(dice, 4);
		to = DTYPE_F8_E4M3;
	}
	for (uint32_t d = 0; d < 2; d++) {
		uint32_t grain = d ? piece.make.to_columns : piece.make.to_rows;

		random_range(dice, from->shape[d], grain ? grain : 1, &piece.src.lo[d],
			     &piece.src.hi[d]);
	}
	want(job, dice, rank, piece, to);
	piece.make.part = MAKE_SCALES;
	if (kind == 2)
		want(job, dice, rank, piece, DTYPE_F32);
}

static void job_made(struct job *job, struct dice *dice, enum holding_mode mode)
{
	struct source sources[3];
	uint32_t count = 1 + (uint32_t)dice_below(dice, 3);

	job_init(job, 1 + (uint32_t)dice_below(dice, 5), 1 + (uint32_t)dice_below(dice, 4));
	for (uint32_t i = 0; i < count; i++) {
		random_source(dice, &sources[i], i);
		hold_source(job, dice, mode, &sources[i]);
	}
	for (uint32_t r = 0; r < job->inference_count; r++) {
		struct dice same = {dice_next(dice)};

		job->mapped[r] = dice_below(dice, 2);
		for (uint32_t i = 0; i < count; i++)
			for (uint64_t n = 1 + dice_below(&same, 2); n; n--)
				want_source(job, &same, r, &sources[i]);
	}
	job_build(job);
}

/* ---- the proof ---- */

static void refused(const struct table *table, const char *what)
{
	struct error error = {0};

	if (table_prove(table, &error) != -ERROR_UNPROVED)
		fail_msg("%s was not refused", what);
}

/* Every other way to make a piece, known to the problem or not. */
static size_t spoil_made(const struct table *table, size_t p)
{
	const struct problem *problem = table->problem;
	struct problem spoilt = *problem;
	struct table copy = *table;
	uint32_t own = table->pieces[p].made;
	size_t done = 0, r = 0;

	while (r + 1 < table->route_count && table->routes[r + 1].piece_first <= p)
		r++;
	spoilt.made = malloc((problem->made_count + 1) * sizeof(*spoilt.made));
	copy.pieces = malloc(table->piece_count * sizeof(*copy.pieces));
	assert_true(spoilt.made && copy.pieces);
	memcpy(spoilt.made, problem->made, problem->made_count * sizeof(*spoilt.made));
	memcpy(copy.pieces, table->pieces, table->piece_count * sizeof(*copy.pieces));
	copy.problem = &spoilt;
	spoilt.made_count++;
	struct problem_made *made = &spoilt.made[problem->made_count];

	for (int change = 0; change < 9; change++) {
		*made = problem->made[own];
		made->make.part ^= change == 0;
		made->make.from_rows += change == 1;
		made->make.from_columns += change == 2;
		made->make.to_rows += change == 3;
		made->make.to_columns += change == 4;
		made->scales += change == 5;
		made->to = change == 6 ? DTYPE_NONE : change == 7 ? DTYPE_I64 : made->to;
		if (change == 6 && own == 0)
			continue; /* nothing changed */
		if (change == 8 && own != 0)
			continue; /* the same content at another place is the same */
		if (change == 8)
			made->to = problem->tensors[table->routes[r].tensor].dtype;
		copy.pieces[p].made = (uint32_t)problem->made_count;
		if (own == 0 && change < 6)
			made->to =
				DTYPE_F16; /* a copy of no blocks is a copy, whatever is beside */
		refused(&copy, "a spoilt way to make");
		done++;
	}
	for (uint32_t other = 0; other < problem->made_count; other++) {
		const struct problem_made *a = &problem->made[other], *b = &problem->made[own];

		if (make_equal(&a->make, &b->make) && a->scales == b->scales && a->to == b->to)
			continue;
		copy.pieces[p].made = other;
		refused(&copy, "another piece's way to make");
		done++;
	}
	copy.pieces[p].made = (uint32_t)spoilt.made_count;
	refused(&copy, "a way beyond all");
	free(spoilt.made);
	free(copy.pieces);
	return done;
}

/* Wherever a piece is made, it is packed. */
static void check_how(const struct table *table)
{
	for (size_t p = 0; p < table->piece_count; p++)
		assert_true(!table->pieces[p].made || table->pieces[p].how != HOW_DIRECT);
}

static void check_dump(struct job *job, const struct table *table)
{
	struct error error = {0};
	struct dump *dump, *read;
	char *text = NULL;
	size_t bytes = 0;
	FILE *stream = open_memstream(&text, &bytes);

	assert_int_equal(dump_write(stream, table, DUMP_WHOLE, &error), 0);
	fclose(stream);
	if (dump_parse(&read, text, bytes, "made", &error) || dump_of(&dump, table, &error) ||
	    dump_verify(read, job->problem, &error) || dump_verify(dump, job->problem, &error))
		fail_msg("%s\n%s", error.text, text);
	for (size_t p = 0; p < read->piece_count; p++) {
		if (!read->pieces[p].made)
			continue;
		struct problem_made *made = &read->made[read->pieces[p].made], kept = *made;

		made->make.to_rows += 1;
		assert_int_equal(dump_verify(read, job->problem, &error), -ERROR_UNPROVED);
		*made = kept;
	}
	dump_free(&dump);
	dump_free(&read);
	free(text);
}

static void test_made__is_planned_proved_and_never_mistaken(void **state)
{
	struct dice dice = dice_seeded("made");
	size_t planned[HOLDING_MODES] = {0}, unsourced[HOLDING_MODES] = {0}, spoilt = 0;
	size_t policies;
	const struct policy *policy = policy_list(&policies);

	(void)state;
	for (int round = 0; round < 2400; round++) {
		enum holding_mode mode = (enum holding_mode)(round % HOLDING_MODES);
		static struct job job;
		struct error error = {0};
		struct table *table;

		job_made(&job, &dice, mode);
		for (size_t i = 0; i < policies; i++) {
			int rc = table_plan(&table, job.problem, &policy[i], NULL, &error);

			if (rc == -ERROR_UNSOURCED && mode > ALIGNED) {
				assert_non_null(strstr(error.text, "use source=gathered"));
				unsourced[mode]++;
				break;
			}
			if (rc)
				fail_msg("round %d, %s: %s", round, policy[i].name, error.text);
			check_how(table);
			if (i == 0) {
				planned[mode]++;
				spoilt += spoil_made(table, dice_below(&dice, table->piece_count));
				check_dump(&job, table);
			}
			table_free(&table);
		}
		job_fini(&job);
	}
	for (int mode = 0; mode < HOLDING_MODES; mode++)
		assert_true(planned[mode] >= 30);
	assert_true(unsourced[SHARDED] >= 10 && unsourced[ANYHOW] >= 10 && spoilt > 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made__is_planned_proved_and_never_mistaken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
