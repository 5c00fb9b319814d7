/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <stdlib.h>
#include <time.h>

#define REPEAT_MS 20u
#define LOOK_MS	  100u /* between two looks at whether the job goes on */

/* One buffer for all wanted tensors; data[id] points into it. Before join nobody knows yet which
 * are wanted, so it has room for all. On a GPU, the host has room for the largest one. */
static int map_tensors(struct player *player, bool joined, weft_error *error)
{
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;
	size_t bytes = 0, largest = 0, next = 0;
	uint32_t count = 0;
	int rc;

	for (; !weft_tensor_at(player->worker, count, &view, NULL); count++) {
		bytes += view.wanted || !joined ? player_padded(view.bytes) : 0;
		largest = view.bytes > largest ? view.bytes : largest;
	}
	rc = player_map_device(player, bytes, error);
	if (!rc)
		rc = player_map(player, player->device_memory.pointer ? largest : bytes, error);
	if (rc)
		return rc;
	player->data = calloc(count + 1u, sizeof(*player->data));
	if (!player->data)
		return fail(error, WEFT_E_MEMORY, "no memory for %u tensors", count);
	player->tensors = count;
	for (uint32_t id = 0; !weft_tensor_at(player->worker, id, &view, NULL); id++) {
		bool placed = view.wanted || !joined;

		player->data[id] = player_memory_at(player, next, view.bytes);
		if (placed)
			next += player_padded(view.bytes);
		else
			player->data[id].pointer = NULL;
	}
	return 0;
}

/* What is held, by the local parameters that it lies in. */
static int by_local(const void *x, const void *y)
{
	const weft_holding_view *a = x, *b = y;

	return a->local < b->local ? -1 : a->local > b->local;
}

static int list_holdings(struct player *player, weft_error *error)
{
	weft_holding_view view = WEFT_HOLDING_VIEW_INIT;
	uint32_t count = 0;

	while (!weft_holding_at(player->worker, count, &view, NULL))
		count++;
	player->holdings = calloc(count + 1u, sizeof(*player->holdings));
	if (!player->holdings)
		return fail(error, WEFT_E_MEMORY, "no memory for %u boxes", count);
	for (uint32_t i = 0; i < count; i++) {
		player->holdings[i] = (weft_holding_view)WEFT_HOLDING_VIEW_INIT;
		weft_holding_at(player->worker, i, &player->holdings[i], NULL);
	}
	qsort(player->holdings, count, sizeof(*player->holdings), by_local);
	player->holding_count = count;
	return 0;
}

/* A box of what is written as `id`, into memory of the host. */
static int make_box(const struct player *player, const weft_holding_view *view, uint64_t version,
		    void *local, weft_error *error)
{
	uint64_t bytes = 0;
	/* it fits the declaration: weft_checkpoint_fits */
	const void *tensor = weft_checkpoint_tensor(player->checkpoint, view->name, &bytes);

	if (!tensor)
		return fail(error, WEFT_E_FILE, "%s: there is no tensor %s",
			    player->arguments.checkpoint, view->name);
	weft_content_holding(view, tensor, bytes, version, local);
	return 0;
}

/* All that is held of every wanted tensor, as version `version` has it. */
static int make_version(struct player *player, uint64_t version, weft_error *error)
{
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;
	bool device = player->device_memory.pointer != NULL;
	uint32_t next = 0;
	int rc = player->holdings ? 0 : list_holdings(player, error);

	for (uint32_t id = 0; !rc && !weft_tensor_at(player->worker, id, &view, NULL); id++) {
		const weft_memory *to = &player->data[id];
		void *made = device ? player->memory : to->pointer;

		for (; next < player->holding_count && player->holdings[next].local == id && !rc;
		     next++)
			if (view.wanted)
				rc = make_box(player, &player->holdings[next], version, made,
					      error);
		if (!rc && view.wanted && device)
			rc = weft_play_copy(to->device, to->pointer, made, view.bytes, error);
		if (!rc && player_signal())
			return fail(error, WEFT_E_INTERRUPTED, "version %llu is not made",
				    (unsigned long long)version);
	}
	return rc;
}

int trainer_register(struct player *player, weft_error *error)
{
	weft_memory memory;
	int rc;

	if (!player->arguments.register_sources)
		return 0;
	rc = map_tensors(player, false, error);
	if (rc)
		return rc;
	memory = player->device_memory.pointer
			 ? player->device_memory
			 : weft_host_memory(player->memory, player->memory_bytes);
	return weft_source_register(player->worker, &memory, error);
}

static int send(struct player *player, uint64_t version, weft_error *error)
{
	int rc = weft_update_begin(player->worker, version, error);

	if (!rc)
		rc = weft_update_write_all(player->worker, player->data, player->tensors,
					   sizeof(*player->data), error);
	if (!rc)
		rc = weft_update_end(player->worker, error);
	if (!rc)
		figures_update(player, version);
	return rc;
}

/* A full replica that has it all needs no tensors; those are what they were. */
static int send_again(struct player *player, uint64_t version, weft_error *error)
{
	int rc = weft_update_replay(player->worker, version, error);

	if (rc == -WEFT_E_STATE)
		return send(player, version, error);
	if (!rc)
		figures_update(player, version);
	return rc;
}

/* A signal ends it. */
static int pause(struct player *player, uint64_t ms, weft_error *error)
{
	bool repeats = player->arguments.repeat, admits = player->arguments.admit && !repeats;
	int rc = 0;

	for (;;) {
		uint64_t slice_ms = (repeats || admits) && ms > REPEAT_MS ? REPEAT_MS : ms,
			 lacking = 0;
		struct timespec slice = {(time_t)(slice_ms / 1000),
					 (long)(slice_ms % 1000) * 1000000};

		if (repeats)
			rc = weft_update_repeat(player->worker, &lacking, error);
		else if (admits)
			rc = weft_update_admit(player->worker, error);
		if (!rc && lacking)
			rc = send_again(player, lacking, error);
		if (rc || !ms || nanosleep(&slice, NULL))
			return rc;
		ms -= slice_ms;
	}
}

static uint64_t host_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Trainers of a job end a step together, by their collectives; those that are played here make
 * versions one after the other where processors are few, and meet by the clock. */
static int meet_by_clock(struct player *player, uint64_t every_ms, weft_error *error)
{
	uint64_t next_ms = every_ms ? (host_ms() / every_ms + 1) * every_ms : 0, now_ms;
	int rc = 0;

	while (!rc && (now_ms = host_ms()) < next_ms) {
		uint64_t left_ms = next_ms - now_ms;
		struct timespec slice = {0,
					 (long)(left_ms < LOOK_MS ? left_ms : LOOK_MS) * 1000000};

		if (nanosleep(&slice, NULL) || player_signal())
			return fail(error, WEFT_E_INTERRUPTED, "it waited for the other trainers");
		rc = weft_poll(player->worker, error);
	}
	return rc;
}

int trainer_run(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	int rc = player->data ? 0 : map_tensors(player, true, error);
	uint64_t next = weft_next_version(player->worker);
	/* a trainer that comes to a job that runs goes on where the others are */
	uint64_t first = next > a->first_version ? next : a->first_version;

	for (uint64_t version = first; version < a->first_version + a->updates && !rc; version++) {
		if (version > first)
			rc = pause(player, a->interval_ms, error);
		if (!rc)
			rc = make_version(player, version, error);
		if (!rc)
			rc = meet_by_clock(player, a->every_ms, error);
		if (!rc)
			rc = send(player, version, error);
	}
	return rc;
}
