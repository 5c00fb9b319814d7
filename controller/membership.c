/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/membership.h"

#include "base/assert.h"
#include <stdio.h>
#include <string.h>

#define NAMES_KEPT 64
#define NAME_BYTES 17

int membership_init(struct membership *membership, uint32_t trainers, uint32_t ranks)
{
	*membership = (struct membership){.trainers = trainers, .count = trainers + ranks};
	membership->slots = memory_zalloc(membership->count, sizeof(struct slot));
	if (!membership->slots)
		return -ERROR_MEMORY;
	for (uint32_t i = 0; i < membership->count; i++)
		membership->slots[i].who = i < trainers
						   ? (struct member){ROLE_TRAINER, i}
						   : (struct member){ROLE_INFERENCE, i - trainers};
	membership->in[PRESENCE_ABSENT] = membership->count;
	return 0;
}

static void forget_names(struct membership *membership)
{
	strmap_fini(&membership->by_incarnation);
	pool_free(&membership->names);
	membership->name_count = 0;
}

void membership_fini(struct membership *membership)
{
	for (size_t i = 0; i < membership->bodies.all.count; i++)
		bodies_stop_asking(&membership->bodies, membership->bodies.all.items[i]);
	for (uint32_t i = 0; membership->slots && i < membership->count; i++) {
		membership_clear(membership, &membership->slots[i]);
		memory_free(membership->slots[i].refused);
	}
	memory_free(membership->slots);
	bodies_fini(&membership->bodies);
	forget_names(membership);
}

uint32_t membership_world(const struct membership *membership, enum role role)
{
	return role == ROLE_TRAINER ? membership->trainers
				    : membership->count - membership->trainers;
}

struct slot *membership_slot(const struct membership *membership, enum role role, uint32_t rank)
{
	WEFT_ASSERT_OP((unsigned)role, <, ROLE_COUNT);
	if (rank >= membership_world(membership, role))
		return NULL;
	return &membership->slots[role == ROLE_TRAINER ? rank : membership->trainers + rank];
}

static void enter(struct membership *membership, struct slot *slot, enum presence presence)
{
	WEFT_ASSERT_OP(membership->in[slot->presence], >, 0);
	membership->in[slot->presence]--;
	membership->in[presence]++;
	slot->presence = presence;
}

static char *name_of(uint64_t incarnation, char out[NAME_BYTES])
{
	snprintf(out, NAME_BYTES, "%016llx", (unsigned long long)incarnation);
	return out;
}

/* By incarnation and not by connection: a connection may be made anew, with another id. */
struct slot *membership_find(const struct membership *membership, uint64_t incarnation)
{
	char name[NAME_BYTES];
	struct slot *slot;
	uint32_t index;

	if (!strmap_get(&membership->by_incarnation, name_of(incarnation, name), &index))
		return NULL;
	WEFT_ASSERT_OP(index, <, membership->count);
	slot = &membership->slots[index];
	/* an earlier holder of the rank is still in the map */
	return slot->worker && slot->worker->hello.incarnation == incarnation ? slot : NULL;
}

struct slot *membership_at(const struct membership *membership, const char *peer)
{
	for (uint32_t i = 0; i < membership->count; i++)
		if (slot_present(&membership->slots[i]) &&
		    strcmp(membership->slots[i].peer, peer) == 0)
			return &membership->slots[i];
	return NULL;
}

static int remember(struct membership *membership, uint64_t incarnation, uint32_t index)
{
	char name[NAME_BYTES];
	const char *kept = pool_string(&membership->names, name_of(incarnation, name));

	WEFT_ASSERT_OP(index, <, membership->count);
	membership->name_count++;
	return kept && strmap_put(&membership->by_incarnation, kept, index) ? 0 : -ERROR_MEMORY;
}

/* Whoever joins again and again leaves a name each time: those who are gone are forgotten
 * before they outnumber those who are here. */
static int forget_former_names(struct membership *membership)
{
	int rc = 0;

	if (membership->name_count < NAMES_KEPT + 2 * (size_t)membership->count)
		return 0;
	forget_names(membership);
	for (uint32_t i = 0; !rc && i < membership->count; i++)
		if (membership->slots[i].worker)
			rc = remember(membership, membership->slots[i].worker->hello.incarnation,
				      i);
	return rc;
}

int membership_join(struct membership *membership, struct slot *slot, const char *peer,
		    struct message_hello *hello, uint64_t now_ms)
{
	WEFT_ASSERT_OP(slot->presence, ==, PRESENCE_ABSENT);
	WEFT_ASSERT_OP(slot->who.role, ==, hello->role);
	WEFT_ASSERT_OP(slot->who.rank, ==, hello->rank);
	if (forget_former_names(membership) ||
	    remember(membership, hello->incarnation, (uint32_t)(slot - membership->slots)))
		return -ERROR_MEMORY;
	slot->worker = worker_new(hello);
	if (!slot->worker)
		return -ERROR_MEMORY;
	if (slot->worker->hello.attempt)
		slot->ran = RAN_NONE; /* it does */
	membership_heard(slot, peer, now_ms);
	enter(membership, slot, PRESENCE_JOINED);
	WEFT_ASSERT(membership_find(membership, slot->worker->hello.incarnation) == slot);
	return 0;
}

