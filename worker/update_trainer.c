/* SPDX-License-Identifier: Apache-2.0
 *
 * update_trainer.c -- the trainer's side of an update: begin, write, end, abort.
 */
#include "worker/worker.h"

#include "common/clock.h"
#include "common/copy.h"
#include "common/log.h"
#include "common/text.h"
#include "worker/replica/pack.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define SPINS_BEFORE_SLEEP 1000

/* ---- begin ---- */

/* Latest ACCEPT of the peer, if a new one came. */
static int read_accept(struct weft_worker *worker, struct peer *peer, struct error *error)
{
	struct transport_signal signal;
	struct update_accept accept;

	if (transport_signal_read(peer->endpoint, &signal) != 0 ||
	    signal.sequence == peer->seen_sequence)
		return 0;
	if (signal.word != UPDATE_ACCEPT || signal.length != sizeof(accept))
		return error_set(error, ERROR_MESSAGE,
				 "%s sent signal %u with %u bytes; a trainer "
				 "expects %u with %zu",
				 peer->name, signal.word, signal.length, UPDATE_ACCEPT,
				 sizeof(accept));
	memcpy(&accept, signal.payload, sizeof(accept));
	if (!digest_equal(accept.plan, worker->plan->digest))
		return error_set(error, ERROR_MESSAGE, "%s accepts updates of another plan",
				 peer->name);
	if (accept.copy >= peer->theirs->copies)
		return error_set(error, ERROR_MESSAGE, "%s opened copy %u of %u", peer->name,
				 accept.copy, peer->theirs->copies);
	peer->seen_sequence = signal.sequence;
	peer->accept = accept;
	return 0;
}

static bool accepts(const struct peer *peer, uint64_t version)
{
	return peer->accept.opening > peer->used_opening && version >= peer->accept.min_version &&
	       version <= peer->accept.max_version;
}

/* True when every target accepts; an error when one never will. */
static int all_accept(struct weft_worker *worker, uint64_t version, bool *all, struct error *error)
{
	*all = true;
	for (size_t i = 0; i < worker->peer_count; i++) {
		struct peer *peer = &worker->peers[i];
		int rc = read_accept(worker, peer, error);

		if (rc)
			return worker_fail(worker, error, version);
		if (accepts(peer, version))
			continue;
		*all = false;
		if (peer->accept.opening > peer->used_opening && peer->accept.min_version > version)
			return error_set(error, ERROR_VERSION,
					 "update %llu: %s accepts version %llu "
					 "and later only",
					 (unsigned long long)version, peer->name,
					 (unsigned long long)peer->accept.min_version);
		rc = peer_check_alive(peer, error);
		if (rc)
			return worker_fail(worker, error, version);
	}
	return 0;
}

static int begin_timeout(const struct weft_worker *worker, uint64_t version, struct error *error)
{
	struct text missing = {0};
	size_t count = 0;
	int rc;

	for (size_t i = 0; i < worker->peer_count; i++) {
		const struct peer *peer = &worker->peers[i];

		if (accepts(peer, version) || ++count > 4)
			continue;
		text_format(&missing, "%s%s", count > 1 ? ", " : "", peer->name);
		if (peer->accept.opening > peer->used_opening)
			text_format(&missing, ", which accepts version %llu instead",
				    (unsigned long long)peer->accept.max_version);
	}
	if (count > 4)
		text_format(&missing, " and %zu more", count - 4);
	rc = error_set(error, ERROR_TIMEOUT,
		       "update %llu: not accepted for %.1f s by %s; %zu of "
		       "%zu targets accept; raise the update timeout (--update-timeout) if this is "
		       "expected",
		       (unsigned long long)version, worker->wait_ms / 1000.0, text_string(&missing),
		       worker->peer_count - count, worker->peer_count);
	text_fini(&missing);
	return rc;
}

static int wait_accepted(struct weft_worker *worker, uint64_t version, struct error *error)
{
	uint64_t deadline = worker_deadline_ns(worker->wait_ms), seen = 0;
	bool late = false;

	for (;;) {
		uint64_t slice;
		bool all;
		int rc = worker_check(worker, error);

		if (!rc)
			rc = all_accept(worker, version, &all, error);
		if (rc || all)
			return rc;
		if (late)
			return begin_timeout(worker, version, error);
		slice = worker_deadline_ns(WAIT_SLICE_MS);
		seen = transport_signal_wait(worker->domain, seen,
					     slice < deadline ? slice : deadline);
		late = clock_ns() >= deadline;
	}
}

