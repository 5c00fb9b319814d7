/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs.c -- who does an update's items: the calling threads, and packing threads that sleep until a
 * call has enough for several.
 *
 *   call ─► job ─► items until none is left ─► waits for those that others took ─► returns
 *            ▲
 *   packing threads: an item of the first job that has one; asleep when none has
 */
#include "worker/api/worker.h"

#include "base/log.h"
#include "base/numa.h"

#include <signal.h>
#include <unistd.h>

#define THREADS_DEFAULT_MAX 4u

int trainer_open_locks(struct trainer *trainer, struct error *error)
{
	pthread_condattr_t attributes;
	int rc = pthread_condattr_init(&attributes);

	if (rc)
		return error_set_errno(error, ERROR_MEMORY, rc, "making locks");
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&trainer->lock, NULL);
	pthread_mutex_init(&trainer->wire, NULL);
	pthread_cond_init(&trainer->changed, &attributes);
	pthread_cond_init(&trainer->work, NULL);
	pthread_condattr_destroy(&attributes);
	trainer->locks = true;
	trainer->node = -1;
	return 0;
}

void trainer_close_locks(struct trainer *trainer)
{
	if (!trainer->locks)
		return;
	pthread_mutex_destroy(&trainer->lock);
	pthread_mutex_destroy(&trainer->wire);
	pthread_cond_destroy(&trainer->changed);
	pthread_cond_destroy(&trainer->work);
	trainer->locks = false;
}

/* With the lock held, which it drops meanwhile. The first error stops the update for all. */
static void do_item(struct weft_worker *worker, struct write_job *job, const struct item *item)
{
	struct trainer *trainer = &worker->trainer;
	struct error error;
	int rc;

	job->active++;
	pthread_mutex_unlock(&trainer->lock);
	rc = engine_do(worker, item, &error);
	pthread_mutex_lock(&trainer->lock);
	job->active--;
	engine_close_row(trainer, item->row);
	if (rc)
		engine_break(trainer, &error);
	if (!job->active)
		pthread_cond_broadcast(&trainer->changed);
}

static void *pack(void *context)
{
	struct weft_worker *worker = context;
	struct trainer *trainer = &worker->trainer;

	pthread_setname_np(pthread_self(), "weft-pack");
	log_as(worker->log_name);
	pthread_mutex_lock(&trainer->lock);
	while (!trainer->stop) {
		struct write_job *job = trainer->broken ? NULL : trainer->jobs;
		struct item item;

		while (job && !engine_next(worker, job, &item))
			job = job->next;
		if (job)
			do_item(worker, job, &item);
		else
			pthread_cond_wait(&trainer->work, &trainer->lock);
	}
	pthread_mutex_unlock(&trainer->lock);
	return NULL;
}

static void unlink_job(struct trainer *trainer, struct write_job *job)
{
	struct write_job **at = &trainer->jobs;

	while (*at && *at != job)
		at = &(*at)->next;
	if (*at)
		*at = job->next;
}

/* A row that needs two tensors can be in two calls' jobs, and in that of write_all besides. Whoever
 * did not get it waits for who did: when his call returns, nobody reads his tensor for it any more.
 * Jobs do not wait for each other in a circle: a job that is here has no row open. */
static void wait_others(struct trainer *trainer, const struct write_job *job)
{
	for (size_t i = 0; i < job->count; i++) {
		const struct send_row *row = &trainer->rows[job->rows ? job->rows[i] : i];

		while (row->open && !trainer->broken)
			engine_pause(trainer);
	}
}

int job_run(struct weft_worker *worker, struct write_job *job, bool large, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct item item;
	int rc;

	if (large && trainer->thread_count) {
		struct write_job **last = &trainer->jobs;

		while (*last)
			last = &(*last)->next;
		*last = job;
		pthread_cond_broadcast(&trainer->work);
	}
	while (!(rc = engine_check(worker, error)) && engine_next(worker, job, &item))
		do_item(worker, job, &item);
	if (rc)
		engine_break(trainer, error);
	unlink_job(trainer, job);
	while (job->active)
		engine_pause(trainer);
	wait_others(trainer, job);
	if (!trainer->broken)
		return 0;
	*error = trainer->error;
	return -(int)error->code;
}

/* Beyond the caller's own. */
static uint32_t wanted_threads(const struct weft_worker *worker, const cpu_set_t *cpus)
{
	uint32_t count = (uint32_t)CPU_COUNT(cpus);

	if (worker->pack_threads)
		return worker->pack_threads - 1;
	count = count > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX : count;
	return count ? count - 1 : 0;
}

int jobs_start(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	sigset_t all, before;
	uint32_t wanted;
	cpu_set_t cpus;
	int rc = 0;

	if (sched_getaffinity(0, sizeof(cpus), &cpus)) {
		CPU_ZERO(&cpus);
		CPU_SET(0, &cpus);
	}
	wanted = wanted_threads(worker, &cpus);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (trainer->thread_count < wanted && !rc) {
		pthread_t *thread = &trainer->threads[trainer->thread_count];

		rc = pthread_create(thread, NULL, pack, worker);
		if (!rc)
			trainer->thread_count++;
		if (!rc && numa_cpus(NULL, trainer->node, &cpus))
			pthread_setaffinity_np(*thread, sizeof(cpus), &cpus);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return error_set_errno(error, ERROR_LIMIT, rc,
				       "packing thread %u of %u; ask for fewer (pack_threads)",
				       trainer->thread_count + 1, wanted);
	return 0;
}

void jobs_stop(struct weft_worker *worker)
{
	struct trainer *trainer = &worker->trainer;

	if (!trainer->thread_count)
		return;
	pthread_mutex_lock(&trainer->lock);
	trainer->stop = true;
	pthread_cond_broadcast(&trainer->work);
	pthread_mutex_unlock(&trainer->lock);
	for (uint32_t i = 0; i < trainer->thread_count; i++)
		pthread_join(trainer->threads[i], NULL);
	trainer->thread_count = 0;
	trainer->stop = false;
}
