/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.c -- each op asks the policy, then calls the inner provider's on the same
 * objects: the inner provider owns their `state`, this one only domain->wrapper.
 */
#include "transport/fault/fault.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/provider.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define OP_COMPLETION PROVIDER_OP_COUNT
#define OP_ANY	      (PROVIDER_OP_COUNT + 1)

/* A completion to be reported later. */
struct held {
	const struct transport_endpoint *endpoint;
	struct provider_completion completion;
	uint64_t due_ns;
};

struct fault {
	struct provider inner;
	struct fault_options options;
	int op;
	_Atomic uint64_t calls;
	_Atomic uint64_t random;
	ARRAY(struct held) held;
	FILE *trace;
};

static bool by_rate(struct fault *fault)
{
	uint64_t z = atomic_fetch_add(&fault->random, UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	return (double)(z >> 11) * 0x1.0p-53 < fault->options.rate;
}

/* Counts a call; its number if the policy picks it, else 0. */
static uint64_t picked(struct fault *fault, int op)
{
	uint64_t call;

	if (fault->op != op && !(fault->op == OP_ANY && op != OP_COMPLETION))
		return 0;
	call = atomic_fetch_add(&fault->calls, 1) + 1;
	if (fault->options.calls)
		atomic_fetch_add(fault->options.calls, 1);
	if (fault->options.kind == FAULT_NONE)
		return 0;
	if (call != fault->options.at && !by_rate(fault))
		return 0;
	if (fault->options.kind == FAULT_KILL)
		raise(SIGKILL);
	return call;
}

static int enter(const struct transport_domain *domain, enum provider_op op, struct error *error)
{
	struct fault *fault = domain->wrapper;
	uint64_t call = picked(fault, (int)op);

	if (!call)
		return 0;
	if (fault->options.kind == FAULT_DELAY) {
		clock_sleep_ms(fault->options.delay_ms);
		return 0;
	}
	return error_set(error, ERROR_TRANSPORT, "injected fault: %s, call %llu",
			 provider_op_name(op), (unsigned long long)call);
}

#define INNER(domain) (&((struct fault *)(domain)->wrapper)->inner)

static int read_options(struct fault *fault, const struct transport_domain *domain,
			struct error *error)
{
	const struct fault_options *given = domain->options.provider_options;
	const char *text = getenv("WEFT_FAULT");
	int rc = 0;

	if (given && !domain->wrapped_by_environment)
		fault->options = *given;
	else
		rc = fault_options_parse(&fault->options, text ? text : "kind=none", error);
	if (domain->wrapped_by_environment)
		fault->options.inner_options = given;
	if (rc)
		return rc;
	if (!fault->options.inner[0])
		snprintf(fault->options.inner, sizeof(fault->options.inner), "shm");
	if (strcmp(fault->options.inner, "fault") == 0)
		return error_set(error, ERROR_CONFIG, "provider fault cannot wrap itself");
	fault->op = OP_ANY;
	if (strcmp(fault->options.op, "completion") == 0)
		fault->op = OP_COMPLETION;
	for (int op = 0; op < PROVIDER_OP_COUNT; op++)
		if (strcmp(fault->options.op, provider_op_name((enum provider_op)op)) == 0)
			fault->op = op;
	atomic_store(&fault->random, fault->options.seed);
	return provider_find(fault->options.inner, &fault->inner, error);
}

static int open_trace(struct fault *fault, struct error *error)
{
	if (!fault->options.trace[0])
		return 0;
	fault->trace = fopen(fault->options.trace, "ae");
	return fault->trace
		       ? 0
		       : error_set_errno(error, ERROR_IO, errno, "WEFT_FAULT: cannot open trace %s",
					 fault->options.trace);
}

static void close_trace(struct fault *fault)
{
	if (fault->trace)
		fclose(fault->trace);
}

static int domain_open(struct transport_domain *domain, struct error *error)
{
	struct fault *fault = memory_zalloc(1, sizeof(*fault));
	int rc;

	if (!fault)
		return memory_error(error, "opening a fault domain", sizeof(*fault));
	rc = read_options(fault, domain, error);
	if (!rc)
		rc = open_trace(fault, error);
	if (!rc) {
		domain->wrapper = fault;
		domain->wire_name = fault->inner.name;
		domain->options.provider_options = fault->options.inner_options;
		rc = enter(domain, PROVIDER_OP_domain_open, error);
	}
	if (!rc)
		rc = fault->inner.domain_open(domain, error);
	if (rc) {
		close_trace(fault);
		memory_free(fault);
		return rc;
	}
	domain->caps.endpoints_parallel = false; /* counts and traces have no lock */
	if (fault->options.kind != FAULT_NONE)
		log_warn("transport: faults are injected into provider %s: op %s, at "
			 "%llu, "
			 "rate %g",
			 fault->inner.name, fault->options.op[0] ? fault->options.op : "any",
			 (unsigned long long)fault->options.at, fault->options.rate);
	return 0;
}

static void domain_close(struct transport_domain *domain)
{
	struct fault *fault = domain->wrapper;

	fault->inner.domain_close(domain);
	array_free(&fault->held);
	close_trace(fault);
	memory_free(fault);
}

/* Ops that only ask the policy; those that answer no error, or nothing, have no message for it. */
#define FORWARD(op, domain, parameters, arguments)               \
	static int op parameters                                 \
	{                                                        \
		int rc = enter(domain, PROVIDER_OP_##op, error); \
                                                                 \
		return rc ? rc : INNER(domain)->op arguments;    \
	}
#define FORWARD_OR(result, op, domain, failed, parameters, arguments)                       \
	static result op parameters                                                         \
	{                                                                                   \
		return enter(domain, PROVIDER_OP_##op, NULL) ? failed                       \
							     : INNER(domain)->op arguments; \
	}
#define FORWARD_VOID(op, domain, parameters, arguments) \
	static void op parameters                       \
	{                                               \
		INNER(domain)->op arguments;            \
	}

FORWARD_VOID(domain_wake, domain, (struct transport_domain * domain), (domain))
FORWARD_VOID(domain_keep_mapped, domain, (struct transport_domain * domain, bool keep),
	     (domain, keep))
FORWARD(region_allocate, region->domain, (struct transport_region * region, struct error *error),
	(region, error))
FORWARD(region_register, region->domain, (struct transport_region * region, struct error *error),
	(region, error))
FORWARD(region_export, region->domain,
	(const struct transport_region *region, struct record_writer *writer, struct error *error),
	(region, writer, error))
FORWARD_VOID(region_close, region->domain, (struct transport_region * region), (region))
FORWARD(endpoint_open, endpoint->domain,
	(struct transport_endpoint * endpoint, struct error *error), (endpoint, error))
FORWARD(endpoint_record, endpoint->domain,
	(const struct transport_endpoint *endpoint, struct record_writer *writer,
	 struct error *error),
	(endpoint, writer, error))
FORWARD(endpoint_connect, endpoint->domain,
	(struct transport_endpoint * endpoint, struct record_reader *reader, uint64_t deadline_ns,
	 struct error *error),
	(endpoint, reader, deadline_ns, error))
FORWARD(endpoint_probe, endpoint->domain,
	(struct transport_endpoint * endpoint, uint64_t deadline_ns, struct error *error),
	(endpoint, deadline_ns, error))
FORWARD_VOID(endpoint_abort, endpoint->domain, (struct transport_endpoint * endpoint), (endpoint))
FORWARD(endpoint_fence, endpoint->domain,
	(struct transport_endpoint * endpoint, uint64_t deadline_ns, struct error *error),
	(endpoint, deadline_ns, error))
FORWARD(endpoint_stop, endpoint->domain,
	(struct transport_endpoint * endpoint, uint64_t deadline_ns, struct error *error),
	(endpoint, deadline_ns, error))
FORWARD(remote_import, remote->endpoint->domain,
	(struct transport_remote * remote, struct record_reader *reader, struct error *error),
	(remote, reader, error))
FORWARD_VOID(remote_close, remote->endpoint->domain, (struct transport_remote * remote), (remote))
FORWARD_OR(uint32_t, credit, endpoint->domain, 0,
	   (const struct transport_endpoint *endpoint, uint32_t rail), (endpoint, rail))
FORWARD(post_signal, endpoint->domain,
	(struct transport_endpoint * endpoint, uint64_t id, const struct transport_signal *signal,
	 struct error *error),
	(endpoint, id, signal, error))
FORWARD(settle, endpoint->domain, (struct transport_endpoint * endpoint, struct error *error),
	(endpoint, error))
FORWARD_VOID(idle, domain, (struct transport_domain * domain, uint32_t turns), (domain, turns))
FORWARD_OR(int, signal_read, endpoint->domain, 1,
	   (const struct transport_endpoint *endpoint, struct transport_signal *signal),
	   (endpoint, signal))
FORWARD_OR(uint64_t, signal_wait, domain, seen,
	   (struct transport_domain * domain, uint64_t seen, uint64_t deadline_ns),
	   (domain, seen, deadline_ns))
FORWARD_OR(bool, peer_dead, endpoint->domain, true, (const struct transport_endpoint *endpoint),
	   (endpoint))

static void endpoint_close(struct transport_endpoint *endpoint)
{
	struct fault *fault = endpoint->domain->wrapper;

	for (size_t i = fault->held.count; i-- > 0;)
		if (fault->held.items[i].endpoint == endpoint)
			fault->held.items[i] = fault->held.items[--fault->held.count];
	fault->inner.endpoint_close(endpoint);
}

static void trace(const struct transport_endpoint *endpoint, const struct provider_write *writes,
		  uint32_t count)
{
	const struct fault *fault = endpoint->domain->wrapper;
	char peer[MEMBER_TEXT_BYTES];

	for (uint32_t i = 0; fault->trace && i < count; i++)
		fprintf(fault->trace, "%s offset %llu bytes %llu\n",
			member_text(endpoint->peer, peer), (unsigned long long)writes[i].offset,
			(unsigned long long)writes[i].bytes);
}

static int post_write(struct transport_endpoint *endpoint, uint32_t rail,
		      const struct provider_write *writes, uint32_t count, uint32_t *posted,
		      struct error *error)
{
	int rc = enter(endpoint->domain, PROVIDER_OP_post_write, error);

	*posted = 0;
	if (rc)
		return rc;
	rc = INNER(endpoint->domain)->post_write(endpoint, rail, writes, count, posted, error);
	trace(endpoint, writes, *posted);
	return rc;
}

/* False when there is no memory to hold it: then it is reported now, which is never
 * wrong. */
static bool hold(struct fault *fault, const struct transport_endpoint *endpoint,
		 struct provider_completion completion, uint64_t delay_ms)
{
	return array_add(&fault->held,
			 (struct held){endpoint, completion, clock_ns() + delay_ms * 1000000});
}

/* Applies the policy to one completion; false when it is not to be reported now. */
static bool let_through(struct fault *fault, const struct transport_endpoint *endpoint,
			struct provider_completion *completion)
{
	if (!picked(fault, OP_COMPLETION))
		return true;
	switch (fault->options.kind) {
	case FAULT_DROP:
		return false;
	case FAULT_DELAY:
		return !hold(fault, endpoint, *completion, fault->options.delay_ms);
	case FAULT_REPEAT:
		hold(fault, endpoint, *completion, 0);
		return true;
	case FAULT_FLIP:
		completion->rc = -(int)ERROR_TRANSPORT;
		completion->what = "injected fault: completion flipped to a failure";
		return true;
	default:
		return true;
	}
}

static int release(struct fault *fault, const struct transport_endpoint *endpoint,
		   struct provider_completion *out, int max)
{
	uint64_t now = clock_ns();
	int n = 0;

	for (size_t i = fault->held.count; i-- > 0 && n < max;) {
		if (fault->held.items[i].endpoint != endpoint || fault->held.items[i].due_ns > now)
			continue;
		out[n++] = fault->held.items[i].completion;
		fault->held.items[i] = fault->held.items[--fault->held.count];
	}
	return n;
}

static int poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
		struct error *error)
{
	struct fault *fault = endpoint->domain->wrapper;
	int rc = enter(endpoint->domain, PROVIDER_OP_poll, error), n, kept;

	if (rc)
		return rc;
	kept = fault->held.count ? release(fault, endpoint, out, max) : 0;
	n = fault->inner.poll(endpoint, out + kept, max - kept, error);
	if (n < 0)
		return n;
	n += kept;
	for (int i = kept; i < n; i++)
		if (let_through(fault, endpoint, &out[i]))
			out[kept++] = out[i];
	return kept;
}

const struct provider provider_fault = {
	.name = "fault",
	.what = "another provider with failures put in (WEFT_FAULT): for tests",
#define X(op) .op = op,
	PROVIDER_OPS(X)
#undef X
};
