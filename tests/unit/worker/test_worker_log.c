/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's own log: whose line it is, in a process of many workers.
 */
#include "tests/unit/worker/worker_rig.h"

static const struct rig_options plain = {.trainers = 2, .ranks = 2};

struct seen {
	pthread_mutex_t lock;
	uint32_t lines[4]; /* t0, t1, i0, i1 */
	uint32_t others, inside, joined[4];
	int nested; /* what weft_set_log answered inside */
};

static void take(void *context, const weft_log_entry *entry)
{
	static const char *const names[] = {"t0", "t1", "i0", "i1"};
	struct seen *seen = context;
	const char *who = NULL, *message = NULL;
	size_t w = 0;

	/* one at a time, says weft_base.h: no lock of ours */
	seen->inside++;
	assert_int_equal(seen->inside, 1);
	for (size_t i = 0; i < entry->field_count; i++) {
		const weft_log_field *field =
			(const void *)((const char *)entry->fields + i * entry->field_stride);

		if (!strcmp(field->key, "who"))
			who = field->value;
		if (!strcmp(field->key, "message"))
			message = field->value;
	}
	assert_string_equal(who, entry->who);
	assert_string_equal(message, entry->text);
	assert_true(entry->level >= WEFT_LOG_ERROR && entry->level <= WEFT_LOG_INFO);
	assert_true(entry->time_ms > 1500000000000);
	while (w < 4 && strcmp(names[w], entry->who) != 0)
		w++;
	if (w == 4)
		seen->others++; /* the controller, which is in this process too */
	else
		seen->lines[w]++;
	/* its own line about the plan begins with the worker's name */
	if (w < 4 && strstr(entry->text, ": plan "))
		seen->joined[w] += !strncmp(entry->text, w < 2 ? "trainer" : "inference", 7) &&
				   strchr(entry->text, '0' + (int)(w % 2)) != NULL;
	seen->nested = weft_set_log(NULL, NULL, 0, NULL);
	seen->inside--;
}

static void test_sink__gets_every_workers_lines_under_its_own_name(void **state)
{
	static struct seen seen;
	struct rig *rig = calloc(1, sizeof(*rig));
	weft_error error = WEFT_ERROR_INIT;
	uint32_t before = 0;

	(void)state;
	assert_non_null(rig);
	rig_ok(weft_set_log(take, &seen, WEFT_LOG_INFO, &error), &error);
	rig_open(rig, &plain);
	rig_update(rig, 1);
	for (int w = 0; w < 4; w++)
		assert_int_equal(seen.joined[w], 1);
	assert_int_equal(seen.nested, -WEFT_E_STATE);
	rig_ok(weft_set_log(NULL, NULL, WEFT_LOG_ERROR, &error), &error);
	for (int w = 0; w < 4; w++)
		before += seen.lines[w];
	rig_close(rig);
	for (int w = 0; w < 4; w++)
		before -= seen.lines[w];
	assert_int_equal(before, 0); /* nothing came after it was taken away */
	rig_ok(weft_set_log(NULL, NULL, 0, &error), &error);
	free(rig);
}

static void test_level__that_is_none_is_refused(void **state)
{
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(weft_set_log(take, NULL, (enum weft_log_level)5, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "level is 5"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sink__gets_every_workers_lines_under_its_own_name),
		cmocka_unit_test(test_level__that_is_none_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
