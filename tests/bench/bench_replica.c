/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_replica: the memory that a trainer of a published run has beside its tensors, measured. One
 * JSON object a trainer:
 *   bench_replica [--ring-mib 1024] [WORD]
 * Only rows with WORD in their name, when given. Of each row, and of rows that quantise, two
 * trainers: the one with the most pieces, and the one that sends the most bytes.
 *
 *   planner (a child)      model, problem, table, send order ─► holding and plan, as messages
 *   trainer (a child)      weft_open, declare, the plan, epoch_resolve, 3 updates ─► peak
 *
 * The plan is the real one, with its order, its pieces and its peers; every piece goes through the
 * ring, as for tensors that do not stay. Not real are the tensors, which all lie in one mapping of
 * zeros, and the peers: what is posted to them completes later and lands nowhere. Endpoints and
 * registered memory cost what they cost over shm.
 *
 * Peak: VmHWM, cleared before weft_open, less VmRSS then. So it has the ring, the plan and its
 * message, the addresses of the peers' parameters, code that was not touched before and the stacks,
 * and this program's own copy of the declaration: more than a trainer of a real job has.
 * Exits with 1 when a peak is more than the ring and 64 MiB.
 */
#include "tests/unit/worker/host_memory.h"
#include "job/digest.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/model.h"
#include "routing/plan/order.h"
#include "routing/lab/scenario.h"
#include "routing/plan/table.h"
#include "transport/provider.h"
#include "worker/api/worker.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXTRA_BYTES_MAX (64ull << 20)
enum { UPDATES = 3, THREADS = 4, LAG_POSTS = 32, LAG_POLLS = 8, RANKS_MAX = 1024 };

struct row {
	const char *name, *model, *train, *infer;
};

/* Transformed pieces: the scales that are kept from the pass over their values count too. */
static const struct row transformed_rows[] = {
	{"Qwen3-30B-A3B, quantised", "Qwen3-30B-A3B", "world=16",
	 "engines=2,tp=4,ep=4,fp8=128x128"},
	{"Qwen3-235B, quantised", "Qwen3-235B-A22B", "world=64,pp=4",
	 "engines=2,tp=4,ep=4,fp8=128x128"},
	{"DeepSeek-V3, blocks of 64", "DeepSeek-V3", "world=64,pp=8",
	 "engines=2,tp=16,ep=16,fp8=64x64"},
};

/* ---- between the two children: a file of numbers, then messages ---- */

struct package {
	uint32_t trainer, peers, tensors;
	uint64_t rows, sent_bytes;
	uint64_t tensor_bytes; /* the largest */
	uint64_t holding_length, plan_length;
};

static void put(int fd, const void *bytes, size_t length)
{
	if (write(fd, bytes, length) != (ssize_t)length) {
		perror("bench_replica: write");
		_exit(2);
	}
}

static void get(int fd, void *bytes, size_t length)
{
	if (read(fd, bytes, length) != (ssize_t)length) {
		perror("bench_replica: read");
		_exit(2);
	}
}

static void check(int rc, const char *what, const struct error *error)
{
	if (!rc)
		return;
	fprintf(stderr, "bench_replica: %s: %s\n", what, error->text);
	_exit(2);
}

/* ---- planner ---- */

struct load {
	uint64_t pieces, bytes;
};

static uint32_t busiest(const struct load *loads, uint32_t trainers, bool by_bytes)
{
	uint32_t best = 0;

	for (uint32_t t = 1; t < trainers; t++)
		if (by_bytes ? loads[t].bytes > loads[best].bytes
			     : loads[t].pieces > loads[best].pieces)
			best = t;
	return best;
}

