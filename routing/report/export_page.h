/* SPDX-License-Identifier: Apache-2.0
 *
 * export_page.h -- the HTML report's page as text, made of routing/report/page/ when weft is built.
 */
#ifndef ROUTING_REPORT_EXPORT_PAGE_H
#define ROUTING_REPORT_EXPORT_PAGE_H

/* With {{NAME}} where export_html.c puts a table's text and data. */
extern const char page_template[];

#endif
