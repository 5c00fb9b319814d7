/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.h -- a page of text by HTTP, for Prometheus. libmicrohttpd's only home, which is opened when it is wanted: a host
 * that serves nothing need not have it.
 *
 * Threads: one of its own, that serves all connections and calls `page`. Bounds: SERVE_CONNECTIONS at once, SERVE_PER_ADDRESS of them
 * of one address, 8 KiB of memory each, SERVE_IDLE_S seconds of silence; who is beyond these is hung up on, and nobody waits for him.
 */
#ifndef METRICS_SERVE_H
#define METRICS_SERVE_H

#include "base/text.h"
#include "base/error.h"

#define SERVE_CONNECTIONS 64u
#define SERVE_PER_ADDRESS 16u
#define SERVE_IDLE_S	  5u

/* Appends what is served. */
typedef void serve_page(void *context, struct text *text);

struct serve;
/* Takes the listening socket, whatever it returns. ERROR_UNSUPPORTED: without libmicrohttpd. */
int serve_start(struct serve **serve, int descriptor, serve_page *page, void *context, struct error *error);
/* When it returns, `page` is not running. NULL inside is fine. */
void serve_stop(struct serve **serve);

#endif
