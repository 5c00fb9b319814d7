/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_rig.h -- a whole job inside one process for the tests of the worker: the real controller
 * shell on a thread, workers through weft.h alone, each inference rank's wait on a thread.
 *
 *   q [12,10] F32   rows cut over the ranks       direct               param 0
 *   o [10,12] F32   columns cut over the ranks    mapped or replica    param 1
 *   n [7]     F32   whole on every rank, and 4 bytes of fill           param 2
 */
#ifndef TESTS_UNIT_WORKER_WORKER_RIG_H
#define TESTS_UNIT_WORKER_WORKER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "controller/shell.h"
#include "tests/unit/worker/host_memory.h"
#include "worker/api/weft.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RIG_MAX 4
#define RIG_TENSORS 3

struct rig;
struct rig_options {
	uint32_t trainers, ranks;
	uint32_t engines; /* of ranks / engines each; 0: 1 */
	const char *transport, *order, *replica;
	const char *commit; /* NULL: rank */
	const char *on_loss, *on_miss;
	const char *memory, *rank_memory, *stage; /* of trainers, of ranks */
	int checksums, shadow, own_memory, delta;
	uint32_t hedge_ms;
	uint32_t by_host; /* commit_by_host of ranks, a bit each */
	weft_memory (*own)(struct rig *rig, uint32_t rank, uint32_t param); /* own_memory that is not rig.own */
	void (*declared)(struct rig *rig); /* all have declared, nobody has joined */
	uint64_t ring_bytes, landing_bytes;
	uint32_t update_timeout_ms, pack_threads;
	const char *fault; /* of inference 0: transport/fault/fault.h */
};

struct rig_wait {
	pthread_t thread;
	weft_worker *worker;
	uint64_t version, published;
	uint32_t timeout_ms;
	int rc;
	weft_error error;
};

struct rig {
	struct rig_options options;
	pthread_t controller;
	struct shell_options shell;
	struct error controller_error;
	int controller_rc;
	char port_file[64], address[64];
	weft_worker *trainers[RIG_MAX], *ranks[RIG_MAX];
	struct rig_wait waits[RIG_MAX], joins[2 * RIG_MAX];
	unsigned char tensors[RIG_TENSORS][480];
	unsigned char own[RIG_MAX][RIG_TENSORS][512];
};

static const weft_tensor rig_tensors[RIG_TENSORS] = {
	{sizeof(weft_tensor), "q", "F32", 2, {12, 10}}, {sizeof(weft_tensor), "o", "F32", 2, {10, 12}}, {sizeof(weft_tensor), "n", "F32", 1, {7}},
};
static const uint64_t rig_bytes[RIG_TENSORS] = {480, 480, 28};

static inline unsigned char rig_byte(uint64_t version, uint32_t tensor, uint64_t at)
{
	return (unsigned char)(version * 31 + tensor * 7 + at * 13 + at / 251);
}

static inline uint32_t rig_tp(const struct rig *rig)
{
	return rig->options.ranks / (rig->options.engines ? rig->options.engines : 1);
}

static inline void rig_fill(struct rig *rig, uint64_t version)
{
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		for (uint64_t i = 0; i < rig_bytes[t]; i++)
			rig->tensors[t][i] = rig_byte(version, t, i);
}

static void *rig_controller(void *context)
{
	struct rig *rig = context;

	rig->controller_rc = shell_run(&rig->shell, &rig->controller_error);
	return NULL;
}

static inline void rig_start_controller(struct rig *rig)
{
	static int number;
	char port[16] = "";
	FILE *file = NULL;

	snprintf(rig->port_file, sizeof(rig->port_file), "rig-%d-%d.port", (int)getpid(), number++);
	rig->shell = (struct shell_options){
		.controller = {.job = "rig", .policy = "greedy", .order = rig->options.order,
			       .commit = rig->options.commit ? rig->options.commit : "rank",
			       .on_loss = rig->options.on_loss,
			       .on_miss = rig->options.on_miss,
			       .heartbeat_ms = 100, .lost_ms = 2000,
			       .join_timeout_ms = 10000, .exchange_timeout_ms = 10000,
			       .update_timeout_ms = 5000, .incarnation = 77, .delta = rig->options.delta != 0,
			       .hedge_ms = rig->options.hedge_ms,
			       .train = {.world = rig->options.trainers, .pp = 1, .fsdp = 1},
			       .infer = {.engines = rig->options.ranks / rig_tp(rig), .tp = rig_tp(rig), .ep = 1, .dp = 1}},
		.channel.bind = "tcp://127.0.0.1:0", .channel.port_file = rig->port_file,
	};
	assert_int_equal(pthread_create(&rig->controller, NULL, rig_controller, rig), 0);
	for (int i = 0; i < 1000 && !file; i++) {
		clock_sleep_ms(5);
		file = fopen(rig->port_file, "re");
	}
	assert_non_null(file);
	assert_non_null(fgets(port, sizeof(port), file));
	fclose(file);
	unlink(rig->port_file);
	port[strcspn(port, "\n")] = 0;
	snprintf(rig->address, sizeof(rig->address), "tcp://127.0.0.1:%s", port);
}

