/* SPDX-License-Identifier: Apache-2.0
 *
 * The measurement of `weft bench write`. All writes of one size go round a footprint, as many in
 * flight as the depth says; each is timed from its post to the look that found it done, and the
 * rate is of all bytes from the first post to the flush after the last.
 */
#include "cli/bench_write.h"

#include "base/clock.h"
#include "job/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include "transport/transport.h"

#include <string.h>
#include <time.h>

/* ---- latencies: a histogram whose buckets are 1/128 of their value wide ---- */

#define SUB_BITS 7
#define BUCKETS	 ((64 - SUB_BITS + 1) << SUB_BITS)

struct histogram {
	uint64_t counts[BUCKETS];
	uint64_t total, max_ns;
};

static uint32_t bucket_of(uint64_t ns)
{
	uint32_t exponent;

	if (ns < 1 << SUB_BITS)
		return (uint32_t)ns;
	exponent = 63 - (uint32_t)__builtin_clzll(ns);
	return ((exponent - SUB_BITS + 1) << SUB_BITS) +
	       (uint32_t)(ns >> (exponent - SUB_BITS) & ((1 << SUB_BITS) - 1));
}

static uint64_t bucket_ns(uint32_t bucket)
{
	uint32_t shift = bucket >> SUB_BITS;

	if (shift == 0)
		return bucket;
	return ((1ull << SUB_BITS) + (bucket & ((1 << SUB_BITS) - 1))) << (shift - 1);
}

static void histogram_add(struct histogram *histogram, uint64_t ns)
{
	histogram->counts[bucket_of(ns)]++;
	histogram->total++;
	if (ns > histogram->max_ns)
		histogram->max_ns = ns;
}

static uint64_t histogram_at(const struct histogram *histogram, uint32_t percent)
{
	uint64_t wanted = (histogram->total * percent + 99) / 100, seen = 0;

	for (uint32_t i = 0; i < BUCKETS; i++) {
		seen += histogram->counts[i];
		if (seen >= wanted)
			return bucket_ns(i);
	}
	return histogram->max_ns;
}

/* ---- one size ---- */

struct pass {
	struct write_link *link;
	uint64_t bytes, slots;	      /* slots * bytes is the footprint */
	uint64_t iterations, stop_ns; /* one of them */
	uint64_t posted, done, base;  /* base: writes of the endpoint before this pass */
	uint64_t moved_ns;	      /* when the latest write was found done */
	uint64_t *posted_ns;	      /* of the writes in flight, by number modulo window */
	uint64_t window;
	struct histogram *latency;
};

#define SPIN_TURNS 64
#define SPIN_NS	   500000
#define SLEEP_NS   2000000

static bool wants_more(const struct pass *pass)
{
	return pass->iterations ? pass->posted < pass->iterations : clock_ns() < pass->stop_ns;
}

static int post_one(struct pass *pass, struct error *error)
{
	const unsigned char *source = transport_region_memory(pass->link->region);
	uint64_t offset = pass->posted % pass->slots * pass->bytes;
	int rc;

	pass->posted_ns[pass->posted % pass->window] = clock_ns();
	rc = transport_write(pass->link->endpoint, source + offset, pass->link->region,
			     pass->link->remote, offset, pass->bytes, write_deadline(pass->link),
			     error);
	pass->posted++;
	return rc;
}

/* How many were found done; -code. */
static int64_t reap(struct pass *pass, struct error *error)
{
	uint64_t done = 0, now, before = pass->done;
	int rc = transport_progress(pass->link->endpoint, &done, error);

	if (rc)
		return rc;
	if (done - pass->base == before)
		return 0;
	now = clock_ns();
	pass->moved_ns = now;
	while (pass->done < done - pass->base) {
		histogram_add(pass->latency, now - pass->posted_ns[pass->done % pass->window]);
		pass->done++;
	}
	return (int64_t)(pass->done - before);
}

/* Nothing to do but look again. At first at once; what takes long is left alone for a sixteenth of
 * the time that it has taken, so that a latency is wrong by no more than that and soft NICs, which
 * work on these same processors, get to work. */
static int stand_by(struct pass *pass, uint32_t *turns, struct error *error)
{
	uint64_t idle_ns;

	if (++*turns < SPIN_TURNS)
		return 0;
	idle_ns = clock_ns() - pass->moved_ns;
	if (idle_ns >= pass->link->timeout_ns)
		return error_set(error, ERROR_TIMEOUT,
				 "no write to %s was completed for %s; %llu of %llu are missing",
				 pass->link->exchange.peer, SECONDS_TEXT(pass->link->timeout_ns),
				 (unsigned long long)(pass->posted - pass->done),
				 (unsigned long long)pass->posted);
	if (idle_ns >= SPIN_NS) {
		uint64_t sleep_ns = idle_ns / 16;
		struct timespec step = {0, (long)(sleep_ns < SLEEP_NS ? sleep_ns : SLEEP_NS)};

		nanosleep(&step, NULL);
	}
	return 0;
}

