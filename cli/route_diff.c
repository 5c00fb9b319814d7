/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route diff: two plans of one job, beside each other.
 */
#include "cli/route.h"
#include "cli/grid.h"
#include "cli/screen.h"
#include "cli/shown.h"
#include "base/json_write.h"
#include "routing/report/diff.h"

#include <inttypes.h>

struct options {
	const char *files[2];
	uint64_t top;
	bool json;
};

static const struct verb_option rows[] = {
	NUMBER(top, "top", "N", "the N most moved trainers and tensors (default 10; 0: all)"),
	FORMAT(json, "json", "one JSON object"),
	{0},
};

static size_t shown_of(const struct options *options, size_t count)
{
	return options->top && options->top < count ? options->top : count;
}

static uint32_t most_sessions(const struct dump *dump)
{
	return summary_sessions_max(&dump->report.own, dump->labels.trainer_count);
}

/* ---- for programs ---- */

static void put_side(struct json *json, const char *key, const struct dump *dump, const char *file)
{
	const struct summary *own = &dump->report.own;

	json_put_key_object(json, key);
	json_put_key_string(json, "file", file);
	json_put_key_string(json, "policy", dump->labels.policy);
	json_put_key_string(json, "order", dump->labels.order);
	json_put_key_u64(json, "routes", own->routes);
	json_put_key_u64(json, "pieces", own->pieces);
	json_put_key_u64(json, "makespan_bytes", own->makespan_bytes);
	json_put_key_double(json, "gap", own->gap);
	json_put_key_double(json, "imbalance", own->imbalance);
	json_put_key_u64(json, "prepared_bytes", own->prepared_bytes);
	json_put_key_u64(json, "sessions_max", most_sessions(dump));
	if (dump->report.has_certificate)
		json_put_key_double(json, "makespan_seconds",
				    dump->report.certificate.makespan_seconds);
	json_put_object_end(json);
}

static void print_json(const struct diff *diff, const struct dump *a, const struct dump *b,
		       const struct options *options)
{
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_bool(&json, "same", diff->same);
	json_put_key_u64(&json, "bytes", diff->bytes);
	json_put_key_u64(&json, "moved_bytes", diff->moved_bytes);
	json_put_key_u64(&json, "remade_bytes", diff->transformed_bytes);
	json_put_key_u64(&json, "pairs", diff->pairs);
	json_put_key_u64(&json, "moved_pairs", diff->moved_pairs);
	json_put_key_u64(&json, "only_a_bytes", diff->only_a);
	json_put_key_u64(&json, "only_b_bytes", diff->only_b);
	json_put_key_bool(&json, "order_differs", diff->order_differs);
	json_put_key_bool(&json, "topology_differs", diff->topology_differs);
	put_side(&json, "a", a, options->files[0]);
	put_side(&json, "b", b, options->files[1]);
	json_put_key_array(&json, "trainers");
	for (size_t i = 0; i < shown_of(options, diff->trainer_count); i++) {
		const struct diff_trainer *trainer = &diff->trainers[i];

		json_put_object(&json);
		json_put_key_u64(&json, "trainer", trainer->rank);
		json_put_key_u64(&json, "a_bytes", a->report.own.trainer_bytes[trainer->rank]);
		json_put_key_u64(&json, "b_bytes", b->report.own.trainer_bytes[trainer->rank]);
		json_put_key_u64(&json, "lost_bytes", trainer->lost);
		json_put_key_u64(&json, "gained_bytes", trainer->gained);
		json_put_object_end(&json);
	}
	json_put_array_end(&json);
	json_put_key_array(&json, "tensors");
	for (size_t i = 0; i < shown_of(options, diff->tensor_count); i++) {
		json_put_object(&json);
		json_put_key_string(&json, "tensor", diff->tensors[i].name);
		json_put_key_u64(&json, "moved_bytes", diff->tensors[i].moved_bytes);
		json_put_object_end(&json);
	}
	json_put_array_end(&json);
	json_put_line_end(&json);
}

/* ---- for people ---- */

static void row_bytes(const char *what, uint64_t a, uint64_t b)
{
	printf("  %-34s %12s %12s   %s%s\n", what, BYTES_TEXT(a), BYTES_TEXT(b),
	       a == b  ? ""
	       : a < b ? "+"
		       : "-",
	       a == b ? "same" : BYTES_TEXT(a < b ? b - a : a - b));
}

static void row_ratio(const char *what, double a, double b, const char *unit)
{
	printf("  %-34s %12.3f %12.3f   %+.3f%s\n", what, a, b, b - a, unit);
}

static void row_count(const char *what, uint64_t a, uint64_t b)
{
	printf("  %-34s %12" PRIu64 " %12" PRIu64 "   %+" PRId64 "\n", what, a, b,
	       (int64_t)(b - a));
}

