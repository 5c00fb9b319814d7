/* SPDX-License-Identifier: Apache-2.0
 *
 * order_rounds.c -- the send order `rounds`. Trainers that send to the same inference ranks form
 * a complete bipartite graph with them; the classical edge colouring of that graph says who
 * sends to whom in which round, and each receiver has as few senders in a round as can be:
 *
 *              round 0   round 1   round 2   round 3        trainer number c of a target set of n
 *   number 0   r0        r1        r2        r3             ranks starts its k-th box of the set
 *   number 1   r1        r2        r3        r0             with rank (c + k) mod n of it, and
 *   number 2   r2        r3        r0        r1             sends the box to all n in turn
 *
 * All targets of a box follow each other: it is packed once, and a ring of one box suffices. But a box of more than PORTION
 * targets goes out in portions, each placed as if it were a box: a trainer that turned to all ranks at once would leave those
 * that it sends most to without work. The ring has a box of each such set then.
 *
 * A trainer has boxes of several sets. They advance together: half of its time gone, half of the
 * bytes of each set are sent. So a trainer's bytes in any stretch of time are divided among
 * receivers as all its bytes are, and with them what each receiver is asked to take in. That
 * holds however far trainers drift apart; a schedule that fixes moments does not (docs/routing.md).
 *
 *   set A   a0    a1    a2    a3    a4    a5         a box stands at the fraction of its set's bytes
 *   set B      b0          b1          b2            before it, and a part of its own (an eighth or
 *   order   a0 b0 a1 a2 b1 a3 a4 b2 a5               more, by c and set): equal trainers do not turn
 *                                                    from one set to the next at one moment
 */
#include "routing/plan/order_boxes.h"

#include "base/assert.h"
#include "base/compare.h"
#include "base/memory.h"

#define EIGHTHS 8u
#define PORTION 32u /* targets */

struct place {
	uint64_t at; /* fraction of its set's bytes, of 2^60 */
	uint32_t box, portion;
};

/* A target set as the trainer at hand sees it. */
struct order_set {
	uint32_t stamp;	   /* trainer + 1 that the rest belongs to */
	uint32_t trainers; /* that have met it */
	uint32_t number;   /* of this trainer among them */
	uint32_t shift;	   /* in eighths of a box */
	uint32_t sent;	   /* boxes */
	uint64_t bytes, before;
};

struct rounds {
	const struct order_boxes *boxes;
	struct order_set *sets;
	struct place *places;
};

static int by_place(const void *x, const void *y)
{
	const struct place *a = x, *b = y;

	return compare_u64(a->at, b->at) ?: compare_u64(a->box, b->box) ?:
	       compare_u64(a->portion, b->portion);
}

/* Adds up the trainer's sets, numbering it in each. */
static void meet_sets(struct rounds *rounds, uint32_t trainer)
{
	const struct order_boxes *boxes = rounds->boxes;
	uint32_t met = 0;

	for (uint32_t b = boxes->box_first[trainer]; b < boxes->box_first[trainer + 1]; b++) {
		struct order_set *set = &rounds->sets[boxes->boxes[b].set];

		if (set->stamp != trainer + 1) {
			*set = (struct order_set){.stamp = trainer + 1,
						  .trainers = set->trainers + 1,
						  .number = set->trainers};
			set->shift = (set->number * 5 + met++ * 3 + 1) % EIGHTHS;
		}
		set->bytes += boxes->boxes[b].bytes;
	}
}

static uint32_t targets_of(const struct order_box *box)
{
	return box[1].first - box->first;
}

static uint32_t portions_of(const struct order_box *box)
{
	return (targets_of(box) + PORTION - 1) / PORTION;
}

/* Number `part` of so many nearly equal parts begins there. */
static uint64_t part_at(uint64_t all, uint32_t part, uint32_t parts)
{
	return (uint64_t)((unsigned __int128)all * part / parts);
}

static struct place place_of(const struct order_set *set, uint64_t bytes, uint32_t box,
			     uint32_t portion)
{
	unsigned __int128 eighths =
		(unsigned __int128)set->before * EIGHTHS + (unsigned __int128)bytes * set->shift;

	/* a set's bytes are below 2^62: the product stays below 2^126 */
	return (struct place){
		set->bytes ? (uint64_t)((eighths << 60) / ((unsigned __int128)set->bytes * EIGHTHS))
			   : 0,
		box, portion};
}

static uint32_t place_boxes(struct rounds *rounds, uint32_t trainer)
{
	const struct order_boxes *boxes = rounds->boxes;
	uint32_t count = 0;

	meet_sets(rounds, trainer);
	for (uint32_t b = boxes->box_first[trainer]; b < boxes->box_first[trainer + 1]; b++) {
		const struct order_box *box = &boxes->boxes[b];
		struct order_set *set = &rounds->sets[box->set];
		uint32_t portions = portions_of(box);

		WEFT_ASSERT_OP(set->stamp, ==, trainer + 1);
		WEFT_ASSERT_OP(set->shift, <, EIGHTHS);
		for (uint32_t p = 0; p < portions; p++) {
			uint64_t bytes = part_at(box->bytes, p + 1, portions) -
					 part_at(box->bytes, p, portions);

			rounds->places[count++] = place_of(set, bytes, b, p);
			set->before += bytes;
		}
		WEFT_ASSERT_OP(set->before, <=, set->bytes);
	}
	sort_items(rounds->places, count, by_place);
	return count;
}

static void send_boxes(struct rounds *rounds, uint32_t count, uint32_t *routes)
{
	const struct order_boxes *boxes = rounds->boxes;

	for (uint32_t k = 0; k < count; k++) {
		const struct place *place = &rounds->places[k];
		const struct order_box *box = &boxes->boxes[place->box];
		struct order_set *set = &rounds->sets[box->set];
		uint32_t n = targets_of(box), portions = portions_of(box);
		WEFT_ASSERT_OP(n, >, 0);
		uint32_t start = (set->number + set->sent) % n;
		uint64_t end = part_at(n, place->portion + 1, portions);

		for (uint64_t i = part_at(n, place->portion, portions); i < end; i++)
			*routes++ = boxes->items[box->first + (start + i) % n].route;
		set->sent += place->portion + 1 == portions; /* those of a set do not overtake */
	}
}

/* Of all trainers together. */
static size_t count_places(const struct order_boxes *boxes)
{
	size_t count = 0;

	for (uint32_t b = 0; b < boxes->box_count; b++)
		count += portions_of(&boxes->boxes[b]);
	return count;
}

int order_rounds(const struct table *table, const struct topology *topology,
		 struct send_order *sends, struct error *error)
{
	struct order_boxes boxes = {0};
	struct rounds rounds = {.boxes = &boxes};
	int rc = order_group(table, ROLE_TRAINER, sends, error);

	if (!rc)
		rc = order_boxes_make(&boxes, table, error);
	if (!rc) {
		rounds.sets = pool_array(&boxes.pool, boxes.set_count, sizeof(*rounds.sets));
		size_t places = count_places(&boxes);

		rounds.places = pool_array(&boxes.pool, places, sizeof(*rounds.places));
		if (!pool_ok(&boxes.pool))
			rc = memory_error(error, "ordering sends", places * sizeof(*rounds.places));
	}
	for (uint32_t t = 0; !rc && t < table->problem->trainer_count; t++)
		send_boxes(&rounds, place_boxes(&rounds, t), sends->routes + sends->first[t]);
	order_boxes_fini(&boxes);
	if (rc)
		send_order_fini(sends);
	return rc;
}
