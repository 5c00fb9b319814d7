/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_problem.c -- from workers to a proved table: what routing is told of them.
 */
#include "controller/epoch.h"

#include "base/assert.h"
#include <string.h>

struct input {
	struct pool pool;
	struct problem_input problem;
	const struct holding **trainers;
	const struct layout **inference;
	struct digest *trainer_digests, *inference_digests;
	uint32_t *stages;
	bool *registered, *device, *mapped, *landed, *trainer_away, *inference_away;
};

static bool input_alloc(struct input *input, uint32_t trainers, uint32_t ranks)
{
	input->trainers = pool_array(&input->pool, trainers, sizeof(*input->trainers));
	input->inference = pool_array(&input->pool, ranks, sizeof(*input->inference));
	input->trainer_digests = pool_array(&input->pool, trainers, sizeof(struct digest));
	input->inference_digests = pool_array(&input->pool, ranks, sizeof(struct digest));
	input->stages = pool_array(&input->pool, trainers, sizeof(uint32_t));
	input->registered = pool_array(&input->pool, trainers, sizeof(bool));
	input->device = pool_array(&input->pool, trainers, sizeof(bool));
	input->mapped = pool_array(&input->pool, ranks, sizeof(bool));
	input->landed = pool_array(&input->pool, ranks, sizeof(bool));
	input->trainer_away = pool_array(&input->pool, trainers, sizeof(bool));
	input->inference_away = pool_array(&input->pool, ranks, sizeof(bool));
	return pool_ok(&input->pool);
}

const struct message_declare *epoch_labels(const struct epoch *epoch)
{
	uint32_t first = 0;

	while (!epoch->parties[first].planned) {
		first++;
		WEFT_ASSERT_OP(first, <, epoch->count);
	}
	return &epoch->parties[first].worker->declare;
}

static bool same_host(const struct worker *a, const struct worker *b)
{
	return a->hello.host_id && b->hello.host_id &&
	       strcmp(a->hello.host_id, b->hello.host_id) == 0;
}

/* Routing knows one bit a rank: its memory can be mapped by every trainer, or it cannot. */
static bool mapped_by_all(const struct epoch *epoch, const struct worker *rank)
{
	if (!rank->declare.mapped)
		return false;
	for (uint32_t t = 0; t < epoch->trainers; t++) {
		const struct worker *trainer = epoch->parties[t].worker;

		if (epoch->parties[t].away)
			continue;
		if (!trainer->declare.mapped || !same_host(trainer, rank) ||
		    (rank->declare.device && !trainer->declare.device))
			return false;
	}
	return true;
}

/* What one that is away holds and needs. */
static const struct holding nothing;
static const struct layout no_layout;

static void input_fill(struct input *input, const struct epoch *epoch,
		       const struct epoch_rules *rules, const struct pairs *pairs)
{
	const struct message_declare *labels = epoch_labels(epoch);
	uint32_t trainers = epoch->trainers;

	for (uint32_t i = 0; i < epoch->count; i++) {
		const struct worker *worker = epoch->parties[i].worker;

		if (i < trainers) {
			input->trainers[i] =
				epoch->parties[i].planned ? &worker->body->holding : &nothing;
			if (epoch->parties[i].planned)
				input->trainer_digests[i] = worker->body->digest;
			input->trainer_away[i] = !epoch->parties[i].planned;
			input->stages[i] = train_stage(rules->train, i);
			input->registered[i] = worker->declare.registered;
			input->device[i] = worker->declare.device;
		} else {
			input->inference[i - trainers] =
				epoch->parties[i].planned ? &worker->body->layout : &no_layout;
			if (epoch->parties[i].planned)
				input->inference_digests[i - trainers] = worker->body->digest;
			input->inference_away[i - trainers] = !epoch->parties[i].planned;
			input->mapped[i - trainers] = mapped_by_all(epoch, worker);
			input->landed[i - trainers] = worker->declare.landed;
		}
	}
	input->problem = (struct problem_input){
		.model = labels->model,
		.train = labels->train,
		.infer = labels->infer,
		.ranks_per_engine = rules->infer->tp,
		.trainers = input->trainers,
		.trainer_digests = input->trainer_digests,
		.trainer_stages = input->stages,
		.trainer_registered = input->registered,
		.trainer_device = input->device,
		.trainer_count = trainers,
		.inference = input->inference,
		.inference_digests = input->inference_digests,
		.inference_mapped = input->mapped,
		.inference_landed = input->landed,
		.inference_count = epoch->count - trainers,
		.trainer_away = input->trainer_away,
		.inference_away = input->inference_away,
		.pairs = pairs,
	};
}

