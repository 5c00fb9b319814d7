/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c -- memory registered once on every NIC, in pieces where a device cannot take it whole:
 *
 *   region   [ piece 0 ......... ][ piece 1 ......... ][ rest ]     piece: multiple of 4 KiB
 *   mrs        nic 0  nic 1 ...     nic 0  nic 1 ...     nic 0 ...
 *
 * The device writes where the process may not know, so only an inference rank's memory can be
 * written from outside: a trainer's weights have no key that a peer could use by mistake.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/chunk.h"
#include "transport/cuda/dmabuf.h"
#include "transport/late.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define REGION_BYTES_MAX  (UINT64_C(1) << 46)
#define REGION_PIECES_MAX 65536u
#define PARALLEL_BYTES	  (UINT64_C(256) << 20)
#define ANNOUNCE_BYTES	  (UINT64_C(16) << 30) /* of registration work: said before it starts */
#define SLOW_NS		  UINT64_C(2000000000)

/* ---- registration ---- */

/* One NIC's share: pieces in ascending order, which some devices need to be fast. */
struct job {
	const struct transport_region *region;
	const struct verbs_domain *domain;
	struct verbs_region *verbs;
	uint32_t nic;
	const struct cuda_dmabuf *dmabuf; /* or NULL */
	unsigned access;
	bool failed;
	int errnum;
};

static uint64_t piece_length(const struct transport_region *region,
			     const struct verbs_region *verbs, uint32_t piece)
{
	uint64_t at = piece * verbs->piece_bytes;

	return region->bytes - at < verbs->piece_bytes ? region->bytes - at : verbs->piece_bytes;
}

static struct ibv_mr **mr_at(const struct verbs_region *verbs, const struct verbs_domain *domain,
			     uint32_t piece, uint32_t nic)
{
	return &verbs->mrs[(size_t)piece * domain->nic_count + nic];
}

static void *register_nic(void *context)
{
	struct job *job = context;
	const struct verbs_calls *calls = job->domain->calls;
	struct ibv_pd *pd = job->domain->nics[job->nic].pd;

	for (uint32_t p = 0; p < job->verbs->piece_count; p++) {
		uint64_t at = p * job->verbs->piece_bytes;
		uint64_t bytes = piece_length(job->region, job->verbs, p);
		unsigned char *memory = (unsigned char *)job->region->memory + at;
		struct ibv_mr *mr;

		mr = job->dmabuf ? calls->reg_dmabuf_mr(pd, job->dmabuf->offset + at, bytes,
							(uintptr_t)memory, job->dmabuf->fd,
							(int)job->access)
				 : calls->reg_mr(pd, memory, bytes, job->access);
		if (!mr) {
			job->errnum = verbs_errno(-1);
			job->failed = true;
			return NULL;
		}
		*mr_at(job->verbs, job->domain, p, job->nic) = mr;
	}
	return NULL;
}

static void run_jobs(struct job *jobs, uint32_t count, bool parallel)
{
	pthread_t threads[VERBS_NICS_MAX];
	bool started[VERBS_NICS_MAX] = {false};

	for (uint32_t i = 0; parallel && i + 1 < count; i++)
		started[i] = pthread_create(&threads[i], NULL, register_nic, &jobs[i]) == 0;
	for (uint32_t i = 0; i < count; i++)
		if (!started[i])
			register_nic(&jobs[i]);
	for (uint32_t i = 0; i < count; i++)
		if (started[i])
			pthread_join(threads[i], NULL);
}

/* The name of a NIC that does not let go of it, or NULL. */
static const char *unregister(const struct verbs_domain *domain, struct verbs_region *verbs)
{
	const char *keeps = NULL;

	for (uint32_t i = 0; i < verbs->piece_count * domain->nic_count; i++) {
		struct ibv_mr *mr = verbs->mrs[i];

		if (mr && domain->calls->dereg_mr(mr)) {
			keeps = domain->nics[i % domain->nic_count].limits.name;
			log_warn("verbs: %s does not let go of a region", keeps);
		}
		verbs->mrs[i] = NULL;
	}
	return keeps;
}

static void tell_time(const struct transport_region *region, const struct verbs_domain *domain,
		      const struct verbs_region *verbs, uint64_t begin_ns)
{
	uint64_t took = clock_ns() - begin_ns;
	char bytes[TEXT_SHORT_BYTES], time[TEXT_SHORT_BYTES], rate[TEXT_SHORT_BYTES];

	if (took < SLOW_NS && !log_on(LOG_LEVEL_DEBUG))
		return;
	log_line(took < SLOW_NS ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
		 "verbs: registered %s on %u NICs in %s (%s/s each), %u pieces",
		 bytes_text(region->bytes, bytes), domain->nic_count, seconds_text(took, time),
		 bytes_text((uint64_t)((double)region->bytes * 1e9 / (double)(took ? took : 1)),
			    rate),
		 verbs->piece_count);
}

