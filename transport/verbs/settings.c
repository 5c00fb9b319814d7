/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c -- one row a setting. A row says what is accepted in the words that its error
 * message and docs/verbs.md use; the code below the table knows kinds, not settings.
 */
#include "transport/verbs/settings.h"

#include "base/array.h"
#include "base/text.h"
#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum setting_kind {
	SETTING_COUNT, /* uint32_t */
	SETTING_POWER, /* uint32_t, rounded up to a power of two: rings are masked, not divided */
	SETTING_AUTO,  /* int32_t; "auto" and "-1" are -1 */
	SETTING_BYTES, /* uint64_t, a multiple of min */
	SETTING_MTU,   /* uint32_t; "auto" is 0 */
	SETTING_STATE  /* enum verbs_tristate */
};

struct setting {
	const char *variable;
	enum setting_kind kind;
	size_t offset;
	int64_t min, max, standard;
	const char *words;
};

#define AT(field) offsetof(struct verbs_settings, field)
#define MIB	  (INT64_C(1) << 20)

static const struct setting settings_rows[] = {
	{"WEFT_GID_INDEX", SETTING_AUTO, AT(gid_index), 0, 255, -1,
	 "a row of the GID table, 0 to 255, or auto"},
	{"WEFT_QPS", SETTING_COUNT, AT(qps), 1, 8, 2, "1 to 8 queue pairs per peer and NIC"},
	{"WEFT_QUEUE_DEPTH", SETTING_POWER, AT(depth), 16, 4096, 128,
	 "16 to 4096 requests per queue pair"},
	{"WEFT_RECEIVE_DEPTH", SETTING_COUNT, AT(receive_depth), 64, 32768, 4096,
	 "64 to 32768 unread signals per NIC"},
	{"WEFT_CHUNK_BYTES", SETTING_BYTES, AT(chunk_bytes), 4096, 16 * MIB, MIB,
	 "4 KiB to 16 MiB and a multiple of 4 KiB, written like 1M or 262144"},
	{"WEFT_IB_TIMEOUT", SETTING_COUNT, AT(timeout), 1, 31, 17,
	 "an exponent from 1 to 31 (one try waits 4.096 us times 2 to its power; 0 would wait "
	 "without end)"},
	{"WEFT_IB_RETRY", SETTING_COUNT, AT(retry), 0, 6, 6,
	 "0 to 6 retries (7 is refused: some devices, soft RoCE among them, then never give up on "
	 "a dead peer)"},
	{"WEFT_IB_RNR_RETRY", SETTING_COUNT, AT(rnr_retry), 0, 7, 7,
	 "0 to 7 retries (7: without end; the update's own deadline ends it)"},
	{"WEFT_IB_RNR_TIMER", SETTING_COUNT, AT(rnr_timer), 0, 31, 12,
	 "a timer code from 0 to 31 (12 is 0.64 ms, 0 is 655.36 ms)"},
	{"WEFT_MTU", SETTING_MTU, AT(mtu), 256, 4096, 0,
	 "256, 512, 1024, 2048 or 4096 bytes, or auto"},
	{"WEFT_TRAFFIC_CLASS", SETTING_AUTO, AT(traffic_class), 0, 255, -1,
	 "0 to 255 (the DSCP times 4 on RoCE), or auto"},
	{"WEFT_SERVICE_LEVEL", SETTING_COUNT, AT(service_level), 0, 15, 0,
	 "a service level from 0 to 15"},
	{"WEFT_RELAXED_ORDERING", SETTING_STATE, AT(relaxed), VERBS_AUTO, VERBS_OFF, VERBS_AUTO,
	 "on, off or auto"},
	{"WEFT_IBV_WR", SETTING_STATE, AT(new_post), VERBS_AUTO, VERBS_OFF, VERBS_AUTO,
	 "on, off or auto"},
};

/* Read only when WEFT_GID_INDEX is not set: NCCL's users have found their row already. */
static const struct setting nccl_gid_row = {"NCCL_IB_GID_INDEX",
					    SETTING_AUTO,
					    AT(gid_index),
					    0,
					    255,
					    -1,
					    "a row of the GID table, 0 to 255, or -1 to choose"};

static void store(struct verbs_settings *settings, const struct setting *row, int64_t value)
{
	void *field = (char *)settings + row->offset;

	if (row->kind == SETTING_BYTES)
		*(uint64_t *)field = (uint64_t)value;
	else /* int32_t and enum verbs_tristate have the same bits */
		*(uint32_t *)field = (uint32_t)value;
}

static bool state_parse(const char *text, int64_t *value)
{
	static const char *const words[] = {"auto", "on", "1", "off", "0"};
	static const enum verbs_tristate states[] = {VERBS_AUTO, VERBS_ON, VERBS_ON, VERBS_OFF,
						     VERBS_OFF};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcasecmp(text, words[i]) == 0) {
			*value = states[i];
			return true;
		}
	return false;
}

