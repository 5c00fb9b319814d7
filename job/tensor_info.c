/* SPDX-License-Identifier: Apache-2.0 */
#include "job/tensor_info.h"

#include "base/array.h"
#include <string.h>

#define SHAPE_TEXT_BYTES 160

static int check_shape(const char *what, struct tensor_info *info, struct error *error)
{
	if (!info->name[0])
		return error_set(error, ERROR_CONFIG, "a %s without a name", what);
	if (info->dims == 0 || info->dims > BOX_DIMS_MAX)
		return error_set(error, ERROR_CONFIG,
				 "%s %s has %u dimensions; 1 to %d are possible", what, info->name,
				 info->dims, BOX_DIMS_MAX);
	if (dtype_bytes(info->dtype) == 0)
		return error_set(error, ERROR_CONFIG, "%s %s has no known dtype (%d)", what,
				 info->name, (int)info->dtype);
	for (uint32_t d = 0; d < info->dims; d++)
		if (info->shape[d] == 0)
			return error_set(error, ERROR_CONFIG, "%s %s has size 0 in dimension %u",
					 what, info->name, d);
	if (!shape_bytes(info->dims, info->shape, dtype_bytes(info->dtype), &info->bytes))
		return error_set(error, ERROR_LIMIT, "%s %s is larger than 2^62 bytes", what,
				 info->name);
	return 0;
}

static int same_tensor(const struct tensor_info *known, const struct tensor_info *wanted,
		       struct error *error)
{
	char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];

	if (known->dtype != wanted->dtype || known->dims != wanted->dims ||
	    memcmp(known->shape, wanted->shape, sizeof(known->shape)) != 0)
		return error_set(error, ERROR_CONFLICT,
				 "tensor %s is declared twice: as %s %s and as %s %s", known->name,
				 dtype_name(known->dtype),
				 shape_text(known->dims, known->shape, a, sizeof(a)),
				 dtype_name(wanted->dtype),
				 shape_text(wanted->dims, wanted->shape, b, sizeof(b)));
	if (known->order != wanted->order)
		return error_set(error, ERROR_CONFLICT,
				 "tensor %s is declared at place %u and at place %u of the "
				 "checkpoint",
				 known->name, known->order, wanted->order);
	return 0;
}

/* Finds or appends. */
int64_t named_add(const struct named_list *list, const char *name, enum dtype dtype, uint32_t dims,
		  const uint64_t *shape, uint32_t order, struct error *error)
{
	struct tensor_info info = {
		.name = (char *)(uintptr_t)name, .dtype = dtype, .dims = dims, .order = order};
	struct tensor_info *added;
	uint32_t index;
	int rc;

	if (dims <= BOX_DIMS_MAX)
		memcpy(info.shape, shape, dims * sizeof(*shape));
	rc = check_shape(list->what, &info, error);
	if (rc)
		return rc;
	if (strmap_get(list->map, name, &index)) {
		rc = list->once ? error_set(error, ERROR_CONFLICT, "%s %s is declared twice",
					    list->what, name)
				: same_tensor(&(*list->items)[index], &info, error);
		return rc ? rc : (int64_t)index;
	}
	info.name = pool_string(list->names, name);
	if (!info.name || !(added = array_push_raw((void **)list->items, list->count,
						   list->capacity, sizeof(info))))
		return memory_error(error, list->adding, sizeof(info));
	*added = info;
	if (!strmap_put(list->map, info.name, (uint32_t)*list->count - 1))
		return memory_error(error, list->naming, strlen(name));
	return (int64_t)*list->count - 1;
}

void tensor_info_digest(struct digest_stream *stream, const struct tensor_info *info)
{
	digest_add_string(stream, info->name);
	digest_add_u64(stream, (uint64_t)info->dtype);
	digest_add_u64(stream, info->dims);
	for (uint32_t d = 0; d < info->dims; d++)
		digest_add_u64(stream, info->shape[d]);
}
