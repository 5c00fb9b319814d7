/* SPDX-License-Identifier: Apache-2.0
 *
 * lone_trainer.h -- a trainer's update engine without a job around it: a real worker over shm, a
 * plan written by hand, and inference ranks that are plain memory here. No other process, no
 * controller and no thread but its own, so that "the k-th call fails" means the same each time.
 *
 *   w  [8, COLUMNS] BF16                ─► blocks of 4 x 4: values param 0, scales param 1
 *   v  [8, COLUMNS] F8, s its scales    ─► blocks of 4 x 4: values param 2, scales param 3
 *      in blocks of 2 x 2
 *   b  [64] F32                         ─► as it is: param 4
 *
 * Rank r is sent rows 4r .. 4r + 3, and b whole.
 */
#ifndef TESTS_UNIT_WORKER_LONE_TRAINER_H
#define TESTS_UNIT_WORKER_LONE_TRAINER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "transport/provider.h"
#include "tests/unit/worker/host_memory.h"
#include "worker/api/worker.h"

#include <stdlib.h>
#include <string.h>

enum { LONE_PEERS = 2, LONE_PARAMS = 5, LONE_PARAM_BYTES = 1024, LONE_COLUMNS = 128,
       LONE_TENSORS = 4, LONE_W = 0, LONE_V, LONE_S, LONE_B };

struct lone_options {
	const char *replica;
	uint32_t peers, threads;
	uint64_t ring_bytes;
};

struct lone_peer {
	unsigned char memory[(LONE_PARAMS + 1) * LONE_PARAM_BYTES]; /* the last: checksums */
	uint64_t first, next;            /* posts that are not complete */
	uint32_t polls;
	uint64_t ends;                   /* signals */
	struct peer_endpoints theirs;
	struct region_record region;
	struct param_place places[LONE_PARAMS];
};

struct lone {
	struct weft_worker *worker;
	struct message_plan plan;
	struct plan_peer plan_peers[LONE_PEERS];
	struct plan_row rows[LONE_PEERS * LONE_PARAMS];
	struct lone_peer peers[LONE_PEERS];
	uint32_t opened;
	uint64_t opening;
	uint64_t calls, fail_at;         /* of the transport; 0: none fails */
	unsigned char w[8 * LONE_COLUMNS * 2], v[8 * LONE_COLUMNS], b[256];
	float s[4 * LONE_COLUMNS / 2];
};

static struct lone *lone_now; /* one at a time: the table has no place for a context */
static const uint64_t lone_bytes[LONE_TENSORS] = {8 * LONE_COLUMNS * 2, 8 * LONE_COLUMNS,
						  4 * LONE_COLUMNS / 2 * 4, 256};

static const void *lone_data(const struct lone *lone, uint32_t tensor)
{
	const void *const data[LONE_TENSORS] = {lone->w, lone->v, lone->s, lone->b};

	return data[tensor];
}

/* ---- the transport ---- */

static int lone_call(const char *call, struct error *error)
{
	if (++lone_now->calls != lone_now->fail_at)
		return 0;
	return error_set(error, ERROR_IO, "injected fault: %s", call);
}

static int lone_endpoint_open(struct transport_endpoint *endpoint, struct error *error)
{
	if (lone_call("endpoint_open", error))
		return -ERROR_IO;
	endpoint->state = &lone_now->peers[lone_now->opened++];
	return 0;
}

static int lone_record(const struct transport_endpoint *endpoint, struct record_writer *writer,
		       struct error *error)
{
	(void)endpoint;
	(void)writer;
	return lone_call("endpoint_record", error);
}

static uint32_t lone_credit(const struct transport_endpoint *endpoint, uint32_t rail)
{
	const struct lone_peer *peer = endpoint->state;

	(void)rail;
	return 4 - (uint32_t)(peer->next - peer->first);
}

static int lone_write(struct transport_endpoint *endpoint, uint32_t rail,
		      const struct provider_write *writes, uint32_t count, uint32_t *posted,
		      struct error *error)
{
	struct lone_peer *peer = endpoint->state;

	(void)rail;
	if (lone_call("post_write", error))
		return -ERROR_IO;
	for (uint32_t i = 0; i < count; i++)
		memcpy(peer->memory + writes[i].offset, writes[i].source, writes[i].bytes);
	peer->next += count;
	peer->polls = 0;
	*posted = count;
	return 0;
}

static int lone_signal(struct transport_endpoint *endpoint, uint64_t id,
		       const struct transport_signal *signal, struct error *error)
{
	struct lone_peer *peer = endpoint->state;

	(void)id;
	if (lone_call("post_signal", error))
		return -ERROR_IO;
	peer->ends += signal->tag == UPDATE_END;
	peer->next++;
	return 0;
}

/* One at a time, when the window is full or somebody waits. */
static int lone_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
		     struct error *error)
{
	struct lone_peer *peer = endpoint->state;

	(void)max;
	if (lone_call("poll", error))
		return -ERROR_IO;
	if (peer->first == peer->next || (++peer->polls < 4 && peer->next - peer->first < 4))
		return 0;
	out[0] = (struct provider_completion){.id = peer->first++};
	return 1;
}

