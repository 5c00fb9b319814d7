/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/shell.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "controller/channel.h"
#include "routing/report/dump.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define BATCH	 10000 /* messages between two looks at the clock, so that who is silent is */
#define BATCH_MS 60000 /* judged with an empty queue; under a flood, after so long anyway */

#define PARENT_LOOKS 20

struct shell {
	const struct shell_options *options;
	struct controller *core;
	struct channel *channel;
	struct controller_metrics *metrics; /* NULL: none are wanted */
	int signals;
	bool plan_due, planning; /* asked for; the core is busy with it */
	bool over;
	struct error end; /* why it is over */
	bool trouble;	  /* of our own: the job cannot go on */
	struct error why;
	struct controller_trace trace;
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

static void in_trouble(struct shell *shell, const struct error *why)
{
	log_error_of(why->code, "%s", why->text);
	if (!shell->trouble)
		shell->why = *why;
	shell->trouble = true;
}

static void send_message(struct shell *shell, const char *peer, const struct message *message)
{
	unsigned char *bytes = NULL;
	struct error error;
	size_t length = 0;
	bool sent;
	int rc = message_encode(message, &bytes, &length, &error);

	if (!rc && length > LIMIT_MESSAGE_BYTES)
		rc = error_set(&error, ERROR_LIMIT, "a %s for %s takes %zu bytes, the limit is %u",
			       message_type_name(message->type), peer, length, LIMIT_MESSAGE_BYTES);
	if (rc) {
		if (message->type == MESSAGE_REPORT) /* to people, which ends no job */
			log_warn_of(error.code, "for weft status: %s", error.text);
		else
			in_trouble(shell, &error);
		memory_free(bytes);
		return;
	}
	sent = channel_send(shell->channel, peer, bytes, length);
	/* gone, or not reading: it asks again, or falls silent and is found missing */
	log_debug("> %s %s (%zu bytes)%s", peer, message_type_name(message->type), length,
		  sent ? "" : ", not sent");
}

static void perform(struct shell *shell, const struct action *action)
{
	switch ((enum controller_action_type)action->type) {
	case CONTROLLER_SEND:
		send_message(shell, action->peer, &action->message);
		break;
	case CONTROLLER_LOG:
		controller_trace_line(&shell->trace, action->line);
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
	controller_trace_state(&shell->trace, shell->core);
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

static int take(struct shell *shell, const struct channel_frame *frame, struct error *error)
{
	struct controller_event event = {
		.type = CONTROLLER_RECEIVED,
		.peer = frame->peer,
		.key_role = frame->key_role,
	};
	struct message message = {0};
	struct error why = frame->error;
	int rc = why.code ? -(int)why.code
			  : message_decode(&message, frame->bytes, frame->length, &why);

	if (rc)
		channel_unreadable(shell->channel);
	else
		controller_trace_beat(&shell->trace, &message);
	if (shell->planning) {
		if (!rc)
			answer_beat(shell, frame->peer, &message);
		message_fini(&message);
		return 0;
	}
	if (rc) {
		event.type = CONTROLLER_BROKEN;
		event.error = &why;
	} else {
		event.message = &message;
		log_debug("< %s %s", frame->peer, message_type_name(message.type));
	}
	rc = step(shell, &event, error);
	message_fini(&message);
	return rc;
}

/* 1: nothing was waiting. */
static int receive(struct shell *shell, struct error *error)
{
	struct channel_frame frame;

	return channel_receive(shell->channel, &frame) ? take(shell, &frame, error) : 1;
}

/* A process ends thread by thread: whoever started us may be dead, told us so, and still be our parent for as long as
 * another of its threads takes. Its state shows it then ("Z", behind the name in parentheses). */
static bool is_zombie(int pid)
{
	char path[64], line[512] = "";
	const char *name_end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return true;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	name_end = strrchr(line, ')');
	return name_end && (name_end[2] == 'Z' || name_end[2] == 'X');
}

static bool parent_has_ended(int parent, const struct signalfd_siginfo *info)
{
	/* the kernel sends that signal in its name, and a little before it is seen to be dead */
	int looks = info->ssi_pid == (uint32_t)parent ? PARENT_LOOKS : 1;
	bool ended = false;

	if (!parent || info->ssi_signo != SIGTERM)
		return false;
	for (int i = 0; i < looks && !ended; i++) {
		if (i)
			clock_sleep_ms(1);
		ended = getppid() != parent || is_zombie(parent);
	}
	return ended;
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
		if (parent_has_ended(shell->options->parent, &info))
			error_set(&why, ERROR_INTERRUPTED,
				  "the process that started the controller (pid %d; rank 0 with "
				  "--controller auto) has ended",
				  shell->options->parent);
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
	uint64_t begin = clock_ns(), planned_ns;

	planning->rc = controller_step(planning->shell->core, &planning->event, &planning->actions,
				       &planning->error);
	planned_ns = clock_ns() - begin;
	controller_trace_part(&planning->shell->trace, "plan", begin);
	for (size_t i = 0; !planning->rc && i < planning->actions.count; i++) {
		const struct action *action = &planning->actions.items[i];

		if (action->type != CONTROLLER_TABLE)
			continue;
		controller_metrics_plan(planning->shell->metrics, action->table, planned_ns);
		planning->dumped = dump != NULL;
		if (!dump)
			continue;
		begin = clock_ns();
		planning->dump_rc = write_dump(dump, action->table, &planning->dump_error);
		controller_trace_part(&planning->shell->trace, "dump", begin);
	}
	if (planning->done >= 0)
		eventfd_write(planning->done, 1);
	return NULL;
}

static void answer_beats_until(struct shell *shell, int done)
{
	shell->planning = true;
	while (!channel_wait(shell->channel, done, -1))
		for (int i = 0; i < BATCH && !receive(shell, NULL); i++)
			;
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
	controller_trace_state(&shell->trace, shell->core);
	perform_all(shell, &planning.actions, planning.rc);
	if (planning.dump_rc) {
		error_wrap(&planning.dump_error, "--dump");
		in_trouble(shell, &planning.dump_error);
	} else if (planning.dumped) {
		log_info("routing table written to %s", shell->options->dump);
	}
	if (planning.rc && error)
		*error = planning.error;
	return planning.rc;
}

/* Signals are heard between two messages: a flood must not keep the controller from ending. Trouble ends it too: a quick
 * job would be over, and in order, before a dump that failed is told. */
static int receive_all(struct shell *shell, struct error *error)
{
	uint64_t end = clock_ms() + BATCH_MS;
	int rc = 0;

	for (int i = 0; !rc && !shell->over && !shell->trouble && i < BATCH && clock_ms() < end;
	     i++) {
		rc = receive(shell, error);
		if (!rc && shell->plan_due)
			rc = plan(shell, error);
		if (!rc && !shell->over)
			rc = take_signals(shell, error);
	}
	return rc == 1 ? 0 : rc;
}

static int loop(struct shell *shell, struct error *error)
{
	int rc = 0;

	while (!rc && !shell->over) {
		struct controller_event event = {.type = CONTROLLER_TICK};

		channel_wait(shell->channel, shell->signals, wait_ms(shell));
		log_settle();
		rc = receive_all(shell, error);
		controller_metrics_take(shell->metrics, shell->core,
					channel_refused(shell->channel), false);
		if (!rc && !shell->over)
			rc = take_signals(shell, error);
		if (!rc && !shell->over && controller_deadline_ms(shell->core) <= clock_ms())
			rc = step(shell, &event, error);
		if (!rc && !shell->over && shell->plan_due)
			rc = plan(shell, error);
		if (!rc && !shell->over && shell->trouble) {
			event.type = CONTROLLER_INTERRUPT;
			event.error = &shell->why;
			rc = step(shell, &event, error);
			shell->trouble = false;
		}
	}
	return rc;
}

static bool is_member(const void *context, const char *peer)
{
	const struct shell *shell = context;

	/* while it plans the core is another thread's; who is a member stays as it is */
	return controller_is_member(shell->core, peer);
}

static int open_all(struct shell *shell, struct error *error)
{
	struct channel_options channel = shell->options->channel;
	sigset_t set = signal_set();
	int rc;

	/* known now, and not when everybody has come and waits for the plan */
	if (shell->options->dump && file_writer_check(shell->options->dump, error))
		return error_wrap(error, "--dump");
	channel.is_member = is_member;
	channel.context = shell;
	channel.workers = shell->options->controller.train.world +
			  infer_ranks(&shell->options->controller.infer);
	shell->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (shell->signals < 0)
		return error_set_errno(error, ERROR_IO, errno, "no descriptor for signals");
	rc = controller_new(&shell->core, &shell->options->controller, clock_ms(), error);
	if (!rc)
		rc = controller_metrics_open(&shell->metrics, &shell->options->metrics,
					     shell->options->controller.job, error);
	if (!rc)
		rc = controller_trace_open(&shell->trace, &shell->options->trace,
					   shell->options->controller.job, error);
	return rc ? rc : channel_open(&shell->channel, &channel, error);
}

static void close_all(struct shell *shell)
{
	if (shell->channel)
		controller_metrics_take(shell->metrics, shell->core,
					channel_refused(shell->channel), true);
	controller_metrics_close(&shell->metrics);
	controller_trace_close(&shell->trace);
	channel_close(&shell->channel);
	controller_free(&shell->core);
	if (shell->signals >= 0)
		close(shell->signals);
}

/* Who is missing may have been refused. */
static void tell_refused(struct shell *shell)
{
	uint64_t refused = channel_refused(shell->channel);
	struct error said = shell->end;

	if (refused)
		error_set(
			&shell->end, said.code,
			"%.1500s; connections that were refused or broke off before they were made, "
			"perhaps for want of the same key: %llu (compare `weft key show FILE`)",
			said.text, (unsigned long long)refused);
}

int shell_run(const struct shell_options *options, struct error *error)
{
	struct shell shell = {.options = options, .signals = -1};
	int rc = open_all(&shell, error);

	if (!rc)
		rc = loop(&shell, error);
	if (!rc && shell.end.code == ERROR_TIMEOUT)
		tell_refused(&shell);
	close_all(&shell);
	if (rc || shell.end.code == ERROR_NONE)
		return rc;
	return error_copy(error, &shell.end);
}
