/* SPDX-License-Identifier: Apache-2.0
 *
 * derived.h -- what an engine keeps beside its parameters: tensors that it makes of them after a
 * load, and scalars of its own. Nothing here is routed or written: after an update of the
 * parameters they are stale until the engine makes them again, before it serves the version
 * (weft.h: weft_set_post_load).
 *
 *   kv_b_proj.weight [h/A (dn + dv), kl]           written by weft
 *     each head: dn rows ──► w_kc [h/A, dn, kl]    made by the engine, head by head
 *                dv rows ──► w_vc [h/A, kl, dv]
 *
 * One row of a table a tensor (derived.c). Sources: SGLang's DeepSeek weight loader, fp8_utils
 * and glm4_moe; vLLM's MLA attention. They are read there, not executed here.
 */
#ifndef MODEL_DERIVED_H
#define MODEL_DERIVED_H

#include "base/error.h"
#include "job/layout.h"
#include "job/parallel.h"
#include <stdbool.h>
#include <stddef.h>

struct model;

enum derived_state {
	DERIVED_REBUILT,  /* always there; the engine makes it after every load */
	DERIVED_OPTIONAL, /* the same, in the builds or on the hardware that `only` names */
	DERIVED_VIEW,     /* the parameter's own bytes in another shape: right as soon as they are */
	DERIVED_CONSTANT, /* not made of any tensor; no load changes it */
	DERIVED_STALE,    /* nobody makes it again: wrong after the first update */
	DERIVED_STATE_COUNT
};

struct derived_kind {
	const char *name;        /* "w_kc", below the module of the parameter it is made of */
	enum derived_state state;
	const char *how;         /* what it is made of, as a sentence */
	const char *by;          /* who makes it again; NULL: nobody needs to, or nobody does */
	const char *only;        /* where it exists; NULL: everywhere */
};

#define DERIVED_NO_PARAM UINT32_MAX

struct derived {
	char *name;              /* "model.layers.3.self_attn.w_kc"; owned by the list */
	const struct derived_kind *kind;
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	uint64_t strides[BOX_DIMS_MAX]; /* in elements: engines keep transposed views */
	uint64_t bytes;          /* of its own storage, alignment included; 0 of a view */
	uint32_t param, scales;  /* of the layout, or DERIVED_NO_PARAM */
};

struct derived_list {
	struct derived *items;   /* by parameter, then by row of the table */
	size_t count, capacity;
};

/* All of one rank, whose layout this is. Initialises *list; empty after a failure
 * (ERROR_MEMORY; ERROR_UNSUPPORTED of a layout file's, which says nothing of it). */
int derived_list(struct derived_list *list, const struct model *model,
		 const struct infer_spec *infer, const struct layout *layout,
		 struct error *error);
void derived_list_fini(struct derived_list *list);
/* "rebuilt", "optional", "view", "constant", "stale" */
const char *derived_state_name(enum derived_state state);

#endif
