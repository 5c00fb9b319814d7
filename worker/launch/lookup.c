/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/launch/lookup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_MS 1000

void lookup_init(struct lookup *lookup, const char *address, int wake)
{
	static const char scheme[] = "tcp://";
	const char *host = address + sizeof(scheme) - 1, *colon = strrchr(address, ':');
	struct in_addr number;
	size_t length;

	*lookup = (struct lookup){.wake = wake, .done = true};
	/* in brackets there is a number */
	if (strncmp(address, scheme, sizeof(scheme) - 1) != 0 || colon < host || *host == '[')
		return;
	length = (size_t)(colon - host);
	if (length >= sizeof(lookup->host))
		return;
	memcpy(lookup->host, host, length);
	lookup->done = inet_pton(AF_INET, lookup->host, &number) == 1;
}

static void *ask(void *context)
{
	struct lookup *lookup = context;
	/* the family that the worker's socket connects with */
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	uint64_t one = 1;

	lookup->result = getaddrinfo(lookup->host, NULL, &hints, &found);
	lookup->errnum = errno;
	if (!lookup->result)
		freeaddrinfo(found);
	atomic_store(&lookup->answered, true);
	/* only to be sooner than the next tick */
	return write(lookup->wake, &one, sizeof(one)) < 0 ? context : NULL;
}

bool lookup_step(struct lookup *lookup, uint64_t now_ms, struct error *error)
{
	if (lookup->running) {
		if (!atomic_load(&lookup->answered))
			return false;
		pthread_join(lookup->thread, NULL);
		lookup->running = false;
		lookup->next_ms = now_ms + RETRY_MS;
		if (lookup->done)
			return false;
		*error = (struct error){0};
		if (lookup->result)
			error_set(error, ERROR_CONFIG, "the name %s does not resolve: %s",
				  lookup->host,
				  lookup->result == EAI_SYSTEM ? strerror(lookup->errnum)
							       : gai_strerror(lookup->result));
		else
			lookup->done = true;
		return true;
	}
	if (lookup->done || now_ms < lookup->next_ms)
		return false;
	atomic_store(&lookup->answered, false);
	lookup->running = pthread_create(&lookup->thread, NULL, ask, lookup) == 0;
	if (!lookup->running) /* no reason to fail: it is only for a better message */
		lookup->next_ms = now_ms + RETRY_MS;
	return false;
}

void lookup_stop(struct lookup *lookup)
{
	lookup->done = true;
}

void lookup_fini(struct lookup *lookup)
{
	if (lookup->running)
		pthread_join(lookup->thread, NULL);
	lookup->running = false;
}
