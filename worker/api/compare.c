/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c -- an engine's own parameters beside those that this rank has declared, before it joins:
 * no byte has moved.
 */
#include "worker/api/abi.h"
#include "worker/api/worker.h"

#include "base/text.h"
#include "model/live.h"

#define NAMED_MAX 3 /* differences in a message */

/* ERROR_CONFLICT when the report has a difference. */
static int judge(const struct weft_worker *worker, const struct live_report *report,
		 struct error *error)
{
	size_t count = report->differences.count;
	struct text named = {0};
	int rc;

	if (!count)
		return 0;
	for (size_t i = 0; i < count && i < NAMED_MAX; i++)
		text_format(&named, "%s%.220s", i ? " | " : "", report->differences.items[i]);
	if (count > NAMED_MAX)
		text_format(&named, " | and %zu more", count - NAMED_MAX);
	rc = !text_ok(&named)
		     ? memory_error(error, "comparing parameters", named.bytes)
		     : error_set(
			       error, ERROR_CONFLICT,
			       "%zu difference%s between the %zu parameters declared here and the "
			       "engine's own: %s",
			       count, count == 1 ? "" : "s", worker->layout.param_count,
			       text_string(&named));
	text_fini(&named);
	return rc;
}

static int compare(const struct weft_worker *worker, const struct live *live, weft_line *line,
		   void *context, struct error *error)
{
	struct live_report report = {0};
	int rc = live_compare(live, &worker->layout, &report, error);

	for (size_t i = 0; i < report.differences.count && line; i++)
		line(context, report.differences.items[i]);
	if (!rc)
		rc = judge(worker, &report, error);
	live_report_fini(&report);
	return rc;
}

static int may_compare(const weft_worker *worker, bool given, const char *call, struct error *error)
{
	if (!worker || !given)
		return error_set(error, ERROR_USAGE, "%s: an argument is NULL", call);
	return worker_may_declare(worker, ROLE_INFERENCE, call, error);
}

static int add_param(struct live *live, const weft_param *params, size_t stride, size_t at,
		     struct error *error)
{
	static const char call[] = "weft_compare_params";
	weft_param param;
	int rc = abi_take_at(ABI_PARAM, call, params, stride, at, &param, error);

	if (rc)
		return rc;
	if (param.dims > WEFT_DIMS_MAX)
		return error_set(error, ERROR_USAGE,
				 "%s: parameter %zu has %u dimensions; at most %d", call, at,
				 param.dims, WEFT_DIMS_MAX);
	return live_add(live, param.name, param.dtype, param.dims, param.shape, call, error);
}

int weft_compare_params(weft_worker *worker, const weft_param *params, size_t count, size_t stride,
			weft_error *error)
{
	struct live live = {0};
	struct error inner;
	int rc = may_compare(worker, params || !count, "weft_compare_params", &inner);

	for (size_t i = 0; i < count && !rc; i++)
		rc = add_param(&live, params, stride, i, &inner);
	if (!rc)
		rc = compare(worker, &live, NULL, NULL, &inner);
	live_fini(&live);
	return worker_answer(worker, rc, &inner, error);
}

int weft_compare_params_file(weft_worker *worker, const char *path, weft_line *line, void *context,
			     weft_error *error)
{
	struct live live = {0};
	struct error inner;
	int rc = may_compare(worker, path != NULL, "weft_compare_params_file", &inner);

	if (!rc)
		rc = live_read_file(&live, path, &inner);
	if (!rc)
		rc = compare(worker, &live, line, context, &inner);
	live_fini(&live);
	return worker_answer(worker, rc, &inner, error);
}
