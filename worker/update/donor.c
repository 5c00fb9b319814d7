/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/donor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "worker/api/weft.h"
#include "worker/update/copy_sums.h"
#include "worker/update/traced.h"
#include "worker/update/update_payload.h"

#include <stdio.h>

/* At once: between two of them the host's interrupt and the job's end are looked at, and a try returns. */
#define PART_BYTES    (8u << 20)
#define LAST_WORDS_MS 1000u

int donor_open(struct donor *donor, struct epoch *epoch, struct health *health,
	       struct versions *versions, struct watch *watch, struct error *error)
{
	size_t count = 0;

	for (size_t p = epoch->peer_count; p < epoch->all_count; p++)
		count += epoch->peers[p].plan->copy == COPY_TO;
	if (!count || !epoch->plan->copy)
		return 0;
	donor->epoch = epoch_hold(epoch);
	donor->health = health;
	donor->versions = versions;
	donor->watch = watch;
	donor->version = epoch->plan->copy;
	donor->donations = pool_array(&donor->pool, count, sizeof(*donor->donations));
	if (!pool_ok(&donor->pool))
		return memory_error(error, "preparing a copy for other engines",
				    count * sizeof(*donor->donations));
	for (size_t p = epoch->peer_count; p < epoch->all_count; p++) {
		struct peer *peer = &epoch->peers[p];

		if (peer->plan->copy != COPY_TO)
			continue;
		if (peer->theirs->place_count !=
		    peer->theirs->copies * epoch->options.params->count)
			return error_set(error, ERROR_MESSAGE,
					 "%s: %s has %zu places in %u copies for %zu parameters",
					 epoch->options.name, peer->name, peer->theirs->place_count,
					 peer->theirs->copies, epoch->options.params->count);
		donor->donations[donor->count++] =
			(struct donation){.peer = peer, .seen = peer->heard};
	}
	return 0;
}

void donor_close(struct donor *donor)
{
	pool_free(&donor->pool);
	epoch_release(&donor->epoch);
	*donor = (struct donor){.epoch = NULL};
}

/* What is mapped of its memory, too: whoever waits until nothing of this rank's can land there need not wait long. */
static void let_go(const struct donor *donor, struct donation *donation)
{
	donation->over = true;
	peer_let_go(donor->epoch, donation->peer);
}

void donor_let_go(struct donor *donor)
{
	for (size_t i = 0; i < donor->count; i++)
		if (!donor->donations[i].over)
			let_go(donor, &donor->donations[i]);
	donor->count = 0;
}

/* The newcomer goes on to trainers' next version. It is told where its endpoint is whole: all that was written is there then. */
static void give_up(const struct donor *donor, struct donation *donation, const char *why)
{
	struct update_abort abort = {.opening = donation->accept.opening,
				     .version = donor->version};
	struct peer *peer = donation->peer;
	struct error error;

	log_warn("%s: %s is not sent version %llu: %s", donor->epoch->options.name, peer->name,
		 (unsigned long long)donor->version, why);
	traced_copied(donor, donation, why);
	snprintf(abort.why, sizeof(abort.why), "%s", why);
	transport_signal(peer->endpoint, UPDATE_ABORT, &abort, sizeof(abort),
			 clock_deadline_ns(LAST_WORDS_MS), &error);
	let_go(donor, donation);
}

/* True: it has said where to. */
static bool hear(const struct donor *donor, struct donation *donation)
{
	struct peer *peer = donation->peer;
	const struct update_pair pair = {.name = peer->name,
					 .plan = donor->epoch->plan->digest,
					 .opening = donation->accept.opening,
					 .copies = peer->theirs->copies};
	struct transport_signal signal;
	struct error error;

	if (transport_signal_read(peer->endpoint, &signal) == 0 &&
	    signal.sequence != donation->seen) {
		donation->seen = signal.sequence;
		if (update_read_accept(&signal, &pair, &donation->accept, &error)) {
			give_up(donor, donation, error.text);
			return false;
		}
	}
	if (donation->accept.min_version > donor->version) {
		give_up(donor, donation, "it has no use for that one any more");
		return false;
	}
	return donation->accept.opening && donation->accept.max_version >= donor->version;
}

