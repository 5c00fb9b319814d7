/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_peer.c -- `weft doctor --peer`: route, connection, writes of growing size, latency,
 * bandwidth. Each is a finding; after the first that fails the others are skipped.
 */
#include "cli/doctor_peer.h"

#include "base/clock.h"
#include "base/compare.h"
#include "job/digest.h"
#include "transport/transport.h"
#include "transport/verbs/resolver.h"
#include <inttypes.h>
#include <stdio.h>

#define KNOCK_NS     UINT64_C(2000000000) /* somebody listens, or nobody does */
#define RESOLVE_MS   3000
#define PINGS	     200
#define BANDWIDTH_NS UINT64_C(2000000000)
#define IN_FLIGHT    32 /* of 1 MiB: keeps any link busy, and a slow one has few to finish */

struct session {
	struct doctor *doctor;
	const char *transport;
	struct write_link link;
	struct doctor_about theirs; /* rail_count 0: not heard */
	struct error error;	    /* of the connection's first part */
	uint64_t signals;	    /* sent so far */
	uint64_t answers;	    /* expected so far */
	bool nobody, failed;
	bool several;	/* one of those that are tried, and named in its findings */
	bool elsewhere; /* shm, and the peer is on another host */
};

/* ---- route ---- */

/* The peer's address for a rail of ours: its rail of the same number, unless another one is in our
 * subnet; or what the user gave. */
static const char *rail_address(const struct session *session, uint32_t index,
				const struct verbs_gid *gid, char text[VERBS_GID_TEXT_BYTES])
{
	static const unsigned char none[16];
	const struct doctor_about *theirs = &session->theirs;
	const struct doctor_rail *rail;

	if (!theirs->rail_count)
		return session->link.exchange.host;
	rail = &theirs->rails[index % theirs->rail_count];
	for (uint32_t i = 0; i < theirs->rail_count; i++) {
		if (verbs_gid_same_subnet(gid->raw, gid->prefix_bits, rail->gid, rail->prefix_bits))
			break;
		rail = &theirs->rails[(index + i) % theirs->rail_count];
	}
	if (memcmp(rail->gid, none, sizeof(none)) == 0)
		return session->link.exchange.host;
	verbs_gid_text(rail->gid, text);
	return verbs_gid_is_ipv4(rail->gid) ? strrchr(text, ':') + 1 : text;
}

static void resolve_rail(const struct session *session, struct finding *finding, uint32_t index)
{
	const struct doctor *doctor = session->doctor;
	const struct verbs_port *port;
	const struct verbs_device *device = doctor_nic(doctor, index, &port);
	char from[VERBS_GID_TEXT_BYTES], to[VERBS_GID_TEXT_BYTES], remote[VERBS_GID_TEXT_BYTES];
	const char *source = from, *target;
	struct resolver_path path;
	struct error error;

	if (port->gid < 0) {
		finding_detail(finding, "rail %u %s:%u: no address (InfiniBand without IPoIB)",
			       index, device->name, port->number);
		return;
	}
	verbs_gid_text(port->gids.items[port->gid].raw, from);
	if (verbs_gid_is_ipv4(port->gids.items[port->gid].raw))
		source = strrchr(from, ':') + 1;
	target = rail_address(session, index, &port->gids.items[port->gid], to);
	if (resolver_resolve(target, source, RESOLVE_MS, &path, &error) != 0) {
		finding_worsen(finding, CHECK_FAIL);
		finding_detail(finding, "rail %u %s:%u %s -> %s: %s", index, device->name,
			       port->number, source, target, error.text);
		finding_fix(finding,
			    "look at `ip route get %s from %s` and the subnets of both sides",
			    target, source);
		return;
	}
	finding_detail(finding, "rail %u %s:%u %s -> %s: leaves by %s:%u, GID %s, path MTU %u",
		       index, device->name, port->number, path.source, path.destination,
		       path.device, path.port, verbs_gid_text(path.remote_gid, remote), path.mtu);
	if (strcmp(path.device, device->name) != 0) {
		finding_worsen(finding, CHECK_WARN);
		finding_fix(finding,
			    "packets of %s leave by %s: give each NIC its own subnet, or a "
			    "routing rule per source address",
			    device->name, path.device);
	}
}

