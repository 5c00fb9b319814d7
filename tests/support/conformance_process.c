/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance_process.h"
#include "tests/support/sanitized.h"

#include "base/clock.h"
#include "base/memory.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES (UINT64_C(4) << 20)

static const struct conformance *subject;

/* One side in its process: trainer 0 writes, inference 0 is written. */
struct side {
	enum role role;
	struct transport_domain *domain;
	struct transport_region *region;
	struct transport_endpoint *endpoint;
	struct transport_remote *remote;
	unsigned char *memory, *owned;
};

struct sent_record {
	size_t length;
	unsigned char bytes[TRANSPORT_RECORD_BYTES];
};

static int send_record(int fd, const struct sent_record *sent)
{
	return send(fd, sent, sizeof(*sent), MSG_NOSIGNAL) == sizeof(*sent) ? 0 : -1;
}

static int take_record(int fd, struct sent_record *sent)
{
	return recv(fd, sent, sizeof(*sent), MSG_WAITALL) == sizeof(*sent) ? 0 : -1;
}

static int open_region(struct side *side, struct error *error)
{
	int rc;

	if (!subject->registered || (side->role == ROLE_TRAINER && !subject->memory)) {
		rc = transport_region_allocate(side->domain, BYTES, &side->region, error);
	} else {
		side->owned = conformance_memory(subject, BYTES);
		rc = transport_region_register(side->domain, side->owned, BYTES, &side->region,
					       error);
	}
	if (!rc)
		side->memory = transport_region_memory(side->region);
	return rc;
}

/* Nobody probes or posts before both have connected: a byte each way says so. */
static int meet(int fd)
{
	char byte = 'c';

	return send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1 ? 0 : -1;
}

/* Exchanges records over `fd`, connects, probes. */
static int side_open(struct side *side, enum role role, int fd, struct error *error)
{
	struct transport_options options = {
		.self = {role, 0}, .secret = 1, .provider_options = subject->options};
	struct member peer = {role == ROLE_TRAINER ? ROLE_INFERENCE : ROLE_TRAINER, 0};
	struct sent_record region = {0}, endpoint, their_region, their_endpoint;
	int rc;

	*side = (struct side){.role = role};
	rc = transport_domain_open(&side->domain, subject->provider, &options, error);
	if (!rc)
		rc = open_region(side, error);
	if (!rc)
		rc = transport_endpoint_open(side->domain, peer, NULL, &side->endpoint, error);
	/* nobody writes to a trainer, and some providers refuse to say how one could */
	if (!rc && role == ROLE_INFERENCE)
		rc = transport_region_export(side->region, region.bytes, &region.length, error);
	if (!rc)
		rc = transport_endpoint_record(side->endpoint, endpoint.bytes, &endpoint.length,
					       error);
	if (rc)
		return rc;
	if (send_record(fd, &region) || send_record(fd, &endpoint) ||
	    take_record(fd, &their_region) || take_record(fd, &their_endpoint))
		return error_set(error, ERROR_PEER_LOST, "the other process is gone");
	rc = transport_endpoint_connect(side->endpoint, their_endpoint.bytes, their_endpoint.length,
					soon(), error);
	if (!rc && meet(fd))
		rc = error_set(error, ERROR_PEER_LOST, "the other process has not connected");
	if (!rc)
		rc = transport_endpoint_probe(side->endpoint, soon(), error);
	if (!rc && role == ROLE_TRAINER)
		rc = transport_remote_import(side->endpoint, their_region.bytes,
					     their_region.length, &side->remote, error);
	return rc;
}

static void side_close(struct side *side)
{
	transport_remote_close(&side->remote);
	transport_endpoint_close(&side->endpoint);
	transport_region_close(&side->region);
	transport_domain_close(&side->domain);
	conformance_memory_free(subject, side->owned);
}

static int write_once(struct side *side, uint64_t round, struct error *error)
{
	int rc;

	memset(side->memory, (int)round, BYTES);
	rc = transport_write(side->endpoint, side->memory, side->region, side->remote, 0, BYTES,
			     soon(), error);
	if (!rc)
		rc = transport_flush(side->endpoint, soon(), error);
	if (!rc)
		rc = transport_signal(side->endpoint, (uint32_t)round, NULL, 0, soon(), error);
	return rc;
}

/* In a child: before so many of its calls it stops, as a machine or an attacker may stop it, between what
 * it has asked and what it does. The provider calls this one, for it lies in the program. */
static unsigned planted;

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals,
			  const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
	if (planted && !--planted)
		raise(SIGSTOP);
	return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
}

