/* SPDX-License-Identifier: Apache-2.0
 *
 * vm_endure.c -- two processes over real queue pairs for longer, and through what is short of death.
 * Run inside the machine by tests/vm/test_vm_transfer_kill.py.
 *
 *   soak     both write, random sizes, each round answered; what they hold stays the same
 *   storm    endpoints come and go, a round in each; what is held stays the same
 *   stop     the target stands still (SIGSTOP) for a while, then for longer than a deadline
 *   remove   --hook takes a device away while two rails are in use
 *
 * Each ends with a line "ok ..." and exit code 0, or with complaints and exit code 1.
 */
#include "tests/support/two_processes.h"

#include "base/array.h"
#include "base/clock.h"
#include <argp.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_LIVES 10 /* endpoints until every cache and table has its size */

static struct {
	const char *mode, *hook;
	double seconds;
	uint64_t count;
} options = {.seconds = 60, .count = 100};

static uint64_t end_ns; /* of a soak */

static void leave_timed(struct side *side)
{
	uint64_t begin = clock_ns();

	side_leave(side);
	board->told[side->who].close_ns = clock_ns() - begin;
}

static int finished(struct side *side, int rc, const struct error *error)
{
	if (rc)
		wrong(side, "%.250s", error->text);
	side_close(side);
	atomic_store(&board->told[side->who].done, true);
	return rc ? 1 : 0;
}

/* ---- a writer and a target of one long life, and a short one after it ---- */

/* An error of the long life is for the driver to judge. */
static int play_writer(int who, int fd, int second)
{
	struct told *told = &board->told[who];
	struct error error = {0};
	struct side side;
	int rc = side_open(&side, who, &error);

	if (!rc)
		rc = side_join(&side, fd, &error);
	if (rc)
		return finished(&side, rc, &error);
	for (uint64_t round = 1; !rc && !atomic_load(&board->passed); round++) {
		rc = send_round(&side, round, &told->error);
		if (!rc)
			told->published = round;
	}
	told->at_ns = clock_ns();
	send(fd, "q", 1, MSG_NOSIGNAL);
	leave_timed(&side);
	if (second >= 0) {
		atomic_store(&told->done, true);
		plan.timeout = 60;
		rc = short_life(&side, second, 3, &error);
	}
	return finished(&side, second >= 0 ? rc : 0, &error);
}

static int play_target(int who, int fd, int second)
{
	struct error error = {0};
	struct side side;
	int rc = side_open(&side, who, &error);

	if (!rc)
		rc = side_join(&side, fd, &error);
	if (!rc)
		rc = serve(&side, fd, 0, &error);
	if (rc)
		return finished(&side, rc, &error);
	check_still(&side);
	board->told[who].published = board->told[who].last;
	leave_timed(&side);
	if (second >= 0) {
		plan.timeout = 60;
		rc = short_life(&side, second, 3, &error);
	}
	return finished(&side, rc, &error);
}

typedef int play_function(int who, int fd, int second);

static void start_both(pid_t pids[2], play_function *first_play, play_function *second_play,
		       bool again)
{
	int first[2], second[2], ends[2];

	board_clear();
	socket_pair(first);
	socket_pair(second);
	for (int who = 0; who < 2; who++) {
		ends[0] = first[who];
		ends[1] = again ? second[who] : -1;
		pids[who] = start(who, ends, (int[]){first[!who], second[!who]},
				  who ? second_play : first_play);
	}
	for (int i = 0; i < 2; i++) {
		close(first[i]);
		close(second[i]);
	}
}

static uint64_t end_both(const pid_t pids[2])
{
	uint64_t complaints = 0;

	for (int who = 0; who < 2; who++) {
		int status = reap(pids[who], 60);

		if (status)
			complaints += complaint("process %d: status %#x", who, (unsigned)status);
		if (board->told[who].wrong[0])
			complaints += complaint("process %d: %s", who, board->told[who].wrong);
		if (board->told[who].close_ns > 5 * SECOND)
			complaints += complaint("process %d: closing took %.1f s", who,
						in_seconds(board->told[who].close_ns));
	}
	return complaints;
}

/* ---- stop ---- */

