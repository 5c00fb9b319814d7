/* SPDX-License-Identifier: Apache-2.0
 *
 * transport.h -- the one-sided contract that the update engine is written against.
 *
 *   domain      one process's access to one provider ("shm", "verbs", ...), or to several
 *   region      memory of this process that may be written by peers (or read as a source)
 *   remote      a peer's region, imported from its export record
 *   endpoint    this domain <-> one peer domain, all rails
 *   mailbox     where signals land, one slot per peer, in the target's own memory
 *
 *   target                                    initiator
 *   transport_region_allocate/register
 *   transport_region_export ── record ──────► transport_remote_import
 *   transport_endpoint_open                   transport_endpoint_open
 *   transport_endpoint_record ◄── both ways ─► transport_endpoint_record
 *   transport_endpoint_connect                transport_endpoint_connect
 *                    both have connected: the controller says go
 *   transport_endpoint_probe                  transport_endpoint_probe
 *                                             transport_write ... transport_flush
 *   transport_signal_read/wait ◄───────────── transport_signal
 *
 * Everything here is above the provider table (provider.h) and shared by all providers: bounds
 * checks, chunking, credit, deadlines, statistics, error text. Code asks capabilities, never
 * the provider's name.
 *
 * Threads: one thread at a time per domain, except transport_signal_read, transport_signal_wait
 * transport_domain_interrupt and transport_domain_wake, which any thread may call at any time; with
 * caps.endpoints_parallel, one thread at a time per endpoint for write, progress, flush and signal.
 *
 * A forked child must not use what its parent opened: calls that can fail answer ERROR_STATE there,
 * signals are not seen, and closing lets go of nothing but memory.
 *
 * What a completion proves: when transport_flush returns 0, every byte of every earlier write
 * to that endpoint is visible in target memory to whoever observes a later signal from this
 * endpoint. A signal is observed only after all earlier writes of its endpoint are visible.
 * After any failure the endpoint is broken: its bytes in the target are undefined, every later
 * call returns the first error, only fence and close are left. A refusal is no failure: what
 * was answered before anything moved (ERROR_BOUNDS, ERROR_USAGE, ERROR_STATE, and ERROR_MESSAGE
 * for a record) leaves the endpoint as it was; so does a fence that ran out of time.
 */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include "base/error.h"
#include "job/member.h"
#include "job/nic.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transport_domain;
struct transport_region;
struct transport_remote;
struct transport_endpoint;

#define TRANSPORT_RECORD_BYTES 4096 /* an export or endpoint record is at most this long */

struct transport_caps {
	bool ordered;          /* signals keep behind earlier writes; else signal flushes first */
	bool mapped_remote;    /* transport_remote_pointer can be non-NULL */
	bool passive_target;   /* the target need not call anything for data to arrive */
	bool fence_waits;      /* a fence waits until the peer lets go; else it needs nobody */
	bool gpu_memory;       /* regions may lie in memory of a GPU (transport_options.device_memory) */
	bool gpu_direct;       /* there a NIC reads and writes: kernels see what it wrote once the GPU was flushed */
	bool local_registration; /* source memory must lie in a registered region */
	bool endpoints_parallel; /* several endpoints may be used at once, a thread each */
	bool gathers;            /* transport_write_rows: a write reads rows where they lie */
	uint64_t write_bytes_max;  /* of one chunk */
	uint32_t inflight_max;     /* chunks in flight per endpoint */
	uint32_t rails;
};

struct transport_options {
	struct member self;
	char name[64];          /* for error text: "trainer 3 (host b)" */
	uint64_t secret;        /* of the job: a record made for another job is refused */
	char nics[256];         /* which NICs, as --nic says it (docs/verbs.md); "": choose */
	uint64_t chunk_bytes;   /* 0: the provider's default */
	int device;             /* the GPU of this process: cuda's copies are its, and NICs are chosen by their distance from it */
	bool device_memory;     /* regions of this process may lie in memory of GPUs, and kernels store into peers' */
	const void *provider_options; /* mock and fault take theirs here; NULL is fine */
};

/* A signal: one 32-bit tag that arrives as a notification, plus a payload that was written
 * before it into the sender's own mailbox slot at the target. */
struct transport_signal {
	uint32_t tag;
	uint32_t length;            /* payload bytes, at most TRANSPORT_PAYLOAD_BYTES */
	uint64_t sequence;          /* per endpoint, from 1; set by the library */
	unsigned char payload[96];
};
#define TRANSPORT_PAYLOAD_BYTES 96

