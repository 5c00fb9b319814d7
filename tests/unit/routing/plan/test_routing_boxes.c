/* SPDX-License-Identifier: Apache-2.0
 *
 * Random jobs whose trainers hold boxes, under every policy: what a table writes is looked up element by element, by names and
 * boxes alone, and what is refused must be what no cut could have sent.
 */
#include "tests/unit/routing/plan/boxes_naive.h"

#include "base/clock.h"
#include "routing/plan/bound.h"
#include "routing/report/certificate.h"
#include "routing/report/summary.h"

#define ROUNDS 120 /* of each seed */

/* Seeds that are always there, and one of today, or WEFT_SEED alone. */
struct seeds {
	uint64_t list[8];
	size_t count;
};

static struct seeds seeds_of(const char *who)
{
	struct seeds seeds = {{1, 2, 3, 20250711, 99991}, 5};
	const char *given = getenv("WEFT_SEED");

	if (given)
		seeds.count = 0;
	seeds.list[seeds.count++] = given ? strtoull(given, NULL, 0) : clock_ns();
	print_message("%s: WEFT_SEED=%" PRIu64 "\n", who, seeds.list[seeds.count - 1]);
	return seeds;
}

/* ---- element by element ---- */

/* Of an element in a box, its number in the whole tensor; they are counted row by row. */
static uint64_t element_at(const struct box *box, const uint64_t *shape, uint64_t number,
			   uint64_t *index)
{
	uint64_t all = 0;

	for (uint32_t d = box->dims; d-- > 0;) {
		uint64_t size = box->hi[d] - box->lo[d];

		index[d] = box->lo[d] + number % size;
		number /= size;
	}
	for (uint32_t d = 0; d < box->dims; d++)
		all = all * shape[d] + index[d];
	return all;
}

/* What an element of a parameter is, and how often it was written. */
struct target {
	const char *tensor;
	uint64_t element;
	uint32_t written;
};

#define TARGETS_MAX 8192

struct targets {
	struct target items[TARGETS_MAX];
	size_t param_first[16], count;
};

static void expect_targets(struct targets *targets, const struct layout *layout)
{
	uint64_t index[BOX_DIMS_MAX];

	targets->count = 0;
	assert_true(layout->param_count < ARRAY_SIZE(targets->param_first));
	for (size_t p = 0; p < layout->param_count; p++) {
		targets->param_first[p] = targets->count;
		targets->count += layout->params[p].bytes / dtype_bytes(layout->params[p].dtype);
	}
	assert_true(targets->count <= TARGETS_MAX);
	memset(targets->items, 0, targets->count * sizeof(targets->items[0]));
	for (size_t p = 0; p < layout->piece_count; p++) {
		const struct piece *piece = &layout->pieces[p];
		const struct tensor_info *info = &layout->tensors[piece->tensor];
		size_t at = targets->param_first[piece->param] +
			    piece->offset / dtype_bytes(info->dtype);

		for (uint64_t k = 0; k < box_elements(&piece->src); k++)
			targets->items[at + k] = (struct target){
				info->name, element_at(&piece->src, info->shape, k, index), 0};
	}
}

/* The only box of the trainer's that has the element. */
static const struct held *held_with(const struct holding *holding, const char *name, uint32_t dims,
				    const uint64_t *index)
{
	for (size_t h = 0; h < holding->held_count; h++) {
		const struct held *held = &holding->held[h];
		uint32_t d = 0;

		if (strcmp(holding->tensors[held->tensor].name, name) != 0)
			continue;
		while (d < dims && held->box.lo[d] <= index[d] && index[d] < held->box.hi[d])
			d++;
		if (d == dims)
			return held;
	}
	return NULL;
}

static uint64_t place_of(const struct held *held, uint32_t dims, const uint64_t *index)
{
	uint64_t at = held->place.offset;

	for (uint32_t d = 0; d < dims; d++)
		at += (index[d] - held->box.lo[d]) * held->place.stride[d];
	return at;
}

