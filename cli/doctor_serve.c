/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_serve.c -- `weft doctor --serve`: the other end of --peer, one client after the other.
 */
#include "cli/doctor_peer.h"
#include "cli/shown.h"
#include "cli/screen.h"

#include "base/clock.h"
#include "job/digest.h"
#include "base/log.h"
#include "transport/transport.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define LISTEN_NS      UINT64_C(100000000) /* how often a wait for a signal looks at the connection */
#define STRANGERS_SAID 16

/* ---- who is there ---- */

static int send_about(const struct doctor *doctor, struct exchange *exchange, struct error *error)
{
	struct tool_rail rails[VERBS_NICS_MAX] = {0};
	char weft[] = WEFT_VERSION, host[64] = "";
	struct tool_message message = {
		.type = TOOL_ABOUT,
		.u.about = {weft, host, rails, doctor->nic_count},
	};

	gethostname(host, sizeof(host) - 1);
	for (uint32_t i = 0; i < doctor->nic_count; i++) {
		const struct verbs_port *port;

		doctor_nic(doctor, i, &port);
		if (port->gid < 0)
			continue; /* InfiniBand: counts as a rail, has no address */
		inet_ntop(AF_INET6, port->gids.items[port->gid].raw, rails[i].gid,
			  sizeof(rails[i].gid));
		rails[i].prefix_bits = port->gids.items[port->gid].prefix_bits;
	}
	return exchange_send(exchange, &message, error);
}

static int take_about(const struct exchange *exchange, const struct tool_about *about,
		      struct doctor_about *theirs, struct error *error)
{
	*theirs = (struct doctor_about){.rail_count = (uint32_t)about->rail_count};
	snprintf(theirs->host, sizeof(theirs->host), "%s", about->host);
	if (about->rail_count > VERBS_NICS_MAX)
		return error_set(error, ERROR_MESSAGE, "%s says it has %zu rails; at most %d",
				 exchange->peer, about->rail_count, VERBS_NICS_MAX);
	for (size_t i = 0; i < about->rail_count; i++) {
		const struct tool_rail *rail = &about->rails[i];

		if (rail->gid[0] && inet_pton(AF_INET6, rail->gid, theirs->rails[i].gid) != 1)
			return error_set(error, ERROR_MESSAGE,
					 "%s says that rail %zu has the GID '%s', which is none",
					 exchange->peer, i, rail->gid);
		theirs->rails[i].prefix_bits = rail->prefix_bits;
	}
	if (strcmp(about->weft, WEFT_VERSION) != 0)
		return error_set(error, ERROR_WIRE_VERSION,
				 "%s runs weft %s, this is weft %s: use the same on both hosts",
				 exchange->peer, about->weft, WEFT_VERSION);
	return 0;
}

int doctor_about_swap(const struct doctor *doctor, struct exchange *exchange,
		      struct doctor_about *theirs, struct error *error)
{
	struct tool_message message;
	int rc = send_about(doctor, exchange, error);

	if (rc == 0)
		rc = exchange_receive(exchange, TOOL_ABOUT, "its version and rails", &message,
				      clock_ns() + DOCTOR_STEP_NS, error);
	if (rc)
		return rc;
	rc = take_about(exchange, &message.u.about, theirs, error);
	tool_fini(&message);
	return rc;
}

/* ---- signals ---- */

static bool signal_came(const struct write_link *link, uint64_t sequence)
{
	struct transport_signal signal;

	return transport_signal_read(link->endpoint, &signal) == 0 && signal.sequence >= sequence;
}

/* Nobody sends a message while a signal is due: what comes is a failure, or the end. A signal that
 * came before it counts first. */
