/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two sides of `weft bench write` do before the first byte: agree on the settings,
 * open, exchange records, connect, probe.
 */
#include "cli/bench_write.h"

#include "base/clock.h"
#include "transport/transport.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t write_deadline(const struct write_link *link)
{
	return clock_ns() + link->timeout_ns;
}

/* ---- settings ---- */

static const struct setting_row {
	const char *flag, *variable; /* variable: where the provider reads it */
	size_t offset;
} setting_rows[] = {
	{"--qps", "WEFT_QPS", offsetof(struct tool_settings, qps)},
	{"--depth", "WEFT_QUEUE_DEPTH", offsetof(struct tool_settings, depth)},
	{"--mtu", "WEFT_MTU", offsetof(struct tool_settings, mtu)},
	{"--chunk", "WEFT_CHUNK_BYTES", offsetof(struct tool_settings, chunk_bytes)},
};
#define SETTING_ROWS	(sizeof(setting_rows) / sizeof(setting_rows[0]))
#define QUEUE_DEPTH_MIN 16 /* of WEFT_QUEUE_DEPTH; fewer writes in flight need no shorter queue */

static uint64_t *setting_at(struct tool_settings *settings, const struct setting_row *row)
{
	return (uint64_t *)((unsigned char *)settings + row->offset);
}

/* A server of several transports takes each of them, and no other. */
static int check_taken(const struct transports *taken, const char *transport, struct error *error)
{
	char names[TRANSPORTS_TEXT_BYTES];

	if (!taken || transports_find(taken, transport) < taken->count)
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "the server was started with --transport %s, the client asks for %s: give "
			 "both the same list",
			 transports_text(taken, names), transport);
}

/* What only one side was told holds for both; what both were told must be the same. */
static int settings_merge(struct tool_settings *client, const struct tool_settings *server,
			  struct error *error)
{
	struct tool_settings other = *server;

	if (!client->transport[0])
		memcpy(client->transport, server->transport, sizeof(client->transport));
	if (server->transport[0] && strcmp(client->transport, server->transport) != 0)
		return error_set(error, ERROR_CONFIG,
				 "the server was started with --transport %s, the client with "
				 "--transport %s: start both with the same",
				 server->transport, client->transport);
	if (!client->transport[0])
		strcpy(client->transport, "verbs");
	for (size_t i = 0; i < SETTING_ROWS; i++) {
		uint64_t *mine = setting_at(client, &setting_rows[i]);
		uint64_t theirs = *setting_at(&other, &setting_rows[i]);

		if (*mine && theirs && *mine != theirs)
			return error_set(error, ERROR_CONFIG,
					 "the server was started with %s %llu, the client with %s "
					 "%llu: give it to one side only, or both the same",
					 setting_rows[i].flag, (unsigned long long)theirs,
					 setting_rows[i].flag, (unsigned long long)*mine);
		if (!*mine)
			*mine = theirs;
	}
	return 0;
}

/* The provider reads its settings from the environment, when the domain is opened. */
static int settings_apply(const struct tool_settings *settings, struct error *error)
{
	struct tool_settings copy = *settings;
	char text[24];

	if (copy.depth && copy.depth < QUEUE_DEPTH_MIN)
		copy.depth = QUEUE_DEPTH_MIN;
	for (size_t i = 0; i < SETTING_ROWS; i++) {
		uint64_t value = *setting_at(&copy, &setting_rows[i]);

		snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
		if (value && setenv(setting_rows[i].variable, text, 1) != 0)
			return error_set(error, ERROR_MEMORY, "no memory to set %s",
					 setting_rows[i].variable);
	}
	return 0;
}

static int send_settings(struct write_link *link, const struct tool_settings *settings,
			 struct error *error)
{
	struct tool_message message = {.type = TOOL_SETTINGS, .u.settings = *settings};

	return exchange_send(&link->exchange, &message, error);
}

static int settings_agree(struct write_link *link, const struct transports *taken, bool server,
			  struct error *error)
{
	struct tool_message theirs;
	int rc = server ? 0 : send_settings(link, &link->settings, error);

	if (rc == 0)
		rc = exchange_receive(&link->exchange, TOOL_SETTINGS, "its settings", &theirs,
				      write_deadline(link), error);
	if (rc == 0 && server)
		rc = settings_merge(&theirs.u.settings, &link->settings, error);
	if (rc == 0 && server)
		rc = check_taken(taken, theirs.u.settings.transport, error);
	if (rc)
		return rc;
	if (server)
		theirs.u.settings.secret = clock_ns() ^ (uint64_t)getpid() << 40;
	link->settings = theirs.u.settings;
	return server ? send_settings(link, &link->settings, error) : 0;
}

