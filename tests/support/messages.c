/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/messages_draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                        \
		}                                                                       \
	} while (0)

uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t bound)
{
	return random_next(state) % bound;
}

/* Numbers of all sizes: each of msgpack's forms is as likely as the others. */
uint64_t draw_number(uint64_t *state)
{
	uint64_t bits = random_below(state, 64);

	return random_next(state) >> bits;
}

uint32_t draw_number32(uint64_t *state)
{
	uint64_t bits = random_below(state, 32);

	return (uint32_t)(random_next(state) >> (32 + bits));
}

bool draw_coin(uint64_t *state)
{
	return random_next(state) & 1;
}

/* One draw a statement from here on: the order inside an initialiser is the compiler's, and the
 * golden bytes must not depend on it. */
static struct digest digest(uint64_t *state)
{
	struct digest out;

	out.high = random_next(state);
	out.low = random_next(state);
	return out;
}

static void text_into(char *out, size_t characters, uint64_t *state)
{
	static const char *const alphabet[] = {"a", "Z", "7", ".", "-", "é", "→", "𝄞"};

	out[0] = '\0';
	for (size_t i = 0; i < characters; i++)
		strcat(out, alphabet[random_below(state, 8)]);
}

char *draw_text(uint64_t *state)
{
	char out[4 * 40 + 1];
	char *copy;

	text_into(out, random_below(state, 40), state);
	copy = memory_string(out);
	NEED(copy);
	return copy;
}

static unsigned char *bytes(size_t *length, uint64_t *state)
{
	unsigned char *out;

	*length = random_below(state, 40);
	if (*length == 0)
		return NULL;
	out = memory_alloc(*length);
	NEED(out);
	for (size_t i = 0; i < *length; i++)
		out[i] = (unsigned char)random_next(state);
	return out;
}

void *draw_list(size_t *count, size_t size, uint64_t *state)
{
	void *items;

	*count = random_below(state, 4);
	if (*count == 0)
		return NULL;
	items = memory_zalloc(*count, size);
	NEED(items);
	return items;
}

struct member draw_member(uint64_t *state)
{
	struct member out;

	out.role = (enum role)random_below(state, ROLE_COUNT);
	out.rank = (uint32_t)random_below(state, LIMIT_RANKS);
	return out;
}

static struct box box(uint64_t *state)
{
	struct box out = {.dims = 1 + (uint32_t)random_below(state, BOX_DIMS_MAX)};

	for (uint32_t d = 0; d < out.dims; d++) {
		out.lo[d] = draw_number(state) / 2;
		out.hi[d] = out.lo[d] + 1 + draw_number(state) / 4;
	}
	return out;
}

static void shape(uint32_t *dims, uint64_t *out, uint64_t *state)
{
	*dims = 1 + (uint32_t)random_below(state, BOX_DIMS_MAX);
	for (uint32_t d = 0; d < *dims; d++)
		out[d] = 1 + random_below(state, 300);
}

/* A tensor that becomes a parameter row by row, with padding rows after it. */
static void add_tensor(struct layout *layout, uint64_t *state)
{
	static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F8_E4M3, DTYPE_BOOL};
	enum dtype dtype = dtypes[random_below(state, 4)];
	uint64_t sizes[BOX_DIMS_MAX], rows, row_bytes, padding = random_below(state, 3), lo = 0;
	uint32_t dims;
	char name[64], param[64];

	shape(&dims, sizes, state);
	snprintf(name, sizeof(name), "t%zu.é%llx", layout->tensor_count,
		 (unsigned long long)random_below(state, 4096));
	snprintf(param, sizeof(param), "p%zu", layout->param_count);

	int64_t tensor = layout_add_tensor(layout, name, dtype, dims, sizes, NULL);

	NEED(tensor >= 0);
	rows = sizes[0];
	row_bytes = layout->tensors[tensor].bytes / rows;
	sizes[0] += padding;

	int64_t index = layout_add_param(layout, param, dtype, dims, sizes, NULL);

	NEED(index >= 0);
	while (lo < rows) {
		struct piece piece = {.tensor = (uint32_t)tensor,
				      .param = (uint32_t)index,
				      .offset = lo * row_bytes};
		uint64_t hi = lo + 1 + random_below(state, rows - lo);

		sizes[0] = rows;
		piece.src = box_whole(dims, sizes);
		piece.src.lo[0] = lo;
		piece.src.hi[0] = hi;
		piece.bytes = (hi - lo) * row_bytes;
		NEED(layout_add_piece(layout, &piece, NULL) == 0);
		lo = hi;
	}
	if (padding) {
		struct fill fill = {.param = (uint32_t)index,
				    .offset = rows * row_bytes,
				    .bytes = padding * row_bytes};

		NEED(layout_add_fill(layout, &fill, NULL) == 0);
	}
}

