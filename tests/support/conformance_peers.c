/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/conformance_parts.h"

#include <string.h>

#define SIDES 3
#define SLICE 5000

struct mesh {
	struct transport_domain *a[SIDES], *b[SIDES];
	struct transport_region *source[SIDES], *target[SIDES];
	struct transport_endpoint *ab[SIDES][SIDES], *ba[SIDES][SIDES];
	struct transport_remote *remote[SIDES][SIDES];
};

/* Both sides connect, then both probe, before anybody posts. */
static void connect_both(struct transport_endpoint *a, struct transport_endpoint *b)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	ok(transport_endpoint_record(b, record, &length, &error_));
	ok(transport_endpoint_connect(a, record, length, soon(), &error_));
	ok(transport_endpoint_record(a, record, &length, &error_));
	ok(transport_endpoint_connect(b, record, length, soon(), &error_));
	ok(transport_endpoint_probe(a, soon(), &error_));
	ok(transport_endpoint_probe(b, soon(), &error_));
}

static void mesh_side(enum role role, uint32_t rank, struct transport_domain **domain,
		      struct transport_region **region)
{
	struct transport_options options = {.self = {role, rank},
					    .secret = 42,
					    .device_memory = conformance_subject->memory != NULL,
					    .provider_options = conformance_subject->options};

	ok(transport_domain_open(domain, conformance_subject->provider, &options, &error_));
	ok(transport_region_allocate(*domain, SIDES * SLICE, region, &error_));
}

static void mesh_join(struct mesh *mesh, uint32_t i, uint32_t j)
{
	unsigned char record[TRANSPORT_RECORD_BYTES];
	size_t length;

	ok(transport_endpoint_open(mesh->a[i], (struct member){ROLE_INFERENCE, j}, NULL,
				   &mesh->ab[i][j], &error_));
	ok(transport_endpoint_open(mesh->b[j], (struct member){ROLE_TRAINER, i}, NULL,
				   &mesh->ba[i][j], &error_));
	/* import first, connect after: both orders are right */
	ok(transport_region_export(mesh->target[j], record, &length, &error_));
	ok(transport_remote_import(mesh->ab[i][j], record, length, &mesh->remote[i][j], &error_));
	assert_null(transport_remote_pointer(mesh->remote[i][j]));
	connect_both(mesh->ab[i][j], mesh->ba[i][j]);
}

static void mesh_close(struct mesh *mesh)
{
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++) {
			transport_endpoint_close(&mesh->ab[i][j]);
			transport_remote_close(&mesh->remote[i][j]);
			transport_endpoint_close(&mesh->ba[i][j]);
		}
	for (uint32_t i = 0; i < SIDES; i++) {
		transport_region_close(&mesh->source[i]);
		transport_region_close(&mesh->target[i]);
		transport_domain_close(&mesh->a[i]);
		transport_domain_close(&mesh->b[i]);
	}
}

void endpoints__many_writers_and_targets_do_not_mix(void **state)
{
	struct mesh mesh = {0};
	struct transport_signal signal;

	(void)state;
	for (uint32_t i = 0; i < SIDES; i++) {
		mesh_side(ROLE_TRAINER, i, &mesh.a[i], &mesh.source[i]);
		mesh_side(ROLE_INFERENCE, i, &mesh.b[i], &mesh.target[i]);
		memset(transport_region_memory(mesh.source[i]), (int)i + 1, SIDES * SLICE);
	}
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++)
			mesh_join(&mesh, i, j);
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++)
			ok(transport_write(mesh.ab[i][j], transport_region_memory(mesh.source[i]),
					   mesh.source[i], mesh.remote[i][j], i * SLICE, SLICE,
					   soon(), &error_));
	for (uint32_t i = 0; i < SIDES; i++)
		for (uint32_t j = 0; j < SIDES; j++)
			ok(transport_signal(mesh.ab[i][j], 10 * i + j, NULL, 0, soon(), &error_));
	for (uint32_t j = 0; j < SIDES; j++) {
		const unsigned char *got = transport_region_memory(mesh.target[j]);

		wait_signals(mesh.b[j], SIDES);
		for (uint32_t i = 0; i < SIDES; i++) {
			assert_int_equal(transport_signal_read(mesh.ba[i][j], &signal), 0);
			assert_int_equal(signal.tag, 10 * i + j);
			assert_true(all_bytes(got + i * SLICE, SLICE, (unsigned char)(i + 1)));
		}
	}
	mesh_close(&mesh);
}

