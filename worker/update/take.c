/* SPDX-License-Identifier: Apache-2.0
 *
 * take.c -- what landed in a trainer's window is put where it belongs, and the trainer is told, so that
 * its places there are written again.
 *
 *   LANDED 17 ─► entries 12 .. 16 ─► one copy each, queued ─► all done ─► TAKEN 17
 *                                    and one kernel for all that are spread in a GPU's memory, or small
 */
#include "worker/update/wait.h"

#include "base/clock.h"
#include "worker/update/await.h"
#include <string.h>

#define BAD(...) error_set(error, ERROR_MESSAGE, __VA_ARGS__)

static uint64_t address_of(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

/* Whose pieces it writes: its own, or those of the one that it stands in for. */
static const struct peer *pieces_of(const struct waiter *waiter, uint32_t p)
{
	uint32_t stands = waiter->now->links[p].stands;

	return &waiter->epoch->peers[stands ? stands - 1 : p];
}

/* A trainer may write into its window what it likes, and into parameters only its pieces. */
static int check_entry(const struct waiter *waiter, uint32_t p, const struct window_entry *entry,
		       struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	const struct peer *peer = &epoch->peers[p], *of = pieces_of(waiter, p);
	uint64_t ring = peer->window_bytes - WINDOW_HEAD_BYTES, piece;
	const struct plan_row *row;

	if (entry->ordinal >= of->plan->pieces)
		return BAD("%s landed a part of piece %u of %u", peer->name, entry->ordinal,
			   of->plan->pieces);
	row = &epoch->plan->rows[epoch->receive.rows[of->first_piece + entry->ordinal]];
	if (row->path != PATH_LANDED && !entry->coded)
		return BAD("%s landed a part of piece %u, which it is to write where it belongs",
			   peer->name, entry->ordinal);
	piece = row->bytes;
	if (entry->from > piece || entry->bytes > piece - entry->from)
		return BAD("%s landed bytes %llu..+%u of a piece of %llu", peer->name,
			   (unsigned long long)entry->from, entry->bytes,
			   (unsigned long long)piece);
	if (entry->at > ring || window_entry_bytes(entry) > ring - entry->at)
		return BAD("%s landed %u bytes at %llu of its window of %llu", peer->name,
			   window_entry_bytes(entry), (unsigned long long)entry->at,
			   (unsigned long long)ring);
	return 0;
}

/* By the processor: into one run, or into those that the piece is spread over. */
static void put(unsigned char *piece, const struct plan_row *row, const struct window_entry *entry,
		const unsigned char *from)
{
	uint64_t n, place;

	if (!row->spread.run_bytes) {
		memcpy(piece + entry->from, from, entry->bytes);
		return;
	}
	for (uint64_t done = 0; done < entry->bytes; done += n) {
		n = spread_next(&row->spread, entry->from + done, entry->bytes - done, &place);
		memcpy(piece + place, from + done, n);
	}
}

static int queue_entry(struct waiter *waiter, uint32_t p, const unsigned char *window,
		       uint64_t number, uint64_t *bytes, struct error *error)
{
	const struct epoch *epoch = waiter->epoch;
	const struct params *params = epoch->options.params;
	const struct plan_row *row;
	struct window_entry entry;
	uint64_t piece, from;
	int rc;

	memcpy(&entry, window + number % WINDOW_ENTRIES * sizeof(entry), sizeof(entry));
	rc = check_entry(waiter, p, &entry, error);
	if (rc)
		return rc;
	row = &epoch->plan->rows[epoch->receive
					 .rows[pieces_of(waiter, p)->first_piece + entry.ordinal]];
	*bytes += entry.bytes;
	if (entry.coded)
		return waiter_put_delta(waiter, p, row, &entry,
					window + WINDOW_HEAD_BYTES + entry.at, error);
	if (params_by_processor(params, row->param)) {
		put(params_landed(params, waiter->copy, row->param) + row->offset, row, &entry,
		    window + WINDOW_HEAD_BYTES + entry.at);
		return 0;
	}
	piece = address_of(params_landed(params, waiter->copy, row->param)) + row->offset;
	from = address_of(window + WINDOW_HEAD_BYTES + entry.at);
	if (!waiter->scatter || (!row->spread.run_bytes && entry.bytes >= MERGE_BYTES))
		return device_queue_copy(params->device, DEVICE_KERNELS, piece + entry.from, from,
					 entry.bytes, error);
	scatter_add(waiter->scatter, piece, &row->spread, entry.from, from, entry.bytes);
	return 0;
}

/* A trainer that has ended meanwhile, or given up, needs to hear nothing, and may be gone. */
static bool has_ended(const struct waiter *waiter, uint32_t p)
{
	struct transport_signal signal;

	return !transport_signal_read(waiter->now->from[p].endpoint, &signal) &&
	       signal.sequence != waiter->now->seen[p] && signal.tag != UPDATE_LANDED;
}

/* What landed until now, behind what is queued already. */
static int queue(struct waiter *waiter, uint32_t p, struct error *error)
{
	const struct receive_link *link = &waiter->now->links[p];
	const struct peer *peer = &waiter->now->from[p];
	const unsigned char *window = (const unsigned char *)transport_region_memory(
					      waiter->epoch->options.beside->windows.region) +
				      peer->window_at;
	struct taking *taking = &waiter->now->taking[p];
	int rc = 0;

	if (link->landed - link->taken > WINDOW_ENTRIES)
		return BAD("%s says that %llu entries landed in a window of %u", peer->name,
			   (unsigned long long)(link->landed - link->taken), WINDOW_ENTRIES);
	*taking = (struct taking){.opening = link->opening, .entries = link->landed};
	if (waiter->scatter)
		scatter_begin(waiter->scatter);
	for (uint64_t n = link->taken; n < link->landed && !rc; n++)
		rc = queue_entry(waiter, p, window, n, &taking->bytes, error);
	if (!rc && waiter->scatter)
		rc = scatter_run(waiter->scatter, error);
	if (rc ||
	    !params_on_device(waiter->epoch->options.params)) /* by the processor: it is done */
		return rc;
	return device_mark(waiter->epoch->options.params->device, &taking->mark, error);
}

/* What an earlier wait queued, of another trainer or for an opening that was given up, may be read by the device still. */
static int settle_scatter(const struct waiter *waiter, uint64_t until_ns, struct health *health,
			  struct error *error)
{
	cuda_event last = waiter->scatter ? scatter_last(waiter->scatter) : NULL;

	return last ? await_device(waiter->epoch->options.params->device, last, until_ns, health,
				   error)
		    : 0;
}

static bool goes_on(int rc)
{
	return !rc || rc == -(int)ERROR_TIMEOUT || rc == -(int)ERROR_INTERRUPTED;
}

void waiter_forget(struct waiter *waiter, uint32_t p)
{
	if (waiter->now->taking[p].mark)
		device_unmark(waiter->epoch->options.params->device, waiter->now->taking[p].mark);
	waiter->now->taking[p] = (struct taking){.mark = NULL};
}

/* What an earlier wait queued, and did not see done, is waited for and not queued again. */
int waiter_take(struct waiter *waiter, uint32_t p, uint64_t until_ns, bool *broken,
		struct error *error)
{
	const struct receive_link *link = &waiter->now->links[p];
	const struct peer *peer = &waiter->now->from[p];
	const struct device *device = waiter->epoch->options.params->device;
	struct taking *taking = &waiter->now->taking[p];
	int rc = 0;

	bool ended = link->ending || link->stands_ending || has_ended(waiter, p);

	*broken = waiter->untold = false;
	if (!ended) { /* what has ended is published even when the job ends now */
		rc = health_check(waiter->health, error);
		if (rc)
			return rc;
	}
	*broken = true;
	if (clock_ns() >= until_ns) /* of a trainer that was heard when it was late already */
		until_ns = clock_deadline_ns(waiter->epoch->wait_ms);
	if (taking->mark && taking->opening != link->opening)
		waiter_forget(waiter, p);
	if (!taking->mark) {
		rc = settle_scatter(waiter, until_ns, ended ? NULL : waiter->health, error);
		*broken = !goes_on(rc);
		if (!rc) {
			*broken = true;
			rc = queue(waiter, p, error);
		}
	}
	if (rc && *broken)
		return error_wrap(error, "what %s wrote, on its way into memory of %s", peer->name,
				  params_on_device(waiter->epoch->options.params)
					  ? device_text(device)
					  : "the host");
	if (rc)
		return rc;
	if (taking->mark)
		rc = await_device(device, taking->mark, until_ns, ended ? NULL : waiter->health,
				  error);
	*broken = !goes_on(rc);
	if (rc)
		return rc;
	if (!link->ending && !link->stands_ending && !has_ended(waiter, p)) {
		rc = waiter_tell_taken(waiter, p, taking->entries, error);
		*broken = waiter->untold = rc != 0; /* and so is the endpoint */
	}
	return rc && has_ended(waiter, p) ? 0 : rc;
}
