/* SPDX-License-Identifier: Apache-2.0
 *
 * provider.c -- the table of providers, and the ops that fill holes.
 */
#include "transport/provider.h"

#include "base/array.h"
#include "base/text.h"

static const struct provider *const providers[] = {&provider_shm, &provider_verbs, &provider_mock,
						   &provider_fault};

static int refuse(const struct transport_domain *domain, const char *what, struct error *error)
{
	return error_set(error, ERROR_UNSUPPORTED, "provider %s cannot %s", domain->ops.name, what);
}

static int no_domain_open(struct transport_domain *domain, struct error *error)
{
	return refuse(domain, "be opened in this build", error);
}

static void no_domain_close(struct transport_domain *domain)
{
	(void)domain;
}

static void no_domain_wake(struct transport_domain *domain)
{
	(void)domain;
}

static int no_region_allocate(struct transport_region *region, struct error *error)
{
	return refuse(region->domain, "allocate regions: register memory instead", error);
}

static int no_region_register(struct transport_region *region, struct error *error)
{
	return refuse(region->domain, "register memory: use regions from weft's own allocator",
		      error);
}

static int no_region_register_dmabuf(struct transport_region *region, int fd, uint64_t offset,
				     struct error *error)
{
	(void)fd;
	(void)offset;
	return refuse(region->domain, "register device memory", error);
}

static int no_region_export(const struct transport_region *region, struct record_writer *writer,
			    struct error *error)
{
	(void)writer;
	return refuse(region->domain, "export regions", error);
}

static void no_region_close(struct transport_region *region)
{
	(void)region;
}

static int no_endpoint_open(struct transport_endpoint *endpoint, struct error *error)
{
	return refuse(endpoint->domain, "open endpoints", error);
}

static int no_endpoint_record(const struct transport_endpoint *endpoint,
			      struct record_writer *writer, struct error *error)
{
	(void)writer;
	return refuse(endpoint->domain, "describe endpoints", error);
}

static int no_endpoint_connect(struct transport_endpoint *endpoint, struct record_reader *reader,
			       uint64_t deadline_ns, struct error *error)
{
	(void)reader;
	(void)deadline_ns;
	return refuse(endpoint->domain, "connect", error);
}

static int no_endpoint_probe(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			     struct error *error)
{
	(void)endpoint;
	(void)deadline_ns;
	(void)error;
	return 0;
}

static void no_endpoint_abort(struct transport_endpoint *endpoint)
{
	(void)endpoint;
}

static int no_endpoint_fence(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			     struct error *error)
{
	(void)deadline_ns;
	return refuse(endpoint->domain, "fence a peer", error);
}

static void no_endpoint_close(struct transport_endpoint *endpoint)
{
	(void)endpoint;
}

static int no_remote_import(struct transport_remote *remote, struct record_reader *reader,
			    struct error *error)
{
	(void)reader;
	return refuse(remote->endpoint->domain, "import regions", error);
}

static void no_remote_close(struct transport_remote *remote)
{
	(void)remote;
}

static uint32_t no_credit(const struct transport_endpoint *endpoint, uint32_t rail)
{
	(void)rail;
	return endpoint->domain->caps.inflight_max;
}

static int no_post_write(struct transport_endpoint *endpoint, uint32_t rail,
			 const struct provider_write *writes, uint32_t count, uint32_t *posted,
			 struct error *error)
{
	(void)rail;
	(void)writes;
	(void)count;
	*posted = 0;
	return refuse(endpoint->domain, "write", error);
}

static int no_post_signal(struct transport_endpoint *endpoint, uint64_t id,
			  const struct transport_signal *signal, struct error *error)
{
	(void)id;
	(void)signal;
	return refuse(endpoint->domain, "signal", error);
}

static int no_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
		   struct error *error)
{
	(void)out;
	(void)max;
	return refuse(endpoint->domain, "report completions", error);
}

static int no_settle(struct transport_endpoint *endpoint, struct error *error)
{
	(void)endpoint;
	(void)error;
	return 0;
}

static int no_signal_read(const struct transport_endpoint *endpoint,
			  struct transport_signal *signal)
{
	(void)endpoint;
	(void)signal;
	return 1;
}

/* No doorbell: the count never changes, so only the deadline or an interrupt ends the
 * wait. */
static uint64_t no_signal_wait(struct transport_domain *domain, uint64_t seen, uint64_t deadline_ns)
{
	struct transport_wait wait;

	wait_begin(&wait, domain, deadline_ns);
	while (wait_turn(&wait, NULL) == 0)
		;
	return seen;
}

static bool no_peer_dead(const struct transport_endpoint *endpoint)
{
	(void)endpoint;
	return false;
}

void provider_complete(struct provider *ops)
{
#define X(op)         \
	if (!ops->op) \
		ops->op = no_##op;
	PROVIDER_OPS(X)
#undef X
}

const char *provider_op_name(enum provider_op op)
{
	static const char *const names[] = {
#define X(op) #op,
		PROVIDER_OPS(X)
#undef X
	};

	_Static_assert(ARRAY_SIZE(names) == PROVIDER_OP_COUNT, "a name for every op");
	return (unsigned)op < PROVIDER_OP_COUNT ? names[op] : "unknown op";
}

int provider_find(const char *name, struct provider *ops, struct error *error)
{
	struct text known = {0};
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		if (strcmp(providers[i]->name, name) == 0) {
			*ops = *providers[i];
			provider_complete(ops);
			text_fini(&known);
			return 0;
		}
		text_format(&known, "%s%s", i ? ", " : "", providers[i]->name);
	}
	rc = error_set(error, ERROR_UNSUPPORTED,
		       "there is no transport provider '%s' in this build; there are: %s", name,
		       text_string(&known));
	text_fini(&known);
	return rc;
}

const struct transport_provider_info *transport_providers(size_t *count)
{
	static struct transport_provider_info infos[ARRAY_SIZE(providers)];

	/* the same values each time, so a second caller at the same moment does no harm
	 */
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		__atomic_store_n(&infos[i].name, providers[i]->name, __ATOMIC_RELAXED);
		__atomic_store_n(&infos[i].what, providers[i]->what, __ATOMIC_RELAXED);
	}
	*count = ARRAY_SIZE(providers);
	return infos;
}
