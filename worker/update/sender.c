/* SPDX-License-Identifier: Apache-2.0
 *
 * sender.c -- the life of a trainer's side: locks as long as the worker, the rest as long as an epoch;
 * and its packing threads.
 */
#include "worker/update/send.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/numa.h"

#include <sched.h>
#include <signal.h>

#define THREADS_DEFAULT_MAX 4u

void sender_init(struct sender *sender, struct health *health, struct watch *watch)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&sender->life, NULL);
	pthread_mutex_init(&sender->lock, NULL);
	pthread_cond_init(&sender->changed, &attributes);
	pthread_cond_init(&sender->work, NULL);
	pthread_condattr_destroy(&attributes);
	sender->health = health;
	sender->watch = watch;
}

void sender_fini(struct sender *sender)
{
	pthread_mutex_destroy(&sender->life);
	pthread_mutex_destroy(&sender->lock);
	pthread_cond_destroy(&sender->changed);
	pthread_cond_destroy(&sender->work);
}

/* ---- threads ---- */

/* Beyond the caller's own. */
static uint32_t wanted_threads(uint32_t asked, const cpu_set_t *cpus)
{
	uint32_t count = (uint32_t)CPU_COUNT(cpus);

	if (asked)
		return asked - 1;
	count = count > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX : count;
	return count ? count - 1 : 0;
}

static void *pack_thread(void *context)
{
	struct sender *sender = context;
	struct task task;

	pthread_setname_np(pthread_self(), "weft-pack");
	log_as(sender->epoch->options.log_name);
	task_init(&task, NULL);
	pthread_mutex_lock(&sender->lock);
	executor_go(sender, &task);
	pthread_mutex_unlock(&sender->lock);
	return NULL;
}

