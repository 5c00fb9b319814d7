/* SPDX-License-Identifier: Apache-2.0
 *
 * domain.c -- this process's access to RDMA: settings, the choice of NICs, what they allow.
 */
#include "transport/verbs/verbs.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/chunk.h"
#include "transport/verbs/topology.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEPTH_LEAST (2 * VERBS_SIGNAL_SLOTS) /* as many for data as for signals */

/* Memory registered before a fork is safe in both processes since Linux 5.12. Before, libibverbs
 * must be told, ahead of the first registration of the process. */
static void prepare_fork(const struct verbs_calls *calls)
{
	int rc;

	if (calls->missing || calls->is_fork_initialized() != IBV_FORK_DISABLED)
		return;
	rc = calls->fork_init();
	if (rc)
		log_warn("verbs: somebody in this process used libibverbs before, so it cannot be "
			 "made safe for fork (errno %d) on this kernel: do not fork, or set "
			 "RDMAV_FORK_SAFE=1 from the start",
			 verbs_errno(rc));
}

/* "model" and "model name" begin alike: the whole key counts. */
static long cpuinfo_number(const char *cpuinfo, const char *key)
{
	const char *at = text_line(cpuinfo, key);

	return at ? strtol(at, NULL, 10) : -1;
}

bool verbs_relaxed_fits(const char *cpuinfo)
{
	static const long slow[] = {
		0x3c, 0x3f, 0x45, 0x46, /* Haswell */
		0x3d, 0x47, 0x4f, 0x56, /* Broadwell */
	};
	long model = cpuinfo_number(cpuinfo, "model");

	if (!strstr(cpuinfo, "GenuineIntel") || cpuinfo_number(cpuinfo, "cpu family") != 6)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
		if (model == slow[i])
			return false;
	return true;
}

/* AUTO becomes ON or OFF here, so that everybody later asks one word. */
static void decide_relaxed(struct verbs_settings *settings)
{
	char cpuinfo[4096];

	if (settings->relaxed != VERBS_AUTO)
		return;
	file_read_small("/proc/cpuinfo", cpuinfo, sizeof(cpuinfo));
	settings->relaxed = verbs_relaxed_fits(cpuinfo) ? VERBS_ON : VERBS_OFF;
}

static int begin(struct verbs_domain *verbs, const struct transport_options *options,
		 struct error *error)
{
	const struct verbs_options *given = options->provider_options;
	int rc = 0;

	verbs->calls = given && given->calls ? given->calls
		       : verbs_calls_tested  ? verbs_calls_tested(options->self)
					     : verbs_calls_system();
	verbs->no_identity = given && given->no_identity;
	if (given && given->settings)
		verbs->settings = *given->settings;
	else
		rc = verbs_settings_read(&verbs->settings, options->nics, getenv, error);
	if (!rc)
		rc = identity_read(&verbs->self, error);
	while (!rc && !verbs->nonce)
		rc = identity_random(&verbs->nonce, sizeof(verbs->nonce), "verbs", error);
	if (rc)
		return rc;
	verbs->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (verbs->wake_fd < 0)
		return error_set_errno(error, ERROR_LIMIT, errno,
				       "verbs: no file descriptor is left: raise ulimit -n");
	decide_relaxed(&verbs->settings);
	prepare_fork(verbs->calls);
	return 0;
}

/* Bytes go between a NIC and the GPU, or the cores where there is none. */
struct near {
	struct verbs_topology *topology; /* NULL: it cannot be seen */
	struct cuda_facts gpu;
	const char *pci;
};

static uint32_t distance_of(void *context, const struct verbs_device *device)
{
	const struct near *near = context;

	return near->topology ? verbs_topology_distance(near->topology, near->pci, device->pci)
			      : TOPOLOGY_UNKNOWN;
}

/* Soft devices have no place on the bus: then reading all of it, tens of ms, tells nothing. */
static bool any_on_bus(const struct verbs_facts *facts)
{
	for (size_t i = 0; i < facts->devices.count; i++)
		if (facts->devices.items[i].pci[0])
			return true;
	return false;
}

/* Where the topology cannot be seen, all NICs are equally far; that is said by each one's line. */
static int choose(const struct transport_domain *domain, struct verbs_domain *verbs,
		  struct verbs_facts *facts, struct verbs_nic_choice *choices, uint32_t *count,
		  struct error *error)
{
	struct near near = {.topology = NULL};
	struct error why = {0};
	int rc = any_on_bus(facts) ? verbs_topology_open(&near.topology, &why) : 0;

	if (rc == -ERROR_MEMORY)
		return error_copy(error, &why);
	if (rc)
		log_debug("verbs: %s", why.text);
	near.pci = verbs_gpu_pci(domain, &near.gpu);
	rc = verbs_nics_choose(facts, &verbs->settings, domain->options.self.rank, distance_of,
			       &near, choices, VERBS_NICS_MAX, count, error);
	verbs_topology_close(&near.topology);
	if (rc)
		return rc;
	if (*count * verbs->settings.qps > VERBS_LANES_MAX)
		return error_set(error, ERROR_CONFIG,
				 "%u NICs with %u queue pairs each are %u lanes per peer; at most "
				 "%d are possible: lower WEFT_QPS to %u, or name fewer NICs with "
				 "--nic",
				 *count, verbs->settings.qps, *count * verbs->settings.qps,
				 VERBS_LANES_MAX, VERBS_LANES_MAX / *count);
	return 0;
}

