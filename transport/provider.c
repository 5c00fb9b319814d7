/* SPDX-License-Identifier: Apache-2.0
 *
 * provider.c -- the table of providers, and the ops that fill holes.
 */
#include "transport/provider.h"

#include "base/array.h"
#include "base/text.h"

static const struct provider *const providers[] = {&provider_shm, &provider_cuda, &provider_verbs,
						   &provider_tcp, &provider_efa};

const struct provider_tested *provider_tested;

/* Row i of all that this program has, or NULL behind the last. */
static const struct provider *provider_at(size_t i)
{
	if (i < ARRAY_SIZE(providers))
		return providers[i];
	return provider_tested ? provider_tested->rows[i - ARRAY_SIZE(providers)] : NULL;
}

static int refuse(const struct transport_domain *domain, const char *what, struct error *error)
{
	return error_set(error, ERROR_UNSUPPORTED, "provider %s cannot %s", domain->ops.name, what);
}

/* What stands in a hole: an answer that looks at little of what it is asked. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define HOLE(result, op, parameters, answer) \
	static result no_##op parameters     \
	{                                    \
		return answer;               \
	}
#define HOLE_VOID(op, parameters)      \
	static void no_##op parameters \
	{                              \
	}

HOLE(int, domain_open, (struct transport_domain * domain, struct error *error),
     refuse(domain, "be opened in this build", error))
HOLE_VOID(domain_close, (struct transport_domain * domain))
HOLE_VOID(domain_wake, (struct transport_domain * domain))
HOLE_VOID(domain_keep_mapped, (struct transport_domain * domain, bool keep))
HOLE(int, region_allocate, (struct transport_region * region, struct error *error),
     refuse(region->domain, "allocate regions: register memory instead", error))
HOLE(int, region_register, (struct transport_region * region, struct error *error),
     refuse(region->domain, "register memory: use regions from weft's own allocator", error))
HOLE(int, region_export,
     (const struct transport_region *region, struct record_writer *writer, struct error *error),
     refuse(region->domain, "export regions", error))
HOLE_VOID(region_close, (struct transport_region * region))
HOLE(int, endpoint_open, (struct transport_endpoint * endpoint, struct error *error),
     refuse(endpoint->domain, "open endpoints", error))
HOLE(int, endpoint_record,
     (const struct transport_endpoint *endpoint, struct record_writer *writer, struct error *error),
     refuse(endpoint->domain, "describe endpoints", error))
HOLE(int, endpoint_connect,
     (struct transport_endpoint * endpoint, struct record_reader *reader, uint64_t deadline_ns,
      struct error *error),
     refuse(endpoint->domain, "connect", error))
HOLE(int, endpoint_probe,
     (struct transport_endpoint * endpoint, uint64_t deadline_ns, struct error *error), 0)
HOLE_VOID(endpoint_abort, (struct transport_endpoint * endpoint))
HOLE(int, endpoint_fence,
     (struct transport_endpoint * endpoint, uint64_t deadline_ns, struct error *error),
     refuse(endpoint->domain, "fence a peer", error))
HOLE(int, endpoint_stop,
     (struct transport_endpoint * endpoint, uint64_t deadline_ns, struct error *error),
     endpoint->domain->ops.endpoint_fence(endpoint, deadline_ns, error))
HOLE_VOID(endpoint_close, (struct transport_endpoint * endpoint))
HOLE(int, remote_import,
     (struct transport_remote * remote, struct record_reader *reader, struct error *error),
     refuse(remote->endpoint->domain, "import regions", error))
HOLE_VOID(remote_close, (struct transport_remote * remote))
HOLE(uint32_t, credit, (const struct transport_endpoint *endpoint, uint32_t rail),
     endpoint->domain->caps.inflight_max)
HOLE(int, post_write,
     (struct transport_endpoint * endpoint, uint32_t rail, const struct provider_write *writes,
      uint32_t count, uint32_t *posted, struct error *error),
     (*posted = 0, refuse(endpoint->domain, "write", error)))
HOLE(int, post_signal,
     (struct transport_endpoint * endpoint, uint64_t id, const struct transport_signal *signal,
      struct error *error),
     refuse(endpoint->domain, "signal", error))
HOLE(int, poll,
     (struct transport_endpoint * endpoint, struct provider_completion *out, int max,
      struct error *error),
     refuse(endpoint->domain, "report completions", error))
HOLE(int, settle, (struct transport_endpoint * endpoint, struct error *error), 0)
HOLE_VOID(idle, (struct transport_domain * domain, uint32_t turns))
HOLE(int, signal_read, (const struct transport_endpoint *endpoint, struct transport_signal *signal),
     1)
HOLE(bool, peer_dead, (const struct transport_endpoint *endpoint), false)

#pragma GCC diagnostic pop

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
	const struct provider *row;
	struct text known = {0};
	int rc;

	for (size_t i = 0; (row = provider_at(i)); i++) {
		if (strcmp(row->name, name) == 0) {
			*ops = *row;
			provider_complete(ops);
			text_fini(&known);
			return 0;
		}
		text_format(&known, "%s%s", i ? ", " : "", row->name);
	}
	rc = error_set(error, ERROR_UNSUPPORTED,
		       "there is no transport provider '%s' in this build; there are: %s", name,
		       text_string(&known));
	text_fini(&known);
	return rc;
}

const struct transport_provider_info *transport_providers(size_t *count)
{
	static struct transport_provider_info infos[ARRAY_SIZE(providers) + PROVIDER_TESTED_MAX];
	const struct provider *row;
	size_t i;

	/* the same values each time, so a second caller at the same moment does no harm
	 */
	for (i = 0; i < ARRAY_SIZE(infos) && (row = provider_at(i)); i++) {
		__atomic_store_n(&infos[i].name, row->name, __ATOMIC_RELAXED);
		__atomic_store_n(&infos[i].what, row->what, __ATOMIC_RELAXED);
		__atomic_store_n(&infos[i].one_host, row->one_host, __ATOMIC_RELAXED);
		__atomic_store_n(&infos[i].maps, row->maps, __ATOMIC_RELAXED);
	}
	*count = i;
	return infos;
}
