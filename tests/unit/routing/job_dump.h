/* SPDX-License-Identifier: Apache-2.0
 *
 * job_dump.h -- a table's dump as its callers make it: the report first, then the text.
 */
#ifndef TESTS_JOB_DUMP_H
#define TESTS_JOB_DUMP_H

#include "routing/report/dump.h"

static inline int job_dump_write(FILE *stream, const struct table *table, enum dump_part part,
				 struct error *error)
{
	struct report report;
	int rc = report_of(&report, table, error);

	if (rc)
		return rc;
	dump_write(stream, table, &report, part);
	report_fini(&report);
	return 0;
}

static inline int job_dump_save(const char *path, const struct table *table, struct error *error)
{
	struct report report;
	int rc = report_of(&report, table, error);

	if (rc)
		return rc;
	rc = dump_save(path, table, &report, DUMP_WHOLE, error);
	report_fini(&report);
	return rc;
}

#endif
