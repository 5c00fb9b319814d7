/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_provider.c -- memory that no processor may touch goes from one domain into another: every kind of memory, each
 * refusal with its cure, other processes, and every call that may fail, failing once.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "tests/cuda_mock/cuda_mock.h"
#include "transport/cuda/errors.h"
#include "transport/transport.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 3000000u

static struct error error;
static unsigned char pattern[BYTES], seen[BYTES];
static uint64_t bytes = BYTES; /* of regions and writes between two domains */

static uint64_t soon(void)
{
	return clock_ns() + UINT64_C(60000000000);
}

static void ok(int rc)
{
	if (rc)
		fail_msg("%s", error.text);
}

static void refused(int rc, int code, const char *part)
{
	assert_int_equal(rc, -code);
	if (!strstr(error.text, part))
		fail_msg("'%s' is not in: %s", part, error.text);
}

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static void open_mock(const struct cuda_mock_options *options)
{
	cuda_mock_open(options);
	for (size_t i = 0; i < BYTES && !pattern[BYTES - 1]; i++)
		pattern[i] = (unsigned char)(i * 13 + i / 4099);
	memset(seen, 0, bytes);
}

static void close_mock(void)
{
	assert_string_equal(cuda_mock_violation(), "");
	assert_int_equal(cuda_mock_close(), 0);
}

/* Two domains of this process, each on its device: a writes into b's region. */
struct two {
	struct transport_domain *a, *b;
	struct transport_endpoint *ab, *ba;
	struct transport_region *target;
	struct transport_remote *remote;
};

static int domain(struct transport_domain **out, enum role role, int device)
{
	const struct transport_options options = {.self = {role, 0}, .secret = 5, .device = device};

	return transport_domain_open(out, "cuda", &options, &error);
}

static int join(struct transport_endpoint *from, const struct transport_endpoint *to)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_record(to, record, &length, &error);

	return rc ? rc : transport_endpoint_connect(from, record, length, soon(), &error);
}

static int two_connect(struct two *two)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_open(two->a, (struct member){ROLE_INFERENCE, 0}, NULL, &two->ab,
					 &error);

	if (!rc)
		rc = transport_endpoint_open(two->b, (struct member){ROLE_TRAINER, 0}, NULL,
					     &two->ba, &error);
	if (!rc)
		rc = join(two->ab, two->ba);
	if (!rc)
		rc = join(two->ba, two->ab);
	if (!rc)
		rc = transport_region_export(two->target, record, &length, &error);
	return rc ? rc : transport_remote_import(two->ab, record, length, &two->remote, &error);
}

/* memory NULL: weft's own. */
static int two_open(struct two *two, int from_device, int to_device, void *memory)
{
	int rc;

	*two = (struct two){NULL};
	rc = domain(&two->a, ROLE_TRAINER, from_device);
	if (!rc)
		rc = domain(&two->b, ROLE_INFERENCE, to_device);
	if (!rc)
		rc = memory ? transport_region_register(two->b, memory, bytes, &two->target, &error)
			    : transport_region_allocate(two->b, bytes, &two->target, &error);
	return rc ? rc : two_connect(two);
}

static void two_close(struct two *two)
{
	transport_remote_close(&two->remote);
	transport_endpoint_close(&two->ab);
	transport_endpoint_close(&two->ba);
	transport_region_close(&two->target);
	transport_domain_close(&two->a);
	transport_domain_close(&two->b);
}

static int send_all(struct two *two, const void *source)
{
	int rc = transport_write(two->ab, source, NULL, two->remote, 0, 1000, soon(), &error);

	if (!rc)
		rc = transport_write(two->ab, (const char *)source + 1000, NULL, two->remote, 1000,
				     bytes - 1000, soon(), &error);
	return rc ? rc : transport_signal(two->ab, 1, NULL, 0, soon(), &error);
}

