/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/trace.h"

#include "base/compare.h"
#include "base/json_write.h"
#include <inttypes.h>
#include <math.h>

/* Times are whole nanoseconds, so that one slice's end and the next one's begin are equal or in
 * order whatever is rounded. The format wants microseconds. */
static long long whole_ns(double seconds)
{
	return llround(seconds * 1e9);
}

static uint32_t tid_of(const struct simulated_slice *slice)
{
	return slice->is_stage ? TRACE_STAGE_TID + (uint32_t)slice->stage
			       : TRACE_PEER_TID + slice->peer;
}

static int compare_tracks(const struct simulated_slice *a, const struct simulated_slice *b)
{
	return compare_u64(a->role, b->role)
		       ?: compare_u64(a->rank, b->rank)
		       ?: compare_u64(tid_of(a), tid_of(b));
}

static int by_track(const void *x, const void *y)
{
	const struct simulated_slice *a = x, *b = y;

	return compare_tracks(a, b) ?: (a->from > b->from) - (a->from < b->from);
}

static bool same_track(const struct simulated_slice *a, const struct simulated_slice *b)
{
	return compare_tracks(a, b) == 0;
}

struct writer {
	FILE *stream;
	const struct simulation *simulation;
	bool begun;
};

static void next_line(struct writer *writer)
{
	fputs(writer->begun ? ",\n" : "\n", writer->stream);
	writer->begun = true;
}

/* 0 is the cluster. */
static uint32_t pid_of(const struct writer *writer, enum role role, uint32_t rank)
{
	return TRACE_PID_STEP *
	       (1 + rank +
		(role == ROLE_INFERENCE ? writer->simulation->rank_count[ROLE_TRAINER] : 0));
}

/* ---- names ---- */

static void put_name(struct writer *writer, const char *what, uint32_t pid, uint32_t tid,
		     const char *name)
{
	struct json json;

	next_line(writer);
	json_to_file(&json, writer->stream);
	json_put_object(&json);
	json_put_key_string(&json, "ph", "M");
	json_put_key_string(&json, "name", what);
	json_put_key_u64(&json, "pid", pid);
	json_put_key_u64(&json, "tid", tid);
	json_put_key_object(&json, "args");
	json_put_key_string(&json, "name", name);
	json_put_object_end(&json);
	json_put_object_end(&json);
}

static void put_sort_index(struct writer *writer, uint32_t pid)
{
	next_line(writer);
	fprintf(writer->stream,
		"{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%" PRIu32
		",\"tid\":0,\"args\":{\"sort_index\":%" PRIu32 "}}",
		pid, pid);
}

static void put_processes(struct writer *writer, const struct table *table)
{
	put_name(writer, "process_name", 0, 0, "all ranks");
	put_sort_index(writer, 0);
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < writer->simulation->rank_count[role]; r++) {
			struct member member = {(enum role)role, r};
			uint32_t pid = pid_of(writer, (enum role)role, r);
			char name[MEMBER_TEXT_BYTES],
				whole[MEMBER_TEXT_BYTES + TOPOLOGY_NAME_BYTES];
			const struct topology *topology = table->topology;

			member_text(member, name);
			snprintf(whole, sizeof(whole), "%s%s%s", name, topology ? " on " : "",
				 topology ? topology->hosts[topology->ranks[role][r].host].name
					  : "");
			put_name(writer, "process_name", pid, 0, whole);
			put_sort_index(writer, pid);
		}
}

static void put_track(struct writer *writer, const struct simulated_slice *slice)
{
	char name[32];

	if (slice->is_stage)
		snprintf(name, sizeof(name), "%s", stage_name(slice->stage));
	else
		snprintf(name, sizeof(name), "to inference %" PRIu32, slice->peer);
	put_name(writer, "thread_name", pid_of(writer, slice->role, slice->rank), tid_of(slice),
		 name);
}

/* ---- slices ---- */

