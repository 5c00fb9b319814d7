/* SPDX-License-Identifier: Apache-2.0
 *
 * form.h -- what a tensor becomes in an engine: the parameter's name, its dtype, and how its
 * bytes are transformed from the checkpoint's.
 *
 *   checkpoint       engine            values of the weight       scales
 *   BF16             BF16              copied
 *   BF16             F16, F32          converted
 *   BF16             fp8=128x128       quantised                  computed from the weight
 *   fp8, 128x128     (as stored)       copied                     copied
 *   fp8, 128x128     fp8=64x64         requantised                computed from weight and scales
 *   fp8, 128x128     fp8=none          dequantised                none
 */
#ifndef MODEL_FORM_H
#define MODEL_FORM_H

#include "job/transform.h"
#include "job/parallel.h"
#include "model/family.h"

struct form {
	enum dtype dtype;      /* of the parameter */
	struct transform transform; /* of its values */
	uint32_t block[2];     /* of the engine's fp8; 0: no scales */
	bool copy_scales;      /* they are the checkpoint's, else transformed as the values are */
};

/* The engine's name of a row's parameter, a pattern as the row's own. Rows that share it stack. */
const char *form_param(const struct rule *rule, const struct infer_spec *infer);
/* Its name as this engine's class has it, in place: `name` is the pattern filled in. False when it does
 * not fit RULE_NAME_BYTES. */
bool form_param_name(const struct family *family, const struct infer_spec *infer,
		     char name[RULE_NAME_BYTES]);
/* Whether this engine has no parameter for the row. */
bool form_absent(const struct model_config *config, const struct rule *rule, const struct infer_spec *infer);
/* Of a row's tensor; config says how the checkpoint stores it. */
struct form form_of(const struct rule *rule, const struct model_config *config,
		    const struct infer_spec *infer);
/* What the engine of this class cannot do, whatever the sizes: ERROR_CONFIG names the option. */
int form_check(const struct model *model, const struct infer_spec *infer, struct error *error);

#endif
