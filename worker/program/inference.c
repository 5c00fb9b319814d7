/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GUARD	    4096u
#define GUARD_VALUE 0xa5

static void print_difference(void *context, const char *text)
{
	const struct player *player = context;

	say("weft-worker: inference %u: %s", player->rank, text);
}

int inference_compare(struct player *player, weft_error *error)
{
	char why[sizeof(error->text)];
	int rc;

	if (!player->arguments.live_params)
		return 0;
	rc = weft_compare_params_file(player->worker, player->arguments.live_params,
				      print_difference, player, error);
	if (rc && error->code == WEFT_E_IO) { /* its text names the file */
		snprintf(why, sizeof(why), "%s", error->text);
		return fail(error, WEFT_E_IO, "--live-params: %s", why);
	}
	return rc;
}

/* With own_memory every parameter lies between guards that nobody may write:
 *
 *   | guard | parameter 0 . | guard | parameter 1 ... | guard |     .: to the end of its page
 */
int inference_bind(struct player *player, weft_error *error)
{
	weft_param_view view = WEFT_PARAM_VIEW_INIT;
	size_t bytes = GUARD, next = GUARD;
	int rc;

	if (!player->arguments.own_memory)
		return 0;
	for (uint32_t id = 0; !weft_param_at(player->worker, id, &view, NULL); id++)
		bytes += player_padded(view.bytes) + GUARD;
	rc = player_map_device(player, bytes, error);
	if (!rc)
		rc = player_map(player, bytes, error);
	if (rc)
		return rc;
	if (player->arguments.verify)
		memset(player->memory, GUARD_VALUE, bytes);
	if (player->device_memory.pointer)
		rc = weft_play_copy(player->device_memory.device, player->device_memory.pointer,
				    player->memory, bytes, error);
	for (uint32_t id = 0; !rc && !weft_param_at(player->worker, id, &view, NULL); id++) {
		const weft_memory memory = player_memory_at(player, next, view.bytes);

		rc = weft_param_bind(player->worker, id, &memory, error);
		next += player_padded(view.bytes) + GUARD;
	}
	return rc;
}

/* Distances count from the parameter: 1 is the first byte that is not its own. */
static int check_guard(const unsigned char *from, size_t bytes, bool before, const char *param,
		       weft_error *error)
{
	for (size_t i = 0; i < bytes; i++)
		if (from[i] != GUARD_VALUE)
			return fail(
				error, WEFT_E_BOUNDS,
				"%zu bytes %s parameter %s there is 0x%02x instead of 0x%02x: a "
				"transfer went outside of its target",
				before ? bytes - i : i + 1, before ? "before" : "behind", param,
				from[i], GUARD_VALUE);
	return 0;
}

static int check_guards(const struct player *player, weft_error *error)
{
	const unsigned char *param = (const unsigned char *)player->memory + GUARD;
	weft_param_view view = WEFT_PARAM_VIEW_INIT;
	int rc = 0;

	if (!player->arguments.own_memory)
		return 0;
	if (player->device_memory.pointer)
		rc = weft_play_copy(player->device_memory.device, player->memory,
				    player->device_memory.pointer, player->memory_bytes, error);
	for (uint32_t id = 0; !rc && !weft_param_at(player->worker, id, &view, NULL); id++) {
		size_t room = player_padded(view.bytes) + GUARD;

		if (!id)
			rc = check_guard(param - GUARD, GUARD, true, view.name, error);
		if (!rc)
			rc = check_guard(param + view.bytes, room - view.bytes, false, view.name,
					 error);
		param += room;
	}
	return rc;
}

static void write_name(FILE *file, const char *name)
{
	for (; *name; name++) {
		if (*name == '"' || *name == '\\')
			fputc('\\', file);
		fputc(*name, file);
	}
}

static int write_digests(struct player *player, uint64_t version, weft_error *error)
{
	weft_param_view view = WEFT_PARAM_VIEW_INIT;

	for (uint32_t id = 0; !weft_param_at(player->worker, id, &view, NULL); id++) {
		char digest[33];

		if (weft_param_digest(player->worker, id, version, digest))
			return fail(error, WEFT_E_STATE, "version %llu is gone before its digest",
				    (unsigned long long)version);
		fprintf(player->digests, "{\"version\":%llu,\"rank\":%u,\"param\":\"",
			(unsigned long long)version, player->rank);
		write_name(player->digests, view.name);
		fprintf(player->digests, "\",\"bytes\":%llu,\"digest\":\"%s\"}\n",
			(unsigned long long)view.bytes, digest);
	}
	if (fflush(player->digests))
		return fail(error, WEFT_E_IO, "%s: %s", player->arguments.digests, strerror(errno));
	return 0;
}

/* A version that was given up is missing here, unless trainers send it once more (--repeat), and the next one is waited for; if the job
 * is over, that says so. */
static bool was_given_up(const struct player *player, int rc, bool last, const weft_error *error)
{
	if (rc != -WEFT_E_ABORTED || last)
		return false;
	say("weft-worker: inference %u: %s", player->rank, error->text);
	return true;
}

int inference_run(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	uint64_t end = a->first_version + a->updates, version = a->first_version;
	uint64_t next = weft_next_version(player->worker);
	bool lacks = false, lacked;
	int rc = 0;

	/* an engine that comes to a job that runs has no part in what was before */
	for (version = next > version ? next : version; version < end && !rc; version++) {
		uint64_t compared = 0;

		rc = weft_update_wait(player->worker, lacks ? WEFT_VERSION_NEXT : version, 0,
				      &version, error);
		lacked = lacks;
		lacks = was_given_up(player, rc, version + 1 == end && !lacked, error);
		if (lacks) {
			rc = 0;
			version -= lacked; /* which it was of then is not said */
			continue;
		}
		if (rc)
			break;
		figures_update(player, version);
		if (a->verify)
			rc = weft_verify(player->worker, player->checkpoint, version, &compared,
					 error);
		if (!rc && a->verify)
			rc = check_guards(player, error);
		player->verified += compared;
		if (!rc && player->digests)
			rc = write_digests(player, version, error);
	}
	return rc;
}
