/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ofi_mock_parts.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct om_network om = {.lock = PTHREAD_MUTEX_INITIALIZER};

void om_violation(const char *format, ...)
{
	va_list args;

	if (om.violations++)
		return;
	va_start(args, format);
	vsnprintf(om.violation, sizeof(om.violation), format, args);
	va_end(args);
}

void *om_memory(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory)
		abort();
	return memory;
}

void *om_grow(void *table, uint64_t count)
{
	if (count && (count & (count - 1)))
		return table;
	table = realloc(table, (count ? 2 * count : 1) * sizeof(void *));
	if (!table)
		abort();
	return table;
}

uint64_t om_random(uint64_t below)
{
	uint64_t z = om.random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % below;
}

int om_fault(enum ofi_mock_call call)
{
	if (!om.fail_at || call != om.fail_call || --om.fail_at)
		return 0;
	om.failed = true;
	return -om.fail_errnum;
}

/* ---- what tests ask ---- */

static void *pump_thread(void *context)
{
	struct timespec step = {0, 20000};

	while (!atomic_load(&om.pumper_stop)) {
		ofi_mock_pump(64);
		nanosleep(&step, NULL);
	}
	return context;
}

void ofi_mock_open(const struct ofi_mock_options *options)
{
	om_lock();
	if (om.open)
		abort();
	om.open = true;
	om.options = *options;
	if (!om.options.devices)
		om.options.devices = 1;
	if (!om.options.tx_size)
		om.options.tx_size = 64;
	if (!om.options.again_in)
		om.options.again_in = 8;
	if (!om.options.steps_per_read)
		om.options.steps_per_read = 8;
	if (!om.options.lag)
		om.options.lag = 32;
	om.random = options->seed;
	om.has_pumper = options->background;
	atomic_store(&om.pumper_stop, false);
	om_unlock(0);
	if (options->background && pthread_create(&om.pumper, NULL, pump_thread, NULL))
		abort();
}

static void free_op(struct om_op *op)
{
	free(op->copy);
	free(op);
}

void ofi_mock_close(void)
{
	if (om.has_pumper) {
		atomic_store(&om.pumper_stop, true);
		pthread_join(om.pumper, NULL);
	}
	om_lock();
	for (size_t i = 0; i < om.op_count; i++)
		free_op(om.ops[i]);
	free(om.ops);
	free(om.eps);
	free(om.mrs);
	while (om.objects) {
		struct om_object *gone = om.objects;

		om.objects = gone->next;
		free(gone->memory);
	}
	/* all but the lock */
	om.ops = NULL;
	om.op_count = om.op_capacity = 0;
	om.eps = NULL;
	om.lost_on = NULL;
	om.mrs = NULL;
	om.open = om.mute = om.has_pumper = om.failed = false;
	om.unique = om.key = om.posts = om.writes = om.messages = om.fail_at = 0;
	om.alive = om.infos = 0;
	om.cuts = om.cut_times = 0;
	om.violations = 0;
	om.violation[0] = 0;
	om_unlock(0);
}

void ofi_mock_seed(uint64_t seed)
{
	om_lock();
	om.random = seed;
	om_unlock(0);
}

void ofi_mock_pump(uint32_t steps)
{
	om_lock();
	while (steps-- && om_step())
		;
	om_unlock(0);
}

void ofi_mock_mute(bool mute)
{
	om_lock();
	om.mute = mute;
	om_unlock(0);
}

uint32_t ofi_mock_violations(void)
{
	om_lock();
	return (uint32_t)om_unlock((int)om.violations);
}

const char *ofi_mock_violation(void)
{
	return om.violation;
}

int ofi_mock_alive(void)
{
	om_lock();
	return om_unlock(om.alive + om.infos);
}

uint64_t ofi_mock_posts(void)
{
	uint64_t posts;

	om_lock();
	posts = om.posts;
	om_unlock(0);
	return posts;
}

const char *ofi_mock_call_name(enum ofi_mock_call call)
{
	static const char *const names[] = {
#define X(name) #name,
		OFI_MOCK_CALLS(X)
#undef X
	};

	return names[call];
}

void ofi_mock_fail(enum ofi_mock_call call, uint64_t at, int errnum)
{
	om_lock();
	om.fail_call = call;
	om.fail_at = at;
	om.fail_errnum = errnum;
	om_unlock(0);
}

