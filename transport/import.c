/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/import.h"

#include "base/memory.h"
#include "transport/several/several.h"
#include <string.h>

static bool same_member(struct member a, struct member b)
{
	return a.role == b.role && a.rank == b.rank;
}

static int check_who(const struct transport_endpoint *endpoint, const struct record_head *head,
		     struct error *error)
{
	struct member self = endpoint->domain->options.self;
	char seen[MEMBER_TEXT_BYTES], wanted[MEMBER_TEXT_BYTES];

	if (!same_member(head->owner, endpoint->peer))
		return error_set(error, ERROR_MESSAGE, "the record was made by %s, not by %s",
				 member_text(head->owner, seen),
				 member_text(endpoint->peer, wanted));
	if (head->kind == RECORD_ENDPOINT && !same_member(head->peer, self))
		return error_set(error, ERROR_MESSAGE, "the record was made for %s; this is %s",
				 member_text(head->peer, seen), member_text(self, wanted));
	return 0;
}

int import_open_as(const struct transport_endpoint *endpoint, const char *provider,
		   enum record_kind kind, const void *record, size_t length,
		   struct record_reader *reader, struct record_head *head, struct error *error)
{
	const struct transport_domain *domain = endpoint->domain;
	int rc = record_open(reader, record, length, head, error);

	if (rc)
		return rc;
	if (head->kind != kind)
		return error_set(error, ERROR_MESSAGE, "the record is of %s, not of %s",
				 head->kind == RECORD_REGION ? "a region" : "an endpoint",
				 kind == RECORD_REGION ? "a region" : "an endpoint");
	if (head->tag != record_tag(domain->options.secret))
		return error_set(error, ERROR_MESSAGE, "the record was made for another job");
	if (strcmp(head->provider, provider) != 0)
		return error_set(error, ERROR_MESSAGE,
				 "the record is of provider %s; this side uses %s: "
				 "give both the same --transport",
				 head->provider, provider);
	return check_who(endpoint, head, error);
}

int import_open(const struct transport_endpoint *endpoint, enum record_kind kind,
		const void *record, size_t length, struct record_reader *reader,
		struct record_head *head, struct error *error)
{
	return import_open_as(endpoint, endpoint->domain->wire_name, kind, record, length, reader,
			      head, error);
}

int export_begin(const struct transport_domain *domain,
		 unsigned char record[TRANSPORT_RECORD_BYTES], const struct record_head *head,
		 struct record_writer *writer, struct error *error)
{
	struct record_head whole = *head;
	int rc = domain_check_process(domain, error);

	if (rc)
		return rc;
	whole.tag = record_tag(domain->options.secret);
	whole.owner = domain->options.self;
	__builtin_strncpy(whole.provider, domain->wire_name, sizeof(whole.provider) - 1);
	record_begin(writer, record, TRANSPORT_RECORD_BYTES, &whole);
	return 0;
}

static void attach(struct transport_remote *remote, struct transport_endpoint *endpoint)
{
	remote->next = endpoint->remotes;
	remote->link = &endpoint->remotes;
	if (remote->next)
		remote->next->link = &remote->next;
	endpoint->remotes = remote;
}

void import_detach(struct transport_remote *remote)
{
	remote->endpoint->domain->ops.remote_close(remote);
	*remote->link = remote->next;
	if (remote->next)
		remote->next->link = remote->link;
	remote->endpoint = NULL;
	remote->state = NULL;
	remote->pointer = remote->device_pointer = NULL;
}

int transport_remote_import(struct transport_endpoint *endpoint, const void *record, size_t length,
			    struct transport_remote **out, struct error *error)
{
	struct transport_remote *remote;
	struct record_reader reader;
	struct record_head head;
	int rc = domain_check_process(endpoint->domain, error);

	*out = NULL;
	if (!rc && endpoint->stage == ENDPOINT_BROKEN)
		rc = endpoint_usable(endpoint, error);
	if (rc)
		return rc;
	remote = memory_zalloc(1, sizeof(*remote));
	if (!remote)
		return memory_error(error, "importing a region", sizeof(*remote));
	remote->endpoint = endpoint;
	if (endpoint->domain->owner)
		rc = several_part(endpoint, &record, &length, error);
	if (!rc)
		rc = import_open(endpoint, RECORD_REGION, record, length, &reader, &head, error);
	if (!rc) {
		remote->bytes = head.bytes;
		rc = endpoint->domain->ops.remote_import(remote, &reader, error);
	}
	if (rc) {
		memory_free(remote);
		return error_wrap(error, "importing a region of %s", endpoint->name), rc;
	}
	attach(remote, endpoint);
	*out = remote;
	return 0;
}

void transport_remote_close(struct transport_remote **remote)
{
	struct transport_remote *old = *remote;

	if (!old)
		return;
	*remote = NULL;
	if (old->endpoint)
		import_detach(old);
	memory_free(old);
}

bool transport_remote_kept(const struct transport_remote *remote)
{
	return remote->kept;
}

uint64_t transport_remote_bytes(const struct transport_remote *remote)
{
	return remote->bytes;
}

/* Before connect no store may happen: the target could not fence it. */
void *transport_remote_pointer(const struct transport_remote *remote)
{
	if (!remote->endpoint || remote->endpoint->stage != ENDPOINT_CONNECTED)
		return NULL;
	return remote->pointer;
}

void *transport_remote_device_pointer(const struct transport_remote *remote)
{
	if (!remote->endpoint || remote->endpoint->stage != ENDPOINT_CONNECTED)
		return NULL;
	return remote->device_pointer;
}