static void say_route(struct session *session)
{
	struct finding finding = {.name = "peer-route"};
	const struct doctor *doctor = session->doctor;

	if (!doctor->nic_count || doctor_wants_other(doctor, "verbs")) {
		finding_say(&finding, CHECK_SKIP, "%s",
			    doctor_wants_other(doctor, "verbs") ? "only a way by RDMA is resolved"
								: "no RDMA device is chosen here");
	} else {
		for (uint32_t i = 0; i < doctor->nic_count; i++)
			resolve_rail(session, &finding, i);
		finding_say(&finding, finding.state, "%u rail%s to %s", doctor->nic_count,
			    doctor->nic_count == 1 ? "" : "s", session->link.exchange.host);
	}
	doctor_print(session->doctor, &finding);
}

/* ---- connection ---- */

static void knock(struct session *session)
{
	const struct doctor_options *options = &session->doctor->options;
	int rc = exchange_connect(&session->link.exchange, &options->trust, options->peer,
				  options->port ? options->port : DOCTOR_PORT, DOCTOR_TOOL,
				  clock_ns() + KNOCK_NS, &session->error);

	session->nobody = session->link.exchange.absent;
	if (rc == 0)
		rc = doctor_about_swap(session->doctor, &session->link.exchange, &session->theirs,
				       &session->error);
	session->failed = rc != 0;
}

/* The command to run there; without a key it would listen to that host alone. */
static void fix_nobody(const struct session *session, struct finding *finding)
{
	const struct doctor_options *options = &session->doctor->options;
	const char *host = session->link.exchange.host;
	const char *colon = strrchr(session->link.exchange.peer, ':');
	bool here = strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
		    strcmp(host, "localhost") == 0;

	finding_fix(finding, "run there: weft doctor --serve --port %s%s%s%s%s", colon + 1,
		    options->transport ? " --transport " : "",
		    options->transport ? options->transport : "",
		    options->trust.keyed || !here ? " --key FILE" : "",
		    options->trust.keyed || here
			    ? ""
			    : ", and give --key FILE here too: the same file, which weft key make "
			      "FILE makes; without it that host serves itself alone");
}

static void say_tools(struct session *session)
{
	struct finding finding = {.name = "peer-serve", .why = true};

	if (!session->failed)
		finding_say(&finding, CHECK_PASS, "%s answers: %s, weft %s, %u rails",
			    session->link.exchange.peer, session->theirs.host, WEFT_VERSION,
			    session->theirs.rail_count);
	else
		/* what was asked for was not tried: that must not look like "all is well" */
		finding_say(&finding, CHECK_FAIL, "%s", session->error.text);
	if (session->nobody)
		fix_nobody(session, &finding);
	doctor_print(session->doctor, &finding);
}

static int open_link(struct session *session, struct finding *finding, struct error *error)
{
	const struct doctor_options *options = &session->doctor->options;
	struct write_options open = {.timeout_ms = DOCTOR_STEP_NS / 1000000};

	int rc;

	snprintf(open.settings.transport, sizeof(open.settings.transport), "%s",
		 session->transport);
	snprintf(open.nics, sizeof(open.nics), "%s",
		 options->nics && (!session->several || options->transport) ? options->nics : "");
	open.settings.region_bytes = DOCTOR_REGION_BYTES;
	if (!open.settings.transport[0])
		return error_set(error, ERROR_UNSUPPORTED, "no transport works on this side");
	rc = write_link_open(&session->link, &open, false, error);
	if (rc)
		return rc;
	finding_say(finding, CHECK_PASS, "%s connected and probed in %s, opened in %s",
		    session->link.settings.transport, SECONDS_TEXT(session->link.connect_ns),
		    SECONDS_TEXT(session->link.open_ns));
	return 0;
}

/* ---- writes ---- */

