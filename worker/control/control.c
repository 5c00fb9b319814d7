/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/control_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/trouble.h"
#include "trace/trace.h"
#include "worker/control/activity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define POLL_MAX_MS	  1000
#define GRACE_MS	  300
#define GRACE_BEAT_MAX_MS 5000

static void set_failure(struct control *control, const struct error *failure)
{
	pthread_mutex_lock(&control->lock);
	if (!atomic_load(&control->failed)) {
		control->failure = *failure;
		control->blamed = worker_core_blamed(control->core);
		control->state = WORKER_FAILED;
		atomic_store(&control->failed, true);
	}
	pthread_cond_broadcast(&control->changed);
	pthread_mutex_unlock(&control->lock);
	/* a host inside a transport wait wakes up and looks at the flag */
	if (control->domain)
		transport_domain_interrupt(control->domain);
}

/* A plan says who of those that left is not back. */
static void mark_back(struct control *control, const struct message_plan *plan)
{
	for (size_t i = 0; i < control->gone.count; i++) {
		struct control_gone *gone = &control->gone.items[i];
		bool away = false;

		for (size_t k = 0; k < plan->away_count; k++)
			away = away ||
			       member_within(gone->first, plan->away[k].first, plan->away[k].count);
		gone->back = gone->back || !away;
	}
	control->gone_before = (uint32_t)control->gone.count;
}

/* See control_over. */
static uint64_t over(const struct message_pause *pause)
{
	return pause->version && !pause->stop ? pause->version - 1 : pause->version;
}

/* What the core asks of the host thread, or tells it. */
static void publish(struct control *control, const struct action *action)
{
	pthread_mutex_lock(&control->lock);
	if (action->type == WORKER_ACTION_OPEN) {
		control->plan = *action->plan;
		control->opens = true;
		control->connects = false; /* of an older attempt */
		control->paused = false;
		mark_back(control, action->plan);
		atomic_store(&control->pause, 0);
		control->asked = (struct message_pause){0};
		if (control->role == ROLE_INFERENCE)
			atomic_store(&control->begun, 0);
	} else if (action->type == WORKER_ACTION_CONNECT) {
		control->peers = *action->peers;
		control->connects = true;
	} else if (action->type == WORKER_ACTION_PAUSE) {
		control->asked = action->message.u.pause;
		control->paused = false;
		if (control->asked.stop)
			atomic_store(&control->pause, control->asked.number);
		if (control->role == ROLE_INFERENCE)
			atomic_store(&control->begun, over(&control->asked));
	} else {
		control->state = action->state;
	}
	atomic_fetch_add(&control->news, 1);
	pthread_cond_broadcast(&control->changed);
	pthread_mutex_unlock(&control->lock);
	if (control->domain)
		transport_domain_wake(control->domain);
}

static void take_gone(struct control *control, const struct message_gone *gone,
		      const struct error *why)
{
	bool kept = false;

	pthread_mutex_lock(&control->lock);
	/* one that took over says it anew */
	for (size_t i = 0; i < control->gone.count; i++)
		kept = kept || (member_within(gone->first, control->gone.items[i].first, 1) &&
				!control->gone.items[i].back);
	kept = kept || array_add(&control->gone,
				 (struct control_gone){gone->first, gone->count, false, *why});
	atomic_store(&control->gone_count, (uint32_t)control->gone.count);
	atomic_fetch_add(&control->news, 1);
	pthread_mutex_unlock(&control->lock);
	if (control->domain)
		transport_domain_wake(control->domain);
	if (!kept) { /* else it would write to them for ever */
		struct error error;

		memory_error(&error, "hearing who has left", sizeof(struct control_gone));
		set_failure(control, &error);
	}
}

static void send_message(struct control *control, const struct message *message);

/* What NICs have carried; those that nothing went through, or that nobody counts, are left out. */
static size_t take_traffic(const struct control *control, struct nic_traffic out[LIMIT_NICS])
{
	const struct transport_nic *nics;
	size_t taken = 0;
	uint32_t count = 0;

	nics = control->domain ? transport_domain_nics(control->domain, &count) : NULL;
	for (uint32_t i = 0; i < count && taken < LIMIT_NICS; i++) {
		struct transport_traffic traffic;

		transport_domain_traffic(control->domain, i, &traffic);
		if (traffic.bytes || traffic.waiting_bytes)
			out[taken++] = (struct nic_traffic){
				(char *)(uintptr_t)nics[i].name, traffic.bytes,
				traffic.busy_ns / 1000000u, traffic.waiting_bytes};
	}
	return taken;
}

