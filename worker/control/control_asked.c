/* SPDX-License-Identifier: Apache-2.0
 *
 * control_asked.c -- what a host is told while the job runs: who has left, and pauses; and what it answers.
 */
#include "worker/control/control_state.h"

bool control_gone(struct control *control, uint32_t index, struct control_gone *gone)
{
	if (index >= atomic_load(&control->gone_count))
		return false;
	pthread_mutex_lock(&control->lock);
	*gone = control->gone.items[index];
	pthread_mutex_unlock(&control->lock);
	return true;
}

void control_figures(struct control *control, struct control_figures *figures)
{
	pthread_mutex_lock(&control->lock);
	*figures = control->figures;
	pthread_mutex_unlock(&control->lock);
}

bool control_have_left(struct control *control, struct member first, uint32_t count)
{
	bool left = false;

	if (!control || atomic_load(&control->gone_count) == atomic_load(&control->gone_before))
		return false;
	pthread_mutex_lock(&control->lock);
	for (size_t i = control->gone_before; i < control->gone.count; i++) {
		const struct control_gone *gone = &control->gone.items[i];

		left = left || member_within(gone->first, first, count) ||
		       member_within(first, gone->first, gone->count);
	}
	pthread_mutex_unlock(&control->lock);
	return left;
}

uint32_t control_pause(struct control *control, uint64_t *version)
{
	uint32_t number = atomic_load(&control->pause);

	if (!number)
		return 0;
	pthread_mutex_lock(&control->lock);
	*version = control->asked.version;
	number = control->asked.number;
	pthread_mutex_unlock(&control->lock);
	return number;
}

int control_paused(struct control *control, const struct stop *stop, struct error *error)
{
	bool trainer = control->role == ROLE_TRAINER;
	struct post event = {.type = WORKER_EVENT_PAUSED,
			     .number = stop->number,
			     .done = true,
			     .next = stop->next,
			     .version = stop->version,
			     .promised = stop->promised,
			     .repeats = stop->where == STOPPED_REPEATS,
			     .anew = stop->anew,
			     .between = trainer && stop->where != STOPPED_IN_UPDATE};

	pthread_mutex_lock(&control->lock);
	/* unless it is asked for another version by now, or told to show what it has promised: then it goes on up to that one */
	if (stop->number == control->asked.number &&
	    (!stop->next || stop->next >= control->asked.version) &&
	    (!stop->promised || stop->promised != control->asked.shows))
		control->paused = true;
	pthread_mutex_unlock(&control->lock);
	return control_post(control, &event, error);
}

void control_begins(struct control *control, uint64_t version)
{
	atomic_store(&control->begun, version);
}

uint64_t control_over(const struct control *control)
{
	return atomic_load(&control->begun);
}

uint32_t control_news(const struct control *control)
{
	return atomic_load(&control->news);
}

uint32_t control_gone_before(struct control *control)
{
	return atomic_load(&control->gone_before);
}

uint32_t control_settles(struct control *control, uint64_t *begun, uint64_t *shows)
{
	uint32_t number;

	pthread_mutex_lock(&control->lock);
	number = control->asked.number;
	*begun = control->asked.version;
	*shows = control->asked.shows;
	pthread_mutex_unlock(&control->lock);
	return number;
}

void control_promises(struct control *control, uint32_t number, uint64_t version, uint64_t promised)
{
	struct post event = {.type = WORKER_EVENT_PAUSED,
			     .number = number,
			     .version = version,
			     .promised = promised};

	control_post(control, &event, NULL); /* the next plan settles it all the same */
}
