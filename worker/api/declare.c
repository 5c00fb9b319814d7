/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/api/worker.h"

#include "job/parallel.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

static int may_declare(const struct weft_worker *worker, const char *call, struct error *error)
{
	if (!worker)
		return error_set(error, ERROR_USAGE, "%s: worker is NULL", call);
	return worker_stage(worker, STAGE_OPEN, call, error);
}

static int set_label(char **label, const char *value, const char *what, struct error *error)
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

static int set_labels(struct weft_worker *worker, const char *model, const char *train,
		      const char *infer, struct error *error)
{
	int rc = set_label(&worker->model, model, "model", error);

	if (!rc)
		rc = set_label(&worker->train, train, "train", error);
	if (!rc)
		rc = set_label(&worker->infer, infer, "infer", error);
	return rc;
}

int weft_declare_labels(weft_worker *worker, const char *model, const char *train,
			const char *infer, weft_error *error)
{
	struct error inner;
	int rc = may_declare(worker, "weft_declare_labels", &inner);

	if (!rc)
		rc = set_labels(worker, model, train, infer, &inner);
	return worker_result(rc, &inner, error);
}

/* Name, dtype and shape as a host gives them. */
static int check_shape(const char *what, const char *name, const char *dtype_text, uint32_t dims,
		       enum dtype *dtype, struct error *error)
{
	if (!name || !*name)
		return error_set(error, ERROR_USAGE, "a %s without a name", what);
	if (strlen(name) >= LIMIT_NAME_BYTES)
		return error_set(error, ERROR_LIMIT,
				 "%s name of %zu bytes ('%.40s...'); at most %d", what,
				 strlen(name), name, LIMIT_NAME_BYTES - 1);
	*dtype = dtype_text ? dtype_from_name(dtype_text) : DTYPE_NONE;
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

/* The row range of a new tensor of the holding, at its id. */
static int note_rows(struct weft_worker *worker, uint32_t id, uint64_t lo, uint64_t hi,
		     struct error *error)
{
	const struct tensor_info *tensor = &worker->holding.tensors[id];

	if (worker->held_capacity <= id) {
		size_t wanted = worker->holding.tensor_capacity;
		struct held_rows *grown;

		if (wanted <= id)
			wanted = id + 1u;
		grown = memory_resize(worker->held, wanted, sizeof(*grown));
		if (!grown)
			return memory_error(error, "declaring tensors", wanted * sizeof(*grown));
		worker->held = grown;
		worker->held_capacity = wanted;
	}
	worker->held[id] = (struct held_rows){
		.lo = lo, .hi = hi, .bytes = tensor->bytes / tensor->shape[0] * (hi - lo)};
	return 0;
}

static int declare_tensor(struct weft_worker *worker, const weft_tensor *tensor, uint32_t order,
			  uint64_t row_lo, uint64_t row_hi, uint32_t *id, struct error *error)
{
	uint32_t there;
	enum dtype dtype;
	struct box box;
	int64_t index;
	int rc;

	if (!tensor)
		return error_set(error, ERROR_USAGE, "weft_declare_tensor: tensor is NULL");
	rc = check_shape("tensor", tensor->name, tensor->dtype, tensor->dims, &dtype, error);
	if (rc)
		return rc;
	if (row_lo >= row_hi || row_hi > tensor->shape[0])
		return error_set(error, ERROR_USAGE,
				 "tensor %s: rows %llu..%llu of %llu; hold at "
				 "least one row, or do not declare the tensor",
				 tensor->name, (unsigned long long)row_lo,
				 (unsigned long long)row_hi, (unsigned long long)tensor->shape[0]);
	if (strmap_get(&worker->holding.tensor_names, tensor->name, &there))
		return error_set(error, ERROR_USAGE,
				 "tensor %s is declared twice; one trainer "
				 "holds one range of its rows",
				 tensor->name);
	index = holding_add_tensor(&worker->holding, tensor->name, dtype, tensor->dims,
				   tensor->shape, order, error);
	if (index < 0)
		return (int)index;
	box = box_whole(tensor->dims, tensor->shape);
	box.lo[0] = row_lo;
	box.hi[0] = row_hi;
	rc = note_rows(worker, (uint32_t)index, row_lo, row_hi, error);
	if (!rc)
		rc = holding_add(&worker->holding, (uint32_t)index, &box, error);
	if (!rc && id)
		*id = (uint32_t)index;
	return rc;
}

int weft_declare_tensor(weft_worker *worker, const weft_tensor *tensor, uint32_t order,
			uint64_t row_lo, uint64_t row_hi, uint32_t *id, weft_error *error)
{
	struct error inner;
	int rc = may_declare(worker, "weft_declare_tensor", &inner);

	if (!rc)
		rc = worker_role(worker, ROLE_TRAINER, "weft_declare_tensor", &inner);
	if (!rc)
		rc = declare_tensor(worker, tensor, order, row_lo, row_hi, id, &inner);
	return worker_result(rc, &inner, error);
}

static int set_memory(struct weft_worker *worker, uint32_t id, void *memory, struct error *error)
{
	if (worker->host_capacity <= id) {
		size_t wanted = worker->layout.param_capacity > id ? worker->layout.param_capacity
								   : id + 1u;
		void **grown = memory_resize(worker->host_memory, wanted, sizeof(*grown));

		if (!grown)
			return memory_error(error, "declaring parameters", wanted * sizeof(*grown));
		memset(grown + worker->host_capacity, 0,
		       (wanted - worker->host_capacity) * sizeof(*grown));
		worker->host_memory = grown;
		worker->host_capacity = wanted;
	}
	worker->host_memory[id] = memory;
	return 0;
}

static int declare_param(struct weft_worker *worker, const weft_param *param, uint32_t *id,
			 struct error *error)
{
	enum dtype dtype;
	int64_t index;
	int rc;

