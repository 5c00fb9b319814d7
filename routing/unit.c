/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.c -- units, made tensor by tensor. All that engines share is worked out once per
 * (tensor, distinct layout) and then repeated for the ranks that have the layout.
 */
#include "routing/unit.h"

#include "common/array.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NONE	  UINT32_MAX
#define BYTES_MAX (UINT64_C(1) << 62)

/* Rows of the tensor between two borders, and the distinct holdings that have them. */
struct segment {
	uint64_t lo, hi;
	size_t first; /* into builder.members */
	uint32_t count;
};

/* A range of rows that one distinct holding has. */
struct source {
	uint64_t lo, hi;
	uint32_t holding;
};

/* Part of a pair: what one unit is, without the inference rank. */
struct share {
	uint64_t lo, hi, bytes;
	uint32_t set;
};

/* An interned set: distinct holdings, ascending. Equal holdings have equal trainers, so sets of
 * holdings are as good as sets of trainers, and much shorter. */
struct key {
	size_t first; /* into builder.key_members */
	uint32_t count;
};

struct builder {
	const struct problem *problem;
	bool cut;  /* always at every border */
	bool list; /* make items */
	ARRAY(struct source) sources;
	ARRAY(struct segment) segments;
	ARRAY(uint32_t) members;
	ARRAY(uint64_t) borders;
	ARRAY(struct share) shares;
	ARRAY(struct key) keys;
	ARRAY(uint32_t) key_members;
	ARRAY(uint32_t) scratch;
	ARRAY(struct unit) items;
	ARRAY(uint64_t) weights;
	uint32_t *slots; /* hash of keys */
	size_t slot_count;
	size_t *share_first; /* by layout, and one more */
	uint64_t *ranks_of;  /* how many inference ranks have the layout */
	uint64_t total;
};

static int out_of_memory(struct error *error)
{
	return memory_error(error, "listing what to route", sizeof(struct unit));
}

/* ---- holder sets ---- */

static int grow_slots(struct builder *b, struct error *error)
{
	size_t wanted = b->slot_count ? b->slot_count * 2 : 64;
	uint32_t *slots = memory_alloc(wanted * sizeof(*slots));

	if (!slots)
		return out_of_memory(error);
	memset(slots, 0xff, wanted * sizeof(*slots));
	for (size_t k = 0; k < b->keys.count; k++) {
		const struct key *key = &b->keys.items[k];
		size_t at = checksum64(b->key_members.items + key->first,
				       key->count * sizeof(uint32_t)) &
			    (wanted - 1);

		while (slots[at] != NONE)
			at = (at + 1) & (wanted - 1);
		slots[at] = (uint32_t)k;
	}
	memory_free(b->slots);
	b->slots = slots;
	b->slot_count = wanted;
	return 0;
}

static int intern(struct builder *b, const uint32_t *holdings, uint32_t count, uint32_t *set,
		  struct error *error)
{
	size_t bytes = count * sizeof(uint32_t), at;

	if ((b->keys.count + 1) * 2 > b->slot_count) {
		int rc = grow_slots(b, error);

		if (rc)
			return rc;
	}
	at = checksum64(holdings, bytes) & (b->slot_count - 1);
	for (; b->slots[at] != NONE; at = (at + 1) & (b->slot_count - 1)) {
		const struct key *key = &b->keys.items[b->slots[at]];

		if (key->count == count &&
		    memcmp(b->key_members.items + key->first, holdings, bytes) == 0) {
			*set = b->slots[at];
			return 0;
		}
	}
	size_t first = b->key_members.count;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t *member = array_push(&b->key_members);

		if (!member)
			return out_of_memory(error);
		*member = holdings[i];
	}
	struct key *key = array_push(&b->keys);
	uint64_t *weight = key ? array_push(&b->weights) : NULL;

	if (!weight)
		return out_of_memory(error);
	*key = (struct key){first, count};
	*set = b->slots[at] = (uint32_t)b->keys.count - 1;
	return 0;
}

