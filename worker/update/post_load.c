/* SPDX-License-Identifier: Apache-2.0
 *
 * post_load.c -- the host's hook between the last byte of a version and its publication: where an
 * engine rebuilds what it derives from parameters and nobody sends.
 *
 *   wait(v): ENDs counted ─► checksums right ─► hook(v) ─► published
 *                                                 └─ not 0: tainted, as after a wrong checksum
 */
#include "worker/api/worker.h"

#include "base/clock.h"

int post_load_outside(const struct weft_worker *worker, const char *call, struct error *error)
{
	if (!worker->post_load.running)
		return 0;
	return error_set(error, ERROR_STATE,
			 "%s is not possible inside the post-load hook, which weft_update_wait "
			 "waits for",
			 call);
}

int post_load_run(struct weft_worker *worker, uint64_t version, struct error *error)
{
	struct post_load *load = &worker->post_load;
	uint64_t begin = clock_ns();
	int answer = 0;

	if (load->hook) {
		load->running = true;
		answer = load->hook(load->context, version);
		load->running = false;
	}
	worker->stats.post_load_ns = clock_ns() - begin;
	if (!answer)
		return 0;
	return error_set(error, ERROR_POST_LOAD,
			 "update %llu: the post-load hook returned %d; all bytes had arrived, the "
			 "version is not published",
			 (unsigned long long)version, answer);
}