static int no_region(const struct peer *peer, uint32_t region, struct error *error)
{
	return error_set(error, ERROR_MESSAGE, "%s names its region %u, which it has not exported",
			 peer->name, region);
}

/* The next part of the next parameter, from the copy that is shown. */
static int write_part(const struct donor *donor, struct donation *donation, uint32_t copy,
		      struct error *error)
{
	const struct epoch *epoch = donor->epoch;
	const struct params *params = epoch->options.params;
	const struct peer *peer = donation->peer;
	size_t id = donation->param, count = params->count;
	const struct param_place *here = &params->places[copy * count + id];
	const struct param_place *there = &peer->theirs->places[donation->accept.copy * count + id];
	struct transport_remote *remote = peer_remote(peer, there->region);
	uint64_t all = epoch->options.layout->params[id].bytes, left = all - donation->at;
	uint64_t bytes = left < PART_BYTES ? left : PART_BYTES;
	int rc;

	if (!remote)
		return no_region(peer, there->region, error);
	mapper_map(remote, there->offset + donation->at, bytes);
	rc = transport_write(peer->endpoint, params_memory(params, copy, id) + donation->at,
			     params->regions[here->region], remote, there->offset + donation->at,
			     bytes, clock_deadline_ns(epoch->wait_ms), error);
	if (rc)
		return rc;
	donation->bytes += bytes;
	donation->at += bytes;
	if (donation->at == all) {
		donation->at = 0;
		donation->param++;
	}
	return 0;
}

/* Of what is shown, up to that parameter, once for all who are sent it. */
static int sum_to(struct donor *donor, uint32_t copy, size_t count, struct error *error)
{
	const struct epoch_options *options = &donor->epoch->options;
	struct beside *beside = options->beside;
	int rc = beside_want(beside, &beside->copied, options->domain,
			     options->params->count * sizeof(uint64_t), UINT64_MAX,
			     (uint32_t)options->params->region_count, NULL, error);

	if (rc)
		return rc;
	donor->sums = beside->copied.region;
	if (count <= donor->summed)
		return 0;
	rc = copy_sums(donor->epoch, copy, false, donor->summed, count - donor->summed,
		       transport_region_memory(donor->sums), error);
	if (!rc)
		donor->summed = count;
	return rc;
}

static int end(struct donor *donor, struct donation *donation, uint32_t copy, struct error *error)
{
	const struct peer *peer = donation->peer;
	const struct update_accept *accept = &donation->accept;
	uint64_t until = clock_deadline_ns(donor->epoch->wait_ms);
	size_t count = donor->epoch->options.params->count;
	struct update_end end = {.opening = accept->opening,
				 .version = donor->version,
				 .plan = donor->epoch->plan->digest,
				 .bytes = donation->bytes,
				 .pieces = (uint32_t)count};
	int rc = 0;

	if (accept->sums_region != UINT32_MAX) {
		struct transport_remote *remote = peer_remote(peer, accept->sums_region);

		end.sums = end.pieces;
		if (!remote)
			return no_region(peer, accept->sums_region, error);
		rc = sum_to(donor, copy, count, error);
		if (!rc)
			rc = transport_write(peer->endpoint, transport_region_memory(donor->sums),
					     donor->sums, remote, accept->sums_offset,
					     count * sizeof(uint64_t), until, error);
	}
	return rc ? rc
		  : transport_signal(peer->endpoint, UPDATE_END, &end, sizeof(end), until, error);
}

static void say_sent(const struct donor *donor, const struct donation *donation)
{
	char bytes[TEXT_SHORT_BYTES], took[TEXT_SHORT_BYTES];

	log_info("%s: %s was sent version %llu, %s in %s", donor->epoch->options.name,
		 donation->peer->name, (unsigned long long)donor->version,
		 bytes_text(donation->bytes, bytes),
		 seconds_text(clock_ns() - donation->began_ns, took));
}

/* Beside the bytes, so that no step takes long; a device has them in one launch. */
static int sum_so_far(struct donor *donor, const struct donation *donation, uint32_t copy,
		      struct error *error)
{
	if (donation->accept.sums_region == UINT32_MAX ||
	    params_on_device(donor->epoch->options.params))
		return 0;
	return sum_to(donor, copy, donation->param, error);
}

