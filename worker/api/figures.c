/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.c -- what a host may look at: codes, declarations, the plan, counters.
 */
#include "worker/api/worker.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *weft_version_text(void)
{
	return WEFT_VERSION;
}

const char *weft_strerror(int code)
{
	return error_words((enum error_code)(code < 0 ? -code : code));
}

int weft_exit_code(int code)
{
	return error_exit_code((enum error_code)(code < 0 ? -code : code));
}

/* A trainer's calls and packing threads count while we look. A forked child's copy of a lock may be
 * held for ever by a thread that it has not. */
int weft_get_stats(const weft_worker *worker, weft_stats *stats)
{
	struct trainer *trainer;
	bool locks;

	if (!worker || !stats)
		return -WEFT_E_USAGE;
	trainer = (struct trainer *)(uintptr_t)&worker->trainer;
	locks = worker->self.role == ROLE_TRAINER && worker->pid == getpid();
	if (locks)
		pthread_mutex_lock(&trainer->lock);
	*stats = worker->stats;
	if (locks) {
		pthread_mutex_unlock(&trainer->lock);
		pthread_mutex_lock(&trainer->wire);
	}
	for (size_t i = 0; i < worker->peer_count; i++) {
		const struct transport_stats *wire;

		if (!worker->peers[i].endpoint)
			continue;
		wire = transport_endpoint_stats(worker->peers[i].endpoint);
		stats->writes += wire->writes;
		stats->chunks += wire->chunks;
	}
	if (locks)
		pthread_mutex_unlock(&trainer->wire);
	return 0;
}

int weft_tensor_at(const weft_worker *worker, uint32_t id, weft_tensor_view *view)
{
	const struct tensor_info *tensor;

	if (!worker || !view || id >= worker->holding.tensor_count)
		return -WEFT_E_USAGE;
	tensor = &worker->holding.tensors[id];
	memset(view, 0, sizeof(*view));
	view->name = tensor->name;
	view->dtype = dtype_name(tensor->dtype);
	view->dims = tensor->dims;
	memcpy(view->shape, tensor->shape, sizeof(view->shape));
	view->row_lo = worker->held[id].lo;
	view->row_hi = worker->held[id].hi;
	view->bytes = worker->held[id].bytes;
	view->wanted = worker->trainer.tensor_first &&
		       worker->trainer.tensor_first[id] != worker->trainer.tensor_first[id + 1];
	return 0;
}

int weft_param_at(const weft_worker *worker, uint32_t id, weft_param_view *view)
{
	const struct param_info *param;

	if (!worker || !view || id >= worker->layout.param_count)
		return -WEFT_E_USAGE;
	param = &worker->layout.params[id];
	memset(view, 0, sizeof(*view));
	view->name = param->name;
	view->dtype = dtype_name(param->dtype);
	view->dims = param->dims;
	memcpy(view->shape, param->shape, sizeof(view->shape));
	view->bytes = param->bytes;
	return 0;
}

int weft_plan(const weft_worker *worker, weft_plan_view *view, weft_error *error)
{
	struct error inner;
	int rc = 0;

	if (!worker || !view)
		rc = error_set(&inner, ERROR_USAGE, "weft_plan: worker or view is NULL");
	else if (worker->stage != STAGE_JOINED && worker->stage != STAGE_LEFT)
		rc = worker_stage(worker, STAGE_JOINED, "weft_plan", &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	memset(view, 0, sizeof(*view));
	digest_text(worker->plan->digest, view->digest);
	snprintf(view->policy, sizeof(view->policy), "%s", worker->plan->policy);
	snprintf(view->order, sizeof(view->order), "%s", worker->plan->order);
	for (size_t i = 0; i < worker->peer_count; i++)
		view->bytes += worker->peers[i].plan->bytes;
	view->pieces = worker->plan->row_count;
	view->peers = (uint32_t)worker->peer_count;
	return 0;
}
