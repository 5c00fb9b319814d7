/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/mock/network.h"

#include "base/clock.h"
#include "base/memory.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define PARCELS_MAX	3
#define MOCK_REGION_MAX (UINT64_C(1) << 36)

static const struct mock_options *default_options;

void mock_options_default(const struct mock_options *options)
{
	default_options = options;
}

static int mock_domain_open(struct transport_domain *domain, struct error *error)
{
	const struct mock_options *options = domain->options.provider_options;
	struct mock_domain filled = {0}, *mock;

	if (!options)
		options = default_options;
	if (options)
		filled.options = *options;
	filled.network = filled.options.network ? filled.options.network : network_default();
	if (!filled.options.wrong_every)
		filled.options.wrong_every = 3;
	mock = network_add(filled.network, MOCK_DOMAINS, &filled, sizeof(filled),
			   "opening a mock domain", error);
	if (!mock)
		return -ERROR_MEMORY;
	options = &mock->options;
	domain->state = mock;
	domain->caps = (struct transport_caps){
		.ordered = options->ordered,
		.mapped_remote = options->mapped,
		.passive_target = true,
		.fence_waits = false,
		.local_registration = options->local_registration,
		.write_bytes_max = options->write_bytes_max ? options->write_bytes_max : 65536,
		.inflight_max = options->inflight_max ? options->inflight_max : 16,
		.rails = options->rails ? options->rails : 1,
	};
	snprintf(domain->reach, sizeof(domain->reach), "process %d", (int)getpid());
	if (options->reach)
		snprintf(domain->reach, sizeof(domain->reach), "%s", options->reach);
	for (uint32_t i = 0; i < options->nic_count && i < PROVIDER_NICS_MAX; i++)
		domain->nics[domain->nic_count++] = options->nics[i];
	return 0;
}

static void mock_domain_close(struct transport_domain *domain)
{
	struct mock_domain *mock = domain->state;

	network_remove(mock->network, MOCK_DOMAINS, mock);
}

static void mock_domain_wake(struct transport_domain *domain)
{
	struct mock_domain *mock = domain->state;

	doorbell_wake(&mock->doorbell);
}

static int add_region(struct transport_region *region, bool allocated, struct error *error)
{
	struct mock_domain *domain = region->domain->state;
	const struct mock_region filled = {
		.memory = region->memory, .bytes = region->bytes, .allocated = allocated};

	region->state = network_add(domain->network, MOCK_REGIONS, &filled, sizeof(filled),
				    "opening a mock region", error);
	if (!region->state)
		return -ERROR_MEMORY;
	region->mapped = allocated && domain->options.mapped;
	return 0;
}

static int mock_region_register(struct transport_region *region, struct error *error)
{
	return add_region(region, false, error);
}

static int mock_region_allocate(struct transport_region *region, struct error *error)
{
	int rc;

	if (region->bytes > MOCK_REGION_MAX)
		return error_set(error, ERROR_LIMIT,
				 "a mock region of %" PRIu64 " bytes; at most %" PRIu64
				 " are possible",
				 region->bytes, MOCK_REGION_MAX);
	region->memory = memory_aligned(memory_page_bytes(), region->bytes);
	if (!region->memory)
		return memory_error(error, "allocating a mock region", region->bytes);
	memset(region->memory, 0, region->bytes);
	rc = add_region(region, true, error);
	if (rc)
		memory_free(region->memory);
	return rc;
}

static void mock_region_close(struct transport_region *region)
{
	struct mock_domain *domain = region->domain->state;
	struct mock_region *mock = region->state;
	bool allocated = mock->allocated;

	network_remove(domain->network, MOCK_REGIONS, mock);
	if (allocated) /* nobody finds it any more */
		memory_free(region->memory);
}

/* Both records: pid and network, which must be this process's, then the object's id. */
static void put_place(struct record_writer *writer, const struct mock_domain *domain, uint64_t id)
{
	record_put_u64(writer, (uint64_t)getpid());
	record_put_u64(writer, (uint64_t)(uintptr_t)domain->network);
	record_put_u64(writer, domain->id);
	record_put_u64(writer, id);
}

