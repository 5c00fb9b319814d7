/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.h -- provider "shm": processes of one host. Private to this folder, and to transport/cuda, which stands on it:
 * each object has room for what that adds (`more`; NULL: nothing).
 *
 * Two kinds of region, chosen by how the target made it:
 *
 *   mapped    memory from weft's allocator: a sealed memfd that the peer opens through
 *             /proc/<pid>/fd/<n> and maps. A write is a copy in this process.
 *   process   the caller's own memory, registered: written by process_vm_writev.
 *
 * Nothing has a name in any file system, so nothing is left behind after kill -9.
 *
 *   data memfd      [ bytes, rounded up to pages ][ trailer page: magic, cookie, bytes ]
 *   mailbox memfd   [ head page: magic, cookie, doorbell ][ slot ][ slot ] ...
 *
 * A pid and an fd number may both have been reused since a record was made; the start time of
 * the process and the cookie inside the memfd prove that they were not. Sealed against
 * shrinking, so a peer's mapping cannot turn into SIGBUS.
 *
 * A slot belongs to the target; its peer (the initiator) claims it at connect. The state word
 * decides every race between connect, fence, close and reuse:
 *
 *   generation:24 | pid:32 | state:8
 *
 *   FREE ──open──► OPEN ──connect (peer, CAS)──► CONNECTED ──close (peer)──► CLOSED ─► FREE
 *                   └───fence or close (CAS)───► FENCED ─────────────────────────────► FREE
 *
 * A slot whose peer is CONNECTED is not reused until the peer closed or is proved dead. Who writes memory
 * of the caller's own says so in the slot (turn.h).
 */
#ifndef TRANSPORT_SHM_SHM_H
#define TRANSPORT_SHM_SHM_H

#include "base/array.h"
#include "transport/identity.h"
#include "transport/mailbox.h"
#include "transport/provider.h"
#include <pthread.h>
#include <sys/uio.h>

#define SHM_COOKIE_BYTES  16
#define SHM_BLOCK_BYTES   65536u
#define SHM_HEAD_BYTES    4096u
#define SHM_CHUNK_BYTES   (4u << 20)
#define SHM_INFLIGHT_MAX  64
#define SHM_HUGE_BYTES    (2u << 20)
#define SHM_REGION_MAX    (UINT64_C(1) << 46)

enum shm_kind { SHM_MAPPED = 1, SHM_PROCESS = 2 };

/* ---- memfd.c ---- */

struct shm_memfd {
	int fd;
	uint64_t bytes; /* of the file */
	unsigned char *memory;
	unsigned char cookie[SHM_COOKIE_BYTES];
};

int shm_memfd_create(struct shm_memfd *memfd, const char *what, uint64_t bytes,
		     struct error *error);
void shm_memfd_close(struct shm_memfd *memfd);
/* Opens a peer's memfd: *fd is open and at least `bytes` long, sealed. */
int shm_memfd_open_peer(uint64_t pid, uint32_t number, uint64_t bytes, int *fd,
			struct error *error);
int shm_map(int fd, uint64_t bytes, unsigned char **memory, struct error *error);
void shm_unmap(unsigned char **memory, uint64_t bytes);

struct shm_trailer {
	uint64_t magic, bytes;
	unsigned char cookie[SHM_COOKIE_BYTES];
};
#define SHM_TRAILER_MAGIC UINT64_C(0x6e676f6972667477)

/* ---- slots ---- */

enum shm_state { SHM_FREE, SHM_OPEN, SHM_CONNECTED, SHM_CLOSED, SHM_FENCED };

static inline uint64_t shm_word(uint64_t generation, uint64_t pid, enum shm_state state)
{
	return (generation & 0xffffff) << 40 | pid << 8 | (uint64_t)state;
}
static inline enum shm_state shm_word_state(uint64_t word)
{
	return (enum shm_state)(word & 0xff);
}
static inline uint64_t shm_word_pid(uint64_t word)
{
	return word >> 8 & 0xffffffff;
}
static inline uint64_t shm_word_generation(uint64_t word)
{
	return word >> 40;
}

struct shm_slot {
	_Alignas(64) _Atomic uint64_t word;
	_Atomic uint64_t start;         /* of the peer that is CONNECTED; 0 for a moment */
	_Atomic uint64_t nonce;         /* of the target's endpoint */
	_Atomic uint64_t stop;          /* the target asks the peer to write no more */
	_Atomic uint64_t probe_mapped, probe_process;
	_Atomic uint64_t writing_at, writing; /* the peer's: bytes of ours that it is writing (turn.h) */
	_Alignas(64) struct mailbox_slot mailbox;
};
_Static_assert(sizeof(struct shm_slot) == 320, "both sides of a slot must agree");

struct shm_block_head {
	uint64_t magic;
	unsigned char cookie[SHM_COOKIE_BYTES];
	_Alignas(64) struct doorbell doorbell; /* only block 0's is used */
};
#define SHM_BLOCK_MAGIC UINT64_C(0x786f626c69616d32) /* other slots, another number */
#define SHM_BLOCK_SLOTS ((SHM_BLOCK_BYTES - SHM_HEAD_BYTES) / sizeof(struct shm_slot))

struct shm_block {
	struct shm_memfd memfd;
	unsigned char used[SHM_BLOCK_SLOTS]; /* 0 free, 1 used, 2 waits for its peer */
	_Atomic uint32_t holders;            /* its domain, and late writers (late.c) */
};

/* A peer's memory that no remote is of: transport_domain_keep_mapped. */
struct shm_kept {
	uint64_t pid, start;
	unsigned char cookie[SHM_COOKIE_BYTES];
	unsigned char *memory;
	uint64_t bytes;
};

