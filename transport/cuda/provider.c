/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/cuda/cuda.h"

#include "transport/cuda/device.h"
#include "transport/cuda/errors.h"
#include "transport/late.h"

#include <inttypes.h>
#include <unistd.h>

/* ---- domain ---- */

static int check_options(const struct transport_domain *domain, struct error *error)
{
	int device = domain->options.device, count, rc;

	if (domain->options.nics[0] && !domain->owner)
		return error_set(
			error, ERROR_CONFIG,
			"transport cuda uses no NIC, but '%s' is asked for: leave --nic out, or choose "
			"--transport verbs or tcp",
			domain->options.nics);
	rc = cuda_device_count(&count, error);
	if (!rc && (device < 0 || device >= count))
		rc = error_set(error, ERROR_CONFIG,
			       "there is no device cuda:%d: the driver shows %d", device, count);
	return rc;
}

/* Its context is made now, where that may fail, and with a word that says of what. */
static int try_device(int device, struct error *error)
{
	int rc = cuda_enter(device, error);

	if (!rc)
		cuda_leave();
	return rc;
}

int cuda_domain_open(struct transport_domain *domain, struct error *error)
{
	struct cuda_domain *cuda;
	int rc = check_options(domain, error);

	if (!rc)
		rc = try_device(domain->options.device, error);
	if (rc)
		return rc;
	cuda = memory_zalloc(1, sizeof(*cuda));
	if (!cuda)
		return memory_error(error, "opening a cuda domain", sizeof(*cuda));
	cuda->device = domain->options.device;
	rc = shm_domain_open(domain, error);
	if (rc) {
		memory_free(cuda);
		return rc;
	}
	((struct shm_domain *)domain->state)->more = cuda;
	domain->caps.ordered = false;
	domain->caps.gpu_memory = true;
	domain->caps.write_bytes_max = CUDA_CHUNK_BYTES;
	return 0;
}

void cuda_domain_close(struct transport_domain *domain)
{
	struct cuda_domain *cuda = cuda_domain_of(domain);

	array_free(&cuda->exported);
	memory_free(cuda);
	shm_domain_close(domain);
}

/* ---- endpoints ---- */

static void close_stream(struct cuda_endpoint *cuda, int device)
{
	if (!cuda->stream || cuda_enter(device, NULL))
		return;
	cuda_calls()->stream_synchronize(cuda->stream); /* nothing is freed under a copy */
	for (uint32_t i = 0; i < CUDA_RING; i++)
		if (cuda->events[i])
			cuda_calls()->event_destroy(cuda->events[i]);
	cuda_calls()->stream_destroy(cuda->stream);
	cuda_leave();
}

static int open_stream(struct cuda_endpoint *cuda, int device, struct error *error)
{
	int rc = cuda_enter(device, error);

	if (rc)
		return rc;
	rc = cuda_calls()->stream_create(&cuda->stream);
	if (rc)
		cuda->stream = NULL;
	for (uint32_t i = 0; i < CUDA_RING && !rc; i++) {
		rc = cuda_calls()->event_create(&cuda->events[i]);
		if (rc)
			cuda->events[i] = NULL;
	}
	cuda_leave();
	if (!rc)
		return 0;
	close_stream(cuda, device);
	return cuda_failed(rc, error, "making a stream on %s", cuda_device_text(device));
}

int cuda_endpoint_open(struct transport_endpoint *endpoint, struct error *error)
{
	struct cuda_endpoint *cuda = memory_zalloc(1, sizeof(*cuda));
	int rc;

	if (!cuda)
		return memory_error(error, "opening an endpoint", sizeof(*cuda));
	cuda->late = shm_late_new();
	rc = cuda->late ? open_stream(cuda, cuda_domain_of(endpoint->domain)->device, error)
			: memory_error(error, "opening an endpoint", sizeof(*cuda->late));
	if (!rc) {
		rc = shm_endpoint_open(endpoint, error);
		if (rc)
			close_stream(cuda, cuda_domain_of(endpoint->domain)->device);
	}
	if (rc) {
		memory_free(cuda->late);
		memory_free(cuda);
		return rc;
	}
	((struct shm_endpoint *)endpoint->state)->more = cuda;
	return 0;
}

int cuda_endpoint_stop(struct transport_endpoint *endpoint, uint64_t deadline_ns,
		       struct error *error)
{
	return cuda_domain_of(endpoint->domain)->regions
		       ? shm_endpoint_fence(endpoint, deadline_ns, error)
		       : shm_endpoint_stop(endpoint, deadline_ns, error);
}

/* All device memory that peers may have opened, as one range: what lies between is refused too while one holds on. */
static uint64_t exported_range(const struct cuda_domain *domain, uintptr_t *at)
{
	uintptr_t end = 0;

	*at = 0;
	for (const struct cuda_region *region = domain->regions; region; region = region->next) {
		uintptr_t first = (uintptr_t)region->record.address;

		if (!end || first < *at)
			*at = first;
		if (first + region->bytes > end)
			end = first + region->bytes;
	}
	return end - *at;
}

void cuda_endpoint_close(struct transport_endpoint *endpoint)
{
	struct cuda_endpoint *cuda = ((struct shm_endpoint *)endpoint->state)->more;
	struct cuda_domain *domain = cuda_domain_of(endpoint->domain);
	uintptr_t at = 0;
	uint64_t bytes;

	if (getpid() == endpoint->domain->pid) {
		close_stream(cuda, domain->device);
		bytes = endpoint->guest ? 0 : exported_range(domain, &at);
		shm_late_hold_mapped(endpoint, &cuda->late, at, bytes);
	}
	memory_free(cuda->late);
	memory_free(cuda);
	shm_endpoint_close(endpoint);
}

/* What is shm's own, and holes. */
#define cuda_domain_wake	shm_domain_wake
#define cuda_domain_keep_mapped shm_domain_keep_mapped
#define cuda_endpoint_record	shm_endpoint_record
#define cuda_endpoint_connect	shm_endpoint_connect
#define cuda_endpoint_probe	NULL
#define cuda_endpoint_abort	NULL
#define cuda_endpoint_fence	shm_endpoint_fence
#define cuda_credit		NULL
#define cuda_settle		shm_settle
#define cuda_idle		NULL
#define cuda_signal_read	shm_signal_read
#define cuda_signal_wait	shm_signal_wait
#define cuda_peer_dead		shm_peer_dead

const struct provider provider_cuda = {
	.name = "cuda",
	.what = "processes of one host and its GPUs: device memory opened by the other side",
	.one_host = true,
	.maps = true,
#define X(op) .op = cuda_##op,
	PROVIDER_OPS(X)
#undef X
};