static int heard(struct write_link *link, uint64_t sequence, struct error *error)
{
	struct tool_message message;
	char what[40];
	int rc;

	if (!exchange_waits(&link->exchange))
		return 1;
	if (signal_came(link, sequence))
		return 0;
	snprintf(what, sizeof(what), "signal %" PRIu64, sequence);
	rc = exchange_receive_any(&link->exchange, what, &message, write_deadline(link), error);
	return rc ? rc : exchange_unwanted(&link->exchange, &message, what, error);
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

static int answer_check(struct write_link *link, const struct tool_check *check,
			struct error *error)
{
	struct tool_message message = {.type = TOOL_CHECKED};
	int rc;

	if (check->bytes > transport_region_bytes(link->region))
		return error_set(error, ERROR_MESSAGE, "%s asks for the sum of %llu bytes of %llu",
				 link->exchange.peer, (unsigned long long)check->bytes,
				 (unsigned long long)transport_region_bytes(link->region));
	rc = doctor_signal_wait(link, check->sequence, error);
	if (rc)
		return rc;
	message.u.checked.sum = checksum64(transport_region_memory(link->region), check->bytes);
	return exchange_send(&link->exchange, &message, error);
}

static int answer_pings(struct write_link *link, const struct tool_ping *ping, struct error *error)
{
	static const struct tool_message pong = {.type = TOOL_PONG};
	int rc = 0;

	if (ping->count > DOCTOR_PINGS_MAX)
		return error_set(error, ERROR_MESSAGE, "%s asks for %llu signals; at most %d",
				 link->exchange.peer, (unsigned long long)ping->count,
				 DOCTOR_PINGS_MAX);
	for (uint64_t i = 0; rc == 0 && i < ping->count; i++) {
		rc = doctor_signal_wait(link, ping->sequence + i, error);
		if (rc == 0)
			rc = transport_signal(link->endpoint, DOCTOR_TAG, NULL, 0,
					      write_deadline(link), error);
	}
	return rc ? rc : exchange_send(&link->exchange, &pong, error);
}

static int answer(struct write_link *link, struct error *error)
{
	static const char waiting_for[] = "what to do next";
	struct tool_message message;
	int rc;

	do {
		/* the other side measures in between; its end would be told at once */
		rc = exchange_receive_any(&link->exchange, waiting_for, &message,
					  write_deadline(link) + 3 * DOCTOR_STEP_NS, error);
		if (rc == 0 && message.type == TOOL_BYE)
			return 0;
		if (rc == 0 && message.type == TOOL_CHECK)
			rc = answer_check(link, &message.u.check, error);
		else if (rc == 0 && message.type == TOOL_PING)
			rc = answer_pings(link, &message.u.ping, error);
		else if (rc == 0)
			rc = exchange_unwanted(&link->exchange, &message, waiting_for, error);
	} while (rc == 0);
	return rc;
}

static int serve_one(const struct doctor *doctor, struct exchange *exchange, struct error *error)
{
	struct write_options options = {.timeout_ms = DOCTOR_STEP_NS / 1000000};
	struct write_link link = {.exchange = *exchange};
	struct doctor_about theirs;
	int rc = doctor_about_swap(doctor, &link.exchange, &theirs, error);

	if (rc == 0) {
		snprintf(options.nics, sizeof(options.nics), "%s",
			 doctor->options.nics ? doctor->options.nics : "");
		if (doctor_wants_several(doctor))
			options.taken = &doctor->options.wanted;
		else if (doctor->options.transport)
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

/* A port scan must not fill the log: past a number of them, only each doubling is said. */
static void say_stranger(uint64_t *count, const struct error *why)
{
	(*count)++;
	if (*count <= STRANGERS_SAID)
		log_warn("%s", why->text);
	else if ((*count & (*count - 1)) == 0)
		log_warn("%s (%llu like it so far)", why->text, (unsigned long long)*count);
}

int doctor_serve(struct doctor *doctor, struct error *error)
{
	struct exchange_listener listener;
	uint64_t strangers = 0;
	char host[EXCHANGE_TEXT_BYTES];
	int rc = exchange_listen(&listener, &doctor->options.trust, doctor->options.port, error);

	if (rc)
		return rc;
	exchange_listener_host(&listener, host);
	printf("serving%s run: weft doctor --peer %s:%u%s\n",
	       listener.socket->open ? "; on the other host"
				     : " this host alone, as there is no --key FILE; here",
	       shown(host), listener.port, listener.socket->keyed ? " --key FILE" : "");
	screen_flush();
	for (;;) {
		struct exchange exchange;

		rc = exchange_accept(&listener, &exchange, DOCTOR_TOOL, error);
		if (rc) {
			say_stranger(&strangers, error);
			continue;
		}
		rc = serve_one(doctor, &exchange, error);
		if (rc)
			printf("%s: failed: %s\n", exchange.peer, error->text);
		else
			printf("%s: done\n", exchange.peer);
		screen_flush();
	}
	exchange_listener_close(&listener);
	return rc;
}