static int begin(struct weft_worker *worker, uint64_t version, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t now = clock_ns();
	int rc;

	if (trainer->open)
		return error_set(error, ERROR_STATE,
				 "update %llu is still open; end or abort it "
				 "before update %llu",
				 (unsigned long long)trainer->version, (unsigned long long)version);
	if (version <= trainer->last_version)
		return error_set(error, ERROR_VERSION,
				 "update %llu: versions grow, and the last one "
				 "begun here was %llu",
				 (unsigned long long)version,
				 (unsigned long long)trainer->last_version);
	rc = wait_accepted(worker, version, error);
	if (rc)
		return rc;
	for (size_t i = 0; i < worker->peer_count; i++)
		worker->peers[i].used_opening = worker->peers[i].accept.opening;
	trainer->unwritten = 0;
	for (size_t t = 0; t < worker->holding.tensor_count; t++) {
		trainer->written[t] = trainer->tensor_first[t] == trainer->tensor_first[t + 1];
		trainer->unwritten += !trainer->written[t];
	}
	if (trainer->ring_region)
		replica_reset(&trainer->replica);
	trainer->open = true;
	trainer->version = trainer->last_version = version;
	trainer->begin_ns = now;
	worker->stats.wait_ns = clock_ns() - now;
	worker->stats.copy_ns = 0;
	return 0;
}

static int check_call(struct weft_worker *worker, const char *call, struct error *error)
{
	int rc;

	if (!worker)
		return error_set(error, ERROR_USAGE, "%s: worker is NULL", call);
	rc = worker_check(worker, error);
	if (!rc)
		rc = worker_role(worker, ROLE_TRAINER, call, error);
	if (!rc)
		rc = worker_stage(worker, STAGE_JOINED, call, error);
	return rc;
}

int weft_update_begin(weft_worker *worker, uint64_t version, weft_error *error)
{
	struct error inner;
	int rc = check_call(worker, "weft_update_begin", &inner);

	if (!rc) {
		rc = begin(worker, version, &inner);
		worker->unfinished = rc != 0;
	}
	return worker_result(rc, &inner, error);
}

/* ---- write ---- */

static int post_write(struct weft_worker *worker, uint32_t p, const void *source,
		      const struct transport_region *region, const struct target *target,
		      uint64_t from, uint64_t bytes, struct error *error)
{
	struct peer *peer = &worker->peers[p];
	int rc = transport_write(peer->endpoint, source, region, target->remote,
				 target->offset + from, bytes, worker_deadline_ns(worker->wait_ms),
				 error);

	if (!rc)
		peer->writes++;
	return rc;
}

/* Waits until the writes that read the oldest slot completed, and frees it. */
static int retire_oldest(struct weft_worker *worker, struct error *error)
{
	struct replica *replica = &worker->trainer.replica;
	uint64_t deadline = worker_deadline_ns(worker->wait_ms), write, done;
	uint32_t cursor = 0, p;

	while (replica_oldest_use(replica, &cursor, &p, &write)) {
		struct peer *peer = &worker->peers[p];

		for (unsigned spins = 0;; spins++) {
			int rc = transport_progress(peer->endpoint, &done, error);

			if (!rc)
				rc = worker_check(worker, error);
			if (rc)
				return rc;
			if (done >= write)
				break;
			if (clock_ns() >= deadline)
				return error_set(error, ERROR_TIMEOUT,
						 "write %llu to %s is not "
						 "complete after %.1f s; %llu are",
						 (unsigned long long)write, peer->name,
						 worker->wait_ms / 1000.0,
						 (unsigned long long)done);
			if (spins >= SPINS_BEFORE_SLEEP)
				clock_sleep_ms(1);
			else if (spins % 16 == 15)
				sched_yield();
		}
	}
	replica_retire_oldest(replica);
	return 0;
}

