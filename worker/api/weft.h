/* SPDX-License-Identifier: Apache-2.0
 *
 * weft.h -- what a host program needs (with weft_base.h, which it includes; weft_play.h is for tests and
 * programs that play trainer). In the order of a worker's life:
 *
 *     weft_launch_find          who am I (flags, torchrun, MPI, Slurm, Kubernetes variables)
 *     weft_open                 -> weft_worker
 *     weft_declare_*            what I hold (trainer) or need (inference rank)
 *     weft_join                 controller routes and connects; blocks until all are ready
 *     trainer    weft_update_begin, weft_update_write ..., weft_update_end    every update
 *     inference  weft_update_wait                                             every update
 *                weft_read_begin, weft_read_end   from any thread, at any time
 *     weft_fail                 at any stage: everybody is told why this worker cannot go on
 *     weft_leave, weft_close
 *
 * Results: 0 done; negative (-WEFT_E_*) failed, with one message in *error; positive
 * (WEFT_*) a documented answer. `error` may be NULL. Strings passed in are copied; strings
 * handed out live as long as the object they came from. Structs carry their size (weft_base.h):
 *
 *     weft_error error = WEFT_ERROR_INIT;
 *     weft_options options = WEFT_OPTIONS_INIT;
 *
 * Threads: one thread at a time per weft_worker, except the functions marked [any thread].
 * A worker runs one thread of its own, for the control channel; it never calls the host.
 * Everything that waits has a deadline, in milliseconds; 0 takes the default that the option
 * or the function names; WEFT_FOREVER is not offered.
 */
#ifndef WEFT_H
#define WEFT_H

#include "weft_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- launch ---- */

enum weft_role { WEFT_TRAINER = 1, WEFT_INFERENCE = 2 }; /* 0 is no role */

/* What a launcher's variables say. Order: flags given here, WEFT_*, torchrun, PET_*, MPI, PMI,
 * Slurm, Kubernetes. Two sources that disagree are WEFT_E_CONFIG naming both. What a launcher counted
 * is within group WEFT_GROUP_INDEX, if there is one: rank = index * size + what it counted, with
 * WEFT_GROUP_SIZE or else the launcher's own size. */
typedef struct weft_launch {
	size_t size;
	int64_t rank;           /* in: flag or -1; out: rank among all workers of the launch */
	int64_t world;          /* in: flag or -1; out: workers of the launch, -1 if unknown */
	int64_t local_rank;     /* out: -1 if unknown */
	int64_t restart_count;  /* out: 0 unless the launcher says */
	char controller[256];   /* in: flag or ""; "auto"; out: "tcp://host:port" */
	char rank_source[64];   /* out: "RANK", "--rank", ... for one printed line */
	char controller_source[64];
	int start_controller;   /* out: 1 when controller was "auto" and this is rank 0 */
	int key_waits;          /* out: 1 when rank 0 makes the key: the file comes with it */
	char key_file[256];     /* in: flag or ""; out: the job's key, "" without */
} weft_launch;
#define WEFT_LAUNCH_INIT WEFT_INIT(weft_launch)
WEFT_API int weft_launch_find(weft_launch *launch, weft_error *error);
/* Starts weft-controller when launch->start_controller says that this is the worker to do it:
 * the program beside this one, or the one in PATH, with --bind at the port of
 * launch->controller, --die-with-parent, and `arguments` (NULL-terminated: "--train", ...). *pid
 * is 0 when none was started. Call it before other threads exist. */
WEFT_API int weft_launch_controller(const weft_launch *launch, const char *const *arguments,
				    int64_t *pid, weft_error *error);
/* 0 when it has ended (*pid becomes 0), 1 when it still runs after timeout_ms. It ends by itself
 * when all workers of the job have left: wait for it, or the others lose it with this process. */
WEFT_API int weft_launch_wait(int64_t *pid, uint32_t timeout_ms);
/* Waits timeout_ms, asks it to end, waits again, kills it. */
WEFT_API void weft_launch_stop(int64_t *pid, uint32_t timeout_ms);
/* Writes the message where the launcher shows it ($TORCHELASTIC_ERROR_FILE), if it wants one.
 * A victim's error (peer or controller lost) is written only when no other was. */
WEFT_API void weft_launch_report(const weft_error *error);

/* ---- open ---- */

typedef struct weft_worker weft_worker;