static int by_u32(const void *x, const void *y)
{
	const uint32_t *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

/* ---- segments of one tensor ---- */

static int by_low(const void *x, const void *y)
{
	const struct source *a = x, *b = y;

	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	return a->holding < b->holding ? -1 : a->holding > b->holding;
}

static int by_u64(const void *x, const void *y)
{
	const uint64_t *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

static int collect_sources(struct builder *b, size_t t, bool *uniform, struct error *error)
{
	const struct problem *problem = b->problem;

	b->sources.count = b->borders.count = 0;
	*uniform = true;
	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		for (uint32_t i = holding->held_of[t]; i < holding->held_of[t + 1]; i++) {
			struct source *source = array_push(&b->sources);
			uint64_t *border = source ? array_push(&b->borders) : NULL;
			uint64_t *end = border ? array_push(&b->borders) : NULL;

			if (!end)
				return out_of_memory(error);
			*source = (struct source){holding->held[i].lo, holding->held[i].hi,
						  (uint32_t)h};
			b->borders.items[b->borders.count - 2] = source->lo;
			*end = source->hi;
			if (source->lo != b->sources.items[0].lo ||
			    source->hi != b->sources.items[0].hi)
				*uniform = false;
		}
	}
	return 0;
}

static int add_segment(struct builder *b, uint64_t lo, uint64_t hi, const uint32_t *holdings,
		       uint32_t count, struct error *error)
{
	struct segment *segment = array_push(&b->segments);

	if (!segment)
		return out_of_memory(error);
	*segment = (struct segment){lo, hi, b->members.count, count};
	for (uint32_t i = 0; i < count; i++) {
		uint32_t *member = array_push(&b->members);

		if (!member)
			return out_of_memory(error);
		*member = holdings[i];
	}
	return 0;
}

/* Sweeps the borders upwards; `scratch` is the sources (by index) that reach the segment. */
static int sweep(struct builder *b, struct error *error)
{
	size_t next = 0, borders = 0;

	qsort(b->sources.items, b->sources.count, sizeof(struct source), by_low);
	qsort(b->borders.items, b->borders.count, sizeof(uint64_t), by_u64);
	for (size_t i = 0; i < b->borders.count; i++)
		if (i == 0 || b->borders.items[i] != b->borders.items[borders - 1])
			b->borders.items[borders++] = b->borders.items[i];
	b->scratch.count = 0;
	for (size_t i = 0; i + 1 < borders; i++) {
		uint64_t lo = b->borders.items[i], hi = b->borders.items[i + 1];
		size_t kept = 0, first = b->members.count;

		for (size_t k = 0; k < b->scratch.count; k++)
			if (b->sources.items[b->scratch.items[k]].hi > lo)
				b->scratch.items[kept++] = b->scratch.items[k];
		b->scratch.count = kept;
		for (; next < b->sources.count && b->sources.items[next].lo == lo; next++) {
			uint32_t *active = array_push(&b->scratch);

			if (!active)
				return out_of_memory(error);
			*active = (uint32_t)next;
		}
		if (b->scratch.count == 0)
			continue; /* held by nobody, and wanted by nobody (problem_check) */
		int rc =
			add_segment(b, lo, hi, b->scratch.items, (uint32_t)b->scratch.count, error);

		if (rc)
			return rc;
		for (size_t k = first; k < b->members.count; k++)
			b->members.items[k] = b->sources.items[b->members.items[k]].holding;
		qsort(b->members.items + first, b->members.count - first, sizeof(uint32_t), by_u32);
	}
	return 0;
}

static int make_segments(struct builder *b, size_t t, struct error *error)
{
	bool uniform;
	int rc = collect_sources(b, t, &uniform, error);

	b->segments.count = b->members.count = 0;
	if (rc || b->sources.count == 0)
		return rc;
	if (!uniform)
		return sweep(b, error);
	/* gathered: all holders have the same rows, holdings come ascending */
	b->scratch.count = 0;
	for (size_t i = 0; i < b->sources.count; i++) {
		uint32_t *holding = array_push(&b->scratch);

		if (!holding)
			return out_of_memory(error);
		*holding = b->sources.items[i].holding;
	}
	return add_segment(b, b->sources.items[0].lo, b->sources.items[0].hi, b->scratch.items,
			   (uint32_t)b->scratch.count, error);
}

/* The segment that has this row. */
static size_t segment_at(const struct builder *b, uint64_t row)
{
	size_t from = 0, to = b->segments.count;

	while (to - from > 1) {
		size_t middle = from + (to - from) / 2;

		if (b->segments.items[middle].lo <= row)
			from = middle;
		else
			to = middle;
	}
	return from;
}

/* ---- shares of one (tensor, layout) ---- */

static bool held_in_one(const struct problem_holding *holding, uint32_t t, uint64_t lo, uint64_t hi)
{
	uint32_t from = holding->held_of[t], to = holding->held_of[t + 1];

	while (from < to) { /* the first range that ends at or after hi */
		uint32_t middle = from + (to - from) / 2;

		if (holding->held[middle].hi < hi)
			from = middle + 1;
		else
			to = middle;
	}
	return from < holding->held_of[t + 1] && holding->held[from].lo <= lo;
}

static uint64_t cut_bytes(const struct piece *piece, uint64_t lo, uint64_t hi)
{
	uint64_t rows = piece->src.hi[0] - piece->src.lo[0];
	struct box part;

	if (!box_cut_rows(&piece->src, lo, hi, &part))
		return 0;
	return piece->bytes / rows * (part.hi[0] - part.lo[0]);
}

static int add_share(struct builder *b, const struct piece *pieces, size_t count, uint64_t lo,
		     uint64_t hi, const uint32_t *holdings, uint32_t holding_count,
		     struct error *error)
{
	uint64_t bytes = 0;
	struct share *share;
	uint32_t set = 0;
	int rc;

	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(bytes, cut_bytes(&pieces[i], lo, hi), &bytes) ||
		    bytes > BYTES_MAX)
			return error_set(error, ERROR_LIMIT,
					 "one inference rank needs more than "
					 "2^62 bytes of one tensor");
	if (bytes == 0)
		return 0;
	rc = intern(b, holdings, holding_count, &set, error);
	if (rc)
		return rc;
	share = array_push(&b->shares);
	if (!share)
		return out_of_memory(error);
	*share = (struct share){lo, hi, bytes, set};
	return 0;
}

