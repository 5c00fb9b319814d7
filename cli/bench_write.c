/* SPDX-License-Identifier: Apache-2.0
 *
 * `weft bench write`: its flags, its lines, and who plays which side (bench_write.h).
 */
#include "cli/bench_write.h"
#include "cli/grid.h"
#include "cli/shown.h"

#include "cli/children.h"
#include "cli/screen.h"
#include "base/json_write.h"
#include "job/transports.h"
#include "transport/transport.h"
#include "transport/verbs/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SIZES_DEFAULT "4K..64M"
#define DURATION_MS   1000
#define TIMEOUT_MS    30000
#define BYTES_MAX     (1ull << 46)

/* ---- lines ---- */

static uint64_t writes_in_flight(const struct write_link *link)
{
	uint64_t depth = link->settings.depth ? link->settings.depth : BENCH_WRITE_DEPTH;

	return depth * transport_domain_caps(link->domain)->rails;
}

static const struct grid_column columns[] = {
	COLUMN("#      bytes", 12, .least = 12), COLUMN("iterations", 11, .least = 10),
	COLUMN("first ms", 10, .least = 8),	 COLUMN("p50 us", 11, .least = 7),
	COLUMN("p99 us", 11, .least = 7),	 COLUMN("GB/s", 9, .least = 6),
	COLUMN("requests/s", 12, .least = 10),	 COLUMN("target", 0, .before = "  ", .least = 12),
};
static struct grid table; /* of the one run of this process */

static void print_linked(const struct write_options *options, const struct write_link *link)
{
	if (options->json)
		return;
	printf("# weft bench write: to %s over %s, %u rail(s), %" PRIu64 " writes in flight\n",
	       link->exchange.peer, link->settings.transport,
	       transport_domain_caps(link->domain)->rails, writes_in_flight(link));
	printf("# opened in %s, connected and probed in %s; first: one write and its flush\n",
	       SECONDS_TEXT(link->open_ns), SECONDS_TEXT(link->connect_ns));
	grid_begin_slow(&table, columns, ARRAY_SIZE(columns));
	screen_flush();
}

/* Where it was measured. */
static void put_environment(struct json *json, const struct write_options *options,
			    const struct write_link *link)
{
	const struct transport_caps *caps = transport_domain_caps(link->domain);
	struct verbs_settings verbs;
	struct utsname system;

	json_put_key_string(json, "peer", link->exchange.peer);
	json_put_key_string(json, "transport", link->settings.transport);
	json_put_key_string(json, "nic", options->nics);
	json_put_key_u64(json, "rails", caps->rails);
	json_put_key_u64(json, "depth", writes_in_flight(link) / caps->rails);
	if (strcmp(link->settings.transport, "verbs") == 0 &&
	    verbs_settings_read(&verbs, options->nics, getenv, NULL) == 0) {
		json_put_key_u64(json, "qps", verbs.qps);
		json_put_key_u64(json, "queue_depth", verbs.depth);
		json_put_key_u64(json, "chunk_bytes", verbs.chunk_bytes);
		json_put_key_u64(json, "mtu", verbs.mtu); /* 0: the smaller of both ports */
	}
	if (uname(&system) == 0) {
		json_put_key_string(json, "kernel", system.release);
		json_put_key_string(json, "machine", system.machine);
	}
	json_put_key_string(json, "weft", WEFT_VERSION);
}