/* A matrix in blocks of 4x8 with its scales, kept in blocks of 2x16: values and scales. */
static void add_transformed(struct layout *layout, uint64_t *state)
{
	const struct transform transform = {TRANSFORM_VALUES, 4, 8, 2, 16};
	uint64_t sizes[2] = {1 + random_below(state, 40), 1 + random_below(state, 40)};
	uint64_t from[2] = {(sizes[0] + 3) / 4, (sizes[1] + 7) / 8};
	uint64_t to[2] = {(sizes[0] + 1) / 2, (sizes[1] + 15) / 16};
	uint64_t border = 2 * random_below(state, (sizes[0] + 1) / 2);
	int64_t tensor = layout_add_tensor(layout, "made", DTYPE_F8_E4M3, 2, sizes, NULL);
	int64_t scales = layout_add_tensor(layout, "made_scales", DTYPE_F32, 2, from, NULL);
	int64_t values = layout_add_param(layout, "made", DTYPE_F8_E4M3, 2, sizes, NULL);
	int64_t blocks = layout_add_param(layout, "made_scales", DTYPE_F32, 2, to, NULL);

	NEED(tensor >= 0 && scales >= 0 && values >= 0 && blocks >= 0);
	for (int part = 0; part < 2; part++) {
		struct piece whole = {.tensor = (uint32_t)tensor,
				      .param = (uint32_t)(part ? blocks : values),
				      .src = box_whole(2, sizes),
				      .bytes = part ? 4 * to[0] * to[1] : sizes[0] * sizes[1],
				      .transform = transform,
				      .scales = (uint32_t)scales};
		struct piece piece;

		whole.transform.part = (enum transform_part)part;
		if (piece_cut_rows(&whole, 0, border, &piece))
			NEED(layout_add_piece(layout, &piece, NULL) == 0);
		NEED(piece_cut_rows(&whole, border, sizes[0], &piece));
		NEED(layout_add_piece(layout, &piece, NULL) == 0);
	}
}

void messages_layout(struct layout *layout, size_t params, uint64_t pieces)
{
	uint64_t sizes[2] = {pieces * 8, 1024};

	layout_init(layout);
	for (size_t i = 0; i < params; i++) {
		char name[64];

		snprintf(name, sizeof(name), "model.layers.%zu.mlp.experts.weight", i);

		int64_t tensor = layout_add_tensor(layout, name, DTYPE_BF16, 2, sizes, NULL);
		int64_t param = layout_add_param(layout, name, DTYPE_BF16, 2, sizes, NULL);

		NEED(tensor >= 0 && param >= 0);
		for (uint64_t k = 0; k < pieces; k++) {
			struct piece piece = {.tensor = (uint32_t)tensor,
					      .param = (uint32_t)param,
					      .src = {2, {k * 8, 0}, {k * 8 + 8, 1024}},
					      .offset = k * 8 * 2048,
					      .bytes = 8 * 2048};

			NEED(layout_add_piece(layout, &piece, NULL) == 0);
		}
	}
	NEED(layout_finish(layout, NULL) == 0);
}

