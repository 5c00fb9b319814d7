/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/cuda/errors.h"

#include "base/array.h"

#include <ctype.h>
#include <stdio.h>

struct row {
	int number;
	const char *words;
	enum error_code code;
	bool sticky;
};

static const struct row rows[] = {
#define X(name, number, code, sticky, words) {number, words, ERROR_##code, sticky},
	CUDA_RESULTS(X)
#undef X
};

static const struct row *row_of(int result)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].number == result)
			return &rows[i];
	return NULL;
}

bool cuda_lost(int result)
{
	const struct row *row = row_of(result);

	return row && row->sticky;
}

int cuda_failed(int result, struct error *error, const char *format, ...)
{
	const struct row *row = row_of(result);
	struct error what;
	va_list args;

	va_start(args, format);
	error_vset(&what, ERROR_INTERNAL, format, args);
	va_end(args);
	if (!row)
		return error_set(error, ERROR_TRANSPORT, "%s: the driver answers CUDA error %d",
				 what.text, result);
	return error_set(
		error, row->code, "%s: %s (CUDA error %d)%s", what.text, row->words, result,
		row->sticky
			? "; this process cannot use the device any more: start it again, and see "
			  "dmesg for the driver's own report (Xid)"
			: "");
}