typedef struct weft_options {
	size_t size;               /* zero of any other field but role and controller: default */
	const char *controller;    /* "tcp://host:29600"; needed */
	const char *job;           /* default "weft"; all workers and the controller agree */
	enum weft_role role;       /* needed */
	uint32_t rank;             /* within the role, from 0 */
	const char *transport;     /* a requirement: "shm" (default), "cuda", "verbs", "tcp", "efa". A list
				      ("shm,verbs,tcp", or "auto" for "shm,verbs") lets each pair use
				      the first of it that both sides have and that reaches (for
				      memory of a GPU: of those that write it, if any does); all
				      workers of the job give the same */
	uint32_t join_timeout_ms;    /* default 60000 */
	uint32_t update_timeout_ms;  /* any wait inside an update; default: the controller's */
	uint64_t ring_bytes;       /* trainer: CPU replica ring, at most; default 1 GiB. It takes
				      what one update needs: nothing when no piece is packed.
				      Not with replica "full" */
	int checksums;             /* 1: every piece is summed and verified; all must agree */
	int shadow;                /* inference: 1 keeps two copies, readers keep v-1 meanwhile */
	int own_memory;            /* inference: 1: parameters lie in memory given with
				      weft_param.memory or weft_param_bind, not weft's */
	uint32_t pack_threads;     /* trainer: threads that pack, the calling one included; 0: as many
				      as processors this process may use, at most 4 */
	const char *nic;           /* which NICs the transport uses, a list of names ("mlx5_0,mlx5_1",
				      "mlx5_0:1" for one port; "eth0" with tcp), or one by rank ("0=mlx5_0,1=mlx5_1"), as
				      weft-worker --nic takes it; NULL or "": it chooses */
	const char *replica;       /* trainer: "ring" (default), at most ring_bytes; "host": the same, for tensors
				      of a GPU in memory of the host even where NICs read the GPU's; or "full": one
				      home a parameter, as large as what this trainer sends one
				      inference rank, shared by all of them, keeps the last
				      version */
	const char *key_file;      /* the job's key, or its role's, from 'weft key'; NULL or "": what
				      WEFT_KEY_FILE names, and without that no key, as a controller
				      without one wants it */
	int key_waits;             /* 1: the file may come, or be replaced, until the controller was
				      heard; as weft_launch.key_waits says */
	int commit_by_host;        /* inference with shadow: 1: weft_update_wait ends when all ranks that show versions
				      together have prepared one, and weft_commit_at shows it. All of them agree */
	const char *memory;        /* where what is written from or into lies: "host" (default), "cuda" (the GPU of
				      this process: the launcher's local rank) or "cuda:N"; or by role, as
				      "trainer=cuda,inference=host". Trainer: all tensors that
				      it writes; inference: its parameters, weft's or with own_memory the host's.
				      On one host, transport "cuda" goes from GPU to GPU, and between GPU and host. Where
				      NICs read and write the GPU's memory (GPUDirect), "verbs" goes from there to there;
				      else a trainer's pieces go through pinned memory here, and a rank's through
				      landing_bytes there. The log and the plan say which */
	const char *stage;         /* inference with memory "cuda": "none" (default): versions are written in place.
				      "device", "host": a version lands in spare memory, of the GPU or pinned, while
				      readers keep the last one; it is verified there, and then copied at once:
				      readers are without a version for that copy alone. "auto": "device" where the
				      GPU has room for that when the worker joins, else "host"; the log says which */
	uint64_t landing_bytes;    /* inference, of trainers whose transport does not write memory "cuda", or that cut
				      rows finer or smaller than the engine where they do not map its memory, or that send
				      what differs from the version before (weft-controller --delta): host memory that
				      pieces land in, at most (at least 80 KiB for each such trainer; pinned with
				      "cuda"), and are copied from meanwhile: by weft_update_wait, so the trainers'
				      writes go on while the rank is in it; default 256 MiB */
	const char *metrics;       /* serve figures for Prometheus there, "ADDRESS:PORT" or ":PORT" (of all of this host's
				      addresses; ":PORT+": the first free one from there on); "off": not; NULL or "": what
				      WEFT_METRICS says, and without that not. Needs libmicrohttpd on this host. One thread,
				      with no signals */
	const char *metrics_file;  /* write them there every 5 s, whole and renamed, for node-exporter (%h host, %p process, %r
				      role and rank as "t3", "i0"); "off", NULL and "" as above, with WEFT_METRICS_FILE */
	const char *trace;         /* write there when this worker did what, for ui.perfetto.dev; the name, "off",
				      NULL and "" as of metrics_file, with WEFT_TRACE. One thread, with no signals, and 10 MB of memory */
} weft_options;
#define WEFT_OPTIONS_INIT WEFT_INIT(weft_options)

/* Opens the transport and the control socket; waits for nobody. The control thread starts with
 * weft_join. When the transport cannot be opened here, the job is told so, as by weft_fail. */
WEFT_API int weft_open(weft_worker **worker, const weft_options *options, weft_error *error);
/* [any thread, signal handlers] Every wait of this worker ends within 0.1 s with
 * WEFT_E_INTERRUPTED, and so does every later call that would wait, until weft_interrupt_clear. A
 * weft_close before that tells the controller that the worker was interrupted.
 *
 * [any thread] weft_interrupt_clear takes it back: later calls do as they always do, when those that
 * it ended have returned. What then holds, by the call that was ended:
 *
 *     weft_join                 call it again: it goes on where it was, and so does its deadline
 *     weft_update_begin         nothing was begun: begin again
 *     weft_update_repeat        call it again
 *     weft_update_wait          as after its deadline: memory is open, the rank tainted (without
 *                               shadow), what arrived still counts when the same version is waited for. Before
 *                               the engine's other ranks were there nothing has happened; once the hook is
 *                               through, readers may be shown the version at any time
 *     weft_update_try_begin     the try goes on with its clock; so does weft_update_try_wait
 *     weft_update_write, _all,  the update is open, but part of a tensor may be on its way: all that is
 *     _bucket, weft_update_replay   left of it is weft_update_abort; a later version is complete
 *     weft_update_drain         call it again
 *     weft_update_end, _abort   call it again; after an end, weft_update_abort is possible too
 *     weft_leave                is not ended by it
 *
 * A call that had not begun (between two writes, say) has changed nothing, and the update goes on. Where
 * a transfer or a signal itself had to be cut, because a peer did not take it, the worker has failed for
 * good: its later calls say so, WEFT_E_INTERRUPTED too. */