/* The trainer's own declaration, and the index in it of every tensor of the problem. */
static void make_holding(const struct problem *problem, uint32_t trainer, struct holding *holding,
			 uint32_t *index, uint64_t *bytes_max)
{
	const struct problem_holding *held = &problem->holdings[problem->trainer_holding[trainer]];
	struct error error;

	holding_init(holding);
	*bytes_max = 0;
	for (uint32_t t = 0; t < problem->tensor_count; t++) {
		const struct problem_tensor *tensor = &problem->tensors[t];
		struct box box = box_whole(tensor->dims, tensor->shape);
		uint64_t bytes;
		int64_t id;

		index[t] = UINT32_MAX;
		if (held->held_of[t] == held->held_of[t + 1])
			continue;
		box.lo[0] = held->held[held->held_of[t]].box.lo[0];
		box.hi[0] = held->held[held->held_of[t]].box.hi[0];
		id = holding_add_tensor(holding, tensor->name, tensor->dtype, tensor->dims,
					tensor->shape, t, &error);
		check(id < 0 ? (int)id : 0, "holding", &error);
		check(holding_add(holding, (uint32_t)id, &box, &error), "holding", &error);
		index[t] = (uint32_t)id;
		bytes = tensor->bytes / tensor->shape[0] * (box.hi[0] - box.lo[0]);
		*bytes_max = bytes > *bytes_max ? bytes : *bytes_max;
	}
	check(holding_finish(holding, &error), "holding", &error);
}

static uint32_t peer_of(struct message_plan *plan, uint32_t *peers, uint32_t inference)
{
	if (peers[inference] == UINT32_MAX) {
		peers[inference] = (uint32_t)plan->peer_count++;
		plan->peers[peers[inference]] = (struct plan_peer){
			.member = {ROLE_INFERENCE, inference}, .host = (char *)"host"};
	}
	return peers[inference];
}

static void add_route(const struct table *table, const struct route *route, const uint32_t *index,
		      uint32_t peer, struct message_plan *plan)
{
	const struct problem *problem = table->problem;

	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &table->pieces[route->piece_first + p];
		const struct problem_transformed *transformed =
			&problem->transformed[piece->transformed];

		plan->peers[peer].bytes += piece->bytes;
		plan->rows[plan->row_count++] = (struct plan_row){
			.peer = peer,
			.ordinal = plan->peers[peer].pieces++,
			.tensor = index[route->tensor],
			.param = piece->param,
			.path = piece->path,
			.src = piece->src,
			.offset = piece->offset,
			.bytes = piece->bytes,
			.transform = transformed->transform,
			.scales = transformed->transform.from_rows ? index[transformed->scales] : 0,
			.to = transformed->to,
		};
	}
}

static void put_package(int fd, const struct table *table, const struct send_order *sends,
			uint32_t trainer)
{
	const struct problem *problem = table->problem;
	struct package package = {.trainer = trainer};
	struct message holding = {.type = MESSAGE_HOLDING}, message = {.type = MESSAGE_PLAN};
	struct message_plan *plan = &message.u.plan;
	uint32_t *index = memory_zalloc(problem->tensor_count, sizeof(*index));
	uint32_t *peers = memory_alloc(problem->inference_count * sizeof(*peers));
	uint32_t params[RANKS_MAX];
	unsigned char *bytes, *holding_bytes;
	struct error error;
	size_t length;

	make_holding(problem, trainer, &holding.u.holding.holding, index, &package.tensor_bytes);
	holding.u.holding.digest = holding_digest(&holding.u.holding.holding);
	*plan = (struct message_plan){.attempt = 1,
				      .policy = (char *)table->policy,
				      .order = (char *)table->order,
				      .checksums = true};
	plan->peers = memory_zalloc(problem->inference_count, sizeof(*plan->peers));
	for (size_t k = sends->first[trainer]; k < sends->first[trainer + 1]; k++)
		package.rows += table->routes[sends->routes[k]].piece_count;
	plan->rows = memory_zalloc(package.rows, sizeof(*plan->rows));
	memset(peers, 0xff, problem->inference_count * sizeof(*peers));
	for (size_t k = sends->first[trainer]; k < sends->first[trainer + 1]; k++) {
		const struct route *route = &table->routes[sends->routes[k]];

		add_route(table, route, index, peer_of(plan, peers, route->inference), plan);
		package.sent_bytes += route->bytes;
	}
	package.peers = (uint32_t)plan->peer_count;
	package.tensors = (uint32_t)holding.u.holding.holding.tensor_count;
	check(message_encode(&holding, &holding_bytes, &length, &error), "encoding", &error);
	package.holding_length = length;
	check(message_encode(&message, &bytes, &length, &error), "encoding", &error);
	package.plan_length = length;
	for (size_t p = 0; p < plan->peer_count; p++) {
		uint32_t layout = problem->inference_layout[plan->peers[p].member.rank];

		params[p] = (uint32_t)problem->layouts[layout].layout->param_count;
	}
	put(fd, &package, sizeof(package));
	put(fd, params, plan->peer_count * sizeof(*params));
	put(fd, holding_bytes, package.holding_length);
	put(fd, bytes, package.plan_length);
}

