/* SPDX-License-Identifier: Apache-2.0
 *
 * The fabric itself: its life, its random numbers, faults, violations and what tests ask of it.
 */
#include "tests/support/verbs_mock_parts.h"

#include "base/clock.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x6d6f636b76657262)

struct mock_fabric mock_fabric = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const type_names[MOCK_TYPES] = {"context", "PD",	 "MR", "CQ",
						   "SRQ",     "channel", "QP"};

void *mock_memory(size_t bytes)
{
	void *memory = calloc(1, bytes ? bytes : 1);

	if (!memory)
		abort();
	return memory;
}

void mock_violation(const char *format, ...)
{
	va_list args;

	if (mock_fabric.violations++)
		return;
	va_start(args, format);
	vsnprintf(mock_fabric.violation, sizeof(mock_fabric.violation), format, args);
	va_end(args);
}

uint64_t mock_random(uint64_t below)
{
	uint64_t z = mock_fabric.random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return ((z ^ z >> 31) >> 32) * below >> 32;
}

/* ---- faults ---- */

static const char *const call_names[] = {
#define X(result, name, parameters, arguments) #name,
	VERBS_CALLS(X, X)
#undef X
};

const char *verbs_mock_call_name(enum verbs_mock_call call)
{
	return call_names[call];
}

bool verbs_mock_can_fail(enum verbs_mock_call call)
{
	switch (call) {
	case VERBS_MOCK_free_device_list:
	case VERBS_MOCK_get_device_name:
	case VERBS_MOCK_is_fork_initialized:
	case VERBS_MOCK_ack_cq_events:
	case VERBS_MOCK_qp_to_qp_ex:
	case VERBS_MOCK_wr_start:
	case VERBS_MOCK_wr_rdma_write:
	case VERBS_MOCK_wr_rdma_write_imm:
	case VERBS_MOCK_wr_set_sge:
	case VERBS_MOCK_ack_async_event:
		return false;
	default:
		return true;
	}
}

int mock_fault(enum verbs_mock_call call)
{
	struct mock_fabric *fabric = &mock_fabric;

	fabric->called[call]++;
	if (fabric->fail_at == 0 || fabric->fail_call != call || --fabric->fail_at)
		return -1;
	fabric->failed = true;
	return fabric->fail_how == VERBS_MOCK_SILENT ? 0 : fabric->fail_errno;
}

void *mock_null(int errnum)
{
	mock_unlock();
	errno = errnum;
	return NULL;
}

int mock_positive(int errnum)
{
	mock_unlock();
	errno = errnum;
	return errnum ? errnum : -1;
}

int mock_minus(int errnum)
{
	mock_unlock();
	errno = errnum;
	return -1;
}

void verbs_mock_fail(enum verbs_mock_call call, uint64_t at, int errnum, enum verbs_mock_how how,
		     uint32_t wr)
{
	mock_lock();
	mock_fabric.fail_call = call;
	mock_fabric.fail_at = at;
	mock_fabric.fail_errno = errnum;
	mock_fabric.fail_how = how;
	mock_fabric.fail_wr = wr;
	mock_fabric.failed = false;
	mock_unlock();
}

bool verbs_mock_failed(void)
{
	bool failed;

	mock_lock();
	failed = mock_fabric.failed;
	mock_unlock();
	return failed;
}

uint64_t verbs_mock_called(enum verbs_mock_call call)
{
	uint64_t count;

	mock_lock();
	count = mock_fabric.called[call];
	mock_unlock();
	return count;
}

/* ---- objects ---- */

void mock_object_new(struct mock_head *head, enum mock_type type, struct mock_device *device)
{
	*head = (struct mock_head){.magic = MAGIC,
				   .type = type,
				   .alive = true,
				   .device = device,
				   .next = mock_fabric.objects};
	mock_fabric.objects = head;
	mock_fabric.alive[type]++;
}

