/* SPDX-License-Identifier: Apache-2.0
 *
 * take.c -- what landed in a trainer's window is put where it belongs, and the trainer is told, so that
 * its places there are written again.
 *
 *   LANDED 17 ─► entries 12 .. 16 ─► one copy each, queued ─► all done ─► TAKEN 17
 */
#include "worker/update/wait.h"

#include "base/clock.h"
#include <string.h>

#define BAD(...) error_set(error, ERROR_MESSAGE, __VA_ARGS__)

static uint64_t address_of(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

/* A trainer may write into its window what it likes, and into parameters only its pieces. */
static int check_entry(const struct waiter *waiter, uint32_t p, const struct window_entry *entry,
		       struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	const struct peer *peer = &epoch->peers[p];
	uint64_t ring = peer->window_bytes - WINDOW_HEAD_BYTES, piece;

	if (entry->ordinal >= peer->plan->pieces)
		return BAD("%s landed a part of piece %u of %u", peer->name, entry->ordinal,
			   peer->plan->pieces);
	piece = epoch->plan->rows[epoch->receive.rows[peer->first_piece + entry->ordinal]].bytes;
	if (entry->from > piece || entry->bytes > piece - entry->from)
		return BAD("%s landed bytes %llu..+%u of a piece of %llu", peer->name,
			   (unsigned long long)entry->from, entry->bytes,
			   (unsigned long long)piece);
	if (entry->at > ring || entry->bytes > ring - entry->at)
		return BAD("%s landed %u bytes at %llu of its window of %llu", peer->name,
			   entry->bytes, (unsigned long long)entry->at, (unsigned long long)ring);
	return 0;
}

static int queue_entry(const struct waiter *waiter, uint32_t p, const unsigned char *window,
		       uint64_t number, uint64_t *bytes, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	const struct params *params = epoch->options.params;
	const struct plan_row *row;
	struct window_entry entry;
	int rc;

	memcpy(&entry, window + number % WINDOW_ENTRIES * sizeof(entry), sizeof(entry));
	rc = check_entry(waiter, p, &entry, error);
	if (rc)
		return rc;
	row = &epoch->plan->rows[epoch->receive.rows[epoch->peers[p].first_piece + entry.ordinal]];
	*bytes += entry.bytes;
	return device_queue_copy(params->device, DEVICE_KERNELS,
				 address_of(params_landed(params, waiter->copy, row->param)) +
					 row->offset + entry.from,
				 address_of(window + WINDOW_HEAD_BYTES + entry.at), entry.bytes,
				 error);
}

static int wait_for(const struct waiter *waiter, cuda_event mark, uint64_t until_ns,
		    struct error *error)
{
	for (;;) {
		uint64_t slice = clock_deadline_ns(WAIT_SLICE_MS);
		int rc = device_reach(waiter->epoch->options.params->device, mark,
				      slice < until_ns ? slice : until_ns, error);

		if (rc != -(int)ERROR_TIMEOUT || clock_ns() >= until_ns)
			return rc;
		rc = health_check(waiter->health, error);
		if (rc)
			return rc;
	}
}

/* A trainer that has ended meanwhile needs to hear nothing, and may be gone. */
static bool has_ended(const struct waiter *waiter, uint32_t p)
{
	struct transport_signal signal;

	return !transport_signal_read(waiter->epoch->peers[p].endpoint, &signal) &&
	       signal.sequence != waiter->seen[p] && signal.tag == UPDATE_END;
}

int waiter_take(struct waiter *waiter, uint32_t p, uint64_t until_ns, uint64_t *bytes,
		struct error *error)
{
	const struct receive_link *link = &waiter->links[p];
	const struct peer *peer = &waiter->epoch->peers[p];
	const struct device *device = waiter->epoch->options.params->device;
	const struct update_taken taken = {link->opening, link->landed};
	const unsigned char *window = (const unsigned char *)transport_region_memory(
					      waiter->epoch->receive.windows.region) +
				      peer->window_at;
	cuda_event mark = NULL;
	int rc = 0;

	*bytes = 0;
	if (link->landed - link->taken > WINDOW_ENTRIES)
		return BAD("%s says that %llu entries landed in a window of %u", peer->name,
			   (unsigned long long)(link->landed - link->taken), WINDOW_ENTRIES);
	if (clock_ns() >= until_ns) /* of a trainer that was heard when it was late already */
		until_ns = clock_deadline_ns(waiter->epoch->wait_ms);
	for (uint64_t n = link->taken; n < link->landed && !rc; n++)
		rc = queue_entry(waiter, p, window, n, bytes, error);
	if (!rc)
		rc = device_mark(device, &mark, error);
	if (!rc)
		rc = wait_for(waiter, mark, until_ns, error);
	device_unmark(device, mark);
	if (rc)
		return error_wrap(error, "what %s wrote, on its way into memory of %s", peer->name,
				  device_text(device));
	if (!link->ending && !has_ended(waiter, p))
		rc = transport_signal(peer->endpoint, UPDATE_TAKEN, &taken, sizeof(taken), until_ns,
				      error);
	return rc && has_ended(waiter, p) ? 0 : rc;
}
