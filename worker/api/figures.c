/* SPDX-License-Identifier: Apache-2.0
 *
 * figures.c -- what a host may look at: codes, declarations, the plan, counters.
 */
#include "worker/api/abi.h"
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
	return error_strerror((enum error_code)(code < 0 ? -code : code));
}

int weft_exit_code(int code)
{
	return error_exit_code((enum error_code)(code < 0 ? -code : code));
}

/* A trainer's calls and packing threads count while we look. A forked child's copy of a lock may be
 * held for ever by a thread that it has not. */
void worker_figures(const struct weft_worker *worker, weft_stats *stats)
{
	*stats = worker->waiter.stats;
	if (worker->self.role == ROLE_TRAINER && worker->pid == getpid())
		sender_figures((struct sender *)(uintptr_t)&worker->sender, stats);
	else
		for (size_t p = 0; worker->epoch && p < worker->epoch->peer_count; p++)
			peer_figures(&worker->epoch->peers[p], &stats->writes, &stats->chunks);
}

/* What the three below begin with. */
static int check_view(const struct weft_worker *worker, enum abi_struct type, const char *call,
		      const void *view, struct error *error)
{
	if (!worker)
		return error_set(error, ERROR_USAGE, "%s: worker is NULL", call);
	return abi_check_out(type, call, view, error);
}

int weft_get_stats(const weft_worker *worker, weft_stats *stats, weft_error *error)
{
	struct error inner;
	weft_stats ours;
	int rc = check_view(worker, ABI_STATS, "weft_get_stats", stats, &inner);

	if (rc)
		return worker_result(rc, &inner, error);
	worker_figures(worker, &ours);
	abi_give(ABI_STATS, &ours, stats);
	return 0;
}

int weft_loss_at(const weft_worker *worker, uint32_t index, weft_loss *loss, weft_error *error)
{
	weft_loss ours = WEFT_LOSS_INIT;
	struct control_gone gone;
	struct error inner;
	int rc = check_view(worker, ABI_LOSS, "weft_loss_at", loss, &inner);

	if (rc)
		return worker_result(rc, &inner, error);
	if (!worker->control || !control_gone(worker->control, index, &gone))
		return WEFT_NONE;
	ours.role = gone.first.role == ROLE_TRAINER ? WEFT_TRAINER : WEFT_INFERENCE;
	ours.first = gone.first.rank;
	ours.count = gone.count;
	ours.code = (int)gone.why.code;
	ours.back = gone.back;
	snprintf(ours.text, sizeof(ours.text), "%s", gone.why.text);
	abi_give(ABI_LOSS, &ours, loss);
	return 0;
}

int weft_tensor_at(const weft_worker *worker, uint32_t id, weft_tensor_view *view,
		   weft_error *error)
{
	const struct tensor_info *tensor;
	const struct local *local;
	weft_tensor_view ours = WEFT_TENSOR_VIEW_INIT;
	struct error inner;
	int rc = check_view(worker, ABI_TENSOR_VIEW, "weft_tensor_at", view, &inner);

	if (!rc)
		rc = worker_check_id("weft_tensor_at", "tensor", id, worker->locals.count, &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	local = &worker->locals.items[id];
	tensor = local_info(&worker->holding, local);
	ours.name = tensor->name;
	ours.dtype = dtype_name(tensor->dtype);
	ours.dims = tensor->dims;
	memcpy(ours.shape, tensor->shape, sizeof(ours.shape));
	ours.row_lo = local->lo;
	ours.row_hi = local->hi;
	ours.bytes = local->bytes;
	ours.wanted = worker->wanted && worker->wanted[id];
	abi_give(ABI_TENSOR_VIEW, &ours, view);
	return 0;
}

int weft_holding_at(const weft_worker *worker, uint32_t index, weft_holding_view *view,
		    weft_error *error)
{
	weft_holding_view ours = WEFT_HOLDING_VIEW_INIT;
	struct error inner;
	int rc = check_view(worker, ABI_HOLDING_VIEW, "weft_holding_at", view, &inner);
	const struct tensor_info *tensor;
	const struct held *held;

	if (!rc)
		rc = worker_check_id("weft_holding_at", "box", index, worker->holding.held_count,
				     &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	held = &worker->holding.held[index];
	tensor = &worker->holding.tensors[held->tensor];
	ours.name = tensor->name;
	ours.dtype = dtype_name(tensor->dtype);
	ours.dims = tensor->dims;
	ours.local = locals_of(&worker->locals, held);
	memcpy(ours.shape, tensor->shape, sizeof(ours.shape));
	memcpy(ours.lo, held->box.lo, sizeof(ours.lo));
	memcpy(ours.hi, held->box.hi, sizeof(ours.hi));
	ours.offset = held->place.offset;
	memcpy(ours.stride, held->place.stride, sizeof(ours.stride));
	abi_give(ABI_HOLDING_VIEW, &ours, view);
	return 0;
}

int weft_param_at(const weft_worker *worker, uint32_t id, weft_param_view *view, weft_error *error)
{
	const struct tensor_info *param;
	weft_param_view ours = WEFT_PARAM_VIEW_INIT;
	struct error inner;
	int rc = check_view(worker, ABI_PARAM_VIEW, "weft_param_at", view, &inner);

	if (!rc)
		rc = worker_check_id("weft_param_at", "parameter", id, worker->layout.param_count,
				     &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	param = &worker->layout.params[id];
	ours.name = param->name;
	ours.dtype = dtype_name(param->dtype);
	ours.dims = param->dims;
	memcpy(ours.shape, param->shape, sizeof(ours.shape));
	ours.bytes = param->bytes;
	abi_give(ABI_PARAM_VIEW, &ours, view);
	return 0;
}

int weft_plan(const weft_worker *worker, weft_plan_view *view, weft_error *error)
{
	weft_plan_view ours = WEFT_PLAN_VIEW_INIT;
	const struct message_plan *plan;
	struct error inner;
	int rc = 0;

	if (!worker || !view)
		rc = error_set(&inner, ERROR_USAGE, "weft_plan: worker or view is NULL");
	else if (worker->stage != STAGE_JOINED && worker->stage != STAGE_LEFT)
		rc = worker_stage(worker, STAGE_JOINED, "weft_plan", &inner);
	if (!rc)
		rc = abi_check_out(ABI_PLAN_VIEW, "weft_plan", view, &inner);
	if (rc)
		return worker_result(rc, &inner, error);
	if (!worker->epoch && worker->health.failed) {
		rc = health_check((struct health *)(uintptr_t)&worker->health, &inner);
		return worker_result(rc, &inner, error);
	}
	if (!worker->epoch) {
		rc = error_set(
			&inner, ERROR_STATE,
			"weft_plan: an engine comes in, and there is no plan until the call that "
			"waits (weft_update_try_begin, weft_update_try_wait) has another one");
		return worker_result(rc, &inner, error);
	}
	plan = worker->epoch->plan;
	digest_text(plan->digest, ours.digest);
	snprintf(ours.policy, sizeof(ours.policy), "%s", plan->policy);
	snprintf(ours.order, sizeof(ours.order), "%s", plan->order);
	for (size_t i = 0; i < worker->epoch->peer_count; i++)
		ours.bytes += worker->epoch->peers[i].plan->bytes;
	ours.pieces = plan->row_count;
	ours.peers = (uint32_t)worker->epoch->peer_count;
	abi_give(ABI_PLAN_VIEW, &ours, view);
	return 0;
}
