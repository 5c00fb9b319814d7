/* SPDX-License-Identifier: Apache-2.0
 *
 * test_train_place.c -- where trainers stand in their grids, and which layers are theirs: rows that a run of Megatron-Core gave,
 * worked out here from the places of all ranks; and that ranks are alike exactly when they hold the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "job/parallel.h"
#include "model/family.h"
#include "model/model.h"
#include <stdio.h>
#include <string.h>

static struct train_spec parse(const char *text)
{
	struct train_spec spec;
	struct error error = {0};

	if (train_spec_parse(&spec, text, &error))
		fail_msg("%s", error.text);
	return spec;
}

/* ---- groups ---- */

/* Coordinates of a rank: the group along one of them is who is equal in all others of its grid. */
enum axis { TP, CP, DP, PP, EP, ETP, EDP, AXES };
static const char *const axis_names[AXES] = {"tp", "cp", "dp", "pp", "ep", "etp", "edp"};
#define DENSE	(1u << TP | 1u << CP | 1u << DP | 1u << PP)
#define EXPERTS (1u << ETP | 1u << EP | 1u << EDP | 1u << PP)

/* cp is in no place: of ranks with one tp, dp and pp it is their turn. */
static void coordinates(const struct train_spec *spec, uint32_t rank, uint32_t out[AXES])
{
	struct train_place place = train_place(spec, rank);

	out[TP] = place.tp;
	out[DP] = place.dp;
	out[PP] = place.pp;
	out[EP] = place.ep;
	out[ETP] = place.etp;
	out[EDP] = place.edp;
	out[CP] = 0;
	for (uint32_t other = 0; other < rank; other++) {
		struct train_place at = train_place(spec, other);

		out[CP] += at.tp == place.tp && at.dp == place.dp && at.pp == place.pp;
	}
}

static void group_text(const struct train_spec *spec, uint32_t rank, enum axis axis, char out[512])
{
	uint32_t grid = (axis == TP || axis == CP || axis == DP ? DENSE
			 : axis == PP				? DENSE | EXPERTS
								: EXPERTS) &
			~(1u << axis);
	uint32_t mine[AXES], theirs[AXES];
	size_t n = 0;

	coordinates(spec, rank, mine);
	out[0] = '\0';
	for (uint32_t other = 0; other < spec->world; other++) {
		bool same = true;

		coordinates(spec, other, theirs);
		for (uint32_t a = 0; a < AXES; a++)
			same &= !(grid & 1u << a) || mine[a] == theirs[a];
		if (same)
			n += (size_t)snprintf(out + n, 512 - n, "%s%u", n ? "," : "", other);
	}
}

static void test_place__groups_are_those_of_megatron(void **unused)
{
	static const struct {
		const char *spec;
		uint32_t rank;
		const char *groups[AXES]; /* NULL: not told */
	} rows[] = {
		{"world=16,source=megatron,tp=2,pp=2,ep=4,etp=1",
		 5,
		 {"4,5", "5", "1,3,5,7", "5,13", "4,5,6,7", "5", "1,5"}},
		{"world=16,source=megatron,tp=2,pp=2,ep=4,etp=1",
		 15,
		 {"14,15", "15", "9,11,13,15", "7,15", "12,13,14,15", "15", "11,15"}},
		{"world=16,source=megatron,tp=2,cp=2,pp=2,ep=2,etp=2",
		 9,
		 {"8,9", "9,11", "9,13", "1,9", "9,11", "8,9", "9,13"}},
		{"world=8,source=megatron,tp=4,ep=2,etp=2",
		 5,
		 {"4,5,6,7", "5", "1,5", "5", "5,7", "4,5", "1,5"}},
		{"world=128,source=megatron,tp=4,pp=4,ep=8,etp=1",
		 37,
		 {"36,37,38,39", "37", "33,37,41,45,49,53,57,61", "5,37,69,101",
		  "32,33,34,35,36,37,38,39", "37", "37,45,53,61"}},
		{"world=8,source=megatron,tp=2,pp=2,order=tp-cp-ep-pp-dp",
		 2,
		 {"2,3", "2", "2,6", "0,2", "2", "2,3", "2,6"}},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct train_spec spec = parse(rows[i].spec);

		for (uint32_t axis = 0; axis < AXES; axis++) {
			char got[512];

			group_text(&spec, rows[i].rank, axis, got);
			if (strcmp(got, rows[i].groups[axis]) != 0)
				fail_msg("%s of rank %u of %s: %s, not %s", axis_names[axis],
					 rows[i].rank, rows[i].spec, got, rows[i].groups[axis]);
		}
	}
}