static int start_threads(struct sender *sender, uint32_t asked, struct error *error)
{
	sigset_t all, before;
	uint32_t wanted;
	cpu_set_t cpus;
	int rc = 0;

	if (sched_getaffinity(0, sizeof(cpus), &cpus)) {
		CPU_ZERO(&cpus);
		CPU_SET(0, &cpus);
	}
	wanted = wanted_threads(asked, &cpus);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (sender->thread_count < wanted && !rc) {
		pthread_t *thread = &sender->threads[sender->thread_count];

		rc = pthread_create(thread, NULL, pack_thread, sender);
		if (!rc)
			sender->thread_count++;
		if (!rc && numa_cpus(NULL, sender->epoch->send.node, &cpus))
			pthread_setaffinity_np(*thread, sizeof(cpus), &cpus);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return error_set_errno(error, ERROR_LIMIT, rc,
				       "packing thread %u of %u; ask for fewer (pack_threads)",
				       sender->thread_count + 1, wanted);
	return 0;
}

static void stop_threads(struct sender *sender)
{
	if (!sender->thread_count)
		return;
	pthread_mutex_lock(&sender->lock);
	sender->stop = true;
	pthread_cond_broadcast(&sender->work);
	pthread_mutex_unlock(&sender->lock);
	for (uint32_t i = 0; i < sender->thread_count; i++)
		pthread_join(sender->threads[i], NULL);
	sender->thread_count = 0;
	sender->stop = false;
}

/* ---- an epoch ---- */

/* One an endpoint that may be used beside others, one for all others. */
static bool find_wires(struct sender *sender)
{
	const struct epoch *epoch = sender->epoch;
	uint32_t shared = UINT32_MAX;

	sender->wire_of = pool_array(&sender->pool, epoch->peer_count, sizeof(uint32_t));
	for (size_t p = 0; sender->wire_of && p < epoch->peer_count; p++) {
		bool parallel =
			transport_endpoint_caps(epoch->peers[p].endpoint)->endpoints_parallel;

		if (parallel || shared == UINT32_MAX)
			sender->wire_of[p] = sender->wires++;
		else
			sender->wire_of[p] = shared;
		if (!parallel)
			shared = sender->wire_of[p];
	}
	return shared == UINT32_MAX;
}

/* Where nothing is packed and one thread at a time may post, more threads only wait for the wire and
 * take a processor from who moves the bytes. */
static bool has_shares(const struct sender *sender)
{
	const struct send_plan *plan = &sender->epoch->send;
	bool packs = sender->wires > 1;

	for (size_t s = 0; s < plan->source_count && !packs; s++)
		packs = plan->sources[s].packs;
	return packs;
}

static int allocate(struct sender *sender, struct error *error)
{
	const struct send_plan *plan = &sender->epoch->send;
	size_t peers = sender->epoch->peer_count, names = peers + plan->tensor_count;
	struct pool *pool = &sender->pool;

	sender->names = pool_array(pool, names, sizeof(*sender->names));
	sender->paths = pool_array(pool, peers, sizeof(*sender->paths));
	sender->data = pool_array(pool, plan->tensor_count, sizeof(*sender->data));
	sender->seen = pool_array(pool, peers, sizeof(*sender->seen));
	sender->writes = pool_array(pool, peers, sizeof(*sender->writes));
	sender->unused = pool_array(pool, peers, sizeof(*sender->unused));
	if (plan->device)
		sender->ids = pool_array(pool, plan->tensor_count, sizeof(*sender->ids));
	if (plan->batch)
		sender->groups = pool_array(pool, peers, sizeof(*sender->groups));
	sender->wire = pool_array(pool, sender->wires, sizeof(*sender->wire));
	if (plan->sums && plan->batch)
		sender->device_sums = pool_array(pool, plan->block_count, sizeof(uint64_t));
	if (plan->sums) {
		sender->block_sums = pool_array(pool, plan->block_count, sizeof(uint64_t));
		sender->source_sums = pool_array(pool, plan->source_count, sizeof(uint64_t));
	}
	if (!pool_ok(pool))
		return memory_error(error, "preparing updates",
				    names * sizeof(*sender->names) +
					    plan->block_count * sizeof(uint64_t));
	for (uint32_t w = 0; w < sender->wires; w++)
		pthread_mutex_init(&sender->wire[w], NULL);
	for (size_t p = 0; p < peers; p++) {
		sender->names[p] = sender->epoch->peers[p].name;
		sender->seen[p] = sender->epoch->peers[p].heard;
		sender->paths[p] = transport_endpoint_path(sender->epoch->peers[p].endpoint);
	}
	for (size_t t = 0; t < plan->tensor_count; t++)
		sender->names[peers + t] = send_plan_name(sender->epoch, (uint32_t)t);
	return 0;
}

/* What a GPU packs in one go on its way to the host. */
static uint64_t staging(const struct send_plan *plan)
{
	uint64_t most = 0;

	for (size_t s = 0; s < plan->source_count && !plan->ring_on_device; s++) {
		const struct send_source *source = &plan->sources[s];
		uint64_t bytes = source->group_max * lane_staged(source->part_bytes);

		if (source->slots && bytes > most)
			most = bytes;
	}
	return most;
}

static bool deltas(const struct epoch *epoch)
{
	bool any = false;

	for (size_t p = 0; p < epoch->peer_count; p++)
		any = any || send_plan_deltas(&epoch->send, p);
	return any;
}

static int open_sent(struct sender *sender, struct error *error)
{
	int rc = sent_open(&sender->sent, &sender->epoch->send, error);

	if (!rc)
		log_info("%s: keeps the %llu bytes that it sent last, and sends what differs",
			 sender->epoch->options.name, (unsigned long long)sender->sent.bytes);
	return rc;
}

static int open_epoch(struct sender *sender, struct epoch *epoch, uint32_t threads,
		      struct error *error)
{
	struct schedule_options options = {
		.plan = &epoch->send,
		.full = epoch->options.full,
		.sums = epoch->send.sums != NULL,
		.drops = epoch->plan->continues,
		.begin_ns = (uint64_t)epoch->wait_ms * 1000000u,
	};
	int rc;

	sender->epoch = epoch_hold(epoch);
	options.wait_ns = executor_wait_ms(sender) * 1000000ull;
	sender->wires = 0;
	options.parallel = find_wires(sender);
	sender->shares = has_shares(sender);
	rc = allocate(sender, error);
	if (rc)
		return rc;
	options.peer_names = sender->names;
	options.peer_paths = sender->paths;
	options.tensor_names = sender->names + epoch->peer_count;
	if (epoch->send.ring_bytes)
		options.ring = transport_region_memory(epoch->send.replica_region);
	if (epoch->send.entries_region)
		options.entries = transport_region_memory(epoch->send.entries_region);
	if (deltas(epoch)) {
		rc = open_sent(sender, error);
		options.sent = &sender->sent;
	}
	if (!rc)
		rc = schedule_open(&sender->schedule, &options, error);
	sender->schedule.last_version = sender->begun;
	sender->schedule.repeat = epoch->plan->repeat;
	sender->schedule.whole_version = epoch->send.kept_version;
	for (size_t p = 0; !rc && p < epoch->peer_count; p++)
		sender->schedule.links[p].lacks = epoch->peers[p].plan->lacks;
	sender->schedule.counts = sender->counts;
	if (sender->health->control)
		sender->gone_heard = control_gone_before(sender->health->control);
	if (!rc && epoch->send.device && epoch->send.scheduled)
		rc = lanes_open(&sender->lanes, epoch->send.device, staging(&epoch->send), error);
	return rc ? rc : start_threads(sender, threads, error);
}

int sender_open(struct sender *sender, struct epoch *epoch, uint32_t threads, struct error *error)
{
	int rc;

	pthread_mutex_lock(&sender->life);
	rc = open_epoch(sender, epoch, threads, error);
	pthread_mutex_unlock(&sender->life);
	return rc;
}

/* What is counted from one epoch to the next. */
static void keep_figures(struct sender *sender)
{
	sender->begun = sender->schedule.last_version;
	sender->counts = sender->schedule.counts;
	if (sender->epoch->send.batch)
		sender->stats.launches += batch_launches(sender->epoch->send.batch);
	if (sender->lanes)
		sender->stats.launches += lanes_launches(sender->lanes);
	for (size_t p = 0; p < sender->epoch->peer_count; p++)
		peer_figures(&sender->epoch->peers[p], &sender->stats.writes,
			     &sender->stats.chunks);
}

static void close_epoch(struct sender *sender)
{
	if (sender->epoch)
		keep_figures(sender);
	for (uint32_t w = 0; sender->wire && w < sender->wires; w++)
		pthread_mutex_destroy(&sender->wire[w]);
	sender->wire = NULL;
	sender->wire_of = NULL;
	sender->block_sums = sender->device_sums = NULL;
	sender->ids = NULL;
	/* before anything is unpinned, released or unmapped that it may touch */
	if (sender->epoch && sender->epoch->options.device)
		device_quiet(sender->epoch->options.device);
	lanes_close(&sender->lanes);
	pool_free(&sender->pool);
	schedule_close(&sender->schedule);
	sent_close(&sender->sent);
	epoch_release(&sender->epoch);
}

uint64_t sender_whole(const struct sender *sender)
{
	return sender->schedule.state == UPDATE_CLOSED && !sender->schedule.failed
		       ? sender->schedule.whole_version
		       : 0;
}

void sender_close(struct sender *sender)
{
	stop_threads(sender);
	pthread_mutex_lock(&sender->life);
	close_epoch(sender);
	pthread_mutex_unlock(&sender->life);
}

/* ---- figures ---- */

uint64_t sender_open_version(const struct sender *sender)
{
	return sender->schedule.state == UPDATE_CLOSED ? 0 : sender->schedule.version;
}

const struct schedule_counts *sender_counts(const struct sender *sender)
{
	return sender->epoch ? &sender->schedule.counts : &sender->counts;
}

static void figures(struct sender *sender, weft_stats *stats)
{
	const struct schedule_counts *counts = sender_counts(sender);

	pthread_mutex_lock(&sender->lock);
	*stats = sender->stats;
	stats->bytes = counts->bytes;
	stats->pieces_direct = counts->pieces[PATH_DIRECT];
	stats->pieces_mapped = counts->pieces[PATH_MAPPED];
	stats->pieces_replica = counts->pieces[PATH_REPLICA];
	stats->pieces_landed = counts->pieces[PATH_LANDED];
	stats->packed_bytes = counts->packed_bytes;
	stats->parts_copacked = counts->copacked;
	stats->saved_bytes = counts->saved_bytes;
	if (sender->epoch && sender->epoch->send.batch)
		stats->launches += batch_launches(sender->epoch->send.batch);
	if (sender->lanes)
		stats->launches += lanes_launches(sender->lanes);
	pthread_mutex_unlock(&sender->lock);
	for (uint32_t p = 0; sender->epoch && p < sender->epoch->peer_count; p++) {
		pthread_mutex_t *wire = executor_wire(sender, p);

		pthread_mutex_lock(wire);
		peer_figures(&sender->epoch->peers[p], &stats->writes, &stats->chunks);
		pthread_mutex_unlock(wire);
	}
}

void sender_figures(struct sender *sender, weft_stats *stats)
{
	pthread_mutex_lock(&sender->life);
	figures(sender, stats);
	pthread_mutex_unlock(&sender->life);
}