WEFT_API void weft_interrupt(weft_worker *worker);
WEFT_API void weft_interrupt_clear(weft_worker *worker);

/* ---- declare: before join ----
 *
 * A model that weft knows, or that a layout file describes, is one call: weft_declare_model, with the
 * two specs that the controller was started with. Tensors of one's own are declared one by one; their
 * controller needs specs too, though nothing is cut by them, for it counts by them whom it waits for:
 *
 *     weft-controller --train world=W --infer engines=E,tp=T
 *
 *   W         trainers: ranks 0 to W - 1. With pp=P they are P stages of W/P neighbours, and a tensor
 *             is looked for where it was declared, whatever its stage
 *   E times T inference ranks: rank r is rank r mod T of engine r / T. Ranks at the same place of
 *             two engines may declare the same; none must. engines=N alone for N unlike ranks
 *   all other keys say nothing here: leave them out
 *
 * Two trainers and one engine of a single rank, as examples/c has them: --train world=2 --infer engines=1,tp=1.
 * Four trainers and three engines of two ranks each: --train world=4 --infer engines=3,tp=2.
 *
 * A controller without the two ends at once, with what to give (exit code 2); a rank that they do not
 * have is refused when it joins (WEFT_E_CONFIG, naming the spec); one that is missing is named
 * after the join timeout. Labels (below) may be these specs; they are then held to the controller's.
 */

#define WEFT_DIMS_MAX 4

typedef struct weft_tensor {
	size_t size;
	const char *name;          /* HuggingFace name */
	const char *dtype;         /* "BF16", "F16", "F32", "F8_E4M3", ... (safetensors names, in any case) */
	uint32_t dims;             /* 1..4, row-major */
	uint64_t shape[WEFT_DIMS_MAX];
} weft_tensor;
#define WEFT_TENSOR_INIT WEFT_INIT(weft_tensor)

/* Labels that the routing dump prints; all workers must pass the same. Default: "custom". */
WEFT_API int weft_declare_labels(weft_worker *worker, const char *model, const char *train,
				 const char *infer, weft_error *error);

/* Trainer: rows [row_lo, row_hi) of dimension 0 are readable here. `order` is the tensor's
 * place in the checkpoint, the same on every trainer. *id counts from 0. */
WEFT_API int weft_declare_tensor(weft_worker *worker, const weft_tensor *tensor, uint32_t order,
				 uint64_t row_lo, uint64_t row_hi, uint32_t *id,
				 weft_error *error);

/* A trainer that is cut otherwise (tensor, pipeline and expert parallel, DTensors of two dimensions, flat shards) declares its own
 * parameters, as they lie in its memory, and which boxes of which tensors are where in them; and writes its own parameters. Nothing
 * is gathered. `weft model holding` prints each trainer's, of those that --train knows.
 *
 * weft_declare_local: a local parameter, for weft_update_write. *id counts with weft_declare_tensor's. A name of its own: chunks of
 * a pipeline repeat names, so put the chunk's before it. */
WEFT_API int weft_declare_local(weft_worker *worker, const weft_tensor *local, uint32_t *id, weft_error *error);
/* Where a box of a tensor lies in it, in elements: that with indexes i is at offset + the sum of (i[d] - lo[d]) * stride[d]. What
 * is stored transposed has a last stride that is not 1; what no box covers is nobody's affair. The dtypes are the same. */
typedef struct weft_holding {
	size_t size;
	uint32_t local;            /* id of a local parameter */
	uint32_t order;            /* the tensor's place in the checkpoint, the same on every trainer */
	uint64_t lo[WEFT_DIMS_MAX], hi[WEFT_DIMS_MAX]; /* the box: [lo, hi) of each dimension */
	uint64_t offset;           /* of its first element */
	uint64_t stride[WEFT_DIMS_MAX]; /* all 0: the box's own, row after row */
} weft_holding;
#define WEFT_HOLDING_INIT WEFT_INIT(weft_holding)
/* Trainer: that box of the tensor is readable there. Boxes of one trainer do not overlap, neither in the tensor nor in the local
 * parameter (weft_join says WEFT_E_CONFLICT, with both names); other trainers may hold the same, and share the sending. */
WEFT_API int weft_declare_holding(weft_worker *worker, const weft_tensor *tensor, const weft_holding *holding,
				  weft_error *error);
/* The same of a flat range, as ZeRO and FSDP1 have it: elements [from, to) of the tensor, row after row, from element `offset` of
 * the local parameter on. */
WEFT_API int weft_declare_flat(weft_worker *worker, const weft_tensor *tensor, uint32_t order, uint64_t from, uint64_t to,
			       uint32_t local, uint64_t offset, weft_error *error);

/* [any thread] The GPU that the worker uses ("cuda:N"); -1: none. */
WEFT_API int32_t weft_device(const weft_worker *worker);

/* Trainer: memory that tensors will lie in when they are written. A transport that reads only from
 * registered memory (verbs) then sends a piece that is contiguous in the source straight from
 * there; without any registered memory every piece is packed into the ring first. Once some is
 * registered, a tensor with such a piece must lie whole in one range, or weft_update_write refuses
 * it. Ranges do not overlap. The memory stays the host's, and until weft_close. Other transports
 * read any memory of the host: the call changes nothing there. With memory "cuda" it is the same of memory of
 * the GPU, where NICs read that; host memory is pinned by it, so that a tensor may lie there too. */