static int write_replica(struct weft_worker *worker, const struct send_row *row,
			 const struct target *target, const void *data, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	const struct source *source = &trainer->sources[row->source];
	uint32_t block = source->first_block;

	for (uint64_t from = 0; from < source->bytes; from += trainer->block_bytes, block++) {
		uint64_t left = source->bytes - from;
		uint64_t bytes = left < trainer->block_bytes ? left : trainer->block_bytes;
		void *packed = replica_find(&trainer->replica, block);
		int rc = 0;

		if (!packed) {
			while (!(packed = replica_take(&trainer->replica, block, bytes)) && !rc)
				rc = retire_oldest(worker, error);
			if (rc)
				return rc;
			pack_range(packed, data, &source->pack.runs, from, bytes);
			copy_fence();
			worker->stats.packed_bytes += bytes;
		}
		rc = post_write(worker, row->peer, packed, trainer->ring_region, target, from,
				bytes, error);
		if (!rc)
			rc = replica_used(&trainer->replica, block, row->peer,
					  worker->peers[row->peer].writes, error);
		if (rc)
			return rc;
	}
	return 0;
}

/* Taken from the source, not from a packed copy: what goes wrong in between is then found at the
 * target. */
static uint64_t source_sum(const struct pack *pack, const void *data)
{
	struct digest_stream block, all;
	uint64_t sum = 0;

	checksum_begin(&all);
	for (uint64_t from = 0; from < pack->bytes; from += pack->block_bytes) {
		uint64_t left = pack->bytes - from;
		struct pack_part part = {
			.data = data,
			.from = from,
			.bytes = left < pack->block_bytes ? left : pack->block_bytes,
			.sum = &block,
		};

		checksum_begin(&block);
		pack_run(pack, &part);
		sum = checksum_end(&block);
		digest_add_u64(&all, sum);
	}
	return pack->bytes <= pack->block_bytes ? sum : checksum_end(&all);
}

static void take_sum(struct weft_worker *worker, const struct send_row *row, const void *data)
{
	struct trainer *trainer = &worker->trainer;
	struct source *source = &trainer->sources[row->source];

	if (source->sum_version != trainer->version) {
		source->sum = source_sum(&source->pack, data);
		source->sum_version = trainer->version;
	}
	trainer->sums[worker->peers[row->peer].sums_first + row->ordinal] = source->sum;
}

static int write_row(struct weft_worker *worker, const struct send_row *row, const void *data,
		     struct error *error)
{
	const struct source *source = &worker->trainer.sources[row->source];
	const struct target *target = &row->target[worker->peers[row->peer].accept.copy];
	const unsigned char *first = (const unsigned char *)data + source->pack.runs.offset;
	int rc = 0;

	switch (row->how) {
	case HOW_DIRECT:
		rc = post_write(worker, row->peer, first,
				sources_find(worker, first, source->bytes), target, 0,
				source->bytes, error);
		worker->stats.pieces_direct++;
		break;
	case HOW_MAPPED:
		pack_range((unsigned char *)transport_remote_pointer(target->remote) +
				   target->offset,
			   data, &source->pack.runs, 0, source->bytes);
		worker->stats.pieces_mapped++;
		break;
	case HOW_REPLICA:
		rc = write_replica(worker, row, target, data, error);
		worker->stats.pieces_replica++;
		break;
	case HOW_COUNT:
		break;
	}
	if (rc)
		return rc;
	if (worker->sums)
		take_sum(worker, row, data);
	worker->stats.bytes += source->bytes;
	return 0;
}

static int check_open(struct weft_worker *worker, const char *call, struct error *error)
{
	int rc = check_call(worker, call, error);

	if (!rc && !worker->trainer.open)
		rc = error_set(error, ERROR_STATE,
			       "%s: no update is open; call weft_update_begin "
			       "first",
			       call);
	return rc;
}

/* A transfer that failed broke its endpoint: the job cannot go on with it. */
static int write_failed(struct weft_worker *worker, struct error *error)
{
	error_wrap(error, "update %llu", (unsigned long long)worker->trainer.version);
	worker->trainer.open = false;
	return worker_fail(worker, error, worker->trainer.version);
}

/* The plan counts on what was registered before join, and nothing is copied behind its back. */
static int check_registered(const struct weft_worker *worker, uint32_t id, const void *data,
			    struct error *error)
{
	if (!worker->ranges.count || !worker->trainer.direct[id] ||
	    sources_find(worker, data, worker->held[id].bytes))
		return 0;
	return error_set(
		error, ERROR_USAGE,
		"update %llu: tensor %s (%llu bytes at %p) does not lie whole in one range "
		"of weft_source_register; register its memory before weft_join, or none",
		(unsigned long long)worker->trainer.version, worker->holding.tensors[id].name,
		(unsigned long long)worker->held[id].bytes, data);
}

