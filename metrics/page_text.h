/* SPDX-License-Identifier: Apache-2.0
 *
 * page_text.h -- metrics as text, in Prometheus' exposition format. Pure: figures in, text out.
 *
 *   page_begin ─► page_put(METRIC_.., labels.., value) ..  samples of one metric one after the other ─► text
 */
#ifndef METRICS_PAGE_TEXT_H
#define METRICS_PAGE_TEXT_H

#include "base/text.h"
#include "metrics/codes.h"
#include "metrics/families.h"
#include "metrics/histogram.h"

#define PAGE_LABELS_BYTES 384

struct page {
	struct text *text;
	char common[PAGE_LABELS_BYTES]; /* labels of every sample */
	int last;                       /* metric that was put last; -1: none was */
};

/* role and rank: of a worker; role NULL: of a controller. */
void page_begin(struct page *page, struct text *text, const char *job, const char *role, uint32_t rank);
/* Values for the labels of the metric's row, in their order, NULL where it has fewer. */
void page_put(struct page *page, enum metric metric, const char *a, const char *b, double value);
void page_histogram(struct page *page, enum metric metric, const char *a, const struct histogram *histogram);
/* Counts that are not 0. Of METRIC_LOSSES `of` says of whom; of others it is NULL. */
void page_codes(struct page *page, enum metric metric, const char *of, const struct code_counts *counts);
void page_build(struct page *page, uint32_t wire);

#endif