static inline void rig_declare_trainer(weft_worker *worker)
{
	for (uint32_t t = 0; t < RIG_TENSORS; t++) {
		uint32_t id;

		assert_int_equal(weft_declare_tensor(worker, &rig_tensors[t], t, 0,
						     rig_tensors[t].shape[0], &id, NULL), 0);
		assert_int_equal(id, t);
	}
}

static inline void rig_declare_rank(struct rig *rig, uint32_t rank)
{
	uint64_t rows = 12 / rig_tp(rig), at = rank % rig_tp(rig);
	weft_worker *worker = rig->ranks[rank];
	weft_param params[RIG_TENSORS] = {
		{sizeof(weft_param), "p.q", "F32", 2, {rows, 10}, NULL}, {sizeof(weft_param), "p.o", "F32", 2, {10, rows}, NULL},
		{sizeof(weft_param), "p.n", "F32", 1, {8}, NULL},
	};
	const uint64_t lo[RIG_TENSORS][2] = {{at * rows, 0}, {0, at * rows}, {0, 0}};
	const uint64_t hi[RIG_TENSORS][2] = {{(at + 1) * rows, 10}, {10, (at + 1) * rows}, {7, 0}};

	for (uint32_t t = 0; t < RIG_TENSORS; t++) {
		const weft_memory memory = rig->options.own ? rig->options.own(rig, rank, t)
							    : weft_host_memory(rig->own[rank][t], sizeof(rig->own[rank][t]));

		if (rig->options.own_memory)
			params[t].memory = &memory;
		assert_int_equal(weft_declare_param(worker, &params[t], NULL, NULL), 0);
		assert_int_equal(weft_declare_piece(worker, &rig_tensors[t], lo[t], hi[t], t, 0, NULL),
				 0);
	}
	assert_int_equal(weft_declare_fill(worker, 2, 28, 4, NULL), 0);
}

static inline weft_worker *rig_open_worker(struct rig *rig, enum weft_role role, uint32_t rank)
{
	weft_options options = {
		.size = sizeof(options), .controller = rig->address, .job = "rig", .role = role,
		.rank = rank, .transport = rig->options.transport, .join_timeout_ms = 10000,
		.update_timeout_ms = rig->options.update_timeout_ms,
		.ring_bytes = rig->options.ring_bytes, .checksums = rig->options.checksums,
	};
	weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;

	if (role == WEFT_TRAINER) {
		options.memory = rig->options.memory;
		options.replica = rig->options.replica;
		options.pack_threads = rig->options.pack_threads;
	}
	if (role == WEFT_INFERENCE) {
		options.memory = rig->options.rank_memory;
		options.stage = rig->options.stage;
		options.landing_bytes = rig->options.landing_bytes;
		options.shadow = rig->options.shadow;
		options.own_memory = rig->options.own_memory;
		options.commit_by_host = rank < RIG_MAX && rig->options.by_host >> rank & 1;
	}
	if (role == WEFT_INFERENCE && !rank && rig->options.fault)
		setenv("WEFT_FAULT", rig->options.fault, 1);
	assert_int_equal(weft_open(&worker, &options, &error), 0);
	unsetenv("WEFT_FAULT");
	return worker;
}

static void *rig_join_thread(void *context)
{
	struct rig_wait *wait = context;

	wait->rc = weft_join(wait->worker, 0, &wait->error);
	return NULL;
}