static void put_slice(struct writer *writer, const struct simulated_slice *slice, uint64_t flows)
{
	long long from = whole_ns(slice->from), dur = whole_ns(slice->to) - from;

	if (!dur) /* viewers put two of one moment into each other */
		return;
	next_line(writer);
	fprintf(writer->stream,
		"{\"ph\":\"X\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
		",\"ts\":%lld.%03lld,\"dur\":%lld.%03lld,\"name\":\"",
		pid_of(writer, slice->role, slice->rank), tid_of(slice), from / 1000, from % 1000,
		dur / 1000, dur % 1000);
	if (flows > 1)
		fprintf(writer->stream, "%" PRIu64 " flows", flows);
	else if (slice->role == ROLE_INFERENCE)
		fprintf(writer->stream, "from trainer %" PRIu32, slice->peer);
	else
		fprintf(writer->stream, "%s inference %" PRIu32, slice->is_stage ? "for" : "to",
			slice->peer);
	fprintf(writer->stream, "\",\"args\":{\"bytes\":%.0f,\"flows\":%" PRIu64 "}}", slice->bytes,
		flows);
}

/* Neighbours shorter than `least` become one, until that is long enough. */
static void put_slices(struct writer *writer, const struct simulation *simulation, double least)
{
	struct simulated_slice joined;
	uint64_t flows = 0;

	for (size_t i = 0; i < simulation->slice_count; i++) {
		const struct simulated_slice *slice = &simulation->slices[i];
		bool fresh = !i || !same_track(slice - 1, slice);

		if (flows && (fresh || slice->to - slice->from >= least)) {
			put_slice(writer, &joined, flows);
			flows = 0;
		}
		if (fresh)
			put_track(writer, slice);
		if (!flows++) {
			joined = *slice;
		} else {
			joined.to = slice->to;
			joined.bytes += slice->bytes;
		}
		if (joined.to - joined.from >= least) {
			put_slice(writer, &joined, flows);
			flows = 0;
		}
	}
	if (flows)
		put_slice(writer, &joined, flows);
}

static double least_of(const struct simulation *simulation)
{
	size_t tracks = 0;

	if (simulation->slice_count <= TRACE_SLICES_AIM)
		return 0;
	for (size_t i = 0; i < simulation->slice_count; i++)
		tracks += !i || !same_track(&simulation->slices[i - 1], &simulation->slices[i]);
	return simulation->makespan_seconds * (double)tracks / TRACE_SLICES_AIM;
}

/* ---- counters ---- */

/* A viewer calls it by both names: "wire GB/s". */
static void put_counters(struct writer *writer, const char *name, const double bins[SIMULATE_BINS])
{
	const struct simulation *simulation = writer->simulation;
	double sum = 0;

	for (int b = 0; b < SIMULATE_BINS; b++)
		sum += bins[b];
	if (!(sum > 0))
		return;
	for (int b = 0; b <= SIMULATE_BINS && simulation->bin_seconds > 0; b++) {
		long long ts = whole_ns(b * simulation->bin_seconds);
		double rate = b < SIMULATE_BINS ? bins[b] / simulation->bin_seconds / 1e9 : 0;

		next_line(writer);
		fprintf(writer->stream,
			"{\"ph\":\"C\",\"pid\":0,\"tid\":0,\"ts\":%lld.%03lld,\"name\":\"%s\","
			"\"args\":{\"GB/s\":%.3f}}",
			ts / 1000, ts % 1000, name, rate);
	}
}

void trace_write(FILE *stream, struct simulation *simulation, const struct table *table,
		 double *merged_seconds)
{
	struct writer writer = {.stream = stream, .simulation = simulation};

	sort_items(simulation->slices, simulation->slice_count, by_track);
	*merged_seconds = least_of(simulation);
	fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", stream);
	put_processes(&writer, table);
	put_counters(&writer, "wire", simulation->wire_bins);
	for (int s = 0; s < STAGE_COUNT; s++)
		put_counters(&writer, stage_name((enum stage)s), simulation->stage_bins[s]);
	put_slices(&writer, simulation, *merged_seconds);
	fprintf(stream,
		"\n],\"otherData\":{\"simulated\":\"true\",\"joined_below_seconds\":\"%.9g\"}}\n",
		*merged_seconds);
}
