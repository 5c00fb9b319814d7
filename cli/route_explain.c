/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route explain: why one tensor comes to one inference rank from the trainer it comes from.
 * The plan is made again, with a listener; so what is told is what was decided. With a dump the
 * job is the one its labels name, and the dump's own route is held against the plan.
 */
#include "cli/route_options.h"
#include "cli/shown.h"
#include "base/array.h"
#include "base/assert.h"
#include "base/closest.h"
#include "base/compare.h"
#include "base/json_write.h"
#include "routing/report/dump_read.h"
#include "routing/plan/explain.h"
#include "routing/plan/order.h"
#include "routing/plan/path.h"

#include <inttypes.h>
#include <string.h>

struct options {
	struct route_options route;
	const char *file, *tensor, *inference;
	bool json;
};

static const struct verb_option rows[] = {
	TEXT(tensor, "tensor", "NAME", "the tensor, as the checkpoint names it"),
	TEXT(inference, "inference", "RANK", "the inference rank, from 0"),
	FORMAT(json, "json", "one JSON object"),
	{0},
};

/* The question and all that answers it. */
struct answer {
	const struct options *options;
	struct dump *dump;
	struct route_job job;
	struct explain explain;
	struct table *dumped; /* as the file has it, or NULL; job.table is planned now */
};

/* ---- the job and the pair ---- */

static int open_dump(struct answer *answer, struct error *error)
{
	const struct options *options = answer->options;
	struct route_options route = options->route;
	const char *extra = route.train		 ? "--train"
			    : route.infer	 ? "--infer"
			    : route.policy	 ? "--policy"
			    : route.order	 ? "--order"
			    : route.memory	 ? "--memory"
			    : route.topology	 ? "--topology"
			    : route.sessions_max ? "--sessions-max"
						 : NULL;
	const struct policy *policy;
	const struct order *order;
	int rc;

	if (extra)
		return error_set(
			error, ERROR_USAGE,
			"%s says its own job, policy, topology and sessions; leave %s out, "
			"or leave the file out",
			options->file, extra);
	rc = dump_open(&answer->dump, options->file, error);
	if (!rc)
		rc = route_dump_has_specs(answer->dump, options->file, error);
	if (rc)
		return rc;
	rc = policy_named(&policy, "\"policy\":", answer->dump->labels.policy, error);
	if (!rc)
		rc = order_named(&order, "\"order\":", answer->dump->labels.order, error);
	if (rc) {
		error->code = ERROR_FILE; /* it is the file that says so */
		return error_wrap(error, "%s", options->file);
	}
	route.model = route.model ? route.model : answer->dump->labels.model;
	route.train = answer->dump->labels.train;
	route.infer = answer->dump->labels.infer;
	route.policy = answer->dump->labels.policy;
	route.order = answer->dump->labels.order;
	rc = route_options_open(&answer->job, &route, error);
	if (rc)
		return route_dump_wrap(error, options->file, options->route.model);
	answer->job.plan.topology = answer->dump->labels.topology;
	answer->job.plan.sessions_max = answer->dump->labels.sessions_max;
	return dump_table(&answer->dumped, answer->dump, answer->job.problem, error);
}

static int find_tensor(const struct problem *problem, const char *name, uint32_t *tensor,
		       struct error *error)
{
	struct closest closest = {.wanted = name};
	char known[512];

	for (size_t t = 0; t < problem->tensor_count; t++) {
		if (strcmp(problem->tensors[t].name, name) == 0) {
			*tensor = (uint32_t)t;
			return 0;
		}
		closest_offer(&closest, problem->tensors[t].name);
	}
	return error_set(error, ERROR_USAGE,
			 "--tensor %.200s is not a tensor of this job; the closest are %s", name,
			 closest_text(&closest, known, sizeof(known)));
}

static int find_pair(struct answer *answer, struct error *error)
{
	const struct options *options = answer->options;
	const struct problem *problem = answer->job.problem;
	uint64_t rank;

	if (!parse_u64(options->inference, &rank) || rank >= problem->inference_count)
		return error_set(error, ERROR_USAGE,
				 "--inference %s is not an inference rank of this job, which has "
				 "%" PRIu32 ", 0 to %" PRIu32,
				 options->inference, problem->inference_count,
				 problem->inference_count - 1);
	answer->explain.inference = (uint32_t)rank;
	return find_tensor(problem, options->tensor, &answer->explain.tensor, error);
}