/* The one line from which a slow or wrong path can be seen: what was chosen, and who said so. */
static void tell_nic(const struct transport_domain *domain, const struct verbs_nic *nic,
		     const struct verbs_facts *facts, const struct verbs_nic_choice *choice)
{
	const struct verbs_port *port =
		&facts->devices.items[choice->device].ports.items[choice->port];
	const struct verbs_settings *settings = &nic->domain->settings;
	char gid[VERBS_GID_TEXT_BYTES], speed[32], from[32] = "";

	if (domain->options.device_memory)
		snprintf(from, sizeof(from), " from cuda:%d", domain->options.device);
	if (nic->limits.soft)
		snprintf(speed, sizeof(speed), "in software");
	else
		snprintf(speed, sizeof(speed), "%.5g Gb/s", (double)port->speed_mbps / 1000);
	log_info("verbs: %s:%u gid[%u] %s, %s, MTU %u, %s, distance%s: %s, relaxed ordering %s, "
		 "traffic class %u%s%s%s%s",
		 nic->limits.name, nic->port, nic->gid.index, verbs_gid_text(nic->gid.raw, gid),
		 nic->link == VERBS_LINK_INFINIBAND ? "InfiniBand" : "Ethernet", nic->mtu, speed,
		 from, verbs_topology_distance_name((enum verbs_topology_distance)choice->distance),
		 settings->relaxed == VERBS_ON ? "on" : "off", nic->traffic_class,
		 settings->nics[0] ? "; NIC by " : "", settings->nics[0] ? settings->nics_from : "",
		 settings->gid_index >= 0 ? "; GID by " : "",
		 settings->gid_index >= 0 ? settings->gid_from : "");
}

static int open_nics(struct transport_domain *domain, struct verbs_domain *verbs,
		     struct verbs_facts *facts, struct error *error)
{
	struct verbs_nic_choice choices[VERBS_NICS_MAX];
	uint32_t count = 0;
	int rc = choose(domain, verbs, facts, choices, &count, error);

	for (uint32_t i = 0; i < count && !rc; i++) {
		struct verbs_nic *nic = &verbs->nics[i];

		nic->domain = verbs;
		nic->index = i;
		nic->traffic = &domain->traffic[i];
		rc = verbs_nic_open(nic, facts, &choices[i], error);
		if (rc)
			break;
		verbs->nic_count++;
		verbs_nic_describe(facts, &choices[i], &domain->nics[domain->nic_count++]);
		tell_nic(domain, nic, facts, &choices[i]);
	}
	return rc;
}

static uint32_t power_below(uint32_t value)
{
	uint32_t power = 1;

	while (power <= value / 2)
		power *= 2;
	return power;
}

/* A send queue no deeper than every device can, with room for all completions of its lanes. */
static int fit_depth(struct verbs_domain *verbs, struct error *error)
{
	uint32_t wanted = verbs->settings.depth, depth = power_below(wanted);

	for (uint32_t i = 0; i < verbs->nic_count; i++) {
		const struct verbs_device *limits = &verbs->nics[i].limits;
		uint32_t room = limits->max_cqe > verbs->settings.qps
					? (limits->max_cqe - 1) / verbs->settings.qps
					: 1;

		while (depth > 1 && (depth > limits->max_qp_wr || depth > room))
			depth /= 2;
		if (depth < DEPTH_LEAST)
			return error_set(error, ERROR_UNSUPPORTED,
					 "%s takes send queues of %u requests and completion "
					 "queues of %u entries: too short for %u queue pairs of at "
					 "least %d requests; lower WEFT_QPS, or name other NICs "
					 "with --nic",
					 limits->name, limits->max_qp_wr, limits->max_cqe,
					 verbs->settings.qps, DEPTH_LEAST);
	}
	if (depth != wanted)
		log_warn("verbs: send queues hold %u requests, not %u: that is what these NICs "
			 "allow",
			 depth, wanted);
	verbs->settings.depth = depth;
	return 0;
}

/* Chunks that every NIC can carry as one message, from one registration. */
static int fit_chunk(struct verbs_domain *verbs, struct error *error)
{
	uint64_t chunk = verbs->settings.chunk_bytes;

	verbs_each_nic(nic, verbs) {
		uint64_t most = nic->max_message_bytes;

		if (nic->limits.max_mr_bytes < most)
			most = nic->limits.max_mr_bytes;
		if (most < CHUNK_CUT_BYTES)
			return error_set(error, ERROR_UNSUPPORTED,
					 "%s:%u takes messages of at most %" PRIu64
					 " bytes; at least %u are needed: name other NICs with "
					 "--nic",
					 nic->limits.name, nic->port, most, CHUNK_CUT_BYTES);
		if (most < chunk)
			chunk = most;
	}
	verbs->settings.chunk_bytes = chunk / CHUNK_CUT_BYTES * CHUNK_CUT_BYTES;
	return 0;
}