static void random_holding(struct holding *holding, uint64_t *state)
{
	size_t tensors = random_below(state, 4);
	uint64_t elements = 1 << 20;
	bool placed = random_below(state, 2);

	if (placed)
		NEED(holding_add_local(holding, "local", DTYPE_BF16, 1, &elements, NULL) == 0);
	for (size_t i = 0; i < tensors; i++) {
		uint64_t sizes[BOX_DIMS_MAX];
		uint32_t dims;
		char name[32];
		struct box held;

		shape(&dims, sizes, state);
		snprintf(name, sizeof(name), "tensor.%zu", i);

		int64_t index = holding_add_tensor(holding, name, DTYPE_BF16, dims, sizes,
						   draw_number32(state), NULL);

		NEED(index >= 0);
		held = box_whole(dims, sizes);
		if (placed && i == 0) {
			struct held there = {.tensor = (uint32_t)index,
					     .box = held,
					     .place = placement_dense(&held)};

			there.place.offset = random_below(state, 1000);
			NEED(holding_add_placed(holding, &there, NULL) == 0 ||
			     box_elements(&held) > elements - 1000);
			continue;
		}
		held.lo[0] = random_below(state, sizes[0]);
		NEED(holding_add(holding, (uint32_t)index, &held, NULL) == 0);
		if (held.lo[0] == 0)
			continue;
		held.hi[0] = held.lo[0];
		held.lo[0] = 0;
		NEED(holding_add(holding, (uint32_t)index, &held, NULL) == 0);
	}
	NEED(holding_finish(holding, NULL) == 0);
}

static struct region_record *regions(size_t *count, uint64_t *state)
{
	struct region_record *items = draw_list(count, sizeof(*items), state);

	for (size_t i = 0; i < *count; i++) {
		items[i].region = draw_number32(state);
		items[i].bytes = bytes(&items[i].length, state);
	}
	return items;
}

static struct param_place *places(uint32_t *copies, size_t *count, uint64_t *state)
{
	struct param_place *items = draw_list(count, sizeof(*items), state);

	*copies = *count % 2 == 0 ? 2 : 1;
	for (size_t i = 0; i < *count; i++) {
		items[i].region = draw_number32(state);
		items[i].offset = draw_number(state);
	}
	return items;
}

static void random_endpoints(struct message_endpoints *to, uint64_t *state)
{
	to->attempt = draw_number32(state);
	to->regions = regions(&to->region_count, state);
	to->places = places(&to->copies, &to->place_count, state);
	to->shared = regions(&to->shared_count, state);
	to->records = draw_list(&to->record_count, sizeof(*to->records), state);
	for (size_t i = 0; i < to->record_count; i++) {
		to->records[i].peer = draw_member(state);
		to->records[i].bytes = bytes(&to->records[i].length, state);
	}
}

static void random_peers(struct message_peers *to, uint64_t *state)
{
	to->attempt = draw_number32(state);
	to->peers = draw_list(&to->peer_count, sizeof(*to->peers), state);
	for (size_t i = 0; i < to->peer_count; i++) {
		struct peer_endpoints *peer = &to->peers[i];

		peer->member = draw_member(state);
		peer->incarnation = draw_number(state);
		peer->regions = regions(&peer->region_count, state);
		peer->places = places(&peer->copies, &peer->place_count, state);
		peer->record = bytes(&peer->record_length, state);
	}
}

static struct transform transform(uint64_t *state)
{
	struct transform transformed = {0};

	if (draw_coin(state)) {
		transformed.from_rows = 1 + (uint32_t)random_below(state, TRANSFORM_BLOCK_MAX);
		transformed.from_columns = 1 + (uint32_t)random_below(state, TRANSFORM_BLOCK_MAX);
	}
	if (draw_coin(state)) {
		transformed.to_rows = 1 + (uint32_t)random_below(state, TRANSFORM_BLOCK_MAX);
		transformed.to_columns = 1 + (uint32_t)random_below(state, TRANSFORM_BLOCK_MAX);
		transformed.part = draw_coin(state) ? TRANSFORM_VALUES : TRANSFORM_SCALES;
	}
	if (random_below(state, 4) == 0) /* has no blocks */
		transformed = (struct transform){.part = TRANSFORM_TRANSPOSED};
	else if (random_below(state, 4) == 0)
		transformed = (struct transform){
			.part = TRANSFORM_PADDED,
			.to_columns = 1 + (uint32_t)random_below(state, TRANSFORM_BLOCK_MAX)};
	return transformed;
}