/* Holdings that have every piece in one run of their memory; into scratch. */
static int common_holders(struct builder *b, uint32_t t, const struct piece *pieces, size_t count,
			  struct error *error)
{
	const struct segment *segment = &b->segments.items[segment_at(b, pieces[0].src.lo[0])];

	b->scratch.count = 0;
	for (uint32_t k = 0; k < segment->count; k++) {
		uint32_t h = b->members.items[segment->first + k];
		bool all = true;

		for (size_t i = 0; i < count && all; i++)
			all = held_in_one(&b->problem->holdings[h], t, pieces[i].src.lo[0],
					  pieces[i].src.hi[0]);
		if (!all)
			continue;
		uint32_t *holder = array_push(&b->scratch);

		if (!holder)
			return out_of_memory(error);
		*holder = h;
	}
	return 0;
}

static int make_shares(struct builder *b, uint32_t t, const struct piece *pieces, size_t count,
		       struct error *error)
{
	uint64_t lo = UINT64_MAX, hi = 0;
	int rc;

	for (size_t i = 0; i < count; i++) {
		lo = pieces[i].src.lo[0] < lo ? pieces[i].src.lo[0] : lo;
		hi = pieces[i].src.hi[0] > hi ? pieces[i].src.hi[0] : hi;
	}
	size_t first = segment_at(b, lo), last = segment_at(b, hi - 1);

	if (first != last && !b->cut) {
		rc = common_holders(b, t, pieces, count, error);
		if (rc)
			return rc;
		if (b->scratch.count)
			return add_share(b, pieces, count, lo, hi, b->scratch.items,
					 (uint32_t)b->scratch.count, error);
	}
	for (size_t s = first; s <= last; s++) {
		const struct segment *segment = &b->segments.items[s];

		rc = add_share(b, pieces, count, segment->lo > lo ? segment->lo : lo,
			       segment->hi < hi ? segment->hi : hi,
			       b->members.items + segment->first, segment->count, error);
		if (rc)
			return rc;
	}
	return 0;
}

/* ---- all tensors ---- */

static int weigh(struct builder *b, struct error *error)
{
	for (size_t l = 0; l < b->problem->layout_count; l++) {
		for (size_t s = b->share_first[l]; s < b->share_first[l + 1]; s++) {
			const struct share *share = &b->shares.items[s];
			uint64_t bytes;

			if (__builtin_mul_overflow(share->bytes, b->ranks_of[l], &bytes) ||
			    __builtin_add_overflow(b->total, bytes, &b->total) ||
			    b->total > BYTES_MAX)
				return error_set(error, ERROR_LIMIT,
						 "one update of this job is "
						 "more than 2^62 bytes");
			b->weights.items[share->set] += bytes;
		}
	}
	return 0;
}

static int emit(struct builder *b, uint32_t t, struct error *error)
{
	for (uint32_t i = 0; i < b->problem->inference_count; i++) {
		uint32_t l = b->problem->inference_layout[i];

		for (size_t s = b->share_first[l]; s < b->share_first[l + 1]; s++) {
			const struct share *share = &b->shares.items[s];
			struct unit *unit = array_push(&b->items);

			if (!unit)
				return out_of_memory(error);
			*unit = (struct unit){t, i, share->set, share->lo, share->hi, share->bytes};
		}
	}
	return 0;
}

