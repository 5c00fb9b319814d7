/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_report.h"

#include "cli/bench_judge.h"
#include "cli/shown.h"
#include "base/copy.h"
#include "base/json_write.h"
#include "base/text.h"

#include <stdio.h>

void bench_report_header(const struct bench_options *options, uint32_t copy_threads)
{
	printf("# weft bench update: %s, train %s, infer %s, transport %s, policy %s, order %s\n",
	       shown(options->model), options->train_text, options->infer_text, options->transport,
	       options->policy, options->order);
	printf("# weft copies with %s; memcpy: the same bytes by as many processes, between updates; "
	       "copy: %u thread%s, one plain range each, the same kernel\n",
	       copy_kernel_name(), copy_threads, copy_threads == 1 ? "" : "s");
	printf("#%7s %16s %10s %12s %12s %8s %12s %8s\n", "update", "bytes", "seconds", "GB/s",
	       "memcpy GB/s", "ratio", "copy GB/s", "strict");
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

void bench_report_round(const struct bench_options *options, const struct bench_round *round)
{
	if (options->json)
		print_json(round);
	else
		printf("%8u %16llu %10.4f %12.2f %12.2f %8.3f %12.2f %8.3f%s\n", round->update,
		       (unsigned long long)round->bytes, round->seconds, round->rate / 1e9,
		       round->memcpy_before / 1e9, round->rate / round->memcpy_before,
		       round->copy / 1e9, round->rate / round->copy,
		       round->disturbed ? " disturbed" : "");
	fflush(stdout);
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
	       "targets, %llu packed into the replica\n",
	       (unsigned long long)atomic_load(&shared->direct),
	       (unsigned long long)atomic_load(&shared->mapped),
	       (unsigned long long)atomic_load(&shared->packed));
}
