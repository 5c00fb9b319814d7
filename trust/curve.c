/* SPDX-License-Identifier: Apache-2.0 */
#include "trust/curve.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#define GATE_ADDRESS  "inproc://zeromq.zap.01"
#define DOMAIN	      "weft"
#define FRAMES	      7 /* version, request, domain, address, identity, mechanism, key */
#define ADDRESS_BYTES 64

static int set(void *socket, int option, const void *value, size_t bytes, struct error *error)
{
	if (zmq_setsockopt(socket, option, value, bytes) == 0)
		return 0;
	if (errno == EINVAL && !zmq_has("curve"))
		return error_set(
			error, ERROR_UNSUPPORTED,
			"keys: this libzmq was built without CURVE; install one with libsodium "
			"(Debian's libzmq5 has it)");
	return error_set(error, ERROR_IO, "keys: socket option %d: %s", option,
			 zmq_strerror(errno));
}

void curve_seed_ids(void)
{
	unsigned int seed = 0;

	if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		seed = (unsigned int)clock_ns();
	srand(seed);
}

int curve_serve(void *socket, const struct key *key, enum key_role as, struct error *error)
{
	struct key_pair pair;
	int on = 1, rc = key_pair(key, as, &pair, error);

	if (rc)
		return rc;
	rc = set(socket, ZMQ_CURVE_SERVER, &on, sizeof(on), error);
	if (!rc)
		rc = set(socket, ZMQ_CURVE_SECRETKEY, pair.secret, KEY_BYTES, error);
	if (!rc)
		rc = set(socket, ZMQ_ZAP_DOMAIN, DOMAIN, strlen(DOMAIN), error);
	key_pair_forget(&pair);
	return rc;
}

int curve_connect(void *socket, const struct key *key, enum key_role as, enum key_role to,
		  struct error *error)
{
	struct key_pair pair;
	int rc = key_pair(key, as, &pair, error);

	if (rc)
		return rc;
	rc = set(socket, ZMQ_CURVE_SERVERKEY, to == KEY_JOB ? key->controller : pair.public_key,
		 KEY_BYTES, error);
	if (!rc)
		rc = set(socket, ZMQ_CURVE_PUBLICKEY, pair.public_key, KEY_BYTES, error);
	if (!rc)
		rc = set(socket, ZMQ_CURVE_SECRETKEY, pair.secret, KEY_BYTES, error);
	key_pair_forget(&pair);
	return rc;
}

/* ---- the gate ---- */

struct gate {
	void *socket;
	unsigned char keys[KEY_ROLES][KEY_BYTES]; /* public; zeros: nobody is let in as this */
	bool to_all;				  /* there are no keys, but: */
	uint64_t left, at_once, a_second,
		counted_ms; /* how many may still come, and when that was counted */
	uint64_t refused;
	char address[ADDRESS_BYTES];
};

static int begin(struct gate *gate, void *context, struct error *error)
{
	gate->socket = zmq_socket(context, ZMQ_ROUTER);
	if (gate->socket && zmq_bind(gate->socket, GATE_ADDRESS) == 0)
		return 0;
	return error_set(error, ERROR_IO, "keys: no gate: %s", zmq_strerror(errno));
}

int gate_open(struct gate **out, void *context, const struct key *key, struct error *error)
{
	struct gate *gate = memory_zalloc(1, sizeof(*gate));
	struct key_pair pair;
	int rc = 0;

	*out = NULL;
	if (!gate)
		return memory_error(error, "opening the gate", sizeof(*gate));
	for (unsigned role = KEY_TRAINER; role < KEY_ROLES && !rc; role++) {
		if (key->role != KEY_JOB && key->role != role)
			continue;
		rc = key_pair(key, (enum key_role)role, &pair, error);
		if (!rc)
			memcpy(gate->keys[role], pair.public_key, KEY_BYTES);
		key_pair_forget(&pair);
	}
	if (!rc)
		rc = begin(gate, context, error);
	if (rc)
		gate_close(&gate);
	*out = gate;
	return rc;
}

int gate_open_to_all(struct gate **out, void *context, void *socket, uint64_t at_once,
		     uint64_t a_second, struct error *error)
{
	struct gate *gate = memory_zalloc(1, sizeof(*gate));
	int rc;

	*out = NULL;
	if (!gate)
		return memory_error(error, "opening the gate", sizeof(*gate));
	gate->to_all = true;
	gate->left = gate->at_once = at_once;
	gate->a_second = a_second;
	gate->counted_ms = clock_ms();
	rc = begin(gate, context, error);
	if (!rc)
		rc = set(socket, ZMQ_ZAP_DOMAIN, DOMAIN, strlen(DOMAIN), error);
	if (rc)
		gate_close(&gate);
	*out = gate;
	return rc;
}