bool mock_object_ok(const struct mock_head *head, enum mock_type type, const char *call)
{
	if (head->magic != MAGIC || head->type != type) {
		mock_violation("%s: this is no %s", call, type_names[type]);
		return false;
	}
	if (!head->alive)
		mock_violation("%s: the %s is destroyed", call, type_names[type]);
	return head->alive;
}

/* As a device does, it waits for a thread that has taken an event and not acknowledged it yet. */
void mock_object_end(struct mock_head *head, const char *what)
{
	for (int ms = 0; ms < 200 && head->events_taken != head->events_acked; ms++) {
		mock_unlock();
		clock_sleep_ms(1);
		mock_lock();
	}
	if (head->events_taken != head->events_acked)
		mock_violation("%s: %u async events were not acknowledged: this blocks for ever",
			       what, head->events_taken - head->events_acked);
	head->alive = false;
	mock_fabric.alive[head->type]--;
}

static void object_free(struct mock_head *head)
{
	switch (head->type) {
	case MOCK_CONTEXT: {
		struct mock_context *context =
			(void *)((char *)head - offsetof(struct mock_context, head));

		if (head->alive)
			close(context->ibv.async_fd);
		array_free(&context->events);
		free(context);
		break;
	}
	case MOCK_CHANNEL: {
		struct mock_channel *channel =
			(void *)((char *)head - offsetof(struct mock_channel, head));

		if (head->alive)
			close(channel->ibv.fd);
		array_free(&channel->events);
		free(channel);
		break;
	}
	case MOCK_CQ: {
		struct mock_cq *cq = (void *)((char *)head - offsetof(struct mock_cq, head));

		array_free(&cq->entries);
		free(cq);
		break;
	}
	case MOCK_SRQ: {
		struct mock_srq *srq = (void *)((char *)head - offsetof(struct mock_srq, head));

		array_free(&srq->wr_ids);
		free(srq);
		break;
	}
	case MOCK_QP: {
		struct mock_qp *qp = (void *)((char *)head - offsetof(struct mock_qp, head));

		for (uint64_t i = qp->base; i < qp->tail; i++)
			mock_request_free(mock_request_at(qp, i));
		free(qp->ring);
		free(qp);
		break;
	}
	case MOCK_PD:
		free((char *)head - offsetof(struct mock_pd, head));
		break;
	default:
		free((char *)head - offsetof(struct mock_mr, head));
		break;
	}
}

/* ---- life ---- */