void endpoints__hundreds_fit_in_one_domain(void **state)
{
	enum { MANY = 450 };
	static struct transport_endpoint *many[MANY], *back[MANY];
	uint64_t count = test_repeats(
		conformance_subject->endpoints ? conformance_subject->endpoints : MANY);
	struct transport_signal signal;
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096);
	for (uint64_t i = 0; i < count; i++) {
		ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 3}, NULL, &back[i],
					   &error_));
		ok(transport_endpoint_open(pair.a, (struct member){ROLE_INFERENCE, 5}, NULL,
					   &many[i], &error_));
		connect_both(many[i], back[i]);
	}
	for (uint64_t i = 0; i < count; i++)
		ok(transport_signal(many[i], (uint32_t)i + 1, NULL, 0, soon(), &error_));
	wait_signals(pair.b, count);
	for (uint64_t i = 0; i < count; i++) {
		assert_int_equal(transport_signal_read(back[i], &signal), 0);
		assert_int_equal(signal.tag, i + 1);
		transport_endpoint_close(&many[i]);
		transport_endpoint_close(&back[i]);
	}
	pair_close(&pair);
}

static void expect_refused(struct pair *pair, const unsigned char *record, size_t length,
			   bool endpoint)
{
	struct transport_endpoint *fresh = NULL;
	struct transport_remote *remote = NULL;
	struct error error = {0};
	int rc;

	if (endpoint) {
		ok(transport_endpoint_open(pair->a, (struct member){ROLE_INFERENCE, 5}, NULL,
					   &fresh, &error_));
		rc = transport_endpoint_connect(fresh, record, length, soon(), &error);
		transport_endpoint_close(&fresh);
	} else {
		rc = transport_remote_import(pair->ab, record, length, &remote, &error);
		assert_null(remote);
	}
	assert_int_equal(rc, -ERROR_MESSAGE);
	assert_true(strlen(error.text) > 10);
}

void records__garbled_or_cut_are_refused(void **state)
{
	unsigned char record[2][TRANSPORT_RECORD_BYTES], bad[TRANSPORT_RECORD_BYTES];
	size_t length[2];
	struct pair pair;

	(void)state;
	open_pair(&pair, 4096);
	ok(transport_region_export(pair.target, record[0], &length[0], &error_));
	ok(transport_endpoint_record(pair.ba, record[1], &length[1], &error_));
	for (int kind = 0; kind < 2; kind++) {
		for (size_t i = 0; i < length[kind]; i++) {
			expect_refused(&pair, record[kind], i, kind == 1);
			memcpy(bad, record[kind], length[kind]);
			bad[i] ^= (unsigned char)(1u << conformance_random(8));
			expect_refused(&pair, bad, length[kind], kind == 1);
		}
		expect_refused(&pair, record[kind], length[kind] + 1, kind == 1);
		expect_refused(&pair, record[kind], length[kind], kind == 0); /* other kind */
	}
	pair_close(&pair);
}

void records__of_another_job_or_peer_are_refused(void **state)
{
	struct transport_options other = {.self = {ROLE_INFERENCE, 5},
					  .secret = 43,
					  .provider_options = conformance_subject->options};
	unsigned char record[TRANSPORT_RECORD_BYTES];
	struct transport_endpoint *endpoint = NULL;
	struct transport_region *region = NULL;
	struct transport_domain *domain = NULL;
	struct pair pair;
	size_t length;

	(void)state;
	open_pair(&pair, 4096);
	for (int who = 0; who < 2; who++) {
		other.secret = who ? 42 : 43;
		other.self.rank = who ? 6 : 5;
		ok(transport_domain_open(&domain, conformance_subject->provider, &other, &error_));
		ok(transport_region_allocate(domain, 4096, &region, &error_));
		ok(transport_endpoint_open(domain, (struct member){ROLE_TRAINER, 3}, NULL,
					   &endpoint, &error_));
		ok(transport_region_export(region, record, &length, &error_));
		expect_refused(&pair, record, length, false);
		ok(transport_endpoint_record(endpoint, record, &length, &error_));
		expect_refused(&pair, record, length, true);
		transport_endpoint_close(&endpoint);
		transport_region_close(&region);
		transport_domain_close(&domain);
	}
	/* made for another peer */
	ok(transport_endpoint_open(pair.b, (struct member){ROLE_TRAINER, 4}, NULL, &endpoint,
				   &error_));
	ok(transport_endpoint_record(endpoint, record, &length, &error_));
	expect_refused(&pair, record, length, true);
	transport_endpoint_close(&endpoint);
	pair_close(&pair);
}
