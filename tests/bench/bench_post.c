/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_post: requests a thread can bring through transport_write and back, with a device that
 * takes everything and completes it at once. What is measured is our own path: cutting, credit,
 * requests, rings, completions. One JSON object for each way of posting:
 *   bench_post [REQUESTS]          default 20,000,000; chunks of 4 KiB
 */
#include "base/clock.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "transport/verbs/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CHUNK = 4096, CHUNKS_A_WRITE = 64, DEPTH = 128, LANES = 2 };

/* ---- the device: signalled requests complete at once, in order ---- */

static struct ibv_wc completed[4 * DEPTH];
static uint32_t completed_count;
static uint64_t requests_taken;
static uint32_t qpn_of[LANES] = {0x11, 0x12};

static void complete(uint64_t wr_id, unsigned flags)
{
	requests_taken++;
	if (flags & IBV_SEND_SIGNALED)
		completed[completed_count++] =
			(struct ibv_wc){.wr_id = wr_id, .qp_num = qpn_of[wr_id >> 56]};
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp, (void)bad;
	for (; wr; wr = wr->next)
		complete(wr->wr_id, wr->send_flags);
	return 0;
}

static void fake_wr_start(struct ibv_qp_ex *qp)
{
	(void)qp;
}

static void fake_wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	(void)rkey, (void)address;
	complete(qp->wr_id, qp->wr_flags);
}

static void fake_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t bytes)
{
	(void)qp, (void)lkey, (void)address, (void)bytes;
}

static int fake_wr_complete(struct ibv_qp_ex *qp)
{
	(void)qp;
	return 0;
}

static int fake_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *done)
{
	int n = completed_count < (uint32_t)max ? (int)completed_count : max;

	(void)cq;
	memcpy(done, completed, (size_t)n * sizeof(*done));
	completed_count -= (uint32_t)n;
	memmove(completed, completed + n, completed_count * sizeof(*done));
	return n;
}

static int fake_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context, (void)event;
	return -1;
}

static const struct verbs_calls calls = {
	.post_send = fake_post_send,
	.wr_start = fake_wr_start,
	.wr_rdma_write = fake_wr_rdma_write,
	.wr_set_sge = fake_wr_set_sge,
	.wr_complete = fake_wr_complete,
	.poll_cq = fake_poll_cq,
	.get_async_event = fake_get_async_event,
};

/* ---- a connected endpoint, put together by hand ---- */

struct rig {
	struct verbs_domain domain;
	struct verbs_endpoint endpoint;
	struct transport_domain shared_domain;
	struct transport_endpoint shared;
	struct verbs_region region_state;
	struct verbs_region_record remote_state;
	struct transport_region region;
	struct transport_remote remote;
	struct ibv_mr mr, *mrs[1];
	struct ibv_qp qp;
	struct ibv_qp_ex qp_ex;
	struct verbs_entry rings[LANES][DEPTH];
	unsigned char source[CHUNK * CHUNKS_A_WRITE];
};

static bool never_dead(const struct transport_endpoint *endpoint)
{
	(void)endpoint;
	return false;
}

static void rig_lanes(struct rig *rig, bool new_post)
{
	rig->endpoint.lane_count = LANES;
	for (uint32_t i = 0; i < LANES; i++)
		rig->endpoint.lanes[i] = (struct verbs_lane){
			.endpoint = &rig->endpoint,
			.nic = &rig->domain.nics[0],
			.index = i,
			.wire_index = i,
			.state = VERBS_LANE_READY,
			.qp = &rig->qp,
			.qp_ex = new_post ? &rig->qp_ex : NULL,
			.local = {.qpn = qpn_of[i]},
			.ring = rig->rings[i],
			.depth = DEPTH,
		};
}

