/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/two_processes.h"

#include "base/clock.h"
#include "base/memory.h"
#include "transport/verbs/verbs.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUARD 65536u

const char *const moments[MOMENTS] = {"start",	   "connect", "probe", "first write",
				      "mid-write", "signal",  "close"};
struct plan plan = {.nics = {"rxe0", "rxe1"}, .bytes = 300001, .timeout = 60};
struct board *board;

struct sent_record {
	size_t length;
	unsigned char bytes[TRANSPORT_RECORD_BYTES];
};

void board_open(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
}

void board_clear(void)
{
	memset(board, 0, sizeof(*board));
}

uint64_t call_deadline(void)
{
	return clock_ns() + (uint64_t)(plan.timeout * 1e9);
}

double in_seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

uint64_t chance(uint64_t *state, uint64_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below;
}

void wrong(const struct side *side, const char *format, ...)
{
	struct told *told = &board->told[side->who];
	va_list args;

	if (told->wrong[0])
		return;
	va_start(args, format);
	vsnprintf(told->wrong, sizeof(told->wrong), format, args);
	va_end(args);
}

void fill_bytes(unsigned char *at, uint64_t bytes, uint64_t seed)
{
	uint64_t i = 0, word;

	for (; i < bytes; i += sizeof(word)) {
		word = (seed << 40 ^ (i + 1)) * UINT64_C(0x9e3779b97f4a7c15);
		memcpy(at + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
	}
}

/* ---- opening and closing ---- */

static struct member member_of(const struct side *side, bool self)
{
	int who = self ? side->who : !side->who;

	return plan.both_ways ? (struct member){ROLE_INFERENCE, (uint32_t)who}
			      : (struct member){who ? ROLE_INFERENCE : ROLE_TRAINER, 0};
}

static bool is_target(const struct side *side)
{
	return side->who || plan.both_ways;
}

static int open_regions(struct side *side, struct error *error)
{
	uint64_t all = plan.bytes * BANKS;
	int rc = 0;

	/* all of its pages now: what a process holds is compared later */
	side->expected = memory_alloc(plan.bytes);
	if (side->expected)
		memset(side->expected, 1, plan.bytes);
	if (!side->who || plan.both_ways)
		rc = transport_region_allocate(side->domain, plan.bytes, &side->source, error);
	if (rc || !is_target(side))
		goto out;
	side->to = memory_alloc(all + 2 * GUARD);
	if (!side->to || !side->expected)
		return memory_error(error, "the target", all);
	memset(side->to, 0xa5, all + 2 * GUARD);
	side->to += GUARD;
	rc = transport_region_register(side->domain, side->to, all, &side->target, error);
out:
	if (!rc && side->source)
		side->from = transport_region_memory(side->source);
	return rc;
}

int side_open(struct side *side, int who, struct error *error)
{
	const struct verbs_options verbs = {.no_identity = plan.blind};
	struct transport_options options = {.secret = 1, .provider_options = &verbs};
	int rc;

	*side = (struct side){.who = who};
	options.self = member_of(side, true);
	snprintf(options.nics, sizeof(options.nics), "%s", plan.nics[who]);
	rc = transport_domain_open(&side->domain, "verbs", &options, error);
	return rc ? rc : open_regions(side, error);
}

static bool send_record(int fd, const struct sent_record *sent)
{
	return send(fd, sent, sizeof(*sent), MSG_NOSIGNAL) == sizeof(*sent);
}

static bool take_record(int fd, struct sent_record *sent)
{
	return recv(fd, sent, sizeof(*sent), MSG_WAITALL) == sizeof(*sent);
}

bool meet(int fd)
{
	char byte = 'c';

	return send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1;
}

int hung_up(const struct side *side, struct error *error)
{
	return error_set(error, ERROR_PEER_LOST, "%s has hung up",
			 side->who ? "trainer 0" : "inference 0");
}

static int exchange(struct side *side, int fd, struct sent_record *region,
		    struct sent_record *record, struct error *error)
{
	struct sent_record mine = {0};
	int rc = 0;

	if (side->target)
		rc = transport_region_export(side->target, mine.bytes, &mine.length, error);
	if (rc)
		return rc;
	if (!send_record(fd, &mine))
		return hung_up(side, error);
	rc = transport_endpoint_record(side->endpoint, mine.bytes, &mine.length, error);
	if (rc)
		return rc;
	return send_record(fd, &mine) && take_record(fd, region) && take_record(fd, record)
		       ? 0
		       : hung_up(side, error);
}

int side_join(struct side *side, int fd, struct error *error)
{
	struct sent_record region, record;
	int rc;

	atomic_store(&board->moment[side->who], CONNECT);
	rc = transport_endpoint_open(side->domain, member_of(side, false), NULL, &side->endpoint,
				     error);
	if (!rc)
		rc = exchange(side, fd, &region, &record, error);
	if (!rc)
		rc = transport_endpoint_connect(side->endpoint, record.bytes, record.length,
						call_deadline(), error);
	if (!rc && !meet(fd))
		rc = hung_up(side, error);
	atomic_store(&board->moment[side->who], PROBE);
	if (!rc)
		rc = transport_endpoint_probe(side->endpoint, call_deadline(), error);
	if (!rc && region.length)
		rc = transport_remote_import(side->endpoint, region.bytes, region.length,
					     &side->remote, error);
	return rc;
}

void side_leave(struct side *side)
{
	transport_remote_close(&side->remote);
	transport_endpoint_close(&side->endpoint);
}

void side_close(struct side *side)
{
	side_leave(side);
	transport_region_close(&side->source);
	transport_region_close(&side->target);
	transport_domain_close(&side->domain);
	memory_free(side->expected);
	if (side->to)
		memory_free(side->to - GUARD);
}

/* ---- rounds ---- */

int send_round(struct side *side, uint64_t round, struct error *error)
{
	int rc;

	fill_bytes(side->from, plan.bytes, round);
	atomic_store(&board->moment[side->who], round == 1 ? FIRST_WRITE : MID_WRITE);
	atomic_store(&board->round[side->who], round);
	rc = transport_write(side->endpoint, side->from, side->source, side->remote,
			     round % BANKS * plan.bytes, plan.bytes, call_deadline(), error);
	if (!rc && plan.flush)
		rc = transport_flush(side->endpoint, call_deadline(), error);
	atomic_store(&board->moment[side->who], SIGNAL);
	return rc ? rc
		  : transport_signal(side->endpoint, (uint32_t)round, &round, sizeof(round),
				     call_deadline(), error);
}

void check_guards(const struct side *side)
{
	for (uint64_t i = 0; i < GUARD; i++)
		if (side->to[-1 - (int64_t)i] != 0xa5 || side->to[plan.bytes * BANKS + i] != 0xa5)
			wrong(side, "a guard byte at %llu changed", (unsigned long long)i);
}

static bool bank_whole(struct side *side, uint64_t round)
{
	fill_bytes(side->expected, plan.bytes, round);
	return !memcmp(side->to + round % BANKS * plan.bytes, side->expected, plan.bytes);
}

static uint64_t latest(const struct side *side)
{
	struct transport_signal signal;
	uint64_t round;

	if (!side->endpoint || transport_signal_read(side->endpoint, &signal))
		return 0;
	memcpy(&round, signal.payload, sizeof(round));
	if (signal.tag != (uint32_t)round || signal.length != sizeof(round))
		wrong(side, "signal %u says round %llu", signal.tag, (unsigned long long)round);
	return round;
}

/* The newest round, while the writer goes on: it may overtake the comparison. */
static void check_live(struct side *side)
{
	uint64_t round = latest(side);

	if (round == side->checked || bank_whole(side, round)) {
		side->checked = round;
		return;
	}
	if (latest(side) < round + BANKS - 1)
		wrong(side, "round %llu differs from what was written", (unsigned long long)round);
}

void check_still(struct side *side)
{
	uint64_t round = latest(side);

	board->told[side->who].last = round;
	for (uint64_t back = 0; back < 2 && back < round; back++)
		if (!bank_whole(side, round - back))
			wrong(side, "round %llu of %llu is not whole",
			      (unsigned long long)(round - back), (unsigned long long)round);
	check_guards(side);
}

int heard(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

	return n == 1 ? 1 : n == 0 || errno != EAGAIN ? -1 : 0;
}

/* Where nobody can see the process, the socket tells, as the controller would. */
int serve(struct side *side, int fd, uint64_t leave_at, struct error *error)
{
	uint64_t seen = 0;

	for (;;) {
		bool dead;
		int said;

		seen = transport_signal_wait(side->domain, seen, clock_ns() + 10 * MS);
		check_live(side);
		if (leave_at && side->checked >= leave_at)
			return 0;
		/* a writer that said goodbye may be gone before it is heard: asked first, heard after */
		dead = transport_peer_dead(side->endpoint);
		said = heard(fd);
		if (said > 0)
			return 0;
		if (dead)
			return error_set(error, ERROR_PEER_LOST, "trainer 0 has died");
		if (said < 0 && plan.blind)
			return hung_up(side, error);
	}
}

int short_life(struct side *side, int fd, uint64_t rounds, struct error *error)
{
	char byte = 'q';
	int rc = side_join(side, fd, error);

	side->checked = 0;
	if (!rc && !side->who) {
		for (uint64_t round = 1; !rc && round <= rounds; round++)
			rc = send_round(side, round, error);
		if (!rc && send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
			rc = hung_up(side, error);
	} else if (!rc) {
		rc = serve(side, fd, 0, error);
		check_still(side);
		if (!rc && board->told[side->who].last != rounds)
			wrong(side, "the last of %llu rounds is %llu", (unsigned long long)rounds,
			      (unsigned long long)board->told[side->who].last);
	}
	/* nobody closes while the other still uses the path */
	if (!rc && !meet(fd))
		rc = hung_up(side, error);
	side_leave(side);
	return rc;
}

/* ---- the driver ---- */

pid_t start(int who, const int mine[2], const int others[2],
	    int (*play)(int who, int fd, int second))
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child)
		return child;
	for (int i = 0; others && i < 2; i++)
		close(others[i]);
	_exit(play(who, mine[0], mine[1]));
}