WEFT_API int weft_source_register(weft_worker *worker, const weft_memory *memory,
				  weft_error *error);

/* Inference: an engine parameter. memory: NULL, and weft allocates it at join; with
 * own_memory, the host's (one copy; with shadow two are not possible). */
typedef struct weft_param {
	size_t size;
	const char *name;
	const char *dtype;
	uint32_t dims;
	uint64_t shape[WEFT_DIMS_MAX];
	const weft_memory *memory; /* at least the parameter's bytes; read during the call */
} weft_param;
#define WEFT_PARAM_INIT WEFT_INIT(weft_param)
WEFT_API int weft_declare_param(weft_worker *worker, const weft_param *param, uint32_t *id,
				weft_error *error);
/* Inference with own_memory: where that parameter lies, its bytes at least, for parameters declared
 * without memory (weft_declare_model). Before join; stays the host's. */
WEFT_API int weft_param_bind(weft_worker *worker, uint32_t id, const weft_memory *memory,
			     weft_error *error);
/* Inference: the box src of `tensor` becomes bytes [offset, offset + its size) of param. Where
 * the dtypes differ, each element is converted to param's (F32, BF16 and F16 into each other,
 * rounded to nearest even). */
WEFT_API int weft_declare_piece(weft_worker *worker, const weft_tensor *tensor,
				const uint64_t *src_lo, const uint64_t *src_hi, uint32_t param,
				uint64_t offset, weft_error *error);

/* fp8 in blocks, as checkpoints like DeepSeek-V3's keep it: F8_E4M3 elements, and a matrix of one
 * F32 a block of rows x columns, which the block's elements are multiplied with. `from` is the
 * tensor's block, `to` param's; 0 and 0: not in blocks. */
#define WEFT_AS_IT_LIES   0 /* of weft_transform.order */
#define WEFT_TRANSPOSED   1 /* column by column of the box, each a row of param; a box of three dimensions is one matrix */
#define WEFT_PADDED_ROWS  2 /* each row, which is all of the box but its first two dimensions, is to_columns elements of
			     * param: the box's own, then zeroes. to_rows is 0 */
typedef struct weft_transform {
	size_t size;
	uint32_t from_rows, from_columns;
	uint32_t to_rows, to_columns;
	int scales_part;           /* 1: the piece is param's F32 scales; 0: its elements */
	uint32_t order;            /* WEFT_AS_IT_LIES, .. ; the other two are of elements without blocks */
} weft_transform;
#define WEFT_TRANSFORM_INIT WEFT_INIT(weft_transform)
/* Inference: the same, and the bytes are transformed so (NULL: as weft_declare_piece). src starts at a
 * border of param's blocks and ends at one or at the tensor's end. `scales`: with a `from` block, the
 * tensor of its scales; else NULL. To the bit, every operation rounded once to F32:
 *
 *   out of blocks    x = element * its block's scale, rounded to param's dtype
 *   into blocks      amax = largest |x| of the block's finite ones, at least 1e-10
 *                    scale = amax / 448
 *                    element = F8_E4M3(min(max(x * (1 / scale), -448), 448)), nearest even; NaN
 *                    stays NaN, infinities become 448 with their sign
 *   both             the first, as F32, then the second */
WEFT_API int weft_declare_transformed_piece(weft_worker *worker, const weft_tensor *tensor,
					    const uint64_t *src_lo, const uint64_t *src_hi,
					    uint32_t param, uint64_t offset,
					    const weft_transform *transform,
					    const weft_tensor *scales, weft_error *error);
/* Inference: bytes without a source (vocabulary padding); weft zeroes them at join. */
WEFT_API int weft_declare_fill(weft_worker *worker, uint32_t param, uint64_t offset,
			       uint64_t bytes, weft_error *error);

/* All of the above for a model that weft knows (built-in name, config.json or folder) or that a layout
 * file describes (its path; `weft model layout --help`), and two parallel layouts
 * ("world=4,source=gathered", "engines=2,tp=2"). */
WEFT_API int weft_declare_model(weft_worker *worker, const char *model, const char *train,
				const char *infer, weft_error *error);
/* The same with a folder or config.json whose class weft does not know, but whose tensors are called
 * and shaped as those of a family that it does: `as` is the family's model_type ("llama"), or NULL. */
WEFT_API int weft_declare_model_as(weft_worker *worker, const char *model, const char *as,
				   const char *train, const char *infer, weft_error *error);

/* How many trainers and inference ranks two such layouts have. Either may be NULL with its
 * count. */
WEFT_API int weft_count_ranks(const char *train, const char *infer, uint32_t *trainers,
			      uint32_t *inference, weft_error *error);

/* What was declared, in declaration order. [any thread after join] A local parameter is a view whose rows are all its own. */
typedef struct weft_tensor_view {
	size_t size;
	const char *name, *dtype;
	uint32_t dims;
	int wanted;                /* after join: some inference rank is sent part of it; with --on-loss continue, or may be */
	uint64_t shape[WEFT_DIMS_MAX];
	uint64_t row_lo, row_hi;   /* held rows */
	uint64_t bytes;            /* of the held rows */
} weft_tensor_view;
#define WEFT_TENSOR_VIEW_INIT WEFT_INIT(weft_tensor_view)
typedef struct weft_param_view {
	size_t size;
	const char *name, *dtype;
	uint32_t dims;
	uint32_t reserved;
	uint64_t shape[WEFT_DIMS_MAX];
	uint64_t bytes;
} weft_param_view;
#define WEFT_PARAM_VIEW_INIT WEFT_INIT(weft_param_view)
/* All boxes that are held, rows that are memory of their own too; sorted by tensor from weft_join on, of
 * weft_declare_model at once. */
