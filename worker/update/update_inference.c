/* SPDX-License-Identifier: Apache-2.0
 *
 * update_inference.c -- the inference rank's side of an update: open, count, verify, publish.
 *
 *   wait(v): a permission to every trainer that holds none, the new range to those that do
 *       END of every trainer, checksums right, post-load hook 0 ──► published
 *       deadline ──► tainted; what was counted still counts for the next wait of v
 *       abort, two versions, checksum, hook ──► tainted; v is past, a later version recovers
 */
#include "worker/update/update_words.h"
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define MORE	  1 /* of look */
#define NAMED_MAX 4 /* missing trainers named in a sentence */

/* ---- opening ---- */

static int send_accept(struct weft_worker *worker, struct peer *peer, uint64_t deadline_ns,
		       struct error *error)
{
	const struct inference *inference = &worker->inference;
	struct update_accept accept = {
		.min_version = inference->min_version,
		.max_version = inference->max_version,
		.plan = worker->plan->digest,
		.sums_offset = peer->sums_first * sizeof(uint64_t),
		.sums_region = UINT32_MAX,
		.copy = inference->copy,
	};

	if (!peer->outstanding)
		peer->opening++;
	peer->outstanding = true;
	peer->ended = false;
	accept.opening = peer->opening;
	if (inference->sums_region)
		accept.sums_region = (uint32_t)inference->region_count - 1;
	return transport_signal(peer->endpoint, UPDATE_ACCEPT, &accept, sizeof(accept), deadline_ns,
				error);
}

static bool in_range(const struct inference *inference, uint64_t version)
{
	return version >= inference->min_version && version <= inference->max_version;
}

/* Trainers whose END for this very update came during a wait that timed out stay counted. */
static int open_memory(struct weft_worker *worker, uint64_t version, uint64_t deadline_ns,
		       struct error *error)
{
	struct inference *inference = &worker->inference;
	uint64_t last = atomic_load(&worker->versions.published);
	int rc = 0;

	if (inference->past > last)
		last = inference->past;
	inference->min_version = version ? version : last + 1;
	inference->max_version = version ? version : UINT64_MAX;
	inference->copy = versions_spare(&worker->versions);
	versions_open(&worker->versions, inference->copy);
	for (size_t i = 0; i < worker->peer_count && !rc; i++) {
		struct peer *peer = &worker->peers[i];

		if (!peer->ended || !in_range(inference, peer->end.version))
			rc = send_accept(worker, peer, deadline_ns, error);
	}
	return rc ? worker_fail(worker, error, version) : 0;
}

/* ---- counting ---- */

static int bad_signal(const struct peer *peer, const char *what, struct error *error)
{
	return error_set(error, ERROR_MESSAGE, "%s: %s", peer->name, what);
}

/* The signal that uses up the peer's permission, if it came: 1 and one of the two. */
static int read_signal(struct peer *peer, struct update_end *end, struct update_abort *gone,
		       enum update_word *word, struct error *error)
{
	const struct update_pair pair = {.name = peer->name,
					 .opening = peer->outstanding ? peer->opening : 0};
	struct transport_signal signal;
	int rc;

	if (transport_signal_read(peer->endpoint, &signal) != 0 ||
	    signal.sequence == peer->seen_sequence)
		return 0;
	peer->seen_sequence = signal.sequence;
	rc = update_read_use(&signal, &pair, word, end, gone, error);
	if (rc)
		return rc;
	peer->outstanding = false;
	return 1;
}