static int get_place(struct record_reader *reader, const struct mock_domain *domain,
		     uint64_t *peer_domain, uint64_t *id, struct error *error)
{
	uint64_t pid = record_get_u64(reader), network = record_get_u64(reader);
	int rc;

	*peer_domain = record_get_u64(reader);
	*id = record_get_u64(reader);
	rc = record_done(reader, error);
	if (rc)
		return rc;
	if (pid != (uint64_t)getpid() || network != (uint64_t)(uintptr_t)domain->network)
		return error_set(error, ERROR_UNSUPPORTED,
				 "provider mock joins domains of one process and network only");
	return 0;
}

static int mock_region_export(const struct transport_region *region, struct record_writer *writer,
			      struct error *error)
{
	const struct mock_region *mock = region->state;

	put_place(writer, region->domain->state, mock->id);
	return 0;
}

static int mock_endpoint_open(struct transport_endpoint *endpoint, struct error *error)
{
	struct mock_domain *domain = endpoint->domain->state;
	struct mock_endpoint filled = {
		.domain = domain,
		.posts = memory_zalloc(endpoint->domain->caps.inflight_max, sizeof(*filled.posts)),
	};

	if (!filled.posts)
		return memory_error(error, "opening a mock endpoint", sizeof(filled));
	endpoint->state = network_add(domain->network, MOCK_ENDPOINTS, &filled, sizeof(filled),
				      "opening a mock endpoint", error);
	if (endpoint->state)
		return 0;
	memory_free(filled.posts);
	return -ERROR_MEMORY;
}

static int mock_endpoint_record(const struct transport_endpoint *endpoint,
				struct record_writer *writer, struct error *error)
{
	const struct mock_endpoint *mock = endpoint->state;

	put_place(writer, mock->domain, mock->id);
	return 0;
}

static int mock_endpoint_connect(struct transport_endpoint *endpoint, struct record_reader *reader,
				 uint64_t deadline_ns, struct error *error)
{
	struct mock_endpoint *mock = endpoint->state;
	struct mock_network *network = mock->domain->network;
	struct transport_wait wait;
	struct mock_endpoint *peer;
	uint64_t id;
	int rc = get_place(reader, mock->domain, &mock->peer_domain, &id, error);

	wait_begin(&wait, endpoint->domain, deadline_ns);
	while (!rc && mock->domain->options.connect_never)
		rc = wait_turn(&wait, error);
	if (rc)
		return rc;
	pthread_mutex_lock(&network->lock);
	peer = network_find(network, MOCK_ENDPOINTS, id);
	if (peer)
		mock->peer = id;
	pthread_mutex_unlock(&network->lock);
	if (!peer)
		return error_set(error, ERROR_PEER_LOST,
				 "the peer closed this endpoint since it made the record");
	return 0;
}

/* What a probe write would find out: the path is there once the peer has connected back. */
static int mock_endpoint_probe(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			       struct error *error)
{
	struct mock_endpoint *mock = endpoint->state;
	struct mock_network *network = mock->domain->network;
	struct transport_wait wait;

	wait_begin(&wait, endpoint->domain, deadline_ns);
	for (;;) {
		struct mock_endpoint *peer;
		bool back;
		int rc;

		pthread_mutex_lock(&network->lock);
		peer = network_find(network, MOCK_ENDPOINTS, mock->peer);
		back = peer && peer->peer == mock->id;
		pthread_mutex_unlock(&network->lock);
		if (!peer)
			return error_set(error, ERROR_PEER_LOST, "the peer closed its endpoint");
		if (back)
			return 0;
		rc = wait_turn(&wait, error);
		if (rc)
			return error_wrap(error, "the peer has not connected"), rc;
	}
}

static void mock_endpoint_abort(struct transport_endpoint *endpoint)
{
	struct mock_endpoint *mock = endpoint->state;

	pthread_mutex_lock(&mock->domain->network->lock);
	network_drop(mock->domain->network, mock);
	pthread_mutex_unlock(&mock->domain->network->lock);
}

/* Like a destroyed queue pair: what is under way from the peers is gone, later posts
 * fail. */
static int mock_endpoint_fence(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			       struct error *error)
{
	struct mock_endpoint *mock = endpoint->state;
	struct mock_network *network = mock->domain->network;

	if (mock->domain->options.wrong == MOCK_LATE_LANDS)
		return 0;
	pthread_mutex_lock(&network->lock);
	array_each(place, &network->lists[MOCK_ENDPOINTS]) {
		struct mock_endpoint *other = *place;

		if (other->peer != mock->id)
			continue;
		other->fenced = true;
		network_drop(network, other);
		for (uint32_t p = 0; p < other->post_count; p++) {
			other->posts[p].parcels = 0;
			other->posts[p].failed = "the peer fenced this endpoint";
		}
	}
	pthread_mutex_unlock(&network->lock);
	return 0;
}