static void set_caps(const struct verbs_domain *verbs, struct transport_caps *caps)
{
	*caps = (struct transport_caps){
		/* With more lanes, one that dies behind a signal would have its data go out again
		 * behind that signal, and land in the version after it: so data comes first. */
		.ordered = verbs->lane_count == 1,
		.passive_target = true,
		.local_registration = true,
		.gpu_memory = verbs->gpu != VERBS_GPU_NONE,
		.gpu_direct = verbs->gpu != VERBS_GPU_NONE,
		.write_bytes_max = verbs->settings.chunk_bytes,
		.inflight_max = verbs->lane_count * verbs->settings.depth,
		.rails = verbs->lane_count,
	};
}

/* A forked child frees its copies of our memory only: what the devices hold is its parent's. */
static void destroy(struct verbs_domain *verbs, bool own)
{
	if (own) {
		verbs_slots_close(verbs);
		while (verbs->nic_count)
			verbs_nic_close(&verbs->nics[--verbs->nic_count]);
	}
	if (verbs->wake_fd >= 0)
		close(verbs->wake_fd);
	for (size_t i = 0; i < verbs->blocks.count; i++)
		memory_free(verbs->blocks.items[i]);
	array_free(&verbs->blocks);
	array_free(&verbs->lanes);
	pthread_mutex_destroy(&verbs->receive_lock);
	pthread_mutex_destroy(&verbs->shown_lock);
	pthread_mutex_destroy(&verbs->wait_lock);
	memory_free(verbs);
}

static int open_all(struct transport_domain *domain, struct verbs_domain *verbs,
		    struct error *error)
{
	struct verbs_facts facts = {0};
	int rc = begin(verbs, &domain->options, error);

	if (!rc) {
		rc = verbs_facts_read(verbs->calls, &facts, error);
		if (!rc)
			rc = open_nics(domain, verbs, &facts, error);
		verbs_facts_free(&facts);
	}
	if (!rc)
		rc = fit_chunk(verbs, error);
	if (!rc)
		rc = fit_depth(verbs, error);
	if (rc)
		return rc;
	verbs->lane_count = verbs->nic_count * verbs->settings.qps;
	return 0;
}

/* Where nothing can be opened, the next question is what there is. */
static void point_to_doctor(struct error *error)
{
	struct error why = *error;

	if (why.code == ERROR_UNSUPPORTED && !strstr(why.text, "weft doctor"))
		error_set(error, why.code, "%.900s" VERBS_SEE_DOCTOR, why.text);
}

int verbs_domain_open(struct transport_domain *domain, struct error *error)
{
	struct verbs_domain *verbs = memory_zalloc(1, sizeof(*verbs));
	int rc;

	if (!verbs)
		return memory_error(error, "opening a verbs domain", sizeof(*verbs));
	verbs->wake_fd = -1;
	pthread_mutex_init(&verbs->receive_lock, NULL);
	pthread_mutex_init(&verbs->shown_lock, NULL);
	pthread_mutex_init(&verbs->wait_lock, NULL);
	rc = open_all(domain, verbs, error);
	if (rc) {
		destroy(verbs, true);
		if (error)
			point_to_doctor(error);
		return rc;
	}
	domain->state = verbs;
	verbs_gpu_choose(domain, verbs);
	set_caps(verbs, &domain->caps);
	return 0;
}

void verbs_domain_close(struct transport_domain *domain)
{
	struct verbs_domain *verbs = domain->state;
	uint64_t stray = atomic_load(&verbs->stray_receives);

	if (stray)
		log_debug("verbs: %" PRIu64 " signals came for endpoints that were gone", stray);
	destroy(verbs, getpid() == domain->pid);
}

int verbs_identity_check(const struct verbs_domain *domain, const struct identity *peer,
			 struct error *error)
{
	if (!domain->no_identity && identity_comparable(peer, &domain->self) &&
	    process_dead(peer->pid, peer->start))
		return error_set(error, ERROR_PEER_LOST,
				 "process %" PRIu64 " that made the record has ended", peer->pid);
	return 0;
}

void verbs_domain_wake(struct transport_domain *domain)
{
	struct verbs_domain *verbs = domain->state;
	uint64_t one = 1;

	/* EAGAIN: it is set already */
	TEMP_FAILURE_RETRY(write(verbs->wake_fd, &one, sizeof(one)));
	doorbell_wake(&verbs->doorbell);
}

void verbs_domain_break(struct verbs_domain *domain, const struct error *why)
{
	if (atomic_exchange(&domain->breaking, true))
		return;
	domain->broken = *why;
	atomic_store(&domain->is_broken, true); /* after the message: readers see this first */
	log_error("verbs: %s", why->text);
	doorbell_wake(&domain->doorbell);
}