static int build_problem(struct epoch *epoch, const struct epoch_rules *rules, struct error *error)
{
	struct input input = {0};
	struct pairs *pairs;
	int rc = epoch_pairs(&pairs, &input.pool, epoch, error);

	if (!rc && !input_alloc(&input, epoch->trainers, epoch->count - epoch->trainers))
		rc = -ERROR_MEMORY;
	if (!rc) {
		input_fill(&input, epoch, rules, pairs);
		rc = problem_build(&epoch->problem, &input.problem, error);
	}
	pool_free(&input.pool);
	return rc;
}

static int check_host(const struct worker *from, const struct worker *to, const char *why,
		      struct error *error)
{
	char a[MEMBER_TEXT_BYTES], b[MEMBER_TEXT_BYTES];

	if (!from->declare.transport || strcmp(from->declare.transport, "shm") != 0 ||
	    same_host(from, to))
		return 0;
	return error_set(error, ERROR_UNSUPPORTED,
			 "transport shm needs one host: %s is on %.200s (boot id %.64s), "
			 "%s is on %.200s (boot id %.64s); between hosts use --transport "
			 "tcp, or verbs where both have RDMA%s",
			 member_text(from->who, a), from->hello.host, from->hello.host_id,
			 member_text(to->who, b), to->hello.host, to->hello.host_id, why);
}

static int check_hosts(const struct epoch *epoch, const struct epoch_rules *rules,
		       struct error *error)
{
	const struct commit_ranks ranks = epoch_commits(epoch, rules);
	const struct table *table = epoch->table;
	uint32_t mate;
	int rc = 0;

	for (size_t r = 0; r < table->route_count && !rc; r++)
		rc = check_host(epoch->parties[table->routes[r].trainer].worker,
				epoch->parties[epoch->trainers + table->routes[r].inference].worker,
				"", error);
	for (uint32_t rank = 0; rank < ranks.count && !rc; rank++)
		if (!ranks.away[rank] && commit_decider(&ranks, rank, &mate))
			rc = check_host(epoch->parties[epoch->trainers + rank].worker,
					epoch->parties[epoch->trainers + mate].worker,
					EPOCH_MATES_WHY, error);
	return rc;
}

/* Equal messages are equal bytes. */
static int declare_the_same(const struct worker *a, const struct worker *b, bool *same)
{
	struct message messages[] = {{.type = MESSAGE_DECLARE, .u.declare = a->declare},
				     {.type = MESSAGE_DECLARE, .u.declare = b->declare}};
	unsigned char *bytes[2] = {NULL, NULL};
	size_t lengths[2];
	struct error error;
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++)
		rc = message_encode(&messages[i], &bytes[i], &lengths[i], &error);
	*same = !rc && lengths[0] == lengths[1] && memcmp(bytes[0], bytes[1], lengths[0]) == 0 &&
		same_host(a, b) && strcmp(a->hello.host, b->hello.host) == 0;
	memory_free(bytes[0]);
	memory_free(bytes[1]);
	return rc == -(int)ERROR_MEMORY ? rc : 0;
}