/* ---- connecting ---- */

static int open_domain(struct write_link *link, const struct write_options *options, bool server,
		       struct error *error)
{
	struct transport_options open = {.self = {server ? ROLE_INFERENCE : ROLE_TRAINER, 0},
					 .secret = link->settings.secret,
					 .chunk_bytes = link->settings.chunk_bytes};
	struct member peer = {server ? ROLE_TRAINER : ROLE_INFERENCE, 0};
	char name[64 + EXCHANGE_TEXT_BYTES];
	int rc;

	snprintf(open.name, sizeof(open.name), "%s", server ? "the server" : "the client");
	snprintf(open.nics, sizeof(open.nics), "%s", options->nics);
	snprintf(name, sizeof(name), "the %s on %s", server ? "client" : "server",
		 link->exchange.host);
	rc = settings_apply(&link->settings, error);
	if (rc == 0)
		rc = transport_domain_open(&link->domain, link->settings.transport, &open, error);
	if (rc == 0)
		rc = transport_region_allocate(link->domain, link->settings.region_bytes,
					       &link->region, error);
	if (rc == 0)
		rc = transport_endpoint_open(link->domain, peer, name, &link->endpoint, error);
	return rc;
}

/* One of ours goes, one of the same type comes; `theirs` may be NULL. */
static int swap(struct write_link *link, const struct tool_message *mine, const char *waiting_for,
		struct tool_message *theirs, struct error *error)
{
	int rc = exchange_send(&link->exchange, mine, error);

	return rc ? rc
		  : exchange_receive(&link->exchange, mine->type, waiting_for, theirs,
				     write_deadline(link), error);
}

static int move_region(struct write_link *link, bool server, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct tool_message message = {.type = TOOL_REGION, .u.record = {.bytes = record}};
	int rc;

	if (server) {
		rc = transport_region_export(link->region, record, &message.u.record.length, error);
		return rc ? rc : exchange_send(&link->exchange, &message, error);
	}
	rc = exchange_receive(&link->exchange, TOOL_REGION, "the record of its memory", &message,
			      write_deadline(link), error);
	if (rc)
		return rc;
	rc = transport_remote_import(link->endpoint, message.u.record.bytes,
				     message.u.record.length, &link->remote, error);
	tool_fini(&message);
	return rc;
}

static int connect_endpoint(struct write_link *link, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct tool_message mine = {.type = TOOL_RECORD, .u.record = {.bytes = record}}, theirs;
	int rc = transport_endpoint_record(link->endpoint, record, &mine.u.record.length, error);

	if (rc == 0)
		rc = swap(link, &mine, "its endpoint record", &theirs, error);
	if (rc)
		return rc;
	rc = transport_endpoint_connect(link->endpoint, theirs.u.record.bytes,
					theirs.u.record.length, write_deadline(link), error);
	tool_fini(&theirs);
	return rc;
}

static int connect_sides(struct write_link *link, bool server, struct error *error)
{
	static const struct tool_message connected = {.type = TOOL_CONNECTED};
	static const struct tool_message proved = {.type = TOOL_PROVED};
	int rc = connect_endpoint(link, error);

	if (rc == 0)
		rc = swap(link, &connected, "it to connect", NULL, error);
	if (rc == 0)
		rc = move_region(link, server, error);
	if (rc == 0)
		rc = transport_endpoint_probe(link->endpoint, write_deadline(link), error);
	return rc ? rc : swap(link, &proved, "it to probe the path", NULL, error);
}

int write_link_open(struct write_link *link, const struct write_options *options, bool server,
		    struct error *error)
{
	uint64_t begin, opened;
	int rc;

	link->settings = options->settings;
	link->timeout_ns = options->timeout_ms * 1000000;
	rc = settings_agree(link, options->taken, server, error);
	begin = clock_ns();
	if (rc == 0)
		rc = open_domain(link, options, server, error);
	opened = clock_ns();
	if (rc == 0)
		rc = connect_sides(link, server, error);
	link->open_ns = opened - begin;
	link->connect_ns = clock_ns() - opened;
	return rc;
}

void write_link_close(struct write_link *link)
{
	transport_remote_close(&link->remote);
	if (link->endpoint)
		transport_endpoint_close(&link->endpoint);
	transport_region_close(&link->region);
	transport_domain_close(&link->domain);
	exchange_close(&link->exchange);
}