static int write_tensor(struct weft_worker *worker, uint32_t id, const void *data, uint64_t bytes,
			struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t now = clock_ns();
	const char *name;
	int rc;

	if (id >= worker->holding.tensor_count)
		return error_set(error, ERROR_USAGE, "tensor %u; %zu are declared", id,
				 worker->holding.tensor_count);
	name = worker->holding.tensors[id].name;
	if (!data || bytes != worker->held[id].bytes)
		return error_set(error, ERROR_USAGE,
				 "update %llu: tensor %s has %llu bytes here, "
				 "given %llu%s",
				 (unsigned long long)trainer->version, name,
				 (unsigned long long)worker->held[id].bytes,
				 (unsigned long long)bytes, data ? "" : " at NULL");
	if (trainer->tensor_first[id] == trainer->tensor_first[id + 1])
		return 0; /* nobody wants it */
	if (trainer->written[id])
		return error_set(error, ERROR_USAGE, "update %llu: tensor %s is written twice",
				 (unsigned long long)trainer->version, name);
	rc = check_registered(worker, id, data, error);
	if (rc)
		return rc;
	for (uint32_t i = trainer->tensor_first[id]; i < trainer->tensor_first[id + 1]; i++) {
		rc = worker_check(worker, error);
		if (!rc)
			rc = write_row(worker, &trainer->rows[trainer->tensor_rows[i]], data,
				       error);
		if (rc)
			return write_failed(worker, error);
	}
	/* the host may end the update on another thread, whose fence would not order our stores */
	copy_fence();
	trainer->written[id] = true;
	trainer->unwritten--;
	worker->stats.copy_ns += clock_ns() - now;
	return 0;
}

int weft_update_write(weft_worker *worker, uint32_t id, const void *data, uint64_t bytes,
		      weft_error *error)
{
	struct error inner;
	int rc = check_open(worker, "weft_update_write", &inner);

	if (!rc)
		rc = write_tensor(worker, id, data, bytes, &inner);
	return worker_result(rc, &inner, error);
}

static int write_all(struct weft_worker *worker, const void *const *data, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t now = clock_ns();
	int rc;

	if (!data)
		return error_set(error, ERROR_USAGE, "weft_update_write_all: data is NULL");
	for (size_t t = 0; t < worker->holding.tensor_count; t++) {
		bool wanted = trainer->tensor_first[t] != trainer->tensor_first[t + 1];

		if (wanted && data[t] && trainer->written[t])
			return error_set(error, ERROR_USAGE,
					 "update %llu: tensor %s is written twice",
					 (unsigned long long)trainer->version,
					 worker->holding.tensors[t].name);
		if (wanted && !data[t] && !trainer->written[t])
			return error_set(error, ERROR_USAGE,
					 "update %llu: tensor %s is wanted by an "
					 "inference rank, but its data is NULL",
					 (unsigned long long)trainer->version,
					 worker->holding.tensors[t].name);
		rc = wanted && data[t] ? check_registered(worker, (uint32_t)t, data[t], error) : 0;
		if (rc)
			return rc;
	}
	for (size_t i = 0; i < trainer->row_count; i++) {
		uint32_t tensor = trainer->sources[trainer->rows[i].source].tensor;

		rc = worker_check(worker, error);
		if (!rc && data[tensor])
			rc = write_row(worker, &trainer->rows[i], data[tensor], error);
		if (rc)
			return write_failed(worker, error);
	}
	copy_fence(); /* as in write_tensor */
	for (size_t t = 0; t < worker->holding.tensor_count; t++)
		trainer->written[t] = true;
	trainer->unwritten = 0;
	worker->stats.copy_ns += clock_ns() - now;
	return 0;
}

int weft_update_write_all(weft_worker *worker, const void *const *data, weft_error *error)
{
	struct error inner;
	int rc = check_open(worker, "weft_update_write_all", &inner);

	if (!rc)
		rc = write_all(worker, data, &inner);
	return worker_result(rc, &inner, error);
}

/* ---- end ---- */

/* In slices, so that a lost job ends the wait; a flush that only ran out of its slice is not
 * an error yet, but a provider may break the endpoint at a deadline, so the slice is asked of
 * the counter and the flush is given the whole time. */
static int flush_peer(struct weft_worker *worker, struct peer *peer, uint64_t deadline_ns,
		      struct error *error)
{
	uint64_t done = 0;