static int walk(struct builder *b, struct error *error)
{
	const struct problem *problem = b->problem;
	size_t layouts = problem->layout_count;

	b->share_first = memory_zalloc(layouts + 1, sizeof(*b->share_first));
	b->ranks_of = memory_zalloc(layouts, sizeof(*b->ranks_of));
	if (!b->share_first || !b->ranks_of)
		return out_of_memory(error);
	for (uint32_t i = 0; i < problem->inference_count; i++)
		b->ranks_of[problem->inference_layout[i]]++;
	for (uint32_t t = 0; t < problem->tensor_count; t++) {
		int rc = make_segments(b, t, error);

		if (rc)
			return rc;
		b->shares.count = 0;
		for (size_t l = 0; l < layouts; l++) {
			const struct problem_layout *layout = &problem->layouts[l];
			uint32_t first = layout->pieces_of[t], end = layout->pieces_of[t + 1];

			b->share_first[l] = b->shares.count;
			if (first == end)
				continue;
			rc = make_shares(b, t, layout->pieces + first, end - first, error);
			if (rc)
				return error_wrap(error, "tensor '%s'", problem->tensors[t].name);
		}
		b->share_first[layouts] = b->shares.count;
		rc = weigh(b, error);
		if (!rc && b->list)
			rc = emit(b, t, error);
		if (rc)
			return rc;
	}
	return 0;
}

/* From sets of holdings to sets of trainers. */
static int publish_sets(struct builder *b, struct units *units, struct error *error)
{
	const struct problem *problem = b->problem;
	size_t *of = memory_zalloc(problem->holding_count + 2, sizeof(*of));
	uint32_t *trainers = memory_alloc(problem->trainer_count * sizeof(*trainers));
	size_t total = 0;
	int rc = 0;

	units->sets = memory_zalloc(b->keys.count, sizeof(*units->sets));
	if (!of || !trainers || !units->sets) {
		rc = out_of_memory(error);
		goto free_index;
	}
	for (uint32_t r = 0; r < problem->trainer_count; r++) /* by holding, ascending */
		of[problem->trainer_holding[r] + 2]++;
	for (size_t h = 0; h < problem->holding_count; h++)
		of[h + 2] += of[h + 1];
	for (uint32_t r = 0; r < problem->trainer_count; r++)
		trainers[of[problem->trainer_holding[r] + 1]++] = r;
	for (size_t m = 0; m < b->key_members.count; m++)
		total += of[b->key_members.items[m] + 1] - of[b->key_members.items[m]];
	units->set_storage = memory_alloc(total * sizeof(uint32_t));
	if (!units->set_storage) {
		rc = out_of_memory(error);
		goto free_index;
	}
	uint32_t *out = units->set_storage;

	for (size_t k = 0; k < b->keys.count; k++) {
		const struct key *key = &b->keys.items[k];
		uint32_t *begin = out;

		for (uint32_t m = 0; m < key->count; m++) {
			uint32_t h = b->key_members.items[key->first + m];

			memcpy(out, trainers + of[h], (of[h + 1] - of[h]) * sizeof(*out));
			out += of[h + 1] - of[h];
		}
		if (key->count > 1)
			qsort(begin, (size_t)(out - begin), sizeof(*begin), by_u32);
		units->sets[k] = (struct holder_set){begin, (uint32_t)(out - begin)};
	}
	units->set_count = b->keys.count;
free_index:
	memory_free(of);
	memory_free(trainers);
	return rc;
}

static void builder_fini(struct builder *b)
{
	array_free(&b->sources);
	array_free(&b->segments);
	array_free(&b->members);
	array_free(&b->borders);
	array_free(&b->shares);
	array_free(&b->keys);
	array_free(&b->key_members);
	array_free(&b->scratch);
	array_free(&b->items);
	array_free(&b->weights);
	memory_free(b->slots);
	memory_free(b->share_first);
	memory_free(b->ranks_of);
}

static int build(struct units *units, struct builder *b, struct error *error)
{
	int rc;

	*units = (struct units){0};
	b->list = true;
	rc = walk(b, error);
	if (!rc)
		rc = publish_sets(b, units, error);
	if (!rc) {
		units->items = b->items.items;
		units->count = b->items.count;
		b->items.items = NULL;
	} else {
		units_fini(units);
	}
	builder_fini(b);
	return rc;
}

int units_build(struct units *units, const struct problem *problem, struct error *error)
{
	struct builder b = {.problem = problem};

	return build(units, &b, error);
}

int units_build_cut(struct units *units, const struct problem *problem, struct error *error)
{
	struct builder b = {.problem = problem, .cut = true};

	return build(units, &b, error);
}

int units_weigh(struct units *units, uint64_t **set_bytes, const struct problem *problem,
		struct error *error)
{
	struct builder b = {.problem = problem, .cut = true};
	int rc;

	*units = (struct units){0};
	*set_bytes = NULL;
	rc = walk(&b, error);
	if (!rc)
		rc = publish_sets(&b, units, error);
	if (!rc) {
		*set_bytes = b.weights.items;
		b.weights.items = NULL;
	} else {
		units_fini(units);
	}
	builder_fini(&b);
	return rc;
}

void units_fini(struct units *units)
{
	memory_free(units->items);
	memory_free(units->sets);
	memory_free(units->set_storage);
	*units = (struct units){0};
}