	if (!param)
		return error_set(error, ERROR_USAGE, "weft_declare_param: param is NULL");
	rc = check_shape("parameter", param->name, param->dtype, param->dims, &dtype, error);
	if (rc)
		return rc;
	if (param->memory && !worker->own_memory)
		return error_set(error, ERROR_USAGE,
				 "parameter %s has memory, but the worker was "
				 "opened without own_memory",
				 param->name);
	index = layout_add_param(&worker->layout, param->name, dtype, param->dims, param->shape,
				 error);
	if (index < 0)
		return (int)index;
	if (worker->own_memory)
		rc = set_memory(worker, (uint32_t)index, param->memory, error);
	if (!rc && id)
		*id = (uint32_t)index;
	return rc;
}

int weft_declare_param(weft_worker *worker, const weft_param *param, uint32_t *id,
		       weft_error *error)
{
	struct error inner;
	int rc = may_declare(worker, "weft_declare_param", &inner);

	if (!rc)
		rc = worker_role(worker, ROLE_INFERENCE, "weft_declare_param", &inner);
	if (!rc)
		rc = declare_param(worker, param, id, &inner);
	return worker_result(rc, &inner, error);
}

int weft_param_bind(weft_worker *worker, uint32_t id, void *memory, uint64_t bytes,
		    weft_error *error)
{
	struct error inner;
	int rc = may_declare(worker, "weft_param_bind", &inner);

	if (!rc)
		rc = worker_role(worker, ROLE_INFERENCE, "weft_param_bind", &inner);
	if (!rc && !worker->own_memory)
		rc = error_set(&inner, ERROR_STATE,
			       "weft_param_bind: the worker was opened without own_memory");
	if (!rc && id >= worker->layout.param_count)
		rc = error_set(&inner, ERROR_USAGE,
			       "weft_param_bind: parameter %u; %zu are declared", id,
			       worker->layout.param_count);
	if (!rc && (!memory || bytes < worker->layout.params[id].bytes))
		rc = error_set(&inner, ERROR_USAGE,
			       "weft_param_bind: parameter %s needs %llu bytes, given %llu%s",
			       worker->layout.params[id].name,
			       (unsigned long long)worker->layout.params[id].bytes,
			       (unsigned long long)bytes, memory ? "" : " at NULL");
	if (!rc)
		rc = set_memory(worker, id, memory, &inner);
	return worker_result(rc, &inner, error);
}

/* A tensor that the layout needs, as a host gives it. Its index, or a negative error. */
static int64_t need_tensor(struct weft_worker *worker, const weft_tensor *tensor,
			   struct error *error)
{
	enum dtype dtype = DTYPE_NONE;
	int rc = check_shape("tensor", tensor->name, tensor->dtype, tensor->dims, &dtype, error);

	return rc ? rc
		  : layout_add_tensor(&worker->layout, tensor->name, dtype, tensor->dims,
				      tensor->shape, error);
}

/* What can be wrong before a tensor is noted: a refused piece leaves nothing behind that the right
 * one would contradict. */
static int check_made(const struct make *make, const weft_tensor *tensor, const weft_tensor *scales,
		      struct error *error)
{
	static const char call[] = "weft_declare_made_piece";
	uint64_t rows, columns;