/* Every place of the grid, by as many ranks as it has replicas. */
static void test_place__every_rank_of_a_mesh_has_one_of_its_own(void **unused)
{
	static const char *const specs[] = {
		"world=16,source=dtensor,mesh=2/4/2",
		"world=24,source=dtensor,mesh=2/3/2,pp=2",
		"world=16,source=dtensor,mesh=2/4/2,ep=4",
		"world=6,source=dtensor,mesh=3/2,ep=3",
		"world=6,source=zero3,pp=2",
		"world=5,source=fsdp1",
		"world=12,pp=2,fsdp=3,source=sharded",
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct train_spec spec = parse(specs[i]);
		uint32_t stage = spec.world / spec.pp;

		for (uint32_t r = 0; r < spec.world; r++) {
			struct train_place place = train_place(&spec, r);

			assert_int_equal(place.pp, r / stage);
			assert_int_equal(train_stage(&spec, r), place.pp);
			if (spec.source != TRAIN_DTENSOR) {
				assert_int_equal(place.dp,
						 r % stage % (spec.fsdp > 1 ? spec.fsdp : stage));
				continue;
			}
			/* replicas / fsdp / tp, the last fastest; and edp / ep across the same ranks */
			uint32_t inside = place.dp * spec.mesh_tp + place.tp;

			assert_int_equal(inside, r % stage % (spec.mesh_fsdp * spec.mesh_tp));
			assert_int_equal(place.edp * spec.ep + place.ep, inside);
			assert_true(place.tp < spec.mesh_tp && place.ep < spec.ep);
		}
	}
}

/* ---- layers ---- */

/* "0:[0,1],[4,5] 1:[2,3],[6,7]" */
static void layers_text(const struct train_spec *spec, uint32_t layers, char out[2048])
{
	size_t n = 0;

	for (uint32_t pp = 0; pp < spec->pp; pp++) {
		n += (size_t)snprintf(out + n, 2048 - n, "%s%u:", pp ? " " : "", pp);
		for (uint32_t chunk = 0; chunk < spec->vpp; chunk++) {
			uint32_t count = 0;

			n += (size_t)snprintf(out + n, 2048 - n, "%s[", chunk ? "," : "");
			for (uint32_t layer = 0; layer < layers; layer++) {
				struct train_layer at;
				struct error error = {0};

				if (train_megatron_layer(spec, layers, layer, &at, &error))
					fail_msg("%s", error.text);
				if (at.pp != pp || at.chunk != chunk)
					continue;
				assert_int_equal(at.place, count);
				n += (size_t)snprintf(out + n, 2048 - n, "%s%u", count++ ? "," : "",
						      layer);
			}
			n += (size_t)snprintf(out + n, 2048 - n, "]");
		}
	}
}