static void print_json(const struct write_options *options, const struct write_link *link,
		       const struct write_result *result, double rate, double requests)
{
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_u64(&json, "bytes", result->bytes);
	json_put_key_u64(&json, "iterations", result->iterations);
	json_put_key_u64(&json, "footprint", result->footprint);
	json_put_key_double(&json, "open_ms", (double)link->open_ns / 1e6);
	json_put_key_double(&json, "connect_ms", (double)link->connect_ns / 1e6);
	json_put_key_double(&json, "first_ms", (double)result->first_ns / 1e6);
	json_put_key_double(&json, "seconds", (double)result->elapsed_ns / 1e9);
	json_put_key_double(&json, "p50_us", (double)result->p50_ns / 1e3);
	json_put_key_double(&json, "p99_us", (double)result->p99_ns / 1e3);
	json_put_key_double(&json, "max_us", (double)result->max_ns / 1e3);
	json_put_key_double(&json, "signal_us", (double)result->signal_ns / 1e3);
	json_put_key_double(&json, "bytes_per_second", rate);
	json_put_key_double(&json, "requests_per_second", requests);
	json_put_key_bool(&json, "checked", result->checked);
	put_environment(&json, options, link);
	json_put_line_end(&json);
}

static void print_passed(const struct write_options *options, const struct write_link *link,
			 const struct write_result *result)
{
	double requests = (double)result->iterations / ((double)result->elapsed_ns / 1e9);
	double rate = requests * (double)result->bytes;

	if (options->json)
		print_json(options, link, result, rate, requests);
	else
		grid_row(&table, (const char *[]){grid_cell("%" PRIu64, result->bytes),
						  grid_cell("%" PRIu64, result->iterations),
						  grid_cell("%.3f", (double)result->first_ns / 1e6),
						  grid_cell("%.2f", (double)result->p50_ns / 1e3),
						  grid_cell("%.2f", (double)result->p99_ns / 1e3),
						  grid_cell("%.3f", rate / 1e9),
						  grid_cell("%.0f", requests),
						  result->checked ? "verified" : "not verified"});
	screen_flush();
}

static const struct write_view view = {print_linked, print_passed};

/* ---- flags ---- */

static bool add_size(struct write_options *options, uint64_t bytes)
{
	if (bytes < 1 || bytes > BYTES_MAX || options->size_count == BENCH_WRITE_SIZES_MAX)
		return false;
	options->sizes[options->size_count++] = bytes;
	return true;
}

/* "A..B", "A..B:FACTOR" or "A,B,C". */
static bool parse_sizes(struct write_options *options, const char *text)
{
	char copy[512], *dots, *colon, *save = NULL;
	uint64_t first, last, factor = 4;
	bool good = true;

	options->size_count = 0;
	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
		return false;
	dots = strstr(copy, "..");
	if (!dots) {
		for (char *word = strtok_r(copy, ",", &save); good && word;
		     word = strtok_r(NULL, ",", &save))
			good = parse_bytes(word, &first) && add_size(options, first);
		return good && options->size_count;
	}
	*dots = '\0';
	colon = strchr(dots + 2, ':');
	if (colon) {
		*colon = '\0';
		if (!parse_u64(colon + 1, &factor) || factor < 2 || factor > 1024)
			return false;
	}
	if (!parse_bytes(copy, &first) || !parse_bytes(dots + 2, &last) || first < 1 ||
	    first > last || last > BYTES_MAX)
		return false;
	for (uint64_t bytes = first; good && bytes <= last; bytes *= factor)
		good = add_size(options, bytes);
	return good;
}

static void take_mtu(void *taken, const char *argument, struct argp_state *state)
{
	uint64_t *mtu = &((struct write_options *)taken)->settings.mtu;

	if (!parse_u64(argument, mtu) || *mtu < 256 || *mtu > 4096 || (*mtu & (*mtu - 1)))
		argp_error(state, "--mtu is '%s': give 256, 512, 1024, 2048 or 4096", argument);
}

static void take_sizes(void *taken, const char *argument, struct argp_state *state)
{
	if (!parse_sizes(taken, argument))
		argp_error(state,
			   "--sizes is '%s': give 4K..64M, 4K..64M:2 or a list like "
			   "64K,1M of at most %d sizes",
			   argument, BENCH_WRITE_SIZES_MAX);
}

static void take_check(void *taken, const char *argument, struct argp_state *state)
{
	((struct write_options *)taken)->no_check = false;
}