static void plan_row(const struct row *row, int fd)
{
	struct plan_options options = {0};
	struct problem_storage *storage;
	struct train_spec train;
	struct infer_spec infer;
	struct problem *problem;
	struct send_order sends;
	struct table *table;
	struct model *model;
	struct load *loads;
	struct error error;
	uint32_t first;

	check(train_spec_parse(&train, row->train, &error), row->name, &error);
	check(infer_spec_parse(&infer, row->infer, &error), row->name, &error);
	check(model_open(&model, row->model, &error), row->name, &error);
	check(problem_from_model(&problem, &storage, model, &train, &infer, false, &error),
	      row->name, &error);
	/* no tensor stays: all goes through the ring */
	memset(problem->trainer_registered, 0, problem->trainer_count * sizeof(bool));
	check(table_plan(&table, problem, policy_find(POLICY_DEFAULT), &options, &error), row->name,
	      &error);
	check(order_sends(table, &sends, &error), row->name, &error);
	loads = memory_zalloc(problem->trainer_count, sizeof(*loads));
	for (size_t r = 0; r < table->route_count; r++) {
		loads[table->routes[r].trainer].pieces += table->routes[r].piece_count;
		loads[table->routes[r].trainer].bytes += table->routes[r].bytes;
	}
	first = busiest(loads, problem->trainer_count, false);
	put_package(fd, table, &sends, first);
	if (busiest(loads, problem->trainer_count, true) != first)
		put_package(fd, table, &sends, busiest(loads, problem->trainer_count, true));
}

/* ---- peers that are not there ---- */

struct sink {
	uint64_t first, next; /* posts that are not complete */
	uint32_t polls;	      /* since the last post */
};

static struct sink sinks[RANKS_MAX];
static uint32_t sink_count;
static uint64_t opening;
static struct digest plan_digest;

static int sink_open(struct transport_endpoint *endpoint, struct error *error)
{
	(void)error;
	endpoint->state = &sinks[sink_count++];
	return 0;
}

static int sink_record(const struct transport_endpoint *endpoint, struct record_writer *writer,
		       struct error *error)
{
	(void)endpoint;
	(void)writer;
	(void)error;
	return 0;
}

static uint32_t sink_credit(const struct transport_endpoint *endpoint, uint32_t rail)
{
	const struct sink *sink = endpoint->state;

	(void)rail;
	return LAG_POSTS - (uint32_t)(sink->next - sink->first);
}

static int sink_write(struct transport_endpoint *endpoint, uint32_t rail,
		      const struct provider_write *writes, uint32_t count, uint32_t *posted,
		      struct error *error)
{
	struct sink *sink = endpoint->state;

	(void)rail;
	(void)writes;
	(void)error;
	sink->next += count;
	sink->polls = 0;
	*posted = count;
	return 0;
}