static int run_writes(struct pass *pass, struct error *error)
{
	bool more = true;
	uint32_t turns = 0;
	int64_t found = 0;
	int rc = 0;

	pass->moved_ns = clock_ns();
	while (rc == 0 && (more || pass->done < pass->posted)) {
		bool room = pass->posted - pass->done < pass->window;

		more = more && wants_more(pass);
		if (more && room)
			rc = post_one(pass, error);
		if (rc == 0)
			found = reap(pass, error);
		if (rc == 0 && found < 0)
			rc = (int)found;
		if (found > 0 || (more && room))
			turns = 0;
		else if (rc == 0)
			rc = stand_by(pass, &turns, error);
	}
	return rc ? rc : transport_flush(pass->link->endpoint, write_deadline(pass->link), error);
}

/* Bytes that no earlier pass wrote, so that what the server sums can only be this pass's. */
static void fill(unsigned char *memory, uint64_t bytes, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;

	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t left = bytes - i;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(memory + i, &state, left < 8 ? left : 8);
	}
}

static int first_write(struct pass *pass, uint64_t *first_ns, struct error *error)
{
	uint64_t begin = clock_ns();
	int rc = post_one(pass, error);

	if (rc == 0)
		rc = transport_flush(pass->link->endpoint, write_deadline(pass->link), error);
	*first_ns = clock_ns() - begin;
	if (rc == 0)
		rc = transport_progress(pass->link->endpoint, &pass->base, error);
	pass->posted = 0;
	return rc;
}

/* Signal; then the server sums what it has. */
static int finish_pass(struct pass *pass, uint32_t number, uint64_t touched, bool check,
		       struct write_result *result, struct error *error)
{
	struct write_link *link = pass->link;
	uint64_t sum = check ? checksum64(transport_region_memory(link->region), touched) : 0;
	struct tool_message message = {.type = TOOL_PASS, .u.pass = {number, touched, sum, check}};
	uint64_t begin = clock_ns();
	int rc = transport_signal(link->endpoint, number, NULL, 0, write_deadline(link), error);

	result->signal_ns = clock_ns() - begin;
	if (rc == 0)
		rc = exchange_send(&link->exchange, &message, error);
	if (rc == 0)
		rc = exchange_receive(&link->exchange, TOOL_PASSED, "its checksum", NULL,
				      write_deadline(link), error);
	result->checked = check;
	return rc;
}

static int run_pass(struct write_link *link, const struct write_options *options, uint32_t index,
		    struct pass *pass, struct write_result *result, struct error *error)
{
	uint64_t begin, touched;
	int rc;

	pass->bytes = options->sizes[index];
	pass->slots = options->footprint > pass->bytes ? options->footprint / pass->bytes : 1;
	pass->iterations = options->iterations;
	pass->done = pass->posted = 0;
	memset(pass->latency, 0, sizeof(*pass->latency));
	fill(transport_region_memory(link->region), pass->slots * pass->bytes, index + 1);
	*result =
		(struct write_result){.bytes = pass->bytes, .footprint = pass->slots * pass->bytes};
	rc = first_write(pass, &result->first_ns, error);
	begin = clock_ns();
	pass->stop_ns = begin + options->duration_ms * 1000000;
	if (rc == 0)
		rc = run_writes(pass, error);
	result->elapsed_ns = clock_ns() - begin;
	if (rc)
		return error_wrap(error, "writes of %llu bytes", (unsigned long long)pass->bytes);
	result->iterations = pass->done;
	result->p50_ns = histogram_at(pass->latency, 50);
	result->p99_ns = histogram_at(pass->latency, 99);
	result->max_ns = pass->latency->max_ns;
	touched = pass->done < pass->slots ? pass->done : pass->slots;
	return finish_pass(pass, index + 1, (touched ? touched : 1) * pass->bytes,
			   !options->no_check, result, error);
}

