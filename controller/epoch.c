/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/epoch.h"

#include "base/assert.h"
#include "base/compare.h"
#include <stdlib.h>
#include <string.h>

int epoch_new(struct epoch **out, uint64_t number, uint32_t attempt, uint32_t trainers,
	      uint32_t ranks)
{
	struct epoch *epoch = memory_zalloc(1, sizeof(*epoch));

	WEFT_ASSERT_OP(number, >, 0);
	WEFT_ASSERT_OP(attempt, >, 0);
	WEFT_ASSERT(trainers && ranks);
	if (!epoch)
		return -ERROR_MEMORY;
	epoch->number = number;
	epoch->attempt = attempt;
	epoch->trainers = trainers;
	epoch->capacity = trainers + ranks;
	epoch->parties = pool_array(&epoch->pool, epoch->capacity, sizeof(struct party));
	if (!epoch->parties)
		epoch_free(&epoch);
	*out = epoch;
	return epoch ? 0 : -ERROR_MEMORY;
}

static struct party *add(struct epoch *epoch, struct worker *worker)
{
	uint32_t party = epoch->count++;

	WEFT_ASSERT(!epoch->table);
	WEFT_ASSERT_OP(party, <, epoch->capacity);
	WEFT_ASSERT_OP(worker->who.role == ROLE_TRAINER, ==, party < epoch->trainers);
	WEFT_ASSERT_OP(worker->who.rank, ==,
		       party < epoch->trainers ? party : party - epoch->trainers);
	epoch->parties[party].worker = worker_hold(worker);
	return &epoch->parties[party];
}

void epoch_add(struct epoch *epoch, struct worker *worker)
{
	WEFT_ASSERT(worker->body && worker->body->known);
	add(epoch, worker)->planned = true;
	epoch->at[LEG_PLANNED]++;
}

void epoch_add_away(struct epoch *epoch, struct worker *worker, bool planned)
{
	struct party *party = add(epoch, worker);

	party->away = true;
	party->planned = planned;
	party->leg = LEG_CONNECTED;
	epoch->at[LEG_CONNECTED]++;
}

void epoch_free(struct epoch **out)
{
	struct epoch *epoch = *out;

	if (!epoch)
		return;
	for (uint32_t i = 0; i < epoch->count; i++) {
		worker_release(&epoch->parties[i].worker);
		known_release(&epoch->parties[i].told);
		known_release(&epoch->parties[i].had);
		endpoints_fini(&epoch->parties[i].endpoints);
		epoch_forget_kept(&epoch->parties[i]);
	}
	send_order_fini(&epoch->sends);
	for (int role = 0; role < ROLE_COUNT; role++)
		send_order_fini(&epoch->of[role]);
	pool_free(&epoch->pool);
	if (!epoch->uses || !--*epoch->uses) {
		table_free(&epoch->table);
		topology_free(&epoch->reported);
		problem_free(&epoch->problem);
		memory_free(epoch->uses);
	}
	memory_free(epoch);
	*out = NULL;
}

static struct party *party_of(const struct epoch *epoch, uint32_t party)
{
	WEFT_ASSERT(epoch->table);
	WEFT_ASSERT_OP(party, <, epoch->count);
	return &epoch->parties[party];
}

/* Each leg is made once, and none is left out. */
static void go_on(struct epoch *epoch, struct party *party, enum leg leg)
{
	WEFT_ASSERT_OP(leg, ==, party->leg + 1);
	WEFT_ASSERT_OP(epoch->at[party->leg], >, 0);
	epoch->at[party->leg]--;
	epoch->at[leg]++;
	party->leg = leg;
}

static int compare_records(const void *a, const void *b)
{
	const struct member *x = &((const struct endpoint_record *)a)->peer;
	const struct member *y = &((const struct endpoint_record *)b)->peer;

	return x->role != y->role ? compare_u64(x->role, y->role) : compare_u64(x->rank, y->rank);
}

/* Sorts the records into plan order and refuses what the peers could not use. */
static int check_endpoints(const struct epoch *epoch, const struct party *party,
			   struct message_endpoints *endpoints, struct error *why)
{
	const struct worker *worker = party->worker;
	bool inference = worker->who.role == ROLE_INFERENCE;
	size_t params = inference ? worker->body->layout.param_count : 0;
	char who[WORKER_TEXT_BYTES], name[MEMBER_TEXT_BYTES];

