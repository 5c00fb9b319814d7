/* SPDX-License-Identifier: Apache-2.0
 *
 * order_rounds.c -- the send order `rounds`: a list schedule of all trainers together, so that
 * senders meet receivers as in the rounds of an edge colouring, each receiver with few senders.
 *
 *   virtual time ─────────────────────────────►
 *   trainer 0   │ r0 ████ │ r1 ████ │ r2 ████ │      a trainer sends one route at a time, and
 *   trainer 1   │ r1 ████ │ r2 ████ │ r0 ████ │      starts the next when the last ends; a
 *   trainer 2   │ r2 ████ │ r0 ████ │ r1 ████ │      receiver drains what comes in turn
 *
 * Whenever a trainer is free it takes, among the targets of its open boxes (order_boxes.h), the
 * one with the fewest senders now; then the one with the most still to come from all trainers, as
 * time at its rate; then the next rank, in turn, from the one it sent to last (at first from its
 * own). That target gets the oldest open box that it wants. Trainers that are free at the same
 * moment choose one after the other, the one with the most to send first.
 *
 * A trainer opens its boxes in table order, and the next one only while every target of the open
 * ones has ORDER_CREDIT senders: so the targets of a box stay close together. Packed boxes are
 * bounded too: from the oldest that still has targets to the newest they are no more than
 * ORDER_WINDOW_BYTES and ORDER_WINDOW_BOXES, unless it is one alone. All in between count, those
 * that are done too, because a worker's ring gives its slots back in order of age. While a box is
 * open nothing is packed but boxes of the window before it and of the window after it: a ring of
 * two windows packs each box once.
 *
 * So, at every moment of virtual time: no trainer waits; and one starts a route to a receiver
 * that has ORDER_CREDIT senders only when all targets of its open boxes have as many and no
 * further box may be opened.
 *
 * Each route is chosen once and each trainer goes through the heap once a route; a choice looks
 * at the targets of open boxes, SCAN_MAX of them and on to the first with room. Time is whole
 * picoseconds, so that the order is the same on every machine.
 */
#include "routing/order_rounds.h"

#include "common/memory.h"
#include "routing/order_boxes.h"
#include <stdlib.h>

#define SCAN_MAX 256
#define NOTHING	 UINT32_MAX

struct sender {
	uint64_t rate, left; /* left: time of what it has not started */
	uint64_t free_at;
	size_t sent;	       /* where its next route goes in send_order.routes */
	uint32_t inference;    /* being sent to */
	uint32_t turn;	       /* the rank that comes next when all else is equal */
	uint32_t box, box_end; /* next to open; behind its last */
	uint32_t tail;	       /* no packed box before it has targets left */
	uint32_t *active;      /* lanes whose next box is open */
	uint32_t active_count;
};

struct receiver {
	uint64_t rate, left; /* left: time of what no trainer has started */
	uint64_t drained_at;
	uint32_t senders; /* now */
};

struct schedule {
	const struct table *table;
	struct order_boxes boxes;
	struct sender *senders;
	struct receiver *receivers;
	uint32_t *active; /* lane_count, by trainer */
	uint32_t *heap;	  /* trainers under way, the soonest free first */
	struct ready {
		uint64_t left;
		uint32_t trainer;
	} * ready;
	uint32_t heap_count, ready_count;
	uint64_t now, ticks_most;
};

/* ---- rates and times ---- */

uint64_t order_ticks(uint64_t bytes, uint64_t bytes_per_second, uint64_t most)
{
	const uint64_t second = UINT64_C(1000000000000);
	unsigned __int128 ticks;

	if (bytes < UINT64_MAX / 2 / second) /* no wide division for what is small */
		ticks = (bytes * second + bytes_per_second - 1) / bytes_per_second;
	else
		ticks = ((unsigned __int128)bytes * second + bytes_per_second - 1) /
			bytes_per_second;
	return ticks < most ? (uint64_t)ticks : most;
}

