/* SPDX-License-Identifier: Apache-2.0
 *
 * vm_transfer.c -- one process, two domains on two NICs, real queue pairs between them: what the
 * tests in the machine drive while they disturb the cable.
 *
 *   trainer 0 on --from (rxe0) ══ cable ══► inference 0 on --to (rxe1)
 *
 * Every mode ends with one line: "ok ..." and exit code 0, or "error WEFT-Ennn after S s: message"
 * and exit code 1. Bytes that are not what they must be, or a guard byte that changed, are exit
 * code 9: that must never happen, whatever the cable does.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "transport/transport.h"
#include "transport/verbs/records.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUARD	   65536u
#define ALIAS	   (2u << 20)
#define GIB	   (UINT64_C(1) << 30)
#define EXIT_WRONG 9

struct options {
	const char *mode, *from, *to, *hook;
	uint64_t bytes, rounds;
	double seconds, timeout;
};

struct link {
	struct transport_domain *a, *b;
	struct transport_region *source, *target;
	struct transport_endpoint *ab, *ba;
	struct transport_remote *remote;
	unsigned char *from, *to; /* to: of the region; guards lie around it */
	uint64_t bytes;
};

static uint64_t deadline(const struct options *options)
{
	return clock_ns() + (uint64_t)(options->timeout * 1e9);
}

static int open_domains(struct link *link, const struct options *options, struct error *error)
{
	struct transport_options a = {.self = {ROLE_TRAINER, 0}, .name = "trainer 0", .secret = 1};
	struct transport_options b = {
		.self = {ROLE_INFERENCE, 0}, .name = "inference 0", .secret = 1};
	int rc;

	snprintf(a.nics, sizeof(a.nics), "%s", options->from);
	snprintf(b.nics, sizeof(b.nics), "%s", options->to);
	rc = transport_domain_open(&link->a, "verbs", &a, error);
	return rc ? rc : transport_domain_open(&link->b, "verbs", &b, error);
}

static int join(struct transport_endpoint *from, const struct transport_endpoint *to,
		uint64_t until, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_endpoint_record(to, record, &length, error);

	return rc ? rc : transport_endpoint_connect(from, record, length, until, error);
}

static int open_endpoints(struct link *link, const struct options *options, struct error *error)
{
	uint64_t until = deadline(options);
	int rc = transport_endpoint_open(link->a, (struct member){ROLE_INFERENCE, 0},
					 "inference 0 (host b)", &link->ab, error);

	if (!rc)
		rc = transport_endpoint_open(link->b, (struct member){ROLE_TRAINER, 0},
					     "trainer 0 (host a)", &link->ba, error);
	if (!rc)
		rc = join(link->ab, link->ba, until, error);
	if (!rc)
		rc = join(link->ba, link->ab, until, error);
	if (!rc && options->hook && system(options->hook) != 0)
		rc = error_set(error, ERROR_USAGE, "the hook '%s' failed", options->hook);
	if (!rc)
		rc = transport_endpoint_probe(link->ab, until, error);
	return rc ? rc : transport_endpoint_probe(link->ba, until, error);
}

static int import(struct link *link, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;
	int rc = transport_region_export(link->target, record, &length, error);

	return rc ? rc : transport_remote_import(link->ab, record, length, &link->remote, error);
}

/* The target is registered memory of ours with guards around it. */
static int link_open(struct link *link, const struct options *options, uint64_t bytes,
		     struct error *error)
{
	unsigned char *memory = memory_alloc(bytes + 2 * GUARD);
	int rc;

	*link = (struct link){.bytes = bytes};
	if (!memory)
		return memory_error(error, "the target", bytes + 2 * GUARD);
	memset(memory, 0xa5, bytes + 2 * GUARD);
	link->to = memory + GUARD;
	rc = open_domains(link, options, error);
	if (!rc)
		rc = transport_region_allocate(link->a, bytes, &link->source, error);
	if (!rc)
		rc = transport_region_register(link->b, link->to, bytes, &link->target, error);
	if (rc)
		return rc;
	link->from = transport_region_memory(link->source);
	rc = open_endpoints(link, options, error);
	return rc ? rc : import(link, error);
}

static void link_close(struct link *link)
{
	transport_remote_close(&link->remote);
	transport_endpoint_close(&link->ab);
	transport_endpoint_close(&link->ba);
	transport_region_close(&link->source);
	transport_region_close(&link->target);
	transport_domain_close(&link->a);
	transport_domain_close(&link->b);
	if (link->to)
		memory_free(link->to - GUARD);
}

