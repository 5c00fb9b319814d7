/* SPDX-License-Identifier: Apache-2.0
 *
 * send_memory.c -- the parts that sources are packed in, and the memory that these go through: ring or
 * homes on the node of the nearest NIC, or a GPU's memory that NICs read; scratch for scales, checksums.
 */
#include "worker/epoch/epoch.h"

#include "base/array.h"
#include "base/log.h"
#include "base/numa.h"
#include "worker/replica/ring.h"

#define RING_BYTES_MIN (4 * RING_ALIGN)

/* A quarter of the ring is what one part may take, or one grain where that is more. */
static int cut_source(const struct epoch *epoch, struct send_source *source, uint64_t ring,
		      struct error *error)
{
	const struct pack *pack = &source->pack;
	uint64_t grain = pack->grain_bytes > RING_ALIGN
				 ? pack->grain_bytes
				 : RING_ALIGN / pack->grain_bytes * pack->grain_bytes;

	source->part_bytes = pack->block_bytes;
	if (source->slots && source->part_bytes > ring / 4) {
		source->part_bytes = ring / 4 < grain ? grain : ring / 4 / grain * grain;
		if (source->part_bytes > ring && pack->bytes > ring)
			return error_set(error, ERROR_CONFIG,
					 "a ring of %llu bytes has no room for a row of blocks of "
					 "tensor %s, %llu bytes; raise ring_bytes (--ring-bytes)",
					 (unsigned long long)ring,
					 send_plan_name(epoch, source->tensor),
					 (unsigned long long)grain);
	}
	source->sum_parts = !source->follows && (source->part_bytes == pack->block_bytes ||
						 pack->bytes <= source->part_bytes);
	/* a GPU's tensors are summed where they are packed */
	if (epoch->options.device && epoch->sums && !source->sum_parts && !source->follows)
		return error_set(
			error, ERROR_CONFIG,
			"a ring of %llu bytes cuts the blocks of checksums of tensor %s, "
			"%llu bytes each, which is not possible with memory \"cuda\"; raise "
			"ring_bytes (--ring-bytes) to four times that",
			(unsigned long long)ring, send_plan_name(epoch, source->tensor),
			(unsigned long long)pack->block_bytes);
	source->parts = (uint32_t)((pack->bytes + source->part_bytes - 1) / source->part_bytes);
	return 0;
}

/* *bytes: that one update puts into the ring. */
static int cut_sources(struct send_plan *plan, const struct epoch *epoch, uint64_t ring,
		       uint64_t *bytes, struct error *error)
{
	uint64_t blocks = 0;
	int rc = 0;

	*bytes = 0;
	for (size_t s = 0; s < plan->source_count && !rc; s++) {
		struct send_source *source = &plan->sources[s];

		rc = cut_source(epoch, source, ring, error);
		source->first_block = (uint32_t)blocks;
		blocks += source->parts;
		if (source->slots)
			*bytes += source->pack.bytes + (uint64_t)source->parts * RING_ALIGN;
		if (!rc && blocks >= UINT32_MAX)
			rc = error_set(error, ERROR_LIMIT,
				       "a ring of %llu bytes cuts this update "
				       "into too many blocks; raise ring_bytes",
				       (unsigned long long)ring);
	}
	if (rc)
		return rc;
	plan->block_count = blocks;
	return 0;
}

/* Packed bytes go from there to a NIC, if there is one. */
static int find_node(const struct epoch *epoch)
{
	uint32_t count;
	const struct transport_nic *nics = transport_domain_nics(epoch->options.domain, &count);
	const struct transport_nic *nearest = NULL;
	int node = -1;

	for (uint32_t i = 0; i < count; i++)
		if (!nearest || nics[i].distance < nearest->distance)
			nearest = &nics[i];
	if (nearest)
		node = numa_node_of_nic(NULL, nearest->name);
	return node >= 0 ? node : numa_node_here(NULL);
}

static int allocate_on_device(const struct epoch *epoch, uint64_t bytes,
			      struct transport_region **region, uint64_t *block,
			      struct error *error)
{
	int rc = device_allocate(epoch->options.device, bytes, block, error);

	if (rc)
		return error_wrap(error, "the ring that pieces are packed in");
	return transport_source_register(epoch->options.domain, (void *)(uintptr_t)*block, bytes,
					 region, error);
}

/* Pinned for a GPU that packs into it. */
static int allocate_near(const struct send_plan *plan, const struct epoch *epoch, uint64_t bytes,
			 struct transport_region **region, struct error *error)
{
	int node = plan->node, rc;
	struct numa_policy before;