static int sink_signal(struct transport_endpoint *endpoint, uint64_t id,
		       const struct transport_signal *signal, struct error *error)
{
	struct sink *sink = endpoint->state;

	(void)id;
	(void)signal;
	(void)error;
	sink->next++;
	return 0;
}

/* One at a time, when the window is full or somebody waits. */
static int sink_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
		     struct error *error)
{
	struct sink *sink = endpoint->state;

	(void)max;
	(void)error;
	if (sink->first == sink->next ||
	    (++sink->polls < LAG_POLLS && sink->next - sink->first < LAG_POSTS))
		return 0;
	out[0] = (struct provider_completion){.id = sink->first++};
	return 1;
}

static int sink_settle(struct transport_endpoint *endpoint, struct error *error)
{
	(void)endpoint;
	(void)error;
	return 0;
}

static int sink_read(const struct transport_endpoint *endpoint, struct transport_signal *signal)
{
	struct update_accept accept = {.opening = opening,
				       .min_version = opening,
				       .max_version = opening,
				       .plan = plan_digest};

	(void)endpoint;
	*signal = (struct transport_signal){
		.tag = UPDATE_ACCEPT, .length = sizeof(accept), .sequence = opening};
	memcpy(signal->payload, &accept, sizeof(accept));
	return 0;
}

static bool sink_dead(const struct transport_endpoint *endpoint)
{
	(void)endpoint;
	return false;
}

static void pour_into_sink(struct provider *ops)
{
	ops->endpoint_open = sink_open;
	ops->endpoint_record = sink_record;
	ops->credit = sink_credit;
	ops->post_write = sink_write;
	ops->post_signal = sink_signal;
	ops->poll = sink_poll;
	ops->settle = sink_settle;
	ops->signal_read = sink_read;
	ops->peer_dead = sink_dead;
}

/* ---- trainer ---- */

/* A line of /proc/self/status, in bytes. */
static uint64_t status_bytes(const char *field)
{
	char line[256];
	uint64_t kib = 0;
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, field, strlen(field)))
			kib = strtoull(line + strlen(field) + 1, NULL, 10);
	if (file)
		fclose(file);
	return kib * 1024;
}

static void clear_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "5", 1) != 1) {
		perror("bench_replica: /proc/self/clear_refs");
		_exit(2);
	}
	close(fd);
}

static void get_message(int fd, struct message *message, size_t length)
{
	unsigned char *bytes = memory_alloc(length);
	struct error error;

	get(fd, bytes, length);
	check(message_decode(message, bytes, length, &error), "decoding", &error);
	memory_free(bytes);
}

static struct weft_worker *open_worker(const struct package *package, uint64_t ring_bytes)
{
	weft_options options = {.size = sizeof(options),
				.controller = "tcp://127.0.0.1:1",
				.role = WEFT_TRAINER,
				.rank = package->trainer,
				.ring_bytes = ring_bytes,
				.pack_threads = THREADS,
				.checksums = 1};
	struct weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;

	if (weft_open(&worker, &options, &error)) {
		fprintf(stderr, "bench_replica: %s\n", error.text);
		_exit(2);
	}
	pour_into_sink(&worker->domain->ops);
	worker->domain->caps.gathers = false; /* as over a NIC */
	return worker;
}

static void declare(struct weft_worker *worker, const struct holding *holding)
{
	for (size_t h = 0; h < holding->held_count; h++) {
		const struct tensor_info *info = &holding->tensors[holding->held[h].tensor];
		weft_tensor tensor = {.size = sizeof(tensor),
				      .name = info->name,
				      .dtype = dtype_name(info->dtype),
				      .dims = info->dims};
		const struct box *box = &holding->held[h].box;
		weft_error error = WEFT_ERROR_INIT;

		memcpy(tensor.shape, info->shape, sizeof(tensor.shape));
		if (weft_declare_tensor(worker, &tensor, info->order, box->lo[0], box->hi[0], NULL,
					&error)) {
			fprintf(stderr, "bench_replica: %s\n", error.text);
			_exit(2);
		}
	}
}