static int run_passes(struct write_link *link, const struct write_options *options,
		      const struct write_view *view, struct error *error)
{
	uint64_t depth = link->settings.depth ? link->settings.depth : BENCH_WRITE_DEPTH;
	struct pass pass = {.link = link,
			    .window = depth * transport_domain_caps(link->domain)->rails};
	struct write_result result;
	int rc = 0;

	pass.posted_ns = memory_zalloc(pass.window, sizeof(*pass.posted_ns));
	pass.latency = memory_zalloc(1, sizeof(*pass.latency));
	if (!pass.posted_ns || !pass.latency)
		rc = memory_error(error, "timing writes", pass.window * sizeof(*pass.posted_ns));
	for (uint32_t i = 0; rc == 0 && i < options->size_count; i++) {
		rc = run_pass(link, options, i, &pass, &result, error);
		if (rc == 0)
			view->passed(options, link, &result);
	}
	memory_free(pass.posted_ns);
	memory_free(pass.latency);
	return rc;
}

static uint64_t region_bytes(const struct write_options *options)
{
	uint64_t most = options->footprint;

	for (uint32_t i = 0; i < options->size_count; i++)
		if (options->sizes[i] > most)
			most = options->sizes[i];
	return most;
}

int write_client(const struct write_options *options, const struct write_view *view,
		 struct error *error)
{
	static const struct tool_message bye = {.type = TOOL_BYE};
	struct write_options mine = *options;
	struct write_link link = {0};
	int rc;

	mine.settings.region_bytes = region_bytes(options);
	rc = exchange_connect(&link.exchange, &options->trust, options->host,
			      (uint16_t)options->port, BENCH_WRITE_TOOL,
			      clock_deadline_ns(options->timeout_ms), error);
	if (rc == 0)
		rc = write_link_open(&link, &mine, false, error);
	if (rc == 0) {
		view->linked(options, &link);
		rc = run_passes(&link, options, view, error);
	}
	if (rc == 0)
		rc = exchange_send(&link.exchange, &bye, error);
	if (rc)
		exchange_send_failure(&link.exchange, error);
	write_link_close(&link);
	return rc;
}

/* ---- the server's side of a pass ---- */

static int await_signal(struct write_link *link, uint64_t number, struct error *error)
{
	uint64_t deadline = write_deadline(link), seen = 0;
	struct transport_signal signal;

	for (;;) {
		if (transport_signal_read(link->endpoint, &signal) == 0 && signal.tag == number)
			return 0;
		if (clock_ns() >= deadline)
			return error_set(error, ERROR_TIMEOUT,
					 "signal %llu of %s did not arrive, though it was told to "
					 "have been sent",
					 (unsigned long long)number, link->exchange.peer);
		seen = transport_signal_wait(link->domain, seen, deadline);
	}
}

static int serve_pass(struct write_link *link, const struct tool_pass *pass, struct error *error)
{
	static const struct tool_message passed = {.type = TOOL_PASSED};
	uint64_t sum;
	int rc;

	if (pass->touched > transport_region_bytes(link->region))
		return error_set(error, ERROR_MESSAGE,
				 "%s says it wrote %llu bytes; the region has %llu",
				 link->exchange.peer, (unsigned long long)pass->touched,
				 (unsigned long long)transport_region_bytes(link->region));
	rc = await_signal(link, pass->number, error);
	if (rc)
		return rc;
	sum = pass->check ? checksum64(transport_region_memory(link->region), pass->touched) : 0;
	if (pass->check && sum != pass->sum)
		return error_set(error, ERROR_CHECKSUM,
				 "the %llu bytes that %s wrote have checksum %016llx here, "
				 "%016llx there",
				 (unsigned long long)pass->touched, link->exchange.peer,
				 (unsigned long long)sum, (unsigned long long)pass->sum);
	return exchange_send(&link->exchange, &passed, error);
}

static int serve_passes(struct write_link *link, struct error *error)
{
	static const char waiting_for[] = "the end of its writes";
	struct tool_message message;
	int rc;

	do {
		/* a size may take hours: only the connection's end ends this wait */
		rc = exchange_receive_any(&link->exchange, waiting_for, &message, EXCHANGE_FOREVER,
					  error);
		if (rc == 0 && message.type == TOOL_BYE)
			return 0;
		if (rc == 0)
			rc = message.type == TOOL_PASS
				     ? serve_pass(link, &message.u.pass, error)
				     : exchange_unwanted(&link->exchange, &message, waiting_for,
							 error);
	} while (rc == 0);
	return rc;
}

int write_server(const struct write_options *options, const struct exchange_listener *listener,
		 struct error *error)
{
	struct write_link link = {0};
	int rc = exchange_accept(listener, &link.exchange, BENCH_WRITE_TOOL, error);

	if (rc == 0)
		rc = write_link_open(&link, options, true, error);
	if (rc == 0)
		rc = serve_passes(&link, error);
	if (rc)
		exchange_send_failure(&link.exchange, error);
	write_link_close(&link);
	return rc;
}
