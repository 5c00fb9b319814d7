/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/outlet.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pattern.h"
#include "base/threads.h"
#include "base/trouble.h"
#include "metrics/address.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MS	   5000u
#define PAGE_MS	   100u /* whoever asks again sooner gets the same page */
#define PATH_BYTES 4096

struct outlet {
	serve_page *render;
	void *context;
	struct serve *serve;
	char *path; /* NULL: no file */
	char *file_name;
	pthread_t writer;
	bool writes; /* that thread runs */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under lock */
	struct text page;
	uint64_t page_ns;
	bool stop, failed; /* the last write of the file did */
};

static bool is_off(const char *value)
{
	return !value || !*value || !strcmp(value, "off");
}

const char *outlet_choose(const char *given, const char *given_name, const char *variable,
			  const char **name)
{
	*name = given && *given ? given_name : variable;
	return given && *given ? given : getenv(variable);
}

/* ---- the page ---- */

static void give_page(void *context, struct text *text)
{
	struct outlet *outlet = context;
	uint64_t now = clock_ns();

	pthread_mutex_lock(&outlet->lock);
	if (!outlet->page.bytes || now > outlet->page_ns + PAGE_MS * 1000000ull) {
		text_fini(&outlet->page);
		outlet->page = (struct text){0};
		outlet->render(outlet->context, &outlet->page);
		outlet->page_ns = now;
	}
	text_add_bytes(text, text_string(&outlet->page), outlet->page.bytes);
	text->failed |= !text_ok(&outlet->page);
	pthread_mutex_unlock(&outlet->lock);
}

static int open_port(struct outlet *outlet, const struct outlet_options *options,
		     struct error *error)
{
	struct address address;
	int descriptor = -1;
	uint16_t port = 0;
	int rc = address_parse(&address, options->address, error);

	if (!rc)
		rc = address_listen(&address, &descriptor, &port, error);
	if (!rc)
		rc = serve_start(&outlet->serve, descriptor, give_page, outlet, error);
	if (rc)
		return error_wrap(error, "%s '%.80s'", options->address_name, options->address);
	log_info("metrics at http://%s:%u/metrics", *address.host ? address.host : "*", port);
	return 0;
}

/* ---- the file ---- */

static int write_file(const struct outlet *outlet, const struct text *text, struct error *error)
{
	struct file_writer writer;
	int rc = file_writer_open(&writer, outlet->path, error);

	if (rc)
		return rc;
	fwrite(text->data, 1, text->bytes, writer.stream); /* commit says whether it went well */
	return file_writer_commit(&writer, error);
}

/* A disk that is full is told once, and not every five seconds. */
static int put_file(struct outlet *outlet, struct error *error)
{
	struct text text = {0};
	int rc;

	give_page(outlet, &text);
	rc = text_ok(&text) ? write_file(outlet, &text, error)
			    : memory_error(error, "writing metrics", 0);
	text_fini(&text);
	return rc;
}

static void put_file_or_warn(struct outlet *outlet)
{
	struct error error;
	int rc = put_file(outlet, &error);

	if (rc && !outlet->failed)
		log_warn("%s: %s", outlet->file_name, error.text);
	if (rc)
		trouble_set(TROUBLE_METRICS, "%s: %s", outlet->file_name, error.text);
	else
		trouble_over(TROUBLE_METRICS);
	outlet->failed = rc != 0;
}

static void *write_files(void *context)
{
	struct outlet *outlet = context;
	bool stop = false;

	pthread_setname_np(pthread_self(), "weft-metrics");
	while (!stop) {
		uint64_t until = clock_ns() + FILE_MS * 1000000ull;
		const struct timespec at = {(time_t)(until / 1000000000u),
					    (long)(until % 1000000000u)};
		int rc = 0;

		pthread_mutex_lock(&outlet->lock);
		while (!outlet->stop && !rc)
			rc = pthread_cond_timedwait(&outlet->changed, &outlet->lock, &at);
		stop = outlet->stop;
		if (stop)
			outlet->page_ns = 0; /* the last one is of now */
		pthread_mutex_unlock(&outlet->lock);
		put_file_or_warn(outlet);
	}
	return NULL;
}

static int open_file(struct outlet *outlet, const struct outlet_options *options,
		     struct error *error)
{
	char path[PATH_BYTES];
	int rc = 0, why;

	if (!pattern_expand(path, sizeof(path), options->file, options->who))
		rc = error_set(error, ERROR_CONFIG, "the path is too long");
	outlet->path = rc ? NULL : memory_string(path);
	outlet->file_name = memory_string(options->file_name);
	if (!rc && (!outlet->path || !outlet->file_name))
		rc = memory_error(error, "opening metrics", 0);
	if (!rc) /* now, and not in five seconds */
		rc = put_file(outlet, error);
	if (rc)
		return error_wrap(error,
				  "%s '%.200s' (give a file in a folder that this process may "
				  "write to)",
				  options->file_name, options->file);
	why = threads_start(&outlet->writer, write_files, outlet);
	outlet->writes = !why;
	return why ? error_set_errno(error, ERROR_LIMIT, why, "%s: a thread that writes the file",
				     options->file_name)
		   : 0;
}

/* ---- life ---- */

bool outlet_wanted(const struct outlet_options *options)
{
	return !is_off(options->address) || !is_off(options->file);
}

int outlet_open(struct outlet **out, const struct outlet_options *options, struct error *error)
{
	pthread_condattr_t attributes;
	struct outlet *outlet;
	int rc = 0;

	*out = NULL;
	if (!outlet_wanted(options))
		return 0;
	outlet = *out = memory_zalloc(1, sizeof(*outlet));
	if (!outlet)
		return memory_error(error, "opening metrics", sizeof(*outlet));
	outlet->render = options->render;
	outlet->context = options->context;
	pthread_mutex_init(&outlet->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&outlet->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	if (!is_off(options->file))
		rc = open_file(outlet, options, error);
	if (!rc && !is_off(options->address))
		rc = open_port(outlet, options, error);
	if (rc)
		outlet_close(out);
	return rc;
}

void outlet_close(struct outlet **out)
{
	struct outlet *outlet = *out;

	*out = NULL;
	if (!outlet)
		return;
	serve_stop(&outlet->serve);
	if (outlet->writes) {
		pthread_mutex_lock(&outlet->lock);
		outlet->stop = true;
		pthread_cond_broadcast(&outlet->changed);
		pthread_mutex_unlock(&outlet->lock);
		pthread_join(outlet->writer, NULL);
	}
	text_fini(&outlet->page);
	pthread_cond_destroy(&outlet->changed);
	pthread_mutex_destroy(&outlet->lock);
	memory_free(outlet->file_name);
	memory_free(outlet->path);
	memory_free(outlet);
}