typedef struct weft_holding_view {
	size_t size;
	const char *name, *dtype;  /* of the tensor */
	uint32_t dims;
	uint32_t local;            /* id of the local parameter, or of the rows */
	uint64_t shape[WEFT_DIMS_MAX];
	uint64_t lo[WEFT_DIMS_MAX], hi[WEFT_DIMS_MAX];
	uint64_t offset;           /* elements, as weft_holding has them */
	uint64_t stride[WEFT_DIMS_MAX];
} weft_holding_view;
#define WEFT_HOLDING_VIEW_INIT WEFT_INIT(weft_holding_view)
/* -WEFT_E_USAGE past the end. */
WEFT_API int weft_holding_at(const weft_worker *worker, uint32_t index, weft_holding_view *view, weft_error *error);
WEFT_API int weft_tensor_at(const weft_worker *worker, uint32_t id, weft_tensor_view *view,
			    weft_error *error);
WEFT_API int weft_param_at(const weft_worker *worker, uint32_t id, weft_param_view *view,
			   weft_error *error);

/* Inference, before join: compares what was declared with the parameters that the engine really has
 * (name, dtype as here or as torch names it, shape; dims 0 is a scalar; memory is not looked at).
 * WEFT_E_CONFLICT names the first differences, with the option of the --infer spec that would agree
 * where one is known, and counts the rest. Parameters that have no source by design (scales of the
 * KV cache, rotary caches) are left out of it. */
WEFT_API int weft_compare_params(weft_worker *worker, const weft_param *live, size_t count,
				 size_t stride, weft_error *error);
/* The same with a file: one JSON object a line, {"name": "..", "dtype": "..", "shape": [..]}, as `weft
 * model check --live` reads it. WEFT_E_FILE names the line that is malformed. `line`, unless NULL, is
 * called with each difference. */
typedef void weft_line(void *context, const char *text);
WEFT_API int weft_compare_params_file(weft_worker *worker, const char *path, weft_line *line,
				      void *context, weft_error *error);

/* Blocks until every worker of the job is here, routed and connected, or timeout_ms (0: the
 * option). The error names who is missing. Whatever it refuses by itself (memory that is not there, nothing
 * declared) the others are told before it returns, as by weft_fail: a worker whose weft_join failed, other
 * than with WEFT_E_INTERRUPTED, can only be closed. With WEFT_E_UNSAFE nobody is told: closed, and
 * opened again with other memory, the host goes on. */
WEFT_API int weft_join(weft_worker *worker, uint32_t timeout_ms, weft_error *error);

/* After join: digest of the routing table (32 hex digits), routes and bytes of this worker. */
typedef struct weft_plan_view {
	size_t size;
	char digest[40];           /* 32 digits and a zero */
	char policy[32];
	char order[32];            /* in which a trainer sends: "rotated", "rounds", ... */
	uint64_t bytes;            /* this worker sends or receives per update */
	uint64_t pieces;
	uint32_t peers;
	uint32_t reserved;
} weft_plan_view;
#define WEFT_PLAN_VIEW_INIT WEFT_INIT(weft_plan_view)
/* Of a trainer that has failed for good: that failure. */
WEFT_API int weft_plan(const weft_worker *worker, weft_plan_view *view, weft_error *error);

/* ---- updates: trainer ---- */

/* Starts version `version`: larger than any before (else WEFT_E_VERSION; gaps are fine), or the one that
 * weft_update_repeat named. Waits
 * until every inference rank of the plan accepts it, i.e. until each is inside
 * weft_update_wait for it. Where an engine comes back to the job all trainers and ranks
 * meet here and in weft_update_wait, and it returns when that engine takes part. */
WEFT_API int weft_update_begin(weft_worker *worker, uint64_t version, weft_error *error);
/* [any thread, many at once; so are the next three] Sends all pieces of tensor `id` from `memory` (the
 * held rows, row-major, bytes as in weft_tensor_view). It must stay unchanged until
 * weft_update_end or weft_update_drain; with replica "full" it may be reused when the call returns.
 * What is transformed from a weight and its scales leaves when both were written: until then the
 * first one's memory must stay, with any replica. A tensor written twice, or of another size, is
 * WEFT_E_USAGE and nothing is sent. When a transfer fails, all calls inside return the first
 * failure, when none of them reads a tensor any more; a NIC may, until weft_close has returned. A
 * call that comes after the failure is refused at once: those inside may still be reading
 * theirs. */
WEFT_API int weft_update_write(weft_worker *worker, uint32_t id, const weft_memory *memory,
			       weft_error *error);
/* Every tensor at once, memory[id] each (its pointer NULL for tensors that are not wanted, or were
 * written in this update), `count` as many as were declared, in the plan's send order
 * (weft_plan_view.order). */
WEFT_API int weft_update_write_all(weft_worker *worker, const weft_memory *memory, size_t count,
				   size_t stride, weft_error *error);
