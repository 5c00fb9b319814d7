/* SPDX-License-Identifier: Apache-2.0
 *
 * log_repeat.h -- lines that say the same again and again: some of a second pass, the others are counted and told once.
 *
 *   the same text of the same speaker       LOG_REPEAT_TEXTS a second     every level but debug
 *   the same place in the code, and code    LOG_REPEAT_PLACES a second    of warnings and information alone, so that no failure
 *                                                                         is lost that was not said before
 *
 * Pure but for its hash: the time comes from the caller. Bounded: LOG_REPEAT_SLOTS texts and as many places are known at once; one more
 * takes the slot of the rarest that has nothing to tell, and where there is none it passes uncounted.
 */
#ifndef BASE_LOG_REPEAT_H
#define BASE_LOG_REPEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_REPEAT_TEXTS  10u
#define LOG_REPEAT_PLACES 250u
#define LOG_REPEAT_MS	  1000u
#define LOG_REPEAT_SLOTS  64u
#define LOG_REPEAT_BYTES  160u

/* What was not shown. */
struct log_repeated {
	int level, code;
	uint64_t count, ms;
	char who[32];
	char text[LOG_REPEAT_BYTES]; /* of one of them, with "..." where it is cut */
};

struct log_repeat_line {
	int level, code;
	bool failure;      /* no place counts it */
	const void *place; /* NULL: none that says anything */
	const char *who, *text;
};

struct log_repeat_slot {
	uint64_t key, begin_ms;
	uint32_t passed;
	struct log_repeated held; /* count 0: nothing to tell */
};

struct log_repeats {
	uint32_t waiting; /* slots with something to tell */
	/* apart, so that many texts of one place do not take its own slot */
	struct log_repeat_slot texts[LOG_REPEAT_SLOTS], places[LOG_REPEAT_SLOTS];
};

/* False: it is counted instead. */
bool log_repeat_passes(struct log_repeats *repeats, const struct log_repeat_line *line, uint64_t now_ms);
/* Takes out one that is over, or with `all` any; false: there is none. */
bool log_repeat_take(struct log_repeats *repeats, uint64_t now_ms, bool all, struct log_repeated *told);

#endif
