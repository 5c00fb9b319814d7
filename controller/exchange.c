/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c -- the three legs after a plan. A worker's peers go out when its own endpoints
 * and those of all its peers are here, so a pair is told about each other at the same moment.
 */
#include "controller/state.h"

#include <stdlib.h>
#include <string.h>

int exchange_send_plan(struct controller *controller, struct slot *slot, struct error *error)
{
	struct message *message = action_send(controller, slot->peer, MESSAGE_PLAN);

	if (!message)
		return no_memory(error);
	slot->plan_ms = controller->now_ms;
	message->u.plan.attempt = controller->attempt;
	message->u.plan.update_timeout_ms = controller->options.update_timeout_ms;
	return book_plan(controller->book, controller, slot, &message->u.plan, error);
}

/* Plans are large. While one is made and sent, its worker goes on asking twice a second; all
 * that waits here by then is answered by the plan that has just gone out. */
#define PLAN_AGAIN_MS 250

int exchange_plan_again(struct controller *controller, struct slot *slot, struct error *error)
{
	if (controller->now_ms < slot->plan_ms + PLAN_AGAIN_MS)
		return 0;
	return exchange_send_plan(controller, slot, error);
}

static int announce(struct controller *controller, struct error *error)
{
	const struct table *table = book_table(controller->book);
	char bytes[TEXT_SHORT_BYTES], digest[DIGEST_TEXT_BYTES];
	struct controller_action *action;
	struct text names = {0};
	uint64_t total = 0;
	size_t unwanted = 0;
	int rc;

	for (size_t r = 0; r < table->route_count; r++)
		total += table->routes[r].bytes;
	rc = action_log(controller, false,
			"plan of epoch %llu by %s, order %s: %zu routes, %zu pieces, %s, digest %s",
			(unsigned long long)controller->epoch, table->policy, table->order,
			table->route_count, table->piece_count, bytes_text(total, bytes),
			digest_text(table->digest, digest));
	if (!rc)
		rc = book_unwanted(controller->book, &names, &unwanted, error);
	if (!rc && unwanted)
		rc = action_log(
			controller, true,
			"%zu tensor%s held by trainers and wanted by no inference rank, and "
			"stay%s at home: %s",
			unwanted, unwanted == 1 ? " is" : "s are", unwanted == 1 ? "s" : "",
			text_string(&names));
	text_fini(&names);
	if (rc)
		return no_memory(error);
	action = action_push(controller, CONTROLLER_TABLE);
	if (!action)
		return no_memory(error);
	action->table = table;
	return 0;
}

int exchange_begin(struct controller *controller, struct error *error)
{
	struct error why = {0};
	int rc;

	declarations_forget_unused(controller);
	rc = book_make(&controller->book, controller, &why);
	if (rc == -ERROR_MEMORY)
		return no_memory(error);
	if (rc) {
		controller->restarts_left = 0; /* the same workers would say the same again */
		return ending_fail(controller, NULL, &why, error);
	}
	controller->state = CONTROLLER_EXCHANGE;
	controller->attempt++;
	controller->since_ms = controller->now_ms;
	controller->warned = false;
	rc = announce(controller, error);
	for (uint32_t i = 0; !rc && i < controller->slot_count; i++) {
		struct slot *slot = &controller->slots[i];

		rc = book_peers(controller->book, controller, slot, &slot->peers, &slot->peer_count,
				error);
		slot_phase(controller, slot, PHASE_PLANNED);
	}
	for (uint32_t i = 0; !rc && i < controller->slot_count; i++)
		rc = exchange_send_plan(controller, &controller->slots[i], &why);
	if (!rc)
		return 0;
	if (rc == -ERROR_MEMORY)
		return no_memory(error);
	controller->restarts_left = 0;
	return ending_fail(controller, NULL, &why, error);
}

static int compare_records(const void *a, const void *b)
{
	uint32_t x = ((const struct endpoint_record *)a)->peer.rank;
	uint32_t y = ((const struct endpoint_record *)b)->peer.rank;

	return x < y ? -1 : x > y;
}

/* Sorts the records into plan order and refuses what the peers could not use. */
static int check_endpoints(const struct controller *controller, const struct slot *slot,
			   struct message_endpoints *endpoints, struct error *why)
{
	bool inference = slot->who.role == ROLE_INFERENCE;
	size_t params = inference ? slot->body->layout.param_count : 0;
	char who[SLOT_TEXT_BYTES], name[MEMBER_TEXT_BYTES];

	if (endpoints->record_count)
		qsort(endpoints->records, endpoints->record_count, sizeof(*endpoints->records),
		      compare_records);
	for (size_t i = 0; i < slot->peer_count; i++) {
		struct member peer = controller->slots[slot->peers[i]].who;

		if (i < endpoints->record_count && endpoints->records[i].peer.role == peer.role &&
		    endpoints->records[i].peer.rank == peer.rank)
			continue;
		return error_set(why, ERROR_MESSAGE, "%s sent endpoints without a record for %s",
				 slot_text(slot, who), member_text(peer, name));
	}
	if (endpoints->record_count != slot->peer_count)
		return error_set(why, ERROR_MESSAGE,
				 "%s sent %zu endpoint records, and it has %zu peers",
				 slot_text(slot, who), endpoints->record_count, slot->peer_count);
	if (inference && slot->peer_count && endpoints->copies != 1 && endpoints->copies != 2)
		return error_set(why, ERROR_MESSAGE, "%s declares %u copies of its memory: 1 or 2",
				 slot_text(slot, who), endpoints->copies);
	if (endpoints->place_count != endpoints->copies * params)
		return error_set(why, ERROR_MESSAGE,
				 "%s placed %zu parameters: its layout has %zu, its memory %u "
				 "copies",
				 slot_text(slot, who), endpoints->place_count, params,
				 endpoints->copies);
	return 0;
}