/* Some tensors, by name, in any order, as a framework's all-gather gives them. Each is this trainer's
 * held rows of it. A tensor that is not declared, comes twice, was written before, or has another
 * dtype, shape or size is named (WEFT_E_USAGE), and nothing of the bucket is sent; one that is
 * declared and wanted by nobody is passed over. */
typedef struct weft_slice {
	size_t size;
	const char *name, *dtype;
	uint32_t dims;
	uint32_t reserved;             /* 0 */
	uint64_t shape[WEFT_DIMS_MAX]; /* of the held rows */
	const weft_memory *memory;
} weft_slice;
#define WEFT_SLICE_INIT WEFT_INIT(weft_slice)
WEFT_API int weft_update_write_bucket(weft_worker *worker, const weft_slice *slices, size_t count,
				      size_t stride, weft_error *error);
/* Waits until the memory of everything written by calls that have returned may be reused; the update
 * stays open. WEFT_E_STATE names a tensor that waits for another one (see weft_update_write). */
WEFT_API int weft_update_drain(weft_worker *worker, weft_error *error);
/* Waits for all writes, then signals; with weft-controller --hedge also until no rank asks this trainer for the pieces of one that is
 * late, whose place it takes then: an interrupt ends that wait, and the update has ended. Refuses (WEFT_E_STATE, the update stays open) while a
 * wanted tensor was not written, naming up to four and their count, or while another call is
 * writing. After 0 the tensors may be reused. */
WEFT_API int weft_update_end(weft_worker *worker, weft_error *error);
/* A whole update from what replica "full" keeps, without tensors: begins `version`, larger than any
 * before, sends the last version that ended here once more, ends. WEFT_E_STATE with the reason when
 * it keeps none whole: with a ring, before the first end, after an update that was given up had
 * written into it, or where inference ranks want different bytes of one parameter from this trainer
 * (their homes keep the last rank's). */
WEFT_API int weft_update_replay(weft_worker *worker, uint64_t version, weft_error *error);
/* Between two updates, while a trainer has nothing to send: where an engine waits to come in, it comes in now; where a trainer was
 * lost, the job goes on without it now. *version is what all trainers are to send once more, as any update (begin, write, end): the
 * last one that was ended, to those engines alone that come in or had to give it up. Their ranks wait for it (WEFT_VERSION_NEXT, after
 * WEFT_E_ABORTED); all others have it, take no part, and are in weft_update_wait for their next one (they pause there). 0: nobody
 * lacks it, or a trainer began the next update meanwhile and they have that one. Trainers call it together, as they begin updates: where one waits in it, the others are waited for, here or in
 * weft_update_begin, for the update timeout. Else it returns at once, and may be asked as often as one likes. What it named it names
 * until that was begun, and weft_update_begin for another version is WEFT_E_STATE meanwhile; so ask again after an interrupt. A version
 * that a trainer who is here gave up is not sent once more. WEFT_E_STATE while an update is open.
 * Where other engines show that version, in a layout that the newcomer has too, they send it, trainers are asked for nothing, and *version is 0
 * (weft-controller --catch-up-from). */
WEFT_API int weft_update_repeat(weft_worker *worker, uint64_t *version, weft_error *error);
/* The same, by a trainer that has nothing to send once more, such as one whose tensors have changed: lets engines in that wait, and
 * the job go on without a trainer that was lost. Who comes in has the last version from another engine that shows it, or else the
 * next one from trainers. Called together with weft_update_repeat, or by all; returns 0 at once where nobody waits. WEFT_E_STATE
 * while an update is open, or what weft_update_repeat has named is still to be sent. */
WEFT_API int weft_update_admit(weft_worker *worker, weft_error *error);
/* Gives the update up: targets are told, stay tainted, and accept a later version. WEFT_E_STATE while
 * another call is writing. */
WEFT_API int weft_update_abort(weft_worker *worker, const char *why, weft_error *error);

/* ---- updates: inference ---- */

#define WEFT_VERSION_NEXT 0 /* whatever version the trainers begin next */
#define WEFT_TORN 1         /* weft_read_end: an update came in between; read again */
#define WEFT_NONE 2         /* weft_read_begin: nothing published, or being updated in place */
#define WEFT_AGAIN 3        /* weft_update_try_*: not yet */

/* Opens this rank's memory for `version`, waits for all its signals, verifies, calls the hook of
 * weft_set_post_load, publishes: together with the other ranks of its engine (weft-controller --commit), so it
 * begins when all of them are in it for the same version, fails when one of them does (WEFT_E_ABORTED with its words), and readers
 * of all are shown the version at once. From that beginning until it returns 0 the memory may change (without shadow).
 * Where another engine comes in, it may first send that what it shows, for three quarters of the update timeout at most.
 * version == published: returns at once; older: WEFT_E_VERSION. A failed update leaves the rank tainted (without shadow):
 * readers get WEFT_NONE until a later update succeeds. *published may be NULL. */
WEFT_API int weft_update_wait(weft_worker *worker, uint64_t version, uint32_t timeout_ms,
			      uint64_t *published, weft_error *error);
/* Inference with commit_by_host, for an engine's scheduler that switches all ranks at the same step: shows the version that
 * weft_update_wait has prepared here (it said 0 and the version), in one store, without a word to anybody; the host calls it
 * on each rank once weft_update_wait has said 0 on all of them. Until then readers have the version before, and a wait for
 * another one is WEFT_E_STATE. What is prepared can also be shown when the job has failed since, or after a peer died. Shown
 * already: 0. Anything else: WEFT_E_STATE with what is prepared. Not while another call of this worker is in an update. */
