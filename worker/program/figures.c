/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <stdio.h>

/* A trainer's seconds begin when its targets have accepted, an inference rank's when it opens its
 * memory. */
void figures_update(const struct player *player, uint64_t version)
{
	double seconds, gbps;
	weft_stats stats;

	weft_get_stats(player->worker, &stats);
	if (player->role == WEFT_TRAINER)
		stats.update_ns -= stats.wait_ns;
	seconds = (double)stats.update_ns / 1e9;
	gbps = stats.update_ns ? (double)player->plan.bytes * 8e-9 / seconds : 0;
	printf(player->arguments.json
		       ? "{\"event\":\"update\",\"version\":%llu,\"role\":\"%s\",\"rank\":%u,\"bytes\":%llu,"
			 "\"seconds\":%.9f,\"gbps\":%.6f,\"wait_seconds\":%.9f,\"copy_seconds\":%.9f,"
			 "\"verify_seconds\":%.9f}\n"
		       : "update version=%llu role=%s rank=%u bytes=%llu seconds=%.6f gbps=%.3f "
			 "begin_wait=%.6f copy=%.6f verify=%.6f\n",
	       (unsigned long long)version, self_role(player), player->rank,
	       (unsigned long long)player->plan.bytes, seconds, gbps, (double)stats.wait_ns / 1e9,
	       (double)stats.copy_ns / 1e9, (double)stats.verify_ns / 1e9);
}

void figures_joined(const struct player *player)
{
	const weft_plan_view *plan = &player->plan;

	printf(player->arguments.json
		       ? "{\"event\":\"joined\",\"role\":\"%s\",\"rank\":%u,\"peers\":%u,\"pieces\":%llu,"
			 "\"bytes\":%llu,\"policy\":\"%s\",\"plan\":\"%s\"}\n"
		       : "joined role=%s rank=%u peers=%u pieces=%llu bytes=%llu policy=%s plan=%s\n",
	       self_role(player), player->rank, plan->peers, (unsigned long long)plan->pieces,
	       (unsigned long long)plan->bytes, plan->policy, plan->digest);
}

void figures_done(const struct player *player)
{
	weft_stats stats;

	weft_get_stats(player->worker, &stats);
	printf(player->arguments.json
		       ? "{\"event\":\"done\",\"role\":\"%s\",\"rank\":%u,\"updates\":%llu,"
			 "\"bytes\":%llu,\"bytes_verified\":%llu}\n"
		       : "done role=%s rank=%u updates=%llu bytes=%llu bytes_verified=%llu\n",
	       self_role(player), player->rank, (unsigned long long)stats.updates,
	       (unsigned long long)stats.bytes, (unsigned long long)player->verified);
}
