/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"
#include "job/parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_train__canonical_text_parses_to_the_same_spec(void **unused)
{
	static const char *const specs[][2] = {
		{"world=4,source=gathered", "world=4,source=gathered"},
		{"source=gathered,pp=8,world=256", "world=256,pp=8,source=gathered"},
		{"world=16,fsdp=8,source=sharded", "world=16,fsdp=8,source=sharded"},
		{"world=4,pp=1", "world=4,source=gathered"},
		{"world=4,pp=2,layers=3/5", "world=4,pp=2,source=gathered,layers=3/5"},
		/* Megatron's own string, which has commas, in any place of the spec */
		{"world=4,source=megatron,pp=4,layout=Ett|(tt|)*2,mL",
		 "world=4,pp=4,source=megatron,mtp=1,layers=2/2/2/0"},
		{"layout=E,t,*2|(,tt|),*2,mL,,world=4,source=megatron,pp=4",
		 "world=4,pp=4,source=megatron,mtp=1,layers=2/2/2/0"},
		{"world=4,source=megatron,layout=E,t*3|t,t|(t,t,m,m,|)*1L,pp=4",
		 "world=4,pp=4,source=megatron,mtp=2,mtp_stage=2,layers=3/2/2/0"},
		{"world=2,pp=2,source=megatron,layout=Et|tt|t|ttL,vpp=2",
		 "world=2,pp=2,source=megatron,vpp=2,layers=1/2/1/2"},
		{"world=1,source=megatron,layout=EtmL", "world=1,source=megatron,mtp=1,layers=1"},
		{"world=2,source=megatron,pp=2,mtp=2,mtp_stage=1",
		 "world=2,pp=2,source=megatron,mtp=2"},
		{"world=8,source=megatron,out_norm=plus_one,shared_glu_interleave=4,glu_interleave=32",
		 "world=8,source=megatron,glu_interleave=32,shared_glu_interleave=4,out_norm=plus_one"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct train_spec spec, again;
		char text[PARALLEL_TEXT_BYTES];
		struct error error;

		assert_int_equal(train_spec_parse(&spec, specs[i][0], &error), 0);
		assert_string_equal(train_spec_text(&spec, text), specs[i][1]);
		assert_int_equal(train_spec_parse(&again, text, &error), 0);
		assert_memory_equal(&spec, &again, sizeof(spec));
	}
}

static void test_infer__canonical_text_leaves_defaults_out(void **unused)
{
	static const char *const specs[][2] = {
		{"tp=8", "engines=1,tp=8"},
		{"a2a=1,tp=8,engines=2", "engines=2,tp=8,a2a=1"},
		{"names=sglang,experts=linear,indexer=split,a2a=0", "engines=1"},
		{"fp8=128", "engines=1,fp8=128x128"},
		{"fp8=64x32,dtype=F16", "engines=1,dtype=F16,fp8=64x32"},
		{"fp8=none,gate=F32", "engines=1,gate=F32,fp8=none"},
		{"fp8=None,gate=f32,dtype=bf16", "engines=1,gate=F32,dtype=BF16,fp8=none"},
		{"fp8=64X32,dtype=f16,names=vLLM", "engines=1,names=vllm,dtype=F16,fp8=64x32"},
		{"tp=4,fuse_shared=1,embed_replicated=1,indexer=fused,dtype=BF16",
		 "engines=1,tp=4,fuse_shared=1,embed_replicated=1,indexer=fused,dtype=BF16"},
		{"tp=8,ep=8,experts=round_robin,names=vllm,gate=BF16",
		 "engines=1,tp=8,ep=8,names=vllm,experts=round_robin,gate=BF16"},
		{"tp=8,ep=8,dp=2,experts=round_robin_a2a,names=vllm,untied=1",
		 "engines=1,tp=8,ep=8,dp=2,names=vllm,experts=round_robin_a2a,untied=1"},
		{"mxfp4_pad=64X1,fp8=none", "engines=1,fp8=none,mxfp4_pad=64x1"},
		{"mxfp4_pad=128x256,expert_weights=out_in", "engines=1,mxfp4_pad=128x256"},
		{"gate=F32,expert_weights=in_out", "engines=1,expert_weights=in_out,gate=F32"},
		{"expert_halves=UP_GATE", "engines=1,expert_halves=up_gate"},
		{"expert_halves=gate_up", "engines=1"},
		{"routed_experts=1,names=vllm,gate=F32",
		 "engines=1,names=vllm,routed_experts=1,gate=F32"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct infer_spec spec, again;
		char text[PARALLEL_TEXT_BYTES];
		struct error error;

		assert_int_equal(infer_spec_parse(&spec, specs[i][0], &error), 0);
		assert_string_equal(infer_spec_text(&spec, text), specs[i][1]);
		assert_int_equal(infer_spec_parse(&again, text, &error), 0);
		assert_memory_equal(&spec, &again, sizeof(spec));
	}
}

static void test_specs__refuse_with_key_value_and_what_is_allowed(void **unused)
{
	static const char *const train[][2] = {
		{"", "empty"},
		{"world", "not key=value"},
		{"world=0", "world is '0'"},
		{"world=4,world=4", "twice"},
		{"worlds=4", "unknown key 'worlds'"},
		{"world=5,pp=2", "pp=2 does not divide world=5"},
		{"world=4,fsdp=2", "source=sharded"},
		{"world=4,fsdp=3,source=sharded", "fsdp=3 does not divide"},
		{"world=4,source=mapped",
		 "use gathered, sharded, megatron, dtensor, zero3 or fsdp1"},
		{"world=4,tp=2", "tp is a key of source=megatron"},
		{"world=4,source=dtensor,mesh=4,vpp=2", "vpp is a key of source=megatron"},
		{"world=4,source=zero3,ep=2", "ep is a key of source=megatron or dtensor"},
		{"world=4,source=megatron,orig=1", "orig is a key of source=fsdp1"},
		{"world=4,source=megatron,mesh=4", "mesh is a key of source=dtensor"},
		{"world=4,source=dtensor", "needs its mesh"},
		{"world=4,source=dtensor,mesh=2/0", "at least 1"},
		{"world=4,source=dtensor,mesh=1/2/3/4", "at most 3 numbers"},
		{"world=4,source=dtensor,mesh=2,mesh=2", "key 'mesh' is given twice"},
		{"world=4,source=dtensor,mesh=2/4", "is 8 trainers; world=4"},
		{"world=6,source=dtensor,mesh=6,ep=4", "ep=4 does not divide the 6 trainers"},
		{"world=8,source=megatron,tp=3", "tp * cp * pp = 3 does not divide"},
		{"world=8,source=megatron,tp=2,ep=8", "etp * ep * pp = 16 does not divide"},
		{"world=16,source=megatron,tp=2,pp=2,ep=4,etp=1,order=tp-cp-ep-pp-dp",
		 "as many replicas of experts (2) as of all else (4)"},
		{"world=8,source=megatron,pp=2,first=1,account_loss=1", "exclude"},
		{"world=8,source=megatron,pp=2,first=1,layers=1/2", "give one or the other"},
		{"world=8,source=megatron,pp=2,vpp=2,layers=1/2", "in chunks of vpp"},
		{"world=8,source=megatron,vpp=2",
		 "vpp=2 are chunks of each stage and pp=1 is one stage"},
		{"world=8,source=fsdp1,layers=4", "layers is no key of source=fsdp1"},
		{"world=8,source=megatron,mtp_stage=1", "say how many with mtp="},
		{"world=8,source=megatron,pp=2,mtp=1,mtp_stage=2",
		 "mtp_stage=2 is no stage of pp=2"},
		{"world=8,source=zero3,mtp=1", "mtp is a key of source=megatron"},
		{"world=8,pp=2,layout=Et|tL", "layout is a key of source=megatron"},
		{"world=8,source=megatron,out_norm=copy", "out_norm is 'copy'; use plus_one"},
		{"world=8,source=megatron,pp=2,layout=Et|tL,layout=Et|tL",
		 "'layout' is given twice"},
		{"world=8,source=megatron,pp=2,layout=Et|tL,layers=1/1", "give one or the other"},
		{"world=8,source=megatron,pp=2,layout=Et|tL,first=1", "give one or the other"},
		{"world=8,source=megatron,pp=2,layout=", "no loss ('L')"},
		{"world=8,source=megatron,pp=2,layout=Et|t", "no loss ('L')"},
		{"world=8,source=megatron,pp=2,layout=|EtL", "begins with '|'"},
		{"world=8,source=megatron,pp=2,layout=t|tL", "begins with 't'"},
		{"world=8,source=megatron,pp=2,layout=Et|EtL", "a second 'E'"},
		{"world=8,source=megatron,pp=2,layout=EtL|t", "'|' stands behind the loss"},
		{"world=8,source=megatron,pp=2,layout=Et|xL", "'x'; it is made of E, t, m, L"},
		{"world=8,source=megatron,pp=2,layout=Et|t,bogus", "'b'; it is made of"},
		{"world=8,source=megatron,pp=2,layout=Et|mtL", "stands behind an MTP layer"},
		{"world=8,source=megatron,pp=3,layout=Et|m|mL", "stages 1 and 2 have MTP layers"},
		{"world=8,source=megatron,pp=2,layout=Etm|tL", "stands behind an MTP layer"},
		{"world=8,source=megatron,pp=2,layout=Ettm|L", "in stage 0, beside the embedding"},
		{"world=8,source=megatron,pp=2,layout=Et|tm||L", "in chunk 0 of their stage"},
		{"world=8,source=megatron,pp=2,layout=Et|tmL,mtp=2",
		 "has 1 MTP layers ('m'); mtp=2"},
		{"world=8,source=megatron,pp=2,layout=Et|tL,mtp=2",
		 "has 0 MTP layers ('m'); mtp=2"},
		{"world=8,source=megatron,pp=4,layout=Et|m||L,mtp=1,mtp_stage=2", "mtp_stage=2"},
		{"world=8,source=megatron,pp=2,layout=Et|t|tL",
		 "3 stages, which pp=2 does not divide"},
		{"world=8,source=megatron,pp=2,vpp=3,layout=Et|tL", "1 chunks of pp=2; vpp=3"},
		{"world=8,source=megatron,pp=2,layout=E(t|tL", "a bracket is (..)*n"},
		{"world=8,source=megatron,pp=2,layout=E()*2|tL", "with something inside"},
		{"world=8,source=megatron,pp=2,layout=E(t)|tL", "a bracket is (..)*n"},
		{"world=8,source=megatron,pp=2,layout=E((t)*2)*2|tL", "it is made of"},
		{"world=8,source=megatron,pp=2,layout=Et*|tL", "'t*' is not followed by a number"},
		{"world=8,source=megatron,pp=2,layout=Et*0|tL", "'t*' is not followed by a number"},
		{"world=8,source=megatron,pp=2,layout=E(t*100000)*100000|tL",
		 "more than 100000 layers"},
		{"world=8,source=megatron,pp=2,layout=Et|*99999L", "more than 256 stages"},
		{"world=99999999999", "number from 1"},
		{"world=4,pp=2,layers=3/4/5", "3 stages but pp=2"},
		{"world=4,layers=a", "layers is 'a'"},
		{"world=4,source=gathered,source=gathered", "twice"},
		{"world=-1", "'-1'"},
	};
	static const char *const infer[][2] = {
		{"engines=2,tp=4,ep=3", "ep=3 does not divide tp=4"},
		{"tp=4,dp=8", "dp=8 does not divide"},
		{"tp=4,dp_lm_head=2", "from 0 to 1"},
		{"engines=65536,tp=2", "131072 ranks"},
		{"tp=", "tp is ''"},
		{",", "not key=value"},
		{"tp=4,pp=2", "unknown key 'pp'; keys are engines, tp"},
		{"tp=4,pp=2", "indexer, dtype, fp8, mxfp4_pad"},
		{"tp=4,tp=4", "twice"},
		{"fp8=none,fp8=none", "key 'fp8' is given twice"},
		{"fp8=64x", "fp8 is '64x'; use none, or the rows"},
		{"fp8=0x128", "as 128x128 (1 to 65536 each)"},
		{"fp8=", "fp8 is ''"},
		{"fp8=1x65537", "fp8 is '1x65537'"},
		{"names=trt", "names is 'trt'; use sglang or vllm"},
		{"experts=random", "use linear, round_robin or round_robin_a2a"},
		{"gate=f64", "gate is 'f64'; use F32, BF16 or F16"},
		{"dtype=F64", "dtype is 'F64'; use F32, BF16 or F16"},
		{"indexer=1", "indexer is '1'; use split or fused"},
		{"a2a=2", "a2a is '2'; it must be a number from 0 to 1"},
		{"tp=4,ep=4,fuse_shared=1", "fuse_shared=1 with ep=4"},
		{"tp=4,a2a=1,fuse_shared=1", "fuse_shared=1 with a2a=1"},
		{"experts=round_robin", "experts=round_robin needs names=vllm"},
		{"experts=round_robin_a2a,ep=2,tp=4,dp=2", "experts=round_robin needs names=vllm"},
		{"tp=8,ep=8,dp=2,names=vllm,experts=round_robin",
		 "falls back to linear; say experts=round_robin_a2a where --all2all-backend"},
		{"tp=8,ep=8,names=vllm,experts=round_robin_a2a",
		 "ep and dp above 1; say experts=round_robin"},
		{"untied=1", "untied=1 needs names=vllm"},
		{"names=vllm,untied=2", "untied is '2'"},
		{"routed_experts=1", "routed_experts=1 needs names=vllm"},
		{"expert_weights=in_out,names=vllm", "expert_weights=in_out is not for names=vllm"},
		{"expert_weights=1", "expert_weights is '1'; use out_in or in_out"},
		{"mxfp4_pad=64", "mxfp4_pad is '64'; use what a rank's share"},
		{"mxfp4_pad=48x1", "(1 or a multiple of 32 each)"},
		{"mxfp4_pad=64x33", "(1 or a multiple of 32 each)"},
		{"mxfp4_pad=64x1,mxfp4_pad=64x1", "key 'mxfp4_pad' is given twice"},
		{"names=vllm,dp_lm_head=1", "dp_lm_head=1 is not for names=vllm"},
		{"names=vllm,moe_dense_tp=1", "moe_dense_tp=1 is not for"},
		{"names=vllm,fuse_shared=1", "fuse_shared=1 is not for"},
		{"names=vllm,embed_replicated=1", "embed_replicated=1 is not"},
		{"tp=8,ep=4,names=vllm", "use ep=1 or ep=8"}};
	struct train_spec train_spec;
	struct infer_spec infer_spec;
	struct error error;

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(train); i++) {
		assert_int_equal(train_spec_parse(&train_spec, train[i][0], &error), -ERROR_CONFIG);
		if (!strstr(error.text, train[i][1]))
			fail_msg("'%s' does not say '%s'", error.text, train[i][1]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(infer); i++) {
		assert_int_equal(infer_spec_parse(&infer_spec, infer[i][0], &error), -ERROR_CONFIG);
		assert_non_null(strstr(error.text, infer[i][1]));
	}
}

static void test_stages__earlier_ones_take_the_odd_layers(void **unused)
{
	struct train_spec spec;
	struct error error;
	uint32_t stage, count[3] = {0};

	(void)unused;
	train_spec_parse(&spec, "world=6,pp=3", &error);
	for (uint32_t layer = 0; layer < 8; layer++) {
		assert_int_equal(train_layer_stage(&spec, 8, layer, &stage, &error), 0);
		count[stage]++;
	}
	assert_int_equal(count[0], 3);
	assert_int_equal(count[1], 3);
	assert_int_equal(count[2], 2);
	assert_int_equal(train_stage(&spec, 3), 1);
	train_spec_parse(&spec, "world=6,pp=3,layers=1/1/6", &error);
	assert_int_equal(train_layer_stage(&spec, 8, 2, &stage, &error), 0);
	assert_int_equal(stage, 2);
	assert_int_equal(train_layer_stage(&spec, 9, 2, &stage, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "8 layers; the model has 9"));
}

static void test_shards__cover_every_row_once_and_the_last_may_be_empty(void **unused)
{
	(void)unused;
	for (uint64_t rows = 1; rows < 40; rows++)
		for (uint32_t fsdp = 1; fsdp < 12; fsdp++) {
			uint64_t at = 0, lo, hi;

			for (uint32_t shard = 0; shard < fsdp; shard++) {
				train_shard_rows(rows, fsdp, shard, &lo, &hi);
				assert_int_equal(lo, at);
				assert_true(hi - lo <= (rows + fsdp - 1) / fsdp);
				at = hi;
			}
			assert_int_equal(at, rows);
		}
	uint64_t lo, hi;

	train_shard_rows(5, 4, 3, &lo, &hi); /* chunks of 2: 2, 2, 1, 0 */
	assert_int_equal(hi - lo, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_train__canonical_text_parses_to_the_same_spec),
		cmocka_unit_test(test_infer__canonical_text_leaves_defaults_out),
		cmocka_unit_test(test_specs__refuse_with_key_value_and_what_is_allowed),
		cmocka_unit_test(test_stages__earlier_ones_take_the_odd_layers),
		cmocka_unit_test(test_shards__cover_every_row_once_and_the_last_may_be_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
