/* SPDX-License-Identifier: Apache-2.0
 *
 * test_source_flat.c -- what ranks of ZeRO-3 and FSDP1 hold: all of them together everything, exactly once, and each element where
 * the flat parameter has it, which is worked out here once more from the list of tensors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "source_rig.h"

#define LAYERS 3

static uint64_t elements_of(const struct model_tensor *tensor)
{
	return tensor->bytes / dtype_bytes(tensor->dtype);
}

/* Where a tensor begins in the flat parameter it is part of, and how long that is. */
static void flat_of(const struct model *model, const struct train_spec *spec, uint32_t tensor,
		    uint64_t *begin, uint64_t *length)
{
	const struct model_tensor *mine = &model->tensors[tensor];
	bool layered = mine->layer >= 0 && mine->layer < LAYERS;

	*length = 0;
	for (uint32_t t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *other = &model->tensors[t];
		bool in_layer = other->layer >= 0 && other->layer < LAYERS;

		if (strstr(other->name, SOURCE_BUFFER))
			continue;
		if (spec->source == TRAIN_ZERO3
			    ? t != tensor
			    : in_layer != layered || (layered && other->layer != mine->layer))
			continue;
		while (spec->orig && *length * dtype_bytes(other->dtype) % 16)
			++*length;
		if (t == tensor)
			*begin = *length;
		*length += elements_of(other);
	}
}

static void count_elements(const struct model *model, const struct train_spec *spec, uint32_t shard,
			   uint32_t shards, const struct holding *holding, uint8_t **seen)
{
	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];
		const struct tensor_info *info = &holding->tensors[held->tensor];
		uint64_t begin = 0, length, size;

		flat_of(model, spec, info->order, &begin, &length);
		size = (length + shards - 1) / shards;
		assert_int_equal(holding->locals[held->local].bytes,
				 size * dtype_bytes(info->dtype));
		for (uint64_t n = 0; n < box_elements(&held->box); n++) {
			uint64_t left = n, step = 1, flat = 0, to = held->place.offset;

			for (uint32_t d = held->box.dims; d-- > 0;) {
				uint64_t extent = held->box.hi[d] - held->box.lo[d];

				flat += (held->box.lo[d] + left % extent) * step;
				to += left % extent * held->place.stride[d];
				left /= extent;
				step *= info->shape[d];
			}
			assert_int_equal(begin + flat, shard * size + to);
			assert_int_equal(seen[info->order][flat]++, 0);
		}
	}
}

static void check_all_ranks(const struct source_class *class, const char *text)
{
	struct model *model = source_open(class->architecture, class->fields, LAYERS);
	struct train_spec spec = source_spec(text);
	uint8_t **seen = memory_zalloc(model->tensor_count, sizeof(*seen));

	for (size_t t = 0; t < model->tensor_count; t++)
		seen[t] = memory_zalloc(model->tensors[t].bytes, 1);
	for (uint32_t rank = 0; rank < spec.world; rank++) {
		uint32_t shards = spec.world / spec.pp;
		struct holding holding;

		source_hold_rank(model, text, rank, &holding);
		count_elements(model, &spec, rank % shards, shards, &holding, seen);
		holding_fini(&holding);
	}
	for (size_t t = 0; t < model->tensor_count; t++) {
		for (uint64_t n = 0; n < elements_of(&model->tensors[t]); n++)
			if (seen[t][n] == (strstr(model->tensors[t].name, SOURCE_BUFFER) != NULL))
				fail_msg("%s: element %llu of %s is held %u times", text,
					 (unsigned long long)n, model->tensors[t].name, seen[t][n]);
		memory_free(seen[t]);
	}
	memory_free(seen);
	model_close(&model);
}

/* No class is asked for: what is not laid out by heads or experts is not cut by them. */
static const struct source_class gpt2 = {
	"GPT2LMHeadModel",
	"\"n_embd\": 12, \"n_layer\": 3, \"n_head\": 4, \"n_positions\": 31, \"vocab_size\": 50, "
	"\"torch_dtype\": \"float32\"",
	false};

static bool has_one_dtype(const struct source_class *class)
{
	/* routers' biases are 32 bits */
	return !strstr(class->fields, "n_routed_experts") || strstr(class->fields, "greedy");
}

static void test_flat__all_ranks_have_everything_exactly_once(void **state)
{
	static const char *const specs[] = {
		"world=1,source=zero3",	       "world=4,source=zero3",
		"world=7,source=zero3",	       "world=6,source=zero3,pp=2",
		"world=4,source=fsdp1",	       "world=7,source=fsdp1",
		"world=7,source=fsdp1,orig=1", "world=3,source=fsdp1,orig=1",
	};

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
		for (size_t c = 0; c < ARRAY_SIZE(source_classes); c++)
			if (strstr(specs[s], "zero3") || has_one_dtype(&source_classes[c]))
				check_all_ranks(&source_classes[c], specs[s]);
		check_all_ranks(&gpt2, specs[s]);
	}
}

/* Norms of 16 in shards of 3 of 7 ranks: the sixth has one, the last nothing. */
static void test_flat__the_last_shards_of_zero3_may_be_short_or_empty(void **state)
{
	struct model *model = source_open("Qwen3ForCausalLM", SOURCE_DENSE, LAYERS);

	(void)state;
	for (uint32_t rank = 0; rank < 7; rank++) {
		struct box box = {1, {3 * rank}, {rank < 5 ? 3 * rank + 3 : 16}};
		struct holding holding;
		uint32_t tensor;
		bool has;

		source_hold_rank(model, "world=7,source=zero3", rank, &holding);
		has = strmap_get(&holding.tensor_names, "model.norm.weight", &tensor);
		assert_int_equal(has, rank < 6);
		if (has) {
			const struct held *held = holding_find(&holding, tensor, &box);

			assert_non_null(held);
			assert_true(box_equal(&held->box, &box));
			assert_int_equal(held->place.offset, 0);
			assert_int_equal(holding.locals[held->local].shape[0], 3);
		}
		holding_fini(&holding);
	}
	model_close(&model);
}

static void test_flat__fsdp1_refuses_stages_and_units_of_two_dtypes(void **state)
{
	struct model *model = source_open("Qwen3ForCausalLM", SOURCE_DENSE, LAYERS);
	struct model *mixed =
		source_open("DeepseekV3ForCausalLM",
			    SOURCE_LATENT SOURCE_SHARED ", \"q_lora_rank\": 8", LAYERS);

	(void)state;
	source_refused(model, "world=4,source=fsdp1,pp=2", ERROR_CONFIG,
		       "source=fsdp1 has no stages (pp=2)");
	source_refused(mixed, "world=4,source=fsdp1", ERROR_UNSUPPORTED,
		       "e_score_correction_bias is F32, and a unit is of one dtype");
	model_close(&model);
	model_close(&mixed);
}

static void test_flat__every_failed_allocation_is_an_error_without_leak(void **state)
{
	static const char *const specs[] = {"world=3,source=zero3", "world=3,source=fsdp1"};
	struct model *model = source_open("Qwen3ForCausalLM", SOURCE_DENSE, LAYERS);

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(specs); s++)
		source_fail_each(model, specs[s], 1);
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flat__all_ranks_have_everything_exactly_once),
		cmocka_unit_test(test_flat__the_last_shards_of_zero3_may_be_short_or_empty),
		cmocka_unit_test(test_flat__fsdp1_refuses_stages_and_units_of_two_dtypes),
		cmocka_unit_test(test_flat__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
