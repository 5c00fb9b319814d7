/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/launch/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_MS 1000

/* As the worker's socket resolves it, which is of both families. */
static int resolve(struct lookup *lookup, int flags)
{
	const struct addrinfo hints = {
		.ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_V4MAPPED | flags};
	struct addrinfo *found = NULL;
	int result = getaddrinfo(lookup->host, lookup->port, &hints, &found);

	lookup->errnum = errno;
	if (result)
		return result;
	memcpy(&lookup->address, found->ai_addr, found->ai_addrlen);
	lookup->address_bytes = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

void lookup_init(struct lookup *lookup, const char *address, int wake)
{
	static const char scheme[] = "tcp://";
	const char *host = address + sizeof(scheme) - 1, *colon = strrchr(address, ':');
	bool bracket;
	size_t length;

	*lookup = (struct lookup){.wake = wake, .done = true};
	if (strncmp(address, scheme, sizeof(scheme) - 1) != 0 || colon < host)
		return;
	bracket = *host == '[' && colon[-1] == ']';
	host += bracket;
	length = (size_t)(colon - host) - bracket;
	if (length >= sizeof(lookup->host) || strlen(colon + 1) >= sizeof(lookup->port))
		return;
	memcpy(lookup->host, host, length);
	snprintf(lookup->port, sizeof(lookup->port), "%s", colon + 1);
	/* in brackets there is a number */
	lookup->done = resolve(lookup, AI_NUMERICHOST) == 0 || bracket;
}

static void *ask(void *context)
{
	struct lookup *lookup = context;
	uint64_t one = 1;

	lookup->result = resolve(lookup, 0);
	atomic_store(&lookup->answered, true);
	/* only to be sooner than the next tick */
	return write(lookup->wake, &one, sizeof(one)) < 0 ? context : NULL;
}

const struct sockaddr *lookup_address(const struct lookup *lookup, socklen_t *bytes)
{
	*bytes = lookup->running ? 0 : lookup->address_bytes; /* running: the thread's */
	return *bytes ? (const struct sockaddr *)&lookup->address : NULL;
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
