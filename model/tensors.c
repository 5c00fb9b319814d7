/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tensors.h"

#include "model/family.h"
#include <string.h>

struct walk {
	const struct model_config *config;
	const struct family *family;
	tensor_visit *visit;
	void *context;
	struct error *error;
};

static int give(const struct walk *walk, const struct rule *rule, const struct model_tensor *tensor)
{
	struct model_tensor whole = *tensor;

	if (!shape_bytes(whole.dims, whole.shape, dtype_bytes(whole.dtype), &whole.bytes))
		return error_set(walk->error, ERROR_INTERNAL, "row %s makes no tensor",
				 rule->tensor);
	return walk->visit(walk->context, &whole,
			   rule_in_layer(rule) && tensor->layer >= (int64_t)walk->config->layers);
}

static uint64_t blocks(uint64_t size, uint64_t block)
{
	return (size + block - 1) / block;
}

/* The row's tensor and, quantised, its scales. */
static int give_row(const struct walk *walk, size_t row, int64_t layer, uint32_t expert)
{
	const struct model_config *config = walk->config;
	const struct rule *rule = &walk->family->rules[row];
	bool quantised = rule->store == STORE_LINEAR && config->block_rows;
	struct model_tensor tensor = {
		.dtype = config->dtype,
		.dims = rule_dims(rule),
		.layer = layer,
		.rule = (uint32_t)row,
		.expert = expert,
	};
	int rc;

	rule_shape(rule, config, tensor.shape);
	if (quantised)
		tensor.dtype = DTYPE_F8_E4M3;
	else if (rule->store == STORE_MXFP4 || rule->store == STORE_MXFP4_SCALES)
		tensor.dtype = DTYPE_U8;
	else if ((rule->store == STORE_F32 && !config->router_bias_cast) ||
		 (rule->store == STORE_F32_WITH_FP8 && config->block_rows))
		tensor.dtype = DTYPE_F32;
	rc = give(walk, rule, &tensor);
	if (rc || !quantised)
		return rc;
	tensor.dtype = DTYPE_F32;
	tensor.scale = true;
	tensor.shape[0] = blocks(tensor.shape[0], config->block_rows);
	tensor.shape[1] = blocks(tensor.shape[1], config->block_columns);
	return give(walk, rule, &tensor);
}

/* The neighbouring rows [first, last) of experts, expert by expert. */
static int give_experts(const struct walk *walk, size_t first, size_t last, int64_t layer)
{
	int rc = 0;

	for (uint32_t expert = 0; expert < walk->config->experts && rc == 0; expert++)
		for (size_t r = first; r < last && rc == 0; r++)
			if (condition_holds(walk->family->rules[r].when, walk->config, layer))
				rc = give_row(walk, r, layer, expert);
	return rc;
}

/* One layer of the block of rows [first, last). */
static int give_layer(const struct walk *walk, size_t first, size_t last, int64_t layer)
{
	const struct rule *rules = walk->family->rules;
	size_t r = first;
	int rc = 0;

	while (r < last && rc == 0) {
		size_t start = r;

		while (r < last && rule_in_expert(&rules[r]))
			r++;
		if (r > start) {
			rc = give_experts(walk, start, r, layer);
			continue;
		}
		if (condition_holds(rules[r].when, walk->config, layer))
			rc = give_row(walk, r, layer, EXPERT_NONE);
		r++;
	}
	return rc;
}

/* The layers [from, to) of every block of rows and, where `outside`, the rows between blocks. */
static int give_layers(const struct walk *walk, uint64_t from, uint64_t to, bool outside)
{
	const struct family *family = walk->family;
	int64_t place = -1;
	size_t r = 0;
	int rc = 0;

	while (r < family->rule_count && rc == 0) {
		size_t first = r;

		while (r < family->rule_count && rule_in_layer(&family->rules[r]))
			r++;
		for (uint64_t layer = from; layer < to && r > first && rc == 0; layer++)
			rc = give_layer(walk, first, r, (int64_t)layer);
		if (r > first) {
			place = (int64_t)walk->config->layers;
			continue;
		}
		if (outside && condition_holds(family->rules[r].when, walk->config, place))
			rc = give_row(walk, r, place, EXPERT_NONE);
		r++;
	}
	return rc;
}

int tensors_each(const struct model_config *config, tensor_visit *visit, void *context,
		 struct error *error)
{
	const struct walk walk = {config, config->family, visit, context, error};
	int rc = give_layers(&walk, 0, config->layers, true);

	if (rc == 0)
		rc = give_layers(&walk, config->layers, config->layers + config->mtp_layers, false);
	return rc;
}

struct sums {
	struct model_total *totals;
	const struct model_config *config;
	struct error *error;
};

/* Scales and rotary frequencies are no parameters. */
static bool counts(const struct model_config *config, const struct model_tensor *tensor)
{
	return !tensor->scale &&
	       !(config->family && config->family->rules[tensor->rule].when == IF_ROTARY);
}

bool tensor_counts(const struct model *model, const struct model_tensor *tensor)
{
	return counts(&model->config, tensor);
}

static int add_up(void *context, const struct model_tensor *tensor, bool mtp)
{
	const struct sums *sums = context;

	for (int all = mtp; all < 2; all++) {
		struct model_total *total = &sums->totals[all];

		total->tensors++;
		total->bytes += tensor->bytes;
		if (counts(sums->config, tensor))
			total->parameters += tensor->bytes / dtype_bytes(tensor->dtype);
	}
	if (sums->totals[1].tensors > MODEL_TENSORS_MAX)
		return error_set(sums->error, ERROR_LIMIT,
				 "%llu layers of %llu experts make more than %u tensors, which is "
				 "the most that a job can have",
				 (unsigned long long)sums->config->layers,
				 (unsigned long long)sums->config->experts, MODEL_TENSORS_MAX);
	return 0;
}

int model_totals(const struct model_config *config, struct model_total totals[2],
		 struct error *error)
{
	struct sums sums = {totals, config, error};

	memset(totals, 0, 2 * sizeof(*totals));
	return tensors_each(config, add_up, &sums, error);
}
