/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <stdlib.h>
#include <time.h>

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

static int make_tensor(const struct player *player, const weft_tensor_view *view,
		       const void *tensor, uint64_t tensor_bytes, uint64_t version,
		       const weft_memory *to, weft_error *error)
{
	bool device = player->device_memory.pointer != NULL;
	uint64_t row_bytes = view->bytes / (view->row_hi - view->row_lo);
	void *made = device ? player->memory : to->pointer;

	weft_content_version(view->name, tensor, tensor_bytes, version, view->row_lo * row_bytes,
			     view->bytes, made);
	return device ? weft_play_copy(to->device, to->pointer, made, view->bytes, error) : 0;
}

/* The held rows of every wanted tensor, as version `version` has them. */
static int make_version(struct player *player, uint64_t version, weft_error *error)
{
	weft_tensor_view view = WEFT_TENSOR_VIEW_INIT;

	for (uint32_t id = 0; !weft_tensor_at(player->worker, id, &view, NULL); id++) {
		uint64_t bytes = 0, row_bytes = view.bytes / (view.row_hi - view.row_lo);
		const void *tensor;

		if (!view.wanted)
			continue;
		tensor = weft_checkpoint_tensor(player->checkpoint, view.name, &bytes);
		if (!tensor || bytes != row_bytes * view.shape[0])
			return fail(
				error, WEFT_E_FILE, "%s: tensor %s has %llu bytes, not the model's",
				player->arguments.checkpoint, view.name, (unsigned long long)bytes);
		if (make_tensor(player, &view, tensor, bytes, version, &player->data[id], error))
			return -error->code;
		if (player_signal())
			return fail(error, WEFT_E_INTERRUPTED, "version %llu is not made",
				    (unsigned long long)version);
	}
	return 0;
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

int trainer_run(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	const struct timespec pause = {(time_t)(a->interval_ms / 1000),
				       (long)(a->interval_ms % 1000) * 1000000};
	int rc = player->data ? 0 : map_tensors(player, true, error);

	for (uint64_t i = 0; i < a->updates && !rc; i++) {
		uint64_t version = a->first_version + i;

		if (i) /* a signal ends the pause */
			nanosleep(&pause, NULL);
		rc = make_version(player, version, error);
		if (!rc)
			rc = weft_update_begin(player->worker, version, error);
		if (!rc)
			rc = weft_update_write_all(player->worker, player->data, player->tensors,
						   sizeof(*player->data), error);
		if (!rc)
			rc = weft_update_end(player->worker, error);
		if (!rc)
			figures_update(player, version);
	}
	return rc;
}