static inline void rig_open(struct rig *rig, const struct rig_options *options)
{
	uint32_t count = 0;

	memset(rig, 0, sizeof(*rig));
	memset(rig->own, 0xaa, sizeof(rig->own));
	rig->options = *options;
	rig_start_controller(rig);
	for (uint32_t i = 0; i < options->trainers; i++) {
		rig->trainers[i] = rig_open_worker(rig, WEFT_TRAINER, i);
		rig_declare_trainer(rig->trainers[i]);
		rig->joins[count++].worker = rig->trainers[i];
	}
	for (uint32_t i = 0; i < options->ranks; i++) {
		rig->ranks[i] = rig_open_worker(rig, WEFT_INFERENCE, i);
		rig_declare_rank(rig, i);
		rig->joins[count++].worker = rig->ranks[i];
	}
	if (options->declared)
		options->declared(rig);
	for (uint32_t i = 0; i < count; i++)
		rig->joins[i].error = (weft_error)WEFT_ERROR_INIT;
	for (uint32_t i = 0; i < count; i++)
		pthread_create(&rig->joins[i].thread, NULL, rig_join_thread, &rig->joins[i]);
	for (uint32_t i = 0; i < count; i++) {
		pthread_join(rig->joins[i].thread, NULL);
		if (rig->joins[i].rc)
			print_message("join: %s\n", rig->joins[i].error.text);
		assert_int_equal(rig->joins[i].rc, 0);
	}
}

static inline void rig_close(struct rig *rig)
{
	for (uint32_t i = 0; i < RIG_MAX; i++) {
		weft_close(&rig->trainers[i]);
		weft_close(&rig->ranks[i]);
	}
	pthread_join(rig->controller, NULL);
}

/* On the heap: it is large. */
static inline struct rig *rig_new(const struct rig_options *options)
{
	struct rig *rig = memory_zalloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig_open(rig, options);
	return rig;
}

static inline void rig_free(struct rig *rig)
{
	rig_close(rig);
	memory_free(rig);
}

static void *rig_wait_thread(void *context)
{
	struct rig_wait *wait = context;

	wait->rc = weft_update_wait(wait->worker, wait->version, wait->timeout_ms, &wait->published,
				    &wait->error);
	return NULL;
}

/* Every inference rank waits for the version on its own thread. */
static inline void rig_wait_begin(struct rig *rig, uint64_t version, uint32_t timeout_ms)
{
	for (uint32_t i = 0; i < rig->options.ranks; i++) {
		rig->waits[i] = (struct rig_wait){.worker = rig->ranks[i], .version = version,
						  .timeout_ms = timeout_ms,
						  .error = WEFT_ERROR_INIT};
		pthread_create(&rig->waits[i].thread, NULL, rig_wait_thread, &rig->waits[i]);
	}
}

static inline void rig_wait_end(struct rig *rig, int rc)
{
	for (uint32_t i = 0; i < rig->options.ranks; i++) {
		pthread_join(rig->waits[i].thread, NULL);
		if (rig->waits[i].rc != rc)
			print_message("wait: %s\n", rig->waits[i].error.text);
		assert_int_equal(rig->waits[i].rc, rc);
	}
}

static inline void rig_ok(int rc, const weft_error *error)
{
	if (rc)
		print_message("%s\n", error->text);
	assert_int_equal(rc, 0);
}

static inline void rig_send(struct rig *rig, uint32_t trainer, uint64_t version)
{
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
	weft_worker *worker = rig->trainers[trainer];
	weft_error error = WEFT_ERROR_INIT;

	rig_ok(weft_update_begin(worker, version, &error), &error);
	rig_ok(host_write_all(worker, data, &error), &error);
	rig_ok(weft_update_end(worker, &error), &error);
}

/* Every byte of every parameter of a rank is of the version. */
static inline void rig_check(struct rig *rig, uint32_t rank, uint64_t version)
{
	uint64_t rows = 12 / rig_tp(rig), at = rank % rig_tp(rig);
	const unsigned char *q = weft_param_memory(rig->ranks[rank], 0, version);
	const unsigned char *o = weft_param_memory(rig->ranks[rank], 1, version);
	const unsigned char *n = weft_param_memory(rig->ranks[rank], 2, version);

	assert_non_null(q);
	assert_int_equal(weft_published(rig->ranks[rank]), version);
	for (uint64_t i = 0; i < rows * 40; i++)
		assert_int_equal(q[i], rig_byte(version, 0, at * rows * 40 + i));
	for (uint64_t r = 0; r < 10; r++)
		for (uint64_t i = 0; i < rows * 4; i++)
			assert_int_equal(o[r * rows * 4 + i],
					 rig_byte(version, 1, r * 48 + at * rows * 4 + i));
	for (uint64_t i = 0; i < 28; i++)
		assert_int_equal(n[i], rig_byte(version, 2, i));
	assert_memory_equal(n + 28, "\0\0\0\0", 4);
}

static inline void rig_update(struct rig *rig, uint64_t version)
{
	rig_fill(rig, version);
	rig_wait_begin(rig, version, 0);
	for (uint32_t i = 0; i < rig->options.trainers; i++)
		rig_send(rig, i, version);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < rig->options.ranks; i++)
		rig_check(rig, i, version);
}

#endif