/* What the third leg of the exchange tells: one region a peer, all parameters at its start. */
static void connect_sinks(struct weft_worker *worker, const uint32_t *params)
{
	for (size_t p = 0; p < worker->epoch->peer_count; p++) {
		struct peer *peer = &worker->epoch->peers[p];
		struct peer_endpoints *theirs = memory_zalloc(1, sizeof(*theirs));

		theirs->copies = 1;
		theirs->region_count = 1;
		theirs->regions = memory_zalloc(1, sizeof(*theirs->regions));
		theirs->place_count = params[p];
		theirs->places = memory_zalloc(params[p], sizeof(*theirs->places));
		peer->theirs = theirs;
		peer->imports = memory_zalloc(1, sizeof(*peer->imports));
		peer->imports->remote = memory_zalloc(1, sizeof(*peer->imports->remote));
		*peer->imports->remote = (struct transport_remote){.endpoint = peer->endpoint,
								   .bytes = UINT64_MAX / 2};
		peer->import_count = 1;
		peer->endpoint->stage = ENDPOINT_CONNECTED;
	}
}

static void update(struct weft_worker *worker, const void *memory, bool one_by_one)
{
	const struct holding *holding = &worker->holding;
	const void **data = memory_alloc(holding->tensor_count * sizeof(*data));
	weft_error error = WEFT_ERROR_INIT;
	int rc;

	opening++;
	rc = weft_update_begin(worker, opening, &error);
	for (uint32_t t = 0; t < holding->tensor_count; t++) {
		data[t] = memory;
		if (!rc && one_by_one)
			rc = weft_update_write(worker, t,
					       HOST(memory, worker->locals.items[t].bytes), &error);
	}
	if (!rc && !one_by_one)
		rc = host_write_all(worker, data, &error);
	if (!rc)
		rc = weft_update_end(worker, &error);
	memory_free(data);
	if (!rc)
		return;
	fprintf(stderr, "bench_replica: %s\n", error.text);
	_exit(2);
}

struct phases {
	uint64_t declared, planned, opened; /* VmRSS beyond the start */
	uint64_t ring, peak;
};

static int report(const struct row *row, const struct package *package, const struct phases *phases)
{
	uint64_t extra = phases->peak - phases->ring;
	struct json json;

	json_to_file(&json, stdout);
	json_put_object(&json);
	json_put_key_string(&json, "row", row->name);
	json_put_key_string(&json, "train", row->train);
	json_put_key_string(&json, "infer", row->infer);
	json_put_key_u64(&json, "trainer", package->trainer);
	json_put_key_u64(&json, "tensors", package->tensors);
	json_put_key_u64(&json, "targets", package->peers);
	json_put_key_u64(&json, "pieces", package->rows);
	json_put_key_u64(&json, "sent_bytes", package->sent_bytes);
	json_put_key_u64(&json, "plan_message_bytes", package->plan_length);
	json_put_key_u64(&json, "ring_bytes", phases->ring);
	json_put_key_u64(&json, "declared_bytes", phases->declared);
	json_put_key_u64(&json, "plan_bytes", phases->planned - phases->declared);
	json_put_key_u64(&json, "engine_bytes", phases->opened - phases->planned - phases->ring);
	json_put_key_u64(&json, "peak_extra_bytes", phases->peak);
	json_put_key_u64(&json, "beyond_ring_bytes", extra);
	json_put_object_end(&json);
	json_put_newline(&json);
	fflush(stdout);
	if (extra <= EXTRA_BYTES_MAX)
		return 0;
	fprintf(stderr, "bench_replica: %s: trainer %u has %llu bytes beyond its ring\n", row->name,
		package->trainer, (unsigned long long)extra);
	return 1;
}

