/* SPDX-License-Identifier: Apache-2.0
 *
 * events.c -- what devices say out of turn: a row an event.
 *
 * A device tells all its contexts about all its ports, so port events are compared with our
 * port. The descriptor does not block and is read until it is empty; each event is acknowledged,
 * since destroying its object waits for that.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define WINDOW_NS  UINT64_C(10000000000)
#define WINDOW_MAX 20u /* lines a window */

struct row {
	enum ibv_event_type type;
	bool port; /* about one port of the device */
	enum log_level level;
	const char *what;
	/* Under receive_lock. A message in *broken breaks the domain, after the lock. */
	void (*act)(struct verbs_nic *nic, const struct ibv_async_event *event,
		    struct error *broken);
};

/* A flapping port must not fill the log. */
__attribute__((format(printf, 3, 4))) static void tell(struct verbs_nic *nic, enum log_level level,
						       const char *format, ...)
{
	uint64_t now = clock_ns(), since = atomic_load(&nic->events_window_ns);
	char text[512];
	va_list args;

	if (now - since >= WINDOW_NS &&
	    atomic_compare_exchange_strong(&nic->events_window_ns, &since, now)) {
		uint32_t untold = atomic_exchange(&nic->events_untold, 0);

		atomic_store(&nic->events_told, 0);
		if (untold)
			log_warn("%s:%u: %u more events were not told", nic->limits.name, nic->port,
				 untold);
	}
	if (atomic_fetch_add(&nic->events_told, 1) >= WINDOW_MAX) {
		atomic_fetch_add(&nic->events_untold, 1);
		return;
	}
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_line(level, "%s:%u: %s", nic->limits.name, nic->port, text);
}

static void port_state(struct verbs_nic *nic, const struct ibv_async_event *event,
		       struct error *broken)
{
	bool down = event->event_type == IBV_EVENT_PORT_ERR;

	if (down && !atomic_load(&nic->down))
		atomic_store(&nic->down_since_ns, clock_ns());
	atomic_store(&nic->down, down);
}

static void gid_change(struct verbs_nic *nic, const struct ibv_async_event *event,
		       struct error *broken)
{
	char text[VERBS_GID_TEXT_BYTES];
	struct error error = {0};
	uint32_t index = 0;
	int rc = verbs_gid_find(nic, &index, &error);

	verbs_gid_text(nic->gid.raw, text);
	atomic_store(&nic->gid_gone, rc > 0);
	if (rc < 0)
		tell(nic, LOG_LEVEL_WARN, "the GID table changed and cannot be read: %s",
		     error.text);
	else if (rc)
		tell(nic, LOG_LEVEL_WARN,
		     "our GID %s is gone from the table: nobody reaches this port until its address "
		     "is back",
		     text);
	else
		tell(nic, LOG_LEVEL_INFO, "the GID table changed; ours, %s, is at index %u", text,
		     index);
}

static void device_lost(struct verbs_nic *nic, const struct ibv_async_event *event,
			struct error *broken)
{
	atomic_store(&nic->lost, true);
	verbs_receive_lost(nic);
}

static void lane_failed(struct verbs_nic *nic, const struct ibv_async_event *event,
			struct error *broken)
{
	struct verbs_domain *domain = nic->domain;

	for (size_t i = 0; i < domain->lanes.count; i++) {
		struct verbs_lane *lane = domain->lanes.items[i];
		char text[VERBS_LANE_TEXT_BYTES];

		if (lane->nic != nic || lane->qp != event->element.qp)
			continue;
		tell(nic, LOG_LEVEL_WARN, "lane %u to %s is closed: %s", lane->index,
		     lane->endpoint->shared->name, verbs_lane_text(lane, text));
		verbs_lane_stop(lane);
		atomic_store(&lane->closed_by_event, true);
		atomic_store(&lane->endpoint->attention, true);
	}
}

static void queue_failed(struct verbs_nic *nic, const struct ibv_async_event *event,
			 struct error *broken)
{
	const char *queue =
		event->event_type == IBV_EVENT_CQ_ERR ? "completion queue" : "shared receive queue";

	error_set(broken, ERROR_TRANSPORT,
		  "device %s reported an error of a %s: completions or signals may be lost, so "
		  "nothing that came through it can be relied on",
		  nic->limits.name, queue);
}

static void refill(struct verbs_nic *nic, const struct ibv_async_event *event, struct error *broken)
{
	verbs_receive_refill(nic, broken);
}

#define NOTED NULL /* told, and nothing to do */

