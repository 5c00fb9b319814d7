/* SPDX-License-Identifier: Apache-2.0
 *
 * message_kept.c -- what is not said again in a pause of a pair that keeps its endpoint: the record, places, and regions. Who
 * hears it puts it together with what was said before:
 *
 *   said before    region 0   region 1 (sums)      places      record
 *   said now                  region 1, no bytes                        region 3 (sums, larger)
 *   heard          region 0                        places                region 3
 */
#include "wire/message_parts.h"

#include <stdlib.h>
#include <string.h>

static size_t find_region(const struct region_record *regions, size_t count, uint32_t region)
{
	size_t i = 0;

	while (i < count && regions[i].region != region)
		i++;
	return i;
}

int message_regions_change(struct region_record **regions, size_t *count,
			   struct region_record *changes, size_t change_count, struct error *error)
{
	struct region_record *all = memory_zalloc(*count + change_count, sizeof(*all));

	if (!all)
		return memory_error(error, "taking regions",
				    (*count + change_count) * sizeof(*all));
	if (*count)
		memcpy(all, *regions, *count * sizeof(*all));
	memory_free(*regions);
	*regions = all;
	for (size_t c = 0; c < change_count; c++) {
		size_t at = find_region(all, *count, changes[c].region);

		if (at < *count) {
			memory_free(all[at].bytes);
			memmove(&all[at], &all[at + 1], (*count - at - 1) * sizeof(*all));
			--*count;
		}
		if (!changes[c].length)
			continue;
		all[*count] = changes[c];
		changes[c].bytes = NULL;
		changes[c].length = 0;
		++*count;
	}
	return 0;
}

static int compare_endpoints(const void *member, const void *peer)
{
	return member_compare(member, &((const struct peer_endpoints *)peer)->member);
}

struct peer_endpoints *message_peers_find(const struct message_peers *peers, struct member member)
{
	return peers->peer_count ? bsearch(&member, peers->peers, peers->peer_count,
					   sizeof(*peers->peers), compare_endpoints)
				 : NULL;
}

static void move(struct peer_endpoints *to, struct peer_endpoints *from)
{
	*to = *from;
	*from = (struct peer_endpoints){.member = from->member};
}

static int complete_one(struct peer_endpoints *out, const struct plan_peer *peer,
			struct message_peers *said, struct message_peers *before,
			struct error *error)
{
	struct peer_endpoints *now = message_peers_find(said, peer->member);
	struct peer_endpoints *old = peer->kept ? message_peers_find(before, peer->member) : NULL;
	char name[MEMBER_TEXT_BYTES];

	if (peer->kept ? !old : !now)
		return error_set(
			error, ERROR_MESSAGE, "nothing of %s, %s", member_text(peer->member, name),
			peer->kept ? "with which the plan keeps an endpoint, was said before"
				   : "which is a peer of the plan");
	if (!peer->kept) {
		move(out, now);
		return 0;
	}
	if (now && now->incarnation != old->incarnation)
		return error_set(
			error, ERROR_MESSAGE,
			"%s, with which the plan keeps an endpoint, is another process by now",
			member_text(peer->member, name));
	move(out, old);
	memory_free(out->record);
	out->record = NULL;
	out->record_length = 0;
	return now ? message_regions_change(&out->regions, &out->region_count, now->regions,
					    now->region_count, error)
		   : 0;
}

int message_peers_complete(struct message_peers *peers, const struct message_plan *plan,
			   struct message_peers *before, struct error *error)
{
	struct message_peers all = {.attempt = peers->attempt};
	struct message whole = {.type = MESSAGE_PEERS};
	size_t used = 0;
	int rc = 0;

	all.peers = memory_zalloc(plan->peer_count, sizeof(*all.peers));
	if (!all.peers)
		return memory_error(error, "taking endpoints",
				    plan->peer_count * sizeof(*all.peers));
	for (size_t i = 0; i < plan->peer_count && !rc; i++) {
		used += message_peers_find(peers, plan->peers[i].member) != NULL;
		rc = complete_one(&all.peers[all.peer_count++], &plan->peers[i], peers, before,
				  error);
	}
	if (!rc && used != peers->peer_count)
		rc = error_set(error, ERROR_MESSAGE,
			       "%zu endpoints, of which %zu are of peers of the plan",
			       peers->peer_count, used);
	whole.u.peers = *peers;
	message_fini(&whole);
	*peers = all;
	return rc;
}