struct shm_unmapper {
	pthread_mutex_t lock;        /* of `left` and `ended` */
	ARRAY(struct shm_kept) left;
	pthread_t thread;
	bool started, ended;         /* ended: it looks at `left` no more */
};

struct shm_domain {
	struct identity self;
	ARRAY(struct shm_block *) blocks;
	ARRAY(struct shm_kept) kept;
	struct shm_unmapper unmapper;
	bool keeps;
	bool ptracer_set;
	void *more;
};

struct shm_place {
	struct shm_block *block;
	uint32_t index;
};

/* mailbox.c */
int shm_mailbox_grow(struct shm_domain *domain, struct error *error);
void shm_mailbox_close(struct shm_domain *domain);
struct doorbell *shm_mailbox_doorbell(const struct shm_domain *domain);
int shm_slot_take(struct shm_domain *domain, struct shm_place *place, struct error *error);
void shm_slot_give(struct shm_place place);
struct shm_slot *shm_slot_at(struct shm_place place);
/* The peer of this slot cannot write: it never connected, closed, or died. */
bool shm_slot_quiet(struct shm_slot *slot);
void shm_slot_refuse(struct shm_slot *slot); /* OPEN becomes FENCED, CONNECTED is told to stop */
void shm_block_drop(struct shm_block *block); /* the last holder frees it */

/* late.c */
struct late_write *shm_late_new(void);
/* Whether the peer is in the middle of a write, and lives. */
bool shm_late_busy(struct shm_slot *slot);
/* Its slot was refused, and closes: if it is, that range of memory is held. */
void shm_late_hold(struct transport_endpoint *endpoint);
/* The same of memory that the peer may write until it closes, or dies, by what it has mapped: takes *late over and
 * sets it to NULL, unless that has happened. */
void shm_late_hold_mapped(struct transport_endpoint *endpoint, struct late_write **late, uintptr_t at, uint64_t bytes);

/* ---- records.c: bodies ---- */

struct shm_endpoint_record {
	struct identity identity;
	uint32_t bell_fd, slot_fd;
	unsigned char bell_cookie[SHM_COOKIE_BYTES], slot_cookie[SHM_COOKIE_BYTES];
	uint64_t slot_offset;  /* in its block */
	uint64_t slot_address; /* in the target's address space, for process_vm_writev */
	uint64_t generation, nonce;
};

struct shm_region_record {
	struct identity identity;
	enum shm_kind kind;
	uint32_t fd;           /* mapped */
	unsigned char cookie[SHM_COOKIE_BYTES];
	uint64_t address;      /* process */
};

void shm_endpoint_record_put(struct record_writer *writer,
			     const struct shm_endpoint_record *record);
int shm_endpoint_record_get(struct record_reader *reader, struct shm_endpoint_record *record,
			    struct error *error);
void shm_region_record_put(struct record_writer *writer,
			   const struct shm_region_record *record);
int shm_region_record_get(struct record_reader *reader, uint64_t bytes,
			  struct shm_region_record *record, struct error *error);

/* Other host, other pid namespace, or not running any more: said so. */
int shm_identity_check(const struct identity *peer, const struct identity *self,
		       struct error *error);

/* ---- objects ---- */

struct shm_region {
	enum shm_kind kind;
	struct shm_memfd memfd; /* mapped */
	bool exported;          /* process */
	void *more;
};

struct shm_remote {
	struct shm_region_record record; /* its identity must be the endpoint's peer */
	unsigned char *memory; /* mapped */
	uint64_t map_bytes;
	void *more;
};

struct shm_endpoint {
	struct shm_place place;      /* own slot, that the peer signals into */
	struct shm_slot *slot;
	uint64_t nonce;
	bool connected;
	struct shm_endpoint_record peer;
	int pidfd;                   /* of the peer, or -1 */
	unsigned char *peer_bell_map, *peer_slot_map; /* equal when it is one block */
	struct shm_slot *peer_slot;
	struct doorbell *peer_bell;
	bool process_probed;
	bool stays_open;             /* memory of the peer could not be let go of: it must not take this for closed */
	struct late_write *late;     /* for shm_late_hold */
	uint64_t posted, reported;   /* posts complete at once; poll reports them */
	void *more;
};

/* post.c: the error of a sender that was told to stop, and whether it was */
int shm_given_up(const struct transport_endpoint *endpoint, struct error *error);
int shm_check_allowed(const struct transport_endpoint *endpoint, struct error *error);

/* process.c: process_vm_writev */
#define SHM_PIECES_MAX 1024 /* IOV_MAX, which Linux does not change */
/* The pieces, end to end; *moved may be less than all, not 0. */
int shm_process_gather(uint64_t pid, uint64_t address, const struct iovec *pieces, size_t count,
		       uint64_t *moved, struct error *error);
/* A few bytes, within a page. */
int shm_process_write(uint64_t pid, uint64_t address, const void *source, uint64_t bytes,
		      struct error *error);
int shm_process_probe(struct transport_endpoint *endpoint, struct error *error);
void shm_process_allow(struct shm_domain *domain);

/* region.c: that it is the endpoint's peer who made the region, and that it can be written */
int shm_remote_check(const struct transport_remote *remote, struct error *error);
/* kept.c. The mapping of a remote that closes: kept, or unmapped. take: in place of mapping what a record names. */
void shm_kept_put(const struct transport_remote *remote);
bool shm_kept_take(struct shm_domain *domain, struct shm_remote *shm);
void shm_kept_open(struct shm_domain *domain);
void shm_kept_close(struct transport_domain *domain);

/* The ops, typed as provider.h has them: shm_domain_open and so on. */
#define X(op) extern __typeof__(*((struct provider *)NULL)->op) shm_##op;
PROVIDER_OPS(X)
#undef X

#endif
