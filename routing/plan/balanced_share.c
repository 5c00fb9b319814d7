/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced_share.c -- units to shares. All pieces of a tensor are cut at every border of pieces
 * that have the same columns; then two ranks want the same bytes, or bytes of other rows:
 *
 *   rank 0 wants   [0 ............... 64)          shares  0..32  for ranks 0 and 1
 *   rank 1 wants   [0 ..... 32)                            32..64 for rank 0
 *
 * A cell's rows are cut so too, of its own columns. Worked out once per (tensor, kind of inference ranks: those with one layout
 * and the same holders).
 */
#include "routing/plan/balanced.h"

#include "base/compare.h"
#include "base/memory.h"
#include <string.h>

#define NONE UINT32_MAX

/* What pieces have in common that are the same bytes of some rows. */
struct columns {
	const struct box *box;
	uint32_t transformed;
};

struct border {
	uint32_t columns;
	uint64_t row;
};

struct slot {
	uint32_t stamp, share;
};

struct maker {
	const struct problem *problem;
	const struct units *units;
	struct shares *shares;
	uint32_t tensor;
	uint32_t *ranks_of, *first_rank; /* by kind */
	uint32_t *recipe_first, *stamp;	 /* by kind: of this tensor */
	ARRAY(struct columns) columns;	 /* of this tensor: each distinct range */
	ARRAY(struct border) borders;	 /* of this tensor, ascending, each once */
	ARRAY(uint64_t) cuts;		 /* of one unit */
	uint64_t grain;			 /* of its pieces; BALANCED_WHOLE when it has no cuts */
	ARRAY(uint32_t) here;		 /* columns of one segment */
	struct slot *slots;		 /* this tensor's shares; size a power of two */
	size_t slot_count, first_share;
	struct pool pool; /* owns what is by kind */
};

static int no_memory(struct error *error)
{
	return memory_error(error, "grouping what ranks want alike", sizeof(struct share));
}

/* Found: boxes of this tensor were all interned by find_borders. */
static uint32_t columns_of(const struct maker *m, const struct problem_layout *layout, uint32_t p)
{
	const struct box *box = &layout->pieces[p].src;

	for (size_t c = 0; c < m->columns.count; c++)
		if (m->columns.items[c].transformed == layout->transformed[p] &&
		    box_same_columns(m->columns.items[c].box, box))
			return (uint32_t)c;
	return NONE;
}

static int by_border(const void *x, const void *y)
{
	const struct border *a = x, *b = y;

	return compare_u64(a->columns, b->columns) ?: compare_u64(a->row, b->row);
}

static int find_borders(struct maker *m, struct error *error)
{
	size_t kept = 0;

	m->columns.count = m->borders.count = 0;
	for (size_t l = 0; l < m->problem->layout_count; l++) {
		const struct problem_layout *layout = &m->problem->layouts[l];

		for (uint32_t p = layout->pieces_of[m->tensor];
		     p < layout->pieces_of[m->tensor + 1]; p++) {
			const struct box *box = &layout->pieces[p].src;
			uint32_t columns = columns_of(m, layout, p);

			if (columns == NONE) {
				columns = (uint32_t)m->columns.count;
				if (!array_add(&m->columns,
					       (struct columns){box, layout->transformed[p]}))
					return no_memory(error);
			}
			if (!array_add(&m->borders, (struct border){columns, box->lo[0]}) ||
			    !array_add(&m->borders, (struct border){columns, box->hi[0]}))
				return no_memory(error);
		}
	}
	if (m->borders.count > 2)
		sort_items(m->borders.items, m->borders.count, by_border);
	for (size_t i = 0; i < m->borders.count; i++)
		if (i == 0 || by_border(&m->borders.items[i], &m->borders.items[kept - 1]) != 0)
			m->borders.items[kept++] = m->borders.items[i];
	m->borders.count = kept;
	return 0;
}

/* ---- one unit of one layout ---- */

/* Of a piece that has rows of the unit: has it columns of its cell? */
static bool has_part(const struct maker *m, const struct unit *unit, const struct piece *piece)
{
	struct piece part;

	return unit->cell == UNIT_FULL ||
	       unit_cut(m->units, unit, unit->lo, unit->hi, piece, &part);
}

/* All rows in (lo, hi) where the columns that are wanted, or who wants them, may change. */
static int find_cuts(struct maker *m, const struct problem_layout *layout, const struct unit *unit,
		     struct error *error)
{
	size_t kept = 0;

