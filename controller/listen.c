/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/listen.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

const char *listen_default(bool key)
{
	return key ? "tcp://*:29600" : "tcp://127.0.0.1:29600";
}

/* Names and interfaces are taken for open: what they mean is known when it is too late. */
bool listen_is_open(const char *address)
{
	static const char *const closed[] = {
		"tcp://127.", "tcp://[::1]:", "tcp://localhost:", "tcp://lo:", "ipc://"};

	for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++)
		if (strncmp(address, closed[i], strlen(closed[i])) == 0)
			return false;
	return true;
}

/* The library takes 99999 and listens on what is left of it in 16 bits. */
static int check_port(const char *address, struct error *error)
{
	const char *colon = strrchr(address, ':');
	uint64_t port;

	if (strncmp(address, "tcp://", 6) != 0 || !colon || strcmp(colon, ":*") == 0)
		return 0; /* the library's to judge */
	if (parse_u64(colon + 1, &port) && port <= 65535)
		return 0;
	return error_set(
		error, ERROR_CONFIG,
		"--bind %s: the port must be a number from 0 to 65535, as in tcp://*:29600",
		address);
}

int listen_check(const char *address, bool key, bool insecure, struct error *error)
{
	int rc = check_port(address, error);

	if (!rc && strncmp(address, "tcp://", 6) != 0 && strncmp(address, "ipc://", 6) != 0)
		return error_set(
			error, ERROR_CONFIG,
			"--bind '%s' is no address to listen on: write tcp://ADDRESS:PORT, as in "
			"tcp://*:29600",
			address);
	if (rc || key || insecure || !listen_is_open(address))
		return rc;
	return error_set(
		error, ERROR_CONFIG,
		"--bind %s is open to whoever reaches this host, and there is no key: make one "
		"with 'weft key make FILE' and give it to the controller and all workers "
		"(--key FILE or WEFT_KEY_FILE); or bind tcp://127.0.0.1:PORT; or take the risk "
		"with --insecure",
		address);
}

int listen_write_port(const char *path, const char *bound, struct error *error)
{
	const char *colon = strrchr(bound, ':');
	struct file_writer writer;
	int rc = file_writer_open(&writer, path, error);

	if (!rc) {
		fprintf(writer.stream, "%s\n", colon ? colon + 1 : bound);
		rc = file_writer_commit(&writer, error);
	}
	return rc ? error_wrap(error, "port file (--port-file)") : 0;
}

/* The socket takes both kinds of addresses and names the old ones [::ffff:1.2.3.4]: as users
 * write them, they can be pasted into --controller. */
void listen_say(const char *bound)
{
	static const char mapped[] = "tcp://[::ffff:";
	const char *host = bound + sizeof(mapped) - 1;
	const char *bracket = strchr(bound, ']');

	if (bracket && !strncmp(bound, mapped, sizeof(mapped) - 1) &&
	    memchr(host, '.', (size_t)(bracket - host)))
		log_info("listening on tcp://%.*s%s", (int)(bracket - host), host, bracket + 1);
	else
		log_info("listening on %s", bound);
}
