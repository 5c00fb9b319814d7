/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_serve.c -- `weft doctor --serve`: the other end of --peer, one client after the other.
 */
#include "cli/doctor_peer.h"

#include "base/clock.h"
#include "job/digest.h"
#include "base/log.h"
#include "transport/transport.h"
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define LISTEN_NS UINT64_C(100000000) /* how often a wait for a signal looks at the connection */

/* ---- hello ---- */

static void hello_fill(const struct doctor *doctor, struct doctor_hello *hello)
{
	*hello = (struct doctor_hello){.rail_count = 0};
	snprintf(hello->version, sizeof(hello->version), "%s", WEFT_VERSION);
	gethostname(hello->host, sizeof(hello->host) - 1);
	for (uint32_t i = 0; i < doctor->nic_count; i++) {
		const struct verbs_device *device =
			&doctor->facts.devices.items[doctor->nics[i].device];
		const struct verbs_port *port = &device->ports.items[doctor->nics[i].port];
		struct doctor_rail *rail = &hello->rails[hello->rail_count++];

		if (port->gid < 0)
			continue; /* InfiniBand: counts as a rail, has no address */
		memcpy(rail->gid, port->gids.items[port->gid].raw, sizeof(rail->gid));
		rail->prefix_bits = port->gids.items[port->gid].prefix_bits;
	}
}

static void hello_put(const struct doctor_hello *hello, unsigned char out[DOCTOR_HELLO_BYTES])
{
	unsigned char *at = out + 100;

	memcpy(out, hello->version, 32);
	memcpy(out + 32, hello->host, 64);
	out[96] = (unsigned char)hello->rail_count;
	out[97] = out[98] = out[99] = 0;
	for (int i = 0; i < VERBS_NICS_MAX; i++, at += 20) {
		memcpy(at, hello->rails[i].gid, 16);
		at[16] = (unsigned char)hello->rails[i].prefix_bits;
		at[17] = at[18] = at[19] = 0;
	}
}

static int hello_get(const struct exchange *exchange, struct doctor_hello *hello,
		     const unsigned char in[DOCTOR_HELLO_BYTES], struct error *error)
{
	const unsigned char *at = in + 100;

	*hello = (struct doctor_hello){.rail_count = in[96]};
	memcpy(hello->version, in, sizeof(hello->version) - 1);
	memcpy(hello->host, in + 32, sizeof(hello->host) - 1);
	if (hello->rail_count > VERBS_NICS_MAX)
		return error_set(error, ERROR_MESSAGE, "%s says it has %u rails; at most %d",
				 exchange->peer, hello->rail_count, VERBS_NICS_MAX);
	for (int i = 0; i < VERBS_NICS_MAX; i++, at += 20) {
		memcpy(hello->rails[i].gid, at, 16);
		hello->rails[i].prefix_bits = at[16];
	}
	return 0;
}

int doctor_hello_swap(const struct doctor *doctor, struct exchange *exchange,
		      struct doctor_hello *theirs, struct error *error)
{
	unsigned char bytes[DOCTOR_HELLO_BYTES];
	struct doctor_hello mine;
	size_t length;
	int rc;

	hello_fill(doctor, &mine);
	hello_put(&mine, bytes);
	rc = exchange_send(exchange, DOCTOR_HELLO, bytes, sizeof(bytes),
			   clock_ns() + DOCTOR_STEP_NS, error);
	if (rc == 0)
		rc = exchange_receive(exchange, DOCTOR_HELLO, "its version and rails", bytes,
				      sizeof(bytes), &length, clock_ns() + DOCTOR_STEP_NS, error);
	if (rc)
		return rc;
	if (length != sizeof(bytes))
		return error_set(error, ERROR_MESSAGE, "%s sent %zu bytes of hello instead of %zu",
				 exchange->peer, length, sizeof(bytes));
	rc = hello_get(exchange, theirs, bytes, error);
	if (rc)
		return rc;
	if (strcmp(theirs->version, mine.version) != 0)
		return error_set(error, ERROR_WIRE_VERSION,
				 "%s runs weft %s, this is weft %s: use the same on both hosts",
				 exchange->peer, theirs->version, mine.version);
	return 0;
}

static bool signal_came(const struct write_link *link, uint64_t sequence)
{
	struct transport_signal signal;

	return transport_signal_read(link->endpoint, &signal) == 0 && signal.sequence >= sequence;
}

/* Nobody sends a message while a signal is due: what comes is a failure, or the end. A signal that
 * came before it counts first. */
static int heard(struct write_link *link, uint64_t sequence, struct error *error)
{
	struct pollfd socket = {.fd = link->exchange.fd, .events = POLLIN};
	uint32_t kind;
	int rc;

	if (poll(&socket, 1, 0) <= 0)
		return 1;
	if (signal_came(link, sequence))
		return 0;
	rc = exchange_receive_any(&link->exchange, &kind, "a signal", NULL, 0, NULL,
				  write_deadline(link), error);
	return rc ? rc
		  : error_set(error, ERROR_MESSAGE,
			      "%s sent a message of kind %u instead of signal %" PRIu64,
			      link->exchange.peer, kind, sequence);
}

