/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c -- a trainer's calls of an update: the arguments and the worker are looked at here, the update is
 * made in worker/update/.
 */
#include "worker/api/worker.h"

int weft_update_begin(weft_worker *worker, uint64_t version, weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_begin", &inner);

	if (!rc)
		rc = update_begin(worker, version, &inner);
	return worker_result(rc, &inner, error);
}

int weft_update_write(weft_worker *worker, uint32_t id, const void *data, uint64_t bytes,
		      weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_write", &inner);

	if (!rc)
		rc = update_write_tensor(worker, id, data, bytes, &inner);
	return worker_result(rc, &inner, error);
}

int weft_update_write_all(weft_worker *worker, const void *const *data, weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_write_all", &inner);

	if (!rc)
		rc = update_write_all(worker, data, &inner);
	return worker_result(rc, &inner, error);
}

int weft_update_write_bucket(weft_worker *worker, const weft_slice *slices, size_t count,
			     weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_write_bucket", &inner);

	if (!rc)
		rc = update_write_bucket(worker, slices, count, &inner);
	return worker_result(rc, &inner, error);
}

int weft_update_drain(weft_worker *worker, weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_drain", &inner);

	if (!rc)
		rc = update_drain(worker, &inner);
	return worker_result(rc, &inner, error);
}

int weft_update_end(weft_worker *worker, weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_end", &inner);

	if (!rc)
		rc = update_end(worker, &inner);
	return worker_result(rc, &inner, error);
}

int weft_update_replay(weft_worker *worker, uint64_t version, weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_replay", &inner);

	if (!rc)
		rc = update_repeat(worker, version, &inner);
	return worker_result(rc, &inner, error);
}

int weft_update_abort(weft_worker *worker, const char *why, weft_error *error)
{
	struct error inner;
	int rc = worker_may_update(worker, ROLE_TRAINER, "weft_update_abort", &inner);

	if (!rc)
		rc = update_abort(worker, why, &inner);
	return worker_result(rc, &inner, error);
}