	for (unsigned spins = 0; clock_ns() < deadline_ns; spins++) {
		int rc = worker_check(worker, error);

		if (!rc)
			rc = transport_progress(peer->endpoint, &done, error);
		if (!rc && done < peer->writes)
			rc = peer_check_alive(peer, error);
		if (rc)
			return rc;
		if (done >= peer->writes)
			break;
		if (spins >= SPINS_BEFORE_SLEEP)
			clock_sleep_ms(1);
		else
			sched_yield();
	}
	return transport_flush(peer->endpoint, deadline_ns, error);
}

static int send_sums(struct weft_worker *worker, struct peer *peer, struct error *error)
{
	const struct update_accept *accept = &peer->accept;
	struct target target = {.offset = accept->sums_offset};

	if (!worker->sums || !peer->plan->pieces)
		return 0;
	for (size_t r = 0; r < peer->theirs->region_count; r++)
		if (peer->theirs->regions[r].region == accept->sums_region)
			target.remote = peer->remotes[r];
	if (!target.remote)
		return error_set(error, ERROR_MESSAGE,
				 "%s wants checksums in region %u, which it "
				 "did not send",
				 peer->name, accept->sums_region);
	return post_write(worker, (uint32_t)(peer - worker->peers),
			  worker->trainer.sums + peer->sums_first, worker->trainer.sums_region,
			  &target, 0, peer->plan->pieces * sizeof(uint64_t), error);
}

static int signal_end(struct weft_worker *worker, struct peer *peer, uint64_t deadline_ns,
		      struct error *error)
{
	struct update_end end = {
		.opening = peer->used_opening,
		.version = worker->trainer.version,
		.plan = worker->plan->digest,
		.bytes = peer->plan->bytes,
		.pieces = peer->plan->pieces,
		.sums = worker->sums ? peer->plan->pieces : 0,
	};

	return transport_signal(peer->endpoint, UPDATE_END, &end, sizeof(end), deadline_ns, error);
}

/* Nobody is told before everything arrived everywhere: an endpoint that breaks here leaves all
 * targets on their last version, not some of them. */
static int finish_writes(struct weft_worker *worker, struct error *error)
{
	uint64_t deadline = worker_deadline_ns(worker->wait_ms);
	int rc = 0;

	copy_fence();
	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = send_sums(worker, &worker->peers[i], error);
	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = flush_peer(worker, &worker->peers[i], deadline, error);
	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = signal_end(worker, &worker->peers[i], deadline, error);
	return rc;
}

static int end(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc;

	for (size_t t = 0; t < worker->holding.tensor_count && trainer->unwritten; t++)
		if (!trainer->written[t])
			return error_set(error, ERROR_STATE,
					 "update %llu cannot end: tensor %s was "
					 "not written (%zu missing)",
					 (unsigned long long)trainer->version,
					 worker->holding.tensors[t].name, trainer->unwritten);
	rc = finish_writes(worker, error);
	if (rc)
		return write_failed(worker, error);
	trainer->open = false;
	worker->stats.updates++;
	worker->stats.update_ns = clock_ns() - trainer->begin_ns;
	control_version(worker->control, trainer->version);
	return 0;
}

int weft_update_end(weft_worker *worker, weft_error *error)
{
	struct error inner;
	int rc = check_open(worker, "weft_update_end", &inner);

	if (!rc)
		rc = end(worker, &inner);
	return worker_result(rc, &inner, error);
}

/* ---- abort ---- */

static int abort_update(struct weft_worker *worker, const char *why, struct error *error)
{
	uint64_t deadline = worker_deadline_ns(worker->wait_ms);
	struct update_abort gone = {.version = worker->trainer.version};
	int rc = 0;

	snprintf(gone.why, sizeof(gone.why), "%s", why && *why ? why : "no reason given");
	worker->trainer.open = false;
	worker->unfinished = true;
	copy_fence();
	/* what was posted must have landed before a target opens its memory again */
	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = flush_peer(worker, &worker->peers[i], deadline, error);
	for (size_t i = 0; i < worker->peer_count && !rc; i++) {
		gone.opening = worker->peers[i].used_opening;
		rc = transport_signal(worker->peers[i].endpoint, UPDATE_ABORT, &gone, sizeof(gone),
				      deadline, error);
	}
	return rc ? write_failed(worker, error) : 0;
}

int weft_update_abort(weft_worker *worker, const char *why, weft_error *error)
{
	struct error inner;
	int rc = check_open(worker, "weft_update_abort", &inner);

	if (!rc)
		rc = abort_update(worker, why, &inner);
	return worker_result(rc, &inner, error);
}
