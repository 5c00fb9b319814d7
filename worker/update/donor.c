/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/donor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "pack/pack.h"
#include "worker/api/weft.h"
#include "worker/update/update_payload.h"

#include <string.h>

/* At once: between two of them the host's interrupt and the job's end are looked at, and a try returns. */
#define PART_BYTES (32u << 20)

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
	for (size_t p = epoch->peer_count; p < epoch->all_count; p++)
		if (epoch->peers[p].plan->copy == COPY_TO)
			donor->donations[donor->count++].peer = &epoch->peers[p];
	return 0;
}

void donor_close(struct donor *donor)
{
	transport_region_close(&donor->sums);
	pool_free(&donor->pool);
	epoch_release(&donor->epoch);
	*donor = (struct donor){.epoch = NULL};
}

/* It is gone on without; the controller may know it already. */
static void drop(const struct donor *donor, struct donation *donation, const struct error *why)
{
	struct peer *peer = donation->peer;

	donation->over = true;
	if (peer->gone)
		return;
	peer->gone = true;
	log_warn("%s: %s is not sent version %llu: %s", donor->epoch->options.name, peer->name,
		 (unsigned long long)donor->version, why->text);
	if (donor->health->control)
		control_drop(donor->health->control, peer->plan->member, why,
			     versions_published(donor->versions));
}

/* 1: it has said where to; 0: not yet, or it is over. */
static int hear(const struct donor *donor, struct donation *donation)
{
	struct peer *peer = donation->peer;
	const struct update_pair pair = {.name = peer->name,
					 .plan = donor->epoch->digest,
					 .opening = donation->accept.opening,
					 .copies = peer->theirs->copies};
	struct transport_signal signal;
	struct error error;

	if (transport_signal_read(peer->endpoint, &signal) == 0 &&
	    signal.sequence != donation->seen) {
		donation->seen = signal.sequence;
		if (update_read_accept(&signal, &pair, &donation->accept, &error)) {
			drop(donor, donation, &error);
			return 0;
		}
	}
	if (donation->accept.min_version > donor->version)
		donation->over = true; /* it has no use for that one any more */
	return !donation->over && donation->accept.opening &&
	       donation->accept.max_version >= donor->version;
}

static struct transport_remote *remote_of(const struct peer *peer, uint32_t region)
{
	for (size_t r = 0; r < peer->theirs->region_count; r++)
		if (peer->theirs->regions[r].region == region)
			return peer->remotes[r];
	return NULL;
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
	struct transport_remote *remote = remote_of(peer, there->region);
	uint64_t all = epoch->options.layout->params[id].bytes, left = all - donation->at;
	uint64_t bytes = left < PART_BYTES ? left : PART_BYTES;
	int rc;

	if (!remote)
		return no_region(peer, there->region, error);
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

/* Of what is shown, once for all who are sent it. */
static int sum_all(struct donor *donor, uint32_t copy, struct error *error)
{
	const struct params *params = donor->epoch->options.params;
	const struct layout *layout = donor->epoch->options.layout;
	uint64_t *sums;
	int rc = 0;

	if (!donor->sums)
		rc = transport_region_allocate(donor->epoch->options.domain,
					       params->count * sizeof(*sums), &donor->sums, error);
	if (rc)
		return rc;
	sums = transport_region_memory(donor->sums);
	for (size_t id = 0; id < params->count; id++)
		sums[id] = pack_piece_sum(params_memory(params, copy, id), layout->params[id].bytes,
					  layout->params[id].bytes);
	return 0;
}

static int end(struct donor *donor, struct donation *donation, uint32_t copy, struct error *error)
{
	const struct peer *peer = donation->peer;
	const struct update_accept *accept = &donation->accept;
	uint64_t until = clock_deadline_ns(donor->epoch->wait_ms);
	size_t count = donor->epoch->options.params->count;
	struct update_end end = {.opening = accept->opening,
				 .version = donor->version,
				 .plan = donor->epoch->digest,
				 .bytes = donation->bytes,
				 .pieces = (uint32_t)count};
	int rc = 0;

	if (accept->sums_region != UINT32_MAX) {
		struct transport_remote *remote = remote_of(peer, accept->sums_region);

		end.sums = end.pieces;
		if (!remote)
			return no_region(peer, accept->sums_region, error);
		rc = donor->sums ? 0 : sum_all(donor, copy, error);
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

/* What lies here is another version, or none: the newcomer has that of trainers next. */
static int refuse(const struct donor *donor, const struct donation *donation, struct error *error)
{
	struct update_abort abort = {.opening = donation->accept.opening,
				     .version = donor->version,
				     .why = "it does not hold that version any more"};

	return transport_signal(donation->peer->endpoint, UPDATE_ABORT, &abort, sizeof(abort),
				clock_deadline_ns(donor->epoch->wait_ms), error);
}

/* One step of one of them, which has said where to. */
static int send(struct donor *donor, struct donation *donation, struct error *error)
{
	int copy = versions_whole(donor->versions, donor->version), rc;

	if (!donation->began_ns)
		donation->began_ns = clock_ns();
	if (copy < 0) {
		donation->over = true;
		return refuse(donor, donation, error);
	}
	if (donation->param < donor->epoch->options.params->count)
		return write_part(donor, donation, (uint32_t)copy, error);
	rc = end(donor, donation, (uint32_t)copy, error);
	if (rc)
		return rc;
	donation->over = true;
	say_sent(donor, donation);
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

/* 1: something was done; 0: this one is waited for, or over. */
static int step(struct donor *donor, struct donation *donation, struct error *error)
{
	struct peer *peer = donation->peer;
	struct error why;
	int rc;

	if (donation->over)
		return 0;
	if (control_have_left(donor->health->control, peer->plan->member, 1))
		peer->gone = true;
	if (peer->gone || peer_check_alive(peer, &why)) {
		drop(donor, donation, &why);
		return 1;
	}
	if (!hear(donor, donation)) {
		if (!donation->over && clock_ns() >= donor->until_ns) {
			error_set(&why, ERROR_TIMEOUT,
				  "it did not come to weft_update_wait for it in %u ms, half of "
				  "the update timeout",
				  donor->epoch->wait_ms / 2);
			drop(donor, donation, &why);
		}
		return donation->over;
	}
	rc = send(donor, donation, &why);
	if (rc && is_the_hosts(donation, &why)) {
		*error = why;
		return rc;
	}
	if (rc)
		drop(donor, donation, &why);
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

int donor_run(struct donor *donor, bool block, struct error *error)
{
	bool left = donor->count != 0;

	if (left && !donor->until_ns)
		donor->until_ns = clock_deadline_ns(donor->epoch->wait_ms / 2);
	while (left) {
		int rc = health_check(donor->health, error);

		if (!rc)
			rc = run_all(donor, &left, error);
		if (rc < 0)
			return rc;
		if (left && !block) {
			if (rc)
				watch_tell(donor->watch); /* it has more to do at once */
			else
				watch_deadline(donor->watch, donor->until_ns);
			return WEFT_AGAIN;
		}
		if (left && !rc)
			donor->signals =
				transport_signal_wait(donor->epoch->options.domain, donor->signals,
						      clock_deadline_ns(WAIT_SLICE_MS));
	}
	donor->count =
		0; /* the region stays: over tcp closing one ends the streams of all endpoints */
	return 0;
}
