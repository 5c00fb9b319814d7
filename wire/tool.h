/* SPDX-License-Identifier: Apache-2.0
 *
 * tool.h -- what two `weft` tools on two hosts tell each other (`doctor --peer`, `bench write`)
 * before and between transfers, never the transfer itself.
 *
 *   client                                 server
 *     hello ─────────────────────────────────►   which tool this is
 *     ◄───────────────────────────────── hello
 *     settings ──────────────────────────────►   what each side was told
 *     ◄────────────────────────────── settings   what holds for both
 *     record ◄───────────────────────────► record
 *     connected ◄─────────────────────► connected
 *     ◄──────────────────────────────── region
 *     proved ◄───────────────────────────► proved
 *   bench write                            doctor
 *     pass ──► passed                        about ◄──► about, before the settings
 *                                            check ──► checked    ping ──► pong
 *     bye ───────────────────────────────────►
 *     failure ◄─────────────────────────► failure     at any time, instead of what is due
 *
 * Each is one frame (frame.h) of its own protocol and version: {"type":"hello", "tool":1, ..}.
 */
#ifndef WIRE_TOOL_H
#define WIRE_TOOL_H

#include "base/error.h"
#include "wire/limits.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOOL_VERSION         1
#define TOOL_MESSAGE_BYTES   65536 /* of a frame */
#define TOOL_NAME_BYTES      24
#define TOOL_TRANSPORT_BYTES 16
#define TOOL_GID_BYTES       48

enum tool_type {
	TOOL_HELLO,
	TOOL_FAILURE,
	TOOL_SETTINGS,
	TOOL_RECORD,
	TOOL_REGION,
	TOOL_CONNECTED,
	TOOL_PROVED,
	TOOL_PASS,
	TOOL_PASSED,
	TOOL_ABOUT,
	TOOL_CHECK,
	TOOL_CHECKED,
	TOOL_PING,
	TOOL_PONG,
	TOOL_BYE,
	TOOL_TYPE_COUNT
};

struct tool_hello { char program[TOOL_NAME_BYTES]; };    /* "bench write" */
struct tool_failure { int code; char *text; };

/* What both sides must agree on. 0 and "": this side was not told. */
struct tool_settings {
	char transport[TOOL_TRANSPORT_BYTES];
	uint64_t qps, depth, mtu, chunk_bytes;
	uint64_t region_bytes; /* the client says */
	uint64_t secret;       /* the server says */
};

struct tool_record { unsigned char *bytes; size_t length; }; /* of an endpoint, or a region */

struct tool_pass {
	uint64_t number;       /* of the signal behind the writes */
	uint64_t touched;      /* bytes from the region's start */
	uint64_t sum;          /* of them, when `check` */
	bool check;
};

struct tool_rail { char gid[TOOL_GID_BYTES]; uint32_t prefix_bits; }; /* "": has no address */
struct tool_about {
	char *weft, *host;     /* version, name */
	struct tool_rail *rails;
	size_t rail_count;
};

struct tool_check { uint64_t bytes, sequence; };         /* to sum, once that signal has come */
struct tool_checked { uint64_t sum; };
struct tool_ping { uint64_t count, sequence; };          /* signals to answer, from that one on */

struct tool_message {
	enum tool_type type;
	union {
		struct tool_hello hello;
		struct tool_failure failure;
		struct tool_settings settings;
		struct tool_record record; /* and of TOOL_REGION */
		struct tool_pass pass;
		struct tool_about about;
		struct tool_check check;
		struct tool_checked checked;
		struct tool_ping ping;
	} u;
};

const char *tool_type_name(enum tool_type type);

/* As those of message.h: what the other side would refuse is refused by the encoder, and what
 * is malformed is named with its key and byte. */
int tool_encode(const struct tool_message *message, unsigned char **bytes, size_t *length,
		struct error *error);
int tool_decode(struct tool_message *message, const unsigned char *bytes, size_t length,
		struct error *error);
/* Frees what a decoded message owns; a zeroed message owns nothing. */
void tool_fini(struct tool_message *message);

#endif
