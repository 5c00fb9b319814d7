/* SPDX-License-Identifier: Apache-2.0
 *
 * export_html_parts.h -- what the two halves of the HTML report share: export_html.c writes what
 * people read, export_html_data.c what the page's script reads.
 */
#ifndef ROUTING_REPORT_EXPORT_HTML_PARTS_H
#define ROUTING_REPORT_EXPORT_HTML_PARTS_H

#include "routing/report/export_html.h"

struct page {
	FILE *file;
	const struct dump *dump, *beside; /* beside: or NULL */
	const struct summary *own, *other; /* other: NULL when there is nothing to compare with */
	char *other_name;
};

/* The {{data}} of the page: one JSON head, then columns in base64. */
int page_put_data(const struct page *page, struct error *error);

#endif