/* Behind a heartbeat, for people: if it is lost, the next one says more. */
static void send_activity(struct control *control, const struct message *beat)
{
	struct message message = {
		.type = MESSAGE_ACTIVITY, .epoch = beat->epoch, .from = beat->from};
	struct nic_traffic nics[LIMIT_NICS];
	struct member waits[LIMIT_WAITS];
	char trouble[TROUBLE_TEXT_BYTES];

	memcpy(message.job, beat->job, sizeof(message.job));
	activity_take(control->activity, waits, &message.u.activity);
	message.u.activity.nics = nics;
	message.u.activity.nic_count = take_traffic(control, nics);
	if (trouble_text(trouble))
		message.u.activity.trouble = trouble;
	send_message(control, &message);
}

static void send_message(struct control *control, const struct message *message)
{
	struct error error;
	unsigned char *bytes = NULL;
	size_t length = 0;

	if (message_encode(message, &bytes, &length, &error)) {
		log_error("%s to the controller could not be written: %s",
			  message_type_name(message->type), error.text);
		return;
	}
	log_debug("> %s (%zu bytes)", message_type_name(message->type), length);
	if (message->type == MESSAGE_HEARTBEAT) {
		control->beat = message->u.heartbeat.sequence;
		control->beat_from = message->from;
		control->beat_ns = clock_ns();
	}
	/* the core sends an unanswered message again */
	if (!dealer_send(control->dealer, bytes, length))
		log_debug("%s not queued", message_type_name(message->type));
	if (message->type == MESSAGE_HEARTBEAT && control->activity)
		send_activity(control, message);
}

static void step(struct control *control, struct worker_event *event);

/* The pause was stored before `begun` is read, and the host does the opposite: who is in the midst of a version is not taken
 * for one who will stop before it. */
static void say_how_far(struct control *control, const struct message_pause *pause)
{
	uint64_t begun = atomic_load(&control->begun);
	struct worker_event event = {.type = WORKER_EVENT_PAUSED,
				     .number = pause->number,
				     .next = begun + 1,
				     .version = begun};

	if (control->role == ROLE_TRAINER)
		step(control, &event);
}

static void apply(struct control *control, const struct action *action)
{
	switch ((enum worker_action_type)action->type) {
	case WORKER_ACTION_SEND:
		send_message(control, &action->message);
		break;
	case WORKER_ACTION_LOG:
		if (action->warn)
			log_warn("%s", action->line);
		else
			log_info("%s", action->line);
		break;
	case WORKER_ACTION_STATE:
		if (action->state == WORKER_FAILED)
			set_failure(control, &action->error);
		else
			publish(control, action);
		break;
	case WORKER_ACTION_GONE:
		take_gone(control, &action->message.u.gone, &action->error);
		break;
	case WORKER_ACTION_PAUSE:
		publish(control, action);
		say_how_far(control, &action->message.u.pause);
		break;
	case WORKER_ACTION_OPEN:
	case WORKER_ACTION_CONNECT:
		publish(control, action);
		break;
	}
}

static void step(struct control *control, struct worker_event *event)
{
	struct actions actions = {0};
	struct error error;

	event->now_ms = clock_ms();
	if (worker_core_step(control->core, event, &actions, &error)) {
		error_wrap(&error, "control channel");
		set_failure(control, &error);
	}
	for (size_t i = 0; i < actions.count; i++)
		apply(control, &actions.items[i]);
	actions_clear(&actions);
	if (!worker_core_settled(control->core))
		return;
	pthread_mutex_lock(&control->lock);
	control->settled = true;
	pthread_cond_broadcast(&control->changed);
	pthread_mutex_unlock(&control->lock);
}

static void take_rhythm(struct control *control, const struct message_welcome *welcome)
{
	uint32_t silent = welcome->lost_ms / 3, beats = 2 * welcome->heartbeat_ms;

	atomic_store(&control->heartbeat_ms, welcome->heartbeat_ms);
	dealer_expect(control->dealer, silent > beats ? silent : beats);
}

