/* SPDX-License-Identifier: Apache-2.0
 *
 * families/gpt2.c -- GPT2LMHeadModel: learned positions, biases and norms with biases everywhere, the
 * embedding for a head. Its linears are Conv1D, matrices [in, out] on disk: what an engine keeps of
 * them is transposed, so that dimension 0 of the tensor is the columns of the parameter.
 */
#include "model/families/rows.h"

#define H "transformer.h.{i}."

/* clang-format off */
#define PAIR(name) \
	{H name ".weight", {DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0, STORE_MODEL}, \
	{H name ".bias", {DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0, STORE_MODEL}
#define CONV1D(name, in, out, weight_cut, bias_cut) \
	{H name ".weight", {in, out}, ALWAYS, NULL, weight_cut, GROUP_TP, 0, STORE_CONV1D}, \
	{H name ".bias", {out}, ALWAYS, NULL, bias_cut, GROUP_TP, 0, STORE_MODEL}

static const struct rule rules[] = {
	{"transformer.wte.weight", {DIM_VOCAB, DIM_HIDDEN}, ALWAYS, NULL, CUT_VOCAB, GROUP_TP, 0,
	 STORE_MODEL},
	{"transformer.wpe.weight", {DIM_POSITIONS, DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP,
	 0, STORE_MODEL},
	PAIR("ln_1"),
	CONV1D("attn.c_attn", DIM_HIDDEN, DIM_QKV_ROWS, CUT_QKV, CUT_QKV),
	CONV1D("attn.c_proj", DIM_HIDDEN, DIM_HIDDEN, CUT_COLUMNS, CUT_WHOLE),
	PAIR("ln_2"),
	CONV1D("mlp.c_fc", DIM_HIDDEN, DIM_INTERMEDIATE, CUT_ROWS, CUT_ROWS),
	CONV1D("mlp.c_proj", DIM_INTERMEDIATE, DIM_HIDDEN, CUT_COLUMNS, CUT_WHOLE),
	{"transformer.ln_f.weight", {DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0, STORE_MODEL},
	{"transformer.ln_f.bias", {DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0, STORE_MODEL},
	LM_HEAD(IF_UNTIED, GROUP_TP),
};
/* clang-format on */

const struct family family_gpt2 =
	FAMILY("GPT2LMHeadModel", "gpt2", rules, .features = FEATURE_GPT2, .tied = true);