/* What a rank gets of its NICs when all ranks of its role that use them do. */
static uint64_t shared_rate(const struct topology *topology, const struct topology_rank *rank,
			    const uint32_t *users)
{
	uint64_t rate = 0;

	for (uint32_t k = 0; k < rank->used_count; k++) {
		uint32_t nic = topology->links[rank->link_first + k].nic;

		rate += topology->nics[nic].bytes_per_second / users[nic];
	}
	return rate ? rate : 1;
}

static void count_users(const struct topology *topology, enum role role, uint32_t *users)
{
	for (uint32_t n = 0; n < topology->nic_count; n++)
		users[n] = 0;
	for (uint32_t r = 0; r < topology->rank_count[role]; r++) {
		const struct topology_rank *rank = &topology->ranks[role][r];

		for (uint32_t k = 0; k < rank->used_count; k++)
			users[topology->links[rank->link_first + k].nic]++;
	}
}

static int set_rates(struct schedule *schedule, const struct topology *topology,
		     struct error *error)
{
	const struct problem *problem = schedule->table->problem;
	uint32_t *users = memory_alloc(topology->nic_count * sizeof(*users));

	if (!users)
		return memory_error(error, "ordering sends", topology->nic_count * sizeof(*users));
	count_users(topology, ROLE_TRAINER, users);
	for (uint32_t t = 0; t < problem->trainer_count; t++)
		schedule->senders[t].rate =
			shared_rate(topology, &topology->ranks[ROLE_TRAINER][t], users);
	count_users(topology, ROLE_INFERENCE, users);
	for (uint32_t i = 0; i < problem->inference_count; i++)
		schedule->receivers[i].rate =
			shared_rate(topology, &topology->ranks[ROLE_INFERENCE][i], users);
	memory_free(users);
	return 0;
}

/* ---- heap of trainers under way ---- */

static bool sooner(const struct schedule *schedule, uint32_t a, uint32_t b)
{
	uint64_t x = schedule->senders[a].free_at, y = schedule->senders[b].free_at;

	return x != y ? x < y : a < b;
}

