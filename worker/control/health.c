/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/health.h"

#include "base/clock.h"

void health_init(struct health *health, const char *name)
{
	pthread_mutex_init(&health->lock, NULL);
	activity_init(&health->activity);
	health->name = name;
}

void health_fini(struct health *health)
{
	activity_fini(&health->activity);
	pthread_mutex_destroy(&health->lock);
}

int health_check(struct health *health, struct error *error)
{
	int rc = 0;

	if (health->failed || (health->control && control_failed(health->control))) {
		pthread_mutex_lock(&health->lock);
		if (!health->failed)
			control_error(health->control, &health->failure);
		health->failed = true;
		rc = error_set(error, health->failure.code, "%s", health->failure.text);
		pthread_mutex_unlock(&health->lock);
		return rc;
	}
	if (health->interrupted)
		return error_set(error, ERROR_INTERRUPTED, "%s was interrupted by its host program",
				 health->name);
	return 0;
}

bool health_end(struct health *health, const struct error *failure)
{
	bool first;

	pthread_mutex_lock(&health->lock);
	first = !health->failed && !control_failed(health->control);
	if (first) {
		health->failure = *failure;
		health->failed = true;
	}
	pthread_mutex_unlock(&health->lock);
	return first;
}

bool health_hear_cause(struct health *health, struct error *failure)
{
	uint64_t deadline = clock_deadline_ns(control_grace_ms(health->control));

	while (!control_failed(health->control)) {
		if (clock_ns() >= deadline || health->interrupted)
			return false;
		clock_sleep_ms(5);
	}
	control_error(health->control, failure);
	return true;
}

int health_fail(struct health *health, struct error *failure, uint64_t version)
{
	bool heard = false, first, host_did = health->interrupted;

	if (health->failed) { /* this is its echo, and another code would hide it from launchers */
		pthread_mutex_lock(&health->lock);
		*failure = health->failure;
		pthread_mutex_unlock(&health->lock);
		return -(int)failure->code;
	}
	/* a peer that closed its side has left the job, for this worker */
	if (failure->code == ERROR_ABORTED)
		failure->code = ERROR_PEER_LOST;
	if (failure->code == ERROR_PEER_LOST || failure->code == ERROR_TRANSPORT ||
	    failure->code == ERROR_TIMEOUT ||
	    /* the control thread wakes a blocked transport call when the job fails */
	    (failure->code == ERROR_INTERRUPTED && !host_did))
		heard = health_hear_cause(health, failure);
	pthread_mutex_lock(&health->lock);
	first = !health->failed;
	if (first)
		health->failure = *failure;
	health->failed = true;
	pthread_mutex_unlock(&health->lock);
	if (first && !heard)
		control_failure(health->control, failure, version);
	return -(int)failure->code;
}