static unsigned plant_at, plant_probe_at;

/* Forks; the child plays `role` until `play` returns and never comes back. */
static pid_t start(enum role role, int *fd, int (*play)(struct side *side, int fd))
{
	struct error error = {0};
	struct side side;
	int pair[2];
	pid_t child;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	child = fork();
	if (child == 0) {
		if (subject->child)
			subject->child();
		close(pair[0]);
		planted = plant_probe_at;
		if (side_open(&side, role, pair[1], &error)) {
			fprintf(stderr, "child: %s\n", error.text);
			_exit(9);
		}
		_exit(play(&side, pair[1]));
	}
	close(pair[1]);
	*fd = pair[0];
	return child;
}

static int reap(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int idle(struct side *side, int fd)
{
	char byte;

	(void)side;
	return recv(fd, &byte, 1, 0) == 1 ? 0 : 8;
}

static int write_forever(struct side *side, int fd)
{
	struct error error = {0};

	(void)fd;
	for (uint64_t round = 1;; round++)
		if (write_once(side, round, &error))
			return 7;
}

static int write_planted(struct side *side, int fd)
{
	if (send(fd, "r", 1, MSG_NOSIGNAL) != 1) /* it is open: from here on it may be stopped */
		return 8;
	planted = plant_at;
	return write_forever(side, fd);
}

static int write_one_round(struct side *side, int fd)
{
	struct error error = {0};

	if (write_once(side, 6, &error))
		return 7;
	idle(side, fd);
	side_close(side);
	return 0;
}

#define ok(call)                                                                   \
	do {                                                                       \
		struct error error_ = {0};                                         \
                                                                                   \
		if (call)                                                          \
			fail_msg("%s: %s: %s", subject->name, #call, error_.text); \
	} while (0)

static void processes__one_writes_into_the_other(void **state)
{
	struct transport_signal signal;
	struct error error = {0};
	struct side side;
	pid_t child;
	int fd;

	(void)state;
	child = start(ROLE_TRAINER, &fd, write_one_round);
	ok(side_open(&side, ROLE_INFERENCE, fd, &error_));
	assert_int_equal(transport_signal_wait(side.domain, 0, soon()), 1);
	assert_int_equal(transport_signal_read(side.endpoint, &signal), 0);
	for (uint64_t i = 0; i < BYTES; i++)
		assert_int_equal(side.memory[i], 6);
	assert_false(transport_peer_dead(side.endpoint));
	if (transport_endpoint_caps(side.endpoint)->fence_waits) {
		/* it has the memory mapped and lives: no fence yet */
		assert_int_equal(transport_endpoint_fence(side.endpoint, within_ms(5), &error),
				 -ERROR_TIMEOUT);
		assert_non_null(strstr(error.text, "trainer 0"));
	}
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
	ok(transport_endpoint_fence(side.endpoint, soon(), &error_));
	assert_int_equal(reap(child), 0);
	side_close(&side);
	close(fd);
}

static uint64_t lost_ms(void)
{
	return subject->lost_ms ? subject->lost_ms : 5000;
}

/* A dying process loses its memory before it is gone, so the error may come first. */
static bool soon_dead(const struct transport_endpoint *endpoint)
{
	uint64_t end = within_ms(5000);

	if (subject->blind)
		return !transport_peer_dead(endpoint);
	while (!transport_peer_dead(endpoint) && clock_ns() < end)
		clock_sleep_ms(1);
	return transport_peer_dead(endpoint);
}

static void death__of_the_target_is_an_error_at_the_writer(void **state)
{
	struct error error = {0};
	struct side side;
	uint64_t end;
	pid_t child;
	int fd, rc = 0;

	(void)state;
	child = start(ROLE_INFERENCE, &fd, idle);
	ok(side_open(&side, ROLE_TRAINER, fd, &error_));
	ok(write_once(&side, 1, &error_));
	kill(child, SIGKILL);
	end = within_ms(lost_ms());
	for (uint64_t round = 2; !rc && clock_ns() < end; round++)
		rc = write_once(&side, round, &error);
	assert_int_equal(rc, -ERROR_PEER_LOST);
	assert_non_null(strstr(error.text, "inference 0"));
	assert_true(soon_dead(side.endpoint)); /* not reaped yet: a zombie is dead */
	reap(child);
	assert_int_equal(transport_peer_dead(side.endpoint), !subject->blind);
	side_close(&side);
	close(fd);
}

/* It has what it was for, and goes. */
static int go_when_signalled(struct side *side, int fd)
{
	uint64_t until = soon();
	struct transport_signal signal;

	if (send(fd, "r", 1, MSG_NOSIGNAL) != 1)
		return 8;
	while (clock_ns() < until) { /* a wait may end early */
		transport_signal_wait(side->domain, 0, until);
		if (!transport_signal_read(side->endpoint, &signal))
			return 0;
	}
	return 8;
}

struct holder {
	struct transport_domain *domain;
	pthread_t thread;
	_Atomic bool held, dead;
};

/* As a thread of the provider that is not let run until a while after the target's end. */
static void *hold(void *context)
{
	struct holder *holder = context;

	subject->hold(holder->domain, true);
	atomic_store(&holder->held, true);
	while (!atomic_load(&holder->dead))
		clock_sleep_ms(1);
	clock_sleep_ms(100);
	subject->hold(holder->domain, false);
	return NULL;
}

static void wait_dead(pid_t child)
{
	siginfo_t info;

	while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) < 0)
		assert_int_equal(errno, EINTR);
}