	m->cuts.count = 0;
	for (uint32_t p = layout->pieces_of[m->tensor]; p < layout->pieces_of[m->tensor + 1]; p++) {
		const struct box *box = &layout->pieces[p].src;
		uint64_t lo = box->lo[0] > unit->lo ? box->lo[0] : unit->lo;
		uint64_t hi = box->hi[0] < unit->hi ? box->hi[0] : unit->hi;
		struct border key = {columns_of(m, layout, p), lo};
		size_t from;

		if (lo >= hi || !has_part(m, unit, &layout->pieces[p]))
			continue;
		if (!array_add(&m->cuts, lo) || !array_add(&m->cuts, hi))
			return no_memory(error);
		from = search_first(at, 0, m->borders.count,
				    by_border(&m->borders.items[at], &key) > 0);
		for (; from < m->borders.count && m->borders.items[from].columns == key.columns &&
		       m->borders.items[from].row < hi;
		     from++)
			if (!array_add(&m->cuts, m->borders.items[from].row))
				return no_memory(error);
	}
	if (m->cuts.count > 2)
		sort_items(m->cuts.items, m->cuts.count, compare_u64s);
	for (size_t i = 0; i < m->cuts.count; i++)
		if (i == 0 || m->cuts.items[i] != m->cuts.items[kept - 1])
			m->cuts.items[kept++] = m->cuts.items[i];
	m->cuts.count = kept;
	return 0;
}

static bool is_share(const struct maker *m, const struct share *share, uint32_t holders,
		     uint64_t lo, uint64_t hi)
{
	return share->holders == holders && share->lo == lo && share->hi == hi &&
	       share->column_count == m->here.count &&
	       memcmp(m->shares->columns.items + share->columns_first, m->here.items,
		      m->here.count * sizeof(uint32_t)) == 0;
}

static int grow_slots(struct maker *m, struct error *error)
{
	size_t wanted = m->slot_count ? m->slot_count * 2 : 64;
	struct slot *slots = memory_zalloc(wanted, sizeof(*slots));

	if (!slots)
		return no_memory(error);
	memory_free(m->slots);
	m->slots = slots;
	m->slot_count = wanted;
	for (size_t s = m->first_share; s < m->shares->items.count; s++) {
		const struct share *share = &m->shares->items.items[s];
		uint64_t key[2] = {share->lo, share->hi};
		size_t at = checksum64(key, sizeof(key)) & (wanted - 1);

		while (slots[at].stamp)
			at = (at + 1) & (wanted - 1);
		slots[at] = (struct slot){m->tensor + 1, (uint32_t)s};
	}
	return 0;
}

/* The share of these rows and m->here's columns, made when there is none yet. */
static int intern(struct maker *m, uint32_t holders, uint64_t lo, uint64_t hi, uint32_t *found,
		  struct error *error)
{
	struct shares *shares = m->shares;
	uint64_t key[2] = {lo, hi};
	size_t at;
	int rc;

	if ((shares->items.count - m->first_share + 1) * 2 > m->slot_count) {
		rc = grow_slots(m, error);
		if (rc)
			return rc;
	}
	at = checksum64(key, sizeof(key)) & (m->slot_count - 1);
	for (; m->slots[at].stamp == m->tensor + 1; at = (at + 1) & (m->slot_count - 1)) {
		*found = m->slots[at].share;
		if (is_share(m, &shares->items.items[*found], holders, lo, hi))
			return 0;
	}
	if (!array_add(&shares->items, (struct share){.tensor = m->tensor,
						      .holders = holders,
						      .first_target = NONE,
						      .lo = lo,
						      .hi = hi,
						      .columns_first = shares->columns.count,
						      .column_count = (uint32_t)m->here.count}))
		return no_memory(error);
	for (size_t c = 0; c < m->here.count; c++)
		if (!array_add(&shares->columns, m->here.items[c]))
			return no_memory(error);
	*found = (uint32_t)shares->items.count - 1;
	m->slots[at] = (struct slot){m->tensor + 1, *found};
	return 0;
}

/* Where blocks of one piece lie across the border of another, the unit is one share, and whole. */
static void keep_blocks(struct maker *m, const struct problem_layout *layout)
{
	for (uint32_t p = layout->pieces_of[m->tensor]; p < layout->pieces_of[m->tensor + 1]; p++) {
		const struct piece *piece = &layout->pieces[p];

		uint32_t grain = transform_grain_rows(&piece->transform);

		for (size_t c = 1; grain > 1 && c + 1 < m->cuts.count; c++) {
			uint64_t row = m->cuts.items[c];

			if (row % grain == 0 || row <= piece->src.lo[0] || row >= piece->src.hi[0])
				continue;
			m->cuts.items[1] = m->cuts.items[m->cuts.count - 1];
			m->cuts.count = 2;
			m->grain = BALANCED_WHOLE;
			return;
		}
	}
}

static const struct problem_layout *layout_of(const struct maker *m, const struct unit *unit)
{
	return &m->problem->layouts[m->problem->inference_layout[unit->inference]];
}

