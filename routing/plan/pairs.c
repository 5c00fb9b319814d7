/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/pairs.h"

#include "base/memory.h"
#include <string.h>

bool pairs_init(struct pairs *pairs, struct pool *pool, const struct transports *list,
		uint32_t trainers, uint32_t inference)
{
	*pairs = (struct pairs){
		.list = *list,
		.count = {[ROLE_TRAINER] = trainers, [ROLE_INFERENCE] = inference},
	};
	for (int role = 0; role < ROLE_COUNT; role++)
		pairs->sides[role] = pool_array(pool, (size_t)pairs->count[role] * list->count,
						sizeof(struct pair_side));
	return pool_ok(pool);
}

bool pairs_copy(struct pairs *pairs, struct pool *pool, const struct pairs *from)
{
	if (!pairs_init(pairs, pool, &from->list, from->count[ROLE_TRAINER],
			from->count[ROLE_INFERENCE]))
		return false;
	for (int role = 0; role < ROLE_COUNT; role++)
		memcpy(pairs->sides[role], from->sides[role],
		       (size_t)from->count[role] * from->list.count * sizeof(struct pair_side));
	return true;
}

struct pair_side *pairs_side(const struct pairs *pairs, enum role role, uint32_t rank,
			     uint32_t transport)
{
	return &pairs->sides[role][(size_t)rank * pairs->list.count + transport];
}

uint32_t pairs_transport(const struct pairs *pairs, uint32_t trainer, uint32_t inference)
{
	const struct pair_side *a = pairs_side(pairs, ROLE_TRAINER, trainer, 0);
	const struct pair_side *b = pairs_side(pairs, ROLE_INFERENCE, inference, 0);
	uint32_t count = pairs->list.count, found = count;

	for (uint32_t i = 0; i < count; i++) {
		if (!a[i].reach || a[i].reach != b[i].reach)
			continue;
		if (!b[i].landed)
			return i;
		found = found < count ? found : i;
	}
	return found;
}

const char *pairs_name(const struct pairs *pairs, uint32_t trainer, uint32_t inference)
{
	uint32_t i = pairs_transport(pairs, trainer, inference);

	return i < pairs->list.count ? pairs->list.names[i] : "none";
}

/* What a number becomes, by number as it was given. */
static void number_one(struct pairs *pairs, uint32_t transport, uint32_t *number)
{
	uint32_t used = 0;

	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t rank = 0; rank < pairs->count[role]; rank++) {
			uint32_t *reach =
				&pairs_side(pairs, (enum role)role, rank, transport)->reach;

			if (*reach && !number[*reach])
				number[*reach] = ++used;
			*reach = *reach ? number[*reach] : 0;
		}
}

bool pairs_number(struct pairs *pairs)
{
	size_t most = 1;
	uint32_t *number;

	for (int role = 0; role < ROLE_COUNT; role++)
		for (size_t i = 0; i < (size_t)pairs->count[role] * pairs->list.count; i++)
			if (pairs->sides[role][i].reach >= most)
				most = (size_t)pairs->sides[role][i].reach + 1;
	number = memory_alloc(most * sizeof(*number));
	if (!number)
		return false;
	for (uint32_t t = 0; t < pairs->list.count; t++) {
		memset(number, 0, most * sizeof(*number));
		number_one(pairs, t, number);
	}
	memory_free(number);
	return true;
}
