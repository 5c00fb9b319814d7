/* SPDX-License-Identifier: Apache-2.0
 *
 * vm_kill.c -- kill -9 of an initiator or a target at random points, and what the survivor makes of
 * it. Run inside the machine by tests/vm/test_vm_transfer_kill.py.
 *
 *   victim     joins, moves rounds ── SIGKILL
 *   survivor   joins, moves rounds ── learns of it ─ fence ─ compares ─ joins with ─►
 *   new process of the victim's rank                                    three rounds, closes
 *
 * After each the devices hold what they held before. Half of the survivors can see processes of
 * this host; the others are as if on another host: a writer learns by retries, and to a target
 * the closed socket is what the controller's word would be.
 */
#include "tests/support/two_processes.h"

#include "base/clock.h"
#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
	uint64_t count, seed;
	enum moment moment;
	uint64_t round; /* of the writer when the kill comes */
	uint32_t delay_us;
	int victim;
} kills = {.count = 50, .seed = 1};

static uint64_t sum(const struct side *side)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < plan.bytes * BANKS; i++)
		sum = sum * 31 + side->to[i];
	return sum;
}

/* After a fence nothing moves. */
static void fence(struct side *side)
{
	struct error error = {0};
	uint64_t begin = clock_ns(), before;

	if (transport_endpoint_fence(side->endpoint, call_deadline(), &error))
		wrong(side, "fence: %.180s", error.text);
	board->told[side->who].fence_ns = clock_ns() - begin;
	before = sum(side);
	check_still(side);
	clock_sleep_ms(30);
	if (sum(side) != before)
		wrong(side, "a byte changed after the fence");
}

/* ---- the parts of a kill ---- */

static int live(struct side *side, int fd, uint64_t leave_at, struct error *error)
{
	int rc = side_join(side, fd, error);

	if (rc || side->who)
		return rc ? rc : serve(side, fd, leave_at, error);
	for (uint64_t round = 1; !rc && (!leave_at || round <= leave_at); round++)
		rc = send_round(side, round, error);
	return rc;
}

static int play_victim(int who, int fd, int unused)
{
	struct error *error = &board->told[who].error;
	struct side side;
	int rc = side_open(&side, who, error);

	(void)unused;
	if (!rc)
		rc = live(&side, fd, kills.moment == CLOSE ? kills.round : 0, error);
	if (rc)
		return 1;
	atomic_store(&board->moment[who], CLOSE);
	side_close(&side);
	for (;;)
		pause();
}

static int play_survivor(int who, int fd, int second)
{
	struct told *told = &board->told[who];
	struct error error = {0};
	struct side side;
	uint64_t begin;

	if (side_open(&side, who, &told->error))
		return 1;
	live(&side, fd, 0, &told->error);
	told->at_ns = clock_ns();
	if (who && side.endpoint)
		fence(&side);
	told->published = told->last;
	begin = clock_ns();
	side_leave(&side);
	told->close_ns = clock_ns() - begin;
	atomic_store(&told->done, true);
	begin = clock_ns();
	if (short_life(&side, second, 3, &error))
		wrong(&side, "with a new process: %.170s", error.text);
	told->again_ns = clock_ns() - begin;
	side_close(&side);
	return 0;
}

static int play_replacement(int who, int fd, int unused)
{
	struct error error = {0};
	struct side side;

	(void)unused;
	if (side_open(&side, who, &error) || short_life(&side, fd, 3, &error))
		wrong(&side, "the new process: %.170s", error.text);
	side_close(&side);
	return 0;
}

static void choose(uint64_t number, uint64_t *state)
{
	/* how long a moment takes here, so that the kill falls into it or just behind */
	static const uint32_t spans_us[MOMENTS] = {
		[CONNECT] = 80000,   [PROBE] = 8000,  [FIRST_WRITE] = 8000,
		[MID_WRITE] = 15000, [SIGNAL] = 3000, [CLOSE] = 30000};

	kills.victim = (int)(number % 2);
	plan.blind = number / 2 % 2;
	kills.moment = (enum moment)(CONNECT + number / 4 % (MOMENTS - CONNECT));
	kills.round = 2 + chance(state, 8);
	kills.delay_us = (uint32_t)chance(state, spans_us[kills.moment]);
	plan.bytes = 100000 + chance(state, 500000);
	plan.flush = chance(state, 2);
}

struct tally {
	uint64_t complaints, seen_ns, blind_ns, fence_ns, close_ns, again_ns;
	uint32_t at[MOMENTS];
};

static void most(uint64_t *all, uint64_t one)
{
	if (one > *all)
		*all = one;
}

/* Between the two probes of a path a death that nobody sees looks like packets that are too large. */
static bool named(const struct error *error)
{
	return error->code == ERROR_PEER_LOST ||
	       (plan.blind && kills.moment == PROBE && error->code == ERROR_TRANSPORT &&
		strstr(error->text, "unless the peer has just ended"));
}