static int failed_job(const struct job *job, struct error *error)
{
	const struct verbs_device *limits = &job->domain->nics[job->nic].limits;
	struct verbs_memlock memlock = {.soft = UINT64_MAX, .hard = UINT64_MAX};
	bool device = job->region->on_device; /* which is not charged to the limit */
	bool known = device || verbs_memlock_read(&memlock, NULL) == 0;
	int rc = verbs_register_error(error, job->errnum, limits->name, job->region->bytes,
				      job->domain->nic_count, known ? &memlock : NULL, limits);

	return device ? error_wrap(error, "memory of a GPU, by %s",
				   job->dmabuf ? "dma-buf" : "nvidia-peermem")
		      : rc;
}

/* On every NIC or on none. */
static int register_all(const struct transport_region *region, struct verbs_region *verbs,
			const struct cuda_dmabuf *dmabuf, struct error *error)
{
	const struct verbs_domain *domain = region->domain->state;
	struct job jobs[VERBS_NICS_MAX];
	uint64_t begin = clock_ns();
	unsigned access = IBV_ACCESS_LOCAL_WRITE;
	char bytes[TEXT_SHORT_BYTES];

	if (region->domain->options.self.role == ROLE_INFERENCE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (domain->settings.relaxed == VERBS_ON)
		access |= IBV_ACCESS_RELAXED_ORDERING;
	for (uint32_t i = 0; i < domain->nic_count; i++)
		jobs[i] = (struct job){.region = region,
				       .domain = domain,
				       .verbs = verbs,
				       .nic = i,
				       .dmabuf = dmabuf,
				       .access = access};
	if (region->bytes * domain->nic_count >= ANNOUNCE_BYTES)
		log_info("verbs: registering %s on %u NICs", bytes_text(region->bytes, bytes),
			 domain->nic_count);
	run_jobs(jobs, domain->nic_count, region->bytes >= PARALLEL_BYTES);
	for (uint32_t i = 0; i < domain->nic_count; i++) {
		if (!jobs[i].failed)
			continue;
		(void)unregister(domain, verbs); /* no key of it was shown to anybody */
		return failed_job(&jobs[i], error);
	}
	tell_time(region, domain, verbs, begin);
	return 0;
}

/* Pieces that the least of the NICs can take, and room for their handles. */
static int plan_pieces(const struct transport_region *region, struct verbs_region *verbs,
		       struct error *error)
{
	const struct verbs_domain *domain = region->domain->state;
	uint64_t piece = memory_round_up(region->bytes, CHUNK_CUT_BYTES), count;

	if (region->bytes > REGION_BYTES_MAX)
		return error_set(error, ERROR_LIMIT,
				 "a region of %" PRIu64 " bytes; at most %" PRIu64 " are possible",
				 region->bytes, REGION_BYTES_MAX);
	for (uint32_t i = 0; i < domain->nic_count; i++)
		if (domain->nics[i].limits.max_mr_bytes < piece)
			piece = domain->nics[i].limits.max_mr_bytes;
	/* few chunks cross a border that lies where chunks end */
	piece -= piece % (piece >= domain->settings.chunk_bytes && piece < region->bytes
				  ? domain->settings.chunk_bytes
				  : CHUNK_CUT_BYTES);
	count = (region->bytes + piece - 1) / piece;
	if (count > REGION_PIECES_MAX)
		return error_set(error, ERROR_LIMIT,
				 "a region of %" PRIu64 " bytes makes %" PRIu64
				 " registrations of %" PRIu64 " bytes, the most that these NICs "
				 "take at once; at most %u are possible",
				 region->bytes, count, piece, REGION_PIECES_MAX);
	verbs->piece_bytes = piece;
	verbs->piece_count = (uint32_t)count;
	verbs->mrs = memory_zalloc(count * domain->nic_count, sizeof(struct ibv_mr *));
	return verbs->mrs ? 0
			  : memory_error(error, "registering a region",
					 count * domain->nic_count * sizeof(struct ibv_mr *));
}

static void free_region(struct verbs_region *verbs)
{
	memory_free(verbs->late);
	memory_free(verbs->mrs);
	memory_free(verbs);
}

/* `dmabuf`: of a GPU's memory, or NULL. `own`: the memory is made here. */
static int open_region(struct transport_region *region, const struct cuda_dmabuf *dmabuf, bool own,
		       struct error *error)
{
	struct verbs_region *verbs = memory_zalloc(1, sizeof(*verbs));
	int rc;

	if (!verbs)
		return memory_error(error, "opening a region", sizeof(*verbs));
	verbs->late = late_new(0);
	rc = verbs->late ? plan_pieces(region, verbs, error)
			 : memory_error(error, "opening a region", sizeof(*verbs->late));
	if (!rc && own)
		rc = pages_map(&verbs->pages, region->bytes, "verbs", error);
	if (!rc) {
		if (own)
			region->memory = verbs->pages.memory;
		rc = register_all(region, verbs, dmabuf, error);
		if (rc)
			pages_unmap(&verbs->pages);
	}
	if (rc)
		free_region(verbs);
	else
		region->state = verbs;
	return rc;
}

/* One dma-buf for all NICs: each export takes room of its own in what the bus sees of a GPU. */
static int register_dmabuf(struct transport_region *region, struct error *error)
{
	struct cuda_dmabuf dmabuf;
	int rc = cuda_dmabuf_open(region->memory, region->bytes, &dmabuf, error);

	if (rc)
		return rc;
	rc = open_region(region, &dmabuf, false, error);
	close(dmabuf.fd);
	return rc;
}

int verbs_region_register(struct transport_region *region, struct error *error)
{
	const struct verbs_domain *domain = region->domain->state;
	int rc = 0;

	if (region->on_device && domain->gpu == VERBS_GPU_DMABUF)
		return register_dmabuf(region, error);
	if (region->on_device)
		rc = cuda_peermem_check(region->memory, region->bytes, error);
	return rc ? rc : open_region(region, NULL, false, error);
}

int verbs_region_allocate(struct transport_region *region, struct error *error)
{
	return open_region(region, NULL, true, error);
}

/* A key that a NIC keeps lets packets in: our own memory then stays mapped, the caller's is held. */
static void keep(const struct transport_region *region, struct verbs_region *verbs, const char *nic)
{
	if (verbs->pages.memory || region->domain->options.self.role != ROLE_INFERENCE)
		return;
	verbs->late->at = (uintptr_t)region->memory;
	verbs->late->bytes = region->bytes;
	snprintf(verbs->late->name, sizeof(verbs->late->name), "%s", nic);
	late_hold(verbs->late);
	verbs->late = NULL;
}

void verbs_region_close(struct transport_region *region)
{
	struct verbs_region *verbs = region->state;

	/* not in a forked child: registrations are its parent's, and what is mapped at that address
	 * there may be something else */
	if (getpid() == region->domain->pid) {
		const char *nic = unregister(region->domain->state, verbs);

		if (nic)
			keep(region, verbs, nic);
		else
			pages_unmap(&verbs->pages);
	}
	free_region(verbs);
}

/* ---- what a peer is told ---- */

int verbs_region_export(const struct transport_region *region, struct record_writer *writer,
			struct error *error)
{
	const struct verbs_domain *domain = region->domain->state;
	const struct verbs_region *verbs = region->state;
	uint32_t keys = verbs->piece_count * domain->nic_count;
	struct verbs_region_record record = {
		.identity = domain->self,
		.nonce = domain->nonce,
		.base = (uintptr_t)region->memory,
		.piece_bytes = verbs->piece_bytes,
		.piece_count = verbs->piece_count,
		.nic_count = domain->nic_count,
	};

	if (region->domain->options.self.role != ROLE_INFERENCE)
		return error_set(error, ERROR_USAGE,
				 "a %s's region cannot be exported: only inference ranks are "
				 "written to, and other memory is registered without that right",
				 role_name(region->domain->options.self.role));
	if (keys > VERBS_PIECES_MAX)
		return error_set(error, ERROR_LIMIT,
				 "a region of %" PRIu64 " bytes has %u keys (%u pieces of %" PRIu64
				 " bytes, %u NICs) and a record holds %d: name fewer NICs with "
				 "--nic, or register the memory as several regions",
				 region->bytes, keys, verbs->piece_count, verbs->piece_bytes,
				 domain->nic_count, VERBS_PIECES_MAX);
	for (uint32_t i = 0; i < keys; i++)
		record.rkeys[i] = verbs->mrs[i]->rkey;
	verbs_region_record_put(writer, &record);
	return 0;
}

/* ---- a peer's region: keys and addresses, believed as far as the record can be. Nothing is asked
 * of the peer, so what a record of an earlier life would break is refused by its nonce. ---- */

int verbs_remote_check(const struct transport_remote *remote, struct error *error)
{
	const struct verbs_endpoint *endpoint = remote->endpoint->state;
	const struct verbs_region_record *record = remote->state;

	if (record->nonce != endpoint->peer.nonce)
		return error_set(error, ERROR_MESSAGE,
				 "the region's record was made by process %" PRIu64
				 " and the endpoint's by process %" PRIu64
				 ": one of them is of an earlier life of %s",
				 record->identity.pid, endpoint->peer.identity.pid,
				 remote->endpoint->name);
	if (record->nic_count != endpoint->peer.nic_count)
		return error_set(
			error, ERROR_MESSAGE,
			"the region's record has keys for %u NICs and the endpoint's names "
			"%u",
			record->nic_count, endpoint->peer.nic_count);
	return 0;
}

int verbs_remote_import(struct transport_remote *remote, struct record_reader *reader,
			struct error *error)
{
	const struct verbs_domain *domain = remote->endpoint->domain->state;
	const struct verbs_endpoint *endpoint = remote->endpoint->state;
	struct verbs_region_record *record = memory_zalloc(1, sizeof(*record));
	int rc;

	if (!record)
		return memory_error(error, "importing a region", sizeof(*record));
	remote->state = record;
	rc = verbs_region_record_get(reader, remote->bytes, record, error);
	if (!rc)
		rc = verbs_identity_check(domain, &record->identity, error);
	if (!rc && endpoint->connected)
		rc = verbs_remote_check(remote, error);
	if (rc) {
		remote->state = NULL;
		memory_free(record);
	}
	return rc;
}

void verbs_remote_close(struct transport_remote *remote)
{
	memory_free(remote->state);
}