static uint64_t stopped_for_a_while(void)
{
	uint64_t complaints = 0, before, after;
	pid_t pids[2];

	start_both(pids, play_writer, play_target, false);
	if (!reached(0, MID_WRITE, 4, 30))
		complaints += complaint("the writer does not get to round 4");
	kill(pids[1], SIGSTOP);
	before = atomic_load(&board->round[0]);
	clock_sleep_ms(3000);
	after = atomic_load(&board->round[0]);
	kill(pids[1], SIGCONT);
	clock_sleep_ms(300);
	atomic_store(&board->passed, 1);
	complaints += end_both(pids);
	if (after < before + 5)
		complaints += complaint("only %llu rounds while the target stood still",
					(unsigned long long)(after - before));
	if (board->told[0].error.code)
		complaints += complaint("%s", board->told[0].error.text);
	if (!board->told[1].last || board->told[1].last != board->told[0].published)
		complaints += complaint("the target has round %llu, the writer sent %llu",
					(unsigned long long)board->told[1].last,
					(unsigned long long)board->told[0].published);
	printf("%llu rounds in 3 s while the target stood still, %llu in all\n",
	       (unsigned long long)(after - before), (unsigned long long)board->told[1].last);
	return complaints;
}

static uint64_t stopped_for_longer(void)
{
	struct told *told = &board->told[0];
	uint64_t complaints = 0, failed_ns;
	pid_t pids[2];

	setenv("WEFT_RECEIVE_DEPTH", "64", 1);
	/* soft RoCE counts a try that was answered "not ready" as one without an answer: 7 s of them */
	setenv("WEFT_IB_TIMEOUT", "18", 1);
	plan.bytes = 20000;
	plan.timeout = 4;
	start_both(pids, play_writer, play_target, true);
	if (!reached(0, MID_WRITE, 4, 30))
		complaints += complaint("the writer does not get to round 4");
	kill(pids[1], SIGSTOP);
	if (!told_in_time(0, 40))
		complaints += complaint("the writer hangs");
	failed_ns = told->at_ns;
	printf("after %llu rounds, closed in %.2f s: %s: %s\n", (unsigned long long)told->published,
	       in_seconds(told->close_ns), error_strerror(told->error.code), told->error.text);
	kill(pids[1], SIGCONT);
	complaints += end_both(pids);
	if (!failed_ns || told->error.code != ERROR_TIMEOUT ||
	    !strstr(told->error.text, "inference 0"))
		complaints += complaint("no deadline that names the target");
	if (board->told[1].published + 1 < told->published)
		complaints += complaint("the target has %llu rounds of %llu",
					(unsigned long long)board->told[1].published,
					(unsigned long long)told->published);
	return complaints;
}

static uint64_t run_stop(void)
{
	uint64_t complaints = stopped_for_a_while();

	return complaints + stopped_for_longer();
}

/* ---- remove ---- */

static pid_t run_hook(void)
{
	pid_t child = fork();

	if (child)
		return child;
	execl("/bin/sh", "sh", "-c", options.hook, (char *)NULL);
	_exit(127);
}

static uint64_t run_remove(void)
{
	uint64_t complaints = 0, before, taken = 0;
	pid_t pids[2], hook;
	int status;

	plan.bytes = 2000003;
	start_both(pids, play_writer, play_target, false);
	if (!reached(0, MID_WRITE, 4, 30))
		complaints += complaint("the writer does not get to round 4");
	before = atomic_load(&board->round[0]);
	hook = run_hook();
	clock_sleep_ms((uint64_t)(options.seconds * 1e3));
	atomic_store(&board->passed, 1);
	complaints += end_both(pids);
	/* some kernels let go of a device only when its users have */
	status = reap(hook, 30);
	if (status)
		complaints += complaint("the hook: status %#x", (unsigned)status);
	if (board->told[0].published > before)
		taken = board->told[0].published - before;
	if (board->told[1].last < board->told[0].published)
		complaints += complaint("the target has round %llu, the writer had sent %llu",
					(unsigned long long)board->told[1].last,
					(unsigned long long)board->told[0].published);
	printf("%llu rounds after the removal; closed in %.2f s and %.2f s; %s\n",
	       (unsigned long long)taken, in_seconds(board->told[0].close_ns),
	       in_seconds(board->told[1].close_ns),
	       board->told[0].error.code ? board->told[0].error.text : "the other rail took over");
	if (!board->told[0].error.code && taken < 3)
		complaints += complaint("nothing moved after the removal");
	return complaints;
}

/* ---- what is held ---- */

struct held {
	struct footprint process[2];
	char resources[RESOURCES_BYTES];
	uint64_t retries, packets;
};

/* Of all devices together. */
static uint64_t counter(const char *name)
{
	DIR *devices = opendir("/sys/class/infiniband");
	const struct dirent *device;
	uint64_t sum = 0;

	while (devices && (device = readdir(devices))) {
		unsigned long long value;
		char path[512];
		FILE *file;

		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
			 device->d_name, name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fscanf(file, "%llu", &value) == 1)
			sum += value;
		fclose(file);
	}
	if (devices)
		closedir(devices);
	return sum;
}

