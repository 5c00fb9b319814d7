/* SPDX-License-Identifier: Apache-2.0 */
#include "model/router_bias.h"

#include "model/beside.h"

void router_bias_look(const char *path, struct model_config *config)
{
	struct beside found;

	if (!config->router_bias)
		return;
	if (beside_find(path, ".e_score_correction_bias", &found))
		config->router_bias_cast =
			found.entry->dtype == config->dtype && config->dtype != DTYPE_F32;
	beside_fini(&found);
}