static void death__of_a_target_that_had_all_of_it_is_no_error_of_what_was_sent(void **state)
{
	struct holder holder = {0};
	struct side side;
	pid_t child;
	char byte;
	int fd, status;

	(void)state;
	child = start(ROLE_INFERENCE, &fd, go_when_signalled);
	ok(side_open(&side, ROLE_TRAINER, fd, &error_));
	/* its probe is answered by the threads that are held below */
	assert_int_equal(recv(fd, &byte, 1, 0), 1);
	ok(transport_write(side.endpoint, side.memory, side.region, side.remote, 0, 4096, soon(),
			   &error_));
	ok(transport_flush(side.endpoint, soon(), &error_));
	if (subject->hold) {
		holder.domain = side.domain;
		assert_int_equal(pthread_create(&holder.thread, NULL, hold, &holder), 0);
		while (!atomic_load(&holder.held))
			clock_sleep_ms(1);
	}
	ok(transport_signal_post(side.endpoint, 1, NULL, 0, &error_));
	wait_dead(child);
	atomic_store(&holder.dead, true);
	ok(transport_flush(side.endpoint, soon(), &error_));
	if (subject->hold)
		pthread_join(holder.thread, NULL);
	status = reap(child);
	assert_int_equal(status, 0);
	side_close(&side);
	close(fd);
}

static void death__of_a_writer_in_the_middle_is_proved_and_fenced(void **state)
{
	(void)state;
	for (int round = 0; round < 10; round++) {
		struct side side;
		pid_t child;
		int fd;

		child = start(ROLE_TRAINER, &fd, write_forever);
		ok(side_open(&side, ROLE_INFERENCE, fd, &error_));
		transport_signal_wait(side.domain, 0, soon());
		clock_sleep_ms((uint64_t)round % 4);
		kill(child, SIGKILL);
		assert_true(soon_dead(side.endpoint));
		ok(transport_endpoint_fence(side.endpoint, soon(), &error_));
		reap(child);
		assert_int_equal(transport_peer_dead(side.endpoint), !subject->blind);
		side_close(&side);
		close(fd);
	}
}

static void fence__stops_a_writer_that_is_alive(void **state)
{
	struct side side;
	pid_t child;
	int fd;

	(void)state;
	child = start(ROLE_TRAINER, &fd, write_forever);
	ok(side_open(&side, ROLE_INFERENCE, fd, &error_));
	transport_signal_wait(side.domain, 0, soon());
	/* the writer learns at its next post that it was given up, and ends */
	ok(transport_endpoint_fence(side.endpoint, soon(), &error_));
	assert_int_equal(WEXITSTATUS(reap(child)), 7);
	side_close(&side);
	close(fd);
}

/* Where its plant, or else we, stopped it: often enough in the middle of a write. */
static void wait_stopped(pid_t child, uint64_t ms)
{
	uint64_t end = within_ms(ms);
	int status;

	while (clock_ns() < end) {
		if (waitpid(child, &status, WUNTRACED | WNOHANG) == child) {
			assert_true(WIFSTOPPED(status));
			return;
		}
		clock_sleep_ms(1);
	}
	kill(child, SIGSTOP);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
}

/* The memory is refused by name, in whatever is opened, and other memory is not; until the writer has
 * died, or has gone on and is through. */