static void test_layers__are_in_the_stages_and_chunks_of_megatron(void **unused)
{
	static const struct {
		const char *keys;
		uint32_t layers;
		const char *want;
	} rows[] = {
		{"pp=2", 8, "0:[0,1,2,3] 1:[4,5,6,7]"},
		{"pp=2,vpp=2", 8, "0:[0,1],[4,5] 1:[2,3],[6,7]"},
		{"pp=2,vpp=4", 8, "0:[0],[2],[4],[6] 1:[1],[3],[5],[7]"},
		{"pp=4,account_embedding=1,account_loss=1", 94,
		 "0:[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22] "
		 "1:[23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46] "
		 "2:[47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70] "
		 "3:[71,72,73,74,75,76,77,78,79,80,81,82,83,84,85,86,87,88,89,90,91,92,93]"},
		{"pp=2,vpp=2,account_embedding=1,account_loss=1", 6, "0:[0],[3,4] 1:[1,2],[5]"},
		{"pp=4,first=1,last=3", 10, "0:[0] 1:[1,2,3] 2:[4,5,6] 3:[7,8,9]"},
		{"pp=4,vpp=2,first=2,last=6", 16,
		 "0:[0],[8] 1:[1,2],[9,10] 2:[3,4],[11,12] 3:[5,6,7],[13,14,15]"},
		{"pp=2,vpp=2,layers=1/2/1/2", 6, "0:[0],[3] 1:[1,2],[4,5]"},
		{"pp=4,layers=2/2/2/0", 6, "0:[0,1] 1:[2,3] 2:[4,5] 3:[]"},
		{"pp=2,layout=Et|tt|t|ttL", 6, "0:[0],[3] 1:[1,2],[4,5]"},
		{"pp=4,layout=Ett|(tt|)*2,mL", 6, "0:[0,1] 1:[2,3] 2:[4,5] 3:[]"},
		{"layout=(Ett|t*2|)*1,|mL,pp=2", 4, "0:[0,1],[] 1:[2,3],[]"},
		/* and by the same rules: one end alone, and all of the layers at both */
		{"pp=3,first=3", 7, "0:[0,1,2] 1:[3,4] 2:[5,6]"},
		{"pp=3,last=1", 7, "0:[0,1,2] 1:[3,4,5] 2:[6]"},
		{"pp=2,first=3,last=4", 7, "0:[0,1,2] 1:[3,4,5,6]"},
		{"pp=1", 3, "0:[0,1,2]"},
		{"pp=3,account_embedding=1", 5, "0:[0] 1:[1,2] 2:[3,4]"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[256], got[2048];
		struct train_spec spec;

		snprintf(text, sizeof(text), "world=12,source=megatron,%s", rows[i].keys);
		spec = parse(text);
		layers_text(&spec, rows[i].layers, got);
		if (strcmp(got, rows[i].want) != 0)
			fail_msg("%s: %s, not %s", rows[i].keys, got, rows[i].want);
	}
}

static void test_layers__refuse_what_is_not_even(void **unused)
{
	static const struct {
		const char *keys;
		uint32_t layers, layer;
		const char *message;
	} rows[] = {
		{"pp=2", 7, 0, "7 layers are not laid out evenly by pp=2, vpp=1"},
		{"pp=2,vpp=2", 6, 0, "6 layers are not laid out evenly by pp=2, vpp=2"},
		{"pp=2,account_loss=1", 8, 0, "8 layers are not laid out evenly"},
		{"pp=4,first=2", 10, 0, "10 layers are not laid out evenly"},
		{"pp=4,first=8,last=8", 10, 0, "10 layers are not laid out evenly"},
		{"pp=2,first=2,last=4", 7, 0, "7 layers are not laid out evenly"},
		{"pp=4,vpp=2,first=1,last=3", 10, 0, "10 layers are not laid out evenly"},
		/* evenly, but half a layer in a chunk of the first stage */
		{"pp=4,vpp=2,first=3,last=5", 16, 0, "16 layers are not laid out evenly"},
		{"pp=2,layers=3/4", 8, 0, "layers= adds up to 7 layers; the model has 8"},
		{"pp=2,vpp=2,layers=1/2/1/2", 8, 7, "adds up to 6 layers"},
		{"pp=2", 8, 8, "layer 8 is past the model's 8 layers"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[256];
		struct train_layer at;
		struct train_spec spec;
		struct error error = {0};

		snprintf(text, sizeof(text), "world=12,source=megatron,%s", rows[i].keys);
		spec = parse(text);
		assert_int_equal(
			train_megatron_layer(&spec, rows[i].layers, rows[i].layer, &at, &error),
			-ERROR_CONFIG);
		if (!strstr(error.text, rows[i].message))
			fail_msg("'%s' does not say '%s'", error.text, rows[i].message);
	}
}

/* ---- who holds the same ---- */

static struct model *open_small(void)
{
	/* sizes that no number of ranks below makes a shard empty of */
	struct model_config config = {.family = family_find("Qwen3MoeForCausalLM"),
				      .hidden_size = 24,
				      .vocab_size = 96,
				      .layers = 4,
				      .heads = 8,
				      .kv_heads = 4,
				      .head_dim = 24,
				      .experts = 12,
				      .moe_intermediate_size = 24,
				      .dtype = DTYPE_BF16};
	struct model *model;

	assert_int_equal(model_from_config(&model, "small", &config, NULL), 0);
	return model;
}

static void test_alike__ranks_of_one_number_and_no_others_hold_the_same(void **unused)
{
	static const char *const specs[] = {
		"world=6,pp=2,source=gathered",
		"world=8,pp=2,fsdp=2,source=sharded",
		"world=16,source=megatron,tp=2,pp=2,ep=4,etp=1,vocab_pad=1",
		"world=16,source=megatron,tp=2,cp=2,pp=2,ep=2,etp=2,vocab_pad=1",
		"world=8,source=megatron,tp=4,ep=2,etp=2,vocab_pad=1,grouped=legacy",
		"world=16,source=megatron,tp=2,pp=2,vpp=2,ep=2,etp=1,order=tp-cp-ep-pp-dp,vocab_pad=1",
		"world=12,source=dtensor,mesh=2/3/2",
		"world=16,source=dtensor,mesh=2/2/2,ep=2,pp=2",
		"world=8,source=dtensor,mesh=2/4,ep=4",
		"world=6,source=zero3,pp=2",
		"world=4,source=fsdp1",
	};
	struct model *model = open_small();

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct train_spec spec = parse(specs[i]);
		struct digest digests[16];
		uint32_t different = 0;

		for (uint32_t r = 0; r < spec.world; r++) {
			struct holding holding;
			struct error error = {0};

			if (model_holding(model, &spec, r, &holding, &error))
				fail_msg("%s", error.text);
			digests[r] = holding_digest(&holding);
			holding_fini(&holding);
		}
		for (uint32_t a = 0; a < spec.world; a++)
			for (uint32_t b = 0; b < a; b++) {
				bool alike = train_alike(&spec, a) == train_alike(&spec, b);

				different += !alike;
				if (alike != digest_equal(digests[a], digests[b]))
					fail_msg("ranks %u and %u of %s: alike %d", b, a, specs[i],
						 alike);
			}
		assert_true(different > 0);
	}
	model_close(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_place__groups_are_those_of_megatron),
		cmocka_unit_test(test_place__every_rank_of_a_mesh_has_one_of_its_own),
		cmocka_unit_test(test_layers__are_in_the_stages_and_chunks_of_megatron),
		cmocka_unit_test(test_layers__refuse_what_is_not_even),
		cmocka_unit_test(test_alike__ranks_of_one_number_and_no_others_hold_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
