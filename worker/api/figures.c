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

const char *weft_code_words(int code)
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
	if (!worker || !stats)
		return -WEFT_E_USAGE;
	*stats = worker->waiter.stats;
	if (worker->self.role == ROLE_TRAINER && worker->pid == getpid())
		sender_figures((struct sender *)(uintptr_t)&worker->sender, stats);
	else if (worker->epoch)
		epoch_figures(worker->epoch, &stats->writes, &stats->chunks);
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
	view->wanted = worker->epoch && worker->epoch->send.tensor_first &&
		       send_plan_wants(&worker->epoch->send, id);
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
	const struct message_plan *plan;
	struct error inner;
	int rc = 0;

	if (!worker || !view)
		rc = error_set(&inner, ERROR_USAGE, "weft_plan: worker or view is NULL");
	else if (worker->stage != STAGE_JOINED && worker->stage != STAGE_LEFT)
		rc = worker_stage(worker, STAGE_JOINED, "weft_plan", &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	memset(view, 0, sizeof(*view));
	plan = worker->epoch->plan;
	digest_text(plan->digest, view->digest);
	snprintf(view->policy, sizeof(view->policy), "%s", plan->policy);
	snprintf(view->order, sizeof(view->order), "%s", plan->order);
	for (size_t i = 0; i < plan->peer_count; i++)
		view->bytes += plan->peers[i].bytes;
	view->pieces = plan->row_count;
	view->peers = (uint32_t)plan->peer_count;
	return 0;
}
