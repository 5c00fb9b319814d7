/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_repeat.h"

#include "base/hash.h"
#include "base/plain.h"
#include <stdio.h>
#include <string.h>

#define PROBES 4u

static bool is_over(const struct log_repeat_slot *slot, uint64_t now_ms)
{
	return now_ms - slot->begin_ms >= LOG_REPEAT_MS;
}

/* Where that key is, or may be: in place of what is over, or else was rarest; never of what somebody has to be told. */
static struct log_repeat_slot *slot_of(struct log_repeat_slot *slots, uint64_t key, uint64_t now_ms)
{
	struct log_repeat_slot *found = NULL;
	uint32_t least = 0;

	for (uint64_t i = 0; i < PROBES; i++) {
		struct log_repeat_slot *slot = &slots[(key + i) % LOG_REPEAT_SLOTS];
		uint32_t passed = is_over(slot, now_ms) ? 0 : slot->passed;

		if (slot->key == key)
			return slot;
		if (!slot->held.count && (!found || passed < least)) {
			found = slot;
			least = passed;
		}
	}
	return found;
}

static bool passes(struct log_repeats *repeats, struct log_repeat_slot *slots, uint64_t key,
		   uint32_t most, const struct log_repeat_line *line, uint64_t now_ms)
{
	struct log_repeat_slot *slot = slot_of(slots, key, now_ms);
	struct log_repeated *held;

	if (!slot)
		return true;
	held = &slot->held;
	/* what is over was taken out before, so there is nothing in it */
	if (slot->key != key || (is_over(slot, now_ms) && !held->count))
		*slot = (struct log_repeat_slot){.key = key, .begin_ms = now_ms};
	if (slot->passed < most) {
		slot->passed++;
		return true;
	}
	if (!held->count++) {
		repeats->waiting++;
		held->level = line->level;
		held->code = line->code;
		snprintf(held->who, sizeof(held->who), "%s", line->who);
		plain_put(held->text, sizeof(held->text), line->text);
	}
	held->ms = now_ms - slot->begin_ms;
	return false;
}

static uint64_t key_of(const void *head, size_t head_bytes, const char *who, const char *text)
{
	uint64_t parts[3] = {hash_keyed(head, head_bytes), hash_keyed(who, strlen(who)),
			     text ? hash_keyed(text, strlen(text)) : 0};
	uint64_t key = hash_keyed(parts, sizeof(parts));

	return key ? key : 1; /* 0 is an empty slot */
}

bool log_repeat_passes(struct log_repeats *repeats, const struct log_repeat_line *line,
		       uint64_t now_ms)
{
	const uint64_t place[2] = {(uint64_t)(uintptr_t)line->place, (uint64_t)line->code};

	if (!passes(repeats, repeats->texts,
		    key_of(&line->level, sizeof(line->level), line->who, line->text),
		    LOG_REPEAT_TEXTS, line, now_ms))
		return false;
	if (line->failure || !line->place)
		return true;
	return passes(repeats, repeats->places, key_of(place, sizeof(place), line->who, NULL),
		      LOG_REPEAT_PLACES, line, now_ms);
}

bool log_repeat_take(struct log_repeats *repeats, uint64_t now_ms, bool all,
		     struct log_repeated *told)
{
	for (uint32_t i = 0; i < 2 * LOG_REPEAT_SLOTS && repeats->waiting; i++) {
		struct log_repeat_slot *slot = i < LOG_REPEAT_SLOTS
						       ? &repeats->texts[i]
						       : &repeats->places[i - LOG_REPEAT_SLOTS];

		if (!slot->held.count || (!all && !is_over(slot, now_ms)))
			continue;
		*told = slot->held;
		*slot = (struct log_repeat_slot){0};
		repeats->waiting--;
		return true;
	}
	return false;
}
