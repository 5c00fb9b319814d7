/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SLICE_NS 50000000u /* how long it sleeps before it looks at what no signal brings */
/* how often a try is repeated for what only a try finds: a peer that has died, or is late */
#define LOOK_NS 500000000u

void watch_init(struct watch *watch)
{
	atomic_init(&watch->descriptor, -1);
}

void watch_tell(const struct watch *watch)
{
	int descriptor = atomic_load(&watch->descriptor), before = errno;
	uint64_t one = 1;

	/* a counter that is full is readable */
	if (descriptor >= 0 && write(descriptor, &one, sizeof(one)) < 0)
		errno = before;
}

void watch_drain(const struct watch *watch)
{
	int descriptor = atomic_load(&watch->descriptor);
	uint64_t count;

	if (descriptor >= 0)
		TEMP_FAILURE_RETRY(read(descriptor, &count, sizeof(count)));
}

void watch_deadline(struct watch *watch, uint64_t deadline_ns)
{
	atomic_store(&watch->deadline_ns, deadline_ns);
}

static void *run(void *context)
{
	struct watch *watch = context;
	uint64_t seen = watch->seen, told = 0;
	uint32_t heard = control_news(watch->control);
	bool failed = false;

	pthread_setname_np(pthread_self(), "weft-watch");
	log_as(watch->log_name);
	while (!atomic_load(&watch->stop)) {
		uint64_t now = clock_ns(), until = now + SLICE_NS;
		uint64_t deadline = atomic_load(&watch->deadline_ns);
		uint64_t count;
		uint32_t news;
		bool tells;

		if (deadline && deadline < until)
			until = deadline;
		count = transport_signal_wait(watch->domain, seen, until);
		news = control_news(watch->control);
		tells = count != seen || news != heard || (deadline && now >= told + LOOK_NS);
		/* once a try: the next one says who is missing */
		if (deadline && clock_ns() >= deadline &&
		    atomic_compare_exchange_strong(&watch->deadline_ns, &deadline, 0))
			tells = true;
		seen = count;
		heard = news;
		if (!failed && control_failed(watch->control))
			failed = tells = true;
		if (!tells)
			continue;
		told = now;
		watch_tell(watch);
	}
	return NULL;
}

int watch_open(struct watch *watch, const char *log_name, struct transport_domain *domain,
	       const struct control *control, int *descriptor, struct error *error)
{
	int made, rc;

	*descriptor = atomic_load(&watch->descriptor);
	if (*descriptor >= 0)
		return 0;
	made = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	if (made < 0)
		return error_set_errno(error, ERROR_LIMIT, errno,
				       "no descriptor for this worker: raise ulimit -n");
	watch->log_name = log_name;
	watch->domain = domain;
	watch->control = control;
	/* here, for what arrives before the thread runs is news too */
	watch->seen = transport_signal_wait(domain, UINT64_MAX, 0);
	atomic_store(&watch->descriptor, made);
	rc = threads_start(&watch->thread, run, watch);
	if (rc) {
		atomic_store(&watch->descriptor, -1);
		close(made);
		return error_set_errno(error, ERROR_IO, rc, "no thread for the descriptor");
	}
	watch->running = true;
	*descriptor = made;
	return 0;
}

void watch_close(struct watch *watch)
{
	int descriptor = atomic_exchange(&watch->descriptor, -1);

	if (watch->running) {
		atomic_store(&watch->stop, true);
		transport_domain_interrupt(watch->domain);
		pthread_join(watch->thread, NULL);
		watch->running = false;
	}
	if (descriptor >= 0)
		close(descriptor);
}