static int open_answer(struct answer *answer, struct error *error)
{
	const struct options *options = answer->options;
	int rc;

	if (!options->tensor || !options->inference)
		return error_set(error, ERROR_USAGE, "%s is missing",
				 options->tensor ? "--inference RANK" : "--tensor NAME");
	rc = options->file ? open_dump(answer, error)
			   : route_options_open(&answer->job, &options->route, error);
	if (!rc)
		rc = find_pair(answer, error);
	if (rc)
		return rc;
	answer->job.plan.explain = &answer->explain;
	return table_plan(&answer->job.table, answer->job.problem, answer->job.policy,
			  &answer->job.plan, error);
}

static void close_answer(struct answer *answer)
{
	explain_fini(&answer->explain);
	table_free(&answer->dumped);
	route_job_close(&answer->job);
	dump_free(&answer->dump);
}

/* ---- what the file says ---- */

/* The routes of the pair: *count of them from the one that is returned; routes are sorted. */
static const struct route *pair_routes(const struct table *table, const struct explain *pair,
				       size_t *count)
{
	const struct route *routes = table->routes;
	size_t from =
		search_first(at, 0, table->route_count,
			     (compare_u64(routes[at].tensor, pair->tensor)
				      ?: compare_u64(routes[at].inference, pair->inference)) >= 0);

	for (*count = 0; from + *count < table->route_count; ++*count)
		if (table->routes[from + *count].tensor != pair->tensor ||
		    table->routes[from + *count].inference != pair->inference)
			break;
	return table->routes + from;
}

static bool same_routes(const struct answer *answer)
{
	size_t count, other_count;
	const struct route *routes = pair_routes(answer->job.table, &answer->explain, &count);
	const struct route *others = pair_routes(answer->dumped, &answer->explain, &other_count);

	if (count != other_count)
		return false;
	for (size_t r = 0; r < count; r++)
		if (routes[r].trainer != others[r].trainer || routes[r].bytes != others[r].bytes)
			return false;
	return true;
}

/* ---- how its bytes travel ---- */

/* Pieces that go one way for one reason. */
struct way {
	enum route_path path;
	struct path_reason reason;
	uint64_t pieces, bytes;
};
struct ways {
	struct way
		items[12]; /* direct, landed for three reasons, and the two others for four each */
	size_t count;
};

static void add_piece(struct ways *ways, const struct problem *problem, const struct route *route,
		      const struct route_piece *piece)
{
	struct path_reason reason = path_reason(
		piece->path, !piece->transformed,
		problem_in_one_run(problem, route->trainer, route->tensor, &piece->src),
		piece->spread.run_bytes != 0,
		problem_path(problem, route->trainer, route->inference, !piece->transformed,
			     route->tensor, &piece->src, &(struct spread){0}) != PATH_LANDED);
	size_t w = 0;

	while (w < ways->count && (ways->items[w].path != piece->path ||
				   ways->items[w].reason.because != reason.because))
		w++;
	WEFT_ASSERT_OP(w, <, ARRAY_SIZE(ways->items));
	if (w == ways->count)
		ways->items[ways->count++] = (struct way){.path = piece->path, .reason = reason};
	ways->items[w].pieces++;
	ways->items[w].bytes += piece->bytes;
}

/* As the file has them, or as they are planned now. */
static void find_ways(const struct answer *answer, struct ways *ways)
{
	const struct table *table = answer->dumped ? answer->dumped : answer->job.table;
	size_t count;
	const struct route *routes = pair_routes(table, &answer->explain, &count);

	*ways = (struct ways){.count = 0};
	for (size_t r = 0; r < count; r++)
		for (uint32_t p = 0; p < routes[r].piece_count; p++)
			add_piece(ways, answer->job.problem, &routes[r],
				  &table->pieces[routes[r].piece_first + p]);
}

/* ---- for people ---- */