struct transport_stats {
	uint64_t writes, chunks, bytes, signals, flushes, retries;
};

/* Providers this build has, each with one line for people; transport_probe() says whether one
 * can be used here. */
struct transport_provider_info {
	const char *name, *what;
	bool one_host; /* never reaches another host */
	bool maps;     /* its own memory can be mapped by peers, unless told otherwise */
};
const struct transport_provider_info *transport_providers(size_t *count);
/* Proves by doing it that the provider works here, over `nics` as --nic names them ("": as without it);
 * ERROR_UNSUPPORTED says why not. */
int transport_probe(const char *provider, const char *nics, struct error *error);

int transport_domain_open(struct transport_domain **domain, const char *provider,
			  const struct transport_options *options, struct error *error);
/* A list instead of a name ("shm,verbs", job/transports.h) opens a domain of several providers: those of
 * the list that can be opened here, its members; what cannot be is logged with the reason, and an error
 * when nothing is left, or when options.nics names nothing that any of them could use. Regions are opened with such a domain and belong to all its members; endpoints
 * are opened with a member, which for all else is a domain like any other, and is closed with the one
 * that it is of. Capabilities of such a domain are what any member has of mapped_remote, fence_waits,
 * gpu_memory, gpu_direct and local_registration, and what all have of the rest. */
uint32_t transport_domain_members(const struct transport_domain *domain); /* 1: itself */
struct transport_domain *transport_domain_member(struct transport_domain *domain, uint32_t i);
/* The member of that name; NULL or "" names the only one there is. ERROR_USAGE lists what there is. */
int transport_domain_find(struct transport_domain *domain, const char *provider,
			  struct transport_domain **member, struct error *error);
const char *transport_domain_name(const struct transport_domain *domain); /* as in --transport */
/* Whom it reaches: two domains of one provider with equal text may reach each other, with different
 * text never can. "": nothing is known beforehand. */
const char *transport_domain_reach(const struct transport_domain *domain);
/* Is it this one that makes memory when a region is allocated? Only then can its peers map it. */
bool transport_domain_makes_memory(const struct transport_domain *member);
/* Why regions cannot lie in memory of GPUs (caps.gpu_memory is false), for messages: "mlx5_0 knows no dma-buf ..". "": such
 * a domain never can. */
const char *transport_domain_no_gpu(const struct transport_domain *domain);
/* Endpoints, remotes and regions must be closed before. NULL inside is fine. */
void transport_domain_close(struct transport_domain **domain);
const struct transport_caps *transport_domain_caps(const struct transport_domain *domain);
/* The NICs that the domain sends and receives through, all of them, for people and for routing;
 * count 0 where there is none (memory of one host). The rate is 0 where a device does not know
 * it; a distance that cannot be known is sys; the rail is the place among the host's NICs of one
 * link and speed. Borrowed; they stay as they were when the domain was opened. */
struct transport_nic {
	char name[80];          /* "mlx5_0:1" */
	uint32_t rail;
	uint64_t bytes_per_second;
	enum nic_distance distance;
};
const struct transport_nic *transport_domain_nics(const struct transport_domain *domain,
						  uint32_t *count);
/* [any thread] What that one of them has carried since it was opened; zeros where its provider does not count. */
struct transport_traffic {
	uint64_t bytes;         /* of writes that are complete */
	uint64_t waiting_bytes; /* posted, and not complete */
	uint64_t busy_ns;       /* for so long some were; never less than was said before */
};
void transport_domain_traffic(struct transport_domain *domain, uint32_t nic, struct transport_traffic *traffic);
/* Ends a wait early: the transport_signal_wait in progress (or the next one) returns as at its
 * deadline; a blocking call on an endpoint in progress fails with ERROR_INTERRUPTED. */
void transport_domain_interrupt(struct transport_domain *domain);
/* The first of it alone: whoever waits for signals looks at what else there is. */
void transport_domain_wake(struct transport_domain *domain);

/* From now on, or not any more: what remotes that close had mapped stays mapped, and is there when the same region is imported
 * again, which a job does that pauses for another plan. When that ends, what was not is unmapped. Nothing is written there in
 * between, so a fence takes such memory for let go of. */
void transport_domain_keep_mapped(struct transport_domain *domain, bool keep);

