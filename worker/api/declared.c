/* SPDX-License-Identifier: Apache-2.0
 *
 * declared.c -- a worker's declaration, kept until it joins: rows held, memory given, labels; and what of it the
 * controller is told.
 */
#include "worker/api/worker.h"

#include "job/transports.h"
#include <string.h>

int declare_check_shape(const char *what, const char *name, const char *dtype_text, uint32_t dims,
			enum dtype *dtype, struct error *error)
{
	if (!name || !*name)
		return error_set(error, ERROR_USAGE, "a %s without a name", what);
	if (strlen(name) >= LIMIT_NAME_BYTES)
		return error_set(error, ERROR_LIMIT,
				 "%s name of %zu bytes ('%.40s...'); at most %d", what,
				 strlen(name), name, LIMIT_NAME_BYTES - 1);
	*dtype = dtype_text ? dtype_from_text(dtype_text) : DTYPE_NONE;
	if (*dtype == DTYPE_NONE)
		return error_set(error, ERROR_USAGE,
				 "%s %s: dtype '%s' is unknown; use the names "
				 "of safetensors: BF16, F16, F32, F8_E4M3, ...",
				 what, name, dtype_text ? dtype_text : "(null)");
	if (dims < 1 || dims > WEFT_DIMS_MAX)
		return error_set(error, ERROR_USAGE,
				 "%s %s has %u dimensions; 1 to %d are possible", what, name, dims,
				 WEFT_DIMS_MAX);
	return 0;
}

int declare_set_memory(struct weft_worker *worker, uint32_t id, void *memory, struct error *error)
{
	while (worker->host_memory.count <= id)
		if (!array_push(&worker->host_memory))
			return memory_error(error, "declaring parameters", sizeof(memory));
	worker->host_memory.items[id] = memory;
	return 0;
}

int declare_check_memory(const struct weft_worker *worker, struct error *error)
{
	for (size_t i = 0; i < worker->host_memory.count; i++) {
		const struct tensor_info *param = &worker->layout.params[i];
		const void *memory = worker->host_memory.items[i];

		if (memory && transport_memory_check(memory, param->bytes, error))
			return error_wrap(error, "parameter %s", param->name);
	}
	return 0;
}

int declare_set_label(char **label, const char *value, const char *what, struct error *error)
{
	char *copy;

	if (!value)
		return 0;
	if (strlen(value) >= LIMIT_LABEL_BYTES)
		return error_set(error, ERROR_LIMIT, "the label '%s' has %zu bytes; at most %d",
				 what, strlen(value), LIMIT_LABEL_BYTES - 1);
	copy = memory_string(value);
	if (!copy)
		return memory_error(error, "keeping a label", strlen(value) + 1);
	memory_free(*label);
	*label = copy;
	return 0;
}

/* Every message must fit the wire, so limits are checked here, where names are known. */
static int check_limits(const struct weft_worker *worker, struct error *error)
{
	const struct {
		size_t count;
		uint32_t limit;
		const char *what;
	} rows[] = {
		{worker->holding.tensor_count, LIMIT_TENSORS, "tensors"},
		{worker->holding.local_count, LIMIT_PARAMS, "local parameters"},
		{worker->holding.held_count, LIMIT_PIECES, "boxes of tensors"},
		{worker->layout.tensor_count, LIMIT_TENSORS, "tensors"},
		{worker->layout.param_count, LIMIT_PARAMS, "parameters"},
		{worker->layout.piece_count, LIMIT_PIECES, "pieces"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].count > rows[i].limit)
			return error_set(error, ERROR_LIMIT, "%s declares %zu %s; at most %u",
					 worker->self_name, rows[i].count, rows[i].what,
					 rows[i].limit);
	return 0;
}

/* What the domain uses, for the declaration; names stay the domain's. */
static int report_nics(struct weft_worker *worker, uint32_t *count, struct error *error)
{
	const struct transport_nic *nics = transport_domain_nics(worker->domain, count);

	memory_free(worker->nics); /* of a join that failed */
	worker->nics = memory_zalloc(*count, sizeof(*worker->nics));
	if (!worker->nics)
		return memory_error(error, "declaring NICs", *count * sizeof(*worker->nics));
	for (uint32_t i = 0; i < *count; i++)
		worker->nics[i] = (struct nic_report){(char *)(uintptr_t)nics[i].name, nics[i].rail,
						      nics[i].bytes_per_second, nics[i].distance};
	return 0;
}

/* What peers write lies in memory of a GPU. */
static bool lands_on_device(const struct weft_worker *worker)
{
	return worker->device && worker->self.role == ROLE_INFERENCE &&
	       worker->landing != LANDING_HOST;
}

/* One of the host program's parameters lies on the host, where no kernel of a peer's gets to. */
static bool keeps_on_host(const struct weft_worker *worker)
{
	for (size_t i = 0; i < worker->host_memory.count && !worker->landing; i++)
		if (worker->host_memory.items[i] && !device_has(worker->host_memory.items[i]))
			return true;
	return false;
}

