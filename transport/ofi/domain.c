/* SPDX-License-Identifier: Apache-2.0
 *
 * domain.c -- this process's access to a network through libfabric: settings, interfaces, rails.
 */
#include "transport/ofi/way.h"

#include "base/file.h"
#include "base/log.h"
#include "transport/ofi/ip.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONGESTION "/proc/sys/net/ipv4/tcp_congestion_control"

static void choose_chunk(struct ofi_domain *ofi)
{
	char name[32] = "";

	if (ofi->settings.chunk_bytes)
		return;
	if (ofi->stream && file_read_small(CONGESTION, name, sizeof(name)) < 0)
		log_debug("%s: cannot read " CONGESTION, ofi->name);
	ofi->settings.chunk_bytes = ofi_chunk_standard(name);
}

static int begin(struct ofi_domain *ofi, const struct transport_options *options,
		 struct error *error)
{
	const struct ofi_options *given = options->provider_options;
	int rc = 0;

	ofi->calls = given && given->calls ? given->calls : ofi_calls_open(error);
	if (!ofi->calls)
		return -ERROR_UNSUPPORTED;
	ofi->fabric = given && given->fabric ? given->fabric : ofi->name;
	ofi->no_sleep = given && given->no_sleep;
	ofi->no_identity = given && given->no_identity;
	ofi->stream = ofi->way->stream || (given && given->stream);
	if (given && given->settings)
		ofi->settings = *given->settings;
	else
		rc = ofi_settings_read(&ofi->settings, options->nics, getenv, error);
	choose_chunk(ofi);
	if (!rc)
		rc = identity_read(&ofi->self, error);
	while (!rc && !ofi->nonce)
		rc = identity_random(&ofi->nonce, sizeof(ofi->nonce), ofi->name, error);
	if (!rc) /* so that an index of an earlier endpoint is not one of a later */
		rc = identity_random(&ofi->generation, sizeof(ofi->generation), ofi->name, error);
	return rc;
}

/* The one line from which a slow or wrong path can be seen: what was chosen, and who said so. */
static void tell_rail(const struct ofi_rail *rail)
{
	const struct ofi_settings *settings = &rail->domain->settings;
	char address[IP_TEXT_BYTES], speed[48] = "";

	if (rail->interface.speed_mbps)
		snprintf(speed, sizeof(speed), ", %.5g Gb/s",
			 (double)rail->interface.speed_mbps / 1000);
	log_info("%s: %s%s%s%s, %u stream%s a peer%s%s", rail->domain->name, rail->interface.name,
		 rail->listener_count ? " " : "",
		 rail->listener_count ? ip_text(&rail->listeners[0].address, address) : "", speed,
		 settings->streams, settings->streams == 1 ? "" : "s",
		 settings->nics[0] ? "; interface by " : "",
		 settings->nics[0] ? settings->nics_from : "");
}

static void describe_nic(struct transport_domain *domain, const struct ofi_interface *interface)
{
	struct transport_nic *nic = &domain->nics[domain->nic_count];

	*nic = (struct transport_nic){
		.rail = domain->nic_count++,
		.bytes_per_second = (uint64_t)interface->speed_mbps * 125000,
		.distance = DISTANCE_SYS,
	};
	memcpy(nic->name, interface->name, sizeof(interface->name));
}

static int choose(const struct ofi_domain *ofi, struct ofi_interface *all, uint32_t *count,
		  uint32_t rank, struct error *error)
{
	const struct ofi_settings *settings = &ofi->settings;

	if (!ofi->way->takes_all)
		return ofi_interfaces_choose(all, count, settings->nics, settings->nics_from, rank,
					     error);
	return ofi_devices_choose(all, count, OFI_RAILS_MAX / settings->streams, settings->nics,
				  settings->nics_from, rank, error);
}