WEFT_API int weft_commit_at(weft_worker *worker, uint64_t version, weft_error *error);
WEFT_API uint64_t weft_published(const weft_worker *worker); /* [any thread] 0: none */
/* [any thread after join] The version that trainers were about to begin when the plan was made that this worker has: the first
 * one that there is for an engine, or a trainer, which came to a job that runs. 0: they had begun none. */
WEFT_API uint64_t weft_next_version(const weft_worker *worker);
WEFT_API int weft_tainted(const weft_worker *worker);        /* [any thread] */

/* A hook inside weft_update_wait, on its thread: called when every byte of the version is here and
 * verified, before it is published. There an engine rebuilds what it derives from parameters and
 * nobody sends (w_kc and w_vc, requantised scales, shuffled copies: `weft model layout --derived`).
 * Answer other than 0: nothing is published, the rank is tainted (with shadow: stays on its last
 * version), weft_update_wait is WEFT_E_POST_LOAD with the number, and a later version recovers.
 * The hook has no deadline here: trainers have ended this update, but their next weft_update_begin
 * waits for this rank. Inside, weft_update_*, weft_leave and weft_set_post_load are WEFT_E_STATE;
 * weft_close must not be called. */
typedef int weft_post_load(void *context, uint64_t version);
/* Inference, any time outside weft_update_wait, whose next calls use it. hook NULL: none. */
WEFT_API int weft_set_post_load(weft_worker *worker, weft_post_load *hook, void *context,
				weft_error *error);
/* [any thread, while the hook runs] Where the parameter's bytes of the version being loaded lie;
 * NULL outside of the hook. */
WEFT_API const void *weft_loaded_memory(const weft_worker *worker, uint32_t id);

/* [any thread] A reader's bracket. begin: 0 and the version, or WEFT_NONE. Then read through
 * weft_param_memory(worker, id, version), device memory with memory "cuda". end: 0 when all that was read is of that version,
 * WEFT_TORN when not. Never blocks; a reader is never waited for. */
WEFT_API int weft_read_begin(const weft_worker *worker, uint64_t *version);
WEFT_API int weft_read_end(const weft_worker *worker, uint64_t version);
/* [any thread] Where the parameter's bytes of that version lie; NULL for a version that is not
 * here. Without shadow it never moves between join and close, and version 0 gives it at any time
 * after join, whatever lies there. */
WEFT_API const void *weft_param_memory(const weft_worker *worker, uint32_t id,
				       uint64_t version);

/* [any thread] Inference with memory "cuda": what is queued on the cudaStream_t (NULL: the default one) from now on
 * waits on the GPU until `version`, or a later one, is published here. It does not keep the next update from changing
 * the memory: that is what weft_read_end tells. weft_close lets all such streams go on, though no version came.
 * WEFT_E_UNSUPPORTED where the device cannot wait for a word. */
WEFT_API int weft_stream_wait(weft_worker *worker, uint64_t version, void *stream, weft_error *error);

/* [any thread] XXH3-128 of a parameter's bytes, as 32 hex digits; WEFT_NONE when that version is
 * not here, WEFT_TORN when an update came in between. */
WEFT_API int weft_param_digest(const weft_worker *worker, uint32_t id, uint64_t version,
			       char digest[33]);

/* ---- without blocking: event loops ---- */

/* A descriptor (eventfd) for poll(2), epoll or asyncio, readable when there may be something to do:
 * a peer's signal came (an update may begin, or part of a version arrived), a version was published,
 * half a second of a try passed (who has died or is late is found by the next one), or its deadline,
 * an engine left or came, weft_interrupt was called, the worker failed (which then may take 0.1 s). It stays readable until one of the three calls below, which clear it first and then look,
 * so nothing is missed; it may be readable with nothing to do. From weft_join to weft_leave; a second
 * call gives the same one. The worker owns it and weft_close closes it: nobody else reads, writes or
 * closes it, and one loop watches it. The first call starts a thread, which sleeps.
 *
 *     trainer      poll ─► weft_update_try_begin(v): WEFT_AGAIN ─► poll ...  0 ─► write, end
 *     inference    weft_update_try_wait(v): WEFT_AGAIN ─► poll ─► try again ...  0: published
 *     neither      poll ─► weft_poll: 0, or why nothing goes on */
WEFT_API int weft_descriptor(weft_worker *worker, int *descriptor, weft_error *error);
/* Clears it. 0, or the error of a worker that failed or was interrupted. For a loop that waits for
 * nothing of its own, as one that only reads. */
WEFT_API int weft_poll(weft_worker *worker, weft_error *error);
/* As weft_update_begin, but answers WEFT_AGAIN while a target does not accept yet. The first try
 * starts the clock of the update timeout, and a try after it is the same WEFT_E_TIMEOUT, naming who
 * does not accept; the next starts a new one. Another version, or weft_update_begin, takes the
 * place of the one tried. Nothing is begun before 0 is answered. */
WEFT_API int weft_update_try_begin(weft_worker *worker, uint64_t version, weft_error *error);
/* As weft_update_wait, but answers WEFT_AGAIN while signals are missing. The first try opens this
 * rank's memory, which from then on may change, and starts the clock; each waits for the copies of what landed
 * (landing_bytes), and trainers wait for the next; the try that finds all signals verifies, runs the hook and publishes, which takes its time, on the calling thread. One after
 * timeout_ms (0: the update timeout) of the first is WEFT_E_TIMEOUT, naming who is missing. Another
 * version, or weft_update_wait, takes the place of the one tried. A worker that is closed in between
 * has not done its work. */