void gate_close(struct gate **gate)
{
	if (!*gate)
		return;
	if ((*gate)->socket)
		zmq_close((*gate)->socket);
	memory_free(*gate);
	*gate = NULL;
}

void *gate_socket(const struct gate *gate)
{
	return gate->socket;
}

uint64_t gate_refused(const struct gate *gate, const char **address)
{
	static const char mapped[] = "::ffff:"; /* an IPv4 address on a socket that takes both */
	size_t prefix = sizeof(mapped) - 1;

	*address = gate->address + (strncmp(gate->address, mapped, prefix) ? 0 : prefix);
	return gate->refused;
}

static enum key_role whose(const struct gate *gate, const unsigned char *key)
{
	static const unsigned char nobody[KEY_BYTES];

	for (unsigned role = KEY_TRAINER; role < KEY_ROLES; role++)
		if (sodium_memcmp(gate->keys[role], key, KEY_BYTES) == 0 &&
		    sodium_memcmp(gate->keys[role], nobody, KEY_BYTES) != 0)
			return (enum key_role)role;
	return KEY_ROLES;
}

static bool may_come(struct gate *gate)
{
	uint64_t now = clock_ms(), more = (now - gate->counted_ms) * gate->a_second / 1000;

	if (more) {
		gate->counted_ms = now;
		gate->left = gate->left + more < gate->at_once ? gate->left + more : gate->at_once;
	}
	if (!gate->left)
		return false;
	gate->left--;
	return true;
}

static bool is(zmq_msg_t *frame, const char *text)
{
	return zmq_msg_size(frame) == strlen(text) &&
	       memcmp(zmq_msg_data(frame), text, strlen(text)) == 0;
}

/* `to`: where the request came from inside libzmq, and an empty frame. */
static void answer(struct gate *gate, zmq_msg_t to[2], zmq_msg_t frames[FRAMES], enum key_role role)
{
	bool in = role < KEY_ROLES;
	const char *const words[] = {in ? "200" : "400", in ? "OK" : "refused",
				     in && !gate->to_all ? key_role_name(role) : "", ""};

	zmq_msg_send(&to[0], gate->socket, ZMQ_SNDMORE);
	zmq_msg_send(&to[1], gate->socket, ZMQ_SNDMORE);
	zmq_msg_send(&frames[0], gate->socket, ZMQ_SNDMORE);
	zmq_msg_send(&frames[1], gate->socket, ZMQ_SNDMORE);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		zmq_send(gate->socket, words[i], strlen(words[i]),
			 i + 1 < ARRAY_SIZE(words) ? ZMQ_SNDMORE : 0);
}

static void decide(struct gate *gate, zmq_msg_t to[2], zmq_msg_t frames[FRAMES], unsigned count)
{
	enum key_role role = KEY_ROLES;

	if (count < 2)
		return; /* libzmq sends no such thing */
	if (gate->to_all && count == FRAMES - 1 && is(&frames[0], "1.0") &&
	    is(&frames[2], DOMAIN) && is(&frames[5], "NULL") && may_come(gate))
		role = KEY_JOB;
	if (!gate->to_all && count == FRAMES && is(&frames[0], "1.0") && is(&frames[2], DOMAIN) &&
	    is(&frames[5], "CURVE") && zmq_msg_size(&frames[6]) == KEY_BYTES)
		role = whose(gate, zmq_msg_data(&frames[6]));
	if (role == KEY_ROLES) {
		gate->refused++;
		snprintf(gate->address, sizeof(gate->address), "%.*s",
			 (int)zmq_msg_size(&frames[3]), (const char *)zmq_msg_data(&frames[3]));
	}
	answer(gate, to, frames, role);
}

/* One request; false: none is waiting. Its parts arrive together. */
static bool take(struct gate *gate)
{
	zmq_msg_t parts[2 + FRAMES], rest;
	unsigned count = 0;
	bool more = true;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		zmq_msg_init(&parts[i]);
	while (more && count < ARRAY_SIZE(parts) &&
	       zmq_msg_recv(&parts[count], gate->socket, ZMQ_DONTWAIT) >= 0)
		more = zmq_msg_more(&parts[count++]);
	while (more && count) {
		zmq_msg_init(&rest);
		more = zmq_msg_recv(&rest, gate->socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&rest);
		zmq_msg_close(&rest);
	}
	if (count > 2)
		decide(gate, parts, parts + 2, count - 2);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		zmq_msg_close(&parts[i]);
	return count > 0;
}

void gate_step(struct gate *gate)
{
	while (take(gate))
		;
}