static void mock_endpoint_close(struct transport_endpoint *endpoint)
{
	struct mock_endpoint *mock = endpoint->state;
	struct mock_post *posts = mock->posts;

	mock_endpoint_abort(endpoint);
	network_remove(mock->domain->network, MOCK_ENDPOINTS, mock);
	memory_free(posts); /* until then a peer's fence looks at them */
}

static int mock_remote_import(struct transport_remote *remote, struct record_reader *reader,
			      struct error *error)
{
	struct mock_endpoint *endpoint = remote->endpoint->state;
	struct mock_network *network = endpoint->domain->network;
	struct mock_region *region;
	uint64_t domain, id;
	int rc = get_place(reader, endpoint->domain, &domain, &id, error);

	if (rc)
		return rc;
	pthread_mutex_lock(&network->lock);
	region = network_find(network, MOCK_REGIONS, id);
	remote->state = (void *)(uintptr_t)id;
	if (region && region->allocated && endpoint->domain->options.mapped)
		remote->pointer = region->memory;
	pthread_mutex_unlock(&network->lock);
	if (!region)
		return error_set(error, ERROR_PEER_LOST, "the peer closed this region");
	return 0;
}

static uint32_t mock_credit(const struct transport_endpoint *endpoint, uint32_t rail)
{
	const struct transport_caps *caps = &endpoint->domain->caps;
	const struct mock_endpoint *mock = endpoint->state;
	uint32_t limit = (caps->inflight_max + caps->rails - 1) / caps->rails, used = 0;

	pthread_mutex_lock(&mock->domain->network->lock);
	for (uint32_t i = 0; i < mock->post_count; i++)
		used += mock->posts[i].rail == rail;
	if (mock->post_count >= caps->inflight_max)
		used = limit;
	pthread_mutex_unlock(&mock->domain->network->lock);
	return used < limit ? limit - used : 0;
}

static bool wrong_now(struct mock_domain *domain, enum mock_wrong wrong, uint64_t *count)
{
	return domain->options.wrong == wrong && ++*count % domain->options.wrong_every == 0;
}

/* Cuts a chunk into parcels, so that even one chunk arrives in any order. */
static bool send_parcels(struct mock_endpoint *mock, const struct provider_write *write,
			 struct mock_post *post)
{
	struct mock_network *network = mock->domain->network;
	uint64_t left = write->bytes, done = 0;
	size_t before = network->parcels.count;

	for (int i = 0; i < PARCELS_MAX && left; i++) {
		uint64_t bytes = i == PARCELS_MAX - 1 ? left : 1 + network_random(network, left);
		struct parcel *parcel = array_push(&network->parcels);

		if (!parcel)
			goto fail;
		*parcel = (struct parcel){.from = mock,
					  .post = write->id,
					  .order = mock->order,
					  .region = (uint64_t)(uintptr_t)write->remote->state,
					  .offset = write->offset + done,
					  .bytes = bytes,
					  .source = write->source + done};
		if (mock->domain->options.complete_early) {
			parcel->copy = memory_alloc(bytes);
			if (!parcel->copy)
				goto fail;
			memcpy(parcel->copy, parcel->source, bytes);
		}
		post->parcels++;
		done += bytes;
		left -= bytes;
	}
	return true;
fail:
	while (network->parcels.count > before)
		memory_free(network->parcels.items[--network->parcels.count].copy);
	return false;
}

static int post_one(struct mock_endpoint *mock, uint32_t rail, const struct provider_write *write,
		    struct error *error)
{
	struct mock_network *network = mock->domain->network;
	struct mock_post *post = &mock->posts[mock->post_count];

	*post = (struct mock_post){.id = write->id, .rail = rail};
	mock->order++;
	if (!wrong_now(mock->domain, MOCK_CHUNK_DROPPED, &network->writes) &&
	    !send_parcels(mock, write, post))
		return memory_error(error, "posting to the mock network", write->bytes);
	if (mock->domain->options.complete_early)
		post->parcels = 0;
	mock->post_count++;
	return 0;
}