/* One step of one of them, which has said where to. */
static int send(struct donor *donor, struct donation *donation, struct error *error)
{
	int copy = versions_whole(donor->versions, donor->version), rc;

	if (!donation->began_ns)
		donation->began_ns = clock_ns();
	if (copy < 0) {
		give_up(donor, donation, "this rank does not hold that version any more");
		return 0;
	}
	if (donation->param < donor->epoch->options.params->count) {
		rc = write_part(donor, donation, (uint32_t)copy, error);
		return rc ? rc : sum_so_far(donor, donation, (uint32_t)copy, error);
	}
	rc = end(donor, donation, (uint32_t)copy, error);
	if (rc)
		return rc;
	say_sent(donor, donation);
	traced_copied(donor, donation, NULL);
	let_go(donor, donation);
	return 0;
}

/* An interrupt that cut nothing is the host's to take back; anything else ends this copy alone. */
static bool is_the_hosts(const struct donation *donation, const struct error *error)
{
	struct error why;
	uint64_t done;

	return error->code == ERROR_INTERRUPTED &&
	       !transport_progress(donation->peer->endpoint, &done, &why);
}

static bool is_gone(const struct donor *donor, const struct peer *peer)
{
	struct error why;

	return peer->gone || control_have_left(donor->health->control, peer->plan->member, 1) ||
	       peer_check_alive(peer, &why);
}

/* 1: something was done; 0: this one is waited for, or over. */
static int step(struct donor *donor, struct donation *donation, struct error *error)
{
	struct error why;
	int rc;

	if (donation->over)
		return 0;
	if (is_gone(donor, donation->peer)) {
		let_go(donor, donation);
		return 1;
	}
	if (clock_ns() >= donor->until_ns) {
		error_set(&why, ERROR_TIMEOUT,
			  "not within %u ms, three quarters of the update timeout",
			  donor->epoch->wait_ms / 4 * 3);
		give_up(donor, donation, why.text);
		return 1;
	}
	if (!hear(donor, donation))
		return donation->over;
	rc = send(donor, donation, &why);
	if (rc && is_the_hosts(donation, &why)) {
		*error = why;
		return rc;
	}
	if (rc)
		give_up(donor, donation, why.text);
	return 1;
}

/* 1: something was done; 0: all that is left is waited for. */
static int run_all(struct donor *donor, bool *left, struct error *error)
{
	int any = 0;

	*left = false;
	for (size_t i = 0; i < donor->count; i++) {
		int rc = step(donor, &donor->donations[i], error);

		if (rc < 0)
			return rc;
		any |= rc;
		*left = *left || !donor->donations[i].over;
	}
	return any;
}

/* There is more to do at once, or something to wait for. */
static int try_again(const struct donor *donor, bool at_once)
{
	if (at_once)
		watch_tell(donor->watch);
	else
		watch_deadline(donor->watch, donor->until_ns);
	return WEFT_AGAIN;
}

static int late(const struct donor *donor, struct error *error)
{
	size_t i = 0;

	while (i + 1 < donor->count && donor->donations[i].over)
		i++;
	return error_set(
		error, ERROR_TIMEOUT,
		"this rank sends version %llu to %s before it takes another one; raise the "
		"update timeout (--update-timeout) if this is expected",
		(unsigned long long)donor->version, donor->donations[i].peer->name);
}

int donor_run(struct donor *donor, uint32_t timeout_ms, bool block, struct error *error)
{
	bool left = donor->count != 0;
	uint64_t deadline;

	if (!left)
		return 0;
	activity_is(&donor->health->activity, ACTIVITY_WRITES, donor->version);
	deadline = clock_deadline_ns(timeout_ms ? timeout_ms : donor->epoch->wait_ms);
	if (!donor->until_ns)
		donor->until_ns = clock_deadline_ns(donor->epoch->wait_ms / 4 * 3);
	while (left) {
		int rc = health_check(donor->health, error);

		if (!rc)
			rc = run_all(donor, &left, error);
		if (rc < 0)
			return rc;
		if (left && !block)
			return try_again(donor, rc);
		if (left && clock_ns() >= deadline)
			return late(donor, error);
		if (left && !rc)
			donor->signals =
				transport_signal_wait(donor->epoch->options.domain, donor->signals,
						      clock_deadline_ns(WAIT_SLICE_MS));
	}
	donor->count = 0;
	return 0;
}
