/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_share.c -- two processes and one device, a mock's or a real one (tests/gpu/run): what one makes the other writes,
 * by copies and by kernels, through IPC handles, descriptors and pinned memory of the host.
 *
 *   trainer (child)                                 inference rank (parent)
 *     opens [ ipc ][ mapped ][ weft's host memory ] ◄── records ── makes and exports them
 *     round 1: from its device      round 2: from its host
 *     round 3: a kernel stores into the device memory
 *     signal ───────────────────────────────────────────────────► copies down, compares
 */
#include "base/clock.h"
#include "model/content.h"
#include "pack/cuda/image.h"
#include "pack/cuda/launch.h"
#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"
#include "transport/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PART  (UINT64_C(2) << 20)
#define BYTES (3 * PART + 777) /* of a region: four parts of mapped memory */
#define SHIFT 1040u	       /* where it begins in its allocation */
#define ROOM  (4 * PART)
enum { IPC, MAPPED, HOST, KINDS };

static const struct cuda_calls *calls;
static struct error error;
static unsigned char seen[BYTES];

struct message {
	size_t length;
	unsigned char bytes[TRANSPORT_RECORD_BYTES];
};

/* Of both processes: a failure ends it with its words. */
static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "process %d: %s: %d %s\n", (int)getpid(), what, rc, error.text);
	_exit(92);
}

#define MUST(call) must(call, #call)

static uint64_t soon(void)
{
	return clock_ns() + UINT64_C(60000000000);
}

static void tell(int fd, const struct message *message)
{
	must(send(fd, message, sizeof(*message), MSG_NOSIGNAL) != sizeof(*message), "tell");
}

static void hear(int fd, struct message *message)
{
	must(recv(fd, message, sizeof(*message), MSG_WAITALL) != sizeof(*message), "hear");
}

static unsigned char byte_of(int round, int kind, uint64_t i)
{
	return (unsigned char)(splitmix64(i / 8 + (uint64_t)round * 1000003 +
					  (uint64_t)kind * 77) >>
			       i % 8 * 8);
}

static void fill(unsigned char *memory, int round, int kind)
{
	for (uint64_t i = 0; i < BYTES; i++)
		memory[i] = byte_of(round, kind, i);
}

static uint64_t at(const void *memory)
{
	return (uint64_t)(uintptr_t)memory;
}

static uint64_t allocate(uint64_t bytes)
{
	uint64_t memory = 0;

	MUST(calls->allocate(bytes, &memory));
	return memory;
}

/* As torch's expandable segments: physical parts mapped one after the other. */
static uint64_t allocate_mapped(void)
{
	uint64_t memory = 0, physical;

	MUST(calls->reserve(ROOM, &memory));
	for (uint64_t part = 0; part < ROOM; part += PART) {
		MUST(calls->physical_create(PART, &physical));
		MUST(calls->map(memory + part, PART, physical));
		MUST(calls->physical_release(physical));
	}
	return memory;
}

static void copy(uint64_t to, uint64_t from, uint64_t bytes)
{
	MUST(calls->copy(to, from, bytes, NULL));
	MUST(calls->stream_synchronize(NULL));
}

static struct transport_domain *open_domain(enum role role)
{
	const struct transport_options options = {.self = {role, 0}, .secret = 9};
	struct transport_domain *domain;

	calls = cuda_calls();
	MUST(transport_domain_open(&domain, "cuda", &options, &error));
	MUST(cuda_enter(0, &error));
	return domain;
}

/* ---- the trainer ---- */

struct trainer {
	struct transport_domain *domain;
	struct transport_endpoint *endpoint;
	struct transport_remote *remotes[KINDS];
	unsigned char *host;
	uint64_t device;
};

static void write_rounds(struct trainer *trainer, int fd)
{
	struct message compared;

	for (int round = 1; round <= 2; round++) {
		for (int kind = 0; kind < KINDS; kind++) {
			fill(trainer->host, round, kind);
			if (round == 1)
				copy(trainer->device, at(trainer->host), BYTES);
			MUST(transport_write(
				trainer->endpoint,
				round == 1 ? (void *)(uintptr_t)trainer->device : trainer->host,
				NULL, trainer->remotes[kind], 0, BYTES, soon(), &error));
			MUST(transport_flush(trainer->endpoint, soon(), &error));
		}
		MUST(transport_signal(trainer->endpoint, (uint32_t)round, NULL, 0, soon(), &error));
		hear(fd, &compared);
	}
}