/* A trainer maps what it can, and its GPU pins that. Of a rank's memory it is mapped what weft allocates on the host, or
 * what lies on a GPU, all of it: what is spread in it is planned to be packed straight into it. */
static bool can_map(const struct weft_worker *worker, const struct transport_domain *domain)
{
	const struct transport_caps *caps = transport_domain_caps(domain);

	if (!caps->mapped_remote || worker->self.role == ROLE_TRAINER)
		return caps->mapped_remote;
	if (lands_on_device(worker))
		return caps->gpu_memory && !keeps_on_host(worker);
	return !(worker->own_memory && !worker->landing) && transport_domain_makes_memory(domain);
}

/* Writes begin where tensors lie: anywhere, or in what was registered. Those of a GPU only a NIC reads; what maps is
 * written by kernels. What a rank shows is sent to other ranks from where peers wrote it. */
static bool reads_tensors(const struct weft_worker *worker, const struct transport_caps *caps)
{
	bool registered = worker->ranges.count != 0;

	if (worker->self.role != ROLE_TRAINER)
		return !worker->landing && (!worker->device || caps->gpu_memory);
	if (worker->device)
		return caps->gpu_direct && registered && !worker->host_ring;
	return !caps->local_registration || registered;
}

/* Peers cannot write it: they write windows beside it (epoch/windows.h). */
static bool lands(const struct weft_worker *worker, const struct transport_domain *domain)
{
	return lands_on_device(worker) && !transport_domain_caps(domain)->gpu_memory;
}

/* What was opened of a list. One transport alone is said by its name, and needs no more. */
static int report_offers(struct weft_worker *worker, uint32_t *out, struct error *error)
{
	uint32_t count =
		transports_listed(worker->transport) ? transport_domain_members(worker->domain) : 0;

	*out = count;
	memory_free(worker->offers); /* of a join that failed */
	worker->offers = memory_zalloc(count, sizeof(*worker->offers));
	if (!worker->offers)
		return memory_error(error, "declaring transports", count * sizeof(*worker->offers));
	for (uint32_t i = 0; i < count; i++) {
		const struct transport_domain *member = transport_domain_member(worker->domain, i);
		const struct transport_caps *caps = transport_domain_caps(member);

		worker->offers[i] = (struct transport_offer){
			.name = (char *)(uintptr_t)transport_domain_name(member),
			.reach = (char *)(uintptr_t)transport_domain_reach(member),
			.mapped = can_map(worker, member),
			.registered = reads_tensors(worker, caps),
			.landed = lands(worker, member),
		};
	}
	return 0;
}

int declare_finish(struct weft_worker *worker, struct message_declare *declare, struct error *error)
{
	const struct transport_caps *caps = transport_domain_caps(worker->domain);
	uint32_t nic_count = 0, offer_count = 0;
	int rc = check_limits(worker, error);

	if (!rc)
		rc = report_nics(worker, &nic_count, error);
	if (!rc)
		rc = report_offers(worker, &offer_count, error);
	if (!rc)
		rc = worker->self.role == ROLE_TRAINER ? holding_finish(&worker->holding, error)
						       : layout_finish(&worker->layout, error);
	if (!rc && !worker->model)
		rc = declare_set_label(&worker->model, "custom", "model", error);
	if (!rc && !worker->train)
		rc = declare_set_label(&worker->train, "custom", "train", error);
	if (!rc && !worker->infer)
		rc = declare_set_label(&worker->infer, "custom", "infer", error);
	if (rc)
		return rc;
	*declare = (struct message_declare){
		.model = worker->model,
		.train = worker->train,
		.infer = worker->infer,
		.mapped = can_map(worker, worker->domain),
		.registered = reads_tensors(worker, caps),
		.device = worker->self.role == ROLE_TRAINER ? worker->device != NULL
							    : lands_on_device(worker),
		.landed = lands(worker, worker->domain),
		/* with "full" a tensor may be something else as soon as it is written */
		.stands_in = worker->self.role == ROLE_TRAINER && !worker->full,
		.transport = worker->transport,
		.checksums = worker->checksums,
		.nics = worker->nics,
		.nic_count = nic_count,
		.offers = worker->offers,
		.offer_count = offer_count,
	};
	declare->digest = worker->self.role == ROLE_TRAINER ? holding_digest(&worker->holding)
							    : layout_digest(&worker->layout);
	return 0;
}

void declare_fini(struct weft_worker *worker)
{
	layout_fini(&worker->layout);
	holding_fini(&worker->holding);
	locals_fini(&worker->locals);
	array_free(&worker->host_memory);
	memory_free(worker->nics);
	memory_free(worker->offers);
	memory_free(worker->model);
	memory_free(worker->train);
	memory_free(worker->infer);
}
