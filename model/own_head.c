/* SPDX-License-Identifier: Apache-2.0 */
#include "model/own_head.h"

#include "model/beside.h"
#include "model/family.h"
#include "model/tower.h"
#include <string.h>

static bool find(const char *path, const struct model_config *config, const char *tensor,
		 struct beside *found)
{
	char name[RULE_NAME_BYTES];

	strcpy(name, tensor);
	return tower_tensor_name(config->tower, name) && beside_find(path, name, found);
}

static bool same_bytes(const struct beside *a, const struct beside *b)
{
	uint64_t bytes = a->entry->end - a->entry->begin;
	const unsigned char *one = beside_data(a), *other = beside_data(b);

	return one && other && bytes == b->entry->end - b->entry->begin &&
	       memcmp(one, other, bytes) == 0;
}

void own_head_look(const char *path, struct model_config *config)
{
	struct beside head = {0}, embedding = {0};

	if (!config->tied)
		return;
	if (find(path, config, HEAD_TENSOR, &head))
		config->own_head =
			config->family->own_head ||
			!find(path, config, config->family->rules[0].tensor, &embedding) ||
			!same_bytes(&head, &embedding);
	beside_fini(&embedding);
	beside_fini(&head);
}