static int lone_settle(struct transport_endpoint *endpoint, struct error *error)
{
	(void)endpoint;
	return lone_call("settle", error);
}

static int lone_read(const struct transport_endpoint *endpoint, struct transport_signal *signal)
{
	struct update_accept accept = {.opening = lone_now->opening,
				       .min_version = lone_now->opening,
				       .max_version = lone_now->opening,
				       .sums_offset = LONE_PARAMS * LONE_PARAM_BYTES};

	(void)endpoint;
	*signal = (struct transport_signal){
		.tag = UPDATE_ACCEPT, .length = sizeof(accept), .sequence = lone_now->opening};
	memcpy(signal->payload, &accept, sizeof(accept));
	return 0;
}

static bool lone_dead(const struct transport_endpoint *endpoint)
{
	(void)endpoint;
	return false;
}

static void lone_nothing(struct transport_endpoint *endpoint)
{
	(void)endpoint;
}

static void lone_forget(struct transport_remote *remote)
{
	(void)remote;
}

static void lone_patch(struct provider *ops)
{
	ops->endpoint_open = lone_endpoint_open;
	ops->endpoint_record = lone_record;
	ops->endpoint_abort = lone_nothing;
	ops->endpoint_close = lone_nothing;
	ops->remote_close = lone_forget;
	ops->credit = lone_credit;
	ops->post_write = lone_write;
	ops->post_signal = lone_signal;
	ops->poll = lone_poll;
	ops->settle = lone_settle;
	ops->signal_read = lone_read;
	ops->peer_dead = lone_dead;
}

/* ---- the plan ---- */

static void lone_plan(struct lone *lone, const struct lone_options *options)
{
	const struct transform to[] = {{TRANSFORM_VALUES, 0, 0, 4, 4},
				       {TRANSFORM_SCALES, 0, 0, 4, 4},
				       {TRANSFORM_VALUES, 2, 2, 4, 4},
				       {TRANSFORM_SCALES, 2, 2, 4, 4}};

	lone->plan = (struct message_plan){.attempt = 1, .policy = (char *)"greedy",
					   .order = (char *)"table", .checksums = true,
					   .update_timeout_ms = 10000,
					   .peers = lone->plan_peers, .rows = lone->rows,
					   .peer_count = options->peers};
	for (uint32_t param = 0; param < LONE_PARAMS; param++)
		for (uint32_t p = 0; p < options->peers; p++) {
			struct plan_row *row = &lone->rows[lone->plan.row_count++];

			*row = (struct plan_row){
				.peer = p, .ordinal = param, .param = param, .path = PATH_REPLICA,
				.tensor = param < 2 ? LONE_W : param < 4 ? LONE_V : LONE_B,
				.scales = param == 2 || param == 3 ? LONE_S : 0};
			if (param < 4) {
				row->transform = to[param];
				row->to = param % 2 ? DTYPE_F32 : DTYPE_F8_E4M3;
				row->src = (struct box){2, {4 * p, 0}, {4 * p + 4, LONE_COLUMNS}};
				row->bytes = param % 2 ? LONE_COLUMNS / 4 * 4 : 4 * LONE_COLUMNS;
			} else {
				row->src = (struct box){1, {0}, {64}};
				row->bytes = 256;
			}
			lone->plan_peers[p].member = (struct member){ROLE_INFERENCE, p};
			lone->plan_peers[p].bytes += row->bytes;
			lone->plan_peers[p].pieces++;
		}
}

static int lone_connect(struct lone *lone, struct error *error)
{
	for (uint32_t p = 0; p < lone->plan.peer_count; p++) {
		struct lone_peer *to = &lone->peers[p];
		struct peer *peer = &lone->worker->epoch->peers[p];
		struct transport_remote *remote = memory_zalloc(1, sizeof(*remote));

		to->theirs = (struct peer_endpoints){.copies = 1, .regions = &to->region,
						     .region_count = 1, .places = to->places,
						     .place_count = LONE_PARAMS};
		for (uint32_t param = 0; param < LONE_PARAMS; param++)
			to->places[param].offset = (uint64_t)param * LONE_PARAM_BYTES;
		peer->theirs = &to->theirs;
		peer->imports = memory_zalloc(1, sizeof(*peer->imports));
		if (!peer->imports || !remote) {
			memory_free(remote);
			return memory_error(error, "connecting", sizeof(*remote));
		}
		*remote = (struct transport_remote){.endpoint = peer->endpoint,
						    .link = &peer->endpoint->remotes,
						    .bytes = sizeof(to->memory)};
		peer->endpoint->remotes = peer->imports[0].remote = remote;
		peer->import_count = 1;
		peer->endpoint->stage = ENDPOINT_CONNECTED;
	}
	return 0;
}