static int run_trainer(const struct row *row, int fd, const struct package *package,
		       uint64_t ring_bytes)
{
	void *memory = mmap(NULL, package->tensor_bytes, PROT_READ,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct message holding = {0}, plan = {0};
	struct message_endpoints endpoints;
	uint32_t params[RANKS_MAX];
	struct weft_worker *worker;
	struct phases phases;
	struct error error;
	uint64_t before;

	if (memory == MAP_FAILED) {
		perror("bench_replica: mmap");
		return 2;
	}
	get(fd, params, package->peers * sizeof(*params));
	clear_peak();
	before = status_bytes("VmRSS:");
	worker = open_worker(package, ring_bytes);
	get_message(fd, &holding, package->holding_length);
	declare(worker, &holding.u.holding.holding);
	check(holding_finish(&worker->holding, &error), "holding", &error);
	phases.declared = status_bytes("VmRSS:") - before;
	get_message(fd, &plan, package->plan_length);
	plan_digest = plan.u.plan.digest;
	check(join_open(worker, &plan.u.plan, &endpoints, &error), "peers", &error);
	connect_sinks(worker, params);
	phases.planned = status_bytes("VmRSS:") - before;
	check(epoch_resolve(worker->epoch, &error), "send plan", &error);
	check(join_connected(worker, &error), "send plan", &error);
	worker->stage = STAGE_JOINED;
	phases.ring = worker->epoch->send.replica_region
			      ? transport_region_bytes(worker->epoch->send.replica_region)
			      : 0;
	phases.opened = status_bytes("VmRSS:") - before;
	for (int i = 0; i < UPDATES; i++)
		update(worker, memory, i == 0);
	phases.peak = status_bytes("VmHWM:") - before;
	return report(row, package, &phases);
}

/* ---- rows ---- */

static int wait_for(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child)
		return 2;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

static int measure(const struct row *row, uint64_t ring_bytes)
{
	int fd = memfd_create("plan", MFD_CLOEXEC), worst;
	struct package package;
	off_t at = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		plan_row(row, fd);
		_exit(0);
	}
	worst = wait_for(child);
	while (!worst && pread(fd, &package, sizeof(package), at) == sizeof(package)) {
		int rc;

		lseek(fd, at + (off_t)sizeof(package), SEEK_SET);
		child = fork();
		if (!child)
			_exit(run_trainer(row, fd, &package, ring_bytes));
		rc = wait_for(child);
		worst = rc > worst ? rc : worst;
		at += (off_t)(sizeof(package) + package.peers * sizeof(uint32_t) +
			      package.holding_length + package.plan_length);
	}
	close(fd);
	return worst;
}

int main(int argc, char **argv)
{
	uint64_t ring_mib = 1024;
	struct scenarios scenarios;
	struct error error;
	const char *word = "";
	int worst = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--ring-mib") && i + 1 < argc &&
		    parse_u64(argv[i + 1], &ring_mib)) {
			i++;
		} else if (argv[i][0] != '-') {
			word = argv[i];
		} else {
			fprintf(stderr, "usage: bench_replica [--ring-mib 1024] [WORD]\n");
			return 2;
		}
	}
	check(scenarios_published(&scenarios, &error), "published.json", &error);
	for (size_t i = 0;
	     i < scenarios.count + sizeof(transformed_rows) / sizeof(*transformed_rows); i++) {
		const struct scenario *scenario = i < scenarios.count ? &scenarios.items[i] : NULL;
		struct row row = scenario ? (struct row){scenario->name, scenario->model,
							 scenario->train, scenario->infer}
					  : transformed_rows[i - scenarios.count];
		int rc = strstr(row.name, word) ? measure(&row, ring_mib << 20) : 0;

		worst = rc > worst ? rc : worst;
	}
	scenarios_fini(&scenarios);
	return worst;
}
