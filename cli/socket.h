/* SPDX-License-Identifier: Apache-2.0
 *
 * socket.h -- the ZeroMQ socket of a weft tool that talks to one other tool: frames in and out, who
 * sent them, and what became of the connection. What frames mean is cli/exchange.h's.
 *
 *   serving: ROUTER ◄── gate (trust/curve.h): who has the job's key as observer, no others
 *     anybody's frame ─► socket_take_peer: its sender is the peer from here on ─► its frames, its end
 *   asking:  DEALER, to one address; libzmq tries again until somebody is there
 *
 * What libzmq's monitor tells of connections becomes `why` for the one who asks; the one who serves
 * logs whom it sent away, LINES a minute. Without a key it is bound to this host alone, unless
 * --insecure says otherwise.
 */
#ifndef CLI_SOCKET_H
#define CLI_SOCKET_H

#include "trust/key.h"
#include "wire/tool.h"
#include <netdb.h>
#include <stdbool.h>

#define SOCKET_TEXT_BYTES 128
#define SOCKET_ID_BYTES   255
#define SOCKET_ARRIVALS   64

/* What --key and --insecure say, or WEFT_KEY_FILE and WEFT_INSECURE. */
struct socket_trust {
	const char *key_file;
	bool insecure, keyed; /* keyed: there is a key, and it is: */
	struct key key;
};

struct socket_peer {
	unsigned char id[SOCKET_ID_BYTES];
	size_t id_bytes;
	int fd;                       /* of libzmq's connection; 0: no peer */
	char text[SOCKET_TEXT_BYTES]; /* host:port */
	char host[SOCKET_TEXT_BYTES];
};

struct tool_socket {
	void *context, *socket, *monitor;
	struct gate *gate;
	bool serves, keyed, open;      /* open: to other hosts */
	bool held;                     /* a frame, and who sent it: */
	unsigned char frame[TOOL_MESSAGE_BYTES];
	size_t length;
	struct socket_peer from, peer; /* the one who asks fills neither */
	bool lost;                     /* the peer's connection */
	/* asking */
	bool reached, refused, met;    /* somebody took the connection; nobody did; the handshake is done */
	struct error why;              /* it came to nothing, as said of the other side; code 0: unknown */
	/* serving: who has connected and not said a word yet; lines about strangers */
	struct socket_peer arrivals[SOCKET_ARRIVALS];
	const char *failure;           /* of the handshake whose connection ends next */
	uint64_t told_ns;
	unsigned told;
};

int socket_trust_read(struct socket_trust *trust, struct error *error);
/* *port 0: a free one, which it becomes. */
int socket_listen(struct tool_socket **out, const struct socket_trust *trust, uint16_t *port,
		  struct error *error);
/* Nobody need be there yet. */
int socket_connect(struct tool_socket **out, const struct socket_trust *trust,
		   const struct addrinfo *to, struct error *error);
void socket_close(struct tool_socket **out);

/* SOCKET_FRAME: one is there, until it is no longer `held`. SOCKET_LOST: the peer's connection has
 * ended, and all that it sent is read. SOCKET_QUIET: neither until the deadline. */
enum socket_news { SOCKET_QUIET, SOCKET_FRAME, SOCKET_LOST };
enum socket_news socket_wait(struct tool_socket *socket, uint64_t deadline_ns);
bool socket_from_peer(const struct tool_socket *socket);
/* Nobody is the peer, and the frame is on the connection of the one who was it last. */
bool socket_from_last(const struct tool_socket *socket);
void socket_take_peer(struct tool_socket *socket);
/* False: `to` is not there, or does not read. */
bool socket_send(struct tool_socket *socket, const struct socket_peer *to,
		 const unsigned char *bytes, size_t length);
/* A line about a stranger, unless there were too many. */
void socket_tell(struct tool_socket *socket, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
