/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c -- writes: checked, cut into chunks, spread over rails, waited for.
 */
#include "transport/provider.h"

#include "base/text.h"
#include "transport/chunk.h"
#include <string.h>

#define COMPLETIONS_MAX 32

int endpoint_poll(struct transport_endpoint *endpoint, struct error *failure)
{
	struct provider_completion done[COMPLETIONS_MAX];
	int n, rc = 0;

	do {
		n = endpoint->domain->ops.poll(endpoint, done, COMPLETIONS_MAX, failure);
		if (n < 0)
			return n;
		for (int i = 0; i < n && !rc; i++) {
			if (done[i].rc)
				rc = error_set(failure, (enum error_code) - done[i].rc,
					       "post %llu to %s failed: %s",
					       (unsigned long long)done[i].id, endpoint->name,
					       done[i].what);
			else
				rc = flow_complete(&endpoint->flow, done[i].id, failure);
		}
	} while (!rc && n == COMPLETIONS_MAX);
	return rc;
}

/* Adds to a deadline what was missing: counts first, they say whether anything moved. */
static int wait_failed(const struct transport_endpoint *endpoint, const char *doing,
		       struct error *failure)
{
	const struct flow *flow = &endpoint->flow;
	char missing[TEXT_SHORT_BYTES], posted[TEXT_SHORT_BYTES];
	struct error why = *failure;

	return error_set(failure, why.code,
			 "%s %s: %.80s; %u of %llu posts (%s of %s) are not complete%s%s", doing,
			 endpoint->name, why.text, flow->inflight, (unsigned long long)flow->next,
			 bytes_text(flow->bytes_posted - flow->bytes_done, missing),
			 bytes_text(flow->bytes_posted, posted),
			 endpoint->path[0] ? "; it is written over " : "", endpoint->path);
}

/* One look: completions, then whether to go on waiting. */
static int wait_once(struct transport_endpoint *endpoint, const char *doing,
		     struct transport_wait *wait, struct error *failure)
{
	int rc = wait_looks(wait) ? endpoint_check_peer(endpoint, false, failure) : 0;

	if (rc)
		return error_wrap(failure, "%s %s", doing, endpoint->name), rc;
	rc = wait_turn(wait, failure);
	return rc ? wait_failed(endpoint, doing, failure) : 0;
}

int endpoint_drain(struct transport_endpoint *endpoint, const char *doing,
		   struct transport_wait *wait, struct error *failure)
{
	for (;;) {
		int rc = endpoint_poll(endpoint, failure);

		if (rc || endpoint->flow.head == endpoint->flow.next)
			return rc;
		rc = wait_once(endpoint, doing, wait, failure);
		if (rc)
			return rc;
	}
}

const struct transport_region *endpoint_region(const struct transport_endpoint *endpoint,
					       const struct transport_region *region)
{
	const struct transport_domain *domain = endpoint->domain;

	if (!region || region->domain == domain)
		return region;
	return domain->owner && region->domain == domain->owner ? region->parts[domain->place]
								: NULL;
}

/* *given: the caller's region; becomes what the endpoint's provider knows it as. */
static int check_source(const struct transport_endpoint *endpoint, const void *source,
			const struct transport_region **given, uint64_t bytes, struct error *error)
{
	const struct transport_region *region = endpoint_region(endpoint, *given);
	uint64_t at;

	if (*given && !region && (*given)->domain != endpoint->domain->owner)
		return error_set(error, ERROR_USAGE,
				 "write to %s: the source region is of another domain",
				 endpoint->name);
	*given = region;
	if (!source && bytes)
		return error_set(error, ERROR_USAGE, "write of %llu bytes to %s from NULL",
				 (unsigned long long)bytes, endpoint->name);
	if (!region) {
		if (!endpoint->domain->caps.local_registration || !bytes)
			return 0;
		return error_set(error, ERROR_USAGE,
				 "write to %s: provider %s reads only from registered regions",
				 endpoint->name, endpoint->domain->ops.name);
	}
	at = (uint64_t)((uintptr_t)source - (uintptr_t)region->memory);
	if (bytes && (at > region->bytes || bytes > region->bytes - at))
		return error_set(error, ERROR_BOUNDS,
				 "write to %s: %llu source bytes at %llu do not lie in the "
				 "region of %llu bytes",
				 endpoint->name, (unsigned long long)bytes, (unsigned long long)at,
				 (unsigned long long)region->bytes);
	return 0;
}

