/* SPDX-License-Identifier: Apache-2.0
 *
 * sent.h -- who sent what in another plan: tensors are found by their names, and what is sent of them by inference rank and rows.
 * Tensors, layouts and holdings may be other ones.
 */
#ifndef ROUTING_PLAN_SENT_H
#define ROUTING_PLAN_SENT_H

#include "routing/plan/table.h"

#define SENT_BY_NOBODY UINT32_MAX

struct sent;

/* Both are borrowed: `before`, and the problem of the plan that follows it. */
int sent_new(struct sent **sent, const struct table *before, const struct problem *problem, struct error *error);
void sent_free(struct sent **sent);
/* By the route that begins where the unit does, or the last one before. */
uint32_t sent_unit(const struct sent *sent, const struct units *units, const struct unit *unit);
/* A rank that was sent that row of the tensor: the first of that one's kind (by inference rank), or of any; SENT_BY_NOBODY: none. */
uint32_t sent_rank(const struct sent *sent, uint32_t tensor, uint64_t row, const uint32_t *kind, uint32_t like);
/* Who of these, NULL: of all, sent it that row of the tensor, and all further ones up to *until. */
uint32_t sent_row(const struct sent *sent, uint32_t tensor, uint32_t inference, uint64_t row, const struct holder_set *by,
		  uint64_t *until);
/* Of a plan that follows it: what another trainer sends, of what was sent. trainer: by unit. Units are sent whole by one trainer, before
 * and now; or, with `cut`, each row by its own; but of cells whole ones are looked at. */
void sent_moved(const struct sent *sent, const struct units *units, const uint32_t *trainer, bool cut, struct table_moved *moved);

#endif
