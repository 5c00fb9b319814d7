/* SPDX-License-Identifier: Apache-2.0
 *
 * two_processes.h -- two processes with real queue pairs between them, and a driver that looks on.
 *
 *            socketpair: records, then a byte that says "enough"
 *   trainer 0 on --from ◄──────────────► inference 0 on --to         board (shared memory):
 *        │   rounds into 4 banks, in turn: W W W I(round)  ▲         where each is, what each
 *        └─────────────────────────────────────────────────┘         has to say at its end
 *   driver: no device open; forks both, looks at the board, acts, reads the board
 *
 * Round n lies in bank n % 4. When signal n is the newest, its writer is at most in n + 1, or, if
 * it died before n + 1 was counted, in n + 2: the banks of n and n - 1 must be whole.
 */
#ifndef TESTS_SUPPORT_TWO_PROCESSES_H
#define TESTS_SUPPORT_TWO_PROCESSES_H

#include "transport/transport.h"
#include <stdatomic.h>
#include <sys/types.h>

#define BANKS  4u
#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

enum moment { START, CONNECT, PROBE, FIRST_WRITE, MID_WRITE, SIGNAL, CLOSE, MOMENTS };
extern const char *const moments[MOMENTS];

/* What the driver decides before it forks. */
struct plan {
	const char *nics[2]; /* of 0, the trainer, and of 1, the target */
	uint64_t bytes;      /* of a round, at most */
	bool blind;          /* as if the other process were on another host */
	bool flush;          /* between the writes of a round and its signal */
	bool both_ways;      /* both are inference ranks and both write */
	double timeout;      /* of one call, seconds */
};
extern struct plan plan;

/* What a process has to say when it is through. */
struct told {
	_Atomic bool done;
	uint64_t at_ns, fence_ns, close_ns, again_ns;
	uint64_t last, published; /* rounds */
	struct error error;
	char wrong[256];
};

struct board {
	_Atomic uint32_t moment[2];
	_Atomic uint64_t round[2];
	_Atomic uint64_t lives[2]; /* endpoints that came and went */
	_Atomic uint64_t passed;   /* the driver lets them pass so many stops */
	struct told told[2];
};
extern struct board *board;

/* One process's end. */
struct side {
	int who;
	struct transport_domain *domain;
	struct transport_region *source, *target;
	struct transport_endpoint *endpoint;
	struct transport_remote *remote;
	unsigned char *from, *to, *expected;
	uint64_t checked;
};

void board_open(void);
void board_clear(void);
uint64_t call_deadline(void);
double in_seconds(uint64_t ns);
uint64_t chance(uint64_t *state, uint64_t below);
void fill_bytes(unsigned char *at, uint64_t bytes, uint64_t seed);
/* The first message counts. */
void wrong(const struct side *side, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- in a process ---- */
int side_open(struct side *side, int who, struct error *error);
/* A fresh endpoint: records over `fd`, connect, probe, import. */
int side_join(struct side *side, int fd, struct error *error);
void side_leave(struct side *side); /* the endpoint only */
void side_close(struct side *side);
bool meet(int fd); /* a byte each way */
int hung_up(const struct side *side, struct error *error);
/* 1: the other side says that it is enough; -1: it has hung up; 0: neither. */
int heard(int fd);
int send_round(struct side *side, uint64_t round, struct error *error);
/* Counts and compares until the other says that it is enough, is seen dead or, where nobody can
 * see it, hangs up; or until round leave_at, if that is not 0. */
int serve(struct side *side, int fd, uint64_t leave_at, struct error *error);
void check_guards(const struct side *side);
void check_still(struct side *side); /* nobody writes any more: the last two rounds are whole */
/* Joins, `rounds` rounds, all compared, leaves. */
int short_life(struct side *side, int fd, uint64_t rounds, struct error *error);

/* ---- in the driver ---- */
void socket_pair(int fds[2]);
/* Forks a process that plays and exits; it keeps its ends of the sockets only. */
pid_t start(int who, const int mine[2], const int others[2],
	    int (*play)(int who, int fd, int second));
/* Its wait status, or -1 when it had to be killed. */
int reap(pid_t child, double bound);
/* "0: rxe0: pd 1 cq 1 qp 1 ...": what all processes hold, and the devices themselves. */
#define RESOURCES_BYTES 4096
void resources(char out[RESOURCES_BYTES]);
bool resources_are(const char *before, char now[RESOURCES_BYTES]);
struct footprint {
	uint64_t rss_kb, files;
};
struct footprint footprint(pid_t pid);
/* Waits until `who` has come to this moment of this round. */
bool reached(int who, enum moment moment, uint64_t round, double bound);
bool told_in_time(int who, double bound);
/* Prints it; returns 1, to be counted. */
uint64_t complaint(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