/* One launch for both targets: each a piece of all its tensor's bytes. */
static void pack_round(struct trainer *trainer)
{
	const struct pack_source source = {.from = DTYPE_U8,
					   .to = DTYPE_U8,
					   .dims = 1,
					   .shape = {BYTES},
					   .src = {.dims = 1, .hi = {BYTES}},
					   .held_hi = BYTES};
	uint64_t tensors[2] = {trainer->device, allocate(BYTES)}, table, bases;
	struct pack_cuda_part parts[2];
	struct pack_cuda_launch launch;
	cuda_kernel kernel;
	struct pack pack;
	size_t image_bytes;

	MUST(pack_init(&pack, &source, &error));
	for (int kind = 0; kind < 2; kind++) {
		fill(trainer->host, 3, kind);
		copy(tensors[kind], at(trainer->host), BYTES);
		pack_cuda_part_init(&parts[kind], &pack, (uint32_t)kind, PACK_CUDA_NO_TENSOR, 0,
				    BYTES,
				    at(transport_remote_device_pointer(trainer->remotes[kind])));
	}
	pack_cuda_table_finish(parts, 2);
	table = allocate(sizeof(parts));
	bases = allocate(sizeof(tensors));
	copy(table, at(parts), sizeof(parts));
	copy(bases, at(tensors), sizeof(tensors));
	launch = pack_cuda_launch_of(parts, 0, 2, table, bases, 0);
	MUST(calls->load(&(struct cuda_image){pack_cuda_image(&image_bytes), PACK_CUDA_KERNEL_NAME},
			 &kernel));
	MUST(calls->launch(kernel,
			   (struct cuda_dim){pack_cuda_blocks(&launch, 4), PACK_CUDA_THREADS},
			   &launch, NULL));
	MUST(calls->stream_synchronize(NULL));
	MUST(transport_signal(trainer->endpoint, 3, NULL, 0, soon(), &error));
	MUST(calls->unload(kernel));
	MUST(calls->release(table));
	MUST(calls->release(bases));
	MUST(calls->release(tensors[1]));
}

static void trainer_run(int fd)
{
	struct trainer trainer = {.host = malloc(BYTES)};
	struct message message;

	trainer.domain = open_domain(ROLE_TRAINER);
	trainer.device = allocate(BYTES);
	MUST(transport_endpoint_open(trainer.domain, (struct member){ROLE_INFERENCE, 0}, NULL,
				     &trainer.endpoint, &error));
	MUST(transport_endpoint_record(trainer.endpoint, message.bytes, &message.length, &error));
	tell(fd, &message);
	hear(fd, &message);
	MUST(transport_endpoint_connect(trainer.endpoint, message.bytes, message.length, soon(),
					&error));
	for (int kind = 0; kind < KINDS; kind++) {
		hear(fd, &message);
		MUST(transport_remote_import(trainer.endpoint, message.bytes, message.length,
					     &trainer.remotes[kind], &error));
	}
	write_rounds(&trainer, fd);
	pack_round(&trainer);
	hear(fd, &message);
	for (int kind = 0; kind < KINDS; kind++)
		transport_remote_close(&trainer.remotes[kind]);
	transport_endpoint_close(&trainer.endpoint);
	MUST(calls->release(trainer.device));
	cuda_leave();
	transport_domain_close(&trainer.domain);
	free(trainer.host);
	_exit(0);
}

/* ---- the inference rank ---- */

static void compare(const uint64_t memory[KINDS], int round, int kinds)
{
	for (int kind = 0; kind < kinds; kind++) {
		if (kind == HOST)
			memcpy(seen, (void *)(uintptr_t)memory[kind], BYTES);
		else
			copy(at(seen), memory[kind], BYTES);
		for (uint64_t i = 0; i < BYTES; i++)
			if (seen[i] != byte_of(round, kind, i))
				fail_msg("round %d, memory %d: byte %llu differs", round, kind,
					 (unsigned long long)i);
	}
}

static void wait_signal(struct transport_domain *domain, uint64_t count)
{
	uint64_t so_far = 0, end = soon();

	while (so_far < count && clock_ns() < end)
		so_far = transport_signal_wait(domain, so_far, end);
	assert_int_equal(so_far, count);
}

/* A process of its own: a driver (and a mock) is of no use in a forked child. */
static pid_t start_trainer(const int pair[2])
{
	char number[16];
	pid_t child = fork();

	if (child)
		return child;
	close(pair[1]);
	snprintf(number, sizeof(number), "%d", pair[0]);
	execl("/proc/self/exe", "test_gpu_share", "trainer", number, NULL);
	_exit(91);
}

