/* SPDX-License-Identifier: Apache-2.0
 *
 * status_ask.c -- one question at a time to the controller, over a worker's kind of socket, which knows why nobody answers.
 */
#include "cli/status.h"

#include "base/clock.h"
#include "trust/key.h"
#include "worker/control/dealer.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ASK_AGAIN_MS 500

struct asker {
	struct asker_options options;
	struct dealer *dealer;
	int wake;
	bool unreached;
	struct error why; /* so */
};

/* A file of a worker's role is as good as an observer's. */
static int role_of(const char *path, enum key_role *role, struct error *error)
{
	struct key key;
	int rc;

	*role = KEY_OBSERVER;
	if (!*path)
		return 0;
	rc = key_read(&key, path, error);
	if (!rc && key.role != KEY_JOB)
		*role = key.role;
	key_forget(&key);
	return rc;
}

int asker_open(struct asker **out, const struct asker_options *options, struct error *error)
{
	struct dealer_options dealer = {.address = options->controller,
					.key_file = options->key_file};
	struct asker *asker = memory_zalloc(1, sizeof(*asker));
	int rc;

	if (!asker)
		return memory_error(error, "asking the controller", sizeof(*asker));
	asker->options = *options;
	asker->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	dealer.wake = asker->wake;
	if (asker->wake < 0)
		rc = error_set_errno(error, ERROR_LIMIT, errno, "no descriptor is left");
	else
		rc = role_of(options->key_file, &dealer.role, error);
	if (!rc)
		rc = dealer_open(&asker->dealer, &dealer, error);
	*out = asker;
	if (rc)
		asker_close(out);
	return rc;
}

static int send_ask(struct asker *asker, struct error *error)
{
	struct message message = {.type = MESSAGE_ASK,
				  .job = "?", /* of whatever job */
				  .u.ask.links = asker->options.links};
	unsigned char *bytes = NULL;
	size_t length = 0;
	int rc = message_encode(&message, &bytes, &length, error);

	if (!rc)
		dealer_send(asker->dealer, bytes, length);
	return rc;
}

/* 0: a report came; 1: none did. */
static int hear(struct asker *asker, struct message *report, struct error *error)
{
	const unsigned char *bytes;
	struct error why;
	size_t length;
	int rc;

	while (dealer_receive(asker->dealer, &bytes, &length, &why)) {
		if (why.code)
			return error_copy(error, &why);
		rc = message_decode(report, bytes, length, error);
		if (!rc && report->type == MESSAGE_REPORT)
			return 0;
		if (!rc && report->type == MESSAGE_REFUSE)
			rc = error_set(error, ERROR_UNSUPPORTED,
				       "the controller at %s does not answer that: %s",
				       asker->options.controller, report->u.refuse.text);
		message_fini(report);
		if (rc)
			return rc;
	}
	return 1;
}

static int late(const struct asker *asker, struct error *error)
{
	double seconds = (double)asker->options.timeout_ms / 1e3;

	if (asker->unreached)
		return error_set(error, ERROR_TIMEOUT, "the controller at %s is not reached: %s",
				 asker->options.controller, asker->why.text);
	return error_set(error, ERROR_TIMEOUT,
			 "the controller at %s has not answered for %.1f s: it makes a plan of a "
			 "large job, stands still, or is no weft-controller of this version (raise "
			 "--timeout to wait longer)",
			 asker->options.controller, seconds);
}

static long least(uint64_t until_ms, uint64_t now)
{
	return until_ms > now ? (long)(until_ms - now) : 0;
}

int asker_ask(struct asker *asker, struct message *report, struct error *error)
{
	uint64_t end = clock_ms() + asker->options.timeout_ms, asks = 0;
	const unsigned char *bytes;
	struct error why;
	size_t length;

	/* answers to what was asked twice are of an earlier look */
	while (dealer_receive(asker->dealer, &bytes, &length, &why))
		;
	for (;;) {
		uint64_t now = clock_ms(), drained;
		int rc;

		if (dealer_news(asker->dealer, &why)) {
			asker->unreached = why.code != ERROR_NONE;
			asker->why = why;
		}
		if (now >= end)
			return late(asker, error);
		if (now >= asks) {
			rc = send_ask(asker, error);
			if (rc)
				return rc;
			asks = now + ASK_AGAIN_MS;
		}
		dealer_wait(asker->dealer, asker->wake, least(asks < end ? asks : end, now));
		if (read(asker->wake, &drained, sizeof(drained)) < 0 && errno != EAGAIN)
			return error_set_errno(error, ERROR_IO, errno, "reading a wake-up");
		rc = hear(asker, report, error);
		if (rc <= 0)
			return rc;
	}
}

void asker_close(struct asker **out)
{
	struct asker *asker = *out;

	if (!asker)
		return;
	dealer_close(&asker->dealer);
	if (asker->wake >= 0)
		close(asker->wake);
	memory_free(asker);
	*out = NULL;
}