void socket_pair(int fds[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds)) {
		perror("socketpair");
		exit(2);
	}
}

int reap(pid_t child, double bound)
{
	uint64_t end = clock_ns() + (uint64_t)(bound * 1e9);
	int status;

	while (clock_ns() < end) {
		if (waitpid(child, &status, WNOHANG) == child)
			return status;
		clock_sleep_ms(2);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return -1;
}

void resources(char out[RESOURCES_BYTES])
{
	FILE *tool = popen("rdma resource show", "re");
	size_t n = tool ? fread(out, 1, RESOURCES_BYTES - 1, tool) : 0;

	out[n] = 0;
	if (!tool || pclose(tool) || !n) {
		printf("'rdma resource show' says nothing\n");
		exit(2);
	}
}

bool resources_are(const char *before, char now[RESOURCES_BYTES])
{
	for (int tries = 0; tries < 20; tries++) {
		resources(now);
		if (!strcmp(before, now))
			return true;
		clock_sleep_ms(100);
	}
	return false;
}

struct footprint footprint(pid_t pid)
{
	struct footprint now = {0, 0};
	unsigned long pages = 0;
	char path[64];
	FILE *statm;
	DIR *files;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	statm = fopen(path, "re");
	if (statm && fscanf(statm, "%*u %lu", &pages) == 1)
		now.rss_kb = pages * 4;
	if (statm)
		fclose(statm);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	files = opendir(path);
	while (files && readdir(files))
		now.files++;
	if (files)
		closedir(files);
	return now;
}

bool reached(int who, enum moment moment, uint64_t round, double bound)
{
	uint64_t end = clock_ns() + (uint64_t)(bound * 1e9);

	while (clock_ns() < end) {
		enum moment now = atomic_load(&board->moment[who]);
		uint64_t at = atomic_load(&board->round[who]);

		if ((moment <= FIRST_WRITE && now >= moment) ||
		    (now == moment && (moment == CLOSE || at >= round)))
			return true;
		usleep(50);
	}
	return false;
}

bool told_in_time(int who, double bound)
{
	uint64_t end = clock_ns() + (uint64_t)(bound * 1e9);

	while (!atomic_load(&board->told[who].done) && clock_ns() < end)
		clock_sleep_ms(1);
	return atomic_load(&board->told[who].done);
}

uint64_t complaint(const char *format, ...)
{
	va_list args;

	printf("    complaint: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	return 1;
}