static void write_piece(struct targets *targets, const struct job *job, const struct route *route,
			const struct route_piece *piece, bool lands)
{
	const struct problem_tensor *tensor = &job->problem->tensors[route->tensor];
	const struct layout *layout = job->inference[route->inference];
	uint64_t index[BOX_DIMS_MAX], size = dtype_bytes(tensor->dtype), first = 0;
	const struct held *from = NULL;
	uint64_t run = piece->spread.run_bytes / size;
	bool one_run = true;

	assert_true(piece->param < layout->param_count);
	assert_int_equal(piece->offset % size, 0);
	assert_int_equal(piece->bytes, box_elements(&piece->src) * size);
	assert_true(piece->offset + spread_span(&piece->spread, piece->bytes) <=
		    layout->params[piece->param].bytes);
	if (run) {
		assert_int_equal(piece->spread.run_bytes % size, 0);
		assert_int_equal(piece->spread.stride_bytes % size, 0);
		assert_true(piece->spread.stride_bytes > piece->spread.run_bytes);
	}
	for (uint64_t k = 0; k < box_elements(&piece->src); k++) {
		struct target *target =
			&targets->items[targets->param_first[piece->param] + piece->offset / size +
					(run ? k / run * (piece->spread.stride_bytes / size) +
							 k % run
					     : k)];
		uint64_t element = element_at(&piece->src, tensor->shape, k, index);
		const struct held *held =
			held_with(job->trainers[route->trainer], tensor->name, tensor->dims, index);

		assert_non_null(target->tensor);
		assert_string_equal(target->tensor, tensor->name);
		assert_int_equal(target->element, element);
		assert_int_equal(target->written++, 0);
		assert_non_null(held); /* of a trainer that has it, all in one box */
		assert_true(k == 0 || held == from);
		from = held;
		first = k ? first : place_of(held, tensor->dims, index);
		one_run = one_run && place_of(held, tensor->dims, index) == first + k;
	}
	enum route_path path = !run && one_run && job->registered[route->trainer] ? PATH_DIRECT
			       : job->mapped[route->inference]			  ? PATH_MAPPED
										  : PATH_REPLICA;

	if (lands && !job->mapped[route->inference])
		path = PATH_LANDED;
	assert_int_equal(piece->path, path);
}

static bool boxed(const struct job *job)
{
	for (uint32_t t = 0; t < job->trainer_count; t++)
		for (size_t h = 0; h < job->trainers[t]->held_count; h++) {
			const struct held *held = &job->trainers[t]->held[h];

			if (!box_whole_rows(&held->box,
					    job->trainers[t]->tensors[held->tensor].shape))
				return true;
		}
	return false;
}

/* What is in runs; and what is in one, where that is so between the two, or there are many (all are small here). */
static bool lands(const struct job *job, const struct table *table, const struct route *route,
		  const struct route_piece *piece)
{
	uint32_t small = 0;

	if (piece->spread.run_bytes)
		return true;
	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *other = &table->routes[r];

		if (other->trainer != route->trainer || other->inference != route->inference)
			continue;
		for (uint32_t p = 0; p < other->piece_count; p++)
			small += table->pieces[other->piece_first + p].spread.run_bytes
					 ? MERGE_PIECES_MIN
					 : 1;
	}
	return boxed(job) && small >= MERGE_PIECES_MIN;
}

static size_t merged; /* pieces, in all jobs */

static void check_elements(const struct job *job, const struct table *table)
{
	static struct targets targets;
	uint64_t bytes[JOB_RANKS_MAX] = {0};

	for (uint32_t i = 0; i < job->inference_count; i++) {
		expect_targets(&targets, job->inference[i]);
		for (size_t r = 0; r < table->route_count; r++) {
			const struct route *route = &table->routes[r];

			for (uint32_t p = 0; route->inference == i && p < route->piece_count; p++) {
				const struct route_piece *piece =
					&table->pieces[route->piece_first + p];

				merged += piece->path == PATH_LANDED && !piece->spread.run_bytes;
				write_piece(&targets, job, route, piece,
					    lands(job, table, route, piece));
				bytes[route->inference] += piece->bytes;
			}
		}
		for (size_t k = 0; k < targets.count; k++)
			assert_int_equal(targets.items[k].written, targets.items[k].tensor != NULL);
	}
}

/* ---- rules ---- */