static int mock_post_write(struct transport_endpoint *endpoint, uint32_t rail,
			   const struct provider_write *writes, uint32_t count, uint32_t *posted,
			   struct error *error)
{
	struct mock_endpoint *mock = endpoint->state;
	struct mock_network *network = mock->domain->network;
	int rc = 0;

	*posted = 0;
	pthread_mutex_lock(&network->lock);
	while (*posted < count && mock->post_count < endpoint->domain->caps.inflight_max) {
		rc = post_one(mock, rail, &writes[*posted], error);
		if (rc)
			break;
		++*posted;
	}
	pthread_mutex_unlock(&network->lock);
	return rc;
}

static int mock_post_signal(struct transport_endpoint *endpoint, uint64_t id,
			    const struct transport_signal *signal, struct error *error)
{
	struct mock_endpoint *mock = endpoint->state;
	struct mock_network *network = mock->domain->network;
	struct parcel *parcel;
	int rc = 1;

	pthread_mutex_lock(&network->lock);
	if (mock->post_count < endpoint->domain->caps.inflight_max) {
		parcel = array_push(&network->parcels);
		if (parcel) {
			*parcel = (struct parcel){.from = mock,
						  .post = id,
						  .signal = true,
						  .order = ++mock->order,
						  .sent = *signal};
			mock->posts[mock->post_count++] =
				(struct mock_post){.id = id, .parcels = 1};
		}
		rc = parcel ? 0 : memory_error(error, "signalling", sizeof(*parcel));
	}
	pthread_mutex_unlock(&network->lock);
	return rc;
}

static int mock_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
		     struct error *error)
{
	struct mock_endpoint *mock = endpoint->state;
	struct mock_network *network = mock->domain->network;
	uint32_t first;
	int n = 0;

	pthread_mutex_lock(&network->lock);
	network_pump(network, (uint32_t)network_random(network, 4));
	first = (uint32_t)network_random(network, mock->post_count);
	for (uint32_t i = first; i < mock->post_count && n < max; i++) {
		struct mock_post *post = &mock->posts[i];

		if (post->parcels || post->due > network->pumps)
			continue;
		out[n++] = (struct provider_completion){
			post->id, post->failed ? -(int)ERROR_TRANSPORT : 0, post->failed};
		if (wrong_now(mock->domain, MOCK_COMPLETES_TWICE, &network->completions))
			continue;
		*post = mock->posts[--mock->post_count];
		i--;
	}
	pthread_mutex_unlock(&network->lock);
	return n;
}

static int mock_signal_read(const struct transport_endpoint *endpoint,
			    struct transport_signal *signal)
{
	struct mock_endpoint *mock = endpoint->state;

	return mailbox_load(&mock->mailbox, signal);
}

/* Waiting moves the network too: nobody else may be doing it. */
static uint64_t mock_signal_wait(struct transport_domain *domain, uint64_t seen,
				 uint64_t deadline_ns)
{
	struct mock_domain *mock = domain->state;
	_Atomic uint32_t never = 0;
	uint64_t count, now;

	for (;;) {
		mock_pump(mock->network, 2);
		count = atomic_load(&mock->doorbell.count);
		now = clock_ns();
		if (count != seen || now >= deadline_ns ||
		    atomic_exchange(&domain->interrupt_pending, 0))
			return count;
		now += 200000;
		doorbell_wait(&mock->doorbell, seen, now < deadline_ns ? now : deadline_ns, &never);
	}
}

static bool mock_peer_dead(const struct transport_endpoint *endpoint)
{
	const struct mock_endpoint *mock = endpoint->state;
	bool dead;

	pthread_mutex_lock(&mock->domain->network->lock);
	dead = mock->peer && !network_find(mock->domain->network, MOCK_DOMAINS, mock->peer_domain);
	pthread_mutex_unlock(&mock->domain->network->lock);
	return dead;
}

/* holes: nothing to do, or not to be had */
#define mock_domain_keep_mapped NULL
#define mock_endpoint_stop	NULL
#define mock_remote_close	NULL
#define mock_settle		NULL
#define mock_idle		NULL

const struct provider provider_mock = {.name = "mock",
				       .what = "domains of one process, in random order: for tests",
				       .one_host = true,
#define X(op) .op = mock_##op,
				       PROVIDER_OPS(X)
#undef X
};