static int check_end(const struct weft_worker *worker, const struct peer *peer,
		     const struct update_end *end, struct error *error)
{
	if (!digest_equal(end->plan, worker->plan->digest))
		return bad_signal(peer, "it ended an update of another plan", error);
	if (end->bytes != peer->plan->bytes || end->pieces != peer->plan->pieces)
		return error_set(error, ERROR_MESSAGE,
				 "%s ended update %llu with %llu bytes in %u "
				 "pieces; the plan has %llu in %u",
				 peer->name, (unsigned long long)end->version,
				 (unsigned long long)end->bytes, end->pieces,
				 (unsigned long long)peer->plan->bytes, peer->plan->pieces);
	if (end->sums != (worker->sums ? peer->plan->pieces : 0))
		return error_set(error, ERROR_MESSAGE, "%s sent %u checksums for %u pieces",
				 peer->name, end->sums, worker->sums ? peer->plan->pieces : 0);
	if (end->version > worker->inference.max_version)
		return error_set(error, ERROR_VERSION,
				 "%s ended update %llu, but update %llu is waited "
				 "for",
				 peer->name, (unsigned long long)end->version,
				 (unsigned long long)worker->inference.max_version);
	for (size_t i = 0; i < worker->peer_count; i++) {
		const struct peer *other = &worker->peers[i];

		if (other->ended && other->end.version != end->version)
			return error_set(error, ERROR_VERSION,
					 "%s ended update %llu, but %s ended "
					 "update %llu; all trainers begin the same version",
					 peer->name, (unsigned long long)end->version, other->name,
					 (unsigned long long)other->end.version);
	}
	return 0;
}

static void note_past(struct inference *inference, uint64_t version)
{
	if (version > inference->past)
		inference->past = version;
}

static int count_peer(struct weft_worker *worker, struct peer *peer, uint64_t deadline_ns,
		      struct error *error)
{
	struct inference *inference = &worker->inference;
	struct update_abort gone = {0};
	struct update_end end = {0};
	enum update_word word;
	uint64_t version;
	int rc = read_signal(peer, &end, &gone, &word, error);

	if (rc <= 0)
		return rc;
	version = word == UPDATE_END ? end.version : gone.version;
	if (version < inference->min_version) {
		/* late, of an update that was given up here */
		rc = send_accept(worker, peer, deadline_ns, error);
		return rc ? worker_fail(worker, error, version) : 0;
	}
	if (word == UPDATE_ABORT) {
		note_past(inference, version);
		return error_set(error, ERROR_ABORTED, "update %llu was given up by %s: %s",
				 (unsigned long long)version, peer->name, gone.why);
	}
	rc = check_end(worker, peer, &end, error);
	peer->end = end;
	peer->ended = true; /* also when wrong: then its version is past */
	return rc;
}

static int count_all(struct weft_worker *worker, bool *all, uint64_t deadline_ns,
		     struct error *error)
{
	*all = true;
	for (size_t i = 0; i < worker->peer_count; i++) {
		int rc = count_peer(worker, &worker->peers[i], deadline_ns, error);

		if (rc)
			return rc;
		*all = *all && worker->peers[i].ended;
	}
	return 0;
}

/* A trainer that has ended its update may be gone: its bytes are here. */
static int check_missing(struct weft_worker *worker, uint64_t version, uint64_t deadline_ns,
			 struct error *error)
{
	for (size_t i = 0; i < worker->peer_count; i++) {
		struct peer *peer = &worker->peers[i];
		int rc;

		if (peer->ended || !peer_check_alive(peer, error))
			continue;
		/* its last signal may have come after we looked */
		rc = count_peer(worker, peer, deadline_ns, error);
		if (rc)
			return rc;
		if (!peer->ended) {
			peer_check_alive(peer, error);
			return worker_fail(worker, error, version);
		}
	}
	return 0;
}

static int wait_timeout(const struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
			struct error *error)
{
	struct text missing = {0}, update = {0};
	size_t count = 0;
	int rc;

	for (size_t i = 0; i < worker->peer_count; i++) {
		if (worker->peers[i].ended) {
			version = worker->peers[i].end.version;
			continue;
		}
		if (++count <= NAMED_MAX)
			text_format(&missing, "%s%s", count > 1 ? ", " : "", worker->peers[i].name);
	}
	if (count > NAMED_MAX)
		text_format(&missing, " and %zu more", count - NAMED_MAX);
	if (version)
		text_format(&update, "update %llu", (unsigned long long)version);
	else
		text_add(&update, "the next update");
	rc = error_set(error, ERROR_TIMEOUT,
		       "%s: no signal from %s for %.1f s; %zu of %zu "
		       "trainers done; raise the update timeout (--update-timeout) if this is "
		       "expected",
		       text_string(&update), text_string(&missing), timeout_ms / 1000.0,
		       worker->peer_count - count, worker->peer_count);
	text_fini(&missing);
	text_fini(&update);
	return rc;
}