/* From weft's own allocator: zeroed, page aligned, mappable by peers of the same host. */
int transport_region_allocate(struct transport_domain *domain, uint64_t bytes,
			      struct transport_region **region, struct error *error);
/* The caller's memory; stays the caller's; must outlive the region. With caps.gpu_memory it may be a device's: of a
 * domain of several, members without know nothing of it then. */
int transport_region_register(struct transport_domain *domain, void *memory, uint64_t bytes,
			      struct transport_region **region, struct error *error);
void transport_region_close(struct transport_region **region);
void *transport_region_memory(const struct transport_region *region);
uint64_t transport_region_bytes(const struct transport_region *region);
bool transport_region_mapped(const struct transport_region *region); /* peers can map it */
bool transport_region_on_device(const struct transport_region *region); /* a GPU's: the processor cannot touch it */
int transport_region_export(const struct transport_region *region,
			    unsigned char record[TRANSPORT_RECORD_BYTES], size_t *length,
			    struct error *error);

/* The caller's memory that this process only reads from, for providers with caps.local_registration:
 * the others need nothing. It cannot be exported. */
int transport_source_register(struct transport_domain *domain, void *memory, uint64_t bytes,
			      struct transport_region **region, struct error *error);

/* An endpoint for one peer; of a domain of several, with its first member. The mailbox slot that this
 * peer signals into lives in this domain and is part of the record. */
int transport_endpoint_open(struct transport_domain *domain, struct member peer,
			    const char *peer_name, struct transport_endpoint **endpoint,
			    struct error *error);
int transport_endpoint_record(const struct transport_endpoint *endpoint,
			      unsigned char record[TRANSPORT_RECORD_BYTES], size_t *length,
			      struct error *error);
/* Makes this side ready; waits for nobody. Both sides connect before either posts: who carries
 * the records sees to that. Malformed records and records of another job or peer are
 * ERROR_MESSAGE. */
int transport_endpoint_connect(struct transport_endpoint *endpoint, const void *record,
			       size_t length, uint64_t deadline_ns, struct error *error);
/* Both sides have connected: probes every path to the peer by using it (a probe write as long as
 * the largest packet). May block up to deadline_ns; the peer need not call anything. Where
 * connect has probed it already, this is nothing. A path that fails breaks the endpoint. */
int transport_endpoint_probe(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			     struct error *error);
/* It is connected, has all paths that it began with, and nothing that transport_signal_post said is on its way: whoever can open
 * another one need not. */
bool transport_endpoint_whole(const struct transport_endpoint *endpoint);
/* The peer is told of no region but small ones of weft's own: whatever else may be open to peers of this domain, none of it
 * is its, and closing waits for it no more than for one that was stopped. */
void transport_endpoint_guest(struct transport_endpoint *endpoint);
/* Over which network the bytes of this pair go, for messages about one that is silent ("tcp, eth0 10.0.0.1 to
 * 10.0.0.2:4711"); "" before it was probed, and where there is no network. It stays where it is. */
const char *transport_endpoint_path(const struct transport_endpoint *endpoint);
/* After this no write of the peer can land any more (the fence of docs/transport.md): mapped
 * memory is proved unmapped or its owner dead, else ERROR_TIMEOUT at the deadline. Works on a
 * broken endpoint; a peer that is still writing learns of it and fails; one that has not
 * connected yet never can. On success the endpoint takes no more posts. */
int transport_endpoint_fence(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			     struct error *error);
/* The same of registered memory alone, which is the caller's again afterwards: waits for nobody but a
 * peer that is in the middle of a write, or, of a device's memory that was exported, has it still open. ERROR_TIMEOUT: it still is at the deadline. After a close,
 * stopped before or not, transport_memory_check tells what it may still write. On success the
 * endpoint takes no more posts. */
int transport_endpoint_stop(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			    struct error *error);
void transport_endpoint_close(struct transport_endpoint **endpoint);

/* 0, or ERROR_UNSAFE: a peer of an endpoint that was closed in this process is stopped (or stuck) in
 * the middle of a write of this memory, and lives; the message names it, and what to do. Registering
 * any such memory is refused alike, with every provider, until that process has ended or finished
 * the write. Any thread. */
int transport_memory_check(const void *memory, uint64_t bytes, struct error *error);

int transport_remote_import(struct transport_endpoint *endpoint, const void *record,
			    size_t length, struct transport_remote **remote,
			    struct error *error);
