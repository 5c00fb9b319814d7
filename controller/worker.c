/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/worker.h"

#include "base/assert.h"
#include <stdio.h>

struct body *bodies_find(const struct bodies *bodies, enum role role, struct digest digest)
{
	for (size_t i = 0; i < bodies->all.count; i++) {
		struct body *body = bodies->all.items[i];

		if (body->role == role && digest_equal(body->digest, digest))
			return body;
	}
	return NULL;
}

struct body *bodies_add(struct bodies *bodies, enum role role, struct digest digest)
{
	struct body *body = memory_zalloc(1, sizeof(*body));

	WEFT_ASSERT(!bodies_find(bodies, role, digest));
	if (!body || !array_add(&bodies->all, body)) {
		memory_free(body);
		return NULL;
	}
	body->role = role;
	body->digest = digest;
	layout_init(&body->layout);
	holding_init(&body->holding);
	return body;
}

void bodies_ask(struct bodies *bodies, struct body *body, const struct worker *worker)
{
	WEFT_ASSERT(!body->known);
	WEFT_ASSERT(worker);
	bodies->missing += !body->asked;
	body->asked = worker;
	WEFT_ASSERT_OP(bodies->missing, <=, bodies->all.count);
}

void bodies_stop_asking(struct bodies *bodies, struct body *body)
{
	if (!body->asked)
		return;
	WEFT_ASSERT_OP(bodies->missing, >, 0);
	bodies->missing--;
	body->asked = NULL;
}

static void body_free(struct body *body)
{
	layout_fini(&body->layout);
	holding_fini(&body->holding);
	memory_free(body);
}

static void drop(struct bodies *bodies, size_t place)
{
	struct body *body = bodies->all.items[place];

	WEFT_ASSERT_OP(body->uses, ==, 0);
	WEFT_ASSERT(!body->asked);
	bodies->all.items[place] = bodies->all.items[--bodies->all.count];
	body_free(body);
}

void bodies_drop_unused(struct bodies *bodies, struct body *body)
{
	size_t place = 0;

	if (body->uses)
		return;
	while (bodies->all.items[place] != body) {
		place++;
		WEFT_ASSERT_OP(place, <, bodies->all.count);
	}
	drop(bodies, place);
}

void bodies_forget_unused(struct bodies *bodies)
{
	for (size_t k = bodies->all.count; k-- > 0;)
		if (!bodies->all.items[k]->uses)
			drop(bodies, k);
}

void bodies_fini(struct bodies *bodies)
{
	for (size_t i = 0; i < bodies->all.count; i++) {
		WEFT_ASSERT_OP(bodies->all.items[i]->uses, ==, 0);
		body_free(bodies->all.items[i]);
	}
	array_free(&bodies->all);
}

struct worker *worker_new(struct message_hello *hello)
{
	struct worker *worker = memory_zalloc(1, sizeof(*worker));

	WEFT_ASSERT(hello->incarnation);
	WEFT_ASSERT_OP((unsigned)hello->role, <, ROLE_COUNT);
	if (!worker)
		return NULL;
	worker->who = (struct member){hello->role, hello->rank};
	worker->uses = 1;
	worker->hello = *hello;
	*hello = (struct message_hello){0};
	return worker;
}

struct worker *worker_hold(struct worker *worker)
{
	WEFT_ASSERT_OP(worker->uses, >, 0);
	worker->uses++;
	return worker;
}

void worker_release(struct worker **out)
{
	struct worker *worker = *out;
	struct message hello, declare;

	*out = NULL;
	if (!worker)
		return;
	WEFT_ASSERT_OP(worker->uses, >, 0);
	if (--worker->uses)
		return;
	if (worker->body) {
		WEFT_ASSERT_OP(worker->body->uses, >, 0);
		WEFT_ASSERT(worker->body->asked != worker);
		worker->body->uses--;
	}
	hello = (struct message){.type = MESSAGE_HELLO, .u.hello = worker->hello};
	declare = (struct message){.type = MESSAGE_DECLARE, .u.declare = worker->declare};
	message_fini(&hello);
	message_fini(&declare);
	memory_free(worker);
}

void worker_declares(struct worker *worker, struct message_declare *declare, struct body *body)
{
	WEFT_ASSERT(!worker->body);
	WEFT_ASSERT_OP(worker->who.role, ==, body->role);
	WEFT_ASSERT(digest_equal(declare->digest, body->digest));
	worker->declare = *declare;
	*declare = (struct message_declare){0};
	worker->body = body;
	body->uses++;
}

char *worker_text(const struct worker *worker, char out[WORKER_TEXT_BYTES])
{
	char name[MEMBER_TEXT_BYTES];

	snprintf(out, WORKER_TEXT_BYTES, "%s (host %s, pid %llu)", member_text(worker->who, name),
		 worker->hello.host ? worker->hello.host : "?",
		 (unsigned long long)worker->hello.pid);
	return out;
}
