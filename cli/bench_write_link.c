/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two sides of `weft bench write` do before the first byte: agree on the settings,
 * open, exchange records, connect, prove.
 */
#include "cli/bench_write.h"

#include "base/clock.h"
#include "transport/transport.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTINGS_BYTES (16 + 6 * 8)

uint64_t write_deadline(const struct write_link *link)
{
	return clock_ns() + link->timeout_ns;
}

/* ---- settings ---- */

static const struct setting_row {
	const char *flag, *variable; /* variable: where the provider reads it */
	size_t offset;
} setting_rows[] = {
	{"--qps", "WEFT_QPS", offsetof(struct write_settings, qps)},
	{"--depth", "WEFT_QUEUE_DEPTH", offsetof(struct write_settings, depth)},
	{"--mtu", "WEFT_MTU", offsetof(struct write_settings, mtu)},
	{"--chunk", "WEFT_CHUNK_BYTES", offsetof(struct write_settings, chunk_bytes)},
};
#define SETTING_ROWS	(sizeof(setting_rows) / sizeof(setting_rows[0]))
#define QUEUE_DEPTH_MIN 16 /* of WEFT_QUEUE_DEPTH; fewer writes in flight need no shorter queue */

static uint64_t *setting_at(struct write_settings *settings, const struct setting_row *row)
{
	return (uint64_t *)((unsigned char *)settings + row->offset);
}

/* The transport's name, then the numbers in the order of the struct. */
#define SETTING_NUMBERS 6

static void settings_put(const struct write_settings *settings, unsigned char out[SETTINGS_BYTES])
{
	const uint64_t numbers[SETTING_NUMBERS] = {settings->qps,	   settings->depth,
						   settings->mtu,	   settings->chunk_bytes,
						   settings->region_bytes, settings->secret};

	memcpy(out, settings->transport, sizeof(settings->transport));
	for (int i = 0; i < SETTING_NUMBERS; i++)
		exchange_put_u64(out + sizeof(settings->transport) + 8 * i, numbers[i]);
}

static void settings_get(struct write_settings *settings, const unsigned char in[SETTINGS_BYTES])
{
	uint64_t *const numbers[SETTING_NUMBERS] = {&settings->qps,	     &settings->depth,
						    &settings->mtu,	     &settings->chunk_bytes,
						    &settings->region_bytes, &settings->secret};

	memcpy(settings->transport, in, sizeof(settings->transport));
	settings->transport[sizeof(settings->transport) - 1] = '\0';
	for (int i = 0; i < SETTING_NUMBERS; i++)
		*numbers[i] = exchange_get_u64(in + sizeof(settings->transport) + 8 * i);
}

/* What only one side was told holds for both; what both were told must be the same. */
static int settings_merge(struct write_settings *client, const struct write_settings *server,
			  struct error *error)
{
	struct write_settings other = *server;

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
static int settings_apply(const struct write_settings *settings, struct error *error)
{
	struct write_settings copy = *settings;
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

static int settings_agree(struct write_link *link, bool server, struct error *error)
{
	unsigned char bytes[SETTINGS_BYTES];
	struct write_settings theirs;
	size_t n = 0;
	int rc = 0;

	if (!server) {
		settings_put(&link->settings, bytes);
		rc = exchange_send(&link->exchange, WRITE_SETTINGS, bytes, sizeof(bytes),
				   write_deadline(link), error);
	}
	if (rc == 0)
		rc = exchange_receive(&link->exchange, WRITE_SETTINGS, "its settings", bytes,
				      sizeof(bytes), &n, write_deadline(link), error);
	if (rc)
		return rc;
	if (n != sizeof(bytes))
		return error_set(error, ERROR_MESSAGE, "%s sent %zu bytes of settings, not %zu",
				 link->exchange.peer, n, sizeof(bytes));
	settings_get(&theirs, bytes);
	if (!server) {
		link->settings = theirs;
		return 0;
	}
	rc = settings_merge(&theirs, &link->settings, error);
	if (rc)
		return rc;
	theirs.secret = clock_ns() ^ (uint64_t)getpid() << 40;
	link->settings = theirs;
	settings_put(&theirs, bytes);
	return exchange_send(&link->exchange, WRITE_SETTINGS, bytes, sizeof(bytes),
			     write_deadline(link), error);
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

static int swap(struct write_link *link, enum write_kind kind, const char *waiting_for,
		const void *mine, size_t mine_bytes, void *theirs, size_t most,
		size_t *theirs_bytes, struct error *error)
{
	int rc =
		exchange_send(&link->exchange, kind, mine, mine_bytes, write_deadline(link), error);

	return rc ? rc
		  : exchange_receive(&link->exchange, kind, waiting_for, theirs, most, theirs_bytes,
				     write_deadline(link), error);
}

static int move_region(struct write_link *link, bool server, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length = 0;
	int rc;

	if (server) {
		rc = transport_region_export(link->region, record, &length, error);
		return rc ? rc
			  : exchange_send(&link->exchange, WRITE_REGION, record, length,
					  write_deadline(link), error);
	}
	rc = exchange_receive(&link->exchange, WRITE_REGION, "the record of its memory", record,
			      sizeof(record), &length, write_deadline(link), error);
	return rc ? rc
		  : transport_remote_import(link->endpoint, record, length, &link->remote, error);
}

static int connect_sides(struct write_link *link, bool server, struct error *error)
{
	unsigned char mine[TRANSPORT_RECORD_BYTES], theirs[TRANSPORT_RECORD_BYTES];
	size_t mine_bytes = 0, theirs_bytes = 0;
	int rc = transport_endpoint_record(link->endpoint, mine, &mine_bytes, error);

	if (rc == 0)
		rc = swap(link, WRITE_RECORD, "its endpoint record", mine, mine_bytes, theirs,
			  sizeof(theirs), &theirs_bytes, error);
	if (rc == 0)
		rc = transport_endpoint_connect(link->endpoint, theirs, theirs_bytes,
						write_deadline(link), error);
	if (rc == 0)
		rc = swap(link, WRITE_CONNECTED, "it to connect", NULL, 0, NULL, 0, NULL, error);
	if (rc == 0)
		rc = move_region(link, server, error);
	if (rc == 0)
		rc = transport_endpoint_prove(link->endpoint, write_deadline(link), error);
	if (rc == 0)
		rc = swap(link, WRITE_PROVED, "it to prove the path", NULL, 0, NULL, 0, NULL,
			  error);
	return rc;
}

int write_link_open(struct write_link *link, const struct write_options *options, bool server,
		    struct error *error)
{
	uint64_t begin, opened;
	int rc;

	link->settings = options->settings;
	link->timeout_ns = options->timeout_ms * 1000000;
	rc = settings_agree(link, server, error);
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