	if (!make_valid(make))
		return error_set(error, ERROR_USAGE,
				 "%s: tensor %s: blocks of %ux%u to %ux%u%s: rows and columns of a "
				 "block are both 0 or both 1 to %u, and scales need a block",
				 call, tensor->name, make->from_rows, make->from_columns,
				 make->to_rows, make->to_columns,
				 make->part == MAKE_SCALES ? ", the scales" : "", MAKE_BLOCK_MAX);
	if (!make->from_rows && scales)
		return error_set(error, ERROR_USAGE,
				 "%s: tensor %s is not in blocks (from 0x0) but is given a tensor "
				 "of scales; pass NULL, or the block",
				 call, tensor->name);
	if (make->from_rows && !scales)
		return error_set(error, ERROR_USAGE,
				 "%s: tensor %s has blocks of %ux%u and no tensor of scales; the "
				 "one needs the other",
				 call, tensor->name, make->from_rows, make->from_columns);
	if (!scales || tensor->dims != 2)
		return 0;
	rows = (tensor->shape[0] + make->from_rows - 1) / make->from_rows;
	columns = (tensor->shape[1] + make->from_columns - 1) / make->from_columns;
	if (scales->name && scales->dtype && !strcmp(scales->dtype, "F32") && scales->dims == 2 &&
	    scales->shape[0] == rows && scales->shape[1] == columns)
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "%s: the scales of tensor %s [%llu, %llu] in blocks of %ux%u are F32 "
			 "[%llu, %llu]; given is %s %s of %u dimensions [%llu, %llu, ..]",
			 call, tensor->name, (unsigned long long)tensor->shape[0],
			 (unsigned long long)tensor->shape[1], make->from_rows, make->from_columns,
			 (unsigned long long)rows, (unsigned long long)columns,
			 scales->name ? scales->name : "(NULL)",
			 scales->dtype ? scales->dtype : "(NULL)", scales->dims,
			 (unsigned long long)scales->shape[0],
			 (unsigned long long)scales->shape[1]);
}

static int declare_made(struct weft_worker *worker, struct piece *piece, const weft_tensor *tensor,
			const weft_tensor *scales, struct error *error)
{
	int64_t index = check_made(&piece->make, tensor, scales, error);

	if (index < 0)
		return (int)index;
	index = need_tensor(worker, tensor, error);
	if (index < 0)
		return (int)index;
	piece->tensor = (uint32_t)index;
	if (scales) {
		index = need_tensor(worker, scales, error);
		if (index < 0)
			return (int)index;
		piece->scales = (uint32_t)index;
	}
	if (!make_bytes(&piece->make, &piece->src, tensor->dims, tensor->shape,
			worker->layout.params[piece->param].dtype, &piece->bytes))
		piece->bytes = 1; /* layout_add_piece says why it has none */
	return layout_add_piece(&worker->layout, piece, error);
}

static int declare_piece(struct weft_worker *worker, const char *call, const weft_tensor *tensor,
			 const uint64_t *src_lo, const uint64_t *src_hi, struct piece *piece,
			 const weft_tensor *scales, struct error *error)
{
	enum dtype dtype;
	int rc = may_declare(worker, call, error);

	if (!rc)
		rc = worker_role(worker, ROLE_INFERENCE, call, error);
	if (rc)
		return rc;
	if (!tensor || !src_lo || !src_hi)
		return error_set(error, ERROR_USAGE, "%s: tensor, src_lo or src_hi is NULL", call);
	rc = check_shape("tensor", tensor->name, tensor->dtype, tensor->dims, &dtype, error);
	if (rc)
		return rc;
	if (piece->param >= worker->layout.param_count)
		return error_set(error, ERROR_USAGE,
				 "%s: parameter %u for tensor %s; %zu are declared", call,
				 piece->param, tensor->name, worker->layout.param_count);
	piece->src.dims = tensor->dims;
	memcpy(piece->src.lo, src_lo, tensor->dims * sizeof(*src_lo));
	memcpy(piece->src.hi, src_hi, tensor->dims * sizeof(*src_hi));
	if (!box_in_shape(&piece->src, tensor->dims, tensor->shape)) {
		char text[128];

		return error_set(error, ERROR_USAGE,
				 "tensor %s: the box %s is empty or not inside "
				 "the tensor",
				 tensor->name, box_text(&piece->src, text, sizeof(text)));
	}
	return declare_made(worker, piece, tensor, scales, error);
}