static void *pumper_main(void *context)
{
	(void)context;
	while (!mock_fabric.pumper_stop) {
		struct timespec pause = {0, 100000};

		verbs_mock_pump(32);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void options_complete(struct verbs_mock_options *options)
{
	options->nics = options->nics ? options->nics : 1;
	options->ports = options->ports ? options->ports : 1;
	options->steps_per_poll = options->steps_per_poll ? options->steps_per_poll : 8;
	options->patience = options->patience ? options->patience : 64;
	for (uint32_t i = 0; i < VERBS_MOCK_NICS; i++)
		if (!options->subnets[i])
			options->subnets[i] = 77 + i;
	for (uint32_t i = 0; i < VERBS_MOCK_HOSTS; i++)
		if (!options->mtu[i])
			options->mtu[i] = 4096;
}

static void device_fill(struct mock_device *device, uint32_t host, uint32_t nic)
{
	*device = (struct mock_device){.host = host, .nic = nic, .link = true};
	device->ibv.node_type = IBV_NODE_CA;
	device->ibv.transport_type = IBV_TRANSPORT_IB;
	snprintf(device->ibv.name, sizeof(device->ibv.name), "m%un%u", host, nic);
	snprintf(device->ibv.dev_name, sizeof(device->ibv.dev_name), "mock%u", host * 8 + nic);
	for (int port = 0; port < 2; port++) {
		device->active[port] = true;
		device->lid[port] = (uint16_t)(0x100 + host * 32 + nic * 4 + (uint32_t)port);
	}
	mock_gid_fill(device);
}

void verbs_mock_open(const struct verbs_mock_options *options)
{
	struct mock_fabric *fabric = &mock_fabric;

	if (fabric->open)
		abort();
	*fabric = (struct mock_fabric){.lock = PTHREAD_MUTEX_INITIALIZER, .open = true};
	fabric->options = *options;
	options_complete(&fabric->options);
	fabric->random = options->seed;
	fabric->qpn_base = 0x100 + (uint32_t)mock_random(0x7000);
	for (uint32_t host = 0; host < VERBS_MOCK_HOSTS; host++)
		for (uint32_t nic = 0; nic < VERBS_MOCK_NICS; nic++)
			device_fill(&fabric->devices[host][nic], host, nic);
	if (options->background && pthread_create(&fabric->pumper, NULL, pumper_main, NULL))
		abort();
}

void verbs_mock_close(void)
{
	struct mock_fabric *fabric = &mock_fabric;

	if (fabric->options.background) {
		fabric->pumper_stop = true;
		pthread_join(fabric->pumper, NULL);
	}
	while (fabric->objects) {
		struct mock_head *head = fabric->objects;

		fabric->objects = head->next;
		object_free(head);
	}
	for (size_t i = 0; i < fabric->spare.count; i++)
		free(fabric->spare.items[i]);
	array_free(&fabric->spare);
	array_free(&fabric->qps);
	array_free(&fabric->mrs);
	array_free(&fabric->active);
	fabric->open = false;
}

void verbs_mock_seed(uint64_t seed)
{
	mock_lock();
	mock_fabric.random = seed;
	mock_unlock();
}

uint32_t verbs_mock_pump(uint32_t steps)
{
	uint32_t done = 0;

	mock_lock();
	for (uint32_t i = 0; i < steps; i++)
		done += mock_step();
	mock_unlock();
	return done;
}

uint32_t verbs_mock_pending(void)
{
	uint32_t pending = 0;

	mock_lock();
	for (size_t i = 0; i < mock_fabric.active.count; i++)
		pending += (uint32_t)(mock_fabric.active.items[i]->tail -
				      mock_fabric.active.items[i]->base);
	mock_unlock();
	return pending;
}

void verbs_mock_watch(void (*look)(void *context), void *context)
{
	mock_lock();
	mock_fabric.look = look;
	mock_fabric.look_context = context;
	mock_unlock();
}

uint32_t verbs_mock_violations(void)
{
	uint32_t count;

	mock_lock();
	count = mock_fabric.violations;
	mock_unlock();
	return count;
}

const char *verbs_mock_violation(void)
{
	return mock_fabric.violation;
}

static int unacked(void)
{
	int count = 0;

	for (const struct mock_head *head = mock_fabric.objects; head; head = head->next) {
		if (!head->alive)
			continue;
		count += (int)(head->events_taken - head->events_acked);
		if (head->type == MOCK_CQ) {
			const struct mock_cq *cq =
				(const void *)((const char *)head - offsetof(struct mock_cq, head));

			count += (int)(cq->comp_taken - cq->comp_acked);
		}
		if (head->type == MOCK_CONTEXT) {
			const struct mock_context *context =
				(const void *)((const char *)head -
					       offsetof(struct mock_context, head));

			count += context->port_taken - context->port_acked;
		}
	}
	return count;
}

struct verbs_mock_counts verbs_mock_counts(void)
{
	const int *alive = mock_fabric.alive;
	struct verbs_mock_counts counts;

	mock_lock();
	counts = (struct verbs_mock_counts){.lists = mock_fabric.lists,
					    .contexts = alive[MOCK_CONTEXT],
					    .pds = alive[MOCK_PD],
					    .mrs = alive[MOCK_MR],
					    .cqs = alive[MOCK_CQ],
					    .srqs = alive[MOCK_SRQ],
					    .channels = alive[MOCK_CHANNEL],
					    .qps = alive[MOCK_QP],
					    .events_unacked = unacked()};
	mock_unlock();
	return counts;
}

int verbs_mock_alive(void)
{
	struct verbs_mock_counts now = verbs_mock_counts();

	return now.lists + now.contexts + now.pds + now.mrs + now.cqs + now.srqs + now.channels +
	       now.qps + now.events_unacked;
}