/* One look without waiting: 0 when all is here, MORE when not yet. */
static int look(struct weft_worker *worker, const struct attempt *attempt, struct error *error)
{
	/* before the signals, so that what came in time is seen */
	bool late = clock_ns() >= attempt->deadline_ns, all;
	/* signals first: what is complete is published even when the job ends now */
	int rc = count_all(worker, &all, attempt->deadline_ns, error);

	if (rc || all)
		return rc;
	rc = worker_check(worker, error);
	if (!rc)
		rc = check_missing(worker, attempt->version, attempt->deadline_ns, error);
	if (!rc && late)
		rc = wait_timeout(worker, attempt->version, attempt->timeout_ms, error);
	return rc ? rc : MORE;
}

/* ---- verifying ---- */

static int verify_sums(struct weft_worker *worker, uint64_t version, struct error *error)
{
	const struct inference *inference = &worker->inference;
	size_t params = worker->layout.param_count, wrong = 0;

	for (size_t p = 0; p < worker->peer_count; p++) {
		const struct peer *peer = &worker->peers[p];

		for (uint32_t k = 0; k < peer->plan->pieces; k++) {
			const struct plan_row *row =
				&worker->plan
					 ->rows[inference->pair_rows[inference->pair_first[p] + k]];
			const unsigned char *here =
				inference->memory[inference->copy * params + row->param] +
				row->offset;
			uint64_t block = pack_block_bytes(
				&row->make, worker->layout.tensors[row->tensor].dtype,
				worker->layout.params[row->param].dtype, &row->src, row->bytes);
			uint64_t sum = pack_piece_sum(here, row->bytes, block);

			if (sum == inference->sums[peer->sums_first + k] || wrong++)
				continue;
			error_set(error, ERROR_CHECKSUM,
				  "update %llu: tensor %s from %s differs in "
				  "parameter %s, bytes %llu..%llu: checksum %016llx here, %016llx "
				  "sent",
				  (unsigned long long)version,
				  worker->layout.tensors[row->tensor].name, peer->name,
				  worker->layout.params[row->param].name,
				  (unsigned long long)row->offset,
				  (unsigned long long)(row->offset + row->bytes),
				  (unsigned long long)sum,
				  (unsigned long long)inference->sums[peer->sums_first + k]);
		}
	}
	if (wrong > 1 && error) {
		size_t n = strlen(error->text);

		snprintf(error->text + n, sizeof(error->text) - n, "; %zu pieces differ in all",
			 wrong);
	}
	return wrong ? -(int)ERROR_CHECKSUM : 0;
}

/* ---- the call ---- */

static int check_version(const struct weft_worker *worker, uint64_t version, bool *done,
			 struct error *error)
{
	uint64_t published = atomic_load(&worker->versions.published);

	*done = false;
	if (version == WEFT_VERSION_NEXT)
		return 0;
	if (version < published)
		return error_set(error, ERROR_VERSION,
				 "update %llu is older than %llu, which is "
				 "published",
				 (unsigned long long)version, (unsigned long long)published);
	if (version != published && version <= worker->inference.past)
		return error_set(error, ERROR_VERSION,
				 "update %llu cannot come any more: update %llu "
				 "failed here; wait for a later one",
				 (unsigned long long)version,
				 (unsigned long long)worker->inference.past);
	if (version != published)
		return 0;
	if (atomic_load(&worker->versions.tainted))
		return error_set(error, ERROR_VERSION,
				 "update %llu was published, but a later update "
				 "that failed has overwritten it; wait for a later one",
				 (unsigned long long)version);
	*done = true;
	return 0;
}

