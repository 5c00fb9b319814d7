/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_write.h -- `weft bench write`: one initiator writes into one target's memory, nothing
 * else around it. What perftest's ib_write_bw measures, over any of our providers.
 *
 *   server (target)                              client (initiator)
 *   exchange_accept ◄───────── ZeroMQ ────────── exchange_connect
 *        what this side was told ◄──────────►    ... the two must not contradict
 *        domain, region, endpoint                domain, region, endpoint
 *        record, "connected", region ◄───────►   record, "connected"
 *        probe, "proved" ◄───────────────────►   probe, "proved"
 *   every size:
 *        (sleeps in poll)      ◄═══ writes ════  fill; first write; timed writes; flush; signal
 *        sees the signal, sums ◄── pass ───────
 *        its memory             ──── sum ─────►  equal: print the line
 */
#ifndef CLI_BENCH_WRITE_H
#define CLI_BENCH_WRITE_H

#include "cli/exchange.h"
#include "cli/verb.h"
#include "base/error.h"
#include "job/transports.h"
#include <stdbool.h>
#include <stdint.h>

#define BENCH_WRITE_SIZES_MAX 64
#define BENCH_WRITE_PORT      18516
#define BENCH_WRITE_DEPTH     128 /* writes in flight per rail, as perftest's */
#define BENCH_WRITE_TOOL      "bench write"

struct write_options {
	struct tool_settings settings;
	const char *host;                   /* NULL: the server */
	char nics[256], peer_nics[256];     /* peer_nics: of the server that --local starts */
	uint64_t sizes[BENCH_WRITE_SIZES_MAX];
	uint32_t size_count;
	uint64_t iterations, duration_ms;   /* one of them is 0 */
	uint64_t footprint, timeout_ms;
	uint64_t port;
	bool json, no_check, local, persist;
	struct socket_trust trust;
	const char *client_only;            /* a flag that means nothing to a server */
	const struct transports *taken;     /* of a server: these; NULL: what the settings say */
};

struct transport_domain;

/* Both sides connected and probed. */
struct write_link {
	struct exchange exchange;
	struct tool_settings settings;      /* agreed */
	struct transport_domain *domain;
	struct transport_region *region;
	struct transport_endpoint *endpoint;
	struct transport_remote *remote;    /* client only */
	uint64_t timeout_ns;
	uint64_t open_ns, connect_ns;       /* domain and region; records to proof */
};

struct write_result {
	uint64_t bytes, iterations, footprint;
	uint64_t elapsed_ns, first_ns, p50_ns, p99_ns, max_ns, signal_ns;
	bool checked;
};

/* ---- bench_write_link.c ---- */
uint64_t write_deadline(const struct write_link *link);
/* link->exchange is open. What went wrong is told to the other side too. */
int write_link_open(struct write_link *link, const struct write_options *options, bool server,
		    struct error *error);
void write_link_close(struct write_link *link);

/* ---- bench_write_run.c ---- */
/* Called by the client once the link stands, then for every size. */
struct write_view {
	void (*linked)(const struct write_options *options, const struct write_link *link);
	void (*passed)(const struct write_options *options, const struct write_link *link,
		       const struct write_result *result);
};
int write_client(const struct write_options *options, const struct write_view *view,
		 struct error *error);
/* One client, from accept to its bye. */
int write_server(const struct write_options *options, const struct exchange_listener *listener,
		 struct error *error);

/* What `weft bench write` takes. */
extern const struct verb bench_write_verb;

#endif
