/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/shell.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "controller/listen.h"
#include "routing/report/dump.h"
#include "trust/curve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

#define LINGER_MS  2000	 /* how long last messages may take to leave */
#define BATCH	   10000 /* messages between two looks at the clock, so that who is silent is */
#define BATCH_MS   60000 /* judged with an empty queue; under a flood, after so long anyway */
#define QUEUED	   16	 /* messages of one connection in memory: each may have its full size */
#define ID_BYTES   255	 /* the longest routing id there is */
#define REFUSED_MS 60000 /* between two lines about connections without a key */

struct shell {
	const struct shell_options *options;
	struct controller *core;
	void *context, *socket;
	struct gate *gate; /* NULL: no key */
	uint64_t gate_told, gate_told_ms;
	int signals;
	bool plan_due, planning; /* asked for; the core is busy with it */
	bool over;
	struct error end; /* why it is over */
	bool trouble;	  /* of our own: the job cannot go on */
	struct error why;
};

/* SIGHUP, a closed terminal, ends the job in order too, unless nohup had it ignored. */
static sigset_t signal_set(void)
{
	struct sigaction hangup = {.sa_handler = SIG_DFL};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
		sigaddset(&set, SIGHUP);
	return set;
}

/* A job must not end because the one who read the log has. */
void shell_block_signals(void)
{
	sigset_t set = signal_set();

	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static const char *signal_text(uint32_t number)
{
	return number == SIGTERM ? "SIGTERM" : number == SIGHUP ? "SIGHUP" : "SIGINT";
}

/* A routing id as text: itself when printable, else "#" and hex digits. */
static bool peer_text(const unsigned char *id, size_t bytes, char out[PEER_BYTES])
{
	bool plain = bytes > 0 && id[0] != '#';

	for (size_t i = 0; i < bytes; i++)
		plain &= id[i] > 0x20 && id[i] < 0x7f;
	if (plain ? bytes >= PEER_BYTES : 2 * bytes + 2 > PEER_BYTES)
		return false;
	if (plain) {
		memcpy(out, id, bytes);
		out[bytes] = '\0';
		return true;
	}
	out[0] = '#';
	out[1] = '\0';
	for (size_t i = 0; i < bytes; i++)
		snprintf(out + 1 + 2 * i, 3, "%02x", id[i]);
	return true;
}

static size_t peer_id(const char *peer, unsigned char id[PEER_BYTES])
{
	size_t bytes = strlen(peer);

	if (peer[0] != '#') {
		memcpy(id, peer, bytes);
		return bytes;
	}
	for (size_t i = 0; i < bytes / 2; i++) {
		unsigned int byte = 0;

		sscanf(peer + 1 + 2 * i, "%2x", &byte);
		id[i] = (unsigned char)byte;
	}
	return bytes / 2;
}

static void in_trouble(struct shell *shell, const struct error *why)
{
	log_error("%s", why->text);
	if (!shell->trouble)
		shell->why = *why;
	shell->trouble = true;
}

static void send_message(struct shell *shell, const char *peer, const struct message *message)
{
	unsigned char id[PEER_BYTES], *bytes = NULL;
	size_t id_bytes = peer_id(peer, id), length = 0;
	struct error error;

	if (message_encode(message, &bytes, &length, &error)) {
		in_trouble(shell, &error);
		return;
	}
	if (length > LIMIT_MESSAGE_BYTES) {
		error_set(&error, ERROR_LIMIT, "a %s for %s takes %zu bytes, the limit is %u",
			  message_type_name(message->type), peer, length, LIMIT_MESSAGE_BYTES);
		in_trouble(shell, &error);
	} else if (zmq_send(shell->socket, id, id_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
		   zmq_send(shell->socket, bytes, length, ZMQ_DONTWAIT) < 0) {
		/* gone, or not reading: it asks again, or falls silent and is found missing */
		log_debug("%s to %s not sent: %s", message_type_name(message->type), peer,
			  zmq_strerror(errno));
	} else {
		log_debug("> %s %s (%zu bytes)", peer, message_type_name(message->type), length);
	}
	memory_free(bytes);
}

static void perform(struct shell *shell, const struct action *action)
{
	switch ((enum controller_action_type)action->type) {
	case CONTROLLER_SEND:
		send_message(shell, action->peer, &action->message);
		break;
	case CONTROLLER_LOG:
		if (action->warn)
			log_warn("%s", action->line);
		else
			log_info("%s", action->line);
		break;
	case CONTROLLER_PLAN_DUE:
		shell->plan_due = true;
		break;
	case CONTROLLER_TABLE: /* written where it was planned */
		break;
	case CONTROLLER_EXIT:
		shell->over = true;
		shell->end = action->error;
		break;
	}
}

static void perform_all(struct shell *shell, struct actions *actions, int rc)
{
	for (size_t i = 0; i < actions->count; i++)
		if (!rc || actions->items[i].type == CONTROLLER_LOG)
			perform(shell, &actions->items[i]);
	actions_clear(actions);
}

static int step(struct shell *shell, struct controller_event *event, struct error *error)
{
	struct actions actions = {0};
	int rc;

	event->now_ms = clock_ms();
	rc = controller_step(shell->core, event, &actions, error);
	perform_all(shell, &actions, rc);
	return rc;
}

/* The worker counts a controller that does not answer as lost, and the core is busy. */
static void answer_beat(struct shell *shell, const char *peer, const struct message *message)
{
	struct message answer = {.type = MESSAGE_HEARTBEAT,
				 .epoch = message->epoch,
				 .from = shell->options->controller.incarnation};

	if (message->type != MESSAGE_HEARTBEAT ||
	    strcmp(message->job, shell->options->controller.job) != 0)
		return;
	snprintf(answer.job, sizeof(answer.job), "%s", message->job);
	answer.u.heartbeat.sequence = message->u.heartbeat.sequence;
	send_message(shell, peer, &answer);
}

/* One message: routing id and one frame. `more` frames are read away, and make it malformed. */
static int take(struct shell *shell, zmq_msg_t *id, zmq_msg_t *frame, bool more,
		struct error *error)
{
	char peer[PEER_BYTES];
	struct controller_event event = {
		.type = CONTROLLER_RECEIVED,
		.peer = peer,
		.key_role = shell->gate ? zmq_msg_gets(frame, "User-Id") : NULL,
	};
	struct message message = {0};
	struct error why;
	int rc;

	if (!peer_text(zmq_msg_data(id), zmq_msg_size(id), peer)) {
		log_warn("dropped: a message with a routing id of %zu bytes", zmq_msg_size(id));
		return 0;
	}
	rc = more ? error_set(&why, ERROR_MESSAGE, "a message of several frames, one is expected")
		  : message_decode(&message, zmq_msg_data(frame), zmq_msg_size(frame), &why);
	if (shell->planning) {
		if (!rc)
			answer_beat(shell, peer, &message);
		message_fini(&message);
		return 0;
	}
	if (rc) {
		event.type = CONTROLLER_BROKEN;
		event.error = &why;
	} else {
		event.message = &message;
		log_debug("< %s %s", peer, message_type_name(message.type));
	}
	rc = step(shell, &event, error);
	message_fini(&message);
	return rc;
}

/* 1: nothing was waiting. */
static int receive(struct shell *shell, struct error *error)
{
	zmq_msg_t id, frame, rest;
	bool more = false;
	int rc = 1;

	zmq_msg_init(&id);
	zmq_msg_init(&frame);
	if (zmq_msg_recv(&id, shell->socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&id) &&
	    zmq_msg_recv(&frame, shell->socket, ZMQ_DONTWAIT) >= 0) {
		rc = zmq_msg_more(&frame);
		while (rc) { /* the parts of a message arrive together */
			more = true;
			zmq_msg_init(&rest);
			rc = zmq_msg_recv(&rest, shell->socket, ZMQ_DONTWAIT) >= 0 &&
			     zmq_msg_more(&rest);
			zmq_msg_close(&rest);
		}
		rc = take(shell, &id, &frame, more, error);
	}
	zmq_msg_close(&frame);
	zmq_msg_close(&id);
	return rc;
}

static int take_signals(struct shell *shell, struct error *error)
{
	struct controller_event event = {.type = CONTROLLER_INTERRUPT};
	struct signalfd_siginfo info;
	struct error why;
	char *line;

	while (read(shell->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGUSR1) {
			line = controller_line(shell->core, clock_ms());
			log_warn("%s", line ? line : "out of memory"); /* asked for */
			memory_free(line);
			continue;
		}
		error_set(&why, ERROR_INTERRUPTED, "the controller was stopped by %s",
			  signal_text(info.ssi_signo));
		event.error = &why;
		return step(shell, &event, error);
	}
	return 0;
}

static int wait_ms(const struct shell *shell)
{
	uint64_t deadline = controller_deadline_ms(shell->core), now = clock_ms();

	if (deadline <= now)
		return 0;
	return deadline - now < 60000 ? (int)(deadline - now) : 60000;
}

/* A planning step, on a thread of its own:
 *
 *   core     ──── routes, proves, dump ────┐ done
 *   socket   heartbeats, all else dropped  └► plans go out
 */
struct planning {
	struct shell *shell;
	struct controller_event event;
	struct actions actions;
	struct error error, dump_error;
	int rc, dump_rc, done;
	bool dumped;
};

static int write_dump(const char *path, const struct table *table, struct error *error)
{
	struct report report;
	int rc = report_of(&report, table, error);

	if (rc)
		return rc;
	rc = dump_save(path, table, &report, DUMP_WHOLE, error);
	report_fini(&report);
	return rc;
}

static void *plan_and_dump(void *argument)
{
	struct planning *planning = argument;
	const char *dump = planning->shell->options->dump;

	planning->rc = controller_step(planning->shell->core, &planning->event, &planning->actions,
				       &planning->error);
	for (size_t i = 0; dump && !planning->rc && i < planning->actions.count; i++) {
		if (planning->actions.items[i].type != CONTROLLER_TABLE)
			continue;
		planning->dumped = true;
		planning->dump_rc =
			write_dump(dump, planning->actions.items[i].table, &planning->dump_error);
	}
	if (planning->done >= 0)
		eventfd_write(planning->done, 1);
	return NULL;
}

/* Until a message or `fd`: what is in between belongs to the gate. */
static void wait_for(struct shell *shell, zmq_pollitem_t items[3], int fd, int ms)
{
	items[0] = (zmq_pollitem_t){.socket = shell->socket, .events = ZMQ_POLLIN};
	items[1] = (zmq_pollitem_t){.fd = fd, .events = ZMQ_POLLIN};
	if (shell->gate)
		items[2] =
			(zmq_pollitem_t){.socket = gate_socket(shell->gate), .events = ZMQ_POLLIN};
	zmq_poll(items, shell->gate ? 3 : 2, ms);
	if (shell->gate && items[2].revents)
		gate_step(shell->gate);
}

static void answer_beats_until(struct shell *shell, int done)
{
	zmq_pollitem_t items[3];

	shell->planning = true;
	do {
		wait_for(shell, items, done, -1);
		if (items[0].revents)
			receive(shell, NULL);
	} while (!items[1].revents);
	shell->planning = false;
}

static int plan(struct shell *shell, struct error *error)
{
	struct planning planning = {
		.shell = shell,
		.event = {.type = CONTROLLER_PLAN, .now_ms = clock_ms()},
		.done = eventfd(0, EFD_CLOEXEC),
	};
	pthread_t thread;

	shell->plan_due = false;
	if (planning.done >= 0 && pthread_create(&thread, NULL, plan_and_dump, &planning) == 0) {
		answer_beats_until(shell, planning.done);
		pthread_join(thread, NULL);
	} else {
		plan_and_dump(&planning); /* slower to answer, and no worse */
	}
	if (planning.done >= 0)
		close(planning.done);
	perform_all(shell, &planning.actions, planning.rc);
	if (planning.dump_rc) {
		error_wrap(&planning.dump_error, "routing dump (--dump)");
		in_trouble(shell, &planning.dump_error);
	} else if (planning.dumped) {
		log_info("routing table written to %s", shell->options->dump);
	}
	if (planning.rc && error)
		*error = planning.error;
	return planning.rc;
}

/* Signals are heard between two messages: a flood must not keep the controller from ending. */
static int receive_all(struct shell *shell, struct error *error)
{
	uint64_t end = clock_ms() + BATCH_MS;
	int rc = 0;

	for (int i = 0; !rc && !shell->over && i < BATCH && clock_ms() < end; i++) {
		rc = receive(shell, error);
		if (!rc && shell->plan_due)
			rc = plan(shell, error);
		if (!rc && !shell->over)
			rc = take_signals(shell, error);
	}
	return rc == 1 ? 0 : rc;
}

/* At once, and then once a minute at most. */
static void tell_refused(struct shell *shell)
{
	const char *address;
	uint64_t now = clock_ms(), refused = shell->gate ? gate_refused(shell->gate, &address) : 0;

	if (refused == shell->gate_told ||
	    (shell->gate_told && now < shell->gate_told_ms + REFUSED_MS))
		return;
	log_warn("refused for want of a key of this job: %llu connections, the last from %s",
		 (unsigned long long)(refused - shell->gate_told), address);
	shell->gate_told = refused;
	shell->gate_told_ms = now;
}

static int loop(struct shell *shell, struct error *error)
{
	int rc = 0;

	while (!rc && !shell->over) {
		struct controller_event event = {.type = CONTROLLER_TICK};
		zmq_pollitem_t items[3];

		wait_for(shell, items, shell->signals, wait_ms(shell));
		tell_refused(shell);
		rc = receive_all(shell, error);
		if (!rc && !shell->over)
			rc = take_signals(shell, error);
		if (!rc && !shell->over && controller_deadline_ms(shell->core) <= clock_ms())
			rc = step(shell, &event, error);
		if (!rc && !shell->over && shell->trouble) {
			event.type = CONTROLLER_INTERRUPT;
			event.error = &shell->why;
			rc = step(shell, &event, error);
			shell->trouble = false;
		}
	}
	return rc;
}

static int set_options(struct shell *shell, struct error *error)
{
	const struct {
		int option, value;
	} rows[] = {
		{ZMQ_LINGER, LINGER_MS}, {ZMQ_ROUTER_MANDATORY, 1}, {ZMQ_IPV6, 1},
		{ZMQ_TCP_KEEPALIVE, 1},	 {ZMQ_RCVHWM, QUEUED},
	};
	int64_t largest = LIMIT_MESSAGE_BYTES;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (zmq_setsockopt(shell->socket, rows[i].option, &rows[i].value, sizeof(int)))
			return error_set(error, ERROR_IO, "control socket option %d: %s",
					 rows[i].option, zmq_strerror(errno));
	if (zmq_setsockopt(shell->socket, ZMQ_MAXMSGSIZE, &largest, sizeof(largest)))
		return error_set(error, ERROR_IO, "control socket: %s", zmq_strerror(errno));
	return 0;
}

static int listen_on(struct shell *shell, struct error *error)
{
	const struct shell_options *options = shell->options;
	const char *address = options->bind ? options->bind : listen_default(options->key);
	char endpoint[512] = "";
	size_t bytes = sizeof(endpoint);

	if (listen_check(address, options->key, options->insecure, error))
		return -ERROR_CONFIG;
	if (!options->key && listen_is_open(address))
		log_warn(
			"no key (--insecure): whoever reaches %s can join this job as any rank, send "
			"its engines other weights, read its plans and end it",
			address);
	if (zmq_bind(shell->socket, address)) {
		int number = errno;

		return error_set(
			error, number == EADDRINUSE ? ERROR_IO : ERROR_CONFIG,
			"cannot listen on %s: %s; %s", address, zmq_strerror(number),
			number == EADDRINUSE
				? "another controller may be running: stop it, or choose "
				  "another port with --bind"
				: "write --bind as tcp://*:29600 or tcp://ADDRESS:PORT, with an "
				  "address of this host");
	}
	zmq_getsockopt(shell->socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes);
	listen_say(endpoint);
	if (options->port_file)
		return listen_write_port(options->port_file, endpoint, error);
	return 0;
}

/* libzmq counts the ids of connections up from what rand() says first. Without a seed that is the same
 * number in every process: a stranger who claims the id that comes next ends the process by an
 * assertion, and one who knows a worker's can speak for it. */
static void seed_ids(void)
{
	unsigned int seed = 0;

	if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		seed = (unsigned int)clock_ns();
	srand(seed);
}

static int open_keys(struct shell *shell, struct error *error)
{
	const struct key *key = shell->options->key;
	int rc;

	if (!key)
		return 0;
	rc = gate_open(&shell->gate, shell->context, key, error);
	return rc ? rc : curve_serve(shell->socket, key, KEY_JOB, error);
}

static int open_all(struct shell *shell, struct error *error)
{
	sigset_t set = signal_set();
	int rc;

	shell->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (shell->signals < 0)
		return error_set_errno(error, ERROR_IO, errno, "no descriptor for signals");
	seed_ids();
	shell->context = zmq_ctx_new();
	shell->socket = shell->context ? zmq_socket(shell->context, ZMQ_ROUTER) : NULL;
	if (!shell->socket)
		return error_set(error, ERROR_IO, "no control socket: %s", zmq_strerror(errno));
	rc = set_options(shell, error);
	if (!rc)
		rc = open_keys(shell, error);
	if (!rc)
		rc = controller_new(&shell->core, &shell->options->controller, clock_ms(), error);
	return rc ? rc : listen_on(shell, error);
}

static void close_all(struct shell *shell)
{
	controller_free(&shell->core);
	if (shell->socket)
		zmq_close(shell->socket);
	gate_close(&shell->gate);
	if (shell->context)
		zmq_ctx_term(shell->context);
	if (shell->signals >= 0)
		close(shell->signals);
}

int shell_run(const struct shell_options *options, struct error *error)
{
	struct shell shell = {.options = options, .signals = -1};
	int rc = open_all(&shell, error);

	if (!rc)
		rc = loop(&shell, error);
	close_all(&shell);
	if (rc || shell.end.code == ERROR_NONE)
		return rc;
	return error_copy(error, &shell.end);
}