static void hold(const pid_t pids[2], struct held *held)
{
	for (int who = 0; who < 2; who++)
		held->process[who] = footprint(pids[who]);
	resources(held->resources);
	held->retries = counter("completer_retry_err");
	held->packets = counter("sent_pkts");
}

static uint64_t compare(const struct held *before, const struct held *after)
{
	uint64_t complaints = 0;

	for (int who = 0; who < 2; who++) {
		const struct footprint *a = &before->process[who], *b = &after->process[who];

		printf("process %d: %llu -> %llu kB, %llu -> %llu files\n", who,
		       (unsigned long long)a->rss_kb, (unsigned long long)b->rss_kb,
		       (unsigned long long)a->files, (unsigned long long)b->files);
		if (!a->rss_kb || b->rss_kb > a->rss_kb + 256 || a->files != b->files)
			complaints += complaint("process %d holds more than before", who);
	}
	printf("%s", after->resources);
	if (strcmp(before->resources, after->resources))
		complaints += complaint("resources were\n%s", before->resources);
	return complaints;
}

/* ---- storm ---- */

static int play_storm(int who, int fd, int unused)
{
	struct error error = {0};
	struct side side;
	int rc = side_open(&side, who, &error);

	(void)unused;
	for (uint64_t i = 1; !rc && i <= options.count; i++) {
		rc = short_life(&side, fd, 1, &error);
		atomic_store(&board->lives[who], i);
		if (i == WARM_LIVES || i == options.count)
			while (atomic_load(&board->passed) < (i == WARM_LIVES ? 1 : 2))
				clock_sleep_ms(1);
	}
	return finished(&side, rc, &error);
}

static bool lived(uint64_t count, double bound)
{
	uint64_t end = clock_ns() + (uint64_t)(bound * 1e9);

	while (atomic_load(&board->lives[0]) < count || atomic_load(&board->lives[1]) < count) {
		if (clock_ns() > end)
			return false;
		clock_sleep_ms(2);
	}
	return true;
}

static uint64_t run_storm(void)
{
	struct held warm, done;
	uint64_t complaints = 0, begin;
	pid_t pids[2];

	plan.bytes = 50000;
	start_both(pids, play_storm, play_storm, false);
	if (!lived(WARM_LIVES, 60))
		complaints += complaint("the first endpoints do not come");
	hold(pids, &warm);
	begin = clock_ns();
	atomic_store(&board->passed, 1);
	if (!lived(options.count, 200))
		complaints += complaint("only %llu endpoints of %llu",
					(unsigned long long)atomic_load(&board->lives[0]),
					(unsigned long long)options.count);
	printf("%.0f ms an endpoint\n",
	       in_seconds(clock_ns() - begin) * 1e3 / (double)(options.count - WARM_LIVES));
	hold(pids, &done);
	atomic_store(&board->passed, 2);
	complaints += end_both(pids);
	return complaints + compare(&warm, &done);
}

/* ---- soak ---- */

/* What a signal carries: the last round's place, and which of the other's rounds was compared. */
struct note {
	uint64_t round, offset, bytes, answered;
};

/* 1: a new round, compared. */
static int take_note(struct side *side, struct note *theirs)
{
	uint64_t before = theirs->round;
	struct transport_signal signal;

	if (transport_signal_read(side->endpoint, &signal))
		return 0;
	memcpy(theirs, signal.payload, sizeof(*theirs));
	if (theirs->round == before)
		return 0;
	if (theirs->round != before + 1)
		wrong(side, "round %llu after %llu", (unsigned long long)theirs->round,
		      (unsigned long long)before);
	fill_bytes(side->expected, theirs->bytes, theirs->round);
	if (memcmp(side->to + theirs->offset, side->expected, theirs->bytes) != 0)
		wrong(side, "round %llu, %llu bytes at %llu: other bytes",
		      (unsigned long long)theirs->round, (unsigned long long)theirs->bytes,
		      (unsigned long long)theirs->offset);
	atomic_store(&board->lives[side->who], theirs->round);
	return 1;
}

/* Between 0 and all bytes of a round, small ones as often as large ones, in up to 4 writes. */
static int write_note(struct side *side, struct note *mine, uint64_t *state, struct error *error)
{
	uint64_t at = 0, left;
	int rc = 0;

	mine->round++;
	mine->bytes = chance(state, plan.bytes >> chance(state, 20));
	mine->offset = chance(state, plan.bytes * BANKS - mine->bytes);
	fill_bytes(side->from, mine->bytes, mine->round);
	for (uint64_t parts = 1 + chance(state, 4); parts && !rc; parts--) {
		left = mine->bytes - at;
		if (parts > 1)
			left = chance(state, left + 1);
		rc = transport_write(side->endpoint, side->from + at, side->source, side->remote,
				     mine->offset + at, left, call_deadline(), error);
		at += left;
	}
	return rc;
}

