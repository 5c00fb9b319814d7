/* SPDX-License-Identifier: Apache-2.0
 *
 * messages_draw.h -- what random messages are made of, for the files that make them.
 */
#ifndef TESTS_SUPPORT_MESSAGES_DRAW_H
#define TESTS_SUPPORT_MESSAGES_DRAW_H

#include "tests/support/messages.h"

uint64_t draw_number(uint64_t *state);
uint32_t draw_number32(uint64_t *state);
bool draw_coin(uint64_t *state);
char *draw_text(uint64_t *state);
void *draw_list(size_t *count, size_t size, uint64_t *state);
struct member draw_member(uint64_t *state);

/* messages_status.c */
void messages_random_activity(struct message_activity *activity, uint64_t *state);
void messages_random_report(struct message_report *report, uint64_t *state);

#endif