static int signal_peer(struct session *session, struct error *error)
{
	int rc = transport_signal(session->link.endpoint, DOCTOR_TAG, NULL, 0,
				  write_deadline(&session->link), error);

	session->signals += rc == 0;
	return rc;
}

/* The other side sums its own memory; both sums must be one. */
static int compare(struct session *session, uint64_t bytes, struct error *error)
{
	struct tool_message message = {.type = TOOL_CHECK, .u.check = {bytes, session->signals}};
	uint64_t here, there;
	int rc = exchange_send(&session->link.exchange, &message, error);

	if (rc == 0)
		rc = exchange_receive(&session->link.exchange, TOOL_CHECKED, "its checksum",
				      &message, write_deadline(&session->link) + DOCTOR_STEP_NS,
				      error);
	if (rc)
		return rc;
	here = checksum64(transport_region_memory(session->link.region), bytes);
	there = message.u.checked.sum;
	if (here != there)
		return error_set(error, ERROR_CHECKSUM,
				 "%" PRIu64 " bytes arrived at %s with checksum %016" PRIx64
				 ", they were sent with %016" PRIx64,
				 bytes, session->link.exchange.peer, there, here);
	return 0;
}

static int write_and_compare(struct session *session, struct finding *finding, uint64_t bytes,
			     unsigned char seed, struct error *error)
{
	struct write_link *link = &session->link;
	unsigned char *source = transport_region_memory(link->region);

	uint64_t begin, end;
	int rc;

	for (uint64_t i = 0; i < bytes; i++)
		source[i] = (unsigned char)(i * 31 + i / 256 + seed);
	begin = clock_ns();
	rc = transport_write(link->endpoint, source, link->region, link->remote, 0, bytes,
			     write_deadline(link), error);
	if (rc == 0)
		rc = transport_flush(link->endpoint, write_deadline(link), error);
	end = clock_ns();
	if (rc == 0)
		rc = signal_peer(session, error);
	if (rc == 0)
		rc = compare(session, bytes, error);
	if (rc == 0)
		finding_say(finding, CHECK_PASS, "%" PRIu64 " byte%s in %s, checksum equal", bytes,
			    bytes == 1 ? "" : "s", SECONDS_TEXT(end - begin));
	return rc;
}

static int write_byte(struct session *session, struct finding *finding, struct error *error)
{
	return write_and_compare(session, finding, 1, 1, error);
}

static uint64_t packet_bytes(const struct doctor *doctor)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < doctor->nic_count; i++) {
		const struct verbs_port *port;

		doctor_nic(doctor, i, &port);
		bytes = port->mtu > bytes ? port->mtu : bytes;
	}
	return bytes ? bytes : 4096;
}

static int write_packet(struct session *session, struct finding *finding, struct error *error)
{
	int rc = write_and_compare(session, finding, packet_bytes(session->doctor), 2, error);

	if (rc)
		finding_fix(finding,
			    "one byte passes and a full packet does not: a switch or an "
			    "interface between has a smaller MTU; set WEFT_MTU=1024 to see");
	return rc;
}

static int write_all(struct session *session, struct finding *finding, struct error *error)
{
	return write_and_compare(session, finding, DOCTOR_REGION_BYTES, 3, error);
}

/* ---- numbers ---- */

static int latency(struct session *session, struct finding *finding, struct error *error)
{
	struct tool_message ping = {.type = TOOL_PING, .u.ping = {PINGS, session->signals + 1}};
	uint64_t times[PINGS];
	int rc = exchange_send(&session->link.exchange, &ping, error);

	for (int i = 0; rc == 0 && i < PINGS; i++) {
		uint64_t begin = clock_ns();

		rc = signal_peer(session, error);
		if (rc == 0)
			rc = doctor_signal_wait(&session->link, ++session->answers, error);
		times[i] = clock_ns() - begin;
	}
	if (rc == 0)
		rc = exchange_receive(&session->link.exchange, TOOL_PONG, "its count of signals",
				      NULL, write_deadline(&session->link), error);
	if (rc)
		return rc;
	sort_items(times, PINGS, compare_u64s);
	finding_say(finding, CHECK_PASS,
		    "round trip of a signal: median %s, least %s, most %s, of %d",
		    SECONDS_TEXT(times[PINGS / 2]), SECONDS_TEXT(times[0]),
		    SECONDS_TEXT(times[PINGS - 1]), PINGS);
	return 0;
}

