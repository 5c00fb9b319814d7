/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ofi_mock_pair.h"

#include "base/clock.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PARTS	   4
#define PART_BYTES 3000u

void ofi_mock_subject(struct ofi_mock_subject *out, const struct ofi_mock_options *mock,
		      uint32_t streams, uint32_t depth, uint64_t chunk_bytes)
{
	uint32_t devices = mock->devices ? mock->devices : 1;
	size_t at = 0;

	*out = (struct ofi_mock_subject){.mock = *mock,
					 .settings = {.nics_from = "the test",
						      .streams = streams,
						      .depth = depth,
						      .chunk_bytes = chunk_bytes}};
	for (uint32_t i = 0; i < devices; i++)
		at += (size_t)snprintf(out->settings.nics + at, sizeof(out->settings.nics) - at,
				       "%smock%u", i ? "," : "", i);
	out->options = (struct ofi_options){.calls = &ofi_mock_calls, .settings = &out->settings};
	out->subject = (struct conformance){
		.name = "efa on a mock", .provider = "efa", .options = &out->options};
}

struct pipeline {
	struct pair pair;
	_Atomic uint64_t sent;
	struct ofi_mock_pipeline *result;
};

static struct pipeline *running; /* under looking */
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

static unsigned char pattern(uint64_t version, uint64_t at)
{
	return (unsigned char)(version * 37 + at * 5 + (at >> 9));
}

static bool whole(const struct pipeline *pipeline, uint64_t version)
{
	const unsigned char *at = pipeline->pair.to + version % PARTS * PART_BYTES;

	for (uint64_t i = 0; i < PART_BYTES; i++)
		if (at[i] != pattern(version, i))
			return false;
	return true;
}

/* Parts of versions after the one that is shown may hold anything. */
static void look(struct pipeline *pipeline)
{
	uint64_t first = pipeline->sent < PARTS ? 1 : pipeline->sent - PARTS + 1;
	struct transport_signal signal;
	bool right = true;

	if (transport_signal_read(pipeline->pair.ba, &signal) != 0)
		return;
	pipeline->result->shown = signal.sequence;
	for (uint64_t version = first; version <= signal.sequence; version++)
		right = right && whole(pipeline, version);
	pipeline->result->wrong += !right;
}

void ofi_mock_pipeline_watch(void)
{
	pthread_mutex_lock(&looking);
	if (running)
		look(running);
	pthread_mutex_unlock(&looking);
}

static void watch(struct pipeline *pipeline)
{
	pthread_mutex_lock(&looking);
	running = pipeline;
	pthread_mutex_unlock(&looking);
}

static int progress(struct pipeline *pipeline, struct error *error)
{
	int rc = transport_progress(pipeline->pair.ba, NULL, error);

	pthread_mutex_lock(&looking);
	look(pipeline);
	pthread_mutex_unlock(&looking);
	return rc;
}

static int send(struct pipeline *pipeline, uint64_t version, struct error *error)
{
	struct pair *pair = &pipeline->pair;
	uint64_t base = version % PARTS * PART_BYTES, cut = 1 + version * 7919 % (PART_BYTES - 1);
	int rc;

	pipeline->sent = version;
	for (uint64_t i = 0; i < PART_BYTES; i++)
		pair->from[base + i] = pattern(version, i);
	rc = transport_write(pair->ab, pair->from + base, pair->source, pair->remote, base, cut,
			     soon(), error);
	if (!rc && version % 3)
		rc = progress(pipeline, error);
	if (!rc)
		rc = transport_write(pair->ab, pair->from + base + cut, pair->source, pair->remote,
				     base + cut, PART_BYTES - cut, soon(), error);
	return rc ? rc : transport_signal(pair->ab, (uint32_t)version, NULL, 0, soon(), error);
}

static int run(struct pipeline *pipeline, uint64_t versions, uint64_t wait_ms, struct error *error)
{
	uint64_t end;
	int rc = 0;

	for (uint64_t version = 1; version <= versions && !rc; version++) {
		ofi_mock_seed(version * 7919);
		rc = send(pipeline, version, error);
		if (!rc)
			rc = progress(pipeline, error);
	}
	end = within_ms(wait_ms);
	while (!rc && pipeline->result->shown < versions && clock_ns() < end)
		rc = progress(pipeline, error);
	return rc;
}

int ofi_mock_pipeline(const struct conformance *subject, uint64_t versions, uint64_t wait_ms,
		      struct ofi_mock_pipeline *result, struct error *error)
{
	struct pipeline pipeline = {.result = result};
	int rc;

	*result = (struct ofi_mock_pipeline){0};
	rc = pair_open(&pipeline.pair, subject, PARTS * PART_BYTES, error);
	if (!rc)
		result->from = pipeline.pair.ab->state;
	if (!rc) {
		watch(&pipeline);
		rc = run(&pipeline, versions, wait_ms, error);
		watch(NULL);
	}
	pair_close(&pipeline.pair);
	return rc;
}