	sort_items(endpoints->records, endpoints->record_count, compare_records);
	for (size_t i = 0; i < party->peer_count; i++) {
		struct member peer = epoch->parties[party->peers[i]].worker->who;

		if (i < endpoints->record_count && endpoints->records[i].peer.role == peer.role &&
		    endpoints->records[i].peer.rank == peer.rank)
			continue;
		return error_set(why, ERROR_MESSAGE, "%s sent endpoints without a record for %s",
				 worker_text(worker, who), member_text(peer, name));
	}
	if (endpoints->record_count != party->peer_count)
		return error_set(
			why, ERROR_MESSAGE, "%s sent %zu endpoint records, and it has %zu peers",
			worker_text(worker, who), endpoints->record_count, party->peer_count);
	if (inference && party->peer_count && endpoints->copies != 1 && endpoints->copies != 2)
		return error_set(why, ERROR_MESSAGE, "%s declares %u copies of its memory: 1 or 2",
				 worker_text(worker, who), endpoints->copies);
	if (endpoints->place_count != endpoints->copies * params)
		return error_set(why, ERROR_MESSAGE,
				 "%s placed %zu parameters: its layout has %zu, its memory %u "
				 "copies",
				 worker_text(worker, who), endpoints->place_count, params,
				 endpoints->copies);
	return 0;
}

int epoch_opened(struct epoch *epoch, uint32_t index, struct message_endpoints *endpoints,
		 struct error *why)
{
	struct party *party = party_of(epoch, index);
	int rc = epoch_complete(epoch, party, endpoints, why);

	WEFT_ASSERT_OP(endpoints->attempt, ==, epoch->attempt);
	if (!rc)
		rc = check_endpoints(epoch, party, endpoints, why);
	if (rc)
		return rc;
	party->endpoints = *endpoints;
	*endpoints = (struct message_endpoints){0};
	go_on(epoch, party, LEG_OPENED);
	for (size_t i = 0; i < party->peer_count; i++) {
		struct party *peer = &epoch->parties[party->peers[i]];

		WEFT_ASSERT_OP(peer->peers_ready, <, peer->peer_count);
		peer->peers_ready++;
	}
	return 0;
}

bool epoch_peers_ready(const struct epoch *epoch, uint32_t index)
{
	const struct party *party = party_of(epoch, index);

	return party->leg == LEG_OPENED && party->peers_ready == party->peer_count;
}

static int copy_bytes(unsigned char **to, const unsigned char *from, size_t bytes)
{
	*to = memory_alloc(bytes);
	if (!*to)
		return -ERROR_MEMORY;
	if (bytes)
		memcpy(*to, from, bytes);
	return 0;
}

/* The place of `to` among the peers of `from`, which is that of the record made for it. */
static size_t place_of(const struct party *from, uint32_t to)
{
	const uint32_t *found =
		bsearch(&to, from->peers, from->peer_count, sizeof(to), compare_u32s);

	WEFT_ASSERT(found);
	return (size_t)(found - from->peers);
}

static int copy_regions(struct peer_endpoints *out, const struct region_record *regions,
			size_t count)
{
	out->regions = memory_zalloc(count, sizeof(*out->regions));
	if (!out->regions)
		return -ERROR_MEMORY;
	for (size_t i = 0; i < count; i++) {
		out->regions[i].region = regions[i].region;
		out->regions[i].length = regions[i].length;
		out->region_count++;
		if (copy_bytes(&out->regions[i].bytes, regions[i].bytes, regions[i].length))
			return -ERROR_MEMORY;
	}
	return 0;
}

/* Whose memory neither writes; what they share never changes. */
static bool are_mates(const struct party *a, const struct party *b)
{
	return a->worker->who.role == b->worker->who.role;
}

/* Of one that keeps its endpoint, what has changed. */
static int describe_kept(struct peer_endpoints *out, const struct party *peer)
{
	out->record = memory_alloc(0);
	if (!out->record)
		return -ERROR_MEMORY;
	return copy_regions(out, peer->changed, peer->changed_count);
}