static void random_row(struct plan_row *row, const struct message_plan *plan, uint64_t *state)
{
	row->peer = (uint32_t)random_below(state, plan->peer_count);
	row->ordinal = (uint32_t)random_below(state, plan->peers[row->peer].pieces);
	row->tensor = (uint32_t)random_below(state, LIMIT_TENSORS);
	row->param = (uint32_t)random_below(state, LIMIT_PARAMS);
	row->path = (enum route_path)random_below(state, PATH_COUNT);
	row->src = box(state);
	row->offset = draw_number(state) / 2;
	row->bytes = 1 + draw_number(state) / 4;
	if (draw_coin(state))
		return;
	row->transform = transform(state);
	row->scales = row->transform.from_rows ? (uint32_t)random_below(state, LIMIT_TENSORS) : 0;
	row->to = (enum dtype)(1 + random_below(state, DTYPE_COUNT - 1));
}

static void random_spares(struct message_plan *to, uint64_t *state)
{
	struct message_plan like = {0};

	to->misses_leave = draw_coin(state);
	to->hedge_ms = draw_number32(state);
	to->stands_for = 1 + (uint32_t)random_below(state, LIMIT_RANKS - 1);
	to->spares = draw_list(&to->spare_count, sizeof(*to->spares), state);
	like.peers = memory_zalloc(to->spare_count + 1, sizeof(*like.peers));
	NEED(like.peers);
	for (size_t i = 0; i < to->spare_count; i++) {
		to->spares[i].member = draw_member(state);
		to->spares[i].bytes = draw_number(state);
		to->spares[i].pieces = 1 + (uint32_t)random_below(state, 1000);
		like.peers[i].pieces = to->spares[i].pieces;
	}
	like.peer_count = to->spare_count;
	if (to->spare_count)
		to->spare_rows = draw_list(&to->spare_row_count, sizeof(*to->spare_rows), state);
	for (size_t i = 0; i < to->spare_row_count; i++)
		random_row(&to->spare_rows[i], &like, state);
	memory_free(like.peers);
}

/* What a plan that is told by another one has besides. */
static void random_difference(struct message_plan *to, uint64_t *state)
{
	to->rows_of = 1 + draw_number32(state) / 2;
	to->whole = digest(state);
	to->spared = !to->stands_for && draw_coin(state);
	to->dropped = draw_list(&to->dropped_count, sizeof(*to->dropped), state);
	for (size_t i = 0; i < to->dropped_count; i++)
		to->dropped[i] = draw_member(state);
	to->runs = draw_list(&to->run_count, sizeof(*to->runs), state);
	for (size_t i = 0; i < to->run_count; i++)
		to->runs[i] = (struct plan_run){(uint32_t)random_below(state, LIMIT_ROUTES),
						(uint32_t)random_below(state, LIMIT_ROUTES),
						(uint32_t)random_below(state, LIMIT_ROUTES)};
}

static struct members *random_members(size_t *count, uint64_t *state)
{
	struct members *members = draw_list(count, sizeof(*members), state);

	for (size_t i = 0; i < *count; i++)
		members[i] = (struct members){draw_member(state),
					      (uint32_t)random_below(state, LIMIT_RANKS)};
	return members;
}

static void random_plan(struct message_plan *to, uint64_t *state)
{
	to->attempt = draw_number32(state);
	to->digest = digest(state);
	to->follows = draw_coin(state);
	to->policy = draw_text(state);
	to->order = draw_text(state);
	to->checksums = draw_coin(state);
	to->continues = draw_coin(state);
	to->update_timeout_ms = draw_number32(state);
	to->gone = draw_number32(state);
	to->away = random_members(&to->away_count, state);
	to->next = draw_number(state);
	to->copy = draw_number(state);
	to->repeat = draw_number(state);
	to->together = draw_number32(state);
	to->shows = draw_number(state);
	to->alone = draw_number(state);
	to->decider = (uint32_t)random_below(state, LIMIT_RANKS);
	to->peers = draw_list(&to->peer_count, sizeof(*to->peers), state);
	for (size_t i = 0; i < to->peer_count; i++) {
		to->peers[i].member = draw_member(state);
		to->peers[i].host = draw_text(state);
		to->peers[i].bytes = draw_number(state);
		to->peers[i].pieces = 1 + (uint32_t)random_below(state, 1000);
		to->peers[i].transport = memory_format("t%zu", i % 3);
		NEED(to->peers[i].transport);
		to->peers[i].lacks = draw_coin(state);
		to->peers[i].delta = draw_coin(state);
		to->peers[i].copy = (enum plan_copy)random_below(state, COPY_COUNT);
		to->peers[i].kept = draw_coin(state);
		to->peers[i].stand_in = (uint32_t)random_below(state, LIMIT_RANKS);
	}
	random_spares(to, state);
	if (draw_coin(state))
		random_difference(to, state);
	if (to->peer_count == 0)
		return;
	to->rows = draw_list(&to->row_count, sizeof(*to->rows), state);
	for (size_t i = 0; i < to->row_count; i++)
		random_row(&to->rows[i], to, state);
}

