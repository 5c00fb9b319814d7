/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the list of a running engine's parameters. What is accepted is found by name, and
 * compared with a layout leaves every parameter of both sides counted.
 */
#include "model/live.h"
#include "model/model.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool holds)
{
	if (!holds)
		abort();
}

/* One parameter of two dimensions and one of one, as an engine of the corpus has them. */
static void make_layout(struct layout *layout)
{
	static const struct {
		const char *name;
		enum dtype dtype;
		uint32_t dims;
		uint64_t shape[2];
	} rows[] = {
		{"model.embed_tokens.weight", DTYPE_BF16, 2, {64, 32}},
		{"model.norm.weight", DTYPE_BF16, 1, {32, 0}},
	};
	struct error error = {0};

	layout_init(layout);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct piece piece = {0};

		piece.tensor = (uint32_t)layout_add_tensor(layout, rows[i].name, rows[i].dtype,
							   rows[i].dims, rows[i].shape, &error);
		piece.param = (uint32_t)layout_add_param(layout, rows[i].name, rows[i].dtype,
							 rows[i].dims, rows[i].shape, &error);
		piece.src = box_whole(rows[i].dims, rows[i].shape);
		piece.bytes = layout->params[i].bytes;
		check(layout_add_piece(layout, &piece, &error) == 0);
	}
	check(layout_finish(layout, &error) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct live_report report = {0};
	struct error error = {0};
	struct live live = {0};
	struct layout layout;

	if (live_read(&live, (const char *)data, bytes, "input", &error)) {
		check(error.code && error.text[0]);
		check(live.params.count == 0);
		return 0;
	}
	check(live.params.count <= LIVE_PARAMS_MAX && live.names.count == live.params.count);
	for (size_t i = 0; i < live.params.count; i++) {
		const struct live_param *param = &live.params.items[i];
		uint32_t index;

		check(strmap_get(&live.names, param->name, &index) && index == i);
		check(param->dims <= LIVE_DIMS_MAX && strlen(param->name) <= LIVE_NAME_MAX);
		check(param->dtype_text && param->dtype < DTYPE_COUNT);
	}
	make_layout(&layout);
	check(live_compare(&live, &layout, &report, &error) == 0);
	check(report.equal <= layout.param_count && report.equal <= live.params.count);
	check((report.equal == layout.param_count && live.params.count == report.equal) ||
	      report.differences.count + report.left_alone.count > 0);
	for (size_t i = 0; i < report.differences.count; i++)
		check(report.differences.items[i][0] != '\0');
	live_report_fini(&report);
	layout_fini(&layout);
	live_fini(&live);
	return 0;
}