static int play_soak(int who, int fd, int unused)
{
	uint64_t seen = 0, state = 77 + (uint64_t)who;
	struct note mine = {0}, theirs = {0};
	bool answer = false, said = false, quit = false;
	struct error error = {0};
	struct side side;
	int rc = side_open(&side, who, &error), word;

	(void)unused;
	if (!rc)
		rc = side_join(&side, fd, &error);
	while (!rc && !(said && quit)) {
		bool over = clock_ns() >= end_ns, through = theirs.answered == mine.round;

		answer |= take_note(&side, &theirs);
		if ((through && !over) || answer) {
			if (through && !over)
				rc = write_note(&side, &mine, &state, &error);
			mine.answered = theirs.round;
			answer = false;
			if (!rc)
				rc = transport_signal(side.endpoint, (uint32_t)mine.round, &mine,
						      sizeof(mine), call_deadline(), &error);
			continue;
		}
		if (through && over && !said)
			said = send(fd, "q", 1, MSG_NOSIGNAL) == 1;
		word = heard(fd);
		quit |= word > 0;
		if (word < 0 && !quit)
			rc = hung_up(&side, &error);
		seen = transport_signal_wait(side.domain, seen, clock_ns() + 10 * MS);
	}
	if (!rc)
		check_guards(&side);
	return finished(&side, rc, &error);
}

static uint64_t run_soak(void)
{
	struct held begin, end;
	uint64_t complaints = 0, rounds;
	pid_t pids[2];

	plan.bytes = 1u << 20;
	plan.both_ways = true;
	end_ns = clock_ns() + (uint64_t)(options.seconds * 1e9);
	start_both(pids, play_soak, play_soak, false);
	clock_sleep_ms((uint64_t)(options.seconds * 1e3 / 6));
	hold(pids, &begin);
	while (clock_ns() + 2 * SECOND < end_ns)
		clock_sleep_ms(50);
	hold(pids, &end);
	complaints += end_both(pids) + compare(&begin, &end);
	rounds = atomic_load(&board->lives[0]) + atomic_load(&board->lives[1]);
	printf("%llu and %llu rounds compared, %llu packets, %llu retries\n",
	       (unsigned long long)atomic_load(&board->lives[0]),
	       (unsigned long long)atomic_load(&board->lives[1]),
	       (unsigned long long)(end.packets - begin.packets),
	       (unsigned long long)(end.retries - begin.retries));
	if (rounds < (uint64_t)options.seconds || !atomic_load(&board->lives[0]) ||
	    !atomic_load(&board->lives[1]))
		complaints += complaint("too few rounds");
	return complaints;
}

/* ---- the program ---- */

static const struct {
	const char *name;
	uint64_t (*run)(void);
} modes[] = {{"soak", run_soak}, {"storm", run_storm}, {"stop", run_stop}, {"remove", run_remove}};

static const struct argp_option table[] = {
	{"from", 'f', "NICS", 0, "of the first process (rxe0)", 0},
	{"to", 't', "NICS", 0, "of the second (rxe1)", 0},
	{"seconds", 's', "S", 0, "of a soak, or after a removal (60)", 0},
	{"count", 'c', "N", 0, "endpoints of a storm (100)", 0},
	{"hook", 'k', "COMMAND", 0, "what removes a device", 0},
	{0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'f':
		plan.nics[0] = arg;
		return 0;
	case 't':
		plan.nics[1] = arg;
		return 0;
	case 's':
		options.seconds = strtod(arg, NULL);
		return 0;
	case 'c':
		options.count = strtoull(arg, NULL, 0);
		return 0;
	case 'k':
		options.hook = arg;
		return 0;
	case ARGP_KEY_ARG:
		options.mode = arg;
		return 0;
	case ARGP_KEY_END:
		if (!options.mode)
			argp_error(state, "say what to do: soak, storm, stop, remove");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {.options = table, .parser = parse, .args_doc = "MODE"};
	char before[RESOURCES_BYTES], now[RESOURCES_BYTES];
	uint64_t complaints, begin = clock_ns();

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	board_open();
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strcmp(modes[i].name, options.mode) != 0)
			continue;
		resources(before);
		complaints = modes[i].run();
		if (!options.hook && !resources_are(before, now))
			complaints += complaint("left behind:\n%swhere there was\n%s", now, before);
		printf("%s %s, %.0f s, %llu complaints\n", complaints ? "failed:" : "ok",
		       options.mode, in_seconds(clock_ns() - begin),
		       (unsigned long long)complaints);
		return complaints ? 1 : 0;
	}
	fprintf(stderr, "no mode '%s'\n", options.mode);
	return 2;
}