static void print_figures(const struct dump *a, const struct dump *b)
{
	const struct summary *x = &a->report.own, *y = &b->report.own;

	printf("\n  %-34s %12s %12s   change\n", "", "A", "B");
	printf("  %-34s %12s %12s\n", "policy", shown(a->labels.policy), shown(b->labels.policy));
	printf("  %-34s %12s %12s\n", "order", shown(a->labels.order), shown(b->labels.order));
	row_bytes("largest trainer", x->makespan_bytes, y->makespan_bytes);
	row_ratio("gap to the bound (%)", x->gap * 100, y->gap * 100, "");
	row_ratio("imbalance (largest over mean)", x->imbalance, y->imbalance, "");
	row_bytes("prepared by all trainers", x->prepared_bytes, y->prepared_bytes);
	row_count("sessions of the busiest trainer", most_sessions(a), most_sessions(b));
	row_count("routes", x->routes, y->routes);
	row_count("pieces", x->pieces, y->pieces);
	if (a->report.has_certificate && b->report.has_certificate)
		row_ratio("on the wire alone (ms)", a->report.certificate.makespan_seconds * 1e3,
			  b->report.certificate.makespan_seconds * 1e3, "");
}

static void print_people(const struct diff *diff, const struct dump *a, const struct dump *b,
			 const struct options *options)
{
	static const struct grid_column tensor_columns[] = {
		COLUMN("moved", 12, .before = "  "),
		COLUMN("tensor", 0, .before = "  ", .least = 24)};
	struct grid grid;

	if (diff->same) {
		printf("the same plan: %s in %" PRIu64 " pairs\n", BYTES_TEXT(diff->bytes),
		       diff->pairs);
		return;
	}
	printf("%s of %s come from another trainer (%.2f%%), in %" PRIu64 " of %" PRIu64 " pairs\n",
	       BYTES_TEXT(diff->moved_bytes), BYTES_TEXT(diff->bytes),
	       diff->bytes ? (double)diff->moved_bytes / (double)diff->bytes * 100 : 0,
	       diff->moved_pairs, diff->pairs);
	if (diff->transformed_bytes)
		printf("%s are transformed in another way: other dtypes, blocks or scales\n",
		       BYTES_TEXT(diff->transformed_bytes));
	if (diff->only_a || diff->only_b)
		printf("%" PRIu64 " bytes are written by A alone and %" PRIu64
		       " by B alone: one is no proved table (weft route verify)\n",
		       diff->only_a, diff->only_b);
	if (diff->topology_differs)
		printf("they were planned for different topologies\n");
	print_figures(a, b);
	if (diff->moved_bytes == 0)
		return;
	printf("\n  %-14s %12s %12s %12s %12s\n", "trainer", "A", "B", "loses", "gains");
	for (size_t i = 0; i < shown_of(options, diff->trainer_count); i++) {
		const struct diff_trainer *trainer = &diff->trainers[i];

		if (trainer->lost || trainer->gained)
			printf("  %-14" PRIu32 " %12s %12s %12s %12s\n", trainer->rank,
			       BYTES_TEXT(a->report.own.trainer_bytes[trainer->rank]),
			       BYTES_TEXT(b->report.own.trainer_bytes[trainer->rank]),
			       BYTES_TEXT(trainer->lost), BYTES_TEXT(trainer->gained));
	}
	putchar('\n');
	grid_begin(&grid, tensor_columns, ARRAY_SIZE(tensor_columns));
	for (size_t i = 0; i < shown_of(options, diff->tensor_count); i++)
		grid_row(&grid, (const char *[]){BYTES_TEXT(diff->tensors[i].moved_bytes),
						 shown(diff->tensors[i].name)});
	grid_end(&grid);
	if (shown_of(options, diff->tensor_count) < diff->tensor_count)
		printf("  and %zu more tensors (--top 0 shows all)\n",
		       diff->tensor_count - shown_of(options, diff->tensor_count));
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct dump *a = NULL, *b = NULL;
	struct diff diff = {0};
	bool same;
	int why;
	int rc = dump_open(&a, options->files[0], error);

	if (!rc)
		rc = dump_open(&b, options->files[1], error);
	if (!rc)
		rc = diff_of(&diff, a, b, error);
	if (!rc)
		(options->json ? print_json : print_people)(&diff, a, b, options);
	same = diff.same;
	diff_fini(&diff);
	dump_free(&a);
	dump_free(&b);
	why = screen_failed();
	if (!rc && why)
		rc = error_set_errno(error, ERROR_IO, why, "cannot write to standard output");
	if (!rc)
		return same ? 0 : 1;
	rc = command_fail(error);
	return rc == 1 ? 2 : rc;
}

const struct verb route_diff_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, files, 2, 2),
	.defaults = &(const struct options){.top = 10},
	.arguments = "A B",
	.too_many = "'%s' is one file too many",
	.too_few = "name two routing dumps of one job",
	.doc = "Compares two plans of one job: which bytes come from another trainer, counted byte "
	       "by byte, and what that does to the figures.\v"
	       "Exit codes as diff's: 0 the same plan, 1 another one, more than 1 trouble (2 for "
	       "what elsewhere is 1). Figures are those the files claim; `weft route verify` "
	       "checks them.\n\n"
	       "Example:\n  weft route diff plan.json other.json",
	.run = run,
};