/* All that a plan is made of; mostly by the very same processes. */
static int is_of_the_same(const struct epoch *epoch, const struct epoch *before, bool *same)
{
	int rc = 0;

	*same = !before->foreign;
	for (uint32_t i = 0; i < epoch->count && *same && !rc; i++) {
		const struct party *now = &epoch->parties[i], *then = &before->parties[i];

		*same = now->planned == then->planned &&
			(!now->planned || now->worker->body == then->worker->body);
		if (*same && now->planned && now->worker != then->worker)
			rc = declare_the_same(now->worker, then->worker, same);
	}
	return rc;
}

static void share_plan(struct epoch *epoch, const struct epoch *before)
{
	++*before->uses;
	epoch->uses = before->uses;
	epoch->reported = before->reported;
	epoch->problem = before->problem;
	epoch->table = before->table;
	epoch->table->moved.routes = epoch->table->moved.bytes = 0;
}

/* Who has connected by it has its rows, unless it was taken over: then nobody knows in which order. */
static void note_rows(struct epoch *epoch, const struct epoch *before)
{
	for (uint32_t i = 0; i < epoch->count && !before->adopted; i++) {
		const struct party *then = &before->parties[i];

		if (then->worker != epoch->parties[i].worker || then->leg != LEG_CONNECTED ||
		    then->away)
			continue;
		epoch->parties[i].had = known_hold(then->told);
	}
}

static int make_plan(struct epoch *epoch, const struct epoch *before,
		     const struct epoch_rules *rules, struct actions *actions, struct error *error)
{
	struct plan_options options = rules->options;
	int rc;

	epoch->uses = memory_alloc(sizeof(*epoch->uses));
	if (!epoch->uses)
		return -ERROR_MEMORY;
	*epoch->uses = 1;
	options.before = before && !before->foreign ? before->table : NULL;
	rc = build_problem(epoch, rules, error);
	if (!rc && rules->topology_from_workers) {
		rc = epoch_cluster(&epoch->reported, epoch, actions, error);
		options.topology = epoch->reported;
	}
	return rc ? rc : table_plan(&epoch->table, epoch->problem, rules->policy, &options, error);
}

static int note_away(struct epoch *epoch)
{
	uint32_t ranks = epoch->count - epoch->trainers;

	epoch->ranks_away = pool_array(&epoch->pool, ranks, sizeof(*epoch->ranks_away));
	for (uint32_t rank = 0; epoch->ranks_away && rank < ranks; rank++)
		epoch->ranks_away[rank] = epoch->parties[epoch->trainers + rank].away;
	return epoch->ranks_away ? 0 : -ERROR_MEMORY;
}

int epoch_plan(struct epoch *epoch, const struct epoch *before, const struct epoch_rules *rules,
	       struct actions *actions, struct error *error)
{
	bool same = false;
	int rc = before ? is_of_the_same(epoch, before, &same) : 0;

	WEFT_ASSERT(!epoch->table);
	epoch->followed = rules->followed;
	WEFT_ASSERT_OP(epoch->count, ==, epoch->capacity);
	if (!rc && before)
		note_rows(epoch, before);
	if (!rc && same)
		share_plan(epoch, before);
	else if (!rc)
		rc = make_plan(epoch, before, rules, actions, error);
	if (!rc)
		rc = note_away(epoch);
	if (!rc)
		rc = check_hosts(epoch, rules, error);
	if (!rc)
		rc = epoch_pairs_check(epoch, rules, error);
	if (!rc)
		rc = order_sends(epoch->table, &epoch->sends, error);
	return rc ? rc : epoch_number_rows(epoch, rules);
}

int epoch_unwanted(const struct epoch *epoch, struct text *names, size_t *count)
{
	enum { SHOWN = 5 };
	uint32_t *tensors = NULL;
	int rc = problem_unwanted(epoch->problem, &tensors, count, NULL);

	if (rc)
		return rc;
	for (size_t i = 0; i < *count && i < SHOWN; i++)
		text_format(names, "%s%s", i ? ", " : "", epoch->problem->tensors[tensors[i]].name);
	if (*count > SHOWN)
		text_format(names, " and %zu more", *count - SHOWN);
	memory_free(tensors);
	return 0;
}
