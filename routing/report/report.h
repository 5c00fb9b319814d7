/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h -- all that a dump's "summary" says: the table's figures, the same for round-robin,
 * and by name what is held but not wanted, and what is wanted but has no source by design.
 */
#ifndef ROUTING_REPORT_REPORT_H
#define ROUTING_REPORT_REPORT_H

#include "routing/report/certificate.h"
#include "routing/report/summary.h"

struct names {
	char **items; /* owned */
	size_t count, capacity;
};

struct report {
	struct summary own, round_robin;
	struct names unwanted; /* tensors, in checkpoint order */
	struct names filled;   /* engine parameters with fills, by name */
	uint64_t filled_bytes; /* on all inference ranks */
	bool has_certificate;  /* the table has a topology that is not flat */
	struct certificate certificate;
};

/* Plans the table's problem once more, by round-robin, unless the table is that plan. */
int report_of(struct report *report, const struct table *table, struct error *error);
void report_fini(struct report *report);

/* Copies the name; names_fini frees. */
int names_add(struct names *names, const char *name, struct error *error);
void names_fini(struct names *names);

#endif
