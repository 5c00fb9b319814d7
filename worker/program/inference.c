/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int inference_bind(struct player *player, weft_error *error)
{
	weft_param_view view;
	size_t bytes = 0;
	char *next;
	int rc;

	if (player->role != WEFT_INFERENCE || !player->arguments.own_memory)
		return 0;
	for (uint32_t id = 0; !weft_param_at(player->worker, id, &view); id++)
		bytes += player_padded(view.bytes);
	rc = player_map(player, bytes, error);
	next = player->memory;
	for (uint32_t id = 0; !rc && !weft_param_at(player->worker, id, &view); id++) {
		rc = weft_param_bind(player->worker, id, next, view.bytes, error);
		next += player_padded(view.bytes);
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
	weft_param_view view;

	for (uint32_t id = 0; !weft_param_at(player->worker, id, &view); id++) {
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

int inference_run(struct player *player, weft_error *error)
{
	const struct arguments *a = &player->arguments;
	int rc = 0;

	for (uint64_t i = 0; i < a->updates && !rc; i++) {
		uint64_t version = a->first_version + i, compared = 0;

		rc = weft_update_wait(player->worker, version, 0, NULL, error);
		if (rc)
			break;
		figures_update(player, version);
		if (a->verify)
			rc = weft_verify(player->worker, player->checkpoint, version, &compared,
					 error);
		player->verified += compared;
		if (!rc && player->digests)
			rc = write_digests(player, version, error);
	}
	return rc;
}