/* Greedy, from the routes alone: the least loaded of those that have all of a route, the lowest of equals. */
static void check_greedy(const struct job *job, const struct table *table)
{
	uint64_t loads[JOB_RANKS_MAX] = {0};

	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		const char *name = job->problem->tensors[route->tensor].name;
		uint32_t best = UINT32_MAX;

		for (uint32_t t = 0; t < job->trainer_count; t++) {
			bool all = true;

			for (uint32_t p = 0; p < route->piece_count; p++)
				all = all && holds_box(job, t, name,
						       &table->pieces[route->piece_first + p].src);
			if (all && (best == UINT32_MAX || loads[t] < loads[best]))
				best = t;
		}
		assert_int_equal(route->trainer, best);
		loads[best] += route->bytes;
	}
}

static void check_rule(const struct job *job, struct naive *units, const struct table *table)
{
	static const struct {
		const char *policy;
		void (*rule)(struct naive *naive);
	} rules[] = {
		{"greedy", naive_greedy},
		{"lpt", naive_lpt},
		{"modulo", naive_modulo},
		{"first-holder", naive_first_holder},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		if (strcmp(table->policy, rules[i].policy) != 0)
			continue;
		rules[i].rule(units);
		naive_equals(units, table);
	}
	if (strcmp(table->policy, "greedy") == 0)
		check_greedy(job, table);
}

/* Holder sets and their bytes, as the list that is cut everywhere has them. */
static void check_weights(const struct job *job, const struct boxes *cut)
{
	struct error error = {0};
	uint64_t *bytes, all = 0, wanted = 0, found = 0;
	struct units units;

	if (units_weigh(&units, &bytes, job->problem, &error))
		fail_msg("weigh: %s", error.text);
	for (size_t u = 0; u < cut->units.count; u++)
		wanted += cut->units.units[u].bytes;
	for (size_t s = 0; s < units.set_count; s++) {
		uint64_t expected = 0;

		for (size_t u = 0; u < cut->units.count; u++) {
			const struct naive_unit *unit = &cut->units.units[u];
			bool same = naive_holders(unit) == units.sets[s].count;

			for (uint32_t k = 0; same && k < units.sets[s].count; k++)
				same = unit->holds[units.sets[s].trainers[k]];
			expected += same ? unit->bytes : 0;
		}
		assert_int_equal(bytes[s], expected);
		all += bytes[s];
	}
	for (uint32_t i = 0; i < job->inference_count; i++)
		for (size_t p = 0; p < job->inference[i]->piece_count; p++)
			found += job->inference[i]->pieces[p].bytes;
	assert_int_equal(all, wanted);
	assert_int_equal(all, found);
	memory_free(bytes);
	units_fini(&units);
}

static void check_bound(const struct table *table)
{
	struct certificate certificate;
	struct error error = {0};
	struct summary summary;

	if (summary_of(&summary, table, &error) || certificate_of(&certificate, table, &error))
		fail_msg("bound: %s", error.text);
	assert_true(summary.lower_bound_bytes > 0);
	assert_true(summary.lower_bound_bytes <= summary.makespan_bytes);
	assert_true(certificate.bound_seconds <= certificate.makespan_seconds * (1 + 1e-12));
	if (strcmp(table->policy, "balanced") == 0 && !table->sessions_max)
		assert_true((double)summary.makespan_bytes <=
			    (double)summary.lower_bound_bytes * 1.005 +
				    (double)problem_largest_row(table->problem));
	summary_fini(&summary);
}

static uint64_t bytes_of(const struct problem *problem, const struct units *units,
			 const struct unit *unit)
{
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];
	uint64_t bytes = 0;

	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++) {
		struct piece part;

		if (unit_cut(units, unit, unit->lo, unit->hi, &layout->pieces[p], &part))
			bytes += part.bytes;
	}
	return bytes;
}

/* How many cells of the list these rows and columns are in. */
static size_t count_cells(const struct units *cut, const struct units *units,
			  const struct unit *unit)
{
	size_t found = 0;

	for (size_t k = 0; k < cut->count; k++) {
		const struct unit *cell = &cut->items[k];

		found += cell->tensor == unit->tensor && cell->inference == unit->inference &&
			 cell->lo <= unit->lo && cell->hi >= unit->hi && cell->cell != UNIT_FULL &&
			 box_equal(&cut->cells[cell->cell], &units->cells[unit->cell]);
	}
	return found;
}

