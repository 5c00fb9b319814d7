/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel_train.c -- where a trainer stands in its grids. Megatron counts the first dimension of its order fastest, and has two
 * grids over the same ranks, of which pp is the same:
 *
 *   dense     tp  cp  dp  pp          a dense shard is (tp, pp): all dp and cp hold it
 *   experts   etp ep  edp pp          an expert's is (etp, ep, pp): all edp hold it
 *
 * dtensor counts the last fastest: pp, replicas, fsdp, tp; and experts run over fsdp and tp together.
 */
#include "job/parallel.h"

#include <stddef.h>

static uint32_t etp_of(const struct train_spec *spec)
{
	return spec->etp ? spec->etp : spec->tp;
}

static struct train_place megatron_place(const struct train_spec *spec, uint32_t rank)
{
	uint32_t dp = spec->world / (spec->tp * spec->cp * spec->pp);
	uint32_t edp = spec->world / (etp_of(spec) * spec->ep * spec->pp);
	uint32_t dense = rank / (spec->tp * spec->cp), experts = rank / (etp_of(spec) * spec->ep);
	bool pp_last = spec->order == ORDER_DP_PP;

	return (struct train_place){
		.tp = rank % spec->tp,
		.dp = pp_last ? dense % dp : dense / spec->pp,
		.pp = pp_last ? dense / dp : dense % spec->pp,
		.etp = rank % etp_of(spec),
		.ep = rank / etp_of(spec) % spec->ep,
		.edp = pp_last ? experts % edp : experts / spec->pp,
	};
}

static struct train_place dtensor_place(const struct train_spec *spec, uint32_t rank)
{
	uint32_t inside = rank % (spec->mesh_fsdp * spec->mesh_tp);

	return (struct train_place){
		.pp = rank / (spec->world / spec->pp),
		.tp = rank % spec->mesh_tp,
		.dp = inside / spec->mesh_tp,
		.ep = inside % spec->ep,
		.edp = inside / spec->ep,
	};
}

struct train_place train_place(const struct train_spec *spec, uint32_t rank)
{
	uint32_t stage = spec->world / spec->pp;

	switch (spec->source) {
	case TRAIN_MEGATRON:
		return megatron_place(spec, rank);
	case TRAIN_DTENSOR:
		return dtensor_place(spec, rank);
	case TRAIN_SHARDED:
		return (struct train_place){.pp = rank / stage, .dp = rank % spec->fsdp};
	case TRAIN_ZERO3:
	case TRAIN_FSDP1:
		return (struct train_place){.pp = rank / stage, .dp = rank % stage};
	default:
		return (struct train_place){.pp = rank / stage};
	}
}

uint32_t train_stage(const struct train_spec *spec, uint32_t rank)
{
	return train_place(spec, rank).pp;
}

uint64_t train_alike(const struct train_spec *spec, uint32_t rank)
{
	const struct train_place place = train_place(spec, rank);

	if (spec->source == TRAIN_MEGATRON)
		return (((uint64_t)place.pp * spec->tp + place.tp) * etp_of(spec) + place.etp) *
			       spec->ep +
		       place.ep;
	if (spec->source == TRAIN_DTENSOR)
		return (uint64_t)place.pp * spec->mesh_fsdp * spec->mesh_tp +
		       rank % (spec->mesh_fsdp * spec->mesh_tp);
	return (uint64_t)place.pp * spec->world + place.dp;
}

/* ---- layers of Megatron's stages ---- */

/* Layers of chunk `chunk` of stage `pp`, where they are as even as Megatron asks; false where they are not. */
static bool chunk_layers(const struct train_spec *spec, uint32_t layers, uint32_t pp,
			 uint32_t chunk, uint32_t *count)
{
	uint32_t chunks = spec->pp * spec->vpp,
		 all = layers + spec->account_embedding + spec->account_loss;
	uint32_t others = spec->pp - (spec->first != 0) - (spec->last != 0);
	uint32_t of_stage;

	if (spec->stage_layers_count) {
		*count = spec->stage_layers[chunk * spec->pp + pp];
		return true;
	}
	if (spec->first || spec->last) {
		if (spec->first + spec->last > layers ||
		    (others && (layers - spec->first - spec->last) % others) ||
		    (!others && spec->first + spec->last != layers))
			return false;
		of_stage = pp == 0 && spec->first ? spec->first
			   : pp == spec->pp - 1 && spec->last
				   ? spec->last
				   : (layers - spec->first - spec->last) / others;
		*count = of_stage / spec->vpp;
		return of_stage % spec->vpp == 0;
	}
	if (all % chunks)
		return false;
	*count = all / chunks;
	if (pp == 0 && chunk == 0)
		*count -= spec->account_embedding;
	if (pp == spec->pp - 1 && chunk == spec->vpp - 1) {
		if (*count < spec->account_loss)
			return false;
		*count -= spec->account_loss;
	}
	return true;
}

int train_megatron_layer(const struct train_spec *spec, uint32_t layers, uint32_t layer,
			 struct train_layer *out, struct error *error)
{
	uint64_t before = 0;

	for (uint32_t chunk = 0; chunk < spec->vpp; chunk++)
		for (uint32_t pp = 0; pp < spec->pp; pp++) {
			uint32_t count;

			if (!chunk_layers(spec, layers, pp, chunk, &count))
				return error_set(
					error, ERROR_CONFIG,
					"--train: %u layers are not laid out evenly by pp=%u, vpp=%u, first=%u, last=%u, "
					"account_embedding=%u, account_loss=%u; give layers=, a number a stage, chunk "
					"by chunk, as layers=5/4/4",
					layers, spec->pp, spec->vpp, spec->first, spec->last,
					spec->account_embedding, spec->account_loss);
			if (layer >= before && layer < before + count)
				*out = (struct train_layer){pp, chunk, layer - (uint32_t)before};
			before += count;
		}
	if (before != layers)
		return error_set(error, ERROR_CONFIG,
				 "--train layers= adds up to %llu layers; the model has %u",
				 (unsigned long long)before, layers);
	return layer < layers ? 0
			      : error_set(error, ERROR_CONFIG,
					  "layer %u is past the model's %u layers", layer, layers);
}