static void print_ways(const struct answer *answer)
{
	struct ways ways;

	find_ways(answer, &ways);
	for (size_t w = 0; w < ways.count; w++) {
		const struct way *way = &ways.items[w];

		printf("%s%s, %s bytes in %s piece%s: %s%s%s\n", w ? "" : "\n",
		       route_path_name(way->path), GROUPED_TEXT(way->bytes),
		       GROUPED_TEXT(way->pieces), way->pieces == 1 ? "" : "s",
		       way->reason.because ? way->reason.because : "",
		       way->reason.because ? ": " : "", way->reason.way);
	}
}

static bool needs(const struct problem *problem, uint32_t tensor, uint32_t rank)
{
	const uint32_t *of = problem->layouts[problem->inference_layout[rank]].pieces_of;

	return of[tensor + 1] > of[tensor];
}

/* "these do: 0, 4..7, 12" */
static void print_needers(const struct problem *problem, uint32_t tensor)
{
	const char *separator = "these do:";

	for (uint32_t i = 0, last; i < problem->inference_count; i = last + 1) {
		last = i;
		if (!needs(problem, tensor, i))
			continue;
		while (last + 1 < problem->inference_count && needs(problem, tensor, last + 1))
			last++;
		printf(i == last ? "%s %" PRIu32 : "%s %" PRIu32 "..%" PRIu32, separator, i, last);
		separator = ",";
	}
	fputs(separator[0] == ',' ? "" : "no inference rank does", stdout);
}

/* Of the same rows as another one: which of their columns it is about, as the route says that it became; else NULL. */
static const struct box *columns_of(const struct answer *answer, size_t number)
{
	const struct explain *explain = &answer->explain;
	const struct explain_decision *decision = &explain->decisions.items[number];
	const struct route *routes;
	bool alone = true;
	size_t count;

	for (size_t i = 0; i < explain->decisions.count; i++)
		alone = alone && (i == number || explain->decisions.items[i].hi <= decision->lo ||
				  explain->decisions.items[i].lo >= decision->hi);
	routes = pair_routes(answer->job.table, explain, &count);
	return alone || number >= count
		       ? NULL
		       : &answer->job.table->pieces[routes[number].piece_first].src;
}

static void print_decision(const struct answer *answer, size_t number)
{
	const struct explain_decision *decision = &answer->explain.decisions.items[number];
	const struct box *columns = columns_of(answer, number);
	char box[160];

	printf("\nrows %" PRIu64 "..%" PRIu64 "%s%s, %s bytes: trainer %" PRIu32 ", because %s\n",
	       decision->lo, decision->hi, columns ? ", of which " : "",
	       columns ? box_text(columns, box, sizeof(box)) : "", GROUPED_TEXT(decision->bytes),
	       decision->chosen, decision->reason);
	for (uint32_t c = 0; c < decision->candidate_count; c++) {
		const struct explain_candidate *candidate = &decision->candidates[c];

		printf(decision->has_loads ? "  %c trainer %-5" PRIu32 : "  %c trainer %" PRIu32,
		       candidate->trainer == decision->chosen ? '>' : ' ', candidate->trainer);
		if (decision->has_loads)
			printf(" %20s bytes before", GROUPED_TEXT(candidate->load_bytes));
		putchar('\n');
	}
}

static void print_difference(const struct answer *answer)
{
	const char *file = shown(answer->options->file);
	size_t count;
	const struct route *routes = pair_routes(answer->dumped, &answer->explain, &count);

	if (same_routes(answer)) {
		printf("\n%s has the same route.\n", file);
		return;
	}
	printf("\n%s has another route: ", file);
	for (size_t r = 0; r < count; r++)
		printf("%strainer %" PRIu32 " (%s bytes)", r ? ", " : "", routes[r].trainer,
		       GROUPED_TEXT(routes[r].bytes));
	printf("%s.\nIt was made by another version of weft, or by hand.\n", count ? "" : "none");
}

