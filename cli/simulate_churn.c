/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_churn.c -- weft route simulate --churn, for people and for programs:
 *
 *   change        trainers  engines     update   largest   imbalance      moved
 *   (all)                8        2    98.1 ms    1.2 GB       1.000
 *   -trainer=3           7        2   112.0 ms    1.4 GB       1.001    12.5 %
 */
#include "cli/grid.h"
#include "cli/shown.h"
#include "cli/simulate_view.h"

#include <inttypes.h>

static const struct grid_column columns[] = {
	COLUMN("change", -16), COLUMN("trainers", 9), COLUMN("engines", 8),    COLUMN("routes", 9),
	COLUMN("update", 11),  COLUMN("largest", 10), COLUMN("imbalance", 10), COLUMN("moved", 8),
};

void simulate_churn_print(const struct churn *churn)
{
	struct grid grid;

	grid_begin(&grid, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < churn->steps.count; i++) {
		const struct churn_step *step = &churn->steps.items[i];
		double moved =
			step->bytes ? 100 * (double)step->moved_bytes / (double)step->bytes : 0;

		grid_row(&grid, (const char *[]){
					i ? step->change : "(all)", grid_cell("%u", step->trainers),
					grid_cell("%u", step->engines),
					grid_cell("%" PRIu64, step->routes),
					simulate_seconds(step->makespan_seconds, TEXT_HERE),
					BYTES_TEXT(step->largest_bytes),
					grid_cell("%.3f", step->imbalance),
					i ? grid_cell("%.1f %%", moved) : ""});
	}
	grid_end(&grid);
}

void simulate_churn_put(const struct churn *churn)
{
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_array(&json, "churn");
	for (size_t i = 0; i < churn->steps.count; i++) {
		const struct churn_step *step = &churn->steps.items[i];

		json_put_object(&json);
		json_put_key_string(&json, "change", step->change);
		json_put_key_u64(&json, "trainers", step->trainers);
		json_put_key_u64(&json, "engines", step->engines);
		json_put_key_u64(&json, "routes", step->routes);
		json_put_key_u64(&json, "bytes", step->bytes);
		json_put_key_u64(&json, "moved_bytes", step->moved_bytes);
		json_put_key_u64(&json, "largest_bytes", step->largest_bytes);
		json_put_key_double(&json, "imbalance", step->imbalance);
		json_put_key_double(&json, "makespan_seconds", step->makespan_seconds);
		json_put_object_end(&json);
	}
	json_put_array_end(&json);
	json_put_line_end(&json);
}
