/* SPDX-License-Identifier: Apache-2.0
 *
 * errors.c -- libfabric's errors in words: what was tried, and what to do about it.
 */
#include "transport/ofi/ofi.h"

#include <errno.h>
#include <rdma/fi_errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Which of our codes an errno is; where none is named, the transfer failed. */
static enum error_code code_of(int errnum)
{
	switch (errnum) {
	case FI_ENOMEM:
		return ERROR_MEMORY;
	case FI_EMFILE:
	case FI_ENOSPC:
	case FI_EADDRINUSE:
		return ERROR_LIMIT;
	case FI_ENODATA:
	case FI_ENOSYS:
	case FI_EOPNOTSUPP:
	case FI_EACCES:
	case FI_EPERM:
	case FI_EADDRNOTAVAIL:
		return ERROR_UNSUPPORTED;
	default:
		return ERROR_TRANSPORT;
	}
}

int ofi_error(struct error *error, const struct ofi_domain *domain, int errnum, const char *format,
	      ...)
{
	char what[512];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	return error_set(error, code_of(errnum), "%s: %s: %s (errno %d)", domain->name, what,
			 ofi_strerror(errnum), errnum);
}

/* What the peer's end of a connection can look like from here, and what that says about it. */
struct loss {
	int errnum;
	enum error_code code;
	const char *words;
};

static const struct loss losses[] = {
	{FI_ESHUTDOWN, ERROR_PEER_LOST,
	 "was closed from there: its process has ended, or has given this endpoint up"},
	{FI_ECONNRESET, ERROR_PEER_LOST,
	 "was cut from there: its process has ended, or something between the two cuts it"},
	{EPIPE, ERROR_PEER_LOST,
	 "was closed from there: its process has ended, or has given this endpoint up"},
	{FI_ECONNREFUSED, ERROR_PEER_LOST,
	 "was refused: nobody listens there any more, or a firewall answers (WEFT_TCP_PORTS names the "
	 "ports to open)"},
	{FI_ENOTCONN, ERROR_PEER_LOST,
	 "leads to nobody: its process has ended, or has given this endpoint up"},
	{FI_ECONNABORTED, ERROR_PEER_LOST,
	 "has no answer any more: its process or its host has ended, or the path is down"},
	{FI_ETIMEDOUT, ERROR_TRANSPORT,
	 "has no answer: the host is gone, or a firewall drops packets (WEFT_TCP_PORTS names the "
	 "ports to open)"},
	{FI_EHOSTUNREACH, ERROR_TRANSPORT,
	 "has no way there: look at routes and interfaces, or choose others with --nic"},
	{FI_ENETUNREACH, ERROR_TRANSPORT,
	 "has no way there: look at routes and interfaces, or choose others with --nic"},
};

int ofi_lane_error(struct error *error, const struct ofi_lane *lane, int errnum)
{
	const char *peer = lane->endpoint->shared->name;

	for (size_t i = 0; i < ARRAY_SIZE(losses); i++)
		if (losses[i].errnum == errnum)
			return error_set(error, losses[i].code, "stream %u to %s (%s) %s",
					 lane->index, peer, lane->path, losses[i].words);
	/* the kernel's word for a way out of this host that begins at 127.0.0.1 */
	if (errnum == FI_EINVAL && lane->rail && lane->rail->interface.loopback)
		return error_set(error, ERROR_CONFIG,
				 "stream %u to %s (%s) has no way there: %s, which is loopback, "
				 "reaches this host alone; choose another interface with --nic",
				 lane->index, peer, lane->path, lane->rail->interface.name);
	return error_set(error, ERROR_TRANSPORT, "stream %u to %s (%s) failed: %s (errno %d)",
			 lane->index, peer, lane->path, ofi_strerror(errnum), errnum);
}
