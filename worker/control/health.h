/* SPDX-License-Identifier: Apache-2.0
 *
 * health.h -- whether a worker can go on: interrupted by its host, failed itself, or told by the
 * controller that the job is over. Every wait looks here.
 */
#ifndef WORKER_CONTROL_HEALTH_H
#define WORKER_CONTROL_HEALTH_H

#include "worker/control/activity.h"
#include "worker/control/control.h"
#include <pthread.h>

#define WAIT_SLICE_MS 50u /* how long any wait sleeps before it looks here */

struct health {
	struct control *control;      /* borrowed; NULL before there is one */
	const char *name;             /* of the worker, for messages; borrowed */
	_Atomic bool interrupted;
	_Atomic bool failed;
	pthread_mutex_t lock;
	struct error failure;         /* this worker's own, once failed; under the lock */
	struct activity_board activity; /* what it does meanwhile, for people */
};

void health_init(struct health *health, const char *name);
void health_fini(struct health *health);
/* 0, or why nothing can go on: interrupted, job failed. [any thread] */
int health_check(struct health *health, struct error *error);
/* Keeps the error for every later call and tells the controller. What was only seen at a peer can
 * be the echo of another loss, so the controller gets a moment to name the cause, which then
 * replaces *failure. Returns its -code. [any thread] */
int health_fail(struct health *health, struct error *failure, uint64_t version);
/* Waits a moment for the controller to name the cause of what was seen at a peer, which then replaces *failure: true. */
bool health_hear_cause(struct health *health, struct error *failure);
/* Keeps the error for every later call and tells nobody. False: it had failed before, or the job has
 * ended. */
bool health_end(struct health *health, const struct error *failure);

#endif