void membership_declare(struct membership *membership, struct slot *slot,
			struct message_declare *declare, struct body *body)
{
	WEFT_ASSERT_OP(slot->presence, ==, PRESENCE_JOINED);
	WEFT_ASSERT(body->known || body->asked);
	worker_declares(slot->worker, declare, body);
	memory_free(slot->refused);
	slot->refused = NULL;
	enter(membership, slot, PRESENCE_DECLARED);
}

void membership_heard(struct slot *slot, const char *peer, uint64_t now_ms)
{
	WEFT_ASSERT(slot->worker);
	WEFT_ASSERT_OP(strlen(peer), <, PEER_BYTES);
	slot->heard_ms = now_ms;
	slot->unreadable = 0;
	snprintf(slot->peer, sizeof(slot->peer), "%s", peer);
}

void membership_gone(struct membership *membership, struct slot *slot, enum presence presence)
{
	WEFT_ASSERT(presence == PRESENCE_LEFT || presence == PRESENCE_LOST);
	WEFT_ASSERT(slot->worker);
	WEFT_ASSERT_OP(slot->presence, !=, PRESENCE_LEFT);
	enter(membership, slot, presence);
}

void membership_clear(struct membership *membership, struct slot *slot)
{
	enum ran ran = slot->worker && slot->worker->hello.attempt ? RAN_LOST : slot->ran;

	worker_release(&slot->worker);
	enter(membership, slot, PRESENCE_ABSENT);
	*slot = (struct slot){.who = slot->who, .refused = slot->refused, .ran = ran};
}

bool slot_present(const struct slot *slot)
{
	return slot->presence != PRESENCE_ABSENT && slot->presence != PRESENCE_LEFT;
}

bool slot_serves(const struct slot *slot)
{
	return slot_present(slot) && slot->presence != PRESENCE_LOST;
}

char *slot_text(const struct slot *slot, char out[WORKER_TEXT_BYTES])
{
	WEFT_ASSERT(slot->worker);
	return worker_text(slot->worker, out);
}

bool slot_claim_open(const struct slot *slot, uint32_t heartbeat_ms)
{
	return slot->claim && slot->heard_ms < slot->claim_ms + heartbeat_ms;
}

bool membership_claimed(const struct membership *membership, uint32_t heartbeat_ms)
{
	for (uint32_t i = 0; i < membership->count; i++)
		if (slot_claim_open(&membership->slots[i], heartbeat_ms))
			return true;
	return false;
}

struct slot *membership_most_silent(const struct membership *membership, const struct slot *but,
				    uint64_t now_ms, uint64_t least_ms)
{
	struct slot *found = NULL;

	for (uint32_t i = 0; i < membership->count; i++) {
		struct slot *slot = &membership->slots[i];

		if (slot == but || !slot_serves(slot) || now_ms < slot->heard_ms + least_ms ||
		    (found && found->heard_ms <= slot->heard_ms))
			continue;
		found = slot;
	}
	return found;
}

void membership_versions(const struct membership *membership, struct text *text)
{
	static const char *const words[ROLE_COUNT] = {"trainers", "inference ranks"};

	for (int role = 0; role < ROLE_COUNT; role++) {
		uint64_t low = UINT64_MAX, high = 0;

		for (uint32_t i = 0; i < membership->count; i++) {
			const struct slot *slot = &membership->slots[i];

			if ((int)slot->who.role != role || slot->presence == PRESENCE_ABSENT)
				continue;
			low = slot->version < low ? slot->version : low;
			high = slot->version > high ? slot->version : high;
		}
		low = low < high ? low : high; /* of nobody: 0 */
		text_format(text, "%s%s at version %llu", role ? ", " : "", words[role],
			    (unsigned long long)low);
		if (high > low)
			text_format(text, "..%llu", (unsigned long long)high);
	}
}

static void check_slot(const struct slot *slot, uint64_t now_ms)
{
	const struct worker *worker = slot->worker;

	WEFT_ASSERT_OP(!worker, ==, slot->presence == PRESENCE_ABSENT);
	WEFT_ASSERT_OP(slot->heard_ms, <=, now_ms);
	WEFT_ASSERT_OP(slot->claim_ms, <=, now_ms);
	if (!worker) {
		WEFT_ASSERT(!slot->claim && !slot->peer[0]);
		return;
	}
	WEFT_ASSERT_OP(worker->who.role, ==, slot->who.role);
	WEFT_ASSERT_OP(worker->who.rank, ==, slot->who.rank);
	WEFT_ASSERT_OP(slot->claim, !=, worker->hello.incarnation);
	WEFT_ASSERT(slot->presence != PRESENCE_JOINED || !worker->body);
	WEFT_ASSERT(slot->presence != PRESENCE_DECLARED || worker->body);
}

void membership_check(const struct membership *membership, uint64_t now_ms)
{
	uint32_t in[PRESENCE_COUNT] = {0};
	size_t asked = 0;

	if (!WEFT_ASSERTS)
		return;
	for (uint32_t i = 0; i < membership->count; i++) {
		in[membership->slots[i].presence]++;
		check_slot(&membership->slots[i], now_ms);
	}
	for (int p = 0; p < PRESENCE_COUNT; p++)
		WEFT_ASSERT_OP(in[p], ==, membership->in[p]);
	for (size_t i = 0; i < membership->bodies.all.count; i++) {
		const struct body *body = membership->bodies.all.items[i];

		asked += body->asked != NULL;
		WEFT_ASSERT(!body->asked || (!body->known && body->asked->body == body));
	}
	WEFT_ASSERT_OP(asked, ==, membership->bodies.missing);
}