static void random_hello(struct message_hello *to, uint64_t *state)
{
	struct member who = draw_member(state);

	to->role = who.role;
	to->rank = who.rank;
	to->incarnation = 1 + draw_number(state) / 2;
	to->host = draw_text(state);
	to->host_id = draw_text(state);
	to->pid = draw_number(state);
	to->attempt = draw_number32(state) / 2;
	to->plan = digest(state);
	to->follows = draw_coin(state);
	to->paused = draw_coin(state);
	to->unconnected = draw_coin(state);
	to->away = random_members(&to->away_count, state);
	to->lost = random_members(&to->lost_count, state);
	to->done = random_members(&to->done_count, state);
}

static void random_declare(struct message_declare *to, uint64_t *state)
{
	to->model = draw_text(state);
	to->train = draw_text(state);
	to->infer = draw_text(state);
	to->digest = digest(state);
	to->mapped = draw_coin(state);
	to->registered = draw_coin(state);
	to->stands_in = draw_coin(state);
	to->device = draw_coin(state);
	to->landed = draw_coin(state);
	to->transport = draw_text(state);
	to->checksums = draw_coin(state);
	to->nics = draw_list(&to->nic_count, sizeof(*to->nics), state);
	for (size_t i = 0; i < to->nic_count; i++) {
		to->nics[i].name = memory_format("mlx5_%zu", i);
		NEED(to->nics[i].name);
		to->nics[i].rail = (uint32_t)random_below(state, NIC_RAIL_MAX + 1);
		to->nics[i].bytes_per_second = random_below(state, NIC_RATE_MAX + 1);
		to->nics[i].distance = (enum nic_distance)random_below(state, DISTANCE_COUNT);
	}
	to->offers = draw_list(&to->offer_count, sizeof(*to->offers), state);
	for (size_t i = 0; i < to->offer_count; i++) {
		to->offers[i].name = memory_format("t%zu", i);
		NEED(to->offers[i].name);
		to->offers[i].reach = draw_text(state);
		to->offers[i].mapped = draw_coin(state);
		to->offers[i].registered = draw_coin(state);
		to->offers[i].landed = draw_coin(state);
	}
}

static void random_want(struct message_want *to, uint64_t *state)
{
	to->digests = draw_list(&to->digest_count, sizeof(*to->digests), state);
	for (size_t i = 0; i < to->digest_count; i++)
		to->digests[i] = digest(state);
}

static void random_lost(struct message_lost *to, uint64_t *state)
{
	to->code = (int)random_below(state, LIMIT_CODE + 1);
	to->text = draw_text(state);
	to->member = draw_member(state);
	to->incarnation = draw_number(state);
}