static void test_device_memory__goes_between_all_kinds_of_memory(void **unused)
{
	(void)unused;
	for (int order = CUDA_MOCK_EAGER; order <= CUDA_MOCK_LATE; order++) {
		open_mock(&(struct cuda_mock_options){.devices = 2,
						      .order = (enum cuda_mock_order)order});
		/* offsets within an allocation, as of a caching allocator */
		uint64_t near = cuda_mock_allocate(0, CUDA_MOCK_PLAIN, BYTES + 512) + 512;
		uint64_t far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, BYTES + 256) + 256;
		uint64_t mapped = cuda_mock_allocate(1, CUDA_MOCK_MAPPED, BYTES + 300) + 300;
		const uint64_t sources[] = {0, near}, targets[] = {far, mapped, 0};

		cuda_mock_poke(near, pattern, BYTES);
		for (unsigned s = 0; s < 2; s++)
			for (unsigned t = 0; t < 3; t++) {
				struct two two;

				ok(two_open(&two, 0, 1, pointer(targets[t])));
				assert_int_equal(transport_region_on_device(two.target),
						 targets[t] != 0);
				assert_int_equal(transport_remote_device_pointer(two.remote) !=
							 NULL,
						 targets[t] != 0);
				assert_int_equal(transport_remote_pointer(two.remote) != NULL,
						 targets[t] == 0);
				ok(send_all(&two, sources[s] ? pointer(sources[s]) : pattern));
				if (targets[t]) {
					cuda_mock_peek(targets[t], seen, BYTES);
					assert_memory_equal(seen, pattern, BYTES);
					memset(seen, 0, BYTES);
					cuda_mock_poke(targets[t], seen, BYTES);
				} else {
					assert_memory_equal(transport_region_memory(two.target),
							    pattern, BYTES);
				}
				two_close(&two);
			}
		cuda_mock_free(near);
		cuda_mock_free(far);
		cuda_mock_free(mapped);
		close_mock();
	}
}

static void test_rows__of_either_memory_are_gathered_wherever_they_are_cut(void **unused)
{
	const struct {
		uint64_t from, bytes;
	} cuts[] = {{0, 7000}, {30, 50}, {150, 20}, {99, 2}, {130, 6870}, {200, 300}, {6999, 1}};

	(void)unused;
	open_mock(&(struct cuda_mock_options){.order = CUDA_MOCK_LATE});
	uint64_t source = cuda_mock_allocate(0, CUDA_MOCK_PLAIN, BYTES),
		 target = cuda_mock_allocate(0, CUDA_MOCK_PLAIN, BYTES);
	struct two two;

	cuda_mock_poke(source, pattern, BYTES);
	ok(two_open(&two, 0, 0, pointer(target)));
	for (unsigned on_device = 0; on_device < 2; on_device++)
		for (unsigned i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
			const struct transport_rows rows = {
				.first = on_device ? pointer(source + 40) : pattern + 40,
				.row_bytes = 100,
				.stride_bytes = 999};

			ok(transport_write_rows(two.ab, &rows, cuts[i].from, two.remote, 77,
						cuts[i].bytes, soon(), &error));
			ok(transport_flush(two.ab, soon(), &error));
			cuda_mock_peek(target + 77, seen, cuts[i].bytes);
			for (uint64_t b = 0; b < cuts[i].bytes; b++)
				assert_int_equal(seen[b],
						 pattern[40 + (cuts[i].from + b) / 100 * 999 +
							 (cuts[i].from + b) % 100]);
		}
	two_close(&two);
	cuda_mock_free(source);
	cuda_mock_free(target);
	close_mock();
}

static void test_memory__that_cannot_be_shared_is_refused_with_its_cure(void **unused)
{
	const struct {
		enum cuda_mock_kind kind;
		const char *part;
	} kinds[] = {
		{CUDA_MOCK_POOL,
		 "are of a pool (cudaMallocAsync), which no other process can open: allocate with cudaMalloc"},
		{CUDA_MOCK_MANAGED, "are managed memory"},
		{CUDA_MOCK_UNSHAREABLE, "expandable_segments:False"}};
	struct transport_domain *one;
	struct transport_region *region;

	(void)unused;
	open_mock(&(struct cuda_mock_options){.devices = 1});
	ok(domain(&one, ROLE_INFERENCE, 0));
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uint64_t memory = cuda_mock_allocate(0, kinds[i].kind, BYTES);

		refused(transport_region_register(one, pointer(memory), BYTES, &region, &error),
			ERROR_UNSUPPORTED, kinds[i].part);
		ok(transport_source_register(one, pointer(memory), BYTES, &region,
					     &error)); /* only read from here */
		transport_region_close(&region);
		cuda_mock_free(memory);
	}
	uint64_t memory = cuda_mock_allocate(0, CUDA_MOCK_MAPPED, BYTES);

	refused(transport_region_register(one, pointer(memory), 2 * BYTES, &region, &error),
		ERROR_BOUNDS, "reach beyond the memory that is mapped there");
	cuda_mock_free(memory);
	memory = cuda_mock_allocate(0, CUDA_MOCK_PLAIN, BYTES);
	refused(transport_region_register(one, pointer(memory), BYTES + 1, &region, &error),
		ERROR_BOUNDS, "reach beyond their allocation");
	cuda_mock_free(memory);
	transport_domain_close(&one);
	close_mock();
}

