/* SPDX-License-Identifier: Apache-2.0
 *
 * several.c -- the members of a domain of several providers: which can be opened, and what they can.
 */
#include "transport/several/several.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

uint32_t several_count(const struct transport_domain *domain)
{
	const struct several *several = domain->state;

	return domain->ops.domain_open == provider_several.domain_open ? several->count : 1;
}

struct transport_domain *several_member(const struct transport_domain *domain, uint32_t i)
{
	const struct several *several = domain->state;

	return domain->ops.domain_open == provider_several.domain_open
		       ? several->members[i]
		       : (struct transport_domain *)(uintptr_t)domain;
}

char *several_names(const struct transport_domain *domain, char out[TRANSPORTS_TEXT_BYTES])
{
	struct transports names = {.count = several_count(domain)};

	for (uint32_t i = 0; i < names.count; i++)
		snprintf(names.names[i], sizeof(names.names[i]), "%s",
			 several_member(domain, i)->wire_name);
	return transports_text(&names, out);
}

static void join_caps(struct transport_caps *all, const struct transport_caps *one, bool first)
{
	if (first) {
		*all = *one;
		return;
	}
	all->mapped_remote |= one->mapped_remote;
	all->fence_waits |= one->fence_waits;
	all->gpu_memory |= one->gpu_memory;
	all->gpu_direct |= one->gpu_direct;
	all->local_registration |= one->local_registration;
	all->ordered &= one->ordered;
	all->passive_target &= one->passive_target;
	all->endpoints_parallel &= one->endpoints_parallel;
	all->gathers &= one->gathers;
	if (one->write_bytes_max < all->write_bytes_max)
		all->write_bytes_max = one->write_bytes_max;
	if (one->inflight_max < all->inflight_max)
		all->inflight_max = one->inflight_max;
	if (one->rails > all->rails)
		all->rails = one->rails;
}

/* NICs are those of the first member that has any: another may be the same cards under other names. */
static void add_member(struct transport_domain *domain, struct transport_domain *member)
{
	struct several *several = domain->state;

	join_caps(&domain->caps, &member->caps, several->count == 0);
	if (!domain->no_gpu[0])
		memcpy(domain->no_gpu, member->no_gpu, sizeof(domain->no_gpu));
	if (!domain->nic_count) {
		memcpy(domain->nics, member->nics, sizeof(domain->nics));
		domain->nic_count = member->nic_count;
		domain->nics_of = member;
	}
	several->members[several->count++] = member;
}

/* A setting that is wrong is told by default, and so is tcp, which works wherever there is a network;
 * that a host has no RDMA is nothing to warn of. */
static void tell_missing(const char *name, const struct error *why, struct text *missing)
{
	bool wrong = why->code == ERROR_CONFIG;
	/* of what a host lacks the first clause says what, and the others what to do */
	const char *rest = wrong ? NULL : strchr(why->text, ';');
	int bytes = rest ? (int)(rest - why->text) : (int)strlen(why->text);

	log_line(wrong || !strcmp(name, "tcp") ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
		 "transport %s cannot be used here: %s", name, why->text);
	text_format(missing, "%s%s: %.*s", missing->bytes ? "; " : "", name,
		    bytes < 300 ? bytes : 300, why->text);
}

static int refuse(const struct transport_domain *domain, const struct transports *list,
		  struct text *missing, struct error *error)
{
	return error_set(error, ERROR_UNSUPPORTED,
			 "of --transport %.100s none can be used here (%.600s); weft doctor says "
			 "more%s",
			 domain->listed, text_string(missing),
			 transports_find(list, "tcp") < list->count
				 ? ""
				 : "; --transport tcp needs nothing but a network");
}

static int open_members(struct transport_domain *domain, const struct transports *list,
			struct text *missing, struct error *error)
{
	struct several *several = domain->state;
	bool wrong = false;

	for (uint32_t i = 0; i < list->count; i++) {
		const char *name = list->names[i];
		struct transport_domain *member;
		struct error why = {0};
		int rc = domain_open_member(&member, name, domain, several->count, &why);

		if (rc == -(int)ERROR_MEMORY)
			return error_copy(error, &why);
		if (rc) {
			tell_missing(name, &why, missing);
			wrong |= rc == -(int)ERROR_CONFIG;
		} else {
			log_info("transport %s can be used here", name);
			add_member(domain, member);
		}
	}
	/* a name that nobody took is a mistake, whatever works without NICs */
	if (wrong && domain->options.nics[0] && !domain->nic_count)
		return error_set(
			error, ERROR_CONFIG,
			"--nic names nothing that --transport %.100s could use here: %.700s",
			domain->listed, text_string(missing));
	return several->count ? 0 : refuse(domain, list, missing, error);
}

static void close_members(struct several *several)
{
	while (several->count)
		transport_domain_close(&several->members[--several->count]);
}

static int several_domain_open(struct transport_domain *domain, struct error *error)
{
	struct transports list;
	struct several *several;
	struct text missing = {0};
	struct provider ops;
	int rc = transports_parse(&list, domain->listed, error);

	/* a name that is none is a mistake, and not something that this host lacks */
	for (uint32_t i = 0; !rc && i < list.count; i++)
		rc = provider_find(list.names[i], &ops, error);
	if (rc)
		return rc;
	several = memory_zalloc(1, sizeof(*several));
	if (!several)
		return memory_error(error, "opening a domain of several", sizeof(*several));
	domain->state = several;
	rc = open_members(domain, &list, &missing, error);
	text_fini(&missing);
	if (!rc)
		rc = several_watch(several, error);
	if (rc) {
		close_members(several);
		memory_free(several);
	}
	domain->listed = NULL;
	return rc;
}

static void several_domain_keep_mapped(struct transport_domain *domain, bool keep)
{
	struct several *several = domain->state;

	for (uint32_t i = 0; i < several->count; i++)
		transport_domain_keep_mapped(several->members[i], keep);
}

static void several_domain_close(struct transport_domain *domain)
{
	struct several *several = domain->state;

	if (!domain_forked(domain))
		several_unwatch(several); /* a child has no such threads */
	close_members(several);
	memory_free(several);
}

/* what is left out belongs to members: endpoints are theirs */
const struct provider provider_several = {
	.name = "several",
	.what = "several providers, of which each pair uses one",
	.domain_open = several_domain_open,
	.domain_close = several_domain_close,
	.domain_wake = several_domain_wake,
	.domain_keep_mapped = several_domain_keep_mapped,
	.region_allocate = several_region_allocate,
	.region_register = several_region_register,
	.region_export = several_region_export,
	.region_close = several_region_close,
	.signal_wait = several_signal_wait,
};