static int rig_init(struct rig *rig, bool new_post, struct error *error)
{
	rig->domain.calls = &calls;
	rig->domain.nic_count = 1;
	rig->domain.lane_count = LANES;
	rig->domain.settings.depth = DEPTH;
	rig->domain.nics[0].domain = &rig->domain;
	rig->endpoint.domain = &rig->domain;
	rig->endpoint.shared = &rig->shared;
	rig->endpoint.send_cqs[0] = (struct ibv_cq *)(void *)rig; /* only has to be there */
	rig_lanes(rig, new_post);
	rig->shared_domain.ops = (struct provider){.name = "verbs",
						   .credit = verbs_credit,
						   .post_write = verbs_post_write,
						   .poll = verbs_poll,
						   .peer_dead = never_dead};
	provider_complete(&rig->shared_domain.ops);
	rig->shared_domain.caps = (struct transport_caps){
		.inflight_max = LANES * DEPTH, .rails = LANES, .local_registration = true};
	rig->shared_domain.chunk_bytes = CHUNK;
	rig->shared.domain = &rig->shared_domain;
	rig->shared.state = &rig->endpoint;
	rig->shared.stage = ENDPOINT_CONNECTED;
	rig->mrs[0] = &rig->mr;
	rig->region_state = (struct verbs_region){
		.piece_bytes = sizeof(rig->source), .piece_count = 1, .mrs = rig->mrs};
	rig->region = (struct transport_region){.domain = &rig->shared_domain,
						.state = &rig->region_state,
						.memory = rig->source,
						.bytes = sizeof(rig->source)};
	rig->remote_state = (struct verbs_region_record){
		.piece_bytes = sizeof(rig->source), .piece_count = 1, .nic_count = 1};
	rig->remote = (struct transport_remote){.endpoint = &rig->shared,
						.state = &rig->remote_state,
						.bytes = sizeof(rig->source)};
	return flow_init(&rig->shared.flow, LANES * DEPTH, error);
}

static int write_all(struct rig *rig, uint64_t requests, struct error *error)
{
	uint64_t deadline = clock_ns() + UINT64_C(600000000000);
	int rc = 0;

	for (uint64_t n = 0; n < requests && !rc; n += CHUNKS_A_WRITE)
		rc = transport_write(&rig->shared, rig->source, &rig->region, &rig->remote, 0,
				     sizeof(rig->source), deadline, error);
	return rc ? rc : transport_flush(&rig->shared, deadline, error);
}

/* Of this thread: other processes on the same cores do not count. */
static uint64_t cpu_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void tell(const char *posting, uint64_t requests, uint64_t wall_ns, uint64_t thread_ns,
		 uint64_t allocations)
{
	struct json json;

	json_to_file(&json, stdout);
	json_put_object(&json);
	json_put_key_string(&json, "name", "post");
	json_put_key_string(&json, "posting", posting);
	json_put_key_u64(&json, "chunk_bytes", CHUNK);
	json_put_key_u64(&json, "requests", requests);
	json_put_key_double(&json, "requests_per_second", (double)requests * 1e9 / (double)wall_ns);
	json_put_key_double(&json, "requests_per_cpu_second",
			    (double)requests * 1e9 / (double)thread_ns);
	json_put_key_u64(&json, "allocations", allocations);
	json_put_object_end(&json);
	json_put_newline(&json);
	fflush(stdout);
}

/* Not 0 when a write failed, a request is missing, or the path allocated. */
static int measure(const char *posting, bool new_post, uint64_t requests)
{
	struct rig *rig = memory_zalloc(1, sizeof(*rig));
	struct error error = {0};
	uint64_t began, began_cpu, wall, cpu, allocated;
	int rc;

	if (!rig || rig_init(rig, new_post, &error))
		return 1;
	requests_taken = completed_count = 0;
	allocated = memory_count();
	began = clock_ns();
	began_cpu = cpu_ns();
	rc = write_all(rig, requests, &error);
	cpu = cpu_ns() - began_cpu;
	wall = clock_ns() - began;
	allocated = memory_count() - allocated;
	if (rc)
		fprintf(stderr, "bench_post: %s\n", error.text);
	else
		tell(posting, requests_taken, wall, cpu, allocated);
	flow_fini(&rig->shared.flow);
	memory_free(rig);
	return rc || allocated || requests_taken < requests;
}

int main(int argc, char **argv)
{
	uint64_t requests = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000000;

	return measure("ibv_wr", true, requests) | measure("ibv_post_send", false, requests);
}