static void begin(void *taken)
{
	parse_sizes(taken, SIZES_DEFAULT);
}

static void check(void *taken, struct argp_state *state)
{
	struct write_options *options = taken;
	const struct tool_settings *settings = &options->settings;
	const char *flag = settings->qps ? "--qps" : settings->mtu ? "--mtu" : NULL;

	if (options->local && options->host)
		argp_error(state, "--local starts its own server: leave out '%s'", options->host);
	if (!options->local && !options->host && options->client_only)
		argp_error(state,
			   "--%s is the client's; without HOST this is the server: name the host "
			   "that the server runs on, or give --local",
			   options->client_only);
	if (options->persist && (options->local || options->host))
		argp_error(state, "--persist is the server's: leave it out here");
	if (options->trust.insecure && (options->local || options->host))
		argp_error(state, "--insecure is the server's: leave it out here");
	if (options->peer_nics[0] && !options->local)
		argp_error(state, "--peer-nic is for --local: give --nic to the server instead");
	if (options->iterations && options->duration_ms)
		argp_error(state, "give --iterations or --seconds, not both");
	if (!options->iterations && !options->duration_ms)
		options->duration_ms = DURATION_MS;
	if (transports_listed(settings->transport))
		argp_error(state, "--transport %s: one pair is measured, so name one transport",
			   settings->transport);
	if (flag && settings->transport[0] && strcmp(settings->transport, "verbs") != 0)
		argp_error(state, "%s is a setting of verbs; --transport %s has none", flag,
			   settings->transport);
}

/* ---- sides ---- */

/* What to type on the other host. */
static void print_listening(const struct write_options *options,
			    const struct exchange_listener *listener)
{
	const struct tool_settings *settings = &options->settings;
	char host[EXCHANGE_TEXT_BYTES];
	struct text command = {0};
	struct json json;

	exchange_listener_host(listener, host);
	text_format(&command, "weft bench write %s --transport %s", host,
		    settings->transport[0] ? settings->transport : "verbs");
	if (options->port != BENCH_WRITE_PORT)
		text_format(&command, " --port %" PRIu64, options->port);
	if (settings->qps)
		text_format(&command, " --qps %" PRIu64, settings->qps);
	if (settings->depth)
		text_format(&command, " --depth %" PRIu64, settings->depth);
	if (settings->mtu)
		text_format(&command, " --mtu %" PRIu64, settings->mtu);
	if (settings->chunk_bytes)
		text_format(&command, " --chunk %" PRIu64, settings->chunk_bytes);
	if (options->trust.keyed)
		text_add(&command, " --key FILE");
	if (options->json) {
		json_put_line(&json, stdout);
		json_put_key_u64(&json, "port", options->port);
		json_put_key_string(&json, "client", text_string(&command));
		json_put_line_end(&json);
	} else {
		printf("# weft bench write: waiting on port %" PRIu64 "%s run:\n%s\n",
		       options->port,
		       listener->socket->open
			       ? "; on the other host"
			       : " of this host alone, as there is no --key FILE; here",
		       shown(text_string(&command)));
	}
	screen_flush();
	text_fini(&command);
}

/* A server without RDMA would wait for a client in vain: it says so before, and what would do. */
static int check_verbs(const struct write_options *options, struct error *error)
{
	const char *asked = options->settings.transport;
	struct transport_options open = {.self = {ROLE_INFERENCE, 0}, .name = "the server"};
	struct transport_domain *domain = NULL;
	int rc;

	if (asked[0] && strcmp(asked, "verbs") != 0)
		return 0;
	snprintf(open.nics, sizeof(open.nics), "%s", options->nics);
	rc = transport_domain_open(&domain, "verbs", &open, error);
	transport_domain_close(&domain);
	if (rc && !asked[0])
		error_wrap(error, "without --transport this is verbs");
	return rc;
}