static int open_rails(struct transport_domain *domain, struct ofi_domain *ofi, struct error *error)
{
	struct ofi_interface all[64];
	uint32_t count = 0;
	int rc = ofi->way->interfaces(ofi, all, ARRAY_SIZE(all), &count, error);

	if (!rc)
		rc = choose(ofi, all, &count, domain->options.self.rank, error);
	if (rc)
		return rc;
	if (count * ofi->settings.streams > OFI_RAILS_MAX)
		return error_set(error, ERROR_CONFIG,
				 "%u interfaces with %u streams each are %u streams per peer; at "
				 "most %d are possible: lower WEFT_STREAMS, or name fewer "
				 "interfaces with --nic",
				 count, ofi->settings.streams, count * ofi->settings.streams,
				 OFI_RAILS_MAX);
	rc = pages_map(&ofi->probe, (1 + count * ofi->settings.streams) * OFI_PROBE_BYTES,
		       ofi->name, error);
	/* neighbours in the list are on different interfaces */
	for (uint32_t i = 0; i < count * ofi->settings.streams && !rc; i++) {
		struct ofi_rail *rail = &ofi->rails[i];

		rail->domain = ofi;
		rail->index = i;
		rail->interface = all[i % count];
		rail->traffic = &domain->traffic[i % count];
		ofi->rail_count++;
		rc = ofi_rail_open(rail, error);
		if (!rc && i < count) {
			describe_nic(domain, &rail->interface);
			tell_rail(rail);
		}
	}
	return rc ? rc : ofi_threads_start(ofi, error);
}

/* A forked child frees its copies of our memory only: sockets and devices are its parent's. */
static void destroy(struct ofi_domain *ofi, bool own)
{
	if (own)
		ofi_threads_stop(ofi);
	while (own && ofi->rail_count)
		ofi_rail_close(&ofi->rails[--ofi->rail_count]);
	if (own)
		pages_unmap(&ofi->probe);
	array_free(&ofi->endpoints);
	pthread_mutex_destroy(&ofi->lock);
	memory_free(ofi);
}

static int domain_open(struct transport_domain *domain, const char *name, const struct ofi_way *way,
		       struct error *error)
{
	struct ofi_domain *ofi = memory_zalloc(1, sizeof(*ofi));
	int rc;

	if (!ofi)
		return memory_error(error, "opening a domain", sizeof(*ofi));
	ofi->name = name;
	ofi->way = way;
	pthread_mutex_init(&ofi->lock, NULL);
	rc = begin(ofi, &domain->options, error);
	if (!rc)
		rc = open_rails(domain, ofi, error);
	if (rc) {
		domain->nic_count = 0;
		destroy(ofi, true);
		return rc;
	}
	domain->state = ofi;
	domain->idles = ofi->rails[0].cq_fd >= 0; /* EFA has nothing to sleep on */
	if (way->stream)
		domain->batch = 1; /* in turns, see docs/tcp.md: what is posted is copied at once */
	domain->caps = (struct transport_caps){
		.ordered = true, /* a signal waits at the target for the writes before it */
		.passive_target = true,
		.local_registration = ofi_rail_needs_local(&ofi->rails[0]),
		.write_bytes_max = ofi->settings.chunk_bytes,
		.inflight_max = ofi->rail_count * OFI_HELD * ofi->settings.depth,
		.rails = ofi->rail_count,
	};
	return 0;
}

int ofi_tcp_open(struct transport_domain *domain, struct error *error)
{
	return domain_open(domain, "tcp", &ofi_connect_way, error);
}

int ofi_efa_open(struct transport_domain *domain, struct error *error)
{
	return domain_open(domain, "efa", &ofi_address_way, error);
}

void ofi_domain_close(struct transport_domain *domain)
{
	destroy(domain->state, getpid() == domain->pid);
}

void ofi_domain_wake(struct transport_domain *domain)
{
	struct ofi_domain *ofi = domain->state;

	doorbell_wake(&ofi->doorbell);
}

uint64_t ofi_signal_wait(struct transport_domain *domain, uint64_t seen, uint64_t deadline_ns)
{
	struct ofi_domain *ofi = domain->state;

	ofi_threads_recall(ofi);
	return doorbell_wait(&ofi->doorbell, seen, deadline_ns, &domain->interrupt_pending);
}
