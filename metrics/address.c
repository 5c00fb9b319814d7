/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/address.h"

#include "base/text.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 512

static int wrong(struct error *error, const char *what)
{
	return error_set(error, ERROR_CONFIG,
			 "%s; write ADDRESS:PORT or :PORT, as :9464 or 127.0.0.1:9464, and PORT+ "
			 "for the first free one from there on",
			 what);
}

int address_parse(struct address *address, const char *text, struct error *error)
{
	const char *colon = strrchr(text, ':'), *host = text;
	size_t length = colon ? (size_t)(colon - text) : 0, digits;
	char number[8] = "";
	uint64_t port;

	if (!colon)
		return wrong(error, "there is no ':' before a port");
	digits = strlen(colon + 1);
	address->ports = digits && colon[digits] == '+' ? ADDRESS_PORTS : 1;
	digits -= address->ports > 1;
	if (length && host[0] == '[' && host[length - 1] == ']') {
		host++;
		length -= 2;
	} else if (memchr(host, ':', length)) {
		return wrong(error, "an address with colons stands in brackets, as [::1]:9464");
	}
	if (length >= sizeof(address->host))
		return wrong(error, "the address is too long");
	snprintf(address->host, sizeof(address->host), "%.*s", (int)length, host);
	snprintf(number, sizeof(number), "%.*s", (int)digits, colon + 1);
	if (digits >= sizeof(number) || !parse_u64(number, &port) || port > UINT16_MAX)
		return wrong(error,
			     "the port is no number from 1 to 65535 (0: the system chooses)");
	address->port = (uint16_t)port;
	return 0;
}

static int bind_one(const struct addrinfo *at, int *descriptor)
{
	int one = 1, zero = 0;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (at->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, BACKLOG)) {
		int why = errno;

		close(fd);
		return why;
	}
	*descriptor = fd;
	return 0;
}

/* All of this host's: one socket for both families, where there are both. */
static int bind_any(uint16_t port, int *descriptor)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	const struct addrinfo both = {.ai_family = AF_INET6,
				      .ai_addr = (struct sockaddr *)&six,
				      .ai_addrlen = sizeof(six)};
	const struct addrinfo one = {.ai_family = AF_INET,
				     .ai_addr = (struct sockaddr *)&four,
				     .ai_addrlen = sizeof(four)};
	int why = bind_one(&both, descriptor);

	return why == EAFNOSUPPORT || why == EADDRNOTAVAIL ? bind_one(&one, descriptor) : why;
}

static int find(const struct address *address, uint16_t port, struct addrinfo **found,
		struct error *error)
{
	const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM,
					.ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(address->host, service, &wanted, found);
	return rc ? error_set(error, ERROR_CONFIG, "the address is none of this host's: %s",
			      rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc))
		  : 0;
}

/* errno's number in *why; an error only where the address cannot be read. */
static int bind_port(const struct address *address, uint16_t port, int *descriptor, int *why,
		     struct error *error)
{
	struct addrinfo *found = NULL;
	int rc = 0;

	if (!*address->host) {
		*why = bind_any(port, descriptor);
		return 0;
	}
	rc = find(address, port, &found, error);
	for (const struct addrinfo *at = found; at; at = at->ai_next)
		if (!(*why = bind_one(at, descriptor)))
			break;
	if (found)
		freeaddrinfo(found);
	return rc;
}

static uint16_t port_of(int descriptor)
{
	struct sockaddr_storage at = {0};
	socklen_t bytes = sizeof(at);

	getsockname(descriptor, (struct sockaddr *)&at, &bytes);
	return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
					      : ((struct sockaddr_in *)&at)->sin_port);
}

int address_listen(const struct address *address, int *descriptor, uint16_t *port,
		   struct error *error)
{
	uint32_t last = address->port + (address->port ? address->ports - 1u : 0u);
	int why = EADDRINUSE;

	for (uint32_t p = address->port; why == EADDRINUSE && p <= last && p <= UINT16_MAX; p++) {
		int rc = bind_port(address, (uint16_t)p, descriptor, &why, error);

		if (rc)
			return rc;
	}
	if (!why) {
		*port = port_of(*descriptor);
		return 0;
	}
	if (why == EADDRINUSE && last > address->port)
		return error_set(error, ERROR_IO, "ports %u to %u are all in use", address->port,
				 last);
	return error_set_errno(error, ERROR_IO, why, "cannot listen there%s",
			       why == EADDRINUSE
				       ? " (give another port, or the same with '+' behind it for "
					 "the first free one)"
				       : "");
}
