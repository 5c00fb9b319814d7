/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.c -- does a provider work here? Two domains of this process find out.
 *
 * The same for every provider: open, connect, write, signal, look. What a configuration
 * file or a device list says is not asked.
 */
#include "transport/transport.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

#define PROBE_BYTES 8192
#define PROBE_TAG   0x70726f62u
#define PROBE_NS    UINT64_C(5000000000)

struct side {
	struct transport_domain *domain;
	struct transport_region *region, *registered;
	struct transport_endpoint *endpoint;
	struct transport_remote *remote;
	struct member self, peer;
};

static int open_side(struct side *side, const char *provider, const char *nics, struct error *error)
{
	struct transport_options options = {.self = side->self, .name = "probe", .secret = 1};
	int rc;

	snprintf(options.nics, sizeof(options.nics), "%s", nics);
	rc = transport_domain_open(&side->domain, provider, &options, error);
	if (!rc)
		rc = transport_region_allocate(side->domain, PROBE_BYTES, &side->region, error);
	if (!rc)
		rc = transport_endpoint_open(side->domain, side->peer, "the probe's other side",
					     &side->endpoint, error);
	return rc;
}

static void close_side(struct side *side)
{
	transport_remote_close(&side->remote);
	transport_endpoint_close(&side->endpoint);
	transport_region_close(&side->registered);
	transport_region_close(&side->region);
	transport_domain_close(&side->domain);
}

static int connect_sides(struct side *from, struct side *to, uint64_t deadline, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_record(to->endpoint, record, &length, error);

	return rc ? rc
		  : transport_endpoint_connect(from->endpoint, record, length, deadline, error);
}

static int import(struct side *from, const struct transport_region *region, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc;

	transport_remote_close(&from->remote);
	rc = transport_region_export(region, record, &length, error);
	return rc ? rc
		  : transport_remote_import(from->endpoint, record, length, &from->remote, error);
}

/* What the target holds is seen as soon as its own thread has looked, where one looks for it. */
static bool signal_arrives(struct side *to, uint32_t tag, uint64_t deadline)
{
	struct transport_signal signal = {0};
	uint64_t seen = 0;

	for (;;) {
		if (transport_signal_read(to->endpoint, &signal) == 0 && signal.tag == tag)
			return signal.length == 1;
		if (clock_ns() >= deadline)
			return false;
		seen = transport_signal_wait(to->domain, seen, deadline);
	}
}

/* Writes from one side's region into `target` of the other, signals, and compares. */
static int transfer(struct side *from, struct side *to, const struct transport_region *target,
		    unsigned char seed, uint64_t deadline, struct error *error)
{
	unsigned char *source = transport_region_memory(from->region);
	int rc = import(from, target, error);

	for (int i = 0; i < PROBE_BYTES; i++)
		source[i] = (unsigned char)(i * 7 + i / 256 + seed);
	if (!rc)
		rc = transport_write(from->endpoint, source, from->region, from->remote, 0,
				     PROBE_BYTES, deadline, error);
	if (!rc)
		rc = transport_flush(from->endpoint, deadline, error);
	if (!rc)
		rc = transport_signal(from->endpoint, PROBE_TAG + seed, &seed, 1, deadline, error);
	if (rc)
		return rc;
	if (!signal_arrives(to, PROBE_TAG + seed, deadline))
		return error_set(error, ERROR_UNSUPPORTED, "the probe's signal did not arrive");
	if (memcmp(source, transport_region_memory(target), PROBE_BYTES) != 0)
		return error_set(error, ERROR_UNSUPPORTED, "the probe's bytes did not arrive");
	return 0;
}

/* Memory of the caller's own is an extra: where it does not work, that is said, not an
 * error. */
static void probe_registered(struct side *from, struct side *to, const char *provider,
			     uint64_t deadline)
{
	void *memory = memory_zalloc(1, PROBE_BYTES);
	struct error error = {0};
	int rc = -1;

	if (memory)
		rc = transport_region_register(to->domain, memory, PROBE_BYTES, &to->registered,
					       &error);
	if (!rc)
		rc = transfer(from, to, to->registered, 2, deadline, &error);
	if (rc)
		log_info("transport: %s cannot write registered memory here: %s", provider,
			 memory ? error.text : "out of memory");
	transport_remote_close(&from->remote);
	transport_region_close(&to->registered);
	memory_free(memory);
}

int transport_probe(const char *provider, const char *nics, struct error *error)
{
	struct side a = {.self = {ROLE_TRAINER, 0}, .peer = {ROLE_INFERENCE, 0}};
	struct side b = {.self = {ROLE_INFERENCE, 0}, .peer = {ROLE_TRAINER, 0}};
	uint64_t deadline = clock_ns() + PROBE_NS;
	struct error why = {0};
	int rc = open_side(&a, provider, nics, &why);

	if (!rc)
		rc = open_side(&b, provider, nics, &why);
	if (!rc)
		rc = connect_sides(&a, &b, deadline, &why);
	if (!rc)
		rc = connect_sides(&b, &a, deadline, &why);
	if (!rc)
		rc = transport_endpoint_probe(a.endpoint, deadline, &why);
	if (!rc)
		rc = transport_endpoint_probe(b.endpoint, deadline, &why);
	if (!rc)
		rc = transfer(&a, &b, b.region, 1, deadline, &why);
	if (!rc)
		probe_registered(&a, &b, provider, deadline);
	close_side(&a);
	close_side(&b);
	if (!rc)
		return 0;
	return error_set(error, ERROR_UNSUPPORTED, "provider %s does not work here: %.900s",
			 provider, why.text);
}