static int run_server(const struct write_options *options, struct error *error)
{
	struct exchange_listener listener;
	int rc = exchange_listen(&listener, &options->trust, (uint16_t)options->port, error);

	if (rc)
		return rc;
	rc = check_verbs(options, error);
	if (rc) {
		exchange_listener_close(&listener);
		return rc;
	}
	print_listening(options, &listener);
	do {
		rc = write_server(options, &listener, error);
		if (rc && options->persist)
			command_fail(error);
	} while (options->persist);
	exchange_listener_close(&listener);
	return rc;
}

/* What the server that --local starts says first: the port, or why there is none. */
struct begun {
	uint16_t port;
	struct error error;
};

/* What it fails of later it tells the client, who prints it. */
static void be_local_server(struct write_options *options, int tell)
{
	struct exchange_listener listener;
	struct begun begun = {0};
	int rc = exchange_listen(&listener, &options->trust, 0, &begun.error);

	begun.port = listener.port;
	if (options->peer_nics[0])
		strcpy(options->nics, options->peer_nics);
	if (write(tell, &begun, sizeof(begun)) == (ssize_t)sizeof(begun) && rc == 0)
		rc = write_server(options, &listener, &begun.error);
	exchange_listener_close(&listener);
	_exit(rc ? error_exit_code(begun.error.code) : 0);
}

static int hear_local_server(int from, struct begun *begun, struct error *error)
{
	if (read(from, begun, sizeof(*begun)) != (ssize_t)sizeof(*begun))
		return error_set(error, ERROR_IO, "the server that --local starts has ended");
	if (begun->error.code)
		*error = begun->error;
	return -(int)begun->error.code;
}

/* The server is a child with a socket of its own: libzmq's threads do not pass a fork. */
static int run_local(struct write_options *options, struct error *error)
{
	_Atomic uint32_t failed = 0;
	struct children children;
	struct begun begun;
	int ends[2] = {-1, -1};
	char address[32];
	pid_t pid = -1;
	int rc = children_open(&children, 1, &failed, error);

	if (rc == 0 && pipe2(ends, O_CLOEXEC) != 0)
		rc = error_set_errno(error, ERROR_IO, errno, "cannot make a pipe");
	if (rc == 0)
		rc = (pid = children_fork(&children, error)) < 0 ? -(int)error->code : 0;
	if (pid == 0)
		be_local_server(options, ends[1]);
	close(ends[1]);
	if (rc == 0)
		rc = hear_local_server(ends[0], &begun, error);
	close(ends[0]);
	if (rc == 0) {
		snprintf(address, sizeof(address), "127.0.0.1:%u", begun.port);
		options->host = address;
		rc = write_client(options, &view, error);
	}
	if (rc == 0)
		rc = children_wait(&children, error);
	children_close(&children);
	return rc;
}

static int run(void *taken, struct error *error)
{
	struct write_options *options = taken;
	int rc = socket_trust_read(&options->trust, error);

	/* both sides are ours: nobody else of this host shall be one of them */
	if (rc == 0 && options->local && !options->trust.keyed) {
		rc = key_make(&options->trust.key, error);
		options->trust.keyed = true;
	}
	if (rc == 0)
		rc = options->local  ? run_local(options, error)
		     : options->host ? write_client(options, &view, error)
				     : run_server(options, error);
	key_forget(&options->trust.key);
	return rc;
}

#define AT(member)    .offset = offsetof(struct write_options, member)
#define CHARS(member) AT(member), .most = sizeof(((struct write_options *)0)->member) - 1
#define CLIENT_ONLY   .group = 2, .note = offsetof(struct write_options, client_only)

