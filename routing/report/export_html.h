/* SPDX-License-Identifier: Apache-2.0
 *
 * export_html.h -- a routing dump as one HTML file that needs nothing beside it: figures as plain
 * HTML, and charts and a table of all routes that its script draws from columns kept in the file.
 */
#ifndef ROUTING_REPORT_EXPORT_HTML_H
#define ROUTING_REPORT_EXPORT_HTML_H

#include "routing/report/dump_read.h"
#include <stdio.h>

/* What ranks of the plan took, the median of so many updates, in seconds: by rank. */
struct measured {
	uint32_t updates;
	const double *seconds[ROLE_COUNT];
};

/* `beside` is a plan of the same job by another policy, to stand beside the dump's; NULL: the
 * round-robin figures of the dump's own summary do. ERROR_CONFLICT when the two are not of one job.
 * The bytes written depend on the dumps and on weft's version only. Memory beside the dumps:
 * 4 bytes a name, 24 bytes a route of `beside`. measured NULL: nothing was. The caller checks ferror. */
int export_html(FILE *file, const struct dump *dump, const struct dump *beside,
		const struct measured *measured, struct error *error);

/* What the two halves of the report share: export_html.c writes what people read, export_html_data.c
 * what the page's script reads. */
struct page {
	FILE *file;
	const struct dump *dump, *beside; /* beside: or NULL */
	const struct summary *own, *other; /* other: NULL when there is nothing to compare with */
	char *other_name;
	const struct measured *measured; /* or NULL */
};

/* The {{data}} of the page: one JSON head, then columns in base64. */
int page_put_data(const struct page *page, struct error *error);

#endif