static const struct row rows[] = {
	{IBV_EVENT_PORT_ERR, true, LOG_LEVEL_WARN, "the port is down", port_state},
	{IBV_EVENT_PORT_ACTIVE, true, LOG_LEVEL_INFO, "the port is up", port_state},
	{IBV_EVENT_GID_CHANGE, true, LOG_LEVEL_DEBUG, "the GID table changed", gid_change},
	{IBV_EVENT_LID_CHANGE, true, LOG_LEVEL_WARN,
	 "the LID changed: peers that knew the old one lose this path", NOTED},
	{IBV_EVENT_PKEY_CHANGE, true, LOG_LEVEL_WARN, "the partition table changed", NOTED},
	{IBV_EVENT_SM_CHANGE, true, LOG_LEVEL_INFO, "another subnet manager took over", NOTED},
	{IBV_EVENT_CLIENT_REREGISTER, true, LOG_LEVEL_INFO,
	 "the subnet manager asks everybody to register again", NOTED},
	{IBV_EVENT_DEVICE_FATAL, false, LOG_LEVEL_ERROR, "the device failed", device_lost},
	{IBV_EVENT_QP_FATAL, false, LOG_LEVEL_WARN, "a queue pair failed", lane_failed},
	{IBV_EVENT_QP_REQ_ERR, false, LOG_LEVEL_WARN, "a peer's request made no sense",
	 lane_failed},
	{IBV_EVENT_QP_ACCESS_ERR, false, LOG_LEVEL_WARN,
	 "a peer wrote to memory that is not open to it", lane_failed},
	{IBV_EVENT_CQ_ERR, false, LOG_LEVEL_ERROR, "a completion queue failed", queue_failed},
	{IBV_EVENT_SRQ_ERR, false, LOG_LEVEL_ERROR, "the shared receive queue failed",
	 queue_failed},
	{IBV_EVENT_SRQ_LIMIT_REACHED, false, LOG_LEVEL_DEBUG, "receives run low", refill},
	{IBV_EVENT_COMM_EST, false, LOG_LEVEL_DEBUG, "a peer's first message came", NOTED},
	{IBV_EVENT_SQ_DRAINED, false, LOG_LEVEL_DEBUG, "a send queue is drained", NOTED},
	{IBV_EVENT_QP_LAST_WQE_REACHED, false, LOG_LEVEL_DEBUG,
	 "a queue pair has taken its last receive", NOTED},
	{IBV_EVENT_PATH_MIG, false, LOG_LEVEL_INFO, "a path has migrated", NOTED},
	{IBV_EVENT_PATH_MIG_ERR, false, LOG_LEVEL_WARN, "a path could not migrate", NOTED},
};

static const struct row *row_of(enum ibv_event_type type)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].type == type)
			return &rows[i];
	return NULL;
}

static void handle(struct verbs_nic *nic, const struct ibv_async_event *event)
{
	const struct row *row = row_of(event->event_type);
	struct error broken = {0};

	if (!row) {
		tell(nic, LOG_LEVEL_WARN, "event number %d, which weft does not know",
		     (int)event->event_type);
		return;
	}
	if (row->port && event->element.port_num != nic->port)
		return;
	tell(nic, row->level, "%s", row->what);
	if (!row->act)
		return;
	pthread_mutex_lock(&nic->domain->receive_lock);
	row->act(nic, event, &broken);
	pthread_mutex_unlock(&nic->domain->receive_lock);
	if (broken.code)
		verbs_domain_break(nic->domain, &broken);
}

static void unreadable(struct verbs_nic *nic, int errnum)
{
	if (atomic_exchange(&nic->lost, true))
		return;
	tell(nic, LOG_LEVEL_ERROR, "its events cannot be read (%s): the device counts as failed",
	     strerror(errnum));
	pthread_mutex_lock(&nic->domain->receive_lock);
	verbs_receive_lost(nic);
	pthread_mutex_unlock(&nic->domain->receive_lock);
}

static void drain(struct verbs_nic *nic)
{
	const struct verbs_calls *calls = nic->domain->calls;
	struct ibv_async_event event;

	for (;;) {
		errno = 0;
		if (calls->get_async_event(nic->context, &event)) {
			if (errno == EINTR)
				continue;
			if (errno && errno != EAGAIN && errno != EWOULDBLOCK)
				unreadable(nic, errno);
			return;
		}
		handle(nic, &event);
		calls->ack_async_event(&event);
	}
}

void verbs_events(struct verbs_domain *domain)
{
	for (uint32_t i = 0; i < domain->nic_count; i++)
		if (!atomic_load_explicit(&domain->nics[i].lost, memory_order_relaxed))
			drain(&domain->nics[i]);
}