static const struct verb_option rows[] = {
	{.doc = "Both sides (what only one is told holds for both):", .group = 1},
	{"transport", 'T', "NAME", "a requirement (default verbs)", VERB_CHARS,
	 CHARS(settings.transport), .group = 1},
	{"nic", 'd', "NICS", "of this side: rxe0, mlx5_0:1, mlx5_0,mlx5_3", VERB_CHARS, CHARS(nics),
	 .group = 1},
	{"qps", 'Q', "N", "queue pairs per NIC (verbs)", VERB_COUNT, AT(settings.qps), .group = 1,
	 .least = 1, .most = 8},
	{"depth", 't', "N", "writes in flight per rail (default 128)", VERB_COUNT,
	 AT(settings.depth), .group = 1, .least = 1, .most = 4096},
	{"mtu", 0, "BYTES", "path MTU at most (verbs)", VERB_TAKE, .take = take_mtu, .group = 1},
	{"chunk", 0, "BYTES", "cut writes at this many bytes", VERB_BYTES, AT(settings.chunk_bytes),
	 .group = 1},
	{"port", 'p', "N", "TCP port (default 18516)", VERB_COUNT, AT(port), .group = 1, .least = 1,
	 .most = 65535},
	{"timeout", 0, "TIME", "of every wait (default 30s)", VERB_TIME, AT(timeout_ms),
	 .group = 1},
	{"key", 0, "FILE", "the job's key, or an observer's (WEFT_KEY_FILE; docs/trust.md)",
	 VERB_TEXT, AT(trust.key_file), .group = 1},
	{.doc = "The client:", .group = 2},
	{"sizes", 's', "SIZES", "4K..64M (x4, the default), 4K..64M:2 (x2), or a list: 64K,1M,16M",
	 VERB_TAKE, .take = take_sizes, CLIENT_ONLY},
	{"iterations", 'n', "N", "writes a size", VERB_COUNT, AT(iterations), CLIENT_ONLY,
	 .least = 1, .most = 1000000000000},
	{"seconds", 0, "TIME", "or how long a size is written (default 1s)", VERB_TIME,
	 AT(duration_ms), CLIENT_ONLY},
	{"footprint", 0, "BYTES",
	 "go round this much memory (default: the same bytes every time, as ib_write_bw)",
	 VERB_BYTES, AT(footprint), CLIENT_ONLY},
	{"no-check", 0, NULL, "do not sum the target's memory after each size", VERB_FLAG,
	 AT(no_check), CLIENT_ONLY},
	{"check", 'c', NULL, "sum it (the default)", VERB_TAKE, .take = take_check, CLIENT_ONLY},
	{"json", 0, NULL, "one object a line", VERB_FLAG, AT(json), .group = 2},
	{"local", 0, NULL, "start the server here too", VERB_FLAG, AT(local), .group = 2},
	{"peer-nic", 0, "NICS", "--nic of the server that --local starts", VERB_CHARS,
	 CHARS(peer_nics), .group = 2},
	{.doc = "The server:", .group = 3},
	{"persist", 0, NULL, "serve one client after another", VERB_FLAG, AT(persist), .group = 3},
	{"insecure", 0, NULL,
	 "without a key, listen to other hosts too: whoever reaches the port can write into the "
	 "test's memory (default: this host alone)",
	 VERB_FLAG, AT(trust.insecure), .group = 3},
	{0},
};

const struct verb bench_write_verb = {
	VERB_OF(struct write_options, rows),
	VERB_ARGUMENTS(struct write_options, host, 0, 1),
	.defaults =
		&(const struct write_options){.port = BENCH_WRITE_PORT, .timeout_ms = TIMEOUT_MS},
	.begin = begin,
	.check = check,
	.too_many = "'%s' is one HOST too many",
	.arguments = "[HOST]",
	.doc = "Writes into another process's memory and says how fast, size by size. Without HOST "
	       "it is the target; with HOST (name, name:port, address) it writes into the target "
	       "that runs there.\vThe rate is of all bytes from the first post to the flush after "
	       "the last; p50 and p99 are of single writes, which queue behind those in flight "
	       "(--depth 1: alone).",
	.run = run,
};