static bool guards_whole(const struct link *link)
{
	for (uint64_t i = 0; i < GUARD; i++)
		if (link->to[-1 - (int64_t)i] != 0xa5 || link->to[link->bytes + i] != 0xa5)
			return false;
	return true;
}

static void fill(unsigned char *at, uint64_t bytes, uint64_t seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)((i + seed) * 131 + (i >> 8) * 7 + seed);
}

static int wrong(const char *what, uint64_t bytes, uint64_t offset)
{
	printf("wrong: %s (%llu bytes at %llu)\n", what, (unsigned long long)bytes,
	       (unsigned long long)offset);
	exit(EXIT_WRONG);
}

static int send_all(struct link *link, uint64_t offset, uint64_t bytes, uint64_t round,
		    uint64_t until, struct error *error)
{
	struct transport_signal signal;
	int rc = transport_write(link->ab, link->from, link->source, link->remote, offset, bytes,
				 until, error);

	if (!rc)
		rc = transport_signal(link->ab, (uint32_t)round, &round, sizeof(round), until,
				      error);
	if (rc)
		return rc;
	if (transport_signal_read(link->ba, &signal) != 0 || signal.tag != (uint32_t)round ||
	    signal.length != sizeof(round))
		wrong("the signal that was sent is not there", bytes, offset);
	if (memcmp(link->to + offset, link->from, bytes) != 0)
		wrong("bytes after their signal", bytes, offset);
	return 0;
}

/* Every size around the borders that matter, at odd offsets, between guards. */
static int mode_sizes(const struct options *options, struct error *error)
{
	static const uint64_t sizes[] = {0,
					 1,
					 2,
					 1023,
					 1024,
					 1025,
					 4095,
					 4096,
					 4097,
					 8191,
					 65535,
					 65536,
					 65537,
					 1u << 20,
					 (1u << 20) - 1,
					 (1u << 20) + 1,
					 3u << 20,
					 16u << 20,
					 (64u << 20) - 1,
					 64u << 20};
	struct link link;
	int rc = link_open(&link, options, (64u << 20) + 8192, error);
	uint64_t done = 0;

	for (size_t i = 0; !rc && i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t offset = (i * 2711 + 1) % 8192;

		if (sizes[i] > options->bytes)
			continue;
		fill(link.from, sizes[i], i);
		memset(link.to, 0x11, 64);
		rc = send_all(&link, offset, sizes[i], i + 1, deadline(options), error);
		if (!rc && sizes[i] && offset && link.to[offset - 1] != 0x11 && offset < 64)
			wrong("a byte before the write changed", sizes[i], offset);
		if (!guards_whole(&link))
			wrong("a guard byte changed", sizes[i], offset);
		done += sizes[i];
	}
	if (!rc)
		printf("ok %llu bytes\n", (unsigned long long)done);
	link_close(&link);
	return rc;
}

/* 2 MiB of memory seen again and again over `bytes` of addresses: offsets beyond 4 GiB without
 * the memory for them. */