static void refused_until_it_is_over(struct side *side, pid_t child, bool kills)
{
	struct transport_region *region = NULL;
	struct error error = {0};
	char pid[32];

	snprintf(pid, sizeof(pid), "process %d", (int)child);
	assert_int_equal(transport_region_register(side->domain, side->owned + 5, BYTES - 5,
						   &region, &error),
			 -ERROR_UNSAFE);
	assert_non_null(strstr(error.text, "trainer 0"));
	assert_non_null(strstr(error.text, pid));
	ok(transport_region_register(side->domain, &error, sizeof(error), &region, &error_));
	transport_region_close(&region);
	kill(child, kills ? SIGKILL : SIGCONT);
	assert_int_equal(WEXITSTATUS(reap(child)), kills ? 0 : 7);
	ok(transport_memory_check(side->owned, BYTES, &error_));
}

static bool takes_memory_back(const struct side *side)
{
	return !subject->registered || !transport_endpoint_caps(side->endpoint)->fence_waits;
}

/* Closes, and uses the memory again as soon as it may. Returns whether it had to wait for the writer. */
static bool close_and_use_again(struct side *side, pid_t child, bool kills)
{
	bool takes_back = takes_memory_back(side); /* asks the endpoint */
	struct error error = {0};
	int rc = transport_endpoint_stop(side->endpoint, within_ms(20), &error), check;

	transport_remote_close(&side->remote);
	transport_endpoint_close(&side->endpoint);
	check = transport_memory_check(side->memory, BYTES, &error);
	assert_int_equal(check, rc ? -ERROR_UNSAFE : 0);
	transport_region_close(&side->region);
	if (check) {
		assert_false(takes_back);
		refused_until_it_is_over(side, child, kills);
	}
	if (side->owned)
		ok(transport_region_register(side->domain, side->owned, BYTES, &side->region,
					     &error_));
	else
		ok(transport_region_allocate(side->domain, BYTES, &side->region, &error_));
	side->memory = transport_region_memory(side->region);
	memset(side->memory, 0xee, BYTES);
	if (!check) {
		kill(child, SIGCONT);
		assert_int_equal(WEXITSTATUS(reap(child)), 7); /* it was given up, and learns it */
	}
	for (uint64_t i = 0; i < BYTES; i++)
		assert_int_equal(side->memory[i], 0xee);
	return check;
}

static void late_write__of_a_stopped_writer_never_lands_in_memory_that_is_used_again(void **state)
{
	unsigned held = 0, rounds = test_slow() > 1 ? 4 : SANITIZED_THREADS ? 8 : 16;
	bool takes_back = false;

	(void)state;
	for (unsigned round = 0; round < rounds; round++) {
		struct side side;
		pid_t child;
		char ready;
		int fd;

		/* else anywhere; the call that it is planted into writes host memory alone */
		plant_at = round % 2 && !subject->memory ? 1 + round % 3 : 0;
		child = start(ROLE_TRAINER, &fd, write_planted);
		ok(side_open(&side, ROLE_INFERENCE, fd, &error_));
		assert_int_equal(recv(fd, &ready, 1, 0), 1);
		takes_back = takes_memory_back(&side);
		wait_stopped(child, plant_at && !takes_back ? 5000 : 1 + round * 2);
		held += close_and_use_again(&side, child, round / 2 % 2);
		side_close(&side);
		close(fd);
	}
	assert_true(takes_back ? held == 0 : held >= rounds / 2);
}

/* What proves the path writes a word of the mailbox itself. */
static void late_probe__hits_nothing_that_is_used_again(void **state)
{
	struct conformance_footprint held, free;
	struct error error = {0};
	struct side side;
	bool takes_back;
	pid_t child;
	int fd;

	(void)state;
	if (subject->memory)
		skip(); /* of the processor's memory alone a word is probed */
	plant_probe_at = 1;
	child = start(ROLE_TRAINER, &fd, idle);
	plant_probe_at = 0;
	ok(side_open(&side, ROLE_INFERENCE, fd, &error_));
	takes_back = takes_memory_back(&side);
	wait_stopped(child, takes_back ? 1 : 5000);
	(void)transport_endpoint_stop(side.endpoint, within_ms(5), &error);
	side_close(&side); /* the memory is free: the probe is not of it */
	held = conformance_footprint();
	kill(child, SIGKILL);
	reap(child);
	ok(transport_memory_check(&side, sizeof(side), &error_));
	free = conformance_footprint();
	if (!takes_back)
		assert_true(held.mappings > free.mappings);
	assert_true(held.files >= free.files);
	close(fd);
}

