/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/serve.h"

#include "base/array.h"
#include "base/library.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY	     "libmicrohttpd.so.12"
#define INSTALL	     "install libmicrohttpd12 (Debian), or write a file instead (--metrics-file)"
#define MEMORY_BYTES (8u << 10)
#define KIND	     "text/plain; version=0.0.4; charset=utf-8"

#define EXPORTED(X)                                  \
	X(start, MHD_start_daemon)                   \
	X(stop, MHD_stop_daemon)                     \
	X(queue, MHD_queue_response)                 \
	X(response, MHD_create_response_from_buffer) \
	X(header, MHD_add_response_header)           \
	X(destroy, MHD_destroy_response)

static struct {
#define X(name, symbol) __typeof__(symbol) *name;
	EXPORTED(X)
#undef X
} http;

static const struct library_row rows[] = {
#define X(name, symbol) {#symbol, NULL, offsetof(__typeof__(http), name)},
	EXPORTED(X)
#undef X
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_there;
static char missing[LIBRARY_WHY_BYTES];

/* It stays open: its thread may be anywhere in it. */
static void open_library(void)
{
	is_there = library_fill(dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), rows, ARRAY_SIZE(rows),
				&http, missing);
}

struct serve {
	struct MHD_Daemon *daemon;
	serve_page *page;
	void *context;
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *body,
			      size_t bytes)
{
	struct MHD_Response *response =
		http.response(bytes, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	http.header(response, MHD_HTTP_HEADER_CONTENT_TYPE, KIND);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		http.header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	result = http.queue(connection, status, response);
	http.destroy(response);
	return result;
}

static enum MHD_Result answer_page(struct serve *serve, struct MHD_Connection *connection)
{
	enum MHD_Result result = MHD_NO;
	struct text text = {0};

	serve->page(serve->context, &text);
	if (text_ok(&text))
		result = answer(connection, MHD_HTTP_OK, text.data, text.bytes);
	text_fini(&text);
	return result;
}

/* The first call of a request has its head; bodies are for nobody, and the connection ends with them. */
static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
			      const char *method, const char *version, const char *body,
			      size_t *bytes, void **seen)
{
	static const char wrong_method[] = "GET /metrics is all there is\n";
	static const char wrong_path[] = "weft: metrics are at /metrics\n";

	(void)version;
	(void)body;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, wrong_method,
			      sizeof(wrong_method) - 1);
	if (!*seen) {
		*seen = context;
		return MHD_YES;
	}
	if (*bytes)
		return MHD_NO;
	if (strcmp(path, "/metrics") != 0)
		return answer(connection, MHD_HTTP_NOT_FOUND, wrong_path, sizeof(wrong_path) - 1);
	return answer_page(context, connection);
}

/* Its thread takes no signals: they are the host's. */
static struct MHD_Daemon *start(struct serve *serve, int descriptor)
{
	struct MHD_OptionItem options[] = {
		{MHD_OPTION_LISTEN_SOCKET, descriptor, NULL},
		{MHD_OPTION_CONNECTION_LIMIT, SERVE_CONNECTIONS, NULL},
		{MHD_OPTION_PER_IP_CONNECTION_LIMIT, SERVE_PER_ADDRESS, NULL},
		{MHD_OPTION_CONNECTION_TIMEOUT, SERVE_IDLE_S, NULL},
		{MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_BYTES, NULL},
		{MHD_OPTION_END, 0, NULL},
	};
	struct MHD_Daemon *daemon;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	daemon = http.start(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, handle,
			    serve, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return daemon;
}

int serve_start(struct serve **out, int descriptor, serve_page *page, void *context,
		struct error *error)
{
	struct serve *serve = *out = NULL;
	int rc = 0;

	pthread_once(&once, open_library);
	if (!is_there)
		rc = error_set(error, ERROR_UNSUPPORTED, LIBRARY " cannot be opened: %s; " INSTALL,
			       missing);
	else if (!(serve = memory_zalloc(1, sizeof(*serve))))
		rc = memory_error(error, "serving metrics", sizeof(*serve));
	if (!rc) {
		serve->page = page;
		serve->context = context;
		serve->daemon = start(serve, descriptor);
	}
	if (!rc && !serve->daemon)
		rc = error_set(error, ERROR_IO,
			       "libmicrohttpd could not start a thread or an epoll descriptor");
	if (rc) {
		memory_free(serve);
		close(descriptor);
		return rc;
	}
	*out = serve;
	return 0;
}

void serve_stop(struct serve **out)
{
	struct serve *serve = *out;

	*out = NULL;
	if (!serve)
		return;
	http.stop(serve->daemon); /* closes the socket */
	memory_free(serve);
}