static bool is_power(int64_t value)
{
	return (value & (value - 1)) == 0;
}

static bool number_parse(const struct setting *row, const char *text, int64_t *value)
{
	uint64_t number;
	bool read =
		row->kind == SETTING_BYTES ? parse_bytes(text, &number) : parse_u64(text, &number);

	if (!read || number > (uint64_t)row->max || number < (uint64_t)row->min)
		return false;
	*value = (int64_t)number;
	if (row->kind == SETTING_BYTES)
		return *value % row->min == 0;
	if (row->kind == SETTING_MTU)
		return is_power(*value);
	if (row->kind == SETTING_POWER)
		while (!is_power(*value))
			*value += 1;
	return true;
}

static bool value_parse(const struct setting *row, const char *text, int64_t *value)
{
	bool has_auto = row->kind == SETTING_AUTO || row->kind == SETTING_MTU;

	if (row->kind == SETTING_STATE)
		return state_parse(text, value);
	if (has_auto && strcasecmp(text, "auto") == 0) {
		*value = row->standard;
		return true;
	}
	if (row->kind == SETTING_AUTO && strcmp(text, "-1") == 0) {
		*value = -1;
		return true;
	}
	return number_parse(row, text, value);
}

/* 1: the variable is not set (or empty, as scripts leave it). */
static int row_read(struct verbs_settings *settings, const struct setting *row,
		    char *(*get)(const char *name), struct error *error)
{
	const char *text = get(row->variable);
	int64_t value;

	if (!text || !*text)
		return 1;
	if (!value_parse(row, text, &value))
		return error_set(error, ERROR_CONFIG, "%s=%.64s: must be %s", row->variable, text,
				 row->words);
	store(settings, row, value);
	return 0;
}

static int gid_read(struct verbs_settings *settings, char *(*get)(const char *name),
		    struct error *error)
{
	const char *weft = get("WEFT_GID_INDEX");
	int rc;

	if (weft && *weft) {
		settings->gid_from = settings->gid_index >= 0 ? "WEFT_GID_INDEX" : "";
		return 0;
	}
	rc = row_read(settings, &nccl_gid_row, get, error);
	if (rc == 0 && settings->gid_index >= 0)
		settings->gid_from = nccl_gid_row.variable;
	return rc < 0 ? rc : 0;
}

static int nics_take(struct verbs_settings *settings, const char *from, const char *text,
		     struct error *error)
{
	size_t length = strlen(text);

	if (length >= sizeof(settings->nics))
		return error_set(error, ERROR_CONFIG,
				 "%s names NICs in %zu characters (%.32s...): must be at most %zu; "
				 "a prefix in NCCL_IB_HCA or fewer names will do",
				 from, length, text, sizeof(settings->nics) - 1);
	for (size_t i = 0; i < length; i++)
		if (!isgraph((unsigned char)text[i]))
			return error_set(error, ERROR_CONFIG,
					 "%s has a blank or an unprintable character at position "
					 "%zu: must be device names like mlx5_0,mlx5_1:1 without "
					 "blanks",
					 from, i + 1);
	memcpy(settings->nics, text, length + 1);
	settings->nics_from = from;
	return 0;
}

/* The flag, then our variable, then NCCL's: the first that says something. */
static int nics_read(struct verbs_settings *settings, const char *nics,
		     char *(*get)(const char *name), struct error *error)
{
	static const char *const variables[] = {"WEFT_NIC", "NCCL_IB_HCA"};

	if (nics && *nics)
		return nics_take(settings, "--nic", nics, error);
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const char *text = get(variables[i]);

		if (text && *text)
			return nics_take(settings, variables[i], text, error);
	}
	return 0;
}

void verbs_settings_default(struct verbs_settings *settings)
{
	memset(settings, 0, sizeof(*settings));
	settings->nics_from = "";
	settings->gid_from = "";
	for (size_t i = 0; i < ARRAY_SIZE(settings_rows); i++)
		store(settings, &settings_rows[i], settings_rows[i].standard);
}

int verbs_settings_read(struct verbs_settings *settings, const char *nics,
			char *(*get)(const char *name), struct error *error)
{
	int rc;

	verbs_settings_default(settings);
	for (size_t i = 0; i < ARRAY_SIZE(settings_rows); i++) {
		rc = row_read(settings, &settings_rows[i], get, error);
		if (rc < 0)
			return rc;
	}
	rc = gid_read(settings, get, error);
	if (rc)
		return rc;
	return nics_read(settings, nics, get, error);
}

uint64_t verbs_timeout_ns(uint32_t exponent)
{
	if (exponent == 0)
		return UINT64_MAX; /* the device waits without end */
	return UINT64_C(4096) << (exponent > 31 ? 31 : exponent);
}

uint64_t verbs_retry_ns(uint32_t exponent, uint32_t retry)
{
	uint64_t once = verbs_timeout_ns(exponent), all;

	return __builtin_mul_overflow(once, (uint64_t)retry + 1, &all) ? UINT64_MAX : all;
}
