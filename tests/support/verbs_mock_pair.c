/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/verbs_mock_pair.h"

#include "base/clock.h"
#include <string.h>

uint64_t verbs_pair_soon(void)
{
	return clock_ns() + UINT64_C(5000000000);
}

void verbs_pair_settings(struct verbs_settings *settings)
{
	verbs_settings_default(settings);
	settings->depth = 16;
	settings->receive_depth = 64;
	settings->chunk_bytes = 4096;
	settings->timeout = 10;
	settings->relaxed = VERBS_ON;
}

static int domain_open(struct transport_domain **domain, uint32_t host,
		       const struct verbs_settings *settings, struct error *error)
{
	struct verbs_options verbs = {.calls = verbs_mock_calls(host), .settings = settings};
	struct transport_options options = {.self = {host ? ROLE_INFERENCE : ROLE_TRAINER, host},
					    .secret = 42,
					    .provider_options = &verbs};

	return transport_domain_open(domain, "verbs", &options, error);
}

int verbs_pair_domains(struct pair *pair, const struct verbs_settings *settings, uint64_t bytes,
		       struct error *error)
{
	int rc;

	*pair = (struct pair){.bytes = bytes};
	rc = domain_open(&pair->a, 0, settings, error);
	if (!rc)
		rc = domain_open(&pair->b, 1, settings, error);
	if (!rc)
		rc = transport_region_allocate(pair->a, bytes, &pair->source, error);
	if (!rc)
		rc = transport_region_allocate(pair->b, bytes, &pair->target, error);
	if (rc)
		return rc;
	pair->from = transport_region_memory(pair->source);
	pair->to = transport_region_memory(pair->target);
	return 0;
}

static int join(struct transport_endpoint *from, const struct transport_endpoint *to,
		struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_record(to, record, &length, error);

	return rc ? rc : transport_endpoint_connect(from, record, length, verbs_pair_soon(), error);
}

int verbs_pair_connect(struct pair *pair, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_open(pair->a, (struct member){ROLE_INFERENCE, 1}, "inference 1",
					 &pair->ab, error);

	if (!rc)
		rc = transport_endpoint_open(pair->b, (struct member){ROLE_TRAINER, 0}, "trainer 0",
					     &pair->ba, error);
	if (!rc)
		rc = join(pair->ab, pair->ba, error);
	if (!rc)
		rc = join(pair->ba, pair->ab, error);
	if (!rc)
		rc = transport_endpoint_probe(pair->ab, verbs_pair_soon(), error);
	if (!rc)
		rc = transport_endpoint_probe(pair->ba, verbs_pair_soon(), error);
	if (!rc)
		rc = transport_region_export(pair->target, record, &length, error);
	if (!rc)
		rc = transport_remote_import(pair->ab, record, length, &pair->remote, error);
	return rc;
}

int verbs_pair_open(struct pair *pair, const struct verbs_settings *settings, uint64_t bytes,
		    struct error *error)
{
	int rc = verbs_pair_domains(pair, settings, bytes, error);

	if (!rc)
		rc = verbs_pair_connect(pair, error);
	if (rc)
		pair_close(pair);
	return rc;
}

static unsigned char byte_of(uint64_t version, uint64_t at)
{
	return (unsigned char)(version * 37 + at * 5 + (at >> 9));
}

int verbs_pair_send(struct pair *pair, uint64_t version, uint64_t deadline_ns, struct error *error)
{
	uint64_t third = pair->bytes / 3;
	int rc = 0;

	for (uint64_t i = 0; i < pair->bytes; i++)
		pair->from[i] = byte_of(version, i);
	for (uint64_t i = 0; i < 3 && !rc; i++)
		rc = transport_write(pair->ab, pair->from + i * third, pair->source, pair->remote,
				     i * third, i == 2 ? pair->bytes - 2 * third : third,
				     deadline_ns, error);
	return rc ? rc : transport_signal(pair->ab, (uint32_t)version, "v", 1, deadline_ns, error);
}

int verbs_pair_check(struct pair *pair, uint64_t version, uint64_t deadline_ns, struct error *error)
{
	struct transport_signal signal = {0};
	uint64_t done;

	while (transport_signal_read(pair->ba, &signal) || signal.tag != version) {
		/* reading never fails, but what broke the domain is told here */
		int rc = transport_progress(pair->ba, &done, error);

		if (rc)
			return rc;
		if (clock_ns() > deadline_ns)
			return error_set(error, ERROR_TIMEOUT, "version %llu was never signalled",
					 (unsigned long long)version);
	}
	for (uint64_t i = 0; i < pair->bytes; i++)
		if (pair->to[i] != byte_of(version, i))
			return error_set(error, ERROR_CHECKSUM,
					 "version %llu was signalled before byte %llu was there",
					 (unsigned long long)version, (unsigned long long)i);
	return 0;
}

int verbs_pair_session(const struct verbs_settings *settings, uint64_t bytes, uint64_t versions,
		       struct error *error)
{
	struct pair pair;
	int rc = verbs_pair_open(&pair, settings, bytes, error);

	if (rc)
		return rc;
	for (uint64_t version = 1; version <= versions && !rc; version++) {
		rc = verbs_pair_send(&pair, version, verbs_pair_soon(), error);
		if (!rc)
			rc = verbs_pair_check(&pair, version, verbs_pair_soon(), error);
	}
	pair_close(&pair);
	return rc;
}