static unsigned char *alias_open(uint64_t bytes)
{
	int fd = memfd_create("alias", MFD_CLOEXEC);
	unsigned char *base =
		mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (fd < 0 || base == MAP_FAILED || ftruncate(fd, ALIAS))
		return NULL;
	for (uint64_t at = 0; at < bytes; at += ALIAS)
		if (mmap(base + at, ALIAS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		    MAP_FAILED)
			return NULL;
	close(fd);
	return base;
}

static int mode_sparse(const struct options *options, struct error *error)
{
	static const uint64_t offsets[] = {0, 4 * GIB - 4096, 4 * GIB - 1, 4 * GIB,
					   5 * GIB - ALIAS};
	struct link link = {0};
	uint64_t bytes = 5 * GIB, length = 1u << 20;
	unsigned char *target = alias_open(bytes);
	int rc;

	if (!target)
		return error_set(error, ERROR_MEMORY, "no address space for %llu bytes",
				 (unsigned long long)bytes);
	rc = open_domains(&link, options, error);
	if (!rc)
		rc = transport_region_allocate(link.a, ALIAS, &link.source, error);
	if (!rc)
		rc = transport_region_register(link.b, target, bytes, &link.target, error);
	if (!rc)
		rc = open_endpoints(&link, options, error);
	if (!rc)
		rc = import(&link, error);
	if (rc)
		return rc;
	link.from = transport_region_memory(link.source);
	link.to = target;
	for (size_t i = 0; !rc && i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		fill(link.from, length, 100 + i);
		rc = send_all(&link, offsets[i], length, i + 1, deadline(options), error);
	}
	link.to = NULL;
	link_close(&link);
	if (!rc)
		printf("ok 5 GiB region\n");
	return rc;
}

/* Rounds until --rounds or --seconds are over, or the first error. */
static int mode_loop(const struct options *options, struct error *error)
{
	uint64_t end = clock_ns() + (uint64_t)(options->seconds * 1e9), round = 0;
	struct link link;
	int rc = link_open(&link, options, options->bytes, error);

	if (!rc) {
		printf("connected\n");
		fflush(stdout);
	}
	while (!rc && clock_ns() < end && (!options->rounds || round < options->rounds)) {
		round++;
		fill(link.from, link.bytes, round);
		rc = send_all(&link, 0, link.bytes, round, deadline(options), error);
		if (!guards_whole(&link))
			wrong("a guard byte changed", link.bytes, 0);
	}
	if (!rc)
		printf("ok %llu rounds of %llu bytes\n", (unsigned long long)round,
		       (unsigned long long)link.bytes);
	link_close(&link);
	return rc;
}

/* The target's record with another key: what a bug or an attacker would send. */
static int import_with_key(struct link *link, uint32_t change, struct error *error)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct verbs_region_record body;
	struct record_reader reader;
	struct record_writer writer;
	struct record_head head;
	size_t length;
	int rc = transport_region_export(link->target, record, &length, error);

	if (!rc)
		rc = record_open(&reader, record, length, &head, error);
	if (!rc)
		rc = verbs_region_record_get(&reader, head.bytes, &body, error);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < body.piece_count * body.nic_count; i++)
		body.rkeys[i] ^= change;
	record_begin(&writer, record, sizeof(record), &head);
	verbs_region_record_put(&writer, &body);
	rc = record_finish(&writer, &length, error);
	transport_remote_close(&link->remote);
	return rc ? rc : transport_remote_import(link->ab, record, length, &link->remote, error);
}

static int write_refused(struct link *link, const struct options *options, struct error *error)
{
	fill(link->from, link->bytes, 3);
	return send_all(link, 0, link->bytes, 1, deadline(options), error);
}

static int mode_badkey(const struct options *options, struct error *error)
{
	struct link link;
	int rc = link_open(&link, options, options->bytes, error);

	if (!rc)
		rc = import_with_key(&link, 0x1357, error);
	if (!rc)
		rc = write_refused(&link, options, error);
	for (uint64_t i = 0; i < link.bytes; i++)
		if (link.to[i] != 0xa5)
			wrong("a byte landed with a bad key", link.bytes, i);
	link_close(&link);
	return rc;
}

/* The target let go of its memory; the writer does not know. */
static int mode_stalekey(const struct options *options, struct error *error)
{
	struct link link;
	int rc = link_open(&link, options, options->bytes, error);

	if (!rc) {
		transport_region_close(&link.target);
		rc = write_refused(&link, options, error);
	}
	for (uint64_t i = 0; i < link.bytes; i++)
		if (link.to[i] != 0xa5)
			wrong("a byte landed with a stale key", link.bytes, i);
	link_close(&link);
	return rc;
}

/* A child that touches everything while the parent writes: the NIC must keep the parent's pages. */
static int mode_fork(const struct options *options, struct error *error)
{
	struct link link;
	int rc = link_open(&link, options, options->bytes, error);

	for (uint64_t round = 1; !rc && round <= 5; round++) {
		struct transport_endpoint *ab = link.ab;
		pid_t child;
		int status = 0;

		fill(link.from, link.bytes, round);
		child = fork();
		if (child == 0) {
			struct error refused = {0};

			memset(link.from, 0xee, link.bytes);
			memset(link.to, 0xdd, link.bytes);
			/* the parent's endpoint is not the child's */
			_exit(transport_write(ab, link.from, link.source, link.remote, 0, 64,
					      deadline(options), &refused)
				      ? 0
				      : 1);
		}
		rc = send_all(&link, 0, link.bytes, round, deadline(options), error);
		waitpid(child, &status, 0);
		if (status)
			wrong("a forked child could write through its parent's endpoint", 64, 0);
	}
	if (!rc)
		printf("ok 5 rounds with a child\n");
	link_close(&link);
	return rc;
}

