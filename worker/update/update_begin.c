/* SPDX-License-Identifier: Apache-2.0
 *
 * update_begin.c -- a trainer may write when every target accepts the version: it waits for that.
 */
#include "worker/update/update_words.h"
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/text.h"

#include <string.h>

#define MORE 1 /* of look */

/* Latest ACCEPT of the peer, if a new one came. */
static int read_accept(struct weft_worker *worker, struct peer *peer, struct error *error)
{
	const struct update_pair pair = {peer->name, worker->plan->digest, peer->accept.opening,
					 peer->theirs->copies};
	struct transport_signal signal;
	int rc;

	if (transport_signal_read(peer->endpoint, &signal) != 0 ||
	    signal.sequence == peer->seen_sequence)
		return 0;
	rc = update_read_accept(&signal, &pair, &peer->accept, error);
	if (!rc)
		peer->seen_sequence = signal.sequence;
	return rc;
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

/* One look without waiting: 0 when every target accepts, MORE when not yet. */
static int look(struct weft_worker *worker, const struct attempt *attempt, struct error *error)
{
	bool late = clock_ns() >= attempt->deadline_ns, all;
	int rc = worker_check(worker, error);

	if (!rc)
		rc = all_accept(worker, attempt->version, &all, error);
	if (rc || all)
		return rc;
	return late ? begin_timeout(worker, attempt->version, error) : MORE;
}

static int wait_accepted(struct weft_worker *worker, struct error *error)
{
	const struct attempt *attempt = &worker->attempt;
	uint64_t seen = 0;
	int rc;

	while ((rc = look(worker, attempt, error)) == MORE) {
		uint64_t slice = worker_deadline_ns(WAIT_SLICE_MS);

		seen = transport_signal_wait(worker->domain, seen,
					     slice < attempt->deadline_ns ? slice
									  : attempt->deadline_ns);
	}
	return rc;
}

/* The next update starts with nothing given, packed or known. */
static void reset(struct weft_worker *worker)
{
	struct trainer *trainer = &worker->trainer;

	trainer->unwritten = 0;
	for (size_t t = 0; t < worker->holding.tensor_count; t++) {
		trainer->given[t] = NULL;
		trainer->unwritten += trainer->tensor_first[t] != trainer->tensor_first[t + 1];
	}
	for (size_t i = 0; i < trainer->row_count; i++) {
		trainer->rows[i].taken = false;
		trainer->rows[i].open = 0;
	}
	for (size_t s = 0; s < trainer->source_count; s++)
		trainer->sources[s].parts_left = trainer->sources[s].parts;
	memset(trainer->blocks, BLOCK_WAITS, trainer->block_count);
	if (worker->full)
		full_settle(&trainer->full);
	else if (trainer->ring_region)
		replica_reset(&trainer->replica);
}

static int may_begin(struct weft_worker *worker, uint64_t version, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc;

	pthread_mutex_lock(&trainer->lock);
	rc = engine_check(worker, error);
	if (!rc && trainer->state != UPDATE_CLOSED)
		rc = error_set(error, ERROR_STATE,
			       "update %llu is still open; end or abort it "
			       "before update %llu",
			       (unsigned long long)trainer->version, (unsigned long long)version);
	pthread_mutex_unlock(&trainer->lock);
	if (!rc && version <= trainer->last_version)
		rc = error_set(error, ERROR_VERSION,
			       "update %llu: versions grow, and the last one "
			       "begun here was %llu",
			       (unsigned long long)version,
			       (unsigned long long)trainer->last_version);
	return rc;
}

/* Every target accepts, or rc says why it will not. */
static int finish_begin(struct weft_worker *worker, int rc)
{
	struct trainer *trainer = &worker->trainer;
	uint64_t begin = worker->attempt.begin_ns;

	attempt_end(worker);
	worker->unfinished = rc != 0;
	if (rc)
		return rc;
	for (size_t i = 0; i < worker->peer_count; i++)
		worker->peers[i].used_opening = worker->peers[i].accept.opening;
	pthread_mutex_lock(&trainer->lock);
	reset(worker);
	trainer->state = UPDATE_OPEN;
	trainer->version = trainer->last_version = worker->attempt.version;
	trainer->begin_ns = begin;
	worker->stats.wait_ns = clock_ns() - begin;
	worker->stats.copy_ns = 0;
	pthread_mutex_unlock(&trainer->lock);
	return 0;
}

int update_begin(struct weft_worker *worker, uint64_t version, struct error *error)
{
	int rc;

	attempt_begin(worker, version, worker->wait_ms);
	rc = may_begin(worker, version, error);
	if (!rc)
		rc = wait_accepted(worker, error);
	return finish_begin(worker, rc);
}

int update_try_begin(struct weft_worker *worker, uint64_t version, struct error *error)
{
	int rc;

	watch_drain(&worker->watch);
	if (!attempt_open(worker, version))
		attempt_begin(worker, version, worker->wait_ms);
	rc = may_begin(worker, version, error);
	if (!rc)
		rc = look(worker, &worker->attempt, error);
	if (rc != MORE)
		return finish_begin(worker, rc);
	worker->unfinished = true; /* who closes now has not done his work */
	return WEFT_AGAIN;
}