int weft_declare_piece(weft_worker *worker, const weft_tensor *tensor, const uint64_t *src_lo,
		       const uint64_t *src_hi, uint32_t param, uint64_t offset, weft_error *error)
{
	struct piece piece = {.param = param, .offset = offset};
	struct error inner;
	int rc = declare_piece(worker, "weft_declare_piece", tensor, src_lo, src_hi, &piece, NULL,
			       &inner);

	return worker_result(rc, &inner, error);
}

int weft_declare_made_piece(weft_worker *worker, const weft_tensor *tensor, const uint64_t *src_lo,
			    const uint64_t *src_hi, uint32_t param, uint64_t offset,
			    const weft_make *make, const weft_tensor *scales, weft_error *error)
{
	struct piece piece = {.param = param, .offset = offset};
	struct error inner;
	int rc;

	if (make)
		piece.make = (struct make){make->scales_part ? MAKE_SCALES : MAKE_VALUES,
					   make->from_rows, make->from_columns, make->to_rows,
					   make->to_columns};
	rc = declare_piece(worker, "weft_declare_made_piece", tensor, src_lo, src_hi, &piece,
			   scales, &inner);
	return worker_result(rc, &inner, error);
}

int weft_declare_fill(weft_worker *worker, uint32_t param, uint64_t offset, uint64_t bytes,
		      weft_error *error)
{
	struct fill fill = {.param = param, .offset = offset, .bytes = bytes};
	struct error inner;
	int rc = may_declare(worker, "weft_declare_fill", &inner);

	if (!rc)
		rc = worker_role(worker, ROLE_INFERENCE, "weft_declare_fill", &inner);
	if (!rc && param >= worker->layout.param_count)
		rc = error_set(&inner, ERROR_USAGE,
			       "weft_declare_fill: parameter %u; %zu are declared", param,
			       worker->layout.param_count);
	if (!rc)
		rc = layout_add_fill(&worker->layout, &fill, &inner);
	return worker_result(rc, &inner, error);
}

static int declare_trainer(struct weft_worker *worker, const struct model *model,
			   const struct train_spec *train, struct error *error)
{
	struct holding *holding = &worker->holding;
	int rc;

	if (worker->self.rank >= train->world)
		return error_set(error, ERROR_CONFIG,
				 "trainer rank %u is not below world=%u of the "
				 "train spec",
				 worker->self.rank, train->world);
	rc = model_holding(model, train, worker->self.rank, holding, error);
	for (size_t i = 0; i < holding->held_count && !rc; i++)
		rc = note_rows(worker, holding->held[i].tensor, holding->held[i].box.lo[0],
			       holding->held[i].box.hi[0], error);
	return rc;
}

static int declare_inference(struct weft_worker *worker, const struct model *model,
			     const struct infer_spec *infer, struct error *error)
{
	int rc;

	if (worker->self.rank >= infer_ranks(infer))
		return error_set(error, ERROR_CONFIG,
				 "inference rank %u is not below engines=%u * "
				 "tp=%u of the infer spec",
				 worker->self.rank, infer->engines, infer->tp);
	rc = model_layout(model, infer, worker->self.rank % infer->tp, &worker->layout, error);
	for (uint32_t i = 0; i < worker->layout.param_count && !rc && worker->own_memory; i++)
		rc = set_memory(worker, i, NULL, error);
	return rc;
}

static int declare_model(struct weft_worker *worker, const char *name, const char *train_text,
			 const char *infer_text, struct error *error)
{
	char train_label[PARALLEL_TEXT_BYTES], infer_label[PARALLEL_TEXT_BYTES];
	struct train_spec train;
	struct infer_spec infer;
	struct model *model;
	int rc;

	if (!name || !train_text || !infer_text)
		return error_set(error, ERROR_USAGE,
				 "weft_declare_model: model, train or infer is NULL");
	if (worker->layout.param_count || worker->holding.tensor_count)
		return error_set(error, ERROR_STATE,
				 "weft_declare_model: something was declared before");
	rc = train_spec_parse(&train, train_text, error);
	if (!rc)
		rc = infer_spec_parse(&infer, infer_text, error);
	if (!rc)
		rc = model_open(&model, name, error);
	if (rc)
		return rc;
	rc = worker->self.role == ROLE_TRAINER ? declare_trainer(worker, model, &train, error)
					       : declare_inference(worker, model, &infer, error);
	if (!rc)
		rc = set_labels(worker, model->name, train_spec_text(&train, train_label),
				infer_spec_text(&infer, infer_label), error);
	if (rc) {
		/* nothing changed: the host may correct its specs and try again */
		layout_fini(&worker->layout);
		layout_init(&worker->layout);
		holding_fini(&worker->holding);
		holding_init(&worker->holding);
	}
	model_close(&model);
	return rc;
}