static uint64_t ended_version(const struct weft_worker *worker)
{
	/* a rank that no trainer writes to publishes what it is asked for */
	return worker->peer_count ? worker->peers[0].end.version : worker->inference.min_version;
}

/* After a deadline or an interrupt the update can still come; after anything else what was ended is
 * past. */
static void close_update(struct weft_worker *worker, int rc)
{
	bool may_come = rc == -(int)ERROR_TIMEOUT || rc == -(int)ERROR_INTERRUPTED;

	for (size_t i = 0; i < worker->peer_count && !may_come; i++) {
		if (worker->peers[i].ended)
			note_past(&worker->inference, worker->peers[i].end.version);
		worker->peers[i].ended = false;
	}
}

static int begin_wait(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
		      struct error *error)
{
	struct attempt *attempt = &worker->attempt;

	attempt_begin(worker, version, timeout_ms ? timeout_ms : worker->wait_ms);
	return open_memory(worker, version, attempt->deadline_ns, error);
}

/* Everything is here, or rc says why it will not be. */
static int finish_wait(struct weft_worker *worker, int rc, struct error *error)
{
	struct inference *inference = &worker->inference;
	uint64_t begin = worker->attempt.begin_ns, verify = clock_ns();

	attempt_end(worker);
	worker->stats.wait_ns = verify - begin;
	if (!rc && worker->sums)
		rc = verify_sums(worker, ended_version(worker), error);
	worker->stats.verify_ns = clock_ns() - verify;
	worker->stats.post_load_ns = 0;
	if (!rc)
		rc = post_load_run(worker, ended_version(worker), error);
	worker->unfinished = rc != 0;
	if (rc) {
		close_update(worker, rc);
		versions_fail(&worker->versions, inference->copy);
		return rc;
	}
	versions_publish(&worker->versions, inference->copy, ended_version(worker));
	for (size_t i = 0; i < worker->peer_count; i++)
		worker->peers[i].ended = false;
	worker->stats.updates++;
	for (size_t i = 0; i < worker->peer_count; i++)
		worker->stats.bytes += worker->peers[i].plan->bytes;
	worker->stats.update_ns = clock_ns() - begin;
	control_version(worker->control, atomic_load(&worker->versions.published));
	watch_tell(&worker->watch);
	return 0;
}

static int wait_published(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
			  struct error *error)
{
	struct inference *inference = &worker->inference;
	int rc = begin_wait(worker, version, timeout_ms, error);

	while (!rc && (rc = look(worker, &worker->attempt, error)) == MORE) {
		uint64_t slice = worker_deadline_ns(WAIT_SLICE_MS);
		uint64_t deadline = worker->attempt.deadline_ns;

		inference->signals_seen =
			transport_signal_wait(worker->domain, inference->signals_seen,
					      slice < deadline ? slice : deadline);
		rc = 0;
	}
	return finish_wait(worker, rc, error);
}

int update_wait(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
		uint64_t *published, struct error *error)
{
	bool done = false;
	int rc = check_version(worker, version, &done, error);

	if (!rc && !done)
		rc = wait_published(worker, version, timeout_ms, error);
	if (!rc && published)
		*published = atomic_load(&worker->versions.published);
	return rc;
}

/* What a wait does, but for the sleeping: its clock and its open memory last from try to try. */
static int try_published(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
			 struct error *error)
{
	int rc = attempt_open(worker, version) ? 0 : begin_wait(worker, version, timeout_ms, error);

	if (!rc)
		rc = look(worker, &worker->attempt, error);
	if (rc == MORE) {
		worker->unfinished = true; /* who closes now has not done his work */
		return WEFT_AGAIN;
	}
	return finish_wait(worker, rc, error);
}

int update_try_wait(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms,
		    uint64_t *published, struct error *error)
{
	bool done = false;
	int rc;

	watch_drain(&worker->watch);
	rc = check_version(worker, version, &done, error);
	if (!rc && !done)
		rc = try_published(worker, version, timeout_ms, error);
	if (!rc && published)
		*published = atomic_load(&worker->versions.published);
	return rc;
}