static void test_two_processes__write_each_others_memory_by_copies_and_by_kernels(void **state)
{
	struct transport_region *regions[KINDS];
	struct transport_endpoint *endpoint;
	uint64_t memory[KINDS], mapped;
	struct transport_domain *domain;
	struct message message;
	int pair[2], status;
	pid_t child;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = start_trainer(pair);
	close(pair[0]);
	domain = open_domain(ROLE_INFERENCE);
	memory[IPC] = allocate(ROOM) + SHIFT;
	mapped = allocate_mapped();
	memory[MAPPED] = mapped + SHIFT;
	MUST(transport_endpoint_open(domain, (struct member){ROLE_TRAINER, 0}, NULL, &endpoint,
				     &error));
	hear(pair[1], &message);
	MUST(transport_endpoint_connect(endpoint, message.bytes, message.length, soon(), &error));
	MUST(transport_endpoint_record(endpoint, message.bytes, &message.length, &error));
	tell(pair[1], &message);
	for (int kind = 0; kind < KINDS; kind++) {
		if (kind == HOST)
			MUST(transport_region_allocate(domain, BYTES, &regions[kind], &error));
		else
			MUST(transport_region_register(domain, (void *)(uintptr_t)memory[kind],
						       BYTES, &regions[kind], &error));
		memory[kind] = at(transport_region_memory(regions[kind]));
		MUST(transport_region_export(regions[kind], message.bytes, &message.length,
					     &error));
		tell(pair[1], &message);
	}
	for (int round = 1; round <= 3; round++) {
		wait_signal(domain, (uint64_t)round);
		compare(memory, round, round == 3 ? HOST : KINDS);
		tell(pair[1], &message);
	}
	MUST(transport_endpoint_stop(endpoint, soon(), &error));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	transport_endpoint_close(&endpoint);
	for (int kind = 0; kind < KINDS; kind++)
		transport_region_close(&regions[kind]);
	MUST(calls->release(memory[IPC] - SHIFT));
	MUST(calls->unmap(mapped, ROOM));
	MUST(calls->unreserve(mapped, ROOM));
	cuda_leave();
	transport_domain_close(&domain);
	close(pair[1]);
}

/* ---- one process ---- */

static void test_dmabuf__of_whole_pages_is_a_descriptor_where_the_device_says_so(void **state)
{
	struct cuda_facts facts;
	uint64_t memory;
	int fd = -1;

	(void)state;
	calls = cuda_calls();
	MUST(cuda_ready(&error));
	MUST(cuda_device_facts(0, &facts, &error));
	print_message("%s: dma-buf %s, GPUDirect %s, flush %s%s\n", facts.name,
		      facts.dmabuf ? "yes" : "no", facts.gpudirect ? "yes" : "no",
		      facts.flush ? "yes" : "no", facts.flush_needed ? ", needed" : ", not needed");
	MUST(cuda_enter(0, &error));
	memory = allocate(PART);
	if (facts.dmabuf) {
		MUST(calls->dmabuf(memory, PART, &fd));
		assert_true(fd >= 0);
		close(fd);
	} else {
		assert_int_not_equal(calls->dmabuf(memory, PART, &fd), 0);
	}
	MUST(calls->release(memory));
	cuda_leave();
}

static void test_stream__waits_for_a_word_of_the_host_and_nothing_before_it_happens(void **state)
{
	static _Alignas(4096) _Atomic uint64_t word[512];
	static _Alignas(4096) unsigned char target[4096];
	struct cuda_facts facts;
	uint64_t memory;
	cuda_stream stream;

	(void)state;
	calls = cuda_calls();
	MUST(cuda_ready(&error));
	MUST(cuda_device_facts(0, &facts, &error));
	if (!facts.stream_wait)
		skip();
	MUST(cuda_enter(0, &error));
	memory = allocate(4096);
	MUST(calls->stream_create(&stream));
	MUST(calls->host_register((void *)word, sizeof(word)));
	MUST(calls->host_register(target, sizeof(target)));
	MUST(calls->fill(memory, 7, 4096, NULL));
	MUST(calls->stream_synchronize(NULL));
	MUST(calls->stream_wait_value(stream, at((void *)word), 3));
	MUST(calls->copy(at(target), memory, 4096, stream));
	atomic_store(&word[0], 2);
	usleep(20000);
	assert_int_equal(calls->stream_query(stream), CUDA_NOT_READY);
	assert_int_equal(target[0], 0);
	atomic_store(&word[0], 3);
	MUST(calls->stream_synchronize(stream));
	assert_int_equal(target[4095], 7);
	MUST(calls->host_unregister((void *)word));
	MUST(calls->host_unregister(target));
	MUST(calls->stream_destroy(stream));
	MUST(calls->release(memory));
	cuda_leave();
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_two_processes__write_each_others_memory_by_copies_and_by_kernels),
		cmocka_unit_test(
			test_dmabuf__of_whole_pages_is_a_descriptor_where_the_device_says_so),
		cmocka_unit_test(
			test_stream__waits_for_a_word_of_the_host_and_nothing_before_it_happens),
	};

	if (count == 3 && strcmp(words[1], "trainer") == 0)
		trainer_run(atoi(words[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