static void judge_kill(struct tally *tally, uint64_t killed_ns)
{
	const struct told *told = &board->told[!kills.victim];
	uint64_t took = told->at_ns > killed_ns ? told->at_ns - killed_ns : 0;
	uint64_t bound = plan.blind ? 10 * SECOND : 2 * SECOND;

	if (!named(&told->error))
		tally->complaints +=
			complaint("%s: %s", error_strerror(told->error.code), told->error.text);
	/* the writer had the completion of every signal before its last */
	if (!kills.victim && kills.moment > FIRST_WRITE && told->published + 1 < kills.round)
		tally->complaints += complaint("only %llu rounds are published",
					       (unsigned long long)told->published);
	if (!took)
		tally->complaints += complaint("it had failed before the kill");
	if (took > bound)
		tally->complaints += complaint("told after %.2f s", in_seconds(took));
	if (told->fence_ns > SECOND || told->close_ns > 2 * SECOND)
		tally->complaints +=
			complaint("fence %.2f s, close %.2f s", in_seconds(told->fence_ns),
				  in_seconds(told->close_ns));
	most(plan.blind ? &tally->blind_ns : &tally->seen_ns, took);
	most(&tally->fence_ns, told->fence_ns);
	most(&tally->close_ns, told->close_ns);
	most(&tally->again_ns, told->again_ns);
	printf("    %.3f s, fence %.3f s, close %.3f s, new pair %.2f s, %llu published: %.110s\n",
	       in_seconds(took), in_seconds(told->fence_ns), in_seconds(told->close_ns),
	       in_seconds(told->again_ns), (unsigned long long)told->published, told->error.text);
}

static void one_kill(uint64_t number, struct tally *tally, const char *before)
{
	int survivor = !kills.victim, first[2], second[2], ends[2], status;
	bool by_victim = kills.moment <= PROBE || kills.moment == CLOSE;
	pid_t victim, lives, next;
	uint64_t killed_ns;
	char now[RESOURCES_BYTES];

	board_clear();
	socket_pair(first);
	socket_pair(second);
	ends[0] = first[0], ends[1] = second[0];
	lives = start(survivor, ends, (int[]){first[1], second[1]}, play_survivor);
	ends[0] = first[1], ends[1] = -1;
	victim = start(kills.victim, ends, (int[]){first[0], second[0]}, play_victim);
	close(first[0]), close(first[1]), close(second[0]);
	printf("kill %llu: %s%s, at %s, round %llu + %u us, %llu bytes%s\n",
	       (unsigned long long)number, kills.victim ? "target" : "initiator",
	       plan.blind ? " (far)" : "", moments[kills.moment], (unsigned long long)kills.round,
	       kills.delay_us, (unsigned long long)plan.bytes, plan.flush ? ", flushed" : "");
	if (!reached(by_victim ? kills.victim : 0, kills.moment, kills.round, 30))
		tally->complaints += complaint("the moment never came");
	usleep(kills.delay_us);
	kill(victim, SIGKILL);
	killed_ns = clock_ns();
	waitpid(victim, &status, 0);
	if (!WIFSIGNALED(status))
		tally->complaints += complaint("the victim had ended before: %s",
					       board->told[kills.victim].error.text);
	if (!told_in_time(survivor, 30))
		tally->complaints += complaint("the survivor said nothing in 30 s");
	ends[0] = second[1];
	next = start(kills.victim, ends, NULL, play_replacement);
	close(second[1]);
	if (reap(lives, 40) || reap(next, 40))
		tally->complaints += complaint("survivor or new process did not end well");
	for (int who = 0; who < 2; who++)
		if (board->told[who].wrong[0])
			tally->complaints += complaint("%s", board->told[who].wrong);
	judge_kill(tally, killed_ns);
	tally->at[kills.moment]++;
	if (!resources_are(before, now))
		tally->complaints += complaint("left behind:\n%swhere there was\n%s", now, before);
}

static int run(void)
{
	uint64_t state = kills.seed * UINT64_C(0x9e3779b97f4a7c15) | 1, begin = clock_ns();
	struct tally tally = {0};
	char before[RESOURCES_BYTES];

	resources(before);
	for (uint64_t number = 0; number < kills.count; number++) {
		choose(number, &state);
		one_kill(number, &tally, before);
	}
	for (int i = CONNECT; i < MOMENTS; i++)
		printf("%s%s %u", i > CONNECT ? ", " : "", moments[i], tally.at[i]);
	printf("\nresources as before:\n%s", before);
	printf("%s %llu kills, seed %llu, %.0f s: told after at most %.2f s (far: %.2f s), fence %.3f "
	       "s, close %.3f s, new pair %.2f s; %llu complaints\n",
	       tally.complaints ? "failed:" : "ok", (unsigned long long)kills.count,
	       (unsigned long long)kills.seed, in_seconds(clock_ns() - begin),
	       in_seconds(tally.seen_ns), in_seconds(tally.blind_ns), in_seconds(tally.fence_ns),
	       in_seconds(tally.close_ns), in_seconds(tally.again_ns),
	       (unsigned long long)tally.complaints);
	return tally.complaints ? 1 : 0;
}

static const struct argp_option table[] = {{"count", 'c', "N", 0, "kills (50)", 0},
					   {"seed", 's', "N", 0, "of what is chosen (1)", 0},
					   {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)state;
	if (key == 'c')
		kills.count = strtoull(arg, NULL, 0);
	else if (key == 's')
		kills.seed = strtoull(arg, NULL, 0);
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {.options = table, .parser = parse};

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	board_open();
	return run();
}