static void test_setup__tells_what_is_missing_before_anything_moves(void **unused)
{
	struct transport_domain *one;
	struct two two;

	(void)unused;
	open_mock(&(struct cuda_mock_options){.devices = 2, .no_peer = true});
	uint64_t far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, BYTES);

	refused(two_open(&two, 0, 1, pointer(far)), ERROR_UNSUPPORTED,
		"no peer access from cuda:0 (Mock 0) to cuda:1 (Mock 1)");
	two_close(&two);
	refused(domain(&one, ROLE_TRAINER, 2), ERROR_CONFIG,
		"there is no device cuda:2: the driver shows 2");
	const struct transport_options nic = {.self = {ROLE_TRAINER, 0}, .nics = "mlx5_0"};

	refused(transport_domain_open(&one, "cuda", &nic, &error), ERROR_CONFIG,
		"transport cuda uses no NIC");
	cuda_mock_free(far);
	close_mock();
	open_mock(&(struct cuda_mock_options){.driver = CUDA_MOCK_ABSENT});
	assert_int_equal(domain(&one, ROLE_TRAINER, 0), -ERROR_UNSUPPORTED);
	close_mock();
}

static void test_device_to_registered_host_memory__is_refused_and_breaks_nothing_else(void **unused)
{
	unsigned char *memory = memory_zalloc(1, BYTES);
	struct two two;

	(void)unused;
	open_mock(&(struct cuda_mock_options){.devices = 1});
	uint64_t source = cuda_mock_allocate(0, CUDA_MOCK_PLAIN, BYTES);

	ok(two_open(&two, 0, 0, memory));
	ok(send_all(&two, pattern));
	assert_memory_equal(memory, pattern, BYTES);
	refused(send_all(&two, pointer(source)), ERROR_UNSUPPORTED,
		"let it use memory of weft's allocator");
	two_close(&two);
	cuda_mock_free(source);
	memory_free(memory);
	close_mock();
}

static void test_lost_device__ends_the_endpoint_with_one_message(void **unused)
{
	struct two two;

	(void)unused;
	open_mock(
		&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_RANDOM, .lose_at = 2});
	uint64_t far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, BYTES);

	ok(two_open(&two, 0, 1, pointer(far)));
	refused(send_all(&two, pattern), ERROR_TRANSPORT,
		"this process cannot use the device any more");
	refused(transport_signal(two.ab, 2, NULL, 0, soon(), &error), ERROR_TRANSPORT,
		"a kernel failed (CUDA error 719)");
	two_close(&two);
	cuda_mock_free(far);
	cuda_mock_close(); /* a lost device gives nothing back */
}

/* ---- every call fails once ---- */

static int session(uint64_t far, uint64_t mapped)
{
	struct two two, three;
	int rc = two_open(&two, 0, 1, pointer(far));

	if (!rc)
		rc = send_all(&two, pattern);
	if (!rc) {
		cuda_mock_peek(far, seen, bytes);
		rc = memcmp(seen, pattern, bytes) ? -ERROR_CHECKSUM : 0;
	}
	two_close(&two);
	if (rc)
		return rc;
	rc = two_open(&three, 0, 1, pointer(mapped));
	if (!rc)
		rc = send_all(&three, pattern);
	two_close(&three);
	return rc;
}