int weft_declare_model(weft_worker *worker, const char *model, const char *train, const char *infer,
		       weft_error *error)
{
	struct error inner;
	int rc = may_declare(worker, "weft_declare_model", &inner);

	if (!rc)
		rc = declare_model(worker, model, train, infer, &inner);
	return worker_result(rc, &inner, error);
}

int weft_count_ranks(const char *train, const char *infer, uint32_t *trainers, uint32_t *inference,
		     weft_error *error)
{
	struct train_spec train_spec;
	struct infer_spec infer_spec;
	struct error inner;
	int rc = train ? train_spec_parse(&train_spec, train, &inner) : 0;

	if (!rc && infer)
		rc = infer_spec_parse(&infer_spec, infer, &inner);
	if (!rc && train && trainers)
		*trainers = train_spec.world;
	if (!rc && infer && inference)
		*inference = infer_ranks(&infer_spec);
	return worker_result(rc, &inner, error);
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

int declare_finish(struct weft_worker *worker, struct message_declare *declare, struct error *error)
{
	const struct transport_caps *caps = transport_domain_caps(worker->domain);
	uint32_t nic_count = 0;
	int rc = check_limits(worker, error);

	if (!rc)
		rc = report_nics(worker, &nic_count, error);
	if (!rc)
		rc = worker->self.role == ROLE_TRAINER ? holding_finish(&worker->holding, error)
						       : layout_finish(&worker->layout, error);
	if (!rc && !worker->model)
		rc = set_label(&worker->model, "custom", "model", error);
	if (!rc && !worker->train)
		rc = set_label(&worker->train, "custom", "train", error);
	if (!rc && !worker->infer)
		rc = set_label(&worker->infer, "custom", "infer", error);
	if (rc)
		return rc;
	*declare = (struct message_declare){
		.model = worker->model,
		.train = worker->train,
		.infer = worker->infer,
		.mapped = caps->mapped_remote && !worker->own_memory,
		.registered = worker->self.role == ROLE_TRAINER &&
			      (!caps->local_registration || worker->ranges.count),
		.transport = worker->transport,
		.checksums = worker->checksums,
		.nics = worker->nics,
		.nic_count = nic_count,
	};
	declare->digest = worker->self.role == ROLE_TRAINER ? holding_digest(&worker->holding)
							    : layout_digest(&worker->layout);
	return 0;
}

void declare_fini(struct weft_worker *worker)
{
	layout_fini(&worker->layout);
	holding_fini(&worker->holding);
	memory_free(worker->held);
	memory_free(worker->host_memory);
	memory_free(worker->nics);
	memory_free(worker->model);
	memory_free(worker->train);
	memory_free(worker->infer);
}

int weft_tensor_at(const weft_worker *worker, uint32_t id, weft_tensor_view *view)
{
	const struct tensor_info *tensor;

	if (!worker || !view || id >= worker->holding.tensor_count)
		return -WEFT_E_USAGE;
	tensor = &worker->holding.tensors[id];
	memset(view, 0, sizeof(*view));
	view->name = tensor->name;
	view->dtype = dtype_name(tensor->dtype);
	view->dims = tensor->dims;
	memcpy(view->shape, tensor->shape, sizeof(view->shape));
	view->row_lo = worker->held[id].lo;
	view->row_hi = worker->held[id].hi;
	view->bytes = worker->held[id].bytes;
	view->wanted = worker->trainer.tensor_first &&
		       worker->trainer.tensor_first[id] != worker->trainer.tensor_first[id + 1];
	return 0;
}

int weft_param_at(const weft_worker *worker, uint32_t id, weft_param_view *view)
{
	const struct param_info *param;

	if (!worker || !view || id >= worker->layout.param_count)
		return -WEFT_E_USAGE;
	param = &worker->layout.params[id];
	memset(view, 0, sizeof(*view));
	view->name = param->name;
	view->dtype = dtype_name(param->dtype);
	view->dims = param->dims;
	memcpy(view->shape, param->shape, sizeof(view->shape));
	view->bytes = param->bytes;
	return 0;
}
