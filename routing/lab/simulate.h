/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate.h -- how long an update of a table takes: its sends in their order, over a topology,
 * as fluid flows; with the stages of each worker before and behind the wire.
 *
 *   trainer   gather ► device_to_host ► pack ► (ring) ══╗ a queue a peer
 *                                                       ╠═ sender NICs ═ uplinks ═ receiver NICs
 *   inference                                  verify ◄═╝
 *
 * A trainer posts its sends in order, each to the queue of its inference rank; queues move side by
 * side and share the wire; posting waits when the next one's queue holds depth_bytes, as a worker
 * waits for the credit of an endpoint. A box is prepared once and sent to all who need it, as the worker does it; `direct` pieces
 * skip device_to_host, pack and the ring. Each stage of a worker works on one box at a time, in
 * the order of sending, while the other stages work on others. docs/simulator.md has the model.
 * Pure and deterministic: times are computed, no clock is read.
 */
#ifndef ROUTING_LAB_SIMULATE_H
#define ROUTING_LAB_SIMULATE_H

#include "routing/report/writes.h"

enum stage { STAGE_GATHER, STAGE_DEVICE_TO_HOST, STAGE_PACK, STAGE_VERIFY, STAGE_COUNT };
const char *stage_name(enum stage stage); /* "gather", "device_to_host", "pack", "verify" */

enum slow_what { SLOW_NIC, SLOW_TRAINER, SLOW_INFERENCE, SLOW_HOST, SLOW_WHAT_COUNT };
const char *slow_name(enum slow_what what); /* "nic", "trainer", "inference", "host" */
struct slow {
	enum slow_what what;
	uint32_t index;  /* of the topology's NICs and hosts, or a rank */
	double factor;   /* > 0: of its speed (links, and a worker's stages) */
};

struct failure {
	enum slow_what what; /* not SLOW_HOST */
	uint32_t index;
	double seconds;  /* after the beginning of the update */
};

/* WEFT_QUEUE_DEPTH requests of WEFT_CHUNK_BYTES, as verbs has them by default */
#define SIMULATE_DEPTH_DEFAULT  (UINT64_C(128) << 20)
#define SIMULATE_DEPTH_MIN      (UINT64_C(4) << 10)
#define SIMULATE_RING_DEFAULT   (UINT64_C(1) << 30)
#define SIMULATE_RING_MIN       (UINT64_C(1) << 20)
#define SIMULATE_BINS           60

struct simulate_options {
	double stage_bytes_per_second[STAGE_COUNT]; /* by worker; 0: not a stage */
	double writes_per_second; /* that a trainer makes, one after the other; 0: they take no time */
	uint64_t depth_bytes;    /* posted ahead to one inference rank; a single flow may be
				    larger; 0: the default */
	uint64_t ring_bytes;     /* 0: the default */
	const struct slow *slow;
	size_t slow_count;
	const struct failure *failure; /* NULL: none */
	bool record;             /* keep every slice, for a trace */
};

/* gather 400, device_to_host 50, pack 11, verify 0 GB/s, and writes as the certificate has them: docs/simulator.md says where from.
 * All else stays. */
void simulate_rates_default(struct simulate_options *options);

/* What a resource of the wire is. */
enum wire { WIRE_NIC_SEND, WIRE_NIC_RECEIVE, WIRE_UPLINK_OUT, WIRE_UPLINK_IN, WIRE_TRAINER,
	    WIRE_INFERENCE };
struct wire_resource {
	enum wire wire;
	uint32_t index;          /* NIC, host or rank */
	double bytes_per_second;
	double bytes;            /* that went through it */
	double full_seconds;     /* in which it held flows back */
};

struct simulated_rank {
	double finish_seconds;   /* trainer: last byte sent; inference: last byte there and
				    verified; 0 without any; INFINITY: never */
	double bytes;            /* sent, received */
	double busy_seconds;     /* with a flow in flight */
	double stage_seconds[STAGE_COUNT]; /* in which the stage worked */
	double missing_bytes;    /* inference: not arrived, after a failure */
	bool lost;               /* failed, or has no NIC any more */
};

/* One box of work: a track of one worker was busy from..to. */
struct simulated_slice {
	enum role role;
	uint32_t rank;
	bool is_stage;
	enum stage stage;        /* of is_stage */
	uint32_t peer;           /* flows: inference rank; verify: trainer */
	double from, to, bytes;
};

struct simulation {
	double makespan_seconds; /* of all that arrives */
	struct wire_resource *wire;
	uint32_t wire_count;
	struct simulated_rank *ranks[ROLE_COUNT];
	uint32_t rank_count[ROLE_COUNT];
	double rate[ROLE_COUNT]; /* of all NICs that the ranks of a role use, bytes per second */
	uint64_t bytes, routes, flows, events, levels;
	uint64_t flow_bytes_min; /* smaller routes ride along with others; 0: every one is a flow */
	double bin_seconds;      /* samples: bytes in each */
	double wire_bins[SIMULATE_BINS], stage_bins[STAGE_COUNT][SIMULATE_BINS];
	struct simulated_slice *slices; /* when asked for */
	size_t slice_count, slice_capacity;
};

int simulate(struct simulation *simulation, const struct table *table,
	     const struct simulate_options *options, struct error *error);
void simulation_fini(struct simulation *simulation);

/* What had the most work: a resource of the wire (its bytes at its speed), or a stage of one
 * worker. Of equal ones the first: wires, then stages. */
struct bottleneck {
	bool is_stage;
	uint32_t wire;           /* index into simulation.wire */
	enum stage stage;
	uint32_t rank;
	double seconds;          /* of work */
};
struct bottleneck simulation_bottleneck(const struct simulation *simulation);
/* "NIC mlx5_0 of host a01, sending", "pack of trainer 7". Returns out. */
#define BOTTLENECK_TEXT_BYTES 1152
char *bottleneck_text(const struct simulation *simulation, const struct bottleneck *bottleneck,
		      const struct topology *topology, char out[BOTTLENECK_TEXT_BYTES]);

/* The least time that any table of the problem could take over the table's topology, nothing
 * slowed down: docs/simulator.md. A stage that is none has 0. */
struct simulated_bound {
	double wire_seconds, stage_seconds[STAGE_COUNT];
	double seconds;          /* the largest */
};
int simulate_bound(struct simulated_bound *bound, const struct table *table,
		   const double rates[STAGE_COUNT], struct error *error);

#endif
