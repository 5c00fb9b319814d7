/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/mock/network.h"

#include "base/memory.h"

static struct mock_network whole_process = {.lock = PTHREAD_MUTEX_INITIALIZER, .random = 1};

static void lock_default(void)
{
	pthread_mutex_lock(&whole_process.lock);
}

static void unlock_default(void)
{
	pthread_mutex_unlock(&whole_process.lock);
}

/* A thread that waits for signals may hold the lock when another one forks, and the child closes what it
 * inherited. */
static void watch_forks(void)
{
	pthread_atfork(lock_default, unlock_default, unlock_default);
}

struct mock_network *network_default(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	return &whole_process;
}

int mock_network_open(struct mock_network **out, uint64_t seed, struct error *error)
{
	struct mock_network *network = memory_zalloc(1, sizeof(*network));

	*out = NULL;
	if (!network)
		return memory_error(error, "opening a mock network", sizeof(*network));
	pthread_mutex_init(&network->lock, NULL);
	network->random = seed;
	*out = network;
	return 0;
}

void mock_network_close(struct mock_network **network)
{
	struct mock_network *old = *network;

	if (!old)
		return;
	*network = NULL;
	for (size_t i = 0; i < old->parcels.count; i++)
		memory_free(old->parcels.items[i].copy);
	array_free(&old->parcels);
	for (int list = 0; list < MOCK_LISTS; list++)
		array_free(&old->lists[list]);
	pthread_mutex_destroy(&old->lock);
	memory_free(old);
}

/* splitmix64: short, and good enough for schedules */
uint64_t network_random(struct mock_network *network, uint64_t below)
{
	uint64_t z = network->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	return below ? z % below : 0;
}

void *network_add(struct mock_network *network, enum mock_list list, const void *filled,
		  size_t bytes, const char *what, struct error *error)
{
	uint64_t *object = memory_alloc(bytes);
	void **place = NULL;

	pthread_mutex_lock(&network->lock);
	if (object)
		place = array_push(&network->lists[list]);
	if (place) {
		memcpy(object, filled, bytes);
		*object = ++network->next_id;
		*place = object;
	}
	pthread_mutex_unlock(&network->lock);
	if (place)
		return object;
	memory_free(object);
	memory_error(error, what, bytes);
	return NULL;
}

void network_remove(struct mock_network *network, enum mock_list list, void *object)
{
	pthread_mutex_lock(&network->lock);
	array_each(place, &network->lists[list]) {
		if (*place != object)
			continue;
		*place = network->lists[list].items[--network->lists[list].count];
		break;
	}
	if (!network->lists[list].count)
		array_free(&network->lists[list]); /* the process's own network leaves nothing */
	if (!network->parcels.count)
		array_free(&network->parcels);
	pthread_mutex_unlock(&network->lock);
	memory_free(object);
}

void *network_find(const struct mock_network *network, enum mock_list list, uint64_t id)
{
	array_each(place, &network->lists[list])
		if (*(const uint64_t *)*place == id)
			return *place;
	return NULL;
}

static void remove_parcel(struct mock_network *network, size_t i)
{
	memory_free(network->parcels.items[i].copy);
	network->parcels.items[i] = network->parcels.items[--network->parcels.count];
}

void network_drop(struct mock_network *network, const struct mock_endpoint *from)
{
	for (size_t i = network->parcels.count; i-- > 0;)
		if (network->parcels.items[i].from == from)
			remove_parcel(network, i);
}

static struct mock_post *find_post(struct mock_endpoint *endpoint, uint64_t id)
{
	for (uint32_t i = 0; i < endpoint->post_count; i++)
		if (endpoint->posts[i].id == id)
			return &endpoint->posts[i];
	return NULL;
}

/* Reason why the target does not take it, or NULL when it was placed. */
static const char *place(struct mock_network *network, const struct parcel *parcel)
{
	struct mock_endpoint *to = network_find(network, MOCK_ENDPOINTS, parcel->from->peer);
	struct mock_region *region;

	if (parcel->from->fenced)
		return "the peer fenced this endpoint";
	if (!to && parcel->from->domain->options.wrong != MOCK_LATE_LANDS)
		return "the peer closed its endpoint";
	if (parcel->signal && to) {
		mailbox_store(&to->mailbox, &parcel->sent);
		doorbell_ring(&to->domain->doorbell);
		if (to->domain->options.signal_placed)
			to->domain->options.signal_placed(to->domain->options.context);
		return NULL;
	}
	if (parcel->signal)
		return "the peer closed its endpoint";
	region = network_find(network, MOCK_REGIONS, parcel->region);
	if (!region || parcel->offset + parcel->bytes > region->bytes)
		return "the peer closed the region";
	memcpy(region->memory + parcel->offset, parcel->copy ? parcel->copy : parcel->source,
	       parcel->bytes);
	return NULL;
}

static void deliver(struct mock_network *network, size_t i)
{
	struct parcel *parcel = &network->parcels.items[i];
	struct mock_endpoint *from = parcel->from;
	const char *failed = place(network, parcel);
	struct mock_post *post = find_post(from, parcel->post);

	if (post && post->parcels) { /* 0: it completed before it was placed */
		post->parcels--;
		post->due = network->pumps +
			    network_random(network, (uint64_t)from->domain->options.delay_max + 1);
		if (failed)
			post->failed = failed;
	}
	remove_parcel(network, i);
}

/* A signal waits for every earlier post of its endpoint, whatever the rail. */
static bool may_go(const struct mock_network *network, const struct parcel *parcel)
{
	if (!parcel->signal || parcel->from->domain->options.wrong == MOCK_SIGNAL_OVERTAKES)
		return true;
	array_each(other, &network->parcels) {
		if (other->from == parcel->from && other->order < parcel->order)
			return false;
	}
	return true;
}

void network_pump(struct mock_network *network, uint32_t parcels)
{
	network->pumps++;
	while (parcels-- && network->parcels.count) {
		size_t count = network->parcels.count;
		size_t first = network_random(network, count);

		for (size_t i = 0; i < count; i++) {
			size_t at = (first + i) % count;

			if (may_go(network, &network->parcels.items[at])) {
				deliver(network, at);
				break;
			}
		}
	}
}

uint64_t mock_pump(struct mock_network *network, uint32_t parcels)
{
	uint64_t left;

	if (!network)
		network = network_default();
	pthread_mutex_lock(&network->lock);
	network_pump(network, parcels);
	left = network->parcels.count;
	pthread_mutex_unlock(&network->lock);
	return left;
}