/* Bits a second of the chosen rails together; 0 where a device does not tell. */
static double line_rate(const struct doctor *doctor)
{
	double rate = 0;

	for (uint32_t i = 0; i < doctor->nic_count; i++) {
		const struct verbs_port *port;

		if (doctor_nic(doctor, i, &port)->soft)
			return 0;
		rate += (double)port->speed_mbps * 1e6;
	}
	return rate;
}

static void say_rate(const struct session *session, struct finding *finding, uint64_t bytes,
		     uint64_t took_ns)
{
	double rate = (double)bytes * 8e9 / (double)took_ns;
	bool verbs = strcmp(session->link.settings.transport, "verbs") == 0;
	double line = verbs ? line_rate(session->doctor) : 0;
	char amount[TEXT_SHORT_BYTES], second[TEXT_SHORT_BYTES];

	bytes_text(bytes, amount);
	bytes_text((uint64_t)(rate / 8), second);
	if (line == 0) {
		finding_say(finding, CHECK_PASS, "%.3g Gb/s (%s/s), %s in %.1f s, last 1 MiB equal",
			    rate / 1e9, second, amount, (double)took_ns / 1e9);
		return;
	}
	finding_say(finding, rate < line / 2 ? CHECK_WARN : CHECK_PASS,
		    "%.1f Gb/s of %.1f Gb/s line rate (%.0f %%), %s in %.1f s, last 1 MiB equal",
		    rate / 1e9, line / 1e9, 100 * rate / line, amount, (double)took_ns / 1e9);
	if (rate < line / 2)
		finding_fix(finding,
			    "look at mtu, pcie-link, traffic-class and peer-route above; compare "
			    "with ib_write_bw");
}

/* Writes for as long as the test lasts, with at most IN_FLIGHT under way; their bytes are *bytes. */
static int write_on(struct write_link *link, uint64_t until, uint64_t *bytes, struct error *error)
{
	uint64_t first, done, posted = 0;
	int rc = transport_progress(link->endpoint, &first, error);

	done = first;
	while (rc == 0 && clock_ns() < until) {
		if (posted - (done - first) < IN_FLIGHT) {
			rc = transport_write(link->endpoint, transport_region_memory(link->region),
					     link->region, link->remote, 0, DOCTOR_REGION_BYTES,
					     write_deadline(link), error);
			posted += rc == 0;
		} else {
			rc = transport_progress(link->endpoint, &done, error);
		}
	}
	*bytes = posted * DOCTOR_REGION_BYTES;
	return rc;
}

static int bandwidth(struct session *session, struct finding *finding, struct error *error)
{
	struct write_link *link = &session->link;
	uint64_t begin = clock_ns(), bytes, took;
	int rc = write_on(link, begin + BANDWIDTH_NS, &bytes, error);

	if (rc == 0)
		rc = transport_flush(link->endpoint, write_deadline(link), error);
	took = clock_ns() - begin;
	if (rc == 0)
		rc = signal_peer(session, error);
	if (rc == 0)
		rc = compare(session, DOCTOR_REGION_BYTES, error);
	if (rc == 0)
		say_rate(session, finding, bytes, took);
	return rc;
}

/* ---- the steps ---- */

static const struct step {
	const char *name;
	int (*run)(struct session *session, struct finding *finding, struct error *error);
	bool once; /* not of each where several are tried */
} steps[] = {{"connect", open_link, false},	{"write-byte", write_byte, true},
	     {"write-mtu", write_packet, true}, {"write-1mib", write_all, false},
	     {"latency", latency, false},	{"bandwidth", bandwidth, false}};

/* What was not asked for by itself may be impossible: shm to another host is, and tcp is an offer. */
static enum check_state failed_state(const struct session *session)
{
	if (session->elsewhere)
		return CHECK_SKIP;
	return session->several ? CHECK_WARN : CHECK_FAIL;
}

