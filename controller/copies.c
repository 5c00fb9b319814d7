/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.c -- who lacks the version that trainers ended last is sent it by ranks of other engines that show it, where trainers
 * have nothing new yet: in a pause that they made by weft_update_repeat or weft_update_admit. What they hold is not read.
 */
#include "controller/state.h"

static bool shows(const struct controller *controller, uint32_t party, uint64_t version)
{
	const struct paused *paused = &controller->pause.slots[party];

	return exchange_has(controller, &controller->members.slots[party]) && !paused->fresh &&
	       paused->version == version && paused->repeats;
}

/* The rank that sends to the fewest others so far, the first of them; the count of parties: none can. */
static uint32_t find_donor(const struct controller *controller, const uint32_t *sends, uint32_t to,
			   uint64_t version)
{
	const struct membership *members = &controller->members;
	uint32_t best = members->count;

	for (uint32_t i = members->trainers; i < members->count; i++)
		if (shows(controller, i, version) && epoch_can_copy(controller->epoch, i, to) &&
		    (best == members->count || sends[i] < sends[best]))
			best = i;
	return best;
}

/* Each that lacks it, from whom: false, not all of them find one, or nobody lacks it. */
static bool match(const struct controller *controller, uint32_t *donors, uint64_t version)
{
	const struct membership *members = &controller->members;
	uint32_t *sends = memory_zalloc(members->count, sizeof(*sends));
	bool any = false, all = sends;

	for (uint32_t i = members->trainers; all && i < members->count; i++) {
		donors[i] = members->count;
		if (!exchange_has(controller, &members->slots[i]) ||
		    !returns_lacks_last(controller, &members->slots[i]))
			continue;
		donors[i] = find_donor(controller, sends, i, version);
		all = donors[i] < members->count;
		any = true;
		if (all)
			sends[donors[i]]++;
	}
	memory_free(sends);
	return any && all;
}

/* All trainers who were here when the pause began, and one was. */
static bool nothing_is_new(const struct controller *controller)
{
	bool any = false;

	for (uint32_t t = 0; t < controller->members.trainers; t++) {
		const struct paused *paused = &controller->pause.slots[t];

		if (!exchange_has(controller, &controller->members.slots[t]) || paused->fresh)
			continue;
		if (!paused->between)
			return false;
		any = true;
	}
	return any;
}

void copies_choose(struct controller *controller)
{
	const struct membership *members = &controller->members;
	uint64_t version = controller->pause.next ? controller->pause.next - 1 : 0;
	uint32_t *donors;

	controller->pause.copy = 0;
	if (!version || controller->catch_up_trainers || !nothing_is_new(controller))
		return;
	donors = memory_zalloc(members->count, sizeof(*donors));
	if (donors && match(controller, donors, version))
		controller->pause.copy = version;
	for (uint32_t i = members->trainers; controller->pause.copy && i < members->count; i++)
		if (donors[i] < members->count && epoch_copy(controller->epoch, donors[i], i))
			no_memory(controller);
	if (!donors)
		no_memory(controller);
	memory_free(donors);
}