static void print_people(const struct answer *answer)
{
	const struct problem *problem = answer->job.problem;
	const struct explain *explain = &answer->explain;
	const struct problem_tensor *tensor = &problem->tensors[explain->tensor];

	printf("%s, %s, %s, to inference rank %" PRIu32 "\n%s: %s\n", shown(tensor->name),
	       dtype_name(tensor->dtype), BYTES_TEXT(tensor->bytes), explain->inference,
	       answer->job.policy->name, answer->job.policy->rule);
	if (!needs(problem, explain->tensor, explain->inference)) {
		printf("\ninference rank %" PRIu32 " needs nothing of it; ", explain->inference);
		print_needers(problem, explain->tensor);
		puts("");
		return;
	}
	for (size_t d = 0; d < explain->decisions.count; d++)
		print_decision(answer, d);
	print_ways(answer);
	if (answer->dumped)
		print_difference(answer);
}

/* ---- for programs ---- */

static void put_ways(struct json *json, const struct answer *answer)
{
	struct ways ways;

	find_ways(answer, &ways);
	json_put_key_array(json, "ways");
	for (size_t w = 0; w < ways.count; w++) {
		const struct way *way = &ways.items[w];

		json_put_object(json);
		json_put_key_string(json, "how", route_path_name(way->path));
		json_put_key_u64(json, "pieces", way->pieces);
		json_put_key_u64(json, "bytes", way->bytes);
		if (way->reason.because)
			json_put_key_string(json, "because", way->reason.because);
		json_put_key_string(json, "way", way->reason.way);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static void put_decision(struct json *json, const struct answer *answer, size_t number)
{
	const struct explain_decision *decision = &answer->explain.decisions.items[number];
	const struct box *columns = columns_of(answer, number);

	json_put_object(json);
	json_put_key_range(json, "rows", decision->lo, decision->hi);
	if (columns) {
		json_put_key_array(json, "box");
		for (uint32_t d = 0; d < columns->dims; d++)
			json_put_range(json, columns->lo[d], columns->hi[d]);
		json_put_array_end(json);
	}
	json_put_key_u64(json, "bytes", decision->bytes);
	json_put_key_u64(json, "trainer", decision->chosen);
	json_put_key_string(json, "reason", decision->reason);
	json_put_key_array(json, "candidates");
	for (uint32_t c = 0; c < decision->candidate_count; c++) {
		json_put_object(json);
		json_put_key_u64(json, "trainer", decision->candidates[c].trainer);
		if (decision->has_loads)
			json_put_key_u64(json, "load_bytes", decision->candidates[c].load_bytes);
		json_put_object_end(json);
	}
	json_put_array_end(json);
	json_put_object_end(json);
}

static void print_json(const struct answer *answer)
{
	const struct problem *problem = answer->job.problem;
	const struct explain *explain = &answer->explain;
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "tensor", problem->tensors[explain->tensor].name);
	json_put_key_u64(&json, "inference", explain->inference);
	json_put_key_string(&json, "policy", answer->job.policy->name);
	json_put_key_array(&json, "needed_by");
	for (uint32_t i = 0; i < problem->inference_count; i++)
		if (needs(problem, explain->tensor, i))
			json_put_u64(&json, i);
	json_put_array_end(&json);
	json_put_key_array(&json, "decisions");
	for (size_t d = 0; d < explain->decisions.count; d++)
		put_decision(&json, answer, d);
	json_put_array_end(&json);
	put_ways(&json, answer);
	if (answer->dumped)
		json_put_key_bool(&json, "same_in_file", same_routes(answer));
	json_put_line_end(&json);
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct answer answer = {.options = options};
	int rc = open_answer(&answer, error);

	if (!rc)
		(options->json ? print_json : print_people)(&answer);
	close_answer(&answer);
	return rc;
}

const struct verb route_explain_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, file, 0, 1),
	.children = route_children,
	.arguments = "[FILE]",
	.too_many = "'%s' is one file too many",
	.doc = "Says why one tensor comes to one inference rank from the trainer it comes from: "
	       "every trainer that holds it, what each had to send already, and the rule that "
	       "decided. With FILE, a routing dump, the job and the policy are the file's.\v"
	       "Example:\n  weft route explain --model Qwen2.5-0.5B --train world=4 --infer tp=2 \\\n"
	       "      --tensor model.norm.weight --inference 1",
	.run = run,
};
