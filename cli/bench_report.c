/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_report.h"

#include "cli/bench_judge.h"
#include "cli/shown.h"
#include "cli/screen.h"
#include "base/copy.h"
#include "base/json_write.h"
#include "base/text.h"

#include <stdio.h>

static const struct grid_column columns[] = {
	COLUMN("# update", 8),
	COLUMN("bytes", 16, .least = 13),
	COLUMN("seconds", 10, .least = 8),
	COLUMN("GB/s", 12, .least = 7),
	COLUMN("memcpy GB/s", 12, .least = 11),
	COLUMN("ratio", 8, .least = 6),
	COLUMN("copy GB/s", 12, .least = 9),
	COLUMN("strict", 8, .least = 6),
	COLUMN(NULL, 0, .folds = true), /* disturbed */
};

void bench_report_header(struct grid *grid, const struct bench_options *options,
			 uint32_t copy_threads)
{
	if (options->json)
		return;

	printf("# weft bench update: %s, train %s, infer %s, transport %s, policy %s, order %s\n",
	       shown(options->model), options->train_text, options->infer_text, options->transport,
	       options->policy, options->order);
	if (options->memory)
		printf("# memory %s, stage %s; memcpy and copy: the same bytes by one copy of each trainer's "
		       "GPU, or of the processor where its tensors lie on the host, between updates\n",
		       options->memory, options->stage ? options->stage : "none");
	else
		printf("# weft copies with %s; memcpy: the same bytes by as many processes, between updates; "
		       "copy: %u thread%s, one plain range each, the same kernel\n",
		       copy_kernel_name(), copy_threads, copy_threads == 1 ? "" : "s");
	grid_begin_slow(grid, columns, ARRAY_SIZE(columns));
}

static void print_json(const struct bench_round *round)
{
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_u64(&json, "update", round->update);
	json_put_key_u64(&json, "bytes", round->bytes);
	json_put_key_double(&json, "seconds", round->seconds);
	json_put_key_double(&json, "bytes_per_second", round->rate);
	json_put_key_double(&json, "memcpy_bytes_per_second", round->memcpy_before);
	json_put_key_double(&json, "memcpy_after_bytes_per_second", round->memcpy_after);
	json_put_key_double(&json, "ratio", round->rate / round->memcpy_before);
	json_put_key_double(&json, "copy_bytes_per_second", round->copy);
	json_put_key_double(&json, "ratio_strict", round->rate / round->copy);
	json_put_key_bool(&json, "disturbed", round->disturbed);
	json_put_line_end(&json);
}

void bench_report_round(struct grid *grid, const struct bench_options *options,
			const struct bench_round *round)
{
	if (options->json) {
		print_json(round);
		screen_flush();
		return;
	}
	grid_row(grid, (const char *[]){grid_cell("%u", round->update),
					grid_cell("%llu", (unsigned long long)round->bytes),
					grid_cell("%.4f", round->seconds),
					grid_cell("%.2f", round->rate / 1e9),
					grid_cell("%.2f", round->memcpy_before / 1e9),
					grid_cell("%.3f", round->rate / round->memcpy_before),
					grid_cell("%.2f", round->copy / 1e9),
					grid_cell("%.3f", round->rate / round->copy),
					round->disturbed ? "disturbed" : NULL});
}

void bench_report_end(const struct bench_shared *shared, const struct bench_options *options,
		      uint32_t disturbed)
{
	if (options->json)
		return;
	if (disturbed)
		printf("# disturbed: %u of %u updates had a memcpy before or after them below %.1f of "
		       "the best until then: measure again while nothing else runs\n",
		       disturbed, options->updates, BENCH_DISTURBED_BELOW);
	printf("# verified after the last update: %s bytes equal\n",
	       GROUPED_TEXT(atomic_load(&shared->work[BENCH_COMPARING].done)));
	printf("# pieces of all updates: %llu straight from the tensors, %llu packed into mapped "
	       "targets, %llu packed into the replica",
	       (unsigned long long)atomic_load(&shared->direct),
	       (unsigned long long)atomic_load(&shared->mapped),
	       (unsigned long long)atomic_load(&shared->packed));
	if (atomic_load(&shared->landed))
		printf(", %llu landed beside their targets",
		       (unsigned long long)atomic_load(&shared->landed));
	putchar('\n');
}