static int lone_declare(struct lone *lone, struct error *error)
{
	static const weft_tensor tensors[LONE_TENSORS] = {
		{sizeof(weft_tensor), "w", "BF16", 2, {8, LONE_COLUMNS}}, {sizeof(weft_tensor), "v", "F8_E4M3", 2, {8, LONE_COLUMNS}},
		{sizeof(weft_tensor), "s", "F32", 2, {4, LONE_COLUMNS / 2}}, {sizeof(weft_tensor), "b", "F32", 1, {64}}};

	for (uint32_t t = 0; t < LONE_TENSORS; t++) {
		weft_error why = WEFT_ERROR_INIT;

		if (weft_declare_tensor(lone->worker, &tensors[t], t, 0, tensors[t].shape[0], NULL,
					&why))
			return error_set(error, (enum error_code)why.code, "%s", why.text);
	}
	return 0;
}

/* As weft_join does it. Whatever it returns, lone_close. */
static int lone_open(struct lone *lone, const struct lone_options *options, struct error *error)
{
	weft_options open = {.size = sizeof(open), .role = WEFT_TRAINER, .controller = "tcp://127.0.0.1:9",
			     .replica = options->replica, .ring_bytes = options->ring_bytes,
			     .pack_threads = options->threads, .checksums = 1,
			     .join_timeout_ms = 1 /* nobody is there to be told of a failure */};
	struct message_endpoints endpoints = {0};
	weft_error why = WEFT_ERROR_INIT;
	int rc;

	lone_now = lone;
	lone_plan(lone, options);
	if (weft_open(&lone->worker, &open, &why))
		return error_set(error, (enum error_code)why.code, "%s", why.text);
	lone_patch(&lone->worker->domain->ops);
	lone->worker->domain->caps.endpoints_parallel = false; /* calls are counted without a lock */
	rc = lone_declare(lone, error);
	if (!rc)
		rc = join_open(lone->worker, &lone->plan, &endpoints, error);
	if (!rc) {
		endpoints_fini(&endpoints);
		rc = lone_connect(lone, error);
	}
	if (!rc)
		rc = epoch_resolve(lone->worker->epoch, error);
	if (!rc)
		rc = join_connected(lone->worker, error);
	if (!rc)
		lone->worker->stage = STAGE_JOINED;
	return rc;
}

static void lone_close(struct lone *lone)
{
	if (lone->worker && lone->worker->stage == STAGE_JOINED)
		lone->worker->stage = STAGE_LEFT; /* there is no controller to tell */
	if (lone->worker)
		lone->worker->is_unhandled = false; /* nor of a failure, which would take 2 s */
	weft_close(&lone->worker);
}

/* ---- contents ---- */

static inline void lone_fill(struct lone *lone, uint64_t version)
{
	uint64_t x = version * 0x9e3779b97f4a7c15u;

	for (size_t i = 0; i < sizeof(lone->w); i += 2) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		lone->w[i] = (unsigned char)(x >> 33);
		lone->w[i + 1] = (unsigned char)(0x3c + (x >> 60)); /* about 0.01 to 1000 */
	}
	for (size_t i = 0; i < sizeof(lone->v); i++)
		lone->v[i] = (unsigned char)((i * 37 + version * 11) % 126);
	for (size_t i = 0; i < sizeof(lone->s) / 4; i++)
		lone->s[i] = (float)(i % 19 + version) / 16;
	for (size_t i = 0; i < sizeof(lone->b); i++)
		lone->b[i] = (unsigned char)(i * 7 + version);
}

/* What pack.h makes of one row in one go; its own tests compare that with a reference. */
static inline void lone_expect(const struct lone *lone, const struct plan_row *row, void *bytes)
{
	const struct local *held = lone->worker->locals.items;
	const struct tensor_info *tensor = &lone->worker->holding.tensors[row->tensor];
	struct pack_source from = {.from = tensor->dtype,
				   .to = row->to == DTYPE_NONE ? tensor->dtype : row->to,
				   .dims = tensor->dims, .src = row->src,
				   .held_hi = held[row->tensor].hi,
				   .scales_hi = held[row->scales].hi, .transform = row->transform};
	struct pack_part part = {.data = lone_data(lone, row->tensor),
				 .scales = lone_data(lone, row->scales), .bytes = row->bytes,
				 .targets = &bytes, .target_count = 1};
	struct error error;
	struct pack pack;

	memcpy(from.shape, tensor->shape, sizeof(from.shape));
	if (!row->transform.from_rows)
		part.scales = NULL;
	assert_int_equal(pack_init(&pack, &from, &error), 0);
	assert_int_equal(pack.bytes, row->bytes);
	pack_run(&pack, &part);
}

/* Every byte, and every checksum, of a rank. */
static inline void lone_check(const struct lone *lone, uint32_t p)
{
	const unsigned char *memory = lone->peers[p].memory;

	for (size_t i = 0; i < lone->plan.row_count; i++) {
		const struct plan_row *row = &lone->rows[i];
		unsigned char bytes[LONE_PARAM_BYTES];
		uint64_t sum;

		if (row->peer != p)
			continue;
		lone_expect(lone, row, bytes);
		assert_memory_equal(memory + row->param * LONE_PARAM_BYTES, bytes, row->bytes);
		memcpy(&sum, memory + LONE_PARAMS * LONE_PARAM_BYTES + 8 * row->ordinal, 8);
		assert_int_equal(sum, pack_piece_sum(bytes, row->bytes, LONE_PARAM_BYTES));
	}
}

#endif
