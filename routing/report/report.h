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

/* A figure of a summary or of a certificate, in the order in which they are written. */
enum figure_kind {
	FIGURE_NUMBER,    /* uint64_t */
	FIGURE_RATIO,     /* double */
	FIGURE_BOOL,
	FIGURE_LIMIT,     /* char[LIMITS_TEXT_BYTES] */
	FIGURE_TRAINERS,  /* uint64_t *, by trainer */
	FIGURE_INFERENCE, /* likewise, by inference rank */
	FIGURE_SESSIONS,  /* uint64_t *, by trainer, each a count of inference ranks */
	FIGURE_PATHS,     /* uint64_t[PATH_COUNT] */
	FIGURE_WRITES     /* struct writes; left out where there are none */
};
struct figure {
	const char *name; /* NULL: behind the last */
	enum figure_kind kind;
	size_t at;
};
extern const struct figure summary_figures[], certificate_figures[];

/* Plans the table's problem once more, by round-robin, unless the table is that plan. */
int report_of(struct report *report, const struct table *table, struct error *error);
void report_fini(struct report *report);

/* Copies the name; names_fini frees. */
int names_add(struct names *names, const char *name, struct error *error);
void names_fini(struct names *names);

#endif
