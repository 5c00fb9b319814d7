/* SPDX-License-Identifier: Apache-2.0
 *
 * send_bucket.c -- tensors by name and many at once, as a framework's all-gather has them.
 */
#include "worker/update/send.h"

#include "base/compare.h"
#include "base/memory.h"

#include <stdio.h>

static int bad_slice(const struct sender *sender, const char *name, const char *what,
		     struct error *error)
{
	return error_set(error, ERROR_USAGE, "update %llu: tensor %.300s %s; nothing was sent",
			 (unsigned long long)sender->schedule.version, name, what);
}

static int check_shape(const struct sender *sender, const struct bucket_slice *slice, uint32_t id,
		       struct error *error)
{
	const struct epoch_options *options = &sender->epoch->options;
	const struct local *held = &options->locals->items[id];
	const struct tensor_info *tensor = local_info(options->holding, held);
	char what[160];
	uint32_t d = 0; /* the first one that differs */

	if (slice->tensor.dims == tensor->dims)
		while (d < tensor->dims &&
		       slice->tensor.shape[d] == (d ? tensor->shape[d] : held->hi - held->lo))
			d++;
	if (!slice->tensor.dtype || dtype_from_text(slice->tensor.dtype) != tensor->dtype)
		snprintf(what, sizeof(what), "is given as %.20s, declared as %s",
			 slice->tensor.dtype ? slice->tensor.dtype : "no dtype",
			 dtype_name(tensor->dtype));
	else if (slice->tensor.dims != tensor->dims)
		snprintf(what, sizeof(what), "is given with %u dimensions, declared with %u",
			 slice->tensor.dims, tensor->dims);
	else if (d < tensor->dims)
		snprintf(what, sizeof(what), "has %llu in dimension %u, %llu are %s",
			 (unsigned long long)slice->tensor.shape[d], d,
			 (unsigned long long)(d ? tensor->shape[d] : held->hi - held->lo),
			 d ? "declared" : "the rows held here");
	else if (!slice->memory.pointer || slice->memory.bytes != held->bytes)
		snprintf(what, sizeof(what), "has %llu bytes here, given %llu%s",
			 (unsigned long long)held->bytes, (unsigned long long)slice->memory.bytes,
			 slice->memory.pointer ? "" : " at NULL");
	else
		return 0;
	return bad_slice(sender, slice->tensor.name, what, error);
}

/* The slice's tensor. */
static int check_slice(struct sender *sender, const struct bucket_slice *slice, uint32_t *id,
		       struct error *error)
{
	int rc;

	if (!slice->tensor.name)
		return bad_slice(sender, "(NULL)", "has no name", error);
	if (!locals_named(sender->epoch->options.locals, sender->epoch->options.holding,
			  slice->tensor.name, id))
		return bad_slice(sender, slice->tensor.name, "is not declared", error);
	rc = check_shape(sender, slice, *id, error);
	if (!rc && send_plan_wants(&sender->epoch->send, *id))
		rc = sender_check_tensor(sender, *id, slice->memory.pointer, error);
	return rc;
}

/* The bucket's tensors, sorted: a tensor that comes twice stands beside itself. */
int bucket_check(struct sender *sender, const struct bucket_slice *slices, size_t count,
		 uint32_t *ids, struct error *error)
{
	uint32_t *sorted = ids + count;

	for (size_t i = 0; i < count; i++) {
		int rc = check_slice(sender, &slices[i], &ids[i], error);

		if (rc)
			return rc;
		sorted[i] = ids[i];
	}
	sort_items(sorted, count, compare_u32s);
	for (size_t i = 1; i < count; i++)
		if (sorted[i] == sorted[i - 1])
			return bad_slice(sender, send_plan_name(sender->epoch, sorted[i]),
					 "is in the bucket twice", error);
	return 0;
}

/* Rows of all its tensors in send order, each once. NULL: no memory. */
uint32_t *bucket_rows(const struct send_plan *plan, const uint32_t *ids, size_t tensors,
		      size_t *count)
{
	size_t most = 0, kept = 0;
	uint32_t *rows;

	for (size_t i = 0; i < tensors; i++)
		most += plan->tensor_first[ids[i] + 1] - plan->tensor_first[ids[i]];
	rows = memory_zalloc(most, sizeof(*rows));
	if (!rows)
		return NULL;
	*count = 0;
	for (size_t i = 0; i < tensors; i++)
		for (uint32_t k = plan->tensor_first[ids[i]]; k < plan->tensor_first[ids[i] + 1];
		     k++)
			rows[(*count)++] = plan->tensor_rows[k];
	sort_items(rows, *count, compare_u32s);
	for (size_t i = 0; i < *count; i++)
		if (!kept || rows[i] != rows[kept - 1])
			rows[kept++] = rows[i];
	*count = kept;
	return rows;
}