	numa_prefer(&before, node);
	rc = transport_region_allocate(epoch->options.domain, bytes, region, error);
	numa_restore(&before);
	if (rc)
		return error_wrap(error, "CPU replica of %llu bytes", (unsigned long long)bytes);
	numa_place(transport_region_memory(*region), bytes, node);
	if (plan->device) {
		rc = device_pin(epoch->options.device, transport_region_memory(*region), bytes,
				error);
		if (rc) {
			transport_region_close(region);
			return rc;
		}
	}
	if (node >= 0)
		log_debug("%s: %llu bytes of the CPU replica on node %d", epoch->options.name,
			  (unsigned long long)bytes, node);
	return 0;
}

static int allocate(const struct send_plan *plan, const struct epoch *epoch, uint64_t bytes,
		    struct transport_region **region, uint64_t *block, struct error *error)
{
	return plan->ring_on_device ? allocate_on_device(epoch, bytes, region, block, error)
				    : allocate_near(plan, epoch, bytes, region, error);
}

/* The ring is no larger than what one update puts in, for all of it is taken from the host now; one
 * cut short by the limit has room for four blocks. */
static int open_ring(struct send_plan *plan, const struct epoch *epoch, uint64_t limit,
		     uint64_t bytes, struct error *error)
{
	int rc;

	if (!bytes)
		return 0;
	rc = allocate(plan, epoch, bytes < limit ? bytes : limit, &plan->replica_region,
		      &plan->replica_block, error);
	if (!rc)
		plan->ring_bytes = transport_region_bytes(plan->replica_region);
	return rc;
}

static struct digest places_digest(const struct full_place *places, size_t count)
{
	struct digest_stream stream;

	digest_begin(&stream);
	for (size_t i = 0; i < count; i++) {
		digest_add_u64(&stream, places[i].param);
		digest_add_u64(&stream, places[i].offset);
		digest_add_u64(&stream, places[i].bytes);
	}
	return digest_end(&stream);
}

static int open_homes(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	struct full_place *places = pool_array(&plan->pool, plan->source_count, sizeof(*places));
	struct kept_replica *kept = epoch->options.kept;
	int rc;

	if (!places)
		return memory_error(error, "laying out the CPU replica",
				    plan->source_count * sizeof(*places));
	for (size_t s = 0; s < plan->source_count; s++) {
		const struct plan_row *row =
			&epoch->plan->rows[plan->source_rows[plan->sources[s].first_row]];

		places[s] = (struct full_place){
			.param = row->param, .offset = row->offset, .bytes = row->bytes};
	}
	rc = full_open(&plan->homes, places, plan->source_count, error);
	if (rc || !plan->homes.bytes)
		return rc;
	if (kept->version && digest_equal(kept->digest, epoch->plan->digest) &&
	    digest_equal(kept->places, places_digest(places, plan->source_count)) &&
	    (!epoch->sums || kept->sums)) {
		plan->replica_region = kept->homes;
		plan->sums_region = kept->sums;
		plan->kept_version = kept->version;
		*kept = (struct kept_replica){0};
		return 0;
	}
	send_plan_drop_kept(kept, epoch->options.device);
	return allocate_near(plan, epoch, plan->homes.bytes, &plan->replica_region, error);
}

/* What is said of pieces that land, where they do. */
static int open_entries(struct send_plan *plan, const struct epoch *epoch, struct error *error)
{
	uint64_t bytes = plan->peer_count * WINDOW_HEAD_BYTES;
	bool any = false;
	int rc;

	for (size_t p = 0; p < plan->peer_count; p++)
		any = any || plan->lands[p] || send_plan_deltas(plan, p);
	if (!any)
		return 0;
	rc = transport_region_allocate(epoch->options.domain, bytes, &plan->entries_region, error);
	if (rc)
		error_wrap(error, "%llu bytes for what is said of pieces that land",
			   (unsigned long long)bytes);
	return rc;
}

/* By peer, bytes that rows land which are small, or may be when what differs is; of what the processor can read before it is posted. */
static uint64_t count_small(const struct send_plan *plan, uint64_t *small)
{
	uint64_t peers = 0;

	for (size_t i = 0; i < plan->row_count; i++) {
		const struct send_row *row = &plan->rows[i];
		uint64_t bytes = plan->sources[row->source].pack.bytes;

		if (send_plan_deltas(plan, row->peer) && !row->stored)
			bytes = 2 * MERGE_WRITE_BYTES;
		else if (bytes >= MERGE_BYTES || !send_plan_merges(plan, row))
			continue;
		peers += !small[row->peer];
		small[row->peer] += ring_aligned(bytes);
	}
	return peers;
}