/* What a policy decides about: units in order, their bytes right, cells as they were or rows of them. */
static size_t check_units(const struct job *job, const struct policy *policy,
			  const struct plan_options *options)
{
	struct error error = {0};
	struct units units, cut;
	size_t cells = 0;

	if (units_build(&units, job->problem, &error) ||
	    units_build_cut(&cut, job->problem, &error))
		fail_msg("units: %s", error.text);
	uint32_t *trainer = memory_zalloc(units.count, sizeof(*trainer));

	if (policy->assign(job->problem, options, &units, &trainer, &error))
		fail_msg("%s: %s", policy->name, error.text);
	for (size_t u = 0; u < units.count; u++) {
		const struct unit *unit = &units.items[u], *before = unit - 1;

		assert_int_equal(unit->bytes, bytes_of(job->problem, &units, unit));
		if (u && before->tensor == unit->tensor && before->inference == unit->inference)
			assert_true(before->lo <= unit->lo);
		else if (u)
			assert_true(before->tensor < unit->tensor ||
				    (before->tensor == unit->tensor &&
				     before->inference < unit->inference));
		if (unit->cell == UNIT_FULL)
			continue;
		cells++;
		assert_int_equal(count_cells(&cut, &units, unit), 1);
	}
	memory_free(trainer);
	units_fini(&units);
	units_fini(&cut);
	return cells;
}

/* ---- all of it ---- */

struct seen {
	size_t planned, refused, spread, cells, sessions, coprime;
};

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	return b ? common_divisor(b, a % b) : a;
}

static void plan_all(struct job *job, struct boxes *boxes, const struct boxes *cut,
		     struct seen *seen)
{
	size_t policies;
	const struct policy *policy = policy_list(&policies);

	for (size_t i = 0; i < policies; i++) {
		struct plan_options free = {0}, limited = {.sessions_max = job->inference_count};
		struct error error = {0};
		struct table *table;
		int rc = table_plan(&table, job->problem, &policy[i], NULL, &error);

		if (boxes->refused) {
			assert_int_equal(rc, -ERROR_UNSUPPORTED);
			assert_non_null(strstr(error.text, "with more than one stride"));
			continue;
		}
		if (rc)
			fail_msg("%s: %s", policy[i].name, error.text);
		check_elements(job, table);
		check_rule(job, &boxes->units, table);
		check_bound(table);
		table_free(&table);
		seen->cells += check_units(job, &policy[i], &free);
		if (!policy[i].limits_sessions)
			continue;
		if (table_plan(&table, job->problem, &policy[i], &limited, &error))
			fail_msg("%s, sessions: %s", policy[i].name, error.text);
		check_elements(job, table);
		table_free(&table);
		seen->cells += check_units(job, &policy[i], &limited);
		seen->sessions++;
	}
	if (!boxes->refused)
		check_weights(job, cut);
}

static void test_boxes__are_written_element_by_element_by_who_holds_them(void **state)
{
	struct seeds seeds = seeds_of("boxes");
	struct seen seen = {0};

	(void)state;
	for (size_t s = 0; s < seeds.count; s++) {
		struct dice dice = {seeds.list[s]};

		for (int round = 0; round < ROUNDS; round++) {
			static struct boxes boxes, cut;
			static struct job job;

			job_boxes(&job, &dice);
			boxes_list(&boxes, &job, false);
			boxes_list(&cut, &job, true);
			assert_int_equal(boxes.refused != 0, cut.refused != 0);
			plan_all(&job, &boxes, &cut, &seen);
			seen.planned += !boxes.refused;
			seen.refused += boxes.refused != 0;
			seen.spread += !boxes.refused && boxes.spread != 0;
			seen.coprime += !boxes.refused && job.trainer_count > 1 &&
					job.inference_count > 1 &&
					common_divisor(job.trainer_count, job.inference_count) == 1;
			job_fini(&job);
		}
	}
	assert_true(seen.cells >= seeds.count * ROUNDS);
	assert_true(seen.planned >= seeds.count * ROUNDS / 4);
	print_message("planned %zu (spread %zu), refused %zu; %zu pieces merged\n", seen.planned,
		      seen.spread, seen.refused, merged);
	assert_true(seen.spread >= seeds.count * ROUNDS / 20);
	assert_true(seen.coprime >= seeds.count * ROUNDS / 12);
	assert_true(merged >= seeds.count * ROUNDS);
	assert_true(seen.sessions == seen.planned);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boxes__are_written_element_by_element_by_who_holds_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