/* Rows lo..hi of a unit, between two cuts: a share, unless they are a hole between pieces. */
static int add_step(struct maker *m, uint32_t kind, const struct unit *unit, uint64_t lo,
		    uint64_t hi, struct error *error)
{
	const struct problem_layout *layout = layout_of(m, unit);
	uint64_t row_bytes = 0;
	uint32_t found = NONE;

	m->here.count = 0;
	for (uint32_t p = layout->pieces_of[m->tensor]; p < layout->pieces_of[m->tensor + 1]; p++) {
		struct piece part;

		if (!unit_cut(m->units, unit, lo, hi, &layout->pieces[p], &part))
			continue;
		if (!array_add(&m->here, columns_of(m, layout, p)))
			return no_memory(error);
		row_bytes += (part.bytes + hi - lo - 1) / (hi - lo);
	}
	if (m->here.count == 0)
		return 0;
	/* some of those columns, as no number of columns says */
	if (unit->cell != UNIT_FULL && !array_add(&m->here, ~unit->cell))
		return no_memory(error);
	if (m->here.count > 1)
		sort_items(m->here.items, m->here.count, compare_u32s);
	int rc = intern(m, unit->holders, lo, hi, &found, error);

	if (rc)
		return rc;
	struct share *share = &m->shares->items.items[found];

	if (!array_add(&m->shares->steps, found))
		return no_memory(error);
	share->row_bytes = row_bytes > share->row_bytes ? row_bytes : share->row_bytes;
	share->grain = m->grain;
	share->targets += m->ranks_of[kind];
	if (m->first_rank[kind] < share->first_target)
		share->first_target = m->first_rank[kind];
	m->shares->recipes.items[m->shares->recipes.count - 1].count++;
	return 0;
}

static int add_recipe(struct maker *m, uint32_t kind, const struct unit *unit, struct error *error)
{
	const struct problem_layout *layout = layout_of(m, unit);
	int rc;

	if (!array_add(&m->shares->recipes, (struct recipe){.first = m->shares->steps.count}))
		return no_memory(error);
	m->grain = pieces_grain(m->problem, layout, m->tensor);
	rc = find_cuts(m, layout, unit, error);
	if (!rc && m->problem->transformed_count > 1)
		keep_blocks(m, layout);
	for (size_t c = 0; !rc && c + 1 < m->cuts.count; c++)
		rc = add_step(m, kind, unit, m->cuts.items[c], m->cuts.items[c + 1], error);
	return rc;
}

/* ---- all tensors ---- */

/* Units of m->tensor: from..to. A rank's are neighbours, and alike for ranks of one kind. */
static int add_tensor(struct maker *m, size_t from, size_t to, struct error *error)
{
	const struct unit *items = m->units->items;
	int rc = find_borders(m, error);

	m->first_share = m->shares->items.count;
	for (size_t u = from, end; !rc && u < to; u = end) {
		uint32_t kind = m->units->kind[items[u].inference];
		bool known = m->stamp[kind] == m->tensor + 1;

		if (!known) {
			m->stamp[kind] = m->tensor + 1;
			m->recipe_first[kind] = (uint32_t)m->shares->recipes.count;
		}
		for (end = u; !rc && end < to && items[end].inference == items[u].inference;
		     end++) {
			m->shares->recipe_of[end] = m->recipe_first[kind] + (uint32_t)(end - u);
			rc = known ? 0 : add_recipe(m, kind, &items[end], error);
		}
	}
	return rc;
}

static int maker_init(struct maker *m, struct error *error)
{
	const struct problem *problem = m->problem;
	size_t kinds = m->units->kind_count;

	m->ranks_of = pool_array(&m->pool, kinds, sizeof(*m->ranks_of));
	m->first_rank = pool_array(&m->pool, kinds, sizeof(*m->first_rank));
	m->recipe_first = pool_array(&m->pool, kinds, sizeof(*m->recipe_first));
	m->stamp = pool_array(&m->pool, kinds, sizeof(*m->stamp));
	m->shares->recipe_of = memory_alloc(m->units->count * sizeof(uint32_t));
	if (!pool_ok(&m->pool) || !m->shares->recipe_of)
		return no_memory(error);
	for (uint32_t i = problem->inference_count; i-- > 0;) {
		m->ranks_of[m->units->kind[i]]++;
		m->first_rank[m->units->kind[i]] = i;
	}
	return 0;
}

int balanced_shares(struct shares *shares, const struct problem *problem, const struct units *units,
		    struct error *error)
{
	struct maker m = {.problem = problem, .units = units, .shares = shares};
	int rc;

	*shares = (struct shares){0};
	rc = maker_init(&m, error);
	for (size_t from = 0, to; !rc && from < units->count; from = to) {
		m.tensor = units->items[from].tensor;
		for (to = from; to < units->count && units->items[to].tensor == m.tensor; to++)
			;
		rc = add_tensor(&m, from, to, error);
	}
	pool_free(&m.pool);
	memory_free(m.slots);
	array_free(&m.columns);
	array_free(&m.borders);
	array_free(&m.cuts);
	array_free(&m.here);
	return rc; /* what is there, balanced_shares_fini frees */
}

void balanced_shares_fini(struct shares *shares)
{
	array_free(&shares->items);
	array_free(&shares->recipes);
	array_free(&shares->steps);
	array_free(&shares->columns);
	memory_free(shares->recipe_of);
	shares->recipe_of = NULL;
}
