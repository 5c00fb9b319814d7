/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron_experts.c -- routed experts: expert ep * n + l is local expert l, cut over etp as other linears are over tp. A parameter
 * each (weight0, weight1, ..), or all of a rank's in one; the legacy GroupedMLP's matrices lie transposed.
 */
#include "model/megatron.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How many experts a rank has; the rank and size of its cut are etp's from here on. */
static int local_experts(struct megatron *m, uint32_t *n, struct error *error)
{
	const struct train_spec *train = m->job->train;

	if (m->config->experts % train->ep)
		return error_set(error, ERROR_CONFIG,
				 "--train: ep=%u does not divide the %" PRIu64 " experts",
				 train->ep, m->config->experts);
	*n = (uint32_t)m->config->experts / train->ep;
	m->rank = m->job->place.etp;
	m->size = train->etp ? train->etp : train->tp;
	return 0;
}

/* ---- all of a rank in one parameter ---- */

/* One box of local expert `l` of `n`: rows of the matrix from `lo` on, from row `at` of gate and up together (or of down) on. */
struct grouped {
	uint32_t l, n;
	uint64_t share, hidden, rows, lo, at;
};

static int put_grouped(const struct megatron *m, const struct grouped *g, struct error *error)
{
	bool legacy = m->job->train->grouped == GROUPED_LEGACY, down = m->row.cut == SOURCE_COLUMNS;
	uint32_t cut = down ? 1 : 0;
	struct box box = box_whole(2, m->tensor->shape);
	uint64_t matrix = (down ? 1 : 2) * g->share * g->hidden, offset = g->l * matrix;
	const uint64_t shape[2] = {g->n, matrix};
	uint64_t stride[2] = {down ? g->share : g->hidden, 1};
	char name[MEGATRON_NAME_BYTES];
	int64_t index;

	snprintf(name, sizeof(name), "%smlp.experts.%s", m->prefix,
		 legacy ? (down ? "weight2" : "weight1")
			: (down ? "linear_fc2.weight" : "linear_fc1.weight"));
	index = source_local(m->job, name, m->tensor->dtype, 2, shape, error);
	if (index < 0)
		return (int)index;
	box.lo[cut] = g->lo;
	box.hi[cut] = g->lo + g->rows;
	if (legacy) {
		stride[0] = 1;
		stride[1] = down ? g->hidden : 2 * g->share;
	}
	offset += g->at * (legacy ? 1 : g->hidden);
	return source_box(m->job, m->order, &box, (uint32_t)index, offset, stride, error);
}

static int hold_grouped(struct megatron *m, uint32_t l, uint32_t n, struct error *error)
{
	bool down = m->row.cut == SOURCE_COLUMNS;
	uint64_t cut = m->tensor->shape[down ? 1 : 0], share = cut / m->size;
	struct grouped g = {.l = l, .n = n, .share = share};
	struct megatron_halves halves = {share, 1};
	int rc = 0;

	if (cut % m->size)
		return megatron_indivisible(m, cut, error);
	g.hidden = m->tensor->shape[down ? 0 : 1];
	if (!down)
		rc = megatron_halves(m, share, m->job->train->glu_interleave, &halves, error);
	g.rows = halves.count;
	for (uint64_t i = 0; i < halves.times && !rc; i++) {
		g.lo = m->rank * share + i * halves.count;
		g.at = down ? 0 : megatron_half_at(&halves, i, m->row.cut == SOURCE_UP);
		rc = put_grouped(m, &g, error);
	}
	return rc;
}

int megatron_expert(struct megatron *m, struct error *error)
{
	char each[MEGATRON_NAME_BYTES];
	uint32_t n = 1, l;
	int rc = local_experts(m, &n, error);

	if (rc || m->tensor->expert / n != m->job->place.ep)
		return rc;
	l = m->tensor->expert % n;
	if (m->job->train->grouped != GROUPED_EACH)
		return hold_grouped(m, l, n, error);
	snprintf(each, sizeof(each), "%s%u", m->row.megatron, l);
	m->row.megatron = each;
	return m->row.cut == SOURCE_COLUMNS ? megatron_cut_columns(m, error)
	       : m->row.cut == SOURCE_UP    ? megatron_up(m, error)
					    : megatron_gate(m, error);
}

/* ---- a tensor of all experts (gpt-oss) ---- */

/* Its gate and up are row by row in turn, which is linear_fc1 interleaved by one. */
static int check_stacked(const struct megatron *m, struct error *error)
{
	const struct train_spec *train = m->job->train;

	if (train->grouped != GROUPED_EACH)
		return source_unknown(
			m->job, m->tensor,
			"of its experts, which have biases, a parameter each is known: leave grouped= out",
			error);
	if (m->size > 1)
		return error_set(
			error, ERROR_CONFIG,
			"--train: etp=%u: Megatron cuts no experts with biases, as tensor %s's "
			"are: say etp=1 (it is tp where it is not given)",
			m->size, m->tensor->name);
	if (train->glu_interleave != 1)
		return source_unknown(
			m->job, m->tensor,
			"its checkpoint has gate and up row by row in turn, and linear_fc1 the gates before the ups (of an "
			"expert, or with moe_mlp_glu_interleave_size of so many rows), so that no two rows of it follow each "
			"other in the tensor, and a box would be a row: let each trainer keep linear_fc1.weight and .bias of each "
			"expert with rows in turn beside it (linear_fc1.weight0_in_turn), made anew before each update, and say "
			"glu_interleave=1, which is that order",
			error);
	return 0;
}

int megatron_stacked(struct megatron *m, struct error *error)
{
	const char *name = m->row.megatron;
	uint32_t n = 0;
	int rc = local_experts(m, &n, error);

	if (!rc)
		rc = check_stacked(m, error);
	for (uint32_t l = 0; !rc && l < n; l++) {
		char each[MEGATRON_NAME_BYTES];

		/* under Megatron's own name a copy could be mistaken for what it is made of */
		snprintf(each, sizeof(each), "%s%u%s", name, l,
			 strstr(name, "linear_fc1") ? "_in_turn" : "");
		m->row.megatron = each;
		m->expert = m->job->place.ep * n + l;
		rc = megatron_whole(m, error);
	}
	m->row.megatron = name;
	return rc;
}
