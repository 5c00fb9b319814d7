/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/epoch/locals.h"

#include "base/assert.h"

#define NOWHERE UINT32_MAX

static int add(struct locals *locals, const struct local *local, struct error *error)
{
	size_t *count = local->own ? &locals->of_tensor.count : &locals->of_param.count;
	struct local *item = array_push(locals);
	bool memory = item != NULL;

	while (memory && *count <= local->index)
		memory = local->own ? array_add(&locals->of_tensor, NOWHERE)
				    : array_add(&locals->of_param, NOWHERE);
	if (!memory)
		return memory_error(error, "declaring tensors", sizeof(*local));
	*item = *local;
	(local->own ? locals->of_tensor.items : locals->of_param.items)[local->index] =
		(uint32_t)locals->count - 1;
	return 0;
}

int locals_add_rows(struct locals *locals, const struct holding *holding, uint32_t tensor,
		    uint64_t lo, uint64_t hi, struct error *error)
{
	const struct tensor_info *info = &holding->tensors[tensor];
	const struct local local = {true, tensor, lo, hi, info->bytes / info->shape[0] * (hi - lo)};

	return add(locals, &local, error);
}

int locals_add_param(struct locals *locals, const struct holding *holding, uint32_t param,
		     struct error *error)
{
	const struct tensor_info *info = &holding->locals[param];
	const struct local local = {false, param, 0, info->shape[0], info->bytes};

	return add(locals, &local, error);
}

void locals_fini(struct locals *locals)
{
	array_free(locals);
	array_free(&locals->of_tensor);
	array_free(&locals->of_param);
}

const struct tensor_info *local_info(const struct holding *holding, const struct local *local)
{
	return local->own ? &holding->tensors[local->index] : &holding->locals[local->index];
}

uint32_t locals_of(const struct locals *locals, const struct held *held)
{
	uint32_t id = held->local == HELD_OWN ? locals->of_tensor.items[held->tensor]
					      : locals->of_param.items[held->local];

	WEFT_ASSERT_OP(id, <, locals->count);
	return id;
}

bool locals_named(const struct locals *locals, const struct holding *holding, const char *name,
		  uint32_t *id)
{
	uint32_t index;

	*id = NOWHERE;
	if (strmap_get(&holding->tensor_names, name, &index) && index < locals->of_tensor.count)
		*id = locals->of_tensor.items[index];
	if (*id == NOWHERE && strmap_get(&holding->local_names, name, &index) &&
	    index < locals->of_param.count)
		*id = locals->of_param.items[index];
	return *id != NOWHERE;
}