static void run_step(struct session *session, const struct step *step)
{
	char name[64];
	struct finding finding = {.name = name};
	struct error error;

	if (session->several && step->once)
		return;
	snprintf(name, sizeof(name), "peer-%s%s%s", session->several ? session->transport : "",
		 session->several ? "-" : "", step->name);
	if (session->failed) {
		finding_say(&finding, CHECK_SKIP, "%s",
			    session->nobody	 ? "nobody serves there"
			    : session->elsewhere ? "the peer is on another host"
						 : "after what failed above");
	} else if (step->run(session, &finding, &error) != 0) {
		session->elsewhere = !doctor_wants_only(session->doctor, session->transport) &&
				     doctor_stays_here(session->transport) &&
				     error.code == ERROR_UNSUPPORTED;
		finding_say(&finding, failed_state(session), "%s", error.text);
		exchange_send_failure(&session->link.exchange, &error);
		session->failed = true;
	}
	doctor_print(session->doctor, &finding);
}

static void run_steps(struct session *session)
{
	static const struct tool_message bye = {.type = TOOL_BYE};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		run_step(session, &steps[i]);
	if (!session->failed)
		exchange_send(&session->link.exchange, &bye, NULL);
	write_link_close(&session->link);
}

/* `first`: with the connection that is there, of which it takes over; NULL: with one of its own. */
static bool try(struct doctor *doctor, const char *transport, struct exchange *first)
{
	struct session session = {.doctor = doctor, .transport = transport, .several = true};

	if (first && first->socket) {
		session.link.exchange = *first;
		first->socket = NULL;
	} else {
		knock(&session);
	}
	run_steps(&session);
	return !session.failed;
}

/* Each of the list that works here, by itself; then which of them a pair would use. `here` is the
 * connection that is there. */
static void try_list(struct doctor *doctor, struct exchange *here)
{
	static const struct tool_message bye = {.type = TOOL_BYE};
	const struct transports *wanted = &doctor->options.wanted;
	struct finding finding = {.name = "peer-pairs"};
	bool tcp = transports_find(wanted, "tcp") < wanted->count;
	char names[TRANSPORTS_TEXT_BYTES];
	uint32_t first = wanted->count;

	for (uint32_t i = 0; i < wanted->count; i++)
		if (doctor->works[i] && try(doctor, wanted->names[i], here) &&
		    first == wanted->count)
			first = i;
	if (here->socket) /* nothing was tried */
		exchange_send(here, &bye, NULL);
	doctor->peer = first < wanted->count ? PEER_REACHED : PEER_FAILED;
	transports_text(wanted, names);
	if (first < wanted->count) {
		finding_say(&finding, CHECK_PASS, "%s: the first of %s that gets to this peer",
			    wanted->names[first], names);
	} else {
		finding_say(&finding, CHECK_FAIL, "no transport of %s gets to this peer", names);
		finding_fix(&finding, "%s%s%s", tcp ? "see above" : "give both sides --transport ",
			    tcp ? "" : names, tcp ? "" : ",tcp");
	}
	doctor_print(doctor, &finding);
}

void doctor_peer_run(struct doctor *doctor)
{
	const char *asked = doctor->options.transport;
	struct session session = {.doctor = doctor, .transport = asked ? asked : doctor->uses};
	bool nobody;

	knock(&session);
	say_route(&session);
	say_tools(&session);
	nobody = session.failed; /* before any transport was tried */
	if (!nobody && doctor_wants_several(doctor)) {
		try_list(doctor, &session.link.exchange);
		write_link_close(&session.link);
		return;
	}
	run_steps(&session);
	if (!nobody)
		doctor->peer = session.failed ? PEER_FAILED : PEER_REACHED;
	/* between any two hosts there is tcp: where nothing was asked for, its figure is told beside */
	if (!asked && !nobody && doctor->tcp_works && try(doctor, "tcp", NULL) && session.failed)
		doctor->peer = session.elsewhere ? PEER_REACHED : PEER_BY_TCP;
}