/* Mates are told of the memory that they share alone, trainers and who sends a copy of all the rest, and who is sent one of nothing. */
static int describe(struct peer_endpoints *out, const struct party *peer, const struct party *party,
		    uint32_t to)
{
	const struct message_endpoints *from = &peer->endpoints;
	size_t place = place_of(peer, to);
	const struct endpoint_record *record = &from->records[place];
	enum plan_copy copy = epoch_copy_of(party, peer);
	bool all = peer->worker->who.role != party->worker->who.role || copy == COPY_TO;
	size_t region_count = all ? from->region_count : copy == COPY_NONE ? from->shared_count : 0;
	size_t place_count = all ? from->place_count : 0;

	out->member = peer->worker->who;
	out->incarnation = peer->worker->hello.incarnation;
	if (epoch_keeps(peer, place))
		return describe_kept(out, peer);
	out->copies = all ? from->copies : 0;
	if (copy_regions(out, all ? from->regions : from->shared, region_count))
		return -ERROR_MEMORY;
	if (copy_bytes((unsigned char **)&out->places, (const unsigned char *)from->places,
		       place_count * sizeof(*from->places)))
		return -ERROR_MEMORY;
	out->place_count = place_count;
	out->record_length = record->length;
	return copy_bytes(&out->record, record->bytes, record->length);
}

int epoch_peers(const struct epoch *epoch, uint32_t index, struct message_peers *peers)
{
	const struct party *party = party_of(epoch, index);

	WEFT_ASSERT(epoch_peers_ready(epoch, index));
	peers->attempt = epoch->attempt;
	peers->peers = memory_zalloc(party->peer_count, sizeof(*peers->peers));
	if (!peers->peers)
		return -ERROR_MEMORY;
	for (size_t i = 0; i < party->peer_count; i++) {
		const struct party *peer = &epoch->parties[party->peers[i]];

		if (epoch_keeps(party, i) && (!peer->changed_count || are_mates(party, peer)))
			continue;
		if (describe(&peers->peers[peers->peer_count++], peer, party, index))
			return -ERROR_MEMORY;
	}
	return 0;
}

void epoch_connected(struct epoch *epoch, uint32_t index)
{
	go_on(epoch, party_of(epoch, index), LEG_CONNECTED);
}

bool epoch_all_connected(const struct epoch *epoch)
{
	return epoch->at[LEG_CONNECTED] == epoch->count;
}

void epoch_adopt(struct epoch *epoch, bool same, uint32_t run_by)
{
	epoch->adopted = true;
	epoch->run_by = run_by;
	epoch->foreign = !same;
	for (uint32_t i = 0; i < epoch->count; i++) {
		struct party *party = &epoch->parties[i];

		party->peers_ready = party->peer_count;
		while (party->leg < LEG_CONNECTED)
			go_on(epoch, party, party->leg + 1);
	}
}

static void check_party(const struct epoch *epoch, const struct party *party)
{
	size_t ready = 0;

	for (size_t i = 0; i < party->peer_count; i++) {
		WEFT_ASSERT_OP(party->peers[i], <, epoch->count);
		WEFT_ASSERT(i == 0 || party->peers[i - 1] < party->peers[i]);
		ready += epoch->parties[party->peers[i]].leg > LEG_PLANNED;
	}
	WEFT_ASSERT_OP(ready, ==, party->peers_ready);
	WEFT_ASSERT(!party->away || !party->peer_count);
	if (epoch->adopted)
		return;
	WEFT_ASSERT(party->away || party->leg == LEG_PLANNED ||
		    party->endpoints.attempt == epoch->attempt);
	WEFT_ASSERT(party->leg == LEG_PLANNED ||
		    party->endpoints.record_count == party->peer_count);
}

void epoch_check(const struct epoch *epoch, uint64_t now_ms)
{
	uint32_t at[LEG_COUNT] = {0};

	if (!WEFT_ASSERTS)
		return;
	WEFT_ASSERT(epoch->table && epoch->problem);
	WEFT_ASSERT_OP(epoch->count, ==, epoch->capacity);
	for (uint32_t i = 0; i < epoch->count; i++) {
		at[epoch->parties[i].leg]++;
		WEFT_ASSERT_OP(epoch->parties[i].plan_ms, <=, now_ms);
		check_party(epoch, &epoch->parties[i]);
	}
	for (int leg = 0; leg < LEG_COUNT; leg++)
		WEFT_ASSERT_OP(at[leg], ==, epoch->at[leg]);
}