void ofi_mock_cut(uint64_t at, uint64_t every, uint32_t times, uint32_t lag)
{
	om_lock();
	om.cut_at = at;
	om.cut_every = every;
	om.cut_times = times;
	om.cut_lag = lag;
	om_unlock(0);
}

uint32_t ofi_mock_cuts(void)
{
	om_lock();
	return (uint32_t)om_unlock((int)om.cuts);
}

bool ofi_mock_failed(void)
{
	om_lock();
	return om_unlock(om.failed);
}

/* ---- objects ---- */

void om_new(struct om_object *head, const char *what, struct om_object *parent, void *memory)
{
	*head = (struct om_object){.alive = true,
				   .what = what,
				   .parent = parent,
				   .next = om.objects,
				   .memory = memory};
	om.objects = head;
	om.alive++;
	if (parent)
		parent->children++;
}

bool om_ok(const struct om_object *head, const char *call)
{
	if (head->alive)
		return true;
	om_violation("%s on a closed %s", call, head->what);
	return false;
}

int om_end(struct om_object *head, enum ofi_mock_call call)
{
	int rc = om_fault(call);

	if (!om_ok(head, "fi_close"))
		return -FI_EINVAL;
	if (head->children) {
		om_violation("a %s is closed while %d objects need it", head->what, head->children);
		return -FI_EBUSY;
	}
	head->alive = false;
	om.alive--;
	if (head->parent)
		head->parent->children--;
	return rc;
}

/* ---- calls ---- */

static struct fi_info *mock_dupinfo(const struct fi_info *info)
{
	struct fi_info *copy;

	om_lock();
	copy = om_fault(OFI_MOCK_dupinfo) ? NULL : ofi_calls_open(NULL)->dupinfo(info);
	om.infos += copy != NULL;
	om_unlock(0);
	return copy;
}

static void mock_freeinfo(struct fi_info *info)
{
	om_lock();
	for (struct fi_info *at = info; at; at = at->next)
		om.infos--;
	ofi_calls_open(NULL)->freeinfo(info);
	om_unlock(0);
}

static bool wanted(const struct fi_info *hints, const char *name)
{
	const uint64_t caps = FI_MSG | FI_RMA;
	const int mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

	if (!hints || hints->ep_attr->type != FI_EP_RDM || (hints->caps & ~caps) ||
	    (hints->domain_attr->mr_mode & mode) != mode)
		return false;
	if (hints->fabric_attr->prov_name && strcmp(hints->fabric_attr->prov_name, "efa") != 0)
		return false;
	return !hints->domain_attr->name || strcmp(hints->domain_attr->name, name) == 0;
}

static struct fi_info *info_of(const char *name)
{
	struct fi_info *info = ofi_calls_open(NULL)->dupinfo(NULL);

	if (!info)
		abort();
	info->caps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_WRITE | FI_REMOTE_WRITE;
	info->addr_format = FI_ADDR_EFA;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->max_msg_size = UINT32_MAX;
	info->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	info->domain_attr->cq_data_size = 4;
	info->domain_attr->name = strdup(name);
	info->domain_attr->threading = FI_THREAD_SAFE;
	info->fabric_attr->prov_name = strdup("efa");
	info->fabric_attr->name = strdup("efa");
	info->tx_attr->size = om.options.tx_size;
	info->rx_attr->size = OFI_MOCK_RECEIVES;
	return info;
}

static int mock_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
			const struct fi_info *hints, struct fi_info **info)
{
	struct fi_info **last = info;
	int rc;

	*info = NULL;
	om_lock();
	rc = om_fault(OFI_MOCK_getinfo);
	for (uint32_t i = 0; !rc && i < om.options.devices; i++) {
		char name[16];

		snprintf(name, sizeof(name), "mock%u", i);
		if (!wanted(hints, name))
			continue;
		*last = info_of(name);
		last = &(*last)->next;
		om.infos++;
	}
	return om_unlock(rc ? rc : *info ? 0 : -FI_ENODATA);
}

static uint32_t mock_version(void)
{
	return FI_VERSION(1, 99);
}

const struct ofi_calls ofi_mock_calls = {
	.getinfo = mock_getinfo,
	.freeinfo = mock_freeinfo,
	.dupinfo = mock_dupinfo,
	.fabric = om_fabric_open,
	.version = mock_version,
	.strerror = ofi_strerror,
};
