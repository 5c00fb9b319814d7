/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as a hostile peer would send them. Raw first; then signed again, since a forger can
 * compute the checksum and the decoders behind it must stand alone. What is accepted must
 * encode to the same bytes.
 */
#include "job/digest.h"
#include "transport/cuda/cuda.h"
#include "transport/ofi/ip.h"
#include "transport/ofi/records.h"
#include "transport/shm/shm.h"
#include "transport/verbs/records.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

union body {
	struct shm_endpoint_record shm_endpoint;
	struct shm_region_record shm_region;
	struct cuda_region_record cuda_region;
	struct verbs_endpoint_record verbs_endpoint;
	struct verbs_region_record verbs_region;
	struct ofi_endpoint_record ofi_endpoint;
	struct ofi_region_record ofi_region;
};

static bool is_ofi(const struct record_head *head)
{
	return strcmp(head->provider, "tcp") == 0 || strcmp(head->provider, "efa") == 0;
}

static bool is_cuda_region(const struct record_head *head)
{
	return strcmp(head->provider, "cuda") == 0 && head->kind == RECORD_REGION;
}

/* As cuda_remote_import reads it: of host memory the rest is shm's. */
static int get_cuda(struct record_reader *reader, const struct record_head *head, union body *body,
		    struct error *error)
{
	uint32_t way = record_get_u32(reader);

	if (way < CUDA_HOST_MEMORY || way > CUDA_MAPPED)
		return -ERROR_MESSAGE;
	memset(&body->cuda_region, 0, sizeof(body->cuda_region));
	body->cuda_region.way = way;
	return way == CUDA_HOST_MEMORY
		       ? -ERROR_MESSAGE
		       : cuda_region_record_get(reader, head->bytes, &body->cuda_region, error);
}

static int get(struct record_reader *reader, const struct record_head *head, union body *body,
	       struct error *error)
{
	bool verbs = strcmp(head->provider, "verbs") == 0;

	if (is_ofi(head))
		return head->kind == RECORD_REGION
			       ? ofi_region_record_get(reader, &body->ofi_region, error)
			       : ofi_endpoint_record_get(reader, &body->ofi_endpoint, error);
	if (is_cuda_region(head))
		return get_cuda(reader, head, body, error);
	if (head->kind == RECORD_REGION)
		return verbs ? verbs_region_record_get(reader, head->bytes, &body->verbs_region,
						       error)
			     : shm_region_record_get(reader, head->bytes, &body->shm_region, error);
	return verbs ? verbs_endpoint_record_get(reader, &body->verbs_endpoint, error)
		     : shm_endpoint_record_get(reader, &body->shm_endpoint, error);
}

static void put(struct record_writer *writer, const struct record_head *head,
		const union body *body)
{
	bool verbs = strcmp(head->provider, "verbs") == 0;

	if (is_cuda_region(head))
		cuda_region_record_put(writer, &body->cuda_region);
	else if (is_ofi(head) && head->kind == RECORD_REGION)
		ofi_region_record_put(writer, &body->ofi_region);
	else if (is_ofi(head))
		ofi_endpoint_record_put(writer, &body->ofi_endpoint);
	else if (head->kind == RECORD_REGION && verbs)
		verbs_region_record_put(writer, &body->verbs_region);
	else if (head->kind == RECORD_REGION)
		shm_region_record_put(writer, &body->shm_region);
	else if (verbs)
		verbs_endpoint_record_put(writer, &body->verbs_endpoint);
	else
		shm_endpoint_record_put(writer, &body->shm_endpoint);
}

/* Two sides that a peer made up must not lead the choice of rails astray. */
static void match(const struct record_head *head, const union body *body)
{
	const struct verbs_endpoint_record *record = &body->verbs_endpoint;
	struct verbs_rail rails[VERBS_NICS_MAX];
	uint32_t count;

	if (head->kind != RECORD_ENDPOINT || strcmp(head->provider, "verbs") != 0)
		return;
	count = verbs_rails_match(record, record, record->attempt, rails);
	for (uint32_t i = 0; i < count; i++)
		if (rails[i].trainer_nic >= record->nic_count ||
		    rails[i].inference_nic >= record->nic_count)
			abort();
}

/* Addresses are read as addresses of IP, whatever they are; a text of one has an end. */
static void read_addresses(const struct ofi_rail_record *rail)
{
	for (uint32_t i = 0; i < rail->address_count; i++) {
		struct sockaddr_storage storage;
		char text[IP_TEXT_BYTES];

		ip_to_sockaddr(&rail->addresses[i], &storage);
		if (!memchr(ip_text(&rail->addresses[i], text), 0, sizeof(text)) ||
		    (ip_is_loopback(&rail->addresses[i]) && ip_is_link_local(&rail->addresses[i])))
			abort();
		for (uint32_t to = 0; to < rail->address_count; to++)
			if ((unsigned)ip_reaches(&rail->addresses[i], &rail->addresses[to]) > 2)
				abort();
	}
}

static void decode(const unsigned char *data, size_t size)
{
	unsigned char again[TRANSPORT_RECORD_BYTES];
	struct record_reader reader;
	struct record_writer writer;
	struct record_head head;
	struct error error;
	union body body;
	size_t length;

	if (record_open(&reader, data, size, &head, &error) || get(&reader, &head, &body, &error))
		return;
	match(&head, &body);
	for (uint32_t i = 0;
	     is_ofi(&head) && head.kind == RECORD_ENDPOINT && i < body.ofi_endpoint.rail_count; i++)
		read_addresses(&body.ofi_endpoint.rails[i]);
	record_begin(&writer, again, sizeof(again), &head);
	put(&writer, &head, &body);
	if (record_finish(&writer, &length, &error) || length != size ||
	    memcmp(again, data, size) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char copy[TRANSPORT_RECORD_BYTES];
	uint64_t sum;

	if (size > sizeof(copy))
		return 0;
	decode(data, size);
	if (size < RECORD_HEAD_BYTES + RECORD_TAIL_BYTES)
		return 0;
	memcpy(copy, data, size);
	copy[8] = (unsigned char)size;
	copy[9] = (unsigned char)(size >> 8);
	copy[10] = copy[11] = 0;
	sum = checksum64(copy, size - RECORD_TAIL_BYTES);
	for (int i = 0; i < 8; i++)
		copy[size - 8 + (size_t)i] = (unsigned char)(sum >> (8 * i));
	decode(copy, size);
	return 0;
}
