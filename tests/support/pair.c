/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance.h"
#include "tests/support/sanitized.h"

#include "base/clock.h"
#include "base/memory.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t test_slow(void)
{
	const char *text = getenv("WEFT_TEST_SLOW");
	uint64_t value = text ? strtoull(text, NULL, 10) : 1;

	return value ? value : 1;
}

uint64_t test_repeats(uint64_t often)
{
	return getenv("WEFT_SOAK") ? often : often / test_slow() / (SANITIZED_THREADS ? 3 : 1);
}

uint64_t within_ms(uint64_t ms)
{
	return clock_ns() + ms * 1000000u * test_slow();
}

uint64_t soon(void)
{
	return within_ms(60000);
}

void conformance_watch_call(void *context)
{
	struct conformance_watch *watch = context;

	if (watch->look)
		watch->look(watch->context);
}

struct conformance_footprint conformance_footprint(void)
{
	struct conformance_footprint now = {0, 0};
	FILE *maps = fopen("/proc/self/maps", "re");
	DIR *files = opendir("/proc/self/fd");
	int c;

	while (maps && (c = getc(maps)) != EOF)
		now.mappings += c == '\n';
	if (maps)
		fclose(maps);
	while (files && readdir(files))
		now.files++;
	if (files)
		closedir(files);
	return now;
}

static int open_domains(struct pair *pair, const struct conformance *subject, struct error *error)
{
	struct transport_options a = {.self = {ROLE_TRAINER, 3},
				      .name = "trainer 3",
				      .secret = 42,
				      .device_memory = subject->memory != NULL,
				      .provider_options = subject->options};
	struct transport_options b = {.self = {ROLE_INFERENCE, 5},
				      .name = "inference 5",
				      .secret = 42,
				      .device_memory = subject->memory != NULL,
				      .provider_options = subject->options};
	int rc = transport_domain_open(&pair->a, subject->provider, &a, error);

	return rc ? rc : transport_domain_open(&pair->b, subject->provider, &b, error);
}

void *conformance_memory(const struct conformance *subject, uint64_t bytes)
{
	return subject->memory ? subject->memory(bytes) : memory_zalloc(1, bytes);
}

void conformance_memory_free(const struct conformance *subject, void *memory)
{
	if (!memory)
		return; /* of a pair that a test made by hand there is no subject */
	if (subject->memory_free)
		subject->memory_free(memory);
	else
		memory_free(memory);
}

static int open_source(struct pair *pair, const struct conformance *subject, struct error *error)
{
	if (!subject->memory)
		return transport_region_allocate(pair->a, pair->bytes, &pair->source, error);
	pair->owned_source = conformance_memory(subject, pair->bytes);
	return transport_region_register(pair->a, pair->owned_source, pair->bytes, &pair->source,
					 error);
}

static int open_regions(struct pair *pair, const struct conformance *subject, struct error *error)
{
	int rc = open_source(pair, subject, error);

	if (rc)
		return rc;
	pair->from = transport_region_memory(pair->source);
	if (subject->registered) {
		pair->owned = conformance_memory(subject, pair->bytes);
		if (!pair->owned)
			return memory_error(error, "registering a target", pair->bytes);
		rc = transport_region_register(pair->b, pair->owned, pair->bytes, &pair->target,
					       error);
	} else {
		rc = transport_region_allocate(pair->b, pair->bytes, &pair->target, error);
	}
	if (!rc)
		pair->to = transport_region_memory(pair->target);
	return rc;
}

static int join(struct transport_endpoint *from, const struct transport_endpoint *to,
		struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_record(to, record, &length, error);

	return rc ? rc : transport_endpoint_connect(from, record, length, soon(), error);
}

