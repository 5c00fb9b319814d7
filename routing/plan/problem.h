/* SPDX-License-Identifier: Apache-2.0
 *
 * problem.h -- the input of routing: tensors in checkpoint order, who holds which boxes, which
 * pieces each inference rank needs. Pure data; built from declarations (a live job) or from a
 * model and two parallel specs (offline): both ways give equal problems, so equal dumps.
 *
 * Layouts and holdings are shared: eight identical engines have tp layouts, not 8*tp, and all
 * trainers of a stage one holding.
 */
#ifndef ROUTING_PLAN_PROBLEM_H
#define ROUTING_PLAN_PROBLEM_H

#include "job/digest.h"
#include "base/error.h"
#include "base/pool.h"
#include "job/holding.h"
#include "job/layout.h"
#include "job/member.h"
#include "job/parallel.h"
#include "routing/plan/pairs.h"
#include <stddef.h>

struct problem_tensor {
	const char *name;   /* owned by the problem */
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	uint64_t bytes;
	uint32_t order;     /* as declared; tensors are sorted by (order, name) */
};

/* What a piece's bytes are, beside its box: two pieces of one tensor with equal boxes and equal
 * `transformed` are the same bytes. The first is a copy: the tensor's bytes as they are. */
struct problem_transformed {
	struct transform transform;
	uint32_t scales;    /* with transform.from_rows: the problem's tensor; else 0 */
	enum dtype to;      /* DTYPE_NONE for a copy */
};

/* A distinct layout with its tensor indexes translated to the problem's. Pieces are sorted by
 * (problem tensor, src, param, offset); pieces_of[t] .. pieces_of[t+1] are tensor t's. */
struct problem_layout {
	struct digest digest;
	const struct layout *layout;  /* borrowed: names of params */
	struct piece *pieces;
	size_t piece_count;
	uint32_t *transformed;        /* by piece: index into problem.transformed */
	uint32_t *pieces_of;          /* tensor_count + 1 entries */
};

/* Distinct holding: for each problem tensor the boxes held, sorted. held_of[t] .. held_of[t+1]. */
struct problem_held {
	struct box box;
	struct placement place;
	uint64_t reach; /* the last row, plus 1, of this one and all before it */
};
struct problem_holding {
	struct digest digest;
	struct problem_held *held;
	size_t held_count;
	uint32_t *held_of;
};

struct problem {
	struct pool pool;             /* owns all but `model` and `transformed` */
	char *model, *train, *infer;  /* labels, printed in dumps */
	uint32_t ranks_per_engine;    /* 0 when unknown: then every rank is its own engine rank */
	struct problem_tensor *tensors;
	size_t tensor_count;
	struct problem_transformed *transformed;
	size_t transformed_count;     /* 1 when all is copied */
	struct problem_layout *layouts;
	size_t layout_count;
	struct problem_holding *holdings;
	size_t holding_count;
	bool boxed;                   /* some trainer holds a box that is no whole rows */
	uint32_t *trainer_holding;    /* trainer rank -> holding */
	uint32_t *trainer_stage;      /* trainer rank -> pp stage, for people; 0 when unknown */
	uint32_t trainer_count;
	uint32_t *inference_layout;   /* inference rank -> layout */
	uint32_t inference_count;
	bool *trainer_away, *inference_away; /* who has left the job, or is yet to come: holds and needs nothing */
	/* facts for the path (path.h): bit per pair would be large, so per rank */
	bool *inference_mapped;       /* target memory can be mapped by trainers */
	bool *inference_landed;       /* .. or cannot be written: the rank puts in place what lands beside it */
	bool *trainer_registered;
	bool *trainer_merges;         /* small pieces of its may be merged: its bytes pass the host */
	struct pairs *pairs;          /* NULL: one transport, and the facts above; else its own */
};

/* A declaration as it came; pointers are borrowed until problem_build returns. layouts and
 * holdings stay borrowed for the life of the problem. */