/* --rounds endpoints at once, a signal over each. */
static int mode_many(const struct options *options, struct error *error)
{
	uint32_t count = (uint32_t)options->rounds;
	struct transport_endpoint **ab = memory_zalloc(count, sizeof(*ab));
	struct transport_endpoint **ba = memory_zalloc(count, sizeof(*ba));
	struct link link = {0};
	int rc = open_domains(&link, options, error);

	for (uint32_t i = 0; !rc && i < count; i++) {
		rc = transport_endpoint_open(link.a, (struct member){ROLE_INFERENCE, 0}, NULL,
					     &ab[i], error);
		if (!rc)
			rc = transport_endpoint_open(link.b, (struct member){ROLE_TRAINER, 0}, NULL,
						     &ba[i], error);
		if (!rc)
			rc = join(ab[i], ba[i], deadline(options), error);
		if (!rc)
			rc = join(ba[i], ab[i], deadline(options), error);
	}
	for (uint32_t i = 0; !rc && i < count; i++) {
		struct transport_signal signal;

		rc = transport_signal(ab[i], i + 1, NULL, 0, deadline(options), error);
		if (!rc && (transport_signal_read(ba[i], &signal) != 0 || signal.tag != i + 1))
			wrong("a signal went astray", 0, i);
	}
	for (uint32_t i = 0; i < count; i++) {
		transport_endpoint_close(&ab[i]);
		transport_endpoint_close(&ba[i]);
	}
	memory_free(ab);
	memory_free(ba);
	link_close(&link);
	if (!rc)
		printf("ok %u endpoints\n", count);
	return rc;
}

static int mode_register(const struct options *options, struct error *error)
{
	struct link link = {0};
	int rc = open_domains(&link, options, error);

	if (!rc)
		rc = transport_region_allocate(link.b, options->bytes, &link.target, error);
	if (!rc)
		printf("ok %llu bytes\n", (unsigned long long)options->bytes);
	link_close(&link);
	return rc;
}

static const struct {
	const char *name;
	int (*run)(const struct options *options, struct error *error);
} modes[] = {{"sizes", mode_sizes},   {"sparse", mode_sparse},	   {"loop", mode_loop},
	     {"badkey", mode_badkey}, {"stalekey", mode_stalekey}, {"fork", mode_fork},
	     {"many", mode_many},     {"register", mode_register}};

static const struct argp_option table[] = {
	{"from", 'f', "NICS", 0, "of the trainer (rxe0)", 0},
	{"to", 't', "NICS", 0, "of the inference rank (rxe1)", 0},
	{"bytes", 'b', "N", 0, "of a write (1 MiB); of the largest in mode sizes (64 MiB)", 0},
	{"rounds", 'r', "N", 0, "at most; endpoints of mode many", 0},
	{"seconds", 's', "S", 0, "at most (10)", 0},
	{"hook", 'k', "COMMAND", 0, "run between connecting and probing", 0},
	{"timeout", 'd', "S", 0, "deadline of one call (60)", 0},
	{0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'f':
		options->from = arg;
		return 0;
	case 't':
		options->to = arg;
		return 0;
	case 'b':
		options->bytes = strtoull(arg, NULL, 0);
		return 0;
	case 'r':
		options->rounds = strtoull(arg, NULL, 0);
		return 0;
	case 'k':
		options->hook = arg;
		return 0;
	case 's':
		options->seconds = strtod(arg, NULL);
		return 0;
	case 'd':
		options->timeout = strtod(arg, NULL);
		return 0;
	case ARGP_KEY_ARG:
		options->mode = arg;
		return 0;
	case ARGP_KEY_END:
		if (!options->mode)
			argp_error(state, "say what to do: sizes, sparse, loop, badkey, ...");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {.options = table, .parser = parse, .args_doc = "MODE"};
	struct options options = {.from = "rxe0", .to = "rxe1", .seconds = 10, .timeout = 60};
	uint64_t begin = clock_ns();
	struct error error = {0};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (!options.bytes)
		options.bytes = strcmp(options.mode, "sizes") == 0 ? 64u << 20 : 1u << 20;
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(modes[i].name, options.mode) != 0)
			continue;
		if (modes[i].run(&options, &error) == 0)
			return 0;
		printf("error %s after %.2f s: %s\n", error_strerror(error.code),
		       (double)(clock_ns() - begin) / 1e9, error.text);
		return 1;
	}
	fprintf(stderr, "no mode '%s'\n", options.mode);
	return 2;
}
