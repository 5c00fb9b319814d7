/* SPDX-License-Identifier: Apache-2.0
 *
 * install.c -- WEFT_CUDA_MOCK puts mock devices into a program of tests: "devices=2,order=late,seed=7". Each word is
 * a field of cuda_mock_options; what is not known ends the program.
 */
#include "tests/cuda_mock/cuda_mock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { NUMBER, SIZE, WORD, NO };

struct word {
	const char *name, *value; /* value: of WORD and NO */
	enum kind kind;
	size_t at;
	int means;
};

#define AT(field) offsetof(struct cuda_mock_options, field)

static const struct word words[] = {
	{"devices", NULL, NUMBER, AT(devices), 0},
	{"bytes", NULL, SIZE, AT(bytes), 0},
	{"seed", NULL, SIZE, AT(seed), 0},
	{"lose", NULL, SIZE, AT(lose_at), 0},
	{"order", "eager", WORD, AT(order), CUDA_MOCK_EAGER},
	{"order", "random", WORD, AT(order), CUDA_MOCK_RANDOM},
	{"order", "late", WORD, AT(order), CUDA_MOCK_LATE},
	{"driver", "absent", WORD, AT(driver), CUDA_MOCK_ABSENT},
	{"driver", "old", WORD, AT(driver), CUDA_MOCK_OLD},
	{"peer", "no", NO, AT(no_peer), 1},
	{"mapped", "no", NO, AT(no_mapped), 1},
	{"dmabuf", "no", NO, AT(no_dmabuf), 1},
	{"ipc", "no", NO, AT(no_ipc), 1},
	{"flush", "no", NO, AT(no_flush), 1},
	{"peermem", "yes", NO, AT(peermem), 1},
	{"touch", "yes", NO, AT(touchable), 1},
};

/* fail=CALL:N[:RESULT], CALL may be "any" */
static bool parse_fail(char *value, struct cuda_mock_options *options)
{
	char *nth = strchr(value, ':'), *result = nth ? strchr(nth + 1, ':') : NULL;

	if (!nth)
		return false;
	*nth = '\0';
	options->fail_at = strtoull(nth + 1, NULL, 10);
	options->fail_result = result ? atoi(result + 1) : 0;
	if (strcmp(value, "any") == 0)
		return true;
	for (int i = 0; i < CUDA_CALL_COUNT; i++)
		if (strcmp(value, cuda_call_name((enum cuda_call)i)) == 0)
			options->fail_call = cuda_call_name((enum cuda_call)i);
	return options->fail_call != NULL;
}

static bool parse_size(const char *value, uint64_t *out)
{
	char *end;

	*out = strtoull(value, &end, 10);
	if (end != value && strchr("KMG", *end) && *end) {
		*out <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
		end++;
	}
	return end != value && !*end;
}

static bool parse_word(const char *name, char *value, struct cuda_mock_options *options)
{
	uint64_t number;

	if (strcmp(name, "fail") == 0)
		return parse_fail(value, options);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		const struct word *word = &words[i];
		void *at = (char *)options + word->at;

		if (strcmp(name, word->name) != 0 ||
		    (word->value && strcmp(value, word->value) != 0))
			continue;
		if (word->kind == WORD)
			*(int *)at = word->means;
		if (word->kind == NO)
			*(bool *)at = true;
		if (word->kind != NUMBER && word->kind != SIZE)
			return true;
		if (!parse_size(value, &number))
			return false;
		if (word->kind == NUMBER)
			*(int *)at = (int)number;
		else
			*(uint64_t *)at = number;
		return true;
	}
	return false;
}

int cuda_mock_parse(const char *text, struct cuda_mock_options *options, char *message,
		    size_t bytes)
{
	char copy[512], *rest = copy, *word;

	*options = (struct cuda_mock_options){.order = CUDA_MOCK_RANDOM};
	snprintf(copy, sizeof(copy), "%s", text);
	while ((word = strsep(&rest, ","))) {
		char *value = strchr(word, '=');

		if (!*word || strcmp(word, "1") == 0)
			continue;
		if (value)
			*value++ = '\0';
		if (!value || !parse_word(word, value, options)) {
			snprintf(message, bytes, "WEFT_CUDA_MOCK: '%s' is not known in '%s'", word,
				 text);
			return -1;
		}
	}
	return 0;
}

static struct cuda_mock_options options;

/* A driver that was not started before a fork is any child's to start. */
static void open_in_child(void)
{
	cuda_mock_open(&options);
}

__attribute__((constructor)) static void install(void)
{
	const char *text = getenv("WEFT_CUDA_MOCK");
	char message[256];

	if (!text)
		return;
	if (cuda_mock_parse(text, &options, message, sizeof(message))) {
		fprintf(stderr, "%s\n", message);
		_Exit(2);
	}
	cuda_mock_open(&options);
	pthread_atfork(NULL, NULL, open_in_child);
}