/* A failure that nothing depends on (of a call that closes) leaves the bytes right. */
static void test_session__survives_every_call_that_fails(void **unused)
{
	unsigned failed = 0;

	(void)unused;
	bytes = 50000; /* there are many calls */
	for (uint64_t nth = 0, calls = 1; nth <= calls; nth++) {
		open_mock(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_EAGER});
		uint64_t far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, bytes);
		uint64_t mapped = cuda_mock_allocate(1, CUDA_MOCK_MAPPED, bytes);
		int rc;

		error.text[0] = '\0';
		cuda_mock_fail(NULL, nth, CUDA_OUT_OF_MEMORY);
		rc = session(far, mapped);
		if (rc && (rc != -ERROR_MEMORY || !strstr(error.text, "out of device memory")) &&
		    (rc != -ERROR_UNSUPPORTED ||
		     !strstr(error.text, "mapped without file descriptors")))
			fail_msg("call %llu: %d: %s", (unsigned long long)nth, rc, error.text);
		failed += rc != 0;
		if (!nth)
			calls = cuda_mock_count_all();
		cuda_mock_fail(NULL, 0, 0);
		cuda_mock_free(far);
		cuda_mock_free(mapped);
		assert_string_equal(cuda_mock_violation(), "");
		if (rc) /* else it is a call that closes which failed: at most all that an endpoint has is left */
			assert_int_equal(cuda_mock_close(), 0);
		else
			assert_in_range(cuda_mock_close(), 0, 130);
	}
	assert_true(failed > 100);
	bytes = BYTES;
}

/* ---- other processes ---- */

struct message {
	size_t length;
	unsigned char bytes[TRANSPORT_RECORD_BYTES];
};

static void tell(int fd, const struct message *message)
{
	if (send(fd, message, sizeof(*message), MSG_NOSIGNAL) != sizeof(*message))
		_exit(90);
}

static void hear(int fd, struct message *message)
{
	if (recv(fd, message, sizeof(*message), MSG_WAITALL) != sizeof(*message))
		_exit(91);
}

static void must(int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "child: %s\n", error.text);
	_exit(92);
}