struct problem_input {
	const char *model, *train, *infer;
	uint32_t ranks_per_engine;
	const struct holding *const *trainers;   /* trainer_count */
	const struct digest *trainer_digests;
	const uint32_t *trainer_stages;          /* NULL: 0 */
	const bool *trainer_registered;          /* NULL: all true */
	const bool *trainer_device;              /* its tensors lie on a GPU; NULL: none do */
	uint32_t trainer_count;
	const struct layout *const *inference;   /* inference_count */
	const struct digest *inference_digests;
	const bool *inference_mapped;            /* NULL: all true */
	const bool *inference_landed;            /* NULL: none */
	uint32_t inference_count;
	const bool *trainer_away, *inference_away; /* NULL: none is; else who declares nothing */
	const struct pairs *pairs;               /* NULL: one transport; else copied */
};

/* Refuses, each by name: a tensor declared with two shapes, dtypes or orders (with both
 * declarers); a tensor that an engine parameter needs and no trainer holds, or whose rows are
 * held with a gap (ERROR_UNSOURCED: parameter, tensor, rows, and the closest holder). A tensor
 * that nobody wants is no error: problem_unwanted lists it. */
int problem_build(struct problem **problem, const struct problem_input *input,
		  struct error *error);
void problem_free(struct problem **problem);

/* After it was built: every rank's memory is one that pieces are landed for. */
void problem_land_all(struct problem *problem);
/* The same: a copy of these. */
int problem_set_pairs(struct problem *problem, const struct pairs *pairs, struct error *error);

/* The box of the holding's that this one lies in, or NULL. */
const struct problem_held *problem_held_in(const struct problem_holding *holding, uint32_t tensor,
					   const struct box *box);
/* The same of what the trainer holds. */
const struct problem_held *problem_held(const struct problem *problem, uint32_t trainer, uint32_t tensor,
					const struct box *box);
/* Does the trainer hold it, and is it one run of bytes where it lies? */
bool problem_in_one_run(const struct problem *problem, uint32_t trainer, uint32_t tensor,
			const struct box *src);
/* How this piece's bytes, which the trainer holds, get from one to the other: path.h with the facts of the pair. */
enum route_path problem_path_of(const struct problem *problem, uint32_t trainer, uint32_t inference, bool copy,
				const struct problem_held *held, const struct box *src, const struct spread *spread);
/* The same, of what the trainer holds it in. */
enum route_path problem_path(const struct problem *problem, uint32_t trainer, uint32_t inference,
			     bool copy, uint32_t tensor, const struct box *src, const struct spread *spread);

/* May what is small between the two be merged (table.h)? Where it is written by requests, and not stored into mapped memory, from the host:
 * what a NIC reads of a GPU is not copied together before. */
bool problem_merges(const struct problem *problem, uint32_t trainer, uint32_t inference);

/* Tensors that are held but wanted by no inference rank, not even as scales: indexes, ascending; memory_free. */
int problem_unwanted(const struct problem *problem, uint32_t **tensors, size_t *count,
		     struct error *error);

/* The same from a model and specs: `storage` keeps the layouts and holdings alive. away: by role and rank, of a job that lacks
 * somebody; NULL: of none. */
struct model;
struct problem_storage;
struct problem_away {
	const bool *trainers, *inference;
};
int problem_from_model_without(struct problem **problem, struct problem_storage **storage,
			       const struct model *model, const struct train_spec *train,
			       const struct infer_spec *infer, const struct problem_away *away,
			       bool mapped, struct error *error);
int problem_from_model(struct problem **problem, struct problem_storage **storage,
		       const struct model *model, const struct train_spec *train,
		       const struct infer_spec *infer, bool mapped, struct error *error);
void problem_storage_free(struct problem_storage **storage);

/* Inside of problem*.c: everything that an engine parameter needs is held by some trainer, else
 * ERROR_UNSOURCED. layout_first, holding_first: a rank that declared each, for the message. */
int problem_check(const struct problem *problem, const uint32_t *layout_first,
		  const uint32_t *holding_first, struct error *error);
/* Fills problem.transformed and transformed of each layout, whose pieces are there. */
int problem_find_transformed(struct problem *problem, struct error *error);

#endif