/* The controller notes when it was there: between these two times of ours. */
static void trace_beat(struct control *control, uint64_t now)
{
	const struct trace_event event = {.name = "heartbeat",
					  .begin_ns = control->beat_ns,
					  .end_ns = now,
					  .sequence = control->beat,
					  .from = control->beat_from,
					  .lane = LANE_CLOCK};

	if (control->trace && trace_notes_beat(control->beat))
		trace_add(control->trace, &event, "controller");
}

static void count_heard(struct control *control, const struct message *message)
{
	uint64_t now = clock_ns();
	bool answers = message->type == MESSAGE_HEARTBEAT && control->beat &&
		       message->u.heartbeat.sequence == control->beat;

	pthread_mutex_lock(&control->lock);
	control->figures.heard_ns = now;
	if (answers)
		histogram_add(&control->figures.rtt, now - control->beat_ns);
	pthread_mutex_unlock(&control->lock);
	if (answers)
		trace_beat(control, now);
}

static void receive(struct control *control)
{
	const unsigned char *bytes;
	struct error error;
	size_t length;

	while (dealer_receive(control->dealer, &bytes, &length, &error)) {
		struct message message = {0};
		struct worker_event event = {.type = WORKER_EVENT_RECEIVED, .message = &message};

		if (error.code || message_decode(&message, bytes, length, &error)) {
			event = (struct worker_event){.type = WORKER_EVENT_BROKEN, .error = &error};
			step(control, &event);
			continue;
		}
		log_debug("< %s", message_type_name(message.type));
		count_heard(control, &message);
		if (message.type == MESSAGE_WELCOME)
			take_rhythm(control, &message.u.welcome);
		step(control, &event);
		message_fini(&message);
	}
}

/* Runs what the host posted; true when the thread shall end. */
static bool take_posts(struct control *control)
{
	uint64_t drained;
	bool stop;

	if (read(control->wake, &drained, sizeof(drained)) < 0 && errno != EAGAIN)
		log_warn("reading the wake-up counter: %s", strerror(errno));
	for (;;) {
		struct post post;
		struct worker_event event;

		pthread_mutex_lock(&control->lock);
		stop = control->stop;
		if (!control->posts.count) {
			pthread_mutex_unlock(&control->lock);
			return stop;
		}
		post = control->posts.items[0];
		control->posts.count--;
		memmove(control->posts.items, control->posts.items + 1,
			control->posts.count * sizeof(post));
		pthread_mutex_unlock(&control->lock);
		event = (struct worker_event){.type = post.type,
					      .error = &post.error,
					      .endpoints = &post.endpoints,
					      .version = post.version,
					      .next = post.next,
					      .promised = post.promised,
					      .attempt = post.attempt,
					      .number = post.number,
					      .member = post.member,
					      .done = post.done,
					      .repeats = post.repeats,
					      .between = post.between,
					      .anew = post.anew};
		step(control, &event);
		endpoints_fini(&post.endpoints);
	}
}

static long poll_ms(const struct control *control)
{
	uint64_t deadline = worker_core_deadline_ms(control->core), now = clock_ms();

	if (deadline <= now)
		return 0;
	return (long)(deadline - now < POLL_MAX_MS ? deadline - now : POLL_MAX_MS);
}

static void take_news(struct control *control)
{
	struct worker_event event = {.type = WORKER_EVENT_UNREACHED};
	struct error why;

	if (!dealer_news(control->dealer, &why))
		return;
	if (why.code)
		event.error = &why;
	step(control, &event);
}

static void *run(void *context)
{
	struct control *control = context;
	struct worker_event tick = {.type = WORKER_EVENT_TICK};

	log_as(control->log_name);
	for (;;) {
		take_news(control);
		atomic_store(&control->connected, dealer_is_connected(control->dealer));
		dealer_wait(control->dealer, control->wake, poll_ms(control));
		log_settle();
		receive(control);
		if (take_posts(control))
			return NULL;
		tick.type = WORKER_EVENT_TICK;
		step(control, &tick);
	}
}

void control_trace(struct control *control, struct trace *trace)
{
	control->trace = trace;
}