/* Trainer 0: opens all regions that it is told of, writes each, closes. */
static void child_writes(int fd, unsigned regions)
{
	struct transport_remote *remotes[4];
	struct transport_endpoint *endpoint;
	struct transport_domain *one;
	struct message message;

	open_mock(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	uint64_t source = cuda_mock_allocate(0, CUDA_MOCK_PLAIN, BYTES);

	cuda_mock_poke(source, pattern, BYTES);
	must(domain(&one, ROLE_TRAINER, 0));
	must(transport_endpoint_open(one, (struct member){ROLE_INFERENCE, 0}, NULL, &endpoint,
				     &error));
	must(transport_endpoint_record(endpoint, message.bytes, &message.length, &error));
	tell(fd, &message);
	hear(fd, &message);
	must(transport_endpoint_connect(endpoint, message.bytes, message.length, soon(), &error));
	for (unsigned i = 0; i < regions; i++) {
		hear(fd, &message);
		must(transport_remote_import(endpoint, message.bytes, message.length, &remotes[i],
					     &error));
	}
	for (unsigned i = 0; i < regions; i++)
		must(transport_write(endpoint, pointer(source + i), NULL, remotes[i], 0,
				     transport_remote_bytes(remotes[i]), soon(), &error));
	must(transport_signal(endpoint, 1, NULL, 0, soon(), &error));
	hear(fd, &message);
	for (unsigned i = 0; i < regions; i++)
		transport_remote_close(&remotes[i]);
	transport_endpoint_close(&endpoint);
	transport_domain_close(&one);
	cuda_mock_free(source);
	_exit(cuda_mock_close() || cuda_mock_violations() ? 93 : 0);
}

static void test_processes__open_each_others_memory_and_close_it_before_it_is_freed(void **unused)
{
	struct transport_region *regions[4];
	struct transport_endpoint *endpoint;
	struct transport_domain *one;
	struct message message;
	int pair[2], status;

	(void)unused;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid_t child = fork();

	if (!child)
		child_writes(pair[0], 4);
	open_mock(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	uint64_t far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, 2 * BYTES),
		 mapped = cuda_mock_allocate(1, CUDA_MOCK_MAPPED, 2 * BYTES);
	/* two regions in each allocation, which is opened once */
	const uint64_t at[] = {far + 8, far + BYTES, mapped + 16, mapped + BYTES + 1};

	ok(domain(&one, ROLE_INFERENCE, 1));
	ok(transport_endpoint_open(one, (struct member){ROLE_TRAINER, 0}, NULL, &endpoint, &error));
	hear(pair[1], &message);
	ok(transport_endpoint_connect(endpoint, message.bytes, message.length, soon(), &error));
	ok(transport_endpoint_record(endpoint, message.bytes, &message.length, &error));
	tell(pair[1], &message);
	for (unsigned i = 0; i < 4; i++) {
		ok(transport_region_register(one, pointer(at[i]), BYTES - 100, &regions[i],
					     &error));
		ok(transport_region_export(regions[i], message.bytes, &message.length, &error));
		tell(pair[1], &message);
	}
	assert_int_equal(transport_signal_wait(one, 0, soon()), 1);
	for (unsigned i = 0; i < 4; i++) {
		cuda_mock_peek(at[i], seen, BYTES - 100);
		assert_memory_equal(seen, pattern + i, BYTES - 100);
	}
	/* it has the memory open: neither a stop nor a fence says that it may be freed */
	refused(transport_endpoint_stop(endpoint, clock_ns() + 5000000, &error), ERROR_TIMEOUT,
		"still has this process's memory mapped");
	tell(pair[1], &message);
	ok(transport_endpoint_stop(endpoint, soon(), &error));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	transport_endpoint_close(&endpoint);
	for (unsigned i = 0; i < 4; i++)
		transport_region_close(&regions[i]);
	transport_domain_close(&one);
	cuda_mock_free(far);
	cuda_mock_free(mapped);
	close(pair[0]);
	close(pair[1]);
	close_mock();
}

static void test_closed_without_a_stop__memory_is_refused_while_a_peer_has_it_open(void **unused)
{
	struct transport_region *region;
	struct transport_endpoint *endpoint;
	struct transport_domain *one;
	struct message message;
	int pair[2];

	(void)unused;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid_t child = fork();

	if (!child)
		child_writes(pair[0], 1);
	open_mock(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	uint64_t far = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, BYTES);

	ok(domain(&one, ROLE_INFERENCE, 1));
	ok(transport_endpoint_open(one, (struct member){ROLE_TRAINER, 0}, NULL, &endpoint, &error));
	hear(pair[1], &message);
	ok(transport_endpoint_connect(endpoint, message.bytes, message.length, soon(), &error));
	ok(transport_endpoint_record(endpoint, message.bytes, &message.length, &error));
	tell(pair[1], &message);
	ok(transport_region_register(one, pointer(far), BYTES, &region, &error));
	ok(transport_region_export(region, message.bytes, &message.length, &error));
	tell(pair[1], &message);
	assert_int_equal(transport_signal_wait(one, 0, soon()), 1);
	transport_endpoint_close(&endpoint);
	transport_region_close(&region);
	refused(transport_memory_check(pointer(far), BYTES, &error), ERROR_UNSAFE, "trainer 0");
	refused(transport_region_register(one, pointer(far), BYTES, &region, &error), ERROR_UNSAFE,
		"neither free nor reuse");
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	ok(transport_memory_check(pointer(far), BYTES, &error));
	transport_domain_close(&one);
	cuda_mock_free(far);
	close(pair[0]);
	close(pair[1]);
	close_mock();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_processes__open_each_others_memory_and_close_it_before_it_is_freed),
		cmocka_unit_test(
			test_closed_without_a_stop__memory_is_refused_while_a_peer_has_it_open),
		cmocka_unit_test(test_device_memory__goes_between_all_kinds_of_memory),
		cmocka_unit_test(test_rows__of_either_memory_are_gathered_wherever_they_are_cut),
		cmocka_unit_test(test_memory__that_cannot_be_shared_is_refused_with_its_cure),
		cmocka_unit_test(test_setup__tells_what_is_missing_before_anything_moves),
		cmocka_unit_test(
			test_device_to_registered_host_memory__is_refused_and_breaks_nothing_else),
		cmocka_unit_test(test_lost_device__ends_the_endpoint_with_one_message),
		cmocka_unit_test(test_session__survives_every_call_that_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