static int copy_bytes(unsigned char **to, const unsigned char *from, size_t bytes)
{
	*to = memory_alloc(bytes);
	if (!*to)
		return -ERROR_MEMORY;
	if (bytes)
		memcpy(*to, from, bytes);
	return 0;
}

/* The record that `from` made for `to`: records are in the order of from->peers. */
static const struct endpoint_record *record_for(const struct slot *from, uint32_t to)
{
	size_t low = 0, high = from->peer_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (from->peers[middle] < to)
			low = middle + 1;
		else
			high = middle;
	}
	return &from->endpoints.records[low];
}

static int describe(struct peer_endpoints *out, const struct slot *peer, uint32_t to)
{
	const struct message_endpoints *from = &peer->endpoints;
	const struct endpoint_record *record = record_for(peer, to);

	out->member = peer->who;
	out->incarnation = peer->hello.incarnation;
	out->copies = from->copies;
	out->regions = memory_zalloc(from->region_count, sizeof(*out->regions));
	if (!out->regions)
		return -ERROR_MEMORY;
	for (size_t i = 0; i < from->region_count; i++) {
		out->regions[i].region = from->regions[i].region;
		out->regions[i].length = from->regions[i].length;
		out->region_count++;
		if (copy_bytes(&out->regions[i].bytes, from->regions[i].bytes,
			       from->regions[i].length))
			return -ERROR_MEMORY;
	}
	if (copy_bytes((unsigned char **)&out->places, (const unsigned char *)from->places,
		       from->place_count * sizeof(*from->places)))
		return -ERROR_MEMORY;
	out->place_count = from->place_count;
	out->record_length = record->length;
	return copy_bytes(&out->record, record->bytes, record->length);
}

static int send_peers(struct controller *controller, struct slot *slot, struct error *error)
{
	uint32_t self = (uint32_t)(slot - controller->slots);
	struct message *message;
	struct message_peers *peers;

	if (slot->phase != PHASE_OPENED || slot->peers_ready < slot->peer_count)
		return 0;
	message = action_send(controller, slot->peer, MESSAGE_PEERS);
	if (!message)
		return no_memory(error);
	peers = &message->u.peers;
	peers->attempt = controller->attempt;
	peers->peers = memory_zalloc(slot->peer_count, sizeof(*peers->peers));
	if (!peers->peers)
		return no_memory(error);
	for (size_t i = 0; i < slot->peer_count; i++) {
		peers->peer_count++;
		if (describe(&peers->peers[i], &controller->slots[slot->peers[i]], self))
			return no_memory(error);
	}
	return 0;
}

int exchange_endpoints(struct controller *controller, struct slot *slot, struct message *message,
		       struct error *error)
{
	struct message_endpoints *endpoints = &message->u.endpoints;
	struct error why;
	int rc;

	if (endpoints->attempt != controller->attempt)
		return 0;
	if (slot->phase != PHASE_PLANNED)
		return send_peers(controller, slot, error);
	if (check_endpoints(controller, slot, endpoints, &why))
		return ending_fail(controller, slot, &why, error);
	slot->endpoints = *endpoints;
	*endpoints = (struct message_endpoints){0};
	slot_phase(controller, slot, PHASE_OPENED);
	for (size_t i = 0; i < slot->peer_count; i++) {
		struct slot *peer = &controller->slots[slot->peers[i]];

		peer->peers_ready++;
		rc = send_peers(controller, peer, error);
		if (rc)
			return rc;
	}
	return send_peers(controller, slot, error);
}

static int go(struct controller *controller, struct slot *slot, struct error *error)
{
	struct message *message = action_send(controller, slot->peer, MESSAGE_GO);

	if (!message)
		return no_memory(error);
	message->u.go.attempt = controller->attempt;
	return 0;
}

int exchange_connected(struct controller *controller, struct slot *slot, struct message *message,
		       struct error *error)
{
	int rc = 0;

	if (message->u.connected.attempt != controller->attempt || slot->phase < PHASE_OPENED)
		return 0;
	if (controller->state == CONTROLLER_RUN)
		return go(controller, slot, error);
	if (slot->phase != PHASE_OPENED)
		return 0;
	slot_phase(controller, slot, PHASE_CONNECTED);
	if (controller->phases[PHASE_CONNECTED] < controller->slot_count)
		return 0;
	controller->state = CONTROLLER_RUN;
	if (action_log(controller, false, "all %u workers are connected after %.1f s: go",
		       controller->slot_count,
		       (double)(controller->now_ms - controller->since_ms) / 1000.0))
		return no_memory(error);
	for (uint32_t i = 0; !rc && i < controller->slot_count; i++)
		rc = go(controller, &controller->slots[i], error);
	return rc;
}
