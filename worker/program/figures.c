/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

__attribute__((format(printf, 2, 3))) static void put(struct player *player, const char *format,
						      ...)
{
	bool failed;
	va_list args;

	errno = 0;
	va_start(args, format);
	failed = vprintf(format, args) < 0;
	va_end(args);
	failed |= fflush(stdout) != 0;
	if (failed && !player->output_errno)
		player->output_errno = errno ? errno : EIO;
}

int figures_written(const struct player *player, weft_error *error)
{
	if (!player->output_errno || player->output_errno == EPIPE)
		return 0;
	return fail(error, WEFT_E_IO, "cannot write to standard output: %s",
		    strerror(player->output_errno));
}

/* A trainer's seconds begin when its targets have accepted, an inference rank's when it opens its
 * memory. */
void figures_update(struct player *player, uint64_t version)
{
	double seconds, gbps;
	struct timespec now;
	weft_stats stats = WEFT_STATS_INIT;

	weft_get_stats(player->worker, &stats, NULL);
	clock_gettime(CLOCK_REALTIME, &now);
	if (player->role == WEFT_TRAINER)
		stats.update_ns -= stats.wait_ns;
	seconds = (double)stats.update_ns / 1e9;
	gbps = stats.update_ns ? (double)player->plan.bytes * 8e-9 / seconds : 0;
	put(player,
	    player->arguments.json
		    ? "{\"event\":\"update\",\"version\":%llu,\"role\":\"%s\",\"rank\":%u,\"bytes\":%llu,"
		      "\"seconds\":%.9f,\"gbps\":%.6f,\"wait_seconds\":%.9f,\"copy_seconds\":%.9f,"
		      "\"verify_seconds\":%.9f,\"bytes_saved\":%llu,\"time\":%.6f}\n"
		    : "update version=%llu role=%s rank=%u bytes=%llu seconds=%.6f gbps=%.3f "
		      "begin_wait=%.6f copy=%.6f verify=%.6f bytes_saved=%llu\n",
	    (unsigned long long)version, self_role(player), player->rank,
	    (unsigned long long)player->plan.bytes, seconds, gbps, (double)stats.wait_ns / 1e9,
	    (double)stats.copy_ns / 1e9, (double)stats.verify_ns / 1e9,
	    (unsigned long long)(stats.saved_bytes - player->saved_bytes),
	    (double)now.tv_sec + (double)now.tv_nsec / 1e9); /* text ends before it */
	player->saved_bytes = stats.saved_bytes;
}

void figures_joined(struct player *player)
{
	const weft_plan_view *plan = &player->plan;

	put(player,
	    player->arguments.json
		    ? "{\"event\":\"joined\",\"role\":\"%s\",\"rank\":%u,\"peers\":%u,\"pieces\":%llu,"
		      "\"bytes\":%llu,\"policy\":\"%s\",\"order\":\"%s\",\"plan\":\"%s\"}\n"
		    : "joined role=%s rank=%u peers=%u pieces=%llu bytes=%llu policy=%s order=%s plan=%s\n",
	    self_role(player), player->rank, plan->peers, (unsigned long long)plan->pieces,
	    (unsigned long long)plan->bytes, plan->policy, plan->order, plan->digest);
}

void figures_done(struct player *player)
{
	weft_stats stats = WEFT_STATS_INIT;

	weft_get_stats(player->worker, &stats, NULL);
	put(player,
	    player->arguments.json
		    ? "{\"event\":\"done\",\"role\":\"%s\",\"rank\":%u,\"updates\":%llu,"
		      "\"bytes\":%llu,\"bytes_verified\":%llu,\"bytes_packed\":%llu,\"writes\":%llu,"
		      "\"bytes_saved\":%llu}\n"
		    : "done role=%s rank=%u updates=%llu bytes=%llu bytes_verified=%llu "
		      "bytes_packed=%llu writes=%llu bytes_saved=%llu\n",
	    self_role(player), player->rank, (unsigned long long)stats.updates,
	    (unsigned long long)stats.bytes, (unsigned long long)player->verified,
	    (unsigned long long)stats.packed_bytes, (unsigned long long)stats.writes,
	    (unsigned long long)stats.saved_bytes);
}
