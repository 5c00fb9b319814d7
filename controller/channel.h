/* SPDX-License-Identifier: Apache-2.0
 *
 * channel.h -- the controller's socket: who may connect (the gate), what a peer may send before he is
 * known, and what is kept for one that does not read.
 *
 *   frame ── at most PART_BYTES ──┬─ a message: to the core, whoever sent it
 *                                 └─ part of one: collected for members alone, within a budget
 *   message ── cut to frames ──► pipe of the peer, PIPE_FRAMES at most ── full ──► kept here, one message a
 *                                peer; what else is too large for the pipe meanwhile is dropped, since
 *                                workers ask again
 *
 * Decides nothing of the job's. One thread.
 */
#ifndef CONTROLLER_CHANNEL_H
#define CONTROLLER_CHANNEL_H

#include "trust/key.h"
#include "wire/core.h"

struct channel_options {
	const char *bind;       /* a ZeroMQ address; NULL: listen_default */
	const char *port_file;  /* gets the bound port, whole or not at all; NULL: none */
	const struct key *key;  /* NULL: none, strangers are let in */
	bool insecure;          /* without a key, other hosts may connect all the same */
	uint32_t workers;       /* that the job has: there are descriptors for them, and some more */
	/* Whose messages may be large, and as many as he likes. */
	bool (*is_member)(const void *context, const char *peer);
	const void *context;
};

struct channel;
/* Listens when it returns 0. */
int channel_open(struct channel **channel, const struct channel_options *options,
		 struct error *error);
/* Last messages get two seconds to leave. */
void channel_close(struct channel **channel);

/* Until a message may be there, `fd` is readable (true), `ms` have passed (-1: no limit), or for half a second. */
bool channel_wait(struct channel *channel, int fd, int ms);

struct channel_frame {
	char peer[PEER_BYTES];
	const char *key_role; /* whose key it came with, "trainer"; NULL: keys are not used */
	const unsigned char *bytes;
	size_t length;
	struct error error;   /* not ERROR_NONE: no message, but this is wrong with it */
};
/* The next message, valid until the next call; false: none is waiting. */
bool channel_receive(struct channel *channel, struct channel_frame *frame);
/* Connections that came to nothing for want of a key. */
uint64_t channel_refused(const struct channel *channel);
/* Nobody can read the last one: its connection is ended when there are more of them. */
void channel_unreadable(struct channel *channel);
/* Takes `bytes` (memory_free). True: it is on its way; else the peer is gone, or does not read. */
bool channel_send(struct channel *channel, const char *peer, unsigned char *bytes, size_t length);

#endif
