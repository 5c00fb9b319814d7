/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a config.json. What is accepted makes a model and a rank layout or a refusal,
 * and, written again, is read back the same.
 */
#include "model/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool holds)
{
	if (!holds)
		abort();
}

static void cut(const struct model *model, const uint8_t *data, size_t bytes)
{
	unsigned char choice = data[bytes / 2];
	struct infer_spec infer = {.engines = 1, .tp = 1u << (choice % 4), .ep = 1, .dp = 1};
	struct layout layout;
	struct error error = {0};

	if (choice & 16)
		infer.ep = infer.tp;
	if (choice & 32)
		infer.dp = infer.tp;
	if (model_layout(model, &infer, infer.tp - 1, &layout, &error))
		check(error.code == ERROR_CONFIG && error.text[0]);
	layout_fini(&layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct model_config config = {0}, again = {0};
	struct error error = {0};
	struct text text = {0};
	struct model *model;

	if (config_parse((const char *)data, bytes, "input", &config, &error)) {
		check(error.code && error.text[0]);
		return 0;
	}
	config_write(&config, &text);
	check(config_parse(text_string(&text), text.bytes, "again", &again, &error) == 0);
	check(memcmp(&config, &again, sizeof(config)) == 0);
	text_fini(&text);
	/* the same rows again; the fuzzer wants many small models */
	if (config.layers + config.mtp_layers > 8 || config.experts > 16)
		return 0;
	check(model_from_config(&model, "input", &config, &error) == 0);
	cut(model, data, bytes);
	model_close(&model);
	return 0;
}