void transport_remote_close(struct transport_remote **remote);
uint64_t transport_remote_bytes(const struct transport_remote *remote);
/* Its memory was mapped when it was imported: transport_domain_keep_mapped. */
bool transport_remote_kept(const struct transport_remote *remote);
/* The peer's region mapped here, or NULL (also before connect and once broken): bytes stored
 * through it count as written when the next transport_flush or transport_signal on the
 * endpoint returns. Other threads that store through it call copy_fence() themselves before
 * they hand back. */
void *transport_remote_pointer(const struct transport_remote *remote);

/* The peer's device memory as kernels of the domain's device (transport_options.device) reach it. NULL where they do not,
 * and as above. A kernel's stores count as written once its stream was waited for. */
void *transport_remote_device_pointer(const struct transport_remote *remote);

/* Copies `bytes` from source to remote + offset. `source` must stay unchanged until a later
 * flush returns. May block for credit until deadline_ns. Bounds are checked before anything
 * moves (ERROR_BOUNDS). `region` names the registered region that source lies in; NULL is
 * allowed when caps.local_registration is false. */
int transport_write(struct transport_endpoint *endpoint, const void *source,
		    const struct transport_region *region, struct transport_remote *remote,
		    uint64_t offset, uint64_t bytes, uint64_t deadline_ns,
		    struct error *error);
/* The same of rows of one length, a stride apart (a column slice where it lies in its tensor):
 * bytes [from, from + bytes) of all rows laid end to end. With caps.gathers; else
 * ERROR_UNSUPPORTED. The rows need no region, and their extent is the caller's to know. */
struct transport_rows {
	const void *first;
	uint64_t row_bytes, stride_bytes;
};
int transport_write_rows(struct transport_endpoint *endpoint, const struct transport_rows *rows,
			 uint64_t from, struct transport_remote *remote, uint64_t offset,
			 uint64_t bytes, uint64_t deadline_ns, struct error *error);
/* Reaps completions without blocking; returns 0 or the endpoint's error. `done` gets the count
 * of writes completed since the endpoint was opened (they complete in order of posting). */
int transport_progress(struct transport_endpoint *endpoint, uint64_t *done,
		       struct error *error);
/* Waits for all earlier writes of the endpoint. ERROR_TIMEOUT says how many are missing. */
int transport_flush(struct transport_endpoint *endpoint, uint64_t deadline_ns,
		    struct error *error);
/* Returns 0 when the target holds the signal, so the caller may leave afterwards. */
int transport_signal(struct transport_endpoint *endpoint, uint32_t tag, const void *payload,
		     size_t length, uint64_t deadline_ns, struct error *error);
/* The same without any wait: 0, it is on its way, and the next transport_signal waits for it too; 1, nothing was sent, for
 * something before it is on its way still. For what a peer need not hear, and may be too slow to. Where a transport
 * wants that, transport_progress brings it on its way. */
int transport_signal_post(struct transport_endpoint *endpoint, uint32_t tag, const void *payload,
			  size_t length, struct error *error);

/* Latest signal of the peer: 0 and *signal, or 1 when none came yet. Each slot keeps only the
 * latest signal; sequence tells whether any was overwritten unseen. A torn read is retried. */
int transport_signal_read(const struct transport_endpoint *endpoint,
			  struct transport_signal *signal);
/* Sleeps until any signal arrives in the domain after `seen` (a count from an earlier call, 0
 * at first), the deadline, or an interrupt; returns the count now. Never fails. */
uint64_t transport_signal_wait(struct transport_domain *domain, uint64_t seen,
			       uint64_t deadline_ns);
/* Also asked, every 10 ms, in all that waits for the peer: once it is true they end with ERROR_PEER_LOST. Whoever knows that a
 * peer which cannot be told from a slow one is not to be waited for says so by it. */
void transport_endpoint_ask_left(struct transport_endpoint *endpoint,
				 bool (*left)(const void *context), const void *context);
/* Proof that the peer process is gone (its pid with its start time), if the provider can tell.
 * Writes and flushes ask every 10 ms, signals always: they end with ERROR_PEER_LOST. */
bool transport_peer_dead(const struct transport_endpoint *endpoint);
/* Of the provider that it is of. */
const struct transport_caps *transport_endpoint_caps(const struct transport_endpoint *endpoint);
/* That it was opened with: of a domain of several, a member. */
const struct transport_domain *transport_endpoint_domain(const struct transport_endpoint *endpoint);

const struct transport_stats *transport_endpoint_stats(const struct transport_endpoint *endpoint);

#endif