int control_open(struct control **out, const struct control_options *options, struct error *error)
{
	struct dealer_options dealer = {
		.address = options->address,
		.key_file = options->key_file,
		.key_waits = options->key_waits,
		.role = options->role == ROLE_TRAINER ? KEY_TRAINER : KEY_INFERENCE,
	};
	struct control *control = memory_zalloc(1, sizeof(*control));
	pthread_condattr_t monotonic;
	int rc;

	*out = NULL;
	if (!control)
		return memory_error(error, "opening the control channel", sizeof(*control));
	snprintf(control->log_name, sizeof(control->log_name), "%s", options->log_name);
	control->role = options->role;
	control->wake = -1;
	pthread_mutex_init(&control->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&control->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	control->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (control->wake < 0) {
		rc = error_set_errno(error, ERROR_IO, errno, "no wake-up counter");
		goto fail;
	}
	dealer.wake = control->wake;
	rc = dealer_open(&control->dealer, &dealer, error);
	if (rc)
		goto fail;
	*out = control;
	return 0;
fail:
	control_close(&control);
	return rc;
}

void control_attach(struct control *control, struct transport_domain *domain,
		    struct activity_board *activity)
{
	control->domain = domain;
	control->activity = activity;
}

int control_start(struct control *control, const struct worker_core_options *options,
		  struct error *error)
{
	int rc = worker_core_new(&control->core, options, clock_ms(), error);

	if (rc)
		return rc;
	rc = threads_start(&control->thread, run, control);
	if (rc) {
		worker_core_free(&control->core); /* a later start makes its own */
		return error_set_errno(error, ERROR_IO, rc, "no control thread");
	}
	control->running = true;
	return 0;
}

/* Waits for a change; the caller holds the lock. False at the deadline. */
static bool wait_change(struct control *control, uint64_t deadline_ns)
{
	struct timespec until = {(time_t)(deadline_ns / 1000000000u),
				 (long)(deadline_ns % 1000000000u)};

	return pthread_cond_timedwait(&control->changed, &control->lock, &until) == 0;
}

enum control_request control_next(struct control *control, uint32_t wait_ms,
				  struct message_plan *plan, struct message_peers *peers)
{
	uint64_t deadline = clock_deadline_ns(wait_ms);
	enum control_request request = CONTROL_NOTHING;

	pthread_mutex_lock(&control->lock);
	for (;;) {
		if (control->state == WORKER_FAILED) {
			request = CONTROL_FAILED;
		} else if (control->opens) {
			request = CONTROL_OPEN;
			*plan = control->plan;
			control->attempt = control->plan.attempt;
			control->opens = false;
		} else if (control->connects) {
			request = CONTROL_CONNECT;
			*peers = control->peers;
			control->connects = false;
		} else if (control->state == WORKER_RUN && !control->paused) {
			request = CONTROL_RUN;
		}
		if (request != CONTROL_NOTHING || !wait_change(control, deadline))
			break;
	}
	pthread_mutex_unlock(&control->lock);
	return request;
}

int control_post(struct control *control, const struct post *event, struct error *error)
{
	bool kept;

	pthread_mutex_lock(&control->lock);
	kept = array_add(&control->posts, *event);
	pthread_mutex_unlock(&control->lock);
	if (!kept)
		return memory_error(error, "telling the control thread", sizeof(*event));
	if (eventfd_write(control->wake, 1) < 0 && errno != EAGAIN)
		return error_set_errno(error, ERROR_IO, errno, "waking the control thread");
	return 0;
}

int control_endpoints(struct control *control, struct message_endpoints *endpoints,
		      struct error *error)
{
	struct post event = {.type = WORKER_EVENT_ENDPOINTS, .endpoints = *endpoints};
	int rc = control_post(control, &event, error);

	if (rc)
		endpoints_fini(endpoints);
	memset(endpoints, 0, sizeof(*endpoints));
	return rc;
}

int control_connected(struct control *control, uint32_t attempt, struct error *error)
{
	struct post event = {.type = WORKER_EVENT_CONNECTED, .attempt = attempt};

	return control_post(control, &event, error);
}

void control_version(struct control *control, uint64_t version)
{
	struct post event = {.type = WORKER_EVENT_VERSION, .version = version};

	control_post(control, &event, NULL); /* only a figure for heartbeats: may be lost */
}

void control_failure(struct control *control, const struct error *failure, uint64_t version)
{
	struct post event = {.type = WORKER_EVENT_FAILURE, .error = *failure, .version = version};

	/* when even this fails, the controller sees silence instead of the error message */
	if (control_post(control, &event, NULL))
		log_error_of(failure->code, "the controller cannot be told: %s", failure->text);
}

void control_drop(struct control *control, struct member member, const struct error *why,
		  uint64_t version)
{
	struct post event = {
		.type = WORKER_EVENT_DROP, .error = *why, .version = version, .member = member};

	pthread_mutex_lock(&control->lock);
	event.attempt = control->attempt;
	pthread_mutex_unlock(&control->lock);
	/* it hears the loss of that one's heartbeats, or of what waits for this trainer in vain */
	if (control_post(control, &event, NULL))
		log_error_of(why->code, "the controller cannot be told: %s", why->text);
}

bool control_running(const struct control *control)
{
	return control->running;
}

bool control_welcomed(const struct control *control)
{
	return atomic_load(&control->heartbeat_ms) != 0;
}

bool control_settle(struct control *control, uint32_t wait_ms)
{
	uint64_t deadline = clock_deadline_ns(wait_ms);
	bool settled;

	pthread_mutex_lock(&control->lock);
	while (!control->settled)
		if (!wait_change(control, deadline))
			break;
	settled = control->settled;
	pthread_mutex_unlock(&control->lock);
	return settled;
}

int control_leave(struct control *control, bool done, uint32_t wait_ms, struct error *error)
{
	struct post event = {.type = WORKER_EVENT_LEAVE, .done = done};
	uint64_t deadline = clock_deadline_ns(wait_ms);
	int rc;

	if (!control->running)
		return 0;
	rc = control_post(control, &event, error);
	if (rc)
		return rc;
	pthread_mutex_lock(&control->lock);
	while (control->state != WORKER_LEFT && control->state != WORKER_FAILED)
		if (!wait_change(control, deadline))
			break;
	if (control->state == WORKER_FAILED)
		rc = error_set(error, control->failure.code, "%s", control->failure.text);
	else if (control->state != WORKER_LEFT)
		rc = error_set(
			error, ERROR_TIMEOUT,
			"%sleaving: no answer from the controller at %s for %.1f s: %s",
			done ? "all its updates are done; " : "", dealer_address(control->dealer),
			wait_ms / 1000.0,
			atomic_load(&control->connected)
				? "the connection to it stands"
				: "the connection to it is gone and none can be made, so it has "
				  "ended or cannot be reached");
	pthread_mutex_unlock(&control->lock);
	return rc;
}

bool control_failed(const struct control *control)
{
	return atomic_load(&control->failed);
}

void control_error(struct control *control, struct error *error)
{
	pthread_mutex_lock(&control->lock);
	*error = control->failure;
	pthread_mutex_unlock(&control->lock);
}

bool control_blames(struct control *control, struct member who)
{
	struct members blamed;

	pthread_mutex_lock(&control->lock);
	blamed = control->blamed;
	pthread_mutex_unlock(&control->lock);
	return member_within(who, blamed.first, blamed.count);
}

uint32_t control_grace_ms(const struct control *control)
{
	uint32_t heartbeat = atomic_load(&control->heartbeat_ms);

	return GRACE_MS + 2 * (heartbeat < GRACE_BEAT_MAX_MS ? heartbeat : GRACE_BEAT_MAX_MS);
}

static void stop_thread(struct control *control)
{
	pthread_mutex_lock(&control->lock);
	control->stop = true;
	pthread_mutex_unlock(&control->lock);
	if (eventfd_write(control->wake, 1) < 0)
		log_warn("waking the control thread: %s", strerror(errno));
	pthread_join(control->thread, NULL);
	control->running = false;
}

void control_close(struct control **where)
{
	struct control *control = *where;

	if (!control)
		return;
	if (control->running)
		stop_thread(control);
	dealer_close(&control->dealer);
	for (size_t i = 0; i < control->posts.count; i++)
		endpoints_fini(&control->posts.items[i].endpoints);
	array_free(&control->posts);
	array_free(&control->gone);
	worker_core_free(&control->core);
	if (control->wake >= 0)
		close(control->wake);
	pthread_cond_destroy(&control->changed);
	pthread_mutex_destroy(&control->lock);
	memory_free(control);
	*where = NULL;
}