static int open_endpoints(struct pair *pair, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct member a = {ROLE_TRAINER, 3}, b = {ROLE_INFERENCE, 5};
	size_t length;
	int rc = transport_endpoint_open(pair->a, b, "inference 5 (here)", &pair->ab, error);

	if (!rc)
		rc = transport_endpoint_open(pair->b, a, NULL, &pair->ba, error);
	if (!rc)
		rc = transport_region_export(pair->target, record, &length, error);
	if (!rc)
		rc = join(pair->ab, pair->ba, error);
	if (!rc)
		rc = join(pair->ba, pair->ab, error);
	if (!rc)
		rc = transport_endpoint_probe(pair->ab, soon(), error);
	if (!rc)
		rc = transport_endpoint_probe(pair->ba, soon(), error);
	if (!rc)
		rc = transport_remote_import(pair->ab, record, length, &pair->remote, error);
	return rc;
}

int pair_open(struct pair *pair, const struct conformance *subject, uint64_t bytes,
	      struct error *error)
{
	int rc;

	*pair = (struct pair){.bytes = bytes, .subject = subject};
	rc = open_domains(pair, subject, error);
	if (!rc)
		rc = open_regions(pair, subject, error);
	if (!rc)
		rc = open_endpoints(pair, error);
	if (rc)
		pair_close(pair);
	return rc;
}

/* However it went: what no endpoint will be told of any more does not wait. */
static void check_nothing_waits(struct transport_domain *domain)
{
	struct transport_traffic traffic;
	uint32_t count = 0;

	if (domain)
		transport_domain_nics(domain, &count);
	for (uint32_t i = 0; i < count; i++) {
		transport_domain_traffic(domain, i, &traffic);
		if (!traffic.waiting_bytes)
			continue;
		fprintf(stderr, "%s: %llu bytes wait, and all endpoints are closed\n",
			transport_domain_name(domain), (unsigned long long)traffic.waiting_bytes);
		abort();
	}
}

void pair_close(struct pair *pair)
{
	transport_remote_close(&pair->remote);
	transport_endpoint_close(&pair->ab);
	transport_endpoint_close(&pair->ba);
	check_nothing_waits(pair->a);
	check_nothing_waits(pair->b);
	transport_region_close(&pair->source);
	transport_region_close(&pair->target);
	transport_domain_close(&pair->a);
	transport_domain_close(&pair->b);
	conformance_memory_free(pair->subject, pair->owned);
	conformance_memory_free(pair->subject, pair->owned_source);
	pair->owned = pair->owned_source = NULL;
}

static int session_transfer(struct pair *pair, uint64_t deadline, struct error *error)
{
	struct transport_signal signal;
	uint64_t seen = 0, done;
	int rc;

	for (uint64_t i = 0; i < pair->bytes; i++)
		pair->from[i] = (unsigned char)(i * 31 + 7);
	rc = transport_write(pair->ab, pair->from, pair->source, pair->remote, 0, pair->bytes,
			     deadline, error);
	if (!rc)
		rc = transport_progress(pair->ab, &done, error);
	if (!rc)
		rc = transport_flush(pair->ab, deadline, error);
	if (!rc)
		rc = transport_signal(pair->ab, 9, "hello", 5, deadline, error);
	if (rc)
		return rc;
	while (!seen && clock_ns() < deadline)
		seen = transport_signal_wait(pair->b, 0, deadline);
	if (transport_signal_read(pair->ba, &signal) != 0 || signal.tag != 9)
		return error_set(error, ERROR_TRANSPORT, "the session's signal cannot be read");
	if (memcmp(pair->from, pair->to, pair->bytes) != 0)
		return error_set(error, ERROR_CHECKSUM, "the session's bytes differ");
	return 0;
}

int conformance_session(const struct conformance *subject, uint64_t budget_ns, struct error *error)
{
	uint64_t deadline = clock_ns() + budget_ns * test_slow();
	struct pair pair;
	int rc = pair_open(&pair, subject, 20000, error);

	if (rc)
		return rc;
	rc = session_transfer(&pair, deadline, error);
	transport_endpoint_close(&pair.ab);
	if (!rc)
		rc = transport_endpoint_fence(pair.ba, deadline, error);
	pair_close(&pair);
	return rc;
}