WEFT_API int weft_update_try_wait(weft_worker *worker, uint64_t version, uint32_t timeout_ms,
				  uint64_t *published, weft_error *error);

/* ---- figures ---- */

typedef struct weft_stats {
	size_t size;
	uint64_t updates, bytes, writes, chunks, pieces_direct, pieces_mapped, pieces_replica;
	uint64_t update_ns;       /* of the last update, begin to end / wait to publish */
	uint64_t wait_ns, copy_ns, verify_ns; /* parts of it; copy_ns: while any call was writing */
	uint64_t post_load_ns;    /* inference: in the hook; a part of update_ns too */
	uint64_t packed_bytes;    /* into the replica; a block that lost its place in the ring
				     counts again */
	uint64_t parts_copacked;  /* parts of pieces that were packed in the pass over the slice
				     beside them */
	uint64_t launches;        /* trainer with memory "cuda": kernels, of all updates */
	uint64_t install_ns;      /* inference: of update_ns, from the last byte to publication (verified, copied
				     where it is staged, post-loaded); wait_ns is what was before */
	uint64_t pause_ns;        /* inference: readers had no version: with shadow 0, staged the copy and the hook,
				     in place all of update_ns */
	uint64_t pieces_landed;   /* trainer: into landing_bytes of the inference rank, however they left here */
	uint64_t saved_bytes;     /* trainer: of `bytes`, those that were not sent, for they did not differ (weft-controller --delta) */
} weft_stats;
#define WEFT_STATS_INIT WEFT_INIT(weft_stats)
/* [any thread after join, on a trainer] Of an inference rank: not while it is in weft_update_wait. */
WEFT_API int weft_get_stats(const weft_worker *worker, weft_stats *stats, weft_error *error);

/* ---- losses ---- */

/* An engine, or a trainer, that has left a job that goes on without it (weft-controller --on-loss continue). */
typedef struct weft_loss {
	size_t size;
	uint32_t first, count;    /* its ranks: [first, first + count) */
	int code;                 /* enum weft_code: why (0: all its ranks did their work and left), */
	uint32_t back;            /* 1: another one has come in its place */
	char text[1024];          /* and in words: which of its ranks was lost, and how */
	uint32_t role;            /* enum weft_role */
	uint32_t reserved;        /* 0 */
} weft_loss;
#define WEFT_LOSS_INIT WEFT_INIT(weft_loss)
/* [any thread after join] The index-th of them, from 0, in the order in which this worker heard of them, which is while it
 * waits or not; WEFT_NONE when there are not so many. A host that gives engines work looks after each update. */
WEFT_API int weft_loss_at(const weft_worker *worker, uint32_t index, weft_loss *loss, weft_error *error);

/* ---- close ---- */

/* Tells the controller that this worker is done. */
WEFT_API int weft_leave(weft_worker *worker, weft_error *error);
/* This worker cannot go on for a reason of its own program: no such checkpoint, an exception. At any stage
 * from weft_open to weft_close. Everybody else, those who wait in weft_join too, gets within a second
 *
 *     trainer 0 (host a, pid 12) failed before the job ran: no such checkpoint /x
 *
 * with `code`, one of enum weft_code (0 and others: WEFT_E_HOST). `text` is one line; control characters in it are
 * shown escaped. It waits until the controller has heard, 2 s at most (then WEFT_E_CONTROLLER_LOST), so a
 * program may exit after it. Later calls are this error; the worker can only be closed. A trainer lets go then of what
 * it has mapped of others' memory, once no other call of an update is inside, as it does in any call of an update, weft_join
 * or weft_poll that fails for good: nobody waits for the host to close it.
 * 0 also when the job had failed already: what came first is what everybody is told. */
WEFT_API int weft_fail(weft_worker *worker, int code, const char *text, weft_error *error);
/* Leaves if needed (as one that did not do its work after weft_interrupt, inside an update, or when the last
 * update failed here; the controller then fails the job). A host that closes after a call that failed, of those
 * that declare, register, compare, write or wait, and no such call went well since, could not go on because of
 * it (but for WEFT_E_UNSAFE, where other memory helps): unless its work was done, which before weft_join it never
 * is, the others are told that message, as by weft_fail. Then it fences peers out of host memory and frees
 * weft's. NULL inside is fine; sets NULL. In a forked child, where what declares, joins, updates or leaves is
 * WEFT_E_STATE, it only lets go.
 *
 * 0, or -WEFT_E_UNSAFE, which the log explains; the worker is gone in either case. With own_memory a
 * trainer of this host may have been stopped (or be stuck) in the middle of a write of that memory, for
 * more than 5 s: no system call takes that back, and the bytes land when it goes on. Until its process
 * has ended, or has finished the write, the host must not read weights there, free or reuse the memory:
 * freed, its addresses may be anything else. Declaring or binding it again (weft_declare_param,
 * weft_param_bind, weft_join) is refused with WEFT_E_UNSAFE for as long, naming rank, process and range. */
WEFT_API int weft_close(weft_worker **worker);

#ifdef __cplusplus
}
#endif
#endif