int doctor_signal_wait(struct write_link *link, uint64_t sequence, struct error *error)
{
	uint64_t deadline = write_deadline(link), seen = 0;

	while (!signal_came(link, sequence)) {
		uint64_t now = clock_ns(), slice = now + LISTEN_NS;
		int rc;

		if (now >= deadline)
			return error_set(error, ERROR_TIMEOUT,
					 "signal %" PRIu64 " of %s did not arrive within %" PRIu64
					 " s",
					 sequence, link->exchange.peer,
					 link->timeout_ns / UINT64_C(1000000000));
		seen = transport_signal_wait(link->domain, seen,
					     slice < deadline ? slice : deadline);
		rc = clock_ns() < slice ? 1 : heard(link, sequence, error);
		if (rc <= 0)
			return rc;
	}
	return 0;
}

/* ---- one client ---- */

static int answer_check(struct write_link *link, const unsigned char *bytes, struct error *error)
{
	uint64_t count = exchange_get_u64(bytes), sequence = exchange_get_u64(bytes + 8);
	unsigned char sum[8];
	int rc;

	if (count > transport_region_bytes(link->region))
		return error_set(error, ERROR_MESSAGE, "%s asks for the sum of %llu bytes of %llu",
				 link->exchange.peer, (unsigned long long)count,
				 (unsigned long long)transport_region_bytes(link->region));
	rc = doctor_signal_wait(link, sequence, error);
	if (rc)
		return rc;
	exchange_put_u64(sum, checksum64(transport_region_memory(link->region), count));
	return exchange_send(&link->exchange, DOCTOR_CHECKED, sum, sizeof(sum),
			     write_deadline(link), error);
}

static int answer_pings(struct write_link *link, const unsigned char *bytes, struct error *error)
{
	uint64_t count = exchange_get_u64(bytes), sequence = exchange_get_u64(bytes + 8);
	int rc = 0;

	if (count > DOCTOR_PINGS_MAX)
		return error_set(error, ERROR_MESSAGE, "%s asks for %llu signals; at most %d",
				 link->exchange.peer, (unsigned long long)count, DOCTOR_PINGS_MAX);
	for (uint64_t i = 0; rc == 0 && i < count; i++) {
		rc = doctor_signal_wait(link, sequence + i, error);
		if (rc == 0)
			rc = transport_signal(link->endpoint, DOCTOR_WORD, NULL, 0,
					      write_deadline(link), error);
	}
	return rc ? rc
		  : exchange_send(&link->exchange, DOCTOR_PONG, NULL, 0, write_deadline(link),
				  error);
}

static int answer(struct write_link *link, struct error *error)
{
	for (;;) {
		unsigned char bytes[DOCTOR_CHECK_BYTES] = {0};
		uint32_t kind;
		size_t length;
		/* the other side measures in between; its end would be told by TCP */
		int rc = exchange_receive_any(&link->exchange, &kind, "what to do next", bytes,
					      sizeof(bytes), &length,
					      write_deadline(link) + 3 * DOCTOR_STEP_NS, error);

		if (rc)
			return rc;
		if (kind == DOCTOR_BYE)
			return 0;
		if (kind == DOCTOR_CHECK && length == sizeof(bytes))
			rc = answer_check(link, bytes, error);
		else if (kind == DOCTOR_PING && length == sizeof(bytes))
			rc = answer_pings(link, bytes, error);
		else
			rc = error_set(error, ERROR_MESSAGE,
				       "%s sent a message of kind %u with %zu bytes, which is not "
				       "known here",
				       link->exchange.peer, kind, length);
		if (rc)
			return rc;
	}
}

static int serve_one(const struct doctor *doctor, struct exchange *exchange, struct error *error)
{
	struct write_options options = {.timeout_ms = DOCTOR_STEP_NS / 1000000};
	struct write_link link = {.exchange = *exchange};
	struct doctor_hello theirs;
	int rc = doctor_hello_swap(doctor, &link.exchange, &theirs, error);

	if (rc == 0) {
		snprintf(options.nics, sizeof(options.nics), "%s",
			 doctor->options.nics ? doctor->options.nics : "");
		if (doctor->options.transport)
			snprintf(options.settings.transport, sizeof(options.settings.transport),
				 "%s", doctor->options.transport);
		rc = write_link_open(&link, &options, true, error);
	}
	if (rc == 0)
		rc = answer(&link, error);
	if (rc)
		exchange_send_failure(&link.exchange, error);
	write_link_close(&link);
	return rc;
}

int doctor_serve(struct doctor *doctor, struct error *error)
{
	struct exchange_listener listener;
	char host[64] = "THIS_HOST";
	int rc = exchange_listen(&listener, doctor->options.port, error);

	if (rc)
		return rc;
	gethostname(host, sizeof(host) - 1);
	printf("serving; on the other host run: weft doctor --peer %s:%u\n", host, listener.port);
	fflush(stdout);
	for (;;) {
		struct exchange exchange;

		rc = exchange_accept(&listener, &exchange, DOCTOR_TOOL, EXCHANGE_FOREVER, error);
		if (rc == -ERROR_IO)
			break;
		if (rc) {
			log_warn("%s", error->text);
			continue;
		}
		rc = serve_one(doctor, &exchange, error);
		if (rc)
			printf("%s: failed: %s\n", exchange.peer, error->text);
		else
			printf("%s: done\n", exchange.peer);
		fflush(stdout);
	}
	exchange_listener_close(&listener);
	return rc;
}