static void random_small(struct message *message, uint64_t *state)
{
	switch (message->type) {
	case MESSAGE_CONNECTED:
		message->u.connected.attempt = draw_number32(state);
		break;
	case MESSAGE_FAILURE:
		message->u.failure.code = (int)random_below(state, LIMIT_CODE + 1);
		message->u.failure.text = draw_text(state);
		message->u.failure.version = draw_number(state);
		break;
	case MESSAGE_DROP:
		message->u.drop.attempt = (uint32_t)random_below(state, UINT32_MAX);
		message->u.drop.member = draw_member(state);
		message->u.drop.code = (int)random_below(state, LIMIT_CODE + 1);
		message->u.drop.text = draw_text(state);
		message->u.drop.version = draw_number(state);
		break;
	case MESSAGE_GONE:
		message->u.gone.departures = 1 + (uint32_t)random_below(state, 9);
		message->u.gone.number =
			message->u.gone.departures + (uint32_t)random_below(state, 9);
		message->u.gone.first = draw_member(state);
		message->u.gone.count = 1 + (uint32_t)random_below(state, 64);
		message->u.gone.code = (int)random_below(state, LIMIT_CODE + 1);
		message->u.gone.text = draw_text(state);
		break;
	case MESSAGE_PAUSE:
		message->u.pause.number = 1 + (uint32_t)random_below(state, 9);
		message->u.pause.gone = draw_number32(state);
		message->u.pause.stop = draw_coin(state);
		message->u.pause.version = draw_number(state);
		message->u.pause.shows = draw_number(state);
		break;
	case MESSAGE_PAUSED:
		message->u.paused.number = 1 + (uint32_t)random_below(state, 9);
		message->u.paused.stopped = draw_coin(state);
		message->u.paused.next = draw_number(state);
		message->u.paused.version = draw_number(state);
		message->u.paused.repeats = draw_coin(state);
		message->u.paused.between = draw_coin(state);
		message->u.paused.anew = draw_coin(state);
		message->u.paused.promised = draw_number(state);
		break;
	case MESSAGE_LEAVE:
		message->u.leave.done = draw_coin(state);
		break;
	case MESSAGE_HEARTBEAT:
		message->u.heartbeat.sequence = draw_number(state);
		message->u.heartbeat.version = draw_number(state);
		message->u.heartbeat.gone = draw_number32(state);
		break;
	case MESSAGE_WELCOME:
		message->u.welcome.heartbeat_ms = draw_number32(state);
		message->u.welcome.lost_ms = draw_number32(state);
		message->u.welcome.controller = 1 + draw_number(state) / 2;
		message->u.welcome.runs = draw_coin(state);
		break;
	case MESSAGE_REFUSE:
		message->u.refuse.code = (int)random_below(state, LIMIT_CODE + 1);
		message->u.refuse.text = draw_text(state);
		break;
	case MESSAGE_GO:
		message->u.go.attempt = draw_number32(state);
		break;
	default:
		abort();
	}
}

static void random_body(struct message *message, uint64_t *state)
{
	switch (message->type) {
	case MESSAGE_HELLO:
		random_hello(&message->u.hello, state);
		break;
	case MESSAGE_DECLARE:
		random_declare(&message->u.declare, state);
		break;
	case MESSAGE_LAYOUT:
		for (uint64_t i = random_below(state, 4); i > 0; i--)
			add_tensor(&message->u.layout.layout, state);
		if (draw_coin(state))
			add_transformed(&message->u.layout.layout, state);
		NEED(layout_finish(&message->u.layout.layout, NULL) == 0);
		message->u.layout.digest = layout_digest(&message->u.layout.layout);
		break;
	case MESSAGE_HOLDING:
		random_holding(&message->u.holding.holding, state);
		message->u.holding.digest = holding_digest(&message->u.holding.holding);
		break;
	case MESSAGE_ENDPOINTS:
		random_endpoints(&message->u.endpoints, state);
		break;
	case MESSAGE_WANT:
		random_want(&message->u.want, state);
		break;
	case MESSAGE_PLAN:
		random_plan(&message->u.plan, state);
		break;
	case MESSAGE_PEERS:
		random_peers(&message->u.peers, state);
		break;
	case MESSAGE_LOST:
		random_lost(&message->u.lost, state);
		break;
	case MESSAGE_ACTIVITY:
		messages_random_activity(&message->u.activity, state);
		break;
	case MESSAGE_ASK:
		message->u.ask.links = draw_coin(state);
		break;
	case MESSAGE_REPORT:
		messages_random_report(&message->u.report, state);
		break;
	default:
		random_small(message, state);
	}
}

void messages_random(struct message *message, enum message_type type, uint64_t *state)
{
	memset(message, 0, sizeof(*message));
	message->type = type;
	message->wire = WIRE_VERSION;
	text_into(message->job, random_below(state, 31), state);
	message->epoch = draw_number(state);
	message->from = draw_number(state);
	random_body(message, state);
}