static int check_target(const struct transport_endpoint *endpoint,
			const struct transport_remote *remote, uint64_t offset, uint64_t bytes,
			struct error *error)
{
	if (remote->endpoint != endpoint)
		return error_set(error, ERROR_USAGE,
				 "write to %s: the remote region is of another endpoint",
				 endpoint->name);
	if (offset > remote->bytes || bytes > remote->bytes - offset)
		return error_set(error, ERROR_BOUNDS,
				 "write to %s: bytes %llu..%llu+%llu lie outside the region of "
				 "%llu bytes",
				 endpoint->name, (unsigned long long)offset,
				 (unsigned long long)offset, (unsigned long long)bytes,
				 (unsigned long long)remote->bytes);
	return 0;
}

/* The chunks of one write still to be posted. One is looked ahead, since a rail may take
 * fewer than were offered. */
struct plan {
	struct transport_endpoint *endpoint;
	const unsigned char *source;
	const struct transport_region *region;
	const struct transport_rows *rows; /* or NULL */
	struct transport_remote *remote;
	struct chunk_cursor cursor; /* its source_offset: in source, or in the rows */
	uint64_t left;		    /* chunks */
};

/* The rail that takes the next batch: the next one round that has credit. */
static uint32_t pick_rail(struct transport_endpoint *endpoint, uint32_t *credit)
{
	const struct transport_domain *domain = endpoint->domain;
	uint32_t rails = domain->caps.rails, first = endpoint->flow.rail;

	for (uint32_t i = 0; i < rails; i++) {
		uint32_t rail = (first + i) % rails;

		*credit = domain->ops.credit(endpoint, rail);
		if (*credit)
			return rail;
	}
	*credit = 0;
	return first;
}

/* Chunks to offer one rail at once: few enough that the others get their share. */
static uint32_t batch_count(const struct plan *plan, uint32_t credit)
{
	const struct flow *flow = &plan->endpoint->flow;
	uint32_t rails = plan->endpoint->domain->caps.rails;
	uint64_t n = (plan->left + rails - 1) / rails;
	uint64_t window = flow->capacity - (flow->next - flow->head);
	uint32_t inflight = flow->inflight_max - flow->inflight;

	n = n > plan->endpoint->domain->batch ? plan->endpoint->domain->batch : n;
	n = n > credit ? credit : n;
	n = n > inflight ? inflight : n;
	return (uint32_t)(n > window ? window : n);
}

static uint32_t fill_batch(const struct plan *plan, struct chunk_cursor *cursor,
			   struct provider_write *batch, uint32_t count)
{
	struct chunk chunk;
	uint32_t n = 0;

	while (n < count && chunk_next(cursor, &chunk)) {
		batch[n] = (struct provider_write){
			.id = plan->endpoint->flow.next + n,
			.source = plan->rows ? NULL : plan->source + chunk.source_offset,
			.region = plan->region,
			.rows = plan->rows,
			.from = chunk.source_offset,
			.remote = plan->remote,
			.offset = chunk.remote_offset,
			.bytes = chunk.bytes,
		};
		n++;
	}
	return n;
}

/* Posts what one rail takes now; *posted may be 0. */
static int post_batch(struct plan *plan, uint32_t *posted, struct error *failure)
{
	struct transport_endpoint *endpoint = plan->endpoint;
	struct provider_write batch[PROVIDER_BATCH_MAX];
	struct chunk_cursor ahead = plan->cursor;
	struct chunk skipped;
	uint32_t credit, rail, count;
	int rc;

	*posted = 0;
	if (!flow_room(&endpoint->flow))
		return 0;
	rail = pick_rail(endpoint, &credit);
	count = fill_batch(plan, &ahead, batch, batch_count(plan, credit));
	if (!count)
		return 0;
	rc = endpoint->domain->ops.post_write(endpoint, rail, batch, count, posted, failure);
	for (uint32_t i = 0; i < *posted; i++) {
		plan->left--;
		flow_add(&endpoint->flow, batch[i].bytes, plan->left == 0);
		endpoint->stats.chunks++;
		endpoint->stats.bytes += batch[i].bytes;
		chunk_next(&plan->cursor, &skipped);
	}
	endpoint->flow.rail = (rail + 1) % endpoint->domain->caps.rails;
	return rc ? error_wrap(failure, "writing to %s", endpoint->name), rc : 0;
}