/* Of a size that one write pays for, and in all a quarter of what the ring may have, but for the least that each needs. */
static int open_merges(struct send_plan *plan, const struct epoch *epoch, uint64_t limit,
		       struct error *error)
{
	uint64_t *small, peers, all = 0;
	int rc;

	plan->merges = pool_array(&plan->pool, plan->peer_count, sizeof(*plan->merges));
	small = pool_array(&plan->pool, plan->peer_count, sizeof(*small));
	if (!pool_ok(&plan->pool))
		return memory_error(error, "preparing updates",
				    plan->peer_count * sizeof(*plan->merges));
	peers = count_small(plan, small);
	for (size_t p = 0; p < plan->peer_count; p++) {
		struct send_merge *merge = &plan->merges[p];

		if (!small[p])
			continue;
		merge->at = all;
		merge->bytes = limit / 4 / peers / RING_ALIGN * RING_ALIGN;
		if (merge->bytes > 2 * MERGE_WRITE_BYTES)
			merge->bytes = 2 * MERGE_WRITE_BYTES;
		if (merge->bytes > small[p])
			merge->bytes = small[p];
		if (merge->bytes < 2 * MERGE_BYTES)
			merge->bytes = 2 * MERGE_BYTES;
		all += merge->bytes;
	}
	if (!all)
		return 0;
	rc = transport_region_allocate(epoch->options.domain, all, &plan->merge_region, error);
	return rc ? error_wrap(error, "%llu bytes to merge small pieces in",
			       (unsigned long long)all)
		  : 0;
}

void send_plan_keep(struct epoch *epoch, uint64_t version, struct kept_replica *kept)
{
	struct send_plan *plan = &epoch->send;

	if (!plan->full || !version || !plan->replica_region)
		return;
	*kept = (struct kept_replica){plan->replica_region, plan->sums_region, version,
				      epoch->plan->digest,
				      places_digest(plan->homes.places, plan->homes.count)};
	plan->replica_region = plan->sums_region = NULL;
}

void send_plan_drop_kept(struct kept_replica *kept, const struct device *device)
{
	if (kept->homes && device)
		device_unpin(device, transport_region_memory(kept->homes));
	transport_region_close(&kept->homes);
	transport_region_close(&kept->sums);
	*kept = (struct kept_replica){0};
}

void send_plan_close_memory(struct send_plan *plan)
{
	struct {
		struct transport_region **region;
		uint64_t block;
	} places[] = {{&plan->replica_region, plan->replica_block},
		      {&plan->scratch_region, plan->scratch_block}};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (*places[i].region && plan->device && !places[i].block)
			device_unpin(plan->device, transport_region_memory(*places[i].region));
		transport_region_close(places[i].region);
		device_release(plan->device, places[i].block);
	}
	transport_region_close(&plan->entries_region);
	transport_region_close(&plan->merge_region);
	transport_region_close(&plan->sums_region);
}

/* Kept ones stay. */
static int open_sums(struct send_plan *plan, struct epoch *epoch, struct error *error)
{
	uint64_t slots = peers_number_sums(epoch);
	int rc = 0;

	if (!slots)
		return 0;
	if (!plan->sums_region)
		rc = transport_region_allocate(epoch->options.domain, slots * sizeof(uint64_t),
					       &plan->sums_region, error);
	if (rc)
		return error_wrap(error, "memory for %llu checksums", (unsigned long long)slots);
	plan->sums = transport_region_memory(plan->sums_region);
	return 0;
}

int send_plan_open_memory(struct send_plan *plan, struct epoch *epoch, struct error *error)
{
	uint64_t limit = epoch->options.ring_bytes, bytes;
	int rc;

	limit = (limit < RING_BYTES_MIN ? RING_BYTES_MIN : limit) / RING_ALIGN * RING_ALIGN;
	rc = cut_sources(plan, epoch, limit, &bytes, error);
	plan->node = find_node(epoch);
	if (!rc && plan->scratch_bytes)
		rc = allocate(plan, epoch, plan->scratch_bytes, &plan->scratch_region,
			      &plan->scratch_block, error);
	if (!rc && plan->scratch_region)
		plan->scratch = transport_region_memory(plan->scratch_region);
	if (!rc)
		rc = plan->full ? open_homes(plan, epoch, error)
				: open_ring(plan, epoch, limit, bytes, error);
	if (!rc)
		rc = open_entries(plan, epoch, error);
	if (!rc && plan->entries_region)
		rc = open_merges(plan, epoch, limit, error);
	return rc ? rc : open_sums(plan, epoch, error);
}
