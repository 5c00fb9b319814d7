/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/provider.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "job/transports.h"
#include "transport/late.h"
#include "transport/several/several.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counts forks on the child's side, so that the write path can see one without a system call. */
static _Atomic uint32_t forks;

static void count_fork(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
	late_forked();
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

bool domain_forked(const struct transport_domain *domain)
{
	return atomic_load_explicit(&forks, memory_order_relaxed) != domain->forks;
}

/* Which provider serves the name: itself, or what a test's environment puts around it. A release is told
 * so loudly: a run that was to fail and does not proves nothing. */
static int find_serving(const char *provider, const char **serving, struct error *error)
{
	const char *fault = getenv("WEFT_FAULT");

	*serving = provider;
	if (provider_tested)
		return provider_tested->wrapper(provider, serving, error);
	if (!fault || !*fault)
		return 0;
	return error_set(
		error, ERROR_CONFIG,
		"WEFT_FAULT is '%.100s', and this build puts in no failures: unset it, or take the "
		"programs that tests are run with (BUILD/tests/programs)",
		fault);
}

/* The table of a provider, wrapped where the environment asks for it. */
static int find_ops(struct transport_domain *domain, const char *provider, struct error *error)
{
	const char *serving;
	int rc;

	if (transports_listed(provider)) {
		domain->ops = provider_several;
		domain->listed = provider;
		provider_complete(&domain->ops);
		return 0;
	}
	rc = find_serving(provider, &serving, error);
	domain->wrapped_by_environment = rc == 1;
	return rc < 0 ? rc : provider_find(serving, &domain->ops, error);
}

static int open_domain(struct transport_domain **out, const char *provider,
		       const struct transport_options *options, struct transport_domain *owner,
		       uint32_t place, struct error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct transport_domain *domain = memory_zalloc(1, sizeof(*domain));
	int rc;

	*out = NULL;
	if (!domain)
		return memory_error(error, "opening a transport domain", sizeof(*domain));
	domain->options = *options;
	domain->options.name[sizeof(domain->options.name) - 1] = 0;
	domain->owner = owner;
	domain->place = place;
	pthread_once(&once, watch_forks);
	domain->forks = atomic_load(&forks);
	domain->pid = getpid();
	domain->batch = PROVIDER_BATCH_MAX;
	rc = find_ops(domain, provider, error);
	if (!rc) {
		domain->wire_name = domain->ops.name;
		rc = domain->ops.domain_open(domain, error);
	}
	if (rc) {
		memory_free(domain);
		return rc;
	}
	/* what the shared layer relies on */
	WEFT_ASSERT(domain->caps.write_bytes_max && domain->caps.inflight_max);
	WEFT_ASSERT(domain->caps.rails && domain->caps.rails <= PROVIDER_RAILS_MAX);
	domain->chunk_bytes = domain->caps.write_bytes_max;
	if (options->chunk_bytes && options->chunk_bytes < domain->chunk_bytes)
		domain->chunk_bytes = options->chunk_bytes;
	*out = domain;
	return 0;
}

int transport_domain_open(struct transport_domain **out, const char *provider,
			  const struct transport_options *options, struct error *error)
{
	return open_domain(out, provider, options, NULL, 0, error);
}

int domain_open_member(struct transport_domain **out, const char *provider,
		       struct transport_domain *owner, uint32_t place, struct error *error)
{
	return open_domain(out, provider, &owner->options, owner, place, error);
}

void transport_domain_close(struct transport_domain **domain)
{
	struct transport_domain *old = *domain;

	if (!old)
		return;
	/* freeing it under a live region would be found much later, as wild writes */
	if (old->children) {
		log_error("transport: domain %s closed with %u regions or endpoints open",
			  old->options.name, old->children);
		assert(old->children == 0);
		return; /* with asserts off: a leak is better than wild writes */
	}
	*domain = NULL;
	old->ops.domain_close(old);
	memory_free(old);
}

const struct transport_caps *transport_domain_caps(const struct transport_domain *domain)
{
	return &domain->caps;
}

const struct transport_nic *transport_domain_nics(const struct transport_domain *domain,
						  uint32_t *count)
{
	*count = domain->nic_count;
	return domain->nics;
}

void transport_domain_traffic(struct transport_domain *domain, uint32_t nic,
			      struct transport_traffic *traffic)
{
	traffic_read(&(domain->nics_of ? domain->nics_of : domain)->traffic[nic], traffic);
}

uint32_t transport_domain_members(const struct transport_domain *domain)
{
	return several_count(domain);
}

struct transport_domain *transport_domain_member(struct transport_domain *domain, uint32_t i)
{
	return several_member(domain, i);
}

const char *transport_domain_name(const struct transport_domain *domain)
{
	return domain->wire_name;
}

const char *transport_domain_reach(const struct transport_domain *domain)
{
	return domain->reach;
}

const char *transport_domain_no_gpu(const struct transport_domain *domain)
{
	return domain->no_gpu;
}

bool transport_domain_makes_memory(const struct transport_domain *member)
{
	return !member->owner || several_maker(member->owner) == member->place;
}

int transport_domain_find(struct transport_domain *domain, const char *provider,
			  struct transport_domain **member, struct error *error)
{
	char names[TRANSPORTS_TEXT_BYTES];
	uint32_t count = several_count(domain);

	for (uint32_t i = 0; i < count; i++) {
		*member = several_member(domain, i);
		if ((!provider || !*provider) ? count == 1
					      : !strcmp((*member)->wire_name, provider))
			return 0;
	}
	*member = NULL;
	return error_set(error, ERROR_USAGE, "this side has no transport '%.40s'; it opened %s",
			 provider ? provider : "", several_names(domain, names));
}

void transport_domain_interrupt(struct transport_domain *domain)
{
	atomic_fetch_add(&domain->interrupts, 1);
	transport_domain_wake(domain);
}

void transport_domain_wake(struct transport_domain *domain)
{
	atomic_store(&domain->interrupt_pending, 1);
	domain->ops.domain_wake(domain);
}

void transport_domain_keep_mapped(struct transport_domain *domain, bool keep)
{
	domain->ops.domain_keep_mapped(domain, keep);
}

int domain_check_process(const struct transport_domain *domain, struct error *error)
{
	pid_t here = getpid();

	if (here != domain->pid)
		return error_set(error, ERROR_STATE,
				 "transport domain of process %d used in its forked child %d: "
				 "open one there",
				 (int)domain->pid, (int)here);
	return 0;
}

uint64_t transport_signal_wait(struct transport_domain *domain, uint64_t seen, uint64_t deadline_ns)
{
	/* queues of a device are shared with a forked child: looking takes from the parent */
	return domain_forked(domain) ? seen : domain->ops.signal_wait(domain, seen, deadline_ns);
}