/* What inference 0 exports, and then dies. */
static void records_of_the_dead(struct sent_record *region, struct sent_record *endpoint)
{
	pid_t child;
	int fd;

	child = start(ROLE_INFERENCE, &fd, idle);
	assert_int_equal(take_record(fd, region), 0);
	assert_int_equal(take_record(fd, endpoint), 0);
	kill(child, SIGKILL);
	reap(child);
	close(fd);
}

/* Where nothing here can know that the process is dead, probing the path finds it out. */
static void records__of_a_dead_process_are_refused(void **state)
{
	struct sent_record region, endpoint;
	struct transport_options options = {
		.self = {ROLE_TRAINER, 0}, .secret = 1, .provider_options = subject->options};
	struct transport_endpoint *fresh = NULL;
	struct transport_remote *remote = NULL;
	struct transport_domain *domain = NULL;
	struct error error = {0};
	int rc;

	(void)state;
	records_of_the_dead(&region, &endpoint);
	ok(transport_domain_open(&domain, subject->provider, &options, &error_));
	ok(transport_endpoint_open(domain, (struct member){ROLE_INFERENCE, 0}, NULL, &fresh,
				   &error_));
	rc = transport_remote_import(fresh, region.bytes, region.length, &remote, &error);
	if (!subject->probes)
		assert_int_equal(rc, -ERROR_PEER_LOST);
	rc = transport_endpoint_connect(fresh, endpoint.bytes, endpoint.length, soon(), &error);
	if (!rc && subject->probes)
		rc = transport_endpoint_probe(fresh, within_ms(lost_ms()), &error);
	assert_int_equal(rc, -ERROR_PEER_LOST);
	assert_non_null(strstr(error.text, "inference 0"));
	transport_remote_close(&remote);
	transport_endpoint_close(&fresh);
	transport_domain_close(&domain);
}

/* The rank was started again: the endpoint is of the new process, the region of the old one. */
static void records__of_an_earlier_process_of_the_rank_are_refused(void **state)
{
	struct sent_record region, endpoint;
	struct transport_remote *remote = NULL;
	struct error error = {0};
	struct side side;
	pid_t child;
	int fd, rc;

	(void)state;
	records_of_the_dead(&region, &endpoint);
	child = start(ROLE_INFERENCE, &fd, idle);
	ok(side_open(&side, ROLE_TRAINER, fd, &error_));
	rc = transport_remote_import(side.endpoint, region.bytes, region.length, &remote, &error);
	assert_true(rc == -ERROR_PEER_LOST || rc == -ERROR_MESSAGE);
	assert_null(remote);
	assert_non_null(strstr(error.text, "inference 0"));
	ok(write_once(&side, 1, &error_)); /* the refusal broke nothing */
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(reap(child), 0);
	side_close(&side);
	close(fd);
}

static void fork__a_child_may_not_use_its_parents_domain(void **state)
{
	struct transport_region *region = NULL;
	struct error error = {0};
	struct pair pair;
	pid_t child;

	(void)state;
	assert_int_equal(pair_open(&pair, subject, 4096, &error), 0);
	child = fork();
	if (child == 0) {
		int rc = transport_region_allocate(pair.b, 4096, &region, &error);

		pair_close(&pair); /* lets go of its copies; the parent's slots stay */
		_exit(rc == -(int)ERROR_STATE ? 0 : 1);
	}
	assert_int_equal(reap(child), 0);
	ok(transport_signal(pair.ab, 1, NULL, 0, soon(), &error_));
	ok(transport_signal(pair.ba, 1, NULL, 0, soon(), &error_));
	pair_close(&pair);
}

int conformance_process_run(const struct conformance *given)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes__one_writes_into_the_other),
		cmocka_unit_test(death__of_the_target_is_an_error_at_the_writer),
		cmocka_unit_test(
			death__of_a_target_that_had_all_of_it_is_no_error_of_what_was_sent),
		cmocka_unit_test(death__of_a_writer_in_the_middle_is_proved_and_fenced),
		cmocka_unit_test(fence__stops_a_writer_that_is_alive),
		cmocka_unit_test(
			late_write__of_a_stopped_writer_never_lands_in_memory_that_is_used_again),
		cmocka_unit_test(late_probe__hits_nothing_that_is_used_again),
		cmocka_unit_test(records__of_a_dead_process_are_refused),
		cmocka_unit_test(records__of_an_earlier_process_of_the_rank_are_refused),
		cmocka_unit_test(fork__a_child_may_not_use_its_parents_domain),
	};

	subject = given;
	return cmocka_run_group_tests_name(given->name, tests, NULL, NULL);
}
