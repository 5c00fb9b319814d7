/* SPDX-License-Identifier: Apache-2.0
 *
 * config_quant.c -- the quantization_config of a config.json: fp8 in blocks, or a refusal.
 */
#include "model/config.h"

#include "base/array.h"
#include "model/family.h"
#include <ctype.h>
#include <jansson.h>
#include <string.h>

#define FIELD "quantization_config"

/* An error that begins with the name of what is read. */
#define REFUSE(code, format, ...) error_set(error, code, "%s: " format, where, ##__VA_ARGS__)

/* Texts that must be these where they are there: anything else is another format. */
static const struct {
	const char *name, *value;
} fixed_texts[] = {
	{"fmt", "e4m3"},
	{"activation_scheme", "dynamic"},
};

static int check_text(const json_t *object, const char *where, const char *name, const char *value,
		      struct error *error)
{
	const json_t *found = json_object_get(object, name);

	if (!found || json_is_null(found))
		return 0;
	if (json_is_string(found) && strcmp(json_string_value(found), value) == 0)
		return 0;
	return REFUSE(ERROR_UNSUPPORTED, FIELD ".%s is %.60s; only %s is possible", name,
		      json_is_string(found) ? json_string_value(found) : "no text", value);
}

static int check_method(const json_t *object, const char *where, struct error *error)
{
	const json_t *method = json_object_get(object, "quant_method");

	if (!json_is_string(method))
		return REFUSE(ERROR_CONFIG, FIELD ".quant_method is missing");
	return check_text(object, where, "quant_method", "fp8", error);
}

static int read_block(const json_t *object, const char *where, struct model_config *config,
		      struct error *error)
{
	const json_t *block = json_object_get(object, "weight_block_size");
	json_int_t sizes[2];

	if (!block || json_is_null(block))
		return REFUSE(ERROR_UNSUPPORTED,
			      FIELD " has no weight_block_size: one scale for a whole "
				    "tensor or channel; only fp8 in blocks is possible");
	if (!json_is_array(block) || json_array_size(block) != 2 ||
	    !json_is_integer(json_array_get(block, 0)) ||
	    !json_is_integer(json_array_get(block, 1)))
		return REFUSE(ERROR_CONFIG, FIELD ".weight_block_size is not two integers");
	for (size_t d = 0; d < 2; d++) {
		sizes[d] = json_integer_value(json_array_get(block, d));
		if (sizes[d] < 1 || sizes[d] > CONFIG_BLOCK_MAX)
			return REFUSE(ERROR_CONFIG,
				      FIELD ".weight_block_size has %lld; 1 to %u is possible",
				      (long long)sizes[d], CONFIG_BLOCK_MAX);
	}
	config->block_rows = (uint64_t)sizes[0];
	config->block_columns = (uint64_t)sizes[1];
	return 0;
}

static size_t word_length(const char *word)
{
	return strcspn(word, ".");
}

/* Equal words between dots; "{i}" and "{e}" are any number. */
static bool same_word(const char *pattern, const char *word)
{
	size_t n = word_length(word);

	if (pattern[0] == '{') {
		for (size_t i = 0; i < n; i++)
			if (!isdigit((unsigned char)word[i]))
				return false;
		return n > 0;
	}
	return word_length(pattern) == n && strncmp(pattern, word, n) == 0;
}

static const char *next_word(const char *word)
{
	word += word_length(word);
	return *word ? word + 1 : NULL;
}

/* True when `name` is a run of whole words of the pattern: a module, or one around it. */
static bool names_part_of(const char *pattern, const char *name)
{
	for (const char *start = pattern; start; start = next_word(start)) {
		const char *p = start, *n = name;

		while (p && n && same_word(p, n)) {
			p = next_word(p);
			n = next_word(n);
		}
		if (!n)
			return true;
	}
	return false;
}

/* An exception may name only what stays unquantised here anyway. */
static int check_exceptions(const json_t *object, const char *where, const char *name,
			    const struct family *family, struct error *error)
{
	const json_t *list = json_object_get(object, name);

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list))
		return REFUSE(ERROR_CONFIG, FIELD ".%s is not a list", name);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *module = json_string_value(json_array_get(list, i));

		if (!module)
			return REFUSE(ERROR_CONFIG, FIELD ".%s has an entry that is no name", name);
		for (size_t r = 0; r < family->rule_count; r++)
			if (family->rules[r].store == STORE_LINEAR &&
			    names_part_of(family->rules[r].tensor, module))
				return REFUSE(ERROR_UNSUPPORTED,
					      FIELD ".%s names %.200s, which is "
						    "quantised in every other checkpoint of %s",
					      name, module, family->architecture);
	}
	return 0;
}

/* Experts of 4 bits; everything else stays as it is, whatever the list of exceptions says. */
static int read_mxfp4(const char *where, struct model_config *config, struct error *error)
{
	const uint64_t sizes[] = {config->hidden_size, config->moe_intermediate_size};

	if (!family_has(config->family, FEATURE_STACKED))
		return REFUSE(ERROR_UNSUPPORTED,
			      FIELD ".quant_method is mxfp4; of %s only fp8 in blocks is possible",
			      config->family->architecture);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		if (sizes[i] % MXFP4_BLOCK)
			return REFUSE(ERROR_CONFIG,
				      "%s %llu is no multiple of %u, the block of mxfp4",
				      i ? "intermediate_size" : "hidden_size",
				      (unsigned long long)sizes[i], MXFP4_BLOCK);
	config->mxfp4 = true;
	return 0;
}

static bool is_mxfp4(const json_t *object)
{
	const char *method = json_string_value(json_object_get(object, "quant_method"));

	return method && strcmp(method, "mxfp4") == 0;
}

int config_quantization(const json_t *object, const char *where, struct model_config *config,
			struct error *error)
{
	const struct family *family = config->family;
	int rc;

	if (!json_is_object(object))
		return REFUSE(ERROR_CONFIG, FIELD " is not an object");
	if (is_mxfp4(object))
		return read_mxfp4(where, config, error);
	rc = check_method(object, where, error);
	if (rc == 0 && !family_has(family, FEATURE_FP8))
		rc = REFUSE(ERROR_UNSUPPORTED,
			    FIELD " says that the checkpoint is quantised; only "
				  "unquantised ones of %s are possible",
			    family->architecture);
	for (size_t i = 0; i < ARRAY_SIZE(fixed_texts) && rc == 0; i++)
		rc = check_text(object, where, fixed_texts[i].name, fixed_texts[i].value, error);
	if (rc == 0)
		rc = read_block(object, where, config, error);
	if (rc == 0)
		rc = check_exceptions(object, where, "modules_to_not_convert", family, error);
	return rc ? rc : check_exceptions(object, where, "ignored_layers", family, error);
}
