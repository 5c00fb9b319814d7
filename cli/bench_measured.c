/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_measured.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "routing/report/export_html.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint32_t workers_of(const struct bench_options *options)
{
	return options->train.world + infer_ranks(&options->infer);
}

static size_t bytes_of(const struct bench_options *options)
{
	return (size_t)workers_of(options) * options->updates * sizeof(double);
}

int bench_measured_open(struct bench_shared *shared, const struct bench_options *options,
			struct error *error)
{
	void *place;

	if (!options->report)
		return 0;
	if (file_writer_check(options->report, error))
		return error_wrap(error, "--report");
	place = mmap(NULL, bytes_of(options), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	if (place == MAP_FAILED)
		return error_set_errno(error, ERROR_MEMORY, errno,
				       "no memory for what %u updates take", options->updates);
	shared->seconds = place;
	return 0;
}

void bench_measured_note(struct bench_shared *shared, const struct bench_options *options,
			 uint32_t worker, uint32_t round)
{
	uint64_t begun = atomic_load(&shared->opened_ns);

	if (shared->seconds && round >= options->warmup)
		shared->seconds[(size_t)worker * options->updates + round - options->warmup] =
			(double)(clock_ns() - begun) / 1e9;
}

char *bench_measured_plan(const struct bench_options *options)
{
	return memory_format("%s.%d.plan", options->report, (int)getpid());
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* In place; of an even number the lower one. */
static double median(double *values, uint32_t count)
{
	qsort(values, count, sizeof(*values), compare);
	return values[(count - 1) / 2];
}

static int write_page(const struct bench_options *options, const struct dump *dump,
		      const struct measured *measured, struct error *error)
{
	struct file_writer writer;
	int rc = file_writer_open(&writer, options->report, error);

	if (rc)
		return rc;
	rc = export_html(writer.stream, dump, NULL, measured, error);
	if (!rc)
		return file_writer_commit(&writer, error);
	file_writer_abort(&writer);
	return rc;
}

int bench_measured_write(const struct bench_shared *shared, const struct bench_options *options,
			 struct error *error)
{
	uint32_t workers = workers_of(options);
	struct measured measured = {.updates = options->updates};
	char *plan = bench_measured_plan(options);
	struct dump *dump = NULL;
	double *medians = memory_alloc(workers * sizeof(*medians));
	int rc = 0;

	if (!plan || !medians)
		rc = memory_error(error, "writing the report", workers * sizeof(*medians));
	for (uint32_t w = 0; !rc && w < workers; w++)
		medians[w] =
			median(shared->seconds + (size_t)w * options->updates, options->updates);
	if (!rc)
		rc = dump_open(&dump, plan, error);
	measured.seconds[ROLE_TRAINER] = medians;
	measured.seconds[ROLE_INFERENCE] = medians ? medians + options->train.world : NULL;
	if (!rc)
		rc = write_page(options, dump, &measured, error);
	dump_free(&dump);
	memory_free(medians);
	memory_free(plan);
	return rc ? error_wrap(error, "--report") : 0;
}

void bench_measured_close(struct bench_shared *shared, const struct bench_options *options)
{
	char *plan = shared->seconds ? bench_measured_plan(options) : NULL;

	if (plan)
		unlink(plan);
	memory_free(plan);
	if (shared->seconds)
		munmap(shared->seconds, bytes_of(options));
	shared->seconds = NULL;
}
