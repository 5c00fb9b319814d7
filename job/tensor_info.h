/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_info.h -- names with a dtype and a shape, and lists of them: tensors of a checkpoint, parameters of an engine or of
 * a trainer.
 */
#ifndef JOB_TENSOR_INFO_H
#define JOB_TENSOR_INFO_H

#include "base/error.h"
#include "base/pool.h"
#include "job/box.h"
#include "job/digest.h"
#include "job/dtype.h"
#include "job/strmap.h"
#include <stddef.h>

/* A tensor of the checkpoint, or a parameter of an engine or a trainer. */
struct tensor_info {
	char *name;        /* owned by who has the list */
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	uint64_t bytes;    /* product of shape times element size */
	uint32_t order;    /* place in checkpoint order; tensors of holdings only, else 0 */
};

/* Where one of them goes, and in what words it fails. */
struct named_list {
	struct tensor_info **items;
	size_t *count, *capacity;
	struct strmap *map;
	struct pool *names;
	const char *what, *adding, *naming;
	bool once; /* a name may not be given again */
};
#define NAMED_LIST(owner, item, word, no_more)                                           \
	&(struct named_list)                                                             \
	{                                                                                \
		&(owner)->item##s, &(owner)->item##_count, &(owner)->item##_capacity,    \
			&(owner)->item##_names, &(owner)->names, word, "adding a " word, \
			"naming a " word, no_more                                        \
	}

/* Finds or appends: the index, or a negative error. The name is copied. */
int64_t named_add(const struct named_list *list, const char *name, enum dtype dtype, uint32_t dims,
		  const uint64_t *shape, uint32_t order, struct error *error);
/* Name, dtype and shape; order is not in it. */
void tensor_info_digest(struct digest_stream *stream, const struct tensor_info *info);

#endif