static int post_all(struct plan *plan, uint64_t deadline_ns, struct error *failure)
{
	struct transport_endpoint *endpoint = plan->endpoint;
	struct transport_wait wait;
	uint32_t posted, inflight;
	int rc = 0;

	wait_begin(&wait, endpoint->domain, deadline_ns);
	while (plan->left && !rc) {
		rc = post_batch(plan, &posted, failure);
		inflight = endpoint->flow.inflight;
		if (!rc)
			rc = endpoint_poll(endpoint, failure);
		if (rc || !plan->left)
			break;
		if (!posted)
			endpoint->stats.retries++;
		/* moving: only look at the clock, do not pause. What has completed has made room. */
		if (posted || endpoint->flow.inflight != inflight)
			wait.turns = 0;
		rc = wait_once(endpoint, "writing to", &wait, failure);
	}
	return rc;
}

static int write_chunks(struct plan *plan, uint64_t from, uint64_t offset, uint64_t bytes,
			uint64_t deadline_ns, struct error *error)
{
	struct transport_endpoint *endpoint = plan->endpoint;
	struct error failure = {0};
	int rc;

	chunk_begin(&plan->cursor, offset, bytes, endpoint->domain->chunk_bytes);
	plan->cursor.source_offset = from;
	plan->left = chunk_count(offset, bytes, endpoint->domain->chunk_bytes);
	if (!plan->left)
		flow_end_write(&endpoint->flow);
	rc = post_all(plan, deadline_ns, &failure);
	if (rc)
		return endpoint_break(endpoint, &failure, error);
	endpoint->stats.writes++;
	return 0;
}

int transport_write(struct transport_endpoint *endpoint, const void *source,
		    const struct transport_region *region, struct transport_remote *remote,
		    uint64_t offset, uint64_t bytes, uint64_t deadline_ns, struct error *error)
{
	struct plan plan = {
		.endpoint = endpoint, .source = source, .region = region, .remote = remote};
	int rc = endpoint_usable(endpoint, error);

	if (!rc)
		rc = check_target(endpoint, remote, offset, bytes, error);
	if (!rc)
		rc = check_source(endpoint, source, &plan.region, bytes, error);
	return rc ? rc : write_chunks(&plan, 0, offset, bytes, deadline_ns, error);
}

static int check_rows(const struct transport_endpoint *endpoint, const struct transport_rows *rows,
		      struct error *error)
{
	if (!endpoint->domain->caps.gathers)
		return error_set(error, ERROR_UNSUPPORTED,
				 "write to %s: provider %s does not gather rows; pack them first",
				 endpoint->name, endpoint->domain->ops.name);
	if (!rows->first || !rows->row_bytes || rows->stride_bytes < rows->row_bytes)
		return error_set(error, ERROR_USAGE,
				 "write to %s: rows of %llu bytes, %llu apart, at %p",
				 endpoint->name, (unsigned long long)rows->row_bytes,
				 (unsigned long long)rows->stride_bytes, rows->first);
	return 0;
}

int transport_write_rows(struct transport_endpoint *endpoint, const struct transport_rows *rows,
			 uint64_t from, struct transport_remote *remote, uint64_t offset,
			 uint64_t bytes, uint64_t deadline_ns, struct error *error)
{
	struct plan plan = {.endpoint = endpoint, .rows = rows, .remote = remote};
	int rc = endpoint_usable(endpoint, error);

	if (!rc)
		rc = check_target(endpoint, remote, offset, bytes, error);
	if (!rc)
		rc = check_rows(endpoint, rows, error);
	return rc ? rc : write_chunks(&plan, from, offset, bytes, deadline_ns, error);
}

int transport_progress(struct transport_endpoint *endpoint, uint64_t *done, struct error *error)
{
	struct error failure = {0};
	int rc = endpoint_usable(endpoint, error);

	if (!rc) {
		rc = endpoint_poll(endpoint, &failure);
		if (!rc)
			rc = endpoint_check_peer(endpoint, false, &failure);
		if (rc)
			rc = endpoint_break(endpoint, &failure, error);
	}
	if (done)
		*done = endpoint->flow.writes_done;
	return rc;
}

int transport_flush(struct transport_endpoint *endpoint, uint64_t deadline_ns, struct error *error)
{
	struct error failure = {0};
	struct transport_wait wait;
	bool dead_seen = endpoint->dead_seen;
	int rc = endpoint_usable(endpoint, error);

	if (rc)
		return rc;
	wait_begin(&wait, endpoint->domain, deadline_ns);
	rc = endpoint_drain(endpoint, "flushing to", &wait, &failure);
	if (!rc)
		rc = endpoint->domain->ops.settle(endpoint, &failure);
	/* who had all of this before its end is the next call's to tell */
	if (!rc && dead_seen == endpoint->dead_seen)
		rc = endpoint_check_peer(endpoint, false, &failure);
	if (rc)
		return endpoint_break(endpoint, &failure, error);
	endpoint->stats.flushes++;
	return 0;
}
