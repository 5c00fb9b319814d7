/* SPDX-License-Identifier: Apache-2.0
 *
 * families.h -- every metric that a process of a job may show: one row each. docs/metrics.md is the same table for
 * people; tests/e2e/test_metrics.py holds the two together.
 *
 * Names as Prometheus wants them: base units at the end (seconds, bytes), counters end in _total. Labels have few values:
 * never the name of a parameter, never a key. Every sample has weft_job in front, and a worker's role and rank.
 */
#ifndef METRICS_FAMILIES_H
#define METRICS_FAMILIES_H

#include <stddef.h>

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* METRIC_        name                               type       labels                help */
#define METRICS(X)                                                                                                        \
	X(BUILD,       weft_build_info,                  GAUGE,     "version,wire,features", "Which weft this is; always 1") \
	X(STARTED,     weft_start_time_seconds,          GAUGE,     "",                   "When this process opened its metrics, since 1970") \
	/* of a worker */                                                                                                 \
	X(SYNC_STARTED, weft_sync_started_total,         COUNTER,   "",                   "Updates that this worker has begun or waited for; more than have finished: it is in one") \
	X(SYNC_FINISHED, weft_sync_finished_total,       COUNTER,   "result",             "Updates that are over: ok, failed or aborted") \
	X(SYNC,        weft_sync_seconds,                HISTOGRAM, "",                   "Time of an update: of a trainer from begin to end, of an inference rank from opening its memory to showing the version") \
	X(PHASE,       weft_sync_phase_seconds,          HISTOGRAM, "phase",              "Parts of an update, and of the controller the time to plan") \
	X(VERSION,     weft_weight_version,              GAUGE,     "",                   "Version that a trainer ended last, or that an inference rank shows; 0: none yet") \
	X(VERSION_AGE, weft_weight_version_age_seconds,  GAUGE,     "",                   "Time since that version was ended or shown; before the first one, since the worker opened") \
	X(TAINTED,     weft_weights_tainted,             GAUGE,     "",                   "1: an update failed in the midst of this rank's memory, and no version is shown") \
	X(SENT,        weft_bytes_sent_total,            COUNTER,   "",                   "Bytes of pieces that a trainer has sent") \
	X(SAVED,       weft_bytes_saved_total,           COUNTER,   "",                   "Bytes that did not differ and were not sent (--delta)") \
	X(PACKED,      weft_bytes_packed_total,          COUNTER,   "",                   "Bytes that a trainer has packed into its replica") \
	X(RECEIVED,    weft_bytes_received_total,        COUNTER,   "",                   "Bytes of the versions that an inference rank has shown") \
	X(WRITES,      weft_write_total,                 COUNTER,   "",                   "One-sided writes that a trainer has posted") \
	X(CHUNKS,      weft_write_chunk_total,           COUNTER,   "",                   "Chunks that these writes were cut into") \
	X(PIECES,      weft_piece_total,                 COUNTER,   "path",               "Pieces that a trainer has sent, by the way that they took") \
	X(LAUNCHES,    weft_kernel_launch_total,         COUNTER,   "",                   "Kernels that were launched to pack tensors of a GPU") \
	X(NIC_SENT,    weft_nic_sent_bytes_total,        COUNTER,   "nic",                "Bytes of writes that a NIC has completed, of transports that have NICs") \
	X(NIC_BUSY,    weft_nic_busy_seconds_total,      COUNTER,   "nic",                "Time in which writes of this worker were in progress at the NIC") \
	X(NIC_WAITING, weft_nic_waiting_bytes,           GAUGE,     "nic",                "Bytes of writes that are posted to the NIC and not complete") \
	X(PEERS,       weft_peers,                       GAUGE,     "state",              "Peers that the plan gives this worker; ranks that it has heard to have left, and that are not back") \
	X(HEARD_AGE,   weft_controller_heard_age_seconds, GAUGE,    "",                   "Time since the controller was heard last") \
	X(RTT,         weft_control_rtt_seconds,         HISTOGRAM, "",                   "From a heartbeat to the controller's answer") \
	/* of a controller */                                                                                             \
	X(STATE,       weft_job_state,                   GAUGE,     "state",              "1 for the state that the job is in, 0 for the others") \
	X(EPOCH,       weft_job_epoch,                   GAUGE,     "",                   "How often the job has gathered, from 1") \
	X(PLANS,       weft_plan_total,                  COUNTER,   "",                   "Plans that were made and proved") \
	X(MEMBERS,     weft_members,                     GAUGE,     "role,state",         "Ranks of the job, by how far they are") \
	X(MEMBER_VERSION, weft_member_version,           GAUGE,     "role,bound",         "Versions that the workers who are here said last: the oldest, the newest") \
	X(SILENCE,     weft_heartbeat_age_seconds,       GAUGE,     "role",               "Time since the worker who is silent longest was heard, of those who are here") \
	X(LOSSES,      weft_losses_total,                COUNTER,   "of,code",            "Losses, of a trainer or an engine, by the code of the reason; of a worker: those that it has heard of") \
	X(PLAN_BYTES,  weft_plan_bytes,                  GAUGE,     "role,rank",          "Bytes of an update that the plan has a trainer send, an inference rank receive") \
	X(IMBALANCE,   weft_plan_imbalance_ratio,        GAUGE,     "",                   "Bytes of the trainer that sends most, over the mean of all trainers") \
	X(LARGEST,     weft_plan_largest_bytes,          GAUGE,     "",                   "Bytes of the trainer that sends most") \
	X(LEAST,       weft_plan_bound_bytes,            GAUGE,     "",                   "The least that this could be, whatever the plan") \
	X(PREDICTED,   weft_plan_predicted_seconds,      GAUGE,     "",                   "Time of an update by the plan, if nothing but wires counts; only with a topology") \
	X(BOUND,       weft_plan_bound_seconds,          GAUGE,     "",                   "The least that this could be, whatever the plan; only with a topology") \
	X(SLOWEST,     weft_slowest_update_seconds,      GAUGE,     "role",               "Longest last update of any of them; of a trainer without the time until its ranks accept") \
	X(BOUND_SHARE, weft_update_bound_ratio,          GAUGE,     "",                   "The least time that an update could take over that of the slowest trainer; only with a topology") \
	X(REFUSED,     weft_refused_connections_total,   COUNTER,   "",                   "Connections to the controller that came to nothing, perhaps for want of the key") \
	/* of both */                                                                                                     \
	X(FAILURES,    weft_failures_total,              COUNTER,   "code",               "Failures: of a worker's calls, or of the job, by code")

#define X(id, name, type, labels, help) METRIC_##id,
enum metric { METRICS(X) METRIC_COUNT };
#undef X

struct metric_family {
	const char *name, *labels, *help;
	enum metric_type type;
};
extern const struct metric_family metric_families[METRIC_COUNT];

#endif