static void heap_push(struct schedule *schedule, uint32_t trainer)
{
	uint32_t *heap = schedule->heap, at = schedule->heap_count++;

	for (; at && sooner(schedule, trainer, heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = trainer;
}

static uint32_t heap_pop(struct schedule *schedule)
{
	uint32_t *heap = schedule->heap, top = heap[0], count = --schedule->heap_count;
	uint32_t last = heap[count], at = 0, child;

	for (; (child = 2 * at + 1) < count; at = child) {
		child += child + 1 < count && sooner(schedule, heap[child + 1], heap[child]);
		if (!sooner(schedule, heap[child], last))
			break;
		heap[at] = heap[child];
	}
	heap[at] = last;
	return top;
}

/* ---- boxes ---- */

static bool may_open(struct schedule *schedule, struct sender *sender)
{
	const struct order_box *boxes = schedule->boxes.boxes, *box = &boxes[sender->box];

	if (sender->box == sender->box_end)
		return false;
	if (!box->packed)
		return true;
	while (sender->tail < sender->box &&
	       (!boxes[sender->tail].left || !boxes[sender->tail].packed))
		sender->tail++;
	return sender->tail == sender->box ||
	       (box[1].bytes_before - boxes[sender->tail].bytes_before <= ORDER_WINDOW_BYTES &&
		box[1].boxes_before - boxes[sender->tail].boxes_before <= ORDER_WINDOW_BOXES);
}

/* Its lanes that had nothing to take have something now. */
static void open_box(struct schedule *schedule, struct sender *sender)
{
	struct order_boxes *boxes = &schedule->boxes;
	const struct order_box *box = &boxes->boxes[sender->box++];

	for (uint32_t i = box[0].first; i < box[1].first; i++) {
		struct order_lane *lane = &boxes->lanes[boxes->items[i].lane];

		if (lane->active)
			continue;
		lane->active = true;
		sender->active[sender->active_count++] = boxes->items[i].lane;
	}
}

/* ---- the choice ---- */

static const struct receiver *receiver_of(const struct schedule *schedule, uint32_t lane)
{
	return &schedule->receivers[schedule->boxes.lanes[lane].inference];
}

static bool better(const struct receiver *a, const struct receiver *b, const struct receiver *turn)
{
	if (a->senders != b->senders)
		return a->senders < b->senders;
	if (a->left != b->left)
		return a->left > b->left;
	/* one array, by rank */
	return (a >= turn) != (b >= turn) ? a >= turn : a < b;
}

/* The best of the sender's active lanes from `from` on and `best` (places in sender->active). */
static uint32_t scan(const struct schedule *schedule, const struct sender *sender, uint32_t from,
		     uint32_t best)
{
	const struct receiver *least =
		best == NOTHING ? NULL : receiver_of(schedule, sender->active[best]);

	for (uint32_t k = from; k < sender->active_count; k++) {
		const struct receiver *receiver;

		if (k >= SCAN_MAX && least && least->senders < ORDER_CREDIT)
			break;
		receiver = receiver_of(schedule, sender->active[k]);
		if (!least || better(receiver, least, &schedule->receivers[sender->turn])) {
			least = receiver;
			best = k;
		}
	}
	return best;
}

static uint32_t choose(struct schedule *schedule, struct sender *sender)
{
	uint32_t best = scan(schedule, sender, 0, NOTHING);

	while ((best == NOTHING ||
		receiver_of(schedule, sender->active[best])->senders >= ORDER_CREDIT) &&
	       may_open(schedule, sender)) {
		uint32_t from = sender->active_count;

		open_box(schedule, sender);
		best = scan(schedule, sender, from, best);
	}
	return best;
}

/* Takes the next route of an active lane. */
static const struct order_item *take(struct schedule *schedule, struct sender *sender,
				     uint32_t place, struct send_order *sends)
{
	struct order_boxes *boxes = &schedule->boxes;
	struct order_lane *lane = &boxes->lanes[sender->active[place]];
	const struct order_item *item = &boxes->items[lane->next];

	boxes->boxes[item->box].left--;
	lane->next = item->next;
	if (item->next_box >= sender->box) { /* not open, or none */
		lane->active = false;
		sender->active[place] = sender->active[--sender->active_count];
	}
	sends->routes[sender->sent++] = item->route;
	return item;
}

static void start(struct schedule *schedule, uint32_t trainer, struct send_order *sends)
{
	struct sender *sender = &schedule->senders[trainer];
	const struct order_item *item = take(schedule, sender, choose(schedule, sender), sends);
	uint32_t inference = schedule->boxes.lanes[item->lane].inference;
	struct receiver *receiver = &schedule->receivers[inference];
	uint64_t sending = order_ticks(item->bytes, sender->rate, schedule->ticks_most);
	uint64_t draining = order_ticks(item->bytes, receiver->rate, schedule->ticks_most);

	if (receiver->drained_at < schedule->now)
		receiver->drained_at = schedule->now;
	receiver->drained_at += draining;
	receiver->left -= draining;
	receiver->senders++;
	sender->left -= sending;
	sender->inference = inference;
	sender->turn = (inference + 1) % schedule->table->problem->inference_count;
	sender->free_at = schedule->now + sending;
	if (sender->free_at < receiver->drained_at)
		sender->free_at = receiver->drained_at;
	heap_push(schedule, trainer);
}

/* ---- the schedule ---- */

static int by_left(const void *x, const void *y)
{
	const struct ready *a = x, *b = y;

	if (a->left != b->left)
		return a->left > b->left ? -1 : 1;
	return a->trainer < b->trainer ? -1 : a->trainer > b->trainer;
}

static void make_ready(struct schedule *schedule, uint32_t trainer, const struct send_order *sends)
{
	const struct sender *sender = &schedule->senders[trainer];

	if (sender->sent < sends->first[trainer + 1])
		schedule->ready[schedule->ready_count++] = (struct ready){sender->left, trainer};
}

/* All that ends at one moment ends before anything starts. */
static void end_next(struct schedule *schedule, const struct send_order *sends)
{
	schedule->now = schedule->senders[schedule->heap[0]].free_at;
	while (schedule->heap_count &&
	       schedule->senders[schedule->heap[0]].free_at == schedule->now) {
		uint32_t trainer = heap_pop(schedule);

		schedule->receivers[schedule->senders[trainer].inference].senders--;
		make_ready(schedule, trainer, sends);
	}
}

static void run(struct schedule *schedule, struct send_order *sends)
{
	for (uint32_t t = 0; t < schedule->table->problem->trainer_count; t++)
		make_ready(schedule, t, sends);
	for (;;) {
		if (schedule->ready_count > 1)
			qsort(schedule->ready, schedule->ready_count, sizeof(*schedule->ready),
			      by_left);
		for (uint32_t i = 0; i < schedule->ready_count; i++)
			start(schedule, schedule->ready[i].trainer, sends);
		schedule->ready_count = 0;
		if (!schedule->heap_count)
			return;
		end_next(schedule, sends);
	}
}

static void prepare(struct schedule *schedule, const struct send_order *sends)
{
	const struct table *table = schedule->table;
	struct order_boxes *boxes = &schedule->boxes;

	/* so that no sum of times overflows; only ranks that are hopelessly slow meet it */
	schedule->ticks_most = UINT64_MAX / 4 / (table->route_count + 1);
	for (uint32_t t = 0; t < table->problem->trainer_count; t++) {
		struct sender *sender = &schedule->senders[t];

		sender->box = sender->tail = boxes->box_first[t];
		sender->box_end = boxes->box_first[t + 1];
		sender->active = schedule->active + boxes->lane_first[t];
		sender->sent = sends->first[t];
		sender->turn = t % table->problem->inference_count;
	}
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		struct sender *sender = &schedule->senders[route->trainer];
		struct receiver *receiver = &schedule->receivers[route->inference];

		sender->left += order_ticks(route->bytes, sender->rate, schedule->ticks_most);
		receiver->left += order_ticks(route->bytes, receiver->rate, schedule->ticks_most);
	}
}

static int schedule_open(struct schedule *schedule, const struct table *table,
			 const struct topology *topology, struct error *error)
{
	uint32_t trainers = table->problem->trainer_count;
	int rc = order_boxes_make(&schedule->boxes, table, error);

	if (rc)
		return rc;
	schedule->table = table;
	schedule->senders = memory_zalloc(trainers, sizeof(*schedule->senders));
	schedule->receivers =
		memory_zalloc(table->problem->inference_count, sizeof(*schedule->receivers));
	schedule->active = memory_alloc(schedule->boxes.lane_count * sizeof(*schedule->active));
	schedule->heap = memory_alloc(trainers * sizeof(*schedule->heap));
	schedule->ready = memory_alloc(trainers * sizeof(*schedule->ready));
	if (!schedule->senders || !schedule->receivers || !schedule->active || !schedule->heap ||
	    !schedule->ready)
		return memory_error(error, "ordering sends", trainers * sizeof(*schedule->senders));
	return set_rates(schedule, topology, error);
}

static void schedule_close(struct schedule *schedule)
{
	order_boxes_fini(&schedule->boxes);
	memory_free(schedule->senders);
	memory_free(schedule->receivers);
	memory_free(schedule->active);
	memory_free(schedule->heap);
	memory_free(schedule->ready);
}

int order_rounds(const struct table *table, const struct topology *topology,
		 struct send_order *sends, struct error *error)
{
	struct schedule schedule = {0};
	int rc = order_group(table, sends, error);

	if (rc)
		return rc;
	rc = schedule_open(&schedule, table, topology, error);
	if (!rc) {
		prepare(&schedule, sends);
		run(&schedule, sends);
	}
	schedule_close(&schedule);
	if (rc)
		send_order_fini(sends);
	return rc;
}
